//! Durations of the configuration.

use std::time::Duration;

/// Reads a duration as Go writes them, such as `1m30s`; negative ones, and those that do not fit, are `None`.
pub(super) fn parse(text: &str) -> Option<Duration> {
    u64::try_from(kubefold_wire::duration::parse(text).ok()?).ok().map(Duration::from_nanos)
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
