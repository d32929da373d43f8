//! The report as one page that needs nothing from outside.

use std::fmt::Write as _;

use crate::cli::bench::report::{
    Latency, Report, ScenarioReport,
    svg::{Line, Scale, Tick, escape, plot},
    text::{failures, millis},
};

/// How far the curve of percentiles goes: to 99.999 %.
const NINES: u32 = 5;
/// Points of the curve between two numbers of nines.
const STEPS: u32 = 24;

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fbfbfa;--card:#fff;--text:#1c1e21;--dim:#62676e;--grid:#e3e5e8;\
--c0:#2563c9;--c1:#c2410c;--c2:#15803d;--c3:#a21caf;--c4:#b45309;--c5:#0e7490}\
@media(prefers-color-scheme:dark){:root{--page:#16181b;--card:#1e2125;--text:#e7e9ec;--dim:#9aa1aa;--grid:#33373d;\
--c0:#7aa7f7;--c1:#fb923c;--c2:#4ade80;--c3:#e879f9;--c4:#fbbf24;--c5:#22d3ee}}\
body{margin:0 auto;padding:2rem 1.25rem;max-width:84rem;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:0 0 .5rem}.dim{color:var(--dim)}\
section{background:var(--card);border:1px solid var(--grid);border-radius:10px;padding:1.25rem;margin:1.25rem 0}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1.25rem}\
figure{margin:0}figcaption{color:var(--dim)}svg{width:100%;height:auto}svg text{fill:var(--dim);font-size:11px}\
.grid{stroke:var(--grid)}polyline{fill:none;stroke-width:2;stroke-linejoin:round}\
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}\
.legend{margin:0}.legend span{margin-right:1rem}.legend span::before{content:'';display:inline-block;width:.8em;height:.8em;\
border-radius:2px;margin-right:.4em;background:currentColor}\
.b0{color:var(--c0)}.b1{color:var(--c1)}.b2{color:var(--c2)}.b3{color:var(--c3)}.b4{color:var(--c4)}.b5{color:var(--c5)}\
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0}th,td{text-align:right;padding:.2rem .9rem .2rem 0;\
white-space:nowrap;font-variant-numeric:tabular-nums}th{color:var(--dim);font-weight:500}th:first-child,td:first-child{text-align:left}";

/// The page, as XML that HTML parsers read, too.
pub(in crate::cli::bench) fn render(report: &Report) -> String {
    let target = &report.target;
    let members = match target.members.len() {
        0 => String::new(),
        count => format!(", a kubefold with {count} members"),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"/><title>kubefold bench</title><style>{STYLE}</style></head><body>\n\
         <h1>kubefold bench</h1><p class=\"dim\">{} ({}{members}), {}, measured by kubefold {}</p>\n",
        escape(&target.url),
        escape(&target.server_version),
        report.started,
        escape(&report.version)
    );
    for scenario in &report.scenarios {
        section(&mut out, scenario);
    }
    out + "</body></html>\n"
}

fn section(out: &mut String, scenario: &ScenarioReport) {
    let shape = &scenario.shape;
    let _infallible = write!(
        out,
        "<section><h2>{}</h2><p class=\"dim\">{} {} of {} bytes; {} requests a second for {} s by {} clients, at most {} at \
         the same time</p>\n<p>{:.1} successful requests a second; failed {}; over the bound {}; abandoned {}</p>\n\
         <div class=\"plots\">",
        scenario.name.name(),
        shape.objects,
        shape.kind.plural(),
        shape.object_bytes,
        shape.rate,
        shape.duration_seconds,
        shape.clients,
        shape.in_flight_max,
        scenario.throughput,
        escape(&failures(scenario)),
        scenario.over_bound,
        scenario.abandoned
    );
    out.push_str(&latencies(&scenario.latencies));
    out.push_str(&throughput(scenario));
    out.push_str("</div><div class=\"wide\">");
    rows(out, &["latency", "count", "p50", "p90", "p99", "p99.9", "max"], &scenario.latencies, |latency| {
        let [p50, p90, p99, p999, max] = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(millis);
        vec![latency.name.clone(), latency.count.to_string(), p50, p90, p99, p999, max]
    });
    rows(out, &["process", "CPU", "CPU a request", "RSS"], &scenario.processes, |process| {
        let per_request = millis(process.cpu_micros_per_request.round() as u64);
        let rss = format!("{:.1} MiB", process.rss_bytes as f64 / 1_048_576.0);
        vec![process.name.clone(), format!("{:.2} s", process.cpu_seconds), per_request, rss]
    });
    let watch: Vec<_> = scenario.watch.into_iter().collect();
    rows(out, &["watchers", "expected", "delivered", "lost", "cut", "before the answer"], &watch, |watch| {
        [watch.watchers, watch.expected, watch.delivered, watch.lost, watch.cut, watch.early]
            .map(|count| count.to_string())
            .to_vec()
    });
    out.push_str("</div></section>\n");
}

