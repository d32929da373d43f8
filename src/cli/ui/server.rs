//! The listener of the page.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use crate::cli::ui::answer::Site;

/// A browser opens six for each window. A further one waits in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// Time for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// A head is at most so large. Units: bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Waits after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves for ever. Cancel: safe; all connections end.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&site)))),
                // Of too many open files, more often than not: some end.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, site: Arc<Site>) {
    // Events are small, and each is to be seen at once.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request: Request<Incoming>| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    // A browser that goes away ends its streams: nobody is to be told.
    builder.serve_connection(TokioIo::new(stream), service).await.ok();
}
