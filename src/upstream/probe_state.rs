//! A member's health machine, and what feeds it: probes, and everybody's traffic.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::upstream::{
    cause::Cause,
    error::Failure,
    health::{Health, Input, Machine},
    metrics::Meter,
};

/// The last failure.
#[derive(Clone, Debug)]
pub struct LastError {
    /// One sentence.
    pub text: Arc<str>,
    /// When.
    pub at: Instant,
}

/// The health machine, shared by whoever feeds it.
pub struct ProbeState {
    machine: Mutex<Machine>,
    health: watch::Sender<Health>,
    reload_handle: Notify,
    meter: Arc<Meter>,
    outages: AtomicU64,
    /// Counts the changes of all members' health.
    conditions: Arc<AtomicU64>,
    latency_micros: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    /// The checks that it passed when it was asked last.
    passed: Mutex<Arc<[Box<str>]>>,
    /// When it was asked what it has not answered since; nor has it answered anything else.
    asked: Mutex<Option<Instant>>,
}

impl ProbeState {
    pub(crate) fn new(meter: Arc<Meter>, conditions: Arc<AtomicU64>) -> Arc<Self> {
        let health = watch::Sender::new(Health::Unknown);
        Arc::new(Self {
            machine: Mutex::default(),
            health,
            reload_handle: Notify::new(),
            meter,
            outages: AtomicU64::new(0),
            conditions,
            latency_micros: AtomicU64::new(0),
            last_error: Mutex::default(),
            passed: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// The checks that the member passed when it was ready last, as a kube-apiserver names and orders them.
    pub(crate) fn passed(&self) -> Arc<[Box<str>]> {
        Arc::clone(&self.passed.lock())
    }

    /// Remembers the checks that it passes.
    pub(crate) fn set_passed<'a>(&self, checks: impl Iterator<Item = &'a str> + Clone) {
        let mut passed = self.passed.lock();
        if !passed.iter().map(|name| &**name).eq(checks.clone()) {
            *passed = checks.map(Box::from).collect();
        }
    }

    /// Counts failed requests to the member.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn feed(&self, input: Input) {
        let mut machine = self.machine.lock();
        let was_ready = *machine.health() == Health::Ready;
        let (after, output) = std::mem::take(&mut *machine).step(input, Instant::now());
        *machine = after;
        if was_ready && *machine.health() != Health::Ready {
            self.outages.fetch_add(1, Ordering::AcqRel);
        }
        if output.changed {
            self.health.send_replace(machine.health().clone());
            self.conditions.fetch_add(1, Ordering::AcqRel);
        }
        if output.probe_now {
            self.reload_handle.notify_one();
        }
    }

    /// Records a failure, for operators to read.
    pub(crate) fn note(&self, text: &str) {
        *self.last_error.lock() = Some(LastError { text: text.into(), at: Instant::now() });
    }

    /// The last failure, if anything did.
    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }

    /// How long the last probe waited for its answer.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let micros = self.latency_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    pub(crate) fn answered_after(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        self.latency_micros.store(micros, Ordering::Relaxed);
    }

    /// It is being asked for its health.
    pub(crate) fn ask(&self) {
        self.asked.lock().get_or_insert_with(Instant::now);
    }

    /// The probe was answered.
    pub(crate) fn probe_answered(&self) {
        *self.asked.lock() = None;
    }

    /// Waits until traffic gives a reason to probe at once.
    pub(crate) async fn probe_wanted(&self) {
        self.reload_handle.notified().await;
    }

    /// How long it has owed an answer, and given none.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.asked.lock().map(|asked| asked.elapsed())
    }

    /// Counts how often it ceased to be ready: also what is over when somebody looks.
    pub(crate) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Acquire)
    }

    /// Somebody's request was answered.
    pub(crate) fn answered(&self) {
        self.probe_answered();
        self.feed(Input::TrafficAnswered);
    }

    /// Somebody's request failed; what does not speak about the member is passed over.
    pub(crate) fn failed(&self, failure: &Failure) {
        if let Some(cause) = Cause::of_failure(failure) {
            self.meter.failed(cause);
            if cause != Cause::Down {
                self.note(&failure.to_string());
            }
        }
        match failure {
            Failure::Credential(_)
            | Failure::Resolve { .. }
            | Failure::Refused(_)
            | Failure::Connect { .. }
            | Failure::ConnectTimeout(_)
            | Failure::HandshakeTimeout(_)
            | Failure::Tls { .. }
            | Failure::Closed(_)
            | Failure::Send { .. }
            | Failure::Protocol { .. }
            | Failure::BodyTimeout(_)
            | Failure::Body { .. } => self.feed(Input::TrafficFailed),
            // One slow request is no failed transport, but worth a look.
            Failure::HeadTimeout(_) => self.reload_handle.notify_one(),
            Failure::Down(_)
            | Failure::Saturated { .. }
            | Failure::Request(_)
            | Failure::BodyTooLarge { .. }
            | Failure::Answer(_) => {}
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.machine.lock().health().clone()
    }

    pub(crate) fn tried(&self) -> bool {
        self.machine.lock().tried()
    }

    pub(crate) fn held(&self) -> bool {
        self.machine.lock().held()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::MemberName, upstream::metrics::UpstreamMetrics};

    #[tokio::test(start_paused = true)]
    async fn an_outage_counts_even_when_it_is_over() {
        let member = MemberName::new("west").unwrap();
        let probe_state = ProbeState::new(Meter::new(&member, &UpstreamMetrics::default()), Arc::default());
        let unready = || Input::ProbeUnready { cause: "not ready (500)".into() };
        probe_state.feed(unready());
        probe_state.feed(Input::ProbeReady);
        assert_eq!(probe_state.outages(), 0, "it was not ready before");
        probe_state.feed(unready());
        probe_state.feed(unready());
        probe_state.feed(Input::ProbeReady);
        assert_eq!(probe_state.outages(), 1);
    }
}
