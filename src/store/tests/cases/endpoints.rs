//! What the endpoints controllers of all members make of a placed Service.

use serde_json::json;

use super::*;
use crate::store::{Audience, Identity};

const PLACEMENT: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";

struct Bed {
    shared: Shared,
    store: FleetStore,
    cursor: Cursor,
}

impl Bed {
    fn new() -> Self {
        let shared = shared(naming(Names::Suffixed, 3));
        let gvr = Gvr::new("", "v1", "endpoints");
        let spec = KindSpec::new(gvr, Gvk::new("", "v1", "Endpoints"), true);
        let store = FleetStore::new(Arc::new(spec), shared.clone(), |_| {});
        for at in 0..3 {
            store.join(&member(at), &format!("cluster-{at}"));
            store.begin_list(&member(at));
            assert!(store.end_list(&member(at), 10).is_empty());
        }
        store.open();
        let cursor = store.snapshot_and_cursor(Revision(0), &Interest::Everything).1;
        Self { shared, store, cursor }
    }

    fn say(&self, event_type: EventType, at: usize, document: &Value) {
        self.store.watch_event(&member(at), &Event { event_type, object: &document.to_string() }).unwrap();
    }

    fn is(&self, at: usize, document: &Value) {
        self.say(EventType::Modified, at, document);
    }

    fn news(&mut self) -> Vec<String> {
        let mut out: Vec<Arc<Record>> = Vec::new();
        assert_eq!(self.store.read(&mut self.cursor, 1000, usize::MAX, &mut out), ReadAfter::Read);
        let told = |record: &Arc<Record>| {
            format!("{} {}", record.event_type.as_str(), std::str::from_utf8(record.entry.key()).unwrap())
        };
        out.iter().filter(|record| !record.is_of_parts()).map(told).collect()
    }

    fn json(&self, key: &str) -> Value {
        serde_json::from_slice(self.store.get(key).unwrap().json()).unwrap()
    }
}

/// As the endpoints controller of a member makes it, with one pod, or with none.
fn endpoints(at: usize, rv: u64, pod: Option<&str>) -> Value {
    let mut made = json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "a", "uid": format!("ep-{at}"), "resourceVersion": rv.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", "kubefold.io/placement": PLACEMENT}},
    });
    if let Some(pod) = pod {
        let target = json!({"kind": "Pod", "namespace": "a", "name": pod, "uid": format!("uid-{pod}-{at}")});
        let address = json!({"ip": "10.0.0.1", "nodeName": "node-0", "targetRef": target});
        made["subsets"] = json!([{"addresses": [address], "ports": [{"port": 80, "protocol": "TCP"}]}]);
    }
    made
}

fn pods(shown: &Value) -> Vec<(String, String, String)> {
    let addresses = shown["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pod = |address: &Value| {
        (text(&address["targetRef"]["name"]), text(&address["targetRef"]["uid"]), text(&address["nodeName"]))
    };
    addresses.iter().map(pod).collect()
}

fn pod(name: &str, uid: &str, node: &str) -> (String, String, String) {
    (name.to_owned(), uid.to_owned(), node.to_owned())
}

#[test]
fn the_endpoints_of_a_placed_service_are_one_with_the_addresses_of_all_members() {
    let mut bed = Bed::new();
    bed.is(WEST, &endpoints(WEST, 20, None));
    let first = bed.json("a/web");
    assert!(first.get("subsets").is_none(), "{first}");
    bed.is(EAST, &endpoints(EAST, 20, Some("p")));
    bed.is(WEST, &endpoints(WEST, 21, Some("p")));
    assert_eq!(bed.news(), ["ADDED a/web", "MODIFIED a/web", "MODIFIED a/web"]);
    let shown = bed.json("a/web");
    assert_eq!(pods(&shown), [pod("p@east", "uid-p-0", "node-0@east"), pod("p@west", "uid-p-1", "node-0@west")]);
    assert_eq!(shown["metadata"]["annotations"]["kubefold.io/clusters"], "east,west");
    assert!(!shown.to_string().contains("kubefold.io/placement"), "{shown}");
    assert_eq!(shown["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(bed.store.notices("a/web").is_empty());
    // Who may see one member alone sees its addresses alone.
    let west = Audience::of([member(WEST)]);
    let seen = bed.store.seen_by(&west, &bed.store.get("a/web").unwrap()).unwrap();
    let seen: Value = serde_json::from_slice(seen.json()).unwrap();
    assert_eq!(pods(&seen), [pod("p@west", "uid-p-1", "node-0@west")]);
    assert_eq!(seen["metadata"]["annotations"]["kubefold.io/clusters"], "west");
    // Each event of any part is one event, and a member's word is the only end.
    bed.is(WEST, &endpoints(WEST, 22, None));
    bed.is(EAST, &endpoints(EAST, 22, None));
    assert_eq!(pods(&bed.json("a/web")), []);
    bed.say(EventType::Deleted, EAST, &endpoints(EAST, 23, None));
    bed.say(EventType::Deleted, WEST, &endpoints(WEST, 23, None));
    assert_eq!(bed.news(), ["MODIFIED a/web", "MODIFIED a/web", "MODIFIED a/web", "DELETED a/web"]);
}

#[test]
fn a_pod_that_is_a_part_is_referred_to_as_the_whole_wherever_it_is() {
    let mut bed = Bed::new();
    bed.is(EAST, &endpoints(EAST, 20, Some("p")));
    bed.is(WEST, &endpoints(WEST, 20, Some("q")));
    bed.news();
    let of_west = Referent::new(&member(WEST), "", "Pod", "a", "q");
    let identity = Identity { own_uid: "uid-q-1".into(), visible_uid: "whole".into(), is_alone: true };
    bed.shared.identities.set(&of_west, identity);
    bed.store.rewrite_dependents(&[of_west]);
    assert_eq!(pods(&bed.json("a/web")), [pod("p@east", "uid-p-0", "node-0@east"), pod("q", "whole", "node-0@west")]);
    assert_eq!(bed.news(), ["MODIFIED a/web"]);
    assert_eq!(bed.store.refers_to().len(), 2, "pods and nodes");
}

#[test]
fn what_has_no_label_or_another_ones_is_no_part_of_it() {
    let mut bed = Bed::new();
    bed.is(EAST, &endpoints(EAST, 20, Some("p")));
    let mut own = endpoints(WEST, 20, Some("p"));
    own["metadata"]["labels"] = json!({"app": "web"});
    bed.is(WEST, &own);
    let mut younger = endpoints(NORTH, 20, Some("p"));
    younger["metadata"]["labels"]["kubefold.io/placement"] = json!("6f1c2d5e-0b1a-4c3d-8e9f-001122334466");
    younger["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    bed.is(NORTH, &younger);
    assert_eq!(bed.news(), ["ADDED a/web", "ADDED a/web@west", "ADDED a/web@north"]);
    // Its own bytes, but for names.
    let alone = bed.json("a/web");
    assert_eq!(pods(&alone), [pod("p@east", "uid-p-0", "node-0@east")]);
    let mut forged = endpoints(WEST, 21, Some("p"));
    forged["metadata"]["labels"]["kubefold.io/placement"] = json!("no-uid");
    bed.is(WEST, &forged);
    assert_eq!(bed.news(), ["MODIFIED a/web@west"]);
}
