//! The one form in which Go writes a value of a built-in type: which fields, in which order, what is left out.
//!
//! A client may write `labels: {}`, `1000m` or a field that nobody knows. What a kube-apiserver stores of it is what
//! its types hold, as their encoder writes it. The fields come from Kubernetes' own types (`forms.txt`).

use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Map, Value};

use super::quantity;

/// The types of one Kubernetes version.
pub(super) struct Forms {
    types: Vec<Form>,
    names: HashMap<&'static str, usize>,
}

/// A type.
struct Form {
    name: &'static str,
    fields: Vec<Field>,
}

struct Field {
    name: &'static str,
    presence: Presence,
    shape: Shape,
}

/// When a field is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    /// As null where it is unset.
    OrNull,
    UnlessEmpty,
    WhereSet,
}

#[derive(Clone)]
enum Shape {
    Any,
    Text,
    Truth,
    Number,
    Bytes,
    Quantity,
    Time,
    MicroTime,
    NumberOrText,
    List(Box<Self>),
    Map(Box<Self>),
    Type(usize),
}

/// The types of the built-in kinds.
pub(super) static FORMS: LazyLock<Forms> = LazyLock::new(|| Forms::read(include_str!("forms.txt")));

impl Forms {
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<_> = lines().filter(|line| !line.starts_with('\t')).collect();
        let names: HashMap<_, _> = names.into_iter().enumerate().map(|(index, name)| (name, index)).collect();
        let mut types: Vec<Form> = Vec::with_capacity(names.len());
        for line in lines() {
            let Some(field) = line.strip_prefix('\t') else {
                types.push(Form { name: line, fields: Vec::new() });
                continue;
            };
            let mut words = field.split(' ');
            let (Some(name), Some(presence), Some(shape), Some(form)) =
                (words.next(), words.next(), words.next(), types.last_mut())
            else {
                continue;
            };
            let presence = match presence {
                "!" => Presence::Always,
                "n" => Presence::OrNull,
                "*" => Presence::WhereSet,
                _ => Presence::UnlessEmpty,
            };
            form.fields.push(Field { name, presence, shape: shape_of(shape, &names) });
        }
        Self { types, names }
    }

    /// Says whether there is such a type.
    pub(super) fn knows(&self, type_name: &str) -> bool {
        self.names.contains_key(type_name)
    }

    /// Brings a value of a type into its form.
    pub(super) fn normalize(&self, type_name: &str, value: &mut Value) {
        if let Some(index) = self.names.get(type_name) {
            let taken = value.take();
            *value = self.of_type(*index, taken);
        }
    }

    /// Calls back for a value and all in it that have a type with a name, the outer before the inner.
    pub(super) fn visit(&self, type_name: &str, value: &mut Value, visitor: &mut dyn FnMut(&'static str, &mut Value)) {
        if let Some(index) = self.names.get(type_name) {
            self.visit_shape(&Shape::Type(*index), value, visitor);
        }
    }

    fn visit_shape(&self, shape: &Shape, value: &mut Value, visitor: &mut dyn FnMut(&'static str, &mut Value)) {
        match shape {
            Shape::Type(index) => {
                let Some(form) = self.types.get(*index) else { return };
                visitor(form.name, value);
                let Some(object) = value.as_object_mut() else { return };
                for field in form.fields.iter().filter(|field| field.shape.leads_to_types()) {
                    if let Some(value) = object.get_mut(field.name) {
                        self.visit_shape(&field.shape, value, visitor);
                    }
                }
            }
            Shape::List(inner) => {
                value.as_array_mut().into_iter().flatten().for_each(|item| self.visit_shape(inner, item, visitor));
            }
            Shape::Map(inner) => {
                let values = value.as_object_mut().into_iter().flat_map(Map::values_mut);
                values.for_each(|value| self.visit_shape(inner, value, visitor));
            }
            _ => {}
        }
    }

    fn of_type(&self, index: usize, value: Value) -> Value {
        let Some(form) = self.types.get(index) else { return value };
        let mut given = match value {
            Value::Object(given) => given,
            Value::Null => Map::new(),
            // Of another type than it must be: for others to refuse.
            other => return other,
        };
        let mut object = Map::with_capacity(given.len().max(4));
        for field in &form.fields {
            let value = given.get_mut(field.name).map(Value::take).filter(|value| !value.is_null());
            let empty = || self.empty(&field.shape);
            let value = match (field.presence, value) {
                (Presence::Always, None) => empty(),
                (Presence::OrNull, None) => Value::Null,
                (_, None) => continue,
                (_, Some(value)) => self.of_shape(&field.shape, value),
            };
            // An empty list is not told from none in the form in which objects are stored.
            let value = if nothing_is_stored(form, &value) { Value::Null } else { value };
            if field.presence == Presence::UnlessEmpty && is_empty(&value) {
                continue;
            }
            object.insert(field.name.to_owned(), value);
        }
        Value::Object(object)
    }

    fn of_shape(&self, shape: &Shape, value: Value) -> Value {
        match (shape, value) {
            (Shape::Type(index), value) => self.of_type(*index, value),
            (Shape::List(inner), Value::Array(items)) => {
                items.into_iter().map(|item| self.of_item(inner, item)).collect()
            }
            // Go's encoder sorts the keys of a map.
            (Shape::Map(inner), Value::Object(map)) => {
                let round = matches!(**inner, Shape::Quantity);
                let mut entries: Vec<(String, Value)> = map.into_iter().collect();
                entries.sort_by(|left, right| left.0.cmp(&right.0));
                let value = |value| if round { canonical(value, true) } else { self.of_item(inner, value) };
                entries.into_iter().map(|(key, given)| (key, value(given))).collect()
            }
            (Shape::Quantity, value) => canonical(value, false),
            (Shape::Time, Value::String(text)) => time(text, 0),
            (Shape::MicroTime, Value::String(text)) => time(text, 6),
            (_, value) => value,
        }
    }

    /// An item of a list or map: null is one with nothing set.
    fn of_item(&self, shape: &Shape, value: Value) -> Value {
        if value.is_null() { self.empty(shape) } else { self.of_shape(shape, value) }
    }

    fn empty(&self, shape: &Shape) -> Value {
        match shape {
            Shape::Type(index) => self.of_type(*index, Value::Null),
            Shape::Text => "".into(),
            Shape::Truth => false.into(),
            Shape::Number | Shape::NumberOrText => 0.into(),
            Shape::Quantity => "0".into(),
            _ => Value::Null,
        }
    }
}

impl Shape {
    fn leads_to_types(&self) -> bool {
        match self {
            Self::Type(_) => true,
            Self::List(inner) | Self::Map(inner) => inner.leads_to_types(),
            _ => false,
        }
    }
}

fn shape_of(word: &str, names: &HashMap<&'static str, usize>) -> Shape {
    if let Some(inner) = word.strip_prefix('[') {
        return Shape::List(Box::new(shape_of(inner, names)));
    }
    if let Some(inner) = word.strip_prefix('{') {
        return Shape::Map(Box::new(shape_of(inner, names)));
    }
    match word {
        "text" => Shape::Text,
        "truth" => Shape::Truth,
        "number" => Shape::Number,
        "bytes" => Shape::Bytes,
        "quantity" => Shape::Quantity,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "intstr" => Shape::NumberOrText,
        name => names.get(name).map_or(Shape::Any, |index| Shape::Type(*index)),
    }
}

fn nothing_is_stored(form: &Form, value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) && form.name.starts_with("api.")
}

