//! The fields that an object has.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::fields::{Element, Set},
    shape::{Atom, Shape},
};

/// The fields that a valid object has: what its applier owns.
pub(crate) fn collect(shape: Shape<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    walk(shape, value, &mut Vec::new(), &mut set);
    set
}

fn walk(shape: Shape<'_>, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match shape.atom(Some(value)) {
        Atom::Scalar(_) => set.insert(path),
        Atom::List(list) if list.items_by.is_none() => set.insert(path),
        Atom::Map(map) if map.atomic => set.insert(path),
        Atom::List(list) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let steps: Vec<Option<Element>> = items.iter().map(|item| list.step(item).ok()).collect();
            let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
            for step in steps.iter().flatten() {
                if !seen.insert(step) {
                    twice.insert(step);
                }
            }
            for (item, step) in items.iter().zip(&steps) {
                let Some(step) = step else { continue };
                path.push(step.clone());
                if !twice.contains(step) {
                    walk(list.items, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Atom::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some(shape) = map.field(name) else { continue };
                path.push(Element::Field(name.clone()));
                walk(shape, value, path, set);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || !map.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}
