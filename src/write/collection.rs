//! The deletion of a collection: each object on its own, as a kube-apiserver does it. No member's objects are missed, as it
//! does not begin while one cannot be asked; what fails half-way is told with what was done.

use std::sync::Arc;

use futures::future::join_all;
use http::StatusCode;

use crate::{
    answer::reply::Reply,
    config::MemberName,
    write::{
        Writer, delete,
        fleet::Fleet,
        forward,
        options::{Options, of_part},
        request::Request,
        steps::is_of_another,
    },
};
use kubefold_wire::{reword::reworded, warning::Warnings};

/// Member-local objects that are deleted at once.
const IN_PARALLEL: usize = 16;
/// Folded objects that are deleted at once: each is a write in every member.
const FOLDED_IN_PARALLEL: usize = 4;

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Its visible name.
    pub name: String,
    /// Its namespace; a collection may be one of all.
    pub namespace: String,
    /// Its visible UID: nothing that has taken its name since is deleted.
    pub uid: String,
    /// Of a member-local object its own name and its member.
    pub member_local: Option<(String, MemberName)>,
}

/// Deletes them. The warnings are those of all answers.
///
/// Errors: the first refusal; what is under way then is waited for, and nothing else begun.
pub(super) async fn delete_collection<F: Fleet>(
    writer: &Arc<Writer<F>>,
    request: &Request,
    selected: &[Selected],
) -> Result<Warnings, Reply> {
    let options = Options::read(request)?;
    let (mut warnings, mut done) = (Warnings::default(), 0);
    let (member_locals, folded): (Vec<_>, Vec<_>) = selected.iter().partition(|one| one.member_local.is_some());
    for some in member_locals.chunks(IN_PARALLEL).chain(folded.chunks(FOLDED_IN_PARALLEL)) {
        let replies = join_all(some.iter().map(|one| delete_one(writer, request, &options, one))).await;
        let mut failed = None;
        for (one, reply) in some.iter().zip(replies) {
            warnings.merge(&reply.warnings);
            if is_gone(writer, request, one, &reply) {
                done += 1;
            } else {
                failed = failed.or(Some(reply));
            }
        }
        if let Some(reply) = failed {
            let told = format!(" ({done} of {} were deleted before that)", selected.len());
            let body = reworded(&reply.body, |message| format!("{message}{told}")).unwrap_or(reply.body);
            return Err(Reply { body, warnings, ..reply });
        }
    }
    Ok(warnings)
}

async fn delete_one<F: Fleet>(writer: &Arc<Writer<F>>, request: &Request, options: &Options, one: &Selected) -> Reply {
    let body = of_part(&options.base, &one.uid, None, options.dry);
    let (name, namespace) = (one.name.clone(), one.namespace.clone());
    let request = Request { name, namespace, query: String::new(), body, ..request.clone() };
    match &one.member_local {
        Some((own, member)) => forward::forward(writer, &request, own, member).await,
        None => delete::delete(writer, &request, &one.name).await,
    }
}

/// Says whether nothing is left to do: it is deleted, was before, or its name is another object's by now.
fn is_gone<F: Fleet>(writer: &Writer<F>, request: &Request, one: &Selected, reply: &Reply) -> bool {
    match reply.code {
        code if code.is_success() => true,
        StatusCode::NOT_FOUND if one.member_local.is_some() => true,
        StatusCode::NOT_FOUND => {
            let key = Request { namespace: one.namespace.clone(), ..request.clone() }.key(&one.name);
            writer.fleet.visible(&key).is_none_or(|visible| visible.uid != one.uid)
        }
        StatusCode::CONFLICT => is_of_another(&reply.body),
        _ => false,
    }
}
