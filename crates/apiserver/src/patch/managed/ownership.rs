//! Who owns what once an object has become another.
//!
//! Source: sigs.k8s.io/structured-merge-diff `merge/update.go`.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use super::{Owned, Owner};
use crate::patch::{
    Subject,
    fields::{Element, Set},
    typed::{self, Comparison, Faults, Shape},
};

/// Who owns what, of one object.
#[derive(Clone, Copy)]
pub(crate) struct Ownership<'a> {
    /// What the write is about.
    pub(crate) subject: &'a Subject<'a>,
}

/// Why ownership can't be settled.
#[derive(Clone, Debug)]
pub(crate) enum Unowned {
    /// Others own fields that would change.
    Conflicts(Vec<(Owner, Vec<Element>)>),
    /// What a kube-apiserver says of an object that does not fit its types.
    Misfit(String),
}

type Owners = BTreeMap<Owner, Owned>;

fn misfit(doing: &str, faults: &Faults) -> Unowned {
    Unowned::Misfit(format!("{doing}: {}", typed::told(faults)))
}

impl<'a> Ownership<'a> {
    /// Settles an update: what it changes is nobody else's. Answers what the one who writes owns by it.
    pub(crate) fn update(
        self,
        shape: Shape<'_>,
        live: &Value,
        new: &Value,
        owners: &mut Owners,
        this: &Owner,
    ) -> Result<Set, Unowned> {
        self.reconcile(live, owners);
        let compared = self.settle(shape, live, new, owners, this, true)?;
        let mine = owners.get(this).map(|owned| owned.set.clone()).unwrap_or_default();
        let mine = mine.difference(&compared.removed).union(&compared.modified).union(&compared.added);
        Ok(mine.difference_below(&Set::of(self.subject.reset)))
    }

    /// Lays an applied object over the present one.
    ///
    /// Errors: conflicts, unless it is forced.
    pub(crate) fn apply(
        self,
        live: &Value,
        applied: &Value,
        owners: &mut Owners,
        this: &Owner,
        force: bool,
    ) -> Result<Value, Unowned> {
        let shape = Shape::of(self.subject.schema);
        self.reconcile(live, owners);
        let merged = typed::merge(shape, live, applied).map_err(|faults| misfit("failed to merge config", &faults))?;
        let set = typed::collect(shape, applied).difference_below(&Set::of(self.subject.reset));
        let owned = Owned { set, api_version: self.subject.api_version.to_owned(), applied: true };
        let last = owners.insert(this.clone(), owned);
        let new = match last.filter(|last| !last.set.is_empty()) {
            Some(last) => self.prune(merged, owners, &last),
            None => merged,
        };
        self.settle(shape, live, &new, owners, this, force)?;
        Ok(new)
    }

