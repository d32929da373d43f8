//! JSON patch (RFC 6902), as the library of a kube-apiserver understands it.
//!
//! It is more lenient than the RFC in two things, and so are we: `replace` of a key that is not there adds it, and
//! negative indexes count from the end. The `json-patch` crate is neither.
//!
//! Source: gopkg.in/evanphx/json-patch.v4 `patch.go`.

use serde_json::{Map, Value};

use super::{PatchError, fields::same, merge::json_kind};
use crate::schema;

/// Source: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`, `maxJSONPatchOperations`.
const OPERATIONS_MAX: usize = 10_000;

/// The object after the operations of a JSON patch.
///
/// Errors: the patch is none, it has too many operations, or one does not apply.
pub fn json(live: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations = operations(decoded(patch, "error decoding patch: ")?)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::too_large(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let mut object = live.clone();
    for operation in &operations {
        // What is wrong is not told: nor does a kube-apiserver.
        apply(&mut object, operation).ok_or_else(PatchError::unprocessable)?;
    }
    Ok(object)
}

/// A patch as JSON; what is wrong with it is said after a prefix.
pub(super) fn decoded(patch: &[u8], prefix: &str) -> Result<Value, PatchError> {
    let wrong = |why: String| PatchError::bad_request(format!("{prefix}{why}"));
    let patch = String::from_utf8_lossy(patch);
    let text = schema::Text::read(&patch).map_err(wrong)?;
    Ok(text.value())
}

fn operations(patch: Value) -> Result<Vec<Map<String, Value>>, PatchError> {
    let refused = |what: &str, into: &str| {
        let message = format!("error decoding patch: json: cannot unmarshal {what} into Go {into}");
        PatchError::bad_request(message)
    };
    let items = match patch {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => return Err(refused(json_kind(&other), "value of type []handlers.jsonPatchOp")),
    };
    let operation = |item: Value| match item {
        Value::Object(operation) => {
            for name in ["op", "path", "from"] {
                if let Some(value) = operation.get(name).filter(|value| !value.is_string() && !value.is_null()) {
                    let into = format!("struct field jsonPatchOp.{name} of type string");
                    return Err(refused(json_kind(value), &into));
                }
            }
            Ok(operation)
        }
        Value::Null => Ok(Map::new()),
        other => Err(refused(json_kind(&other), "value of type handlers.jsonPatchOp")),
    };
    items.into_iter().map(operation).collect()
}

/// `None`: it does not apply.
fn apply(object: &mut Value, operation: &Map<String, Value>) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(object, text("path")?, value()),
        "remove" => remove(object, text("path")?).map(drop),
        "replace" => replace(object, text("path")?, value()),
        "move" => {
            let value = remove(object, text("from")?)?;
            add(object, text("path")?, value)
        }
        "copy" => {
            let (container, key) = find(object, text("from")?)?;
            let value = get(container, &key)?.clone();
            add(object, text("path")?, value)
        }
        "test" => test(object, text("path")?, &value()),
        _ => None,
    }
}

/// What holds the last step of a path, and that step.
fn find<'v>(object: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (_, steps) = path.split_once('/')?;
    let mut steps: Vec<String> = steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop()?;
    let mut container = object;
    for step in steps {
        container = match container {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let index = index(&step, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some((container, last))
}

/// A place in a list of so many items; negative ones count from the end.
fn index(step: &str, len: usize) -> Option<usize> {
    let index: i64 = step.parse().ok()?;
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    usize::try_from(index).ok()
}

const NOTHING: &Value = &Value::Null;

/// A field that is not there is null; an item that is not there is an error.
fn get<'v>(container: &'v Value, key: &str) -> Option<&'v Value> {
    match container {
        Value::Object(fields) => Some(fields.get(key).unwrap_or(NOTHING)),
        Value::Array(items) => items.get(index(key, items.len())?),
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    match find(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let index = index(&key, items.len() + 1).filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    match find(object, path)? {
        (Value::Object(fields), key) => fields.shift_remove(&key),
        (Value::Array(items), key) => {
            let index = index(&key, items.len()).filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        let fits = value.is_object() || value.is_array();
        return fits.then(|| *object = value);
    }
    match find(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn test(object: &mut Value, path: &str, value: &Value) -> Option<()> {
    if path.is_empty() {
        return same(object, value).then_some(());
    }
    let (container, key) = find(object, path)?;
    same(get(container, &key)?, value).then_some(())
}
