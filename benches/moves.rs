//! A drain under load: what watchers see of 200 Deployments of three while one of three real members is drained, and how
//! long that takes.
//!
//! `cargo bench --bench moves -- --test` does so with eight.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use testbed::{Api, FleetFile, Kubefold, MemberOptions, Testbed, Watch};
use tokio::time::Instant;

const MEMBERS: [&str; 3] = ["east", "west", "north"];
const REPLICAS: u64 = 3;
const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Nothing happens any more when there was no event for so long.
const QUIET: Duration = Duration::from_secs(20);
const MOVES: &str = "/kubefold/v1/moves";

#[tokio::main]
async fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let count = if is_test { 8 } else { 200 };
    // A node has room for 110 pods.
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(6)).await;
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    for name in MEMBERS {
        bed[name].apply(include_str!("../deploy/member-rbac.yaml")).await;
    }
    let api = fleet.api().await;
    let begun = Instant::now();
    for number in 0..count {
        api.create(PATH, &deployment(number)).await;
    }
    let available =
        || async { api.get(PATH).await["items"].as_array().unwrap().iter().filter(|one| is_available(one)).count() };
    while available().await < count {
        assert!(begun.elapsed() < Duration::from_mins(10), "the Deployments do not become available");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("{count} Deployments of {REPLICAS} are available after {:.1} s", begun.elapsed().as_secs_f64());

    let revision = api.get(PATH).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = api.watch(&format!("{PATH}?watch=true&resourceVersion={revision}")).await;
    let (seen, ()) = tokio::join!(watched(watch), drained(&api));
    println!(
        "a watcher saw {} events of {} Deployments: never fewer than {} of {REPLICAS} available, never more than {} pods",
        seen.events,
        seen.fewest.len(),
        seen.least(),
        seen.most
    );
    assert_eq!(seen.least(), REPLICAS, "{:?}", seen.fewest);
    ends(&api, count).await;
}

/// What a watcher saw.
#[derive(Default)]
struct Seen {
    /// The fewest replicas that were available, by Deployment.
    fewest: BTreeMap<String, u64>,
    /// The most pods of one Deployment.
    most: u64,
    events: u32,
}

impl Seen {
    fn least(&self) -> u64 {
        self.fewest.values().min().copied().unwrap_or(0)
    }
}

/// Watches until nothing happens for a while.
async fn watched(mut watch: Watch) -> Seen {
    let mut seen = Seen::default();
    let mut next = async || tokio::time::timeout(QUIET, watch.next(Duration::from_hours(1))).await.ok().flatten();
    while let Some(event) = next().await {
        let object = &event["object"];
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        assert_eq!((event["type"].as_str(), number("/spec/replicas")), (Some("MODIFIED"), REPLICAS), "{event}");
        let least = seen.fewest.entry(object["metadata"]["name"].to_string()).or_insert(u64::MAX);
        *least = number("/status/availableReplicas").min(*least);
        seen.most = number("/status/replicas").max(seen.most);
        seen.events += 1;
    }
    seen
}

/// Drains a member, and returns when nothing moves any more.
async fn drained(api: &Api) {
    let begun = Instant::now();
    let order = json!({"verb": "drain", "member": "east"}).to_string();
    let ordered = api.request(http::Method::POST, MOVES, order).await.ok();
    let to_move = ordered["moves"].as_array().unwrap().len();
    println!("{to_move} are ordered to move within {:.1} s", begun.elapsed().as_secs_f64());
    let mut at_once = 0;
    loop {
        let moves = api.get(MOVES).await["moves"].clone();
        let moves = moves.as_array().unwrap();
        if moves.is_empty() {
            break;
        }
        at_once = at_once.max(moves.iter().filter(|one| one["stage"] != "making parts").count());
        assert!(begun.elapsed() < Duration::from_mins(20), "{moves:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("they have moved after {seconds:.1} s; at most {at_once} were past their first stage at once");
}

/// What stands is what a fresh plan makes of it, and the drained member has nothing.
async fn ends(api: &Api, count: usize) {
    let left = api.get(PATH).await;
    let holders = |one: &Value| one["metadata"]["annotations"]["kubefold.io/clusters"].to_string();
    assert_eq!(left["items"].as_array().unwrap().len(), count);
    assert!(left["items"].as_array().unwrap().iter().all(|one| !holders(one).contains("east")), "{left}");
    let order = json!({"verb": "rebalance", "dryRun": true}).to_string();
    let again = api.request(http::Method::POST, MOVES, order).await.ok();
    assert_eq!((&again["moves"], &again["left"]), (&json!([]), &Value::Null), "a fresh plan is as it is");
    println!("what stands is what a fresh plan would be");
}

fn is_available(shown: &Value) -> bool {
    shown["status"]["availableReplicas"] == json!(REPLICAS)
        && shown["status"]["observedGeneration"] == shown["metadata"]["generation"]
}

fn deployment(number: usize) -> Value {
    let labels = json!({"app": format!("web-{number}")});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{number}")},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
        }
    })
}
