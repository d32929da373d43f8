use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;

use crate::storage::{
    Bounds, Range, Record, StorageError, WatchItem, When,
    contract::{Backend, NAME, at_once, check_history, contents, keys, opened, put, told},
};

/// Every change once and in order; a watch that is behind a compaction is told so.
pub async fn watches_tell_every_change(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    let start = storage.revision().await.unwrap();
    let mut watch = storage.watch("a/", start).await.unwrap();
    let first = put(storage, "a/1", "x", When::Absent).await.unwrap();
    put(storage, "b/1", "x", When::Absent).await.unwrap();
    let second = put(storage, "a/1", "y", When::At(first)).await.unwrap();
    let third = storage.delete("a/1", second).await.unwrap();
    let value = |record: Option<Record>| record.map(|record| record.value);
    let changes = told(&mut watch, 3).await.into_iter();
    let changes: Vec<_> = changes.map(|one| (one.revision, value(one.before), value(one.after))).collect();
    let [x, y] = ["x", "y"].map(|text| Some(Bytes::from_static(text.as_bytes())));
    assert_eq!(changes, [(first, None, x.clone()), (second, x, y.clone()), (third, y, None)]);
}

/// Each revision that is kept is one that a watch can begin after: it tells all later changes, with what was there
/// before.
pub async fn a_watch_begins_at_any_revision_that_is_kept(backend: &dyn Backend) {
    let storage = opened(backend).await;
    let start = storage.revision().await.unwrap();
    let writer = |writer: usize| {
        let storage = Arc::clone(&storage);
        async move {
            for number in 0..5 {
                let key = format!("{writer}/{}", number % 2);
                let there = storage.get(&key).await.unwrap().0;
                match there {
                    None => put(&*storage, &key, &number.to_string(), When::Absent).await.unwrap(),
                    Some(record) if number == 3 => storage.delete(&key, record.revision).await.unwrap(),
                    Some(record) => put(&*storage, &key, "changed", When::At(record.revision)).await.unwrap(),
                };
            }
        }
    };
    at_once((0..8).map(writer)).await;
    let newest = storage.revision().await.unwrap();
    for after in start..=newest {
        check_history(&*storage, after, newest).await;
    }
    let future = storage.watch("", newest + 1).await;
    assert!(matches!(future.err(), Some(StorageError::Future { .. })));
}

/// A watch whose keys do not change says how far it came, so that a later one need not begin before.
pub async fn a_watch_tells_how_far_it_is(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    let start = storage.revision().await.unwrap();
    let mut watch = storage.watch("a/", start).await.unwrap();
    let mut other = 0;
    for number in 0..10 {
        other = put(storage, &format!("b/{number}"), "x", When::Absent).await.unwrap();
    }
    let mut at = start;
    while at < other {
        let Some(Ok(WatchItem::Progress(revision))) = watch.next().await else { panic!("no progress") };
        assert!(revision > at && revision <= other);
        at = revision;
    }
    let own = put(storage, "a/1", "x", When::Absent).await.unwrap();
    assert_eq!(told(&mut watch, 1).await[0].revision, own);
}

/// Below a compaction reads and watches are refused, those that run, too. At it and above, all is served.
pub async fn what_is_compacted_is_refused_and_the_rest_is_served(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    let start = storage.revision().await.unwrap();
    let mut running = storage.watch("", start).await.unwrap();
    let mut revisions = Vec::new();
    for number in 0..10 {
        revisions.push(put(storage, &format!("a/{number}"), "x", When::Absent).await.unwrap());
    }
    let (kept, newest) = (revisions[5], revisions[9]);
    let before = contents(storage, kept).await;
    storage.compact(kept).await.unwrap();
    for at in start..kept {
        let read = storage.range(Range { at, ..Range::default() }).await;
        assert!(matches!(read, Err(StorageError::Compacted { .. })), "{at}");
        assert!(matches!(storage.watch("", at).await.err(), Some(StorageError::Compacted { .. })), "{at}");
    }
    assert_eq!(contents(storage, kept).await, before);
    for at in kept..=newest {
        check_history(storage, at, newest).await;
    }
    // A page that was begun before goes on no more.
    let next = Range { prefix: "a/", after: Some("a/1"), limit: 2, at: start + 3, count: false };
    assert!(matches!(storage.range(next).await, Err(StorageError::Compacted { .. })));
    let ended = loop {
        match running.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("the watch ended without a word"),
        }
    };
    assert!(matches!(ended, StorageError::Compacted { .. }));
    assert!(running.next().await.is_none());
    // What lies behind all changes is no news, and forgets nothing of what is there.
    storage.compact(start).await.unwrap();
    storage.compact(newest + 1000).await.unwrap();
    assert_eq!(keys(storage, Range::default()).await.len(), 10);
    let next = put(storage, "a/x", "x", When::Absent).await.unwrap();
    assert_eq!(next, newest + 1);
    check_history(storage, newest, next).await;
}

/// A watcher that does not read holds no writer up. What it missed it is told, never left out.
pub async fn a_slow_watcher_is_told_and_holds_nobody_up(backend: &dyn Backend) {
    let bounds = Bounds { log_changes_max: 16, ..Bounds::default() };
    let storage = &*backend.open(NAME, bounds).await;
    let start = storage.revision().await.unwrap();
    let mut slow = storage.watch("", start).await.unwrap();
    let mut quick = storage.watch("", start).await.unwrap();
    for number in 0..100 {
        let revision = put(storage, &format!("a/{number}"), "x", When::Absent).await.unwrap();
        assert_eq!(told(&mut quick, 1).await[0].revision, revision);
    }
    let mut at = start;
    loop {
        match slow.next().await {
            Some(Ok(WatchItem::Change(change))) => {
                assert_eq!(change.revision, at + 1);
                at = change.revision;
            }
            Some(Ok(WatchItem::Progress(_))) => {}
            Some(Err(error)) => break assert!(matches!(error, StorageError::Compacted { .. }), "{error}"),
            None => panic!("the watch ended without a word"),
        }
    }
    assert!(slow.next().await.is_none());
}
