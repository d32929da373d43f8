//! The member view: one member's own API, untouched, at `/clusters/<member>/`.
//!
//! Bytes pass in both directions as they come: nothing is buffered, a slow side slows the other, and
//! whoever goes away takes the other half with it.

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    member::{
        Class, Member,
        impersonate::{impersonate, strip_hop_by_hop},
    },
    wire::{
        body::{Body, BodyError},
        caller::Caller,
        status::{Reason, Status},
    },
};

/// Passes one request to a member, as `caller`.
///
/// `rest` is the path and query behind `/clusters/<member>`, in the client's own bytes.
/// Cancel: safe; the request to the member is reset.
pub async fn pass(member: &Member, caller: &Caller, request: Request<Incoming>, rest: &str) -> Response<Body> {
    pass_body(member, caller, request.map(|body| body.map_err(BodyError::from).boxed_unsync()), rest).await
}

/// As [`pass`], for a body of any kind.
pub async fn pass_body(member: &Member, caller: &Caller, request: Request<Body>, rest: &str) -> Response<Body> {
    match forward(member, caller, request, rest).await {
        Ok(response) => response,
        Err(status) => refusal(*status),
    }
}

async fn forward(
    member: &Member,
    caller: &Caller,
    request: Request<Body>,
    rest: &str,
) -> Result<Response<Body>, Box<Status>> {
    refuse_upgrade(request.method(), request.headers())?;
    let uri = target(rest)?;
    let class = classify(request.method(), &uri);
    let (parts, body) = request.into_parts();
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = parts.headers;
    impersonate(request.headers_mut(), caller).map_err(Status::from)?;
    // kubefold's own server has answered it when the body is read.
    request.headers_mut().remove(header::EXPECT);
    let response = member.send(request, class).await.map_err(|error| error.status())?;
    refuse_redirect(member, response.status(), response.headers())?;
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    // The version is the connection's, and this one was the member's.
    parts.version = http::Version::default();
    parts.extensions.clear();
    Ok(Response::from_parts(parts, body.map_err(BodyError::from).boxed_unsync()))
}

/// The path and query as the client wrote them. Segments that mean another folder are refused: behind a server
/// with a path prefix they would lead out of the member.
fn target(rest: &str) -> Result<Uri, Box<Status>> {
    let rest = match rest {
        "" => "/".to_owned(),
        query if query.starts_with('?') => format!("/{query}"),
        path => path.to_owned(),
    };
    let uri = Uri::try_from(rest).map_err(|error| Status::bad_request(format!("invalid path: {error}")))?;
    let dots = |segment: &str| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if !uri.path().starts_with('/') || uri.authority().is_some() || uri.path().split('/').any(dots) {
        return Err(Status::bad_request("invalid path: segments `.` and `..` are not allowed").into());
    }
    Ok(uri)
}

/// The kind of a request, from its method and path, as a kube-apiserver tells long-running ones.
///
/// Source: kubernetes/kubernetes `pkg/genericfeatures`: `BasicLongRunningRequestCheck(watch, proxy;
/// attach, exec, proxy, log, portforward)`.
fn classify(method: &Method, uri: &Uri) -> Class {
    let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let query = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&');
        let mut values = pairs.filter_map(|pair| pair.split_once('=').or(Some((pair, ""))));
        values.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let on = |name: &str| query(name).is_some_and(|value| !matches!(value, "0" | "false" | "False" | "FALSE"));
    let streams = ["proxy", "log", "exec", "attach", "portforward"];
    // `/api/v1/namespaces/<ns>/pods/<name>/<sub>` and `/api/v1/nodes/<name>/<sub>`: nothing else has these.
    let core = matches!(segments.as_slice(), ["api", "v1", ..]);
    let subresource = match segments.get(2..) {
        Some(["namespaces", _, _, _, sub, ..] | ["nodes", _, sub, ..]) if core => Some(*sub),
        _ => None,
    };
    let legacy_watch = matches!(segments.as_slice(), ["api", _, "watch", ..] | ["apis", _, _, "watch", ..]);
    match *method {
        _ if subresource.is_some_and(|sub| streams.contains(&sub)) => Class::Stream,
        Method::GET if on("watch") || legacy_watch => Class::Watch,
        Method::GET | Method::HEAD | Method::OPTIONS => Class::Read,
        _ => Class::Write,
    }
}

fn refuse_upgrade(method: &Method, headers: &HeaderMap) -> Result<(), Box<Status>> {
    let wanted = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    // An upgrade to HTTP/2 may be ignored (RFC 9113 section 3.1).
    let wanted: Vec<_> = wanted.filter(|protocol| !protocol.eq_ignore_ascii_case("h2c")).collect();
    if wanted.is_empty() && *method != Method::CONNECT {
        return Ok(());
    }
    Err(Status::method_not_allowed(format!(
        "kubefold does not pass upgrades ({}) yet: exec, attach and port-forward come later; use the member's own kubeconfig for them",
        wanted.join(", ")
    ))
    .into())
}

/// A redirect would lead the client, credentials in hand, to wherever the member says.
///
/// Source: kubernetes/apimachinery `pkg/util/proxy/upgradeaware.go` (CVE-2022-3172, CVE-2020-8559).
fn refuse_redirect(member: &Member, code: StatusCode, headers: &HeaderMap) -> Result<(), Box<Status>> {
    if !code.is_redirection() || !headers.contains_key(header::LOCATION) {
        return Ok(());
    }
    let name = member.name();
    let message = format!("member {name}: attempted to redirect this request ({code}), which is not permitted");
    Err(Status::new(StatusCode::BAD_GATEWAY, Reason::InternalError, message).into())
}

/// A failure as a response. Only a 429, where nothing was sent, may be repeated by a client.
fn refusal(status: Status) -> Response<Body> {
    let retry_after = status.details.retry_after_seconds;
    let mut response = status.into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_running_requests_are_told_as_a_kube_apiserver_tells_them() {
        let cases = [
            (Method::GET, "/api/v1/pods?watch=true", Class::Watch),
            (Method::GET, "/api/v1/pods?limit=1&watch", Class::Watch),
            (Method::GET, "/api/v1/pods?watch=false", Class::Read),
            (Method::GET, "/apis/apps/v1/watch/deployments", Class::Watch),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log?follow=true", Class::Stream),
            (Method::POST, "/api/v1/namespaces/a/services/b/proxy/upload", Class::Stream),
            (Method::GET, "/api/v1/nodes/n/proxy/metrics", Class::Stream),
            (Method::GET, "/api/v1/namespaces/a/configmaps/log", Class::Read),
            (Method::GET, "/apis/example.com/v1/namespaces/a/things/b/log", Class::Read),
            (Method::HEAD, "/healthz", Class::Read),
            (Method::PATCH, "/api/v1/namespaces/a/pods/b", Class::Write),
        ];
        for (method, path, class) in cases {
            assert_eq!(classify(&method, &target(path).unwrap()), class, "{method} {path}");
        }
    }
}
