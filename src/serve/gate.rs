//! What happens to every request before and after it is answered: identity, hygiene, an audit id, one log line.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use http::{HeaderValue, Request, Response, Uri, uri::PathAndQuery};
use hyper::body::Incoming;
use rustls::pki_types::UnixTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    authn::{Authentication, Bearer},
    respond::GateError,
    serve::{
        handing::Handing,
        monitor::Health,
        traffic::{Came, Served},
    },
    stores::is_for_replicas,
    view::{Mode, through_proxy},
};
use kubefold_serving::{
    Answer, Closed, PeerAddress, Seat,
    audit::{self, Arrival, AuditLog, Full, Trail},
    caller::Caller,
    credential::{Counts, Credential},
    delivery::Deliveries,
    headers,
    health::HealthPath,
    impersonation::Impersonation,
    peer::Peer,
    replica::{self, CacheAnswer},
    upgrade::{OnceUpgraded, UpgradeAsked, WebSocketAsked, is_of_another_site},
};
use kubefold_wire::{body::Body, status::Status};

/// For a credential without an end.
const LIFE_MAX: Duration = Duration::from_hours(365 * 24);

/// Whoever answers requests that are let in.
///
/// The request has its [`Caller`] in its extensions, and the [`Impersonation`] that it asks for, if it does. It has no hop-by-hop, `Authorization`,
/// `X-Remote-*` or `Impersonate-*` header.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    ///
    /// Cancel: dropped when the client goes away.
    fn handle(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// Stands before a [`Handler`]; one for all connections.
pub struct Gate<H> {
    handler: Arc<H>,
    health: Health,
    draining: CancellationToken,
    served: Served,
    deliveries: Arc<Deliveries>,
    authentication: Option<Arc<Authentication>>,
    audit: Option<Arc<AuditLog>>,
    handing: Option<Arc<Handing>>,
    telling: Option<Telling>,
}

/// Gives what other replicas are told at a path and query, for as long as they read. `None`: nothing there.
pub type Telling = Arc<dyn Fn(&str, &str) -> Option<Body> + Send + Sync>;

/// Who asks, and as long as what that is known.
struct Login {
    caller: Caller,
    credential: Credential,
    /// By what he is known.
    by: &'static str,
}

impl<H: Handler> Gate<H> {
    /// Puts a gate before a handler, until `draining` is cancelled.
    pub fn new(handler: Arc<H>, health: Health, draining: CancellationToken) -> Self {
        Self {
            handler,
            health,
            draining,
            served: Served::default(),
            deliveries: Arc::default(),
            authentication: None,
            audit: None,
            handing: None,
            telling: None,
        }
    }

    /// Has what passes counted.
    pub fn counting(self, served: Served) -> Self {
        Self { served, ..self }
    }

    /// Has callers known by their tokens, too.
    pub fn authenticating(self, authentication: Arc<Authentication>) -> Self {
        Self { authentication: Some(authentication), ..self }
    }

    /// Has events of requests written to a log.
    pub fn audited(self, audit: Option<Arc<AuditLog>>) -> Self {
        Self { audit, ..self }
    }

    /// Has other replicas told what this one shows.
    pub fn telling(self, telling: Option<Telling>) -> Self {
        Self { telling, ..self }
    }

    /// Has everything but health and metrics handed on to the replica that has the state.
    pub fn handing(self, handing: Option<Arc<Handing>>) -> Self {
        Self { handing, ..self }
    }

    /// Begins the trail of a request in the audit log, if there is one and its policy wants it.
    ///
    /// Errors: the log cannot be written, and the request may change something.
    fn trail(
        &self,
        request: &Request<Incoming>,
        id: &HeaderValue,
        login: Option<&Login>,
    ) -> Result<Option<Trail>, Full> {
        let Some(log) = &self.audit else { return Ok(None) };
        let caller = login.map(|login| &login.caller);
        let wanted = Impersonation::by(request.headers()).ok().flatten();
        let acting = caller.zip(wanted).map(|(caller, wanted)| wanted.caller(caller));
        let arrival = Arrival {
            id,
            method: request.method(),
            uri: request.uri(),
            path: Came::path(request.uri().path()),
            headers: request.headers(),
            peer: request.extensions().get::<PeerAddress>().map(|PeerAddress(peer)| peer.ip()),
        };
        let trail = log.begin(arrival, caller, acting.as_ref())?;
        if let (Some(trail), Some(login)) = (&trail, login) {
            trail.notes().annotate("authentication.kubefold.io/by", login.by.to_owned());
            if let Some(domain) = &login.caller.domain {
                trail.notes().annotate("authentication.kubefold.io/domain", domain.clone());
            }
        }
        Ok(trail)
    }

    /// Who sends a request: by the word of a front proxy, else by the certificate of its connection, else by a token in it.
    async fn login(&self, request: &Request<Incoming>, peer: &Arc<Peer>) -> Option<Login> {
        if let Some(login) = proxied(request, peer).or_else(|| certified(peer)) {
            return Some(login);
        }
        let authentication = self.authentication.as_ref()?;
        let bearer = authentication.bearer(request.headers()).await?;
        if let Some(seat) = request.extensions().get::<Seat>() {
            seat.belongs_to(&bearer.caller.user);
        }
        Some(borne(authentication, bearer))
    }

    /// What another replica asks for that waits for this one's place. `None`: it is no such request.
    fn told(&self, request: &Request<Incoming>, peer: &Peer) -> Option<Body> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let telling = self.telling.as_ref().filter(|_| is_for_replicas(path))?;
        let is_its_own = peer.is_replica_at(UnixTime::now()) && replica::is_own(request.headers());
        if is_its_own { telling(path, query) } else { None }
    }

    /// What has to run besides: it lets go of answers that their clients do not take.
    pub fn sweep(&self) -> impl Future<Output = ()> + use<H> {
        Arc::clone(&self.deliveries).sweep(self.draining.clone())
    }

    /// Answers, whatever happens.
    async fn handled(
        &self,
        request: Request<Incoming>,
        id: &HeaderValue,
        caller: Option<&Caller>,
        trail: Option<&Trail>,
    ) -> Response<Body> {
        let admitted = audit::scoped(id.clone(), trail.map(Trail::notes), self.admit(request, caller));
        match AssertUnwindSafe(admitted).catch_unwind().await {
            Ok(response) => response,
            Err(panic) => {
                tracing::error!(audit = ?id, panic = panic_text(&*panic), "a request's handler panicked");
                if let Some(trail) = trail {
                    trail.panicked();
                }
                Status::from(GateError::Panicked).into_response()
            }
        }
    }

    async fn admit(&self, mut request: Request<Incoming>, caller: Option<&Caller>) -> Response<Body> {
        let (path, query) = (Mode::split(request.uri().path()).1, request.uri().query());
        let health = HealthPath::of(path);
        let Some(caller) = caller else {
            return match health {
                Some(path) if path.open_to_anonymous(query) => self.health.answer(request.method(), path, None, false),
                Some(_) | None => Status::from(GateError::Unauthorized).into_response(),
            };
        };
        if let Some(path) = health {
            return self.health.answer(request.method(), path, query, true);
        }
        request.extensions_mut().insert(caller.clone());
        if let Some(asked) = WebSocketAsked::by(request.headers()) {
            request.extensions_mut().insert(asked);
        }
        if let Some(asked) = UpgradeAsked::by(request.headers()) {
            if is_of_another_site(request.headers()) {
                return Status::from(GateError::OtherSite).into_response_to(request.headers());
            }
            request.extensions_mut().insert(asked);
        }
        match Impersonation::by(request.headers()) {
            Ok(None) => {}
            Ok(Some(wanted)) => drop(request.extensions_mut().insert(wanted)),
            Err(error) => return Status::from(GateError::from(error)).into_response_to(request.headers()),
        }
        headers::clean(request.headers_mut());
        Arc::clone(&self.handler).handle(request).await
    }
}

