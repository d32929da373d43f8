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
            world::{Op, Target, World, naming, shared},
        },
        unix_micros,
    },
};
use kubefold_wire::watch::{Event, EventType};

/// A world in which all of this has happened, and been heard if it is settled.
fn lived(before: Vec<Op>, focus: &[Target], is_settled: bool) -> World {
    let mut world = World::new();
    for op in before {
        world.step(op.at(focus));
        world.check();
    }
    if is_settled {
        world.settle();
        world.check();
    }
    world
}

/// All that comes keeps the promises; the revisions of events are above `last`.
fn lives_on(mut world: World, after: Vec<Op>, focus: &[Target], mut last: Revision) {
    for op in after {
        let op = op.at(focus);
        world.step(op);
        check(&world.check(), &world, op, &mut last);
    }
    world.settle();
    world.check();
    is_the_union(&world);
    world.check_past();
}

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
        let mut world = lived(before, &focus, is_settled);
        let is_calm = world.is_calm();
        let goes_on = world.restart();
        prop_assert!(!is_calm || goes_on == [true; 4], "{goes_on:?}");
        prop_assert!(world.check().is_empty());
        world.check_past();
        lives_on(world, after, &focus, Revision(0));
    }

    /// Whatever had happened, was told and was kept at a kill, and whatever comes next: a watch that goes on is told all that comes, once.
    #[test]
    fn a_process_goes_on_where_one_was_killed(
        focus in prop::collection::vec(target(), 0..4),
        before in prop::collection::vec(op(), 1..60),
        is_settled in any::<bool>(),
        unkept in prop::collection::vec(op(), 0..12),
        untold in prop::collection::vec(op(), 0..3),
        is_cached in any::<bool>(),
        meanwhile in prop::collection::vec(op(), 0..20),
        after in prop::collection::vec(op(), 1..30),
    ) {
        let mut world = lived(before, &focus, is_settled);
        let mut known = world.known();
        for op in unkept.into_iter().filter(|op| op.is_of_a_moment()) {
            world.step(op.at(&focus));
            world.check();
            world.tell(&mut known);
        }
        for op in untold.into_iter().filter(|op| op.is_of_a_moment()) {
            world.step(op.at(&focus));
            world.check();
        }
        if is_cached {
            world.complete(&mut known);
        }
        let meanwhile = meanwhile.into_iter().filter(|op| op.is_of_a_beginning()).map(|op| op.at(&focus)).collect();
        world.killed(known, meanwhile);
        let mut last = Revision(0);
        check(&world.check(), &world, Op::Release, &mut last);
        lives_on(world, after, &focus, last);
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
    store.filled_from_mirror();
    store
}

fn widget(name: &str, rv: u64, text: &str) -> String {
    let metadata =
        json!({"name": name, "namespace": "a", "uid": format!("u-{name}"), "resourceVersion": rv.to_string()});
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": text}).to_string()
}

fn shown(store: &FleetStore) -> Earlier {
    store.shown(store.last()).unwrap()
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
    let second = store(later(mark), Some(shown(&first)), &[("two", 8, "y"), ("one", 7, "x")]);
    assert!(second.resume(true) && second.snapshot().revision == head);
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
    let (earlier, head) = (shown(&first), first.snapshot().revision);
    // An event that nobody has kept.
    let object = widget("three", 11, "z");
    first.watch_event(&member(0), &Event { event_type: EventType::Added, object: &object }).unwrap();
    let after = first.snapshot().revision;
    let second = store(later(Revision(after.0 + 80_000)), Some(earlier), &[("one", 7, "x"), ("two", 8, "y")]);
    assert!(second.resume(true));
    assert!(second.cursor(head, &Interest::Everything).is_ok());
    assert!(second.cursor(after, &Interest::Everything).is_err(), "its client knows an object that is not there");
    assert!(second.snapshot_at(after).is_none() && second.retained(after).is_none());
    assert!(second.cursor(Revision(head.0 - 1), &Interest::Everything).is_err());
}

#[test]
fn a_store_that_shows_anything_else_begins_anew() {
    let first = first();
    let (earlier, head) = (shown(&first), first.snapshot().revision);
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
        assert!(!second.resume(true), "{objects:?}");
        second.open();
        assert!(second.cursor(head, &Interest::Everything).is_err());
        // What does look as it did has its revision all the same: a client's precondition holds.
        let known = second.get("a/one@east").map(|entry| entry.revision);
        assert!(known.is_none_or(|revision| revision == first.get("a/one@east").unwrap().revision));
    }
    // A clock that went back, and a mark that is lost: nobody knows who gave out what.
    let clash = Shared { revisions: Arc::new(Revisions::new(Revision(0), 0, || 0, Box::new(Ok))), ..later(mark) };
    assert!(!store(clash, Some(earlier.clone()), &[("one", 7, "x"), ("two", 8, "y")]).resume(true));
    // Nobody has read it.
    assert_eq!(store(later(mark), None, &[("one", 7, "x")]).shown(Revision(0)), None);
    let bytes = earlier.encode();
    assert_eq!(Earlier::decode(&bytes), Some(earlier));
    let many = [&bytes[..32], &[9], &bytes[33..]].concat();
    for bad in [&bytes[1..], &bytes[..bytes.len() - 8], &[&[9], &bytes[1..]].concat()[..], &many, &[]] {
        assert_eq!(Earlier::decode(bad), None);
    }
}

