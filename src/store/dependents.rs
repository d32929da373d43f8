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
    Few(Vec<Key>),
    // A set takes more room than a list, also where there is none.
    #[expect(clippy::box_collection, reason = "the map has as much room for each referent as the largest form takes")]
    Many(Box<HashSet<Key>>),
}

const _: () = assert!(size_of::<Keys>() <= 24);

impl Keys {
    fn insert(&mut self, key: &Key) {
        match self {
            Self::One(known) => *self = Self::Few(vec![known.clone(), key.clone()]),
            Self::Few(keys) if keys.len() < FEW => {
                if keys.len() == keys.capacity() {
                    // By half, as most lists stay short.
                    keys.reserve_exact(keys.len().div_ceil(2));
                }
                keys.push(key.clone());
            }
            Self::Few(keys) => *self = Self::Many(Box::new(keys.drain(..).chain([key.clone()]).collect())),
            Self::Many(keys) => {
                keys.insert(key.clone());
            }
        }
    }

    /// Says whether there are others.
    fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(known) => known != key,
            Self::Few(keys) => {
                if let Some(at) = keys.iter().position(|known| known == key) {
                    keys.swap_remove(at);
                }
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
