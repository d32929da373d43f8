//! A WebSocket as bytes: what is tunnelled through one.

use std::io;

use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, Join, join};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role, protocol::WebSocketConfig},
};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use super::lost;

/// Bytes of a message. kubectl sends 32 KiB at most.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The server's side of a connection that was upgraded.
pub(super) async fn accepted(connection: Upgraded) -> Socket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .max_write_buffer_size(MESSAGE_BYTES_MAX * 4);
    WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(config)).await
}

/// Its messages' bytes, one after another. It ends with the client's close.
pub(super) fn bytes(socket: Socket) -> Join<impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin> {
    let (sink, stream) = socket.split();
    let data = stream.map_err(lost).try_filter_map(|message: Message| async move {
        Ok::<_, io::Error>(match message {
            Message::Binary(bytes) => Some(bytes),
            _ => None,
        })
    });
    let sink = sink.sink_map_err(lost).with(|bytes: Bytes| async move { Ok::<_, io::Error>(Message::Binary(bytes)) });
    join(StreamReader::new(Box::pin(data)), SinkWriter::new(CopyToBytes::new(Box::pin(sink))))
}
