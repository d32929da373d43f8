//! A storage in a database of PostgreSQL, in the schema that is the first of the connection's search path.
//!
//! As `sqlite`, it has all keys and values in the cache, and the writer's thread stores batches, each in one transaction
//! (`session`). One server has the database at a time: it holds an advisory lock, and each transaction changes the row
//! that gives revisions out only while that row has this server's epoch. So a server that lost its connection and its
//! lock stores nothing any more.

mod error;
mod session;
#[cfg(test)]
mod tests;

use std::{str::FromStr, sync::Arc};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use rustls::ClientConfig;

use crate::storage::{
    Bounds, Page, Range, Record, Storage, StorageError, WatchItem, When, cache::Cache, cursor, writer::Writer,
};

pub use error::PostgresError;

use session::Session;

/// A storage in a database of PostgreSQL. It has all keys and values in memory, too.
pub struct Postgres {
    cache: Arc<Cache>,
    writer: Writer,
}

impl Postgres {
    /// Opens a database, or begins one, and reads all of it. It is the only server of the database until it is closed.
    ///
    /// `url` is a connection string of libpq; `tls` is used if the server has TLS and `sslmode` does not forbid it.
    ///
    /// Where the database is not the one that was served last (it was restored, or a standby took over), every revision
    /// of before is compacted.
    ///
    /// Errors: see [`PostgresError`].
    pub async fn open(url: &str, tls: ClientConfig, bounds: Bounds) -> Result<Self, PostgresError> {
        let config = ::postgres::Config::from_str(url).map_err(|error| PostgresError::of(&error))?;
        let (writer, cache) = Writer::start(move || Session::open(config, tls, bounds)).await?;
        Ok(Self { cache, writer })
    }
}

impl Storage for Postgres {
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
