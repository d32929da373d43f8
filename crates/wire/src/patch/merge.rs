//! JSON merge patch (RFC 7386), as the library of a kube-apiserver understands it.
//!
//! It differs from the RFC in one thing: where a list takes the place of nothing, of a scalar or of another list, the
//! nulls in the objects of that list go, too.
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `merge.go`.

use serde_json::{Map, Value};

use super::{PatchError, decoded, not_an_object};

/// The object with what a merge patch says.
///
/// Errors: the patch is no JSON object.
pub fn merge(live: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    merged(live.clone(), patch)
}

/// The same of an object that nobody else needs.
///
/// Errors: the patch is no JSON object.
pub fn merged(mut object: Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = match decoded(patch, "error decoding patch: ")? {
        patch @ Value::Object(_) => patch,
        Value::Null => return Err(PatchError::bad_request("Invalid JSON Patch")),
        other => return Err(not_an_object(&other, "error decoding patch: ")),
    };
    merge_into(&mut object, patch);
    Ok(object)
}

/// Changes a value by a merge patch. A patch that is no object takes its place.
pub fn merge_into(onto: &mut Value, patch: Value) {
    match (onto, patch) {
        (Value::Object(fields), Value::Object(patch)) => merge_fields(fields, patch),
        (onto @ Value::Object(_), other) => *onto = other,
        (onto, mut other) => {
            prune(&mut other);
            *onto = other;
        }
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut value) in patch {
        if value.is_null() {
            fields.shift_remove(&name);
            continue;
        }
        match fields.get_mut(&name).filter(|present| !present.is_null()) {
            Some(present) => merge_into(present, value),
            None => {
                prune(&mut value);
                fields.insert(name, value);
            }
        }
    }
}

/// Removes the fields that are null, at any depth. Items of lists that are null stay.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}
