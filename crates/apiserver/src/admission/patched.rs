//! Objects that those change who admit them: by JSON patches, and with the types and defaults of their kinds.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{matching::Matched, request::kind_of_seen};
use crate::{
    kinds::Kind,
    registry::AdmissionRequest,
    schema::{DecodeError, Decoded, Text, Type, Types, builtin, builtin_kind, decode},
};
use kubefold_wire::{
    golang::Quoted,
    patch::{Action, JsonPatch, Operation, Why},
    status::{Cause, Reason, Status},
    text::TextError,
};

/// Why a JSON patch makes no object.
#[derive(Debug, thiserror::Error)]
pub(super) enum JsonPatchError {
    /// It tests for another value.
    #[error("testing value {0} failed: test failed")]
    Differs(String),
    /// Any other, in Go's words.
    #[error("{0}")]
    Other(String),
}

/// Why a changed object is none of its type.
#[derive(Debug, thiserror::Error)]
pub(super) enum PatchedError {
    /// It is nested too deep.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A field has a value of another type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It has fields that its type does not have.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// The object after the operations of a JSON patch.
///
/// Errors: the first operation that does not apply.
pub(super) fn patched(object: &Value, operations: Vec<Map<String, Value>>) -> Result<Value, JsonPatchError> {
    let patch = JsonPatch::read(operations).map_err(|why| JsonPatchError::Other(unreadable(&why)))?;
    patch.apply(object.clone()).map_err(|error| match (patch.0.get(error.at), &error.why) {
        (_, Why::Differs(path)) => JsonPatchError::Differs(path.clone()),
        (Some(operation), why) => JsonPatchError::Other(inapplicable(operation, why)),
        (None, _) => JsonPatchError::Other(error.to_string()),
    })
}

/// Source: gopkg.in/evanphx/json-patch.v4 `patch.go` `Apply`.
fn unreadable(why: &Why) -> String {
    match why {
        Why::Missing("op") => "Unexpected kind: unknown".to_owned(),
        Why::Unknown(op) => format!("Unexpected kind: {op}"),
        other => other.to_string(),
    }
}

/// Source: gopkg.in/evanphx/json-patch.v4 `patch.go`.
fn inapplicable(operation: &Operation, why: &Why) -> String {
    let name = match &operation.action {
        Action::Add(_) => "add",
        Action::Remove => "remove",
        Action::Replace(_) => "replace",
        Action::Move { .. } => "move",
        Action::Copy { .. } => "copy",
        Action::Test(_) => "test",
    };
    match why {
        Why::Absent(path) => {
            format!("{name} operation does not apply: doc is missing path: {}: missing value", Quoted(path))
        }
        other => other.to_string(),
    }
}

/// The type of the objects of a write, as they are seen.
pub(super) struct Typed<'k> {
    /// `None`: it is another one than that of the resource.
    pub(super) kind: Option<&'k Kind>,
    types: Arc<Types>,
    name: &'k str,
}

impl<'k> Typed<'k> {
    pub(super) fn of(request: &AdmissionRequest<'k>, matched: &'k Matched) -> Self {
        if let Some(kind) = kind_of_seen(request, matched) {
            return Self { kind: Some(kind), types: Arc::clone(&kind.types), name: &kind.type_name };
        }
        let of = &matched.object_type;
        Self { kind: None, types: builtin(), name: builtin_kind(&of.group, &of.version, &of.kind).unwrap_or_default() }
    }

    /// `None`: nothing is known of its fields.
    pub(super) fn schema(&self) -> Option<Type<'_>> {
        self.types.named(self.name)
    }

    /// An object as its type has it, with defaults.
    ///
    /// Errors: in Go's words.
    pub(super) fn completed(&self, object: Value) -> Result<Value, PatchedError> {
        self.read(object, false)
    }

    /// The same of an object in which nothing may be unknown, if Go has its type.
    ///
    /// Errors: in Go's words.
    pub(super) fn completed_strictly(&self, object: Value) -> Result<Value, PatchedError> {
        self.read(object, true)
    }

    fn read(&self, object: Value, is_strict: bool) -> Result<Value, PatchedError> {
        let Some(typed) = self.schema() else { return Ok(object) };
        let json = object.to_string();
        let Decoded { mut object, findings } = decode(typed, &Text::read(&json)?)?;
        if is_strict && typed.go().is_some() && !findings.is_empty() {
            return Err(PatchedError::Strict(findings));
        }
        if let Some(kind) = self.kind {
            kind.strategy.default(&mut object);
        }
        Ok(object)
    }
}

/// Source: kubernetes/apimachinery `pkg/api/errors/errors.go` `NewInternalError`.
pub(super) fn internal(why: String) -> Box<Status> {
    let mut status = Status::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        Reason::InternalError,
        format!("Internal error occurred: {why}"),
    );
    status.details.causes.push(Cause { reason: String::new(), message: why, field: String::new() });
    Box::new(status)
}
