//! Keys, values and revisions: what a registry keeps its objects in.
//!
//! The trait speaks as etcd does: every change has a revision of its own, from one counter; a range is read at one
//! revision; a change is made if a key is still at the revision that was read; a watch begins after a revision. What is
//! older than the last compaction is gone. So memory, a file, etcd and SQL can stand behind it.
//!
//! # The contract
//!
//! What every storage must do is a suite of tests, which is public with the feature `contract`: `storage_contract!`
//! makes one test of each promise for a backend of any crate.
//!
//! # Backends
//!
//! [`Memory`], `Sqlite` (feature `sqlite`): one file, `Postgres` (feature `postgres`), `Mysql` (feature `mysql`): MySQL and
//! MariaDB, and `Etcd` (feature `etcd`). All answer reads and watches from a cache of all that is committed. A backend that
//! stores batches of changes implements `writer::Log` only; order, conditions, group commit and history are the cache's and the
//! writer's. Those of etcd are etcd's, and its cache follows it.

mod cache;
mod change;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod cursor;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod known;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod logged;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod replay;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdError, EtcdOptions};
pub use memory::{Backup, Memory};
#[cfg(feature = "mysql")]
pub use mysql::{Mysql, MysqlError, MysqlIdentity, MysqlTls};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresError};
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use replay::Gap;
#[cfg(feature = "sqlite")]
pub use sqlite::{Damage, Sqlite, SqliteError};

/// How much a storage holds at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Keys.
    pub keys_max: usize,
    /// Of one value. etcd's own bound.
    pub value_bytes_max: usize,
    /// Of all keys and values that are there.
    pub bytes_max: usize,
    /// Changes that are remembered.
    pub log_changes_max: usize,
    /// Bytes of the changes that are remembered.
    pub log_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            keys_max: 4_000_000,
            value_bytes_max: 3 << 19,
            bytes_max: 4 << 30,
            log_changes_max: 65_536,
            log_bytes_max: 64 << 20,
        }
    }
}

/// How much a storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The revision of the last change.
    pub revision: u64,
    /// Keys that are there.
    pub keys: usize,
    /// Of all keys and values that are there.
    pub bytes: usize,
}

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

/// What some keys have, by a name instead of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The revision of the whole storage at which this was read.
    pub revision: u64,
    /// Which state it was. Two stamps of one process that have the same state are of the same keys with the same values.
    pub state: StateId,
}

/// The name of a state. It means something beside another one of the same process and prefix alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateId {
    /// How often the storage was restored before.
    pub era: u64,
    /// A revision up to which these keys did not change any more, and before which they may have.
    pub changed: u64,
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

impl Change {
    /// The key that changed.
    pub fn key(&self) -> &str {
        self.after.as_ref().or(self.before.as_ref()).map_or("", |record| &record.key)
    }
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
#[derive(Clone, Debug, thiserror::Error)]
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
    /// It cannot be reached, or it is broken. No change was made.
    #[error("the storage does not answer: {0}")]
    Unavailable(String),
    /// It failed while it stored a change. Whether the change is made is not known.
    #[error("the storage failed, and whether it made the change is not known: {0}")]
    Unknown(String),
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl From<kubefold_sql::SqlError> for StorageError {
    /// A failure before the commit has stored nothing. A connection that is lost in it, or ended by an administrator, may have
    /// had it stored before.
    fn from(error: kubefold_sql::SqlError) -> Self {
        let why = error.to_string();
        if error.is_outcome_unknown() {
            Self::Unknown(why)
        } else if error.is_full() {
            Self::Full(why)
        } else {
            Self::Unavailable(why)
        }
    }
}

/// What changes and the registry reads.
///
/// What every implementation must do is a suite of tests: see [the contract](self#the-contract).
///
/// Cancel: a change whose future is dropped is made or not.
pub trait Storage: Send + Sync + 'static {
    /// The revision of the last change.
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>>;

    /// One key, as it is now, and the revision of the storage at that moment.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>>;

    /// Keys, as they were at one revision.
    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>>;

    /// What the keys with a prefix have, without reading them. A prefix has the first part of its keys as a whole, as
    /// `pods/default/` has. `None`: this storage cannot say it.
    fn stamp<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Option<Stamp>, StorageError>> {
        let _unknown = prefix;
        Box::pin(async { Ok(None) })
    }

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

    /// Is at a revision without a change, and forgets what was before it, so that no revision of another storage, whose records
    /// were moved here, is given out again. One that is there already changes nothing. Answers the revision of the storage,
    /// which is a lower one where others count revisions, as etcd does.
    fn raise(&self, to: u64) -> BoxFuture<'_, Result<u64, StorageError>> {
        let _counted_elsewhere = to;
        self.revision()
    }

    /// Says whether it can make changes. A storage that is full can: there may be room for the next one.
    ///
    /// Errors: as a change that is made now would have.
    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async { Ok(()) })
    }

    /// How much there is, for whoever watches its growth; `None`: it does not know.
    fn usage(&self) -> Option<Usage> {
        None
    }

    /// Ends it, in order. What was begun is stored; another process may open it afterwards, and changes fail.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
