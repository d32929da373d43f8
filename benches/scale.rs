//! What a large fleet costs the program: a million objects in 200 embedded members, a thousand watchers beside five thousand idle ones.
//!
//! `cargo bench --bench scale [-- PART...]`, where a part is `objects`, `large` or `watchers`; without one, all of them. The
//! members run in this process and need as much memory again. `docs/performance.md` has the figures. `-- --test` runs a small fleet once.
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
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kubefold_apiserver::registry::Registry;
use serde_json::{Value, json};
use testbed::Api;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use embedded::{Fleet, cpu, memory, object, put};

/// How much there is of everything.
#[derive(Clone, Copy)]
struct Sizes {
    members: usize,
    /// Objects of 1 KB, and of 6.8 KB.
    objects: usize,
    large: usize,
    /// A small kind beside it, of which a list is the measure.
    few: usize,
    watchers: usize,
    idle: usize,
    /// In all seconds, and in one.
    events: usize,
    rate: usize,
    rest: Duration,
}

const FULL: Sizes = Sizes {
    members: 200,
    objects: 1_000_000,
    large: 200_000,
    few: 15_000,
    watchers: 1_000,
    idle: 5_000,
    events: 600,
    rate: 20,
    rest: Duration::from_secs(30),
};
const SMALL: Sizes = Sizes {
    members: 4,
    objects: 2_000,
    large: 400,
    few: 400,
    watchers: 5,
    idle: 10,
    events: 20,
    rate: 50,
    rest: Duration::from_millis(200),
};
/// What a pod of the benches has around its filling, as it is shown. Units: bytes.
const POD_BYTES: usize = 590;
/// What controls pods, in each member.
const SETS: usize = 500;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let sizes = if is_test { SMALL } else { FULL };
    let named: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect();
    let wants = |part: &str| named.contains(&part) || named.is_empty();
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if wants("objects") {
            objects(sizes, sizes.objects, 1_024).await;
        }
        if wants("large") {
            objects(sizes, sizes.large, 6_963).await;
        }
        if wants("watchers") {
            watchers(sizes).await;
        }
    });
}

/// A list as it came.
struct Listed {
    first_byte: Duration,
    bytes: usize,
    /// Of the program.
    cpu: Duration,
}

/// What a client accepts of a list, and its encoding.
const JSON: [&str; 2] = ["application/json", "identity"];
const GZIP: [&str; 2] = ["application/json", "gzip"];
const PROTOBUF: [&str; 2] = ["application/vnd.kubernetes.protobuf", "identity"];

