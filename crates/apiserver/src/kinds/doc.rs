//! Short words for what is read and set in a JSON document.

use serde_json::{Map, Value};

/// Reading.
pub(super) trait Doc {
    /// The value at `a.b.c`; null is none.
    fn at(&self, path: &str) -> Option<&Value>;

    /// Text at a path; empty if there is none.
    fn text(&self, path: &str) -> &str {
        self.at(path).map_or("", |value| value.as_str().unwrap_or(""))
    }

    /// A whole number at a path.
    fn number(&self, path: &str) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    /// `true` at a path.
    fn truth(&self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Says whether something stands at a path.
    fn has(&self, path: &str) -> bool {
        self.at(path).is_some()
    }

    /// The items of a list at a path.
    fn items(&self, path: &str) -> &[Value] {
        self.at(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The fields or keys of an object at a path.
    fn entries(&self, path: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.at(path).and_then(Value::as_object).into_iter().flatten()
    }
}

impl Doc for Value {
    fn at(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(self, |value, name| value.get(name)).filter(|value| !value.is_null())
    }
}

/// An object's field, made an object if there is none.
pub(super) fn inner<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let object = value.as_object_mut()?;
    let field = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if field.is_null() {
        *field = Value::Object(Map::new());
    }
    Some(field)
}

/// Sets what is not set.
pub(super) fn fill(value: &mut Value, name: &str, with: impl Into<Value>) {
    let Some(object) = value.as_object_mut() else { return };
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = with.into();
    }
}

/// Sets what is not set, or to what Go takes for not set.
pub(super) fn fill_empty(value: &mut Value, name: &str, with: impl Into<Value>) {
    let unset = match value.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Bool(_)) => false,
    };
    if unset && let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), with.into());
    }
}

/// The items of a list that is to be changed.
pub(super) fn items_mut<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}
