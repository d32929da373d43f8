//! A custom resource as it is stored: metadata read, unknown fields pruned, nulls dropped, defaults filled in.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (`schemaCoercingDecoder`,
//! `unstructuredDefaulter`), `pkg/apiserver/schema/{pruning,defaulting,objectmeta}/algorithm.go`.

use kubefold_wire::golang;
use serde_json::{Map, Value};

use crate::schema::{DecodeError, Text, Type, decode, validate::bad_value};

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Brings an object into the form that is stored. Answers which fields were unknown, as findings of strictness.
///
/// Errors: what is wrong with its metadata, or with that of an object inside.
pub fn conform(typed: Type<'_>, object: &mut Value) -> Result<Vec<String>, DecodeError> {
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        unknown.extend(read_metadata(typed, metadata)?.into_iter().map(|field| format!("metadata.{field}")));
    }
    unknown.extend(prune(typed, object));
    let mut embedded = Vec::new();
    for (field, typed) in typed.fields().filter(|(field, _)| field.name != "metadata") {
        if let Some(value) = object.get_mut(&field.name) {
            read_embedded(typed, value, &field.name, &mut embedded)?;
        }
    }
    embedded.sort();
    unknown.extend(embedded);
    drop_nulls(typed, object);
    fill_defaults(typed, object);
    Ok(unknown.into_iter().map(|field| format!("unknown field {}", golang::quoted(&field))).collect())
}

/// Reads metadata as Go does; answers the names of unknown fields.
fn read_metadata(typed: Type<'_>, metadata: &mut Value) -> Result<Vec<String>, DecodeError> {
    let Some(meta) = typed.types().named(METADATA) else { return Ok(Vec::new()) };
    let text = metadata.to_string();
    let decoded = decode(meta, &Text::read(&text)?)?;
    *metadata = decoded.object;
    let unknown = decoded.findings.iter().filter_map(|finding| {
        let field = finding.strip_prefix("unknown field \"")?.strip_suffix('"')?;
        Some(field.to_owned())
    });
    Ok(unknown.collect())
}

fn read_embedded(typed: Type<'_>, value: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), DecodeError> {
    if typed.go().is_some() {
        return Ok(());
    }
    match value {
        Value::Object(object) => {
            if typed.is_embedded() {
                read_envelope(typed, object, path, unknown)?;
            }
            for (key, value) in object.iter_mut() {
                if let Some(typed) = typed.field(key) {
                    read_embedded(typed, value, &format!("{path}.{key}"), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(typed) = typed.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    read_embedded(typed, item, &format!("{path}[{index}]"), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn read_envelope(
    typed: Type<'_>,
    object: &mut Map<String, Value>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), DecodeError> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_string()) {
            return Err(DecodeError::NoString { path: format!("{path}.{name}"), value: bad_value(value) });
        }
    }
    if let Some(metadata) = object.get_mut("metadata") {
        let before = bad_value(metadata);
        let wrong = |why| {
            let (path, value, source) = (path.to_owned(), before, Box::new(why));
            DecodeError::Metadata { path, value, source }
        };
        let fields = read_metadata(typed, metadata).map_err(wrong)?;
        unknown.extend(fields.into_iter().map(|field| format!("{path}.metadata.{field}")));
    }
    Ok(())
}

/// Removes the fields that the type does not have. Answers their paths, sorted.
pub fn prune(typed: Type<'_>, object: &mut Value) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_at(Some(typed), object, "", &mut pruned);
    pruned.sort();
    pruned
}

fn prune_at(typed: Option<Type<'_>>, value: &mut Value, path: &str, pruned: &mut Vec<String>) {
    if typed.is_some_and(|typed| typed.go().is_some()) {
        return;
    }
    match value {
        Value::Object(object) => {
            let embedded = typed.is_some_and(Type::is_embedded);
            let open = typed.is_some_and(Type::is_open);
            let keys: Vec<String> = object.keys().cloned().collect();
            for key in keys {
                if embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match typed.and_then(|typed| typed.field(&key)) {
                    Some(typed) => {
                        if let Some(value) = object.get_mut(&key) {
                            prune_at(Some(typed), value, &at, pruned);
                        }
                    }
                    None if open => {}
                    None => {
                        object.shift_remove(&key);
                        pruned.push(at);
                    }
                }
            }
        }
        Value::Array(items) => {
            let open = typed.is_some_and(Type::is_open);
            let typed = typed.and_then(Type::items);
            if typed.is_none() && open {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                prune_at(typed, item, &format!("{path}[{index}]"), pruned);
            }
        }
        _ => {}
    }
}

/// A `null` where none may be is as nothing, unless a default takes its place.
fn drop_nulls(typed: Type<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| {
                let typed = typed.field(key).filter(|typed| typed.go().is_none());
                !typed.is_some_and(|typed| value.is_null() && !typed.is_nullable() && typed.default().is_none())
            });
            for (key, value) in object.iter_mut() {
                if let Some(typed) = typed.field(key).filter(|typed| typed.go().is_none()) {
                    drop_nulls(typed, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(typed) = typed.items() {
                items.iter_mut().for_each(|item| drop_nulls(typed, item));
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of fields that are missing, or `null` where none may be. Built-in types have none here.
pub fn fill_defaults(typed: Type<'_>, value: &mut Value) {
    if typed.go().is_some() {
        return;
    }
    let is_refused = |typed: Type<'_>, value: &Value| value.is_null() && !typed.is_nullable();
    match value {
        Value::Object(object) => {
            for (field, typed) in typed.fields().filter(|(_, typed)| typed.go().is_none()) {
                let Some(default) = typed.default() else { continue };
                if object.get(&field.name).is_none_or(|value| is_refused(typed, value)) {
                    object.insert(field.name.clone(), default.clone());
                }
            }
            for (key, value) in object.iter_mut() {
                let Some(inner) = typed.field(key) else { continue };
                if let Some(default) = typed.values().and_then(Type::default)
                    && is_refused(inner, value)
                {
                    *value = default.clone();
                }
                fill_defaults(inner, value);
            }
        }
        Value::Array(items) => {
            let Some(typed) = typed.items() else { return };
            for item in items {
                if let Some(default) = typed.default()
                    && is_refused(typed, item)
                {
                    *item = default.clone();
                }
                fill_defaults(typed, item);
            }
        }
        _ => {}
    }
}
