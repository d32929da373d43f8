//! The entries of `managedFields`, read and written.

use std::collections::BTreeMap;

use kubefold_wire::golang::{self, Quoted};
use serde_json::{Map, Value};

use crate::patch::{
    Subject,
    fields::{FieldsError, Set},
};

/// How somebody came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// By an apply.
    Apply,
    /// By any other write.
    Update,
}

/// Whose an entry is. One manager has one of applies, and one of updates in each version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    /// The name that the client gave.
    pub(crate) manager: String,
    /// `Apply` or `Update`.
    pub(crate) operation: Operation,
    /// Empty for applies.
    pub(crate) api_version: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

/// What one owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The fields.
    pub(crate) set: Set,
    /// The version that the fields are named in.
    pub(crate) api_version: String,
    /// By an apply.
    pub(crate) applied: bool,
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed {
    /// Who owns what.
    pub(crate) fields: BTreeMap<Owner, Owned>,
    /// Since when. Of those that are in `fields`, some may have none, and some that are not may be left.
    pub(crate) times: BTreeMap<Owner, String>,
}

impl Owner {
    /// Who writes by this request.
    pub(crate) fn new(manager: &str, operation: Operation, subject: &Subject<'_>) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => subject.api_version,
        };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subject.subresource.to_owned(),
        }
    }

    /// Stands for who writes, until it is clear whether anything is owned.
    pub(crate) fn current() -> Self {
        Self::bucket("", "")
    }

    /// An owner of updates to the object itself.
    pub(crate) fn bucket(manager: &str, api_version: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            operation: Operation::Update,
            api_version: api_version.to_owned(),
            subresource: String::new(),
        }
    }

    /// As messages name it.
    ///
    /// Source: kubernetes/apimachinery `managedfields/internal/conflict.go`, `printManager`.
    pub(crate) fn shown(&self) -> String {
        let mut shown = golang::quoted(&self.manager);
        if !self.subresource.is_empty() {
            shown.push_str(" with subresource ");
            shown.push_str(&golang::quoted(&self.subresource));
        }
        if self.operation == Operation::Update {
            shown.push_str(" using ");
            shown.push_str(&self.api_version);
        }
        shown
    }
}

/// Why entries can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ManagedError {
    /// Something else stands where the entries belong.
    #[error("managedFields must be a list")]
    NotAList,
    /// An operation that is not known, or none.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry without the version of its fields.
    #[error("apiVersion must not be empty")]
    NoApiVersion,
    /// The entry of this index does not say how its fields are written.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// Fields written in a way that is not known.
    #[error("invalid fieldsType {} in managed fields entry {index}", Quoted(.fields_type))]
    FieldsType {
        /// What the entry says.
        fields_type: String,
        /// Which entry.
        index: usize,
    },
    /// An entry's fields.
    #[error(transparent)]
    Fields(#[from] FieldsError),
}

impl Managed {
    /// Reads entries.
    ///
    /// Errors: why one can't be read.
    pub(crate) fn decode(entries: Option<&Value>) -> Result<Self, ManagedError> {
        let mut managed = Self::default();
        let entries = match entries {
            None | Some(Value::Null) => return Ok(managed),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(ManagedError::NotAList),
        };
        for (index, entry) in entries.iter().enumerate() {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match &*text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedError::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagedError::NoApiVersion);
            }
            match &*text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(ManagedError::NoFieldsType(index)),
                other => return Err(ManagedError::FieldsType { fields_type: other.to_owned(), index }),
            }
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Set::default(),
                Some(fields) => Set::from_json(fields)?,
            };
            let applied = operation == Operation::Apply;
            let owner = Owner {
                manager: text("manager"),
                operation,
                api_version: if applied { String::new() } else { api_version.clone() },
                subresource: text("subresource"),
            };
            managed.fields.insert(owner.clone(), Owned { set, api_version, applied });
            if let Some(time) = entry.get("time").and_then(Value::as_str) {
                managed.times.insert(owner, time.to_owned());
            }
        }
        Ok(managed)
    }

    /// The entries in their order; `None`: there are none.
    pub(crate) fn encode(&self) -> Option<Value> {
        if self.fields.is_empty() {
            return None;
        }
        let mut entries: Vec<(&Owner, &Owned, &str)> = self
            .fields
            .iter()
            .map(|(owner, owned)| (owner, owned, self.times.get(owner).map(String::as_str).unwrap_or_default()))
            .collect();
        entries.sort_by(|(left, left_owned, left_time), (right, right_owned, right_time)| {
            let left = (left.operation, left_time, &left.manager, &left_owned.api_version, &left.subresource);
            left.cmp(&(right.operation, right_time, &right.manager, &right_owned.api_version, &right.subresource))
        });
        let entry = |(owner, owned, time): (&Owner, &Owned, &str)| {
            let operation = if owned.applied { "Apply" } else { "Update" };
            let texts = [
                ("manager", &*owner.manager),
                ("operation", operation),
                ("apiVersion", &owned.api_version),
                ("time", time),
                ("fieldsType", "FieldsV1"),
            ];
            let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
            let mut entry: Map<String, Value> = texts.map(|(name, text)| (name.to_owned(), text.into())).collect();
            entry.insert("fieldsV1".to_owned(), owned.set.to_json());
            if !owner.subresource.is_empty() {
                entry.insert("subresource".to_owned(), owner.subresource.clone().into());
            }
            Value::Object(entry)
        };
        Some(Value::Array(entries.into_iter().map(entry).collect()))
    }
}
