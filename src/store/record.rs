//! One event of a log, with what its watchers share.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::store::{
    entry::Entry,
    frames::{Common, FrameKey, SelectorId, Transition},
    revision::Revision,
};
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
    /// What its watchers share.
    pub(super) common: Common,
}

impl Record {
    /// What the event is to a watcher with this selector, judged by `judge` unless another one with the same has asked.
    pub fn verdict(&self, selector: SelectorId, judge: impl FnOnce() -> Option<Transition>) -> Option<Transition> {
        self.common.verdict(selector, judge)
    }

    /// A frame that tells of the event, if one has been made and is kept.
    pub fn made_frame(&self, key: &FrameKey) -> Option<Bytes> {
        self.common.made_frame(key)
    }

    /// Says whether the object is as it was, but for parts that change nothing in what all of them make.
    pub fn is_of_parts(&self) -> bool {
        self.event_type == EventType::Modified && self.entry.revision < self.revision
    }

    /// Bytes that the log alone holds for it. The state after it is the store's, or the next record's.
    pub(super) fn size(&self) -> usize {
        let dropped = match self.event_type {
            EventType::Deleted => self.entry.size(),
            _ => self.previous.as_ref().map_or(0, |entry| entry.size()),
        };
        dropped + size_of::<Self>()
    }
}

impl Forget for Record {
    fn forget(&self) {
        self.common.forget_frames();
    }
}

/// What lets bytes go that were made of it and can be made again.
pub(super) trait Forget {
    /// Lets them go.
    fn forget(&self);
}

/// What a process has made and keeps, oldest first.
#[derive(Debug)]
pub(super) struct Recent<T> {
    bytes_max: usize,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    of: VecDeque<(Weak<T>, usize)>,
    bytes: usize,
}

impl<T: Forget> Recent<T> {
    /// Keeps so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, queue: Mutex::new(Queue { of: VecDeque::new(), bytes: 0 }) }
    }

    /// Bytes that are kept now, with those of what is gone and has not been let go.
    pub(super) fn used(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Keeps what was made, and lets the oldest go that is too much.
    pub(super) fn keep(&self, of: &Arc<T>, bytes: usize) {
        let bytes = bytes + size_of::<T>();
        let mut queue = self.queue.lock();
        queue.of.push_back((Arc::downgrade(of), bytes));
        queue.bytes += bytes;
        while queue.bytes > self.bytes_max {
            let Some((oldest, bytes)) = queue.of.pop_front() else { return };
            queue.bytes -= bytes;
            if let Some(oldest) = oldest.upgrade() {
                oldest.forget();
            }
        }
    }
}
