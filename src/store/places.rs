//! Where the watchers of a store are in its log.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::{log::Record, revision::Revision};

/// A watcher that has not moved for so long is no longer waited for.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// How long bulk changes wait for watchers that are behind and still move.
const CROWDED_MAX: Duration = Duration::from_secs(10);

/// A watcher's place in the log, as writers see it.
#[derive(Debug)]
struct Place {
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
    /// Notes that its watcher takes what it is given.
    pub(super) fn moves(&self) {
        *self.place.moved.lock() = Instant::now();
    }

    /// Notes that everything up to this record was read.
    pub(super) fn moved_to(&mut self, record: &Record) {
        self.revision = record.revision;
        self.place.offset.store(record.offset, Ordering::Release);
        self.moves();
    }
}

/// A watch from a revision that the log does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The oldest revision that a watch may begin at.
    pub floor: Revision,
}

/// The places of all watchers of a store.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Mutex<Vec<Weak<Place>>>,
    /// Since when bulk changes have been waiting.
    crowded: Mutex<Option<Instant>>,
}

impl Places {
    /// A cursor that has read everything up to `revision`, and so many bytes of the log.
    pub(super) fn begin(&self, revision: Revision, offset: u64) -> Cursor {
        let place = Arc::new(Place { offset: AtomicU64::new(offset), moved: Mutex::new(Instant::now()) });
        let mut all = self.all.lock();
        all.retain(|place| place.strong_count() > 0);
        all.push(Arc::downgrade(&place));
        Cursor { revision, place }
    }

    /// Says whether a bulk change may go on: no watcher that still moves is more than `bound` bytes behind `head`, or such
    /// watchers have been waited for long enough.
    pub(super) fn have_room(&self, head: u64, bound: u64) -> bool {
        let now = Instant::now();
        let is_crowded = self.all.lock().iter().filter_map(Weak::upgrade).any(|place| {
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

    /// How many watchers there are.
    pub(super) fn count(&self) -> usize {
        self.all.lock().iter().filter(|place| place.strong_count() > 0).count()
    }
}
