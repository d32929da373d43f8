//! The outermost layer of an answer: its JSON as it is, indented, as YAML or as protobuf; and gzip.
//!
//! Answers are made in compact JSON, whoever makes them. Indenting and compressing go along with the stream, a chunk at
//! a time. YAML sorts keys, and protobuf begins with the length of the whole, so that both need all of it.

use std::{
    io::Write as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, response::Parts};
use http_body::Frame;
use http_body_util::BodyExt;

use crate::indent::Indenter;
use kubefold_wire::{
    body::{Body, BodyError, full},
    media::{self, Encoding, Media},
    protobuf::{self, EncodeError},
    status::{Reason, Status},
    yaml,
};

/// Answers up to this size are not compressed. Source: kubernetes/apiserver `responsewriters/writers.go`.
pub const GZIP_ABOVE_BYTES: usize = 128 << 10;
/// Compressed in one go; other requests of the same thread wait so long.
const GZIP_CHUNK_BYTES: usize = 128 << 10;
/// A kube-apiserver's level, for the least work.
pub const GZIP_LEVEL: u32 = 1;
/// JSON that is made YAML or protobuf of; more is refused.
const REMADE_BYTES_MAX: usize = 32 << 20;
/// A watch in protobuf, as a kube-apiserver names it.
pub const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Writes an answer in the encoding that was negotiated. One that is protobuf already stays so, and one in gzip as it is.
///
/// A large answer is not held: what leaves is a stream, but for YAML, and for protobuf that is made here, which are bounded.
pub async fn encode(response: Response<Body>, encoding: Encoding) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let body = match encoding {
        _ if head.headers.contains_key(header::CONTENT_ENCODING) => return Response::from_parts(head, body),
        _ if head.headers.get(header::CONTENT_TYPE).is_some_and(|of| of == protobuf::MEDIA_TYPE) => body,
        Encoding { media: Media::Json, pretty: false, gzip: false, .. } => return Response::from_parts(head, body),
        Encoding { media: Media::Json, pretty: false, .. } => body,
        Encoding { media: Media::Json, pretty: true, .. } => indented(body),
        Encoding { media: media @ (Media::Yaml | Media::Protobuf), otherwise, .. } => {
            match remade(body, media, otherwise).await {
                Ok((body, media)) => {
                    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.as_str()));
                    body
                }
                Err(status) => return refusal(&status, media),
            }
        }
    };
    begin(&mut head, body, encoding.gzip).await.map_or_else(
        // It broke before its first byte left.
        |error| Status::internal(format!("the answer broke off: {error}")).into_response(),
        |body| Response::from_parts(head, body),
    )
}

fn indented(body: Body) -> Body {
    let mut indenter = Indenter::default();
    body.map_frame(move |frame| frame.map_data(|data| indenter.push(&data))).boxed_unsync()
}

/// Makes another form of the whole of an answer, and says which. What protobuf has no form for stays JSON, and so does what is too
/// large where JSON is accepted.
async fn remade(mut body: Body, media: Media, otherwise: Option<Media>) -> Result<(Body, Media), Status> {
    let mut json = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::internal(format!("the answer broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if json.len() + data.len() > REMADE_BYTES_MAX {
            if otherwise == Some(Media::Json) {
                json.extend_from_slice(&data);
                return Ok((Begun { first: Some(json.freeze()), body }.boxed_unsync(), Media::Json));
            }
            let message = format!(
                "the answer is larger than {} MiB and is not given as {}; accept application/json, or ask for less with limit=",
                REMADE_BYTES_MAX >> 20,
                media.as_str()
            );
            return Err(Status::new(StatusCode::NOT_ACCEPTABLE, Reason::NotAcceptable, message));
        }
        json.extend_from_slice(&data);
    }
    let to_yaml = |json: &[u8]| {
        let text =
            yaml::from_json(json).map_err(|error| Status::internal(format!("the answer is no JSON: {error}")))?;
        Ok((full(text), Media::Yaml))
    };
    if media == Media::Yaml {
        return to_yaml(&json);
    }
    match (protobuf::from_json(std::str::from_utf8(&json).unwrap_or_default()), otherwise) {
        (Ok(made), _) => Ok((full(made), media)),
        (Err(EncodeError::UnknownKind), None) => Err(media::refusal()),
        (Err(_), Some(Media::Yaml)) => to_yaml(&json),
        // It is of another version than the types of this build: nothing of it is to be lost.
        (Err(_), _) => Ok((full(json.freeze()), Media::Json)),
    }
}

