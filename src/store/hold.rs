//! Holds: a writer that changes several parts of an object makes one event of it.

use std::sync::Arc;

use crate::store::{entry::Entry, fleet_store::FleetStore, part::Part};

impl FleetStore {
    /// Holds a key back while a writer changes its parts: one write is one event. The hold ends with the guard.
    pub fn hold(self: &Arc<Self>, key: &str) -> Hold {
        self.hold_whole(key).0
    }

    /// Holds a key back of which parts exist that may never become an object: an unfinished create of an earlier process.
    /// Other keys are shown under a hold when the store opens, this one is not.
    pub fn withhold(self: &Arc<Self>, key: &str) -> Hold {
        self.lock().hold(key, HoldKind::HalfMade);
        Hold { store: Some(Arc::clone(self)), key: key.to_owned(), kind: HoldKind::HalfMade }
    }

    /// The same, with what is shown and the parts that make it: from here on they may differ.
    pub fn hold_whole(self: &Arc<Self>, key: &str) -> (Hold, Option<Arc<Entry>>, Vec<Arc<Part>>) {
        let mut inner = self.lock();
        inner.hold(key, HoldKind::Stands);
        let shown = inner.objects.get(key).cloned();
        let parts = inner.folds.get(key).map(|fold| fold.chosen().into_iter().cloned().collect()).unwrap_or_default();
        drop(inner);
        let hold = Hold { store: Some(Arc::clone(self)), key: key.to_owned(), kind: HoldKind::Stands };
        (hold, shown, parts)
    }
}

/// What a hold is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldKind {
    /// Of an object that may exist already.
    Stands,
    /// Of one whose create is not committed.
    HalfMade,
}

/// Ends a hold when dropped.
#[derive(Debug)]
pub struct Hold {
    store: Option<Arc<FleetStore>>,
    key: String,
    kind: HoldKind,
}

impl Hold {
    /// Ends the hold with two events, and gives what the first told: what the parts first became under it. The second tells what they
    /// are by now, if that is something else. So a status that a controller corrects at once is seen as it was written, too, and an
    /// object that goes at once is seen with its `deletionTimestamp`.
    pub fn release_as_written(mut self) -> Option<Arc<Entry>> {
        let store = self.store.take()?;
        store.change(|inner| {
            inner.show_first(&self.key, self.kind);
            let written = inner.objects.get(self.key.as_str()).cloned();
            inner.release(&self.key, self.kind);
            written
        })
    }

    /// Ends the hold, and gives what is shown from then on: the very version that its one event told.
    pub fn release(mut self) -> Option<Arc<Entry>> {
        let store = self.store.take()?;
        store.change(|inner| {
            inner.release(&self.key, self.kind);
            inner.objects.get(self.key.as_str()).cloned()
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.change(|inner| inner.release(&self.key, self.kind));
        }
    }
}
