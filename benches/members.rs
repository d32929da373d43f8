//! What members cost: the program itself, before 200 embedded members and before 3 with as many objects in all.
//!
//! `cargo bench --bench members [-- PART...]`, where a part is `reads`, `holds`, `idle`, `leases`, `definitions` or `million`;
//! without one, all but the last. The members run in this process, so that the program's own CPU and memory can be told. Nothing is
//! asserted about times. `-- --test` runs a small fleet once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

#[allow(dead_code, reason = "each bench needs a part of it")]
mod embedded;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Method, StatusCode};
use kubefold_apiserver::{definitions::Definitions, registry::Registry};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use embedded::{Fleet, cpu, memory, object, put};

/// Objects of a small kind.
const SMALL_KIND: usize = 600;

/// How much there is of everything.
#[derive(Clone, Copy)]
struct Sizes {
    many: usize,
    few: usize,
    pods: usize,
    rounds: usize,
    idle: Duration,
    leases: usize,
    leased: Duration,
    definitions: usize,
    million: usize,
}

const FULL: Sizes = Sizes {
    many: 200,
    few: 3,
    pods: 20_000,
    rounds: 200,
    idle: Duration::from_secs(30),
    leases: 20_000,
    leased: Duration::from_secs(100),
    definitions: 1_000,
    million: 1_000_000,
};
const SMALL: Sizes = Sizes {
    many: 6,
    few: 2,
    pods: 300,
    rounds: 3,
    idle: Duration::from_secs(1),
    leases: 60,
    leased: Duration::from_secs(3),
    definitions: 10,
    million: 3_000,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let sizes = if is_test { SMALL } else { FULL };
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |part: &str| named.contains(&part) || (named.is_empty() && (part != "million" || is_test));
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if wants("reads") || wants("holds") || wants("idle") {
            let many = with_pods(sizes.many, sizes.pods / sizes.many).await;
            let few = with_pods(sizes.few, sizes.pods / sizes.few).await;
            if wants("reads") {
                reads(&many, &few, sizes.rounds).await;
            }
            if wants("idle") {
                many.idle(sizes.idle).await;
                few.idle(sizes.idle).await;
            }
            if wants("holds") {
                many.holds().await;
            }
        }
        if wants("leases") {
            leases(sizes).await;
        }
        if wants("definitions") {
            definitions(sizes).await;
        }
        if wants("million") {
            million(sizes).await;
        }
    });
}

/// Members with pods, of which each has as many, and a few of other kinds.
async fn with_pods(count: usize, pods_each: usize) -> Fleet {
    let fill = async |registry: &Registry, member: usize| {
        let pods = (0..pods_each).map(|at| pod(member, at));
        put(registry, "", "pods", pods).await;
        // As many in all, however many members there are.
        let config_maps =
            (0..SMALL_KIND / count).map(|at| object("ConfigMap", "team-1", &format!("settings-{at}"), 200));
        put(registry, "", "configmaps", config_maps).await;
        put(registry, "apiextensions.k8s.io", "customresourcedefinitions", (0..5).map(|at| crd(at, 1))).await;
    };
    Fleet::filled(count, fill).await
}

impl Fleet {
    async fn idle(&self, span: Duration) {
        sleep(Duration::from_secs(3).min(span)).await;
        let before = cpu(self.kubefold.pid());
        sleep(span).await;
        let used = cpu(self.kubefold.pid()) - before;
        let share = 100.0 * used.as_secs_f64() / span.as_secs_f64();
        println!("idle, {} members: {share:.1} % of a core", self.members.len());
    }

    async fn holds(&self) {
        for round in 0..2 {
            for (at, member) in self.members.iter().enumerate() {
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kinds0.example.com";
                let changed = crd(0, 2 + round);
                member.patch(path, &json!({"spec": changed["spec"]}), at).await;
            }
            sleep(Duration::from_secs(3)).await;
        }
        self.held("a definition of 80 KB changed in all at once").await;
        self.members.iter().for_each(|member| member.endpoint.kill());
        sleep(Duration::from_secs(8)).await;
        self.held("all went down").await;
        for member in &self.members {
            member.endpoint.revive().await.unwrap();
        }
        self.current().await;
        self.held("all came back").await;
    }

