use futures::StreamExt as _;

use crate::storage::{
    Bounds, StorageError, WatchItem, When,
    contract::{Backend, NAME, check_history, contents, opened, put},
};

/// What is opened again has all that was acknowledged, and goes on with the next revision. A watch from before is served
/// without a gap, or told that its revision is compacted.
pub async fn history_goes_on_after_a_restart(backend: &dyn Backend) {
    if !backend.outlives_its_process() {
        return;
    }
    let mut storage = opened(backend).await;
    let start = storage.revision().await.unwrap();
    for round in 0..4 {
        for number in 0..6 {
            let key = format!("a/{}", (round + number) % 7);
            let there = storage.get(&key).await.unwrap().0;
            match there {
                Some(record) if number == 5 => storage.delete(&key, record.revision).await.unwrap(),
                there => {
                    let when = there.map_or(When::Absent, |record| When::At(record.revision));
                    put(&*storage, &key, &format!("{round} {number}"), when).await.unwrap()
                }
            };
        }
        let (before, newest) = (contents(&*storage, 0).await, storage.revision().await.unwrap());
        storage.close().await;
        drop(storage);
        storage = opened(backend).await;
        assert_eq!((contents(&*storage, 0).await, storage.revision().await.unwrap()), (before, newest));
        for after in start..=newest {
            match storage.watch("", after).await {
                Ok(_) => check_history(&*storage, after, newest).await,
                Err(error) => assert!(matches!(error, StorageError::Compacted { .. }), "{error}"),
            }
        }
        let next = put(&*storage, &format!("b/{round}"), "x", When::Absent).await.unwrap();
        assert_eq!(next, newest + 1);
        check_history(&*storage, newest, next).await;
    }
}

/// What was there stays. Revisions go on above the one to which it was raised, also after a restart, and those before are
/// compacted. A storage whose revisions others count says so by the revision that it answers.
pub async fn a_storage_that_is_raised_counts_on_from_there(backend: &dyn Backend) {
    let mut storage = opened(backend).await;
    for key in ["a/1", "a/2", "b/1"] {
        put(&*storage, key, "x", When::Absent).await.unwrap();
    }
    let (before, newest) = (contents(&*storage, 0).await, storage.revision().await.unwrap());
    assert_eq!(storage.raise(newest - 1).await.unwrap(), newest, "it is there already");
    check_history(&*storage, newest - 1, newest).await;
    let mut watch = storage.watch("", newest).await.unwrap();
    let to = newest + 5_000;
    let raised = storage.raise(to).await.unwrap();
    if raised != to {
        assert_eq!((raised, storage.revision().await.unwrap()), (newest, newest));
        return;
    }
    for restarted in [false, true] {
        if restarted && backend.outlives_its_process() {
            storage.close().await;
            drop(storage);
            storage = opened(backend).await;
        }
        assert_eq!((contents(&*storage, 0).await, storage.revision().await.unwrap()), (before.clone(), to));
        for after in [newest - 1, newest, to - 1] {
            let refused = storage.watch("", after).await.err();
            assert!(matches!(refused, Some(StorageError::Compacted { .. })), "{after}: {refused:?}");
        }
    }
    while let Some(item) = watch.next().await {
        match item {
            Ok(WatchItem::Progress(_)) => {}
            Ok(WatchItem::Change(change)) => panic!("nothing changed: {change:?}"),
            Err(error) => {
                assert!(matches!(error, StorageError::Compacted { .. } | StorageError::Unavailable(_)), "{error}")
            }
        }
    }
    let changed = put(&*storage, "a/1", "y", When::At(before[0].2)).await.unwrap();
    assert_eq!(changed, to + 1);
    check_history(&*storage, to, changed).await;
}

/// What was compacted, by order or by a bound, takes nothing of the rest with it.
pub async fn a_compacted_storage_opens_with_what_is_kept(backend: &dyn Backend) {
    if !backend.outlives_its_process() {
        return;
    }
    let bounds = Bounds { log_changes_max: 8, ..Bounds::default() };
    let mut storage = backend.open(NAME, bounds).await;
    for round in 0..4_u64 {
        for number in 0..20_u64 {
            let key = format!("a/{}", number % 5);
            let there = storage.get(&key).await.unwrap().0;
            match there {
                Some(record) if (round + number).is_multiple_of(4) => {
                    storage.delete(&key, record.revision).await.unwrap();
                }
                there => {
                    let when = there.map_or(When::Absent, |record| When::At(record.revision));
                    put(&*storage, &key, &number.to_string(), when).await.unwrap();
                }
            }
        }
        let newest = storage.revision().await.unwrap();
        if round == 2 {
            storage.compact(newest).await.unwrap();
        }
        let before = contents(&*storage, 0).await;
        storage.close().await;
        drop(storage);
        storage = backend.open(NAME, bounds).await;
        assert_eq!((contents(&*storage, 0).await, storage.revision().await.unwrap()), (before, newest));
        for after in newest.saturating_sub(8)..=newest {
            match storage.watch("", after).await {
                Ok(_) => check_history(&*storage, after, newest).await,
                Err(error) => assert!(matches!(error, StorageError::Compacted { .. }), "{error}"),
            }
        }
    }
}

/// A closed storage says that it makes no change, and makes none. To close it again is no error.
pub async fn a_closed_storage_changes_nothing(backend: &dyn Backend) {
    if !backend.outlives_its_process() {
        return;
    }
    let storage = opened(backend).await;
    let first = put(&*storage, "a", "1", When::Absent).await.unwrap();
    assert!(storage.ready().await.is_ok());
    storage.close().await;
    storage.close().await;
    assert!(matches!(put(&*storage, "a", "2", When::At(first)).await, Err(StorageError::Unavailable(_))));
    assert!(matches!(storage.delete("a", first).await, Err(StorageError::Unavailable(_))));
    assert!(matches!(storage.compact(first).await, Err(StorageError::Unavailable(_))));
    assert!(matches!(storage.ready().await, Err(StorageError::Unavailable(_))));
    let storage = opened(backend).await;
    assert_eq!(contents(&*storage, 0).await, [("a".to_owned(), "1".to_owned(), first)]);
}
