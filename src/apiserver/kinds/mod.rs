//! What a server knows of a kind, and what it does with objects of it.

use std::sync::Arc;

use serde_json::Value;

use crate::{apiserver::schema::Types, wire::status::Cause};

/// A kind that a server serves, in one version.
#[derive(Clone)]
pub struct Kind {
    /// Empty is core.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `Pod`.
    pub kind: String,
    /// Such as `pods`. Objects of one group and plural are the same objects in every version.
    pub plural: String,
    /// Such as `pod`.
    pub singular: String,
    /// Such as `po`.
    pub short_names: Vec<String>,
    /// Such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
    /// Has `/status`.
    pub has_status: bool,
    /// Has `/scale`.
    pub scale: Option<Scale>,
    /// The types of its fields, and the name of its own type among them.
    pub types: Arc<Types>,
    /// Such as `io.k8s.api.core.v1.Pod`.
    pub type_name: String,
    /// What is special to it.
    pub strategy: Arc<dyn Strategy>,
}

/// Where the numbers of `/scale` are, as JSON paths such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The wanted number.
    pub spec_replicas: String,
    /// The number that is there.
    pub status_replicas: String,
    /// The selector, as a text or as a `LabelSelector`.
    pub selector: Option<String>,
}

/// What happens to dependents when an object is deleted and nobody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They go later.
    #[default]
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// What is special to a kind. Every step has a default that fits most kinds.
///
/// The registry sets what is alike for all: UID, creation time, resource version, name from `generateName`, managed
/// fields; then it calls these in the order in which they stand.
///
/// Source: kubernetes/apiserver `pkg/registry/rest/create.go`, `update.go`, `delete.go`.
pub trait Strategy: Send + Sync + 'static {
    /// Fills in what the schema's own defaults do not say. Called for every object that is read from a client.
    fn default(&self, _object: &mut Value) {}

    /// Drops or sets fields that a client may not decide at creation: clears the status, sets `generation` to 1.
    fn prepare_for_create(&self, object: &mut Value) {
        clear_status(object);
        set_generation(object, 1);
    }

    /// What is wrong with a new object. What the schema says has been checked.
    fn validate(&self, _object: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Warnings for the client, of a new object.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Brings a valid object into the one form that is stored.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Says whether a `PUT` to a name that is free creates.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// Says whether an update without a resource version is taken.
    fn updates_unconditionally(&self) -> bool {
        true
    }

    /// Keeps what an update may not change: the status stays; `generation` is raised where the rest differs.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "status");
        raise_generation(new, old);
    }

    /// What is wrong with an update.
    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<Cause> {
        self.validate(new)
    }

    /// Keeps what an update of `/status` may not change: all but the status.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").cloned();
        let managed = new.pointer("/metadata/managedFields").cloned();
        *new = old.clone();
        put(new, "status", status);
        if let Some(metadata) = new.get_mut("metadata") {
            put(metadata, "managedFields", managed);
        }
    }

    /// What is wrong with an update of `/status`.
    fn validate_status_update(&self, _new: &Value, _old: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// What becomes of dependents when nobody says.
    fn default_propagation(&self) -> Propagation {
        Propagation::Background
    }

    /// Seconds that an object is given to end when it is deleted; `None`: it goes at once.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }
}

/// The strategy of a kind that has nothing special.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Strategy for Plain {}

/// Removes the status.
pub fn clear_status(object: &mut Value) {
    put(object, "status", None);
}

/// Sets `metadata.generation`.
pub fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = object.get_mut("metadata") {
        put(metadata, "generation", Some(generation.into()));
    }
}

/// One more than before where anything but metadata and status differs; as before otherwise.
pub fn raise_generation(new: &mut Value, old: &Value) {
    let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    let rest = |value: &Value| -> Vec<(String, Value)> {
        let fields = value.as_object().into_iter().flatten();
        let mut rest: Vec<_> = fields
            .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        rest.sort_by(|left, right| left.0.cmp(&right.0));
        rest
    };
    let differs = rest(new) != rest(old);
    set_generation(new, before + i64::from(differs));
}

/// Sets a field to what it was.
pub fn keep(new: &mut Value, old: &Value, field: &str) {
    put(new, field, old.get(field).cloned());
}

/// Sets or removes a field.
pub fn put(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => {
            object.insert(field.to_owned(), value);
        }
        None => {
            object.shift_remove(field);
        }
    }
}
