//! Forwarded ports: pairs of streams, one for a connection's bytes and one for what went wrong with it.
//!
//! Source: kubernetes/cri-streaming `pkg/streaming/portforward/httpstream.go`.

use std::{collections::HashMap, io, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response, request::Parts};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::codec::Framed;

use super::{
    Upgrade,
    frames::{Frame, Frames, REFUSED_STREAM},
    lost, value,
    websocket::{accepted, bytes},
};
use kubefold_serving::upgrade::OnceUpgraded;
use kubefold_wire::{body::Body, status::Status};

const PORT_FORWARD: &str = "portforward.k8s.io";
/// SPDY within a WebSocket. Source: kubernetes/apimachinery `pkg/util/portforward/constants.go`.
const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";
/// Connections at once through one request.
const PAIRS_MAX: usize = 64;
/// Bytes of a connection on their way, in each direction.
const PIPE_BYTES: usize = 64 << 10;
/// Frames that wait to be sent.
const FRAMES_MAX: usize = 32;

/// Why nothing answers at a port, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotListening(pub(crate) String);

/// What listens at the ports of a pod.
pub(crate) trait Ports: Send + Sync + 'static {
    /// Says whether something listens there.
    ///
    /// Errors: why not.
    fn connect(&self, port: u16) -> Result<(), NotListening>;
    /// Answers a request to a port that something listens at.
    fn answer(&self, port: u16, request: &Parts) -> Response<Full<Bytes>>;
}

/// Answers a request to forward ports.
///
/// Errors: 400 and 403, as a kubelet says them.
pub(crate) fn forwarded(headers: &HeaderMap, ports: Arc<dyn Ports>) -> Result<Response<Body>, Status> {
    let upgrade = Upgrade::asked(headers)?;
    let is_spdy = matches!(upgrade, Upgrade::Spdy);
    let version = upgrade.version(headers, if is_spdy { &[PORT_FORWARD] } else { &[TUNNELLED] })?;
    let work = OnceUpgraded::new(move |connection| {
        Box::pin(async move {
            if let Err(error) = run(connection, is_spdy, ports).await {
                tracing::debug!(%error, "the client of forwarded ports left");
            }
        })
    });
    Ok(upgrade.switched(version, work))
}

async fn run(connection: Upgraded, is_spdy: bool, ports: Arc<dyn Ports>) -> io::Result<()> {
    match is_spdy {
        true => Box::pin(pairs(TokioIo::new(connection), ports)).await,
        false => Box::pin(pairs(bytes(accepted(connection).await), ports)).await,
    }
}

/// Serves the pairs of a connection until its client leaves.
async fn pairs(io: impl AsyncRead + AsyncWrite + Send + Unpin, ports: Arc<dyn Ports>) -> io::Result<()> {
    let (mut sink, mut stream) = Framed::new(io, Frames::new()).split();
    let (out, mut frames) = mpsc::channel(FRAMES_MAX);
    let mut forward = Forward { ports, out, requests: HashMap::new(), inputs: HashMap::new(), tasks: JoinSet::new() };
    let write = async {
        while let Some(frame) = frames.recv().await {
            sink.send(frame).await.map_err(lost)?;
        }
        Ok(())
    };
    let read = async {
        loop {
            tokio::select! {
                frame = stream.next() => match frame.transpose().map_err(lost)? {
                    None | Some(Frame::GoAway) => return Ok(()),
                    Some(frame) => forward.take(frame).await,
                },
                Some(ended) = forward.tasks.join_next() => {
                    if let Ok(stream) = ended {
                        forward.inputs.remove(&stream);
                    }
                }
            }
        }
    };
    tokio::select! {
        written = write => written,
        read = read => read,
    }
}

struct Forward {
    ports: Arc<dyn Ports>,
    out: mpsc::Sender<Frame>,
    /// By the request's ID: the stream for errors, whose stream for data is not open yet.
    requests: HashMap<String, u32>,
    /// By the stream for data: where its bytes go.
    inputs: HashMap<u32, WriteHalf<DuplexStream>>,
    tasks: JoinSet<u32>,
}

impl Forward {
    async fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Open { stream, headers, .. } => self.open(stream, &headers).await,
            Frame::Data { stream, bytes, fin } => {
                if let Some(input) = self.inputs.get_mut(&stream) {
                    // Whoever answered may have closed the connection.
                    let written = input.write_all(&bytes).await;
                    if fin || written.is_err() {
                        let _closed = input.shutdown().await;
                        self.inputs.remove(&stream);
                    }
                }
            }
            Frame::Reset { stream, .. } => drop(self.inputs.remove(&stream)),
            Frame::Ping(id) => self.send(Frame::Ping(id)).await,
            _ => {}
        }
    }

    /// A failure to send is the end of the connection, which is noticed by whoever writes.
    async fn send(&self, frame: Frame) {
        let _ended = self.out.send(frame).await;
    }

    async fn open(&mut self, stream: u32, headers: &[(String, String)]) {
        let port = value(headers, "port").parse().unwrap_or(0_u16);
        let (kind, request) = (value(headers, "streamtype"), value(headers, "requestid").to_owned());
        let errors = self.requests.get(&request).copied();
        let is_full = self.requests.len() >= PAIRS_MAX || self.inputs.len() >= PAIRS_MAX;
        match (kind, errors) {
            ("error", None) if port > 0 && !is_full => {
                self.requests.insert(request, stream);
                self.send(Frame::Reply { stream }).await;
            }
            ("data", Some(errors)) if port > 0 => {
                self.requests.remove(&request);
                self.send(Frame::Reply { stream }).await;
                self.connect(port, stream, errors).await;
            }
            _ => self.send(Frame::Reset { stream, reason: REFUSED_STREAM }).await,
        }
    }

    async fn connect(&mut self, port: u16, data: u32, errors: u32) {
        if let Err(why) = self.ports.connect(port) {
            self.send(Frame::Data { stream: errors, bytes: why.to_string().into(), fin: true }).await;
            return self.send(Frame::Data { stream: data, bytes: Bytes::new(), fin: true }).await;
        }
        let (near, far) = duplex(PIPE_BYTES);
        let (output, input) = split(near);
        self.inputs.insert(data, input);
        let (ports, out) = (Arc::clone(&self.ports), self.out.clone());
        self.tasks.spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let answered = ports.answer(port, &request.into_parts().0);
                async move { Ok::<_, std::convert::Infallible>(answered) }
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(far), answer);
            let (_served, ()) = tokio::join!(served, pump(output, data, &out));
            for stream in [errors, data] {
                let _ended = out.send(Frame::Data { stream, bytes: Bytes::new(), fin: true }).await;
            }
            data
        });
    }
}

/// Sends what is written on.
async fn pump(mut output: ReadHalf<DuplexStream>, stream: u32, out: &mpsc::Sender<Frame>) {
    let mut buffer = BytesMut::with_capacity(PIPE_BYTES);
    while let Ok(1..) = output.read_buf(&mut buffer).await {
        let bytes = buffer.split().freeze();
        if out.send(Frame::Data { stream, bytes, fin: false }).await.is_err() {
            return;
        }
    }
}
