//! What the controllers of placed objects make.

use super::*;

/// A child of that part, as its member's controller makes it.
fn child(at: usize, rv: u64, order: &[usize]) -> Doc {
    let parent = part(at, rv, 1, order);
    let of = replica_set(rv, &parent.uid);
    Doc { uid: format!("rs-{at}"), inherited: parent.marker, ..of }
}

#[test]
fn what_the_controllers_of_one_placed_object_make_under_one_name_is_one_object() {
    let mut fleet = Fleet::new();
    let order = [WEST, EAST];
    // In the east before anything else is known.
    fleet.is(EAST, &Doc { replicas: 2, ..child(EAST, 20, &order) });
    fleet.is(WEST, &Doc { replicas: 3, annotations: 4, ..child(WEST, 20, &order) });
    assert_eq!(fleet.news(REPLICA_SETS), ["ADDED a/web-1", "MODIFIED a/web-1"]);
    let shown = fleet.json(REPLICA_SETS, "a/web-1");
    let uid = shown["metadata"]["uid"].clone();
    assert_eq!((&shown["spec"]["replicas"], &shown["status"]["readyReplicas"]), (&5.into(), &5.into()));
    assert_eq!(shown["metadata"]["annotations"]["a"], "b", "the home is the owner's");
    assert_eq!(shown["metadata"]["annotations"]["kubefold.io/clusters"], "west,east");
    assert!(!shown.to_string().contains("kubefold.io/placement"), "{shown}");
    // The other part is no difference, and what lacks one is none either.
    assert!(fleet.stores[REPLICA_SETS].notices("a/web-1").is_empty());
    fleet.gone(WEST, &child(WEST, 21, &order));
    assert!(fleet.stores[REPLICA_SETS].notices("a/web-1").is_empty());
    assert_eq!(fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"], uid);
    // A controller makes one again while the other lives: the same. After the last: another.
    fleet.is(WEST, &Doc { uid: "again".into(), ..child(WEST, 22, &order) });
    assert_eq!(fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"], uid);
    fleet.news(REPLICA_SETS);
    fleet.gone(EAST, &child(EAST, 23, &order));
    assert_eq!(fleet.news(REPLICA_SETS), ["DELETED a/web-1", "ADDED a/web-1"]);
    let second = fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"].clone();
    assert_ne!(second, uid);
    fleet.gone(WEST, &Doc { uid: "again".into(), ..child(WEST, 24, &order) });
    fleet.is(EAST, &child(EAST, 25, &order));
    assert_eq!(fleet.news(REPLICA_SETS), ["DELETED a/web-1", "ADDED a/web-1"]);
    assert_ne!(fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"], second);
}

#[test]
fn a_child_is_one_by_its_own_word_and_its_controllers() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST];
    let it = child(EAST, 20, &order);
    let marker = it.inherited.clone().unwrap();
    let member_locals = [
        // Copied between members.
        (WEST, Doc { inherited: Some(marker.clone()), ..child(WEST, 21, &order) }),
        // Another one's child, or nobody's and named as nobody's.
        (EAST, Doc { owner: Some(("db", "own-0".into())), ..it.clone() }),
        (EAST, Doc { owner: None, name: "web1", rv: 22, ..it.clone() }),
        // Its place is another.
        (EAST, Doc { inherited: Some(Marker { namespace: "b".into(), ..marker.clone() }), rv: 23, ..it.clone() }),
        (EAST, Doc { inherited: Some(Marker { kind: "Job".into(), ..marker }), rv: 24, ..it.clone() }),
        // Widgets are made by whom their members know.
        (EAST, Doc { kind: Kind::Widgets, ..it.clone() }),
    ];
    for (at, doc) in &member_locals {
        fleet.is(*at, doc);
        assert!(fleet.stores[doc.kind as usize].get(&format!("a/{}", doc.name)).is_none(), "{doc:?}");
    }
    fleet.news(REPLICA_SETS);
    // Adopted, and taken by another.
    fleet.is(EAST, &Doc { rv: 25, ..it.clone() });
    fleet.is(EAST, &Doc { owner: Some(("db", "own-0".into())), rv: 26, ..it });
    assert_eq!(
        fleet.news(REPLICA_SETS),
        ["ADDED a/web-1", "DELETED a/web-1@east", "DELETED a/web-1", "ADDED a/web-1@east"]
    );
    // Where names are plain everything has its own.
    let fleet = Fleet::named(Names::Plain, 1);
    fleet.is(EAST, &child(EAST, 20, &[EAST]));
    assert_eq!(fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"], "rs-0");
}

#[test]
fn an_orphan_stays_what_it_was_and_so_it_does_in_the_hands_of_the_next() {
    let mut fleet = Fleet::new();
    let order = [WEST, EAST];
    let of = |at: usize, rv: u64| Doc { replicas: 2, ..child(at, rv, &order) };
    fleet.is(EAST, &of(EAST, 20));
    fleet.is(WEST, &of(WEST, 20));
    let uid = fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["uid"].clone();
    fleet.news(REPLICA_SETS);
    // Each member's garbage collector takes its owner away.
    fleet.is(EAST, &Doc { owner: None, ..of(EAST, 21) });
    fleet.is(WEST, &Doc { owner: None, ..of(WEST, 21) });
    let orphaned = fleet.json(REPLICA_SETS, "a/web-1");
    assert_eq!((&orphaned["metadata"]["uid"], &orphaned["spec"]["replicas"]), (&uid, &4.into()));
    // The next placement of the name, which is in more members, adopts them; its controllers write their copies over them.
    let next = |at: usize, rv: u64| {
        let adopted = of(at, rv);
        let marker = part(at, rv, 2, &[EAST, WEST, NORTH]).marker.unwrap();
        let family = adopted.inherited.as_ref().unwrap().uid.clone();
        Doc { inherited: Some(Marker { adopts: Some(family), ..marker }), ..adopted }
    };
    fleet.is(EAST, &Doc { inherited: of(EAST, 22).inherited, ..next(EAST, 22) });
    fleet.is(EAST, &next(EAST, 23));
    fleet.is(WEST, &next(WEST, 23));
    fleet.is(NORTH, &next(NORTH, 23));
    let adopted = fleet.json(REPLICA_SETS, "a/web-1");
    assert_eq!((&adopted["metadata"]["uid"], &adopted["spec"]["replicas"]), (&uid, &6.into()));
    assert_eq!(fleet.keys(REPLICA_SETS), ["a/web-1"]);
    let news = fleet.news(REPLICA_SETS);
    assert!(!news.is_empty() && news.iter().all(|event| event == "MODIFIED a/web-1"), "{news:?}");
}

#[test]
fn a_store_of_parts_knows_who_they_are_and_keeps_nothing_else() {
    let shared = shared(naming(Names::Suffixed, 3));
    let store = FleetStore::of_parts(Kind::ReplicaSets.spec().into(), shared.clone(), |_| {});
    let east = member(EAST);
    store.join(&east, "cluster-0");
    store.begin_list(&east);
    let member_local = doc(Kind::ReplicaSets, "native", "n", 20);
    let of_it = child(EAST, 20, &[EAST, WEST]);
    assert!(store.list_slice(&east, &[&member_local.item(), &of_it.item()]).is_empty());
    assert!(store.end_list(&east, 30).is_empty());
    let referent = Referent::new(&east, "apps", "ReplicaSet", "a", "web-1");
    assert!(shared.identities.get(referent.bytes(), Some("rs-0")).is_some());
    assert_eq!(store.snapshot().objects.len(), 1);
    assert!(store.parts("a/web-1")[0].document.text().len() < 120, "{:?}", store.parts("a/web-1"));
    let event = |event_type, doc: &Doc| {
        store.watch_event(&east, &Event { event_type, object: &doc.whole() }).unwrap();
    };
    event(EventType::Modified, &Doc { rv: 31, ..member_local });
    event(EventType::Modified, &Doc { rv: 32, inherited: None, ..of_it.clone() });
    assert_eq!((store.snapshot().objects.len(), store.position(&east)), (0, 32));
    assert!(shared.identities.get(referent.bytes(), Some("rs-0")).is_none());
    event(EventType::Modified, &Doc { rv: 33, ..of_it.clone() });
    event(EventType::Deleted, &Doc { rv: 34, ..of_it });
    assert!(store.snapshot().objects.is_empty() && store.parts("a/web-1").is_empty());
}
