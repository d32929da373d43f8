//! Times as Go reads and prints them.
//!
//! Source: Go `time/format.go`; kubernetes/apimachinery `pkg/apis/meta/v1/time.go`, `micro_time.go`.

use jiff::{
    SignedDuration,
    civil::{Date, DateTime, Time},
};

use kubefold_wire::golang::Quoted;

/// Why a text is no time, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A part of the text is not what the layout has there.
    #[error("parsing time {} as \"{layout}\": cannot parse {} as \"{element}\"", Quoted(.text), Quoted(.rest))]
    Unlike {
        /// The whole text.
        text: String,
        /// How a time is written, as Go says it.
        layout: &'static str,
        /// The text from that part on.
        rest: String,
        /// What the layout has there.
        element: &'static str,
    },
    /// Text behind the time.
    #[error("parsing time {}: extra text: {}", Quoted(.text), Quoted(.extra))]
    Extra {
        /// The whole text.
        text: String,
        /// What follows the time.
        extra: String,
    },
    /// A number that no calendar or clock has.
    #[error("parsing time {}: {what} out of range", Quoted(.text))]
    Range {
        /// The whole text.
        text: String,
        /// What the number counts.
        what: &'static str,
    },
    /// A year that JSON has no form for.
    #[error("Time.MarshalJSON: year outside of range [0,9999]")]
    Year,
}

/// A time to the second, in UTC.
///
/// Errors: what Go says of it.
pub fn canonical_time(text: &str) -> Result<String, TimeError> {
    let (time, _) = Reader { text, rest: text, layout: "2006-01-02T15:04:05Z07:00" }.read(None)?;
    Ok(format!("{time}Z"))
}

/// A time to the millionth of a second, in UTC.
///
/// Errors: what Go says of it.
pub fn canonical_micro_time(text: &str) -> Result<String, TimeError> {
    let (time, micros) =
        Reader { text, rest: text, layout: "2006-01-02T15:04:05.000000Z07:00" }.read(Some(".000000"))?;
    Ok(format!("{time}.{micros:06}Z"))
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    /// The time in UTC to the second, and millionths.
    fn read(mut self, fraction: Option<&'static str>) -> Result<(DateTime, i64), TimeError> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, "01")?;
        self.within(month, 1, 12, "month")?;
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.digits(2, "15")?;
        self.within(hour, 0, 23, "hour")?;
        self.literal(":")?;
        let minute = self.digits(2, "04")?;
        self.within(minute, 0, 59, "minute")?;
        self.literal(":")?;
        let second = self.digits(2, "05")?;
        self.within(second, 0, 59, "second")?;
        let micros = match fraction {
            Some(wanted) => {
                if !self.rest.starts_with('.') || self.rest.bytes().skip(1).take_while(u8::is_ascii_digit).count() != 6
                {
                    return Err(self.unlike(wanted));
                }
                self.literal(".")?;
                self.digits(6, wanted)?
            }
            None => {
                self.skip_fraction();
                0
            }
        };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError::Extra { text: self.text.to_owned(), extra: self.rest.to_owned() });
        }
        let (year, month) = (i16::try_from(year).unwrap_or(0), i8::try_from(month).unwrap_or(1));
        let first = Date::new(year, month, 1).map_err(|_| TimeError::Year)?;
        self.within(day, 1, first.days_in_month().into(), "day")?;
        let since = SignedDuration::from_secs((day - 1) * 86400 + hour * 3600 + minute * 60 + second - offset);
        let time = first.to_datetime(Time::midnight()).checked_add(since).map_err(|_| TimeError::Year)?;
        Ok((time, micros))
    }

    fn digits(&mut self, count: usize, element: &'static str) -> Result<i64, TimeError> {
        match self.rest.get(..count).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(part) => {
                self.rest = self.rest.get(count..).unwrap_or_default();
                part.parse().map_err(|_| self.unlike(element))
            }
            None => Err(self.unlike(element)),
        }
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.unlike(literal))?;
        Ok(())
    }

    fn skip_fraction(&mut self) {
        if let Some(after) = self.rest.strip_prefix(['.', ',']) {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                self.rest = after.get(digits..).unwrap_or_default();
            }
        }
    }

    /// Seconds to the east.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let whole = self.rest;
        let unlike = |reader: &Self| Self { text: reader.text, rest: whole, layout: reader.layout }.unlike("Z07:00");
        let sign = match whole.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(unlike(self)),
        };
        self.rest = whole.get(1..).unwrap_or_default();
        let hours = self.digits(2, "").map_err(|_| unlike(self))?;
        self.literal(":").map_err(|_| unlike(self))?;
        let minutes = self.digits(2, "").map_err(|_| unlike(self))?;
        self.within(hours, 0, 24, "time zone offset hour")?;
        self.within(minutes, 0, 60, "time zone offset minute")?;
        Ok(sign * (hours * 3600 + minutes * 60))
    }

    fn within(&self, value: i64, least: i64, most: i64, what: &'static str) -> Result<(), TimeError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(TimeError::Range { text: self.text.to_owned(), what })
    }

    fn unlike(&self, element: &'static str) -> TimeError {
        let (text, rest) = (self.text.to_owned(), self.rest.to_owned());
        TimeError::Unlike { text, layout: self.layout, rest, element }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are what a kube-apiserver answered.
    #[test]
    fn reads_times_as_go_does() {
        let layout = r#"as "2006-01-02T15:04:05Z07:00": cannot parse"#;
        let cases = [
            ("2020-02-29T01:02:03Z", Ok("2020-02-29T01:02:03Z".to_owned())),
            ("2020-01-01T00:30:00.75+01:00", Ok("2019-12-31T23:30:00Z".to_owned())),
            ("x", Err(format!(r#"parsing time "x" {layout} "x" as "2006""#))),
            ("", Err(format!(r#"parsing time "" {layout} "" as "2006""#))),
            ("2020-13-01T00:00:00Z", Err(r#"parsing time "2020-13-01T00:00:00Z": month out of range"#.to_owned())),
            ("2020-02-31T00:00:00Z", Err(r#"parsing time "2020-02-31T00:00:00Z": day out of range"#.to_owned())),
            ("2020-01-01T25:00:00Z", Err(r#"parsing time "2020-01-01T25:00:00Z": hour out of range"#.to_owned())),
            ("2020-01-01", Err(format!(r#"parsing time "2020-01-01" {layout} "" as "T""#))),
            ("2020-01-01T00:00:00", Err(format!(r#"parsing time "2020-01-01T00:00:00" {layout} "" as "Z07:00""#))),
            ("2020-01-01T00:00:00Zx", Err(r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#.to_owned())),
        ];
        for (text, wanted) in cases {
            assert_eq!(canonical_time(text).map_err(|error| error.to_string()), wanted, "{text}");
        }
        assert_eq!(canonical_micro_time("1969-12-31T23:59:59.000001Z").unwrap(), "1969-12-31T23:59:59.000001Z");
    }
}
