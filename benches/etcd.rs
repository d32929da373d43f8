//! `kubefold apiserver` beside a kube-apiserver over the same etcd, which syncs each write: creates, lists, and the fan-out of watches,
//! by the clock and by the CPU that the servers take.
//!
//! `cargo bench --bench etcd` prints the medians of rounds in which both are measured in turn, and their ratios. `-- --test` does a
//! little of it once. What etcd takes is told apart: both have the same one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

#[allow(dead_code, reason = "each bench needs a part of it")]
mod embedded;

use std::{array, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::json;
use testbed::{Api, ApiServer, EtcdServer, Member, MemberOptions};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};

use embedded::cpu;

/// Requests that are under way at once.
const WRITERS: usize = 64;
const TEXT_BYTES: usize = 1024;
/// For what is under way to be told.
const SOON: Duration = Duration::from_secs(60);

/// How much is done in each round.
struct Scale {
    rounds: usize,
    creates: usize,
    lists: usize,
    watchers: usize,
    events: usize,
}

const FULL: Scale = Scale { rounds: 5, creates: 4_000, lists: 60, watchers: 100, events: 300 };
const TEST: Scale = Scale { rounds: 1, creates: 50, lists: 1, watchers: 2, events: 5 };

/// What a client accepts of a list.
const FORMS: [[&str; 3]; 4] = [
    ["JSON", "application/json", "identity"],
    ["JSON and gzip", "application/json", "gzip"],
    ["protobuf", "application/vnd.kubernetes.protobuf", "identity"],
    ["protobuf and gzip", "application/vnd.kubernetes.protobuf", "gzip"],
];

/// What is measured, and how many times better than the kube-apiserver's it should be.
const MEASURES: [(&str, f64); 12] = [
    ("a create, by the clock", 1.0),
    ("a create, CPU", 1.0),
    ("a list in JSON, by the clock", 10.0),
    ("a list in JSON, CPU", 10.0),
    ("a list in JSON and gzip, by the clock", 10.0),
    ("a list in JSON and gzip, CPU", 10.0),
    ("a list in protobuf, by the clock", 10.0),
    ("a list in protobuf, CPU", 10.0),
    ("a list in protobuf and gzip, by the clock", 10.0),
    ("a list in protobuf and gzip, CPU", 10.0),
    ("an event for one watcher, by the clock", 3.0),
    ("an event for one watcher, CPU", 3.0),
];

/// A server, and the process that it is.
struct Server {
    api: Api,
    pid: u32,
}

#[tokio::main]
async fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let scale = if is_test { TEST } else { FULL };
    let etcd = EtcdServer::start_synced();
    let storage = format!("etcd://{}/kubefold", etcd.address());
    let ours = ApiServer::start(&["--storage", &storage]).await;
    let servers = format!("--etcd-servers=http://{}", etcd.address());
    let options = MemberOptions { apiserver_args: vec![servers], ..MemberOptions::default() };
    let theirs = Member::start("beside", options).await;
    let servers = [
        Server { api: ours.api().await, pid: ours.pid() },
        Server { api: theirs.api().await, pid: theirs.apiserver_id() },
    ];
    let mut figures: [[Vec<Duration>; 2]; MEASURES.len()] = array::from_fn(|_| array::from_fn(|_| Vec::new()));
    for round in 0..scale.rounds {
        for (at, server) in servers.iter().enumerate() {
            let measured = server.round(round, &scale).await;
            for (figures, one) in figures.iter_mut().zip(measured) {
                figures[at].push(one);
            }
        }
    }
    println!("{:45} {:>12} {:>14} {:>8}  at least", "", "kubefold", "kube-apiserver", "times");
    for ((name, least), figures) in MEASURES.iter().zip(&mut figures) {
        let [ours, theirs] = figures.each_mut().map(|figures| median(figures));
        println!("{name:45} {ours:>12.1?} {theirs:>14.1?} {:>8.1}  {least}", theirs.div_duration_f64(ours));
    }
}

fn median(figures: &mut [Duration]) -> Duration {
    figures.sort_unstable();
    figures[figures.len() / 2].max(Duration::from_nanos(1))
}

impl Server {
    /// The figures of a round, which has a namespace of its own.
    async fn round(&self, round: usize, scale: &Scale) -> [Duration; MEASURES.len()] {
        for namespace in [format!("maps-{round}"), format!("events-{round}")] {
            self.api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
        }
        let maps = format!("/api/v1/namespaces/maps-{round}/configmaps");
        let mut figures = vec![self.measured(scale.creates, self.create(&maps, "m", scale.creates)).await];
        for [_, accept, encoding] in FORMS {
            // One before it counts.
            self.list(&maps, accept, encoding).await;
            let lists = async {
                for _ in 0..scale.lists {
                    self.list(&maps, accept, encoding).await;
                }
            };
            figures.push(self.measured(scale.lists, lists).await);
        }
        let watched = format!("/api/v1/namespaces/events-{round}/configmaps");
        figures.push(self.fan_out(&watched, scale).await);
        figures.concat().try_into().unwrap()
    }

    /// The time and the CPU that one of `count` parts of some work takes.
    async fn measured(&self, count: usize, work: impl Future<Output = ()>) -> [Duration; 2] {
        let (before, began) = (cpu(self.pid), Instant::now());
        work.await;
        [began.elapsed(), cpu(self.pid) - before].map(|all| all / u32::try_from(count).unwrap())
    }

    async fn create(&self, maps: &str, prefix: &str, count: usize) {
        stream::iter(0..count)
            .for_each_concurrent(WRITERS, |number| async move {
                let text = text(number);
                self.api
                    .create(maps, &json!({"metadata": {"name": format!("{prefix}{number}")}, "data": {"text": text}}))
                    .await;
            })
            .await;
    }

    async fn list(&self, maps: &str, accept: &str, encoding: &str) {
        let request = Request::get(maps).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, encoding);
        let answer = self.api.send(request.body(Bytes::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
    }

    /// Of each event and watcher, without what its create takes.
    async fn fan_out(&self, maps: &str, scale: &Scale) -> [Duration; 2] {
        let (told, mut tellings) = mpsc::channel(scale.watchers);
        let mut watchers = JoinSet::new();
        for _ in 0..scale.watchers {
            let request = Request::get(format!("{maps}?watch=true")).body(Bytes::new()).unwrap();
            let mut events = self.api.open(request).await.unwrap().into_body();
            let (told, mut left) = (told.clone(), scale.events);
            watchers.spawn(async move {
                while left > 0 {
                    let frame = events.frame().await.unwrap().unwrap();
                    let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
                    // A namespace may have an object that its server made.
                    left = left.saturating_sub(lines);
                }
                told.send(()).await.unwrap();
            });
        }
        // As many creates that nobody watches.
        let unwatched = maps.replace("events-", "maps-");
        let alone = self.measured(1, self.create(&unwatched, "e", scale.events)).await;
        let watched = self
            .measured(1, async {
                self.create(maps, "e", scale.events).await;
                for _ in 0..scale.watchers {
                    timeout(SOON, tellings.recv()).await.unwrap().unwrap();
                }
            })
            .await;
        let each = u32::try_from(scale.events * scale.watchers).unwrap();
        array::from_fn(|at| watched[at].saturating_sub(alone[at]) / each)
    }
}

/// Words of [`TEXT_BYTES`], others for each number, so that they compress as texts do.
fn text(number: usize) -> String {
    let words = (0..TEXT_BYTES / 4).map(|at| format!("word-{} ", (number * 31 + at * 17 + at * at) % 997));
    let mut text: String = words.collect();
    text.truncate(TEXT_BYTES);
    text
}
