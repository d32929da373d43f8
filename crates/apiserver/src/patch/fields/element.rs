//! One step from a value to a part of it.

use std::cmp::Ordering;

use kubefold_wire::golang;
use serde_json::{Number, Value};

/// One step from a value to a part of it. The order is that of `managedFields`.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field or key of an object.
    Field(String),
    /// An item of a list, by the values of its key fields, which are in the order of their names.
    Key(Vec<(String, Value)>),
    /// An item of a list, by its value.
    Value(Value),
    /// An item of a list, by its place.
    Index(i64),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                let pair = |(left, right): (&(String, Value), &(String, Value))| {
                    left.0.cmp(&right.0).then_with(|| order(&left.1, &right.1))
                };
                let differs = left.iter().zip(right).map(pair).find(|order| order.is_ne());
                differs.unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (Self::Value(left), Self::Value(right)) => order(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

impl std::fmt::Display for Element {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name}={}", shown_value(value))).collect();
                write!(out, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(out, "[={}]", shown_value(value)),
            Self::Index(index) => write!(out, "[{index}]"),
        }
    }
}

/// A value as structured-merge-diff prints it.
///
/// Source: structured-merge-diff `value/value.go`, `ToString`.
fn shown_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => golang::quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(shown_value).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name}={}", shown_value(value))).collect(),
        scalar => golang::plain(scalar),
    }
}

/// A path as messages have it, such as `.spec.containers[name="web"].image`.
pub fn shown(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

/// The order of values of any kinds: numbers, texts, truths, lists, objects, null.
fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let differs = left.iter().zip(right).map(|(left, right)| order(left, right)).find(|order| order.is_ne());
            differs.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let sorted = |fields: &serde_json::Map<String, Value>| {
                let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                fields
            };
            Element::Key(sorted(left)).cmp(&Element::Key(sorted(right)))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => left.as_f64().unwrap_or_default().total_cmp(&right.as_f64().unwrap_or_default()),
    }
}

/// Says whether two values are the same, whichever way a number is written and fields are ordered.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => numbers(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let has = |(name, value): (&String, &Value)| right.get(name).is_some_and(|other| same(value, other));
            left.len() == right.len() && left.iter().all(has)
        }
        (left, right) => left == right,
    }
}
