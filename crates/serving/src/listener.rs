//! Accepts connections: TLS, HTTP/1.1 or 2 by ALPN, limits, and an end that lets answers finish.

use std::{
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::{body::Incoming, rt::Executor, service::service_fn, upgrade};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    gather::{Gather, ending_apart},
    peer::Peer,
    shares::{Share, Shares},
    tls::Tls,
    upgrade::OnceUpgraded,
};
use kubefold_wire::{
    body::{Body, empty},
    status::{Reason, Status},
};

/// What answers the requests of a listener's connections.
pub trait Answer: Send + Sync + 'static {
    /// Answers one request of a connection to `peer`.
    ///
    /// Errors: the connection is closed without an answer. Cancel: dropped when the client goes away.
    fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Arc<Peer>,
    ) -> impl Future<Output = Result<Response<Body>, Closed>> + Send;
}

/// The connection is closed instead of an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection was closed without an answer")]
pub struct Closed;

/// How serving ends.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// No further connections; answers finish within the grace, the rest is cut.
    pub drain: CancellationToken,
    /// Every connection is cut at once.
    pub cut: CancellationToken,
}

/// Bounds of what clients may hold. Sources: kube-apiserver's own where it has one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum of concurrent connections of clients that have logged in, of which no user has more than a share. One
    /// more gets 429.
    pub connections_max: usize,
    /// The maximum of connections whose clients have not logged in: in a handshake, or without a credential. No address
    /// has more than a share; one more is closed without an answer.
    pub anonymous_max: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for a request's head on HTTP/1.1, which is also how long a connection may idle.
    pub head: Duration,
    /// Life of a connection whose client has not logged in: enough for a probe (CVE-2023-44487).
    pub anonymous_life: Duration,
    /// Size of a request's head.
    pub head_bytes_max: usize,
    /// The same for a client that has not logged in.
    pub anonymous_head_bytes_max: usize,
    /// Headers of a request on HTTP/1.1.
    pub headers_max: usize,
    /// Requests at once on one HTTP/2 connection; kube-apiserver's default is 100, client-go's informers need more.
    pub streams_max: u32,
    /// The same for a client that has not logged in.
    pub anonymous_streams_max: u32,
    /// Between HTTP/2 pings, and for their answer: a client that vanished is noticed after both.
    pub ping_every: Duration,
    /// See `ping_every`.
    pub ping_timeout: Duration,
    /// Time for answers to finish once draining began.
    pub grace: Duration,
}

impl Limits {
    /// Those of a server that faces many clients.
    pub const DEFAULT: Self = Self {
        connections_max: 4096,
        anonymous_max: 2048,
        handshake: Duration::from_secs(10),
        head: Duration::from_secs(60),
        anonymous_life: Duration::from_secs(30),
        head_bytes_max: 256 << 10,
        anonymous_head_bytes_max: 16 << 10,
        headers_max: 128,
        streams_max: 1000,
        anonymous_streams_max: 8,
        ping_every: Duration::from_secs(30),
        ping_timeout: Duration::from_secs(15),
        grace: Duration::from_secs(25),
    };
}

