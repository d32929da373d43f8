//! The special cases, one by one.

mod children;
mod endpoints;
mod entering;
mod logged;
mod lookup;
mod moved;
mod written;

use std::sync::Arc;

use serde_json::Value;

use crate::{
    config::Names,
    placement::marker::Marker,
    store::{
        Cursor, Entry, FleetStore, Interest, KindSpec, ReadAfter, Record, Referent, Revision, SLICE_ITEMS_MAX, Shared,
        tests::{
            model::{Doc, Kind, member},
            world::{naming, shared, stores},
        },
    },
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    watch::{Event, EventType},
};

const EAST: usize = 0;
const WEST: usize = 1;
const NORTH: usize = 2;
const DEPLOYMENTS: usize = Kind::Deployments as usize;
const REPLICA_SETS: usize = Kind::ReplicaSets as usize;
const NAMESPACES: usize = Kind::Namespaces as usize;

/// Four open stores over three members that were listed and are empty, and a watcher of each.
struct Fleet {
    shared: Shared,
    stores: Vec<Arc<FleetStore>>,
    cursors: Vec<Cursor>,
}

impl Fleet {
    fn new() -> Self {
        Self::named(Names::Suffixed, 3)
    }

    fn named(names: Names, members: usize) -> Self {
        let shared = shared(naming(names, members));
        let stores = stores(&shared);
        for store in &stores {
            for at in 0..members {
                store.join(&member(at), &format!("cluster-{at}"));
                store.begin_list(&member(at));
                assert!(store.end_list(&member(at), 10).is_empty());
            }
            store.open();
        }
        let cursors =
            stores.iter().map(|store| store.snapshot_and_cursor(Revision(0), &Interest::Everything).1).collect();
        Self { shared, stores, cursors }
    }

    fn say(&self, event_type: EventType, at: usize, doc: &Doc) {
        let event = Event { event_type, object: &doc.whole() };
        self.stores[doc.kind as usize].watch_event(&member(at), &event).unwrap();
    }

    fn is(&self, at: usize, doc: &Doc) {
        self.say(EventType::Modified, at, doc);
    }

    fn gone(&self, at: usize, doc: &Doc) {
        self.say(EventType::Deleted, at, doc);
    }

    fn news(&mut self, kind: usize) -> Vec<String> {
        let mut out: Vec<Arc<Record>> = Vec::new();
        assert_eq!(self.stores[kind].read(&mut self.cursors[kind], 1000, usize::MAX, &mut out), ReadAfter::Read);
        out.iter()
            .filter(|record| !record.is_of_parts())
            .map(|record| {
                format!("{} {}", record.event_type.as_str(), std::str::from_utf8(record.entry.key()).unwrap())
            })
            .collect()
    }

    fn json(&self, kind: usize, key: &str) -> Value {
        serde_json::from_slice(self.stores[kind].get(key).unwrap().json()).unwrap()
    }

    fn keys(&self, kind: usize) -> Vec<String> {
        let snapshot = self.stores[kind].snapshot();
        snapshot.range("", b"").map(|entry| String::from_utf8(entry.key().to_vec()).unwrap()).collect()
    }
}

fn doc(kind: Kind, name: &'static str, uid: &str, rv: u64) -> Doc {
    Doc {
        kind,
        namespace: if kind == Kind::Namespaces { "" } else { "a" },
        name,
        uid: uid.into(),
        rv,
        created: rv,
        generation: 1,
        deleting: false,
        labels: 1,
        annotations: 0,
        replicas: 1,
        owner: None,
        marker: None,
        inherited: None,
    }
}

/// A Deployment's part in a member, of placement `placement`.
fn part(at: usize, rv: u64, placement: u8, order: &[usize]) -> Doc {
    let members = order.iter().map(|at| (member(*at), format!("cluster-{at}"))).collect();
    let gvk = &Kind::Deployments.spec().gvk;
    let marker = Marker { made: 2, ..Marker::new(placed_uid(placement), gvk, "a", "web", member(at), members) };
    Doc { marker: Some(marker), ..doc(Kind::Deployments, "web", &format!("own-{at}"), rv) }
}

fn placed_uid(placement: u8) -> String {
    format!("00000000-0000-4000-8000-00000000000{placement}")
}

