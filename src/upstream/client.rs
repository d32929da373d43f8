//! The way to one member: credentials, connections, limits and deadlines.
//!
//! Nothing is ever sent twice. A request that finds its connection closed before a byte of it left takes
//! another one; whatever else goes wrong is the caller's to judge, with [`UpstreamError::may_have_arrived`].

mod upgrade;

use std::{error::Error as _, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use hyper::body::Incoming;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Access, Deadlines, MemberConfig, MemberName},
    observe::RequestClass,
    upstream::{
        access::{Credentials, Fingerprint, On},
        answer::{Held, UpResponseBody},
        cause::Cause,
        dial::{CALLER_WINDOW_BYTES, Dialer, STREAM_WINDOW_BYTES},
        error::{Failure, UpstreamError},
        metrics::Meter,
        outgoing::Outgoing,
        places::{self, CALLER_CONNECTIONS_MAX, Class, Place, Requests, WATCH_CONNECTIONS_MAX, Watches},
        pool::{Lease, Pool, STREAMS_MAX},
        probe_state::ProbeState,
    },
};
use kubefold_serving::audit;
use kubefold_wire::{body::Body, path::may_lead_elsewhere};

pub use upgrade::Upgrade;

/// What is sent to a member: any bytes, whole or streamed.
pub type UpBody = Body;

/// Connections that a request may find closed before it gives up.
pub(crate) const STALE_CONNECTIONS_MAX: usize = 3;
/// An exec plugin must be done by then.
const CREDENTIALS_MAX: Duration = Duration::from_secs(30);
/// Failed credentials are not read again before this has passed.
const CREDENTIALS_RETRY: Duration = Duration::from_secs(1);
/// A refused credential makes a plugin run again, not more often than this.
const REFUSED_RETRY: Duration = Duration::from_secs(10);

/// The way to one member.
pub struct Upstream {
    name: MemberName,
    tasks: TaskTracker,
    cancel: CancellationToken,
    probe_state: Arc<ProbeState>,
    settings: ArcSwap<Settings>,
    session: ArcSwap<Option<Arc<Session>>>,
    /// Held while credentials are read; holds when and why that last failed.
    opening: tokio::sync::Mutex<Option<(Instant, Failure)>>,
    watches: Watches,
}

struct Settings {
    access: Access,
    impersonator: Option<PathBuf>,
    deadlines: Deadlines,
    in_flight_max: usize,
    requests: Requests,
}

impl Settings {
    fn new(config: &MemberConfig) -> Self {
        Self {
            access: config.access.clone(),
            impersonator: config.impersonator.clone(),
            deadlines: config.deadlines,
            in_flight_max: config.in_flight_max,
            requests: Requests::new(config.in_flight_max),
        }
    }
}

/// One set of credentials and the connections that were opened with it.
struct Session {
    credentials: Arc<Credentials>,
    /// Of the files as they were read, or as they were when reading them again failed.
    fingerprint: Mutex<Fingerprint>,
    requests: Arc<Pool>,
    watches: Arc<Pool>,
    caller_watches: Arc<Pool>,
    /// For connections that are upgraded, and belong to no pool.
    dialer: Dialer,
    cancel: CancellationToken,
    opened: Instant,
}

