//! What a run found, as `--json` writes it. `docs/benchmarking.md` documents the format.

pub(super) mod html;
mod svg;
pub(super) mod text;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cli::bench::{
    plan::{Scenario, Shape},
    record::{Measures, Second, histogram},
};

/// The version of the format. It changes when a field changes its meaning or goes; fields may be added.
const FORMAT: &str = "kubefold-bench/v1";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) format: String,
    /// Of the kubefold that measured.
    pub(super) version: String,
    pub(super) started: Timestamp,
    pub(super) target: TargetReport,
    pub(super) scenarios: Vec<ScenarioReport>,
}

/// What was driven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TargetReport {
    pub(super) kind: TargetKind,
    pub(super) url: String,
    pub(super) server_version: String,
    /// Empty where the endpoint is no kubefold.
    pub(super) members: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TargetKind {
    Embedded,
    Endpoint,
}

/// One scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScenarioReport {
    pub(super) name: Scenario,
    pub(super) shape: Shape,
    /// From the first request to the last answer; at least the scenario's duration.
    pub(super) seconds: f64,
    /// Requests that were due.
    pub(super) planned: u64,
    pub(super) succeeded: u64,
    /// By cause: a status code, `connection`, `incomplete` or `unreadable`.
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) over_bound: u64,
    pub(super) abandoned: u64,
    /// Of bodies of successful answers.
    pub(super) bytes: u64,
    /// Units: successful requests a second.
    pub(super) throughput: f64,
    pub(super) latencies: Vec<Latency>,
    pub(super) processes: Vec<ProcessReport>,
    /// One entry a second.
    pub(super) timeline: Vec<SecondReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) watch: Option<WatchReport>,
}

/// The latencies of one kind of request. Units: microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Latency {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) min: u64,
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
    /// The histogram.
    pub(super) buckets: Vec<Bucket>,
}

/// So many latencies of about this length (0.1 %).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bucket {
    pub(super) micros: u64,
    pub(super) count: u64,
}

/// What a process used during the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessReport {
    pub(super) name: String,
    pub(super) cpu_seconds: f64,
    /// Units: microseconds a successful request.
    pub(super) cpu_micros_per_request: f64,
    /// The most that was seen.
    pub(super) rss_bytes: u64,
}

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SecondReport {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

/// What became of the events of the scenario watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatchReport {
    pub(super) watchers: u64,
    /// Successful writes times watchers.
    pub(super) expected: u64,
    pub(super) delivered: u64,
    /// Not delivered within 10 s after the last write.
    pub(super) lost: u64,
    /// Watches that ended before the run.
    pub(super) cut: u64,
    /// Delivered before the writer had its answer; their latency counts as 0.
    pub(super) early: u64,
}

/// What a scenario report is made of, beside its measures.
pub(super) struct Ran {
    pub(super) name: Scenario,
    pub(super) shape: Shape,
    pub(super) planned: u64,
    pub(super) processes: Vec<ProcessReport>,
    pub(super) watch: Option<WatchReport>,
}

impl Report {
    pub(super) fn new(started: Timestamp, target: TargetReport, scenarios: Vec<ScenarioReport>) -> Self {
        Self { format: FORMAT.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), started, target, scenarios }
    }

    /// Reads what `--json` wrote.
    ///
    /// Errors: there is no such file, or it is none of this format.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        let named = path.display();
        let text = std::fs::read(path).with_context(|| format!("cannot read {named}"))?;
        let head: Head = serde_json::from_slice(&text)
            .with_context(|| format!("{named} is no report of a bench; give a file that --json wrote"))?;
        if head.format != FORMAT {
            bail!(
                "{named} has the format {}, and this kubefold reads {FORMAT}; measure again with one version for both",
                head.format
            );
        }
        serde_json::from_slice(&text).with_context(|| format!("{named} is damaged; measure again"))
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl ScenarioReport {
    pub(super) fn new(ran: Ran, measures: Measures) -> Self {
        let Ran { name, shape, planned, processes, watch } = ran;
        // The last request is due a little before the time is over.
        let seconds = measures.lasted().as_secs_f64().max(shape.duration_seconds);
        let latencies = measures.latencies.iter().map(|(name, latencies)| Latency::new(name, latencies)).collect();
        let second = |second: Second| SecondReport { succeeded: second.succeeded, failed: second.failed };
        Self {
            name,
            shape,
            seconds,
            planned,
            succeeded: measures.succeeded,
            failed: measures.failed,
            over_bound: measures.over_bound,
            abandoned: measures.abandoned,
            bytes: measures.bytes,
            throughput: if seconds > 0.0 { measures.succeeded as f64 / seconds } else { 0.0 },
            latencies,
            processes,
            timeline: measures.seconds.into_iter().map(second).collect(),
            watch,
        }
    }

    pub(super) fn failed_count(&self) -> u64 {
        self.failed.values().sum()
    }
}