    /// Takes what changes from all others, or says who owns it.
    fn settle(
        self,
        shape: Shape<'_>,
        live: &Value,
        new: &Value,
        owners: &mut Owners,
        this: &Owner,
        force: bool,
    ) -> Result<Comparison, Unowned> {
        let compare = |shape: Shape<'_>, live: &Value, new: &Value| {
            let compared = typed::compare(shape, live, new);
            compared.map_err(|faults| misfit("failed to compare objects", &faults))
        };
        let reset = Set::of(self.subject.reset);
        let compared = compare(shape, live, new)?.without(&reset);
        let mut by_version: BTreeMap<String, Comparison> = BTreeMap::new();
        by_version.insert(self.subject.api_version.to_owned(), compared.clone());
        let mut conflicts = Vec::new();
        let mut gone = Vec::new();
        for (owner, owned) in owners.iter().filter(|(owner, _)| *owner != this) {
            if !by_version.contains_key(&owned.api_version) {
                let Some((live, shape)) = self.at(live, &owned.api_version) else {
                    gone.push(owner.clone());
                    continue;
                };
                let Some((new, _)) = self.at(new, &owned.api_version) else {
                    gone.push(owner.clone());
                    continue;
                };
                let compared = compare(shape, &live, &new)?.without(&reset);
                by_version.insert(owned.api_version.clone(), compared);
            }
            let Some(compared) = by_version.get(&owned.api_version) else { continue };
            let taken = owned.set.intersection(&compared.modified.union(&compared.added));
            conflicts.push((owner.clone(), taken, compared.removed.clone()));
        }
        if !force {
            let each = |(owner, taken, _): &(Owner, Set, Set)| -> Vec<(Owner, Vec<Element>)> {
                taken.paths().into_iter().map(|path| (owner.clone(), path)).collect()
            };
            let conflicts: Vec<_> = conflicts.iter().flat_map(each).collect();
            if !conflicts.is_empty() {
                return Err(Unowned::Conflicts(conflicts));
            }
        }
        for owner in gone {
            owners.remove(&owner);
        }
        for (owner, taken, removed) in conflicts {
            if let Some(owned) = owners.get_mut(&owner) {
                owned.set = owned.set.difference(&taken).difference(&removed);
            }
        }
        owners.retain(|_, owned| !owned.set.is_empty());
        Ok(compared)
    }

    /// Fields whose types have changed since they came to be owned.
    fn reconcile(self, live: &Value, owners: &mut Owners) {
        owners.retain(|_, owned| {
            let Some((_, shape)) = self.at(live, &owned.api_version) else { return false };
            owned.set = typed::reconcile(shape, &owned.set);
            true
        });
    }

    /// Removes what was applied last time and is not this time, unless others own it.
    fn prune(self, merged: Value, owners: &Owners, last: &Owned) -> Value {
        let Some((base, shape)) = self.at(&merged, &last.api_version) else { return merged };
        let named = |set: &Set, shape: Shape<'_>| typed::with_named_fields(set, Some(shape));
        let pruned = typed::remove(shape, &base, &named(&last.set, shape));
        let pruned = self.add_back_owned(&base, pruned, owners, &last.api_version);
        let Some((pruned, _)) = self.at(&pruned, &last.api_version) else { return merged };
        // What nobody owns, or was not applied last time, stays.
        let kept = named(&typed::collect(shape, &pruned), shape);
        let all = named(&typed::collect(shape, &base), shape);
        let dangling = all.difference(&kept).intersection(&named(&last.set, shape));
        let pruned = typed::remove(shape, &base, &dangling);
        match self.at(&pruned, self.subject.api_version) {
            Some((pruned, _)) => pruned.into_owned(),
            None => merged,
        }
    }

    fn add_back_owned(self, merged: &Value, pruned: Value, owners: &Owners, version: &str) -> Value {
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for owned in owners.values() {
            let all = by_version.entry(&owned.api_version).or_default();
            *all = all.union(&owned.set);
        }
        let (mut merged, mut pruned) = (merged.clone(), pruned);
        // The version that it was pruned in comes first: what lacks a field may not be convertible.
        let first = by_version.remove_entry(version);
        for (version, owned) in first.into_iter().chain(by_version) {
            let (Some((all, shape)), Some((some, _))) = (self.at(&merged, version), self.at(&pruned, version)) else {
                continue;
            };
            let named = |set: &Set| typed::with_named_fields(set, Some(shape));
            let kept = named(&typed::collect(shape, &some)).union(&named(&owned));
            let removed = named(&typed::collect(shape, &all)).difference(&kept);
            let back = typed::remove(shape, &all, &removed);
            (merged, pruned) = (all.into_owned(), back);
        }
        pruned
    }

    /// The object in a version, with its type.
    fn at<'v>(self, object: &'v Value, api_version: &str) -> Option<(Cow<'v, Value>, Shape<'a>)> {
        let present = object.get("apiVersion").and_then(Value::as_str);
        if api_version == self.subject.api_version && present.is_none_or(|present| present == api_version) {
            return Some((Cow::Borrowed(object), Shape::of(self.subject.schema)));
        }
        let (object, schema) = self.subject.versions.convert(object, api_version)?;
        Some((Cow::Owned(object), Shape::of(schema)))
    }
}
