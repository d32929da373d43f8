//! What a store gives to watchers.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::watch;

use crate::store::{
    entry::Entry,
    fleet_store::FleetStore,
    frames::{FrameKey, Selector},
    interests::{Gone, Interest, Stream},
    log::ReadAfter,
    places::{Cursor, Expired},
    record::Record,
    revision::Revision,
    snapshot::Snapshot,
};

/// When nothing has come for so long while kubefold ends, nothing more will.
pub const LAST_EVENT_WITHIN: Duration = Duration::from_millis(50);
/// But it is not waited for longer.
pub const LAST_EVENTS_WITHIN: Duration = Duration::from_secs(1);

impl FleetStore {
    /// Begins a watch after `revision`, by one who may see no more than `interest` says.
    ///
    /// Errors: the log does not reach so far back, or this store never gave that revision out.
    pub fn cursor(&self, revision: Revision, interest: &Interest) -> Result<Cursor, Expired> {
        let Some(from) = self.begins_at(revision, interest) else {
            self.expired.fetch_add(1, Ordering::Relaxed);
            return Err(Expired { floor: self.log.floor() });
        };
        Ok(self.places.begin(from, self.log.offset_at(from), self.log.stream(interest)))
    }

    /// Says whether [`Self::cursor`] begins.
    pub fn begins(&self, revision: Revision, interest: &Interest) -> bool {
        self.begins_at(revision, interest).is_some()
    }

    fn begins_at(&self, revision: Revision, interest: &Interest) -> Option<Revision> {
        // Between this kind's head and the last revision of all nothing of this kind happened, once all that is below it has
        // been published.
        let is_given = revision <= self.head_at(revision).max(self.last());
        self.log.begins_at(revision, interest).filter(|_| is_given)
    }

    /// The revision of the newest event, of all up to a revision that was given out for any kind.
    pub fn head_at(&self, revision: Revision) -> Revision {
        self.published_at(revision).snapshot.revision
    }

    /// The object that the event of that very revision was about.
    pub fn told_at(&self, revision: Revision) -> Option<Arc<Entry>> {
        self.log.at(revision).map(|record| Arc::clone(&record.entry))
    }

    /// Begins a watch at the objects of now, with everything up to a revision that was given out: nothing is missed between
    /// the two.
    pub fn snapshot_and_cursor(&self, at_least: Revision, interest: &Interest) -> (Snapshot, Cursor) {
        let snapshot = self.snapshot_from(at_least);
        let cursor = self.places.begin(snapshot.revision, snapshot.offset, self.log.stream(interest));
        (snapshot, cursor)
    }

    /// Tells the watcher of a cursor of what may be for it: wait on it, then read.
    pub fn changes(&self, cursor: &Cursor) -> watch::Receiver<u64> {
        cursor.stream().map_or_else(|| self.subscribe(), Stream::subscribe)
    }

    /// Appends up to `max` records of up to `max_bytes` that the cursor has not read, and moves it. There may be some among
    /// them that are no concern of its watcher's.
    pub fn read(&self, cursor: &mut Cursor, max: usize, max_bytes: usize, out: &mut Vec<Arc<Record>>) -> ReadAfter {
        let (before, (head, offset)) = (out.len(), self.log.head());
        let outcome = match cursor.stream().filter(|stream| stream.covers(cursor.revision)) {
            Some(stream) => match stream.read_after(cursor.revision, max, max_bytes, out) {
                Ok(()) => ReadAfter::Read,
                Err(Gone) => {
                    out.truncate(before);
                    ReadAfter::Expired
                }
            },
            None => self.log.read_after(cursor.revision, max, max_bytes, out),
        };
        match (&outcome, out.get(before..).and_then(<[_]>::last)) {
            (ReadAfter::Read, Some(last)) => cursor.moved_to(last),
            (ReadAfter::Read, None) => cursor.skips_to(head, offset),
            (ReadAfter::Expired, _) => {
                self.expired.fetch_add(1, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Says whether an event is gone that the cursor has not read.
    pub fn has_lost(&self, cursor: &Cursor) -> bool {
        match cursor.stream().filter(|stream| stream.covers(cursor.revision)) {
            Some(stream) => stream.has_lost(cursor.revision),
            None => cursor.revision < self.log.floor(),
        }
    }

    /// The frame that tells of an event: the first watcher that asks for it makes it.
    pub fn frame(&self, record: &Arc<Record>, key: FrameKey, make: impl FnOnce() -> Bytes) -> Bytes {
        self.log.frame(record, key, make)
    }

    /// A number for all that a watcher selects by, of which `text` says what it is.
    pub fn selector(&self, text: &str) -> Selector {
        self.selectors.of(text)
    }

    /// Says whether a bulk change may go on: no watcher that still moves is so far behind that it might fall out of the log,
    /// or such watchers have been waited for long enough.
    pub fn has_room(&self) -> bool {
        self.has_passing_room() && self.places.have_room(self.log.offset(), self.log.room())
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
