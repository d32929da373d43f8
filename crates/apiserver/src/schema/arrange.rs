//! An object of a built-in kind as Go prints it: its fields in the order of Go's struct, empty ones left out, those
//! that Go always prints filled with zeros, keys of maps sorted, quantities and times in their one form.
//!
//! Source: Go `encoding/json`; kubernetes/apimachinery `pkg/api/resource/quantity.go`, `pkg/apis/meta/v1/time.go`.

use serde_json::{Map, Value};

use crate::schema::{Field, GoKind, Omit, Type};
use kubefold_wire::quantity::Quantity;

/// Puts an object into the form in which Go prints it. Fields that the type does not have are dropped.
///
/// An object of a type that Go does not know (a custom resource) has the keys of all its objects sorted.
pub fn arrange(typed: Type<'_>, value: Value) -> Value {
    arranged(typed, value, Kept::AsWritten)
}

/// Puts an object into the form in which Go prints it after it was stored.
pub fn arrange_stored(typed: Type<'_>, value: Value) -> Value {
    arranged(typed, value, Kept::AsStored)
}

/// What Go has of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// What its JSON says.
    AsWritten,
    /// What storage keeps of it: protobuf does not tell an empty list from none. Only types of k8s.io/api are stored
    /// so; definitions are stored as JSON.
    AsStored,
}

fn arranged(typed: Type<'_>, value: Value, kept: Kept) -> Value {
    match (typed.go().map(|go| go.kind), value) {
        (None, value) => sorted(value),
        (Some(GoKind::Struct), Value::Object(object)) => structure(typed, object, kept),
        (Some(GoKind::List), Value::Array(items)) => match typed.items() {
            Some(item) => Value::Array(items.into_iter().map(|value| arranged(item, value, kept)).collect()),
            None => Value::Array(items),
        },
        (Some(GoKind::Map), Value::Object(object)) => match typed.values() {
            Some(values) => {
                let entries = object.into_iter().map(|(key, value)| (key, entry(values, value, kept)));
                let mut entries: Vec<_> = entries.collect();
                entries.sort_by(|left, right| left.0.cmp(&right.0));
                Value::Object(entries.into_iter().collect())
            }
            None => Value::Object(object),
        },
        (Some(kind), Value::Null) if !typed.go().is_some_and(|go| go.pointer) => zero(typed, kind, kept),
        (Some(GoKind::Quantity), value) => quantity(value),
        (Some(GoKind::Time), Value::String(text)) => time(text, 0),
        (Some(GoKind::MicroTime), Value::String(text)) => time(text, 6),
        (_, value) => value,
    }
}

fn entry(values: Type<'_>, value: Value, kept: Kept) -> Value {
    match arranged(values, value, kept) {
        // A map of bytes holds empty ones, never none.
        Value::Null if values.go().is_some_and(|go| go.kind == GoKind::Bytes) => "".into(),
        value => value,
    }
}