/// A refusal in what was asked for, as a kube-apiserver gives it.
fn refusal(status: &Status, media: Media) -> Response<Body> {
    let mut response = status.clone().into_response();
    let made = protobuf::from_json(std::str::from_utf8(&status.to_json()).unwrap_or_default());
    if let (Media::Protobuf, Ok(made)) = (media, made) {
        *response.body_mut() = full(made);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media.as_str()));
    }
    response
}

/// Writes the events of a watch, of which each is a line of JSON, in the encoding that was negotiated. They are neither indented nor
/// compressed. A watch that is protobuf already stays as it is.
pub fn encode_watch(response: Response<Body>, encoding: Encoding) -> Response<Body> {
    let is_made = response.headers().get(header::CONTENT_TYPE).is_some_and(|of| of == PROTOBUF_STREAM);
    if encoding.media != Media::Protobuf || is_made {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF_STREAM));
    let mut line = Vec::new();
    let frames = body.map_frame(move |frame| frame.map_data(|data| framed(&mut line, &data)));
    Response::from_parts(head, frames.boxed_unsync())
}

/// The frames of the lines that end in `data`; what begins one is kept in `line`.
fn framed(line: &mut Vec<u8>, data: &[u8]) -> Bytes {
    let mut frames = Vec::with_capacity(data.len());
    for piece in data.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(piece);
        if piece.ends_with(b"\n") {
            let event = std::str::from_utf8(line).unwrap_or_default();
            frames.extend(protobuf::watch_frame(event).unwrap_or_else(|error| of_unfit(&error)));
            line.clear();
        }
    }
    frames.into()
}

