//! Two reports side by side: how many times worse the second is, by scenario and measure.

use std::path::PathBuf;

use anyhow::bail;

use crate::cli::{
    bench::{
        plan::Scenario,
        report::{Report, ScenarioReport},
    },
    paint::{self, Paint, paint},
    print,
    status::table,
};

/// What to do with runs of other shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shapes {
    MustBeEqual,
    MayDiffer,
}

/// What is compared, and how.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) first: PathBuf,
    pub(super) second: PathBuf,
    /// A measure that is more times worse than this fails.
    pub(super) fail_above: Option<f64>,
    pub(super) shapes: Shapes,
}

/// One measure of both reports.
#[derive(Debug, PartialEq)]
struct Ratio {
    scenario: Scenario,
    measure: String,
    first: f64,
    second: f64,
    /// How many times worse the second is; below 1 it is better. `None` where the first is 0 and says nothing.
    worse: Option<f64>,
}

/// Which values are better.
#[derive(Clone, Copy)]
enum Better {
    Less,
    More,
}

impl Compared {
    /// Prints the ratios.
    ///
    /// Errors: a report cannot be read; they have nothing in common; a ratio is above the limit.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (first, second) = (Report::read(&self.first)?, Report::read(&self.second)?);
        let ratios = ratios(&first, &second, self.shapes)?;
        let is_above = |ratio: &Ratio| self.fail_above.zip(ratio.worse).is_some_and(|(limit, worse)| worse > limit);
        let colours = paint::on_stdout();
        let mut rows = vec![["SCENARIO", "MEASURE", "FIRST", "SECOND", "TIMES WORSE"].map(str::to_owned)];
        rows.extend(ratios.iter().map(|ratio| {
            let worse = ratio.worse.map_or_else(|| "-".to_owned(), |worse| format!("{worse:.3}"));
            let worse = if is_above(ratio) { paint(&worse, Paint::Bad, colours) } else { worse };
            let [first, second] = [ratio.first, ratio.second].map(|value| format!("{value:.2}"));
            [ratio.scenario.name(), ratio.measure.clone(), first, second, worse]
        }));
        print(&table(&rows))?;
        let above: Vec<String> = ratios.iter().filter(|ratio| is_above(ratio)).map(Ratio::sentence).collect();
        if let Some(limit) = self.fail_above.filter(|_| !above.is_empty()) {
            let second = self.second.display();
            bail!("{second} is more than {limit} times worse in {} measures: {}", above.len(), above.join("; "));
        }
        Ok(())
    }
}

impl Ratio {
    fn new(scenario: Scenario, measure: String, values: [f64; 2], better: Better) -> Self {
        let [first, second] = values;
        let worse = match better {
            Better::Less if first > 0.0 => Some(second / first),
            Better::More if first > 0.0 => Some(if second > 0.0 { first / second } else { f64::INFINITY }),
            Better::Less | Better::More => None,
        };
        Self { scenario, measure, first, second, worse }
    }

    fn sentence(&self) -> String {
        let worse = self.worse.unwrap_or_default();
        format!("{} {} is {worse:.2} times worse", self.scenario.name(), self.measure)
    }
}

/// All measures that both reports have.
fn ratios(first: &Report, second: &Report, shapes: Shapes) -> anyhow::Result<Vec<Ratio>> {
    let mut ratios = Vec::new();
    for one in &first.scenarios {
        let name = one.name.name();
        let Some(other) = second.scenarios.iter().find(|other| other.name == one.name) else {
            bail!("the second report has no scenario {name}; run both with the same scenarios");
        };
        if shapes == Shapes::MustBeEqual && one.shape != other.shape {
            bail!(
                "the runs of {name} have another shape ({}); run both with the same flags, or compare them nevertheless with \
                 --any-shape",
                differences(one, other)?
            );
        }
        compare(one, other, &mut ratios);
    }
    if let Some(only) = second.scenarios.iter().find(|one| first.scenarios.iter().all(|other| other.name != one.name)) {
        bail!("the first report has no scenario {}; run both with the same scenarios", only.name.name());
    }
    Ok(ratios)
}

