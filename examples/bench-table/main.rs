//! What a Table costs kubefold and the kube-apiserver behind it, side by side: wall time, and CPU of each process.
//! `scripts/bench-table [pods]` runs it. It measures and judges nothing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a bench panics where it is wrong")]

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{Api, FleetFile, Kubefold, Member, MemberOptions, eventually};

const PODS: usize = 5_000;
const PATH: &str = "/api/v1/pods";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Requests in a row, since CPU time is counted in steps of 10 ms, and how often such a row is measured.
const REQUESTS: u32 = 10;
const ROUNDS: usize = 7;
const WRITES_AT_ONCE: usize = 16;
/// Of `/proc/<pid>/stat`: Linux tells user space nothing else.
const TICKS_PER_SECOND: f64 = 100.0;

#[tokio::main]
async fn main() -> ExitCode {
    let pods = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Some(PODS),
        [count] => count.parse().ok(),
        _ => None,
    };
    let Some(pods) = pods else {
        eprintln!("usage: scripts/bench-table [pods]");
        return ExitCode::from(64);
    };
    eprintln!("bench-table: starting a member with {pods} pods");
    let east = Member::start("east", MemberOptions::default()).await;
    let theirs = east.api().await;
    fill(&theirs, pods).await;
    let fleet = Kubefold::start(&FleetFile::default().member(&east, 1)).await;
    let ours = fleet.api().await;
    for api in [&theirs, &ours] {
        eventually(Duration::from_secs(60), async || {
            let rows = table(api).await.1;
            if rows == pods { Ok(()) } else { Err(format!("{rows} rows")) }
        })
        .await;
    }
    eprintln!("bench-table: {ROUNDS} times {REQUESTS} requests each");
    let [mut apiserver, mut kubefold] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        apiserver.push(round(&theirs, east.apiserver_id()).await);
        kubefold.push(round(&ours, fleet.id()).await);
    }
    show(pods, ("kube-apiserver", &apiserver), ("kubefold", &kubefold));
    ExitCode::SUCCESS
}

/// Makes pods of about 6 KB that run.
async fn fill(api: &Api, count: usize) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    api.request(Method::POST, "/api/v1/namespaces/default/serviceaccounts", account.to_string()).await;
    let make = async |at: usize| {
        let mut made = api.create("/api/v1/namespaces/default/pods", &pod(at)).await;
        made["status"] = status(at);
        let path = format!("/api/v1/namespaces/default/pods/{}/status", made["metadata"]["name"].as_str().unwrap());
        api.request(Method::PUT, &path, made.to_string()).await.ok();
    };
    stream::iter(0..count).for_each_concurrent(WRITES_AT_ONCE, make).await;
}

fn pod(at: usize) -> Value {
    let variable =
        |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": format!("some value of the variable number {n}")});
    let env: Vec<Value> = (0..24).map(variable).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{at:05}-x7k2p"), "labels": {"app": "web", "tier": "front"}},
        "spec": {"nodeName": format!("node-{}", at % 100), "automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": "registry.local/team/web:1.2.3", "env": env},
            {"name": "proxy", "image": "registry.local/team/proxy:1"}]}})
}

fn status(at: usize) -> Value {
    let since = "2026-11-21T10:00:03Z";
    let container = |name: &str| {
        let last = json!({"exitCode": 1, "reason": "Error", "startedAt": "2026-11-21T10:00:01Z", "finishedAt": "2026-11-21T10:00:02Z"});
        json!({"name": name, "state": {"running": {"startedAt": since}}, "lastState": {"terminated": last}, "ready": true, "started": true,
            "restartCount": at % 5, "image": "registry.local/team/web:1.2.3", "imageID": "sha256:0123456789abcdef"})
    };
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": since});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "hostIP": "10.0.0.1", "startTime": since,
        "conditions": conditions,
        "containerStatuses": [container("main"), container("proxy")]})
}

/// The bytes and rows of one answer.
async fn table(api: &Api) -> (usize, usize) {
    let request = Request::get(PATH).header(header::ACCEPT, TABLE).body(Bytes::new()).unwrap();
    let answer = api.send(request).await.unwrap();
    assert!(answer.status.is_success(), "{answer}");
    (answer.body.len(), memchr::memmem::find_iter(&answer.body, b"\"cells\":").count())
}

/// What one request took: seconds on the wall, seconds of CPU of that process, bytes.
struct Cost {
    wall: f64,
    cpu: f64,
    bytes: usize,
}

async fn round(api: &Api, process: u32) -> Cost {
    let (begun, before, mut bytes) = (Instant::now(), cpu(process), 0);
    for _ in 0..REQUESTS {
        bytes = table(api).await.0;
    }
    let each = f64::from(REQUESTS);
    Cost { wall: begun.elapsed().as_secs_f64() / each, cpu: (cpu(process) - before) / each, bytes }
}

/// User and system time so far. Source: proc(5).
fn cpu(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name may hold spaces; it ends with the last parenthesis.
    let behind = stat.rsplit_once(')').unwrap().1;
    let ticks: f64 = behind.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_SECOND
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut all: Vec<f64> = costs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[expect(clippy::print_stdout, reason = "a program that talks to its user")]
fn show(pods: usize, (first, theirs): (&str, &[Cost]), (second, ours): (&str, &[Cost])) {
    println!("\na Table of {pods} pods, medians   {first:>14} {second:>14} {:>8}", "ratio");
    let line = |what: &str, of: fn(&Cost) -> f64| {
        let (theirs, ours) = (median(theirs, of), median(ours, of));
        println!("{what:<32}  {theirs:>14.1} {ours:>14.1} {:>8.2}", theirs / ours);
    };
    line("wall time, ms", |cost| cost.wall * 1e3);
    line("CPU of the process, ms", |cost| cost.cpu * 1e3);
    line("answer, MB", |cost| f64::from(u32::try_from(cost.bytes).unwrap_or(u32::MAX)) / 1e6);
}
