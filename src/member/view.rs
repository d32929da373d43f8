//! The member view: one member's own API, untouched, at `/clusters/<member>/`.
//!
//! Bytes pass in both directions as they come: nothing is buffered, a slow side slows the other, and
//! whoever goes away takes the other half with it.

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

use crate::{
    member::Member,
    respond::ViewError,
    upstream::{
        Class, Outgoing, Upgrade,
        impersonate::strip_hop_by_hop,
        permits::{Kind, Permit},
        tunnel::{End, join},
    },
    view::Mode,
};
use kubefold_serving::{
    caller::Caller,
    delivery::Streamed,
    upgrade::{OnceUpgraded, UpgradeAsked},
};
use kubefold_wire::{
    body::{Body, BodyError, empty},
    info::proxied,
    status::Status,
};

/// Passes one request to a member, as `caller`.
///
/// `rest` is the path and query behind `/clusters/<member>`, in the client's own bytes.
/// Cancel: safe; the request to the member is reset.
pub async fn pass(member: &Member, caller: &Caller, request: Request<Incoming>, rest: &str) -> Response<Body> {
    pass_body(member, caller, request.map(|body| body.map_err(BodyError::from).boxed_unsync()), rest).await
}

/// As [`pass`], for a body of any kind.
///
/// A request for another protocol becomes a tunnel if the member agrees; its answer has [`OnceUpgraded`] then.
pub async fn pass_body(member: &Member, caller: &Caller, request: Request<Body>, rest: &str) -> Response<Body> {
    match forward(member, caller, request, rest).await {
        Ok(response) => response,
        Err(error) => refusal(error.into()),
    }
}

async fn forward(
    member: &Member,
    caller: &Caller,
    request: Request<Body>,
    rest: &str,
) -> Result<Response<Body>, ViewError> {
    if *request.method() == Method::CONNECT {
        return Err(ViewError::Connect);
    }
    let uri = target(rest)?;
    // The view's prefix was split off.
    let prefix = request.extensions().get::<Mode>().map_or("", |mode| mode.prefix());
    let moved = Moved::new(&format!("{prefix}{}", request.uri().path()), uri.path());
    let (class, kind) = (classify(request.method(), &uri), stream_kind(&uri));
    let asked = request.extensions().get::<UpgradeAsked>().cloned();
    let (parts, body) = request.into_parts();
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = parts.headers;
    // kubefold's own server has answered it when the body is read.
    request.headers_mut().remove(header::EXPECT);
    let request = Outgoing::of_caller(request, caller, member.name())?;
    let kind = kind.or_else(|| asked.is_some().then_some(Kind::OTHER));
    let permit = kind.map(|kind| member.permits.take(member.name(), &caller.user, kind)).transpose()?;
    let response = match asked {
        None => member.send(request, class).await?,
        // Its bytes would be taken for the other protocol's by whoever did not expect them.
        Some(_) if !request.request().body().is_end_stream() => {
            return Err(ViewError::UpgradeWithBody);
        }
        Some(asked) => {
            // Rare, and holds a TLS handshake: boxed.
            match Box::pin(member.upgrade(request, &asked)).await? {
                Upgrade::Refused(response) => response,
                Upgrade::Opened { head, connection, cut } => return Ok(opened(head, *connection, cut, member, permit)),
            }
        }
    };
    if response.status().is_informational() {
        return Err(ViewError::Informational { member: member.name().clone(), code: response.status() });
    }
    let (mut parts, body) = response.into_parts();
    moved.redirect(member, parts.status, &mut parts.headers)?;
    strip_hop_by_hop(&mut parts.headers);
    // The version is the connection's, and this one was the member's.
    parts.version = http::Version::default();
    parts.extensions.clear();
    parts.extensions.insert(Streamed);
    confine(&mut parts.headers, body.size_hint().exact() == Some(0));
    let body = body.map_err(move |error| {
        // Held until the body ends, which may be after hours.
        let _held = &permit;
        BodyError::from(error)
    });
    Ok(Response::from_parts(parts, body.boxed_unsync()))
}

/// What a browser that is shown an answer may do with it. To a browser all members are one origin, and a page that some
/// pod of one member serves could otherwise read and change all others in its user's name, or leave something behind for
/// later pages.
///
/// `sandbox` without `allow-same-origin` gives the page an origin of its own.
const SANDBOX: HeaderValue =
    HeaderValue::from_static("sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts");
/// What would outlive an answer: in cookies, in other servers for the same origin, in workers, in what was stored.
const LASTING: [&str; 4] = ["set-cookie", "alt-svc", "service-worker-allowed", "clear-site-data"];

