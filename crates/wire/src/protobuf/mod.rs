//! The Kubernetes protobuf encoding: request bodies are read into JSON, and answers written from it.
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
//! - `encode`: JSON objects to messages, and `leaf` values that are none
//! - `values`: the types whose JSON is written by hand in Go

mod decode;
mod encode;
mod envelope;
mod error;
mod leaf;
mod records;
mod schema;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use error::{EncodeError, JSON_BYTES_MAX, MEDIA_TYPE, NESTING_MAX, ProtobufError};
pub use records::{MalformedRecord, Payload, Records};

use decode::Decoder;
use encode::Encoder;
use envelope::{Content, Envelope};
use leaf::length_delimited;
use schema::Messages;

use crate::locate::{TypeOf, type_of};

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

/// Writes an object or a list in protobuf, byte for byte as Go does.
///
/// Shape: compact JSON as an API server prints it -> the prefix `k8s\0`, and the `runtime.Unknown` around its message.
/// Errors: its kind has no messages, or it does not fit them: it is of another version.
/// Source: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf`.
pub fn from_json(json: &str) -> Result<Vec<u8>, EncodeError> {
    let TypeOf { kind, api_version } = type_of(json);
    let messages = Messages::get()?;
    let id = messages.kind(api_version, kind).ok_or(EncodeError::UnknownKind)?;
    let message = Encoder::new(messages, json.len()).object(id, json)?;
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    length_delimited(&mut type_meta, 1, api_version.as_bytes());
    length_delimited(&mut type_meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(message.len() + type_meta.len() + 24);
    out.extend_from_slice(envelope::PREFIX);
    length_delimited(&mut out, 1, &type_meta);
    length_delimited(&mut out, 2, &message);
    length_delimited(&mut out, 3, b"");
    length_delimited(&mut out, 4, b"");
    Ok(out)
}

/// Writes an event of a watch as a frame of a protobuf stream.
///
/// Shape: `{"type": .., "object": ..}` -> four bytes of length, most significant first, and the `WatchEvent` with the object in
/// its envelope.
/// Errors: as [`from_json`] of its object.
/// Source: kubernetes/apiserver `pkg/endpoints/handlers/watch.go`, apimachinery `pkg/util/framer`.
pub fn watch_frame(json: &str) -> Result<Vec<u8>, EncodeError> {
    let Event { kind, object } = serde_json::from_str(json)?;
    let mut raw = Vec::new();
    length_delimited(&mut raw, 1, &from_json(object.get())?);
    let mut frame = vec![0; 4];
    length_delimited(&mut frame, 1, kind.as_bytes());
    length_delimited(&mut frame, 2, &raw);
    let length = u32::try_from(frame.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(prefix) = frame.first_chunk_mut() {
        *prefix = length.to_be_bytes();
    }
    Ok(frame)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}