fn replica_set(rv: u64, owner_uid: &str) -> Doc {
    Doc { owner: Some(("web", owner_uid.into())), ..doc(Kind::ReplicaSets, "web-1", "rs", rv) }
}

#[test]
fn of_two_placements_on_one_key_the_older_home_has_the_name() {
    let mut fleet = Fleet::new();
    fleet.is(WEST, &part(WEST, 30, 2, &[WEST]));
    fleet.is(WEST, &replica_set(31, "own-1"));
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web"]);
    let owner = |fleet: &Fleet| fleet.json(REPLICA_SETS, "a/web-1@west")["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner(&fleet)["name"], &owner(&fleet)["uid"]), (&"web".into(), &placed_uid(2).into()));

    // East was away and comes back with an older placement of that name.
    fleet.is(EAST, &part(EAST, 20, 1, &[EAST]));
    assert_eq!(fleet.news(DEPLOYMENTS), ["DELETED a/web", "ADDED a/web", "ADDED a/web@west"]);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["uid"], placed_uid(1));
    assert_eq!((&owner(&fleet)["name"], &owner(&fleet)["uid"]), (&"web@west".into(), &"own-1".into()));

    // A list that sees the part does not take what is shown of it away; an older answer about it changes nothing.
    let west = &fleet.stores[DEPLOYMENTS];
    west.begin_list(&member(WEST));
    assert!(west.list_slice(&member(WEST), &[&part(WEST, 30, 2, &[WEST]).item()]).is_empty());
    assert!(west.end_list(&member(WEST), 40).is_empty());
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);

    fleet.is(WEST, &Doc { rv: 41, replicas: 7, ..part(WEST, 30, 2, &[WEST]) });
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web@west"]);
    fleet.gone(EAST, &part(EAST, 42, 1, &[EAST]));
    assert_eq!(fleet.news(DEPLOYMENTS), ["DELETED a/web", "ADDED a/web", "DELETED a/web@west"]);
    assert_eq!((&owner(&fleet)["name"], &owner(&fleet)["uid"]), (&"web".into(), &placed_uid(2).into()));
}

#[test]
fn a_part_without_its_marker_is_member_local_and_so_is_what_refers_to_it() {
    let mut fleet = Fleet::new();
    fleet.is(EAST, &part(EAST, 20, 1, &[EAST]));
    fleet.is(EAST, &replica_set(21, "own-0"));
    fleet.is(EAST, &Doc { marker: None, rv: 22, ..part(EAST, 20, 1, &[EAST]) });
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web", "DELETED a/web", "ADDED a/web@east"]);
    assert_eq!(fleet.news(REPLICA_SETS), ["ADDED a/web-1@east", "MODIFIED a/web-1@east"]);
    let owner = &fleet.json(REPLICA_SETS, "a/web-1@east")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["uid"]), (&"web@east".into(), &"own-0".into()));
    // And back.
    fleet.is(EAST, &part(EAST, 23, 1, &[EAST]));
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web", "DELETED a/web@east"]);
    assert_eq!(fleet.news(REPLICA_SETS), ["MODIFIED a/web-1@east"]);
}

#[test]
fn a_part_that_is_gone_is_still_referred_to_as_the_placed_object() {
    let mut fleet = Fleet::new();
    fleet.is(EAST, &part(EAST, 20, 1, &[EAST]));
    fleet.gone(EAST, &part(EAST, 21, 1, &[EAST]));
    fleet.is(EAST, &replica_set(22, "own-0"));
    assert_eq!(fleet.news(REPLICA_SETS), ["ADDED a/web-1@east"]);
    let owner = &fleet.json(REPLICA_SETS, "a/web-1@east")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["uid"]), (&"web".into(), &placed_uid(1).into()));
}

