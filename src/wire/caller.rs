//! Who asks: the identity that a member sees.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An authenticated caller, as it is impersonated toward members and kept in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User name.
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
    /// UID, where the authenticator gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Further attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}
