//! Schedules of cron jobs.
//!
//! Source: robfig/cron v3 `parser.go`, `spec.go`, `constantdelay.go`, which Kubernetes reads them with.

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use kubefold_wire::{duration, golang::Quoted};

/// Years that are looked through for a time.
const YEARS_MAX: i16 = 5;
/// Set in a field that has a star: every value is a value of it.
const STAR: u64 = 1 << 63;

/// A field of a schedule: its lowest and highest value, and names of values.
#[derive(Clone, Copy)]
struct Bounds {
    lowest: u32,
    highest: u32,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { lowest: 0, highest: 59, names: &[] };
const HOURS: Bounds = Bounds { lowest: 0, highest: 23, names: &[] };
const DAYS: Bounds = Bounds { lowest: 1, highest: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    lowest: 1,
    highest: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { lowest: 0, highest: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Why a text is no schedule, as the library says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CronError(String);

fn refused<T>(why: String) -> Result<T, CronError> {
    Err(CronError(why))
}

/// The times of a cron job.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    zone: TimeZone,
    times: Times,
}

#[derive(Clone, Debug)]
enum Times {
    /// So many seconds after the last.
    Every(i64),
    /// A bit for each value of a field.
    Fields { minutes: u64, hours: u64, days: u64, months: u64, weekdays: u64 },
}

impl Schedule {
    /// Reads `*/5 * * * *`, `@hourly`, `@every 90s`, `TZ=Europe/Berlin 0 9 * * *`. Without a zone it is UTC.
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        if text.is_empty() {
            return refused("empty spec string".to_owned());
        }
        let (zone, rest) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            None => (TimeZone::UTC, text),
            Some(rest) => {
                let Some((name, rest)) = rest.split_once(' ') else {
                    // The library panics, and Kubernetes says so.
                    let why = "invalid schedule format: runtime error: slice bounds out of range [:-1]";
                    return refused(why.to_owned());
                };
                (zone(name)?, rest.trim())
            }
        };
        let times = match rest {
            "@yearly" | "@annually" => fields("0 0 1 1 *"),
            "@monthly" => fields("0 0 1 * *"),
            "@weekly" => fields("0 0 * * 0"),
            "@daily" | "@midnight" => fields("0 0 * * *"),
            "@hourly" => fields("0 * * * *"),
            _ if rest.starts_with('@') => every(rest),
            _ => fields(rest),
        }?;
        Ok(Self { zone, times })
    }

    /// The first time after another.
    pub(crate) fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let (minutes, hours, months) = match self.times {
            Times::Every(seconds) => {
                let next = time.checked_add(SignedDuration::from_secs(seconds)).ok()?;
                return Timestamp::from_second(next.as_second()).ok();
            }
            Times::Fields { minutes, hours, months, .. } => (minutes, hours, months),
        };
        let start = time.to_zoned(self.zone.clone());
        let mut at = start.checked_add(SignedDuration::from_mins(1)).ok()?;
        at = at.with().second(0).subsec_nanosecond(0).build().ok()?;
        let last = start.year().saturating_add(YEARS_MAX);
        while at.year() <= last {
            if !has(months, at.month()) {
                at = at.last_of_month().ok()?.tomorrow().ok()?.start_of_day().ok()?;
            } else if !self.has_day(&at) {
                at = at.tomorrow().ok()?.start_of_day().ok()?;
            } else if !has(hours, at.hour()) {
                at = at.with().minute(0).build().ok()?.checked_add(SignedDuration::from_hours(1)).ok()?;
            } else if !has(minutes, at.minute()) {
                at = at.checked_add(SignedDuration::from_mins(1)).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }

    /// Where both days are restricted, either may hold.
    ///
    /// Source: `dayMatches`.
    fn has_day(&self, at: &Zoned) -> bool {
        let Times::Fields { days, weekdays, .. } = self.times else { return true };
        let (day, weekday) = (has(days, at.day()), has(weekdays, at.weekday().to_sunday_zero_offset()));
        if (days | weekdays) & STAR != 0 { day && weekday } else { day || weekday }
    }
}

fn zone(name: &str) -> Result<TimeZone, CronError> {
    match name {
        "" | "UTC" | "Local" => Ok(TimeZone::UTC),
        _ => {
            TimeZone::get(name).or_else(|_| refused(format!("provided bad location {name}: unknown time zone {name}")))
        }
    }
}

fn every(text: &str) -> Result<Times, CronError> {
    let Some(length) = text.strip_prefix("@every ") else {
        return refused(format!("unrecognized descriptor: {text}"));
    };
    match duration::parse(length) {
        Ok(nanos) => Ok(Times::Every((nanos / 1_000_000_000).max(1))),
        Err(why) => refused(format!("failed to parse duration {text}: {why}")),
    }
}

fn fields(text: &str) -> Result<Times, CronError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
        return refused(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    Ok(Times::Fields {
        minutes: field(minutes, MINUTES)?,
        hours: field(hours, HOURS)?,
        days: field(days, DAYS)?,
        months: field(months, MONTHS)?,
        weekdays: field(weekdays, WEEKDAYS)?,
    })
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

/// Source: `getField`.
fn field(text: &str, bounds: Bounds) -> Result<u64, CronError> {
    let ranges = text.split(',').filter(|range| !range.is_empty());
    ranges.map(|text| range(text, bounds)).try_fold(0, |bits, range| Ok(bits | range?))
}

/// Source: `getRange`.
fn range(text: &str, bounds: Bounds) -> Result<u64, CronError> {
    let mut parts = text.split('/');
    let ends: Vec<&str> = parts.next().unwrap_or("").split('-').collect();
    let steps: Vec<&str> = parts.collect();
    let first = ends.first().copied().unwrap_or("");
    let is_star = matches!(first, "*" | "?");
    let (lowest, highest) = (u64::from(bounds.lowest), u64::from(bounds.highest));
    let (start, mut end) = if is_star {
        (lowest, highest)
    } else {
        let start = value(first, bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, last] => (start, value(last, bounds)?),
            _ => return refused(format!("too many hyphens: {text}")),
        }
    };
    let step = match steps.as_slice() {
        [] => 1,
        [step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = highest;
            }
            step
        }
        _ => return refused(format!("too many slashes: {text}")),
    };
    if start < lowest {
        return refused(format!("beginning of range ({start}) below minimum ({lowest}): {text}"));
    }
    if end > highest {
        return refused(format!("end of range ({end}) above maximum ({highest}): {text}"));
    }
    if start > end {
        return refused(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return refused(format!("step of range should be a positive number: {text}"));
    }
    let values = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let bits = values.fold(0, |bits, value| bits | 1 << value);
    Ok(if is_star && step == 1 { bits | STAR } else { bits })
}

/// Source: `parseIntOrName`.
fn value(text: &str, bounds: Bounds) -> Result<u64, CronError> {
    let named = bounds.names.iter().zip(u64::from(bounds.lowest)..).find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |(_, value)| Ok(value))
}

