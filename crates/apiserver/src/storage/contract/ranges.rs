use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::future::join;

use crate::storage::{
    Range, Stamp, Storage, StorageError, When,
    contract::{Backend, contents, keys, opened, put},
};

/// Pages in the order of bytes, and as they were.
pub async fn ranges_are_of_one_revision(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    for key in ["a/1", "a/2", "a/3", "a-b/1", "b/1", "ä/1"] {
        put(storage, key, "x", When::Absent).await.unwrap();
    }
    assert_eq!(keys(storage, Range::default()).await, ["a-b/1", "a/1", "a/2", "a/3", "b/1", "ä/1"]);
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

/// A list in pages is what was there at its first page.
pub async fn pages_go_on_at_one_revision_while_writes_go_on(backend: &dyn Backend) {
    let storage = opened(backend).await;
    for number in 0..100 {
        put(&*storage, &format!("a/{number:03}"), "old", When::Absent).await.unwrap();
    }
    let is_over = AtomicBool::new(false);
    let write = async {
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            let key = format!("a/{:03}", number % 100);
            let revision = storage.get(&key).await.unwrap().0.unwrap().revision;
            let removed = storage.delete(&key, revision).await.unwrap();
            put(&*storage, &key, "new", When::Absent).await.unwrap();
            put(&*storage, &format!("a/{:03}/{removed}", number % 100), "new", When::Absent).await.unwrap();
            number += 1;
            tokio::task::yield_now().await;
        }
        number
    };
    let read = async {
        let mut pages = 0;
        for _ in 0..5 {
            let (mut seen, mut at, mut after) = (Vec::new(), 0, None::<String>);
            loop {
                let range = Range { prefix: "a/", after: after.as_deref(), limit: 7, at, count: true };
                let page = storage.range(range).await.unwrap();
                assert!(at == 0 || page.revision == at);
                at = page.revision;
                let rows = page.records.iter().map(|one| (one.key.to_string(), super::text(&one.value), one.revision));
                seen.extend(rows);
                after = seen.last().map(|(key, ..)| key.clone());
                pages += 1;
                // Others write meanwhile.
                put(&*storage, &format!("b/{pages:04}"), "x", When::Absent).await.unwrap();
                if !page.more {
                    break;
                }
            }
            let whole = contents(&*storage, at).await;
            assert!(whole.iter().filter(|(key, ..)| key.starts_with("a/")).eq(&seen));
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (written, ()) = join(write, read).await;
    assert!(written > 0);
}

/// What was there at a revision is what a read at that revision tells, however much changes later.
pub async fn an_old_revision_stays_as_it_was(backend: &dyn Backend) {
    let storage: Arc<dyn Storage> = opened(backend).await;
    let mut states = vec![(storage.revision().await.unwrap(), contents(&*storage, 0).await)];
    for number in 0..60_u64 {
        let key = format!("a/{}", number * 7 % 11);
        let there = storage.get(&key).await.unwrap().0;
        let revision = match there {
            Some(record) if number.is_multiple_of(3) => storage.delete(&key, record.revision).await.unwrap(),
            there => {
                let when = there.map_or(When::Absent, |record| When::At(record.revision));
                put(&*storage, &key, &number.to_string(), when).await.unwrap()
            }
        };
        states.push((revision, contents(&*storage, 0).await));
    }
    for (revision, state) in &states {
        assert_eq!(contents(&*storage, *revision).await, *state, "{revision}");
    }
}

/// A storage that stamps its keys stamps another state with another stamp, and the same state of a part of the keys with the same
/// one, whatever becomes of other keys.
pub async fn a_stamp_is_of_one_state(backend: &dyn Backend) {
    let storage = &*opened(backend).await;
    let stamp = async || storage.stamp("pods/a/").await.unwrap();
    let first = put(storage, "pods/a/1", "one", When::Absent).await.unwrap();
    let Some(began) = stamp().await else {
        assert!(!backend.stamps(), "it says that it stamps keys");
        return;
    };
    assert_eq!(began.revision, first);
    // What is called alike is another part.
    for key in ["pod/a/1", "pods.example.org/a/1", "nodes/1"] {
        let revision = put(storage, key, "other", When::Absent).await.unwrap();
        assert_eq!(stamp().await, Some(Stamp { revision, ..began }), "{key}");
    }
    let mut states = vec![began.state];
    let second = put(storage, "pods/a/1", "two", When::At(first)).await.unwrap();
    states.push(stamp().await.unwrap().state);
    storage.delete("pods/a/1", second).await.unwrap();
    states.push(stamp().await.unwrap().state);
    put(storage, "pods/a/2", "two", When::Absent).await.unwrap();
    states.push(stamp().await.unwrap().state);
    assert!(states.iter().enumerate().all(|(at, state)| !states[..at].contains(state)), "{states:?}");
}
