//! Messages to JSON objects, by the rules of Go's `encoding/json`.
//!
//! Nothing is built in between: each message's records are sorted into the order that JSON
//! prints its fields in, and printed. Where protobuf merges several occurrences of a message,
//! they are read as one run of records, which is what merging means.

use std::collections::BTreeMap;

use super::error::{JSON_BYTES_MAX, NESTING_MAX, ProtobufError};
use super::records::{Entry, Payload, Records};
use super::schema::{Field, Mark, Message, Messages, Shape, StructId, Style, Value};
use super::values::{self, Problem};

/// Prints one object.
pub(super) struct Decoder<'a> {
    messages: &'static Messages,
    api_version: &'a str,
    kind: &'a str,
    out: Vec<u8>,
    /// JSON names of the fields around the current place; an error leaves them standing.
    path: Vec<&'static str>,
    nesting: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(messages: &'static Messages, api_version: &'a str, kind: &'a str) -> Self {
        Self { messages, api_version, kind, out: Vec::new(), path: Vec::new(), nesting: 0 }
    }

    /// Prints the message `raw` as the object that the envelope named.
    pub(super) fn object(mut self, raw: &'a [u8]) -> Result<Vec<u8>, ProtobufError> {
        let Some(id) = self.messages.kind(self.api_version, self.kind) else {
            return Err(ProtobufError::UnknownKind {
                api_version: self.api_version.to_owned(),
                kind: self.kind.to_owned(),
            });
        };
        match self.root(id, raw) {
            Ok(()) => Ok(self.out),
            Err(problem) => Err(problem.at(self.kind, &self.path.join("."))),
        }
    }

    fn root(&mut self, id: StructId, raw: &'a [u8]) -> Result<(), Problem> {
        let message = self.messages.message(id)?;
        self.open(b'{')?;
        self.key("kind")?;
        values::string(&mut self.out, self.kind)?;
        self.key("apiVersion")?;
        values::string(&mut self.out, self.api_version)?;
        self.fields(message, &[raw])?;
        self.close(b'}');
        Ok(())
    }

    fn message(&mut self, id: StructId, parts: &[&'a [u8]]) -> Result<(), Problem> {
        let message = self.messages.message(id)?;
        match message.style {
            Style::Object => {
                self.open(b'{')?;
                self.fields(message, parts)?;
                self.close(b'}');
                Ok(())
            }
            Style::Either => self.either(message, parts),
        }
    }

    /// Prints every field of a message, between braces that the caller writes.
    fn fields(&mut self, message: &'static Message, parts: &[&'a [u8]]) -> Result<(), Problem> {
        let entries = gather(message, parts)?;
        for (field, group) in grouped(message, &entries) {
            self.field(field, group)?;
        }
        Ok(())
    }

    /// Prints the first field that is set; if none is, the last one's zero value.
    fn either(&mut self, message: &'static Message, parts: &[&'a [u8]]) -> Result<(), Problem> {
        let entries = gather(message, parts)?;
        let chosen = grouped(message, &entries).find(|(_, group)| !group.is_empty());
        match chosen.or_else(|| message.fields.last().map(|field| (field, &[][..]))) {
            Some((field, group)) => self.shaped(field, group),
            None => self.null(),
        }
    }

    fn field(&mut self, field: &'static Field, group: &[Entry<'a>]) -> Result<(), Problem> {
        match field.mark {
            Mark::Retired => return retired(field, group),
            Mark::InPlace => {
                if let Value::Struct(id) = field.value {
                    let message = self.messages.message(id)?;
                    self.fields(message, &values::parts(group)?)?;
                }
                return Ok(());
            }
            Mark::OmitEmpty if field.shape != Shape::One && group.is_empty() => return Ok(()),
            Mark::Always | Mark::OmitEmpty | Mark::OmitZero => {}
        }
        let before = self.out.len();
        self.path.push(field.name);
        self.key(field.name)?;
        let value_start = self.out.len();
        self.shaped(field, group)?;
        self.path.pop();
        if omitted(field, self.out.get(value_start..).unwrap_or_default()) {
            self.out.truncate(before);
        }
        Ok(())
    }

    fn shaped(&mut self, field: &'static Field, group: &[Entry<'a>]) -> Result<(), Problem> {
        match field.shape {
            Shape::One => self.value(field.value, group),
            Shape::Pointer | Shape::Map | Shape::Repeated if group.is_empty() => self.null(),
            Shape::Pointer => self.value(field.value, group),
            Shape::Repeated => self.repeated(field.value, group),
            Shape::Map => self.map(field.value, group),
        }
    }

    fn repeated(&mut self, value: Value, group: &[Entry<'a>]) -> Result<(), Problem> {
        let start = self.out.len();
        self.open(b'[')?;
        for &(_, payload) in group {
            match payload {
                Payload::Bytes(packed) if value.is_number() => {
                    let mut records = Records::new(packed);
                    while !records.is_empty() {
                        let number = match value {
                            Value::Double => Payload::Fixed64(records.fixed64()?),
                            _ => Payload::Varint(records.varint()?),
                        };
                        self.element(value, number)?;
                    }
                }
                _ => self.element(value, payload)?,
            }
        }
        let empty = self.out.len() == start + 1;
        self.close(b']');
        if empty {
            // A packed run of no numbers leaves the slice nil in Go.
            self.out.truncate(start);
            self.null()?;
        }
        Ok(())
    }

    fn element(&mut self, value: Value, payload: Payload<'a>) -> Result<(), Problem> {
        if self.out.last() != Some(&b'[') {
            self.out.push(b',');
        }
        self.value(value, &[(0, payload)])
    }

    /// Prints a map with its keys sorted, as Go does; of equal keys the last one counts.
    fn map(&mut self, value: Value, group: &[Entry<'a>]) -> Result<(), Problem> {
        let mut sorted = BTreeMap::new();
        for entry in values::parts(group)? {
            let [key, element] = values::last_fields(&[entry])?;
            let key = key.map_or(Ok(""), values::text)?;
            sorted.insert(key, element.unwrap_or_else(|| value.absent()));
        }
        self.open(b'{')?;
        for (key, payload) in sorted {
            self.key(key)?;
            self.value(value, &[(0, payload)])?;
        }
        self.close(b'}');
        Ok(())
    }

    /// Prints a value of which `group` are the occurrences, its zero value if there are none.
    fn value(&mut self, value: Value, group: &[Entry<'a>]) -> Result<(), Problem> {
        match value {
            Value::Struct(id) => self.message(id, &values::parts(group)?)?,
            leaf => values::leaf(&mut self.out, leaf, group)?,
        }
        if self.out.len() > JSON_BYTES_MAX {
            return Err(Problem::TooLarge);
        }
        Ok(())
    }

    /// Opens an object or an array.
    fn open(&mut self, bracket: u8) -> Result<(), Problem> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(Problem::TooDeep);
        }
        self.out.push(bracket);
        Ok(())
    }

    fn close(&mut self, bracket: u8) {
        self.nesting = self.nesting.saturating_sub(1);
        self.out.push(bracket);
    }

    fn key(&mut self, name: &str) -> Result<(), Problem> {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        values::string(&mut self.out, name)?;
        self.out.push(b':');
        Ok(())
    }

    fn null(&mut self) -> Result<(), Problem> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }
}

