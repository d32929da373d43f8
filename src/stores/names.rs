//! What a request is about, and from the name that a caller used to an object: docs/design/identity.md#names-in-requests.

use std::sync::Arc;

use crate::{
    respond::ReadError,
    store::{Audience, Entry, FleetStore, Naming, Sight, key},
    stores::{Ready, Stores},
};
use kubefold_wire::{locate::Paths, resource::Gvr, status::Status};

/// What a request is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub gvr: Gvr,
    /// Empty for all namespaces, and for cluster-scoped kinds.
    pub namespace: String,
    /// The name, of one object.
    pub name: String,
}

/// What a name means.
pub(crate) enum Named {
    /// It is a visible name.
    Visible(Arc<Entry>),
    /// It is short for the one member-local object of that name that has a controller, or for the one event.
    Shorthand(Arc<Entry>),
    /// It is nothing.
    Nothing,
}

impl Stores {
    /// The object that a name means to those who see these members, as they see it.
    ///
    /// Errors: 404 or 409 as a get answers.
    pub fn named(&self, ready: &Ready, target: &Target, audience: &Audience) -> Result<Arc<Entry>, Status> {
        match resolve(&self.shared().naming, ready.store(), target, audience)? {
            Named::Visible(entry) | Named::Shorthand(entry) => Ok(entry),
            Named::Nothing => Err(not_found(ready.store(), target, audience).into()),
        }
    }
}

/// Resolves a name against what the store holds of the members that may be seen. Every one of them must be known when the
/// name is a plain one.
///
/// Errors: 409 when it is short for several.
pub(crate) fn resolve(
    naming: &Naming,
    store: &FleetStore,
    target: &Target,
    audience: &Audience,
) -> Result<Named, ReadError> {
    let spec = store.spec();
    let plain = key(&target.namespace, &target.name);
    if let Some(entry) = store.get(&plain).and_then(|entry| store.seen_by(audience, &entry)) {
        return Ok(Named::Visible(entry));
    }
    if spec.namespaced && target.namespace.is_empty() {
        return Ok(Named::Nothing);
    }
    let is_event = spec.gvr.is_event();
    if let Some((own, member)) = naming.split(&target.name) {
        // An event may be asked for as any other member-local object.
        let own = key(&target.namespace, own);
        let event = if is_event { store.member_local(&own, member) } else { None };
        let seen = event.and_then(|event| store.seen_by(audience, &event.entry));
        return Ok(seen.map_or(Named::Nothing, Named::Shorthand));
    }
    let recorded = recorded(naming, store, target).and_then(|entry| store.seen_by(audience, &entry));
    if let Some(entry) = recorded.filter(|_| is_event) {
        return Ok(Named::Shorthand(entry));
    }
    let member_locals = seen_locals(store, &plain, audience);
    let mut meant = member_locals.iter().filter(|entry| is_event || has_controller(entry));
    match (meant.next(), meant.next()) {
        (None, _) => Ok(Named::Nothing),
        (Some(one), None) => Ok(Named::Shorthand(Arc::clone(one))),
        (Some(_), Some(_)) => Err(ReadError::Ambiguous {
            gvr: spec.gvr.clone(),
            name: target.name.clone(),
            member_locals: names(&member_locals),
        }),
    }
}

/// An event by a name that its recorder gave it after its object with more than one dot behind: `web-0@east.17.f0` is
/// `web-0.17@east.f0`. The newer of client-go's recorders patches by the name that it gave, whatever the answer to its create
/// was called.
///
/// Source: kubernetes/client-go `tools/events/event_broadcaster.go` `recordToSink`.
fn recorded(naming: &Naming, store: &FleetStore, target: &Target) -> Option<Arc<Entry>> {
    let (object, rest) = target.name.rsplit_once('@')?;
    rest.match_indices('.').find_map(|(at, _)| {
        let (member, suffix) = rest.split_at_checked(at)?;
        let own = key(&target.namespace, &format!("{object}{suffix}"));
        store.member_local(&own, naming.member(member)?).map(|event| event.entry)
    })
}

/// No object has the name. It lists the member-local objects of that name, so that people find what they mean and `kubectl apply`
/// creates rather than patching a stranger.
pub(crate) fn not_found(store: &FleetStore, target: &Target, audience: &Audience) -> ReadError {
    let member_locals = names(&seen_locals(store, &key(&target.namespace, &target.name), audience));
    ReadError::NotFound { gvr: store.spec().gvr.clone(), name: target.name.clone(), member_locals }
}

/// The member-local objects of a plain key that may be seen.
fn seen_locals(store: &FleetStore, key: &str, audience: &Audience) -> Vec<Arc<Entry>> {
    let mut found = store.member_locals(key);
    found.retain(|entry| audience.sight(entry) == Sight::Whole);
    found
}

/// The visible names of entries.
pub(crate) fn names(entries: &[Arc<Entry>]) -> Vec<String> {
    entries.iter().map(|entry| entry.name().to_owned()).collect()
}

/// Nobody applies an object by name that a controller made.
fn has_controller(entry: &Entry) -> bool {
    let paths = Paths::new([(0, ["metadata", "ownerReferences", "*", "controller"].as_slice())]);
    let mut found = Vec::new();
    let Ok(json) = std::str::from_utf8(entry.json()) else { return false };
    paths.locate(json, &mut found).is_ok() && found.iter().any(|at| json.get(at.range.clone()) == Some("true"))
}
