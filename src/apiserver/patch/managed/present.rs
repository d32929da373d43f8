//! An object as the types of a built-in kind hold it.

use serde_json::{Map, Value};

use super::super::Subject;
use crate::apiserver::schema::{Shape, Type};

/// Types nested deeper than this are not followed; none is, without a list or a pointer between.
const DEPTH_MAX: usize = 64;

/// The object that is there, without its managed fields; or the empty one.
///
/// A built-in kind is a struct, of which some fields are there even if they are empty: who sets such a field to
/// something adds no field. Nulls of lists and objects are none. A custom resource is what it is.
pub(crate) fn present(subject: &Subject<'_>, object: Option<&Value>) -> Value {
    let mut object = object.cloned().unwrap_or_else(|| {
        let mut empty = Map::new();
        empty.insert("apiVersion".to_owned(), subject.api_version.into());
        empty.insert("kind".to_owned(), subject.kind.into());
        Value::Object(empty)
    });
    super::drop_entries(&mut object);
    if let Some(of) = subject.schema.filter(|_| !subject.custom) {
        hold(of, &mut object, DEPTH_MAX);
    }
    object
}

fn hold(of: Type<'_>, value: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match (&of.node().shape, value) {
        (Shape::List(_), Value::Array(items)) => {
            let Some(of) = of.items() else { return };
            items.iter_mut().for_each(|item| hold(of, item, depth));
        }
        (Shape::Map(_), Value::Object(fields)) => {
            let Some(of) = of.field("") else { return };
            fields.values_mut().for_each(|value| hold(of, value, depth));
        }
        (Shape::Object(names), Value::Object(fields)) => {
            fields.retain(|name, value| !value.is_null() || stays_null(of, name));
            for (name, _) in names {
                let Some(field) = of.field(name) else { continue };
                match fields.get_mut(name) {
                    Some(value) => hold(field, value, depth),
                    None => {
                        let required = of.node().required.contains(name);
                        if let Some(zero) = zero(field, required, depth) {
                            fields.insert(name.clone(), zero);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

/// Times that are not set are written as null, but for those of metadata.
fn stays_null(of: Type<'_>, name: &str) -> bool {
    let is_text = of.field(name).is_some_and(|field| matches!(field.node().shape, Shape::Text));
    is_text && name != "creationTimestamp"
}

/// What a field is that nobody set; `None`: it is not there.
fn zero(of: Type<'_>, required: bool, depth: usize) -> Option<Value> {
    let zero = match of.node().shape {
        Shape::Text => Value::from(""),
        Shape::Integer | Shape::Number => Value::from(0),
        Shape::Truth => Value::from(false),
        Shape::Object(_) => Value::Object(Map::new()),
        _ => Value::Null,
    };
    let by_default = of.default() == Some(&zero);
    match (&of.node().shape, by_default) {
        (Shape::Object(_), true) => {
            let mut zero = zero;
            hold(of, &mut zero, depth);
            Some(zero)
        }
        (_, true) => Some(zero),
        (Shape::Text | Shape::Integer | Shape::Number | Shape::Truth, false) => required.then_some(zero),
        (_, false) => required.then_some(Value::Null),
    }
}
