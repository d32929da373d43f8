//! A run, from the first connection to the last object that is removed.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;
#[cfg(feature = "demo")]
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::cli::bench::{
    drivers::{Ground, operation, watch::Watchers},
    meter::Meter,
    plan::{Scenario, Shape},
    process::Process,
    record::Record,
    report::{Ran, Report, ScenarioReport, TargetKind, TargetReport, WatchReport},
    schedule::Schedule,
    space::Space,
    target::Target,
};
use crate::cli::progress::Progress;
#[cfg(feature = "demo")]
use crate::cli::{
    bench::{
        drivers::{cold, outage},
        embedded,
    },
    demo::fleet::Fleet,
};

/// One scenario that is to run, and its numbers.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) scenario: Scenario,
    pub(super) shape: Shape,
}

/// An endpoint, and the run's namespace in it.
pub(super) struct Session {
    kind: TargetKind,
    target: Arc<Target>,
    pub(super) space: Space,
    processes: Vec<Process>,
    progress: Progress,
    #[cfg(feature = "demo")]
    embedded: Option<Embedded>,
}

/// What runs in this process.
#[cfg(feature = "demo")]
struct Embedded {
    /// Absent only while it starts anew.
    fleet: Option<Fleet>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What a session is opened with.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) namespace: String,
    pub(super) shape: Shape,
    pub(super) processes: Vec<Process>,
}

impl Session {
    /// Connects to an endpoint.
    ///
    /// Errors: as of [`Target::open`].
    pub(super) async fn connect(config: kube::Config, opening: Opening) -> anyhow::Result<Self> {
        let target = Target::open(config, opening.shape.clients).await?;
        Ok(Self::over(target, opening))
    }

    fn over(target: Target, opening: Opening) -> Self {
        Self {
            kind: TargetKind::Endpoint,
            space: Space::new(&opening.namespace, &opening.shape, &target),
            target: Arc::new(target),
            processes: opening.processes,
            progress: Progress::new(),
            #[cfg(feature = "demo")]
            embedded: None,
        }
    }

