//! Streams: exec, attach, port-forward, logs, proxy.

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::status::Status;

/// Why a stream is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The name of what is proxied is none.
    #[error("invalid name {0:?}: it is <name>, <name>:<port> or <scheme>:<name>:<port>")]
    Identifier(String),
}

impl ApiError for StreamError {
    fn blame(&self) -> Blame {
        match self {
            Self::Identifier(_) => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Identifier(_) => Retry::Never,
        }
    }
}

impl From<StreamError> for Status {
    fn from(error: StreamError) -> Self {
        let message = error.to_string();
        match error {
            StreamError::Identifier(_) => Self::bad_request(message),
        }
    }
}
