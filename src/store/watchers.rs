//! Watchers: where each is in the log, what it reads next, and whether bulk changes wait for it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::{
    entry::Entry,
    fleet_store::FleetStore,
    log::{ReadAfter, Record},
    revision::Revision,
    snapshot::Snapshot,
};

/// A watcher that has not moved for so long is no longer waited for.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// How long bulk changes wait for watchers that are behind and still move.
const CROWDED_MAX: Duration = Duration::from_secs(10);

/// A watcher's place in the log, as the sequencer sees it.
#[derive(Debug)]
pub(super) struct Place {
    offset: AtomicU64,
    moved: Mutex<Instant>,
}

/// A watcher's cursor. Dropped, it is forgotten.
#[derive(Debug)]
pub struct Cursor {
    /// Everything up to here was read.
    pub revision: Revision,
    place: Arc<Place>,
}

impl Cursor {
    fn moved_to(&mut self, record: &Record) {
        self.revision = record.revision;
        self.place.offset.store(record.offset, Ordering::Release);
        *self.place.moved.lock() = Instant::now();
    }
}

/// A watch from a revision that the log does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The oldest revision that a watch may begin at.
    pub floor: Revision,
}

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
        Ok(self.place(revision, self.log.offset_at(revision)))
    }

    /// The object that the event of that very revision was about.
    pub fn told_at(&self, revision: Revision) -> Option<Arc<Entry>> {
        self.log.at(revision).map(|record| Arc::clone(&record.entry))
    }

    /// Begins a watch at the objects of now: nothing is missed between the two.
    pub fn snapshot_and_cursor(&self) -> (Snapshot, Cursor) {
        let snapshot = self.snapshot();
        let cursor = self.place(snapshot.revision, snapshot.offset);
        (snapshot, cursor)
    }

    fn place(&self, revision: Revision, offset: u64) -> Cursor {
        let place = Arc::new(Place { offset: AtomicU64::new(offset), moved: Mutex::new(Instant::now()) });
        let mut places = self.places.lock();
        places.retain(|place| place.strong_count() > 0);
        places.push(Arc::downgrade(&place));
        Cursor { revision, place }
    }

    /// Appends up to `max` records that the cursor has not read, and moves it.
    pub fn read(&self, cursor: &mut Cursor, max: usize, out: &mut Vec<Arc<Record>>) -> ReadAfter {
        let before = out.len();
        let outcome = self.log.read_after(cursor.revision, max, out);
        if let Some(last) = out.get(before..).and_then(<[_]>::last) {
            cursor.moved_to(last);
        } else {
            *cursor.place.moved.lock() = Instant::now();
        }
        if matches!(outcome, ReadAfter::Expired) {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Says whether a bulk change may go on: no watcher that still moves is so far behind that it might fall out of the log,
    /// or such watchers have been waited for long enough.
    pub fn has_room(&self) -> bool {
        let (head, bound) = (self.log.offset(), self.log.room());
        let now = Instant::now();
        let is_crowded = self.places.lock().iter().filter_map(Weak::upgrade).any(|place| {
            let behind = head.saturating_sub(place.offset.load(Ordering::Acquire));
            behind > bound && now.duration_since(*place.moved.lock()) < STALLED_AFTER
        });
        let mut crowded = self.crowded.lock();
        if !is_crowded {
            *crowded = None;
            return true;
        }
        now.duration_since(*crowded.get_or_insert(now)) >= CROWDED_MAX
    }

    /// Notes that a watcher has taken objects of its beginning: it moves.
    pub fn moves(&self, cursor: &Cursor) {
        *cursor.place.moved.lock() = Instant::now();
    }

    /// How long ago the oldest event was that the log holds. `None`: it holds none.
    pub fn log_reaches(&self) -> Option<Duration> {
        self.log.reaches()
    }

    /// Says how many watchers there are.
    pub fn watchers(&self) -> usize {
        self.places.lock().iter().filter(|place| place.strong_count() > 0).count()
    }

    /// Says how many watches began before, or fell behind, what the log reaches.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}
