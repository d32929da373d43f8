//! HTTP/1.1 without TLS, on this machine alone.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::gate::Gate;

/// Connections at once; a further one waits in the kernel.
const CONNECTIONS_MAX: usize = 1024;
/// Time for a request's head.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Time for answers to finish once it is to end.
const GRACE: Duration = Duration::from_secs(5);
/// Waits after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is told to end, and answers are finished.
pub(super) async fn serve(socket: TcpListener, gate: Gate, drain: CancellationToken) {
    let (tasks, places) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match socket.accept().await {
                Ok((stream, _)) => {
                    let (gate, drain) = (gate.clone(), drain.clone());
                    tasks.spawn(async move {
                        connection(stream, gate, drain).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    drain.run_until_cancelled(accepting).await;
    tasks.close();
    tasks.wait().await;
}

async fn connection(stream: TcpStream, gate: Gate, drain: CancellationToken) {
    // Answers are written whole: waiting for more to send would only add delay.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request| {
        let gate = gate.clone();
        async move { Ok::<_, Infallible>(gate.pass(request, None).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = drain.cancelled() => {
            served.as_mut().graceful_shutdown();
            timeout(GRACE, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
