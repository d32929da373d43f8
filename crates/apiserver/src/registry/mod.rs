//! Create, get, list, watch, update, patch and delete over a storage, for any kind.
//!
//! One `Registry` is one cluster's objects. `serve` asks it for clients, `sim` for its controllers: both by the same
//! calls, so that what a controller does is what a client of HTTP would see.
//!
//! Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go`, `pkg/registry/rest/`.

mod admission;
mod catalog;
mod composed;
mod convert;
mod create;
mod delete;
mod env;
mod errors;
mod fill;
mod follow;
mod guard;
mod managed;
mod meta;
mod migrate;
mod names;
mod namespace;
mod object;
mod options;
mod patch;
mod read;
mod rest;
#[cfg(test)]
mod tests;
mod update;
mod versions;
mod watch;
mod written;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use follow::{Followed, Follower, Index};
pub(crate) use names::faults_of_maps;
pub use {
    admission::{Admission, AdmissionRequest, Operation, Plugin, Rounds},
    catalog::Catalog,
    delete::Deleted,
    env::{Clock, Env, SystemClock, time_text},
    guard::{Attempt, Guard},
    object::Object,
    options::{At, DeleteOptions, Facet, ListOptions, Part, Preconditions, Selection, WriteOptions},
    patch::{Patch, check_name},
    read::List,
    watch::{Event, Events, From},
    written::Written,
};

use crate::{
    kinds::{Allocator, Context, Dependency, Kind},
    storage::{Range, Record, Stamp, Storage},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    status::{Status, qualified},
    warning::Warnings,
};

/// One cluster's objects. Clones are the same objects.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
    caller: Arc<Caller>,
    guard: Option<Arc<dyn Guard>>,
    admission: Option<Arc<dyn Admission>>,
    warnings: Option<Arc<Mutex<Warnings>>>,
}

struct Inner {
    storage: Arc<dyn Storage>,
    env: Env,
    allocator: Allocator,
    catalog: catalog::Shared,
    /// Composed objects that somebody writes now.
    written: composed::Locks,
}

impl Registry {
    /// A registry of these kinds over a storage. Where a group has a kind in several versions, the first is preferred.
    pub fn new(
        storage: Arc<dyn Storage>,
        env: Env,
        allocator: Allocator,
        kinds: impl IntoIterator<Item = Arc<Kind>>,
    ) -> Self {
        let catalog = catalog::Shared::new(kinds);
        // As a kube-apiserver calls itself. Source: kubernetes/apiserver `pkg/authentication/user/user.go`.
        let groups = ["system:masters", "system:authenticated"].map(str::to_owned).to_vec();
        let caller = Caller { user: "system:apiserver".to_owned(), groups, ..Caller::default() };
        Self {
            inner: Arc::new(Inner { storage, env, allocator, catalog, written: composed::Locks::default() }),
            caller: Arc::new(caller),
            guard: None,
            admission: None,
            warnings: None,
        }
    }

    /// The same objects, for somebody else: strategies know who asks. Without it the server itself does.
    #[must_use]
    pub fn acting_as(&self, caller: Caller) -> Self {
        Self { caller: Arc::new(caller), ..self.clone() }
    }

    /// The same objects, with somebody who looks at creates, updates and patches before they are judged.
    #[must_use]
    pub fn guarded_by(&self, guard: Arc<dyn Guard>) -> Self {
        Self { guard: Some(guard), ..self.clone() }
    }

    /// The same objects, with somebody who looks at every write and may refuse it.
    #[must_use]
    pub fn admitted_by(&self, admission: Arc<dyn Admission>) -> Self {
        Self { admission: Some(admission), ..self.clone() }
    }

    /// The same objects, with a place for what whoever asks is warned of, whatever becomes of his request.
    #[must_use]
    pub fn warning_in(&self, warnings: Arc<Mutex<Warnings>>) -> Self {
        Self { warnings: Some(warnings), ..self.clone() }
    }

    /// Warns whoever asks.
    pub(crate) fn warn(&self, text: &str) {
        if let Some(warnings) = &self.warnings {
            warnings.lock().add(text);
        }
    }

    /// Who asks.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same, to be kept.
    pub(crate) fn shared_caller(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }

    /// The time and chance that it works with.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// What gives out addresses and ports.
    pub fn allocator(&self) -> &Allocator {
        &self.inner.allocator
    }

