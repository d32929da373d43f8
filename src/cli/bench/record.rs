//! What a scenario measures while it runs.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest latency that a histogram tells apart. Units: microseconds (an hour).
const LATENCY_MAX: u64 = 3_600_000_000;
/// Significant digits of a latency: buckets are at most 0.1 % wide.
const DIGITS: u8 = 3;
/// The name of the latencies of requests that were not answered in time.
pub(super) const ABANDONED: &str = "abandoned";

/// What came of one request, or of several that belong together.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Which of the scenario's latencies it counts to.
    pub(super) measure: &'static str,
    /// Bytes of bodies that were read.
    pub(super) result: Result<u64, Failure>,
}

/// Why a request failed; its text is the name under which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("{}", .0.as_u16())]
    Status(StatusCode),
    #[error("connection")]
    Connection,
    #[error("incomplete")]
    Incomplete,
    #[error("unreadable")]
    Unreadable,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Second {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

/// All that is known of a run.
#[derive(Default)]
pub(super) struct Measures {
    /// Units: microseconds.
    pub(super) latencies: BTreeMap<&'static str, Histogram<u64>>,
    pub(super) succeeded: u64,
    pub(super) failed: BTreeMap<String, u64>,
    /// Requests that could not be sent when they were due, since as many as may be were on their way.
    pub(super) over_bound: u64,
    /// Requests that were not answered in time, or not sent.
    pub(super) abandoned: u64,
    pub(super) bytes: u64,
    pub(super) seconds: Vec<Second>,
    /// When the first request was due, and when the last answer came.
    begun: Option<Instant>,
    last: Option<Instant>,
}

/// Takes measures from all tasks.
#[derive(Default)]
pub(super) struct Record {
    measures: Mutex<Measures>,
}

impl Record {
    /// The first request is due now.
    pub(super) fn begin(&self, at: Instant) {
        self.measures.lock().begun = Some(at);
    }

    /// An answer came, `latency` after its request was due.
    pub(super) fn answered(&self, latency: Duration, outcome: &Outcome) {
        let (now, mut measures) = (Instant::now(), self.measures.lock());
        let since = measures.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
        // A run lasts a day at most.
        let second = usize::try_from(since.as_secs()).unwrap_or_default();
        if measures.seconds.len() <= second {
            measures.seconds.resize(second + 1, Second::default());
        }
        measures.last = Some(now);
        match outcome.result {
            Ok(bytes) => {
                measures.succeeded += 1;
                measures.bytes += bytes;
                measures.add(outcome.measure, latency);
            }
            Err(failure) => *measures.failed.entry(failure.to_string()).or_default() += 1,
        }
        if let Some(second) = measures.seconds.get_mut(second) {
            match outcome.result {
                Ok(_) => second.succeeded += 1,
                Err(_) => second.failed += 1,
            }
        }
    }

    /// A latency beside those of requests.
    pub(super) fn add(&self, measure: &'static str, latency: Duration) {
        self.measures.lock().add(measure, latency);
    }

    /// A request could not be sent when it was due.
    pub(super) fn over_bound(&self) {
        self.measures.lock().over_bound += 1;
    }

    /// A request was given up `latency` after it was due.
    pub(super) fn abandoned(&self, latency: Duration) {
        let mut measures = self.measures.lock();
        measures.abandoned += 1;
        measures.add(ABANDONED, latency);
    }

    /// How many requests succeeded and failed so far.
    pub(super) fn so_far(&self) -> Second {
        let measures = self.measures.lock();
        Second { succeeded: measures.succeeded, failed: measures.failed.values().sum() }
    }

    /// Takes the measures, and leaves none.
    pub(super) fn take(&self) -> Measures {
        std::mem::take(&mut self.measures.lock())
    }
}

impl Measures {
    /// From the first request to the last answer.
    pub(super) fn lasted(&self) -> Duration {
        self.begun.zip(self.last).map_or(Duration::ZERO, |(begun, last)| last.saturating_duration_since(begun))
    }

    fn add(&mut self, measure: &'static str, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.entry(measure).or_insert_with(histogram).saturating_record(micros);
    }
}

/// An empty histogram of microseconds. Latencies over an hour count as an hour.
pub(super) fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the type takes")]
    Histogram::new_with_bounds(1, LATENCY_MAX, DIGITS).expect("constant bounds")
}
