//! What a controller is given: the world, the object that it looks at, the time, and the settings.

use std::sync::Arc;

use jiff::Timestamp;

use super::world::{Key, World};

/// How time and chance are for the controllers.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Choices follow from it.
    pub(super) seed: u64,
    /// Milliseconds that an image takes, from and to.
    pub(super) pull_ms: (i64, i64),
    /// Whether workloads live. Else namespaces live and garbage is collected, and nothing more.
    pub(super) workloads: bool,
    /// Whether every namespace has the service account `default`.
    pub(super) accounts: bool,
    /// What `kube-root-ca.crt` says in every namespace; `None`: there is none.
    pub(super) root_ca: Option<Arc<str>>,
    /// The first address of pods.
    pub(super) pods: [u8; 4],
}

/// What members of the demo give for a certificate authority.
pub(super) const ROOT_CA: &str =
    "-----BEGIN CERTIFICATE-----\nVGhpcyBpcyBhIGNsdXN0ZXIgb2Yga3ViZWZvbGQncyBkZW1vLgo=\n-----END CERTIFICATE-----\n";

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            pull_ms: (400, 2500),
            workloads: true,
            accounts: true,
            root_ca: Some(ROOT_CA.into()),
            pods: [10, 244, 0, 0],
        }
    }
}

/// What a controller sees.
pub(super) struct Context<'a> {
    pub(super) world: &'a World,
    pub(super) key: &'a Key,
    pub(super) now: Timestamp,
    pub(super) settings: &'a Settings,
}
