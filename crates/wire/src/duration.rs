//! Durations as Go reads and prints them: `1h30m`, `1.5s`, `250ms`.
//!
//! Source: Go `src/time/format.go` `ParseDuration`, `src/time/time.go` `Duration.String`.

/// Go's int64 of nanoseconds ends here; its negative counterpart is one further.
const NANOS_MAX: u64 = 1 << 63;

/// Why a text is no duration, in Go's sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not have the form of a duration, or is longer than 292 years.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A number has an unknown unit.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Reads a duration.
///
/// Units: nanoseconds.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let number = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| invalid())? };
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let nanos = unit_nanos(unit)
            .ok_or_else(|| DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() })?;
        let part = number.checked_mul(nanos).filter(|part| *part <= NANOS_MAX).ok_or_else(invalid)?;
        total = total
            .checked_add(part + fraction_nanos(fraction, nanos))
            .filter(|total| *total <= NANOS_MAX)
            .ok_or_else(invalid)?;
        rest = after;
    }
    if negative { Ok(0_i64.wrapping_sub_unsigned(total)) } else { i64::try_from(total).map_err(|_| invalid()) }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// A part of a unit, as Go's floating-point arithmetic has it. Digits that an int64 does not hold are dropped.
///
/// Source: `leadingFraction`.
fn fraction_nanos(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        let next = number.checked_mul(10).map(|tens| tens + u64::from(digit - b'0'));
        let Some(next) = next.filter(|next| number <= (NANOS_MAX - 1) / 10 && *next <= NANOS_MAX) else { break };
        number = next;
        scale *= 10.0;
    }
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as Go does"
    )]
    let nanos = (number as f64 * (unit as f64 / scale)) as u64;
    nanos
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Prints nanoseconds as Go's `time.Duration.String`: "1h30m0.5s", "1.5µs", "0s".
pub fn print(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(size, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(size, 6)),
        _ => {
            let minutes = size / 60_000_000_000;
            let seconds = decimal(size % 60_000_000_000, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Prints `value` divided by ten to the power of `places`, without trailing zeros.
fn decimal(value: u64, places: u32) -> String {
    let scale = 10_u64.pow(places);
    let width = usize::try_from(places).unwrap_or_default();
    let text = format!("{}.{:0width$}", value / scale, value % scale);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: Go `src/time/time_test.go`, `parseDurationTests`, `parseDurationErrorTests`.
    #[test]
    fn durations_as_go_reads_them() {
        const SECOND: i64 = 1_000_000_000;
        for (text, nanos) in [
            ("0", 0),
            ("5s", 5 * SECOND),
            ("30s", 30 * SECOND),
            ("1478s", 1478 * SECOND),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("-0", 0),
            ("+0", 0),
            ("5.0s", 5 * SECOND),
            ("5.6s", 5_600_000_000),
            ("5.s", 5 * SECOND),
            (".5s", 500_000_000),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("15m", 900 * SECOND),
            ("16h", 57_600 * SECOND),
            ("3h30m", 12_600 * SECOND),
            ("10.5s4m", 250_500_000_000),
            ("-2m3.4s", -123_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("0.100000000000000000000h", 360 * SECOND),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
        for text in ["", "-", ".", "-.", ".s", "+.s", "x", "9223372036854775808ns", "9223372036854775.808us", "1e3s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("3").unwrap_err().to_string(), r#"time: missing unit in duration "3""#);
        assert_eq!(parse("1d").unwrap_err().to_string(), r#"time: unknown unit "d" in duration "1d""#);
        assert_eq!(parse("x").unwrap_err().to_string(), r#"time: invalid duration "x""#);
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for (nanos, text) in [(0, "0s"), (1_500, "1.5µs"), (5_400_500_000_000, "1h30m0.5s"), (-2_000_000, "-2ms")] {
            assert_eq!((print(nanos).as_str(), parse(text)), (text, Ok(nanos)));
        }
    }
}
