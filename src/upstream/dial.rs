//! One connection to a member: address, proxy, TLS, and the HTTP version that ALPN agrees on.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderValue, Uri};
use hyper::{
    client::conn::{http1, http2},
    rt::{Executor, Read, Write},
};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    rt::{TokioIo, TokioTimer},
};
use rustls::pki_types::ServerName;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::upstream::{
    access::Credentials,
    error::{Failure, Source, find},
};
use kubefold_wire::{body::Body, golang::Quoted};

/// A member that hangs, or a path that drops packets, is noticed within the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// What one stream may have unread: a slow reader holds at most this.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// The same of a caller's watch, of which there are many, and each as slow as its caller likes.
pub(crate) const CALLER_WINDOW_BYTES: u32 = 256 << 10;
/// All streams of a connection full at once: so that no slow reader ever blocks its neighbours.
const STREAMS_OF_CONNECTION: u32 = 100;
/// Kubernetes answers may carry many `Warning` headers.
const HEADER_BYTES_MAX: u32 = 256 << 10;

/// Opens connections to one member.
pub(crate) struct Dialer {
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) connect_max: Duration,
    pub(crate) stream_window_bytes: u32,
    pub(crate) tasks: TaskTracker,
    pub(crate) cancel: CancellationToken,
}

/// An open connection.
pub(crate) enum Opened {
    /// Many streams at once; the number that the member allows is kept up to date.
    Http2(http2::SendRequest<Body>, Arc<std::sync::atomic::AtomicUsize>),
    /// One request at a time.
    Http1(http1::SendRequest<Body>),
}

impl Dialer {
    /// Connects within the deadline.
    ///
    /// Cancel: safe; the half-open connection is closed.
    pub(crate) async fn dial(&self) -> Result<Opened, Failure> {
        self.dial_with(self.credentials.tls.clone()).await
    }

    /// Connects for one request over HTTP/1.1, after which the connection may be upgraded.
    ///
    /// Cancel: safe; the half-open connection is closed.
    pub(crate) async fn dial_once(&self) -> Result<http1::SendRequest<Body>, Failure> {
        match self.dial_with(self.credentials.tls_http1.clone()).await? {
            Opened::Http1(sender) => Ok(sender),
            Opened::Http2(..) => Err(Failure::Answer("it speaks HTTP/2 where HTTP/1.1 was agreed on".into())),
        }
    }

    async fn dial_with(&self, tls: Arc<rustls::ClientConfig>) -> Result<Opened, Failure> {
        let deadline = Instant::now() + self.connect_max;
        let tcp = timeout_at(deadline, self.reach()).await;
        let tcp = tcp.map_err(|_| Failure::ConnectTimeout(self.connect_max))??;
        let opened = timeout_at(deadline, self.open_by(tcp, tls)).await;
        opened.map_err(|_| Failure::HandshakeTimeout(self.connect_max))?
    }

    /// Speaks TLS, and the HTTP version that is agreed on by it.
    pub(crate) async fn open(&self, tcp: TcpStream) -> Result<Opened, Failure> {
        self.open_by(tcp, Arc::clone(&self.credentials.tls)).await
    }

    /// The same, and HTTP/1.1 whatever else the member speaks: HTTP/2 has no upgrades.
    pub(crate) async fn open_http1(&self, tcp: TcpStream) -> Result<Opened, Failure> {
        self.open_by(tcp, Arc::clone(&self.credentials.tls_http1)).await
    }

    async fn open_by(&self, tcp: TcpStream, tls: Arc<rustls::ClientConfig>) -> Result<Opened, Failure> {
        if self.credentials.base.scheme_str() != Some("https") {
            return self.http1(TokioIo::new(tcp)).await;
        }
        let name = self.server_name()?;
        let tls = TlsConnector::from(tls).connect(name, tcp).await;
        let tls = tls.map_err(|error| Failure::Tls { source: Arc::new(error) })?;
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        if http2 { self.http2(TokioIo::new(tls)).await } else { self.http1(TokioIo::new(tls)).await }
    }

