//! What can go wrong with a server's answers, on demand.
//!
//! A [`Faults`] stands before a server. Its rules say which requests fail, how, and how often; without a rule it costs
//! a lock that nobody holds. What belongs to connections (a server that is gone, an expired certificate) is the
//! listener's.

mod body;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::Service;
use kubefold_serving::Closed;
use kubefold_wire::{
    body::{Body, full},
    status::{Reason, Status},
};

/// Rules at once. More would be a mistake of whoever makes them.
pub const RULES_MAX: usize = 64;

/// One rule: which requests, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Which requests.
    #[serde(default)]
    pub on: Matching,
    /// What happens to them.
    pub fault: Fault,
    /// How many requests it happens to; then the rule is gone. Unset: to all, until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// It happens to each such request in this many, beginning with the last of them. Unset: to each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
}

/// Which requests. What is unset fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Matching {
    /// Such as `GET`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// A part of the path, such as `/pods` or `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether it is a watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// The answer comes later.
    Latency {
        /// Units: milliseconds.
        millis: u64,
    },
    /// A failure in place of the answer: 429, 500, 503, ...; the server does nothing.
    Status {
        /// HTTP status code.
        code: u16,
        /// Units: seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// The answer is lost: the server did what it was asked to, and the client hears a failure.
    Lost {
        /// HTTP status code.
        code: u16,
    },
    /// 410 `Expired`: in the stream for a watch, as the answer otherwise.
    Expired,
    /// Never an answer.
    Hang,
    /// The connection is closed without an answer.
    Close,
    /// The body breaks off after so many bytes.
    Cut {
        /// Units: bytes.
        after: u64,
    },
    /// The body is compressed and ends, cleanly, half-way.
    TruncatedGzip,
    /// A page of HTML in place of the answer, as of a proxy that wants a login.
    WrongContent,
    /// Every `resourceVersion` in the answer is lower, as of a restored backup.
    Backwards {
        /// By how much.
        by: u64,
    },
    /// A watch tells nothing any more, and stays open.
    Silence {
        /// Events that it tells first.
        #[serde(default)]
        after: u64,
    },
}

/// The rules in force at one server.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Active>>>,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    /// Requests that it fits, so far.
    seen: u32,
}

impl Faults {
    /// Adds a rule, behind those that are there.
    ///
    /// Errors: there are [`RULES_MAX`] rules, or the rule can never hold.
    pub fn add(&self, rule: Rule) -> Result<(), Status> {
        let status = match rule.fault {
            Fault::Status { code, .. } | Fault::Lost { code } => StatusCode::from_u16(code).ok(),
            _ => Some(StatusCode::OK),
        };
        if status.is_none() || rule.times == Some(0) || rule.every == Some(0) {
            return Err(Status::bad_request("a rule needs a status code from 100 to 999, and times and every above 0"));
        }
        let mut rules = self.rules.lock();
        if rules.len() >= RULES_MAX {
            return Err(Status::bad_request(format!("there are {RULES_MAX} rules; clear them first")));
        }
        rules.push(Active { rule, seen: 0 });
        Ok(())
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    /// The rules in force.
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.lock().iter().map(|active| active.rule.clone()).collect()
    }

    /// Passes a request to a server, and its answer back, with what the rules want of both.
    ///
    /// Errors: the connection is to be closed.
    /// Cancel: safe; a hang ends when the client leaves.
    pub async fn pass(&self, request: Request<Body>, server: &dyn Service) -> Result<Response<Body>, Closed> {
        let faults = self.fitting(&request);
        if faults.is_empty() {
            return Ok(server.answer(request).await);
        }
        let watch = is_watch(&request);
        for fault in &faults {
            match fault {
                Fault::Latency { millis } => tokio::time::sleep(Duration::from_millis(*millis)).await,
                Fault::Hang => std::future::pending().await,
                Fault::Close => return Err(Closed),
                Fault::Expired if watch => return Ok(expired_watch()),
                Fault::Expired => return Ok(expired().into_response()),
                Fault::Status { code, retry_after } => return Ok(refused(*code, *retry_after)),
                Fault::WrongContent => return Ok(html()),
                _ => {}
            }
        }
        let mut response = server.answer(request).await;
        for fault in faults {
            response = match fault {
                Fault::Lost { code } => refused(code, None),
                Fault::Cut { after } => body::cut(response, after),
                Fault::TruncatedGzip => body::truncated(response).await,
                Fault::Backwards { by } => body::backwards(response, by, watch).await,
                Fault::Silence { after } if watch => body::silent(response, after),
                _ => response,
            };
        }
        Ok(response)
    }

    /// What happens to a request, in the rules' order.
    fn fitting(&self, request: &Request<Body>) -> Vec<Fault> {
        let mut rules = self.rules.lock();
        let mut faults = Vec::new();
        for active in rules.iter_mut().filter(|active| active.rule.on.fits(request)) {
            active.seen += 1;
            if active.seen.is_multiple_of(active.rule.every.unwrap_or(1)) {
                faults.push(active.rule.fault.clone());
                if let Some(times) = &mut active.rule.times {
                    *times -= 1;
                }
            }
        }
        rules.retain(|active| active.rule.times != Some(0));
        faults
    }
}

impl Matching {
    fn fits(&self, request: &Request<Body>) -> bool {
        self.method.as_ref().is_none_or(|method| Method::as_str(request.method()).eq_ignore_ascii_case(method))
            && self.path.as_ref().is_none_or(|part| request.uri().path().contains(part.as_str()))
            && self.watch.is_none_or(|watch| watch == is_watch(request))
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let parameters = request.uri().query().unwrap_or_default().split('&');
    parameters.into_iter().any(|parameter| matches!(parameter, "watch" | "watch=1" | "watch=true"))
}

fn refused(code: u16, retry_after: Option<u32>) -> Response<Body> {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match code {
        StatusCode::UNAUTHORIZED => Reason::Unauthorized,
        StatusCode::FORBIDDEN => Reason::Forbidden,
        StatusCode::NOT_FOUND => Reason::NotFound,
        StatusCode::CONFLICT => Reason::Conflict,
        StatusCode::GONE => Reason::Expired,
        StatusCode::TOO_MANY_REQUESTS => Reason::TooManyRequests,
        StatusCode::SERVICE_UNAVAILABLE => Reason::ServiceUnavailable,
        StatusCode::GATEWAY_TIMEOUT => Reason::Timeout,
        _ => Reason::InternalError,
    };
    let mut status = Status::new(code, reason, "this failure was asked for");
    status.details.retry_after_seconds = retry_after;
    status.into_response()
}

fn expired() -> Status {
    Status::expired("The resourceVersion for the provided list or watch is too old: this failure was asked for.")
}

fn expired_watch() -> Response<Body> {
    let mut event = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    event.extend_from_slice(expired().to_json().trim_ascii_end());
    event.extend_from_slice(b"}\n");
    with_content("application/json", event)
}

fn html() -> Response<Body> {
    with_content("text/html", "<html><body>Please log in.</body></html>\n")
}

fn with_content(content: &'static str, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content));
    response
}
