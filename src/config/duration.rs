//! Durations as Go writes them: `5s`, `1m30s`, `250ms`, `1.5h`.

use std::time::Duration;

/// Reads a Go duration; negative ones, and those that do not fit, are `None`.
///
/// Source: Go `time.ParseDuration`.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = number.parse::<f64>().ok()? * unit_seconds(unit)?;
        total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_and_everything_else_is_not() {
        let good =
            [("5s", 5000), ("1m30s", 90_000), ("250ms", 250), ("1.5h", 5_400_000), ("0", 0), ("1h2m3s4ms", 3_723_004)];
        for (text, millis) in good {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 s", "5d", "1m30", ".s", "5ss", "1e3s", "99999999999999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
