//! What members do not allow a caller, and what they do not say.

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::{golang::Quoted, resource::Gvr, status::Status};

/// Why somebody may not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No member allows it. In the words of a kube-apiserver.
    #[error(
        "{what} is forbidden: User {user} cannot {verb} resource {resource} in API group {group} {place}{}",
        because(.reasons),
        user = Quoted(.user), resource = Quoted(.resource), group = Quoted(&*.gvr.group)
    )]
    Forbidden {
        /// `pods` or `pods "x"`.
        what: String,
        /// Who asks.
        user: String,
        /// `list`.
        verb: String,
        /// `pods` or `pods/log`.
        resource: String,
        /// Of what.
        gvr: Gvr,
        /// The name; empty for all.
        name: String,
        /// `at the cluster scope`, or in which namespace.
        place: String,
        /// `member east: ...`, of those that give a reason or are few among many.
        reasons: Vec<String>,
    },
    /// No member allows a path that is no resource. In the words of a kube-apiserver.
    #[error("forbidden: User {user} cannot {verb} path {path}", user = Quoted(.user), path = Quoted(.path))]
    Path {
        /// Who asks.
        user: String,
        /// `get`.
        verb: String,
        /// The path.
        path: String,
    },
    /// Members that decide have not said.
    #[error(
        "whether user {user} may {verb} {resource} is not known: {}",
        .causes.join("; "), user = Quoted(.user)
    )]
    Unknown {
        /// Who asks.
        user: String,
        /// `list`.
        verb: String,
        /// `pods`.
        resource: String,
        /// `member east: ...`, one per member.
        causes: Vec<String>,
    },
}

fn because(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}

impl ApiError for AccessError {
    fn blame(&self) -> Blame {
        match self {
            Self::Forbidden { .. } | Self::Path { .. } => Blame::Downstream,
            // Several members: none of them alone.
            Self::Unknown { .. } => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Forbidden { .. } | Self::Path { .. } => Retry::Never,
            // Nothing was done.
            Self::Unknown { .. } => Retry::Always,
        }
    }
}

impl From<AccessError> for Status {
    fn from(error: AccessError) -> Self {
        let message = error.to_string();
        match error {
            AccessError::Forbidden { gvr, name, .. } => {
                Self::forbidden(message).about(&gvr.group, &gvr.resource, &name)
            }
            AccessError::Path { .. } => Self::forbidden(message),
            AccessError::Unknown { .. } => Self::unavailable(message),
        }
    }
}
