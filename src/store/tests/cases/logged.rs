//! What watchers are told, and when the log has it no more.

use std::sync::Arc;

use super::{DEPLOYMENTS, EAST, doc};
use crate::{
    config::Names,
    store::{
        Expired, FleetStore, Interest, KindSpec, LogLimits, ReadAfter, Record, Revision, Shared,
        tests::{
            model::{KINDS, Kind, member},
            world::{naming, shared},
        },
    },
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    watch::{Event, EventType},
};

/// A watcher of a node's pods is woken for these alone, and told when one comes to the node or goes.
#[test]
fn a_watcher_of_a_node_hears_of_its_pods_alone() {
    let spec = KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true);
    let store = FleetStore::new(Arc::new(spec), shared(naming(Names::Suffixed, 3)), |_| {});
    store.join(&member(EAST), "cluster-0");
    store.open();
    let mut rv = 10;
    let mut say = |event_type, name: &str, node: &str| {
        rv += 1;
        let object = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{rv}"}},"spec":{{"nodeName":"{node}"}}}}"#
        );
        store.watch_event(&member(EAST), &Event { event_type, object: &object }).unwrap();
    };
    say(EventType::Added, "p1", "n1");
    let (snapshot, mut cursor) = store.snapshot_and_cursor(Revision(0), &Interest::Node("n1@east".into()));
    assert_eq!(snapshot.keys_on_node("n1@east").map(|key| &**key).collect::<Vec<_>>(), ["a/p1@east"]);
    let changes = store.changes(&cursor);
    let mut read = || {
        let mut out: Vec<Arc<Record>> = Vec::new();
        assert_eq!(store.read(&mut cursor, 100, usize::MAX, &mut out), ReadAfter::Read);
        assert_eq!(cursor.revision, store.snapshot().revision, "what is skipped was read");
        out.iter().map(|record| format!("{} {}", record.event_type.as_str(), record.entry.name())).collect::<Vec<_>>()
    };
    say(EventType::Added, "p2", "n2");
    say(EventType::Added, "p3", "");
    assert!(!changes.has_changed().unwrap());
    assert_eq!(read(), [""; 0]);
    say(EventType::Modified, "p3", "n1");
    assert!(changes.has_changed().unwrap());
    say(EventType::Modified, "p2", "n2");
    say(EventType::Modified, "p1", "n2");
    say(EventType::Deleted, "p3", "n1");
    assert_eq!(read(), ["MODIFIED p3@east", "MODIFIED p1@east", "DELETED p3@east"]);
    assert_eq!(store.snapshot().keys_on_node("n1@east").count(), 0);
    assert_eq!(store.snapshot().keys_on_node("n2@east").count(), 2);
    let again = store.snapshot_at(snapshot.revision).unwrap();
    assert_eq!(again.keys_on_node("n1@east").count() + again.keys_on_node("n2@east").count(), 1);
}

#[test]
fn the_log_expires_exactly_what_it_lost() {
    let limits = LogLimits::new(1 << 10, 20_000);
    let shared = Shared { log_limits: limits.clone(), ..shared(naming(Names::Suffixed, 3)) };
    let store = FleetStore::new(Arc::new(KINDS[DEPLOYMENTS].spec()), shared, |_| {});
    store.join(&member(EAST), "cluster-0");
    let say = |rv: u64| {
        let doc = doc(Kind::Deployments, "x", "one", rv).whole();
        store.watch_event(&member(EAST), &Event { event_type: EventType::Modified, object: &doc }).unwrap();
        store.snapshot().revision
    };
    let unlogged = say(20);
    store.open();
    assert_eq!(
        store.cursor(unlogged, &Interest::Everything).unwrap_err(),
        Expired { floor: store.snapshot().revision }
    );
    let start = store.snapshot().revision;
    assert!(store.cursor(Revision(start.0 + 1), &Interest::Everything).is_err(), "above the head");
    let given: Vec<Revision> = std::iter::once(start).chain((0..60).map(|at| say(30 + at))).collect();
    let floor = store.cursor(Revision(0), &Interest::Everything).unwrap_err().floor;
    let lost = given.iter().position(|revision| *revision == floor).expect("the floor is a revision that was given");
    assert!(lost > 0 && lost < 60, "{lost}");
    for (at, revision) in given.iter().enumerate() {
        match store.cursor(*revision, &Interest::Everything) {
            Err(Expired { .. }) => assert!(at < lost),
            Ok(mut cursor) => {
                let mut out = Vec::new();
                assert_eq!(store.read(&mut cursor, 1000, usize::MAX, &mut out), ReadAfter::Read);
                let read: Vec<Revision> = out.iter().map(|record| record.revision).collect();
                assert_eq!((at >= lost, read.as_slice()), (true, &given[at + 1..]));
            }
        }
    }
    // A watcher that falls out is told; one that resumed far back holds bulk changes up until it moved.
    let mut slow = store.cursor(floor, &Interest::Everything).unwrap();
    assert!(!store.has_room());
    for rv in 200..230 {
        say(rv);
    }
    let mut out = Vec::new();
    assert_eq!((store.read(&mut slow, 10, usize::MAX, &mut out), out.len()), (ReadAfter::Expired, 0));
    drop(slow);
    assert!(store.has_room() && limits.used() > 0);
    drop(store);
    assert_eq!(limits.used(), 0);
}
