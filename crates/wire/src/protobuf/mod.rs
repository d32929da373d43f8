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
mod records;
mod schema;
#[cfg(test)]
mod tests;
mod values;

pub use records::{MalformedRecord, Payload, Records};

use crate::golang::Quoted;
use decode::Decoder;
use envelope::{Content, Envelope};
use schema::Messages;

pub use crate::types::SchemaError;

/// The media type of Kubernetes' protobuf encoding.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How deep the printed JSON may nest. The API's own types stay below 30 levels; only the
/// recursive schema of a CustomResourceDefinition goes further.
pub const NESTING_MAX: usize = 100;

/// How large the printed JSON may become. API servers refuse bodies above 3 MiB; a few bytes of
/// protobuf can stand for many of JSON, as empty messages print all their required fields.
pub const JSON_BYTES_MAX: usize = 16 << 20;

/// Why a protobuf body could not be read. Each is the sender's to mend, but [`Self::Schema`];
/// sending the same body again fails the same way.
#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    /// The four bytes that open every Kubernetes protobuf body are missing.
    #[error(
        "the body does not start with the Kubernetes protobuf prefix \"k8s\\0\", although its content type says so"
    )]
    Prefix,
    /// The bytes are not protobuf: cut short, most likely.
    #[error("the protobuf body is damaged in {kind} at {path}: {source}", path = Quoted(.path))]
    Malformed {
        /// Kind of the object.
        kind: String,
        /// JSON path of the message, empty for the object itself.
        path: String,
        /// What is wrong with the bytes.
        source: MalformedRecord,
    },
    /// The envelope does not say what it holds.
    #[error("the protobuf body names no apiVersion or kind (apiVersion {api_version}, kind {kind})", api_version = Quoted(.api_version), kind = Quoted(.kind))]
    MissingKind {
        /// As the envelope has it.
        api_version: String,
        /// As the envelope has it.
        kind: String,
    },
    /// No built-in type has this name; custom resources have no protobuf encoding.
    #[error("{api_version} {kind} has no protobuf encoding known to this build of kubefold; send JSON")]
    UnknownKind {
        /// apiVersion of the object.
        api_version: String,
        /// Kind of the object.
        kind: String,
    },
    /// The sender knows a field that this build does not. Dropping it would lose data.
    #[error(
        "{kind} has the field number {number} at {path}, which this build of kubefold does not know: the client is newer, or older than the field's removal; send JSON, or upgrade kubefold", path = Quoted(.path))]
    UnknownField {
        /// Kind of the object.
        kind: String,
        /// JSON path of the message that holds the field, empty for the object itself.
        path: String,
        /// The field's number.
        number: u32,
    },
    /// A field has another wire type than the API gives it.
    #[error("{kind} has a value of the wrong protobuf wire type at {path}", path = Quoted(.path))]
    WireType {
        /// Kind of the object.
        kind: String,
        /// JSON path of the field.
        path: String,
    },
    /// A string holds bytes that JSON cannot carry.
    #[error("{kind} has a string at {path} that is not valid UTF-8", path = Quoted(.path))]
    Utf8 {
        /// Kind of the object.
        kind: String,
        /// JSON path of the field.
        path: String,
    },
    /// A field that carries JSON text does not.
    #[error("{kind} has text at {path} that should be JSON: {source}", path = Quoted(.path))]
    Json {
        /// Kind of the object.
        kind: String,
        /// JSON path of the field.
        path: String,
        /// What the JSON parser says.
        source: serde_json::Error,
    },
    /// A value has no JSON form.
    #[error("{kind} has a value at {path} that cannot be printed: {problem}", path = Quoted(.path))]
    Value {
        /// Kind of the object.
        kind: String,
        /// JSON path of the field.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The envelope announces a compressed or foreign content.
    #[error(
        "the protobuf body holds content of type {content_type} and encoding {content_encoding}; only plain protobuf or JSON is read", content_type = Quoted(.content_type), content_encoding = Quoted(.content_encoding))]
    Content {
        /// As the envelope has it.
        content_type: String,
        /// As the envelope has it.
        content_encoding: String,
    },
    /// Messages nest deeper than [`NESTING_MAX`].
    #[error("{kind} nests deeper than {NESTING_MAX} levels")]
    TooDeep {
        /// Kind of the object.
        kind: String,
    },
    /// The JSON would be larger than [`JSON_BYTES_MAX`].
    #[error("{kind} is larger than {JSON_BYTES_MAX} bytes as JSON")]
    TooLarge {
        /// Kind of the object.
        kind: String,
    },
    /// This build carries a broken schema; no body can be read.
    #[error("kubefold's own schema of built-in types is broken, please report it: {0}")]
    Schema(#[from] SchemaError),
}

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
