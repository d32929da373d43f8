//! Causes of what goes wrong with members: a closed set, for metrics and log lines.

use http::StatusCode;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

use crate::upstream::error::Failure;

/// Why a request to a member, or an answer of it, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// kubefold cannot get its own credential.
    Credential,
    /// The name has no address.
    Resolve,
    /// No connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// No connection, no answer or no more of one in time.
    Timeout,
    /// A connection or an answer was cut.
    Cut,
    /// The answer is not HTTP.
    NotHttp,
    /// As much is under way already as kubefold allows itself.
    Saturated,
    /// 410: its history, or a page's token, is gone.
    Expired,
    /// 429.
    Throttled,
    /// Another 4xx to kubefold itself.
    Http4xx,
    /// A 5xx.
    Http5xx,
    /// Another answer than was asked for: a redirect, HTML, a namespace without a UID.
    Unexpected,
    /// A body that cannot be read: no JSON, no list, no event.
    Undecodable,
    /// An object without a name, UID or revision.
    BadObject,
    /// More bytes than are taken.
    TooLarge,
    /// It is another cluster than before, or the same as an earlier member.
    OtherCluster,
    /// Its revisions went backwards: it was restored from a backup.
    RevisionsBackwards,
    /// It is down, and was not asked.
    Down,
}

impl Cause {
    /// The cause as a label and a log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::NotHttp => "not_http",
            Self::Saturated => "saturated",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::Http4xx => "http_4xx",
            Self::Http5xx => "http_5xx",
            Self::Unexpected => "unexpected",
            Self::Undecodable => "undecodable",
            Self::BadObject => "bad_object",
            Self::TooLarge => "too_large",
            Self::OtherCluster => "other_cluster",
            Self::RevisionsBackwards => "revisions_backwards",
            Self::Down => "down",
        }
    }

    /// The cause of a failed request; `None` where the member has nothing to do with it.
    pub(crate) fn of_failure(failure: &Failure) -> Option<Self> {
        Some(match failure {
            Failure::Request(_) => return None,
            Failure::Down(_) => Self::Down,
            Failure::Saturated { .. } => Self::Saturated,
            Failure::Credential(_) => Self::Credential,
            Failure::Resolve { .. } => Self::Resolve,
            Failure::Refused(_) | Failure::Connect { .. } => Self::Connect,
            Failure::Tls { .. } => Self::Tls,
            Failure::ConnectTimeout(_)
            | Failure::HandshakeTimeout(_)
            | Failure::HeadTimeout(_)
            | Failure::BodyTimeout(_) => Self::Timeout,
            Failure::Closed(_) | Failure::Send { .. } | Failure::Body { .. } => Self::Cut,
            Failure::Protocol { .. } => Self::NotHttp,
            Failure::BodyTooLarge { .. } => Self::TooLarge,
            Failure::Answer(_) => Self::Unexpected,
        })
    }

    /// The cause that an answer's status is; `None` where it is a success.
    pub(crate) fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::GONE => Some(Self::Expired),
            StatusCode::TOO_MANY_REQUESTS => Some(Self::Throttled),
            status if status.is_success() => None,
            status if status.is_client_error() => Some(Self::Http4xx),
            status if status.is_server_error() => Some(Self::Http5xx),
            _ => Some(Self::Unexpected),
        }
    }

    /// As [`Self::of_status`] for an answer to anybody: what a member refuses a caller is no failure of the member.
    pub(crate) fn of_anybodys(status: StatusCode) -> Option<Self> {
        Self::of_status(status).filter(|cause| matches!(cause, Self::Throttled | Self::Http5xx))
    }
}

impl EncodeLabelValue for Cause {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}
