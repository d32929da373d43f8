//! What is to be looked at, once for each ShadowResource however often somebody says so.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A ShadowResource: namespace and name.
pub(super) type Name = (String, String);

/// Names that wait, each with the last thing that was said of it.
pub(super) struct Pending<T> {
    all: Mutex<BTreeMap<Name, T>>,
    added: Notify,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { all: Mutex::default(), added: Notify::new() }
    }
}

impl<T> Pending<T> {
    /// Has a name looked at.
    pub(super) fn add(&self, name: Name, what: T) {
        self.all.lock().insert(name, what);
        self.added.notify_one();
    }

    /// Waits for names. One at a time may wait. Cancel: safe.
    pub(super) async fn added(&self) {
        // One that was added before anybody waited is not missed.
        while self.all.lock().is_empty() {
            self.added.notified().await;
        }
    }

    /// Takes all names that wait.
    pub(super) fn take(&self) -> BTreeMap<Name, T> {
        std::mem::take(&mut *self.all.lock())
    }
}
