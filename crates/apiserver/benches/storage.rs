//! What storages cost: creates of 1 KB, lists and the fan-out of watches, in memory and in a file; a million objects; and
//! the whole server over a file beside a kube-apiserver over etcd.
//!
//! `cargo bench -p kubefold-apiserver --features demo --bench storage` prints the ratios; it needs the testbed's programs.
//! With `-- --test` it does a hundredth of it once, without them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::{env, fs, path::Path, process::Command, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use kubefold_apiserver::{
    endpoint::Endpoint,
    faults::Faults,
    registry::{Env, SystemClock},
    serve::{ApiServer, Settings, bootstrap, built_in},
    storage::{Bounds, Memory, Range, Sqlite, Storage, WatchItem, When},
};
use serde_json::json;
use testbed::{Api, Member, MemberOptions};
use tokio::{task::JoinSet, time::Instant};

const WRITERS: usize = 64;
const WATCHERS: usize = 100;
const VALUE_BYTES: usize = 1024;
const MILLION: usize = 1_000_000;
/// Says that this is the process whose memory is measured, and names its file.
const CAPACITY: &str = "--capacity";

/// How much is done.
#[derive(Clone, Copy)]
struct Scale {
    creates: usize,
    requests: usize,
    lists: usize,
}

const FULL: Scale = Scale { creates: 50_000, requests: 10_000, lists: 50 };
const TEST: Scale = Scale { creates: 500, requests: 100, lists: 2 };

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == CAPACITY) {
        return open_a_million(Path::new(&arguments[at + 1])).await;
    }
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let scale = if is_test { TEST } else { FULL };
    let directory = tempfile::tempdir_in(".").unwrap();
    measure("memory", Arc::new(Memory::default()), scale).await;
    measure("SQLite", file(&directory.path().join("objects.db")).await, scale).await;
    if !is_test {
        make_a_million(&directory.path().join("million.db")).await;
    }
    let storage = file(&directory.path().join("served.db")).await;
    let ours = served(storage, directory.path(), scale).await;
    if !is_test {
        let member = Member::start("etcd", MemberOptions::default()).await;
        let theirs = Figures::of("kube-apiserver and etcd", &member.api().await, scale).await;
        println!(
            "creates: {:.1} times a kube-apiserver's (at least 2)",
            ours.creates_per_second / theirs.creates_per_second
        );
        for ((form, ours), theirs) in FORMS.iter().zip(ours.lists).zip(theirs.lists) {
            let times = theirs.div_duration_f64(ours);
            println!(
                "lists in {}: {times:.1} times (at least 10), with the time that the client takes to read them",
                form.name
            );
        }
    }
}

async fn file(path: &Path) -> Arc<dyn Storage> {
    Arc::new(Sqlite::open(path, Bounds::default()).await.unwrap())
}

fn value() -> Bytes {
    vec![b'x'; VALUE_BYTES].into()
}

/// Creates, lists and watches of a storage itself.
async fn measure(name: &str, storage: Arc<dyn Storage>, scale: Scale) {
    let start = Instant::now();
    let mut latencies = create(&storage, scale.creates).await;
    let per_second = scale.creates as f64 / start.elapsed().as_secs_f64();
    let p99 = percentile(&mut latencies, 99);
    println!("{name}: {per_second:.0} creates of 1 KB each second by {WRITERS} writers, p99 {p99:?}");
    let start = Instant::now();
    for _ in 0..scale.lists {
        let page = storage.range(Range::default()).await.unwrap();
        assert_eq!(page.records.len(), scale.creates);
    }
    let each = start.elapsed() / u32::try_from(scale.lists).unwrap();
    println!("{name}: a list of {} keys in {each:?}", scale.creates);
    fan_out(name, &storage, scale.creates / 50).await;
    storage.close().await;
}

/// Answers how long each create took.
async fn create(storage: &Arc<dyn Storage>, count: usize) -> Vec<Duration> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let storage = Arc::clone(storage);
        writers.spawn(async move {
            let mut latencies = Vec::new();
            for number in (writer..count).step_by(WRITERS) {
                let start = Instant::now();
                storage.put(&format!("configmaps/bench/{number:08}"), value(), When::Absent).await.unwrap();
                latencies.push(start.elapsed());
            }
            latencies
        });
    }
    writers.join_all().await.concat()
}

async fn fan_out(name: &str, storage: &Arc<dyn Storage>, changes: usize) {
    let at = storage.revision().await.unwrap();
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        let mut watch = storage.watch("fan/", at).await.unwrap();
        watchers.spawn(async move {
            let mut told = 0;
            while told < changes {
                if let WatchItem::Change(_) = watch.next().await.unwrap().unwrap() {
                    told += 1;
                }
            }
        });
    }
    let start = Instant::now();
    stream::iter(0..changes)
        .for_each_concurrent(WRITERS, |number| async move {
            storage.put(&format!("fan/{number:08}"), value(), When::Absent).await.unwrap();
        })
        .await;
    watchers.join_all().await;
    let per_second = (changes * WATCHERS) as f64 / start.elapsed().as_secs_f64();
    println!("{name}: {per_second:.0} events each second to {WATCHERS} watchers");
}

