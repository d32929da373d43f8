//! The registry over HTTP: what a client of a kube-apiserver expects of one.
//!
//! [`ApiServer`] answers requests; who listens, and who is let in, is the affair of whoever owns it. A request's `Caller`,
//! if there is one, is in its extensions. [`Settings::authorizer`] says what he may do.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/`, `pkg/endpoints/installer.go`.

mod answer;
mod authorize;
mod blocks;
mod bootstrap;
mod context;
mod discovery;
mod form;
mod health;
mod issuer;
mod messages;
mod openapi;
mod options;
mod pods;
mod proxy;
mod read;
mod review;
mod runs;
mod scale;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;
mod write;
mod writing;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{self, Admitter},
    kinds::Kind,
    rbac::{self, Authorizer},
    registry::Registry,
};
use kubefold_serving::{
    encode::{encode, encode_watch},
    health::HealthPath,
    request::drain,
};
use kubefold_table::Printer;
use kubefold_wire::{
    body::{Body, full},
    deadline,
    info::{RequestInfo, without_tail},
    media::{self, is_built_in},
    protobuf,
    status::{Reason, Status},
    warning::Warnings,
};

#[cfg(feature = "demo")]
pub(crate) use proxy::refused;

pub use bootstrap::{bootstrap, built_in, built_in_kinds, registry_of};
pub use tokens::{ISSUER, PublishedKeys, SignError, TokenUser, Tokens, account_of};

use context::{RequestContext, Target};

/// 405 in the words of a kube-apiserver.
const NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";
/// A kube-apiserver has routes for these; HEAD and OPTIONS it answers with 405, wherever the path leads.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Requests at once that are no watches. Source: kubernetes/apiserver `pkg/server/config.go`.
const IN_FLIGHT_MAX: usize = 600;
/// Time for all but watches. Source: kubernetes/apiserver `pkg/server/config.go`, `RequestTimeout`.
const TIME_MAX: Duration = Duration::from_secs(60);
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What a server is, beside its registry.
#[derive(Clone)]
pub struct Settings {
    /// Such as `v1.36.2`.
    pub version: String,
    /// Ends watches: the server is going.
    pub drain: CancellationToken,
    /// What of pods a registry does not know.
    pub pods: Arc<dyn Pods>,
    /// How custom resources are printed.
    pub printers: Arc<dyn Printers>,
    /// The tokens of service accounts. They are not signed if nobody says otherwise.
    pub tokens: Arc<dyn Tokens>,
    /// Who may do what. `None`: whoever asks may do everything.
    pub authorizer: Option<Authorizer>,
    /// What the registry is admitted by, so that a policy is in force when whoever wrote it is answered. `None`: by nobody, or
    /// policies are in force soon.
    pub admitter: Option<Admitter>,
}

impl Settings {
    /// A server of this version, without logs and custom columns, where everybody may do everything.
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            drain: CancellationToken::new(),
            pods: Arc::new(Nothing),
            printers: Arc::new(Nothing),
            tokens: Arc::new(tokens::Unsigned),
            authorizer: None,
            admitter: None,
        }
    }
}

/// What runs in pods.
pub trait Pods: Send + Sync + 'static {
    /// The log of a pod, as the query asks for it; the pod is there.
    ///
    /// Errors: 400, and whatever else a kube-apiserver says.
    fn log<'a>(&'a self, pod: &'a serde_json::Value, query: &'a str) -> BoxFuture<'a, Result<Body, Status>>;

    /// Answers `exec`, `attach` or `portforward` of a pod; the pod is there. The default refuses with 501.
    ///
    /// Errors: 400, and whatever else a kube-apiserver says.
    fn stream<'a>(
        &'a self,
        _pod: &'a serde_json::Value,
        subresource: &'a str,
        _request: &'a Parts,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(async move { Err(answer::no_kubelet(subresource)) })
    }

    /// Answers a request that `proxy` of a pod or of a service leads to a port of a pod; the pod is there, and has an
    /// address. The request's path is the one that the pod sees. The default refuses with 501.
    ///
    /// Errors: 503 if nothing listens there.
    fn request<'a>(
        &'a self,
        _pod: &'a serde_json::Value,
        _port: u16,
        _request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(async move { Err(answer::no_kubelet("proxy")) })
    }
}

/// How kinds are printed that a kube-apiserver does not bring.
pub trait Printers: Send + Sync + 'static {
    /// `None`: as any object.
    fn printer(&self, kind: &Kind) -> Option<Printer>;
}

