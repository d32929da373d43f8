//! What a running kubefold leaves in its state directory, so that `kubefold kubeconfig` needs no configuration file.

use std::{io, path::Path, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::serve::state::{StateDir, StateError};

const FILE: &str = "serving.json";

/// Where a kubefold is served, and how one logs in there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// `https://host:port`, without a last slash.
    pub url: String,
    /// Whether it is a fleet, with views and members; if not, it is an API server of its own.
    #[serde(default = "yes")]
    pub fleet: bool,
    /// Names of the members, in configuration order.
    pub members: Vec<String>,
    /// PEM that a client trusts: the own authority, or the given serving chain.
    pub certificate_authority: String,
}

/// What was written before there was another answer.
fn yes() -> bool {
    true
}

/// A certificate that logs in, and its key. Both are PEM.
#[derive(Clone)]
pub struct Login {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum PublishedError {
    #[error("state directory {dir}: no kubefold has served from it yet ({FILE} is missing); check the path, or start \"kubefold serve\" or \"kubefold apiserver\" with --state-dir {dir} first", dir = .dir.display())]
    Missing { dir: PathBuf },
    #[error("state directory {}: cannot read {file} ({cause}); run this as the user that runs that kubefold", .dir.display())]
    Unreadable { dir: PathBuf, file: &'static str, cause: String },
}

impl Published {
    /// Leaves it for others to read.
    pub fn write(&self, state: &StateDir) -> Result<(), StateError> {
        // Strings: serialization has no way to fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        state.write(FILE, &text, false)
    }

    /// Reads what another process left. Takes no lock.
    pub fn read(dir: &Path) -> Result<Self, PublishedError> {
        let unreadable = |cause: String| PublishedError::Unreadable { dir: dir.to_path_buf(), file: FILE, cause };
        let text = std::fs::read_to_string(dir.join(FILE)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => PublishedError::Missing { dir: dir.to_path_buf() },
            _ => unreadable(error.to_string()),
        })?;
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
    }

    /// The admin's login of the state directory.
    pub fn read_admin(dir: &Path) -> Result<Login, PublishedError> {
        let read = |file: &'static str| {
            std::fs::read_to_string(dir.join(file)).map_err(|error| PublishedError::Unreadable {
                dir: dir.to_path_buf(),
                file,
                cause: error.to_string(),
            })
        };
        Ok(Login { certificate: read("admin.crt")?, key: read("admin.key")? })
    }
}