fn confine(headers: &mut HeaderMap, is_empty: bool) {
    for name in LASTING {
        headers.remove(name);
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // What the API itself answers with, and logs: no browser runs them.
    let is_data = matches!(
        media.as_str(),
        "application/json" | "application/vnd.kubernetes.protobuf" | "application/yaml" | "text/plain"
    );
    if !is_data && !is_empty {
        headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
    }
}

/// The answer 101, and what is to be done with the connection once it is out.
fn opened(
    head: Response<()>,
    upstream: Upgraded,
    cut: CancellationToken,
    member: &Member,
    permit: Option<Permit>,
) -> Response<Body> {
    let (mut parts, ()) = head.into_parts();
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    strip_hop_by_hop(&mut parts.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
    parts.version = http::Version::default();
    parts.extensions.clear();
    let member = member.name().clone();
    let tunnel = move |client| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let joined = join(TokioIo::new(client), TokioIo::new(upstream));
            match cut.run_until_cancelled(joined).await {
                Some(End::Closed) => tracing::debug!(%member, "a stream ended"),
                Some(End::Broken(error)) => tracing::debug!(%member, %error, "a stream broke"),
                Some(End::Idle) => tracing::info!(%member, "closed an idle stream"),
                None => tracing::debug!(%member, "closed a stream: its member was removed from the configuration"),
            }
            drop(permit);
        })
    };
    let mut response = Response::from_parts(parts, empty());
    response.extensions_mut().insert(OnceUpgraded::new(tunnel));
    response
}

/// The path and query as the client wrote them. Segments that mean another folder are refused: behind a server
/// with a path prefix they would lead out of the member.
fn target(rest: &str) -> Result<Uri, ViewError> {
    let rest = match rest {
        "" => "/".to_owned(),
        query if query.starts_with('?') => format!("/{query}"),
        path => path.to_owned(),
    };
    let uri = Uri::try_from(rest).map_err(|error| ViewError::Path(error.to_string()))?;
    if !uri.path().starts_with('/') || uri.authority().is_some() || uri.path().split('/').any(is_dots) {
        return Err(ViewError::Dots);
    }
    Ok(uri)
}

fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
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
    let legacy_watch = matches!(segments.as_slice(), ["api", _, "watch", ..] | ["apis", _, _, "watch", ..]);
    match *method {
        _ if stream_kind(uri).is_some() => Class::Stream,
        Method::GET if on("watch") || legacy_watch => Class::Watch,
        Method::GET | Method::HEAD | Method::OPTIONS => Class::Read,
        _ => Class::Write,
    }
}

/// What stream a path is of: `/api/v1/namespaces/<ns>/pods/<name>/<sub>` and `/api/v1/nodes/<name>/<sub>`, nothing else has
/// these.
fn stream_kind(uri: &Uri) -> Option<Kind> {
    let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["api", "v1", "namespaces", _, _, _, sub, ..] | ["api", "v1", "nodes", _, sub, ..] => Kind::of(sub),
        _ => None,
    }
}

/// Where a proxied application stands for the client, and where for its member.
struct Moved(Option<(String, String)>);

impl Moved {
    fn new(shown: &str, own: &str) -> Self {
        let moved = proxied(own).and_then(|(head, tail)| Some((shown.strip_suffix(tail)?.to_owned(), head.to_owned())));
        Self(moved)
    }

    /// Lets a redirect pass only within a proxied application, where a kube-apiserver has put it under its own path. Any
    /// other would lead the client, credentials in hand, to wherever the member says. None is followed.
    ///
    /// Source: kubernetes/apimachinery `pkg/util/proxy/upgradeaware.go` (CVE-2022-3172, CVE-2020-8559), `transport.go`.
    fn redirect(&self, member: &Member, code: StatusCode, headers: &mut HeaderMap) -> Result<(), ViewError> {
        if !code.is_redirection() || !headers.contains_key(header::LOCATION) {
            return Ok(());
        }
        let within = self.0.as_ref().and_then(|(shown, own)| {
            let location = headers.get(header::LOCATION)?.to_str().ok()?;
            let tail = location.strip_prefix(own.as_str())?;
            let inside = tail.is_empty() || tail.starts_with(['/', '?', '#']);
            let dots = tail.split(['/', '?', '#']).any(is_dots);
            HeaderValue::try_from(format!("{shown}{tail}")).ok().filter(|_| inside && !dots)
        });
        let Some(within) = within else {
            return Err(ViewError::Redirect { member: member.name().clone(), code });
        };
        headers.insert(header::LOCATION, within);
        Ok(())
    }
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
