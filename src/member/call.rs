//! One request to one member, made whole, and what came of it: for whoever changes something, or asks a question that every
//! member answers in full.

use std::ops::Deref;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header, header::InvalidHeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    config::MemberName,
    member::Member,
    upstream::{Class, ImpersonateError, Outgoing, OutgoingError, collect},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    body::{empty, full},
    list::{self, ListError},
    path::ApiPath,
    resource::Gvk,
    status::Status,
};

/// Largest answer to a call.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One request to one member. It asks for JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Verb.
    pub method: Method,
    /// Path.
    pub path: ApiPath,
    /// Query, encoded, without `?`; may be empty.
    pub query: String,
    /// JSON; empty for none.
    pub body: Bytes,
    /// The media type of the body: of a patch it says which kind of patch it is. Empty is `application/json`.
    pub content_type: String,
    /// The client's own: a member derives the field manager from it.
    pub user_agent: Option<String>,
}

/// A body, with the life of the member in which its request began: in another one it tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The whole body.
    pub bytes: Bytes,
    /// [`Member::incarnation`] when the request began.
    pub incarnation: u64,
}

impl Deref for Document {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The member answered.
    Answered {
        /// Status code.
        code: StatusCode,
        /// Values of its `Warning` headers.
        warnings: Vec<String>,
        /// The whole body.
        body: Document,
    },
    /// No byte reached the member. The text says why.
    NotSent(String),
    /// Bytes may have reached the member and it gave no whole answer. The text says why.
    Unknown(String),
}

impl Member {
    /// Makes one call, as `caller` or else as kubefold itself, and takes the whole answer.
    ///
    /// Cancel: the request may have arrived.
    pub async fn call(&self, caller: Option<&Caller>, call: Call) -> Answer {
        let class = if call.method == Method::GET { Class::Read } else { Class::Write };
        self.call_in(class, caller, call).await
    }

    /// Reads one object as kubefold itself, whose login may list and not get: the list of that name. What there is not is a
    /// 404 without a body.
    ///
    /// Cancel: safe.
    pub async fn look(&self, collection: ApiPath, gvk: &Gvk, name: &str) -> Answer {
        let selector = format!("metadata.name={}", escaped(name));
        let call = Call {
            method: Method::GET,
            path: collection,
            query: format!("fieldSelector={}", utf8_percent_encode(&selector, NON_ALPHANUMERIC)),
            body: Bytes::new(),
            content_type: String::new(),
            user_agent: None,
        };
        match self.call(None, call).await {
            Answer::Answered { code: StatusCode::OK, warnings, body: Document { bytes, incarnation } } => {
                let (code, bytes) = match item(&bytes, gvk, name) {
                    Ok(Some(item)) => (StatusCode::OK, item),
                    Ok(None) => (StatusCode::NOT_FOUND, Bytes::new()),
                    Err(error) => return Answer::Unknown(error.to_string()),
                };
                Answer::Answered { code, warnings, body: Document { bytes, incarnation } }
            }
            other => other,
        }
    }

    /// Asks about a token that the member made, as kubefold itself.
    ///
    /// Cancel: safe; nothing is stored.
    pub async fn review_token(&self, call: Call) -> Answer {
        self.call_in(Class::Review, None, call).await
    }

    /// The same as a request of this class.
    ///
    /// Cancel: the request may have arrived.
    pub(super) async fn call_in(&self, class: Class, caller: Option<&Caller>, call: Call) -> Answer {
        let request = match request(call, caller, &self.name) {
            Ok(request) => request,
            // As the member would: there the caller is nobody.
            Err(CallError::Caller(error @ ImpersonateError::OtherDomain { .. })) => {
                let status = Status::from(error);
                let body = Document { bytes: status.to_json(), incarnation: self.incarnation() };
                return Answer::Answered { code: status.code, warnings: Vec::new(), body };
            }
            Err(error) => return Answer::NotSent(error.to_string()),
        };
        let incarnation = self.incarnation();
        let answer = match self.send(request, class).await {
            Ok(answer) => answer,
            Err(error) if error.may_have_arrived() => return Answer::Unknown(error.cause()),
            Err(error) => return Answer::NotSent(error.cause()),
        };
        let (head, body) = answer.into_parts();
        let warnings = head.headers.get_all(header::WARNING).iter();
        let warnings = warnings.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect();
        match collect(body, ANSWER_BYTES_MAX).await {
            Ok(_) if self.incarnation() != incarnation => {
                Answer::Unknown("the member became another cluster meanwhile".into())
            }
            Ok(bytes) => Answer::Answered { code: head.status, warnings, body: Document { bytes, incarnation } },
            Err(error) => Answer::Unknown(error.cause()),
        }
    }
}

