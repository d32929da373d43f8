//! A store that shows what another process's store of the kind shows: it is filled with that one's objects, and told of its events.

use crate::store::{
    earlier::{Earlier, Later},
    entry::Entry,
    fleet_store::FleetStore,
    log::ReadAfter,
    revision::Revision,
};

/// An event of the other store.
#[derive(Debug)]
pub enum Change {
    /// An object is new, or another.
    Put(Box<Entry>),
    /// The object of that key is gone, as of a revision.
    Removed(String, Revision),
    /// Nothing that is shown has changed up to a revision.
    Reached(Revision),
}

impl Change {
    /// As of which revision it is.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.revision,
            Self::Removed(_, revision) | Self::Reached(revision) => *revision,
        }
    }
}

impl FleetStore {
    /// Takes some of the other store's objects in. Nobody may read this one before [`Self::filled_as_of`].
    pub fn fill(&self, entries: Vec<Entry>) {
        self.change(|inner| entries.into_iter().for_each(|entry| drop(inner.put(entry))));
    }

    /// It has all objects that the other store had at a revision.
    pub fn filled_as_of(&self, revision: Revision) {
        self.change(|inner| inner.open_at(revision));
    }

    /// Adds to what the other store's process has told that it shows what this copy has beyond that. Nothing where folded objects have
    /// changed: a copy does not know their parts.
    pub fn complete(&self, told: &mut Earlier) {
        let mut records = Vec::new();
        let read = self.log.read_after(told.head(), usize::MAX, usize::MAX, &mut records);
        let are_whole = records.iter().all(|record| !record.entry.folded);
        if let Some(last) = records.last().filter(|_| read == ReadAfter::Read && are_whole) {
            told.change(&Later::of(last.revision, &records));
        }
    }

    /// The other store's process has given that revision out, for whatever kind.
    pub fn knows_of(&self, revision: Revision) {
        self.revisions.reach(revision);
    }

    /// Bytes that its objects cost to hold.
    pub fn bytes(&self) -> u64 {
        self.peek(|inner| inner.tally.0.values().map(|held| held.bytes as u64).sum())
    }

    /// Takes events in, in the other store's order.
    pub fn apply(&self, changes: Vec<Change>) {
        self.change(|inner| {
            for change in changes {
                match change {
                    Change::Put(entry) => drop(inner.put(*entry)),
                    Change::Removed(key, revision) => inner.remove_visible_at(&key, revision),
                    Change::Reached(revision) => {
                        inner.head = inner.head.max(revision);
                        inner.log.reach(revision);
                    }
                }
            }
        });
    }
}
