//! One event of a log, with what its watchers share.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::{
    entry::Entry,
    frames::{Common, FrameKey, SelectorId, Transition},
    recent::Forget,
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
    /// The object as it was before, if it was.
    pub fn before(&self) -> Option<&Arc<Entry>> {
        if self.event_type == EventType::Deleted { Some(&self.entry) } else { self.previous.as_ref() }
    }

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
