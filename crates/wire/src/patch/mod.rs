//! JSON patch and JSON merge patch, as a kube-apiserver applies them. Strategic merge patch and server-side apply need
//! the types of objects: they are `kubefold_apiserver::patch`.
//!
//! Pure: the present object and the patch go in, the new object or the words of a `Status` come out.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`, gopkg.in/evanphx/json-patch.v4.

mod error;
mod json;
mod merge;

#[cfg(test)]
mod tests;

pub use error::PatchError;
pub use json::{Action, Inapplicable, JsonPatch, Operation, Why, index, is_index, json, path_of, steps};
pub use merge::{merge, merge_into, merged};

use serde_json::Value;

use crate::text::{Text, TextError};

/// A patch as JSON. `prefix` stands before what Go says of one that is none.
///
/// Errors: 400.
pub fn decoded(patch: &[u8], prefix: &str) -> Result<Value, PatchError> {
    let wrong = |why: TextError| PatchError::bad_request(format!("{prefix}{why}"));
    let patch = String::from_utf8_lossy(patch);
    let text = Text::read(&patch).map_err(wrong)?;
    Ok(text.value())
}

/// 400: a patch that must be an object, and is not.
pub fn not_an_object(patch: &Value, prefix: &str) -> PatchError {
    let what = go_kind(patch);
    let message = format!("{prefix}json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
    PatchError::bad_request(message)
}

/// The kind of a value in the errors of Go's decoder.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