impl Limits {
    /// The same for a server that knows clients by what their requests say: one that shows no certificate may be somebody.
    pub const fn for_tokens(self) -> Self {
        Self { anonymous_streams_max: self.streams_max, anonymous_head_bytes_max: 64 << 10, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How long a client over the connection limit should wait.
const OVER_LIMIT_RETRY: Duration = Duration::from_secs(1);
/// Times that the kernel asks a silent client before its connection is closed.
const KEEPALIVE_RETRIES: u32 = 3;
/// Waits after a failed accept: without it, a process without file handles would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound listener.
pub struct Listener {
    socket: TcpListener,
    tls: Arc<ArcSwap<Tls>>,
    limits: Limits,
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({source}); free the port, or give another address")]
pub struct ListenError {
    pub(crate) address: SocketAddr,
    pub(crate) source: std::io::Error,
}

impl Listener {
    /// Binds. Port 0 takes a free one. A handshake uses the TLS that is there when it begins.
    ///
    /// Errors: the address is taken, or is not this machine's.
    pub async fn bind(address: SocketAddr, tls: Arc<ArcSwap<Tls>>, limits: Limits) -> Result<Self, ListenError> {
        let socket = TcpListener::bind(address).await.map_err(|source| ListenError { address, source })?;
        Ok(Self { socket, tls, limits })
    }

    /// Takes a socket that listens already.
    ///
    /// Errors: it is none that can be used.
    pub fn on(socket: std::net::TcpListener, tls: Arc<ArcSwap<Tls>>, limits: Limits) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpListener::from_std(socket)?, tls, limits })
    }

    /// The socket once more. While there is one of both, the system takes connections, and they wait until somebody accepts them.
    ///
    /// Errors: the process has no file handles.
    pub fn socket(&self) -> std::io::Result<std::net::TcpListener> {
        use std::os::fd::AsFd;
        Ok(self.socket.as_fd().try_clone_to_owned()?.into())
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `shutdown` says otherwise.
    ///
    /// A watch ends only if whoever makes its body listens to `shutdown.drain` too.
    pub async fn serve<A: Answer>(self, answer: A, shutdown: Shutdown) {
        let Self { socket, tls, limits } = self;
        let server = Arc::new(Server {
            answer,
            tls,
            limits,
            shutdown,
            tasks: TaskTracker::new(),
            connections: Shares::new(limits.connections_max),
            anonymous: Shares::new(limits.anonymous_max),
        });
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = server.shutdown.drain.cancelled() => break,
                () = server.shutdown.cut.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => server.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(socket);
        server.drain().await;
    }
}

/// What all connections share.
struct Server<A> {
    answer: A,
    tls: Arc<ArcSwap<Tls>>,
    limits: Limits,
    shutdown: Shutdown,
    tasks: TaskTracker,
    /// Of clients that have logged in, by user.
    connections: Arc<Shares>,
    /// Of all others, by address.
    anonymous: Arc<Shares>,
}

impl<A: Answer> Server<A> {
    /// Takes a place for a connection and serves it on its own task.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let place = match self.anonymous.take(&address_of(peer)) {
            Ok(place) => place,
            Err(full) => return tracing::warn!(%peer, %full, "closed a connection: too many have not logged in"),
        };
        let (server, cut) = (Arc::clone(self), self.shutdown.cut.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = server.connection(stream, peer, place) => {}
                () = cut.cancelled() => {}
            }
        });
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, place: Share) {
        // Answers are written whole: waiting for more to send would only add delay.
        drop(stream.set_nodelay(true));
        // HTTP/1.1 has no pings, and what a connection was upgraded to may have none: the kernel asks instead.
        let keepalive = TcpKeepalive::new().with_time(self.limits.ping_every).with_interval(self.limits.ping_timeout);
        drop(SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES)));
        // A handshake holds nothing worth waiting for once draining began.
        let tls = self.tls.load_full();
        let handshake = TlsAcceptor::from(Arc::clone(&tls.config)).accept(stream);
        let handshake = tokio::select! {
            handshake = timeout(self.limits.handshake, handshake) => handshake,
            () = self.shutdown.drain.cancelled() => return,
        };
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "a TLS handshake took too long"),
        };
        let session = stream.get_ref().1;
        let peer_of = Arc::new(Peer::new(session.peer_certificates(), &self.tls));
        let http2 = session.alpn_protocol() == Some(b"h2");
        // Whoever has logged in makes room for another that has not.
        let client = peer_of.client();
        let taken = client.name_at(UnixTime::now()).map(|name| self.connections.take(name));
        let is_known = taken.is_some();
        let (place, refused) = match taken {
            Some(Ok(place)) => (place, false),
            Some(Err(full)) => {
                tracing::warn!(%peer, %full, "refuses a connection: too many are open");
                (place, true)
            }
            None => (place, false),
        };
        let anonymous = refused || !is_known;
        let server = Arc::clone(&self);
        let seat = Seat::new(place, Arc::clone(&self.connections), !anonymous);
        let held = seat.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (server, client, seat) = (Arc::clone(&server), Arc::clone(&peer_of), held.clone());
            request.extensions_mut().insert(PeerAddress(peer));
            async move {
                if refused {
                    return Ok(too_many_connections(OVER_LIMIT_RETRY));
                }
                seat.belongs_to_client(&client);
                server.answer(request, &client, seat).await
            }
        });
        let builder = self.builder(http2, anonymous);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(Gather::new(stream, http2)), service);
        let mut connection = pin!(connection);
        let life = async {
            sleep(self.limits.anonymous_life).await;
            if seat.is_somebodys() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = life => return tracing::debug!(%peer, "closed a connection whose client did not log in"),
            () = self.shutdown.drain.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, error, "a connection ended early");
        }
        drop(seat);
    }

    /// Answers a request; where the answer is another protocol, that has a task of its own and keeps the place.
    async fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: &Arc<Peer>,
        seat: Seat,
    ) -> Result<Response<Body>, Closed> {
        let upgraded = upgrade::on(&mut request);
        let is_head = request.method() == Method::HEAD;
        let is_http2 = request.version() == Version::HTTP_2;
        request.extensions_mut().insert(seat.clone());
        let mut response = self.answer.answer(request, peer).await?;
        let once = response.extensions_mut().remove::<OnceUpgraded>();
        if let Some(once) = once.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS) {
            let cut = self.shutdown.cut.clone();
            self.tasks.spawn(async move {
                let work = async {
                    match upgraded.await {
                        Ok(connection) => once.run(connection).await,
                        Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
                    }
                };
                tokio::select! {
                    () = work => {}
                    () = cut.cancelled() => {}
                }
                drop(seat);
            });
        }
        // hyper sends what it is given, and over HTTP/2 a body in answer to HEAD is a protocol error.
        Ok(match is_head {
            true => response.map(|_| empty()),
            false if is_http2 => response.map(ending_apart),
            false => response,
        })
    }

    /// The protocol is the one agreed on by ALPN: guessing it from bytes would let a silent client hold a permit.
    fn builder(&self, http2: bool, anonymous: bool) -> auto::Builder<Tracked> {
        let limits = &self.limits;
        let head_bytes_max = if anonymous { limits.anonymous_head_bytes_max } else { limits.head_bytes_max };
        let mut builder = auto::Builder::new(Tracked(self.tasks.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(head_bytes_max)
            .max_headers(limits.headers_max);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.ping_every)
            .keep_alive_timeout(limits.ping_timeout)
            .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX))
            .max_concurrent_streams(if anonymous { limits.anonymous_streams_max } else { limits.streams_max });
        if http2 { builder.http2_only() } else { builder.http1_only() }
    }

    async fn drain(self: Arc<Self>) {
        let open = self.connections.taken() + self.anonymous.taken();
        tracing::debug!(connections = open, "draining");
        self.tasks.close();
        let finished = timeout(self.limits.grace, self.tasks.wait());
        if self.shutdown.cut.run_until_cancelled(finished).await.is_some_and(|finished| finished.is_err()) {
            tracing::warn!("cutting connections that did not finish within the grace");
        }
        self.shutdown.cut.cancel();
        self.tasks.wait().await;
    }
}

