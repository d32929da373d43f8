//! A relay before a member that understands its requests: it holds back what watches say, while all else passes.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{Api, Member};

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Speaks plain HTTP, as the member's administrator whoever comes.
pub struct Gateway {
    address: SocketAddr,
    kubeconfig: PathBuf,
    stalls: watch::Sender<bool>,
    asked: Arc<Mutex<Vec<String>>>,
    _end: DropGuard,
}

impl Gateway {
    /// Stands before a member until it is dropped.
    pub async fn before(member: &Member) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let text = std::fs::read_to_string(member.kubeconfig()).expect("a kubeconfig");
        let kubeconfig = member.dir().join(format!("gateway-{}.kubeconfig", address.port()));
        let through = text.replace(&member.server_url(), &format!("http://{address}"));
        std::fs::write(&kubeconfig, through).expect("write a kubeconfig");
        let (stalls, asked) = (watch::Sender::new(false), Arc::default());
        let end = CancellationToken::new();
        let state = State { api: member.api().await, stalls: stalls.subscribe(), asked: Arc::clone(&asked) };
        let (tasks, until) = (TaskTracker::new(), end.clone());
        let serve = accept(listener, state, tasks.clone(), end.clone());
        tasks.spawn(until.run_until_cancelled_owned(serve));
        Self { address, kubeconfig, stalls, asked, _end: end.drop_guard() }
    }

    /// The administrator's kubeconfig through it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Holds back what watches say from now on.
    pub fn stall_watches(&self) {
        self.stalls.send_replace(true);
    }

    /// Lets watches say what was held back, and what comes.
    pub fn release_watches(&self) {
        self.stalls.send_replace(false);
    }

    /// Path and query of every request so far, each with what it accepts behind a space.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

#[derive(Clone)]
struct State {
    api: Api,
    stalls: watch::Receiver<bool>,
    asked: Arc<Mutex<Vec<String>>>,
}

async fn accept(listener: TcpListener, state: State, tasks: TaskTracker, end: CancellationToken) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).ok();
        let state = state.clone();
        let service = service_fn(move |request| answer(state.clone(), request));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tasks.spawn(end.clone().run_until_cancelled_owned(connection));
    }
}

async fn answer(state: State, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let text = |headers: &HeaderMap, name| headers.get(name).and_then(|value| value.to_str().ok().map(str::to_owned));
    let accept = text(&parts.headers, header::ACCEPT).unwrap_or_default();
    state.asked.lock().push(format!("{} {accept}", parts.uri));
    let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=1"));
    for hop in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        parts.headers.remove(hop);
    }
    let whole = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut request = Request::new(whole);
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (parts.method, parts.uri, parts.headers);
    match state.api.open(request).await {
        Ok(response) if is_watch => {
            let (head, body) = response.into_parts();
            Ok(Response::from_parts(head, stalling(body, state.stalls)))
        }
        Ok(response) => Ok(response.map(BodyExt::boxed_unsync)),
        Err(error) => {
            let body = Full::new(Bytes::from(error)).map_err(|never| match never {});
            let mut response = Response::new(body.boxed_unsync());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            Ok(response)
        }
    }
}

/// What comes while it stalls is given when it does not any more.
fn stalling(body: Incoming, stalls: watch::Receiver<bool>) -> Body {
    let frames = stream::unfold((body, stalls), |(mut body, mut stalls)| async move {
        let frame = body.frame().await?.map(|frame| Frame::data(frame.into_data().unwrap_or_default()));
        // When the gateway is gone, so is this connection.
        drop(stalls.wait_for(|stalls| !stalls).await);
        Some((frame, (body, stalls)))
    });
    StreamBody::new(frames).boxed_unsync()
}
