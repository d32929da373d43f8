//! The garbage collector: objects whose owners are gone go too.
//!
//! Source: kubernetes `pkg/controller/garbagecollector/garbagecollector.go`, `attemptToDeleteItem`, `orphanDependents`,
//! `processDeletingDependentsItem`.

use serde_json::Value;

use super::{
    action::{Happening, Outcome},
    fields::{items, text},
    machine::Sight,
    view::Uid,
    world::{Entry, Key},
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
pub(super) fn look(sight: &Sight<'_>) -> Option<Outcome> {
    let entry = sight.world.get(sight.key)?;
    if let Some(outcome) = super::job::let_go(sight, entry) {
        return Some(outcome);
    }
    if !entry.deleting {
        return collect(sight, entry);
    }
    if !entry.finalized {
        return None;
    }
    let tree = sight.world.tree(sight.key)?;
    if has_finalizer(&tree, ORPHAN) {
        return Some(orphan(sight, entry, tree));
    }
    if !has_finalizer(&tree, FOREGROUND) {
        return None;
    }
    let blocking = sight
        .world
        .dependents(entry.uid)
        .any(|(_, dependent)| dependent.owners.iter().any(|owner| owner.uid == entry.uid && owner.blocks));
    let mut outcome = Outcome::default();
    if !blocking {
        outcome.update(sight.key, without_finalizer(tree, FOREGROUND));
    }
    Some(outcome)
}

fn has_finalizer(tree: &Value, name: &str) -> bool {
    items(tree, "/metadata/finalizers").iter().any(|finalizer| finalizer == name)
}

/// Says whether it waits for its dependents to end.
fn deletes_dependents(sight: &Sight<'_>, key: &Key, entry: &Entry) -> bool {
    entry.deleting && entry.finalized && sight.world.tree(key).is_some_and(|tree| has_finalizer(&tree, FOREGROUND))
}

/// An object without one of its finalizers.
pub(super) fn without_finalizer(mut tree: Value, name: &str) -> Value {
    if let Some(finalizers) = tree["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != name);
        if finalizers.is_empty()
            && let Some(metadata) = tree["metadata"].as_object_mut()
        {
            metadata.shift_remove("finalizers");
        }
    }
    tree
}

fn orphan(sight: &Sight<'_>, entry: &Entry, tree: Value) -> Outcome {
    let mut outcome = Outcome::default();
    for (key, _) in sight.world.dependents(entry.uid) {
        if let Some(dependent) = sight.world.tree(key) {
            outcome.update(key, without_owners(dependent, |uid| uid == entry.uid));
        }
    }
    outcome.update(sight.key, without_finalizer(tree, ORPHAN));
    outcome
}

/// An object without some of its owner references.
pub(super) fn without_owners(mut tree: Value, drops: impl Fn(Uid) -> bool) -> Value {
    if let Some(references) = tree["metadata"]["ownerReferences"].as_array_mut() {
        references.retain(|reference| !drops(Uid::of(text(reference, "/uid"))));
        if references.is_empty()
            && let Some(metadata) = tree["metadata"].as_object_mut()
        {
            metadata.shift_remove("ownerReferences");
        }
    }
    tree
}

fn collect(sight: &Sight<'_>, entry: &Entry) -> Option<Outcome> {
    let leads: Option<Vec<Lead>> = (0..entry.owners.len()).map(|place| lead(sight, entry, place)).collect();
    // An owner of a kind that nobody knows may well be there.
    let leads = leads?;
    if leads.iter().all(|lead| *lead == Lead::Solid) {
        return None;
    }
    let mut outcome = Outcome::default();
    for (owner, lead) in entry.owners.iter().zip(&leads) {
        if *lead == Lead::Dangling
            && let Some((elsewhere, _)) = sight.world.by_uid(owner.uid)
            && !elsewhere.namespace.is_empty()
            && elsewhere.namespace != sight.key.namespace
        {
            outcome.tell(refused(sight, owner.uid)?);
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
        outcome.update(sight.key, without_owners(sight.world.tree(sight.key)?, |uid| gone.contains(&uid)));
        return Some(outcome);
    }
    let mut dependents = sight.world.dependents(entry.uid).peekable();
    if leads.contains(&Lead::Waiting) && dependents.peek().is_some() {
        if dependents.any(|(key, dependent)| deletes_dependents(sight, key, dependent)) {
            outcome.update(sight.key, unblocked(sight.world.tree(sight.key)?));
            return Some(outcome);
        }
        outcome.delete(sight.key, entry.uid, Some("Foreground"));
        return Some(outcome);
    }
    let tree = if entry.finalized { sight.world.tree(sight.key)? } else { Value::Null };
    let propagation = match () {
        () if has_finalizer(&tree, ORPHAN) => "Orphan",
        () if has_finalizer(&tree, FOREGROUND) => "Foreground",
        () => "Background",
    };
    outcome.delete(sight.key, entry.uid, Some(propagation));
    Some(outcome)
}

/// What an owner reference leads to; `None`: its kind is not known.
fn lead(sight: &Sight<'_>, entry: &Entry, place: usize) -> Option<Lead> {
    let owner = entry.owners.get(place)?;
    let resource = owner.resource?;
    let namespaced = sight.world.resources.describe(resource)?.namespaced;
    if namespaced && sight.key.namespace.is_empty() {
        // An owner in a namespace can't be found from outside of it. Kubernetes leaves such objects alone.
        return Some(Lead::Solid);
    }
    let namespace = if namespaced { sight.key.namespace.clone() } else { "".into() };
    let key = Key { resource, namespace, name: owner.name.clone() };
    let Some(present) = sight.world.get(&key).filter(|present| present.uid == owner.uid) else {
        return Some(Lead::Dangling);
    };
    Some(if deletes_dependents(sight, &key, present) { Lead::Waiting } else { Lead::Solid })
}

fn refused(sight: &Sight<'_>, uid: Uid) -> Option<Happening> {
    let tree = sight.world.tree(sight.key)?;
    let reference = items(&tree, "/metadata/ownerReferences").iter().find(|r| Uid::of(text(r, "/uid")) == uid)?;
    let namespace = &sight.key.namespace;
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
        text(reference, "/apiVersion"),
        text(reference, "/kind"),
        text(reference, "/name"),
        text(reference, "/uid"),
    );
    Some(Happening::warning(sight.key, NAME, "OwnerRefInvalidNamespace", message))
}

/// An object whose owners do not wait for it: it waits for one of them itself.
fn unblocked(mut tree: Value) -> Value {
    for reference in tree["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        reference["blockOwnerDeletion"] = false.into();
    }
    tree
}
