//! Members that join and leave under a hundred watchers.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::task::TaskTracker;

use testbed::{
    Api, FleetFile, Kubefold, MemberOptions, Relay, Testbed, eventually, figure,
    objects::{CONFIG_MAPS, create, create_many, exact},
};

/// For ten thousand objects to reach a hundred watchers on a busy machine, in a build without optimisation.
const A_FLOOD: Duration = Duration::from_secs(150);
const SOON: Duration = Duration::from_secs(30);
const OBJECTS: usize = 10_000;
const OBJECT_BYTES: usize = 2_000;
const WATCHERS: usize = 100;
/// Above what the program holds before: the objects, the log's bound, and what the allocator keeps.
const GROWTH_BYTES_MAX: u64 = 600 << 20;

/// What one watcher has seen, without a parsed object.
#[derive(Default)]
struct Seen {
    added: AtomicUsize,
    deleted: AtomicUsize,
    errors: AtomicUsize,
    ended: AtomicBool,
    /// Every event in its order: two watchers that saw the same have the same.
    order: Mutex<DefaultHasher>,
    /// Names that are there now; one that is added twice or deleted twice is an error.
    names: Mutex<HashSet<Vec<u8>>>,
}

impl Seen {
    fn take(&self, line: &[u8]) {
        let name = between(line, b"\"name\":\"").to_vec();
        let revision = between(line, b"\"resourceVersion\":\"");
        (line.get(..16), &name, revision).hash(&mut *self.order.lock());
        let fits = match line {
            _ if line.starts_with(br#"{"type":"ADDED"#) => {
                self.added.fetch_add(1, Ordering::Relaxed);
                self.names.lock().insert(name)
            }
            _ if line.starts_with(br#"{"type":"DELETED"#) => {
                self.deleted.fetch_add(1, Ordering::Relaxed);
                self.names.lock().remove(&name)
            }
            _ => false,
        };
        if !fits {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.added), count(&self.deleted), count(&self.errors))
    }
}

/// What stands behind the first `label`, up to a quote.
fn between<'a>(line: &'a [u8], label: &[u8]) -> &'a [u8] {
    let start = memchr::memmem::find(line, label).map_or(line.len(), |at| at + label.len());
    let rest = &line[start..];
    &rest[..memchr::memchr(b'"', rest).unwrap_or(rest.len())]
}

/// A watch that is read as fast as it comes.
fn follow(tasks: &TaskTracker, api: &Api, revision: &str) -> (Arc<Seen>, JoinHandle<()>) {
    let (seen, api) = (Arc::<Seen>::default(), api.clone());
    let (told, path) = (Arc::clone(&seen), format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}"));
    let task = tasks.spawn(async move {
        let mut body = api.open(Request::get(path).body(Bytes::new()).unwrap()).await.unwrap().into_body();
        let mut rest = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            rest.extend_from_slice(&data);
            take_lines(&mut rest, &told);
        }
        told.ended.store(true, Ordering::Relaxed);
    });
    (seen, task)
}