/// In a request's extensions: the address that it was sent from.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// In a request's extensions: the place of the connection that it came on.
#[derive(Clone, Debug)]
pub struct Seat(Arc<Seated>);

#[derive(Debug)]
struct Seated {
    place: Mutex<Share>,
    is_somebodys: AtomicBool,
    connections: Arc<Shares>,
}

impl Seat {
    fn new(place: Share, connections: Arc<Shares>, is_somebodys: bool) -> Self {
        Self(Arc::new(Seated { place: Mutex::new(place), is_somebodys: AtomicBool::new(is_somebodys), connections }))
    }

    /// Makes the connection a user's, whom a request names: it lasts from here on, unless the user has as many as one may have.
    pub fn belongs_to(&self, user: &str) {
        let Self(seated) = self;
        if self.is_somebodys() {
            return;
        }
        match seated.connections.take(user) {
            Ok(place) => {
                *seated.place.lock() = place;
                seated.is_somebodys.store(true, Ordering::Release);
            }
            Err(full) => tracing::warn!(%full, "a connection stays one of nobody: its user has too many"),
        }
    }

    /// Makes the connection its client's if its certificate is trusted only since the connection began, such as one of a front
    /// proxy whose authority is read after the start: it would end under the watches on it.
    fn belongs_to_client(&self, peer: &Peer) {
        if !self.is_somebodys()
            && let Some(name) = peer.client().name_at(UnixTime::now())
        {
            self.belongs_to(name);
        }
    }

    fn is_somebodys(&self) -> bool {
        self.0.is_somebodys.load(Ordering::Acquire)
    }
}

/// Who has an address: of IPv6 one has a whole network of 64 bits.
fn address_of(peer: SocketAddr) -> String {
    match peer.ip().to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    }
}

/// 429 for a connection that is over the limit.
fn too_many_connections(retry_after: Duration) -> Response<Body> {
    let message = "the server holds as many connections as it may, or as many as one user may; close idle ones or try again later";
    let mut status = Status::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooManyRequests, message);
    let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(1);
    status.details.retry_after_seconds = Some(seconds);
    let mut response = status.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

/// Spawns HTTP/2's own tasks under the tracker, so that none outlives the server unseen.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
