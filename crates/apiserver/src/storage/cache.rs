//! What every storage here answers reads and watches from: an ordered persistent map, and a bounded log of changes.
//!
//! It has only what is committed. A snapshot of the map costs nothing, so nobody reads under a lock. A watch is a place
//! in the log (`cursor`). An earlier state is rebuilt by undoing changes.

use std::{collections::VecDeque, ops::Bound, sync::Arc};

use bytes::Bytes;
use hashbrown::HashMap;
use imbl::OrdMap;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use crate::storage::{
    Bounds, Change, Page, Range, Record, Stamp, StateId, StorageError,
    change::{Tip, Write, dead_of, judge, size_of_change},
};

/// Snapshots that are kept for lists in pages.
const RETAINED_MAX: usize = 64;

/// What is stored, and what changed it.
pub(super) struct Cache {
    state: RwLock<State>,
    head: watch::Sender<Head>,
    bounds: Bounds,
}

/// How far a storage has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) revision: u64,
    /// How often the storage was restored: revisions of two eras have nothing to do with each other.
    pub(super) era: u64,
}

/// What a storage is that was raised.
pub(super) struct Raised {
    pub(super) revision: u64,
    /// Revisions of stored changes that nobody needs since.
    pub(super) dead: Vec<u64>,
}

/// The keys, and what each has.
pub(super) type Map = OrdMap<Arc<str>, Held>;

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) struct Held {
    value: Bytes,
    revision: u64,
}

/// What a cache has at one moment.
pub(super) struct State {
    map: Map,
    tip: Tip,
    era: u64,
    /// The revision of the last change of keys with the same first part, such as `pods`. Absent: none since the beginning.
    changed: HashMap<Box<str>, u64>,
    /// Changes after this revision are in the log.
    floor: u64,
    log: VecDeque<Arc<Change>>,
    log_bytes: usize,
    /// The map at revisions that lists in pages go on at.
    retained: VecDeque<(u64, Map)>,
}

impl Cache {
    pub(super) fn new(state: State, bounds: Bounds) -> Self {
        let head = watch::Sender::new(state.head());
        Self { state: RwLock::new(state), head, bounds }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Announces each change of the head.
    pub(super) fn heads(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// Judges one write and makes its change. Answers the revision.
    pub(super) fn write(&self, write: Write<'_>) -> Result<u64, StorageError> {
        let mut state = self.state.write();
        let change = judge(&state.tip, state.record(write.key), write, &self.bounds)?;
        let revision = change.revision;
        state.commit(Arc::new(change), &self.bounds);
        self.announce(state);
        Ok(revision)
    }

    /// Forgets changes up to a revision. Answers the revisions of stored changes that nobody needs since.
    pub(super) fn compact(&self, revision: u64) -> Vec<u64> {
        let mut state = self.state.write();
        let newest = state.tip.revision;
        state.compact(revision.min(newest))
    }

    /// Is at a revision without a change, unless it is at a later one. Forgets what was before.
    pub(super) fn raise(&self, to: u64) -> Raised {
        let mut state = self.state.write();
        let is_later = to > state.tip.revision;
        let dead = if is_later {
            state.tip.revision = to;
            state.compact(to)
        } else {
            Vec::new()
        };
        let revision = state.tip.revision;
        self.announce(state);
        Raised { revision, dead }
    }

    /// Has another state from now on. Watches of before end.
    pub(super) fn replace(&self, map: Map, tip: Tip) {
        let mut state = self.state.write();
        let era = state.era + 1;
        *state = State { era, ..State::new(map, tip) };
        self.announce(state);
    }

    fn announce(&self, state: RwLockWriteGuard<'_, State>) {
        self.head.send_replace(state.head());
    }

    /// One key as it is now, and the revision of the whole.
    pub(super) fn get(&self, key: &str) -> (Option<Record>, u64) {
        let state = self.read();
        (state.record(key), state.tip().revision)
    }

    /// What the keys with a prefix have.
    pub(super) fn stamp(&self, prefix: &str) -> Stamp {
        let state = self.read();
        let changed = state.changed.get(first_part(prefix)).copied().unwrap_or_default();
        Stamp { revision: state.tip.revision, state: StateId { era: state.era, changed } }
    }

    pub(super) fn range(&self, range: &Range<'_>) -> Result<Page, StorageError> {
        let (map, revision) = self.map_at(range.at)?;
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let mut rest = keys(&map, range.prefix, range.after);
        let records: Vec<Record> = rest.by_ref().take(limit).map(|(key, held)| record(key, held)).collect();
        let next = rest.next().is_some();
        let remaining = range.count.then(|| rest.count() as u64 + u64::from(next));
        if next {
            self.state.write().retain(revision, &map);
        }
        Ok(Page { records, revision, more: next, remaining })
    }

    /// The map as it was at a revision.
    fn map_at(&self, at: u64) -> Result<(Map, u64), StorageError> {
        let (mut map, taken_back) = {
            let state = self.state.read();
            let newest = state.tip.revision;
            if at == 0 || at == newest {
                return Ok((state.map.clone(), newest));
            }
            state.check(at)?;
            if let Some((_, map)) = state.retained.iter().find(|(revision, _)| *revision == at) {
                return Ok((map.clone(), at));
            }
            (state.map.clone(), state.after(at).cloned().collect::<Vec<_>>())
        };
        for change in taken_back.iter().rev() {
            set(&mut map, change.key(), change.before.as_ref());
        }
        Ok((map, at))
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "etcd"))]
impl Cache {
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }
}

