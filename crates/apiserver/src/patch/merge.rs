//! JSON merge patch (RFC 7386).
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `merge.go`.

use serde_json::{Map, Value};

use super::{PatchError, json::decoded};

/// The object with what a merge patch says.
///
/// Errors: the patch is no JSON object.
pub fn merge(live: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = match decoded(patch, "error decoding patch: ")? {
        Value::Object(patch) => patch,
        Value::Null => return Err(PatchError::bad_request("Invalid JSON Patch")),
        other => return Err(not_an_object(&other, "error decoding patch: ")),
    };
    let mut object = live.clone();
    lay(&mut object, patch);
    Ok(object)
}

/// A patch that must be an object, and is not.
pub(super) fn not_an_object(patch: &Value, prefix: &str) -> PatchError {
    let what = json_kind(patch);
    let message = format!("{prefix}json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
    PatchError::bad_request(message)
}

/// What Go's decoder calls a value.
pub(super) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn lay(onto: &mut Value, patch: Map<String, Value>) {
    let Value::Object(object) = onto else {
        *onto = Value::Object(Map::new());
        return lay(onto, patch);
    };
    for (name, value) in patch {
        match value {
            Value::Null => {
                object.shift_remove(&name);
            }
            Value::Object(value) => lay(object.entry(name).or_insert(Value::Null), value),
            value => {
                object.insert(name, value);
            }
        }
    }
}
