//! What searches cost that are answered from the mirror's tables, and what it costs to follow pods: beside Clusterpedia's figures.
//!
//! `cargo bench --bench search [-- PART...]`, where a part is `pods`, `sqlite` or `postgres`; without one, all of them. PostgreSQL is
//! of the system's packages (`crates/testbed/postgres.sh --install`), with its settings as they come, but for syncs of the disk. The
//! members run in this process. `docs/performance.md` has the figures. `-- --test` runs a small fleet once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

#[allow(dead_code, reason = "each bench needs a part of it")]
mod embedded;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kubefold_apiserver::registry::Registry;
use serde_json::{Value, json};
use testbed::{FleetFile, PostgresServer};
use tokio::time::{Instant, sleep};

use embedded::{Fleet, cpu, memory, put};

/// How much there is of everything.
struct Sizes {
    /// Pods of each of three members. Unit of their size: bytes.
    pods: usize,
    pod_bytes: usize,
    /// Rows of the tables, in a small and in a large fleet.
    rows: [usize; 2],
    rounds: usize,
    rest: Duration,
}

const FULL: Sizes =
    Sizes { pods: 5_000, pod_bytes: 6_500, rows: [100_000, 1_000_000], rounds: 50, rest: Duration::from_secs(20) };
const SMALL: Sizes =
    Sizes { pods: 100, pod_bytes: 6_500, rows: [1_000, 2_000], rounds: 3, rest: Duration::from_millis(200) };
/// Members whose leases are in the tables.
const MEMBERS: usize = 20;
/// Leases that one owner has in a member.
const OWNED: usize = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sizes = if arguments.iter().any(|argument| argument == "--test") { SMALL } else { FULL };
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |part: &str| named.contains(&part) || named.is_empty();
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if wants("pods") {
            pods(&sizes).await;
        }
        for engine in ["sqlite", "postgres"].into_iter().filter(|engine| wants(engine)) {
            for rows in sizes.rows {
                stored(&sizes, engine, rows).await;
            }
        }
    });
}

/// From nothing to all pods in memory and in the mirror; then a list and a table of all of them, in the fleet view.
async fn pods(sizes: &Sizes) {
    const ALL: &str = "/api/v1/pods?resourceVersion=0";
    let fleet = Fleet::filled(3, async |registry: &Registry, member: usize| {
        put(registry, "", "pods", (0..sizes.pods).map(|at| pod(member, at, sizes.pod_bytes))).await;
    })
    .await;
    let count = 3 * sizes.pods;
    is_mirrored(&fleet, count).await;
    let pid = fleet.kubefold.pid();
    println!("{count} pods of {} bytes: {:.2?} of CPU since the start", sizes.pod_bytes, cpu(pid));
    for (what, accept) in [("JSON", "application/json"), ("Table", "application/json;as=Table;v=v1;g=meta.k8s.io")] {
        let (mut took, before) = (Vec::new(), cpu(pid));
        let mut bytes = 0;
        for _ in 0..sizes.rounds {
            let request = Request::get(ALL).header(header::ACCEPT, accept).body(Bytes::new()).unwrap();
            let begun = Instant::now();
            let answer = fleet.api.send(request).await.unwrap();
            took.push(begun.elapsed());
            assert_eq!(answer.status, StatusCode::OK, "{answer}");
            bytes = answer.body.len();
        }
        took.sort_unstable();
        let used = (cpu(pid) - before) / u32::try_from(sizes.rounds).unwrap();
        println!(
            "  {what} of all: {used:.1?} of CPU, {:.1?} (p50), {:.1} MB",
            took[took.len() / 2],
            bytes as f64 / 1e6
        );
    }
}

