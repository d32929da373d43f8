//! Why a patch does not make an object, in a kube-apiserver's words.

use http::StatusCode;

use crate::status::{Cause, Reason, Status};

/// Why a patch does not make an object: what the `Status` of the answer says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatchError {
    /// HTTP status code.
    pub code: StatusCode,
    /// `None`: the `Status` has none, as of errors that a kube-apiserver did not foresee.
    pub reason: Option<Reason>,
    /// For people.
    pub message: String,
    /// Of a conflict, the fields and their owners.
    pub causes: Vec<Cause>,
    /// Whether the `Status` has `details`, though they may be empty.
    pub detailed: bool,
}

impl PatchError {
    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some(Reason::BadRequest), message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        let message = format!("Request entity too large: {}", message.into());
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Some(Reason::RequestEntityTooLarge), message)
    }

    /// 422 without a word of what is wrong: a kube-apiserver drops the cause.
    ///
    /// Source: kubernetes/apimachinery `pkg/api/errors/errors.go`, `NewGenericServerResponse`.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self { detailed: true, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, Some(Reason::Invalid), message) }
    }

    /// 500 without a reason: what a kube-apiserver makes of an error that has no status of its own.
    pub fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, None, message)
    }

    /// 409 with the fields that others own.
    pub fn conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        let error = Self::new(StatusCode::CONFLICT, Some(Reason::Conflict), message);
        Self { causes, detailed: true, ..error }
    }

    fn new(code: StatusCode, reason: Option<Reason>, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new(), detailed: false }
    }
}

impl From<PatchError> for Status {
    fn from(error: PatchError) -> Self {
        let mut status = Self::new(error.code, error.reason.unwrap_or(Reason::Unknown), error.message);
        status.details.causes = error.causes;
        if error.detailed { status.detailed() } else { status }
    }
}
