//! The gate before every request.

use http::StatusCode;

use crate::respond::{ApiError, Blame, Retry};
use kubefold_serving::impersonation::ImpersonationError;
use kubefold_wire::status::{Reason, Status};

/// Why the gate answers a request itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Nobody is known to ask. In the words of a kube-apiserver.
    #[error("Unauthorized")]
    Unauthorized,
    /// The client asks to be somebody else, in words that name nobody.
    #[error(transparent)]
    Impersonation(#[from] ImpersonationError),
    /// A browser asks for a WebSocket in its user's name, for a page that is not kubefold's.
    #[error(
        "a page of another origin asks for this upgrade, and a browser would log in for it; open it from the server's own \
         origin"
    )]
    OtherSite,
    /// Another method than GET and HEAD on a path of health.
    #[error("health is read with GET")]
    HealthMethod,
    /// No event of the request can be written.
    #[error(
        "kubefold cannot write its audit log, so it changes nothing; its log has the cause, and reads are answered meanwhile"
    )]
    Unaudited,
    /// This process waits for the state that another one has.
    #[error("this kubefold is a standby ({holder}); it answers once it has taken over, and nothing was done")]
    Standby {
        /// Who answers now.
        holder: String,
    },
    /// This process cannot hand a request on to the one that has the state.
    #[error("this kubefold is a standby ({holder}) and cannot reach that process: {cause}; nothing was done")]
    HolderUnreachable {
        /// Who has the state.
        holder: String,
        /// Why it was not reached.
        cause: String,
    },
    /// A request was handed on to the process that has the state, and no answer came.
    #[error(
        "this kubefold is a standby and handed the request on ({holder}), but no answer came: {cause}; {}",
        if *.is_read { "send it again" } else { "whether it was done is not known: read the object before you send it again" }
    )]
    HolderLost {
        /// Who has the state, or had it.
        holder: String,
        /// What happened.
        cause: String,
        /// The request changes nothing.
        is_read: bool,
    },
    /// The code that should have answered panicked.
    #[error("kubefold failed at this request; its log has the cause under the Audit-Id")]
    Panicked,
}

impl ApiError for GateError {
    fn blame(&self) -> Blame {
        match self {
            Self::Unauthorized | Self::Impersonation(_) | Self::OtherSite | Self::HealthMethod => Blame::Downstream,
            Self::Unaudited
            | Self::Panicked
            | Self::Standby { .. }
            | Self::HolderUnreachable { .. }
            | Self::HolderLost { .. } => Blame::Kubefold,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Unauthorized | Self::Impersonation(_) | Self::OtherSite | Self::HealthMethod => Retry::Never,
            Self::Unaudited | Self::Standby { .. } | Self::HolderUnreachable { .. } => Retry::Always,
            Self::Panicked | Self::HolderLost { .. } => Retry::IfRead,
        }
    }
}

impl From<GateError> for Status {
    fn from(error: GateError) -> Self {
        let message = error.to_string();
        match error {
            GateError::Unauthorized => Self::new(StatusCode::UNAUTHORIZED, Reason::Unauthorized, message),
            GateError::OtherSite => Self::forbidden(message),
            GateError::Impersonation(_) => Self::bad_request(message),
            GateError::HealthMethod => Self::method_not_allowed(message),
            GateError::Unaudited => Self::unavailable(message),
            // A client may send it again, to whichever replica.
            GateError::Standby { .. }
            | GateError::HolderUnreachable { .. }
            | GateError::HolderLost { is_read: true, .. } => {
                let mut status = Self::unavailable(message);
                status.details.retry_after_seconds = Some(1);
                status
            }
            // Without `Retry-After`: client-go would repeat a write on it.
            GateError::HolderLost { is_read: false, .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
            }
            GateError::Panicked => Self::internal(message),
        }
    }
}
