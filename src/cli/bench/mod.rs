//! `kubefold bench`: load on any Kubernetes endpoint, or on a fleet that it embeds, and what the answers took.
//!
//! `plan` says what is to be done, `schedule` when, `drivers` how; `record` and `meter` take the measures, `report` shows them and
//! `compare` holds two of them against each other. `session` puts it together.

mod compare;
mod drivers;
#[cfg(feature = "demo")]
mod embedded;
mod meter;
mod plan;
mod process;
mod record;
mod report;
mod schedule;
mod session;
mod space;
mod target;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) use self::plan::PlanError;
use self::{
    compare::{Compared, Shapes},
    plan::{Numbers, Scenario},
    process::Process,
    report::{Report, html, text},
    session::{Opening, Planned, Session},
};
use crate::{
    cli::{client::Connection, print},
    observe::{self, LogFormat},
};

/// What is logged where `RUST_LOG` says nothing: requests that fail are counted.
const LOGGED: &str = "error,kube_client=off";
/// As of `kubefold demo`.
const MEMBERS_MAX: i64 = 200;
#[cfg(feature = "demo")]
const MEMBERS: u16 = 3;

#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    /// What to measure, in this order. Default: all; outage and cold-start only with embedded members.
    #[arg(value_enum, value_name = "SCENARIO")]
    scenarios: Vec<Scenario>,
    /// The state directory of the `kubefold serve` to measure, instead of a kubeconfig.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "members"])]
    state_dir: Option<PathBuf>,
    /// A kubeconfig with a context for the endpoint. Default: embed members and a kubefold.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use. Default: the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The number of embedded members. Default: 3.
    #[arg(long, value_name = "N", conflicts_with_all = ["kubeconfig", "context"],
        value_parser = clap::value_parser!(u16).range(1..=MEMBERS_MAX))]
    members: Option<u16>,
    /// The namespace to make, use and remove. It must not exist, unless an earlier bench left it.
    #[arg(long, value_name = "NAME", default_value = "kubefold-bench", value_parser = label)]
    namespace: String,
    #[command(flatten)]
    numbers: Numbers,
    /// A process of this machine to measure, such as kubefold=123; may be repeated. Embedded: the bench itself.
    #[arg(long, value_name = "[NAME=]PID")]
    pid: Vec<Process>,
    /// The file for the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The file for the report as one HTML page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measure nothing; print how many times worse the second of two JSON reports is.
    #[arg(long, value_names = ["FIRST", "SECOND"], num_args = 2,
        conflicts_with_all = ["scenarios", "state_dir", "kubeconfig", "context", "members", "pid", "json", "html"])]
    compare: Vec<PathBuf>,
    /// Fail where the second report is more times worse than this, such as 1.1.
    #[arg(long, value_name = "RATIO", requires = "compare", value_parser = ratio)]
    fail_above: Option<f64>,
    /// Compare runs that had other numbers, too.
    #[arg(long, requires = "compare")]
    any_shape: bool,
}

/// Measures, or compares.
pub(super) fn run(flags: Bench) -> anyhow::Result<()> {
    if let [first, second] = flags.compare.as_slice() {
        let shapes = if flags.any_shape { Shapes::MayDiffer } else { Shapes::MustBeEqual };
        let (first, second) = (first.clone(), second.clone());
        return Compared { first, second, fail_above: flags.fail_above, shapes }.run();
    }
    observe::init(LogFormat::Text, LOGGED);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(flags.measure()))
}

impl Bench {
    async fn measure(self) -> anyhow::Result<()> {
        let planned = self.planned()?;
        for file in self.json.iter().chain(&self.html) {
            can_be_written(file)?;
        }
        for process in &self.pid {
            process.usage()?;
        }
        let mut ended = Ended::new()?;
        let mut session = tokio::select! {
            session = Box::pin(self.open(&planned)) => session?,
            () = ended.next() => bail!("interrupted; nothing was made"),
        };
        tokio::select! {
            free = session.free() => free?,
            () = ended.next() => bail!("interrupted; nothing was made"),
        }
        session.claim().await?;
        let result = tokio::select! {
            result = Box::pin(session.run(&planned)) => result,
            () = ended.next() => Err(anyhow::anyhow!("interrupted; there is no report, and what was made is removed")),
        };
        let namespace = session.space.namespace.to_string();
        let removed = tokio::select! {
            removed = Box::pin(session.end()) => removed,
            () = ended.next() => Err(anyhow::anyhow!("interrupted twice; remove namespace {namespace} with kubectl")),
        };
        // What went wrong first comes first; what is left behind is said in any case.
        match (result, removed) {
            (Ok(report), removed) => self.show(&report).and(removed),
            (Err(error), Ok(())) => Err(error),
            (Err(error), Err(left)) => bail!("{error:#}; and {left:#}"),
        }
    }

