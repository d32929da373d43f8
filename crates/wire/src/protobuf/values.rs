//! The values that are not messages of fields: scalars, and types that print their own JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};
use serde::de::IgnoredAny;

use super::error::ProtobufError;
use super::records::{Entry, MalformedRecord, Payload, Records};
use super::schema::Value;
use crate::{duration, golang, types::SchemaError};

/// What went wrong, before it is known where.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Malformed(#[from] MalformedRecord),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("unknown field {0}")]
    UnknownField(u32),
    #[error("wrong wire type")]
    WireType,
    #[error("not UTF-8")]
    Utf8,
    #[error("{0}")]
    Value(&'static str),
    #[error("too deep")]
    TooDeep,
    #[error("too large")]
    TooLarge,
}

impl Problem {
    /// Makes the error that the caller sees.
    pub(super) fn at(self, kind: &str, path: &str) -> ProtobufError {
        let (kind, path) = (kind.to_owned(), path.to_owned());
        match self {
            Self::Malformed(source) => ProtobufError::Malformed { kind, path, source },
            Self::Schema(source) => ProtobufError::Schema(source),
            Self::Json(source) => ProtobufError::Json { kind, path, source },
            Self::UnknownField(number) => ProtobufError::UnknownField { kind, path, number },
            Self::WireType => ProtobufError::WireType { kind, path },
            Self::Utf8 => ProtobufError::Utf8 { kind, path },
            Self::Value(problem) => ProtobufError::Value { kind, path, problem },
            Self::TooDeep => ProtobufError::TooDeep { kind },
            Self::TooLarge => ProtobufError::TooLarge { kind },
        }
    }
}

impl Value {
    /// Says whether repeated values may be packed into one record.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Bool | Self::Int32 | Self::Int64 | Self::Double)
    }

    /// Says whether Go's `omitempty` can apply to the value itself.
    pub(super) fn can_be_empty(self) -> bool {
        self.is_number() || matches!(self, Self::String | Self::Bytes | Self::WrappedStrings)
    }

    /// Returns the value that a map entry without one has.
    pub(super) fn absent(self) -> Payload<'static> {
        match self {
            Self::Double => Payload::Fixed64(0),
            Self::Bool | Self::Int32 | Self::Int64 => Payload::Varint(0),
            _ => Payload::Bytes(&[]),
        }
    }
}

/// Prints any value but a message. Of several scalars the last one counts.
pub(super) fn leaf(out: &mut Vec<u8>, value: Value, group: &[Entry<'_>]) -> Result<(), Problem> {
    let last = group.last().map(|&(_, payload)| payload);
    match value {
        Value::Bool => print(out, if integer(last)? != 0 { "true" } else { "false" }),
        Value::Int32 => print(out, &int32(last)?.to_string()),
        Value::Int64 => print(out, &integer(last)?.to_string()),
        Value::Double => print(out, &float(double(last)?)?),
        Value::String => string(out, last.map_or(Ok(""), text)?)?,
        Value::Bytes => match last {
            Some(payload) => string(out, &BASE64.encode(bytes(payload)?))?,
            None => print(out, "null"),
        },
        Value::Time => print(out, &time(last)?),
        Value::MicroTime => print(out, &micro_time(last)?),
        Value::Duration => {
            let [nanoseconds] = last_fields(&parts(group)?)?;
            string(out, &duration::print(integer(nanoseconds)?))?;
        }
        Value::Quantity => {
            let [text_field] = last_fields(&parts(group)?)?;
            string(out, quantity(text_field)?)?;
        }
        Value::IntOrString => int_or_string(out, &parts(group)?)?,
        Value::Raw | Value::Json | Value::Fields => json(out, &parts(group)?)?,
        Value::WrappedStrings if group.is_empty() => print(out, "null"),
        Value::WrappedStrings => wrapped_strings(out, &parts(group)?)?,
        Value::Struct(_) => return Err(Problem::WireType),
    }
    Ok(())
}

/// Returns the bytes of every occurrence of a message.
pub(super) fn parts<'a>(group: &[Entry<'a>]) -> Result<Vec<&'a [u8]>, Problem> {
    group.iter().map(|&(_, payload)| bytes(payload)).collect()
}

