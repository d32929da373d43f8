//! What the fleet view does not do yet: refused in words that say where it works.

use crate::{config::MemberName, store::Naming};
use kubefold_wire::{info::RequestInfo, resource::Gvr, status::Status};

/// 405 for what the fleet view does not take yet.
///
/// `verb` is as a person says it (`update`, `patch`, `create`); `what` the resource, with a subresource if there is one;
/// `path` the one to use in a member, and `member` the one that has to do it, where that is known.
pub fn not_built(verb: &str, what: &str, path: &str, member: Option<&MemberName>, members: &[MemberName]) -> Status {
    let (at, example) = match (member, members.first()) {
        (Some(member), _) => (member.as_str(), String::new()),
        (None, Some(first)) => ("<member>", format!(" (for example fleet-{first})")),
        (None, None) => ("<member>", String::new()),
    };
    Status::method_not_allowed(format!(
        "the fleet view cannot {verb} {what} yet; do it in a member: at /clusters/{at}{path}, \
         or with kubectl --context fleet-{at}{example}"
    ))
}

/// The same, of a request as it came.
pub fn request_not_built(info: &RequestInfo, naming: &Naming) -> Status {
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
