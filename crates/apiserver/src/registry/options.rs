//! What a caller may say beside the object.

use serde_json::Value;

use crate::{kinds::Kind, registry::Object, schema::FieldValidation};
use kubefold_wire::{
    locate::{Found, Paths},
    selector::{FieldSelector, LabelSelector, Subject},
    status::Status,
};

use std::sync::LazyLock;

/// What of an object a write is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    #[default]
    Whole,
    /// The status.
    Status,
    /// What a subresource of its own changes, such as `/binding` or `/finalize`: its strategy is not asked.
    Special,
}

/// A part of objects that is written as an object of its own: `/scale`.
#[derive(Clone, Copy, Debug)]
pub struct Facet {
    /// Its group, version and kind.
    pub object_type: [&'static str; 3],
    /// That of an object.
    pub of: fn(&Kind, &Value) -> Result<Value, Status>,
    /// Takes it over into an object.
    pub set: fn(&Kind, &mut Value, &Value) -> Result<(), Status>,
}

/// Options of a create, an update or a patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Do everything but write.
    pub dry_run: bool,
    /// Who owns the fields that are written; empty: nobody, and no fields are managed.
    pub manager: String,
    /// What of the object is written.
    pub part: Part,
    /// Create what is not there, though the kind does not by itself.
    pub may_create: bool,
    /// It is an apply: the owners of fields are said already.
    pub applies: bool,
    /// Such an apply takes fields of others.
    pub force: bool,
    /// What becomes of unknown fields, for what is written elsewhere. Those of the object itself are judged when it is read.
    pub validation: FieldValidation,
    /// The subresource that is written, as admission sees it; empty: what `part` says.
    pub subresource: String,
    /// What admission sees in place of the object; `None`: the object.
    pub facet: Option<Facet>,
    /// What the client said of its options, as admission sees it: an object, or null.
    pub said: Value,
}

/// What must hold of an object to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resource version.
    pub resource_version: Option<String>,
}

/// Options of a delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Do everything but write.
    pub dry_run: bool,
    /// What must hold.
    pub preconditions: Preconditions,
    /// Seconds that it is given to end.
    pub grace_seconds: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`.
    pub propagation: Option<crate::kinds::Propagation>,
    /// As [`WriteOptions::said`].
    pub said: Value,
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
}

/// At which revision a list is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The newest.
    #[default]
    Newest,
    /// At least this one.
    NotOlder(u64),
    /// This one.
    Exact(u64),
}

/// Options of a list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Which objects.
    pub selection: Selection,
    /// At which revision.
    pub at: At,
    /// At most so many; 0 is all.
    pub limit: usize,
    /// Only those behind this key.
    pub after: Option<String>,
    /// How many are behind that key, if the caller knows.
    pub known_remaining: Option<u64>,
}

static LABELS: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["metadata", "labels"].as_slice())]));

impl Selection {
    /// Says whether every object is of it.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Says whether an object is of it.
    pub fn matches(&self, object: &Object) -> bool {
        let by_fields = self.fields.is_everything() || {
            let (namespace, name, json) = (object.namespace(), object.name(), object.bare().as_bytes());
            self.fields.matches(&Subject { namespace, name, json, suffix: ["", ""] })
        };
        by_fields && self.matches_labels(object.bare())
    }

    fn matches_labels(&self, json: &str) -> bool {
        if self.labels.is_everything() {
            return true;
        }
        let mut found: Vec<Found> = Vec::new();
        // What is stored is JSON.
        let _located = LABELS.locate_valid(json, &mut found);
        let labels = found.first().and_then(|found| json.get(found.range.clone()));
        self.labels.matches(labels)
    }
}
