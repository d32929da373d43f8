//! The objects that have a UID of their own, by that UID.

use std::{collections::BTreeSet, hash::BuildHasher as _, ops::Bound, sync::Arc};

use smallvec::SmallVec;

use crate::store::{
    entry::{Entry, Key},
    rows::Row,
};

/// The keys of objects by hashes of the UIDs that their rows have in their members. Two UIDs of one hash cost one look.
///
/// Shape: some 40 bytes a row; a kind of which nobody asks has none.
#[derive(Debug, Default)]
pub(super) struct Uids {
    keys: BTreeSet<(u64, Key)>,
    hasher: std::hash::RandomState,
    /// Says whether all objects are in it.
    pub(super) is_whole: bool,
}

impl Uids {
    /// Follows an object from one state to the next; `None` is no object.
    pub(super) fn change(&mut self, before: Option<&Arc<Entry>>, after: Option<&Arc<Entry>>) {
        if let (Some(before), Some(after)) = (before, after)
            && !before.folded
            && !after.folded
            && before.uid() == after.uid()
        {
            return;
        }
        let gone = before.map(|entry| self.of_entry(entry)).unwrap_or_default();
        gone.iter().for_each(|row| drop(self.keys.take(row)));
        if let Some(after) = after {
            self.insert(after);
        }
    }

    /// Adds the rows of an object.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) {
        let rows = self.of_entry(entry);
        self.keys.extend(rows);
    }

    /// The keys of the objects that may have this UID.
    pub(super) fn keys(&self, uid: &str) -> impl Iterator<Item = &Key> {
        let hash = self.hasher.hash_one(uid);
        let first = (hash, Key::from(""));
        let all = self.keys.range((Bound::Included(first), Bound::Unbounded));
        all.take_while(move |(of, _)| *of == hash).map(|(_, key)| key)
    }

    fn of_entry(&self, entry: &Arc<Entry>) -> SmallVec<[(u64, Key); 1]> {
        let of_row = |row: &Row| (self.hasher.hash_one(row.uid()), entry.shared_key().clone());
        Row::all_of(entry).iter().map(of_row).collect()
    }
}
