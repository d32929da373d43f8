//! When requests are sent: at their time, whatever the answers do (an open loop).
//!
//! A generator that sends the next request after the last answer sends nothing while a server stalls, and so does not
//! measure the stall: "coordinated omission" (Gil Tene, "How NOT to Measure Latency"). Here each request has a time at which
//! it is due, and its latency counts from that time.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::cli::bench::{
    plan::Shape,
    record::{Outcome, Record},
};

/// How long answers may take after the last request was due.
const GRACE: Duration = Duration::from_secs(30);
/// Requests that are due and not yet begun, in the channel. What is behind it waits in the pacer, and has its time nevertheless.
const QUEUE: usize = 1_024;

/// A request of a scenario: its number to what came of it.
pub(super) type Operation = Arc<dyn Fn(u64) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// The times of all requests of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    rate: f64,
    count: u64,
    in_flight_max: usize,
}

/// One request that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    index: u64,
    at: Instant,
}

impl Schedule {
    pub(super) fn new(shape: &Shape) -> Self {
        // At least one: a scenario without a request says nothing.
        let count = (shape.rate * shape.duration_seconds).round().max(1.0) as u64;
        Self { rate: shape.rate, count, in_flight_max: shape.in_flight_max as usize }
    }

    /// How many requests are sent.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn due(&self, index: u64, begun: Instant) -> Due {
        Due { index, at: begun + Duration::from_secs_f64(index as f64 / self.rate) }
    }

    /// The requests, each when it is due. A thread counts the time: tokio's timer is up to 1 ms late, and a request of a warm
    /// server takes less.
    ///
    /// Cancel: the thread ends when the receiver is dropped, after at most one step.
    ///
    /// Errors: there is no thread.
    pub(super) fn pace(self, begun: Instant) -> std::io::Result<mpsc::Receiver<Due>> {
        let (send, receive) = mpsc::channel(QUEUE);
        std::thread::Builder::new().name("bench-pacer".into()).spawn(move || {
            for due in (0..self.count).map(|index| self.due(index, begun)) {
                std::thread::sleep(due.at.saturating_duration_since(Instant::now()));
                if send.blocking_send(due).is_err() {
                    return;
                }
            }
        })?;
        Ok(receive)
    }

    /// Sends each request when it is due, and records what comes of it. What is not answered [`GRACE`] after the last was due
    /// is abandoned, and recorded with the time that it had.
    ///
    /// Cancel: safe; requests on their way are dropped.
    pub(super) async fn run(
        self,
        begun: Instant,
        mut dues: mpsc::Receiver<Due>,
        operation: &Operation,
        record: &Arc<Record>,
    ) {
        record.begin(begun);
        let deadline = self.due(self.count, begun).at + GRACE;
        let mut gate = Gate { permits: Arc::new(Semaphore::new(self.in_flight_max)), waited_until: None };
        let mut running = JoinSet::new();
        while let Some(due) = dues.recv().await {
            let Some(permit) = gate.pass(due, deadline, record).await else {
                record.abandoned(deadline.saturating_duration_since(due.at));
                continue;
            };
            let (answer, record) = (operation(due.index), Arc::clone(record));
            running.spawn(async move {
                let outcome = timeout_at(deadline, answer).await;
                let latency = Instant::now().saturating_duration_since(due.at);
                match outcome {
                    Ok(outcome) => record.answered(latency, &outcome),
                    Err(_) => record.abandoned(latency),
                }
                drop(permit);
            });
            while running.try_join_next().is_some() {}
        }
        while running.join_next().await.is_some() {}
    }
}

/// What bounds the requests in flight.
struct Gate {
    permits: Arc<Semaphore>,
    /// When the last request that had to wait went on.
    waited_until: Option<Instant>,
}

