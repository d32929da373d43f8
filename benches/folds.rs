//! What objects of many members cost: filling, a status event of a placed object, an event of a shared one.
//!
//! Shape: 200 members; 200 Deployments with a part in each, 1,000 namespaces in each. `cargo bench -- --test` runs a part
//! of that once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::sync::Arc;

use kubefold::{
    config::{Config, MemberName, Names, SharedRule},
    store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, SLICE_ITEMS_MAX, Shared},
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    watch::{Event, EventType},
};
use tokio::time::Instant;

/// The program's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MEMBERS: usize = 200;
const UID: &str = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (deployments, namespaces, definitions) = if is_test { (2, 10, 1) } else { (200, 1000, 20) };
    let fleet = Fleet::new();
    let store = fleet.fill(
        "deployments",
        &Gvr::new("apps", "v1", "deployments"),
        "Deployment",
        true,
        |member, at| deployment(member, at, 1000 + at, 1),
        deployments,
    );
    events(&fleet, &store, deployments.min(20), |member, at, revision| deployment(member, at, revision, revision % 3));
    let store = fleet.fill(
        "namespaces",
        &Gvr::new("", "v1", "namespaces"),
        "Namespace",
        false,
        |member, at| shared("Namespace", "v1", member, at, 1000 + at, 300),
        namespaces,
    );
    events(&fleet, &store, namespaces.min(20), |member, at, revision| {
        shared("Namespace", "v1", member, at, revision, 300)
    });
    fleet.fill(
        "definitions of 80 KB",
        &Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        "CustomResourceDefinition",
        false,
        |member, at| shared("CustomResourceDefinition", "apiextensions.k8s.io/v1", member, at, 1000 + at, 80 << 10),
        definitions,
    );
}

struct Fleet {
    shared: Shared,
    names: Vec<MemberName>,
}

impl Fleet {
    fn new() -> Self {
        let names: Vec<MemberName> = (0..MEMBERS).map(|at| MemberName::new(&format!("member-{at}")).unwrap()).collect();
        let rule = |group: &str, resource: &str| SharedRule {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        };
        let rules = vec![rule("", "namespaces"), rule("apiextensions.k8s.io", "customresourcedefinitions")];
        let config = Config {
            members: Vec::new(),
            names: Names::Suffixed,
            shared: rules,
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
        Self { shared, names }
    }

    /// Lists `count` objects in every member, and opens the store.
    fn fill(
        &self,
        what: &str,
        gvr: &Gvr,
        kind: &str,
        namespaced: bool,
        object: impl Fn(usize, usize) -> String,
        count: usize,
    ) -> FleetStore {
        let spec = KindSpec::new(gvr.clone(), Gvk::new(&gvr.group, &gvr.version, kind), namespaced);
        let store = FleetStore::new(Arc::new(spec), self.shared.clone(), |_| {});
        let before = resident_kib();
        let (mut took, mut longest, mut bytes) = (std::time::Duration::ZERO, std::time::Duration::ZERO, 0);
        for (member, name) in self.names.iter().enumerate() {
            store.join(name, &cluster(member));
            store.begin_list(name);
            let items: Vec<String> = (0..count).map(|at| object(member, at)).collect();
            bytes += items.iter().map(String::len).sum::<usize>();
            for items in items.chunks(SLICE_ITEMS_MAX) {
                let slice: Vec<&str> = items.iter().map(String::as_str).collect();
                let begun = Instant::now();
                assert!(store.list_slice(name, &slice).is_empty());
                (took, longest) = (took + begun.elapsed(), longest.max(begun.elapsed()));
            }
            assert!(store.end_list(name, 2000).is_empty());
        }
        let begun = Instant::now();
        store.open();
        took += begun.elapsed();
        println!(
            "{what}: {count} in {MEMBERS} members: filled in {took:.1?}, longest slice {longest:.1?}, {} KiB resident for {} KiB",
            resident_kib().saturating_sub(before),
            bytes >> 10
        );
        assert_eq!(store.snapshot().objects.len(), count);
        store
    }
}

/// Events of one part after the other.
fn events(fleet: &Fleet, store: &FleetStore, objects: usize, object: impl Fn(usize, usize, usize) -> String) {
    let mut took = Vec::new();
    for round in 0..2 {
        for (member, name) in fleet.names.iter().enumerate() {
            for at in 0..objects {
                let object = object(member, at, 3000 + round * 10_000 + at);
                let begun = Instant::now();
                store.watch_event(name, &Event { event_type: EventType::Modified, object: &object }).unwrap();
                took.push(begun.elapsed());
            }
        }
    }
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
    println!("  an event: p50 {:.1?}, p99 {:.1?}", at(50), at(99));
}

/// What of this process is in memory. Units: KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn cluster(member: usize) -> String {
    format!("cluster-{member}")
}

fn deployment(member: usize, at: usize, revision: usize, ready: usize) -> String {
    let members: Vec<String> =
        (0..MEMBERS).map(|member| format!(r#"[\"member-{member}\",\"{}\"]"#, cluster(member))).collect();
    let marker = format!(
        r#"{{\"uid\":\"{UID}\",\"group\":\"apps\",\"kind\":\"Deployment\",\"namespace\":\"team\",\"name\":\"web-{at}\",\"member\":\"member-{member}\",\"members\":[{}]}}"#,
        members.join(",")
    );
    let fields: String = (0..40).map(|leaf| format!(r#""f:field{leaf}":{{".":{{}},"f:value":{{}}}},"#)).collect();
    format!(
        r#"{{"kind":"Deployment","apiVersion":"apps/v1","metadata":{{"name":"web-{at}","namespace":"team","uid":"{member:08x}-0000-4000-8000-{at:012x}","resourceVersion":"{revision}","generation":1,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{{"app":"web","kubefold.io/placement":"{UID}"}},"annotations":{{"kubefold.io/placement":"{marker}"}},"managedFields":[{{"manager":"kubectl","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{{{fields}"f:spec":{{}}}}}}]}},"spec":{{"replicas":2,"template":{{"spec":{{"containers":[{{"name":"web","image":"web:1"}}]}}}}}},"status":{{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":{ready},"availableReplicas":{ready},"conditions":[{{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}},{{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"}}]}}}}"#
    )
}

fn shared(kind: &str, api_version: &str, member: usize, at: usize, revision: usize, size: usize) -> String {
    let filling: String =
        (0..size / 50).map(|line| format!(r#""line-{line:06}":"what stands in line {line:06}","#)).collect();
    format!(
        r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"name":"team-{at}","uid":"{member:08x}-0000-4000-9000-{at:012x}","resourceVersion":"{revision}","creationTimestamp":"2026-11-20T10:{:02}:00Z","labels":{{"kubernetes.io/metadata.name":"team-{at}"}}}},"spec":{{{filling}"finalizers":["kubernetes"]}},"status":{{"phase":"Active"}}}}"#,
        member % 60
    )
}
