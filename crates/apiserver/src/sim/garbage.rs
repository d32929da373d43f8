//! The garbage collector: objects whose owners are gone go too.
//!
//! Source: kubernetes `pkg/controller/garbagecollector/garbagecollector.go`, `attemptToDeleteItem`, `orphanDependents`,
//! `processDeletingDependentsItem`.

use serde_json::Value;

use super::{
    action::{Event, Outcome},
    context::Context,
    fields::{items, text},
    release::{without_finalizer, without_owners},
    view::{Entry, Uid},
    world::Key,
};

/// The finalizer of an object that waits for its dependents to end.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that leaves its dependents behind.
pub(super) const ORPHAN: &str = "orphan";
const NAME: &str = "garbage-collector-controller";

/// What an owner reference leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// An owner that stays.
    Solid,
    /// Nothing.
    Dangling,
    /// An owner that waits for its dependents to end.
    Waiting,
}

/// Looks after an object that has owners, or that is being deleted with finalizers.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    if let Some(outcome) = super::job::let_go(context, entry) {
        return Some(outcome);
    }
    if !entry.deleting {
        return collect(context, entry);
    }
    if !entry.finalized {
        return None;
    }
    let tree = context.world.tree(context.key)?;
    if has_finalizer(&tree, ORPHAN) {
        return Some(orphan(context, entry, tree));
    }
    if !has_finalizer(&tree, FOREGROUND) {
        return None;
    }
    let blocking = context
        .world
        .dependents(entry.uid)
        .any(|(_, dependent)| dependent.owners.iter().any(|owner| owner.uid == entry.uid && owner.blocks));
    let mut outcome = Outcome::default();
    if !blocking {
        outcome.update(context.key, without_finalizer(tree, FOREGROUND));
    }
    Some(outcome)
}

fn has_finalizer(tree: &Value, name: &str) -> bool {
    items(tree, "/metadata/finalizers").iter().any(|finalizer| finalizer == name)
}

/// Says whether it waits for its dependents to end.
fn deletes_dependents(context: &Context<'_>, key: &Key, entry: &Entry) -> bool {
    entry.deleting && entry.finalized && context.world.tree(key).is_some_and(|tree| has_finalizer(&tree, FOREGROUND))
}

fn orphan(context: &Context<'_>, entry: &Entry, tree: Value) -> Outcome {
    let mut outcome = Outcome::default();
    for (key, _) in context.world.dependents(entry.uid) {
        if let Some(dependent) = context.world.tree(key) {
            outcome.update(key, without_owners(dependent, |uid| uid == entry.uid));
        }
    }
    outcome.update(context.key, without_finalizer(tree, ORPHAN));
    outcome
}

fn collect(context: &Context<'_>, entry: &Entry) -> Option<Outcome> {
    let leads: Option<Vec<Lead>> = (0..entry.owners.len()).map(|place| lead(context, entry, place)).collect();
    // An owner of a kind that nobody knows may well be there.
    let leads = leads?;
    if leads.iter().all(|lead| *lead == Lead::Solid) {
        return None;
    }
    let mut outcome = Outcome::default();
    for (owner, lead) in entry.owners.iter().zip(&leads) {
        if *lead == Lead::Dangling
            && let Some((elsewhere, _)) = context.world.by_uid(owner.uid)
            && !elsewhere.namespace.is_empty()
            && elsewhere.namespace != context.key.namespace
        {
            outcome.tell(refused(context, owner.uid)?);
        }
    }
    if leads.contains(&Lead::Solid) {
        let gone: Vec<Uid> = entry
            .owners
            .iter()
            .zip(&leads)
            .filter(|(_, lead)| **lead != Lead::Solid)
            .map(|(owner, _)| owner.uid)
            .collect();
        outcome.update(context.key, without_owners(context.world.tree(context.key)?, |uid| gone.contains(&uid)));
        return Some(outcome);
    }
    let mut dependents = context.world.dependents(entry.uid).peekable();
    if leads.contains(&Lead::Waiting) && dependents.peek().is_some() {
        if dependents.any(|(key, dependent)| deletes_dependents(context, key, dependent)) {
            outcome.update(context.key, unblocked(context.world.tree(context.key)?));
            return Some(outcome);
        }
        outcome.delete(context.key, entry.uid, Some("Foreground"));
        return Some(outcome);
    }
    let tree = if entry.finalized { context.world.tree(context.key)? } else { Value::Null };
    let propagation = match () {
        () if has_finalizer(&tree, ORPHAN) => "Orphan",
        () if has_finalizer(&tree, FOREGROUND) => "Foreground",
        () => "Background",
    };
    outcome.delete(context.key, entry.uid, Some(propagation));
    Some(outcome)
}

/// What an owner reference leads to; `None`: its kind is not known.
fn lead(context: &Context<'_>, entry: &Entry, place: usize) -> Option<Lead> {
    let owner = entry.owners.get(place)?;
    let resource = owner.resource?;
    let namespaced = context.world.resources.describe(resource)?.namespaced;
    if namespaced && context.key.namespace.is_empty() {
        // An owner in a namespace can't be found from outside of it. Kubernetes leaves such objects alone.
        return Some(Lead::Solid);
    }
    let namespace = if namespaced { context.key.namespace.clone() } else { "".into() };
    let key = Key { resource, namespace, name: owner.name.clone() };
    let Some(present) = context.world.get(&key).filter(|present| present.uid == owner.uid) else {
        return Some(Lead::Dangling);
    };
    Some(if deletes_dependents(context, &key, present) { Lead::Waiting } else { Lead::Solid })
}

fn refused(context: &Context<'_>, uid: Uid) -> Option<Event> {
    let tree = context.world.tree(context.key)?;
    let reference = items(&tree, "/metadata/ownerReferences").iter().find(|r| Uid::of(text(r, "/uid")) == uid)?;
    let namespace = &context.key.namespace;
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
        text(reference, "/apiVersion"),
        text(reference, "/kind"),
        text(reference, "/name"),
        text(reference, "/uid"),
    );
    Some(Event::warning(context.key, NAME, "OwnerRefInvalidNamespace", message))
}

/// An object whose owners do not wait for it: it waits for one of them itself.
fn unblocked(mut tree: Value) -> Value {
    for reference in tree["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        reference["blockOwnerDeletion"] = false.into();
    }
    tree
}
