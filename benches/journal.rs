//! What the journal costs: unfinished writes that begin at the same time, each on disk before it is answered.
//!
//! Shape: 64 writers; each begins an entry of 2 KB, notes a step of each of its three parts, and finishes it.
//! `cargo bench -- --test` runs a hundredth of that once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

use std::time::Duration;

use futures::future::join_all;
use kubefold::{
    config::MemberName,
    write::{
        fleet::Key,
        journal::{Entry, EntryTarget, Journal, KeyFile, Step, Verb},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::resource::{Gvk, Gvr};
use tokio::time::Instant;

const WRITERS: usize = 64;
const MEMBERS: [&str; 3] = ["east", "west", "north"];

#[tokio::main]
async fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let each = if is_test { 2 } else { 200 };
    let directory = tempfile::tempdir_in(".").unwrap();
    let journal = Journal::open(directory.path(), &KeyFile::new(None, directory.path())).unwrap();
    let start = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let journal = journal.clone();
        async move {
            let mut longest = Duration::ZERO;
            for number in 0..each {
                let began = Instant::now();
                let entry = journal.begin(entry(writer, number)).await.unwrap();
                longest = longest.max(began.elapsed());
                for member in MEMBERS {
                    journal.step(entry.id, &MemberName::new(member).unwrap(), Step::Done { uid: None }).await;
                }
                journal.finish(entry.id);
            }
            longest
        }
    });
    let longest = join_all(writers).await.into_iter().max().unwrap_or_default();
    let writes = WRITERS * each;
    let per_second = |count: usize| count as f64 / start.elapsed().as_secs_f64();
    println!(
        "{writes} writes by {WRITERS}: {:.0} begun and finished each second, {:.0} records (at least 2000); longest begin {longest:?}",
        per_second(writes),
        per_second(5 * writes),
    );
    assert!(journal.open_entries().is_empty());
}

fn entry(writer: usize, number: usize) -> Entry {
    let target = |name: &str| EntryTarget {
        own_uid: Some(format!("own-{name}")),
        ..EntryTarget::new(MemberName::new(name).unwrap(), format!("cluster-{name}"))
    };
    let key = Key {
        gvr: Gvr::new("apps", "v1", "deployments"),
        gvk: Gvk::new("apps", "v1", "Deployment"),
        namespace: "default".into(),
        name: format!("web-{writer}-{number}"),
    };
    Entry {
        query: "fieldManager=bench".into(),
        body: "x".repeat(2_000),
        targets: MEMBERS.map(target).to_vec(),
        ..Entry::new(Verb::Update, key, "u".into(), Caller { user: "ann".into(), ..Caller::default() })
    }
}
