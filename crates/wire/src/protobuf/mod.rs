//! Reads the Kubernetes protobuf encoding of request bodies into JSON.
//!
//! Typed Go clients post `application/vnd.kubernetes.protobuf` (`kubectl create deployment`,
//! every controller), and client-go does not fall back when a server refuses it. The rest of
//! kubefold speaks JSON, so such a body is translated once, here, into what Go's own API server
//! would print for it: same fields, same order, same omissions.
//!
//! The message types come from the one schema of built-in types ([`crate::types`]). This module does no IO and
//! reads no clock.
//!
//! - `envelope`: the `k8s\0` prefix and `runtime.Unknown`
//! - `records`: protobuf's tags, varints and lengths
//! - `schema`: the message types, by field number
//! - `decode`: messages to JSON objects
//! - `values`: the types whose JSON is written by hand in Go

mod decode;
mod envelope;
mod error;
mod records;
mod schema;
#[cfg(test)]
mod tests;
mod values;

pub use error::{JSON_BYTES_MAX, MEDIA_TYPE, NESTING_MAX, ProtobufError};
pub use records::{MalformedRecord, Payload, Records};

use decode::Decoder;
use envelope::{Content, Envelope};
use schema::Messages;

pub use crate::types::SchemaError;

/// Says whether a `Content-Type` header announces Kubernetes protobuf, whatever its parameters.
pub fn is_protobuf(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Translates one protobuf body into the compact JSON that Go prints for it.
///
/// Shape: one body -> one JSON object, at most [`JSON_BYTES_MAX`] bytes. Never panics, and holds
/// memory in proportion to the body and the JSON alone.
/// Errors: see [`ProtobufError`]; nothing the sender wrote is dropped silently.
/// Source: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` and `encoding/json`.
pub fn to_json(body: &[u8]) -> Result<Vec<u8>, ProtobufError> {
    let envelope = Envelope::read(body)?;
    match envelope.content {
        Content::Json => values::checked_json(envelope.raw)
            .map(|text| text.as_bytes().to_vec())
            .map_err(|problem| problem.at(envelope.kind, "")),
        Content::Protobuf => Decoder::new(Messages::get()?, envelope.api_version, envelope.kind).object(envelope.raw),
    }
}