impl Latency {
    fn new(name: &str, latencies: &Histogram<u64>) -> Self {
        let quantile = |quantile| latencies.value_at_quantile(quantile);
        let bucket = |value: hdrhistogram::iterators::IterationValue<u64>| Bucket {
            micros: value.value_iterated_to(),
            count: value.count_at_value(),
        };
        Self {
            name: name.to_owned(),
            count: latencies.len(),
            min: latencies.min(),
            mean: latencies.mean(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: latencies.max(),
            buckets: latencies.iter_recorded().map(bucket).collect(),
        }
    }

    /// The histogram again.
    pub(super) fn histogram(&self) -> Histogram<u64> {
        let mut latencies = histogram();
        for bucket in &self.buckets {
            latencies.saturating_record_n(bucket.micros, bucket.count);
        }
        latencies
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::cli::bench::{
        plan::Kind,
        record::{Failure, Outcome, Record},
    };

    /// A run of the scenario get, in which each request takes `micros` times its number.
    pub(in crate::cli::bench) fn report(micros: u64) -> Report {
        let record = Record::default();
        record.begin(Instant::now());
        for number in 1..=1_000 {
            let latency = Duration::from_micros(micros * number);
            record.answered(latency, &Outcome { measure: "get", result: Ok(7) });
        }
        let failure = Failure::Status(http::StatusCode::SERVICE_UNAVAILABLE);
        record.answered(Duration::ZERO, &Outcome { measure: "get", result: Err(failure) });
        let shape = Shape {
            kind: Kind::Configmaps,
            objects: 10,
            object_bytes: 100,
            rate: 100.0,
            duration_seconds: 10.0,
            clients: 1,
            in_flight_max: 10,
            watchers: 1,
            page_size: 5,
        };
        let process = ProcessReport {
            name: "kubefold".into(),
            cpu_seconds: 0.5,
            cpu_micros_per_request: 500.0,
            rss_bytes: 1 << 20,
        };
        let watch = WatchReport { watchers: 2, expected: 4, delivered: 3, lost: 1, cut: 1, early: 0 };
        let ran = Ran { name: Scenario::Get, shape, planned: 1_001, processes: vec![process], watch: Some(watch) };
        let target = TargetReport {
            kind: TargetKind::Endpoint,
            url: "https://127.0.0.1:6443/<&>".into(),
            server_version: "v1.36.3".into(),
            members: vec!["east".into()],
        };
        let started = "2026-11-25T20:00:00Z".parse().unwrap();
        let scenario = ScenarioReport::new(ran, record.take());
        // The only measures that the clock of the test takes part in.
        Report::new(started, target, vec![ScenarioReport { seconds: 10.0, throughput: 100.0, ..scenario }])
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let written = report(10);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), written.json().unwrap()).unwrap();
        let read = Report::read(file.path()).unwrap();
        assert_eq!(read, written);
        let (latency, scenario) = (&read.scenarios[0].latencies[0], &read.scenarios[0]);
        let again = latency.histogram();
        assert_eq!((again.len(), scenario.failed["503"], scenario.bytes), (1_000, 1, 7_000));
        for (quantile, value) in [(0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99), (0.999, latency.p999)] {
            assert_eq!(again.value_at_quantile(quantile), value, "{quantile}");
        }
    }

    #[test]
    fn a_file_of_another_format_is_refused_with_what_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, said) in [
            (r#"{"format":"kubefold-bench/v9"}"#, "has the format kubefold-bench/v9"),
            ("{}", "is no report of a bench"),
            (r#"{"format":"kubefold-bench/v1"}"#, "is damaged"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let error = format!("{:#}", Report::read(file.path()).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
