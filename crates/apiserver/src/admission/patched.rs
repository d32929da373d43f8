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
    resource::Gvk,
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
    patch.apply(object.clone()).map_err(|error| {
        let (before, operation) = (patch.0.get(..error.at), patch.0.get(error.at));
        match (&error.why, operation) {
            (Why::Differs(path), _) => JsonPatchError::Differs(path.clone()),
            (Why::Absent(path), Some(operation)) => {
                let before = JsonPatch(before.unwrap_or_default().to_vec());
                let there = before.apply(object.clone()).unwrap_or_default();
                JsonPatchError::Other(absent(operation, path, &there))
            }
            (why, _) => JsonPatchError::Other(why.to_string()),
        }
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

/// What is told of an operation that finds nothing at a path of the object.
///
/// Source: gopkg.in/evanphx/json-patch.v4 `patch.go`.
fn absent(operation: &Operation, path: &str, object: &Value) -> String {
    let name = match &operation.action {
        Action::Add(_) => "add",
        Action::Remove => "remove",
        Action::Replace(_) => "replace",
        Action::Move { .. } => "move",
        Action::Copy { .. } => "copy",
        Action::Test(_) => "test",
    };
    let (above, key) = path.rsplit_once('/').unwrap_or_default();
    let key = key.replace("~1", "/").replace("~0", "~");
    let within = match object.pointer(above) {
        Some(Value::Object(_)) => Some(format!("Unable to remove nonexistent key: {key}: missing value")),
        Some(Value::Array(_)) => Some(match (key.parse::<i64>(), name) {
            (Ok(index), _) => format!("Unable to access invalid index: {index}: invalid index referenced"),
            (Err(_), "add") => {
                let quoted = Quoted(&key);
                format!("value was not a proper array index: '{key}': strconv.Atoi: parsing {quoted}: invalid syntax")
            }
            (Err(_), _) => format!("strconv.Atoi: parsing {}: invalid syntax", Quoted(&key)),
        }),
        _ => None,
    };
    let from = if path == operation.path { "destination" } else { "from" };
    match (name, within) {
        ("replace", Some(_)) => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        ("copy", Some(why)) => format!("error in copy for from: '{path}': {why}"),
        ("move", Some(why)) if from == "from" => format!("error in move for path: '{key}': {why}"),
        (_, Some(why)) => format!("error in {name} for path: '{path}': {why}"),
        ("add" | "remove", None) => {
            format!("{name} operation does not apply: doc is missing path: {}: missing value", Quoted(path))
        }
        ("move" | "copy", None) => {
            format!("{name} operation does not apply: doc is missing {from} path: {path}: missing value")
        }
        ("test", None) => format!("test operation does not apply: is missing path: {path}: missing value"),
        (_, None) => format!("{name} operation does not apply: doc is missing path: {path}: missing value"),
    }
}

/// The type of the objects of a write, as they are seen.
pub(super) struct Typed<'k> {
    /// `None`: it is another one than that of the resource.
    pub(super) kind: Option<&'k Kind>,
    of: &'k Gvk,
    types: Arc<Types>,
    name: &'k str,
}

impl<'k> Typed<'k> {
    pub(super) fn of(request: &AdmissionRequest<'k>, matched: &'k Matched) -> Self {
        let of = &matched.object_type;
        if let Some(kind) = kind_of_seen(request, matched) {
            return Self { kind: Some(kind), of, types: Arc::clone(&kind.types), name: &kind.type_name };
        }
        Self {
            kind: None,
            of,
            types: builtin(),
            name: builtin_kind(&of.group, &of.version, &of.kind).unwrap_or_default(),
        }
    }

    /// What is said of a type that the OpenAPI document of its own group does not have, so that nothing can be laid over its objects:
    /// that of a `Scale`, and of the like. `None`: it has it.
    pub(super) fn untyped(&self) -> Option<String> {
        let of = self.of;
        let shown = || format!("{}/{}, Kind={}", of.group, of.version, of.kind);
        (self.kind.is_none() && !of.group.is_empty()).then(shown)
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
