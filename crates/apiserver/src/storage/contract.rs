//! What every storage must do: each implementation runs these, and a random history against a naive model.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use proptest::prelude::*;

use crate::storage::{Bounds, Memory, Range, Storage, StorageError, WatchItem, When};

async fn put(storage: &dyn Storage, key: &str, value: &str, when: When) -> Result<u64, StorageError> {
    storage.put(key, Bytes::from(value.to_owned()), when).await
}

async fn keys(storage: &dyn Storage, range: Range<'_>) -> Vec<String> {
    let page = storage.range(range).await.unwrap();
    page.records.iter().map(|record| record.key.to_string()).collect()
}

/// Puts, deletes and their conditions.
pub async fn changes_are_made_on_conditions(storage: &dyn Storage) {
    let first = put(storage, "a/1", "x", When::Absent).await.unwrap();
    let there = put(storage, "a/1", "y", When::Absent).await.unwrap_err();
    assert!(matches!(there, StorageError::Unmet(Some(record)) if record.revision == first && record.value == "x"));
    assert!(matches!(put(storage, "a/2", "y", When::At(first)).await, Err(StorageError::Unmet(None))));
    let second = put(storage, "a/1", "y", When::At(first)).await.unwrap();
    assert!(second > first && storage.revision().await.unwrap() == second);
    assert!(matches!(storage.delete("a/1", first).await, Err(StorageError::Unmet(Some(_)))));
    let third = storage.delete("a/1", second).await.unwrap();
    assert_eq!(storage.get("a/1").await.unwrap(), (None, third));
}

/// Pages in the order of bytes, and as they were.
pub async fn ranges_are_of_one_revision(storage: &dyn Storage) {
    for key in ["a/1", "a/2", "a/3", "a-b/1", "b/1"] {
        put(storage, key, "x", When::Absent).await.unwrap();
    }
    let range = Range { prefix: "a/", limit: 2, count: true, ..Range::default() };
    let page = storage.range(range).await.unwrap();
    assert_eq!((page.records.len(), page.more, page.remaining), (2, true, Some(1)));
    let at = page.revision;
    let (record, _) = storage.get("a/3").await.unwrap();
    storage.delete("a/3", record.unwrap().revision).await.unwrap();
    put(storage, "a/4", "x", When::Absent).await.unwrap();
    let after = |at| Range { prefix: "a/", after: Some("a/2"), at, ..Range::default() };
    assert_eq!(keys(storage, after(at)).await, ["a/3"]);
    assert_eq!(keys(storage, after(0)).await, ["a/4"]);
    let future = storage.range(after(at + 1000)).await;
    assert!(matches!(future, Err(StorageError::Future { .. })));
}

/// Every change once and in order; a watch that is behind a compaction is told so.
pub async fn watches_tell_every_change(storage: &dyn Storage) {
    let start = storage.revision().await.unwrap();
    let mut watch = storage.watch("a/", start).await.unwrap();
    let first = put(storage, "a/1", "x", When::Absent).await.unwrap();
    put(storage, "b/1", "x", When::Absent).await.unwrap();
    let second = put(storage, "a/1", "y", When::At(first)).await.unwrap();
    let third = storage.delete("a/1", second).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 3 {
        if let WatchItem::Change(change) = watch.next().await.unwrap().unwrap() {
            let value = |record: Option<crate::storage::Record>| record.map(|record| record.value);
            told.push((change.revision, value(change.before), value(change.after)));
        }
    }
    let [x, y] = ["x", "y"].map(|text| Some(Bytes::from_static(text.as_bytes())));
    assert_eq!(told, [(first, None, x.clone()), (second, x, y.clone()), (third, y, None)]);
    storage.compact(third).await.unwrap();
    let late = storage.watch("a/", first).await;
    assert!(matches!(late.err(), Some(StorageError::Compacted { .. })));
    assert!(storage.watch("a/", third).await.is_ok());
    let mut slow = storage.watch("a/", third).await.unwrap();
    let newest = put(storage, "a/9", "x", When::Absent).await.unwrap();
    put(storage, "a/10", "x", When::Absent).await.unwrap();
    storage.compact(newest).await.unwrap();
    assert!(matches!(slow.next().await, Some(Err(StorageError::Compacted { .. }))));
    assert!(slow.next().await.is_none());
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    changes_are_made_on_conditions(&Memory::default()).await;
    ranges_are_of_one_revision(&Memory::default()).await;
    watches_tell_every_change(&Memory::default()).await;
}

