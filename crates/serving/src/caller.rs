//! Who asks: what authentication found out about a request, and what impersonation tells another server.

use std::collections::BTreeMap;

/// An authenticated caller.
///
/// Authentication puts it into the request's extensions. Who sends the request on to another server writes the impersonation
/// headers from it, so that the other server sees the caller and not the sender's own rights.
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
    /// The server that says so, where that is not this one: he is somebody there alone, and in no group here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

impl Caller {
    /// True if the caller is in `group`, and that counts here.
    pub fn is_in(&self, group: &str) -> bool {
        self.domain.is_none() && self.groups.iter().any(|held| held == group)
    }

    /// True if the caller is somebody in a server of this name.
    pub fn counts_in(&self, server: &str) -> bool {
        self.domain.as_deref().is_none_or(|domain| domain == server)
    }
}