    /// Waits until no member is behind.
    async fn current(&self) {
        for _ in 0..300 {
            let answer = self.api.request(Method::GET, "/api/v1/pods?limit=1", "").await;
            if answer.status == StatusCode::OK && answer.warnings().is_empty() {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        panic!("members are behind for a minute");
    }
}

/// Reads of both fleets in turn.
async fn reads(many: &Fleet, few: &Fleet, rounds: usize) {
    let of_one = "/api/v1/namespaces/team-1/pods/pod-000001@member-001?resourceVersion=0";
    for (what, path) in [
        ("full list", "/api/v1/pods?resourceVersion=0"),
        ("page of 500", "/api/v1/pods?limit=500"),
        ("list of a small kind", "/api/v1/namespaces/team-1/configmaps?resourceVersion=0"),
        ("list of namespaces", "/api/v1/namespaces?resourceVersion=0"),
        ("get", of_one),
    ] {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (fleet, took) in [many, few].into_iter().zip(&mut took) {
                let begun = Instant::now();
                let answer = fleet.api.request(Method::GET, path, "").await;
                took.push(begun.elapsed());
                assert_eq!(answer.status, StatusCode::OK, "{path}: {answer}");
            }
        }
        compare(what, took);
    }
    let revision = |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let begin = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let small = "/api/v1/namespaces/team-1/configmaps";
    for (what, from_now) in [("watch start", true), ("WatchList of a small kind", false)] {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (fleet, took) in [many, few].into_iter().zip(&mut took) {
                let path = if from_now {
                    let now = revision(&fleet.api.get(&format!("{small}?limit=1")).await);
                    format!("{small}?watch=true&resourceVersion={now}")
                } else {
                    format!("{small}?watch=true&{begin}")
                };
                let begun = Instant::now();
                let mut watch = fleet.api.watch(&path).await;
                assert_eq!(watch.status, StatusCode::OK);
                while !from_now && watch.next(Duration::from_secs(10)).await.unwrap()["type"] != "BOOKMARK" {}
                took.push(begun.elapsed());
            }
        }
        compare(what, took);
    }
}

fn compare(what: &str, took: [Vec<Duration>; 2]) {
    let quantile = |mut took: Vec<Duration>, of: usize| {
        took.sort_unstable();
        took[(took.len() - 1) * of / 100]
    };
    let [many, few] = took.map(|took| (quantile(took.clone(), 50), quantile(took, 99)));
    println!(
        "{what}: p50 {:.2?} before many, {:.2?} before few: {:.2}x; p99 {:.2?} and {:.2?}",
        many.0,
        few.0,
        many.0.as_secs_f64() / few.0.as_secs_f64(),
        many.1,
        few.1
    );
}

