//! The view of one member: requests that are passed to it as they are.

use http::StatusCode;

use crate::{
    config::MemberName,
    respond::{ApiError, Blame, Retry, upstream::bad_gateway},
    upstream::{ImpersonateError, TooManyStreams, UpstreamError},
};
use kubefold_wire::{golang::Quoted, status::Status};

/// Why a request is not passed to a member, or its answer not to the client.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// `CONNECT` of HTTP itself.
    #[error("kubefold does not support CONNECT")]
    Connect,
    /// The path is none.
    #[error("invalid path: {0}")]
    Path(
        /// The cause.
        String,
    ),
    /// Segments that mean another folder.
    #[error("invalid path: segments `.` and `..` are not allowed")]
    Dots,
    /// A request for another protocol that has a body.
    #[error("a request for another protocol must have no body")]
    UpgradeWithBody,
    /// An answer below 200 that was not asked for.
    #[error("member {member}: it answered {code} to what asked for nothing else")]
    Informational {
        /// The member.
        member: MemberName,
        /// Its answer.
        code: StatusCode,
    },
    /// A redirect that leads out of what was asked for.
    #[error("member {member}: attempted to redirect this request ({code}), which is not permitted")]
    Redirect {
        /// The member.
        member: MemberName,
        /// Its answer.
        code: StatusCode,
    },
    /// The caller cannot be named to a member.
    #[error(transparent)]
    Caller(#[from] ImpersonateError),
    /// The caller may not be whom it asks to be.
    #[error(transparent)]
    Impersonation(#[from] ImpersonationRefused),
    /// The limit of streams is reached.
    #[error(transparent)]
    Streams(#[from] TooManyStreams),
    /// The member did not answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Why a caller is not somebody else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationRefused {
    /// The member does not allow it. In the words of a kube-apiserver.
    #[error(
        "{resource} {name} is forbidden: User {user} cannot impersonate resource {quoted} in API group {group} {place}",
        name = Quoted(.name), user = Quoted(.user), quoted = Quoted(.resource), group = Quoted(.group)
    )]
    Forbidden {
        /// Who asks.
        user: String,
        /// `users`, `groups`, `serviceaccounts`, `uids` or `userextras/<key>`.
        resource: String,
        /// Its API group.
        group: String,
        /// Whom.
        name: String,
        /// `at the cluster scope`, or in which namespace.
        place: String,
    },
    /// The member did not say.
    #[error("member {member} cannot say whether the caller may impersonate: {cause}")]
    Unknown {
        /// The member.
        member: MemberName,
        /// What it did instead.
        cause: String,
    },
}

impl ApiError for ViewError {
    fn blame(&self) -> Blame {
        match self {
            Self::Connect | Self::Path(_) | Self::Dots | Self::UpgradeWithBody => Blame::Downstream,
            Self::Informational { member, .. } | Self::Redirect { member, .. } => Blame::Member(member.clone()),
            Self::Caller(error) => error.blame(),
            Self::Impersonation(ImpersonationRefused::Forbidden { .. }) => Blame::Downstream,
            Self::Impersonation(ImpersonationRefused::Unknown { member, .. }) => Blame::Member(member.clone()),
            Self::Streams(error) => error.blame(),
            Self::Upstream(error) => error.blame(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Connect | Self::Path(_) | Self::Dots | Self::UpgradeWithBody => Retry::Never,
            Self::Informational { .. } | Self::Redirect { .. } => Retry::IfRead,
            Self::Caller(error) => error.retry(),
            Self::Impersonation(ImpersonationRefused::Forbidden { .. }) => Retry::Never,
            Self::Impersonation(ImpersonationRefused::Unknown { .. }) => Retry::Always,
            Self::Streams(error) => error.retry(),
            Self::Upstream(error) => error.retry(),
        }
    }
}

impl From<ViewError> for Status {
    fn from(error: ViewError) -> Self {
        let message = error.to_string();
        match error {
            ViewError::Connect => Self::method_not_allowed(message),
            ViewError::Path(_) | ViewError::Dots | ViewError::UpgradeWithBody => Self::bad_request(message),
            ViewError::Informational { .. } | ViewError::Redirect { .. } => bad_gateway(message),
            ViewError::Caller(error) => error.into(),
            ViewError::Impersonation(ImpersonationRefused::Forbidden { resource, group, name, .. }) => {
                Self::forbidden(message).about(&group, &resource, &name)
            }
            ViewError::Impersonation(ImpersonationRefused::Unknown { .. }) => Self::unavailable(message),
            ViewError::Streams(error) => error.into(),
            ViewError::Upstream(error) => error.into(),
        }
    }
}
