//! What the fleet store costs against copying the same bytes: taking lists in, giving a whole list out, giving a page.
//!
//! Shape: 8 members x 10,000 pods of about 6 KB, and 3 x 5,000 for a caller who may read two of three members.
//! `cargo bench -- --test` runs a hundredth of that once.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

mod pods;

use std::{alloc::System, hint::black_box, time::Duration};

use criterion::{Criterion, Throughput};
use kubefold::{
    store::{Audience, Entry, Sight, Snapshot},
    view::FleetSelector,
};
use kubefold_wire::{
    selector::{FieldSelector, Subject},
    watch::{Event, EventType},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::time::Instant;

use pods::{Fleet, changed};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MEMBERS: usize = 8;
const CHUNK: usize = 128 << 10;
const PAGE: usize = 500;

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let fleet = Fleet::new(MEMBERS, if is_test { 100 } else { 10_000 });
    let mut criterion = Criterion::default().configure_from_args().sample_size(10).without_plots();
    ingest(&mut criterion, &fleet);
    let store = fleet.filled();
    read(&mut criterion, &store.snapshot());
    select(&mut criterion, &store.snapshot());
    drop((store, fleet));
    partial(&mut criterion, if is_test { 50 } else { 5_000 });
    criterion.final_summary();
}

/// Times one pass `iterations` times and remembers the fastest.
fn fastest(iterations: u64, best: &mut Duration, mut pass: impl FnMut() -> Duration) -> Duration {
    (0..iterations)
        .map(|_| {
            let took = pass();
            *best = (*best).min(took);
            took
        })
        .sum()
}

fn timed<T>(pass: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(pass());
    begun.elapsed()
}

/// Runs one bench and gives its fastest pass, unless a filter left it out.
fn bench(criterion: &mut Criterion, name: &str, bytes: u64, mut pass: impl FnMut() -> Duration) -> Option<Duration> {
    let mut best = Duration::MAX;
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Bytes(bytes)).warm_up_time(Duration::from_secs(1));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| fastest(iterations, &mut best, &mut pass));
    });
    group.finish();
    (best < Duration::MAX).then_some(best)
}

fn ratio(name: &str, took: Option<Duration>, copied: Option<Duration>) {
    let (Some(took), Some(copied)) = (took, copied) else { return };
    let times = took.as_secs_f64() / copied.as_secs_f64();
    println!("ratio  {name}: {took:.1?}, {times:.1} times memcpy of the same bytes ({copied:.1?})");
}

fn ingest(criterion: &mut Criterion, fleet: &Fleet) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let copied = bench(criterion, "memcpy of all items, each to its own place", bytes(fleet), || {
        kept.clear();
        timed(|| kept.extend(fleet.items.iter().flatten().map(|item| item.as_bytes().to_vec())))
    });
    drop(kept);
    let took = bench(criterion, "ingest, first list", bytes(fleet), || {
        let store = fleet.store();
        timed(|| fleet.list(&store))
    });
    let store = fleet.store();
    let region = Region::new(ALLOCATOR);
    fleet.list(&store);
    allocations("ingest, first list", objects(fleet), &region);
    ratio("ingest, first list", took, copied);
    per_object("ingest, first list", took, objects(fleet));

    store.open();
    let took = bench(criterion, "ingest, relist without change", bytes(fleet), || timed(|| fleet.list(&store)));
    ratio("ingest, relist without change", took, copied);
    per_object("ingest, relist without change", took, objects(fleet));

    let mut revision = 20_000_000;
    let mut watch = || {
        let events: Vec<String> = fleet.items[0].iter().map(|item| changed(item, &mut revision)).collect();
        timed(|| {
            for object in &events {
                store.watch_event(&fleet.names[0], &Event { event_type: EventType::Modified, object }).unwrap();
            }
        })
    };
    let objects = fleet.items[0].len() as u64;
    let took = bench(criterion, "ingest, watch events", bytes(fleet) / MEMBERS as u64, &mut watch);
    per_object("ingest, watch events", took, objects);
    let events: Vec<String> = fleet.items[0].iter().map(|item| changed(item, &mut revision)).collect();
    let region = Region::new(ALLOCATOR);
    for object in &events {
        store.watch_event(&fleet.names[0], &Event { event_type: EventType::Modified, object }).unwrap();
    }
    allocations("ingest, watch events", objects, &region);
}

fn objects(fleet: &Fleet) -> u64 {
    fleet.items.iter().flatten().count() as u64
}

fn bytes(fleet: &Fleet) -> u64 {
    fleet.items.iter().flatten().map(|item| item.len() as u64).sum()
}

fn per_object(name: &str, took: Option<Duration>, objects: u64) {
    let Some(took) = took else { return };
    println!("object {name}: {:.2} us each", took.as_secs_f64() * 1e6 / objects as f64);
}

fn allocations(name: &str, objects: u64, region: &Region<'_, System>) {
    let change = region.change();
    let each = |count: usize| count as f64 / objects as f64;
    println!(
        "memory {name}: {:.2} allocations and {:.2} reallocations each",
        each(change.allocations),
        each(change.reallocations)
    );
}