    /// Connects, through the proxy if there is one.
    pub(crate) async fn reach(&self) -> Result<TcpStream, Failure> {
        let base = self.credentials.base.clone();
        let Some(proxy) = self.credentials.proxy.clone() else {
            return connector().oneshot(base.clone()).await.map(TokioIo::into_inner).map_err(|e| unreached(&base, e));
        };
        let userinfo =
            proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| user);
        if proxy.scheme_str() == Some("socks5") {
            let mut socks = SocksV5::new(proxy.clone(), connector());
            if let Some((user, password)) = userinfo.and_then(|userinfo| userinfo.split_once(':')) {
                socks = socks.with_auth(decoded(user), decoded(password));
            }
            return socks.oneshot(base).await.map(TokioIo::into_inner).map_err(|e| unreached(&proxy, e));
        }
        let mut tunnel = Tunnel::new(proxy.clone(), connector());
        if let Some(userinfo) = userinfo {
            use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
            let basic = HeaderValue::try_from(format!("Basic {}", BASE64.encode(decoded(userinfo))));
            tunnel = tunnel.with_auth(basic.map_err(|_| Failure::Credential("its proxy's password".into()))?);
        }
        tunnel.oneshot(base).await.map(TokioIo::into_inner).map_err(|e| unreached(&proxy, e))
    }

    fn server_name(&self) -> Result<ServerName<'static>, Failure> {
        let host = self.credentials.base.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.credentials.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).map_err(|_| {
            Failure::Credential(format!("{name} is no name that a certificate can have", name = Quoted(name)).into())
        })
    }

    async fn http2<T: Read + Write + Unpin + Send + 'static>(&self, io: T) -> Result<Opened, Failure> {
        let tasks = Tasks { tracker: self.tasks.clone(), cancel: self.cancel.clone() };
        let handshake = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(self.stream_window_bytes)
            .initial_connection_window_size(self.stream_window_bytes * STREAMS_OF_CONNECTION)
            .max_header_list_size(HEADER_BYTES_MAX)
            .handshake(io)
            .await;
        let (sender, mut connection) = handshake.map_err(|error| Failure::Connect { source: Arc::new(error) })?;
        let streams_max = Arc::new(std::sync::atomic::AtomicUsize::new(connection.current_max_send_streams()));
        let told = streams_max.clone();
        tasks.execute(async move {
            let run = std::future::poll_fn(|context| {
                let ended = std::pin::Pin::new(&mut connection).poll(context);
                told.store(connection.current_max_send_streams(), std::sync::atomic::Ordering::Relaxed);
                ended
            });
            if let Err(error) = run.await {
                tracing::debug!(error = &error as &dyn Error, "a connection to a member ended");
            }
        });
        Ok(Opened::Http2(sender, streams_max))
    }

    async fn http1<T: Read + Write + Unpin + Send + 'static>(&self, io: T) -> Result<Opened, Failure> {
        let handshake = http1::Builder::new().handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| Failure::Connect { source: Arc::new(error) })?;
        Tasks { tracker: self.tasks.clone(), cancel: self.cancel.clone() }.execute(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(error = &error as &dyn Error, "a connection to a member ended");
            }
        });
        Ok(Opened::Http1(sender))
    }
}

/// hyper's tasks, under the member's tracker; cancelled, they close their sockets.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    cancel: CancellationToken,
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let cancel = self.cancel.clone();
        self.tracker.spawn(async move { cancel.run_until_cancelled(task).await });
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    // HTTP/1.1 has no pings: the kernel asks instead.
    connector.set_keepalive(Some(PING_INTERVAL));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(2));
    connector
}

/// Sorts what kept us from `towards`.
fn unreached(towards: &Uri, error: impl Error + Send + Sync + 'static) -> Failure {
    let unresolved = error.to_string().contains("dns error");
    let refused = find::<std::io::Error>(&error).is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
    let source: Source = Arc::new(error);
    match (unresolved, refused) {
        (true, _) => Failure::Resolve { host: towards.host().unwrap_or_default().into(), source },
        (false, true) => Failure::Refused(source),
        (false, false) => Failure::Connect { source },
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
