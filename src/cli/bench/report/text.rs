//! The table for people.

use std::fmt::Write as _;

use crate::cli::{
    bench::report::{Report, ScenarioReport},
    status::table,
};

/// All scenarios: latencies, then processes, then what failed.
pub(in crate::cli::bench) fn render(report: &Report) -> String {
    let titles = ["SCENARIO", "LATENCY", "COUNT", "P50", "P90", "P99", "P99.9", "MAX"];
    let mut rows = vec![titles.map(str::to_owned)];
    for scenario in &report.scenarios {
        rows.extend(scenario.latencies.iter().map(|latency| {
            let [p50, p90, p99, p999, max] =
                [latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(millis);
            [scenario.name.name(), latency.name.clone(), latency.count.to_string(), p50, p90, p99, p999, max]
        }));
    }
    let mut out = table(&rows);
    let titles = ["SCENARIO", "RATE", "THROUGHPUT", "MB/S", "FAILED", "OVER BOUND", "ABANDONED"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(report.scenarios.iter().map(|scenario| {
        [
            scenario.name.name(),
            format!("{}/s", scenario.shape.rate),
            format!("{:.1}/s", scenario.throughput),
            format!("{:.1}", scenario.bytes as f64 / 1e6 / scenario.seconds.max(f64::MIN_POSITIVE)),
            failures(scenario),
            scenario.over_bound.to_string(),
            scenario.abandoned.to_string(),
        ]
    }));
    let _infallible = write!(out, "\n{}", table(&rows));
    let mut rows = vec![["SCENARIO", "PROCESS", "CPU", "CPU/REQUEST", "RSS"].map(str::to_owned)];
    for scenario in &report.scenarios {
        rows.extend(scenario.processes.iter().map(|process| {
            let per_request = millis(process.cpu_micros_per_request.round() as u64);
            let (cpu, rss) =
                (format!("{:.2} s", process.cpu_seconds), format!("{:.1} MiB", process.rss_bytes as f64 / 1_048_576.0));
            [scenario.name.name(), process.name.clone(), cpu, per_request, rss]
        }));
    }
    if rows.len() > 1 {
        let _infallible = write!(out, "\n{}", table(&rows));
    }
    for watch in report.scenarios.iter().filter_map(|scenario| scenario.watch) {
        let _infallible = writeln!(
            out,
            "\nwatch: {} watchers got {} of {} events; {} lost, {} watches cut, {} events before the write's answer",
            watch.watchers, watch.delivered, watch.expected, watch.lost, watch.cut, watch.early
        );
    }
    out
}

/// `503: 12, connection: 1`, or `0`.
pub(in crate::cli::bench) fn failures(scenario: &ScenarioReport) -> String {
    let causes: Vec<String> = scenario.failed.iter().map(|(cause, count)| format!("{cause}: {count}")).collect();
    if causes.is_empty() { "0".to_owned() } else { causes.join(", ") }
}

/// Microseconds as milliseconds.
pub(super) fn millis(micros: u64) -> String {
    let millis = micros as f64 / 1e3;
    if millis < 100.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}
