//! What a server knows of a kind, and what it does with objects of it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::schema::Types;
use kubefold_serving::caller::Caller;
use kubefold_table::Printer;
use kubefold_wire::status::{Cause, Status};

mod admit;
mod allocator;
mod catalog;
mod check;
mod compose;
mod convert;
mod converter;
mod defaults;
mod doc;
mod forbidden;
mod limits;
mod prepare;
mod rest;
mod rules;
mod service;
mod strategy;
#[cfg(test)]
mod tests;

pub use allocator::{Allocator, Refusal};
pub use catalog::built_in;
#[cfg(feature = "etcd")]
pub(crate) use catalog::built_in_resources;
pub(crate) use check::webhooks::{client_config, known_versions};
pub use compose::{Applying, Author, Carried, Compose, Composed, Reading};
pub use converter::{Converter, Services};
pub(crate) use forbidden::forbidden;
pub use rest::{AnyRest, Changed, Connect, Rest, Target, Watch};
pub(crate) use service::hold;

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
    /// What can be done with its objects, in the order of discovery: `create`, `delete`, `deletecollection`, ...
    pub verbs: Vec<String>,
    /// Has `/status`.
    pub has_status: bool,
    /// All that discovery lists under it, `status` and `scale` too.
    pub subresources: Vec<Subresource>,
    /// Has `/scale`.
    pub scale: Option<Scale>,
    /// Fields of a custom resource that a field selector may name, beside name and namespace: `spec.author`.
    pub selectable_fields: Vec<String>,
    /// What answers requests for a subresource, in place of the server.
    pub connects: BTreeMap<String, Arc<dyn Connect>>,
    /// What answers in place of the storage.
    pub rest: Option<Arc<dyn AnyRest>>,
    /// The group of which this kind is another name; `None`: of none. Its objects are stored as that one's.
    pub alias_of: Option<String>,
    /// The version in which objects of all versions are stored, where it is another one or there are several. Discovery tells a hash of it.
    pub stored_version: Option<String>,
    /// What says what is shown of what is stored; `None`: they are the same.
    pub composer: Option<Arc<dyn Compose>>,
    /// The types of its fields, and the name of its own type among them.
    pub types: Arc<Types>,
    /// Such as `io.k8s.api.core.v1.Pod`.
    pub type_name: String,
    /// What is special to it.
    pub strategy: Arc<dyn Strategy>,
}

/// A kind without a name, to be filled in: nothing can be done with its objects, and nothing is special to them.
impl Default for Kind {
    fn default() -> Self {
        Self {
            group: String::new(),
            version: String::new(),
            kind: String::new(),
            plural: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            verbs: Vec::new(),
            has_status: false,
            subresources: Vec::new(),
            scale: None,
            selectable_fields: Vec::new(),
            connects: BTreeMap::new(),
            rest: None,
            alias_of: None,
            stored_version: None,
            composer: None,
            types: Arc::default(),
            type_name: String::new(),
            strategy: Arc::new(Plain),
        }
    }
}

impl Kind {
    /// The group under which its objects are stored: those of both groups of events are the same.
    pub fn stored_group(&self) -> &str {
        if let Some(group) = &self.alias_of {
            return group;
        }
        if self.group == "events.k8s.io" { "" } else { &self.group }
    }
}

/// A path under an object's own, as discovery tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Such as `status`.
    pub name: String,
    /// Group, version and kind of what is read or written there; the object's own where the group is `None`.
    pub group: Option<String>,
    /// As `group`.
    pub version: Option<String>,
    /// As `group`; empty if unsaid.
    pub kind: String,
    /// What can be done with it.
    pub verbs: Vec<String>,
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

/// What of the world a strategy may know while it judges a request. The registry fills it anew for each.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The time, such as `2026-01-01T00:00:00Z`.
    pub now: &'a str,
    /// Five letters as of a generated name, for names inside of the object.
    pub suffix: &'a str,
    /// Gives out addresses and ports.
    pub allocator: &'a Allocator,
    /// What [`Strategy::wants`] asked for and is there, as stored.
    pub others: &'a [Value],
}