fn read(criterion: &mut Criterion, snapshot: &Snapshot) {
    let mut body: Vec<u8> = Vec::new();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (_, entry) in &snapshot.objects {
        entry.write_item(&mut body);
        body.push(b',');
        keys.push(entry.key().to_vec());
    }
    let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK + (64 << 10));
    let copied = bench(criterion, "memcpy of a whole list", body.len() as u64, || {
        timed(|| {
            for part in body.chunks(CHUNK) {
                chunk.clear();
                chunk.extend_from_slice(black_box(part));
            }
        })
    });
    let took = bench(criterion, "whole list", body.len() as u64, || {
        timed(|| {
            chunk.clear();
            for (_, entry) in &snapshot.objects {
                entry.write_item(&mut chunk);
                chunk.push(b',');
                if chunk.len() >= CHUNK {
                    black_box(&chunk);
                    chunk.clear();
                }
            }
        })
    });
    ratio("whole list", took, copied);
    per_object("whole list", took, keys.len() as u64);

    let region = Region::new(ALLOCATOR);
    for (_, entry) in &snapshot.objects {
        chunk.clear();
        entry.write_item(&mut chunk);
    }
    allocations("whole list", keys.len() as u64, &region);

    page(criterion, snapshot, &body, &keys);
}

/// A full list by a caller who may read two of three members: what it costs for each object that is shown, against what an
/// administrator's costs for each of all.
fn partial(criterion: &mut Criterion, pods: usize) {
    let fleet = Fleet::new(3, pods);
    let snapshot = fleet.filled().snapshot();
    let audience = Audience::of(fleet.names.iter().take(2).cloned());
    let is_shown = |entry: &Entry| audience.sight(entry) == Sight::Whole;
    let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK + (64 << 10));
    let mut list = |name: &str, bytes: u64, shows: &dyn Fn(&Entry) -> bool| {
        let shown = snapshot.objects.iter().filter(|(_, entry)| shows(entry)).count() as u64;
        let took = bench(criterion, name, bytes, || {
            timed(|| {
                chunk.clear();
                for (_, entry) in snapshot.objects.iter().filter(|(_, entry)| shows(entry)) {
                    entry.write_item(&mut chunk);
                    chunk.push(b',');
                    if chunk.len() >= CHUNK {
                        black_box(&chunk);
                        chunk.clear();
                    }
                }
            })
        });
        per_object(name, took, shown);
        took.map(|took| took.as_secs_f64() / shown as f64)
    };
    let all = list("full list, three of three members", bytes(&fleet), &|_| true);
    let some = list("full list, two of three members", bytes(&fleet) * 2 / 3, &is_shown);
    if let (Some(all), Some(some)) = (all, some) {
        let objects = objects(&fleet);
        println!(
            "ratio  full list of {objects} pods, two of three members: {:.2} times the administrator's for each object (at most 1.10)",
            some / all
        );
    }
}

fn page(criterion: &mut Criterion, snapshot: &Snapshot, body: &[u8], keys: &[Vec<u8>]) {
    let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK + (64 << 10));
    let item = body.len() / keys.len();
    let page_bytes = PAGE.min(keys.len()) * item;
    let mut seed = 1u64;
    let mut start = |len: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % len
    };
    let copied = bench(criterion, "memcpy of a page", page_bytes as u64, || {
        let from = start(body.len() - page_bytes + 1);
        timed(|| {
            for part in body[from..from + page_bytes].chunks(CHUNK) {
                chunk.clear();
                chunk.extend_from_slice(black_box(part));
            }
        })
    });
    let took = bench(criterion, "page of 500", page_bytes as u64, || {
        let after = &keys[start(keys.len().saturating_sub(PAGE).max(1))];
        timed(|| {
            chunk.clear();
            for entry in snapshot.range("", after).take(PAGE) {
                entry.write_item(&mut chunk);
                chunk.push(b',');
                if chunk.len() >= CHUNK {
                    black_box(&chunk);
                    chunk.clear();
                }
            }
        })
    });
    ratio("page of 500", took, copied);
    let took = bench(criterion, "seek of a page", 1, || {
        let after = &keys[start(keys.len())];
        timed(|| snapshot.range("", after).next().map(|entry| entry.size()))
    });
    if let Some(took) = took {
        println!("seek   {took:.1?}");
    }
}

/// Looks at 15,000 pods and finds the few, or the many, that a selector wants.
fn select(criterion: &mut Criterion, snapshot: &Snapshot) {
    let pods: Vec<_> = snapshot.objects.iter().take(15_000).map(|(_, entry)| entry.clone()).collect();
    let bytes = pods.iter().map(|entry| entry.json().len() as u64).sum();
    let copied = bench(criterion, "memcpy of 15,000 pods", bytes, || {
        let mut chunk = Vec::with_capacity(CHUNK);
        timed(|| {
            for entry in &pods {
                chunk.clear();
                chunk.extend_from_slice(black_box(entry.json()));
            }
        })
    });
    for selector in [
        "spec.nodeName=node-7@member-0",
        "spec.nodeName!=node-7@member-0",
        "spec.nodeName=",
        "status.phase=Running",
        "status.phase=Running,spec.nodeName=node-7@member-0",
        "metadata.name=web-000001-01eef@member-0",
    ] {
        let fields = FieldSelector::parse(selector, "", "pods").unwrap();
        let name = format!("fields {selector}");
        let took = bench(criterion, &name, bytes, || {
            timed(|| {
                let subject = |entry: &'_ Entry| {
                    fields.matches(&Subject {
                        namespace: entry.namespace(),
                        name: entry.name(),
                        json: entry.json(),
                        suffix: ["@", "member-0"],
                    })
                };
                pods.iter().filter(|entry| subject(entry)).count()
            })
        });
        ratio(&name, took, copied);
        per_object(&name, took, pods.len() as u64);
    }
    let labels = FleetSelector::parse("app=web,tier!=back", |_| false).unwrap();
    let took = bench(criterion, "labels", bytes, || {
        timed(|| pods.iter().filter(|entry| labels.matches(entry.labels(), &["member-0"])).count())
    });
    per_object("labels", took, pods.len() as u64);
}