impl<H: Handler> Answer for Gate<H> {
    /// Never fails and never panics.
    async fn answer(&self, mut request: Request<Incoming>, peer: &Arc<Peer>) -> Result<Response<Body>, Closed> {
        let started = Instant::now();
        if let Some(handing) = &self.handing {
            if let Some(refused) = handing.refuses(peer) {
                return Ok(refused);
            }
            if Handing::is_for_holder(request.uri().path()) {
                return Ok(self.deliveries.bounded(handing.hand_on(request, peer).await, None));
            }
        }
        if let Some(told) = self.told(&request, peer) {
            return Ok(Response::new(told));
        }
        let passed_on = replica::passed_on(&mut request, peer);
        let peer = passed_on.as_ref().unwrap_or(peer);
        unwrap_proxy(&mut request);
        let audit_id = headers::audit_id(request.headers_mut());
        let (method, class) = (request.method().clone(), path_class(request.uri().path()));
        let came = self.served.came(request.method(), request.uri().path(), request.uri().query());
        let login = Box::pin(self.login(&request, peer)).await;
        peer.strip_proxy_headers(request.headers_mut());
        let (trail, refused) = match self.trail(&request, &audit_id, login.as_ref()) {
            Ok(trail) => (trail, None),
            Err(Full) => (None, Some(Status::from(GateError::Unaudited).into_response())),
        };
        let response = match refused {
            Some(refused) => refused,
            None => self.handled(request, &audit_id, login.as_ref().map(|login| &login.caller), trail.as_ref()).await,
        };
        let mut response = match trail {
            Some(trail) => trail.answered(response),
            None => response,
        };
        let status = response.status();
        // To the answer's head: a watch goes on after it.
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let audit = audit_id.to_str().unwrap_or_default();
        if status.is_client_error() || status.is_server_error() {
            tracing::info!(%method, path = class, status = status.as_u16(), ms, audit, "request");
        } else {
            tracing::debug!(%method, path = class, status = status.as_u16(), ms, audit, "request");
        }
        response.headers_mut().insert(audit::AUDIT_ID, audit_id);
        if let (Some(_), Some(login)) = (&passed_on, &login) {
            replica::name_caller(response.headers_mut(), &login.caller.user);
        }
        let of_cache = response.extensions_mut().remove::<CacheAnswer>();
        if passed_on.is_some() {
            replica::tell_of_cache(response.headers_mut(), of_cache);
        }
        let credential = login.map(|login| login.credential);
        if let (Some(credential), Some(tunnel)) = (&credential, response.extensions_mut().remove::<OnceUpgraded>()) {
            response.extensions_mut().insert(tunnel.with(credential.clone()));
        }
        let response = self.deliveries.bounded(response, credential);
        Ok(self.served.answered(&came, started.elapsed(), response))
    }
}

