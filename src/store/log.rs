//! The event log: what happened to a kind of late, which all its watchers read with a cursor each.
//!
//! A log keeps at least [`KEPT_FOR`] of its events, as a kube-apiserver aims to, for as long as all logs of the process
//! together fit into its budget. Beyond that the oldest event of the process goes, whoever's it is. An event is charged for
//! what the log alone holds: the state before, which the store has no more.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::store::{
    entry::Entry,
    frames::{Common, FrameKey},
    interests::{Interest, Interests, Stream},
    missing::Missing,
    recent::Recent,
    record::Record,
    revision::Revision,
};
use kubefold_wire::watch::EventType;

/// Events younger than this go only when the process's budget is spent. Source: kubernetes/apiserver
/// `pkg/storage/cacher/watch_cache.go` `eventFreshDuration`.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(75);
/// Of the budget this part is made free at once, so that the oldest event is not searched for at each new one.
const FREED_AT_ONCE: usize = 64;
/// Bytes of frames that a process keeps.
const FRAMES_BYTES_MAX: usize = 32 << 20;
/// Bytes of objects as protobuf messages that a process keeps.
const MESSAGES_BYTES_MAX: usize = 32 << 20;

/// Bounds of the logs, in bytes.
#[derive(Clone, Debug)]
pub struct LogLimits {
    /// Above this one kind's log lets events go that are older than 75 s.
    pub kind_bytes_max: usize,
    /// Of all logs together.
    pub process_bytes_max: usize,
    account: Arc<Account>,
}

/// What all logs of a process hold.
#[derive(Debug)]
struct Account {
    used: AtomicUsize,
    frames: Recent<Record>,
    /// Objects as protobuf messages.
    messages: Recent<Entry>,
    logs: Mutex<Vec<Weak<Ring>>>,
}

impl LogLimits {
    /// Makes bounds; clones share the process's account.
    pub fn new(kind_bytes_max: usize, process_bytes_max: usize) -> Self {
        let account = Account {
            used: AtomicUsize::new(0),
            frames: Recent::new(FRAMES_BYTES_MAX),
            messages: Recent::new(MESSAGES_BYTES_MAX),
            logs: Mutex::default(),
        };
        Self { kind_bytes_max, process_bytes_max, account: Arc::new(account) }
    }

    /// Bytes of protobuf messages that all stores keep now.
    pub fn messages_used(&self) -> usize {
        self.account.messages.used()
    }

    /// Bytes that all logs hold now.
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Lets the oldest events of the process go until there is room again.
    fn make_room(&self) {
        let logs: Vec<Arc<Ring>> = {
            let mut logs = self.account.logs.lock();
            logs.retain(|log| log.strong_count() > 0);
            logs.iter().filter_map(Weak::upgrade).collect()
        };
        let oldest = |ring: &Ring| ring.inner.lock().records.front().map(|record| record.revision);
        let mut order: BinaryHeap<Reverse<(Revision, usize)>> =
            logs.iter().enumerate().filter_map(|(at, ring)| Some(Reverse((oldest(ring)?, at)))).collect();
        let enough = self.process_bytes_max - self.process_bytes_max / FREED_AT_ONCE;
        while self.used() > enough {
            let Some(Reverse((_, at))) = order.pop() else { return };
            let Some(ring) = logs.get(at) else { return };
            ring.evict(&self.account);
            order.extend(oldest(ring).map(|revision| Reverse((revision, at))));
        }
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        Self::new(64 << 20, 512 << 20)
    }
}

/// The log of one kind. Its lock is held for a few moves of pointers.
#[derive(Debug)]
pub(super) struct Log {
    ring: Arc<Ring>,
    limits: LogLimits,
}

#[derive(Debug, Default)]
struct Ring {
    inner: Mutex<RingInner>,
}

#[derive(Debug, Default)]
struct RingInner {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    offset: u64,
    /// Watches may begin here or above.
    floor: Revision,
    /// But not between these: what was told then is not known.
    unknown: Option<(Revision, Revision)>,
    /// What an earlier process told of late, while the log reaches back to it.
    missing: Option<Missing>,
    /// The revision of the newest event.
    head: Revision,
    interests: Interests,
}