#[test]
fn a_shared_objects_body_is_of_the_first_holder_that_is_not_deleting_it() {
    let mut fleet = Fleet::new();
    let namespace = |uid: &str, rv| doc(Kind::Namespaces, "team", uid, rv);
    let deleting = |uid: &str, rv| Doc { deleting: true, ..namespace(uid, rv) };
    fleet.is(WEST, &Doc { labels: 2, ..namespace("w", 20) });
    fleet.is(EAST, &namespace("e", 20));
    let first_uid = fleet.json(NAMESPACES, "team")["metadata"]["uid"].clone();
    assert_eq!(fleet.json(NAMESPACES, "team")["metadata"]["annotations"]["kubefold.io/clusters"], "east,west");
    assert_eq!(fleet.json(NAMESPACES, "team")["metadata"]["labels"]["app"], "web");
    fleet.is(EAST, &deleting("e", 21));
    let now = fleet.json(NAMESPACES, "team");
    assert!(now["metadata"]["deletionTimestamp"].is_null() && now["metadata"]["labels"]["a"] == "}", "{now}");
    assert_eq!(now["metadata"]["annotations"]["kubefold.io/clusters"], "west,east");
    fleet.is(WEST, &deleting("w", 21));
    assert!(fleet.stores[NAMESPACES].get("team").unwrap().deleting);
    fleet.gone(EAST, &deleting("e", 22));
    assert_eq!(fleet.news(NAMESPACES).last().unwrap(), "MODIFIED team");
    fleet.gone(WEST, &deleting("w", 22));
    assert_eq!(fleet.news(NAMESPACES), ["DELETED team"]);
    fleet.is(WEST, &namespace("w2", 30));
    assert_ne!(fleet.json(NAMESPACES, "team")["metadata"]["uid"], first_uid, "another life");
    assert_eq!(fleet.news(NAMESPACES), ["ADDED team"]);
    // The only holder has another object in its place, and no event in between was heard.
    fleet.is(WEST, &namespace("w3", 40));
    assert_eq!(fleet.news(NAMESPACES), ["DELETED team", "ADDED team"]);
    assert_eq!(fleet.shared.identities.life("/namespaces/team"), 2);
}

#[test]
fn an_object_born_again_is_deleted_first() {
    let mut fleet = Fleet::new();
    fleet.is(EAST, &doc(Kind::Deployments, "x", "one", 20));
    fleet.is(EAST, &doc(Kind::Deployments, "x", "two", 25));
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/x@east", "DELETED a/x@east", "ADDED a/x@east"]);
    // What is late about the first says nothing about the second.
    fleet.gone(EAST, &doc(Kind::Deployments, "x", "one", 24));
    fleet.is(EAST, &doc(Kind::Deployments, "x", "one", 22));
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);
}

#[test]
fn what_no_one_sees_is_no_event() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST];
    fleet.is(EAST, &part(EAST, 20, 1, &order));
    fleet.is(WEST, &part(WEST, 20, 1, &order));
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web", "MODIFIED a/web"]);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["spec"]["replicas"], 2);
    // The second part's annotations are not the fold's.
    fleet.is(WEST, &Doc { annotations: 4, rv: 21, ..part(WEST, 20, 1, &order) });
    assert_eq!(fleet.news(DEPLOYMENTS), [""; 0]);
    // Its home gone, the next listed part is the truth.
    fleet.gone(EAST, &part(EAST, 22, 1, &order));
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"]);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"]["a"], "b");
}

#[test]
fn a_held_key_is_one_event() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST, NORTH];
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    for at in [NORTH, WEST, EAST] {
        fleet.is(at, &part(at, 20, 1, &order));
    }
    // Whoever refers to a part already knows who that is.
    fleet.is(EAST, &replica_set(21, "own-0"));
    assert_eq!((fleet.news(DEPLOYMENTS).len(), fleet.stores[DEPLOYMENTS].get("a/web").is_none()), (0, true));
    drop(hold);
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/web"]);
    assert_eq!(fleet.news(REPLICA_SETS), ["ADDED a/web-1@east"]);

    // All parts go, and one comes back, while two writers hold the key.
    let holds = (fleet.stores[DEPLOYMENTS].hold("a/web"), fleet.stores[DEPLOYMENTS].hold("a/web"));
    for at in [NORTH, WEST, EAST] {
        fleet.gone(at, &part(at, 30, 1, &order));
    }
    drop(holds.0);
    assert_eq!(fleet.keys(DEPLOYMENTS), ["a/web"]);
    fleet.is(EAST, &part(EAST, 31, 1, &order));
    drop(holds.1);
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"]);
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    fleet.gone(EAST, &part(EAST, 32, 1, &order));
    drop(hold);
    assert_eq!((fleet.news(DEPLOYMENTS), fleet.keys(DEPLOYMENTS).len()), (vec!["DELETED a/web".to_owned()], 0));
}

