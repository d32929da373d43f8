//! FieldsV1: a set of fields as `managedFields` has it.
//!
//! Source: sigs.k8s.io/structured-merge-diff `fieldpath/serialize.go`, `serialize-pe.go`.

use std::collections::BTreeSet;

use kubefold_wire::golang;
use serde_json::{Map, Value};

use super::{Element, Set};

/// Why `fieldsV1` can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// Fields inside each other, more than are read.
    #[error("fields are nested too deep")]
    TooDeep,
    /// Something else stands where fields belong.
    #[error("fields must be an object")]
    NotAnObject,
    /// A step without a kind.
    #[error("key must be 2 characters long:")]
    Short,
    /// A step whose kind is not one letter before a colon.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// A place in a list that is no number.
    #[error("not an index: {0}")]
    Index(String),
    /// A value or keys of an item that are no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Sets nested deeper than this are not read: no object is as deep, and the walk is recursive.
const DEPTH_MAX: usize = 512;

impl Set {
    /// The set as `fieldsV1` has it, in its order.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        let steps: BTreeSet<&Element> = self.members.iter().chain(self.children.keys()).collect();
        for step in steps {
            let mut below = match self.children.get(step).map(Self::to_json) {
                Some(Value::Object(below)) => below,
                _ => Map::new(),
            };
            if !below.is_empty() && self.members.contains(step) {
                below.shift_insert(0, ".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(step.to_wire(), Value::Object(below));
        }
        Value::Object(out)
    }

    /// Reads what `fieldsV1` has. Steps of a kind that is not known are dropped, as a newer server's.
    ///
    /// Errors: why it can't be read.
    pub fn from_json(value: &Value) -> Result<Self, FieldsError> {
        Ok(read(value, DEPTH_MAX)?.0)
    }
}

/// What is below, and whether the place itself is in the set.
fn read(value: &Value, depth: usize) -> Result<(Set, bool), FieldsError> {
    let depth = depth.checked_sub(1).ok_or(FieldsError::TooDeep)?;
    let Value::Object(fields) = value else { return Err(FieldsError::NotAnObject) };
    let (mut set, mut is_member) = (Set::default(), false);
    for (key, value) in fields {
        if key == "." {
            is_member = true;
            continue;
        }
        let Some(step) = Element::from_wire(key)? else { continue };
        let (below, member) = read(value, depth)?;
        if member {
            set.members.insert(step.clone());
        }
        if !below.is_empty() {
            set.children.insert(step, below);
        }
    }
    let alone = set.is_empty();
    Ok((set, is_member || alone))
}

impl Element {
    /// Such as `f:spec` or `k:{"name":"web"}`.
    pub fn to_wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let each =
                    |(name, value): &(String, Value)| format!("{}:{}", Value::from(name.as_str()), golang::json(value));
                let fields: Vec<String> = fields.iter().map(each).collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", golang::json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads a step; `None` is of a kind that is not known.
    ///
    /// Errors: why it can't be read.
    pub fn from_wire(text: &str) -> Result<Option<Self>, FieldsError> {
        if text.len() < 2 {
            return Err(FieldsError::Short);
        }
        let missing = || FieldsError::NoColon(text.to_owned());
        let (kind, rest) = text.split_once(':').filter(|(kind, _)| kind.len() == 1).ok_or_else(missing)?;
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(serde_json::from_str(rest)?),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest)?;
                let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                Self::Key(fields)
            }
            "i" => Self::Index(rest.parse().map_err(|_| FieldsError::Index(rest.to_owned()))?),
            _ => return Ok(None),
        }))
    }
}