impl RingInner {
    /// Says whether it has all that came after that revision.
    fn reaches(&self, revision: Revision) -> bool {
        let is_unknown = self.unknown.is_some_and(|(after, before)| after < revision && revision < before);
        revision >= self.floor && !is_unknown
    }
}

impl Ring {
    fn evict(&self, account: &Account) {
        let mut inner = self.inner.lock();
        if let Some(record) = inner.records.pop_front() {
            let size = record.size();
            inner.bytes -= size.min(inner.bytes);
            (inner.floor, inner.missing) = (record.revision, None);
            account.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
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
        let ring = Arc::new(Ring::default());
        limits.account.logs.lock().push(Arc::downgrade(&ring));
        Self { ring, limits }
    }

    /// Watches may begin at `floor` or above. What was logged before counts for nothing.
    pub(super) fn open_at(&self, floor: Revision) {
        let mut inner = self.ring.inner.lock();
        self.limits.account.used.fetch_sub(inner.bytes, Ordering::Relaxed);
        inner.records.clear();
        (inner.floor, inner.head, inner.bytes) = (floor, floor, 0);
        (inner.unknown, inner.missing) = (None, None);
    }

    /// Goes on behind what an earlier process told, which gave out revisions up to `last` until then. Another log of this kind may have told
    /// something until `now`.
    pub(super) fn resume_behind(&self, missing: Missing, last: Revision, now: Revision) {
        let mut inner = self.ring.inner.lock();
        (inner.floor, inner.head, inner.unknown) = (missing.head, missing.head, Some((last, now)));
        inner.missing = Some(missing);
    }

    /// Nothing else has happened up to a revision.
    pub(super) fn reach(&self, revision: Revision) {
        let mut inner = self.ring.inner.lock();
        inner.head = inner.head.max(revision);
    }

    pub(super) fn push(
        &self,
        revision: Revision,
        event_type: EventType,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
    ) {
        let mut record = Record { revision, event_type, entry, previous, offset: 0, common: Common::default() };
        let size = record.size();
        let mut inner = self.ring.inner.lock();
        inner.offset += size as u64;
        record.offset = inner.offset;
        inner.head = revision;
        let record = Arc::new(record);
        inner.interests.note(&record);
        inner.records.push_back(record);
        inner.bytes += size;
        self.limits.account.used.fetch_add(size, Ordering::Relaxed);
        let is_old =
            |inner: &RingInner| inner.records.front().is_some_and(|oldest| oldest.revision.until(revision) > KEPT_FOR);
        while inner.bytes > self.limits.kind_bytes_max && is_old(&inner) {
            let Some(oldest) = inner.records.pop_front() else { break };
            let size = oldest.size();
            inner.bytes -= size.min(inner.bytes);
            (inner.floor, inner.missing) = (oldest.revision, None);
            self.limits.account.used.fetch_sub(size, Ordering::Relaxed);
        }
        drop(inner);
        if self.limits.used() > self.limits.process_bytes_max {
            self.limits.make_room();
        }
    }

    /// Appends up to `max` records above `after` to `out`, and no further one once their objects are `max_bytes` long.
    pub(super) fn read_after(
        &self,
        after: Revision,
        max: usize,
        max_bytes: usize,
        out: &mut Vec<Arc<Record>>,
    ) -> ReadAfter {
        let inner = self.ring.inner.lock();
        if !inner.reaches(after) {
            return ReadAfter::Expired;
        }
        let first = inner.records.partition_point(|record| record.revision <= after);
        let mut bytes = 0;
        for record in inner.records.range(first..).take(max) {
            if bytes >= max_bytes {
                break;
            }
            bytes += record.entry.json().len();
            out.push(Arc::clone(record));
        }
        ReadAfter::Read
    }

    /// All that it has up to a revision, oldest first, and after which revision that is all.
    pub(super) fn all_up_to(&self, revision: Revision) -> (Revision, Vec<Arc<Record>>) {
        let inner = self.ring.inner.lock();
        let until = inner.records.partition_point(|record| record.revision <= revision);
        (inner.floor, inner.records.range(..until).map(Arc::clone).collect())
    }

    /// The stream of an interest; none for everything.
    pub(super) fn stream(&self, interest: &Interest) -> Option<Arc<Stream>> {
        let mut inner = self.ring.inner.lock();
        let (head, offset) = (inner.head, inner.offset);
        inner.interests.stream(interest, head, offset)
    }

    /// The revision of the newest event, and the bytes logged up to it.
    pub(super) fn head(&self) -> (Revision, u64) {
        let inner = self.ring.inner.lock();
        (inner.head, inner.offset)
    }

    /// The streams with events that their watchers have not been woken for.
    pub(super) fn take_touched(&self) -> Vec<Arc<Stream>> {
        self.ring.inner.lock().interests.take_touched()
    }

    /// All streams.
    pub(super) fn streams(&self) -> Vec<Arc<Stream>> {
        self.ring.inner.lock().interests.all()
    }

    /// The frame that tells of an event, made by `make` if it is the first.
    pub(super) fn frame(&self, record: &Arc<Record>, key: FrameKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let (frame, is_first) = record.common.frame(key, make);
        if is_first {
            self.limits.account.frames.keep(record, frame.len());
        }
        frame
    }

    /// Keeps the message that was made of an object, and lets the oldest go that are too many.
    pub(super) fn keep_message(&self, entry: &Arc<Entry>, bytes: usize) {
        self.limits.account.messages.keep(entry, bytes);
    }

    /// The event of that very revision.
    pub(super) fn at(&self, revision: Revision) -> Option<Arc<Record>> {
        let inner = self.ring.inner.lock();
        let place = inner.records.partition_point(|record| record.revision < revision);
        inner.records.get(place).filter(|record| record.revision == revision).cloned()
    }

    /// The revision of the newest state for which `which` says yes.
    pub(super) fn newest(&self, which: impl Fn(&Entry) -> bool) -> Option<Revision> {
        let alive = |record: &&Arc<Record>| record.event_type != EventType::Deleted && which(&record.entry);
        self.ring.inner.lock().records.iter().rev().find(alive).map(|record| record.revision)
    }

    /// Where a watch from a revision begins to read; `None` where the log has not all that it is to be told.
    pub(super) fn begins_at(&self, revision: Revision, interest: &Interest) -> Option<Revision> {
        let inner = self.ring.inner.lock();
        if inner.reaches(revision) {
            return Some(revision);
        }
        let missing = inner.missing.as_ref().filter(|missing| revision < missing.head)?;
        missing.concerns_nobody_in(interest, revision).then_some(missing.head)
    }

    /// Says whether an earlier process gave that revision out, and it has all that came after it.
    pub(super) fn is_of_earlier(&self, revision: Revision) -> bool {
        let inner = self.ring.inner.lock();
        inner.unknown.is_some_and(|(last, _)| revision <= last) && inner.reaches(revision)
    }

    pub(super) fn floor(&self) -> Revision {
        self.ring.inner.lock().floor
    }

    /// Bytes logged since the log began.
    pub(super) fn offset(&self) -> u64 {
        self.ring.inner.lock().offset
    }

    /// Bytes logged up to and with `revision`.
    pub(super) fn offset_at(&self, revision: Revision) -> u64 {
        let inner = self.ring.inner.lock();
        let first = inner.records.partition_point(|record| record.revision <= revision);
        inner.records.get(first).map_or(inner.offset, |record| record.offset - record.size() as u64)
    }

    /// How far behind a watcher may be that is waited for, in bytes: half of what the log may come to hold.
    pub(super) fn room(&self) -> u64 {
        let own = self.ring.inner.lock().bytes;
        let others = self.limits.used().saturating_sub(own);
        let possible = self.limits.process_bytes_max.saturating_sub(others).max(self.limits.kind_bytes_max);
        possible as u64 / 2
    }

    /// How long ago the oldest event was that the log holds, at the time of the newest. `None`: it holds none.
    pub(super) fn reaches(&self) -> Option<Duration> {
        let inner = self.ring.inner.lock();
        Some(inner.records.front()?.revision.until(inner.records.back()?.revision))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.limits.account.used.fetch_sub(self.ring.inner.lock().bytes, Ordering::Relaxed);
    }
}
