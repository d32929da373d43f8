//! Which items a write makes, changes and removes, and by which request.

use serde_json::Value;

use super::{
    Shadow,
    calls::{By, Refusal, Reply, marked, placed},
    object::{ADOPT, Reference, as_item, list},
    world::Place,
};
use crate::{
    placement::merge::merge_patch,
    respond::{OwnError, RouteError},
};
use kubefold_apiserver::kinds::Author;
use kubefold_wire::{
    access::{items, text},
    status::Status,
};

/// Whose the fields are that kubectl applies on the client's side.
const KUBECTL: &str = "kubectl-client-side-apply";
/// Whose those of an adopted item are.
const MANAGER: &str = "kubefold-shadow";

/// How items are written.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Made by POST, and changed by the difference between what was read and what is sent.
    Difference,
    /// Applied, each by itself.
    Apply { manager: String, force: bool },
}

impl Way {
    /// `by_kubectl`: the client notes what it applies, as kubectl does.
    pub(super) fn of(author: Author<'_>, by_kubectl: bool) -> Self {
        match author.applies {
            Some(applying) => Self::Apply { manager: author.manager.to_owned(), force: applying.force },
            // What kubectl applies on its side takes fields of others. `kubectl diff` notes nothing.
            None if by_kubectl || author.manager == KUBECTL => Self::Apply { manager: KUBECTL.to_owned(), force: true },
            None => Self::Difference,
        }
    }
}

/// One item of a write.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its number in the list that was sent.
    pub(super) at: usize,
    pub(super) reference: Reference,
    /// `None`: an earlier item makes its kind.
    pub(super) place: Option<Place>,
    pub(super) change: Change,
}

/// What is done with it.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// It is made.
    Make { item: Value, adopts: bool },
    /// It becomes what was sent, from what was read.
    Alter { patch: Value, item: Value },
    /// It goes.
    Remove { uid: String },
    /// Nothing.
    Keep,
}

impl Step {
    /// An error of the fleet about it.
    pub(super) fn refused(&self, status: Refusal, aftermath: &str) -> Status {
        let what = self.reference.to_string();
        OwnError::Item { at: self.at, what, status, aftermath: aftermath.to_owned() }.into()
    }

    pub(super) fn makes(&self) -> bool {
        matches!(self.change, Change::Make { .. })
    }
}

impl Shadow {
    /// The steps of a create.
    ///
    /// Errors: 422 where nobody serves an item's kind.
    pub(super) async fn steps_of_create(&self, shadow: &Value) -> Result<Vec<Step>, Status> {
        let mut steps: Vec<Step> = Vec::new();
        for (at, item) in list(shadow).iter().enumerate() {
            steps.push(self.step_of_making(shadow, at, item, &steps).await?);
        }
        Ok(steps)
    }

    async fn step_of_making(&self, shadow: &Value, at: usize, item: &Value, before: &[Step]) -> Result<Step, Status> {
        let (reference, place) = self.resolved(shadow, item).await;
        if place.is_none() && !before.iter().any(|step| defines(step, &reference)) {
            let (_, version) = reference.group_version();
            let (version, kind) = (version.to_owned(), reference.kind.clone());
            let name = text(shadow, "/metadata/name").to_owned();
            return Err(OwnError::NoKind { at, what: reference.to_string(), kind, version, name }.into());
        }
        let annotations = item.pointer("/metadata/annotations");
        let adopts = annotations.and_then(|all| all.get(ADOPT)).and_then(Value::as_str) == Some("true");
        let item = placed(item, &reference);
        Ok(Step { at, reference, place, change: Change::Make { item, adopts } })
    }

    /// Which object an item is, and where: in the namespace of the ShadowResource, if it says none and its kind has one.
    async fn resolved(&self, shadow: &Value, item: &Value) -> (Reference, Option<Place>) {
        let mut reference = Reference::of(item);
        let own = text(shadow, "/metadata/namespace");
        let place = self.place(&Reference { namespace: own.to_owned(), ..reference.clone() }).await;
        match &place {
            Some(place) if place.namespace.is_empty() => reference.namespace.clear(),
            _ if reference.namespace.is_empty() => own.clone_into(&mut reference.namespace),
            _ => {}
        }
        let namespace = reference.namespace.clone();
        (reference, place.map(|place| Place { namespace, ..place }))
    }