fn compare(one: &ScenarioReport, other: &ScenarioReport, ratios: &mut Vec<Ratio>) {
    let mut add = |measure: String, first: f64, second: f64, better| {
        ratios.push(Ratio::new(one.name, measure, [first, second], better));
    };
    for latency in &one.latencies {
        let Some(same) = other.latencies.iter().find(|same| same.name == latency.name) else { continue };
        let name = &latency.name;
        add(format!("{name} p50 (us)"), latency.p50 as f64, same.p50 as f64, Better::Less);
        add(format!("{name} p99 (us)"), latency.p99 as f64, same.p99 as f64, Better::Less);
    }
    add("throughput (/s)".into(), one.throughput, other.throughput, Better::More);
    // A server that refuses is fast; this is where it shows.
    let share = |run: &ScenarioReport| run.succeeded as f64 * 100.0 / run.planned.max(1) as f64;
    add("success (%)".into(), share(one), share(other), Better::More);
    if let (Some(first), Some(second)) = (one.watch, other.watch) {
        let share = |delivered: u64, expected: u64| delivered as f64 * 100.0 / expected.max(1) as f64;
        let first = share(first.delivered, first.expected);
        add("events delivered (%)".into(), first, share(second.delivered, second.expected), Better::More);
    }
    for process in &one.processes {
        let Some(same) = other.processes.iter().find(|same| same.name == process.name) else { continue };
        let name = &process.name;
        let [first, second] = [process, same].map(|process| process.cpu_micros_per_request);
        add(format!("{name} CPU/request (us)"), first, second, Better::Less);
        let [first, second] = [process, same].map(|process| process.rss_bytes as f64 / 1_048_576.0);
        add(format!("{name} RSS (MiB)"), first, second, Better::Less);
    }
}

/// The names and values of what differs in two shapes.
fn differences(one: &ScenarioReport, other: &ScenarioReport) -> anyhow::Result<String> {
    let [first, second] = [serde_json::to_value(&one.shape)?, serde_json::to_value(&other.shape)?];
    let fields = first.as_object().into_iter().flatten();
    let differing = fields.filter_map(|(name, value)| {
        let other = second.get(name)?;
        (value != other).then(|| format!("{name} {value} and {other}"))
    });
    Ok(differing.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::report::tests::report;

    fn worse(first: &Report, second: &Report, measure: &str) -> Option<f64> {
        let ratios = ratios(first, second, Shapes::MustBeEqual).unwrap();
        ratios.into_iter().find(|ratio| ratio.measure == measure).unwrap().worse
    }

    fn refused(first: &Report, second: &Report, shapes: Shapes) -> String {
        ratios(first, second, shapes).unwrap_err().to_string()
    }

    #[test]
    fn more_is_worse_for_latencies_and_better_for_throughput() {
        let (first, mut second) = (report(10), report(20));
        assert!((worse(&first, &second, "get p50 (us)").unwrap() - 2.0).abs() < 0.01);
        assert!((worse(&second, &first, "get p99 (us)").unwrap() - 0.5).abs() < 0.01);
        second.scenarios[0].throughput = first.scenarios[0].throughput / 4.0;
        assert_eq!(worse(&first, &second, "throughput (/s)"), Some(4.0));
        second.scenarios[0].succeeded /= 2;
        assert_eq!(worse(&first, &second, "success (%)"), Some(2.0));
        second.scenarios[0].processes[0].rss_bytes *= 3;
        assert_eq!(worse(&first, &second, "kubefold RSS (MiB)"), Some(3.0));
        second.scenarios[0].watch.as_mut().unwrap().delivered = 0;
        assert_eq!(worse(&first, &second, "events delivered (%)"), Some(f64::INFINITY));
        // Ticks of 10 ms: no ticks in the first says nothing of the second.
        let mut idle = first.clone();
        idle.scenarios[0].processes[0].cpu_micros_per_request = 0.0;
        assert_eq!(worse(&idle, &first, "kubefold CPU/request (us)"), None);
    }

    #[test]
    fn runs_of_another_shape_are_not_compared_unless_asked() {
        let (first, mut second) = (report(10), report(10));
        second.scenarios[0].shape.objects = 99;
        let said = refused(&first, &second, Shapes::MustBeEqual);
        assert!(said.contains("objects 10 and 99") && said.contains("--any-shape"), "{said}");
        assert!(ratios(&first, &second, Shapes::MayDiffer).is_ok());
        second.scenarios[0].name = Scenario::List;
        assert!(refused(&first, &second, Shapes::MayDiffer).contains("no scenario get"));
        second.scenarios.clear();
        assert!(refused(&second, &first, Shapes::MayDiffer).contains("the first report has no scenario get"));
    }

    #[test]
    fn a_ratio_above_the_limit_fails_and_says_which() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [("a.json", 10), ("b.json", 12)].map(|(name, micros)| {
            let path = folder.path().join(name);
            std::fs::write(&path, report(micros).json().unwrap()).unwrap();
            path
        });
        let compared = |fail_above| Compared {
            first: first.clone(),
            second: second.clone(),
            fail_above,
            shapes: Shapes::MayDiffer,
        };
        let said = compared(Some(1.1)).run().unwrap_err().to_string();
        assert!(said.contains("b.json is more than 1.1 times worse in 2 measures: get get p50 (us) is 1.20"), "{said}");
        assert!(compared(None).run().is_ok());
    }
}