impl Upstream {
    /// Makes it without connecting. Its tasks end with `cancel`.
    pub(crate) fn new(
        config: &MemberConfig,
        probe_state: Arc<ProbeState>,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            name: config.name.clone(),
            tasks,
            cancel,
            probe_state,
            settings: ArcSwap::from_pointee(Settings::new(config)),
            session: ArcSwap::from_pointee(None),
            opening: tokio::sync::Mutex::new(None),
            watches: Watches::new(),
        }
    }

    /// Whom it leads to.
    pub fn member(&self) -> &MemberName {
        &self.name
    }

    /// The member's deadlines as configured now.
    pub fn deadlines(&self) -> Deadlines {
        self.settings.load().deadlines
    }

    /// Sends one request, with the credential of whom it is made for, and waits for the head of the answer.
    ///
    /// The URI is a path and query; the server's path prefix is put before it, its bytes are kept. Prefer
    /// [`crate::member::Member::send`], which does not ask a member that is down.
    ///
    /// Errors: say how far the request came. Cancel: safe; a request under way is reset.
    pub async fn send(&self, asked: Outgoing, class: Class) -> Result<Response<UpResponseBody>, UpstreamError> {
        let uri = asked.request().uri();
        let class_of = RequestClass::of(asked.request().method(), uri.path(), uri.query());
        let began = Instant::now();
        let settings = self.settings.load_full();
        let place = places::take(&settings.requests, &self.watches, class, asked.caller());
        let place = place.map_err(|failure| self.fail(failure))?;
        let (mut request, on) = asked.into_parts();
        request.headers_mut().extend(audit::current().map(|id| (audit::AUDIT_ID, id)));
        let answered = self.exchange(request, on, class, head_max(&settings.deadlines, class)).await;
        let (response, lease) = answered.map_err(|failure| self.fail(failure))?;
        self.probe_state.answered();
        if let Some(cause) = Cause::of_anybodys(response.status()) {
            self.probe_state.meter().failed(cause);
        }
        let bytes = self.probe_state.meter().answered(class_of, response.status().as_u16(), began.elapsed());
        Ok(self.answer(response, lease, class, Some((place, bytes))))
    }

    /// As [`Self::send`], for probes: without a permit, so that a busy member is not taken for a dead one, and
    /// without a word to health, which judges probes itself.
    pub(crate) async fn probe(&self, asked: Outgoing) -> Result<Response<UpResponseBody>, UpstreamError> {
        let head_max = self.settings.load().deadlines.connect;
        let (request, on) = asked.into_parts();
        let answered = self.exchange(request, on, Class::Read, Some(head_max)).await;
        let (response, lease) = answered.map_err(|failure| UpstreamError::new(&self.name, failure))?;
        Ok(self.answer(response, lease, Class::Read, None))
    }

    /// When the credentials end that are in use, in Unix seconds, as far as that is known.
    pub(crate) fn expiries(&self) -> Vec<(&'static str, u64)> {
        self.session.load().as_ref().as_ref().map(|session| session.credentials.expiries().to_vec()).unwrap_or_default()
    }

    /// Counts failed requests to the member.
    pub(crate) fn meter(&self) -> &Meter {
        self.probe_state.meter()
    }

    fn answer(
        &self,
        response: Response<Incoming>,
        lease: Lease,
        class: Class,
        counted: Option<(Place, Counter)>,
    ) -> Response<UpResponseBody> {
        let stall_max = match class {
            Class::Read | Class::Write | Class::Review => Some(self.settings.load().deadlines.read),
            Class::Watch | Class::Stream => None,
        };
        let (place, bytes) = counted.unzip();
        let held =
            Held { member: self.name.clone(), probe_state: self.probe_state.clone(), lease, place, bytes, stall_max };
        response.map(|body| UpResponseBody::new(body, held))
    }

    async fn exchange(
        &self,
        mut request: Request<UpBody>,
        on: On,
        class: Class,
        head_max: Option<Duration>,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        let session = self.session().await?;
        // A plugin may have to run for it.
        let authorization = timeout(CREDENTIALS_MAX, session.credentials.authorization(on)).await;
        if let Some(authorization) = authorization.map_err(|_| late_credential())?? {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let uri = target(&session.credentials.base, request.uri())?;
        let pool = match class {
            Class::Read | Class::Write | Class::Review => &session.requests,
            Class::Watch | Class::Stream if on == On::CallersBehalf => &session.caller_watches,
            Class::Watch | Class::Stream => &session.watches,
        };
        for _ in 0..STALE_CONNECTIONS_MAX {
            let mut lease = pool.lease().await?;
            address(&mut request, &uri, lease.is_http2());
            let sent = match head_max {
                Some(max) => timeout(max, lease.send(request)).await.map_err(|_| Failure::HeadTimeout(max))?,
                None => lease.send(request).await,
            };
            match sent {
                Ok(response) => return Ok((response, lease)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => {
                        self.probe_state.meter().retried();
                        request = unsent;
                    }
                    None => return Err(broken(error.into_error())),
                },
            }
        }
        Err(Failure::Closed(Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionAborted))))
    }

    fn fail(&self, failure: Failure) -> UpstreamError {
        self.probe_state.failed(&failure);
        UpstreamError::new(&self.name, failure)
    }

    /// The session, opened on first use.
    async fn session(&self) -> Result<Arc<Session>, Failure> {
        if let Some(session) = self.session.load().as_ref() {
            return Ok(session.clone());
        }
        let mut last = self.opening.lock().await;
        if let Some(session) = self.session.load().as_ref() {
            return Ok(session.clone());
        }
        if let Some((_, failure)) = last.as_ref().filter(|(at, _)| at.elapsed() < CREDENTIALS_RETRY) {
            return Err(failure.clone());
        }
        match Box::pin(self.open_session()).await {
            Ok(session) => {
                *last = None;
                self.session.store(Arc::new(Some(session.clone())));
                Ok(session)
            }
            Err(failure) => {
                *last = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    async fn open_session(&self) -> Result<Arc<Session>, Failure> {
        let settings = self.settings.load_full();
        let (access, impersonator) = (settings.access.clone(), settings.impersonator.clone());
        // Exec plugins and files block.
        let read = self.tasks.spawn_blocking(move || {
            let fingerprint = Fingerprint::of(&access, impersonator.as_deref());
            Credentials::read(&access, impersonator.as_deref()).map(|credentials| (credentials, fingerprint))
        });
        let read = timeout(CREDENTIALS_MAX, read).await.map_err(|_| late_credential())?;
        let (credentials, fingerprint) = read.map_err(|panic| Failure::Credential(panic.to_string().into()))??;
        if let Some(exposed) = credentials.exposed {
            tracing::warn!(member = %self.name, "{exposed}, and kubefold's credential may impersonate everybody");
        }
        let credentials = Arc::new(credentials);
        let cancel = self.cancel.child_token();
        let dialer = |stream_window_bytes| Dialer {
            credentials: credentials.clone(),
            connect_max: settings.deadlines.connect,
            stream_window_bytes,
            tasks: self.tasks.clone(),
            cancel: cancel.clone(),
        };
        let request_connections_max = settings.in_flight_max.div_ceil(STREAMS_MAX) + 1;
        Ok(Arc::new(Session {
            requests: Pool::new(dialer(STREAM_WINDOW_BYTES), request_connections_max, "requests"),
            watches: Pool::new(dialer(STREAM_WINDOW_BYTES), WATCH_CONNECTIONS_MAX, "watches"),
            caller_watches: Pool::new(dialer(CALLER_WINDOW_BYTES), CALLER_CONNECTIONS_MAX, "watches"),
            dialer: dialer(STREAM_WINDOW_BYTES),
            credentials,
            fingerprint: Mutex::new(fingerprint),
            cancel,
            opened: Instant::now(),
        }))
    }

    /// Follows the files that credentials were read from. True if the member is somewhere else now.
    pub(crate) async fn follow_files(&self) -> bool {
        let Some(session) = self.session.load().as_ref().clone() else { return false };
        let known = session.fingerprint.lock().clone();
        let looked = known.clone();
        let Ok(seen) = self.tasks.spawn_blocking(move || looked.again()).await else { return false };
        if seen == known {
            return false;
        }
        tracing::info!(member = %self.name, "credential files changed");
        let moved = self.renew(&session).await;
        // What failed to be read is not read again before it changes again.
        *session.fingerprint.lock() = seen;
        moved
    }

    /// Runs an exec plugin again after the member refused what it gave.
    pub(crate) async fn credential_refused(&self) {
        let Some(session) = self.session.load().as_ref().clone() else { return };
        if session.credentials.from_plugin && session.opened.elapsed() >= REFUSED_RETRY {
            tracing::info!(member = %self.name, "credential refused, asks the plugin again");
            self.renew(&session).await;
        }
    }

    /// Replaces a session if the new one can be opened. Requests under way end in peace, unless it leads elsewhere.
    async fn renew(&self, old: &Arc<Session>) -> bool {
        let new = match Box::pin(self.open_session()).await {
            Ok(new) => new,
            Err(failure) => {
                tracing::warn!(member = %self.name, error = %failure, "keeps the credentials it has");
                return false;
            }
        };
        let moved = new.credentials.base != old.credentials.base;
        self.session.store(Arc::new(Some(new)));
        if moved {
            old.cancel.cancel();
        }
        moved
    }

    /// Takes another configuration. True if the member may be somewhere else now; then its old connections are cut. Another
    /// credential at the same server is no other place: what is under way ends in peace.
    pub(crate) fn reconfigure(&self, config: &MemberConfig) -> bool {
        let after = Arc::new(Settings::new(config));
        let before = self.settings.swap(after.clone());
        let moved = !before.access.is_of_same_server(&after.access);
        let limits =
            |settings: &Settings| (settings.deadlines.connect, settings.in_flight_max, settings.impersonator.clone());
        if moved || before.access != after.access || limits(&before) != limits(&after) {
            // Requests under way end in peace on the connections of a session that is only forgotten.
            let session = self.session.swap(Arc::new(None));
            if let Some(session) = session.as_ref().as_ref().filter(|_| moved) {
                session.cancel.cancel();
            }
        }
        moved
    }

    /// Forgets the connections for requests: one of them may be dead while the member is not.
    pub(crate) fn retire_connections(&self) {
        if let Some(session) = self.session.load().as_ref() {
            session.requests.retire();
        }
    }

    /// Cuts HTTP/1.1 connections of a member that went down: it has no pings, so a watch on one would wait for ever.
    pub(crate) fn cut_http1(&self) {
        let session = self.session.load();
        let Some(session) = session.as_ref() else { return };
        let pools = [&session.requests, &session.watches, &session.caller_watches];
        if pools.iter().any(|pool| pool.speaks_http1()) {
            self.session.store(Arc::new(None));
            session.cancel.cancel();
        }
    }

    /// HTTP/2 connections open now: for requests, and for kubefold's own watches.
    pub fn connections(&self) -> (usize, usize) {
        let session = self.session.load();
        session
            .as_ref()
            .as_ref()
            .map_or((0, 0), |session| (session.requests.connections(), session.watches.connections()))
    }
}

fn late_credential() -> Failure {
    Failure::Credential(format!("its plugin or files gave none in {} s", CREDENTIALS_MAX.as_secs()).into())
}

fn head_max(deadlines: &Deadlines, class: Class) -> Option<Duration> {
    match class {
        Class::Read | Class::Watch | Class::Review => Some(deadlines.read),
        Class::Write => Some(deadlines.write),
        Class::Stream => None,
    }
}

/// `base` with its path before that of `asked`, whose bytes stay as they are.
///
/// Errors: behind a proxy that cleans paths, it might be the path of another server.
pub(crate) fn target(base: &Uri, asked: &Uri) -> Result<Uri, Failure> {
    let unfit = || Failure::Request(format!("no path: {asked}").into());
    let path = asked.path_and_query().ok_or_else(unfit)?;
    let prefix = base.path().trim_end_matches('/');
    if !prefix.is_empty() && may_lead_elsewhere(path.path()) {
        return Err(Failure::Request(
            format!("the path {path} might lead out of the member's own path {prefix}").into(),
        ));
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(if prefix.is_empty() {
        path.clone()
    } else {
        PathAndQuery::try_from(format!("{prefix}{path}")).map_err(|_| unfit())?
    });
    Uri::from_parts(parts).map_err(|_| unfit())
}

/// Writes the target as the connection's HTTP version wants it.
pub(crate) fn address(request: &mut Request<UpBody>, target: &Uri, http2: bool) {
    request.headers_mut().remove(header::HOST);
    *request.version_mut() = http::Version::default();
    if http2 {
        *request.uri_mut() = target.clone();
        return;
    }
    let host = target.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    request.headers_mut().extend(host.map(|host| (header::HOST, host)));
    *request.uri_mut() = target.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
}

/// Sorts what broke after the request began to be written.
pub(crate) fn broken(error: hyper::Error) -> Failure {
    let user = error.is_user() && !error.is_canceled();
    match () {
        () if error.is_parse() => Failure::Protocol { source: Arc::new(error) },
        () if user => {
            let body = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Failure::Request(format!("its body broke off: {body}").into())
        }
        () => Failure::Send { source: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_members_own() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let proxied = uri("https://proxy.example/k8s/east/");
        let sent = target(&proxied, &uri("/api/v1/pods?limit=1")).unwrap();
        assert_eq!(sent, "https://proxy.example/k8s/east/api/v1/pods?limit=1");
        for path in ["/..%2f..%2fwest/api", "/api/..;/..;/west", "/a%5c..%5c..%5cwest", "/%252e%252e/%252e%252e/west"] {
            assert!(matches!(target(&proxied, &uri(path)), Err(Failure::Request(_))), "{path}");
            // A kube-apiserver itself cleans no path.
            assert!(target(&uri("https://east.example"), &uri(path)).is_ok(), "{path}");
        }
    }
}