    /// Starts members and a kubefold, and connects to it.
    ///
    /// Errors: they do not start.
    #[cfg(feature = "demo")]
    pub(super) async fn embed(members: u16, mut opening: Opening) -> anyhow::Result<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let fleet = Box::pin(embedded::start(members, &tasks, &stop)).await?;
        let target = embedded::open(&fleet, opening.shape.clients).await?;
        opening.processes.push(Process::own());
        let embedded = Some(Embedded { fleet: Some(fleet), tasks, stop });
        Ok(Self { kind: TargetKind::Embedded, embedded, ..Self::over(target, opening) })
    }

    /// Sees that the namespace is free.
    ///
    /// Errors: as of [`Space::free`].
    pub(super) async fn free(&self) -> anyhow::Result<()> {
        self.space.free(&self.target).await
    }

    /// Makes the namespace; from now on there is something to remove.
    ///
    /// Errors: as of [`Space::make`].
    pub(super) async fn claim(&self) -> anyhow::Result<()> {
        self.space.make(&self.target).await
    }

    /// Fills the namespace, and runs the scenarios in order.
    ///
    /// Cancel: safe, and [`Self::end`] is still to be called.
    ///
    /// Errors: an object cannot be made; a scenario cannot go on.
    pub(super) async fn run(&mut self, planned: &[Planned]) -> anyhow::Result<Report> {
        let started = Timestamp::now();
        self.space.fill(&self.target, &self.progress).await?;
        let mut scenarios = Vec::new();
        for planned in planned {
            scenarios.push(Box::pin(self.measure(planned)).await?);
        }
        self.progress.clear();
        let target = TargetReport {
            kind: self.kind,
            url: self.target.url().to_owned(),
            server_version: self.target.version().to_owned(),
            members: self.target.members().to_vec(),
        };
        Ok(Report::new(started, target, scenarios))
    }

    /// Removes what the run made. What is embedded ends with all that it has.
    ///
    /// Errors: as of [`Space::remove`].
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.progress.clear();
        #[cfg(feature = "demo")]
        if let Some(Embedded { fleet, tasks, stop }) = self.embedded {
            stop.cancel();
            tasks.close();
            if let Some(fleet) = fleet {
                fleet.end().await;
                tasks.wait().await;
            }
            return Ok(());
        }
        self.space.remove(&self.target).await
    }

    #[cfg_attr(
        not(feature = "demo"),
        expect(clippy::needless_pass_by_ref_mut, reason = "only what is embedded starts anew")
    )]
    async fn measure(&mut self, planned: &Planned) -> anyhow::Result<ScenarioReport> {
        let Planned { scenario, shape } = planned.clone();
        let (schedule, record) = (Schedule::new(&shape), Arc::new(Record::default()));
        let ground = Ground { target: Arc::clone(&self.target), space: self.space.clone(), shape: shape.clone() };
        let watchers = match scenario {
            Scenario::Watch => Some(Watchers::open(&ground, schedule, &record).await?),
            _ => None,
        };
        let (processes, progress) = (self.processes.clone(), Progress::new());
        let (mut meter, begun) = (Meter::start(&processes)?, Instant::now());
        let follow = meter.follow(|| progress.show(|| line(scenario, &shape, begun, &record)));
        let drive = async {
            let watch = drive(scenario, &ground, schedule, &record, watchers).await?;
            #[cfg(feature = "demo")]
            self.stop_a_part(scenario, &ground, schedule, &record).await?;
            anyhow::Ok(watch)
        };
        let watch = tokio::select! {
            watch = Box::pin(drive) => watch?,
            gone = follow => { gone?; None }
        };
        progress.clear();
        let measures = record.take();
        let processes = meter.end(measures.succeeded)?;
        let planned = match scenario {
            // As many starts as there was time for.
            Scenario::ColdStart => measures.succeeded + measures.failed.values().sum::<u64>(),
            _ => schedule.count(),
        };
        Ok(ScenarioReport::new(Ran { name: scenario, shape, planned, processes, watch }, measures))
    }

    /// Of a scenario that stops a member or kubefold itself.
    #[cfg(feature = "demo")]
    async fn stop_a_part(
        &mut self,
        scenario: Scenario,
        ground: &Ground,
        schedule: Schedule,
        record: &Arc<Record>,
    ) -> anyhow::Result<()> {
        let embedded = self.embedded.as_mut().filter(|_| scenario.needs_embedded());
        let Some((fleet, embedded)) = embedded.and_then(|embedded| Some((embedded.fleet.take()?, embedded))) else {
            return Ok(());
        };
        if scenario == Scenario::Outage {
            let ran = outage::run(ground, schedule, record, &fleet).await;
            embedded.fleet = Some(fleet);
            return ran;
        }
        let started = Box::pin(cold::run(ground, record, fleet)).await?;
        embedded.fleet = Some(started.fleet);
        self.target = started.target;
        Ok(())
    }
}

async fn drive(
    scenario: Scenario,
    ground: &Ground,
    schedule: Schedule,
    record: &Arc<Record>,
    watchers: Option<Watchers>,
) -> anyhow::Result<Option<WatchReport>> {
    if let Some(watchers) = watchers {
        return Ok(Some(watchers.run(ground, schedule, record).await?));
    }
    if let Some(operation) = operation(scenario, ground) {
        let begun = Instant::now();
        schedule.run(begun, schedule.pace(begun)?, &operation, record).await;
    }
    Ok(None)
}

fn line(scenario: Scenario, shape: &Shape, begun: Instant, record: &Record) -> String {
    let (seconds, so_far) = (begun.elapsed().as_secs_f64(), record.so_far());
    let rate = (so_far.succeeded + so_far.failed) as f64 / seconds.max(0.001);
    format!(
        "{:<10} {seconds:.0}/{:.0} s   {rate:.0} answers/s   {} succeeded   {} failed",
        scenario.name(),
        shape.duration_seconds,
        so_far.succeeded,
        so_far.failed
    )
}