/// The member tells of an object.
fn tells(store: &FleetStore, event_type: EventType, name: &str, rv: u64, text: &str) {
    let object = widget(name, rv, text);
    store.watch_event(&member(0), &Event { event_type, object: &object }).unwrap();
}

#[test]
fn what_the_mirror_has_not_and_watchers_were_told_is_told_by_the_members_and_to_no_watcher() {
    use EventType::{Added, Deleted, Modified};
    let first = first();
    let mut told = shown(&first);
    // The mirror has none of it.
    let unkept: [(EventType, &str, u64, &str); 6] = [
        (Modified, "one", 9, "z"),
        (Added, "three", 10, "x"),
        (Modified, "three", 11, "y"),
        (Deleted, "two", 12, "y"),
        (Added, "four", 13, "x"),
        (Deleted, "four", 14, "x"),
    ];
    for (event_type, name, rv, text) in unkept {
        tells(&first, event_type, name, rv, text);
        told.change(&first.shown_after(told.head(), first.last()).unwrap());
    }
    assert_eq!(told, shown(&first));
    let mut watcher = Watcher::from(&first, &first.snapshot(), Interest::Everything);

    let second = store(later(Revision(first.last().0 + 80_000)), Some(told), &[("one", 7, "x"), ("two", 8, "y")]);
    let revision = |name: &str| first.get(name).unwrap().revision;
    let [one, three] = ["a/one@east", "a/three@east"].map(revision);
    for (event_type, name, rv, text) in unkept {
        // It came and went, and before it is told of the store does not know whether it may yet come.
        assert!(!second.resume(name != "four"), "{name}");
        tells(&second, event_type, name, rv, text);
        if name == "one" {
            // News of it, before the rest is as it was.
            tells(&second, Modified, "one", 15, "news");
            tells(&second, Added, "five", 16, "news");
        }
    }
    assert!(second.resume(true) && second.is_open());
    watcher.meets(&second, true);
    let news: Vec<_> =
        watcher.read(&second).iter().map(|record| (record.event_type, record.entry.name().to_owned())).collect();
    assert_eq!(news, [(Modified, "one@east".to_owned()), (Added, "five@east".to_owned())]);
    assert_eq!(watcher.objects, watcher.truth(&second.snapshot()));
    assert_eq!(second.get("a/three@east").unwrap().revision, three);
    assert!(second.told_at(one).is_none(), "it was told by the first one");
    // What was news while the store filled may be resumed from, too.
    let of_news = second.told_at(second.get("a/one@east").unwrap().revision).unwrap().revision;
    assert!(second.cursor(of_news, &Interest::Everything).is_ok());
}

#[test]
fn a_store_whose_members_have_skipped_what_was_told_begins_anew() {
    let first = first();
    tells(&first, EventType::Modified, "one", 9, "z");
    let (told, head) = (shown(&first), first.snapshot().revision);
    let second = store(later(Revision(head.0 + 80_000)), Some(told), &[("one", 7, "x"), ("two", 8, "y")]);
    // As after a list, or a restored backup.
    tells(&second, EventType::Modified, "one", 12, "later");
    tells(&second, EventType::Modified, "two", 13, "news");
    assert!(!second.resume(true));
    second.open();
    assert!(second.cursor(head, &Interest::Everything).is_err());
    let now = second.snapshot();
    let mut watcher = Watcher::from(&second, &now, Interest::Everything);
    assert!(watcher.read(&second).is_empty(), "what was logged before counts for nothing");
    assert_eq!(second.snapshot_at(now.revision).unwrap().objects.len(), 2);
}

#[test]
fn a_watch_that_missed_only_what_was_not_for_it_goes_on() {
    let first = first();
    let began = first.snapshot().revision;
    let mut told = shown(&first);
    tells(&first, EventType::Modified, "one", 9, "z");
    let after_one = first.snapshot().revision;
    tells(&first, EventType::Deleted, "two", 10, "y");
    told.change(&first.shown_after(began, first.last()).unwrap());
    let [everything, of_a, of_b] =
        [Interest::Everything, Interest::Namespace("a".into()), Interest::Namespace("b".into())];
    let [one, two, three] = ["a/one@east", "a/two@east", "a/three@east"].map(|key| Interest::Object(key.into()));
    // Told in pieces, told whole, and written down at the end.
    for told in [told, shown(&first), Earlier::decode(&shown(&first).encode()).unwrap()] {
        let second = store(later(Revision(first.last().0 + 80_000)), Some(told), &[("one", 9, "z")]);
        assert!(second.resume(true));
        let begins = |revision: Revision, interest: &Interest| second.cursor(revision, interest).is_ok();
        for (interest, goes_on) in [(&of_b, true), (&three, true), (&everything, false), (&of_a, false), (&one, false)]
        {
            assert_eq!(begins(began, interest), goes_on, "{interest:?}");
        }
        assert!(
            begins(after_one, &one)
                && begins(after_one, &of_b)
                && !begins(after_one, &two)
                && !begins(after_one, &of_a)
        );
        assert!(!begins(Revision(began.0 - 1), &of_b), "of what was before nobody knows");
        assert!(begins(first.snapshot().revision, &everything));
        let mut cursor = second.cursor(after_one, &one).unwrap();
        tells(&second, EventType::Modified, "one", 11, "news");
        let mut news = Vec::new();
        second.read(&mut cursor, 9, usize::MAX, &mut news);
        assert_eq!(news.len(), 1);
    }
}