struct Nothing;

impl Pods for Nothing {
    fn log<'a>(&'a self, _: &'a serde_json::Value, _: &'a str) -> BoxFuture<'a, Result<Body, Status>> {
        Box::pin(async { Ok(full(Bytes::new())) })
    }
}

impl Printers for Nothing {
    fn printer(&self, _: &Kind) -> Option<Printer> {
        None
    }
}

/// Answers requests. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    settings: Settings,
    discovery: discovery::Discovery,
    openapi: openapi::OpenApi,
    messages: messages::Messages,
    blocks: blocks::Blocks,
    runs: Arc<runs::Runs>,
    in_flight: Semaphore,
}

impl ApiServer {
    /// A server of what this registry holds.
    pub fn new(registry: Registry, settings: Settings) -> Self {
        let inner = Inner {
            registry,
            settings,
            discovery: discovery::Discovery::default(),
            openapi: openapi::OpenApi::default(),
            messages: messages::Messages::default(),
            blocks: blocks::Blocks::default(),
            runs: Arc::default(),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The objects that it serves.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Answers a request that was let in.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let audit = request.headers().get(AUDIT_ID).cloned();
        let (mut parts, body) = request.into_parts();
        let warned = Warned::default();
        parts.extensions.insert(warned.clone());
        let answered = Box::pin(self.bounded(&parts, body)).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(status) => {
                let encoding = media::of_failure(&parts.headers, parts.uri.query());
                encode(status.into_response(), encoding).await
            }
        };
        let headers = response.headers_mut();
        warned.0.lock().write_to(headers);
        let audit = audit.or_else(|| HeaderValue::from_str(&self.inner.registry.env().uid()).ok());
        if let Some(audit) = audit {
            headers.insert(AUDIT_ID, audit);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        response
    }

    /// Answers within the bounds of time and number.
    async fn bounded(&self, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
        let Ok(_seat) = self.inner.in_flight.try_acquire() else {
            let message = "Too many requests, please try again later.";
            let mut status = Status::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooManyRequests, message);
            status.details.retry_after_seconds = Some(1);
            return Err(status);
        };
        let late = |_| {
            let message = "Timeout: request did not complete within the allotted timeout";
            Status::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message)
        };
        timeout(TIME_MAX, self.routed(parts, body)).await.map_err(late)?
    }

    async fn routed(&self, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
        let (path, query) = (parts.uri.path(), parts.uri.query());
        deadline::check(&parts.method, path, query)?;
        let known = match self.permitted(parts) {
            Ok(known) => known,
            Err(status) => {
                drain(body).await;
                return Err(status);
            }
        };
        if let Some(path) = HealthPath::of(path) {
            return health::answer(path, parts, &**self.inner.registry.storage()).await;
        }
        if let Some(answer) = issuer::answer(&*self.inner.settings.tokens, parts) {
            return answer;
        }
        if let Some(path) = path.strip_prefix("/openapi/") {
            return self.inner.openapi.answer(&self.inner.registry.catalog(), path, parts);
        }
        if let Some(answer) = self.inner.discovery.answer(&self.inner.registry.catalog(), &self.inner.settings, parts) {
            return answer;
        }
        let info = match known {
            Some(info) => info,
            None => RequestInfo::of(&parts.method, without_tail(path), query)
                .map_err(|error| Status::bad_request(error.to_string()))?,
        };
        if !info.is_resource_request || info.resource.is_empty() {
            return Err(Status::no_such_path());
        }
        self.resource(&info, parts, body).await
    }

    async fn resource(&self, info: &RequestInfo, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
        let kind = self.inner.registry.resource(&info.api_group, &info.api_version, &info.resource);
        let kind = kind.ok_or_else(Status::no_such_path)?;
        fits(info, &kind)?;
        let watches = info.verb == "watch";
        // `/api/v1/proxy/...` is long gone.
        if (watches && !info.subresource.is_empty()) || info.verb == "proxy" {
            return Err(Status::no_such_path());
        }
        if !METHODS.contains(&parts.method) || (watches && parts.method != Method::GET) || !has_route(info, &kind) {
            drain(body).await;
            return Err(Status::method_not_allowed(NOT_ALLOWED));
        }
        // A request for one namespace names it twice: as itself, and as the namespace that it is in.
        let namespace = if kind.namespaced { info.namespace.clone() } else { String::new() };
        let registry = self.registry_for(parts);
        let (name, subresource) = (info.name.clone(), info.subresource.clone());
        let target = Target { registry, kind, namespace, name, subresource };
        if let Some(connect) = target.kind.connects.get(&target.subresource) {
            return target.connect(&**connect, parts, body).await;
        }
        if target.subresource == "proxy" && info.api_group.is_empty() {
            return self.proxy(&target, parts, body).await;
        }
        let kind = &target.kind;
        let whole = watches || info.parts.len() <= 1;
        let asked = RequestContext { headers: &parts.headers, query: parts.uri.query().unwrap_or_default(), parts };
        let negotiated = media::routable(&kind.group, &parts.method, whole, &parts.headers)
            .and_then(|()| asked.wanted(kind, &info.subresource));
        let wanted = match negotiated {
            Ok(wanted) => wanted,
            Err(status) => {
                drain(body).await;
                return Err(status);
            }
        };
        let response = match is_read(info) {
            true => Box::pin(self.read(info, &target, asked, wanted)).await?,
            false => Box::pin(self.write(info, &target, asked, wanted, body)).await?,
        };
        if let (Some(authorizer), true) =
            (&self.inner.settings.authorizer, info.api_group == rbac::GROUP && !is_read(info))
        {
            authorizer.settled().await;
        }
        if let (Some(admitter), true) =
            (&self.inner.settings.admitter, info.api_group == admission::GROUP && !is_read(info))
        {
            admitter.settled(&target.registry).await;
        }
        Ok(if watches { encode_watch(response, wanted.encoding) } else { encode(response, wanted.encoding).await })
    }
}

