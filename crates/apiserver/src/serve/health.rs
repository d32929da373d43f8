//! `/healthz`, `/livez`, `/readyz`.
//!
//! Source: kubernetes/apiserver `pkg/server/healthz/healthz.go`.

use http::{HeaderValue, Method, Response, header, request::Parts};

use crate::serve::NOT_ALLOWED;
use kubefold_wire::{
    body::{Body, full},
    status::Status,
};

const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

/// Answers a question for health; `None`: it is another.
pub(super) fn answer(parts: &Parts) -> Option<Result<Response<Body>, Status>> {
    let path = parts.uri.path().strip_prefix('/')?;
    let (endpoint, check) = path.split_once('/').map_or((path, None), |(endpoint, check)| (endpoint, Some(check)));
    if !matches!(endpoint, "healthz" | "livez" | "readyz") {
        return None;
    }
    if check.is_some_and(|check| !CHECKS.contains(&check)) {
        return Some(Err(Status::no_such_path()));
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Some(Err(Status::method_not_allowed(NOT_ALLOWED)));
    }
    let query = parts.uri.query().unwrap_or_default();
    let verbose = query.split('&').any(|pair| pair.split('=').next() == Some("verbose"));
    let text = if verbose && check.is_none() {
        let lines: String = CHECKS.iter().map(|check| format!("[+]{check} ok\n")).collect();
        format!("{lines}{endpoint} check passed\n")
    } else {
        "ok".to_owned()
    };
    let mut response = Response::new(full(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if check.is_none() {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    Some(Ok(response))
}
