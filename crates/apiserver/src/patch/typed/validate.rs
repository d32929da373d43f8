//! Whether a value is of its type.

use std::collections::BTreeSet;

use kubefold_wire::golang;
use serde_json::Value;

use super::{
    super::fields::Element,
    Faults, fault,
    shape::{Atom, List, Map, Shape},
    within,
};

/// Whether a list may hold one item twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// It may: what is there is there.
    Allowed,
    /// It may not: nobody can say what is meant.
    Refused,
}

/// What is wrong with a value.
pub(crate) fn validate(shape: Shape<'_>, value: &Value, duplicates: Duplicates) -> Faults {
    match shape.atom(Some(value)) {
        Atom::Scalar(scalar) => scalar.check(Some(value), "").into_iter().collect(),
        Atom::List(list) => match value {
            Value::Null => Vec::new(),
            Value::Array(items) => validate_items(list, items, duplicates),
            value => vec![fault(format!("expected list, got &{{{}}}", golang::plain(value)))],
        },
        Atom::Map(map) => match value {
            Value::Null => Vec::new(),
            Value::Object(fields) => validate_fields(map, fields, duplicates),
            value => vec![fault(format!("expected map, got &{{{}}}", golang::plain(value)))],
        },
    }
}

fn validate_items(list: List<'_>, items: &[Value], duplicates: Duplicates) -> Faults {
    let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, item) in items.iter().enumerate() {
        let step = if list.items_by.is_none() {
            Element::Index(i64::try_from(index).unwrap_or(i64::MAX))
        } else {
            match list.step(item) {
                Ok(step) => step,
                Err(why) => {
                    faults.push(fault(format!("element {index}: {why}")));
                    return faults;
                }
            }
        };
        if list.items_by.is_some() && !seen.insert(step.clone()) && duplicates == Duplicates::Refused {
            faults.push(fault(format!("duplicate entries for key {step}")));
        }
        faults.extend(within(&step, validate(list.items, item, duplicates)));
    }
    faults
}

fn validate_fields(map: Map<'_>, fields: &serde_json::Map<String, Value>, duplicates: Duplicates) -> Faults {
    let mut faults = Vec::new();
    for (name, value) in fields {
        let step = Element::Field(name.clone());
        let Some(shape) = map.field(name) else {
            faults.extend(within(&step, vec![fault("field not declared in schema")]));
            return faults;
        };
        faults.extend(within(&step, validate(shape, value, duplicates)));
    }
    faults
}
