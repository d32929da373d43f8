//! What a process that waits for the state does with requests: it hands them on to the one that has it, as they are.
//!
//! Who asks and whether he may, the holder says. A request is sent once: again only if no byte of it left.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use rustls::pki_types::UnixTime;
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};

use crate::{
    observe::Exposed,
    read::CachedReader,
    respond::GateError,
    serve::{
        holder::{Holder, HolderLink},
        traffic::Came,
    },
    stores::is_for_replicas,
    upstream::{Failure, impersonate::strip_hop_by_hop, tunnel::join},
    view::Mode,
};
use kubefold_serving::{
    PeerAddress, Seat,
    audit::AUDIT_ID,
    headers,
    health::HealthPath,
    peer::Peer,
    replica,
    upgrade::{OnceUpgraded, UpgradeAsked},
};
use kubefold_wire::{
    body::{Body, BodyError, empty},
    info::RequestInfo,
    status::Status,
};

/// Why a request was not handed on, or was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// What is counted of it.
#[derive(Clone, Debug, Default)]
struct Counted {
    requests: Counter,
    from_cache: Counter,
    failures: Family<Cause, Counter>,
    open: Gauge,
}

/// Hands requests on.
pub struct Handing {
    pub(super) holder: Arc<Holder>,
    /// What it answers itself.
    pub(super) cached: Option<Arc<CachedReader>>,
    /// Watches end with it, and other answers are waited for.
    pub(super) draining: CancellationToken,
    /// They fill watch caches.
    pub(super) tasks: TaskTracker,
    counted: Counted,
}

/// What of a request decides what is done when its answer fails.
#[derive(Clone)]
pub(super) struct Asked {
    method: Method,
    headers: http::HeaderMap,
    is_watch: bool,
}

impl Handing {
    /// Hands them on to this one, until `draining` is cancelled.
    pub fn new(holder: Arc<Holder>, draining: CancellationToken) -> Self {
        Self { holder, cached: None, draining, tasks: TaskTracker::new(), counted: Counted::default() }
    }

    /// Has lists and watches answered from watch caches, which `tasks` fill.
    pub fn caching(self, cached: CachedReader, tasks: TaskTracker) -> Self {
        Self { cached: Some(Arc::new(cached)), tasks, ..self }
    }

    /// Registers what is counted about it.
    pub fn register(self: &Arc<Self>, exported: &mut Registry) {
        let Counted { requests, from_cache, failures, open } = self.counted.clone();
        for cause in [NO_HOLDER, UNREACHABLE, BROKEN] {
            drop(failures.get_or_create(&cause));
        }
        exported.register(
            "requests",
            "Requests that this standby handed on to the replica that has the state",
            requests,
        );
        let help = "Lists and watches that this standby answered from its own memory, after the replica that has the state said that it may";
        exported.register("cached_answers", help, from_cache);
        let help = "Requests that this standby could not hand on, or that were not answered, by cause";
        exported.register("failures", help, failures);
        exported.register("open", "Requests and streams that this standby has handed on, and that go on", open);
        exported.register_collector(Box::new(Reachable(Arc::clone(&self.holder))));
        self.cached.iter().for_each(|cached| cached.caches().register(exported));
    }

    /// Counts an answer from a watch cache.
    pub(super) fn counted_from_cache(&self) {
        self.counted.from_cache.inc();
    }

    /// Whether a request is not for this process alone, such as one for its health and its metrics.
    pub(super) fn is_for_holder(path: &str) -> bool {
        let path = Mode::split(path).1;
        HealthPath::of(path).is_none() && Exposed::at(path).is_none() && !is_for_replicas(path)
    }

    /// Answers what another replica hands on to this one, which has not the state either.
    pub(super) fn refuses(&self, peer: &Peer) -> Option<Response<Body>> {
        let is_replica = peer.is_replica_at(UnixTime::now());
        is_replica.then(|| Status::from(GateError::Standby { holder: self.holder.told() }).into_response())
    }