    /// What is to run.
    ///
    /// Errors: the endpoint is not ours, and a scenario would stop a part of it; the numbers are too large.
    fn planned(&self) -> Result<Vec<Planned>, PlanError> {
        let mut wanted = self.scenarios.clone();
        if wanted.is_empty() {
            let all = Scenario::value_variants().iter().copied();
            wanted = all.filter(|scenario| self.is_embedded() || !scenario.needs_embedded()).collect();
        }
        let mut planned: Vec<Planned> = Vec::new();
        for scenario in wanted {
            if scenario.needs_embedded() && !self.is_embedded() {
                return Err(PlanError::NotEmbedded(scenario));
            }
            if scenario == Scenario::Outage && self.members == Some(1) {
                return Err(PlanError::OnlyMember);
            }
            if planned.iter().all(|planned| planned.scenario != scenario) {
                planned.push(Planned { scenario, shape: self.numbers.shape(scenario)? });
            }
        }
        Ok(planned)
    }

    fn is_embedded(&self) -> bool {
        cfg!(feature = "demo") && self.state_dir.is_none() && self.kubeconfig.is_none() && self.context.is_none()
    }

    async fn open(&self, planned: &[Planned]) -> anyhow::Result<Session> {
        let Some(Planned { shape, .. }) = planned.first() else { bail!("there is no scenario to run") };
        let opening = Opening { namespace: self.namespace.clone(), shape: shape.clone(), processes: self.pid.clone() };
        #[cfg(feature = "demo")]
        if self.is_embedded() {
            return Session::embed(self.members.unwrap_or(MEMBERS), opening).await;
        }
        let connection = match &self.state_dir {
            Some(state_dir) => Connection::of_state(state_dir.clone()),
            None => Connection::of(self.kubeconfig.clone(), self.context.clone()),
        };
        let config = connection.config().await?;
        Session::connect(config, opening).await
    }

    /// Prints the report, and writes the files.
    ///
    /// Errors: a file cannot be written; a scenario had no success.
    fn show(&self, report: &Report) -> anyhow::Result<()> {
        let write = |file: &Path, text: String| {
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        print(&text::render(report))?;
        if let Some(file) = &self.json {
            write(file, report.json()?)?;
        }
        if let Some(file) = &self.html {
            write(file, html::render(report))?;
        }
        if let Some(scenario) = report.scenarios.iter().find(|scenario| scenario.succeeded == 0) {
            bail!(
                "no request of the scenario {} succeeded ({}); RUST_LOG=debug says why",
                scenario.name.name(),
                text::failures(scenario)
            );
        }
        Ok(())
    }
}

/// Ctrl-C, or a polite kill.
struct Ended {
    interrupt: Signal,
    terminate: Signal,
}

impl Ended {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Before minutes of work.
fn can_be_written(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() || file.is_dir() {
        bail!("cannot write {}: its folder does not exist, or it is a folder itself", file.display());
    }
    Ok(())
}

fn ratio(text: &str) -> Result<f64, FlagError> {
    text.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0).ok_or(FlagError::Ratio)
}

/// A label of DNS, as a namespace's name must be (RFC 1123).
fn label(text: &str) -> Result<String, FlagError> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let sound =
        (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
    if sound { Ok(text.to_owned()) } else { Err(FlagError::Namespace) }
}

/// How the value of a flag is to be written.
#[derive(Debug, thiserror::Error)]
enum FlagError {
    #[error("write a number above 0, such as 1.1")]
    Ratio,
    #[error("write lower-case letters, digits and dashes, at most 63")]
    Namespace,
}
