//! What a write answers: a body, warnings, and statuses that say which member spoke.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    config::MemberName,
    wire::{
        body::{Body, full},
        locate::{Found, Paths},
        splice::{Edit, splice, string},
        status::{Reason, Status},
        warning::Warnings,
    },
    write::fleet::Key,
};

pub(super) use crate::wire::warning::warning_text;

/// The answer to a write. With a 5xx it never bears `Retry-After`: client-go would repeat the write (`rest/with_retry.go`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub code: StatusCode,
    /// What the members and kubefold warn of.
    pub warnings: Warnings,
    /// JSON.
    pub body: Bytes,
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self { code: status.code, warnings: Warnings::default(), body: status.to_json() }
    }
}

impl Reply {
    /// 500.
    pub(super) fn internal(message: &str) -> Self {
        Status::internal(message).into()
    }

    /// The same with warnings.
    #[must_use]
    pub(super) fn warned(self, warnings: Warnings) -> Self {
        Self { warnings, ..self }
    }

    /// The answer as a whole response.
    pub fn into_response(self) -> Response<Body> {
        let mut body = self.body.to_vec();
        if body.last() != Some(&b'\n') {
            body.push(b'\n');
        }
        let mut response = Response::new(full(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        // Nothing was done then, so that it may be asked again: an eviction that waits for a disruption budget.
        if self.code == StatusCode::TOO_MANY_REQUESTS
            && let Some(seconds) = retry_after(&self.body)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        self.warnings.write_to(headers);
        response
    }
}

/// `details.retryAfterSeconds` of a `Status`.
fn retry_after(body: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    Paths::new([(0, ["details", "retryAfterSeconds"].as_slice())]).locate(text, &mut found).ok()?;
    text.get(found.first()?.range.clone())?.parse().ok().filter(|seconds| *seconds > 0)
}

/// A member's own refusal, with the member named in its message and `told` after it.
pub(super) fn refusal(member: &MemberName, code: StatusCode, body: &Bytes, told: &str) -> Reply {
    let words = |message: &str| format!("member {member}: {message}{told}");
    reworded(body, |message| words(message)).map_or_else(
        || Status::new(code, reason(code), words(&plain(code, body))).into(),
        |body| Reply { code, warnings: Warnings::default(), body },
    )
}

/// The refusal of a write with one target: the member's own, with the name that the client used.
pub(super) fn forwarded(member: &MemberName, code: StatusCode, body: &Bytes, own: &Key, visible: &str) -> Reply {
    let (quoted, shown) = (format!("\"{}\"", own.name), format!("\"{visible}\""));
    let Some(body) = reworded(body, |message| message.replace(&quoted, &shown)) else {
        return Status::new(code, reason(code), format!("member {member}: {}", plain(code, body))).into();
    };
    let mut found = Vec::new();
    let path = Paths::new([(0, ["details", "name"].as_slice())]);
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let named = path.locate(text, &mut found).ok().and_then(|()| found.into_iter().next());
    let body = match named {
        Some(at) if text.get(at.range.clone()) == Some(quoted.as_str()) => {
            let mut out = Vec::with_capacity(body.len() + visible.len());
            splice(&body, &mut [Edit::new(at.range, string(visible))], &mut out);
            out.into()
        }
        _ => body,
    };
    Reply { code, warnings: Warnings::default(), body }
}

/// A `Status` with its message changed; `None` if it is no JSON object with a message.
///
/// So are those of its causes, where it is about a field: of a 422 kubectl shows nothing else.
pub(super) fn reworded(body: &Bytes, change: impl Fn(&str) -> String) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let mut found = Vec::new();
    let paths: [(u16, &[&str]); 3] =
        [(MESSAGE, &["message"]), (CAUSE, &["details", "causes", "*", "message"]), (REASON, &["reason"])];
    Paths::new(paths).locate(text, &mut found).ok()?;
    let raw = |at: &Found| text.get(at.range.clone()).unwrap_or_default();
    if !found.iter().any(|at| at.id == MESSAGE) {
        return None;
    }
    let invalid = found.iter().any(|at| at.id == REASON && raw(at) == "\"Invalid\"");
    let mut edits = Vec::new();
    for at in found.iter().filter(|at| at.id == MESSAGE || at.id == CAUSE && invalid) {
        let message: String = serde_json::from_str(raw(at)).ok()?;
        edits.push(Edit::new(at.range.clone(), string(&change(&message))));
    }
    let mut out = Vec::with_capacity(body.len() + 64);
    splice(body, &mut edits, &mut out);
    Some(out.into())
}

const MESSAGE: u16 = 0;
const CAUSE: u16 = 1;
const REASON: u16 = 2;

/// How much of a body that is no `Status` is quoted.
const PLAIN_CHARS_MAX: usize = 256;

/// What an answer says that is no `Status`: a proxy's page, or nothing.
fn plain(code: StatusCode, body: &Bytes) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(PLAIN_CHARS_MAX).collect();
    if text.trim().is_empty() { format!("it answered {code}") } else { format!("it answered {code}: {}", text.trim()) }
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

/// 504 for a write whose outcome is not known. `what` names it: `creating deployments.apps "web"`.
pub(super) fn unknown_outcome(what: &str, key: &Key, where_: &str, then: &str) -> Reply {
    let message = format!("the outcome of {what} is unknown: {where_}; {then}");
    Status::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
        .about(&key.gvr.group, &key.gvr.resource, &key.name)
        .into()
}

/// 503 for a key that another write has.
pub(super) fn taken(key: &Key) -> Reply {
    let message =
        format!("another write to {key} is under way, or its outcome is not known yet: try again in a minute");
    Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into()
}

/// 503 for a name whose earlier create may still have made an object in a member that cannot be asked.
pub(super) fn unsettled(key: &Key, home: &MemberName) -> Reply {
    let message = format!(
        "an earlier create of {key} is not settled: whether member {home} made it is not known while that cannot be \
         reached. It is finished or taken back when the member returns, or is taken out of the configuration"
    );
    Status::unavailable(message).about(&key.gvr.group, &key.gvr.resource, &key.name).into()
}

/// 409 for a name that is in use.
pub(super) fn already_exists(key: &Key, why: &str) -> Reply {
    Status::new(StatusCode::CONFLICT, Reason::AlreadyExists, format!("{key} already exists{why}"))
        .about(&key.gvr.group, &key.gvr.resource, &key.name)
        .into()
}
