//! Why a session of a reflector ended, and what follows from it.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use crate::{
    member::metrics::ListReason,
    upstream::{UpstreamError, cause::Cause},
};
use kubefold_wire::golang::Quoted;

/// Why one session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("{}", .0.cause())]
    Upstream(#[from] UpstreamError),
    #[error("it answered {code} to a {what}: {message}")]
    Status { code: StatusCode, what: &'static str, message: String, retry_after: Option<Duration> },
    #[error("it answered a {what} with {content}, not JSON: is there a proxy or a login page in between?")]
    Content { what: &'static str, content: String },
    #[error("its list cannot be read: {0}")]
    List(#[from] kubefold_wire::list::ListError),
    #[error("its watch cannot be read: {0}")]
    Watch(#[from] kubefold_wire::watch::WatchError),
    #[error("it sent an object that cannot be taken in: {0}")]
    Object(#[from] crate::store::BadObject),
    #[error("its list has the revision {quoted}, which is not a decimal number", quoted = Quoted(.0))]
    Revision(String),
    #[error("its list at revision {list} is older than its watch at revision {position}")]
    OldList { list: u64, position: u64 },
    #[error("its watch broke inside an event")]
    Torn,
    #[error("its history up to {0} is gone: it is listed again")]
    Expired(u64),
    #[error("its objects are not in the mirror any more: it is listed again")]
    Lost,
    #[error("what it told cannot be written to the mirror")]
    Unwritten,
    #[error("{0}")]
    Down(Arc<str>),
}

impl SessionError {
    /// Says whether it comes of a revision that is no decimal number.
    pub(super) fn is_about_order(&self) -> bool {
        use crate::store::BadObject::{Missing, Revision};
        matches!(self, Self::Revision(_) | Self::Object(Revision(_) | Missing("resourceVersion")))
    }

    /// Why the next session has to list again; `None` where it may resume where this one stopped.
    pub(super) fn lists_again(&self) -> Option<ListReason> {
        match self {
            Self::Upstream(_) | Self::Status { .. } | Self::Content { .. } | Self::Torn | Self::Down(_) => None,
            Self::Expired(_) => Some(ListReason::Expired),
            Self::Lost | Self::Unwritten => Some(ListReason::First),
            Self::OldList { .. } => Some(ListReason::RevisionsBackwards),
            Self::List(_) | Self::Watch(_) | Self::Object(_) | Self::Revision(_) => Some(ListReason::Unreadable),
        }
    }

    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Upstream(error) => Cause::of_failure(&error.failure).unwrap_or(Cause::Unexpected),
            Self::Status { code, .. } => Cause::of_status(*code).unwrap_or(Cause::Unexpected),
            Self::Content { .. } | Self::Lost | Self::Unwritten => Cause::Unexpected,
            Self::List(_) | Self::Revision(_) => Cause::Undecodable,
            Self::Watch(kubefold_wire::watch::WatchError::TooLarge) => Cause::TooLarge,
            Self::Watch(_) => Cause::Undecodable,
            Self::Object(_) => Cause::BadObject,
            Self::OldList { .. } => Cause::RevisionsBackwards,
            Self::Torn => Cause::Cut,
            Self::Expired(_) => Cause::Expired,
            Self::Down(_) => Cause::Down,
        }
    }

    /// The cause that was counted where the answer came in.
    pub(super) fn counted(&self) -> Option<Cause> {
        match self {
            Self::Status { code, .. } => Cause::of_anybodys(*code),
            _ => None,
        }
    }

    /// Says whether the member makes a kind ready to be listed: a matter of milliseconds where its definition is new.
    ///
    /// Source: kubernetes/apiserver `pkg/storage/cacher/ready.go`; with a cause behind it, something is wrong.
    pub(super) fn is_initializing(&self) -> bool {
        matches!(self, Self::Status { code: StatusCode::TOO_MANY_REQUESTS, message, .. }
            if message == "storage is (re)initializing")
    }

    /// How long the member asked to be left alone. It says a second or more while it makes a kind ready, since it says whole
    /// seconds (kubernetes/apiserver `pkg/storage/cacher/util.go` `calculateRetryAfterForUnreadyCache`).
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            _ if self.is_initializing() => Duration::ZERO,
            Self::Status { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}