/// A store that three members fill with the parts of `web` while somebody holds what `held` says.
fn opened_under<H>(held: impl FnOnce(&Arc<FleetStore>) -> H) -> (Arc<FleetStore>, H) {
    let shared = shared(naming(Names::Suffixed, 3));
    let store = stores(&shared).swap_remove(DEPLOYMENTS);
    let order = [EAST, WEST, NORTH];
    let held = held(&store);
    for at in order {
        let name = member(at);
        store.join(&name, &format!("cluster-{at}"));
        store.begin_list(&name);
        assert!(store.list_slice(&name, &[&part(at, 20, 1, &order).whole()]).is_empty());
        assert!(store.end_list(&name, 20).is_empty());
    }
    store.open();
    (store, held)
}

#[test]
fn what_a_writer_holds_back_while_the_store_fills_is_there_when_it_opens() {
    // What an earlier process has not finished is finished under a hold.
    let (store, held) = opened_under(|store| (store.hold("a/web"), store.hold("a/none")));
    assert!(store.get("a/web").is_some(), "a reader takes it for deleted");
    drop(held);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.range("", b"").map(|entry| entry.key().to_vec()).collect::<Vec<_>>(), [b"a/web"]);
}

#[test]
fn what_was_half_made_is_not_there_when_the_store_opens() {
    let (store, (half_made, hold)) = opened_under(|store| (store.withhold("a/web"), store.hold("a/web")));
    assert!(store.get("a/web").is_none(), "it may be taken back");
    drop(half_made);
    assert!(store.get("a/web").is_none(), "a writer holds it still");
    drop(hold);
    assert!(store.get("a/web").is_some());
}

#[test]
fn names_that_end_in_a_member_are_member_local_always() {
    let fleet = Fleet::new();
    for (at, name) in [(WEST, "x@east"), (EAST, "x"), (EAST, "x@east")] {
        fleet.is(at, &doc(Kind::Deployments, name, &format!("{at}{name}"), 20));
    }
    let marked = part(EAST, 21, 1, &[EAST]);
    let marker = Marker { name: "y@west".into(), ..marked.marker.clone().unwrap() };
    fleet.is(EAST, &Doc { name: "y@west", marker: Some(marker), ..marked });
    assert_eq!(fleet.keys(DEPLOYMENTS), ["a/x@east", "a/x@east@east", "a/x@east@west", "a/y@west@east"]);
    assert_eq!(fleet.stores[DEPLOYMENTS].member_locals("a/x@east").len(), 2);
}

#[test]
fn plain_names_are_for_one_member() {
    let mut fleet = Fleet::named(Names::Plain, 1);
    fleet.is(EAST, &doc(Kind::Deployments, "x@east", "one", 20));
    fleet.is(EAST, &replica_set(20, "own-0"));
    assert_eq!((fleet.keys(DEPLOYMENTS), fleet.keys(REPLICA_SETS)), (vec!["a/x@east".into()], vec!["a/web-1".into()]));
    let owner = &fleet.json(REPLICA_SETS, "a/web-1")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["name"], &owner["uid"]), (&"web".into(), &"own-0".into()));
    fleet.is(EAST, &doc(Kind::Namespaces, "team", "own", 20));
    assert_eq!(fleet.json(NAMESPACES, "team")["metadata"]["uid"], "own");
    // Member-local, part and member-local again under one key.
    fleet.news(DEPLOYMENTS);
    fleet.is(EAST, &Doc { marker: None, ..part(EAST, 20, 1, &[EAST]) });
    fleet.is(EAST, &part(EAST, 21, 1, &[EAST]));
    let hold = fleet.stores[DEPLOYMENTS].hold("a/web");
    fleet.is(EAST, &Doc { marker: None, ..part(EAST, 22, 1, &[EAST]) });
    drop(hold);
    let back_and_forth = ["ADDED", "DELETED", "ADDED", "DELETED", "ADDED"].map(|what| format!("{what} a/web"));
    assert_eq!(fleet.news(DEPLOYMENTS), back_and_forth);
    assert_eq!(fleet.stores[DEPLOYMENTS].get("a/web").unwrap().uid(), "own-0");
}

