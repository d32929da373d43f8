//! What happens to a body on its way.

use std::{
    io::Write as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::BodyExt;

use kubefold_serving::Closed;
use kubefold_wire::{
    body::{Body, BodyError, full},
    status::Status,
};

const REVISION: &[u8] = b"\"resourceVersion\":\"";

/// The body breaks off after so many bytes.
pub(super) fn cut(response: Response<Body>, after: u64) -> Response<Body> {
    through(response, move |body| Through { body, step: Step::Cut { left: after } }.boxed_unsync())
}

/// A watch falls silent after so many events.
pub(super) fn silent(response: Response<Body>, after: u64) -> Response<Body> {
    through(response, move |body| Through { body, step: Step::Silent { left: after } }.boxed_unsync())
}

/// The body is compressed, and its second half is missing.
pub(super) async fn truncated(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let Ok(whole) = body.collect().await else {
        return Status::internal("there was no whole answer to compress").into_response();
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    if encoder.write_all(&whole.to_bytes()).is_err() {
        return Status::internal("the answer could not be compressed").into_response();
    }
    let mut packed = encoder.finish().unwrap_or_default();
    packed.truncate(packed.len() / 2);
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(head, full(packed))
}

/// Every resource version is lower.
pub(super) async fn backwards(response: Response<Body>, by: u64, watch: bool) -> Response<Body> {
    if watch {
        let step = Step::Backwards { by, held: BytesMut::new() };
        return through(response, move |body| Through { body, step }.boxed_unsync());
    }
    let (mut head, body) = response.into_parts();
    match body.collect().await {
        Ok(whole) => {
            head.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(head, full(lowered(&whole.to_bytes(), by)))
        }
        Err(_) => Status::internal("there was no whole answer to lower").into_response(),
    }
}

/// The same text with lower resource versions.
fn lowered(text: &[u8], by: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, REVISION) {
        let (before, behind) = rest.split_at(at + REVISION.len());
        out.extend_from_slice(before);
        let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, behind) = behind.split_at(digits);
        match std::str::from_utf8(number).unwrap_or_default().parse::<u64>() {
            Ok(number) => out.extend_from_slice(number.saturating_sub(by).max(1).to_string().as_bytes()),
            Err(_) => out.extend_from_slice(number),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

fn through(response: Response<Body>, wrap: impl FnOnce(Body) -> Body) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, wrap(body))
}

/// A body that a step changes as it passes.
struct Through {
    body: Body,
    step: Step,
}

enum Step {
    Cut { left: u64 },
    Silent { left: u64 },
    Backwards { by: u64, held: BytesMut },
}

/// What a step makes of what it was given.
enum Made {
    Pass(Bytes),
    /// Nothing yet.
    More,
    Break,
    /// Never anything again.
    Stop,
}

impl Step {
    fn take(&mut self, mut data: Bytes) -> Made {
        match self {
            Self::Cut { left: 0 } => Made::Break,
            Self::Cut { left } => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                Made::Pass(data)
            }
            Self::Silent { left: 0 } => Made::Stop,
            Self::Silent { left } => {
                let lines = memchr::memchr_iter(b'\n', &data);
                if let Some(end) = lines.take(usize::try_from(*left).unwrap_or(usize::MAX)).last() {
                    let whole = memchr::memchr_iter(b'\n', &data).count() as u64;
                    if whole >= *left {
                        data.truncate(end + 1);
                    }
                    *left = left.saturating_sub(whole);
                }
                Made::Pass(data)
            }
            Self::Backwards { by, held } => {
                held.extend_from_slice(&data);
                let Some(end) = memchr::memrchr(b'\n', held) else { return Made::More };
                Made::Pass(lowered(&held.split_to(end + 1), *by).into())
            }
        }
    }
}

impl http_body::Body for Through {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if let Step::Silent { left: 0 } = self.step {
                // The client's leaving drops the body; nothing else ends it.
                return Poll::Pending;
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else { return Poll::Ready(None) };
            let Ok(data) = frame.into_data() else { continue };
            match self.step.take(data) {
                Made::Pass(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Made::More => {}
                Made::Break => return Poll::Ready(Some(Err(Box::new(Closed)))),
                Made::Stop => return Poll::Pending,
            }
        }
    }
}
