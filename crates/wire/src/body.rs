//! The one body type that responses have, whoever made them.

use bytes::Bytes;
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
