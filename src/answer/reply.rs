//! A whole answer as JSON, warnings, and statuses that say which member spoke.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    config::MemberName,
    respond::{ApiError, PlainRefusal},
};
use kubefold_wire::{
    body::{Body, full},
    locate::Paths,
    reword::{renamed, reworded},
    status::{Failure, Status},
    warning::Warnings,
};

/// The answer to a write. With a 5xx it never has `Retry-After`: client-go would repeat the write (`rest/with_retry.go`).
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

impl<E: ApiError> From<E> for Reply {
    fn from(error: E) -> Self {
        let status: Status = error.into();
        status.into()
    }
}

impl Reply {
    /// The same with warnings.
    #[must_use]
    pub(crate) fn warned(self, warnings: Warnings) -> Self {
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
        if self.code.is_client_error() || self.code.is_server_error() {
            Failure::of(&self.body).map(|failure| response.extensions_mut().insert(failure));
        }
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

/// A member's own refusal. Its sentence stays whole, since tools match it; behind it stand the member and what `told` says, if
/// anything: `spec.bars[0].name: Required value (member east; nothing was made)`.
pub(crate) fn refusal(member: &MemberName, code: StatusCode, body: &Bytes, told: &str) -> Reply {
    named(body, member, told).map_or_else(
        || PlainRefusal { member: member.clone(), code, words: plain(code, body), told: told.to_owned() }.into(),
        |body| Reply { code, warnings: Warnings::default(), body },
    )
}

/// A `Status` of a member with the member and what kubefold has to tell behind each of its sentences. `None`: it is no `Status`.
pub(crate) fn named(body: &Bytes, member: &MemberName, told: &str) -> Option<Bytes> {
    let told = if told.is_empty() { String::new() } else { format!("; {told}") };
    reworded(body, |sentence| format!("{sentence} (member {member}{told})"))
}

/// The refusal of a write with one target: the member's own, where `visible` stands for the object's `own` name.
pub(crate) fn forwarded(member: &MemberName, code: StatusCode, body: &Bytes, own: &str, visible: &str) -> Reply {
    let Some(body) = renamed(body, own, visible) else {
        return PlainRefusal { member: member.clone(), code, words: plain(code, body), told: String::new() }.into();
    };
    Reply { code, warnings: Warnings::default(), body }
}

/// How much of a body that is no `Status` is quoted.
const PLAIN_CHARS_MAX: usize = 256;

/// What an answer says that is no `Status`: a proxy's page, or nothing.
fn plain(code: StatusCode, body: &Bytes) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(PLAIN_CHARS_MAX).collect();
    if text.trim().is_empty() { format!("it answered {code}") } else { format!("it answered {code}: {}", text.trim()) }
}
