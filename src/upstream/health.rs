//! Whether a member answers: a pure state machine, fed by probes and by real traffic.
//!
//! Only a probe makes a member ready again, and only probes and broken transport take it down: what the
//! API server answers to somebody's request says nothing about its health.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// Transport failures in a row, probes and traffic together, after which a member is down.
const FAILURES_MAX: u8 = 2;

/// What kubefold knows about a member's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not tried yet.
    Unknown,
    /// `/readyz` says yes.
    Ready,
    /// It can be reached, but something is wrong: it is not ready, or refuses kubefold's own credential.
    Degraded {
        /// What is wrong, for people.
        cause: Arc<str>,
        /// Since when.
        since: Instant,
    },
    /// It cannot be reached, or must not be used.
    Down {
        /// Why, for people.
        cause: Arc<str>,
        /// Since when.
        since: Instant,
    },
}

impl Health {
    /// The names of all states.
    pub const NAMES: [&str; 4] = ["unknown", "ready", "degraded", "down"];

    /// True if it makes sense to send a request.
    pub fn is_reachable(&self) -> bool {
        matches!(self, Self::Ready | Self::Degraded { .. })
    }

    /// True if it cannot be reached, or must not be used.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }

    /// What is wrong.
    pub fn cause(&self) -> Option<&Arc<str>> {
        match self {
            Self::Unknown | Self::Ready => None,
            Self::Degraded { cause, .. } | Self::Down { cause, .. } => Some(cause),
        }
    }

    /// How long it has been wrong.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Unknown | Self::Ready => None,
            Self::Degraded { since, .. } | Self::Down { since, .. } => Some(now.duration_since(*since)),
        }
    }

    /// One line for Warnings, 503s and `/readyz?verbose`: `west is down (for 12s): connection refused`.
    pub fn describe(&self, member: &str, now: Instant) -> String {
        let age = self.age(now).unwrap_or_default().as_secs();
        match self {
            Self::Unknown => format!("{member} has not answered yet"),
            Self::Ready => format!("{member} is ready"),
            Self::Degraded { cause, .. } => format!("{member} is degraded (for {age}s): {cause}"),
            Self::Down { cause, .. } => format!("{member} is down (for {age}s): {cause}"),
        }
    }

    /// The state's name: a metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ready => "ready",
            Self::Degraded { .. } => "degraded",
            Self::Down { .. } => "down",
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A probe found the member ready, and its identity is known.
    ProbeReady,
    /// A probe was answered, but not with a yes.
    ProbeUnready {
        /// What it said.
        cause: Arc<str>,
    },
    /// A probe was not answered.
    ProbeFailed {
        /// Why.
        cause: Arc<str>,
        /// The connection was refused, or it has no address: nothing to wait for.
        certain: bool,
    },
    /// Somebody's request was answered, whatever the answer.
    TrafficAnswered,
    /// Somebody's request failed in the transport.
    TrafficFailed,
    /// It must not be used, for this reason; `None` lifts that.
    Held(Option<Arc<str>>),
    /// It is somewhere else now: nothing that was known counts.
    Moved,
}

/// What has to be done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Subscribers want to know.
    pub changed: bool,
    /// A probe should not wait for its turn.
    pub probe_now: bool,
}

/// [`Health`] with what it takes to judge the next input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    health: Health,
    failures: u8,
    held: Option<Arc<str>>,
    tried: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self { health: Health::Unknown, failures: 0, held: None, tried: false }
    }
}

impl Machine {
    /// The state.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// True once a probe came back, with whatever result.
    pub fn tried(&self) -> bool {
        self.tried
    }

    /// True while the member must not be used.
    pub fn held(&self) -> bool {
        self.held.is_some()
    }

    /// Judges one input.
    #[must_use]
    pub fn step(self, input: Input, now: Instant) -> (Self, Output) {
        let before = self.clone();
        let (mut after, probe_now) = self.judge(input, now);
        if let Some(cause) = &after.held {
            after.health = down(&before.health, cause.clone(), now);
        }
        let changed = after.health != before.health || after.tried != before.tried;
        (after, Output { changed, probe_now })
    }

