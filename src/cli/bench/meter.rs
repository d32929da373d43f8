//! What the measured processes use in a scenario.

use std::time::Duration;

use tokio::time::sleep;

use crate::cli::bench::{
    process::{Process, ProcessError, Usage},
    report::ProcessReport,
};

/// How often memory is looked at.
const PERIOD: Duration = Duration::from_millis(200);

/// Processes, from one moment on.
pub(super) struct Meter<'a> {
    processes: Vec<Metered<'a>>,
}

struct Metered<'a> {
    process: &'a Process,
    begin: Usage,
    rss_max: u64,
}

impl<'a> Meter<'a> {
    /// Begins now.
    ///
    /// Errors: a process is gone.
    pub(super) fn start(processes: &'a [Process]) -> Result<Self, ProcessError> {
        let metered = |process: &'a Process| {
            let begin = process.usage()?;
            Ok(Metered { process, begin, rss_max: begin.rss })
        };
        Ok(Self { processes: processes.iter().map(metered).collect::<Result<_, _>>()? })
    }

    /// Looks at the processes again and again, and calls `each` every time.
    ///
    /// Cancel: safe.
    ///
    /// Errors: a process is gone; it does not return otherwise.
    pub(super) async fn follow(&mut self, each: impl Fn()) -> Result<(), ProcessError> {
        loop {
            sleep(PERIOD).await;
            for metered in &mut self.processes {
                metered.rss_max = metered.rss_max.max(metered.process.usage()?.rss);
            }
            each();
        }
    }

    /// What they used since the start.
    ///
    /// Errors: a process is gone.
    pub(super) fn end(self, requests: u64) -> Result<Vec<ProcessReport>, ProcessError> {
        let report = |metered: Metered<'_>| {
            let end = metered.process.usage()?;
            let cpu_seconds = end.cpu.saturating_sub(metered.begin.cpu).as_secs_f64();
            Ok(ProcessReport {
                name: metered.process.name.clone(),
                cpu_seconds,
                cpu_micros_per_request: if requests > 0 { cpu_seconds * 1e6 / requests as f64 } else { 0.0 },
                rss_bytes: metered.rss_max.max(end.rss),
            })
        };
        self.processes.into_iter().map(report).collect()
    }
}