/// Waits until every watcher has these counts of ADDED and DELETED, saw nothing else, and all saw one order.
async fn all_have(watchers: &[(Arc<Seen>, JoinHandle<()>)], added: usize, deleted: usize) {
    let want = (added, deleted, 0);
    eventually(A_FLOOD, async || {
        let counts: Vec<_> = watchers.iter().map(|(seen, _)| seen.counts()).collect();
        counts.iter().all(|have| *have == want).then_some(()).ok_or_else(|| {
            let least = counts.iter().min().unwrap();
            format!("want {want:?}; at least {least:?}, at most {:?}", counts.iter().max().unwrap())
        })
    })
    .await;
    let orders: HashSet<u64> = watchers.iter().map(|(seen, _)| seen.order.lock().finish()).collect();
    assert_eq!(orders.len(), 1, "watchers saw different orders");
    assert!(!watchers.iter().any(|(seen, _)| seen.ended.load(Ordering::Relaxed)), "a watch was closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_objects_join_and_leave_under_a_hundred_watchers() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let since = Instant::now();
    create_many(west, "bulk", OBJECTS, OBJECT_BYTES).await;
    figure(&format!("{OBJECTS} config maps made in {:?}", since.elapsed()));
    create(east, "one", "east").await;
    let relay = Relay::before(west).await;

    let (alone, both) = (
        FleetFile::default().member(east, 1),
        FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, ""),
    );
    let fleet = Kubefold::start(&alone).await;
    let api = fleet.api().await;
    let list = api.get(CONFIG_MAPS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let tasks = TaskTracker::new();
    let watchers: Vec<_> = (0..WATCHERS).map(|_| follow(&tasks, &api, revision)).collect();
    // It asks and does not read.
    let slow = api
        .open(Request::get(format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).body(Bytes::new()).unwrap());
    let slow = slow.await.unwrap();
    create(east, "two", "east").await;
    all_have(&watchers, 1, 0).await;
    let before = fleet.resident_bytes();

    // What west holds of its own beside.
    let extra = west.api().await.get(CONFIG_MAPS).await["items"].as_array().unwrap().len() - OBJECTS;
    let all = OBJECTS + extra;
    let mut most = 0;
    for round in 1..=2 {
        let since = Instant::now();
        fleet.configure(&both);
        // Its connections are cut while its list is read: that begins again, and nobody is told anything twice.
        let cut_lists = async {
            for share in [10, 4, 2] {
                let there = (round - 1) * all + all / share;
                let added = || watchers[0].0.counts().0;
                eventually(A_FLOOD, async || (added() >= there).then_some(()).ok_or_else(added)).await;
                relay.sever().await;
            }
        };
        tokio::join!(cut_lists, all_have(&watchers, 1 + round * all, (round - 1) * all));
        figure(&format!(
            "joined for all watchers after {:?}, {} MB more",
            since.elapsed(),
            grown(&fleet, before) >> 20
        ));
        most = most.max(grown(&fleet, before));
        eventually(SOON, async || exact(&api, &[east, west]).await).await;
        let since = Instant::now();
        fleet.configure(&alone);
        all_have(&watchers, 1 + round * all, round * all).await;
        figure(&format!("left for all watchers after {:?}, {} MB more", since.elapsed(), grown(&fleet, before) >> 20));
        most = most.max(grown(&fleet, before));
        eventually(SOON, async || exact(&api, &[east]).await).await;
    }
    assert!(most < GROWTH_BYTES_MAX, "{} MB more", most >> 20);

    // Who did not read is given all of it, or was cut off, and nobody else noticed.
    assert_eq!(slow.status(), StatusCode::OK);
    let (bytes, is_cut) = read_late(slow.into_body(), 2 * all).await;
    figure(&format!(
        "the slow watcher was given {} MB, and then {}",
        bytes >> 20,
        if is_cut { "its end" } else { "more" }
    ));
    for (_, task) in watchers {
        task.abort();
    }
}

/// Reads what is left of a watch, up to its end or so many deletions. Gives its bytes, and whether it ended.
async fn read_late(mut body: hyper::body::Incoming, deletions: usize) -> (usize, bool) {
    let (mut bytes, mut rest, seen) = (0, Vec::new(), Seen::default());
    let read_all = async {
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            bytes += data.len();
            rest.extend_from_slice(&data);
            take_lines(&mut rest, &seen);
            if seen.counts().1 == deletions {
                return false;
            }
        }
        true
    };
    let is_cut = tokio::time::timeout(A_FLOOD, read_all).await.expect("a watch that fell behind goes on or ends");
    assert_eq!(seen.counts().2, 0, "what it was given is in order");
    (bytes, is_cut)
}

/// Takes the whole lines out of a buffer.
fn take_lines(buffer: &mut Vec<u8>, seen: &Seen) {
    let mut done = 0;
    while let Some(end) = memchr::memchr(b'\n', &buffer[done..]) {
        seen.take(&buffer[done..done + end]);
        done += end + 1;
    }
    buffer.drain(..done);
}

fn grown(fleet: &Kubefold, before: u64) -> u64 {
    fleet.resident_bytes().saturating_sub(before)
}
