//! The one body type that responses have, whoever made them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// Why a response body ended early. It reaches the client as a reset stream, never as a clean end.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A response body: a few bytes, a list in chunks, a watch, or a stream that is passed through.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Makes a body of bytes that are all here already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Makes a body without a byte.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// Passes a body on as it comes, and keeps something until it is dropped.
pub fn holding<B>(body: B, held: impl Send + 'static) -> Body
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
{
    observed(body, move |_| {
        let _held = &held;
    })
}

/// Passes a body on as it comes, and shows `see` the data of each frame.
pub fn observed<B>(body: B, see: impl FnMut(&Bytes) + Send + 'static) -> Body
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Unpin + 'static,
{
    Observed { body, see }.boxed_unsync()
}

struct Observed<B, F> {
    body: B,
    see: F,
}

/// Nothing is pinned through it but the body, which can move.
impl<B: Unpin, F> Unpin for Observed<B, F> {}

impl<B, F> http_body::Body for Observed<B, F>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    F: FnMut(&Bytes),
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            (self.see)(data);
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
