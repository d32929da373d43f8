//! Heads of answers, and their chunks.

use http::{HeaderValue, Response, header};

use kubefold_serving::encode::PROTOBUF_STREAM;
use kubefold_wire::{body::Body, media::Media, protobuf::MEDIA_TYPE};

/// Chunks of a list: large enough that HTTP/2 frames cost nothing, small enough to be all that a list takes.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

/// 200 with JSON, and the headers that a kube-apiserver puts on every answer.
pub(super) fn json_response(body: Body) -> Response<Body> {
    response("application/json", body)
}

/// The same with protobuf.
pub(super) fn protobuf_response(body: Body) -> Response<Body> {
    response(MEDIA_TYPE, body)
}

/// The same with the events of a watch.
pub(super) fn watch_response(media: Media, body: Body) -> Response<Body> {
    response(if media == Media::Protobuf { PROTOBUF_STREAM } else { "application/json" }, body)
}

fn response(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
