//! The parts of a value that are one value each by their type.

use serde_json::Value;

use super::{
    super::fields::Element,
    shape::{Atom, Shape},
};

/// The places of all lists and objects in a value that are atomic, such as `.spec.args`. What lies below keys that no type names
/// is not looked at.
///
/// Source: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/patch/smd.go` `findAtomics`.
pub(crate) fn atomics(shape: Shape<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    search(shape, value, "", &mut found);
    found
}

fn search(shape: Shape<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    match (shape.atom(Some(value)), value) {
        (Atom::List(list), Value::Array(items)) => {
            if list.items_by.is_none() {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                search(list.items, item, &format!("{path}[{index}]"), found);
            }
        }
        (Atom::Map(map), Value::Object(fields)) => {
            if map.atomic {
                found.push(path.to_owned());
            }
            for (name, value) in fields.iter().filter(|(name, _)| map.names(name)) {
                let Some(shape) = map.field(name) else { continue };
                search(shape, value, &format!("{path}{}", Element::Field(name.clone())), found);
            }
        }
        _ => {}
    }
}
