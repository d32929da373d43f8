//! A storage in memory: an ordered persistent map, and a bounded log of changes.
//!
//! A snapshot of the map costs nothing, so nobody reads under a lock. A watch is a place in the log: a slow watcher holds
//! no other up; it gets an error that its revision was compacted. An earlier state is rebuilt by undoing changes.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use imbl::OrdMap;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::storage::{Change, Page, Range, Record, Storage, StorageError, WatchItem, When};

/// Changes that a watch takes from the log at once, so that it holds the lock for a short time.
const TAKEN_MAX: usize = 256;
/// Changes that a watch looks at for those, likewise.
const LOOKED_AT_MAX: usize = 4096;
/// Snapshots that are kept for lists in pages.
const RETAINED_MAX: usize = 64;

/// How much a [`Memory`] holds at most.
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

/// A storage in memory. Clones are the same storage.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

struct Inner {
    state: RwLock<State>,
    head: watch::Sender<Head>,
    bounds: Bounds,
}

/// How far a storage has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    revision: u64,
    /// How often the storage was restored: revisions of two eras have nothing to do with each other.
    era: u64,
}

/// What a [`Memory`] held at one moment.
#[derive(Clone)]
pub struct Backup {
    map: Map,
    bytes: usize,
    revision: u64,
}

type Map = OrdMap<Arc<str>, Held>;

#[derive(Clone, Debug)]
struct Held {
    value: Bytes,
    revision: u64,
}

struct State {
    map: Map,
    bytes: usize,
    revision: u64,
    /// How often it was restored.
    era: u64,
    /// Changes after this revision are in the log.
    floor: u64,
    log: VecDeque<Arc<Change>>,
    log_bytes: usize,
    /// The map at revisions that lists in pages go on at.
    retained: VecDeque<(u64, Map)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Bounds::default())
    }
}

impl Memory {
    /// An empty storage. As etcd's, its first change has revision 2.
    pub fn new(bounds: Bounds) -> Self {
        let state = State {
            map: Map::new(),
            bytes: 0,
            revision: 1,
            era: 0,
            floor: 1,
            log: VecDeque::new(),
            log_bytes: 0,
            retained: VecDeque::new(),
        };
        Self {
            inner: Arc::new(Inner {
                state: RwLock::new(state),
                head: watch::Sender::new(Head { revision: 1, era: 0 }),
                bounds,
            }),
        }
    }

    /// A copy of what it holds now. It shares the values, so it takes no time.
    pub fn backup(&self) -> Backup {
        let state = self.inner.state.read();
        Backup { map: state.map.clone(), bytes: state.bytes, revision: state.revision }
    }

    /// Holds what it held at a backup, at the revision of then, as an etcd that was restored: what changed since never
    /// was, and its revisions are given out again. Watches of before end: what they want has been compacted.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.inner.state.write();
        state.map = backup.map.clone();
        state.bytes = backup.bytes;
        state.revision = backup.revision;
        state.era += 1;
        state.floor = backup.revision;
        state.log.clear();
        state.log_bytes = 0;
        state.retained.clear();
        self.inner.head.send_replace(state.head());
    }

    fn put_now(&self, key: &str, value: Bytes, when: When) -> Result<u64, StorageError> {
        let Bounds { keys_max, value_bytes_max, bytes_max, .. } = self.inner.bounds;
        if value.len() > value_bytes_max {
            return Err(StorageError::Full(format!("a value of {} bytes; at most {value_bytes_max}", value.len())));
        }
        let mut state = self.inner.state.write();
        let before = state.record(key);
        let met = match (&before, when) {
            (None, When::Absent) => true,
            (Some(record), When::At(revision)) => record.revision == revision,
            _ => false,
        };
        if !met {
            return Err(StorageError::Unmet(before));
        }
        let gone = before.as_ref().map_or(0, size_of_record);
        let bytes = state.bytes.saturating_sub(gone) + key.len() + value.len();
        if bytes > bytes_max || (before.is_none() && state.map.len() >= keys_max) {
            return Err(StorageError::Full(format!("at most {keys_max} keys and {bytes_max} bytes")));
        }
        let key: Arc<str> = before.as_ref().map_or_else(|| key.into(), |record| Arc::clone(&record.key));
        let revision = state.revision + 1;
        state.map.insert(Arc::clone(&key), Held { value: value.clone(), revision });
        state.bytes = bytes;
        let after = Some(Record { key, value, revision });
        state.commit(Change { revision, before, after }, &self.inner.bounds);
        self.inner.head.send_replace(state.head());
        Ok(revision)
    }

    fn delete_now(&self, key: &str, at: u64) -> Result<u64, StorageError> {
        let mut state = self.inner.state.write();
        let Some(before) = state.record(key).filter(|record| record.revision == at) else {
            return Err(StorageError::Unmet(state.record(key)));
        };
        let revision = state.revision + 1;
        state.map.remove(key);
        state.bytes = state.bytes.saturating_sub(size_of_record(&before));
        state.commit(Change { revision, before: Some(before), after: None }, &self.inner.bounds);
        self.inner.head.send_replace(state.head());
        Ok(revision)
    }

    fn range_now(&self, range: &Range<'_>) -> Result<Page, StorageError> {
        let (map, revision) = self.map_at(range.at)?;
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let mut rest = keys(&map, range.prefix, range.after);
        let records: Vec<Record> = rest.by_ref().take(limit).map(|(key, held)| record(key, held)).collect();
        let next = rest.next().is_some();
        let remaining = range.count.then(|| rest.count() as u64 + u64::from(next));
        if next {
            self.inner.state.write().retain(revision, &map);
        }
        Ok(Page { records, revision, more: next, remaining })
    }

    /// The map as it was at a revision.
    fn map_at(&self, at: u64) -> Result<(Map, u64), StorageError> {
        let (mut map, revision, taken_back) = {
            let state = self.inner.state.read();
            if at == 0 || at == state.revision {
                return Ok((state.map.clone(), state.revision));
            }
            state.check(at)?;
            if let Some((_, map)) = state.retained.iter().find(|(revision, _)| *revision == at) {
                return Ok((map.clone(), at));
            }
            let since = state.log.partition_point(|change| change.revision <= at);
            (state.map.clone(), at, state.log.range(since..).cloned().collect::<Vec<_>>())
        };
        for change in taken_back.iter().rev() {
            match (&change.before, &change.after) {
                (Some(before), _) => {
                    let held = Held { value: before.value.clone(), revision: before.revision };
                    map.insert(Arc::clone(&before.key), held);
                }
                (None, Some(after)) => {
                    map.remove(&*after.key);
                }
                (None, None) => {}
            }
        }
        Ok((map, revision))
    }
}

