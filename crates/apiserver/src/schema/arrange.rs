//! An object of a built-in kind as Go prints it: its fields in the order of Go's struct, empty ones left out, those
//! that Go always prints filled with zeros, keys of maps sorted.
//!
//! Source: Go `encoding/json`.

use serde_json::{Map, Value};

use crate::schema::{Field, GoKind, Omit, Type};

/// Puts an object into the form in which Go prints it. Fields that the type does not have are dropped.
///
/// An object of a type that Go does not know (a custom resource) has the keys of all its objects sorted.
pub fn arrange(typed: Type<'_>, value: Value) -> Value {
    match (typed.go().map(|go| go.kind), value) {
        (None, value) => sorted(value),
        (Some(GoKind::Struct), Value::Object(object)) => structure(typed, object),
        (Some(GoKind::List), Value::Array(items)) => match typed.items() {
            Some(item) => Value::Array(items.into_iter().map(|value| arrange(item, value)).collect()),
            None => Value::Array(items),
        },
        (Some(GoKind::Map), Value::Object(object)) => match typed.values() {
            Some(values) => {
                let mut entries: Vec<_> = object.into_iter().map(|(key, value)| (key, entry(values, value))).collect();
                entries.sort_by(|left, right| left.0.cmp(&right.0));
                Value::Object(entries.into_iter().collect())
            }
            None => Value::Object(object),
        },
        (Some(kind), Value::Null) if !typed.go().is_some_and(|go| go.pointer) => zero(typed, kind),
        (_, value) => value,
    }
}

fn entry(values: Type<'_>, value: Value) -> Value {
    match arrange(values, value) {
        // A map of bytes holds empty ones, never none.
        Value::Null if values.go().is_some_and(|go| go.kind == GoKind::Bytes) => "".into(),
        value => value,
    }
}

fn structure(typed: Type<'_>, mut object: Map<String, Value>) -> Value {
    let mut out = Map::new();
    for (field, typed) in typed.fields() {
        let value = object.shift_remove(&field.name).unwrap_or(Value::Null);
        let value = arrange(typed, value);
        if !is_omitted(field, typed, &value) {
            out.insert(field.name.clone(), value);
        }
    }
    Value::Object(out)
}

fn is_omitted(field: &Field, typed: Type<'_>, value: &Value) -> bool {
    let Some(go) = typed.go() else { return value.is_null() };
    match field.omit {
        Omit::Never => false,
        Omit::Zero => value.is_null(),
        Omit::Empty if go.pointer => value.is_null(),
        Omit::Empty => match go.kind {
            GoKind::Bool => value == &Value::Bool(false),
            GoKind::Int32 | GoKind::Int64 | GoKind::Double => value.as_f64() == Some(0.0),
            GoKind::Text | GoKind::Bytes => value.is_null() || value.as_str() == Some(""),
            GoKind::List => value.as_array().is_none_or(Vec::is_empty),
            GoKind::Map => value.as_object().is_none_or(Map::is_empty),
            // Structs are never empty.
            _ => false,
        },
    }
}

/// What Go prints of a value that was never set.
fn zero(typed: Type<'_>, kind: GoKind) -> Value {
    match kind {
        GoKind::Bool => false.into(),
        GoKind::Int32 | GoKind::Int64 | GoKind::Double | GoKind::IntOrString => 0.into(),
        GoKind::Text => "".into(),
        GoKind::Quantity => "0".into(),
        GoKind::Duration => "0s".into(),
        GoKind::Struct => structure(typed, Map::new()),
        _ => Value::Null,
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(object) => {
            let mut entries: Vec<_> = object.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Object(entries.into_iter().collect())
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[test]
    fn prints_as_go_does() {
        let types = builtin();
        let typed = types.named("io.k8s.api.apps.v1.Deployment").unwrap();
        let given = json!({
            "status": {"replicas": 0},
            "spec": {
                "paused": false,
                "template": {"spec": {"containers": [{"image": "i", "name": "c", "ports": []}]}},
                "selector": {"matchLabels": {"b": "2", "a": "1"}},
                "replicas": 0,
                "unknown": 1,
            },
            "metadata": {"name": "a", "creationTimestamp": null},
            "apiVersion": "apps/v1",
            "kind": "Deployment",
        });
        let wanted = concat!(
            r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"a"},"spec":{"replicas":0,"#,
            r#""selector":{"matchLabels":{"a":"1","b":"2"}},"template":{"metadata":{},"spec":{"containers":"#,
            r#"[{"name":"c","image":"i","resources":{}}]}},"strategy":{}},"status":{}}"#
        );
        assert_eq!(arrange(typed, given).to_string(), wanted);
        let bare = arrange(typed, json!({})).to_string();
        assert_eq!(
            bare,
            r#"{"metadata":{},"spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#
        );
    }
}