#[tokio::test]
async fn memory_is_bounded() {
    let bounds = Bounds { keys_max: 2, value_bytes_max: 4, bytes_max: 20, log_changes_max: 2, ..Bounds::default() };
    let memory = Memory::new(bounds);
    let first = put(&memory, "a", "1234", When::Absent).await.unwrap();
    assert!(matches!(put(&memory, "b", "12345", When::Absent).await, Err(StorageError::Full(_))));
    let second = put(&memory, "b", "1", When::Absent).await.unwrap();
    assert!(matches!(put(&memory, "c", "1", When::Absent).await, Err(StorageError::Full(_))));
    // Of three changes the log holds two.
    put(&memory, "b", "2", When::At(second)).await.unwrap();
    assert!(memory.watch("", first).await.is_ok());
    assert!(matches!(memory.watch("", first - 1).await.err(), Some(StorageError::Compacted { .. })));
}

/// What a model of a storage is: all that ever was.
#[derive(Default)]
struct Model {
    /// The state after each revision.
    states: BTreeMap<u64, BTreeMap<String, (String, u64)>>,
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Compact(u8),
    Range { limit: u8, after: u8, back: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..12, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (0u8..12).prop_map(Step::Delete),
        1 => (0u8..10).prop_map(Step::Compact),
        3 => (0u8..5, 0u8..12, 0u8..12).prop_map(|(limit, after, back)| Step::Range { limit, after, back }),
    ]
}

fn key(number: u8) -> String {
    format!("{}/{number:02}", if number.is_multiple_of(3) { "b" } else { "a" })
}

impl Model {
    async fn run(mut self, storage: Arc<dyn Storage>, steps: Vec<Step>) {
        let start = storage.revision().await.unwrap();
        self.states.insert(start, BTreeMap::new());
        let (mut now, mut floor) = (start, start);
        for step in steps {
            let mut state = self.states[&now].clone();
            match step {
                Step::Put(number, value) => {
                    let (key, value) = (key(number), value.to_string());
                    let when = state.get(&key).map_or(When::Absent, |(_, revision)| When::At(*revision));
                    now = put(&*storage, &key, &value, when).await.unwrap();
                    state.insert(key, (value, now));
                    self.states.insert(now, state);
                }
                Step::Delete(number) => {
                    let Some((_, revision)) = state.remove(&key(number)) else { continue };
                    now = storage.delete(&key(number), revision).await.unwrap();
                    self.states.insert(now, state);
                }
                Step::Compact(back) => {
                    floor = floor.max(now.saturating_sub(back.into())).max(start);
                    storage.compact(floor).await.unwrap();
                }
                Step::Range { limit, after, back } => {
                    let at = now.saturating_sub(back.into()).max(start);
                    self.check(&*storage, limit.into(), &key(after), at, floor).await;
                }
            }
        }
    }

    async fn check(&self, storage: &dyn Storage, limit: usize, after: &str, at: u64, floor: u64) {
        let range = Range { prefix: "a/", after: Some(after), limit, at, count: true };
        let found = storage.range(range).await;
        if at < floor {
            assert!(matches!(found, Err(StorageError::Compacted { .. })), "{at} {floor}");
            return;
        }
        let page = found.unwrap();
        let (_, state) = self.states.range(..=at).next_back().unwrap();
        let all: Vec<_> = state
            .iter()
            .filter(|(key, _)| key.starts_with("a/") && key.as_str() > after)
            .map(|(key, (value, revision))| (key.clone(), value.clone(), *revision))
            .collect();
        let given = if limit == 0 { all.len() } else { limit.min(all.len()) };
        let seen: Vec<_> = page
            .records
            .iter()
            .map(|one| (one.key.to_string(), String::from_utf8(one.value.to_vec()).unwrap(), one.revision))
            .collect();
        assert_eq!(seen, all[..given]);
        assert_eq!((page.more, page.remaining), (given < all.len(), Some((all.len() - given) as u64)));
    }
}

proptest! {
    #[test]
    fn memory_is_as_a_naive_model(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Model::default().run(Arc::new(Memory::default()), steps));
    }
}
