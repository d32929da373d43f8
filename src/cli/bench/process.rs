//! CPU and memory of processes on this machine, as Linux tells them.

use std::{str::FromStr, time::Duration};

/// Of `/proc/<pid>/stat`: Linux tells user space nothing else. Source: proc(5).
const TICK: Duration = Duration::from_millis(10);

/// A process that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Process {
    /// What it is called in the report.
    pub(super) name: String,
    pub(super) pid: u32,
}

/// What it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time since it began.
    pub(super) cpu: Duration,
    /// Memory that it has now. Units: bytes.
    pub(super) rss: u64,
}

impl Process {
    /// This process.
    #[cfg(any(test, feature = "demo"))]
    pub(super) fn own() -> Self {
        Self { name: "bench".into(), pid: std::process::id() }
    }

    /// Reads what it used so far.
    ///
    /// Errors: there is no such process.
    pub(super) fn usage(&self) -> Result<Usage, ProcessError> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.pid));
        let gone = |source| ProcessError::Gone { pid: self.pid, source };
        Ok(Usage { cpu: cpu(&read("stat").map_err(gone)?), rss: rss(&read("status").map_err(gone)?) })
    }
}

impl FromStr for Process {
    type Err = ProcessError;

    /// `123` or `kubefold=123`.
    fn from_str(text: &str) -> Result<Self, ProcessError> {
        let (name, pid) = text.split_once('=').unwrap_or((text, text));
        let pid = pid.parse().ok().filter(|pid| *pid > 0).ok_or(ProcessError::Form)?;
        if name.is_empty() { Err(ProcessError::Form) } else { Ok(Self { name: name.to_owned(), pid }) }
    }
}

fn cpu(stat: &str) -> Duration {
    // The name may hold spaces; it ends with the last parenthesis.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok());
    ticks.map(|ticks| TICK * ticks).sum()
}

fn rss(status: &str) -> u64 {
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.map_or(0, |kilobytes: u64| kilobytes << 10)
}

/// Why a process cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ProcessError {
    #[error("write the number of a process, or name=number")]
    Form,
    #[error(
        "cannot measure process {pid}: {source}; give the number of a process that runs on this machine as --pid, \
         in the same PID namespace"
    )]
    Gone { pid: u32, source: std::io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number_and_perhaps_a_name() {
        let named = Process { name: "kubefold".into(), pid: 7 };
        assert_eq!("kubefold=7".parse::<Process>().unwrap(), named);
        assert_eq!("7".parse::<Process>().unwrap(), Process { name: "7".into(), pid: 7 });
        for wrong in ["", "0", "x", "=7", "x=", "x=-1"] {
            assert!(wrong.parse::<Process>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_linux_says_is_understood() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14";
        assert_eq!(cpu(stat), Duration::from_secs(2));
        assert_eq!(rss("Name:\tx\nVmRSS:\t   2048 kB\n"), 2 << 20);
        assert!(Process::own().usage().unwrap().rss > 0);
    }
}