impl Gate {
    /// Waits until one more may be sent. `None` at the deadline.
    async fn pass(&mut self, due: Due, deadline: Instant, record: &Record) -> Option<OwnedSemaphorePermit> {
        let now = Arc::clone(&self.permits).try_acquire_owned();
        // It was due while an earlier one waited: the bound held it back, too.
        if now.is_err() || self.waited_until.is_some_and(|until| due.at < until) {
            record.over_bound();
        }
        match now {
            Ok(permit) => Some(permit),
            Err(_) => {
                let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
                self.waited_until = Some(Instant::now());
                permit.ok()?.ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::cli::bench::plan::Kind;

    /// When the server stalls, and when it does no more: between two requests, so that nothing depends on what comes first.
    const STALL: Duration = Duration::from_millis(1_000);
    const END: Duration = Duration::from_millis(1_995);

    fn shape(in_flight_max: u32) -> Shape {
        Shape {
            kind: Kind::Configmaps,
            objects: 1,
            object_bytes: 0,
            rate: 100.0,
            duration_seconds: 3.0,
            clients: 1,
            in_flight_max,
            watchers: 1,
            page_size: 1,
        }
    }

    /// A run before a server that answers at once, but not in the second after [`STALL`]. On the clock of the test.
    async fn stalled(in_flight_max: u32) -> Arc<Record> {
        let (begun, schedule) = (Instant::now(), Schedule::new(&shape(in_flight_max)));
        let (send, receive) = mpsc::channel(QUEUE);
        let pace = async move {
            for due in (0..schedule.count()).map(|index| schedule.due(index, begun)) {
                tokio::time::sleep_until(due.at).await;
                send.send(due).await.unwrap();
            }
        };
        let operation: Operation = Arc::new(move |_| {
            async move {
                if (STALL..END).contains(&begun.elapsed()) {
                    tokio::time::sleep_until(begun + END).await;
                }
                Outcome { measure: "get", result: Ok(1) }
            }
            .boxed()
        });
        let record = Arc::new(Record::default());
        futures::future::join(pace, schedule.run(begun, receive, &operation, &record)).await;
        record
    }

    /// The coordinated-omission test: 100 requests should have been sent in the stalled second, and each has its share of it.
    #[tokio::test(start_paused = true)]
    async fn a_stall_is_in_the_latencies_of_all_that_were_due_meanwhile() {
        for in_flight_max in [512, 10, 1] {
            let measures = stalled(in_flight_max).await.take();
            let latencies = &measures.latencies["get"];
            assert_eq!(latencies.len(), 300, "{in_flight_max}");
            for tenth in 1..=10_u32 {
                // Due 5 ms to 995 ms before the stall ends, 10 ms apart; buckets are 0.1 % wide.
                let least = Duration::from_millis(u64::from(tenth) * 100 - 5);
                let longer = latencies.count_between(least.as_micros() as u64 * 998 / 1_000, u64::MAX);
                assert_eq!(longer, u64::from(101 - tenth * 10), "{in_flight_max}: {least:?}");
            }
            let over = if in_flight_max == 512 { 0 } else { 100 - u64::from(in_flight_max) };
            assert_eq!((measures.over_bound, measures.abandoned), (over, 0), "{in_flight_max}");
        }
    }

    /// A server that never answers again: nothing is dropped, and each request has the time that it waited.
    #[tokio::test(start_paused = true)]
    async fn what_is_never_answered_is_recorded_with_its_time() {
        let (begun, schedule) = (Instant::now(), Schedule::new(&shape(10)));
        let (send, receive) = mpsc::channel(QUEUE);
        for index in 0..schedule.count() {
            send.try_send(schedule.due(index, begun)).unwrap();
        }
        drop(send);
        let operation: Operation = Arc::new(|_| futures::future::pending().boxed());
        let record = Arc::new(Record::default());
        schedule.run(begun, receive, &operation, &record).await;
        let measures = record.take();
        assert_eq!((measures.abandoned, measures.over_bound), (300, 290));
        assert_eq!(measures.latencies["abandoned"].len(), 300);
        assert!(measures.latencies["abandoned"].min() >= GRACE.as_micros() as u64 * 998 / 1_000);
    }

    #[test]
    fn the_pacer_sends_every_request_once_and_in_order() {
        let schedule = Schedule::new(&Shape { rate: 20_000.0, duration_seconds: 0.2, ..shape(1) });
        let mut dues = schedule.pace(Instant::now()).unwrap();
        let sent: Vec<u64> = std::iter::from_fn(|| dues.blocking_recv()).map(|due| due.index).collect();
        assert_eq!(sent, (0..4_000).collect::<Vec<_>>());
    }
}