/// In a request's extensions: what whoever asks is warned of, whatever the answer is.
#[derive(Clone, Default)]
struct Warned(Arc<Mutex<Warnings>>);

fn is_read(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "get" | "list" | "watch")
}

/// Says whether a kube-apiserver has such a path: it makes one for each scope, and for each subresource.
fn fits(info: &RequestInfo, kind: &Kind) -> Result<(), Status> {
    let names_one = info.parts.len() > 1;
    let scope_fits = if kind.namespaced {
        !info.namespace.is_empty() || !names_one
    } else {
        // `namespaces/x` is about the namespace itself.
        info.namespace.is_empty() || (info.resource == "namespaces" && info.namespace == info.name)
    };
    let allows = |verb: &&str| kind.verbs.iter().any(|one| one == verb);
    // What can only be posted has no names: a review, a binding.
    let by_name = ["get", "update", "patch", "delete"].iter().any(allows);
    let only_posted = names_one && info.subresource.is_empty() && allows(&"create") && !by_name;
    let subresource_fits =
        info.subresource.is_empty() || kind.subresources.iter().any(|one| one.name == info.subresource);
    // Below a subresource there is something only where it proxies.
    let too_deep = info.parts.len() > 3 && info.subresource != "proxy";
    if scope_fits && !subresource_fits && !is_built_in(&kind.group) {
        // Source: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
        return Err(Status::not_found(&kind.group, &kind.plural, &info.name));
    }
    if scope_fits && subresource_fits && !only_posted && !too_deep { Ok(()) } else { Err(Status::no_such_path()) }
}

/// Says whether a kube-apiserver has a route for this method: one for each that a collection, an object or a subresource
/// allows.
fn has_route(info: &RequestInfo, kind: &Kind) -> bool {
    let allows = |verb: &str| kind.verbs.iter().any(|one| one == verb);
    if !info.subresource.is_empty() {
        let subresource = kind.subresources.iter().find(|one| one.name == info.subresource);
        return subresource.is_none_or(|one| one.verbs.contains(&info.verb));
    }
    let in_one_place = !kind.namespaced || !info.namespace.is_empty();
    match (info.verb.as_str(), info.parts.len() > 1) {
        ("update" | "patch", named) => named && allows(&info.verb),
        ("create", named) => !named && in_one_place && allows("create"),
        ("deletecollection", _) => in_one_place && allows("deletecollection"),
        (verb, _) => allows(verb),
    }
}

/// 200 with JSON, and the headers that a kube-apiserver puts on every answer.
fn json_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// The same with protobuf.
fn protobuf_response(body: Body) -> Response<Body> {
    let mut response = json_response(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(protobuf::MEDIA_TYPE));
    response
}

impl tower::Service<Request<Body>> for ApiServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

impl crate::Service for ApiServer {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
        Box::pin(Self::answer(self, request))
    }
}