/// Go's idea of empty for what its encoder may leave out; a struct that may be left out (`omitzero`) is one when all
/// that is in it is.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn canonical(value: Value, to_milli: bool) -> Value {
    let text = match &value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return if value.is_null() { "0".into() } else { value },
    };
    quantity::Quantity::parse(&text).map_or(value, |quantity| {
        let quantity = if to_milli { quantity.rounded_to_milli() } else { quantity };
        quantity.to_string().into()
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_go_would_not_write_is_not_kept() {
        let mut service = json!({
            "kind": "Service", "spec": {"clusterIP": "", "ports": [{"port": 80, "name": ""}], "selector": {}},
            "metadata": {"labels": {"b": "1", "a": null}, "name": "x", "creationTimestamp": null}, "apiVersion": "v1",
            "strange": 1,
        });
        FORMS.normalize("api.core.v1.Service", &mut service);
        let expected = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","labels":{"a":"","b":"1"}},"spec":{"ports":[{"port":80,"targetPort":0}]},"status":{"loadBalancer":{}}}"#;
        assert_eq!(service.to_string(), expected);
    }

    #[test]
    fn times_are_written_in_utc_with_the_digits_of_their_type() {
        assert_eq!(time("2026-01-01T01:00:00.7+01:00".into(), 0), "2026-01-01T00:00:00Z");
        assert_eq!(time("2026-01-01T00:00:00Z".into(), 6), "2026-01-01T00:00:00.000000Z");
        assert_eq!(time("soon".into(), 0), "soon");
    }
}
