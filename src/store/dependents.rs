//! Who refers to whom: which objects are written anew when who another object is changes.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use smallvec::SmallVec;

use crate::store::{
    entry::{Entry, Key},
    identities::Referent,
};

/// Objects that refer to one referent and are kept in a list. More are kept in a set.
const FEW: usize = 64;

/// The visible objects that refer to each referent, by its hash. Two referents of one hash cost a rewriting that changes
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    by_referent: HashMap<u64, Keys>,
}

/// Keys of objects.
#[derive(Debug)]
enum Keys {
    Few(SmallVec<[Key; 1]>),
    Many(HashSet<Key>),
}

impl Keys {
    fn insert(&mut self, key: &Key) {
        match self {
            Self::Few(keys) if keys.len() < FEW => keys.push(Arc::clone(key)),
            Self::Few(keys) => *self = Self::Many(keys.drain(..).chain([Arc::clone(key)]).collect()),
            Self::Many(keys) => drop(keys.insert(Arc::clone(key))),
        }
    }

    fn remove(&mut self, key: &Key) {
        match self {
            Self::Few(keys) => {
                if let Some(at) = keys.iter().position(|known| known == key) {
                    keys.swap_remove(at);
                }
            }
            Self::Many(keys) => drop(keys.remove(key)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Few(keys) => keys.is_empty(),
            Self::Many(keys) => keys.is_empty(),
        }
    }

    fn append_to(&self, out: &mut BTreeSet<Key>) {
        match self {
            Self::Few(keys) => out.extend(keys.iter().cloned()),
            Self::Many(keys) => out.extend(keys.iter().cloned()),
        }
    }
}

impl Dependents {
    /// Follows an object from one state to the next; `None` is no object.
    pub(super) fn change(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        if let (Some(before), Some(after)) = (before, after)
            && before.referents().eq(after.referents())
        {
            return;
        }
        if let Some(before) = before {
            for referent in before.referents() {
                let Some(keys) = self.by_referent.get_mut(&referent) else { continue };
                keys.remove(before.shared_key());
                if keys.is_empty() {
                    self.by_referent.remove(&referent);
                }
            }
        }
        if let Some(after) = after {
            for referent in after.referents() {
                let keys = self.by_referent.entry(referent).or_insert_with(|| Keys::Few(SmallVec::new()));
                keys.insert(after.shared_key());
            }
        }
    }

    /// The keys of the objects that refer to one of these, in order.
    pub(super) fn of(&self, changed: &[Referent]) -> Vec<Key> {
        self.of_hashes(changed.iter().map(Referent::hashed))
    }

    /// The same for referents of these hashes.
    pub(super) fn of_hashes(&self, hashes: impl Iterator<Item = u64>) -> Vec<Key> {
        let mut out = BTreeSet::new();
        for keys in hashes.filter_map(|hash| self.by_referent.get(&hash)) {
            keys.append_to(&mut out);
        }
        out.into_iter().collect()
    }
}