/// A request for the fleet as a subresource is one for the fleet: whoever may send one there may send the other here.
fn unwrap_proxy(request: &mut Request<Incoming>) {
    let asked = request.uri().path_and_query().and_then(|asked| through_proxy(asked.as_str()));
    let Some(path) = asked.and_then(|path| PathAndQuery::try_from(path).ok()) else { return };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.path_and_query = Some(path);
    // Only the path is another one, and it is one.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// Whom a front proxy names. Its certificate is judged before any header is read.
fn proxied(request: &Request<Incoming>, peer: &Arc<Peer>) -> Option<Login> {
    let (client, now) = (peer.client(), UnixTime::now());
    let proxy = client.front_proxy_at(now)?;
    let caller = proxy.caller(request.headers())?;
    let (peer, proxy_then) = (Arc::clone(peer), proxy.clone());
    let counts = move || peer.client().front_proxy_at(UnixTime::now()) == Some(&proxy_then);
    let credential = until(Some(proxy.not_after_s + 1), now, Arc::new(counts));
    Some(Login { caller, credential, by: "front proxy" })
}

/// Whose the certificate of a connection is.
fn certified(peer: &Arc<Peer>) -> Option<Login> {
    let (client, now) = (peer.client(), UnixTime::now());
    let caller = client.identity.caller_at(now)?.clone();
    let ends = Instant::now() + client.identity.ends_in(now).unwrap_or(LIFE_MAX);
    let (peer, whose) = (Arc::clone(peer), caller.clone());
    let counts = move || {
        let now = peer.client();
        // Most often nothing was judged anew.
        let is_same = Arc::ptr_eq(&now, &client);
        now.identity.caller_at(UnixTime::now()).is_some_and(|caller| is_same || *caller == whose)
    };
    Some(Login { caller, credential: Credential::new(ends, Arc::new(counts)), by: "certificate" })
}

/// Whose a token is.
fn borne(authentication: &Arc<Authentication>, bearer: Bearer) -> Login {
    let (caller, ends_s) = (bearer.caller.clone(), bearer.ends_s);
    let authentication = Arc::clone(authentication);
    let counts = move || authentication.counts(&bearer);
    Login { caller, credential: until(ends_s, UnixTime::now(), Arc::new(counts)), by: "token" }
}

/// A credential that ends at a Unix time, if it does.
fn until(ends_s: Option<u64>, now: UnixTime, counts: Counts) -> Credential {
    let left = ends_s.map(|ends_s| Duration::from_secs(ends_s.saturating_sub(now.as_secs())));
    Credential::new(Instant::now() + left.unwrap_or(LIFE_MAX).min(LIFE_MAX), counts)
}

/// A path without the names in it: what the log is read by.
fn path_class(path: &str) -> String {
    let mut parts = Mode::split(path).1.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next()) {
        (Some("clusters"), Some(member)) => format!("/clusters/{}", member.chars().take(63).collect::<String>()),
        (Some("api"), Some(version)) => format!("/api/{version} {}", resource(parts)),
        (Some("apis"), Some(group)) => format!("/apis/{group} {}", resource(parts.skip(1))),
        (Some(first), _) => format!("/{first}"),
        (None, _) => "/".to_owned(),
    }
}

/// The resource in what follows the version.
fn resource<'a>(mut parts: impl Iterator<Item = &'a str>) -> String {
    match (parts.next(), parts.next(), parts.next()) {
        (Some("namespaces"), Some(_), Some(resource)) | (Some(resource), _, _) => resource.to_owned(),
        (None, _, _) => String::new(),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_class_holds_no_object() {
        let cases = [
            ("/", "/"),
            ("/api/v1/namespaces/ns/pods/secret-name", "/api/v1 pods"),
            ("/api/v1/pods", "/api/v1 pods"),
            ("/api/v1/nodes/n1", "/api/v1 nodes"),
            ("/api/v1", "/api/v1 "),
            ("/apis/apps/v1/namespaces/ns/deployments/web", "/apis/apps deployments"),
            ("/clusters/east/api/v1/secrets/x", "/clusters/east"),
            ("/openapi/v3/x", "/openapi"),
            ("/views/strict/api/v1/namespaces/ns/pods/x", "/api/v1 pods"),
        ];
        for (path, class) in cases {
            assert_eq!(path_class(path), class, "{path}");
        }
    }
}
