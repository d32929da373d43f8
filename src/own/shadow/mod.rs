//! ShadowResources: several objects under one name, made and deleted as a whole, and read from the objects themselves.
//!
//! What is stored of one is which objects it has, in which order, and what was last seen of them. Everything else is asked of the
//! fleet, by the way that clients take (`calls`): so that every item is placed, judged and audited as any object.
//!
//! - `object`: the kind, and what of its JSON is read and written
//! - `compose`: what is shown
//! - `fields`: columns and labels by configuration
//! - `plan`: which items a write makes, changes and removes, and how
//! - `make`: creates and updates: dry run, note, make, undo
//! - `journal`: what is noted before items are made
//! - `follow`: what changes in the fleet is looked at again; deletions go on
//! - `told`: what happens to them, as Events
//! - `undo`: what a write left half-made goes
//! - `pending`: names that wait to be looked at
//! - `phase`: whether an item is ready
//! - `world`: what they need of the fleet

mod calls;
mod compose;
mod fields;
mod follow;
mod journal;
mod make;
mod object;
mod pending;
mod phase;
mod plan;
#[cfg(test)]
mod tests;
mod told;
mod undo;
mod world;

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

pub use self::follow::Follower;
pub use self::object::{FINALIZER, KIND, PLURAL, ShadowResource};
use self::{
    calls::Calls,
    fields::Fields,
    journal::{Journal, Note},
    object::Reference,
    pending::{Name, Pending},
    world::{Place, Served, World},
};
use crate::{
    config::{Alias, ShadowFields},
    own::FleetLink,
    stores::Stores,
};
use kubefold_apiserver::{
    kinds::{Author, Carried, Compose, Composed, Propagation, Reading},
    storage::Storage,
    typed::TypedKind,
};
use kubefold_serving::caller::Caller;
use kubefold_table::Printer;
use kubefold_wire::{access::text, resource::Gvr, status::Status};

/// As whom kubefold itself asks the fleet.
const ITSELF: &str = "system:kubefold";
/// As whom the registry of its own objects calls itself.
const REGISTRY: &str = "system:apiserver";

/// Composes ShadowResources, and carries out what is written to them. Clones are the same.
#[derive(Clone)]
pub struct Shadow(Arc<Inner>);

/// What they share.
pub struct Inner {
    calls: Calls,
    journal: Journal,
    /// Writes that are to be undone later.
    again: Pending<Note>,
    /// Of those that are being deleted: the item that is still there.
    kept: Mutex<BTreeMap<Name, Kept>>,
    fields: ArcSwap<Fields>,
    /// Other fields are configured: every ShadowResource is to be looked at.
    configured: Notify,
}

/// An item that kubefold cannot delete, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    /// Which item.
    at: usize,
    why: String,
}

impl std::ops::Deref for Shadow {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Shadow {
    /// Composes from this fleet, and notes in this storage what it makes.
    pub fn new(fleet: Arc<FleetLink>, stores: Arc<Stores>, storage: Arc<dyn Storage>) -> Self {
        Self::over(Arc::new(Served { fleet, stores }), storage)
    }

    fn over(world: Arc<dyn World>, storage: Arc<dyn Storage>) -> Self {
        Self(Arc::new(Inner {
            calls: Calls(world),
            journal: Journal(storage),
            again: Pending::default(),
            kept: Mutex::default(),
            fields: ArcSwap::default(),
            configured: Notify::new(),
        }))
    }

    /// Has ShadowResources show these columns and labels from here on.
    pub fn configure(&self, fields: &ShadowFields) {
        if !self.fields.load().are(fields) {
            self.fields.store(Arc::new(Fields::of(fields)));
            self.configured.notify_one();
        }
    }

    /// The kind that is served, under these further groups and versions, too.
    pub fn kind(&self, aliases: &[Alias]) -> TypedKind<ShadowResource> {
        let kind = object::kind().composed(self.clone());
        aliases.iter().fold(kind, |kind, alias| kind.alias(&alias.group, &alias.version))
    }

    /// Has a write undone later. The note of it stays until then.
    fn look_again(&self, note: Note) {
        // Where nobody follows any more, the next process does.
        self.again.add((note.namespace.clone(), note.name.clone()), note);
    }

    /// Sets what keeps one that is being deleted. Says whether that is news.
    fn set_kept(&self, name: &Name, kept: Option<Kept>) -> bool {
        let mut all = self.kept.lock();
        let before = match &kept {
            Some(kept) => all.insert(name.clone(), kept.clone()),
            None => all.remove(name),
        };
        before != kept
    }

    /// What keeps one that is being deleted.
    fn kept(&self, shadow: &Value) -> Option<Kept> {
        let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(|at| text(shadow, at).to_owned());
        self.kept.lock().get(&(namespace, name)).cloned()
    }

    fn is_itself(&self, caller: &Caller) -> bool {
        caller.user == REGISTRY || caller.user == ITSELF
    }

    /// As whom kubefold asks the fleet for itself.
    fn itself() -> Caller {
        let groups = [crate::access::MASTERS, "system:authenticated"].map(str::to_owned).to_vec();
        Caller { user: ITSELF.to_owned(), groups, ..Caller::default() }
    }

    fn world(&self) -> &dyn World {
        &*self.calls.0
    }

    /// Where an item is; `None` where nobody serves its kind.
    async fn place(&self, reference: &Reference) -> Option<Place> {
        self.world().place(reference).await
    }

    fn gvr() -> Gvr {
        Gvr::new(super::GROUP, super::VERSION, PLURAL)
    }
}

impl Compose for Shadow {
    fn compose<'a>(
        &'a self,
        caller: &'a Caller,
        stored: Value,
        reading: Reading,
    ) -> BoxFuture<'a, Result<Composed, Status>> {
        Box::pin(self.composed(caller, stored, reading))
    }

    fn create<'a>(&'a self, author: Author<'a>, object: Value) -> BoxFuture<'a, Result<Carried, Status>> {
        Box::pin(self.made(author, object))
    }

    fn update<'a>(
        &'a self,
        author: Author<'a>,
        stored: Value,
        old: &'a Value,
        new: Value,
    ) -> BoxFuture<'a, Result<Carried, Status>> {
        Box::pin(self.changed(author, stored, old, new))
    }

    fn delete<'a>(
        &'a self,
        author: Author<'a>,
        stored: Value,
        propagation: Option<Propagation>,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(self.deleted(author, stored, propagation))
    }

    fn printer(&self) -> Option<Printer> {
        self.fields.load().printer()
    }

    fn settle<'a>(&'a self, carried: &'a Carried, is_stored: bool) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (namespace, name) =
                (text(&carried.stored, "/metadata/namespace"), text(&carried.stored, "/metadata/name"));
            if is_stored {
                self.journal.end(namespace, name).await;
            } else if let Some(note) = self.journal.get(namespace, name).await {
                self.undone(&note, &note.references()).await;
                self.journal.end(namespace, name).await;
            }
        })
    }
}
