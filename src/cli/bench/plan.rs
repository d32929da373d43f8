//! What a run does: the scenarios, and the numbers that shape them.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use kubefold_wire::duration::{self, DurationError};

/// More requests than this in one scenario are a mistake of `--rate` or `--duration`: what is known of each is in memory.
const REQUESTS_MAX: f64 = 10_000_000.0;
/// A day.
const DURATION_MAX: Duration = Duration::from_hours(24);

/// What is asked of the endpoint. `docs/benchmarking.md` says what each measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::cli) enum Scenario {
    List,
    Pages,
    Table,
    Watch,
    Selectors,
    Get,
    Write,
    Mixed,
    Churn,
    Outage,
    ColdStart,
}

impl Scenario {
    /// As it is written on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Requests a second where `--rate` says nothing: what three small members take without trouble.
    fn rate(self) -> f64 {
        match self {
            Self::List | Self::Pages | Self::Table => 10.0,
            Self::Watch | Self::Selectors | Self::Churn => 20.0,
            Self::Write | Self::Outage => 50.0,
            Self::Mixed => 100.0,
            Self::Get => 200.0,
            Self::ColdStart => 1.0,
        }
    }

    /// Whether it stops members or kubefold itself, which only the one who embeds them can.
    pub(super) fn needs_embedded(self) -> bool {
        matches!(self, Self::Outage | Self::ColdStart)
    }
}

/// The kind of the objects that a run makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Kind {
    Configmaps,
    Pods,
}

impl Kind {
    /// As URLs have it.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Pods => "pods",
        }
    }
}

/// The numbers of a run.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Numbers {
    /// The number of objects to make.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    objects: u32,
    /// The size of an object. Units: bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    object_size: u32,
    /// The kind of the objects. Pods name a scheduler that does not exist, so that nothing runs.
    #[arg(long, value_enum, default_value_t = Kind::Configmaps)]
    kind: Kind,
    /// Requests a second, sent whatever the answers do. Default: by the scenario, from 10 (list) to 200 (get).
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// How long requests are sent in each scenario, such as 30s.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = span)]
    duration: Duration,
    /// The number of clients, each with its own connections.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,
    /// The most requests at the same time. A request over it waits, is counted, and its latency has the wait.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// The number of watchers of the scenario watch.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    watchers: u32,
    /// The number of objects on a page of the scenario pages.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    page_size: u32,
}

impl Numbers {
    /// The shape of one scenario.
    ///
    /// Errors: it would have too many requests.
    pub(super) fn shape(&self, scenario: Scenario) -> Result<Shape, PlanError> {
        let rate = self.rate.unwrap_or_else(|| scenario.rate());
        let requests = rate * self.duration.as_secs_f64();
        if requests > REQUESTS_MAX {
            return Err(PlanError::TooMany { requests });
        }
        Ok(Shape {
            kind: self.kind,
            objects: self.objects,
            object_bytes: self.object_size,
            rate,
            duration_seconds: self.duration.as_secs_f64(),
            clients: self.clients,
            in_flight_max: self.in_flight,
            watchers: self.watchers,
            page_size: self.page_size,
        })
    }
}

/// What two runs of a scenario must have in common to be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Shape {
    pub(super) kind: Kind,
    pub(super) objects: u32,
    pub(super) object_bytes: u32,
    /// Units: requests a second.
    pub(super) rate: f64,
    pub(super) duration_seconds: f64,
    pub(super) clients: u16,
    pub(super) in_flight_max: u32,
    pub(super) watchers: u32,
    pub(super) page_size: u32,
}

/// Why there is no such run.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum PlanError {
    #[error(
        "the scenario {} stops a part of the fleet, which bench does only to one that it embeds; leave out the \
         scenario, or name no endpoint",
        .0.name()
    )]
    NotEmbedded(Scenario),
    #[error("an outage of the only member leaves nothing to measure; give --members 2 or more")]
    OnlyMember,
    #[error(
        "--rate and --duration make {requests:.0} requests, and a scenario has at most {REQUESTS_MAX:.0}; give a smaller one"
    )]
    TooMany { requests: f64 },
}

fn rate(text: &str) -> Result<f64, FlagError> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.01..=1_000_000.0).contains(rate));
    rate.ok_or(FlagError::Rate)
}

fn span(text: &str) -> Result<Duration, FlagError> {
    let nanos = u64::try_from(duration::parse(text)?).unwrap_or_default();
    let span = Duration::from_nanos(nanos);
    if span >= Duration::from_millis(100) && span <= DURATION_MAX { Ok(span) } else { Err(FlagError::Span) }
}

/// How the value of a flag is to be written.
#[derive(Debug, thiserror::Error)]
enum FlagError {
    #[error("write how many a second, from 0.01 to 1000000")]
    Rate,
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("write a duration from 100ms to 24h")]
    Span,
}
