//! Why etcd is not served, or a call of it failed.

use std::error::Error;

use hyper_util::client::legacy;
use tonic::{Code, Status};

use crate::storage::StorageError;

/// Why a storage in etcd cannot be served.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// It cannot be reached, or does not do what it is asked to.
    #[error(
        "etcd does not answer as it should: {0}; check that it runs, its hosts and ports, and, with TLS, who signed its certificate and this server's"
    )]
    Unreachable(String),
    /// A value is none that this server understands.
    #[error("the value of {place} in etcd cannot be read: {why}; give this server another prefix, or remove the key")]
    Unreadable {
        /// The key in etcd.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Its revision is compacted.
    Compacted,
    /// Its revision has not been yet.
    Future,
    /// There is no room for it, and nothing was done.
    Full(String),
    /// Nobody has it: no connection was made.
    NotSent(String),
    /// It was refused, and nothing was done.
    Refused(String),
    /// Whether it was done is not known.
    Lost(String),
    /// A value in the answer is none that this server understands.
    Unreadable { place: String, why: String },
}

impl Failure {
    /// Source: etcd `api/v3rpc/rpctypes/error.go`.
    pub(super) fn of(status: &Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::OutOfRange if text.contains("has been compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("future revision") => Self::Future,
            Code::ResourceExhausted if text.contains("space exceeded") || text.contains("larger than max") => {
                Self::Full(text)
            }
            Code::InvalidArgument if text.contains("too large") => Self::Full(text),
            Code::InvalidArgument
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented => Self::Refused(text),
            _ => match cause_of(status) {
                (true, cause) => Self::NotSent(cause),
                (false, cause) => Self::Lost(cause),
            },
        }
    }

    pub(super) fn why(self) -> String {
        match self {
            Self::Compacted => "the revision has been compacted".to_owned(),
            Self::Future => "the revision has not been yet: etcd was restored".to_owned(),
            Self::Full(why) | Self::NotSent(why) | Self::Refused(why) | Self::Lost(why) => why,
            Self::Unreadable { place, why } => format!("the value of {place} cannot be read: {why}"),
        }
    }

    /// What a reader is told.
    pub(super) fn of_read(self) -> StorageError {
        StorageError::Unavailable(self.why())
    }

    /// What a writer is told.
    pub(super) fn of_write(self) -> StorageError {
        match self {
            Self::Full(why) => StorageError::Full(why),
            Self::Lost(why) => StorageError::Unknown(why),
            other => StorageError::Unavailable(other.why()),
        }
    }
}

impl From<Failure> for EtcdError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreadable { place, why } => Self::Unreadable { place, why },
            other => Self::Unreachable(other.why()),
        }
    }
}

/// Whether no connection was made, and the innermost cause: what lies around it says less.
fn cause_of(status: &Status) -> (bool, String) {
    let (mut is_connect, mut text) = (false, status.message().to_owned());
    let mut next = status.source();
    while let Some(error) = next {
        is_connect |= error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
        text = error.to_string();
        next = error.source();
    }
    (is_connect, text)
}
