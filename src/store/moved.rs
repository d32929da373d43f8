//! The records of placements that have moved: whatever enters a store is judged by them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;

use crate::placement::moved::Moved;

/// All records, by the placement's UID.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Most fleets have none: then no part costs a look.
    are_any: AtomicBool,
    by_uid: RwLock<HashMap<String, Arc<Moved>>>,
}

impl Records {
    pub(super) fn get(&self, uid: &str) -> Option<Arc<Moved>> {
        if !self.are_any.load(Ordering::Acquire) {
            return None;
        }
        self.by_uid.read().get(uid).cloned()
    }

    pub(super) fn set(&self, uid: &str, moved: Option<Arc<Moved>>) {
        let mut by_uid = self.by_uid.write();
        match moved {
            Some(moved) => drop(by_uid.insert(uid.to_owned(), moved)),
            None => drop(by_uid.remove(uid)),
        }
        self.are_any.store(!by_uid.is_empty(), Ordering::Release);
    }
}
