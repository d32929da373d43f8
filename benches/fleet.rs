//! What a fleet of 200 members costs beside the objects themselves: its catalog, and what a proof compares.
//!
//! Shape: 200 members, each with 60 groups of its own API server and 200 custom resources; 8 members x 5,000 config maps.
//! `cargo bench --bench fleet -- --test` runs a tenth of that once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Response, StatusCode, header};
use kubefold::{
    catalog::{FetchError, Fetcher, FleetCatalogue},
    config::{Access, Config, Deadlines, MemberConfig, MemberName, Names, Weight},
    store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, SLICE_ITEMS_MAX, Shared},
};
use kubefold_wire::resource::{Gvk, Gvr};
use serde_json::{Value, json};
use tokio::time::Instant;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let scale = if is_test { 10 } else { 1 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(catalog(200 / scale, 200 / scale));
    proofs(5_000 / scale);
}

/// Runs a pass several times and prints how long the fastest took.
fn figure(name: &str, passes: usize, mut pass: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..passes {
        let begun = Instant::now();
        pass();
        best = best.min(begun.elapsed());
    }
    println!("fleet  {name}: {best:.1?}");
}

/// A member that answers discovery from documents, with entity tags.
struct Documents {
    core: Bytes,
    before: Bytes,
    after: Bytes,
    has_grown: AtomicBool,
}

impl Documents {
    fn new(kinds: usize) -> Self {
        let groups = |from: usize, to: usize| (from..to).map(|at| group(&format!("g{at}.example.com"))).collect();
        let list = |groups: Vec<Value>| json!({"kind": "APIGroupDiscoveryList", "items": groups}).to_string();
        let builtin: Vec<Value> = groups(0, 60);
        let with = |kinds: Vec<Value>| Bytes::from(list([builtin.clone(), kinds].concat()));
        Self {
            core: list(vec![group("")]).into(),
            before: with(groups(60, 60 + kinds)),
            after: with(groups(60, 61 + kinds)),
            has_grown: AtomicBool::new(false),
        }
    }
}

fn group(name: &str) -> Value {
    let resource = |at: usize| {
        json!({"resource": format!("things{at}"), "scope": "Namespaced", "singularResource": format!("thing{at}"),
            "responseKind": {"group": name, "version": "v1", "kind": format!("Thing{at}")},
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{"subresource": "status", "verbs": ["get", "patch", "update"],
                "responseKind": {"group": name, "version": "v1", "kind": format!("Thing{at}")}}]})
    };
    let resources: Vec<Value> = (0..2).map(resource).collect();
    json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current", "resources": resources}]})
}

impl Fetcher for Documents {
    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, FetchError> {
        let (body, tag) = match (path, self.has_grown.load(Ordering::Relaxed)) {
            ("/api", _) => (&self.core, "\"core\""),
            ("/apis", false) => (&self.before, "\"before\""),
            ("/apis", true) => (&self.after, "\"after\""),
            ("/version", _) => {
                let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}).to_string();
                return Ok(Response::new(version.into()));
            }
            _ => return Ok(Response::new("ok".into())),
        };
        if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag) {
            return Ok(Response::builder().status(StatusCode::NOT_MODIFIED).body(Bytes::new())?);
        }
        let answer = Response::builder().header(header::CONTENT_TYPE, AGGREGATED).header(header::ETAG, tag);
        Ok(answer.body(body.clone())?)
    }
}

/// The first read of all members, polls that find nothing, and a kind that appears in every member.
async fn catalog(members: usize, kinds: usize) {
    let names: Vec<MemberName> = (0..members).map(|at| MemberName::new(&format!("m{at:03}")).unwrap()).collect();
    let fleet = FleetCatalogue::new(names.clone());
    let documents: Vec<Documents> = names.iter().map(|_| Documents::new(kinds)).collect();
    let all = async |what: &str| {
        let begun = Instant::now();
        let refreshed = join_all(names.iter().zip(&documents).map(|(name, member)| fleet.refresh(name, member))).await;
        assert!(refreshed.into_iter().all(|refreshed| refreshed.is_ok()));
        println!("fleet  {members} members, {what}: {:.1?}", begun.elapsed());
    };
    all("first read").await;
    all("nothing new").await;
    let begun = Instant::now();
    documents[0].has_grown.store(true, Ordering::Relaxed);
    assert!(fleet.refresh(&names[0], &documents[0]).await.unwrap());
    println!("fleet  {members} members, one gains a kind: {:.1?}", begun.elapsed());
    documents.iter().for_each(|member| member.has_grown.store(true, Ordering::Relaxed));
    all("all others gain a kind").await;
    let grown = fleet.current();
    assert_eq!(
        grown.group(&format!("g{}.example.com", 60 + kinds)).unwrap().versions[0].resources[0].members.len(),
        members
    );
}

/// What a proof compares a member's list with.
fn proofs(objects: usize) {
    let members: Vec<MemberName> = (0..8).map(|at| MemberName::new(&format!("m{at}")).unwrap()).collect();
    let member = |name: &MemberName| MemberConfig {
        name: name.clone(),
        access: Access::Server(Box::default()),
        weight: Weight(1),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        impersonator: None,
        renew_tokens: false,
        absent: false,
        rebuilt: false,
        deadlines: Deadlines::default(),
        in_flight_max: 1,
    };
    let config = Config {
        members: members.iter().map(member).collect(),
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
        log_limits: LogLimits::default(),
    };
    let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    let store = FleetStore::new(Arc::new(spec), shared, |_| {});
    for (at, name) in members.iter().enumerate() {
        store.join(name, "uid");
        store.begin_list(name);
        let items: Vec<String> = (0..objects).map(|number| config_map(at, number)).collect();
        for slice in items.chunks(SLICE_ITEMS_MAX) {
            let slice: Vec<&str> = slice.iter().map(String::as_str).collect();
            assert!(store.list_slice(name, &slice).is_empty());
        }
        assert!(store.end_list(name, 1_000_000).is_empty());
    }
    let snapshot = store.snapshot();
    figure(&format!("8 x {objects} objects, a walk over all"), 20, || {
        assert!(snapshot.range("", b"").filter(|entry| entry.holders.contains(&members[3])).count() == objects);
    });
    for (what, namespace, own) in [("all", "", None), ("a namespace", "n7", None), ("one object", "n7", Some("c-7"))] {
        let name = format!("8 x {objects} objects, what one member holds of {what}");
        figure(&name, 20, || {
            assert!(!black_box(store.held(&members[3], namespace, own, |_| true)).is_empty());
        });
    }
}

fn config_map(member: usize, number: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": format!("c-{number}"), "namespace": format!("n{}", number % 50),
        "uid": format!("{member:08x}-0000-4000-8000-{number:012x}"), "resourceVersion": (number + 1).to_string()}})
    .to_string()
}
