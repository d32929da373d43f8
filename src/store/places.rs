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

use crate::store::{interests::Stream, record::Record, revision::Revision};

/// A watcher that has not moved for so long is no longer waited for.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// How long bulk changes wait for watchers that are behind and still move.
const CROWDED_MAX: Duration = Duration::from_secs(10);

/// A watcher's place in the log, as writers see it.
#[derive(Debug)]
struct Place {
    offset: AtomicU64,
    moved: Mutex<Instant>,
    stream: Option<Arc<Stream>>,
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
    pub fn moves(&self) {
        *self.place.moved.lock() = Instant::now();
    }

    /// The stream that it reads once it has come to where that begins.
    pub(super) fn stream(&self) -> Option<&Stream> {
        self.place.stream.as_deref()
    }

    /// Notes that there is nothing for its watcher up to a revision, when so many bytes had been logged.
    pub(super) fn skips_to(&mut self, revision: Revision, offset: u64) {
        self.revision = self.revision.max(revision);
        self.place.offset.fetch_max(offset, Ordering::Release);
        self.moves();
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

#[derive(Debug, Default)]
struct All {
    places: Vec<Weak<Place>>,
    /// With so many those go whose watchers are gone.
    sweep_at: usize,
}

/// The places of all watchers of a store.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: Mutex<All>,
    /// Since when bulk changes have been waiting.
    crowded: Mutex<Option<Instant>>,
}

impl Places {
    /// A cursor that has read everything up to `revision`, and so many bytes of the log.
    pub(super) fn begin(&self, revision: Revision, offset: u64, stream: Option<Arc<Stream>>) -> Cursor {
        let place = Arc::new(Place { offset: AtomicU64::new(offset), moved: Mutex::new(Instant::now()), stream });
        let mut all = self.all.lock();
        if all.places.len() >= all.sweep_at.max(16) {
            all.places.retain(|place| place.strong_count() > 0);
            all.sweep_at = 2 * all.places.len();
        }
        all.places.push(Arc::downgrade(&place));
        Cursor { revision, place }
    }

    /// Says whether a bulk change may go on: no watcher that still moves is more than `bound` bytes behind `head`, or such
    /// watchers have been waited for long enough.
    pub(super) fn have_room(&self, head: u64, bound: u64) -> bool {
        let now = Instant::now();
        let is_crowded = self.all.lock().places.iter().filter_map(Weak::upgrade).any(|place| {
            let offset = place.offset.load(Ordering::Acquire);
            let behind = match &place.stream {
                Some(stream) => stream.unread(offset, head),
                None => head.saturating_sub(offset),
            };
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
        self.all.lock().places.iter().filter(|place| place.strong_count() > 0).count()
    }
}
