//! Schedules of cron jobs.
//!
//! Source: robfig/cron v3 `parser.go`, which Kubernetes reads them with.

/// A field of a schedule: its lowest and highest value, and names of values.
type Field = (i64, i64, &'static [&'static str]);

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, MONTHS), (0, 6, DAYS)];

/// Errors: why it is no schedule, as the library says it.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let schedule = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest.trim()),
        None => schedule,
    };
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let shown = fields.join(" ");
        return Err(format!("expected exactly {} fields, found {}: [{shown}]", FIELDS.len(), fields.len()));
    }
    let ranges = fields.iter().zip(FIELDS).flat_map(|(text, field)| text.split(',').map(move |range| (range, field)));
    ranges.filter(|(text, _)| !text.is_empty()).try_for_each(|(text, field)| range(text, field))
}

fn descriptor(schedule: &str) -> Result<(), String> {
    match schedule {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match schedule.strip_prefix("@every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => Err(format!("failed to parse duration {schedule}: time: invalid duration {duration:?}")),
            None => Err(format!("unrecognized descriptor: {schedule}")),
        },
    }
}

/// As Go writes durations: `1h30m`.
fn is_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let after = rest.get(number..).unwrap_or("");
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().rev().find(|unit| {
            after
                .strip_prefix(**unit)
                .is_some_and(|next| next.is_empty() || next.starts_with(|c: char| c.is_ascii_digit()))
        });
        let (Some(unit), true) = (unit, number > 0) else { return false };
        rest = after.get(unit.len()..).unwrap_or("");
    }
    !text.is_empty()
}

fn range(text: &str, (lowest, highest, names): Field) -> Result<(), String> {
    let mut parts = text.split('/');
    let bounds: Vec<&str> = parts.next().unwrap_or("").split('-').collect();
    let steps: Vec<&str> = parts.collect();
    let first = bounds.first().copied().unwrap_or("");
    let (start, mut end) = if matches!(first, "*" | "?") {
        (lowest, highest)
    } else {
        let start = number(first, lowest, names)?;
        match bounds.as_slice() {
            [_] => (start, start),
            [_, last] => (start, number(last, lowest, names)?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match steps.as_slice() {
        [] => 1,
        [step] => {
            let step = number(step, 0, &[])?;
            if bounds.len() == 1 {
                end = highest;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < lowest {
        return Err(format!("beginning of range ({start}) below minimum ({lowest}): {text}"));
    }
    if end > highest {
        return Err(format!("end of range ({end}) above maximum ({highest}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number(text: &str, lowest: i64, names: &[&str]) -> Result<i64, String> {
    let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    if let Some(index) = named.and_then(|index| i64::try_from(index).ok()) {
        return Ok(index + lowest);
    }
    let number: i64 = text
        .parse()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    if number < 0 { Err(format!("negative number ({number}) not allowed: {text}")) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_are_read_as_the_library_reads_them() {
        for good in ["* * * * *", "*/5 0-3,7 1 jan-MAR mon", "@hourly", "@every 1h30m", "0 0 ? * 0/2"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
