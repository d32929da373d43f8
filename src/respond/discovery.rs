//! Discovery and OpenAPI.

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{accept::not_acceptable, status::Status};

/// Why what is served is not told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Another method than GET and HEAD.
    #[error("the server does not allow this method on the requested resource")]
    Method,
    /// Nobody serves the path.
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// The client takes no form that there is.
    #[error("only the following media types are accepted: application/json")]
    NotAcceptable,
    /// No member has answered yet.
    #[error(
        "kubefold has not read what the members serve since it started (unknown: {unknown}); see /readyz?verbose for the causes"
    )]
    NothingKnown {
        /// The members, by name, with commas.
        unknown: String,
    },
    /// Whoever serves the group cannot be reached, and its kinds were never told: as a kube-apiserver says of an
    /// aggregated API that is down.
    #[error("the server is currently unable to handle the request")]
    GroupDown,
    /// A document of OpenAPI changed each time it was asked for.
    #[error("the document keeps changing in its members")]
    Changing,
    /// No member gives a document of OpenAPI.
    #[error("{path}: {}", .causes.join("; "))]
    DocumentMissing {
        /// The path of the document.
        path: String,
        /// One cause per member.
        causes: Vec<String>,
    },
    /// No member gives any OpenAPI.
    #[error("no member has answered with its OpenAPI: {}", .0.join("; "))]
    NoOpenApi(
        /// One cause per member.
        Vec<String>,
    ),
}

impl ApiError for DiscoveryError {
    fn blame(&self) -> Blame {
        match self {
            Self::Method | Self::NoSuchPath | Self::NotAcceptable => Blame::Downstream,
            // Several members: none of them alone.
            Self::NothingKnown { .. }
            | Self::GroupDown
            | Self::Changing
            | Self::DocumentMissing { .. }
            | Self::NoOpenApi(_) => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Method | Self::NoSuchPath | Self::NotAcceptable => Retry::Never,
            Self::NothingKnown { .. }
            | Self::GroupDown
            | Self::Changing
            | Self::DocumentMissing { .. }
            | Self::NoOpenApi(_) => Retry::Always,
        }
    }
}

impl From<DiscoveryError> for Status {
    fn from(error: DiscoveryError) -> Self {
        let message = error.to_string();
        match error {
            DiscoveryError::Method => Self::method_not_allowed(message),
            DiscoveryError::NoSuchPath => Self::no_such_path(),
            DiscoveryError::NotAcceptable => not_acceptable(),
            DiscoveryError::NothingKnown { .. }
            | DiscoveryError::GroupDown
            | DiscoveryError::Changing
            | DiscoveryError::DocumentMissing { .. }
            | DiscoveryError::NoOpenApi(_) => Self::unavailable(message),
        }
    }
}
