//! A start with the mirror beside one without it: the first complete list, and the members' CPU.
//!
//! Shape: 100,000 config maps of 1 KB in 4 embedded members, which run in this process. `cargo bench --bench restart`;
//! `-- --test` runs a hundredth of that once.
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

use http::{Method, StatusCode};
use testbed::Api;
use tokio::time::{Instant, sleep};

use embedded::{Fleet, cpu, object, put};

const MEMBERS: usize = 4;
const LIST: &str = "/api/v1/configmaps";

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (objects, rounds) = if is_test { (1_000, 1) } else { (100_000, 3) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(compare(objects, rounds));
}

async fn compare(objects: usize, rounds: usize) {
    let of_each = objects / MEMBERS;
    let fleet = Fleet::filled(MEMBERS, async |registry, _| {
        let maps = (0..of_each).map(|at| object("ConfigMap", "default", &format!("cm-{at:06}"), 1_000));
        put(registry, "", "configmaps", maps).await;
    })
    .await;
    listed(&fleet.api, objects).await;
    for _ in 0..rounds {
        fleet.kubefold.restart_without_mirror().await;
        measured("without the mirror", &fleet, objects).await;
        sleep(Duration::from_secs(5)).await;
        println!("  {:.2?} of kubefold's CPU with what the mirror took", cpu(fleet.kubefold.pid()));
        fleet.kubefold.restart().await;
        measured("with the mirror", &fleet, objects).await;
    }
}

/// The first complete list after a start, and the CPU until then: kubefold's own, and that of the members without the list
/// itself, which this process reads.
async fn measured(what: &str, fleet: &Fleet, objects: usize) {
    let (begun, before) = (Instant::now(), cpu(std::process::id()));
    let api = fleet.kubefold.api().await;
    listed(&api, objects).await;
    let (took, until) = (begun.elapsed(), cpu(std::process::id()));
    let own = cpu(fleet.kubefold.pid());
    listed(&api, objects).await;
    let reading = cpu(std::process::id()) - until;
    let members = (until - before).saturating_sub(reading);
    println!("{what}: {objects} objects after {took:.2?} from ready; members {members:.2?}, kubefold {own:.2?} of CPU");
}

async fn listed(api: &Api, objects: usize) {
    let answer = api.request(Method::GET, LIST, "").await;
    assert_eq!((answer.status, answer.warnings()), (StatusCode::OK, Vec::new()), "{answer}");
    let count = memchr::memmem::find_iter(&answer.body, b"\"cm-").count();
    assert!(count >= objects, "{count} objects");
}
