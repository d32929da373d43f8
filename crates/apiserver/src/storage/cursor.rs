//! A watch: a place in the log. A slow watcher holds no other up; it gets an error that its revision was compacted.

use std::{collections::VecDeque, sync::Arc};

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;

use crate::storage::{
    Change, StorageError, WatchItem,
    cache::{Cache, Head},
};

/// Changes that a watch takes from the log at once, so that it holds the lock for a short time.
const TAKEN_MAX: usize = 256;
/// Changes that a watch looks at for those, likewise.
const LOOKED_AT_MAX: usize = 4096;

/// All changes of keys with a prefix after a revision.
///
/// Errors: the revision is forgotten, or has not been yet.
pub(super) fn watch(
    cache: &Arc<Cache>,
    prefix: &str,
    after: u64,
) -> Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError> {
    let changed = cache.heads();
    let era = {
        let state = cache.read();
        state.check(after)?;
        state.head().era
    };
    let cursor = Cursor {
        cache: Arc::clone(cache),
        changed,
        era,
        prefix: prefix.to_owned(),
        at: after,
        waiting: VecDeque::new(),
        over: false,
    };
    let told = stream::unfold(cursor, |mut cursor| async move {
        let told = cursor.next().await?;
        Some((told, cursor))
    });
    Ok(told.boxed())
}

struct Cursor {
    cache: Arc<Cache>,
    changed: watch::Receiver<Head>,
    era: u64,
    prefix: String,
    /// What was told up to here.
    at: u64,
    /// Read from the log, and not yet taken.
    waiting: VecDeque<Arc<Change>>,
    /// The stream ended with an error.
    over: bool,
}

impl Cursor {
    async fn next(&mut self) -> Option<Result<WatchItem, StorageError>> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Some(Ok(WatchItem::Change(Change::clone(&change))));
            }
            if self.over {
                return None;
            }
            let head = *self.changed.borrow_and_update();
            if self.at >= head.revision && self.era == head.era {
                // The sender lives in what this holds.
                let _alive = self.changed.changed().await;
                continue;
            }
            if let Err(error) = self.read() {
                self.over = true;
                return Some(Err(error));
            }
            if self.waiting.is_empty() {
                return Some(Ok(WatchItem::Progress(self.at)));
            }
        }
    }

    fn read(&mut self) -> Result<(), StorageError> {
        let state = self.cache.read();
        if state.head().era != self.era {
            return Err(StorageError::Compacted { asked: self.at, oldest: state.floor() });
        }
        state.check(self.at)?;
        for (looked_at, change) in state.after(self.at).enumerate() {
            // Changes of one revision are one transaction's, and are taken together.
            let is_enough = looked_at >= LOOKED_AT_MAX || self.waiting.len() >= TAKEN_MAX;
            if is_enough && change.revision > self.at {
                return Ok(());
            }
            self.at = change.revision;
            if change.key().starts_with(&self.prefix) {
                self.waiting.push_back(Arc::clone(change));
            }
        }
        self.at = state.head().revision;
        Ok(())
    }
}
