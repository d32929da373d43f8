//! What the fleet view does not do yet: refused in words that say where it works.

use crate::config::MemberName;
use kubefold_wire::status::Status;

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
