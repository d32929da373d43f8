//! When objects move by themselves.

use std::time::Duration;

use serde_saphyr::Spanned;

use super::refuse;
use crate::config::{
    Failover, PolicyProblem, Rebalance,
    checked::Checked,
    duration,
    raw::{RawFailover, RawRebalance},
};

/// As long as a person waits for it at most, and as short as a member may be away for a restart.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(168);
/// Less than this is not worth a rollout. Units: percent.
const THRESHOLD: u32 = 10;

pub(super) fn failover(raw: &RawFailover) -> Checked<Failover> {
    Ok(Failover { after: interval("after", &raw.after)?, force: raw.force })
}

pub(super) fn rebalance(raw: &RawRebalance) -> Checked<Rebalance> {
    let threshold = raw.threshold.as_ref().map(percentage).transpose()?.unwrap_or(THRESHOLD);
    Ok(Rebalance { every: interval("every", &raw.every)?, threshold })
}

fn interval(field: &'static str, at: &Spanned<String>) -> Checked<Duration> {
    match duration::parse(&at.value).filter(|value| INTERVALS.contains(value)) {
        Some(value) => Ok(value),
        None => refuse(at, PolicyProblem::Interval { field, value: at.value.clone() }),
    }
}

fn percentage(at: &Spanned<String>) -> Checked<u32> {
    let number = at.value.strip_suffix('%').and_then(|digits| digits.parse().ok());
    match number.filter(|number| *number <= 100) {
        Some(number) => Ok(number),
        None => refuse(at, PolicyProblem::Threshold { threshold: at.value.clone() }),
    }
}
