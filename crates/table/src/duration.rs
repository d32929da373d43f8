//! Durations as people read them, and the times that they begin at.
//!
//! Source: kubernetes/apimachinery `pkg/util/duration/duration.go`.

use std::io::Write as _;

const MICROS: i64 = 1_000_000;
const DAYS_OF_A_YEAR: i64 = 365;

/// Two or three significant figures of a duration of so many microseconds, as kubectl prints ages: `5m20s`.
pub fn human(micros: i64) -> String {
    let mut out = Vec::new();
    write_human(micros, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends two or three significant figures of a duration of so many microseconds.
pub(super) fn write_human(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros / MICROS;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    // Writing to memory has no way to fail.
    let _infallible = match () {
        // Clocks differ: a moment ahead counts as now.
        () if seconds < -1 => write!(out, "<invalid>"),
        () if seconds < 0 => write!(out, "0s"),
        () if seconds < 120 => write!(out, "{seconds}s"),
        () if minutes < 10 => two(out, minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => write!(out, "{minutes}m"),
        () if hours < 8 => two(out, hours, "h", minutes % 60, "m"),
        () if hours < 48 => write!(out, "{hours}h"),
        () if hours < 192 => two(out, days, "d", hours % 24, "h"),
        () if days < 2 * DAYS_OF_A_YEAR => write!(out, "{days}d"),
        () if days < 8 * DAYS_OF_A_YEAR => two(out, days / DAYS_OF_A_YEAR, "y", days % DAYS_OF_A_YEAR, "d"),
        () => write!(out, "{}y", days / DAYS_OF_A_YEAR),
    };
}

fn two(out: &mut Vec<u8>, large: i64, unit: &str, small: i64, small_unit: &str) -> std::io::Result<()> {
    if small == 0 { write!(out, "{large}{unit}") } else { write!(out, "{large}{unit}{small}{small_unit}") }
}

/// A time of RFC 3339 in microseconds since 1970. `None`: it is malformed.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    Some(text.parse::<jiff::Timestamp>().ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn human(seconds: i64) -> String {
        super::human(seconds * MICROS)
    }

    /// The table of `duration_test.go`.
    #[test]
    fn durations_are_those_of_apimachinery() {
        let (minute, hour, day, year) = (60, 3600, 86_400, 365 * 86_400);
        for (seconds, wanted) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (190, "3m10s"),
            (10 * minute, "10m"),
            (47 * minute, "47m"),
            (179 * minute + 59, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 59, "3h"),
            (3 * hour + minute, "3h1m"),
            (8 * hour - 1, "7h59m"),
            (8 * hour, "8h"),
            (25 * hour, "25h"),
            (48 * hour, "2d"),
            (2 * day + 2 * hour, "2d2h"),
            (8 * day - 1, "7d23h"),
            (8 * day, "8d"),
            (2 * year - 1, "729d"),
            (2 * year, "2y"),
            (2 * year + 3 * day, "2y3d"),
            (8 * year - 1, "7y364d"),
            (8 * year, "8y"),
            (8 * year + 364 * day, "8y"),
        ] {
            assert_eq!(human(seconds), wanted, "{seconds}");
        }
    }

    #[test]
    fn times_that_no_calendar_has_are_malformed() {
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Some(MICROS));
        assert_eq!(parse_time("2026-11-21T12:13:14.500000Z").map(|at| at % MICROS), Some(500_000));
        for text in ["yesterday", "2026-02-31T00:00:00Z", "2026-01-01T99:00:00Z"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