    /// The kinds that are served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.load()
    }

    /// The kind of a group, version and plural.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.catalog().resource(group, version, plural)
    }

    /// The kind of a group and kind in its preferred version, such as `apps`, `Deployment`.
    pub fn kind(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.catalog().kind(group, kind)
    }

    /// Serves a kind from now on, in place of one of the same group, version and plural.
    pub fn serve_kind(&self, kind: Arc<Kind>) {
        self.inner.catalog.change(|catalog| catalog.add(kind));
    }

    /// Serves a kind no more. Its objects stay.
    pub fn drop_kind(&self, group: &str, version: &str, plural: &str) {
        self.inner.catalog.change(|catalog| catalog.remove(group, version, plural));
    }

    /// The revision of the last change of any object.
    ///
    /// Errors: the storage does not answer.
    pub async fn revision(&self) -> Result<u64, Status> {
        self.inner.storage.revision().await.map_err(|error| errors::of_storage(&error))
    }

    /// What the stored objects of a kind are, of one namespace, or of all where it is empty. `None`: they are not in the storage alone,
    /// or it does not say it.
    pub(crate) async fn stamp(&self, kind: &Kind, namespace: &str) -> Option<Stamp> {
        if kind.rest.is_some() || kind.composer.is_some() {
            return None;
        }
        // Who asks reads them otherwise, and is told what is wrong then.
        self.inner.storage.stamp(&prefix_of(kind, namespace)).await.ok().flatten()
    }

    /// The storage itself.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.inner.storage
    }

    async fn record(&self, key: &str) -> Result<Option<Record>, Status> {
        let (record, _) = self.inner.storage.get(key).await.map_err(|error| errors::of_storage(&error))?;
        Ok(record)
    }

    /// What a strategy wants to see of other objects.
    async fn others(&self, wanted: &[Dependency]) -> Result<Vec<Value>, Status> {
        let mut others = Vec::new();
        for wanted in wanted {
            let resource = qualified(wanted.group, wanted.plural);
            let prefix = if wanted.namespace.is_empty() {
                format!("{resource}/")
            } else {
                format!("{resource}/{}/", wanted.namespace)
            };
            match &wanted.name {
                Some(name) => {
                    let record = self.record(&format!("{prefix}{name}")).await?;
                    others.extend(record.map(|record| Object::of_record(&record).value()));
                }
                None => {
                    let range = Range { prefix: &prefix, ..Range::default() };
                    let page = self.inner.storage.range(range).await.map_err(|error| errors::of_storage(&error))?;
                    others.extend(page.records.iter().map(|record| Object::of_record(record).value()));
                }
            }
        }
        Ok(others)
    }

    /// Errors: what the guard says, if there is one.
    fn check_attempt(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(guard) = &self.guard else { return Ok(()) };
        guard.check(&Attempt { caller: &self.caller, kind, namespace, name, new, old }).map_err(|status| *status)
    }

    /// What a strategy may know of the world.
    fn context<'a>(&'a self, now: &'a str, suffix: &'a str, others: &'a [Value]) -> Context<'a> {
        Context { caller: &self.caller, now, suffix, allocator: &self.inner.allocator, others }
    }

    /// A stored object as this kind has it.
    ///
    /// Errors: 500, if it cannot be said in this version.
    fn object(kind: &Kind, record: Record, revision: u64) -> Result<Object, Status> {
        let object = Object::at(record, revision);
        if object.is_of(kind) {
            // What a converter made is read already.
            if kind.strategy.converter().is_some() {
                return Ok(object.made());
            }
            if !kind.strategy.rereads() {
                return Ok(object);
            }
        }
        let value = from_store(kind, object.stored(), object.name())?;
        Ok(Object::of_value(object.key(), &value, revision))
    }

    /// A stored object as it is shown.
    ///
    /// Errors: as [`Self::object`].
    fn shown(kind: &Kind, record: Record, revision: u64) -> Result<Object, Status> {
        let object = Self::object(kind, record, revision)?;
        Ok(if kind.strategy.decorates() { shown_value(kind, object.key(), object.stored(), revision) } else { object })
    }
}

/// What is stored of an object, as this kind has it.
///
/// Errors: 500, if it cannot be said in this version.
fn from_store(kind: &Kind, stored: Value, name: &str) -> Result<Value, Status> {
    let value = kind.strategy.from_storage(stored);
    let mut value = value.map_err(|error| errors::unreadable(kind, name, &error))?;
    meta::set_type(&mut value, kind);
    Ok(value)
}

/// An object as it is shown.
fn shown_value(kind: &Kind, key: &str, mut value: Value, revision: u64) -> Object {
    kind.strategy.decorate(&mut value);
    Object::of_value(key, &value, revision)
}

/// Where the objects of a kind lie, with the slash behind.
fn prefix_of(kind: &Kind, namespace: &str) -> String {
    let resource = qualified(kind.stored_group(), &kind.plural);
    if namespace.is_empty() || !kind.namespaced { format!("{resource}/") } else { format!("{resource}/{namespace}/") }
}

fn key_of(kind: &Kind, namespace: &str, name: &str) -> String {
    prefix_of(kind, namespace) + name
}
