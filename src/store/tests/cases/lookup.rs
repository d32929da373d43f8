//! What is looked up by owners and by UIDs, as it was at a revision.

use super::*;

/// The keys of objects.
fn keys(found: &[Arc<Entry>]) -> Vec<String> {
    found.iter().map(|entry| entry.shared_key().to_string()).collect()
}

fn web(at: usize) -> [Referent; 1] {
    [Referent::new(&member(at), "apps", "Deployment", "a", "web")]
}

#[test]
fn who_refers_to_an_owner_and_who_has_a_uid_is_known_as_of_each_revision() {
    let fleet = Fleet::new();
    let (indexed, walked) = (&fleet.stores[REPLICA_SETS], &fleet.stores[DEPLOYMENTS]);
    assert!(indexed.index_uids(&mut String::new()), "there is nothing yet");
    let set = |name: &'static str, uid: &str, owner: &'static str, rv: u64| Doc {
        owner: Some((owner, "own".into())),
        ..doc(Kind::ReplicaSets, name, uid, rv)
    };
    type Step<'a> = (&'a dyn Fn(), &'a [&'a str], &'a [&'a str]);
    let steps: [Step<'_>; 6] = [
        (&|| fleet.is(EAST, &set("web-1", "one", "web", 20)), &["a/web-1@east"], &["a/web-1@east"]),
        (&|| fleet.is(EAST, &set("web-2", "two", "web", 21)), &["a/web-1@east", "a/web-2@east"], &["a/web-1@east"]),
        // Another owner takes one.
        (&|| fleet.is(EAST, &set("web-1", "one", "db", 22)), &["a/web-2@east"], &["a/web-1@east"]),
        // Another object has the name, and a restored member the UID.
        (&|| fleet.is(EAST, &set("web-1", "three", "web", 23)), &["a/web-1@east", "a/web-2@east"], &[]),
        (
            &|| fleet.is(WEST, &set("web-1", "one", "web", 20)),
            &["a/web-1@east", "a/web-1@west", "a/web-2@east"],
            &["a/web-1@west"],
        ),
        (&|| fleet.gone(EAST, &set("web-2", "two", "web", 24)), &["a/web-1@east", "a/web-1@west"], &["a/web-1@west"]),
    ];
    let revisions: Vec<Revision> = steps
        .iter()
        .map(|(step, ..)| {
            step();
            fleet.shared.revisions.last()
        })
        .collect();
    for (revision, (_, referring, of_uid)) in revisions.iter().zip(&steps) {
        assert_eq!(keys(&indexed.referring_at(*revision, &web(EAST)).unwrap()), *referring, "{revision}");
        assert_eq!(keys(&indexed.of_uid_at(*revision, "one").unwrap().unwrap()), *of_uid, "{revision}");
    }
    assert_eq!(indexed.of_uid_at(revisions[5], "two").unwrap().unwrap().len(), 0);
    assert_eq!(indexed.of_uid_at(revisions[4], "two").unwrap().unwrap().len(), 1);
    // Before the log began.
    assert!(indexed.referring_at(Revision(0), &web(EAST)).is_err() && indexed.of_uid_at(Revision(0), "one").is_err());
    assert!(walked.of_uid_at(revisions[5], "one").unwrap().is_none(), "nobody has asked for it");
}

#[test]
fn uids_are_indexed_slice_by_slice_while_objects_come_and_go() {
    let fleet = Fleet::new();
    let store = &fleet.stores[REPLICA_SETS];
    let names: Vec<&'static str> = (0..SLICE_ITEMS_MAX + 9).map(|at| &*format!("s{at:04}").leak()).collect();
    for (at, name) in names.iter().enumerate() {
        fleet.is(EAST, &doc(Kind::ReplicaSets, name, &format!("u{at}"), 20));
    }
    let mut after = String::new();
    assert!(!store.index_uids(&mut after) && !after.is_empty());
    let (first, last) = (names[0], names[names.len() - 1]);
    fleet.gone(EAST, &doc(Kind::ReplicaSets, first, "u0", 21));
    fleet.gone(EAST, &doc(Kind::ReplicaSets, last, &format!("u{}", names.len() - 1), 21));
    fleet.is(EAST, &doc(Kind::ReplicaSets, first, "late", 22));
    assert!(store.of_uid_at(fleet.shared.revisions.last(), "late").unwrap().is_none(), "not all are indexed");
    while !store.index_uids(&mut after) {}
    let now = fleet.shared.revisions.last();
    for entry in store.snapshot().objects.values() {
        assert_eq!(store.of_uid_at(now, entry.uid()).unwrap().unwrap().len(), 1, "{}", entry.uid());
    }
    for gone in ["u0".to_owned(), format!("u{}", names.len() - 1)] {
        assert_eq!(store.of_uid_at(now, &gone).unwrap().unwrap().len(), 0, "{gone}");
    }
}

#[test]
fn what_is_made_of_several_parts_refers_to_the_owner_of_each() {
    let fleet = Fleet::new();
    let order = [WEST, EAST];
    for at in [EAST, WEST] {
        let parent = part(at, 20, 1, &order);
        let of = replica_set(20, &parent.uid);
        fleet.is(at, &Doc { uid: format!("rs-{at}"), inherited: parent.marker, ..of });
    }
    let store = &fleet.stores[REPLICA_SETS];
    while !store.index_uids(&mut String::new()) {}
    let now = fleet.shared.revisions.last();
    for at in [EAST, WEST] {
        assert_eq!(keys(&store.referring_at(now, &web(at)).unwrap()), ["a/web-1"]);
        assert_eq!(keys(&store.of_uid_at(now, &format!("rs-{at}")).unwrap().unwrap()), ["a/web-1"]);
    }
}
