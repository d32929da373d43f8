//! PUT, PATCH and subresources of folded objects.

use std::sync::Arc;

use crate::{
    config::MemberName,
    write::{Writer, fleet::Fleet, reply::Reply, request::Request, unbuilt::not_built},
};

/// Answers a write.
pub(super) async fn update<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, name: &str) -> Reply {
    let path = request.key(name).object();
    let what = request.gvr.qualified();
    not_built(request.method.as_str(), &what, &path, None::<&MemberName>, &writer.fleet.members()).into()
}
