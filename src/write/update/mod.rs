//! PUT and PATCH of folded objects, placed or shared, and of their subresources.
//!
//! The change is planned on what the fleet view shows, rehearsed in every part, written to the journal, made in the home,
//! and then in the other parts: each value only where a part still holds the old one.

mod draft;
mod part;
mod settle;
mod shares;
mod task;
mod wanted;
mod work;

use std::sync::Arc;

use http::Method;

use crate::{
    config::MemberName,
    wire::status::Status,
    write::{
        Writer,
        fleet::{Fleet, Key},
        reply::{Reply, taken, unsettled},
        request::Request,
        unbuilt::not_built,
        update::{
            wanted::stale,
            work::{Stop, Work},
        },
    },
};

/// How often a write that names no revision begins anew because the object changed meanwhile, as in a kube-apiserver.
///
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go` `MaxRetryWhenPatchConflicts`.
const TRIES_MAX: u32 = 5;

/// Answers a write.
pub(super) async fn update<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, name: &str) -> Reply {
    let key = request.key(name);
    let by_document = matches!(request.method, Method::PUT | Method::PATCH)
        && matches!(request.subresource.as_str(), "" | "status" | "finalize" | "approval")
        && request.content_type != wanted::APPLY_PATCH;
    if by_document {
        return document(writer, request, &key).await.unwrap_or_else(|reply| reply);
    }
    let what = request.gvr.qualified();
    not_built(request.method.as_str(), &what, &key.object(), None::<&MemberName>, &writer.fleet.members()).into()
}

/// Writes whatever answers with the object.
async fn document<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, key: &Key) -> Result<Reply, Reply> {
    let options = if request.method == Method::PUT { "UpdateOptions" } else { "PatchOptions" };
    let dry = request.dry_run(options)?;
    for _ in 0..TRIES_MAX {
        let Some(hold) = writer.fleet.hold(key).await else { return Err(taken(key)) };
        let whole = writer.fleet.whole(&hold, key).ok_or_else(|| missing(writer, key))?;
        let mut work = Work::new(writer, request, key, whole, dry)?;
        match Box::pin(work.run(hold)).await {
            Ok(reply) | Err(Stop::Told(reply)) => return Ok(reply.warned(work.warnings)),
            Err(Stop::Again) => {}
        }
    }
    Err(stale(key))
}

/// 404, or 503 while a create of that name is not settled.
fn missing<F: Fleet>(writer: &Writer<F>, key: &Key) -> Reply {
    match writer.journal.open_create(key).and_then(|entry| entry.targets.into_iter().next()) {
        Some(earlier) => unsettled(key, &earlier.member),
        None => Status::not_found(&key.gvr.group, &key.gvr.resource, &key.name).into(),
    }
}