/// Reads a message of the fields 1 to N, of each the last occurrence.
pub(super) fn last_fields<'a, const N: usize>(parts: &[&'a [u8]]) -> Result<[Option<Payload<'a>>; N], Problem> {
    let mut found = [None; N];
    for part in parts {
        for record in Records::new(part) {
            let (number, payload) = record?;
            let index = usize::try_from(number).unwrap_or_default().wrapping_sub(1);
            *found.get_mut(index).ok_or(Problem::UnknownField(number))? = Some(payload);
        }
    }
    Ok(found)
}

/// Writes a JSON string.
pub(super) fn string(out: &mut Vec<u8>, text: &str) -> Result<(), Problem> {
    Ok(serde_json::to_writer(out, text)?)
}

/// Reads a string.
pub(super) fn text(payload: Payload<'_>) -> Result<&str, Problem> {
    str::from_utf8(bytes(payload)?).map_err(|_| Problem::Utf8)
}

/// Returns text that is one JSON value, unchanged.
pub(super) fn checked_json(raw: &[u8]) -> Result<&str, Problem> {
    let text = str::from_utf8(raw).map_err(|_| Problem::Utf8)?;
    serde_json::from_str::<IgnoredAny>(text)?;
    Ok(text)
}

fn bytes(payload: Payload<'_>) -> Result<&[u8], Problem> {
    match payload {
        Payload::Bytes(bytes) => Ok(bytes),
        Payload::Varint(_) | Payload::Fixed64(_) | Payload::Fixed32 => Err(Problem::WireType),
    }
}

fn integer(payload: Option<Payload<'_>>) -> Result<i64, Problem> {
    match payload {
        None => Ok(0),
        Some(Payload::Varint(value)) => Ok(value.cast_signed()),
        Some(_) => Err(Problem::WireType),
    }
}

/// Reads the low 32 bits, as Go does: a negative int32 is sent with all 64.
fn int32(payload: Option<Payload<'_>>) -> Result<i32, Problem> {
    Ok(integer(payload)? as i32)
}

fn double(payload: Option<Payload<'_>>) -> Result<f64, Problem> {
    match payload {
        None => Ok(0.0),
        Some(Payload::Fixed64(bits)) => Ok(f64::from_bits(bits)),
        Some(_) => Err(Problem::WireType),
    }
}

fn print(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn float(value: f64) -> Result<String, Problem> {
    if value.is_finite() {
        return Ok(golang::json_float(value));
    }
    Err(Problem::Value("JSON has no number for NaN or infinity"))
}

/// Seconds of 0001-01-01T00:00:00Z, which Go takes for "not set".
const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

const UNIX_EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);

/// Seconds of the years 0 to 9999, which RFC 3339 can write.
const PRINTABLE_SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Prints metav1.Time: whole seconds, as Go drops the rest on both sides.
fn time(payload: Option<Payload<'_>>) -> Result<String, Problem> {
    match timestamp(payload)? {
        None | Some((ZERO_TIME_SECONDS, _)) => Ok("null".to_owned()),
        Some((seconds, _)) => format_time(seconds, 0, "\"%Y-%m-%dT%H:%M:%SZ\""),
    }
}

/// Prints metav1.MicroTime.
fn micro_time(payload: Option<Payload<'_>>) -> Result<String, Problem> {
    let Some((seconds, nanos)) = timestamp(payload)? else {
        return Ok("null".to_owned());
    };
    // Go truncates towards zero, then lets the nanoseconds carry into the seconds.
    let micros = nanos / 1000;
    let seconds = seconds.saturating_add(i64::from(micros.div_euclid(1_000_000)));
    let micros = micros.rem_euclid(1_000_000);
    if (seconds, micros) == (ZERO_TIME_SECONDS, 0) {
        return Ok("null".to_owned());
    }
    format_time(seconds, micros * 1000, "\"%Y-%m-%dT%H:%M:%S.%6fZ\"")
}

