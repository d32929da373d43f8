//! What writers cost readers: how long a read takes while lists are taken in, and what a change of one identity costs in a
//! store of many objects.
//!
//! Shape: 200 members; 100,000 pods, each with an owner of its own. `cargo bench -- --test` runs a hundredth of that once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kubefold::{
    config::{Config, MemberName, Names},
    store::{
        FleetStore, Identities, Identity, KindSpec, LogLimits, Naming, Referent, Revisions, SLICE_ITEMS_MAX, Shared,
    },
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    watch::{Event, EventType},
};
use tokio::time::Instant;

const MEMBERS: usize = 200;

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let fleet = Fleet::new(if is_test { 5 } else { 500 });
    let store = fleet.filled();
    events(&fleet, &store);
    identities(&fleet, &store);
    readers(&fleet, &store);
}

struct Fleet {
    shared: Shared,
    names: Vec<MemberName>,
    items: Vec<Vec<String>>,
}

impl Fleet {
    fn new(pods: usize) -> Self {
        let config = Config {
            members: Vec::new(),
            names: Names::Suffixed,
            shared: Vec::new(),
            policies: Vec::new(),
            overrides: Vec::new(),
            unmatched: Default::default(),
            kinds: Vec::new(),
            subjects: Vec::new(),
            client_authorities: Vec::new(),
            aliases: Vec::new(),
            mirror: Default::default(),
            aggregation: None,
            own: Default::default(),
        };
        let shared = Shared {
            naming: Arc::new(Naming::new(&config)),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::new(1 << 20, 1 << 20),
        };
        let names: Vec<MemberName> = (0..MEMBERS).map(|at| MemberName::new(&format!("member-{at}")).unwrap()).collect();
        let items = (0..MEMBERS).map(|member| (0..pods).map(|at| pod(member, at, 1000)).collect()).collect();
        Self { shared, names, items }
    }

    fn filled(&self) -> Arc<FleetStore> {
        let spec = KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true);
        let store = Arc::new(FleetStore::new(Arc::new(spec), self.shared.clone(), |_| {}));
        self.names.iter().for_each(|name| store.join(name, "uid"));
        self.list(&store);
        store.open();
        store
    }

    fn list(&self, store: &FleetStore) {
        for (name, items) in self.names.iter().zip(&self.items) {
            store.begin_list(name);
            for items in items.chunks(SLICE_ITEMS_MAX) {
                let slice: Vec<&str> = items.iter().map(String::as_str).collect();
                assert!(store.list_slice(name, &slice).is_empty());
            }
            assert!(store.end_list(name, 2000).is_empty());
        }
    }
}

/// Single events, one in each member in turn.
fn events(fleet: &Fleet, store: &FleetStore) {
    let objects: Vec<String> = (0..MEMBERS).map(|member| pod(member, 0, 3000)).collect();
    let begun = Instant::now();
    for (name, object) in fleet.names.iter().zip(&objects) {
        store.watch_event(name, &Event { event_type: EventType::Modified, object }).unwrap();
    }
    println!("event of a watch: {:.1?} each", begun.elapsed() / u32::try_from(MEMBERS).unwrap());
}

/// One owner after the other becomes a part of a placed object.
fn identities(fleet: &Fleet, store: &FleetStore) {
    let mut took = Vec::new();
    for (at, name) in fleet.names.iter().enumerate().take(50) {
        let referent = Referent::new(name, "apps", "ReplicaSet", "team-0", &format!("web-{at}-0"));
        let identity = Identity { own_uid: owner(at, 0).into(), visible_uid: "visible".into(), is_alone: false };
        assert!(fleet.shared.identities.set(&referent, identity));
        let begun = Instant::now();
        store.rewrite_dependents(&[referent]);
        took.push(begun.elapsed());
    }
    quantiles("identity changed", &mut took);
    let held = store.get(&format!("team-0/web-{:06}@member-0", 0)).unwrap();
    assert!(String::from_utf8_lossy(held.json()).contains("\"uid\":\"visible\""));
}

/// A page of 500 again and again while all members are listed anew, each object changed.
fn readers(fleet: &Fleet, store: &Arc<FleetStore>) {
    let page = || {
        let begun = Instant::now();
        let bytes: usize = store.snapshot().range("", b"").take(500).map(|entry| entry.json().len()).sum();
        assert!(bytes > 0);
        begun.elapsed()
    };
    let mut quiet: Vec<Duration> = (0..500).map(|_| page()).collect();
    quantiles("page of 500 of a quiet store", &mut quiet);
    let changed: Vec<Vec<String>> = (0..MEMBERS)
        .map(|member| (0..fleet.items.first().map_or(0, Vec::len)).map(|at| pod(member, at, 4000)).collect())
        .collect();
    let done = AtomicBool::new(false);
    let mut beside = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            Fleet { items: changed, names: fleet.names.clone(), shared: fleet.shared.clone() }.list(store);
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            beside.push(page());
        }
    });
    quantiles("page of 500 beside a list that changes everything", &mut beside);
}

fn quantiles(name: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let at = |share: usize| took.get((took.len() * share / 100).min(took.len().saturating_sub(1))).copied();
    let [half, most, all] = [50, 99, 100].map(|share| at(share).unwrap_or_default());
    println!("{name}: p50 {half:.1?}, p99 {most:.1?}, longest {all:.1?}");
}

fn owner(member: usize, at: usize) -> String {
    format!("{member:08x}-0000-4000-9000-{at:012x}")
}

fn pod(member: usize, at: usize, revision: usize) -> String {
    let env: String =
        (0..40).map(|number| format!(r#"{{"name":"SETTING_{number}","value":"value {number}"}},"#)).collect();
    format!(
        r#"{{"metadata":{{"name":"web-{at:06}","namespace":"team-{}","uid":"{member:08x}-0000-4000-8000-{at:012x}","resourceVersion":"{}","creationTimestamp":"2026-11-20T10:00:00Z","labels":{{"app":"web"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-{member}-{at}","uid":"{}","controller":true}}]}},"spec":{{"containers":[{{"name":"web","image":"web:1.27.3","env":[{env}{{"name":"LAST","value":"1"}}]}}],"nodeName":"node-{}"}},"status":{{"phase":"Running"}}}}"#,
        at % 10,
        revision + at,
        owner(member, at),
        at % 50,
    )
}
