//! `metav1.Status`: what Kubernetes clients branch on when something fails.
//!
//! Source: kubernetes/apimachinery `pkg/api/errors/errors.go` for reasons, codes and messages.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    accept::wants_aggregated,
    body::{Body, full},
    golang::Quoted,
};

/// The machine-readable `reason` of a failure, in Kubernetes' own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are Kubernetes' own and say it all")]
pub enum Reason {
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
    /// A kube-apiserver did not foresee it: the `Status` says none.
    Unknown,
}

impl Reason {
    /// Whether there is none to say.
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// One of several causes inside `details`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Machine-readable cause; empty if there is no word for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// The field at fault, if one is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// A cause from `field: message`; what names no field is about placement. kubectl shows nothing else of a 422.
    ///
    /// Source: kubernetes/apimachinery `pkg/util/validation/field/errors.go`.
    pub fn of(why: &str) -> Self {
        let named = why.split_once(": ").filter(|(field, _)| !field.contains(' '));
        let (field, message) = named.unwrap_or(("placement", why));
        let reason = [
            ("Required value", "FieldValueRequired"),
            ("Forbidden", "FieldValueForbidden"),
            ("Unsupported value", "FieldValueNotSupported"),
        ];
        let known = reason.iter().find(|(words, _)| message.starts_with(words));
        let reason = known.map_or("FieldValueInvalid", |(_, reason)| reason);
        Self { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() }
    }
}

/// What the failure is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kubernetes writes the plural resource here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Several causes, for field errors and conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Units: seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// A failure as a Kubernetes client expects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code.
    pub code: StatusCode,
    /// Machine-readable reason.
    pub reason: Reason,
    /// For people: what failed, where, the likely cause, what to do.
    pub message: String,
    /// What it is about.
    pub details: Details,
    /// A fresh continue token (only with an expired one).
    pub continue_token: String,
    /// Write `details` even if they say nothing, as the router of a kube-apiserver does.
    details_always: bool,
}

/// In an answer's extensions: what its `Status` says, for logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// As in the `Status`; empty where it says none.
    pub reason: String,
    /// As in the `Status`.
    pub message: String,
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        let reason = serde_json::to_value(status.reason).unwrap_or_default();
        let reason = reason.as_str().filter(|_| !status.reason.is_unknown()).unwrap_or_default();
        Self { reason: reason.to_owned(), message: status.message.clone() }
    }
}

impl Failure {
    /// What a `Status` in JSON says. `None`: it is none.
    pub fn of(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Meta<'a>,
    status: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Reason::is_unknown")]
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    continue_token: &'a str,
}

impl Status {
    /// Makes a status without details.
    pub fn new(code: StatusCode, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Details::default(),
            continue_token: String::new(),
            details_always: false,
        }
    }

