//! What watchers of one event share: the bytes that tell of it, and what their selectors make of it.
//!
//! The first watcher that needs one of these makes it. A frame stands beside its event until many newer ones do: those who
//! are told of an event are told at about the same time.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::store::audience::Audience;
use kubefold_wire::{form::Partial, media::Media};

/// Selectors whose verdicts an event keeps. Watchers with others judge for themselves.
const VERDICTS_MAX: usize = 32;

/// What an event is to a watcher: an object may enter or leave what the watcher selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The object is there: it is new, or it is selected from now on.
    Added,
    /// It changed.
    Modified,
    /// It is gone; its last state is given.
    Deleted,
    /// It is selected no more; its state before the event is given.
    Left,
}

/// How objects are written in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// As they are.
    Whole,
    /// Their metadata alone.
    Metadata(Partial),
}

/// Which of the frames of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// How its object is written.
    pub written: Written,
    /// In what: JSON or protobuf.
    pub media: Media,
    /// What it tells.
    pub transition: Transition,
    /// To whom: what is shown of an object in several members depends on it. Everyone, if that is all of it.
    pub audience: Audience,
}

/// Stands for all that a watcher selects by. Watchers with equal ones select the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorId(u64);

/// A number that stands for a selector while somebody selects by it.
#[derive(Clone, Debug)]
pub struct Selector(Arc<SelectorId>);

impl Selector {
    /// The number.
    pub fn id(&self) -> SelectorId {
        *self.0
    }
}

/// The selectors of a store's watchers.
#[derive(Debug, Default)]
pub(super) struct Selectors(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    by_text: HashMap<Box<str>, Weak<SelectorId>>,
    last: u64,
    /// With so many those go that nobody selects by any more.
    sweep_at: usize,
}

impl Selectors {
    /// The number of a selector, which no other selector of this store has or had.
    pub(super) fn of(&self, text: &str) -> Selector {
        let mut all = self.0.lock();
        if let Some(known) = all.by_text.get(text).and_then(Weak::upgrade) {
            return Selector(known);
        }
        if all.by_text.len() >= all.sweep_at.max(16) {
            all.by_text.retain(|_, id| id.strong_count() > 0);
            all.sweep_at = 2 * all.by_text.len();
        }
        all.last += 1;
        let id = Arc::new(SelectorId(all.last));
        all.by_text.insert(text.into(), Arc::downgrade(&id));
        Selector(id)
    }
}

/// What watchers of one event share.
#[derive(Debug, Default)]
pub(super) struct Common(Mutex<Option<Box<Made>>>);

#[derive(Debug, Default)]
struct Made {
    frames: Vec<(FrameKey, Bytes)>,
    verdicts: Vec<(SelectorId, Option<Transition>)>,
}

impl Common {
    /// The frame, made by `make` if it is the first, and whether it is.
    pub(super) fn frame(&self, key: FrameKey, make: impl FnOnce() -> Bytes) -> (Bytes, bool) {
        if let Some(frame) = self.made_frame(&key) {
            return (frame, false);
        }
        // Without the lock: others go on meanwhile. Two may make the same, and the first is kept.
        let frame = make();
        let mut made = self.0.lock();
        let frames = &mut made.get_or_insert_default().frames;
        if let Some((_, first)) = frames.iter().find(|(known, _)| *known == key) {
            return (first.clone(), false);
        }
        frames.push((key, frame.clone()));
        (frame, true)
    }

    /// The frame, if it has been made and is kept.
    pub(super) fn made_frame(&self, key: &FrameKey) -> Option<Bytes> {
        let made = self.0.lock();
        made.as_ref()?.frames.iter().find(|(known, _)| known == key).map(|(_, frame)| frame.clone())
    }

    /// What a selector makes of the event, judged by `judge` if nobody asked before.
    pub(super) fn verdict(
        &self,
        selector: SelectorId,
        judge: impl FnOnce() -> Option<Transition>,
    ) -> Option<Transition> {
        let known =
            |made: &Made| made.verdicts.iter().find(|(known, _)| *known == selector).map(|(_, verdict)| *verdict);
        if let Some(verdict) = self.0.lock().as_deref().and_then(known) {
            return verdict;
        }
        let verdict = judge();
        let mut made = self.0.lock();
        let verdicts = &mut made.get_or_insert_default().verdicts;
        if verdicts.len() < VERDICTS_MAX {
            verdicts.push((selector, verdict));
        }
        verdict
    }

    pub(super) fn forget_frames(&self) {
        if let Some(made) = self.0.lock().as_deref_mut() {
            made.frames = Vec::new();
        }
    }
}
