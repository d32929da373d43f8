//! Metadata: what is alike for objects of all kinds.

use serde_json::{Map, Value};

use crate::{
    kinds::{Kind, put},
    registry::Env,
};
use kubefold_wire::resource::api_version;

static EMPTY: Value = Value::Null;

/// A field of an object's metadata; null if it is not there.
pub(super) fn field<'v>(object: &'v Value, name: &str) -> &'v Value {
    object.get("metadata").and_then(|metadata| metadata.get(name)).unwrap_or(&EMPTY)
}

/// A text of an object's metadata; empty if it is not there.
pub(super) fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    field(object, name).as_str().unwrap_or_default()
}

/// Sets or removes a field of an object's metadata.
pub(super) fn set(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(metadata) = object.get_mut("metadata") {
        put(metadata, name, value);
    }
}

/// Sets `kind` and `apiVersion`, and makes sure that there is metadata.
pub(super) fn set_type(object: &mut Value, kind: &Kind) {
    put(object, "kind", Some(kind.kind.as_str().into()));
    put(object, "apiVersion", Some(api_version(&kind.group, &kind.version).into()));
    if !object.get("metadata").is_some_and(Value::is_object) {
        put(object, "metadata", Some(Value::Object(Map::new())));
    }
}

/// Says an object's UID, creation time and name, where they are not said.
pub(super) fn fill(object: &mut Value, env: &Env) {
    if text(object, "name").is_empty() && !text(object, "generateName").is_empty() {
        let name = generated_name(text(object, "generateName"), &env.suffix());
        set(object, "name", Some(name.into()));
    }
    if text(object, "uid").is_empty() {
        set(object, "uid", Some(env.uid().into()));
    }
    if text(object, "creationTimestamp").is_empty() {
        set(object, "creationTimestamp", Some(env.now_text().into()));
    }
    set(object, "resourceVersion", None);
}

/// Longest name that is generated. Source: kubernetes/apiserver `pkg/storage/names/generate.go`.
const GENERATED_CHARS_MAX: usize = 63;

/// The name from `generateName` and five letters.
pub(super) fn generated_name(base: &str, suffix: &str) -> String {
    let base: String = base.chars().take(GENERATED_CHARS_MAX - suffix.len()).collect();
    base + suffix
}

/// Forgets what only a server says.
pub(super) fn wipe(object: &mut Value) {
    for name in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        set(object, name, None);
    }
}

/// Leaves out what Kubernetes does not write: fields of the metadata that say nothing.
pub(super) fn normalize(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Number(number) => name != "generation" || number.as_i64() != Some(0),
        Value::Bool(_) => true,
    });
}

/// The texts of a list in the metadata.
pub(super) fn texts(object: &Value, name: &str) -> Vec<String> {
    let items = field(object, name).as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
