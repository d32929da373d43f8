//! Keeps a member's health: asks `/readyz` in turn, and at once when traffic fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};

use crate::member::{
    Member,
    cause::Cause,
    error::{Failure, UpstreamError},
    health::{Health, Input, Machine},
    metrics::Meter,
    upstream::collect,
};
use kubefold_wire::body::empty;

/// Between two probes of a member that is not ready, at most: its return is what everybody waits for.
const RECOVERY_PACE_MAX: Duration = Duration::from_millis(500);
/// Between two probes, however many requests fail.
const PROBE_GAP: Duration = Duration::from_millis(200);
/// A failing `/readyz` lists its checks.
const READYZ_BYTES_MAX: usize = 64 << 10;

/// What came to nothing last.
#[derive(Clone, Debug)]
pub struct LastError {
    /// One sentence.
    pub text: Arc<str>,
    /// When.
    pub at: Instant,
}

/// The health machine, shared by whoever feeds it.
pub(super) struct Vitals {
    machine: Mutex<Machine>,
    health: watch::Sender<Health>,
    nudge: Notify,
    meter: Arc<Meter>,
    outages: AtomicU64,
    latency_micros: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    /// When it was asked what it has not answered since; nor has it answered anything else.
    asked: Mutex<Option<Instant>>,
}

impl Vitals {
    pub(super) fn new(meter: Arc<Meter>) -> Arc<Self> {
        let health = watch::Sender::new(Health::Unknown);
        Arc::new(Self {
            machine: Mutex::default(),
            health,
            nudge: Notify::new(),
            meter,
            outages: AtomicU64::new(0),
            latency_micros: AtomicU64::new(0),
            last_error: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// Counts what comes to nothing with the member.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(super) fn feed(&self, input: Input) {
        let mut machine = self.machine.lock();
        let was_ready = *machine.health() == Health::Ready;
        let (after, output) = std::mem::take(&mut *machine).step(input, Instant::now());
        *machine = after;
        if was_ready && *machine.health() != Health::Ready {
            self.outages.fetch_add(1, Ordering::AcqRel);
        }
        if output.changed {
            self.health.send_replace(machine.health().clone());
        }
        if output.probe_now {
            self.nudge.notify_one();
        }
    }

    /// Notes what came to nothing, for operators to read.
    pub(super) fn note(&self, text: &str) {
        *self.last_error.lock() = Some(LastError { text: text.into(), at: Instant::now() });
    }

    /// What came to nothing last, if anything did.
    pub(super) fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }

    /// How long the last probe waited for its answer.
    pub(super) fn latency(&self) -> Option<Duration> {
        let micros = self.latency_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    fn answered_after(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        self.latency_micros.store(micros, Ordering::Relaxed);
    }

    /// It is being asked for its health.
    fn ask(&self) {
        self.asked.lock().get_or_insert_with(Instant::now);
    }

    /// How long it has owed an answer, and given none.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        self.asked.lock().map(|asked| asked.elapsed())
    }

    /// Counts how often it ceased to be ready: also what is over when somebody looks.
    pub(super) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Acquire)
    }

    /// Somebody's request was answered.
    pub(super) fn answered(&self) {
        *self.asked.lock() = None;
        self.feed(Input::TrafficAnswered);
    }

    /// Somebody's request failed; what does not speak about the member is passed over.
    pub(super) fn failed(&self, failure: &Failure) {
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
            Failure::HeadTimeout(_) => self.nudge.notify_one(),
            Failure::Down(_)
            | Failure::Saturated { .. }
            | Failure::Request(_)
            | Failure::BodyTooLarge { .. }
            | Failure::Answer(_) => {}
        }
    }

    pub(super) fn health(&self) -> Health {
        self.machine.lock().health().clone()
    }

    pub(super) fn tried(&self) -> bool {
        self.machine.lock().tried()
    }

    pub(super) fn held(&self) -> bool {
        self.machine.lock().held()
    }

    pub(super) fn changes(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}

/// Probes without end: whoever runs it drops it when the member is removed.
pub(super) async fn run(member: Arc<Member>) {
    let mut twin = member.twin.subscribe();
    loop {
        if member.upstream.follow_files().await {
            member.moved();
        }
        let before = member.health();
        member.vitals.ask();
        let (told, cause) = probe(&member).await;
        if !matches!(told, Input::ProbeFailed { .. }) {
            *member.vitals.asked.lock() = None;
        }
        member.vitals.feed(told);
        let after = member.health();
        if before.name() != after.name() {
            tell(&member, &after, cause);
            if after.is_down() {
                member.upstream.cut_http1();
            }
        }
        let pace = member.upstream.deadlines().probe;
        let pace = if member.health() == Health::Ready { pace } else { pace.min(RECOVERY_PACE_MAX) };
        tokio::select! {
            () = sleep(pace) => {}
            () = member.vitals.nudge.notified() => sleep(PROBE_GAP).await,
            _ = twin.changed() => member.hold_twin(),
        }
    }
}

