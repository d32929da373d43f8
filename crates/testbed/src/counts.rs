//! Counts of instructions, and the baseline that they are held to. `benches/instructions.rs` counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Value, json};

/// A count may be above its baseline by so much. Units: percent.
pub const TOLERANCE_PERCENT: u64 = 2;

/// How many instructions each bench needs, and where that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What the counts depend on: compiler, target, valgrind, C library, CPU.
    pub counted_with: BTreeMap<String, String>,
    /// Instructions by the name of the bench.
    pub instructions: BTreeMap<String, u64>,
}

/// What the comparison with a baseline comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Every count is near its baseline.
    Same,
    /// Some need fewer instructions than their baseline says: a new baseline is due, and the gate is open.
    Better,
    /// Some need more, or the baseline is not of these benches: the gate is shut.
    Worse,
}

impl Counts {
    /// Reads what [`Counts::to_json`] wrote. `None`: it is something else.
    pub fn from_json(text: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(text).ok()?;
        let map = |name: &str| document.get(name)?.as_object().cloned();
        let counted_with = map("counted_with")?
            .into_iter()
            .map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .collect::<Option<_>>()?;
        let instructions = map("instructions")?
            .into_iter()
            .map(|(name, value)| Some((name, value.as_u64().filter(|count| *count > 0)?)))
            .collect::<Option<_>>()?;
        Some(Self { counted_with, instructions })
    }

    /// The document that stands in the repository.
    pub fn to_json(&self) -> String {
        let document = json!({"counted_with": self.counted_with, "instructions": self.instructions});
        format!("{document:#}\n")
    }

    /// Compares with a baseline, and says a line for each bench.
    pub fn compare(&self, baseline: &Self) -> (Outcome, String) {
        let (mut outcome, mut lines) = (Outcome::Same, String::new());
        let names = self.instructions.keys().chain(baseline.instructions.keys());
        for name in names.collect::<BTreeSet<_>>() {
            let (of_this, line) = match (self.instructions.get(name), baseline.instructions.get(name)) {
                (Some(count), Some(base)) => of_one(*count, *base),
                (Some(count), None) => (Outcome::Worse, format!("{count} instructions, and it has no baseline")),
                (None, base) => {
                    (Outcome::Worse, format!("not counted, and its baseline is {}", base.copied().unwrap_or_default()))
                }
            };
            outcome = outcome.max(of_this);
            writeln!(lines, "{name}: {line}").unwrap();
        }
        if outcome != Outcome::Same {
            lines.push_str(&self.differences(baseline));
        }
        (outcome, lines)
    }

    /// What the baseline was counted with, where that is something else: it may be all that differs.
    fn differences(&self, baseline: &Self) -> String {
        let mut lines = String::new();
        for (name, value) in &self.counted_with {
            let base = baseline.counted_with.get(name).map_or("unknown", String::as_str);
            if base != value {
                writeln!(lines, "note: the baseline was counted with {name} {base}, and this run with {value}")
                    .unwrap();
            }
        }
        lines
    }
}

fn of_one(count: u64, base: u64) -> (Outcome, String) {
    let ten_thousandths = (u128::from(count) * 10_000 + u128::from(base) / 2) / u128::from(base.max(1));
    let ratio = format!("{}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000);
    let hundredths = |count: u64, percent: u64| u128::from(count) * u128::from(percent);
    let (outcome, verdict) = if hundredths(count, 100) > hundredths(base, 100 + TOLERANCE_PERCENT) {
        (Outcome::Worse, format!(": WORSE by more than {TOLERANCE_PERCENT} %"))
    } else if hundredths(count, 100) < hundredths(base, 100 - TOLERANCE_PERCENT) {
        (Outcome::Better, format!(": better by more than {TOLERANCE_PERCENT} %"))
    } else {
        (Outcome::Same, String::new())
    };
    (outcome, format!("{count} instructions, baseline {base}, ratio {ratio}{verdict}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        let instructions = of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { counted_with: [("rustc".to_owned(), "1.95.0".to_owned())].into(), instructions }
    }

    #[test]
    fn more_than_two_percent_more_is_worse_and_both_numbers_are_said() {
        let baseline = counts(&[("list", 100_000), ("page", 1_000)]);
        let (outcome, lines) = counts(&[("list", 102_001), ("page", 1_000)]).compare(&baseline);
        assert_eq!(outcome, Outcome::Worse);
        assert_eq!(
            lines,
            "list: 102001 instructions, baseline 100000, ratio 1.0200: WORSE by more than 2 %\n\
             page: 1000 instructions, baseline 1000, ratio 1.0000\n"
        );
        assert_eq!(counts(&[("list", 102_000), ("page", 1_020)]).compare(&baseline).0, Outcome::Same);
    }

    #[test]
    fn more_than_two_percent_less_is_better_unless_another_is_worse() {
        let baseline = counts(&[("list", 100_000), ("page", 1_000)]);
        assert_eq!(counts(&[("list", 97_999), ("page", 1_000)]).compare(&baseline).0, Outcome::Better);
        assert_eq!(counts(&[("list", 98_000), ("page", 980)]).compare(&baseline).0, Outcome::Same);
        assert_eq!(counts(&[("list", 50_000), ("page", 1_030)]).compare(&baseline).0, Outcome::Worse);
    }

    #[test]
    fn a_bench_without_a_baseline_and_a_baseline_without_a_bench_are_refused() {
        assert_eq!(counts(&[("list", 1), ("page", 1)]).compare(&counts(&[("list", 1)])).0, Outcome::Worse);
        assert_eq!(counts(&[("list", 1)]).compare(&counts(&[("list", 1), ("page", 1)])).0, Outcome::Worse);
    }

    #[test]
    fn another_compiler_is_told_of_only_where_a_count_differs() {
        let mut baseline = counts(&[("list", 1_000)]);
        baseline.counted_with.insert("rustc".to_owned(), "1.94.0".to_owned());
        let note = "note: the baseline was counted with rustc 1.94.0, and this run with 1.95.0";
        assert!(counts(&[("list", 1_100)]).compare(&baseline).1.contains(note));
        assert!(!counts(&[("list", 1_000)]).compare(&baseline).1.contains("note:"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = counts(&[("list", 100_000)]);
        assert_eq!(Counts::from_json(&written.to_json()), Some(written));
        assert_eq!(Counts::from_json(r#"{"counted_with": {}, "instructions": {"list": 0}}"#), None);
        assert_eq!(Counts::from_json("{}"), None);
    }
}
