//! The event log: a ring bounded in bytes, which all watchers of a kind read with a cursor each.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::store::{entry::Entry, revision::Revision};
use kubefold_wire::watch::EventType;

/// One event.
#[derive(Debug)]
pub struct Record {
    /// Its revision; the object is given as of it.
    pub revision: Revision,
    /// `Added`, `Modified` or `Deleted`.
    pub event_type: EventType,
    /// The object; of a deletion, its last state.
    pub entry: Arc<Entry>,
    /// The state before a modification: entering or leaving a selector is judged on it.
    pub previous: Option<Arc<Entry>>,
    /// All bytes logged up to and with this record, since the log began.
    pub offset: u64,
}

impl Record {
    fn size(&self) -> usize {
        // The new state is the map's as well; only what the map has dropped is held by the log alone. Both are counted,
        // so that the bound holds however the map goes on.
        self.entry.size() + self.previous.as_ref().map_or(0, |entry| entry.size()) + size_of::<Self>()
    }
}

/// Bounds of the logs, in bytes.
#[derive(Clone, Debug)]
pub struct LogLimits {
    /// Of one kind's log.
    pub kind_bytes_max: usize,
    /// Of all logs together; each keeps a sixty-fourth of its own bound whatever the others hold.
    pub process_bytes_max: usize,
    used: Arc<AtomicUsize>,
}

impl LogLimits {
    /// Makes bounds; clones share the process's account.
    pub fn new(kind_bytes_max: usize, process_bytes_max: usize) -> Self {
        Self { kind_bytes_max, process_bytes_max, used: Arc::default() }
    }

    /// Bytes that all logs hold now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        Self::new(64 << 20, 512 << 20)
    }
}

/// The ring.
#[derive(Debug)]
pub(super) struct Log {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    offset: u64,
    /// Watches may begin here or above.
    floor: Revision,
    limits: LogLimits,
}

/// What a cursor finds.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadAfter {
    /// Records were given, perhaps none.
    Read,
    /// The cursor fell out of the ring.
    Expired,
}

impl Log {
    pub(super) fn new(limits: LogLimits) -> Self {
        Self { records: VecDeque::new(), bytes: 0, offset: 0, floor: Revision(0), limits }
    }

    /// Forgets everything: watches may begin at `floor` or above.
    pub(super) fn open_at(&mut self, floor: Revision) {
        self.floor = floor;
    }

    pub(super) fn push(
        &mut self,
        revision: Revision,
        event_type: EventType,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
    ) {
        let mut record = Record { revision, event_type, entry, previous, offset: 0 };
        let size = record.size();
        self.offset += size as u64;
        record.offset = self.offset;
        self.records.push_back(Arc::new(record));
        self.bytes += size;
        self.limits.used.fetch_add(size, Ordering::Relaxed);
        while self.is_over() && self.records.len() > 1 {
            self.evict();
        }
    }

    fn is_over(&self) -> bool {
        self.bytes > self.limits.kind_bytes_max
            || (self.bytes > self.limits.kind_bytes_max / 64
                && self.limits.used.load(Ordering::Relaxed) > self.limits.process_bytes_max)
    }

    fn evict(&mut self) {
        if let Some(record) = self.records.pop_front() {
            let size = record.size();
            self.bytes -= size.min(self.bytes);
            self.limits.used.fetch_sub(size, Ordering::Relaxed);
            self.floor = record.revision;
        }
    }

    /// Appends up to `max` records above `after` to `out`.
    pub(super) fn read_after(&self, after: Revision, max: usize, out: &mut Vec<Arc<Record>>) -> ReadAfter {
        if after < self.floor {
            return ReadAfter::Expired;
        }
        let first = self.records.partition_point(|record| record.revision <= after);
        out.extend(self.records.range(first..).take(max).cloned());
        ReadAfter::Read
    }

    /// The event of that very revision.
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<Record>> {
        let place = self.records.partition_point(|record| record.revision < revision);
        self.records.get(place).filter(|record| record.revision == revision)
    }

    /// The revision of the newest state for which `which` says yes.
    pub(super) fn newest(&self, which: impl Fn(&Entry) -> bool) -> Option<Revision> {
        let alive = |record: &&Arc<Record>| record.event_type != EventType::Deleted && which(&record.entry);
        self.records.iter().rev().find(alive).map(|record| record.revision)
    }

    pub(super) fn floor(&self) -> Revision {
        self.floor
    }

    /// Bytes logged since the log began.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes logged up to and with `revision`.
    pub(super) fn offset_at(&self, revision: Revision) -> u64 {
        let first = self.records.partition_point(|record| record.revision <= revision);
        self.records.get(first).map_or(self.offset, |record| record.offset - record.size() as u64)
    }

    pub(super) fn limits(&self) -> &LogLimits {
        &self.limits
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.limits.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
