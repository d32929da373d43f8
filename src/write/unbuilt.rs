//! Writes of the fleet view that are not built yet: refused in words that say where they work.

use crate::{
    config::MemberName,
    wire::{resource::Gvr, status::Status},
};

/// 405 for a write that the fleet view does not take yet.
///
/// `what` is the verb as a person says it (`update`, `patch`, `create`); `path` is the request's, as in the fleet view.
pub fn not_built(what: &str, gvr: &Gvr, path: &str, members: &[MemberName]) -> Status {
    let member = members.first().map_or("<member>", MemberName::as_str);
    Status::method_not_allowed(format!(
        "the fleet view cannot {what} {} yet; do it in a member: at /clusters/<member>{path}, \
         or with kubectl --context fleet-<member> (for example fleet-{member})",
        gvr.qualified()
    ))
}