/// Reads the records of all parts and sorts them by field; a field's own order stays.
fn gather<'a>(message: &Message, parts: &[&'a [u8]]) -> Result<Vec<Entry<'a>>, Problem> {
    let mut entries = Vec::new();
    for part in parts {
        for record in Records::new(part) {
            let (number, payload) = record?;
            let position = message.position(number).ok_or(Problem::UnknownField(number))?;
            entries.push((position, payload));
        }
    }
    entries.sort_by_key(|&(position, _)| position);
    Ok(entries)
}

/// Pairs every field with its records, which may be none.
fn grouped<'e, 'a>(
    message: &'static Message,
    entries: &'e [Entry<'a>],
) -> impl Iterator<Item = (&'static Field, &'e [Entry<'a>])> {
    let mut rest = entries;
    message.fields.iter().enumerate().map(move |(position, field)| {
        let count = rest.partition_point(|&(other, _)| other <= position);
        let (group, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        rest = after;
        (field, group)
    })
}

/// Accepts a retired field only where it says nothing.
fn retired(field: &Field, group: &[Entry<'_>]) -> Result<(), Problem> {
    let silent = group.iter().all(|(_, payload)| matches!(payload, Payload::Bytes([]) | Payload::Varint(0)));
    if silent { Ok(()) } else { Err(Problem::UnknownField(field.number.unwrap_or_default())) }
}

/// Says whether Go leaves out a field that would print so. Structs are never empty to Go, and
/// a pointer that is set is not either.
fn omitted(field: &Field, printed: &[u8]) -> bool {
    match (field.mark, field.shape) {
        (Mark::OmitEmpty, Shape::One) => field.value.can_be_empty() && is_empty_value(printed),
        (Mark::OmitEmpty, Shape::Repeated) | (Mark::OmitZero, Shape::One) => printed == b"null",
        _ => false,
    }
}

fn is_empty_value(printed: &[u8]) -> bool {
    matches!(printed, b"false" | b"0" | b"\"\"" | b"null" | b"[]")
}
