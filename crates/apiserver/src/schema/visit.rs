//! Walks an object along the structs of its type.

use serde_json::{Map, Value};

use crate::schema::{Shape, Type};

/// Calls back for a value and all in it whose types are structs, the outer before the inner.
pub fn visit<'a>(typed: Type<'a>, value: &mut Value, visitor: &mut dyn FnMut(Type<'a>, &mut Value)) {
    match typed.shape() {
        Shape::Object(_) => {
            visitor(typed, value);
            let Some(object) = value.as_object_mut() else { return };
            for (field, typed) in typed.fields().filter(|(_, typed)| leads_to_structs(*typed)) {
                if let Some(value) = object.get_mut(&field.name) {
                    visit(typed, value, visitor);
                }
            }
        }
        Shape::List(_) => {
            let Some(items) = typed.items() else { return };
            value.as_array_mut().into_iter().flatten().for_each(|item| visit(items, item, visitor));
        }
        Shape::Map(_) => {
            let Some(values) = typed.values() else { return };
            let all = value.as_object_mut().into_iter().flat_map(Map::values_mut);
            all.for_each(|value| visit(values, value, visitor));
        }
        _ => {}
    }
}

fn leads_to_structs(typed: Type<'_>) -> bool {
    match typed.shape() {
        Shape::Object(_) => true,
        Shape::List(_) | Shape::Map(_) => typed.items().or_else(|| typed.values()).is_some_and(leads_to_structs),
        _ => false,
    }
}
