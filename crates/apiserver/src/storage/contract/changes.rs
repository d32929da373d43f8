use std::sync::Arc;

use crate::storage::{
    Storage, StorageError, When,
    contract::{Backend, at_once, check_history, contents, opened, put},
};

/// Puts, deletes and their conditions.
pub async fn changes_are_made_on_conditions(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    let first = put(storage, "a/1", "x", When::Absent).await.unwrap();
    let there = put(storage, "a/1", "y", When::Absent).await.unwrap_err();
    assert!(matches!(there, StorageError::Unmet(Some(record)) if record.revision == first && record.value == "x"));
    assert!(matches!(put(storage, "a/2", "y", When::At(first)).await, Err(StorageError::Unmet(None))));
    let second = put(storage, "a/1", "y", When::At(first)).await.unwrap();
    assert_eq!((second, storage.revision().await.unwrap()), (first + 1, second));
    assert!(matches!(storage.delete("a/1", first).await, Err(StorageError::Unmet(Some(_)))));
    assert!(matches!(storage.delete("a/2", first).await, Err(StorageError::Unmet(None))));
    let third = storage.delete("a/1", second).await.unwrap();
    assert_eq!(storage.get("a/1").await.unwrap(), (None, third));
    // What was there before it went does not come back.
    assert!(matches!(put(storage, "a/1", "z", When::At(second)).await, Err(StorageError::Unmet(None))));
    put(storage, "a/1", "", When::Absent).await.unwrap();
    let (record, _) = storage.get("a/1").await.unwrap();
    assert_eq!(record.unwrap().value, "");
}

/// Of writers who make the same key at once, one does, and the others are told what it made.
pub async fn one_of_many_creates_is_made(backend: &dyn Backend) {
    let storage = opened(backend).await;
    let start = storage.revision().await.unwrap();
    let create = |writer: usize| {
        let storage = Arc::clone(&storage);
        async move { put(&*storage, "a/1", &writer.to_string(), When::Absent).await }
    };
    let made = at_once((0..16).map(create)).await;
    let [one] = made.iter().flatten().collect::<Vec<_>>()[..] else { panic!("{made:?}") };
    assert_eq!((*one, storage.revision().await.unwrap()), (start + 1, start + 1));
    let there = storage.get("a/1").await.unwrap().0;
    for refused in made.iter().filter_map(|made| made.as_ref().err()) {
        assert!(matches!(refused, StorageError::Unmet(record) if *record == there), "{refused:?}");
    }
}

/// Each change has the next revision, whoever makes it, and its condition held then: eight writers count on one key, and
/// make and remove keys of their own.
pub async fn writers_at_once_take_revisions_without_gaps(backend: &dyn Backend) {
    const WRITERS: usize = 8;
    const EACH: usize = 20;
    let storage = opened(backend).await;
    put(&*storage, "count", "0", When::Absent).await.unwrap();
    let start = storage.revision().await.unwrap();
    let writer = |writer: usize| {
        let storage = Arc::clone(&storage);
        async move {
            let mut revisions = Vec::new();
            for number in 0..EACH {
                let own = format!("own/{writer}");
                let made = put(&*storage, &own, &number.to_string(), When::Absent).await.unwrap();
                revisions.push(made);
                revisions.push(count_one(&*storage).await);
                revisions.push(storage.delete(&own, made).await.unwrap());
            }
            assert!(revisions.is_sorted());
            revisions
        }
    };
    let mut revisions = at_once((0..WRITERS).map(writer)).await.concat();
    revisions.sort_unstable();
    let newest = start + (3 * WRITERS * EACH) as u64;
    assert_eq!(revisions, (start + 1..=newest).collect::<Vec<_>>());
    let now = contents(&*storage, 0).await;
    let [(key, value, _)] = &now[..] else { panic!("{now:?}") };
    assert_eq!((&**key, &**value), ("count", &*(WRITERS * EACH).to_string()));
    check_history(&*storage, start, newest).await;
}

/// Adds one to a number, however often others come between.
async fn count_one(storage: &dyn Storage) -> u64 {
    loop {
        let there = storage.get("count").await.unwrap().0.unwrap();
        let next = std::str::from_utf8(&there.value).unwrap().parse::<u64>().unwrap() + 1;
        match put(storage, "count", &next.to_string(), When::At(there.revision)).await {
            Ok(revision) => return revision,
            Err(StorageError::Unmet(Some(now))) => assert!(now.revision > there.revision),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whoever was answered sees the change in all reads, and in a watch from before.
pub async fn what_is_acknowledged_is_read(backend: &dyn Backend) {
    let storage = opened(backend).await;
    let writer = |writer: usize| {
        let storage = Arc::clone(&storage);
        async move {
            for number in 0..20 {
                let key = format!("{writer}/{number:02}");
                let revision = put(&*storage, &key, "x", When::Absent).await.unwrap();
                let (record, newest) = storage.get(&key).await.unwrap();
                assert!(record.is_some_and(|record| record.revision == revision) && newest >= revision);
                assert!(storage.revision().await.unwrap() >= revision);
                let range = crate::storage::Range { prefix: &format!("{writer}/"), ..Default::default() };
                assert_eq!(crate::storage::contract::keys(&*storage, range).await.len(), number + 1);
                assert!(storage.watch("", revision).await.is_ok());
            }
        }
    };
    at_once((0..8).map(writer)).await;
}
