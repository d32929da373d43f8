//! Earlier revisions: what is kept of them, for how long, and what the log gives back.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    config::Names,
    store::{
        FleetStore, LogLimits, RETAINED_FOR, Revision, SNAPSHOTS_MAX, Shared, Snapshot,
        tests::{
            model::{Kind, member},
            world::{naming, shared},
        },
    },
};
use kubefold_wire::watch::{Event, EventType};

/// A store of one member, with a log of so many bytes.
fn store(log_bytes: usize) -> Arc<FleetStore> {
    let limits = LogLimits::new(log_bytes, log_bytes);
    let shared = Shared { log_limits: limits, ..shared(naming(Names::Suffixed, 1)) };
    let store = Arc::new(FleetStore::new(Arc::new(Kind::Deployments.spec()), shared, |_| {}));
    store.join(&member(0), "uid");
    store.begin_list(&member(0));
    assert!(store.end_list(&member(0), 1).is_empty());
    store.open();
    store
}

fn say(store: &FleetStore, event_type: EventType, name: usize, rv: u64, size: usize) {
    let object = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {
        "name": format!("web-{name}"), "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": rv.to_string(),
        "annotations": {"fill": "x".repeat(size)}}});
    store.watch_event(&member(0), &Event { event_type, object: &object.to_string() }).unwrap();
}

fn keys(snapshot: &Snapshot) -> Vec<String> {
    snapshot.range("", b"").map(|entry| format!("{}={}", entry.name(), entry.revision)).collect()
}

#[test]
fn every_revision_is_had_again_while_the_log_reaches() {
    let store = store(1 << 20);
    let mut states = vec![store.snapshot()];
    for (rv, (event_type, name)) in [
        (EventType::Added, 1),
        (EventType::Added, 2),
        (EventType::Modified, 1),
        (EventType::Deleted, 2),
        (EventType::Added, 2),
        (EventType::Deleted, 1),
    ]
    .into_iter()
    .enumerate()
    {
        say(&store, event_type, name, rv as u64 + 10, 8);
        states.push(store.snapshot());
    }
    for was in &states {
        let again = store.snapshot_at(was.revision).unwrap();
        assert_eq!((keys(&again), again.count("a"), again.count("")), (keys(was), was.count("a"), was.count("")));
        // Another kind's revision, given out before this one's next: nothing happened here in between.
        assert_eq!(keys(&store.snapshot_at(Revision(was.revision.0 + 1)).unwrap()), keys(was));
    }
    assert!(store.snapshot_at(Revision(states[0].revision.0 - 1)).is_none(), "before the log began");
    let later = store.snapshot_from(Revision(states[6].revision.0 + 80));
    assert_eq!((later.revision.0, keys(&later)), (states[6].revision.0 + 80, keys(&states[6])));
}

#[test]
fn what_fell_out_of_the_log_is_gone_unless_it_is_kept() {
    let store = store(10_000);
    say(&store, EventType::Added, 1, 10, 100);
    let (kept, gone) = (store.snapshot(), store.snapshot().revision);
    store.retain(&kept);
    say(&store, EventType::Modified, 1, 11, 100);
    let lost = store.snapshot().revision;
    (12..100).for_each(|rv| say(&store, EventType::Modified, 1, rv, 100));
    assert!(store.snapshot_at(lost).is_none());
    assert_eq!(keys(&store.retained(gone).unwrap()), keys(&kept));
    assert_eq!(keys(&store.snapshot_at(gone).unwrap()), keys(&kept));
}

#[tokio::test(start_paused = true)]
async fn a_promise_lasts_five_minutes_from_its_last_page() {
    let store = store(1 << 20);
    say(&store, EventType::Added, 1, 10, 100);
    let page = store.snapshot();
    assert!(store.retained(page.revision).is_none(), "nothing was promised");
    store.retain(&page);
    tokio::time::advance(RETAINED_FOR - Duration::from_secs(1)).await;
    store.retain(&page);
    tokio::time::advance(RETAINED_FOR - Duration::from_secs(1)).await;
    assert!(store.retained(page.revision).is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(store.retained(page.revision).is_none(), "though the log reaches");
    assert!(store.snapshot_at(page.revision).is_some(), "which an exact list may use");
}

#[test]
fn of_too_many_promises_the_log_keeps_what_the_snapshots_cannot() {
    let store = store(1 << 20);
    let mut pages = Vec::new();
    for rv in 10..10 + 2 * SNAPSHOTS_MAX as u64 {
        say(&store, EventType::Modified, 1, rv, 10);
        pages.push(store.snapshot());
        store.retain(&pages[pages.len() - 1]);
    }
    for page in &pages {
        assert_eq!(keys(&store.retained(page.revision).unwrap()), keys(page));
    }
}

#[test]
fn snapshots_hold_no_more_than_their_bytes() {
    // No log to speak of: what is had again was kept.
    let store = store(100);
    say(&store, EventType::Added, 1, 10, 1 << 20);
    let held = Arc::downgrade(&store.get("a/web-1@east").unwrap());
    let page = store.snapshot().revision;
    store.retain(&store.snapshot());
    // Each counts what it replaces.
    (0..120).for_each(|at| say(&store, EventType::Modified, 1, 11 + at, 1 << 20));
    assert!(store.retained(page).is_some() && held.strong_count() > 0);
    (0..16).for_each(|at| say(&store, EventType::Modified, 1, 200 + at, 1 << 20));
    assert!(store.retained(page).is_none() && held.strong_count() == 0);
}
