//! Bounds of a protobuf body, and why one could not be read.

use super::records::MalformedRecord;
use crate::{golang::Quoted, types::SchemaError};

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

/// Why an object has no protobuf form.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Custom resources have none.
    #[error("its kind has no protobuf encoding")]
    UnknownKind,
    /// It has a field that this build does not know, or a value of another type.
    #[error("it does not fit the types of this build: {0}")]
    Unfit(#[from] serde_json::Error),
    /// The schema of this build is broken.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}
