//! Exec and attach: a program's standard streams.
//!
//! Source: kubernetes/cri-streaming `pkg/streaming/remotecommand/{exec,httpstream,websocket}.go`.

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tokio_util::codec::Framed;

use super::{
    CLOSE_TIMEOUT, OPEN_TIMEOUT, Program, StreamOptions, Upgrade, Written,
    frames::{Frame, Frames, REFUSED_STREAM},
    lost, value,
    websocket::{Socket, accepted},
};
use kubefold_serving::upgrade::OnceUpgraded;
use kubefold_wire::{body::Body, status::Status};

const V4: &str = "v4.channel.k8s.io";
/// Of WebSockets alone: with a message that closes the input.
const V5: &str = "v5.channel.k8s.io";
const CLOSE: u8 = 255;
/// The streams by their number in a WebSocket's messages, and by their name in SPDY.
const NAMES: [&str; 5] = ["stdin", "stdout", "stderr", "error", "resize"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Answers a request for a program's streams: the program begins once the client has its 101.
///
/// Errors: 400 and 403, as a kubelet says them.
pub(crate) fn remote(
    headers: &HeaderMap,
    wanted: StreamOptions,
    program: impl Program,
) -> Result<Response<Body>, Status> {
    let upgrade = Upgrade::asked(headers)?;
    let known: &[&'static str] = if matches!(upgrade, Upgrade::Spdy) { &[V4] } else { &[V5, V4] };
    let version = upgrade.version(headers, known)?;
    let is_spdy = matches!(upgrade, Upgrade::Spdy);
    let work = OnceUpgraded::new(move |connection| {
        Box::pin(async move {
            if let Err(error) = run(connection, is_spdy, wanted, program).await {
                tracing::debug!(%error, "the client of a program left");
            }
        })
    });
    Ok(upgrade.switched(version, work))
}

async fn run(connection: Upgraded, is_spdy: bool, wanted: StreamOptions, mut program: impl Program) -> io::Result<()> {
    let mut streams = match is_spdy {
        true => Streams::Spdy(Box::new(timeout(OPEN_TIMEOUT, Spdy::opened(connection, wanted)).await??)),
        false => Streams::WebSocket(Box::new(accepted(connection).await)),
    };
    let (mut written, mut until) = (Written::default(), None);
    program.start(&mut written);
    loop {
        streams.write(&mut written, wanted).await?;
        if let Some(code) = written.exit {
            return streams.end(code).await;
        }
        // Input that comes meanwhile does not make it sleep longer.
        until = program.sleeps().map(|time| until.unwrap_or_else(|| Instant::now() + time));
        let slept = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = streams.next() => match told? {
                Event::Input(bytes) if wanted.stdin => program.input(&bytes, &mut written),
                Event::EndOfInput if wanted.stdin => program.end_of_input(&mut written),
                Event::Gone => return Ok(()),
                _ => {}
            },
            () = slept => {
                until = None;
                program.woken(&mut written);
            }
        }
    }
}

/// What a client says.
enum Event {
    Input(Bytes),
    EndOfInput,
    Other,
    Gone,
}

enum Streams {
    WebSocket(Box<Socket>),
    Spdy(Box<Spdy>),
}

impl Streams {
    /// Cancel: safe, nothing is lost.
    async fn next(&mut self) -> io::Result<Event> {
        match self {
            Self::WebSocket(socket) => Ok(match socket.next().await.transpose().map_err(lost)? {
                Some(Message::Binary(bytes)) => match bytes.first() {
                    Some(&STDIN) => Event::Input(bytes.slice(1..)),
                    Some(&CLOSE) if bytes.get(1) == Some(&STDIN) => Event::EndOfInput,
                    _ => Event::Other,
                },
                Some(Message::Close(_)) | None => Event::Gone,
                Some(_) => Event::Other,
            }),
            Self::Spdy(spdy) => spdy.next().await,
        }
    }

    async fn write(&mut self, written: &mut Written, wanted: StreamOptions) -> io::Result<()> {
        if wanted.tty {
            written.stdout.append(&mut written.stderr);
        }
        for (channel, bytes, is_wanted) in
            [(STDOUT, &mut written.stdout, wanted.stdout), (STDERR, &mut written.stderr, wanted.stderr)]
        {
            let bytes = std::mem::take(bytes);
            if is_wanted && !bytes.is_empty() {
                self.send(channel, &bytes).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::WebSocket(socket) => {
                let message = [&[channel], bytes].concat();
                socket.send(Message::Binary(message.into())).await.map_err(lost)
            }
            Self::Spdy(spdy) => spdy.send(channel, Bytes::copy_from_slice(bytes), false).await,
        }
    }

    /// Tells how the program ended, and waits a moment for the client to leave: what it still sends would reset the
    /// connection, and with it what it has not read.
    async fn end(mut self, code: u8) -> io::Result<()> {
        self.send(ERROR, &ended(code)).await?;
        match &mut self {
            Self::WebSocket(socket) => {
                // Without a code, clients take it for a failure.
                let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                socket.send(Message::Close(Some(normal))).await.map_err(lost)?;
            }
            Self::Spdy(spdy) => {
                for channel in [STDIN, STDOUT, STDERR, ERROR] {
                    spdy.send(channel, Bytes::new(), true).await?;
                }
            }
        }
        let gone = async { while !matches!(self.next().await, Ok(Event::Gone) | Err(_)) {} };
        let _late = timeout(CLOSE_TIMEOUT, gone).await;
        Ok(())
    }
}

/// The `Status` that a kubelet sends at the end.
fn ended(code: u8) -> Vec<u8> {
    let status = match code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    };
    status.to_string().into_bytes()
}

/// Streams of one SPDY connection.
struct Spdy {
    frames: Framed<TokioIo<Upgraded>, Frames>,
    /// By the numbers of [`NAMES`].
    streams: BTreeMap<u8, u32>,
}

impl Spdy {
    /// Waits for the client to open all streams that it wants.
    async fn opened(connection: Upgraded, wanted: StreamOptions) -> io::Result<Self> {
        let frames = Framed::new(TokioIo::new(connection), Frames::new());
        let mut spdy = Self { frames, streams: BTreeMap::new() };
        let needed = [(true, ERROR), (wanted.stdin, STDIN), (wanted.stdout, STDOUT), (wanted.stderr, STDERR)];
        while !needed.iter().all(|(wanted, channel)| !wanted || spdy.streams.contains_key(channel)) {
            if matches!(spdy.next().await?, Event::Gone) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(spdy)
    }

    async fn next(&mut self) -> io::Result<Event> {
        let Some(frame) = self.frames.next().await.transpose().map_err(lost)? else { return Ok(Event::Gone) };
        let is_stdin = |stream: u32| self.streams.get(&STDIN) == Some(&stream);
        match frame {
            Frame::Open { stream, headers, .. } => {
                let name = value(&headers, "streamtype");
                let channel = (0..).zip(NAMES).find(|(_, known)| *known == name).map(|(channel, _)| channel);
                let known = channel.filter(|channel| !self.streams.contains_key(channel));
                let answer = match known {
                    Some(channel) => {
                        self.streams.insert(channel, stream);
                        Frame::Reply { stream }
                    }
                    None => Frame::Reset { stream, reason: REFUSED_STREAM },
                };
                self.frames.send(answer).await.map_err(lost)?;
                Ok(Event::Other)
            }
            Frame::Data { stream, fin: true, bytes } if is_stdin(stream) && bytes.is_empty() => Ok(Event::EndOfInput),
            Frame::Data { stream, bytes, .. } if is_stdin(stream) => Ok(Event::Input(bytes)),
            Frame::Ping(id) => {
                self.frames.send(Frame::Ping(id)).await.map_err(lost)?;
                Ok(Event::Other)
            }
            Frame::GoAway => Ok(Event::Gone),
            _ => Ok(Event::Other),
        }
    }

    async fn send(&mut self, channel: u8, bytes: Bytes, fin: bool) -> io::Result<()> {
        let Some(&stream) = self.streams.get(&channel) else { return Ok(()) };
        self.frames.send(Frame::Data { stream, bytes, fin }).await.map_err(lost)
    }
}
