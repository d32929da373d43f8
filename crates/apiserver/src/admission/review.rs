//! What a webhook is asked, and what its answer means.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/webhook/request/admissionreview.go`,
//! `pkg/admission/plugin/webhook/errors/statuserror.go`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{kinds::put, schema::Text};
use kubefold_wire::{
    golang::Quoted,
    status::{Cause, Reason, Status},
};

const GROUP: &str = "admission.k8s.io";

/// An `AdmissionReview` of a request.
pub(super) struct Review<'a> {
    pub(super) version: &'static str,
    pub(super) uid: &'a str,
    /// Whether the webhook may change the object.
    pub(super) mutates: bool,
}

/// What a webhook answered.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) verdict: Verdict,
}

/// What a webhook says of a write.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It may be, with a JSON patch.
    Allowed(Option<Bytes>),
    /// It may not be.
    Denied(Box<Denied>),
}

/// `metav1.Status`, of what a webhook refuses.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Denied {
    code: i64,
    message: String,
    reason: String,
    details: DeniedDetails,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeniedDetails {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<DeniedCause>,
    retry_after_seconds: Option<u32>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct DeniedCause {
    reason: String,
    message: String,
    field: String,
}

/// Why an answer is none.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum AnswerError {
    /// It is no JSON, or of other types.
    #[error("failed to call webhook: couldn't get version/kind; json parse error: {0}")]
    Unreadable(String),
    /// The patch is not in base64.
    #[error("failed to call webhook: response.patch: {0}")]
    Encoding(String),
    /// A patch of a type that there is none of.
    #[error("unsupported patch type {}", Quoted(.0))]
    PatchType(String),
    /// It is not to what was asked, or says what may not be said.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    api_version: String,
    kind: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Denied>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<std::collections::BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

impl Review<'_> {
    /// The body of the call about a request.
    pub(super) fn body(&self, mut request: Value, object: Option<&Value>, old: Option<&Value>) -> Bytes {
        put(&mut request, "uid", Some(self.uid.into()));
        put(&mut request, "object", Some(object.cloned().unwrap_or_default()));
        put(&mut request, "oldObject", Some(old.cloned().unwrap_or_default()));
        let version = format!("{GROUP}/{}", self.version);
        json!({"kind": "AdmissionReview", "apiVersion": version, "request": request}).to_string().into()
    }

    /// What the body of an answer means.
    ///
    /// Errors: it is no answer to this review.
    pub(super) fn read(&self, body: &[u8]) -> Result<Answer, AnswerError> {
        let body = String::from_utf8_lossy(body);
        let body = Text::read(&body).map_err(|error| AnswerError::Unreadable(error.to_string()))?.value();
        let body = Body::deserialize(body).map_err(|error| AnswerError::Unreadable(error.to_string()))?;
        let invalid = |why: String| Err(AnswerError::Invalid(why));
        let Some(response) = body.response else { return invalid("webhook response was absent".to_owned()) };
        let is_v1 = self.version == "v1";
        if is_v1 && response.uid != self.uid {
            return invalid(format!("expected response.uid={}, got {}", Quoted(self.uid), Quoted(&response.uid)));
        }
        let expected = format!("{GROUP}/{}", self.version);
        if is_v1 && (body.api_version != expected || body.kind != "AdmissionReview") {
            return invalid(format!(
                "expected webhook response of {expected}, Kind=AdmissionReview, got {}{}, Kind={}",
                if body.api_version.contains('/') { "" } else { "/" },
                body.api_version,
                body.kind
            ));
        }
        let patch = self.patch(response.patch.as_deref().unwrap_or_default(), response.patch_type.as_deref())?;
        let verdict = match response.allowed {
            true => Verdict::Allowed(patch),
            false => Verdict::Denied(Box::new(response.status.unwrap_or_default())),
        };
        let annotations = response.audit_annotations.unwrap_or_default().into_iter().collect();
        Ok(Answer { warnings: response.warnings.unwrap_or_default(), annotations, verdict })
    }

    fn patch(&self, patch: &str, of: Option<&str>) -> Result<Option<Bytes>, AnswerError> {
        let invalid = |why: &str| Err(AnswerError::Invalid(why.to_owned()));
        let is_v1 = self.version == "v1";
        match (self.mutates, patch, of) {
            (false, "", None) => return Ok(None),
            (false, ..) if !is_v1 => return Ok(None),
            (false, "", Some(_)) => return invalid("validating webhook may not return response.patchType"),
            (false, ..) => return invalid("validating webhook may not return response.patch"),
            (true, "", None) => return Ok(None),
            (true, "", _) if !is_v1 => return Ok(None),
            (true, _, None) if is_v1 => return invalid("webhook returned response.patch but not response.patchType"),
            (true, "", Some(_)) if is_v1 => {
                return invalid("webhook returned response.patchType but not response.patch");
            }
            (true, _, Some("")) if is_v1 => return invalid("webhook returned invalid response.patchType of \"\""),
            (true, _, Some(of)) if is_v1 && of != "JSONPatch" => {
                return Err(AnswerError::PatchType(of.to_owned()));
            }
            (true, ..) => {}
        }
        let patch = STANDARD.decode(patch).map_err(|error| AnswerError::Encoding(error.to_string()))?;
        Ok(Some(patch.into()))
    }
}

impl Denied {
    /// The answer to the write.
    pub(super) fn status(self, webhook: &str) -> Status {
        let by = format!("admission webhook {} denied the request", Quoted(webhook));
        let message = match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => format!("{by} without explanation"),
            ("", reason) => format!("{by}: {reason}"),
            (message, _) => format!("{by}: {message}"),
        };
        let code = u16::try_from(self.code).ok().filter(|code| *code >= 400);
        let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
        let reason = serde_json::from_value(self.reason.into()).unwrap_or(Reason::Unknown);
        let details = self.details;
        let mut status = Status::new(code, reason, message).about(&details.group, &details.kind, &details.name);
        status.details.uid = details.uid;
        status.details.retry_after_seconds = details.retry_after_seconds;
        let cause = |cause: DeniedCause| Cause { reason: cause.reason, message: cause.message, field: cause.field };
        status.details.causes = details.causes.into_iter().map(cause).collect();
        status
    }
}