/// What a backend takes whose changes are made elsewhere.
#[cfg(feature = "etcd")]
impl Cache {
    /// Makes changes that are made already, in the order of their revisions, and is at a revision then: nothing else changed up
    /// to it.
    pub(super) fn follow(&self, changes: Vec<Told>, revision: u64) {
        let mut state = self.state.write();
        for Told { key, value, revision } in changes {
            let before = state.record(&key);
            let key = before.as_ref().map_or_else(|| key.as_str().into(), |record| Arc::clone(&record.key));
            let after = value.map(|value| Record { key, value, revision });
            if before.is_some() || after.is_some() {
                state.commit(Arc::new(Change { revision, before, after }), &self.bounds);
            }
        }
        state.tip.revision = state.tip.revision.max(revision);
        self.announce(state);
    }
}

/// A change that is made elsewhere.
#[cfg(feature = "etcd")]
pub(super) struct Told {
    pub(super) key: String,
    /// `None`: the key is gone.
    pub(super) value: Option<Bytes>,
    pub(super) revision: u64,
}

/// What a backend takes that stores changes by itself.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl Cache {
    /// Makes changes that were judged and are stored. Answers the revisions of stored changes that nobody needs since.
    pub(super) fn commit(&self, changes: Vec<Arc<Change>>) -> Vec<u64> {
        let mut state = self.state.write();
        let dead = changes.into_iter().flat_map(|change| state.commit(change, &self.bounds)).collect();
        self.announce(state);
        dead
    }
}

/// How a backend that stores changes reads them again.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "etcd"))]
impl State {
    /// Takes in a change that is forgotten already.
    pub(super) fn absorb(&mut self, change: &Change) {
        self.tip = self.tip.after(change);
        set(&mut self.map, change.key(), change.after.as_ref());
    }

    /// Changes after a revision are remembered from now on, and those before are forgotten.
    pub(super) fn begin_log(&mut self, revision: u64) {
        self.tip.revision = revision;
        self.floor = revision;
    }
}

impl State {
    /// What a storage has whose changes are all forgotten.
    pub(super) fn new(map: Map, tip: Tip) -> Self {
        Self {
            map,
            tip,
            era: 0,
            changed: HashMap::new(),
            floor: tip.revision,
            log: VecDeque::new(),
            log_bytes: 0,
            retained: VecDeque::new(),
        }
    }

    /// What a storage has before its first change.
    pub(super) fn empty() -> Self {
        Self::new(Map::new(), Tip::EMPTY)
    }

    pub(super) fn head(&self) -> Head {
        Head { revision: self.tip.revision, era: self.era }
    }

    pub(super) fn map(&self) -> &Map {
        &self.map
    }

    pub(super) fn tip(&self) -> Tip {
        self.tip
    }

    /// The oldest revision that reads and watches may name.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn record(&self, key: &str) -> Option<Record> {
        self.map.get_key_value(key).map(|(key, held)| record(key, held))
    }

    /// The changes after a revision, oldest first.
    pub(super) fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.log.range(self.log.partition_point(|change| change.revision <= revision)..)
    }

    /// Errors: the revision is forgotten, or has not been yet.
    pub(super) fn check(&self, at: u64) -> Result<(), StorageError> {
        let newest = self.tip.revision;
        if at > newest {
            return Err(StorageError::Future { asked: at, newest });
        }
        if at < self.floor {
            return Err(StorageError::Compacted { asked: at, oldest: self.floor });
        }
        Ok(())
    }

    /// Makes a change. Answers the revisions of stored changes that nobody needs since.
    pub(super) fn commit(&mut self, change: Arc<Change>, bounds: &Bounds) -> Vec<u64> {
        self.tip = self.tip.after(&change);
        set(&mut self.map, change.key(), change.after.as_ref());
        let part = first_part(change.key());
        match self.changed.get_mut(part) {
            Some(changed) => *changed = change.revision,
            None => drop(self.changed.insert(part.into(), change.revision)),
        }
        self.log_bytes += size_of_change(&change);
        self.log.push_back(change);
        let mut dead = Vec::new();
        while self.log.len() > bounds.log_changes_max || self.log_bytes > bounds.log_bytes_max {
            let Some(oldest) = self.log.front().map(|change| change.revision) else { break };
            dead.append(&mut self.compact(oldest));
        }
        dead
    }

    fn compact(&mut self, revision: u64) -> Vec<u64> {
        let mut dead = Vec::new();
        while let Some(gone) = self.log.pop_front_if(|change| change.revision <= revision) {
            self.log_bytes = self.log_bytes.saturating_sub(size_of_change(&gone));
            dead.extend(dead_of(&gone));
        }
        self.floor = self.floor.max(revision);
        self.retained.retain(|(revision, _)| *revision >= self.floor);
        dead
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

/// What is before the first slash of a key or of a prefix.
fn first_part(key: &str) -> &str {
    key.split_once('/').map_or(key, |(first, _)| first)
}

/// Gives a key what a record says.
fn set(map: &mut Map, key: &str, record: Option<&Record>) {
    match record {
        Some(Record { key, value, revision }) => {
            map.insert(Arc::clone(key), Held { value: value.clone(), revision: *revision });
        }
        None => {
            map.remove(key);
        }
    }
}

fn keys<'m>(map: &'m Map, prefix: &'m str, after: Option<&'m str>) -> impl Iterator<Item = (&'m Arc<str>, &'m Held)> {
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    map.range::<_, str>((from, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
}
