//! Which identities changed of late: a document that was dressed before it entered asks whether that is still right.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

/// Changes that are remembered one by one. Who began before counts everything as changed.
const REMEMBERED_MAX: usize = 4096;

/// The latest changes, by number.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of the last change.
    last: AtomicU64,
    /// Hashes of the referents that changed, in order; the last one has the number [`Self::last`]. `None`: it may be any.
    recent: Mutex<VecDeque<Option<u64>>>,
}

impl Changes {
    /// Notes a change that is in effect; `None` if it is not known whom it concerns.
    pub(super) fn note(&self, referent: Option<u64>) {
        let mut recent = self.recent.lock();
        recent.push_back(referent);
        if recent.len() > REMEMBERED_MAX {
            recent.pop_front();
        }
        self.last.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Says whether one of these referents may have changed after that change.
    pub(super) fn since(&self, number: u64, mut referents: impl Iterator<Item = u64>) -> bool {
        let recent = self.recent.lock();
        let missed = usize::try_from(self.last().saturating_sub(number)).unwrap_or(usize::MAX);
        if missed > recent.len() {
            return true;
        }
        let missed = || recent.iter().rev().take(missed);
        missed().any(Option::is_none) || referents.any(|referent| missed().any(|changed| *changed == Some(referent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_refers_to_what_changed_since_is_concerned() {
        let changes = Changes::default();
        changes.note(Some(1));
        let begun = changes.last();
        assert!(!changes.since(begun, [1, 2].into_iter()));
        changes.note(Some(2));
        assert!(changes.since(begun, [1, 2].into_iter()) && !changes.since(begun, [1, 3].into_iter()));
        changes.note(None);
        assert!(changes.since(begun, [3].into_iter()));
        let begun = changes.last();
        (0..=REMEMBERED_MAX as u64).for_each(|at| changes.note(Some(at)));
        assert!(changes.since(begun, [u64::MAX].into_iter()), "it is no longer known who changed");
    }
}
