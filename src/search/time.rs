//! Times as a search takes them.

use jiff::{Timestamp, civil, tz::TimeZone};

use crate::search::SearchError;
use kubefold_wire::duration;

/// Reads a point in time: RFC 3339, `2006-01-02 15:04:05` and `2006-01-02` in UTC, Unix time of 10 digits (seconds) or 13
/// (milliseconds), or how long ago (`90m`, `36h`), counted from `now`.
///
/// Units: microseconds of Unix time.
/// Errors: it is none of these.
pub fn micros(parameter: &str, text: &str, now: i64) -> Result<i64, SearchError> {
    const FORMS: &str =
        "no time: RFC 3339, 2006-01-02, \"2006-01-02 15:04:05\", Unix seconds or milliseconds, or an age as 2h";
    let text = text.trim();
    let wrong = || SearchError::Value { parameter: parameter.to_owned(), value: text.to_owned(), why: FORMS };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let utc = |time: civil::DateTime| TimeZone::UTC.to_timestamp(time).ok().map(Timestamp::as_microsecond);
    let found = match text.len() {
        10 if is_number => text.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000)),
        13 if is_number => text.parse::<i64>().ok().and_then(|millis| millis.checked_mul(1000)),
        _ if is_number => None,
        _ if text.contains('T') => text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond),
        _ if text.contains(' ') => civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", text).ok().and_then(utc),
        10 if text.contains('-') => {
            civil::Date::strptime("%Y-%m-%d", text).ok().and_then(|day| utc(day.at(0, 0, 0, 0)))
        }
        _ => duration::parse(text).ok().filter(|nanos| *nanos >= 0).map(|nanos| now - nanos / 1000),
    };
    found.ok_or_else(wrong)
}

/// The time that an object says it was created at, as Kubernetes writes it. `None`: it is no time.
///
/// Units: microseconds of Unix time.
pub(super) fn of_object(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}
