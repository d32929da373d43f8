//! Watch fan-out: writes at a rate, and how long after each write's answer every watcher has its event.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::bail;
use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use memchr::memmem;
use serde::Deserialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::cli::bench::{
    drivers::{Ground, writes::patch},
    record::{Failure, Outcome, Record},
    report::WatchReport,
    schedule::{Operation, Schedule},
    space::SENT,
    target::get,
};

/// How long events may take after the last write.
const LAST_EVENTS: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// An event that is larger is no event of this run.
const LINE_BYTES_MAX: usize = 16 << 20;
/// What stands before the number of a write: those of other scenarios do not count.
const MARK: &str = "watch-";
/// How many watches are opened at the same time.
const OPENED_AT_ONCE: u64 = 64;

/// What writers and watchers share.
struct Fanout {
    begun: Instant,
    /// When each write was answered, by number. Units: microseconds since `begun`, and 0 before.
    answered: Vec<AtomicU64>,
    delivered: AtomicU64,
    early: AtomicU64,
    cut: AtomicU64,
    record: Arc<Record>,
}

/// Watchers that are there, before the first write.
pub(in crate::cli::bench) struct Watchers {
    fanout: Arc<Fanout>,
    tasks: JoinSet<()>,
}

impl Watchers {
    /// Opens all watches at one revision.
    ///
    /// Errors: the endpoint does not let them begin.
    pub(in crate::cli::bench) async fn open(
        ground: &Ground,
        schedule: Schedule,
        record: &Arc<Record>,
    ) -> anyhow::Result<Self> {
        let fanout = Arc::new(Fanout {
            begun: Instant::now(),
            answered: (0..schedule.count()).map(|_| AtomicU64::new(0)).collect(),
            delivered: AtomicU64::new(0),
            early: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            record: Arc::clone(record),
        });
        Ok(Self { tasks: open(ground, &fanout).await?, fanout })
    }

    /// Runs the scenario.
    ///
    /// Errors: there is no thread for it.
    pub(in crate::cli::bench) async fn run(
        mut self,
        ground: &Ground,
        schedule: Schedule,
        record: &Arc<Record>,
    ) -> anyhow::Result<WatchReport> {
        let (begun, fanout) = (Instant::now(), &self.fanout);
        schedule.run(begun, schedule.pace(begun)?, &writer(ground, fanout), record).await;
        let (writes, watchers) = (record.so_far().succeeded, u64::from(ground.shape.watchers));
        let (expected, ends) = (writes * watchers, Instant::now() + LAST_EVENTS);
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        while count(&fanout.delivered) < expected && Instant::now() < ends {
            sleep(ASK_AGAIN).await;
        }
        let [delivered, cut, early] = [&fanout.delivered, &fanout.cut, &fanout.early].map(count);
        self.tasks.abort_all();
        Ok(WatchReport { watchers, expected, delivered, lost: expected.saturating_sub(delivered), cut, early })
    }
}

fn writer(ground: &Ground, fanout: &Arc<Fanout>) -> Operation {
    let (ground, fanout) = (ground.clone(), Arc::clone(fanout));
    Arc::new(move |number| {
        let (ground, fanout) = (ground.clone(), Arc::clone(&fanout));
        async move {
            let path = ground.space.object(number);
            let result = ground.target.pass(number, patch(&path, &format!("{MARK}{number}"))).await;
            if result.is_ok()
                && let Some(answered) = usize::try_from(number).ok().and_then(|at| fanout.answered.get(at))
            {
                answered.store(fanout.now(), Ordering::Release);
            }
            Outcome { measure: "patch", result }
        }
        .boxed()
    })
}