/// One line for each change of state: retries say nothing.
fn tell(member: &Member, health: &Health, cause: Option<Cause>) {
    let cause = cause.map_or("none", Cause::as_str);
    match health {
        Health::Unknown => {}
        Health::Ready => tracing::info!(member = %member.name, "{}", member.describe()),
        Health::Degraded { .. } | Health::Down { .. } => {
            tracing::warn!(member = %member.name, cause, "{}", member.describe());
        }
    }
}

/// Asks once.
async fn probe(member: &Member) -> (Input, Option<Cause>) {
    match readyz(member).await {
        Ok(None) => {}
        Ok(Some((code, cause))) => return (Input::ProbeUnready { cause }, Cause::of_status(code)),
        Err(error) => return failed(member, &error),
    }
    if member.vitals.health() == Health::Ready && member.cluster_uid().is_some() {
        return (Input::ProbeReady, None);
    }
    // Ready again: before anybody reads from it, make sure that it is still the same cluster.
    match member.check_identity().await {
        Ok(_) => (Input::ProbeReady, None),
        Err(UpstreamError { failure: Failure::Answer(cause), .. }) => {
            (Input::ProbeUnready { cause }, Some(Cause::Unexpected))
        }
        Err(error) => failed(member, &error),
    }
}

fn failed(member: &Member, error: &UpstreamError) -> (Input, Option<Cause>) {
    let cause = Cause::of_failure(&error.failure);
    if let Some(cause) = cause {
        member.meter().failed(cause);
        member.vitals.note(&error.cause());
    }
    let certain = matches!(error.failure, Failure::Refused(_) | Failure::Resolve { .. } | Failure::Credential(_));
    if matches!(error.failure, Failure::HeadTimeout(_) | Failure::BodyTimeout(_)) {
        // The connection may be dead and the member alive: the next probe opens another one.
        member.upstream.retire_connections();
    }
    (Input::ProbeFailed { cause: error.cause().into(), certain }, cause)
}

/// `None` if it says yes, otherwise what it says.
async fn readyz(member: &Member) -> Result<Option<(StatusCode, Arc<str>)>, UpstreamError> {
    let mut request = Request::new(empty());
    *request.uri_mut() = Uri::from_static("/readyz");
    let asked = Instant::now();
    let response = member.upstream.probe(request).await?;
    member.vitals.answered_after(asked.elapsed());
    let code = response.status();
    let body = collect(response.into_body(), READYZ_BYTES_MAX).await?;
    Cause::of_status(code).into_iter().for_each(|cause| member.meter().failed(cause));
    let said: Arc<str> = match code {
        StatusCode::OK => return Ok(None),
        StatusCode::UNAUTHORIZED => {
            member.upstream.credential_refused().await;
            "it refuses kubefold's own credential (401)".into()
        }
        StatusCode::FORBIDDEN => "it does not let kubefold read /readyz (403)".into(),
        _ => unready(code, &body).into(),
    };
    member.vitals.note(&said);
    Ok(Some((code, said)))
}

/// `not ready (500): etcd, informer-sync`: the checks that a kube-apiserver marks with `[-]`.
fn unready(code: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let checks: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .take(8)
        .collect();
    match checks.as_slice() {
        [] => format!("not ready ({})", code.as_u16()),
        checks => format!("not ready ({}): {}", code.as_u16(), checks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::MemberName, member::metrics::MemberMetrics};

    #[tokio::test(start_paused = true)]
    async fn an_outage_counts_even_when_it_is_over() {
        let member = MemberName::new("west").unwrap();
        let vitals = Vitals::new(Meter::new(&member, &MemberMetrics::default()));
        let unready = || Input::ProbeUnready { cause: "not ready (500)".into() };
        vitals.feed(unready());
        vitals.feed(Input::ProbeReady);
        assert_eq!(vitals.outages(), 0, "it was not ready before");
        vitals.feed(unready());
        vitals.feed(unready());
        vitals.feed(Input::ProbeReady);
        assert_eq!(vitals.outages(), 1);
    }

    #[test]
    fn the_failing_checks_are_named() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n";
        assert_eq!(unready(StatusCode::INTERNAL_SERVER_ERROR, body), "not ready (500): etcd");
        assert_eq!(unready(StatusCode::BAD_GATEWAY, b"oops"), "not ready (502)");
    }
}
