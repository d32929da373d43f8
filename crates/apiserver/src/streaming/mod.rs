//! What clients of a kubelet's streams speak: exec and attach, and forwarded ports, by WebSocket and by SPDY.
//!
//! Whoever runs something in a pod writes a [`Program`], which is pure, or answers the requests to a port; the protocols
//! are here.
//!
//! Source: kubernetes/streaming `pkg/httpstream`, kubernetes/cri-streaming `pkg/streaming/{remotecommand,portforward}`.

mod forward;
mod frames;
mod remote;
mod websocket;

use std::{io, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use kubefold_serving::upgrade::{OnceUpgraded, UpgradeAsked, WebSocketAsked};
use kubefold_wire::{
    body::{Body, empty},
    options::query_value,
    status::Status,
};

pub(crate) use {
    forward::{NotListening, Ports, forwarded},
    remote::remote,
};

/// Where clients say which versions of a stream's protocol they speak, and servers which they chose.
const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";
/// Time for the other side to close what is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a client to open the streams that it asked for. Source: kubernetes `pkg/kubelet/server/server.go`.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Something that runs and is spoken to by its standard streams. It has no clock and no IO.
pub(crate) trait Program: Send + 'static {
    /// It begins.
    fn start(&mut self, out: &mut Written);
    /// It gets these bytes.
    fn input(&mut self, bytes: &[u8], out: &mut Written);
    /// There will be no more input.
    fn end_of_input(&mut self, out: &mut Written);
    /// How long it sleeps if nothing comes; `None`: until something does.
    fn sleeps(&self) -> Option<Duration>;
    /// It slept so long.
    fn woken(&mut self, out: &mut Written);
}

/// What a program wrote, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// To its standard output.
    pub(crate) stdout: Vec<u8>,
    /// To its standard error.
    pub(crate) stderr: Vec<u8>,
    /// How it ended; `None`: it goes on.
    pub(crate) exit: Option<u8>,
}

/// The streams that a client wants of a program, and whether they are a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

impl StreamOptions {
    /// Those that a request asks for.
    ///
    /// Errors: 400 if it asks for none.
    pub(crate) fn of(query: &str) -> Result<Self, Status> {
        let is = |name: &str| matches!(query_value(query, name).as_deref(), Some("true" | "1"));
        // A terminal has one stream of output.
        let wanted =
            Self { stdin: is("stdin"), stdout: is("stdout"), stderr: is("stderr") && !is("tty"), tty: is("tty") };
        match wanted.stdin || wanted.stdout || wanted.stderr {
            true => Ok(wanted),
            false => Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr")),
        }
    }
}

/// How a client wants to speak.
enum Upgrade {
    WebSocket { accept: String },
    Spdy,
}

impl Upgrade {
    /// Errors: 400 if it wants no other protocol.
    fn asked(headers: &HeaderMap) -> Result<Self, Status> {
        if WebSocketAsked::by(headers).is_some() {
            let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
            let key = key.ok_or_else(|| Status::bad_request("a WebSocket needs the header Sec-WebSocket-Key"))?;
            return Ok(Self::WebSocket { accept: tokio_tungstenite::tungstenite::handshake::derive_accept_key(key) });
        }
        let is_spdy = |asked: UpgradeAsked| asked.names(&HeaderValue::from_static(SPDY));
        match UpgradeAsked::by(headers).is_some_and(is_spdy) {
            true => Ok(Self::Spdy),
            false => Err(Status::bad_request("Upgrade request required")),
        }
    }

    /// The header by which versions are agreed on.
    fn negotiated_by(&self) -> HeaderName {
        match self {
            Self::WebSocket { .. } => header::SEC_WEBSOCKET_PROTOCOL,
            Self::Spdy => PROTOCOL,
        }
    }

    /// The first of these versions that the client offers.
    ///
    /// Errors: 403, as a kubelet says it.
    fn version(&self, headers: &HeaderMap, known: &[&'static str]) -> Result<&'static str, Status> {
        let offers = headers.get_all(self.negotiated_by()).iter().filter_map(|value| value.to_str().ok());
        let offered: Vec<&str> = offers.flat_map(|offer| offer.split(',')).map(str::trim).collect();
        let version = known.iter().find(|version| offered.contains(version)).copied();
        version.ok_or_else(|| {
            let (offered, known) = (offered.join(" "), known.join(" "));
            Status::forbidden(format!(
                "unable to upgrade: unable to negotiate protocol: client supports [{offered}], server accepts [{known}]"
            ))
        })
    }

    /// 101, and what happens then.
    fn switched(self, version: &'static str, work: OnceUpgraded) -> Response<Body> {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(self.negotiated_by(), HeaderValue::from_static(version));
        match self {
            Self::Spdy => drop(headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY))),
            Self::WebSocket { accept } => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                if let Ok(accept) = HeaderValue::from_str(&accept) {
                    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
                }
            }
        }
        response.extensions_mut().insert(work);
        response
    }
}

/// The value of a header of a stream.
fn value<'h>(headers: &'h [(String, String)], name: &str) -> &'h str {
    headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

fn lost(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
