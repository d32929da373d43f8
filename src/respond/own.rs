//! kubefold's own objects.

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{golang::Quoted, resource::Gvr, status::Status};

/// Why a request for one of kubefold's own objects has no other answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// What an object refers to is asked for as whoever asks for it, and members judge impersonation one by one.
    #[error(
        "user {user} acts as somebody else, and only members of system:masters may do so with {}; log in as that user", .resource.qualified(), user = Quoted(.user)
    )]
    Impersonated {
        /// As whom.
        user: String,
        /// What is asked for.
        resource: Gvr,
    },
}

impl ApiError for OwnError {
    fn blame(&self) -> Blame {
        match self {
            Self::Impersonated { .. } => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Impersonated { .. } => Retry::Never,
        }
    }
}

impl From<OwnError> for Status {
    fn from(error: OwnError) -> Self {
        let message = error.to_string();
        match error {
            OwnError::Impersonated { .. } => Self::forbidden(message),
        }
    }
}