/// As a field selector has it.
///
/// Source: kubernetes/apimachinery `pkg/fields/selector.go`, `EscapeValue`.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

/// The object of that name in a list, as a get gives it: items of built-in kinds do not say what they are.
///
/// Errors: it is no list.
fn item(list: &[u8], gvk: &Gvk, name: &str) -> Result<Option<Bytes>, ListError> {
    #[derive(Deserialize)]
    struct Item {
        kind: Option<IgnoredAny>,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    let (_, items) = list::split(list)?;
    for text in items {
        let Item { kind, metadata } = serde_json::from_str(text)?;
        // Some servers ignore the field selector and list everything.
        if metadata.name != name {
            continue;
        }
        let own = text.trim_start().strip_prefix('{').unwrap_or_default();
        return Ok(Some(match kind {
            Some(_) => text.to_owned().into(),
            None => format!(r#"{{"kind":"{}","apiVersion":"{}",{own}"#, gvk.kind, gvk.api_version()).into(),
        }));
    }
    Ok(None)
}

/// Why a call is no request.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum CallError {
    Request(#[from] http::Error),
    Own(#[from] OutgoingError),
    ContentType(#[from] InvalidHeaderValue),
    Caller(#[from] ImpersonateError),
}

fn request(call: Call, caller: Option<&Caller>, member: &MemberName) -> Result<Outgoing, CallError> {
    let Call { method, path, query, body, content_type, user_agent } = call;
    let has_body = !body.is_empty();
    let body = if has_body { full(body) } else { empty() };
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if has_body {
        let media = if content_type.is_empty() { "application/json" } else { &content_type };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media)?);
    }
    if let Some(agent) = user_agent.and_then(|agent| HeaderValue::from_str(&agent).ok()) {
        headers.insert(header::USER_AGENT, agent);
    }
    let Some(caller) = caller else {
        return Ok(Outgoing::own(method, path, &query, body)?.with_all(headers));
    };
    let uri = if query.is_empty() { path.to_string() } else { format!("{path}?{query}") };
    let mut request = Request::builder().method(method).uri(uri).body(body)?;
    *request.headers_mut() = headers;
    Ok(Outgoing::of_caller(request, caller, member)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_of_that_name_is_as_a_get_gives_it() {
        let pod = Gvk::new("", "v1", "Pod");
        let list = br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[
            {"metadata":{"name":"other"}}, {"metadata":{"name":"web","uid":"u"},"spec":{}}]}"#;
        let found = item(list, &pod, "web").unwrap().unwrap();
        assert_eq!(found, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","uid":"u"},"spec":{}}"#);
        assert_eq!(item(list, &pod, "none").unwrap(), None);
        let custom = br#"{"items":[{"apiVersion":"a.b/v1","kind":"T","metadata":{"name":"web"}}]}"#;
        let found = item(custom, &Gvk::new("a.b", "v1", "T"), "web").unwrap().unwrap();
        assert_eq!(found, r#"{"apiVersion":"a.b/v1","kind":"T","metadata":{"name":"web"}}"#);
        assert!(item(b"{}", &pod, "web").is_err() && item(b"<html>", &pod, "web").is_err());
        assert_eq!(escaped("a=b,c\\d"), "a\\=b\\,c\\\\d");
    }
}
