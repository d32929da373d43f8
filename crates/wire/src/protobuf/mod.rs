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
//! - `message`: messages put into envelopes, lists and events of watches
//! - `openapi`: documents of OpenAPI v2, which are messages of their own
//! - `values`: the types whose JSON is written by hand in Go

mod chunks;
mod decode;
mod encode;
mod envelope;
mod error;
mod leaf;
mod message;
mod openapi;
mod records;
mod schema;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use chunks::{ChunkError, ListChunks, Measured};
pub use error::{EncodeError, JSON_BYTES_MAX, MEDIA_TYPE, NESTING_MAX, ProtobufError};
pub use records::{MalformedRecord, Payload, Records};

pub use message::{ListOpening, MessageType, record_len, write_event, write_object};
pub use openapi::{OPENAPI_V2, OPENAPI_V2_ASKED, from_openapi_v2, push_nested};

use decode::Decoder;
use envelope::{Content, Envelope};
use schema::Messages;

use crate::locate::type_of;

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
    let of = type_of(json);
    let message_type = MessageType::of(of.api_version, of.kind).ok_or(EncodeError::UnknownKind)?;
    let mut message = Vec::with_capacity(json.len());
    message_type.encode(json, &mut message)?;
    let mut out = Vec::new();
    write_object(of, &message, &mut out);
    Ok(out)
}

/// Writes an event of a watch as a frame of a protobuf stream.
///
/// Shape: `{"type": .., "object": ..}` -> as [`write_event`].
/// Errors: as [`from_json`] of its object.
pub fn watch_frame(json: &str) -> Result<Vec<u8>, EncodeError> {
    let Event { kind, object } = serde_json::from_str(json)?;
    let of = type_of(object.get());
    let message_type = MessageType::of(of.api_version, of.kind).ok_or(EncodeError::UnknownKind)?;
    let mut message = Vec::with_capacity(object.get().len());
    message_type.encode(object.get(), &mut message)?;
    let mut frame = Vec::new();
    write_event(&kind, of, &message, &mut frame);
    Ok(frame)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}
