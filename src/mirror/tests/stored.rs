//! Kinds that are stored since a start: by configuration, or since memory has no room for them.

use super::*;

#[test]
fn rows_of_before_are_found_where_a_kind_is_stored_or_is_not_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("events", "Event");
    // More than a page of them.
    (0..600).for_each(|at| world.event(&format!("one-{at}"), Some("x")));
    world.write(&opened(&directory)).unwrap();
    let stored = config("mirror: {stored: [events]}\n");
    let mirror = Mirror::open(directory.path(), &stored, None);
    assert_eq!(mirror.position(&world.of).unwrap().position.revision, world.revision);
    assert_eq!(all_named(&mirror, "").len(), 600);
    assert_eq!(all_named(&mirror, "names=one-7,one-599"), ["one-599", "one-7"], "by an index");
    drop(mirror);
    meddle(&directory, "UPDATE objects SET name = NULL, digest = 0 WHERE key = 'a/one-7'");
    let mirror = Mirror::open(directory.path(), &stored, None);
    assert_eq!(mirror.position(&world.of), None, "what is damaged is listed anew");
    let document = r#"{"metadata":{"name":"two","namespace":"a"}}"#.to_owned();
    let object = ReportedObject { key: "a/two".into(), uid: "u-two".into(), revision: 20, document };
    let ended = Report::ListEnded { cluster_uid: "u-east".into(), revision: 20, definition: 0 };
    assert!(mirror.report(&world.of, vec![Report::ListBegan, Report::Object(object), ended].into()).unwrap());
    assert_eq!(mirror.position(&world.of).unwrap().position.revision, 20);
    drop(mirror);
    assert_eq!(kept(&opened(&directory), &world.of).unwrap().1.len(), 1, "they are what a store begins with");
    assert_eq!(all_named(&Mirror::open(directory.path(), &stored, None), ""), ["two"]);
}

/// The names of the events that a query finds.
pub(super) fn all_named(mirror: &Mirror, query: &str) -> Vec<String> {
    let query = Parameters { query, now: 0 }.read().unwrap();
    let gvr = Gvr::new("", "v1", "events");
    let of = Selection { gvr: &gvr, kind: "Event", members: None, namespace: "", owners: None };
    let found = mirror.search(&query, &of).unwrap().objects;
    found.into_iter().map(|found| found.key.trim_start_matches("a/").to_owned()).collect()
}

#[test]
fn what_memory_has_no_room_for_is_decided_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new("events", "Event");
    let bounded = config("mirror: {memory: 1Mi, storable: [events]}\n");
    let open = || Mirror::open(directory.path(), &bounded, None);
    let mirror = open();
    (0..30).for_each(|at| world.event(&format!("large-{at}"), Some(&"x".repeat(40_000))));
    world.write(&mirror).unwrap();
    assert!(!mirror.stores(&world.of.gvr), "nothing passes while a process runs");
    mirror.bounds(|| 2 << 20);
    assert!(mirror.figures().memory.unwrap().is_over());
    drop(mirror);
    for _ in 0..2 {
        let mirror = open();
        assert!(mirror.stores(&world.of.gvr), "at the next start, and at the one after that");
        assert_eq!(mirror.figures().memory.unwrap().in_tables, ["events"]);
        assert_eq!(all_named(&mirror, "").len(), 30);
    }
    assert!(!opened(&directory).stores(&world.of.gvr), "without the bound it is in memory again");
}