impl<'a> Context<'a> {
    /// Another object that the strategy wanted.
    pub fn other(&self, kind: &str, name: &str) -> Option<&'a Value> {
        let says = |value: &Value, at: &str, what: &str| value.pointer(at).and_then(Value::as_str) == Some(what);
        self.others.iter().find(|value| says(value, "/kind", kind) && says(value, "/metadata/name", name))
    }
}

/// Other objects that a strategy wants to see before it judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// As they are stored.
    pub group: &'static str,
    /// As they are stored.
    pub plural: &'static str,
    /// Empty if they are in none.
    pub namespace: String,
    /// One; `None`: all of the namespace, or of the cluster.
    pub name: Option<String>,
}

impl Dependency {
    /// All objects of a resource, of all namespaces.
    pub const fn all(group: &'static str, plural: &'static str) -> Self {
        Self { group, plural, namespace: String::new(), name: None }
    }

    /// All objects of a resource in a namespace.
    pub fn within(group: &'static str, plural: &'static str, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::all(group, plural) }
    }

    /// One object. The namespace is empty where the resource has none.
    pub fn one(group: &'static str, plural: &'static str, namespace: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::within(group, plural, namespace) }
    }
}

/// What is special to a kind. Every step has a default that fits most kinds.
///
/// The registry sets what is alike for all: UID, creation time, resource version, name from `generateName`, managed
/// fields; then it calls these in the order in which they stand: for a create `default`, `admit`, (name, UID, time),
/// `prepare_for_create`, `validate`, `admit_valid`, `canonicalize`, `allocate`; for an update `default`, `prepare_for_update`,
/// `validate_update`, `admit_valid`, `canonicalize`, `allocate`.
///
/// What is stored is what `to_storage` makes, and what is read passes `from_storage` and `decorate`. A built-in kind's defaults are
/// all in `default`: what an OpenAPI document of Kubernetes calls a default is none that its server applies.
///
/// Source: kubernetes/apiserver `pkg/registry/rest/create.go`, `update.go`, `delete.go`.
pub trait Strategy: Send + Sync + 'static {
    /// Fills in what the schema's own defaults do not say. Called for every object that is read from a client.
    fn default(&self, _object: &mut Value) {}

    /// What it must see of other objects to admit this one.
    fn wants(&self, _object: &Value) -> Vec<Dependency> {
        Vec::new()
    }

    /// What the admission of a kube-apiserver adds to a new object, or refuses.
    ///
    /// Errors: the whole answer, such as 403.
    fn admit(&self, _object: &mut Value, _context: Context<'_>) -> Result<(), Box<Status>> {
        Ok(())
    }

    /// Drops or sets fields that a client may not decide at creation: clears the status, sets `generation` to 1.
    fn prepare_for_create(&self, object: &mut Value, _context: Context<'_>) {
        clear_status(object);
        set_generation(object, 1);
    }

    /// What is wrong with a new object. What the schema says has been checked.
    fn validate(&self, _object: &Value, _context: Context<'_>) -> Vec<Cause> {
        Vec::new()
    }

    /// Refuses a valid object that is new (`old` is `None`), or a valid change. Not asked about changes of the status.
    ///
    /// Errors: the whole answer, such as 403.
    fn admit_valid(&self, _new: &Value, _old: Option<&Value>, _context: Context<'_>) -> Result<(), Box<Status>> {
        Ok(())
    }

    /// Warnings for the client, of a new object.
    fn warnings(&self, _object: &Value, _context: Context<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Warnings for the client, of an update.
    fn warnings_on_update(&self, new: &Value, _old: &Value, context: Context<'_>) -> Vec<String> {
        self.warnings(new, context)
    }

    /// Brings a valid object into the one form that is stored.
    fn canonicalize(&self, _object: &mut Value) {}

    /// Takes addresses and ports for a new object, or for an update of `old`, out of the allocator.
    ///
    /// Errors: what is wrong with those that it asks for; nothing was taken then.
    fn allocate(&self, _new: &mut Value, _old: Option<&Value>, _context: Context<'_>) -> Result<(), Vec<Cause>> {
        Ok(())
    }

    /// Gives back what `gone` holds and `stays` does not. To be called after every `allocate`: the write was made
    /// (old, new), or not (new, old), or was a dry run (as not made); and when an object is gone.
    fn release(&self, _gone: &Value, _stays: Option<&Value>, _allocator: &Allocator) {}

    /// The version in which objects of all versions are stored.
    ///
    /// Errors: the object cannot be said in that version. The client is told 400.
    fn to_storage(&self, object: Value) -> Result<Value, ConversionError> {
        Ok(object)
    }

    /// This kind's version of what is stored, in whichever version that is.
    ///
    /// Errors: the object cannot be said in this version. The client is told 500.
    #[allow(clippy::wrong_self_convention, reason = "`from` is where the object comes from, as `to` is where it goes")]
    fn from_storage(&self, object: Value) -> Result<Value, ConversionError> {
        Ok(object)
    }

    /// What converts objects of other versions, in place of `to_storage` and `from_storage`: `to_storage` sees what is in the version
    /// that is stored then, and `from_storage` what was stored in this one.
    fn converter(&self) -> Option<&dyn Converter> {
        None
    }

    /// What is kept of an object that the converter made in this version.
    fn prune(&self, object: Value) -> Value {
        object
    }

    /// Says whether [`Strategy::from_storage`] is needed for an object that is stored in this version, too: what is known of the
    /// version has changed, and objects from before are shown as it is now.
    fn rereads(&self) -> bool {
        false
    }

    /// Says whether [`Strategy::decorate`] does anything.
    fn decorates(&self) -> bool {
        false
    }

    /// Adds to an object that is shown what is not stored. An update never sees it.
    fn decorate(&self, _object: &mut Value) {}

    /// Says whether a `PUT` to a name that is free creates.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// Says whether an update without a resource version is taken.
    fn updates_unconditionally(&self) -> bool {
        true
    }

    /// Keeps what an update may not change: the status stays; `generation` is raised where the rest differs.
    fn prepare_for_update(&self, new: &mut Value, old: &Value, _context: Context<'_>) {
        keep(new, old, "status");
        raise_generation(new, old);
    }

    /// What is wrong with an update.
    fn validate_update(&self, new: &Value, _old: &Value, context: Context<'_>) -> Vec<Cause> {
        self.validate(new, context)
    }

    /// Keeps what an update of `/status` may not change: all but the status.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
    }

    /// Marks an object whose deletion begins in the kind's own way. `now` is the time. False: it is marked as all others.
    fn begin_deletion(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// What is wrong with an update of `/status`.
    fn validate_status_update(&self, _new: &Value, _old: &Value, _context: Context<'_>) -> Vec<Cause> {
        Vec::new()
    }

    /// What becomes of dependents when nobody says.
    fn default_propagation(&self) -> Propagation {
        Propagation::Background
    }

    /// What an object waits for when it is deleted, beside what it waits for anyway.
    fn finalizers_of_deletion(&self) -> &[&'static str] {
        &[]
    }

    /// How it is printed in tables, if its definition says it.
    fn printer(&self) -> Option<Printer> {
        None
    }

    /// The schema that its definition gives it, for OpenAPI documents.
    fn schema(&self) -> Option<&Value> {
        None
    }

    /// Seconds that an object is given to end when it is deleted; `None`: it goes at once.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }
}

/// An object of one version cannot be said in another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{from} cannot be converted to {to}: {why}")]
pub struct ConversionError {
    /// Such as `blog.example.com/v1alpha1`.
    pub from: String,
    /// As `from`.
    pub to: String,
    /// In the words of the conversion.
    pub why: String,
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

/// Takes all but the status, and who manages it, from what is there.
pub(crate) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let managed = new.pointer("/metadata/managedFields").cloned();
    *new = old.clone();
    put(new, "status", status);
    if let Some(metadata) = new.get_mut("metadata") {
        put(metadata, "managedFields", managed);
    }
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
