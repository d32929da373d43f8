//! A process that goes on where an earlier one ended.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::{
    config::Names,
    store::{
        Earlier, FleetStore, Interest, Revision, Revisions, Shared,
        tests::{
            model::{Kind, member},
            property::{check, is_the_union, op, target},
            watcher::Watcher,
            world::{World, naming, shared},
        },
        unix_micros,
    },
};
use kubefold_wire::watch::{Event, EventType};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever had happened, and whatever comes next: a watch that goes on is told all that comes, once, and nothing by the restart.
    #[test]
    fn a_process_goes_on_where_an_earlier_one_ended(
        focus in prop::collection::vec(target(), 0..4),
        before in prop::collection::vec(op(), 1..80),
        is_settled in any::<bool>(),
        after in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new();
        for op in before {
            world.step(op.at(&focus));
            world.check();
        }
        if is_settled {
            world.settle();
            world.check();
        }
        let is_calm = world.is_calm();
        let goes_on = world.restart();
        prop_assert!(!is_calm || goes_on == [true; 4], "{goes_on:?}");
        prop_assert!(world.check().is_empty());
        world.check_past();
        let mut last = Revision(0);
        for op in after {
            let op = op.at(&focus);
            world.step(op);
            check(&world.check(), &world, op, &mut last);
        }
        world.settle();
        world.check();
        is_the_union(&world);
        world.check_past();
    }
}

/// A store of one member with two objects, or with what of them is given.
fn store(shared: Shared, earlier: Option<Earlier>, objects: &[(&str, u64, &str)]) -> FleetStore {
    let store = FleetStore::new(Arc::new(Kind::Widgets.spec()), shared, |_| {});
    if let Some(earlier) = earlier {
        store.recognize(earlier);
    }
    store.join(&member(0), "uid");
    store.begin_list(&member(0));
    let texts: Vec<String> = objects.iter().map(|(name, rv, text)| widget(name, *rv, text)).collect();
    let items: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(store.list_slice(&member(0), &items).is_empty());
    assert!(store.end_list(&member(0), 10).is_empty());
    store
}

fn widget(name: &str, rv: u64, text: &str) -> String {
    let metadata =
        json!({"name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": rv.to_string()});
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": text}).to_string()
}

fn first() -> FleetStore {
    let store = store(shared(naming(Names::Suffixed, 1)), None, &[("one", 7, "x"), ("two", 8, "y")]);
    store.open();
    store
}

/// As after a restart of a process that had reserved revisions up to `high_water`.
fn later(high_water: Revision) -> Shared {
    let revisions = Arc::new(Revisions::new(high_water, 0, unix_micros, Box::new(Ok)));
    Shared { revisions, ..shared(naming(Names::Suffixed, 1)) }
}

#[test]
fn each_object_has_the_revision_that_it_had_and_a_watch_is_told_what_comes() {
    let first = first();
    let (was, head) = (first.snapshot(), first.snapshot().revision);
    let mut watcher = Watcher::from(&first, &was, Interest::Everything);
    let mark = Revision(head.0 + 80_000);
    let second = store(later(mark), first.shown(), &[("two", 8, "y"), ("one", 7, "x")]);
    assert!(second.resume() && second.snapshot().revision == head);
    let revisions = |store: &FleetStore| -> Vec<Revision> {
        store.snapshot().objects.values().map(|entry| entry.revision).collect()
    };
    assert_eq!(revisions(&first), revisions(&second));
    watcher.meets(&second, true);
    let object = widget("one", 11, "z");
    second.watch_event(&member(0), &Event { event_type: EventType::Modified, object: &object }).unwrap();
    let told = watcher.read(&second);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].revision > mark && told[0].previous.as_ref().unwrap().revision == was.objects["a/one@east"].revision
    );
    // A page of before is followed by one of now, and both show one moment.
    assert_eq!(second.retained(head).unwrap().objects["a/one@east"].json(), was.objects["a/one@east"].json());
}

#[test]
fn a_revision_that_the_earlier_process_may_have_given_out_later_is_not_known() {
    let first = first();
    let (earlier, head) = (first.shown().unwrap(), first.snapshot().revision);
    // An event that nobody has kept.
    let object = widget("three", 11, "z");
    first.watch_event(&member(0), &Event { event_type: EventType::Added, object: &object }).unwrap();
    let after = first.snapshot().revision;
    let second = store(later(Revision(after.0 + 80_000)), Some(earlier), &[("one", 7, "x"), ("two", 8, "y")]);
    assert!(second.resume());
    assert!(second.cursor(head, &Interest::Everything).is_ok());
    assert!(second.cursor(after, &Interest::Everything).is_err(), "its client knows an object that is not there");
    assert!(second.snapshot_at(after).is_none() && second.retained(after).is_none());
    assert!(second.cursor(Revision(head.0 - 1), &Interest::Everything).is_err());
}

#[test]
fn a_store_that_shows_anything_else_begins_anew() {
    let first = first();
    let (earlier, head) = (first.shown().unwrap(), first.snapshot().revision);
    let mark = Revision(head.0 + 80_000);
    let others: [&[(&str, u64, &str)]; 5] = [
        &[("one", 7, "x"), ("two", 9, "y")],
        &[("one", 7, "x")],
        &[("one", 7, "x"), ("two", 8, "other")],
        &[("one", 7, "x"), ("two", 8, "y"), ("three", 9, "z")],
        &[],
    ];
    for objects in others {
        let second = store(later(mark), Some(earlier.clone()), objects);
        assert!(!second.resume(), "{objects:?}");
        second.open();
        assert!(second.cursor(head, &Interest::Everything).is_err());
        // What does look as it did has its revision all the same: a client's precondition holds.
        let known = second.get("a/one@east").map(|entry| entry.revision);
        assert!(known.is_none_or(|revision| revision == first.get("a/one@east").unwrap().revision));
    }
    // A clock that went back, and a mark that is lost: nobody knows who gave out what.
    let clash = Shared { revisions: Arc::new(Revisions::new(Revision(0), 0, || 0, Box::new(Ok))), ..later(mark) };
    assert!(!store(clash, Some(earlier.clone()), &[("one", 7, "x"), ("two", 8, "y")]).resume());
    // Nobody has read it.
    assert_eq!(store(later(mark), None, &[("one", 7, "x")]).shown(), None);
    let bytes = earlier.encode();
    assert_eq!(Earlier::decode(&bytes), Some(earlier));
    for bad in [&bytes[1..], &bytes[..bytes.len() - 8], &[&[9], &bytes[1..]].concat()[..], &[]] {
        assert_eq!(Earlier::decode(bad), None);
    }
}