/// The event that stands for one that protobuf has no form for: its watcher has a hole, and has to begin anew with JSON.
fn of_unfit(error: &EncodeError) -> Vec<u8> {
    let status = Status::new(
        StatusCode::NOT_ACCEPTABLE,
        Reason::NotAcceptable,
        format!("an object of this watch cannot be given as protobuf ({error}); accept application/json"),
    );
    let status = status.to_json();
    let event = [br#"{"type":"ERROR","object":"#, status.trim_ascii_end(), b"}"].concat();
    protobuf::watch_frame(std::str::from_utf8(&event).unwrap_or_default()).unwrap_or_default()
}

/// Waits for as much as tells whether the answer is large: a small one has a length, a large one may be compressed.
async fn begin(head: &mut Parts, mut body: Body, gzip: bool) -> Result<Body, BodyError> {
    let mut first = BytesMut::new();
    while first.len() <= GZIP_ABOVE_BYTES {
        match body.frame().await.transpose()? {
            Some(frame) => first.extend_from_slice(&frame.into_data().unwrap_or_default()),
            None => return Ok(full(first.freeze())),
        }
    }
    let encoder = gzip.then(|| {
        say_gzip(&mut head.headers);
        GzEncoder::new(Vec::with_capacity(GZIP_CHUNK_BYTES / 4), Compression::new(GZIP_LEVEL))
    });
    let first = first.freeze();
    Ok(match encoder {
        Some(encoder) => Gzip { waiting: first, body, encoder: Some(encoder), worked: false }.boxed_unsync(),
        None => Begun { first: Some(first), body }.boxed_unsync(),
    })
}

/// An answer whose body is gzip.
pub fn in_gzip(mut response: Response<Body>) -> Response<Body> {
    say_gzip(response.headers_mut());
    response
}

fn say_gzip(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// A body whose beginning was read already.
struct Begun {
    first: Option<Bytes>,
    body: Body,
}

impl http_body::Body for Begun {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }
}

/// A body, compressed as it goes.
struct Gzip {
    waiting: Bytes,
    body: Body,
    /// `None` when all is written.
    encoder: Option<GzEncoder<Vec<u8>>>,
    /// A chunk was compressed, and now it is others' turn.
    worked: bool,
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(None) };
            if std::mem::take(&mut this.worked) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.waiting.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => this.waiting = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => {
                        this.encoder = None;
                        return Poll::Ready(Some(Err(error)));
                    }
                    None => {
                        let rest = this.encoder.take().map(GzEncoder::finish).transpose()?;
                        return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest.into()))));
                    }
                }
                continue;
            }
            let chunk = this.waiting.split_to(this.waiting.len().min(GZIP_CHUNK_BYTES));
            encoder.write_all(&chunk)?;
            this.worked = true;
            if !encoder.get_ref().is_empty() {
                let out = std::mem::replace(encoder.get_mut(), Vec::with_capacity(GZIP_CHUNK_BYTES / 4));
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }
    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    const PLAIN: Encoding = Encoding { media: Media::Json, otherwise: None, pretty: false, gzip: false };

    /// A body in chunks of that many bytes.
    fn chunked(text: &str, size: usize) -> Response<Body> {
        let chunks: Vec<Bytes> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
        let frames = futures::stream::iter(chunks.into_iter().map(|chunk| Ok::<_, BodyError>(Frame::data(chunk))));
        Response::new(http_body_util::StreamBody::new(frames).boxed_unsync())
    }

    async fn sent(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn what_is_large_is_compressed_and_what_is_small_is_not() {
        let gzip = Encoding { gzip: true, ..PLAIN };
        for (size, compressed) in
            [(10, false), (GZIP_ABOVE_BYTES, false), (GZIP_ABOVE_BYTES + 1, true), (3 << 20, true)]
        {
            let text: String = (0_u64..)
                .map(|n| (n * n % 1_000_003).to_string())
                .flat_map(|n| n.chars().collect::<Vec<_>>())
                .take(size)
                .collect();
            for chunk in [1000, 128 << 10, 4 << 20] {
                let response = encode(chunked(&text, chunk), gzip).await;
                assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), compressed, "{size}");
                assert_eq!(response.headers().contains_key(header::VARY), compressed, "{size}");
                let body = sent(response).await;
                let mut out = String::new();
                if compressed {
                    flate2::read::GzDecoder::new(&*body).read_to_string(&mut out).unwrap();
                } else {
                    out = String::from_utf8(body.to_vec()).unwrap();
                }
                assert!(out == text, "{size} in chunks of {chunk}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_breaks_off() {
        let frames = futures::stream::iter([
            Ok(Frame::data(Bytes::from(vec![b'1'; 1 << 20]))),
            Err::<_, BodyError>("cut".into()),
        ]);
        let response = Response::new(http_body_util::StreamBody::new(frames).boxed_unsync());
        let response = encode(response, Encoding { gzip: true, ..PLAIN }).await;
        assert_eq!(response.into_body().collect().await.unwrap_err().to_string(), "cut");
    }

    #[tokio::test]
    async fn indented_json_is_that_of_go_in_whatever_chunks_it_comes() {
        let text = "{\"a\":[],\"b\":{},\"c\":[1,{\"x\":\"}\\\"{,:\"}],\"d\":\"\"}\n";
        let wanted = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"x\": \"}\\\"{,:\"\n    }\n  ],\n  \"d\": \"\"\n}";
        for size in 1..text.len() {
            let response = encode(chunked(text, size), Encoding { pretty: true, ..PLAIN }).await;
            assert_eq!(sent(response).await, wanted, "{size}");
        }
        // What is indented stays as it is.
        let again = encode(chunked(wanted, 7), Encoding { pretty: true, ..PLAIN }).await;
        assert_eq!(sent(again).await, wanted);
    }
}