/// Reads a Timestamp, or none where Go's decoder leaves the time unset.
fn timestamp(payload: Option<Payload<'_>>) -> Result<Option<(i64, i32)>, Problem> {
    let message = payload.map_or(Ok(&[][..]), bytes)?;
    if message.is_empty() {
        return Ok(None);
    }
    let [seconds, nanos] = last_fields(&[message])?;
    Ok(Some((integer(seconds)?, int32(nanos)?)))
}

/// Reads a time as JSON has it: seconds of the Unix epoch, and the nanoseconds that its type keeps. `None`: it is none.
pub(super) fn timestamp_of(text: &str, value: Value) -> Option<(i64, i32)> {
    // Not jiff's Timestamp, which ends a day before the year 9999 does. An API server prints no other offset.
    let time: DateTime = text.strip_suffix('Z')?.parse().ok()?;
    let nanos = time.duration_since(UNIX_EPOCH).as_nanos();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    let rest = i32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
    Some((seconds, if value == Value::MicroTime { rest - rest % 1000 } else { 0 }))
}

fn format_time(seconds: i64, nanos: i32, format: &str) -> Result<String, Problem> {
    const OUT_OF_RANGE: Problem = Problem::Value("its year is not between 0 and 9999");
    if !PRINTABLE_SECONDS.contains(&seconds) {
        return Err(OUT_OF_RANGE);
    }
    // Not jiff's Timestamp, which ends a day before the year 9999 does.
    let time = UNIX_EPOCH.checked_add(SignedDuration::new(seconds, nanos)).map_err(|_| OUT_OF_RANGE)?;
    Ok(time.strftime(format).to_string())
}

/// Returns a quantity as it was sent: Go's encoder has made it canonical, and others may write
/// any form that the API server accepts.
fn quantity(payload: Option<Payload<'_>>) -> Result<&str, Problem> {
    match payload.map(text).transpose()? {
        None => Ok("0"),
        Some("") => Err(Problem::Value("a quantity must not be empty")),
        Some(text) => Ok(text),
    }
}

fn int_or_string(out: &mut Vec<u8>, parts: &[&[u8]]) -> Result<(), Problem> {
    let [kind, number, name] = last_fields(parts)?;
    match integer(kind)? {
        0 => print(out, &int32(number)?.to_string()),
        1 => string(out, name.map_or(Ok(""), text)?)?,
        _ => {
            return Err(Problem::Value("an IntOrString is neither an int nor a string"));
        }
    }
    Ok(())
}

/// Prints a message whose field 1 is JSON text, without white space.
fn json(out: &mut Vec<u8>, parts: &[&[u8]]) -> Result<(), Problem> {
    let [raw] = last_fields(parts)?;
    let raw = raw.map_or(Ok(&[][..]), bytes)?;
    if raw.is_empty() {
        print(out, "null");
        return Ok(());
    }
    let (mut quoted, mut escaped) = (false, false);
    for byte in checked_json(raw)?.bytes() {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' if !quoted => continue,
            b'"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
        out.push(byte);
    }
    Ok(())
}

fn wrapped_strings(out: &mut Vec<u8>, parts: &[&[u8]]) -> Result<(), Problem> {
    out.push(b'[');
    for part in parts {
        for record in Records::new(part) {
            let (number, payload) = record?;
            if number != 1 {
                return Err(Problem::UnknownField(number));
            }
            if out.last() != Some(&b'[') {
                out.push(b',');
            }
            string(out, text(payload)?)?;
        }
    }
    out.push(b']');
    Ok(())
}
