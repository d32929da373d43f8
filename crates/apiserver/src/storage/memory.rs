//! A storage in memory. What it has ends with the process.

use std::sync::Arc;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::storage::{
    Bounds, Page, Range, Record, Stamp, Storage, StorageError, Usage, WatchItem, When,
    cache::{Cache, Map, State},
    change::{Tip, Write},
    cursor,
};

/// A storage in memory. Clones are the same storage.
#[derive(Clone)]
pub struct Memory {
    cache: Arc<Cache>,
}

/// What a [`Memory`] held at one moment.
#[derive(Clone)]
pub struct Backup {
    map: Map,
    tip: Tip,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl Memory {
    /// An empty storage. As etcd's, its first change has revision 2.
    pub fn new(bounds: Bounds) -> Self {
        Self { cache: Arc::new(Cache::new(State::empty(), bounds)) }
    }

    /// A copy of what it holds now. It shares the values, so it takes no time.
    pub fn backup(&self) -> Backup {
        let state = self.cache.read();
        Backup { map: state.map().clone(), tip: state.tip() }
    }

    /// Holds what it held at a backup, at the revision of then, as an etcd that was restored: what changed since never
    /// was, and its revisions are given out again. Watches of before end: what they want has been compacted.
    pub fn restore(&self, backup: &Backup) {
        self.cache.replace(backup.map.clone(), backup.tip);
    }
}

impl Storage for Memory {
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
        Box::pin(async move { self.cache.write(Write { key, value: Some(value), when }) })
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move { self.cache.write(Write { key, value: None, when: When::At(at) }) })
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
        Box::pin(async move {
            self.cache.compact(before);
            Ok(())
        })
    }

    fn raise(&self, to: u64) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(async move { Ok(self.cache.raise(to).revision) })
    }

    fn usage(&self) -> Option<Usage> {
        Some(self.cache.read().tip().into())
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn keys_of(page: &Page) -> Vec<&str> {
        page.records.iter().map(|record| &*record.key).collect()
    }

    #[tokio::test]
    async fn a_restored_storage_is_as_it_was_and_ends_the_watches_of_before() {
        let memory = Memory::default();
        let first = memory.put("a/1", "one".into(), When::Absent).await.unwrap();
        memory.put("a/2", "two".into(), When::Absent).await.unwrap();
        let backup = memory.backup();
        let mut watch = memory.watch("a/", 1).await.unwrap();
        memory.delete("a/1", first).await.unwrap();
        let later = memory.put("a/3", "three".into(), When::Absent).await.unwrap();
        for _ in 0..4 {
            assert!(matches!(watch.next().await, Some(Ok(WatchItem::Change(_)))));
        }
        memory.restore(&backup);
        assert!(matches!(watch.next().await, Some(Err(StorageError::Compacted { .. }))));
        assert!(watch.next().await.is_none());

        let page = memory.range(Range { prefix: "a/", ..Range::default() }).await.unwrap();
        assert_eq!((keys_of(&page), page.revision), (vec!["a/1", "a/2"], 3));
        assert!(matches!(memory.watch("a/", later).await, Err(StorageError::Future { .. })));
        // A revision of before the restoring is given out again, for another change.
        let mut watch = memory.watch("a/", page.revision).await.unwrap();
        assert_eq!(memory.put("a/4", "four".into(), When::Absent).await.unwrap(), 4);
        let Some(Ok(WatchItem::Change(change))) = watch.next().await else { panic!("no change") };
        assert_eq!(change.after.map(|record| record.key.to_string()), Some("a/4".to_owned()));
    }
}
