//! Requests to members.

use http::StatusCode;

use crate::{
    respond::{ApiError, Blame, Retry},
    upstream::{Failure, ImpersonateError, TooManyStreams, UpstreamError},
};
use kubefold_wire::status::{Reason, Status};

impl ApiError for UpstreamError {
    fn blame(&self) -> Blame {
        Self::blame(self)
    }

    fn retry(&self) -> Retry {
        Self::retry(self)
    }
}

/// No 5xx here carries `Retry-After`: client-go would repeat a write on it.
///
/// Source: client-go `rest/with_retry.go`.
impl From<UpstreamError> for Status {
    fn from(error: UpstreamError) -> Self {
        let message = error.to_string();
        match error.failure {
            Failure::Request(_) => Self::bad_request(message),
            Failure::Saturated { .. } => too_many(message),
            Failure::HeadTimeout(_) | Failure::BodyTimeout(_) => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
            }
            Failure::Protocol { .. }
            | Failure::Send { .. }
            | Failure::Body { .. }
            | Failure::BodyTooLarge { .. }
            | Failure::Answer(_) => bad_gateway(message),
            Failure::Down(_)
            | Failure::Credential(_)
            | Failure::Resolve { .. }
            | Failure::Refused(_)
            | Failure::Connect { .. }
            | Failure::ConnectTimeout(_)
            | Failure::HandshakeTimeout(_)
            | Failure::Tls { .. }
            | Failure::Closed(_) => Self::unavailable(message),
        }
    }
}

impl ApiError for ImpersonateError {
    fn blame(&self) -> Blame {
        Blame::Downstream
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl From<ImpersonateError> for Status {
    fn from(error: ImpersonateError) -> Self {
        let message = error.to_string();
        match error {
            ImpersonateError::OtherDomain { .. } => Self::forbidden(format!("forbidden: {message}")),
            ImpersonateError::NoUser | ImpersonateError::Unfit { .. } => Self::bad_request(message),
        }
    }
}

impl ApiError for TooManyStreams {
    fn blame(&self) -> Blame {
        Blame::Downstream
    }

    fn retry(&self) -> Retry {
        Retry::Always
    }
}

impl From<TooManyStreams> for Status {
    fn from(error: TooManyStreams) -> Self {
        too_many(error.to_string())
    }
}

fn too_many(message: String) -> Status {
    let mut status = Status::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooManyRequests, message);
    status.details.retry_after_seconds = Some(1);
    status
}

/// 502: what a member answered is not what was asked for.
pub(super) fn bad_gateway(message: String) -> Status {
    Status::new(StatusCode::BAD_GATEWAY, Reason::InternalError, message)
}