/// Source: `mustParseInt`.
fn number(text: &str) -> Result<u64, CronError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match text.parse::<i64>() {
        Ok(number) => {
            u64::try_from(number).or_else(|_| refused(format!("negative number ({number}) not allowed: {text}")))
        }
        Err(error) => {
            let why = match error.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            refused(format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", Quoted(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        Schedule::parse(schedule).unwrap().after(after.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_time_of_a_schedule() {
        let after = "2026-02-27T10:07:30Z";
        assert_eq!(next("*/5 * * * *", after), "2026-02-27T10:10:00Z");
        assert_eq!(next("0 3 * * *", after), "2026-02-28T03:00:00Z");
        assert_eq!(next("30 8 1 * *", after), "2026-03-01T08:30:00Z");
        assert_eq!(next("0 0 * * sun", after), "2026-03-01T00:00:00Z");
        assert_eq!(next("0 0 29 feb *", after), "2028-02-29T00:00:00Z");
        assert_eq!(next("0 0 13 * 5", after), "2026-03-06T00:00:00Z", "a day of the month or of the week");
        assert_eq!(next("@hourly", after), "2026-02-27T11:00:00Z");
        assert_eq!(next("@every 1h30m", after), "2026-02-27T11:37:30Z");
        assert_eq!(next("@every 1500ms", "2026-02-27T10:07:30.7Z"), "2026-02-27T10:07:31Z");
        assert_eq!(next("TZ=Europe/Berlin 0 9 * * *", after), "2026-02-28T08:00:00Z");
        assert_eq!(next("59 23 31 12 *", "2026-12-31T23:59:00Z"), "2027-12-31T23:59:00Z");
        assert!(Schedule::parse("59 23 31 2 *").unwrap().after(after.parse().unwrap()).is_none());
    }

    /// Source: robfig/cron v3 `spec.go`: Sunday is 0 alone; `parser.go`: a star with a step above 1 is no star.
    #[test]
    fn where_copies_differed() {
        assert_eq!(Schedule::parse("0 0 * * 7").unwrap_err().to_string(), "end of range (7) above maximum (6): 7");
        let after = "2026-03-01T00:00:00Z";
        assert_eq!(next("0 0 */2 * mon", after), "2026-03-02T00:00:00Z", "an odd day or a Monday");
        assert_eq!(next("0 0 */1 * mon", "2026-03-02T00:00:00Z"), "2026-03-09T00:00:00Z", "every day that is a Monday");
        assert_eq!(next("0 0 1,* * mon", "2026-03-02T00:00:00Z"), "2026-03-09T00:00:00Z");
    }

    #[test]
    fn schedules_are_read_as_the_library_reads_them() {
        for good in
            ["* * * * *", "*/5 0-3,7 1 jan-MAR mon", "@hourly", "@every 1h30m", "0 0 ? * 0/2", "CRON_TZ=UTC @daily"]
        {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("TZ=Nowhere/Town * * * * *", "provided bad location Nowhere/Town: unknown time zone Nowhere/Town"),
        ] {
            assert_eq!(Schedule::parse(bad).unwrap_err().to_string(), why, "{bad}");
        }
    }
}