fn percentile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)]
}

/// Puts a million objects into a file, and has another process open it.
async fn make_a_million(path: &Path) {
    let storage = file(path).await;
    create(&storage, MILLION).await;
    storage.close().await;
    let status = Command::new(env::current_exe().unwrap()).arg(CAPACITY).arg(path).status().unwrap();
    assert!(status.success(), "{status}");
}

async fn open_a_million(path: &Path) {
    let start = Instant::now();
    let storage = file(path).await;
    let took = start.elapsed();
    let page = storage.range(Range { limit: 1, count: true, ..Range::default() }).await.unwrap();
    assert_eq!(page.remaining, Some(MILLION as u64 - 1));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim();
    println!("SQLite: {MILLION} objects of 1 KB are read in {took:?} and take {resident} (at most 2.5 GB)");
}

/// What a client accepts of a list.
struct ListForm {
    name: &'static str,
    accept: &'static str,
    encoding: &'static str,
}

/// kubectl asks for the second one, and typed Go clients for the last one.
const FORMS: [ListForm; 4] = [
    ListForm { name: "JSON", accept: "application/json", encoding: "identity" },
    ListForm { name: "JSON and gzip", accept: "application/json", encoding: "gzip" },
    ListForm { name: "protobuf", accept: "application/vnd.kubernetes.protobuf", encoding: "identity" },
    ListForm { name: "protobuf and gzip", accept: "application/vnd.kubernetes.protobuf", encoding: "gzip" },
];

/// What a server does over HTTP.
struct Figures {
    creates_per_second: f64,
    /// How long each list takes, by its form.
    lists: [Duration; FORMS.len()],
}

/// Words of [`VALUE_BYTES`], others for each number, so that they compress as texts do.
fn text(number: usize) -> String {
    const WORDS: [&str; 16] = [
        "again", "all", "clusters", "config", "each", "fold", "list", "maps", "many", "of", "one", "server", "seven",
        "the", "watch", "while",
    ];
    let words = (0..VALUE_BYTES / 4).map(|at| {
        let next = (number * 31 + at * 17 + at * at) % 997;
        format!("{} {next} ", WORDS[next % WORDS.len()])
    });
    let mut text: String = words.collect();
    text.truncate(VALUE_BYTES);
    text
}

/// A server over a storage, as a client sees it.
async fn served(storage: Arc<dyn Storage>, directory: &Path, scale: Scale) -> Figures {
    let registry = built_in(storage, Env::seeded(1, Arc::new(SystemClock)));
    bootstrap(&registry).await.unwrap_or_else(|status| panic!("{}", status.message));
    let server = Arc::new(ApiServer::new(registry, Settings::new("v1.36.3")));
    let endpoint =
        Endpoint::start("127.0.0.1:0".parse().unwrap(), "secret".to_owned(), server, Faults::default()).await.unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://{}", endpoint.address()),
            "certificate-authority-data": STANDARD.encode(endpoint.certificate()),
        }}],
        "users": [{"name": "u", "user": {"token": endpoint.token()}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    let path = directory.join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let api = Api::from_kubeconfig(&path, None).await.with_token(endpoint.token());
    let figures = Figures::of("kubefold-apiserver over SQLite", &api, scale).await;
    endpoint.end().await;
    figures
}

impl Figures {
    async fn of(name: &str, api: &Api, scale: Scale) -> Self {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..WRITERS {
            let api = api.clone();
            clients.spawn(async move {
                let mut latencies = Vec::new();
                for number in (client..scale.requests).step_by(WRITERS) {
                    let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"text": text(number)}});
                    let start = Instant::now();
                    api.create(MAPS, &map).await;
                    latencies.push(start.elapsed());
                }
                latencies
            });
        }
        let mut latencies = clients.join_all().await.concat();
        let creates_per_second = scale.requests as f64 / start.elapsed().as_secs_f64();
        let p99 = percentile(&mut latencies, 99);
        println!("{name}: {creates_per_second:.0} creates each second over HTTP by {WRITERS} clients, p99 {p99:?}");
        let mut lists = [Duration::ZERO; FORMS.len()];
        for (form, each) in FORMS.iter().zip(&mut lists) {
            let list = async || {
                let request = Request::get(MAPS).header(header::ACCEPT, form.accept);
                let request = request.header(header::ACCEPT_ENCODING, form.encoding).body(Bytes::new()).unwrap();
                let answer = api.send(request).await.unwrap();
                assert_eq!(answer.status, StatusCode::OK);
                answer.body.len()
            };
            let bytes = list().await;
            let start = Instant::now();
            for _ in 0..scale.lists {
                list().await;
            }
            *each = start.elapsed() / u32::try_from(scale.lists).unwrap();
            println!("{name}: a list of {} in {} ({bytes} bytes) in {each:?}", scale.requests, form.name);
        }
        Self { creates_per_second, lists }
    }
}