impl State {
    fn head(&self) -> Head {
        Head { revision: self.revision, era: self.era }
    }

    fn record(&self, key: &str) -> Option<Record> {
        self.map.get_key_value(key).map(|(key, held)| record(key, held))
    }

    fn commit(&mut self, change: Change, bounds: &Bounds) {
        self.revision = change.revision;
        self.log_bytes += size_of_change(&change);
        self.log.push_back(Arc::new(change));
        while self.log.len() > bounds.log_changes_max || self.log_bytes > bounds.log_bytes_max {
            let Some(oldest) = self.log.front().map(|change| change.revision) else { break };
            self.compact(oldest);
        }
    }

    /// Forgets changes up to a revision.
    fn compact(&mut self, revision: u64) {
        while self.log.front().is_some_and(|change| change.revision <= revision) {
            let gone = self.log.pop_front();
            self.log_bytes = self.log_bytes.saturating_sub(gone.map_or(0, |change| size_of_change(&change)));
        }
        self.floor = self.floor.max(revision);
        self.retained.retain(|(revision, _)| *revision >= self.floor);
    }

    fn check(&self, at: u64) -> Result<(), StorageError> {
        if at > self.revision {
            return Err(StorageError::Future { asked: at, newest: self.revision });
        }
        if at < self.floor {
            return Err(StorageError::Compacted { asked: at, oldest: self.floor });
        }
        Ok(())
    }

    fn retain(&mut self, revision: u64, map: &Map) {
        if revision < self.floor || self.retained.iter().any(|(kept, _)| *kept == revision) {
            return;
        }
        if self.retained.len() >= RETAINED_MAX {
            self.retained.pop_front();
        }
        self.retained.push_back((revision, map.clone()));
    }
}

fn record(key: &Arc<str>, held: &Held) -> Record {
    Record { key: Arc::clone(key), value: held.value.clone(), revision: held.revision }
}

fn keys<'m>(map: &'m Map, prefix: &'m str, after: Option<&'m str>) -> impl Iterator<Item = (&'m Arc<str>, &'m Held)> {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    map.range::<_, str>((from, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
}

fn size_of_record(record: &Record) -> usize {
    record.key.len() + record.value.len()
}

/// The value before is counted, too: nobody else may hold it any more.
fn size_of_change(change: &Change) -> usize {
    let sizes = change.before.iter().chain(&change.after).map(size_of_record);
    sizes.sum::<usize>() + size_of::<Change>()
}

/// A place in the log.
struct Cursor {
    inner: Arc<Inner>,
    changed: watch::Receiver<Head>,
    era: u64,
    prefix: String,
    /// What was told up to here.
    at: u64,
    /// WatchItem, and not yet taken.
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
        let state = self.inner.state.read();
        if state.era != self.era {
            return Err(StorageError::Compacted { asked: self.at, oldest: state.floor });
        }
        state.check(self.at)?;
        let since = state.log.partition_point(|change| change.revision <= self.at);
        for change in state.log.range(since..).take(LOOKED_AT_MAX) {
            self.at = change.revision;
            if key_of(change).starts_with(&self.prefix) {
                self.waiting.push_back(Arc::clone(change));
                if self.waiting.len() >= TAKEN_MAX {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn key_of(change: &Change) -> &str {
    change.after.as_ref().or(change.before.as_ref()).map_or("", |record| &record.key)
}

impl Storage for Memory {
    fn revision(&self) -> BoxFuture<'_, Result<u64, StorageError>> {
        Box::pin(async { Ok(self.inner.state.read().revision) })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(Option<Record>, u64), StorageError>> {
        Box::pin(async move {
            let state = self.inner.state.read();
            Ok((state.record(key), state.revision))
        })
    }

    fn range<'a>(&'a self, range: Range<'a>) -> BoxFuture<'a, Result<Page, StorageError>> {
        Box::pin(async move { self.range_now(&range) })
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, when: When) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move { self.put_now(key, value, when) })
    }

    fn delete<'a>(&'a self, key: &'a str, at: u64) -> BoxFuture<'a, Result<u64, StorageError>> {
        Box::pin(async move { self.delete_now(key, at) })
    }

    fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem, StorageError>>, StorageError>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let era = {
                let state = self.inner.state.read();
                state.check(after)?;
                state.era
            };
            let cursor = Cursor {
                era,
                inner: Arc::clone(&self.inner),
                changed: self.inner.head.subscribe(),
                prefix,
                at: after,
                waiting: VecDeque::new(),
                over: false,
            };
            let told = stream::unfold(cursor, |mut cursor| async move {
                let told = cursor.next().await?;
                Some((told, cursor))
            });
            Ok(told.boxed())
        })
    }

    fn compact(&self, before: u64) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            let mut state = self.inner.state.write();
            let newest = state.revision;
            state.compact(before.min(newest));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
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
