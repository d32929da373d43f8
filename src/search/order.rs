//! In which order rows are given: several fields, each up or down, and always a total order.

use std::cmp::Ordering;

use crate::search::{Facts, SearchError, fields, time};
use kubefold_wire::selector::{FieldPath, text_of};

/// Fields that an order may name.
const FIELDS_MAX: usize = 16;

/// What rows are ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderField {
    /// The member's name.
    Cluster,
    /// The namespace; empty for cluster-scoped kinds.
    Namespace,
    /// The object's own name.
    Name,
    /// The kind, then its group.
    Kind,
    /// `metadata.creationTimestamp`, a time.
    Created,
    /// When it was deleted, a time; of what exists 0.
    Deleted,
    /// The row's revision, a number.
    Revision,
    /// The UID.
    Uid,
    /// The first value that is neither null nor absent at a path.
    Path(FieldPath),
}

/// One field of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// Which.
    pub field: OrderField,
    /// The greatest first.
    pub descending: bool,
}

/// A value that rows are ordered by. Values of different types are ordered as the types stand here: what is absent first.
/// Texts are ordered by their bytes, as which Kubernetes' times, all of them in UTC, are ordered as times.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// There is none, or it is null, an object or an array.
    Absent,
    /// False before true.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
}

/// An order of rows that leaves none of them equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    fields: Vec<OrderBy>,
}

impl Value {
    /// Reads what a JSON document has.
    pub fn of_json(raw: &str) -> Self {
        match raw.as_bytes().first() {
            Some(b'"') => text_of(raw).map_or(Self::Absent, |text| Self::Text(text.into_owned())),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'-' | b'0'..=b'9') => match (raw.parse(), raw.parse()) {
                (Ok(whole), _) => Self::Integer(whole),
                (_, Ok(number)) => Self::Number(number),
                _ => Self::Absent,
            },
            _ => Self::Absent,
        }
    }

    /// The place of its type among the types.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Bool(_) => 1,
            Self::Integer(_) | Self::Number(_) => 2,
            Self::Text(_) => 3,
        }
    }

    /// Orders two values.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Integer(one), Self::Integer(other)) => one.cmp(other),
            (Self::Integer(one), Self::Number(other)) => compare_numbers(*one, *other),
            (Self::Number(one), Self::Integer(other)) => compare_numbers(*other, *one).reverse(),
            // No JSON number is none.
            (Self::Number(one), Self::Number(other)) => one.partial_cmp(other).unwrap_or(Ordering::Equal),
            (Self::Text(one), Self::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Orders a whole number and another by their values, as near as 2^63 too.
pub(super) fn compare_numbers(whole: i64, other: f64) -> Ordering {
    /// 2^63
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if other >= BEYOND {
        return Ordering::Less;
    }
    if other < -BEYOND {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation, reason = "it is a whole number within 64 bits")]
    let below = other.floor() as i64;
    let is_above = other > other.floor();
    whole.cmp(&below).then(if is_above { Ordering::Less } else { Ordering::Equal })
}

impl OrderField {
    /// Reads a field's name, or a path with a dot in it.
    ///
    /// Errors: it is neither.
    pub fn parse(text: &str) -> Result<Self, SearchError> {
        let trimmed = text.trim();
        Ok(match trimmed.strip_prefix('.').unwrap_or(trimmed) {
            "cluster" => Self::Cluster,
            "namespace" | "metadata.namespace" => Self::Namespace,
            "name" | "metadata.name" => Self::Name,
            "kind" => Self::Kind,
            "created_at" | "creationTimestamp" | "metadata.creationTimestamp" => Self::Created,
            "deleted_at" => Self::Deleted,
            "resource_version" | "resourceVersion" | "metadata.resourceVersion" => Self::Revision,
            "uid" | "metadata.uid" => Self::Uid,
            _ => {
                let path = Some(trimmed).filter(|text| text.contains('.')).and_then(fields::path_of);
                Self::Path(path.ok_or_else(|| SearchError::Order(text.to_owned()))?)
            }
        })
    }