async fn open(ground: &Ground, fanout: &Arc<Fanout>) -> anyhow::Result<JoinSet<()>> {
    #[derive(Deserialize)]
    struct List {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let url = ground.target.url();
    let begin = format!("{}?limit=1", ground.space.path());
    let (_, body) = ground.target.must("list before the watch", http::Method::GET, &begin, bytes::Bytes::new()).await?;
    let revision = serde_json::from_slice::<List>(&body)?.metadata.resource_version;
    // Longer than the run: the server is not to end it.
    let seconds = ground.shape.duration_seconds as u64 + 120;
    let path = format!("{}?watch=true&resourceVersion={revision}&timeoutSeconds={seconds}", ground.space.path());
    let mut watchers = JoinSet::new();
    let (count, mut opened) = (u64::from(ground.shape.watchers), 0);
    while opened < count {
        let next = (opened + OPENED_AT_ONCE).min(count);
        let some = (opened..next).map(|number| ground.target.send(number, get(&path)));
        for answer in futures::future::join_all(some).await {
            let body = match answer {
                Ok(answer) => answer.into_body(),
                Err(failure) => bail!(
                    "cannot open {count} watches at {url}: number {} failed with {failure}; does the server or a proxy before \
                     it limit the requests of one caller? give fewer --watchers",
                    opened + 1
                ),
            };
            let fanout = Arc::clone(fanout);
            watchers.spawn(async move {
                if follow(body, &fanout).await.is_err() {
                    fanout.cut.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        opened = next;
    }
    Ok(watchers)
}

/// Takes events until the watch ends, which it never does by itself in a run.
async fn follow(mut body: Body, fanout: &Fanout) -> Result<(), Failure> {
    let (finder, mut line) = (memmem::Finder::new(SENT), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Incomplete)?;
        let mut rest: &[u8] = frame.data_ref().map_or(&[], |data| data.as_ref());
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (head, tail) = rest.split_at(end + 1);
            line.extend_from_slice(head);
            if let Some(number) = sent(&line, &finder) {
                fanout.delivered(number);
            }
            line.clear();
            rest = tail;
        }
        line.extend_from_slice(rest);
        if line.len() > LINE_BYTES_MAX {
            return Err(Failure::Unreadable);
        }
    }
    Err(Failure::Incomplete)
}

/// The number that a write left in an object, without parsing the whole event: there are many watchers, and they are not what
/// is measured. The field owner's `f:` form of the key has no quotation mark before it, and does not count.
fn sent(line: &[u8], finder: &memmem::Finder<'_>) -> Option<u64> {
    finder.find_iter(line).find_map(|at| {
        let before = line.get(at.checked_sub(1)?)?;
        let behind = line.get(at + SENT.len()..)?.strip_prefix(b"\"")?.trim_ascii_start();
        let value = behind.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
        let digits = value.get(..memchr::memchr(b'"', value)?)?.strip_prefix(MARK.as_bytes())?;
        if *before == b'"' { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
    })
}

impl Fanout {
    fn now(&self) -> u64 {
        // Never 0, which means that there was no answer yet.
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    fn delivered(&self, number: u64) {
        let Some(answered) = usize::try_from(number).ok().and_then(|at| self.answered.get(at)) else { return };
        let (answered, now) = (answered.load(Ordering::Acquire), self.now());
        if answered == 0 {
            // Before the writer had its answer.
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        let latency = if answered == 0 { 0 } else { now.saturating_sub(answered) };
        self.record.add("delivery", Duration::from_micros(latency));
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_by_its_number_in_the_event() {
        let finder = memmem::Finder::new(SENT);
        let read = |line: &str| sent(line.as_bytes(), &finder);
        let fields = r#""managedFields":[{"fieldsV1":{"f:annotations":{".":{},"f:bench-sent":{}}}}]"#;
        assert_eq!(read(&format!(r#"{{"object":{{{fields},"annotations":{{"bench-sent":"watch-17"}}}}}}"#)), Some(17));
        assert_eq!(read(r#"{"annotations":{"bench-sent" : "watch-4" }}"#), Some(4));
        assert_eq!(read(&format!("{{{fields}}}")), None);
        assert_eq!(read(r#"{"bench-sent":"write-3"}"#), None);
    }
}