/// A table, where there is anything to show.
fn rows<T>(out: &mut String, titles: &[&str], all: &[T], row: impl Fn(&T) -> Vec<String>) {
    if all.is_empty() {
        return;
    }
    let titles: String = titles.iter().map(|title| format!("<th>{}</th>", escape(title))).collect();
    let _infallible = write!(out, "<table><thead><tr>{titles}</tr></thead><tbody>");
    for one in all {
        let cells: String = row(one).iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _infallible = write!(out, "<tr>{cells}</tr>");
    }
    out.push_str("</tbody></table>\n");
}

/// The curve of percentiles: each step to the right is a nine more.
fn latencies(all: &[Latency]) -> String {
    let line = |latency: &Latency| {
        let latencies = latency.histogram();
        // Behind the last request there is nothing to draw.
        let most = (latency.count as f64).log10().max(0.3);
        let point = |step: u32| {
            let nines = f64::from(step) / f64::from(STEPS);
            let value = latencies.value_at_quantile(1.0 - 10_f64.powf(-nines));
            [nines / f64::from(NINES), value as f64 / 1e3]
        };
        let points = (0..=NINES * STEPS).take_while(|step| f64::from(*step) / f64::from(STEPS) <= most).map(point);
        Line { name: latency.name.clone(), points: points.collect() }
    };
    let lines: Vec<Line> = all.iter().map(line).collect();
    let across: Vec<Tick> = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]
        .iter()
        .zip(0_u32..)
        .map(|(text, nines)| Tick { at: f64::from(nines) / f64::from(NINES), text: (*text).to_owned() })
        .collect();
    plot("Latency by percentile", &lines, &across, Scale::Log, "ms")
}

fn throughput(scenario: &ScenarioReport) -> String {
    let last = scenario.timeline.len().saturating_sub(1).max(1) as f64;
    let line = |name: &str, of: fn(&crate::cli::bench::report::SecondReport) -> u64| {
        let points = scenario.timeline.iter().enumerate().map(|(at, second)| [at as f64 / last, of(second) as f64]);
        Line { name: name.to_owned(), points: points.collect() }
    };
    let mut lines = vec![line("succeeded", |second| second.succeeded)];
    if scenario.failed_count() > 0 {
        lines.push(line("failed", |second| second.failed));
    }
    let tick = |quarter: u32| {
        let at = f64::from(quarter) / 4.0;
        Tick { at, text: format!("{:.0} s", last * at) }
    };
    let across: Vec<Tick> = (0..=4).map(tick).collect();
    plot("Answers in each second", &lines, &across, Scale::Linear, "")
}

#[cfg(test)]
mod tests {
    use crate::cli::bench::report::tests::report;

    use super::*;

    /// Every tag that opens closes, in order; gives the names of all.
    fn tags(page: &str) -> Vec<&str> {
        let (mut open, mut seen) = (Vec::new(), Vec::new());
        for part in page.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("no end: {part}"));
            assert!(!text.contains('>') && tag.matches('"').count().is_multiple_of(2), "{part}");
            if tag.starts_with('!') {
                continue;
            }
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{part}");
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            seen.push(name);
        }
        assert!(open.is_empty(), "{open:?}");
        seen
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_from_outside() {
        let page = render(&report(10));
        let seen = tags(&page);
        for needed in ["svg", "polyline", "table", "style"] {
            assert!(seen.contains(&needed), "{needed}");
        }
        for outside in ["script", "link", "img", "iframe", "object", "image", "use"] {
            assert!(!seen.contains(&outside), "{outside}");
        }
        for reference in ["src=", "href=", "url(", "@import"] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert!(page.contains("https://127.0.0.1:6443/&lt;&amp;&gt;"), "names are text");
        assert!(page.contains("prefers-color-scheme:dark"));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
