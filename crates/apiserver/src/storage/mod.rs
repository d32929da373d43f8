//! Keys, values and revisions: what a registry keeps its objects in.
//!
//! The trait speaks as etcd does: every change has a revision of its own, from one counter; a range is read at one
//! revision; a change is made if a key is still at the revision that was read; a watch begins after a revision. What is
//! older than the last compaction is gone. So memory, a file, etcd and SQL can stand behind it.

#[cfg(test)]
pub mod contract;
mod memory;

use std::sync::Arc;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

pub use memory::{Backup, Bounds, Memory};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Such as `pods/default/web-0`.
    pub key: Arc<str>,
    /// Opaque to the storage.
    pub value: Bytes,
    /// The revision of its last change.
    pub revision: u64,
}

/// A part of the keys, as they were at one revision.
#[derive(Clone, Debug)]
pub struct Page {
    /// In the order of their bytes.
    pub records: Vec<Record>,
    /// The revision of the whole storage that this was read at.
    pub revision: u64,
    /// More keys of the range come after the last of these.
    pub more: bool,
    /// How many they are, if that was asked.
    pub remaining: Option<u64>,
}

/// Which keys to read.
#[derive(Clone, Debug, Default)]
pub struct Range<'a> {
    /// What the keys begin with.
    pub prefix: &'a str,
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// At most so many; 0 is all.
    pub limit: usize,
    /// As they were at this revision; 0 is now.
    pub at: u64,
    /// Whether to count the keys that come after: that costs a walk over all of them.
    pub count: bool,
}

/// What must hold of a key for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It is not there.
    Absent,
    /// Its last change had this revision.
    At(u64),
}

/// One change, as a watch tells it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// What was there before, as of its own revision; `None`: nothing.
    pub before: Option<Record>,
    /// What is there since; `None`: nothing.
    pub after: Option<Record>,
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// A change. They come in the order of their revisions.
    Change(Change),
    /// Nothing up to this revision that was not told.
    Progress(u64),
}

/// Why a storage did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The condition does not hold; this is there instead.
    #[error("the key is not as expected")]
    Unmet(Option<Record>),
    /// The revision is older than the last compaction.
    #[error("the revision {asked} has been compacted; the oldest is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: u64,
        /// The oldest that is there.
        oldest: u64,
    },
    /// The revision has not been yet.
    #[error("the revision {asked} is in the future; the newest is {newest}")]
    Future {
        /// The revision asked for.
        asked: u64,
        /// The newest that is there.
        newest: u64,
    },
    /// A bound was reached: keys, bytes.
    #[error("the storage is full: {0}")]
    Full(String),
    /// It can't be reached, or it is broken. The outcome of a change is not known.
    #[error("the storage does not answer: {0}")]
    Unavailable(String),
}

/// What changes and the registry reads.
pub trait Storage: Send + Sync + 'static {
    /// The revision of the last change.
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>>;

    /// One key, as it is now, and the revision of the storage at that moment.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>>;

    /// Keys, as they were at one revision.
    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>>;

    /// Puts a value. Answers the revision of the change.
    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>>;

    /// Removes a key that is still at a revision. Answers the revision of the change.
    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>>;

    /// All changes of keys with a prefix after a revision. Ends with an error when the watcher falls behind a
    /// compaction.
    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>>;

    /// Forgets what was before a revision.
    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>>;
}
