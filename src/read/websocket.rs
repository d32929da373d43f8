//! Watches over WebSockets, as dashboards in browsers have them: one text message per event.
//!
//! What is refused, and how, is what kube-apiserver's library does. Source: kubernetes/apiserver
//! `pkg/endpoints/handlers/watch.go` (`HandleWS`); golang.org/x/net `websocket/server.go`, `hybi.go`.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt, future::select};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use kubefold_serving::upgrade::OnceUpgraded;
use kubefold_wire::body::{Body, empty, full};

/// A client has nothing to say; what it says anyway is read up to this size and dropped.
const RECEIVED_BYTES_MAX: usize = 1 << 20;
/// A client that does not take an event for so long is gone.
const SEND_MAX: Duration = Duration::from_secs(60);
/// Time to tell a client that the watch is over.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Turns a watch's answer into one over a WebSocket; an answer that is none (a failure) stays as it is.
pub fn over_websocket(headers: &HeaderMap, watch: Response<Body>) -> Response<Body> {
    if watch.status() != StatusCode::OK {
        return watch;
    }
    let mut response = match handshake(headers) {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    for (name, value) in watch.headers() {
        if *name != header::CONTENT_TYPE && *name != header::CACHE_CONTROL {
            response.headers_mut().append(name, value.clone());
        }
    }
    let body = watch.into_body();
    response.extensions_mut().insert(OnceUpgraded::new(move |connection| Box::pin(serve(connection, body))));
    response
}

/// The answer 101, with the one protocol that was asked for: any is taken, and none changes anything.
fn handshake(headers: &HeaderMap) -> Result<Response<Body>, Box<Response<Body>>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let refused = |code, body: &'static str| {
        let mut response = Response::new(full(body));
        *response.status_mut() = code;
        Box::new(response)
    };
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(refused(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    }
    if text(header::SEC_WEBSOCKET_VERSION) != "13" {
        let mut response = refused(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(response);
    }
    // Where the page comes from does not matter, but there must be a page.
    let origin = text(header::ORIGIN);
    if !origin.parse::<Uri>().is_ok_and(|origin| origin.scheme().is_some() || origin.path().starts_with('/')) {
        return Err(refused(StatusCode::FORBIDDEN, ""));
    }
    let protocols: Vec<&str> = text(header::SEC_WEBSOCKET_PROTOCOL).split(',').map(str::trim).collect();
    let protocol = match protocols.as_slice() {
        [] | [""] => None,
        [one] => HeaderValue::from_str(one).ok(),
        _ => return Err(refused(StatusCode::BAD_REQUEST, "")),
    };
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        out.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        out.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// Sends events until the watch is over or the client gone; either ends the cursor, which lives in the body.
async fn serve(connection: Upgraded, body: Body) {
    let config =
        WebSocketConfig::default().max_message_size(Some(RECEIVED_BYTES_MAX)).max_frame_size(Some(RECEIVED_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    // Pings are answered by the reading half.
    {
        let heard = async { while stream.next().await.is_some_and(|message| message.is_ok()) {} };
        let sent = send(body, &mut sink);
        let _whichever = select(std::pin::pin!(heard), std::pin::pin!(sent)).await;
    }
    let over = Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() }));
    // To a client that went first there is nobody to tell.
    let _told = timeout(CLOSE_MAX, async {
        sink.send(over).await.ok();
        let mut socket = sink.reunite(stream).ok()?;
        socket.get_mut().shutdown().await.ok()
    })
    .await;
}

async fn send<S: SinkExt<Message> + Unpin>(mut body: Body, sink: &mut S) {
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(chunk) = frame.into_data() else { continue };
        for event in events(&chunk) {
            let Ok(text) = Utf8Bytes::try_from(event) else { return };
            if !matches!(timeout(SEND_MAX, sink.send(Message::Text(text))).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// The events of a chunk, each with its newline; a chunk holds whole ones.
fn events(chunk: &Bytes) -> impl Iterator<Item = Bytes> {
    let ends = memchr::memchr_iter(b'\n', chunk).map(|at| at + 1);
    ends.scan(0, |start, end| Some(chunk.slice(std::mem::replace(start, end)..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(more: (&'static str, &str)) -> Response<Body> {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("origin", "https://dashboard"),
            more,
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        over_websocket(&headers, Response::new(empty()))
    }

    #[test]
    fn a_handshake_is_taken_or_refused_as_a_kube_apiserver_does() {
        let accepted = answered(("sec-websocket-protocol", "base64.binary.k8s.io"));
        assert_eq!(accepted.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The example of RFC 6455.
        assert_eq!(accepted.headers()[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted.headers()[header::SEC_WEBSOCKET_PROTOCOL], "base64.binary.k8s.io");
        assert!(accepted.extensions().get::<OnceUpgraded>().is_some());
        assert!(!answered(("sec-websocket-protocol", "")).headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL));
        for (more, code) in [
            (("origin", ""), 403),
            (("origin", "null"), 403),
            (("sec-websocket-version", "8"), 400),
            (("sec-websocket-key", ""), 400),
            (("sec-websocket-protocol", "a, b"), 400),
        ] {
            assert_eq!(answered(more).status(), code, "{more:?}");
        }
    }

    #[test]
    fn each_event_is_a_message() {
        let all: Vec<Bytes> = events(&Bytes::from_static(b"{1}\n{2}\n")).collect();
        assert_eq!(all, [&b"{1}\n"[..], b"{2}\n"]);
    }
}