/// Rows that no memory holds.
async fn stored(sizes: &Sizes, engine: &str, rows: usize) {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/leases?limit=1";
    const SEARCHED: &str = "/apis/clusterpedia.io/v1beta1/resources/apis/coordination.k8s.io/v1/leases";
    let file = FleetFile::default().settings("mirror: {stored: [leases.coordination.k8s.io], maxBytes: 16Gi}");
    let server = (engine == "postgres").then(PostgresServer::start);
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("url");
    let mut flags = Vec::new();
    if let Some(server) = &server {
        std::fs::write(&url, server.database("search", None)).unwrap();
        flags = vec!["--state-url-file", url.to_str().unwrap()];
    }
    let each = rows / MEMBERS;
    let fleet = Fleet::started(file, &flags, MEMBERS, async |registry: &Registry, member: usize| {
        put(registry, "coordination.k8s.io", "leases", (0..each).map(|at| lease(member, at))).await;
    })
    .await;
    let begun = Instant::now();
    // They are followed from here on. The answer comes once they are written, which may take longer than a client waits.
    let _either = fleet.api.try_request(Method::GET, LEASES, "").await;
    is_mirrored(&fleet, rows).await;
    let pid = fleet.kubefold.pid();
    let (took, used) = (begun.elapsed(), cpu(pid));
    sleep(sizes.rest).await;
    println!(
        "{rows} rows in {engine}: written after {took:.0?} and {used:.1?} of CPU; memory {} MiB, {} at most",
        memory(pid, "VmRSS:") >> 10,
        memory(pid, "VmHWM:") >> 10
    );
    let owned = format!("ownerUID={}", owner(1, 3));
    let labelled = format!("{owned}&labelSelector=tier%3Dtier-1");
    for (what, query) in [
        ("owner", owned.clone()),
        ("owner and label", labelled.clone()),
        ("owner and label, in order of age", format!("{labelled}&orderBy=createdAt")),
        ("a label of few", "labelSelector=set%3D1-3".to_owned()),
        ("name", "names=lease-000007".to_owned()),
        ("namespace, first page", "namespaces=team-3".to_owned()),
    ] {
        answered(&fleet, sizes.rounds, what, &format!("{SEARCHED}?{query}&limit=20")).await;
    }
}

/// Waits until the mirror has so many objects, and has written all that it was told.
async fn is_mirrored(fleet: &Fleet, objects: usize) {
    let begun = Instant::now();
    loop {
        let status = fleet.api.get("/kubefold/v1/status").await;
        let mirror = &status["mirror"];
        if mirror["objects"].as_u64().is_some_and(|count| count >= objects as u64) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(600), "{mirror}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Prints how long an answer takes that has something.
async fn answered(fleet: &Fleet, rounds: usize, what: &str, path: &str) {
    let mut took = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        let answer = fleet.api.request(Method::GET, path, "").await;
        took.push(begun.elapsed());
        let found = answer.json()["items"].as_array().map_or(0, Vec::len);
        assert!(answer.status == StatusCode::OK && found > 0, "{path}: {answer}");
    }
    took.sort_unstable();
    println!("  search by {what}: p50 {:.2?}, p99 {:.2?}", took[rounds / 2], took[rounds * 99 / 100]);
}

fn pod(member: usize, at: usize, bytes: usize) -> Value {
    // A third of the names is in every member, as in the fixture of Clusterpedia's figures.
    let name = if at.is_multiple_of(3) { format!("pod-{at:06}") } else { format!("pod-{member}-{at:06}") };
    json!({
        "metadata": {"name": name, "namespace": format!("ns-{}", at % 20), "labels": {"app": "web"},
            "annotations": {"fill": "f".repeat(bytes.saturating_sub(600))}},
        "spec": {"nodeName": format!("node-{}", at % 500), "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
            {"name": "main", "ready": true, "restartCount": 0, "image": "nginx", "imageID": ""}]},
    })
}

fn lease(member: usize, at: usize) -> Value {
    let set = at / OWNED;
    json!({
        "metadata": {
            "name": format!("lease-{at:06}"), "namespace": format!("team-{}", set % 20),
            "labels": {"app": "web", "tier": format!("tier-{}", at % 4), "set": format!("{member}-{set}")},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("set-{set}"),
                "uid": owner(member, set), "controller": true,
            }],
            "annotations": {"fill": "f".repeat(400)},
        },
        "spec": {"holderIdentity": "kubelet", "leaseDurationSeconds": 40},
    })
}

/// The UID of what controls some leases of a member.
fn owner(member: usize, set: usize) -> String {
    format!("00000000-0000-4000-8000-{:012}", member * 1_000_000 + set)
}
