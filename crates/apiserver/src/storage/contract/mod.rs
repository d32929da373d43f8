//! What every storage must do: one test of each promise, for a backend of any crate.
//!
//! ```
//! # #[cfg(feature = "contract")]
//! mod memory {
//!     use std::sync::Arc;
//!
//!     use futures::future::BoxFuture;
//!     use kubefold_apiserver::storage::{Bounds, Memory, Storage, contract::Backend};
//!
//!     struct InMemory;
//!
//!     impl Backend for InMemory {
//!         fn open<'a>(&'a self, _: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>> {
//!             Box::pin(async move { Arc::new(Memory::new(bounds)) as Arc<dyn Storage> })
//!         }
//!
//!         fn outlives_its_process(&self) -> bool {
//!             false
//!         }
//!     }
//!
//!     kubefold_apiserver::storage_contract!(InMemory);
//! }
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests, which others may run")]

mod bounds;
mod changes;
mod model;
mod ranges;
mod restarts;
mod watches;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::{runtime, task::JoinSet, time::timeout};

use crate::storage::{Bounds, Change, Range, Storage, StorageError, WatchItem, When};

pub use {bounds::*, changes::*, model::*, ranges::*, restarts::*, watches::*};

/// A promise that takes so long is broken: something waits for ever.
const TIME_MAX: Duration = Duration::from_mins(5);

/// What makes storages for the tests.
pub trait Backend: Send + Sync {
    /// Opens a storage of a name, and begins it if there is none. Before it is opened again, it is closed.
    fn open<'a>(&'a self, name: &'a str, bounds: Bounds) -> BoxFuture<'a, Arc<dyn Storage>>;

    /// Whether a storage that is opened again has what it had.
    fn outlives_its_process(&self) -> bool;

    /// Whether it stamps keys: see [`Storage::stamp`].
    fn stamps(&self) -> bool {
        true
    }

    /// How many random histories are tried. Fewer where it takes long to open a storage.
    fn histories(&self) -> u32 {
        64
    }
}

/// Makes a test of each promise. The argument is an expression: a [`Backend`] whose storages have nothing yet.
#[macro_export]
macro_rules! storage_contract {
    ($backend:expr) => {
        $crate::storage_contract! { @each $backend;
            changes_are_made_on_conditions
            one_of_many_creates_is_made
            writers_at_once_take_revisions_without_gaps
            what_is_acknowledged_is_read
            ranges_are_of_one_revision
            pages_go_on_at_one_revision_while_writes_go_on
            an_old_revision_stays_as_it_was
            a_stamp_is_of_one_state
            watches_tell_every_change
            a_watch_begins_at_any_revision_that_is_kept
            a_watch_tells_how_far_it_is
            what_is_compacted_is_refused_and_the_rest_is_served
            a_slow_watcher_is_told_and_holds_nobody_up
            bounds_are_kept
            history_goes_on_after_a_restart
            a_compacted_storage_opens_with_what_is_kept
            a_storage_that_is_raised_counts_on_from_there
            a_closed_storage_changes_nothing
            a_random_history_is_that_of_a_naive_model
        }
    };
    (@each $backend:expr; $($promise:ident)*) => {$(
        #[test]
        fn $promise() {
            let backend = $backend;
            $crate::storage::contract::check($crate::storage::contract::$promise(&backend));
        }
    )*};
}

/// Runs one promise. Panics if it is broken.
pub fn check(promise: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let Ok(runtime) = runtime else { panic!("no runtime") };
    let done = runtime.block_on(async { timeout(TIME_MAX, promise).await.is_ok() });
    assert!(done, "the storage does not answer");
}

/// The name that most promises give their one storage.
const NAME: &str = "contract";

async fn opened(backend: &dyn Backend) -> Arc<dyn Storage> {
    backend.open(NAME, Bounds::default()).await
}

async fn put(storage: &dyn Storage, key: &str, value: &str, when: When) -> Result<u64, StorageError> {
    storage.put(key, Bytes::from(value.to_owned()), when).await
}

pub(super) async fn keys(storage: &dyn Storage, range: Range<'_>) -> Vec<String> {
    let page = storage.range(range).await.unwrap();
    page.records.iter().map(|record| record.key.to_string()).collect()
}

/// What is there at a revision: keys, values and revisions. 0 is now.
async fn contents(storage: &dyn Storage, at: u64) -> Vec<Row> {
    let page = storage.range(Range { at, ..Range::default() }).await.unwrap();
    page.records.iter().map(|record| (record.key.to_string(), text(&record.value), record.revision)).collect()
}

/// A key, its value, and its revision.
type Row = (String, String, u64);

fn text(value: &Bytes) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

/// So many changes of a watch.
async fn told(watch: &mut BoxStream<'static, Result<WatchItem, StorageError>>, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    while changes.len() < count {
        if let WatchItem::Change(change) = watch.next().await.unwrap().unwrap() {
            changes.push(change);
        }
    }
    changes
}

/// Checks that a watch from a revision tells all changes up to another, each once and in order, and that each begins
/// with what the one before left.
async fn check_history(storage: &dyn Storage, after: u64, newest: u64) {
    let mut state = contents(storage, after).await;
    let count = usize::try_from(newest - after).unwrap();
    let mut watch = storage.watch("", after).await.unwrap();
    for (at, change) in told(&mut watch, count).await.into_iter().enumerate() {
        let revision = after + 1 + at as u64;
        assert_eq!(change.revision, revision);
        let place = state.iter().position(|(key, ..)| key == change.key());
        let before = place.map(|place| state.remove(place));
        assert_eq!(change.before.map(|one| (one.key.to_string(), text(&one.value), one.revision)), before);
        if let Some(after) = change.after {
            assert_eq!(after.revision, revision);
            state.push((after.key.to_string(), text(&after.value), revision));
        }
        state.sort();
    }
    assert_eq!(state, contents(storage, newest).await);
}

/// Runs writers at once, each in a task of its own.
async fn at_once<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    writers: impl IntoIterator<Item = W>,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    let handles: Vec<_> = writers.into_iter().map(|writer| tasks.spawn(writer)).collect();
    drop(handles);
    tasks.join_all().await
}