#[test]
fn only_a_list_sees() {
    let mut fleet = Fleet::new();
    let x = doc(Kind::Deployments, "x", "one", 20);
    fleet.is(EAST, &x);
    let store = Arc::clone(&fleet.stores[DEPLOYMENTS]);
    let life = store.incarnation(&member(EAST));
    // A list as of 30 does not hold it; an answer from before its deletion comes meanwhile.
    store.begin_list(&member(EAST));
    assert!(store.ingest_live(&member(EAST), life, &(x.whole() + "\n")).unwrap().is_some());
    let doomed = store.end_list(&member(EAST), 30);
    assert_eq!(doomed.len(), 1);
    // One more before the slice is removed, and its owner changes its name in between.
    store.ingest_live(&member(EAST), life, &x.whole()).unwrap();
    // Nobody has parsed a live answer before.
    let spoilt = x.whole().replacen('{', "{\"spoilt\":[tru],", 1);
    assert!(store.ingest_live(&member(EAST), life, &spoilt).is_err());
    store.remove_slice(&doomed);
    assert_eq!(fleet.news(DEPLOYMENTS), ["ADDED a/x@east", "DELETED a/x@east"]);
    assert_eq!(store.ingest_live(&member(EAST), life, &x.whole()).unwrap(), None, "it was deleted since");
    let newer = Doc { rv: 31, uid: "two".into(), ..x };
    assert_eq!(store.ingest_live(&member(EAST), life, &newer.whole()).unwrap().unwrap().key, "a/x@east");
    assert_eq!(store.position(&member(EAST)), 30);
}

#[test]
fn an_answer_counts_in_the_life_in_which_it_was_asked_for() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    let x = doc(Kind::Deployments, "x", "one", 20);
    let life = store.incarnation(&member(EAST));
    store.leave(&member(EAST));
    let after = store.incarnation(&member(EAST));
    assert_eq!(store.ingest_live(&member(EAST), after, &x.whole()).unwrap(), None, "it is on its way out");
    store.forget(&member(EAST));
    store.join(&member(EAST), "cluster-0");
    for old in [life, after] {
        assert_eq!(store.ingest_live(&member(EAST), old, &x.whole()).unwrap(), None);
    }
    assert!(store.ingest_live(&member(EAST), store.incarnation(&member(EAST)), &x.whole()).unwrap().is_some());
    assert!(!store.is_filled(&member(EAST)));
}

#[test]
fn bytes_decide_at_equal_revisions() {
    let mut fleet = Fleet::new();
    let store = Arc::clone(&fleet.stores[DEPLOYMENTS]);
    let x = doc(Kind::Deployments, "x", "one", 20);
    fleet.is(EAST, &x);
    for (item, news) in [(x.item(), 0), (Doc { replicas: 2, ..x }.item(), 1)] {
        fleet.news(DEPLOYMENTS);
        store.begin_list(&member(EAST));
        assert!(store.list_slice(&member(EAST), &[&item]).is_empty());
        assert!(store.end_list(&member(EAST), 30).is_empty());
        assert_eq!(fleet.news(DEPLOYMENTS), vec!["MODIFIED a/x@east"; news]);
    }
}

#[test]
fn what_is_no_object_changes_nothing() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    let good = doc(Kind::Deployments, "x", "one", 20).item();
    for (from, to) in [("\"20\"", "\"+20\""), ("\"20\"", "20"), ("\"x\"", "\"\""), ("\"uid\"", "\"id\""), ("}", "")] {
        let bad = good.replacen(from, to, 1);
        assert_eq!(store.list_slice(&member(EAST), &[&bad]).len(), 1, "{bad}");
    }
    assert!(fleet.keys(DEPLOYMENTS).is_empty());
}