    /// Hands a request on, and answers with the holder's answer.
    ///
    /// Cancel: the request is reset at the holder, too.
    pub(super) async fn hand_on(self: &Arc<Self>, request: Request<Incoming>, peer: &Peer) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let id = headers::audit_id(&mut parts.headers);
        let info = RequestInfo::of(&parts.method, Came::path(parts.uri.path()), parts.uri.query()).ok();
        let is_watch = info.is_some_and(|info| info.verb == "watch");
        let asked = Asked { method: parts.method.clone(), headers: parts.headers.clone(), is_watch };
        let (upgrade, seat) = (UpgradeAsked::by(&parts.headers), parts.extensions.get::<Seat>().cloned());
        let from = parts.extensions.get::<PeerAddress>().map(|PeerAddress(from)| *from);
        parts.extensions.clear();
        replica::pass_on(&mut parts.headers, peer, from);
        let cached = self.cached.as_ref().filter(|_| upgrade.is_none());
        let read = cached.and_then(|cached| Some((cached, cached.of(&parts.method, &parts.uri, &parts.headers)?)));
        let handed = match read {
            Some((cached, read)) => Box::pin(self.read(cached, read, parts, &asked)).await,
            None => {
                let body = body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync();
                self.ask(Request::from_parts(parts, body), upgrade, &asked).await
            }
        };
        let mut response = handed.unwrap_or_else(|error| {
            tracing::info!(audit = ?id, %error, "a request was not handed on");
            let mut refused = Status::from(error).into_response_to(&asked.headers);
            refused.headers_mut().insert(AUDIT_ID, id);
            refused
        });
        if let (Some(user), Some(seat)) = (replica::take_caller(response.headers_mut()), seat) {
            seat.belongs_to(&user);
        }
        response
    }

    pub(super) async fn ask(
        &self,
        request: Request<Body>,
        upgrade: Option<UpgradeAsked>,
        asked: &Asked,
    ) -> Result<Response<Body>, GateError> {
        let way = self.holder.link().inspect_err(|error| {
            let cause = if matches!(error, GateError::Standby { .. }) { NO_HOLDER } else { UNREACHABLE };
            self.counted.failures.get_or_create(&cause).inc();
        })?;
        self.counted.requests.inc();
        let open = Open::new(&self.counted.open);
        let fails = |failure| self.failed(&way, failure, asked);
        let Some(wanted) = upgrade else {
            let response = way.link().send(request).await.map_err(fails)?;
            return Ok(self.answer(response, open, asked));
        };
        let answered = way.link().upgrade(request, &wanted).await.map_err(fails)?;
        let Some(connection) = answered.connection else { return Ok(self.answer(answered.answer, open, asked)) };
        Ok(tunnel(answered.answer, *connection, answered.cut, open))
    }

    fn failed(&self, way: &HolderLink, failure: Failure, asked: &Asked) -> GateError {
        let is_sent = failure.may_have_arrived();
        self.counted.failures.get_or_create(if is_sent { &BROKEN } else { &UNREACHABLE }).inc();
        let holder = format!("{}, at {}", self.holder.told(), way.address());
        match is_sent {
            false => GateError::HolderUnreachable { holder, cause: failure.to_string() },
            true => GateError::HolderLost { holder, cause: failure.to_string(), is_read: asked.method.is_safe() },
        }
    }

    fn answer(&self, mut response: Response<Body>, open: Open, asked: &Asked) -> Response<Body> {
        strip_hop_by_hop(response.headers_mut());
        let end = asked.is_watch.then(|| Box::pin(self.draining.clone().cancelled_owned()));
        *response.version_mut() = http::Version::default();
        response.map(|body| Handed { body, end, is_whole: true, _open: open }.boxed_unsync())
    }
}

const NO_HOLDER: Cause = Cause { cause: "no_holder" };
const UNREACHABLE: Cause = Cause { cause: "unreachable" };
const BROKEN: Cause = Cause { cause: "broken" };

/// Two connections whose bytes are each other's.
fn tunnel(head: Response<Body>, holder: Upgraded, cut: CancellationToken, open: Open) -> Response<Body> {
    let (mut parts, _) = head.into_parts();
    let protocol = parts.headers.get(header::UPGRADE).cloned();
    strip_hop_by_hop(&mut parts.headers);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
    parts.extensions.clear();
    parts.status = StatusCode::SWITCHING_PROTOCOLS;
    let work = move |client| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let joined = join(TokioIo::new(client), TokioIo::new(holder));
            let ended = cut.run_until_cancelled(joined).await;
            tracing::debug!(?ended, "a stream that was handed on ended");
            drop(open);
        })
    };
    let mut response = Response::from_parts(parts, empty());
    response.extensions_mut().insert(OnceUpgraded::new(work));
    response
}

/// Counts as open while it is held.
struct Open(Gauge);

impl Open {
    fn new(open: &Gauge) -> Self {
        open.inc();
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// An answer as it comes. That of a watch ends when this process does, behind a whole event if it can.
struct Handed {
    body: Body,
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// What was sent ends with a line.
    is_whole: bool,
    _open: Open,
}

/// A watch that ends in the middle of an event.
#[derive(Debug, thiserror::Error)]
#[error("this kubefold ends")]
struct Ends;

impl http_body::Body for Handed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            return Poll::Ready(if self.is_whole { None } else { Some(Err(Box::new(Ends))) });
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(last) = frame.data_ref().and_then(|data| data.last())
        {
            self.is_whole = *last == b'\n';
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether the holder answers.
#[derive(Debug)]
struct Reachable(Arc<Holder>);

impl Collector for Reachable {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Whether the replica that has the state answered the last probe of this standby: 1 or 0";
        let mut gauge = encoder.encode_descriptor("holder_reachable", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&i64::from(self.0.is_reachable()))
    }
}
