//! A storage in one file of SQLite: the embedded default.
//!
//! The file has one row for each change that is remembered, and for each key the change that made its value (`file`). All
//! of it is in the cache, which answers reads and watches; the writer's thread stores batches of changes, each with one
//! `fsync`. A mark beside the file (`mark`) is the lock of its one process, and tells whether a backup was put in its
//! place.

mod error;
mod file;
mod mark;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::storage::{
    Bounds, Page, Range, Record, Storage, StorageError, WatchItem, When, cache::Cache, cursor, writer::Writer,
};

pub use error::{Damage, SqliteError};

use file::File;

/// A storage in one file. It has all keys and values in memory, too.
pub struct Sqlite {
    cache: Arc<Cache>,
    writer: Writer,
}

impl Sqlite {
    /// Opens a file, or begins one, and reads all of it. It is the only process that has the file until it is closed, or
    /// dropped and done with what it was asked for.
    ///
    /// Where the file is not the one that was served here last, or older, every revision of before is compacted.
    ///
    /// Errors: see [`SqliteError`].
    pub async fn open(path: &Path, bounds: Bounds) -> Result<Self, SqliteError> {
        let path = path.to_owned();
        let (writer, cache) = Writer::start(move || File::open(&path, bounds)).await?;
        Ok(Self { cache, writer })
    }
}

impl Storage for Sqlite {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(async { Ok(self.cache.read().tip().revision) })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        Box::pin(async move {
            let state = self.cache.read();
            Ok((state.record(key), state.tip().revision))
        })
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        Box::pin(async move { self.cache.range(&range) })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(self.writer.write(key, Some(value), when))
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(self.writer.write(key, None, When::At(at)))
    }

    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
        let watch = cursor::watch(&self.cache, prefix, after);
        Box::pin(async move { watch })
    }

    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.writer.compact(before))
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.writer.ready())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}