fn structure(typed: Type<'_>, mut object: Map<String, Value>, kept: Kept) -> Value {
    let forgets_empty = kept == Kept::AsStored && typed.name().is_some_and(|name| name.starts_with("io.k8s.api."));
    let mut out = Map::new();
    for (field, typed) in typed.fields() {
        let value = object.shift_remove(&field.name).unwrap_or(Value::Null);
        let mut value = arranged(typed, value, kept);
        if forgets_empty && typed.items().is_some() && value.as_array().is_some_and(Vec::is_empty) {
            value = Value::Null;
        }
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
fn zero(typed: Type<'_>, kind: GoKind, kept: Kept) -> Value {
    match kind {
        GoKind::Bool => false.into(),
        GoKind::Int32 | GoKind::Int64 | GoKind::Double | GoKind::IntOrString => 0.into(),
        GoKind::Text => "".into(),
        GoKind::Quantity => "0".into(),
        GoKind::Duration => "0s".into(),
        GoKind::Struct => structure(typed, Map::new(), kept),
        _ => Value::Null,
    }
}

fn quantity(value: Value) -> Value {
    let canonical = match &value {
        Value::String(text) => Quantity::parse(text.trim()),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return value,
    };
    // Of another form than it must be: for others to refuse.
    canonical.map_or(value, |quantity| quantity.to_string().into())
}

/// A time in UTC with so many digits of a second.
fn time(text: String, digits: u8) -> Value {
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return text.into() };
    if digits == 0 && text.len() == 20 && text.ends_with('Z') {
        return text.into();
    }
    let unit = if digits == 0 { jiff::Unit::Second } else { jiff::Unit::Microsecond };
    let cut = jiff::TimestampRound::new().smallest(unit).mode(jiff::RoundMode::Trunc);
    let Ok(time) = time.round(cut) else { return text.into() };
    format!("{time:.*}", usize::from(digits)).into()
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

    #[test]
    fn what_go_would_not_write_is_not_kept() {
        let types = builtin();
        let service = json!({
            "kind": "Service", "spec": {"clusterIP": "", "ports": [{"port": 80, "name": ""}], "selector": {}},
            "metadata": {"labels": {"b": "1", "a": null}, "name": "x", "creationTimestamp": null}, "apiVersion": "v1",
            "strange": 1,
        });
        let expected = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"","b":"1"}},"spec":{"ports":[{"port":80,"targetPort":0}]},"status":{"loadBalancer":{}}}"#;
        let typed = types.named("io.k8s.api.core.v1.Service").unwrap();
        assert_eq!(arrange_stored(typed, service).to_string(), expected);
        // Go always prints the rules of a role; storage has lost that there was a list.
        let role = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "rules": []});
        let typed = types.named("io.k8s.api.rbac.v1.Role").unwrap();
        assert_eq!(arrange(typed, role.clone())["rules"], json!([]));
        assert_eq!(arrange_stored(typed, role)["rules"], Value::Null);
    }

    #[test]
    fn times_are_written_in_utc_with_the_digits_of_their_type() {
        assert_eq!(time("2026-01-01T01:00:00.7+01:00".into(), 0), "2026-01-01T00:00:00Z");
        assert_eq!(time("2026-01-01T00:00:00Z".into(), 6), "2026-01-01T00:00:00.000000Z");
        assert_eq!(time("soon".into(), 0), "soon");
    }

    /// Turns the fields of structs and the keys of maps round, and takes away what is null.
    fn disordered(typed: Type<'_>, value: Value) -> Value {
        match (typed.go().map(|go| go.kind), value) {
            (Some(GoKind::Struct | GoKind::Map), Value::Object(object)) => {
                let within = |(name, value): (String, Value)| match typed.field(&name) {
                    Some(inner) => (name, disordered(inner, value)),
                    None => (name, value),
                };
                let is_struct = typed.go().is_some_and(|go| go.kind == GoKind::Struct);
                let kept = object.into_iter().rev().filter(|(_, value)| !is_struct || !value.is_null());
                kept.map(within).collect()
            }
            (Some(GoKind::List), Value::Array(items)) => match typed.items() {
                Some(inner) => items.into_iter().map(|item| disordered(inner, item)).collect(),
                None => Value::Array(items),
            },
            (_, value) => value,
        }
    }

    /// Takes away the nulls that Go prints of a pointer to a zero time, which JSON does not tell from no pointer.
    fn without_zero_pointers(typed: Type<'_>, value: Value) -> Value {
        match (typed.go().map(|go| go.kind), value) {
            (Some(GoKind::Struct), Value::Object(mut object)) => {
                let fields = typed.fields().filter_map(|(field, typed)| {
                    let value = without_zero_pointers(typed, object.shift_remove(&field.name)?);
                    let is_left_out = value.is_null() && field.omit == Omit::Empty && typed.go()?.pointer;
                    (!is_left_out).then(|| (field.name.clone(), value))
                });
                fields.collect()
            }
            (Some(GoKind::Map), Value::Object(object)) => match typed.values() {
                Some(inner) => {
                    object.into_iter().map(|(key, value)| (key, without_zero_pointers(inner, value))).collect()
                }
                None => Value::Object(object),
            },
            (Some(GoKind::List), Value::Array(items)) => match typed.items() {
                Some(inner) => items.into_iter().map(|item| without_zero_pointers(inner, item)).collect(),
                None => Value::Array(items),
            },
            (_, value) => value,
        }
    }

    /// The oracle is Go: what it prints of objects that protobuf had.
    #[test]
    fn what_go_prints_is_what_it_prints_again() {
        let text = include_str!("../../../wire/src/protobuf/testdata/vectors.txt");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let (types, mut count) = (builtin(), 0);
        for chunk in lines.chunks_exact(4) {
            let words: Vec<&str> = chunk[0].split(' ').collect();
            let (group, version) = words[0].split_once('/').unwrap_or(("", words[0]));
            let Some(typed) = crate::schema::builtin_kind(group, version, words[1]).and_then(|name| types.named(name))
            else {
                continue;
            };
            let printed = without_zero_pointers(typed, serde_json::from_str(chunk[2]).unwrap());
            assert_eq!(arrange(typed, printed.clone()).to_string(), printed.to_string(), "{}", chunk[0]);
            assert_eq!(arrange_stored(typed, printed.clone()).to_string(), printed.to_string(), "stored {}", chunk[0]);
            let again = arrange(typed, disordered(typed, printed.clone()));
            assert_eq!(again.to_string(), printed.to_string(), "disordered {}", chunk[0]);
            count += 1;
        }
        assert!(count > 150, "only {count} vectors");
    }
}