/// Leases that are all renewed each ten seconds.
async fn leases(sizes: Sizes) {
    let each = sizes.leases / sizes.many;
    let path = "/apis/coordination.k8s.io/v1/leases";
    let fleet = Fleet::filled(sizes.many, async |registry: &Registry, _: usize| {
        let leases = (0..each).map(|at| object("Lease", "kube-node-lease", &format!("node-{at}"), 0));
        put(registry, "coordination.k8s.io", "leases", leases).await;
    })
    .await;
    let first = fleet.api.get(&format!("{path}?limit=1")).await;
    let mut marks = vec![(Instant::now(), first["metadata"]["resourceVersion"].as_str().unwrap().to_owned())];
    let (begun, cpu_before) = (Instant::now(), cpu(fleet.kubefold.pid()));
    let mut renewed = 0_u64;
    while begun.elapsed() < sizes.leased {
        let tick = Instant::now();
        for at in 0..each {
            for member in &fleet.members {
                let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-{at}");
                let spec = json!({"spec": {"holderIdentity": "kubelet", "leaseDurationSeconds": 40, "leaseTransitions": renewed % 1_000_000}});
                member.patch(&lease, &spec, 0).await;
                renewed += 1;
            }
            // Spread over the ten seconds.
            let due = tick + Duration::from_secs(10).min(sizes.leased).mul_f64((at + 1) as f64 / each as f64);
            sleep(due.saturating_duration_since(Instant::now())).await;
        }
        let now = fleet.api.get(&format!("{path}?limit=1")).await;
        marks.push((Instant::now(), now["metadata"]["resourceVersion"].as_str().unwrap().to_owned()));
    }
    let span = begun.elapsed();
    let used = cpu(fleet.kubefold.pid()) - cpu_before;
    println!(
        "leases: {renewed} renewed in {span:.0?}; {:.1} us of CPU each, {} MiB",
        used.as_secs_f64() * 1e6 / renewed as f64,
        memory(fleet.kubefold.pid(), "VmRSS:") >> 10
    );
    let mut reaches = Duration::ZERO;
    for (at, revision) in &marks {
        let mut watch =
            fleet.api.watch(&format!("{path}?watch=true&resourceVersion={revision}&timeoutSeconds=2")).await;
        let event = watch.next(Duration::from_secs(10)).await;
        if event.is_none_or(|event| event["type"] != "ERROR") {
            reaches = reaches.max(at.elapsed());
        }
    }
    println!("leases: a watch may begin {reaches:.0?} ago");
    let begin = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = fleet.api.watch(&format!("{path}?watch=true&{begin}")).await;
    let begun = Instant::now();
    let mut events = 0;
    loop {
        let event = watch.next(Duration::from_secs(60)).await.unwrap();
        match event["type"].as_str().unwrap() {
            "ADDED" => events += 1,
            "BOOKMARK" => break,
            other => panic!("{other}: {event}"),
        }
    }
    println!("leases: a WatchList of {events} ends after {:.1?}", begun.elapsed());
    fleet.held("leases were renewed").await;
}

/// Members that have the same thousand kinds of their own: what they cost at rest, and what the change of one costs.
async fn definitions(sizes: Sizes) {
    let served = Mutex::new(Vec::new());
    let fleet = Fleet::filled(sizes.many, async |registry: &Registry, _: usize| {
        let mut of_member = Definitions::new(registry.clone()).unwrap();
        let definitions = (0..sizes.definitions).map(|at| definition(at, "small"));
        put(registry, "apiextensions.k8s.io", "customresourcedefinitions", definitions).await;
        of_member.begin().await.unwrap();
        served.lock().unwrap().push(of_member);
    })
    .await;
    let mut served = served.into_inner().unwrap();
    let pid = fleet.kubefold.pid();
    let listed = fleet.api.get("/apis/example.com/v1").await;
    let count = listed["resources"].as_array().unwrap().len();
    println!(
        "{count} kinds in {} members: {:.1?} of CPU until they are served, {} MiB",
        sizes.many,
        cpu(pid),
        memory(pid, "VmRSS:") >> 10
    );
    fleet.idle(sizes.idle).await;
    for (what, count, short) in [("one member", 1, "one"), ("all members", fleet.members.len(), "all")] {
        let used = cpu(pid);
        for (at, (member, served)) in fleet.members.iter().zip(&mut served).enumerate().take(count) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kinds7.example.com";
            let names = &definition(7, short)["spec"]["names"];
            member.patch(path, &json!({"spec": {"names": names}}), at).await;
            member.patch(&format!("{path}/status"), &json!({"status": {"acceptedNames": names}}), at).await;
            // As of a kube-apiserver: it serves them a moment after it says so.
            served.begin().await.unwrap();
        }
        let changed = Instant::now();
        let short = format!("{short}7");
        while !has_short_name(&fleet.api.get("/apis/example.com/v1").await, &short) {
            assert!(changed.elapsed() < Duration::from_secs(60), "{short} is not served");
            sleep(Duration::from_millis(50)).await;
        }
        let shown = changed.elapsed();
        sleep(sizes.idle / 3).await;
        let used = cpu(pid) - used;
        println!("  one kind is changed in {what}: shown after {shown:.2?}, {used:.2?} of CPU");
    }
}

fn has_short_name(listed: &Value, short: &str) -> bool {
    let names = |kind: &Value| kind["shortNames"].as_array().cloned().unwrap_or_default();
    listed["resources"].as_array().unwrap().iter().any(|kind| names(kind).iter().any(|name| name == short))
}

