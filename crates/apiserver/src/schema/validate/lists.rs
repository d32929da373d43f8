//! Lists that hold nothing twice.

use serde_json::{Map, Value};

use super::{bad_value, cause};
use crate::schema::{Topology, Type};
use kubefold_wire::status::Cause;

pub(super) fn validate(typed: Type<'_>, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(typed, value, "", &mut causes);
    causes
}

fn walk(typed: Type<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if typed.go().is_some() {
        return;
    }
    match value {
        Value::Object(object) => {
            let is_map = typed.values().is_some();
            for (key, value) in object {
                let Some(typed) = typed.field(key) else { continue };
                let at = match (is_map, path.is_empty()) {
                    (true, _) => format!("{path}[{key}]"),
                    (false, true) => key.clone(),
                    (false, false) => format!("{path}.{key}"),
                };
                walk(typed, value, &at, causes);
            }
        }
        Value::Array(items) => {
            repeated(typed, items, path, causes);
            if let Some(item) = typed.items() {
                for (index, value) in items.iter().enumerate() {
                    walk(item, value, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

fn repeated(typed: Type<'_>, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let keyed: Vec<Value> = match typed.topology() {
        Topology::Set => items.to_vec(),
        Topology::Keyed(keys) => {
            let of = |item: &Value| {
                let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                Value::Object(present.collect::<Map<_, _>>())
            };
            items.iter().map(of).collect()
        }
        _ => return,
    };
    for (index, item) in keyed.iter().enumerate() {
        // The second of several is told, the others are not.
        if keyed.iter().take(index).filter(|before| *before == item).count() == 1 {
            let message = format!("Duplicate value: {}", bad_value(item));
            causes.push(cause("FieldValueDuplicate", message, &format!("{path}[{index}]")));
        }
    }
}