async fn list(fleet: &Fleet, path: &str, [accept, encoding]: [&str; 2]) -> Listed {
    let request = Request::get(path).header(header::ACCEPT, accept);
    let request = request.header(header::ACCEPT_ENCODING, encoding).body(Bytes::new()).unwrap();
    let (before, begun) = (cpu(fleet.kubefold.pid()), Instant::now());
    let answer = fleet.api.open(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    let mut body = answer.into_body();
    let (mut first_byte, mut bytes) = (None, 0);
    while let Some(frame) = body.frame().await {
        first_byte.get_or_insert_with(|| begun.elapsed());
        bytes += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    Listed { first_byte: first_byte.unwrap(), bytes, cpu: cpu(fleet.kubefold.pid()).saturating_sub(before) }
}

/// CPU of one of many equal lists, since the system counts it in steps of 10 ms.
async fn lists(fleet: &Fleet, path: &str, form: [&str; 2], rounds: u32) -> (Duration, usize) {
    let (mut used, mut bytes) = (Duration::ZERO, 0);
    for _ in 0..rounds {
        let listed = list(fleet, path, form).await;
        used += listed.cpu;
        bytes = listed.bytes;
    }
    (used / rounds, bytes)
}

/// Pods of a size in all members, and a small kind of the same size.
async fn objects(sizes: Sizes, count: usize, bytes: usize) {
    const ALL: &str = "/api/v1/pods?resourceVersion=0";
    const FEW: &str = "/api/v1/configmaps?resourceVersion=0";
    let each = count / sizes.members;
    let fleet = Fleet::filled(sizes.members, async |registry: &Registry, member: usize| {
        put(registry, "apps", "replicasets", (0..SETS.min(each)).map(|at| set(member, at))).await;
        put(registry, "", "pods", (0..each).map(|at| pod(member, at, bytes - POD_BYTES))).await;
        let few =
            (0..sizes.few / sizes.members).map(|at| object("ConfigMap", "team-1", &format!("c{at}"), bytes - 400));
        put(registry, "", "configmaps", few).await;
    })
    .await;
    let pid = fleet.kubefold.pid();
    let first = list(&fleet, ALL, JSON).await;
    println!(
        "{count} objects of {} bytes: the first list is complete after {:.1?} of CPU since the start of the program",
        first.bytes / count,
        cpu(pid)
    );
    let warm = list(&fleet, ALL, JSON).await;
    sleep(sizes.rest).await;
    let resident = memory(pid, "VmRSS:") << 10;
    println!(
        "  memory {} MiB, {:.2}x of the objects' bytes; first byte of the list after {:.1?}",
        resident >> 20,
        resident as f64 / warm.bytes as f64,
        warm.first_byte
    );
    in_protobuf(&fleet, ALL, &warm, sizes.rest).await;
    let (few, few_bytes) = lists(&fleet, FEW, JSON, 20).await;
    let (all, all_bytes) = lists(&fleet, ALL, JSON, 3).await;
    let per_mb = |used: Duration, bytes: usize| used.as_secs_f64() * 1e6 / (bytes as f64 / 1e6);
    println!(
        "  CPU of a list: {:.0} us a MB; of {}: {:.0} us a MB ({:.2}x)",
        per_mb(all, all_bytes),
        sizes.few,
        per_mb(few, few_bytes),
        per_mb(all, all_bytes) / per_mb(few, few_bytes)
    );
    let live = list(&fleet, FEW, GZIP).await;
    let (kept, gzip_bytes) = lists(&fleet, FEW, GZIP, 20).await;
    println!(
        "  gzip of {} objects: first {:.1?} of CPU, then {kept:.1?} ({:.2}x; plain {few:.1?}); {:.1} % of the bytes",
        sizes.few,
        live.cpu,
        kept.as_secs_f64() / live.cpu.as_secs_f64(),
        100.0 * gzip_bytes as f64 / few_bytes as f64
    );
    for (what, selector) in [
        ("name", "fieldSelector=metadata.name%3Dpod-000007%40member-001"),
        ("node", "fieldSelector=spec.nodeName%3Dnode-1-3%40member-001"),
        ("namespace", "fieldSelector=metadata.namespace%3Drare"),
    ] {
        answered(&fleet, &format!("selector by {what}"), &format!("{ALL}&{selector}")).await;
    }
    let owned = format!("ownerUID={}", owner(1, 7));
    for (what, query) in [
        ("owner", owned.clone()),
        ("owner and label", format!("{owned}&labelSelector=tier%3Dtier-3")),
        ("owner and label, in order of age", format!("{owned}&labelSelector=tier%3Dtier-3&orderBy=createdAt")),
        ("label", "labelSelector=member%3D1".to_owned()),
        ("name", "names=pod-000007".to_owned()),
    ] {
        let path = format!("/apis/clusterpedia.io/v1beta1/resources/api/v1/pods?{query}&limit=20&resourceVersion=0");
        answered(&fleet, &format!("search by {what}"), &path).await;
    }
}

/// Prints what a list in protobuf takes against the same one in JSON.
async fn in_protobuf(fleet: &Fleet, path: &str, plain: &Listed, rest: Duration) {
    let packed = list(fleet, path, PROTOBUF).await;
    sleep(rest).await;
    let after = memory(fleet.kubefold.pid(), "VmRSS:") << 10;
    println!(
        "  after a list in protobuf ({:.2}x of the bytes, {:.2}x of the CPU of one in JSON): memory {} MiB, {:.2}x",
        packed.bytes as f64 / plain.bytes as f64,
        packed.cpu.as_secs_f64() / plain.cpu.as_secs_f64(),
        after >> 20,
        after as f64 / plain.bytes as f64
    );
}

/// Prints how long an answer takes that has something.
async fn answered(fleet: &Fleet, what: &str, path: &str) {
    let mut took = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        let answer = fleet.api.request(Method::GET, path, "").await;
        took.push(begun.elapsed());
        assert!(answer.status == StatusCode::OK && answer.body.len() > 400, "{path}: {answer}");
    }
    took.sort_unstable();
    println!("  {what}: p50 {:.2?}, p99 {:.2?}", took[24], took[48]);
}

/// Who watches counts lines, and reads no more of them.
async fn watch(api: Api, path: String, told: Arc<AtomicU64>, until: u64) -> bool {
    let request = Request::get(path).header(header::ACCEPT, "application/json").body(Bytes::new()).unwrap();
    let answer = api.open(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.into_body();
    let mut lines = 0;
    while lines < until {
        let Some(Ok(frame)) = body.frame().await else { return false };
        let new = frame.into_data().map_or(0, |data| memchr::memchr_iter(b'\n', &data).count() as u64);
        lines += new;
        told.fetch_add(new, Ordering::Relaxed);
    }
    true
}

/// Watchers of one namespace, where something happens, and of another.
async fn watchers(sizes: Sizes) {
    /// Streams of a connection.
    const STREAMS: usize = 100;
    let fleet = Fleet::filled(3, async |registry: &Registry, _: usize| {
        let objects =
            |namespace: &'static str| (0..50).map(move |at| object("ConfigMap", namespace, &format!("c{at}"), 800));
        put(registry, "", "configmaps", objects("busy").chain(objects("still"))).await;
    })
    .await;
    let pid = fleet.kubefold.pid();
    let list = fleet.api.get("/api/v1/configmaps?limit=1").await;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut clients = Vec::new();
    for _ in 0..(sizes.idle + sizes.watchers).div_ceil(STREAMS) {
        clients.push(Api::over_http2(&fleet.kubefold.kubeconfig()).await);
    }
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion={from}");
    let told = Arc::new(AtomicU64::new(0));
    let (mut still, mut busy) = (JoinSet::new(), JoinSet::new());
    let used = cpu(pid);
    sleep(sizes.rest).await;
    let at_rest = cpu(pid) - used;
    let before = memory(pid, "VmRSS:");
    for at in 0..sizes.idle {
        still.spawn(watch(clients[at / STREAMS].clone(), path("still"), Arc::clone(&told), u64::MAX));
    }
    sleep(sizes.rest).await;
    let (held, used) = (memory(pid, "VmRSS:").saturating_sub(before), cpu(pid));
    sleep(sizes.rest).await;
    assert_eq!((0..).map_while(|_| still.try_join_next()).count(), 0, "idle watchers have ended");
    println!(
        "{} watchers of which none is told anything: {:.1} KiB each; {:.2} % of a core, and {:.2} % without them",
        sizes.idle,
        held as f64 / sizes.idle as f64,
        100.0 * (cpu(pid) - used).as_secs_f64() / sizes.rest.as_secs_f64(),
        100.0 * at_rest.as_secs_f64() / sizes.rest.as_secs_f64()
    );
    for at in 0..sizes.watchers {
        busy.spawn(watch(
            clients[(sizes.idle + at) / STREAMS].clone(),
            path("busy"),
            Arc::clone(&told),
            sizes.events as u64,
        ));
    }
    sleep(sizes.rest / 4).await;
    let (begun, used) = (Instant::now(), cpu(pid));
    for at in 0..sizes.events {
        let path = format!("/api/v1/namespaces/busy/configmaps/c{}", at % 50);
        fleet.members[at % 3].patch(&path, &json!({"data": {"at": at.to_string()}}), at).await;
        let due = Duration::from_secs_f64((at + 1) as f64 / sizes.rate as f64);
        sleep(due.saturating_sub(begun.elapsed())).await;
    }
    let all = timeout(Duration::from_secs(120), async {
        let mut whole = 0;
        while let Some(done) = busy.join_next().await {
            whole += usize::from(done.unwrap());
        }
        whole
    });
    let whole = all.await.unwrap_or_else(|_| panic!("{} events told in two minutes", told.load(Ordering::Relaxed)));
    let deliveries = (sizes.events * sizes.watchers) as f64;
    println!(
        "{} watchers, {} events in {:.1?}: {whole} were told all of them, {} more are open; {:.1} us of CPU a delivery",
        sizes.watchers,
        sizes.events,
        begun.elapsed(),
        still.len(),
        (cpu(pid) - used).as_secs_f64() * 1e6 / deliveries
    );
}

fn pod(member: usize, at: usize, filling: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("pod-{at:06}"), "namespace": namespace(at),
            "labels": {"app": "web", "tier": format!("tier-{}", at % 4), "member": member.to_string()},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("set-{}", at % SETS),
                "uid": owner(member, at % SETS), "controller": true,
            }],
            "annotations": {"fill": words(member * 1_000_003 + at, filling)},
        },
        "spec": {"nodeName": format!("node-1-{}", at % 500), "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running"},
    })
}

fn namespace(at: usize) -> String {
    if at == 0 { "rare".to_owned() } else { format!("team-{}", at % 20) }
}

/// What controls some pods of its namespace.
fn set(member: usize, at: usize) -> Value {
    json!({
        "metadata": {"name": format!("set-{at}"), "namespace": namespace(at), "uid": owner(member, at)},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}},
    })
}

/// The UID of what controls some pods of a member.
fn owner(member: usize, set: usize) -> String {
    format!("00000000-0000-4000-8000-{:012}", member * 1_000_000 + set)
}

/// Text that compresses as objects do.
fn words(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 8] =
        ["kubernetes", "metadata", "replicas", "10.42.0.17", "sha256:", "true", "volume", "7f3a9c"];
    let mut state = seed as u64;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 61) as usize]);
        text.push_str(&format!("{:x} ", (state >> 40) & 0xffff));
    }
    text.truncate(bytes);
    text
}