/// A small definition whose kind is served.
fn definition(number: usize, short: &str) -> Value {
    let mut small = crd(number, 1);
    small["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] =
        json!({"spec": {"type": "object", "properties": {"size": {"type": "integer", "description": "How much."}}}});
    small["spec"]["names"]["shortNames"] = json!([format!("{short}{number}")]);
    let condition = |of: &str| json!({"type": of, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Bench", "message": ""});
    small["status"] = json!({
        "acceptedNames": small["spec"]["names"], "conditions": [condition("NamesAccepted"), condition("Established")],
        "storedVersions": ["v1"],
    });
    small
}

/// Lists whose selector matches nothing.
async fn million(sizes: Sizes) {
    const LISTS: usize = 8;
    let each = sizes.million / 4;
    let fleet = Fleet::filled(4, async |registry: &Registry, member: usize| {
        let namespace = format!("team-{member}");
        let objects = (0..each).map(|at| object("ConfigMap", &namespace, &format!("c{at:07}"), 0));
        put(registry, "", "configmaps", objects).await;
    })
    .await;
    // The members fill the store from this process, so that nothing else is measured meanwhile.
    let filled = fleet.api.request(Method::GET, "/api/v1/configmaps?limit=1", "").await;
    assert_eq!(filled.status, StatusCode::OK, "{filled}");
    let path = "/api/v1/configmaps?resourceVersion=0&labelSelector=team%3Dnone&fieldSelector=data.x%3Dnone";
    let lists = (0..LISTS).map(|_| async {
        let begun = Instant::now();
        let list = fleet.api.request(Method::GET, path, "").await;
        assert!(list.status == StatusCode::OK && list.body.len() < 1000, "{list}");
        begun.elapsed()
    });
    let lists = futures::future::join_all(lists);
    // They have a connection that stands: nine handshakes at once would be measured otherwise.
    let prober = fleet.kubefold.api().await;
    assert_eq!(prober.request(Method::GET, "/readyz", "").await.status, StatusCode::OK);
    let probes = async {
        let mut took = Vec::new();
        loop {
            for path in ["/readyz", "/api/v1/namespaces?resourceVersion=0"] {
                let begun = Instant::now();
                assert_eq!(prober.request(Method::GET, path, "").await.status, StatusCode::OK);
                took.push(begun.elapsed());
                took.sort_unstable();
                let at = |share: usize| took[(took.len() - 1) * share / 100].as_micros() as u64;
                for (figure, share) in PROBES.iter().zip([50, 99, 100]) {
                    figure.store(at(share), Ordering::Relaxed);
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        lists = lists => println!(
            "{LISTS} lists of {} objects that select none: {:.1?} the longest; probes and a small list meanwhile, p50, p99 \
             and at most: {:.1?} ms",
            sizes.million,
            lists.iter().max().unwrap(),
            PROBES.each_ref().map(|figure| figure.load(Ordering::Relaxed) as f64 / 1000.0)
        ),
        () = probes => unreachable!("they have no end"),
    }
    println!("  {} MiB", memory(fleet.kubefold.pid(), "VmRSS:") >> 10);
}

/// Of the probes while lists run: the median, the 99th percentile and the longest. Units: microseconds.
static PROBES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

fn pod(member: usize, at: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("pod-{at:06}"), "namespace": format!("team-{}", at % 20),
            "labels": {"app": "web", "member": member.to_string()},
            "annotations": {"fill": "x".repeat(1500)},
        },
        "spec": {"nodeName": format!("node-{}", at % 50), "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running"},
    })
}

/// A definition of about 80 KB.
fn crd(number: usize, generation: usize) -> Value {
    let property = |at: usize| {
        let description = format!("Field {at} of generation {generation}. {}", "It says what is to be. ".repeat(12));
        (format!("field{at}"), json!({"type": "string", "description": description}))
    };
    let properties: serde_json::Map<String, Value> = (0..220).map(property).collect();
    json!({
        "metadata": {"name": format!("kinds{number}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": format!("kinds{number}"), "singular": format!("kind{number}"), "kind": format!("Kind{number}"), "listKind": format!("Kind{number}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": properties}},
            }}}],
        },
    })
}
