//! Who refers to whom: which objects are written anew when who another object is changes.

use std::collections::{BTreeSet, HashMap, HashSet, hash_map};

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

/// Keys of objects. Most referents have one or a few, so that these take no more room than there are keys.
#[derive(Debug)]
enum Keys {
    One(Key),
    Few(Box<[Key]>),
    // A set takes more room than a list, also where there is none.
    #[expect(clippy::box_collection, reason = "the map has as much room for each referent as the largest form takes")]
    Many(Box<HashSet<Key>>),
}

const _: () = assert!(size_of::<Keys>() <= 24);

impl Keys {
    fn insert(&mut self, key: &Key) {
        let grown = match self {
            Self::Many(keys) => {
                keys.insert(key.clone());
                return;
            }
            Self::One(known) => Self::Few([known.clone(), key.clone()].into()),
            Self::Few(keys) if keys.len() < FEW => Self::Few(keys.iter().chain([key]).cloned().collect()),
            Self::Few(keys) => Self::Many(Box::new(keys.iter().chain([key]).cloned().collect())),
        };
        *self = grown;
    }

    /// Says whether there are others.
    fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) => known != key,
            Self::Few(keys) => {
                *keys = keys.iter().filter(|known| *known != key).cloned().collect();
                !keys.is_empty()
            }
            Self::Many(keys) => {
                keys.remove(key);
                !keys.is_empty()
            }
        }
    }

    fn append_to(&self, out: &mut BTreeSet<Key>) {
        match self {
            Self::One(key) => drop(out.insert(key.clone())),
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
                if !keys.remove(before.shared_key()) {
                    self.by_referent.remove(&referent);
                }
            }
        }
        if let Some(after) = after {
            for referent in after.referents() {
                match self.by_referent.entry(referent) {
                    hash_map::Entry::Occupied(mut keys) => keys.get_mut().insert(after.shared_key()),
                    hash_map::Entry::Vacant(place) => drop(place.insert(Keys::One(after.shared_key().clone()))),
                }
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
