//! Schedules of five fields: minutes, hours, days of the month, months, days of the week.
//!
//! Source: robfig/cron `parser.go`, `spec.go`, that Kubernetes uses.

use jiff::{Span, Timestamp, Zoned, tz::TimeZone};

/// Years that are looked through for a time.
const YEARS_MAX: i16 = 5;

/// The times of a cron job.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Only one of the days is restricted: both must hold. Otherwise either may.
    any_day: bool,
    every: Option<i64>,
    zone: TimeZone,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads `*/5 * * * *`, `@hourly`, `@every 90s`.
    pub(super) fn parse(text: &str, zone: &str) -> Result<Self, String> {
        let zone =
            if zone.is_empty() { TimeZone::UTC } else { TimeZone::get(zone).map_err(|error| error.to_string())? };
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let seconds = seconds(every).filter(|seconds| *seconds > 0);
            let every = Some(seconds.ok_or_else(|| format!("failed to parse duration {text}"))?);
            let all = u64::MAX;
            return Ok(Self {
                minutes: all,
                hours: all,
                days: all,
                months: all,
                weekdays: all,
                any_day: false,
                every,
                zone,
            });
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: [{text}]", fields.len()));
        };
        let weekday_bits = bits(weekdays, 0, 7, &WEEKDAYS)?;
        Ok(Self {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, &MONTHS)?,
            // 7 is Sunday as well.
            weekdays: weekday_bits | (weekday_bits >> 7),
            any_day: !is_star(days) && !is_star(weekdays),
            every: None,
            zone,
        })
    }

    /// The first time after another.
    pub(super) fn after(&self, time: Timestamp) -> Option<Timestamp> {
        if let Some(every) = self.every {
            return time.checked_add(Span::new().seconds(every)).ok();
        }
        let start = time.to_zoned(self.zone.clone());
        let mut at = start.checked_add(Span::new().minutes(1)).ok()?;
        at = at.with().second(0).subsec_nanosecond(0).build().ok()?;
        let last = start.year().saturating_add(YEARS_MAX);
        while at.year() <= last {
            if !has(self.months, at.month()) {
                at = at.first_of_month().ok()?.checked_add(Span::new().months(1)).ok()?.start_of_day().ok()?;
            } else if !self.has_day(&at) {
                at = at.checked_add(Span::new().days(1)).ok()?.start_of_day().ok()?;
            } else if !has(self.hours, at.hour()) {
                at = at.with().minute(0).build().ok()?.checked_add(Span::new().hours(1)).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(Span::new().minutes(1)).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }

    fn has_day(&self, at: &Zoned) -> bool {
        let (day, weekday) = (has(self.days, at.day()), has(self.weekdays, at.weekday().to_sunday_zero_offset()));
        if self.any_day { day || weekday } else { day && weekday }
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

fn is_star(field: &str) -> bool {
    field.starts_with('*') || field == "?"
}

fn bits(field: &str, first: u32, last: u32, names: &[&str]) -> Result<u64, String> {
    let mut bits = 0;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let number = |text: &str| -> Result<u32, String> {
            let lower = text.to_lowercase();
            let named = names.iter().position(|name| *name == lower).and_then(|place| u32::try_from(place).ok());
            let named = named.map(|place| place + first);
            named
                .or_else(|| text.parse().ok())
                .filter(|number| (first..=last).contains(number))
                .ok_or_else(|| format!("failed to parse int from {text}: {part}"))
        };
        let (from, to) = match range.split_once('-') {
            _ if is_star(range) => (first, last),
            Some((from, to)) => (number(from)?, number(to)?),
            None if step.is_some() => (number(range)?, last),
            None => (number(range)?, number(range)?),
        };
        let step: usize =
            step.map_or(Ok(1), |step| step.parse().map_err(|_| format!("failed to parse int from {step}: {part}")))?;
        if step == 0 || from > to {
            return Err(format!("beginning of range ({from}) beyond end of range ({to}): {part}"));
        }
        bits |= (from..=to).step_by(step).fold(0, |bits, value| bits | 1_u64 << value);
    }
    Ok(bits)
}

/// Of `1h30m`.
fn seconds(text: &str) -> Option<i64> {
    let span: Span = text.parse().ok()?;
    Some(span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, zone: &str, after: &str) -> String {
        let schedule = Schedule::parse(schedule, zone).unwrap();
        schedule.after(after.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_time_of_a_schedule() {
        let after = "2026-02-27T10:07:30Z";
        assert_eq!(next("*/5 * * * *", "", after), "2026-02-27T10:10:00Z");
        assert_eq!(next("0 3 * * *", "", after), "2026-02-28T03:00:00Z");
        assert_eq!(next("30 8 1 * *", "", after), "2026-03-01T08:30:00Z");
        assert_eq!(next("0 0 * * sun", "", after), "2026-03-01T00:00:00Z");
        assert_eq!(next("0 0 * * 7", "", after), "2026-03-01T00:00:00Z");
        assert_eq!(next("0 0 29 feb *", "", after), "2028-02-29T00:00:00Z");
        assert_eq!(next("0 0 13 * 5", "", after), "2026-03-06T00:00:00Z", "a day of the month or of the week");
        assert_eq!(next("@hourly", "", after), "2026-02-27T11:00:00Z");
        assert_eq!(next("@every 1h30m", "", after), "2026-02-27T11:37:30Z");
        assert_eq!(next("0 9 * * *", "Europe/Berlin", after), "2026-02-28T08:00:00Z");
        assert_eq!(next("59 23 31 12 *", "", "2026-12-31T23:59:00Z"), "2027-12-31T23:59:00Z");
    }

    #[test]
    fn what_is_no_schedule() {
        for text in ["", "* * * *", "60 * * * *", "5-1 * * * *", "*/0 * * * *", "a * * * *", "@every x"] {
            assert!(Schedule::parse(text, "").is_err(), "{text}");
        }
        assert!(Schedule::parse("* * * * *", "Nowhere/Town").is_err());
    }
}
