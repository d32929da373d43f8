//! Values of JSON to records: numbers, text, and the types that Go prints as text.

use std::{fmt, ops::Range};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{Error, Unexpected, Visitor};

use super::schema::Value;
use super::values;
use crate::duration;

/// Appends the key of a record.
pub(super) fn tag(out: &mut impl Extend<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

/// Appends a number in as many bytes as it needs.
pub(super) fn varint(out: &mut impl Extend<u8>, mut value: u64) {
    while value >= 0x80 {
        out.extend([value as u8 | 0x80]);
        value >>= 7;
    }
    out.extend([value as u8]);
}

/// Appends a record of bytes.
pub(super) fn length_delimited(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    tag(out, number, 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// A value that is no message of fields.
pub(super) struct OfLeaf<'e> {
    /// Where its record is appended.
    pub(super) out: &'e mut Vec<u8>,
    pub(super) value: Value,
    /// Of its field.
    pub(super) number: u32,
}

impl OfLeaf<'_> {
    fn number(self, is: u64) -> Option<Range<usize>> {
        let start = self.out.len();
        tag(self.out, self.number, 0);
        varint(self.out, is);
        Some(start..self.out.len())
    }

    fn bytes(self, content: &[u8]) -> Option<Range<usize>> {
        let start = self.out.len();
        length_delimited(self.out, self.number, content);
        Some(start..self.out.len())
    }

    fn int_or_string(self, kind: u64, number: i64, text: &str) -> Option<Range<usize>> {
        let mut content = Vec::with_capacity(text.len() + 16);
        tag(&mut content, 1, 0);
        varint(&mut content, kind);
        tag(&mut content, 2, 0);
        varint(&mut content, number.cast_unsigned());
        length_delimited(&mut content, 3, text.as_bytes());
        self.bytes(&content)
    }

    fn timestamp(self, seconds: i64, nanos: i32) -> Option<Range<usize>> {
        let mut content = Vec::with_capacity(16);
        tag(&mut content, 1, 0);
        varint(&mut content, seconds.cast_unsigned());
        tag(&mut content, 2, 0);
        varint(&mut content, i64::from(nanos).cast_unsigned());
        self.bytes(&content)
    }
}

impl Visitor<'_> for OfLeaf<'_> {
    type Value = Option<Range<usize>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of the type {:?}", self.value)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Self::Value, E> {
        match self.value {
            Value::Bool => Ok(self.number(is.into())),
            _ => Err(E::invalid_type(Unexpected::Bool(is), &self)),
        }
    }

    fn visit_i64<E: Error>(self, is: i64) -> Result<Self::Value, E> {
        match self.value {
            Value::Int32 | Value::Int64 => Ok(self.number(is.cast_unsigned())),
            Value::IntOrString => Ok(self.int_or_string(0, is, "")),
            Value::Quantity => self.visit_str(&is.to_string()),
            _ => Err(E::invalid_type(Unexpected::Signed(is), &self)),
        }
    }

    fn visit_u64<E: Error>(self, is: u64) -> Result<Self::Value, E> {
        match i64::try_from(is) {
            Ok(is) => self.visit_i64(is),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(is), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let invalid = || E::invalid_value(Unexpected::Str(text), &"text of its type");
        match self.value {
            Value::String => Ok(self.bytes(text.as_bytes())),
            Value::Bytes => Ok(self.bytes(&BASE64.decode(text).map_err(|_| invalid())?)),
            Value::Time | Value::MicroTime => {
                let (seconds, nanos) = values::timestamp_of(text, self.value).ok_or_else(invalid)?;
                Ok(self.timestamp(seconds, nanos))
            }
            Value::Duration => {
                let nanos = duration::parse(text).map_err(|_| invalid())?;
                let mut content = vec![0x08];
                varint(&mut content, nanos.cast_unsigned());
                Ok(self.bytes(&content))
            }
            Value::Quantity => {
                let mut content = Vec::with_capacity(text.len() + 2);
                length_delimited(&mut content, 1, text.as_bytes());
                Ok(self.bytes(&content))
            }
            Value::IntOrString => Ok(self.int_or_string(1, 0, text)),
            _ => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }
}
