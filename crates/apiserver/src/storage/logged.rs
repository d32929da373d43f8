//! What storages are whose changes are stored in batches: reads and watches from the cache, writes through the writer's thread.

use std::{io, marker::PhantomData, sync::Arc};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::storage::{
    Page, Range, Record, Stamp, Storage, StorageError, Usage, WatchItem, When,
    cache::Cache,
    cursor,
    writer::{Log, Opened, Writer},
};

/// A storage whose changes a log keeps. It has all keys and values in memory, too.
pub struct Logged<L> {
    cache: Arc<Cache>,
    writer: Writer,
    log: PhantomData<fn() -> L>,
}

impl<L> Logged<L> {
    /// Errors: as [`Writer::start`].
    pub(super) async fn start<E: From<io::Error> + Send + 'static>(
        open: impl FnOnce() -> Result<Opened<L>, E> + Send + 'static,
    ) -> Result<Self, E>
    where
        L: Log,
    {
        let (writer, cache) = Writer::start(open).await?;
        Ok(Self { cache, writer, log: PhantomData })
    }
}

impl<L: 'static> Storage for Logged<L> {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(async { Ok(self.cache.read().tip().revision) })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        Box::pin(async move { Ok(self.cache.get(key)) })
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        Box::pin(async move { self.cache.range(&range) })
    }

    fn stamp<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Option<Stamp>, StorageError>> {
        Box::pin(async move { Ok(Some(self.cache.stamp(prefix))) })
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

    fn raise(&self, to: u64) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(self.writer.raise(to))
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(self.writer.ready())
    }

    fn usage(&self) -> Option<Usage> {
        Some(self.cache.read().tip().into())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}
