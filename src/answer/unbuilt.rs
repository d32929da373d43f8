//! What the fleet view does not do yet: refused in words that say where it works.

use crate::{config::MemberName, respond::NotBuilt, store::Naming};
use kubefold_wire::{info::RequestInfo, resource::Gvr};

/// What the fleet view does not take yet.
///
/// `verb` is as a person says it (`update`, `patch`, `create`); `what` the resource, with a subresource if there is one;
/// `path` the one to use in a member, and `member` the one that has to do it, where that is known.
pub fn not_built(verb: &str, what: &str, path: &str, member: Option<&MemberName>, members: &[MemberName]) -> NotBuilt {
    NotBuilt {
        verb: verb.to_owned(),
        what: what.to_owned(),
        path: path.to_owned(),
        member: member.cloned(),
        example: members.first().filter(|_| member.is_none()).cloned(),
    }
}

/// The same, of a request as it came.
pub fn request_not_built(info: &RequestInfo, naming: &Naming) -> NotBuilt {
    let gvr = Gvr::new(&info.api_group, &info.api_version, &info.resource);
    let (member, path) = match naming.split(&info.name) {
        Some((own, member)) => (Some(member), info.path.replace(&info.name, own)),
        None => (None, info.path.clone()),
    };
    let mut what = gvr.qualified();
    if !info.subresource.is_empty() {
        what = format!("{what}/{}", info.subresource);
    }
    not_built(&info.verb, &what, &path, member, naming.members())
}
