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

use std::{alloc::System, hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput};
use kubefold::{
    config::{Config, MemberName, Names},
    store::{
        Audience, Entry, FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, SLICE_ITEMS_MAX, Shared,
        Sight, Snapshot,
    },
    view::FleetSelector,
};
use kubefold_wire::{
    resource::{Gvk, Gvr},
    selector::{FieldSelector, Subject},
    watch::{Event, EventType},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::time::Instant;

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

/// The members' lists, as they come.
struct Fleet {
    names: Vec<MemberName>,
    items: Vec<Vec<String>>,
    objects: u64,
    bytes: u64,
}

impl Fleet {
    fn new(members: usize, pods: usize) -> Self {
        let names = (0..members).map(|at| MemberName::new(&format!("member-{at}")).unwrap()).collect();
        let items: Vec<Vec<String>> =
            (0..members).map(|member| (0..pods).map(|at| pod(member, at)).collect()).collect();
        let bytes = items.iter().flatten().map(|item| item.len() as u64).sum();
        Self { names, items, objects: (members * pods) as u64, bytes }
    }

    fn store(&self) -> FleetStore {
        let config = Config {
            members: Vec::new(),
            names: Names::Suffixed,
            shared: Vec::new(),
            policies: Vec::new(),
            kinds: Vec::new(),
            subjects: Vec::new(),
            client_authorities: Vec::new(),
            own: Default::default(),
        };
        let shared = Shared {
            naming: Arc::new(Naming::new(&config)),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let spec = KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true);
        let store = FleetStore::new(Arc::new(spec), shared, |_| {});
        self.names.iter().for_each(|name| store.join(name, "uid"));
        store
    }

    fn list(&self, store: &FleetStore) {
        for (name, items) in self.names.iter().zip(&self.items) {
            store.begin_list(name);
            let mut slice: Vec<&str> = Vec::with_capacity(SLICE_ITEMS_MAX);
            for items in items.chunks(SLICE_ITEMS_MAX) {
                slice.clear();
                slice.extend(items.iter().map(String::as_str));
                assert!(store.list_slice(name, &slice).is_empty());
            }
            let doomed = store.end_list(name, 20_000_000);
            assert!(doomed.is_empty());
        }
    }

    fn filled(&self) -> FleetStore {
        let store = self.store();
        self.list(&store);
        store
    }
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
    let copied = bench(criterion, "memcpy of all items, each to its own place", fleet.bytes, || {
        kept.clear();
        timed(|| kept.extend(fleet.items.iter().flatten().map(|item| item.as_bytes().to_vec())))
    });
    drop(kept);
    let took = bench(criterion, "ingest, first list", fleet.bytes, || {
        let store = fleet.store();
        timed(|| fleet.list(&store))
    });
    let store = fleet.store();
    let region = Region::new(ALLOCATOR);
    fleet.list(&store);
    allocations("ingest, first list", fleet.objects, &region);
    ratio("ingest, first list", took, copied);
    per_object("ingest, first list", took, fleet.objects);

    store.open();
    let took = bench(criterion, "ingest, relist without change", fleet.bytes, || timed(|| fleet.list(&store)));
    ratio("ingest, relist without change", took, copied);
    per_object("ingest, relist without change", took, fleet.objects);

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
    let took = bench(criterion, "ingest, watch events", fleet.bytes / MEMBERS as u64, &mut watch);
    per_object("ingest, watch events", took, objects);
    let events: Vec<String> = fleet.items[0].iter().map(|item| changed(item, &mut revision)).collect();
    let region = Region::new(ALLOCATOR);
    for object in &events {
        store.watch_event(&fleet.names[0], &Event { event_type: EventType::Modified, object }).unwrap();
    }
    allocations("ingest, watch events", objects, &region);
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

/// The next state of a pod.
fn changed(item: &str, revision: &mut u64) -> String {
    *revision += 1;
    let at = item.find("\"resourceVersion\":\"").unwrap() + 19;
    let end = at + item[at..].find('"').unwrap();
    format!("{}{revision}{}", &item[..at], &item[end..])
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
    let all = list("full list, three of three members", fleet.bytes, &|_| true);
    let some = list("full list, two of three members", fleet.bytes * 2 / 3, &is_shown);
    if let (Some(all), Some(some)) = (all, some) {
        let objects = fleet.objects;
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

fn pod(member: usize, at: usize) -> String {
    let (namespace, name) = (at % 97, format!("web-{at:06}-{:05x}", at * 7919 % 1_048_576));
    let uid = format!("{member:08x}-0000-4000-8000-{at:012x}");
    let owner = format!("{member:08x}-0000-4000-9000-{:012x}", at / 10);
    let fields = |manager: &str, count: usize| {
        let leaves: String =
            (0..count).map(|leaf| format!(r#""f:field{leaf}":{{".":{{}},"f:value":{{}},"f:other":{{}}}},"#)).collect();
        format!(
            r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{{leaves}"f:labels":{{".":{{}},"f:app":{{}}}}}}}}}}"#
        )
    };
    let env: String = (0..24)
        .map(|number| format!(r#"{{"name":"SETTING_{number}","value":"the value of setting {number}"}},"#))
        .collect();
    let conditions: Vec<String> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| format!(r#"{{"type":"{kind}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T10:00:03Z"}}"#))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"{name}","generateName":"web-","namespace":"team-{namespace}","uid":"{uid}","resourceVersion":"{}","generation":1,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{{"app":"web","pod-template-hash":"5d59d67564","tier":"front","team":"team-{namespace}"}},"annotations":{{"prometheus.io/scrape":"true","checksum/config":"3f1c6c1c5f0f4a7f8d4c61f7c2b1a9d8"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-{}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{},{}]}},"spec":{{"volumes":[{{"name":"kube-api-access-x","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"web","image":"registry.example.com/team/web:1.27.3","ports":[{{"containerPort":8080,"protocol":"TCP"}}],"env":[{env}{{"name":"LAST","value":"1"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-{}","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[{}],"hostIP":"10.0.0.1","podIP":"10.1.2.3","startTime":"2026-11-20T10:00:00Z","containerStatuses":[{{"name":"web","state":{{"running":{{"startedAt":"2026-11-20T10:00:02Z"}}}},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:1.27.3","started":true}}],"qosClass":"Burstable"}}}}"#,
        1_000_000 + at,
        at / 10,
        fields("kube-controller-manager", 14),
        fields("kubelet", 18),
        at % 50,
        conditions.join(","),
    )
}
