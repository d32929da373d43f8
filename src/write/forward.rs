//! Writes with one target: the member's answer is the answer.

use std::sync::Arc;

use crate::{
    config::MemberName,
    write::{Writer, fleet::Fleet, reply::Reply, request::Request, unbuilt::not_built},
};

/// Answers a write.
pub(super) async fn forward<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    own: &str,
    member: &MemberName,
) -> Reply {
    let path = request.key(own).object();
    let what = request.gvr.qualified();
    not_built(request.method.as_str(), &what, &path, Some(member), &writer.fleet.members()).into()
}