    /// The steps of an update: in the order of the new list, and then what is removed, in the reverse of the old one.
    ///
    /// Errors: as of a create.
    pub(super) async fn steps_of_update(&self, old: &Value, new: &Value) -> Result<Vec<Step>, Status> {
        let before: Vec<(Reference, &Value)> = list(old).iter().map(|item| (Reference::of(item), item)).collect();
        let states = items(old, "/status/items");
        let mut steps: Vec<Step> = Vec::new();
        for (at, item) in list(new).iter().enumerate() {
            let (reference, place) = self.resolved(new, item).await;
            let known = before.iter().position(|(other, _)| other.is_same(&reference));
            let is_missing = |at: usize| {
                states.get(at).is_some_and(|state| text(state, "/phase") == super::phase::Phase::Missing.name())
            };
            let step = match known {
                Some(known) if before[known].1 == item => Step { at, reference, place, change: Change::Keep },
                Some(known) if !is_missing(known) => {
                    let (was, item) = (before[known].1, placed(item, &reference));
                    let mut patch = merge_patch(was, &as_item(item.clone()));
                    set_uid(&mut patch, states.get(known));
                    Step { at, reference, place, change: Change::Alter { patch, item } }
                }
                _ => self.step_of_making(new, at, item, &steps).await?,
            };
            steps.push(step);
        }
        let kept = |reference: &Reference| steps.iter().any(|step| step.reference.is_same(reference));
        let gone: Vec<(usize, &Reference)> = before
            .iter()
            .enumerate()
            .filter(|(_, (reference, _))| !kept(reference))
            .map(|(at, (reference, _))| (at, reference))
            .collect();
        for (at, reference) in gone.into_iter().rev() {
            let uid = states.get(at).map(|state| text(state, "/uid").to_owned()).unwrap_or_default();
            let place = self.place(reference).await;
            steps.push(Step { at, reference: reference.clone(), place, change: Change::Remove { uid } });
        }
        Ok(steps)
    }

    /// Does one step, or a dry run of it. `None`: there is nothing to do, or it was gone.
    ///
    /// Errors: the fleet's.
    pub(super) async fn take(&self, step: &Step, by: By<'_>, way: &Way, uid: &str) -> Result<Option<Reply>, Refusal> {
        let place = match &step.place {
            Some(place) => place.clone(),
            None => match self.place(&step.reference).await {
                Some(place) => place,
                None => return Err(Box::new(RouteError::NoSuchPath.into())),
            },
        };
        match (&step.change, way) {
            (Change::Keep, _) => Ok(None),
            (Change::Make { item, adopts: true }, _) => {
                let (manager, force) = match way {
                    Way::Apply { manager, force } => (manager.as_str(), *force),
                    Way::Difference => (MANAGER, false),
                };
                // It is not marked as made: what is undone does not take it along.
                self.calls.apply(by, &place, item, manager, force).await.map(Some)
            }
            (Change::Make { item, .. }, Way::Difference) => {
                self.calls.create(by, &place, &marked(item, uid)).await.map(Some)
            }
            (Change::Make { item, .. } | Change::Alter { item, .. }, Way::Apply { manager, force }) => {
                self.calls.apply(by, &place, &marked(item, uid), manager, *force).await.map(Some)
            }
            (Change::Alter { patch, .. }, Way::Difference) => self.calls.patch(by, &place, patch).await.map(Some),
            (Change::Remove { uid }, _) => self.calls.delete(by, &place, uid, "Background").await,
        }
    }
}

/// Says whether an item defines the kind, or makes the namespace, of another.
pub(super) fn defines(step: &Step, other: &Reference) -> bool {
    let Change::Make { item, .. } = &step.change else { return false };
    let spec = |at: &str| text(item, at);
    step.reference.kind == "CustomResourceDefinition"
        && (spec("/spec/group"), spec("/spec/names/kind")) == (other.group_version().0, other.kind.as_str())
}

/// Says whether an item makes the namespace of another.
pub(super) fn holds(step: &Step, other: &Reference) -> bool {
    step.makes() && step.reference.kind == "Namespace" && step.reference.name == other.namespace
}

/// Has a patch only change the object that was read.
fn set_uid(patch: &mut Value, state: Option<&Value>) {
    let uid = state.map(|state| text(state, "/uid")).unwrap_or_default();
    if uid.is_empty() {
        return;
    }
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".to_owned(), uid.into());
        }
    }
}