    /// Says whether only the whole document of a row has it.
    pub fn is_of_document(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Created)
    }

    fn compare(&self, facts: &Facts<'_>, json: &str, value: &Value) -> Ordering {
        match (self, value) {
            (Self::Cluster, Value::Text(text)) => facts.cluster.cmp(text),
            (Self::Namespace, Value::Text(text)) => facts.namespace.cmp(text),
            (Self::Name, Value::Text(text)) => facts.name.cmp(text),
            (Self::Uid, Value::Text(text)) => facts.uid.cmp(text),
            _ => self.value(facts, json).compare(value),
        }
    }

    fn value(&self, facts: &Facts<'_>, json: &str) -> Value {
        let text = |text: &str| Value::Text(text.to_owned());
        match self {
            Self::Cluster => text(facts.cluster),
            Self::Namespace => text(facts.namespace),
            Self::Name => text(facts.name),
            Self::Kind => Value::Text(format!("{}.{}", facts.kind, facts.group)),
            Self::Uid => text(facts.uid),
            Self::Revision => i64::try_from(facts.revision).map_or(Value::Absent, Value::Integer),
            Self::Deleted => Value::Integer(facts.deleted_us),
            Self::Created => {
                facts.created(json).and_then(|text| time::of_object(&text)).map_or(Value::Absent, Value::Integer)
            }
            Self::Path(path) => {
                let mut value = Value::Absent;
                path.walk(json, |raw| {
                    value = Value::of_json(raw);
                    value != Value::Absent
                });
                value
            }
        }
    }
}

impl OrderBy {
    /// Reads `field`, or `field` and `desc` or `asc` behind what parts them: a space in a URL, `_` in a label.
    ///
    /// Errors: as [`OrderField::parse`].
    pub fn parse(text: &str, parted_by: char) -> Result<Self, SearchError> {
        let text = text.trim();
        let (field, descending) = match text.rsplit_once(parted_by) {
            Some((field, "desc")) => (field, true),
            Some((field, "asc")) => (field, false),
            _ => (text, false),
        };
        Ok(Self { field: OrderField::parse(field)?, descending })
    }
}

impl Default for Order {
    fn default() -> Self {
        Self::ascending([OrderField::Namespace, OrderField::Name, OrderField::Cluster, OrderField::Uid])
    }
}

impl Order {
    fn ascending(fields: impl IntoIterator<Item = OrderField>) -> Self {
        Self { fields: fields.into_iter().map(|field| OrderBy { field, descending: false }).collect() }
    }

    /// Orders by these fields and, where they are equal, by cluster, namespace, name and UID. Without fields: by namespace, name,
    /// cluster and UID.
    ///
    /// Errors: more fields than an order may have.
    pub fn new(mut fields: Vec<OrderBy>) -> Result<Self, SearchError> {
        if fields.len() > FIELDS_MAX {
            return Err(SearchError::TooMany { what: "fields of orderby", found: fields.len(), max: FIELDS_MAX });
        }
        if fields.is_empty() {
            return Ok(Self::default());
        }
        for by in
            Self::ascending([OrderField::Cluster, OrderField::Namespace, OrderField::Name, OrderField::Uid]).fields
        {
            if !fields.iter().any(|known| known.field == by.field) {
                fields.push(by);
            }
        }
        Ok(Self { fields })
    }

    /// The fields, the last of which leave no two rows equal.
    pub fn fields(&self) -> &[OrderBy] {
        &self.fields
    }

    /// Says whether rows are ordered by what only their whole documents have.
    pub fn needs_document(&self) -> bool {
        self.fields.iter().any(|by| by.field.is_of_document())
    }

    /// What a row is ordered by: a value for each of [`Self::fields`].
    pub fn key(&self, facts: &Facts<'_>, json: &str) -> Vec<Value> {
        self.fields.iter().map(|by| by.field.value(facts, json)).collect()
    }

    /// Orders a row and one of that key, as two keys would be, and without making one.
    pub fn compare_row(&self, facts: &Facts<'_>, json: &str, key: &[Value]) -> Ordering {
        let each = self.fields.iter().zip(key);
        each.map(|(by, value)| {
            let order = by.field.compare(facts, json, value);
            if by.descending { order.reverse() } else { order }
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
    }

    /// Orders two rows by their keys.
    pub fn compare(&self, one: &[Value], other: &[Value]) -> Ordering {
        let each = self.fields.iter().zip(one.iter().zip(other));
        each.map(|(by, (one, other))| {
            let order = one.compare(other);
            if by.descending { order.reverse() } else { order }
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
    }

    /// The order as text: two orders of one text are the same.
    pub fn text(&self) -> String {
        let each = self.fields.iter().map(|by| format!("{:?} {}", by.field, by.descending));
        each.collect::<Vec<_>>().join(",")
    }
}