    fn judge(self, input: Input, now: Instant) -> (Self, bool) {
        match input {
            Input::ProbeReady => (Self { health: Health::Ready, failures: 0, tried: true, ..self }, false),
            Input::ProbeUnready { cause } => {
                let health = degraded(&self.health, cause, now);
                (Self { health, failures: 0, tried: true, ..self }, false)
            }
            Input::ProbeFailed { cause, certain } => {
                let failures = self.failures.saturating_add(1);
                // After a restart, too, one lost answer is not a member that is down: what it holds would be shown as it was.
                let give_up = certain || failures >= FAILURES_MAX || self.health.is_down();
                let health = if give_up { down(&self.health, cause, now) } else { self.health };
                (Self { health, failures, tried: true, ..self }, !give_up)
            }
            Input::TrafficAnswered => {
                let probe_now = self.health.is_down() && self.held.is_none();
                (Self { failures: 0, ..self }, probe_now)
            }
            Input::TrafficFailed => {
                let failures = self.failures.saturating_add(1);
                let probe_now = self.health.is_reachable();
                (Self { failures, ..self }, probe_now)
            }
            Input::Held(held) => {
                let lifted = self.held.is_some() && held.is_none();
                let health = if lifted { Health::Unknown } else { self.health };
                (Self { held, health, ..self }, lifted)
            }
            Input::Moved => (Self { health: Health::Unknown, failures: 0, tried: false, ..self }, true),
        }
    }
}

/// Down, since when it went down; the newest cause is told.
fn down(before: &Health, cause: Arc<str>, now: Instant) -> Health {
    match before {
        Health::Down { since, .. } => Health::Down { cause, since: *since },
        Health::Unknown | Health::Ready | Health::Degraded { .. } => Health::Down { cause, since: now },
    }
}

fn degraded(before: &Health, cause: Arc<str>, now: Instant) -> Health {
    match before {
        Health::Degraded { since, .. } => Health::Degraded { cause, since: *since },
        Health::Unknown | Health::Ready | Health::Down { .. } => Health::Degraded { cause, since: now },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(machine: Machine, input: Input) -> (Machine, Output) {
        machine.step(input, Instant::now())
    }

    fn ready() -> Machine {
        step(Machine::default(), Input::ProbeReady).0
    }

    fn failed(certain: bool) -> Input {
        Input::ProbeFailed { cause: "silence".into(), certain }
    }

    #[tokio::test(start_paused = true)]
    async fn one_lost_probe_is_asked_again_at_once_and_two_are_down() {
        let (machine, output) = step(ready(), failed(false));
        assert_eq!((machine.health(), output), (&Health::Ready, Output { changed: false, probe_now: true }));
        let (machine, output) = step(machine, failed(false));
        assert!(machine.health().is_down() && output.changed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_is_down_at_once() {
        assert!(step(ready(), failed(true)).0.health().is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn traffic_alone_takes_nobody_down_but_shortens_the_way() {
        let mut machine = ready();
        for _ in 0..100 {
            let (after, output) = step(machine, Input::TrafficFailed);
            assert_eq!((after.health(), output.probe_now), (&Health::Ready, true));
            machine = after;
        }
        assert!(step(machine.clone(), failed(false)).0.health().is_down());
        let (answered, _) = step(machine, Input::TrafficAnswered);
        assert_eq!(step(answered, failed(false)).0.health(), &Health::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_never_reached_is_down_after_two_tries_or_a_refusal() {
        let (machine, output) = step(Machine::default(), failed(false));
        assert_eq!((machine.health(), machine.tried()), (&Health::Unknown, true));
        assert_eq!(output, Output { changed: true, probe_now: true });
        let (machine, output) = step(machine, failed(false));
        assert!(machine.health().is_down() && output.changed);
        assert!(step(Machine::default(), failed(true)).0.health().is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn down_keeps_its_beginning_and_tells_the_newest_cause() {
        let (machine, _) = step(ready(), failed(true));
        tokio::time::advance(Duration::from_secs(12)).await;
        let (machine, output) = step(machine, Input::ProbeFailed { cause: "connection refused".into(), certain: true });
        assert!(output.changed);
        let line = machine.health().describe("west", Instant::now());
        assert_eq!(line, "west is down (for 12s): connection refused");
        let (machine, _) = step(machine, Input::ProbeReady);
        assert_eq!(machine.health(), &Health::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_a_member_that_is_down_asks_for_a_probe() {
        let (machine, _) = step(ready(), failed(true));
        let (machine, output) = step(machine, Input::TrafficAnswered);
        assert!(machine.health().is_down() && output.probe_now);
    }

    #[tokio::test(start_paused = true)]
    async fn held_is_down_whatever_a_probe_says_and_unknown_when_lifted() {
        let (machine, _) = step(ready(), Input::Held(Some("same cluster as east".into())));
        let (machine, output) = step(machine, Input::ProbeReady);
        assert!(!output.changed);
        assert_eq!(machine.health().cause().unwrap().as_ref(), "same cluster as east");
        let (machine, output) = step(machine, Input::Held(None));
        assert_eq!((machine.health(), output.probe_now), (&Health::Unknown, true));
    }
}
