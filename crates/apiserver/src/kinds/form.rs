//! The one form in which Go writes a value of a built-in type: which fields, in which order, what is left out.
//!
//! A client may write `labels: {}`, `1000m` or a field that nobody knows. What a kube-apiserver stores of it is what
//! its types hold, as their encoder writes it.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Map, Value};

use super::quantity;
use crate::schema::{self, GoKind, Omit, Shape, Types, builtin};

/// The types of one Kubernetes version.
pub(super) struct Forms {
    types: Vec<Form>,
    names: HashMap<String, usize>,
}

/// A type.
struct Form {
    name: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    presence: Presence,
    shape: Look,
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

/// What a value looks like.
#[derive(Clone)]
enum Look {
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
pub(super) static FORMS: LazyLock<Forms> = LazyLock::new(|| Forms::of(&builtin()));

impl Forms {
    fn of(types: &Types) -> Self {
        // Each type with a name gets a place of its own first, since they refer to each other.
        let places: HashMap<usize, usize> =
            types.names.values().enumerate().map(|(place, node)| (*node, place)).collect();
        let field = |field: &schema::Field| -> Option<Field> {
            let node = types.nodes.get(field.node)?;
            let pointer = node.go.as_ref().is_some_and(|go| go.pointer);
            let kind = node.go.as_ref().map(|go| go.kind);
            let presence = match (field.omit, pointer, kind) {
                (Omit::Never, true, _) => Presence::OrNull,
                (Omit::Never, ..) => Presence::Always,
                (_, true, _) | (Omit::Empty, _, Some(GoKind::Raw | GoKind::SchemaOr)) => Presence::WhereSet,
                (Omit::Zero, ..) => Presence::UnlessEmpty,
                // A struct is never empty.
                (
                    _,
                    _,
                    Some(
                        GoKind::Struct
                        | GoKind::Time
                        | GoKind::MicroTime
                        | GoKind::Quantity
                        | GoKind::IntOrString
                        | GoKind::Duration,
                    ),
                ) => Presence::Always,
                _ => Presence::UnlessEmpty,
            };
            Some(Field { name: field.name.clone(), presence, shape: shape(types, field.node, &places) })
        };
        let form = |(name, node): (&String, &usize)| {
            let fields = match types.nodes.get(*node).map(|node| &node.shape) {
                Some(Shape::Object(fields)) => fields.iter().filter_map(field).collect(),
                _ => Vec::new(),
            };
            Form { name: name.clone(), fields }
        };
        let names = types.names.keys().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        Self { types: types.names.iter().map(form).collect(), names }
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
    pub(super) fn visit(&self, type_name: &str, value: &mut Value, visitor: &mut dyn FnMut(&str, &mut Value)) {
        if let Some(index) = self.names.get(type_name) {
            self.visit_shape(&Look::Type(*index), value, visitor);
        }
    }

    fn visit_shape(&self, shape: &Look, value: &mut Value, visitor: &mut dyn FnMut(&str, &mut Value)) {
        match shape {
            Look::Type(index) => {
                let Some(form) = self.types.get(*index) else { return };
                visitor(&form.name, value);
                let Some(object) = value.as_object_mut() else { return };
                for field in form.fields.iter().filter(|field| field.shape.leads_to_types()) {
                    if let Some(value) = object.get_mut(&field.name) {
                        self.visit_shape(&field.shape, value, visitor);
                    }
                }
            }
            Look::List(inner) => {
                value.as_array_mut().into_iter().flatten().for_each(|item| self.visit_shape(inner, item, visitor));
            }
            Look::Map(inner) => {
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
            let value = given.get_mut(&field.name).map(Value::take).filter(|value| !value.is_null());
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
            object.insert(field.name.clone(), value);
        }
        Value::Object(object)
    }

    fn of_shape(&self, shape: &Look, value: Value) -> Value {
        match (shape, value) {
            (Look::Type(index), value) => self.of_type(*index, value),
            (Look::List(inner), Value::Array(items)) => {
                items.into_iter().map(|item| self.of_item(inner, item)).collect()
            }
            // Go's encoder sorts the keys of a map.
            (Look::Map(inner), Value::Object(map)) => {
                let round = matches!(**inner, Look::Quantity);
                let mut entries: Vec<(String, Value)> = map.into_iter().collect();
                entries.sort_by(|left, right| left.0.cmp(&right.0));
                let value = |value| if round { canonical(value, true) } else { self.of_item(inner, value) };
                entries.into_iter().map(|(key, given)| (key, value(given))).collect()
            }
            (Look::Quantity, value) => canonical(value, false),
            (Look::Time, Value::String(text)) => time(text, 0),
            (Look::MicroTime, Value::String(text)) => time(text, 6),
            (_, value) => value,
        }
    }

    /// An item of a list or map: null is one with nothing set.
    fn of_item(&self, shape: &Look, value: Value) -> Value {
        if value.is_null() { self.empty(shape) } else { self.of_shape(shape, value) }
    }

    fn empty(&self, shape: &Look) -> Value {
        match shape {
            Look::Type(index) => self.of_type(*index, Value::Null),
            Look::Text => "".into(),
            Look::Truth => false.into(),
            Look::Number | Look::NumberOrText => 0.into(),
            Look::Quantity => "0".into(),
            _ => Value::Null,
        }
    }
}

impl Look {
    fn leads_to_types(&self) -> bool {
        match self {
            Self::Type(_) => true,
            Self::List(inner) | Self::Map(inner) => inner.leads_to_types(),
            _ => false,
        }
    }
}

fn shape(types: &Types, node: usize, places: &HashMap<usize, usize>) -> Look {
    if let Some(place) = places.get(&node) {
        return Look::Type(*place);
    }
    let Some(there) = types.nodes.get(node) else { return Look::Any };
    let inner = |node: usize| Box::new(shape(types, node, places));
    match (&there.shape, there.go.as_ref().map(|go| go.kind)) {
        (Shape::Named(target), _) => shape(types, *target, places),
        (Shape::List(items), _) => Look::List(inner(*items)),
        (Shape::Map(values), _) => Look::Map(inner(*values)),
        (_, Some(GoKind::Text)) => Look::Text,
        (_, Some(GoKind::Bool)) => Look::Truth,
        (_, Some(GoKind::Int32 | GoKind::Int64 | GoKind::Double)) => Look::Number,
        (_, Some(GoKind::Bytes)) => Look::Bytes,
        (_, Some(GoKind::Time)) => Look::Time,
        (_, Some(GoKind::MicroTime)) => Look::MicroTime,
        (_, Some(GoKind::Quantity)) => Look::Quantity,
        (_, Some(GoKind::IntOrString)) => Look::NumberOrText,
        _ => Look::Any,
    }
}

fn nothing_is_stored(form: &Form, value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) && form.name.starts_with("io.k8s.api.")
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
        FORMS.normalize("io.k8s.api.core.v1.Service", &mut service);
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
