//! Answers that several rooms give: what is not built yet, and what a member answers that is no `Status`.

use http::StatusCode;

use crate::{
    config::MemberName,
    respond::{ApiError, Blame, Retry},
};
use kubefold_wire::status::{Reason, Status};

/// What the fleet view does not do yet: refused in words that say where it works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the fleet view cannot {verb} {what} yet; do it in a member: at /clusters/{at}{path}, or with kubectl --context \
     fleet-{at}{}",
    .example.as_ref().map(|first| format!(" (for example fleet-{first})")).unwrap_or_default(),
    at = .member.as_ref().map_or("<member>", MemberName::as_str)
)]
pub struct NotBuilt {
    /// As a person says it: `update`, `patch`, `create`.
    pub verb: String,
    /// The resource, with a subresource if there is one.
    pub what: String,
    /// The path to use in a member.
    pub path: String,
    /// The member that has to do it, where that is known.
    pub member: Option<MemberName>,
    /// A member that can do it, where any can.
    pub example: Option<MemberName>,
}

impl ApiError for NotBuilt {
    fn blame(&self) -> Blame {
        Blame::Downstream
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl From<NotBuilt> for Status {
    fn from(error: NotBuilt) -> Self {
        Self::method_not_allowed(error.to_string())
    }
}

/// A member's refusal that is no `Status`: a proxy's page, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("member {member}: {words}{}", if .told.is_empty() { String::new() } else { format!(" ({})", .told) })]
pub struct PlainRefusal {
    /// The member.
    pub member: MemberName,
    /// The code of its answer, which is the client's too.
    pub code: StatusCode,
    /// What it says, cut.
    pub words: String,
    /// What kubefold adds, if anything.
    pub told: String,
}

impl ApiError for PlainRefusal {
    fn blame(&self) -> Blame {
        if self.code.is_server_error() { Blame::Member(self.member.clone()) } else { Blame::Downstream }
    }

    fn retry(&self) -> Retry {
        if self.code.is_server_error() { Retry::IfRead } else { Retry::Never }
    }
}

impl From<PlainRefusal> for Status {
    fn from(error: PlainRefusal) -> Self {
        Self::new(error.code, reason(error.code), error.to_string())
    }
}

fn reason(code: StatusCode) -> Reason {
    match code.as_u16() {
        400 => Reason::BadRequest,
        401 => Reason::Unauthorized,
        403 => Reason::Forbidden,
        404 => Reason::NotFound,
        405 => Reason::MethodNotAllowed,
        406 => Reason::NotAcceptable,
        409 => Reason::Conflict,
        410 => Reason::Gone,
        413 => Reason::RequestEntityTooLarge,
        415 => Reason::UnsupportedMediaType,
        422 => Reason::Invalid,
        429 => Reason::TooManyRequests,
        503 => Reason::ServiceUnavailable,
        504 => Reason::Timeout,
        _ => Reason::InternalError,
    }
}
