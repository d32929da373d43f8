//! An object without some of its fields.

use serde_json::Value;

use super::{
    super::fields::{Element, Set},
    shape::{Atom, Shape},
};

/// The object without these fields. What has nothing left in it is null.
pub(crate) fn remove(shape: Shape<'_>, value: &Value, fields: &Set) -> Value {
    match shape.atom(Some(value)) {
        Atom::Scalar(_) => value.clone(),
        Atom::List(list) => {
            let Some(items) = value.as_array().filter(|items| !items.is_empty() && list.items_by.is_some()) else {
                return Value::Null;
            };
            let mut kept = Vec::new();
            for item in items {
                let Ok(step) = list.step(item) else {
                    kept.push(item.clone());
                    continue;
                };
                if fields.holds(&step) {
                    continue;
                }
                kept.push(part(Some(list.items), item, fields.below(&step)));
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        Atom::Map(map) => {
            let Some(object) = value.as_object().filter(|object| !object.is_empty() && !map.atomic) else {
                return Value::Null;
            };
            let mut kept = serde_json::Map::new();
            for (name, value) in object {
                let step = Element::Field(name.clone());
                if fields.holds(&step) {
                    continue;
                }
                kept.insert(name.clone(), part(map.field(name), value, fields.below(&step)));
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
    }
}

fn part(shape: Option<Shape<'_>>, value: &Value, fields: Option<&Set>) -> Value {
    match (shape, fields.filter(|fields| !fields.is_empty())) {
        (Some(shape), Some(fields)) => remove(shape, value, fields),
        _ => value.clone(),
    }
}

/// The set with each named field that it has something below.
///
/// Fields of structs have no owner of their own; so that they go with the last that is in them, they must have.
pub(crate) fn with_named_fields(set: &Set, shape: Option<Shape<'_>>) -> Set {
    let mut out = set.clone();
    let steps: Vec<Element> = set.steps().map(|(step, _)| step.clone()).collect();
    for step in steps {
        let Some(below) = set.below(&step) else { continue };
        let named = match (&step, shape.map(|shape| shape.atom(None))) {
            (Element::Field(name), Some(Atom::Map(map))) => map.names(name),
            _ => false,
        };
        let below = with_named_fields(below, shape.and_then(|shape| shape.below(&step)));
        out.replace(step, named, below);
    }
    out
}