#[test]
fn events_and_pods_name_others_as_they_are_seen() {
    let shared = shared(naming(Names::Suffixed, 3));
    let store = |resource: &str, kind: &str| {
        let spec = KindSpec::new(Gvr::new("", "v1", resource), Gvk::new("", "v1", kind), true);
        let store = FleetStore::new(Arc::new(spec), shared.clone(), |_| {});
        store.join(&member(EAST), "cluster-0");
        store
    };
    let take = |store: &FleetStore, rest: &str| -> Value {
        let item = format!(r#"{{"metadata":{{"name":"o","namespace":"a","uid":"o","resourceVersion":"5"}},{rest}}}"#);
        assert!(store.list_slice(&member(EAST), &[&item]).is_empty());
        serde_json::from_slice(store.get("a/o@east").unwrap().json()).unwrap()
    };
    let pod = take(&store("pods", "Pod"), r#""spec":{"nodeName":"n1","nodeSelector":{"nodeName":"n1"}}"#);
    assert_eq!(pod["spec"].to_string(), r#"{"nodeName":"n1@east","nodeSelector":{"nodeName":"n1"}}"#);
    assert_eq!((&pod["kind"], &pod["apiVersion"]), (&"Pod".into(), &"v1".into()));
    let pod = take(&store("pods", "Pod"), r#""spec":{"nodeName":""}"#);
    assert_eq!(pod["spec"]["nodeName"], "");
    let event = take(
        &store("events", "Event"),
        r#""involvedObject":{"kind":"Pod","namespace":"a","name":"p","uid":"u","apiVersion":"v1"},"related":{"kind":"Namespace","name":"a","uid":"n","apiVersion":"v1"},"reason":"p""#,
    );
    assert_eq!((&event["involvedObject"]["name"], &event["involvedObject"]["uid"]), (&"p@east".into(), &"u".into()));
    let uid = shared.naming.shared_uid("", "namespaces", "a", 0).unwrap();
    assert_eq!((&event["related"]["name"], &event["related"]["uid"]), (&"a".into(), &uid.into()));
}

/// What cannot be watched is named and annotated as what can, and has no revision.
#[test]
fn an_object_without_a_store_is_rewritten_as_one_of_a_store() {
    let fleet = Fleet::new();
    let spec = KindSpec::new(
        Gvr::new("metrics.k8s.io", "v1beta1", "pods"),
        Gvk::new("metrics.k8s.io", "v1beta1", "PodMetrics"),
        true,
    );
    let rewritten = |document: &str| {
        let entry = crate::store::unstored(&spec, &fleet.shared, &member(WEST), document)?;
        let (mut item, mut echoed) = (Vec::new(), Vec::new());
        entry.write_item(&mut item);
        entry.write_named("a", entry.revision, &mut echoed);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ok::<_, crate::store::BadObject>((String::from_utf8(entry.key().to_vec()).unwrap(), text(item), text(echoed)))
    };
    let name = member(WEST);
    let (key, item, echoed) = rewritten(r#"{"metadata":{"name":"a","namespace":"n"},"window":"1s"}"#).unwrap();
    assert_eq!(key, format!("n/a@{name}"));
    let annotations = format!(r#""annotations":{{"kubefold.io/cluster":"{name}"}}"#);
    assert_eq!(item, format!(r#"{{"metadata":{{"name":"a@{name}",{annotations},"namespace":"n"}},"window":"1s"}}"#));
    let type_meta = r#""kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1""#;
    assert_eq!(
        echoed,
        format!(r#"{{{type_meta},"metadata":{{"name":"a",{annotations},"namespace":"n"}},"window":"1s"}}"#)
    );
    let (_, with_revision, _) =
        rewritten(r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"x-1","uid":"u"}}"#).unwrap();
    assert!(with_revision.contains(r#""resourceVersion":"","uid":"u""#), "{with_revision}");
    for bad in ["{}", r#"{"metadata":{"name":"a"}}"#, "[1]", r#"{"metadata":{"name":"a","namespace":"n"}"#] {
        assert!(rewritten(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_part_that_somebody_touched_is_told_and_one_that_servers_touched_is_not() {
    let fleet = Fleet::new();
    let order = [EAST, WEST];
    let annotations = |fleet: &Fleet| fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"].clone();
    let differs = |fleet: &Fleet| annotations(fleet)["kubefold.io/differs"].clone();
    fleet.is(EAST, &part(EAST, 11, 1, &order));
    assert_eq!(differs(&fleet), "west", "its marker says that there is one");
    fleet.is(WEST, &part(WEST, 11, 1, &order));
    assert_eq!(differs(&fleet), Value::Null);
    fleet.is(WEST, &Doc { replicas: 7, generation: 4, created: 12, ..part(WEST, 12, 1, &order) });
    assert_eq!(differs(&fleet), Value::Null, "an autoscaler is not fought");
    fleet.is(WEST, &Doc { labels: 2, ..part(WEST, 13, 1, &order) });
    assert_eq!(differs(&fleet), "west");
    assert_eq!(fleet.stores[DEPLOYMENTS].notices("a/web").differs, [member(WEST)]);
    fleet.is(EAST, &Doc { labels: 2, ..part(EAST, 13, 1, &order) });
    assert_eq!(differs(&fleet), Value::Null, "as the home is, so they are all");
    fleet.is(WEST, &Doc { labels: 2, deleting: true, ..part(WEST, 14, 1, &order) });
    assert_eq!(differs(&fleet), "west");
    fleet.is(EAST, &Doc { labels: 2, deleting: true, ..part(EAST, 14, 1, &order) });
    assert_eq!(differs(&fleet), Value::Null, "the whole is on its way out");
    fleet.gone(WEST, &Doc { labels: 2, deleting: true, ..part(WEST, 15, 1, &order) });
    assert_eq!(differs(&fleet), Value::Null);
    assert!(fleet.stores[DEPLOYMENTS].noticed().is_empty());
}

#[test]
fn nothing_is_expected_of_a_member_that_is_not_known_or_not_there() {
    let fleet = Fleet::new();
    let store = &fleet.stores[DEPLOYMENTS];
    fleet.is(EAST, &part(EAST, 11, 1, &[EAST, WEST]));
    assert_eq!(store.notices("a/web").differs, [member(WEST)]);
    assert!(store.leave(&member(WEST)).is_empty());
    store.forget(&member(WEST));
    assert!(store.notices("a/web").is_empty());
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"]["kubefold.io/differs"], Value::Null);
    store.join(&member(WEST), "cluster-1");
    assert!(store.notices("a/web").is_empty());
    store.begin_list(&member(WEST));
    store.end_list(&member(WEST), 20);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"]["kubefold.io/differs"], "west");
    store.join(&member(WEST), "another cluster");
    store.begin_list(&member(WEST));
    store.end_list(&member(WEST), 21);
    assert_eq!(fleet.json(DEPLOYMENTS, "a/web")["metadata"]["annotations"]["kubefold.io/differs"], Value::Null);
}

#[test]
fn what_is_behind_is_one_event_and_counts_one_generation() {
    let mut fleet = Fleet::new();
    let order = [EAST, WEST];
    let store = Arc::clone(&fleet.stores[DEPLOYMENTS]);
    fleet.is(EAST, &part(EAST, 11, 1, &order));
    fleet.is(WEST, &part(WEST, 11, 1, &order));
    fleet.news(DEPLOYMENTS);
    let hold = store.hold("a/web");
    store.set_behind("a/web", &placed_uid(1), &[member(WEST)]);
    fleet.is(EAST, &Doc { labels: 2, generation: 2, ..part(EAST, 12, 1, &order) });
    assert!(fleet.news(DEPLOYMENTS).is_empty(), "while it is held nothing is shown");
    drop(hold);
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"]);
    let shown = fleet.json(DEPLOYMENTS, "a/web");
    let annotations = &shown["metadata"]["annotations"];
    assert_eq!(annotations["kubefold.io/behind"], "west");
    assert_eq!(annotations["kubefold.io/differs"], Value::Null, "that it differs is no news");
    assert_eq!((&shown["metadata"]["generation"], &shown["status"]["observedGeneration"]), (&4.into(), &3.into()));
    let hold = store.hold("a/web");
    fleet.is(WEST, &Doc { labels: 2, generation: 2, ..part(WEST, 12, 1, &order) });
    store.set_behind("a/web", &placed_uid(1), &[]);
    drop(hold);
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"]);
    let shown = fleet.json(DEPLOYMENTS, "a/web");
    assert_eq!((&shown["metadata"]["generation"], &shown["status"]["observedGeneration"]), (&4.into(), &4.into()));
    assert!(store.notices("a/web").is_empty());
    store.set_behind("a/web", &placed_uid(1), &[]);
    store.set_behind("a/web", &placed_uid(2), &[member(WEST)]);
    assert!(fleet.news(DEPLOYMENTS).is_empty(), "another object of the name");
    store.set_behind("a/web", &placed_uid(1), &[member(WEST)]);
    assert_eq!(fleet.news(DEPLOYMENTS), ["MODIFIED a/web"], "when it is not held, at once");
}
