//! What a store gives to watchers.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::store::{
    entry::Entry,
    fleet_store::FleetStore,
    log::{ReadAfter, Record},
    places::{Cursor, Expired},
    revision::Revision,
    snapshot::Snapshot,
};

impl FleetStore {
    /// Begins a watch after `revision`.
    ///
    /// Errors: the log does not reach so far back, or this store never gave that revision out.
    pub fn cursor(&self, revision: Revision) -> Result<Cursor, Expired> {
        // Between this kind's head and the last revision of all nothing of this kind happened, once all that is below it has
        // been published.
        let head = self.published_at(revision).snapshot.revision;
        let floor = self.log.floor();
        if revision < floor || revision > head.max(self.last()) {
            self.expired.fetch_add(1, Ordering::Relaxed);
            return Err(Expired { floor });
        }
        Ok(self.places.begin(revision, self.log.offset_at(revision)))
    }

    /// The object that the event of that very revision was about.
    pub fn told_at(&self, revision: Revision) -> Option<Arc<Entry>> {
        self.log.at(revision).map(|record| Arc::clone(&record.entry))
    }

    /// Begins a watch at the objects of now: nothing is missed between the two.
    pub fn snapshot_and_cursor(&self) -> (Snapshot, Cursor) {
        let snapshot = self.snapshot();
        let cursor = self.places.begin(snapshot.revision, snapshot.offset);
        (snapshot, cursor)
    }

    /// Appends up to `max` records that the cursor has not read, and moves it.
    pub fn read(&self, cursor: &mut Cursor, max: usize, out: &mut Vec<Arc<Record>>) -> ReadAfter {
        let before = out.len();
        let outcome = self.log.read_after(cursor.revision, max, out);
        if let Some(last) = out.get(before..).and_then(<[_]>::last) {
            cursor.moved_to(last);
        } else {
            cursor.moves();
        }
        if matches!(outcome, ReadAfter::Expired) {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Says whether a bulk change may go on: no watcher that still moves is so far behind that it might fall out of the log,
    /// or such watchers have been waited for long enough.
    pub fn has_room(&self) -> bool {
        self.places.have_room(self.log.offset(), self.log.room())
    }

    /// Notes that a watcher has taken objects of its beginning: it moves.
    pub fn moves(&self, cursor: &Cursor) {
        cursor.moves();
    }

    /// How long ago the oldest event was that the log holds. `None`: it holds none.
    pub fn log_reaches(&self) -> Option<Duration> {
        self.log.reaches()
    }

    /// Says how many watchers there are.
    pub fn watchers(&self) -> usize {
        self.places.count()
    }

    /// Says how many watches began before, or fell behind, what the log reaches.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}