    /// 404 for an object, in Kubernetes' words: `pods "x" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let qualified = qualified(group, resource);
        Self::new(StatusCode::NOT_FOUND, Reason::NotFound, format!("{qualified} {name} not found", name = Quoted(name)))
            .about(group, resource, name)
    }

    /// 404 for a path that nobody serves.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, Reason::NotFound, "the server could not find the requested resource")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Reason::BadRequest, message)
    }

    /// 403 that is not about one object.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, Reason::Forbidden, message)
    }

    /// 405.
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Reason::MethodNotAllowed, message)
    }

    /// 409 `Conflict` about one object.
    pub fn conflict(group: &str, resource: &str, name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, Reason::Conflict, message).about(group, resource, name)
    }

    /// 422 `Invalid` about one object, or about options.
    ///
    /// Source: kubernetes/apimachinery `pkg/api/errors/errors.go` `NewInvalid`.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut each: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            // What is found twice is told once.
            let told = format!("{}: {}", cause.field, cause.message);
            if !each.contains(&told) {
                each.push(told);
            }
        }
        let told = if let [only] = each.as_slice() { only.clone() } else { format!("[{}]", each.join(", ")) };
        let message = format!("{} {name} is invalid: {told}", qualified(group, kind), name = Quoted(name));
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, Reason::Invalid, message).about(group, kind, name);
        status.details.causes = causes;
        status
    }

    /// 410 `Expired`.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, Reason::Expired, message)
    }

    /// 503 without `Retry-After`: on a write a client would repeat it (client-go `rest/with_retry.go`).
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Reason::ServiceUnavailable, message)
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::InternalError, message)
    }

    /// Says which object the status is about.
    #[must_use]
    pub fn about(mut self, group: &str, resource: &str, name: &str) -> Self {
        self.details.group = group.to_owned();
        self.details.kind = resource.to_owned();
        self.details.name = name.to_owned();
        self
    }

    /// The same with details, though there are none to tell.
    #[must_use]
    pub fn detailed(mut self) -> Self {
        self.details_always = true;
        self
    }

    /// The status as JSON, in Kubernetes' field order.
    pub fn to_json(&self) -> Bytes {
        // Of a path or method that there is none of, a kube-apiserver says `"details":{}`.
        let always = self.details_always || matches!(self.reason, Reason::NotFound | Reason::MethodNotAllowed);
        let details = (always || self.details != Details::default()).then_some(&self.details);
        let json = StatusJson {
            kind: "Status",
            api_version: "v1",
            metadata: Meta { continue_token: &self.continue_token },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details,
            code: self.code.as_u16(),
        };
        // Strings and numbers only: serialization has no way to fail.
        serde_json::to_string(&json).map_or_else(|_| Bytes::from_static(b"{}"), |text| as_go_writes(text).into())
    }

    /// The status as a whole response to a request with these headers.
    ///
    /// kubectl shows of a failed aggregated discovery, with which it begins, only what is plain text; of a `Status` it
    /// shows the word "unknown" (client-go `rest/request.go`, `newUnstructuredResponseError`).
    pub fn into_response_to(self, headers: &HeaderMap) -> Response<Body> {
        if !wants_aggregated(headers) {
            return self.into_response();
        }
        let failure = Failure::from(&self);
        let mut response = Response::new(full(self.message));
        *response.status_mut() = self.code;
        let text = http::HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        response.extensions_mut().insert(failure);
        response
    }

    /// The status as a whole response.
    pub fn into_response(self) -> Response<Body> {
        let mut body = self.to_json().to_vec();
        let failure = Failure::from(&self);
        body.push(b'\n');
        let mut response = Response::new(full(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
        // Source: kubernetes/apiserver `endpoints/handlers/responsewriters/writers.go`, `ErrorNegotiated`.
        if let Some(seconds) = self.details.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(failure);
        response
    }
}

/// Go's encoder, lest a browser take JSON for HTML, escapes what could be read as such.
fn as_go_writes(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    let escape = |out: String, (plain, escaped): (char, &str)| out.replace(plain, escaped);
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    escapes.into_iter().fold(json, escape)
}

/// `deployments.apps`, or `pods` for the core group.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_told_what_the_answer_says() {
        for status in [
            Status::forbidden("no \"<x>\""),
            Status::unavailable("later"),
            Status::new(StatusCode::IM_A_TEAPOT, Reason::Unknown, "tea"),
        ] {
            let said = Failure::of(&status.to_json()).unwrap();
            assert_eq!(said.reason.is_empty(), status.reason == Reason::Unknown);
            assert_eq!(status.clone().into_response().extensions().get::<Failure>(), Some(&said), "{status:?}");
        }
    }

    #[test]
    fn what_html_could_be_is_escaped_as_in_go() {
        let json = Status::bad_request("a<b>&\u{2028}").to_json();
        assert!(std::str::from_utf8(&json).unwrap().contains(r#""message":"a\u003cb\u003e\u0026\u2028""#));
    }

    #[test]
    fn a_refusal_says_its_reason_as_a_cause_too() {
        let whys = ["spec.replicas: Required value", "it fits nowhere: really"];
        let status = Status::invalid("apps", "Deployment", "web", whys.map(Cause::of).to_vec());
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: [spec.replicas: Required value, placement: it fits nowhere: really]"
        );
        let told = status.details.causes.iter().map(|cause| (&*cause.reason, &*cause.field, &*cause.message));
        assert!(told.eq([
            ("FieldValueRequired", "spec.replicas", "Required value"),
            ("FieldValueInvalid", "placement", "it fits nowhere: really"),
        ]));
        assert_eq!((&*status.details.kind, &*status.details.name), ("Deployment", "web"));
    }

    #[test]
    fn status_has_the_fields_and_order_of_a_kube_apiserver() {
        let json = Status::not_found("apps", "deployments", "web").to_json();
        assert_eq!(
            std::str::from_utf8(&json).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}"#
        );
    }
}
