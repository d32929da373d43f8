//! Why a document is no object of its type, in the words of Go's decoder and of a kube-apiserver.

use kubefold_wire::{golang::Quoted, quantity::QuantityError, text::TextError};

use crate::schema::time::TimeError;

/// Why a document is not of its type.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A value of another type than Go's.
    #[error("json: cannot unmarshal {value} into Go {target} of type {go_type}")]
    WrongType {
        /// What stands there, such as `string` or `number 1.5`.
        value: String,
        /// `value`, or such as `struct field DeploymentSpec.spec.replicas`.
        target: String,
        /// Go's type.
        go_type: String,
    },
    /// A text of bytes that is not base64.
    #[error("illegal base64 data at input byte {at}")]
    Base64 {
        /// The first byte that does not belong there.
        at: usize,
    },
    /// A time that Go does not read.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A quantity that Go does not read.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// No JSON.
    #[error(transparent)]
    Text(#[from] TextError),
    /// `apiVersion` or `kind` of an object inside a custom resource is no string.
    #[error("{path}: Invalid value: {value}: must be a string")]
    NoString {
        /// The field.
        path: String,
        /// What stands there, as an error of a field shows it.
        value: String,
    },
    /// The metadata of an object inside a custom resource is wrong.
    #[error("{path}.metadata: Invalid value: {value}: {source}")]
    Metadata {
        /// The object.
        path: String,
        /// Its metadata, as an error of a field shows it.
        value: String,
        /// What is wrong.
        source: Box<Self>,
    },
}

/// Why a body is not the object that a request needs.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Nothing says of what kind it is.
    #[error("the object provided is unrecognized (must be of type {kind}): {source} ({shown})")]
    Unrecognized {
        /// The kind that it should be of.
        kind: String,
        /// Why nothing says it.
        source: Unrecognized,
        /// The beginning of the body.
        shown: String,
    },
    /// It is of another version.
    #[error("the API version in the data ({found}) does not match the expected API version ({expected})")]
    OtherVersion {
        /// Its version.
        found: String,
        /// The version that the request is about.
        expected: String,
    },
    /// It cannot be read as an object of the kind.
    #[error("{kind} in version {} cannot be handled as a {expected}: {source}", Quoted(.version))]
    Unhandled {
        /// The kind that it says.
        kind: String,
        /// The version that it says, without its group.
        version: String,
        /// The kind that it should be of.
        expected: String,
        /// Why not.
        source: Unhandled,
    },
}

/// Why nothing says of what kind a body is.
#[derive(Debug, thiserror::Error)]
pub enum Unrecognized {
    /// The body is no JSON.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Text(#[from] TextError),
    /// Its `apiVersion` or `kind` is no string, or it is no object.
    #[error("couldn't get version/kind; json parse error: {0}")]
    TypeMeta(#[from] DecodeError),
    /// It has no `kind`.
    #[error("Object 'Kind' is missing in '{0}'")]
    NoKind(
        /// The body.
        String,
    ),
}

/// Why a body cannot be read as an object of the kind.
#[derive(Debug, thiserror::Error)]
pub enum Unhandled {
    /// There is no such kind.
    #[error(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        Quoted(.kind), Quoted(.api_version)
    )]
    NotRegistered {
        /// The kind that it says.
        kind: String,
        /// The `apiVersion` that it says.
        api_version: String,
    },
    /// It is of another kind.
    #[error("converting ({from}) to ({to}): unknown conversion")]
    OtherKind {
        /// Version and kind that it says.
        from: String,
        /// Package and kind that it should be of.
        to: String,
    },
    /// A value is of another type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Fields are unknown or there twice, and the request forbids that.
    #[error(transparent)]
    Strict(#[from] StrictError),
}

/// Fields are unknown or there twice, and the request forbids that.
#[derive(Debug, thiserror::Error)]
#[error("strict decoding error: {}", .0.join(", "))]
pub struct StrictError(
    /// What was found.
    pub Vec<String>,
);
