//! Who asks: what authentication found out about a request, and what impersonation tells a member.

use std::collections::BTreeMap;

/// An authenticated caller.
///
/// `serve` makes it and puts it into the request's extensions; whoever speaks to a member writes the
/// impersonation headers from it, so that a member sees the caller and never kubefold's own power.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Caller {
    /// User name; never empty in a caller that `serve` has let in.
    pub user: String,
    /// Groups, `system:authenticated` among them.
    pub groups: Vec<String>,
    /// UID, where the credential says one.
    pub uid: Option<String>,
    /// Whatever else the credential says.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// True if the caller is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }
}
