//! A listener without TLS and without logins, for health and metrics: short answers that are made at once.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, request::Parts};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::listener::ListenError;
use kubefold_wire::{
    body::{Body, full},
    status::Status,
};

/// Connections at once; a further one waits in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// Time for a request's head.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Life of a connection: scrapers and probes come again.
const LIFE_MAX: Duration = Duration::from_mins(5);
/// Waits after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests by their heads.
pub trait PlainAnswer: Send + Sync + 'static {
    /// `None` where there is nothing under the path.
    fn answer(&self, asked: &Parts) -> Option<Response<Body>>;
}

/// A bound listener.
#[derive(Debug)]
pub struct PlainListener(StdListener);

impl PlainListener {
    /// Binds. Port 0 takes a free one.
    ///
    /// Errors: the address is taken, or is not this machine's.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let socket = StdListener::bind(address).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        socket.map(Self).map_err(|source| ListenError { address, source })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves on the calling thread until it is cancelled: it answers also while all other threads are busy. Blocks.
    ///
    /// Errors: there is no runtime to be had.
    pub fn run(self, answer: impl PlainAnswer, until: CancellationToken) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let socket = TcpListener::from_std(self.0)?;
            until.clone().run_until_cancelled_owned(serve(socket, Arc::new(answer), until)).await;
            Ok(())
        })
    }
}

async fn serve(socket: TcpListener, answer: Arc<impl PlainAnswer>, until: CancellationToken) {
    let (tasks, places) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match socket.accept().await {
            Ok((stream, _)) => {
                let (answer, until) = (Arc::clone(&answer), until.clone());
                tasks.spawn(async move {
                    until.run_until_cancelled(timeout(LIFE_MAX, connection(stream, answer))).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics and health");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, answer: Arc<impl PlainAnswer>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = Arc::clone(&answer);
        async move { Ok::<_, Infallible>(answered(&*answer, &request.into_parts().0)) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(16 << 10);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection for metrics and health ended early");
    }
}

fn answered(answer: &impl PlainAnswer, asked: &Parts) -> Response<Body> {
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        return Status::method_not_allowed("metrics and health are read with GET").into_response();
    }
    answer.answer(asked).unwrap_or_else(|| {
        let mut response =
            Response::new(full("there are /metrics, /metrics/slis, /livez, /readyz and /healthz here\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    })
}
