//! How a backend that stores changes reads them at the start: what is there, and what is remembered.

use std::sync::Arc;

use bytes::Bytes;

use crate::storage::{
    Bounds, Change, Record,
    cache::{Map, State},
    change::{Tip, dead_of},
};

/// How far a storage that was put back from a backup is raised: beyond the number of changes that can have been lost.
/// Source: etcd's documentation on disaster recovery.
pub(super) const RESTORED_BUMP: u64 = 1_000_000_000;

/// Changes that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// A change that is remembered is not there.
    #[error("the change of revision {0} is missing")]
    Missing(u64),
    /// There is a change that was never counted.
    #[error("the newest revision is {newest}, but there is a change of revision {found}")]
    Uncounted {
        /// As the head has it.
        newest: u64,
        /// As the change has it.
        found: u64,
    },
}

/// Takes changes in, in the order of their revisions.
pub(super) struct Replay {
    state: State,
    dead: Vec<u64>,
    /// Changes after this revision are remembered.
    floor: u64,
    is_past_floor: bool,
    bounds: Bounds,
}

/// All that was stored.
pub(super) struct Replayed {
    pub(super) state: State,
    /// Revisions of stored changes that nobody needs.
    pub(super) dead: Vec<u64>,
}

impl Replay {
    pub(super) fn new(floor: u64, bounds: Bounds) -> Self {
        let state = State::new(Map::new(), Tip { revision: 0, ..Tip::EMPTY });
        Self { state, dead: Vec::new(), floor, is_past_floor: false, bounds }
    }

    /// Takes the next change in. `None` is a deletion.
    ///
    /// Errors: one before it is missing.
    pub(super) fn take(&mut self, revision: u64, key: &str, value: Option<&[u8]>) -> Result<(), Gap> {
        let before = self.state.record(key);
        let shared = before.as_ref().map_or_else(|| key.into(), |record| Arc::clone(&record.key));
        let after = value.map(|value| Record { key: shared, value: Bytes::copy_from_slice(value), revision });
        let change = Change { revision, before, after };
        if revision <= self.floor {
            self.dead.extend(dead_of(&change));
            self.state.absorb(&change);
            return Ok(());
        }
        self.pass_floor();
        let next = self.state.tip().revision + 1;
        if revision != next {
            return Err(Gap::Missing(next));
        }
        self.dead.extend(self.state.commit(Arc::new(change), &self.bounds));
        Ok(())
    }

    /// Ends at the newest revision.
    ///
    /// Errors: there are more changes, or less.
    pub(super) fn end(mut self, newest: u64) -> Result<Replayed, Gap> {
        self.pass_floor();
        let found = self.state.tip().revision;
        if found > newest {
            return Err(Gap::Uncounted { newest, found });
        }
        if found < newest {
            return Err(Gap::Missing(found + 1));
        }
        Ok(Replayed { state: self.state, dead: self.dead })
    }

    fn pass_floor(&mut self) {
        if !self.is_past_floor {
            self.is_past_floor = true;
            self.state.begin_log(self.floor);
        }
    }
}
