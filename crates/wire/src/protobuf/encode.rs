//! JSON objects to messages, byte for byte as Go's generated code writes them.
//!
//! The JSON is read once, from front to back. Records are written in the order in which it has their fields, and put in the
//! order of their numbers when their message ends. What JSON leaves out and protobuf does not is written as its zero value.
//!
//! Source: the `generated.pb.go` of k8s.io/api, by gogo/protobuf: fields in the order of their numbers, map entries in that of
//! their keys; every field is written that is no pointer, list, map or byte slice.

use std::{borrow::Cow, collections::HashMap, fmt, ops::Range};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::error::EncodeError;
use super::leaf::{OfLeaf, length_delimited, tag, varint};
use super::schema::{Field, FieldPath, Mark, Message, Messages, Shape, StructId, Style, Value};
use crate::types::SchemaError;

/// Writes one object.
pub(super) struct Encoder<'o> {
    messages: &'static Messages,
    /// Where the message is appended. Finished records, one behind the other. What a message was put together from is taken away
    /// with its end.
    scratch: &'o mut Vec<u8>,
}

impl<'o> Encoder<'o> {
    pub(super) fn new(messages: &'static Messages, out: &'o mut Vec<u8>) -> Self {
        Self { messages, scratch: out }
    }

    /// Appends the message of an object, or nothing if it does not fit.
    pub(super) fn object(mut self, id: StructId, json: &str) -> Result<(), EncodeError> {
        let start = self.here();
        let mut parser = serde_json::Deserializer::from_str(json);
        let done = OfMessage { encoder: &mut self, id }.deserialize(&mut parser).and_then(|_| parser.end());
        done.map_err(|error| {
            self.scratch.truncate(start);
            error.into()
        })
    }

    fn message(&self, id: StructId) -> Result<&'static Message, SchemaError> {
        self.messages.message(id)
    }

    fn here(&self) -> usize {
        self.scratch.len()
    }

    fn copy(&mut self, range: Range<usize>) {
        self.scratch.extend_from_within(range);
    }

    /// Takes away what lies between `start` and `end`: what stands behind is made of it. Gives where that is then.
    fn forget(&mut self, start: usize, end: usize) -> Range<usize> {
        self.scratch.drain(start..end);
        start..self.here()
    }

    /// Makes a record of the last that was written, from `start` on.
    fn record(&mut self, number: u32, start: usize) -> Range<usize> {
        let mut head = SmallVec::<[u8; 16]>::new();
        tag(&mut head, number, 2);
        varint(&mut head, (self.here() - start) as u64);
        self.scratch.splice(start..start, head);
        start..self.here()
    }

    /// Puts a message together of its records, in the place of all that lies behind `begin`.
    fn assemble(&mut self, mut parts: Parts, begin: usize) -> Result<Range<usize>, SchemaError> {
        for (position, inner) in std::mem::take(&mut parts.inner) {
            let is_set = !inner.records.is_empty();
            let Some(field) = parts.message.fields.get(position) else { continue };
            if field.shape == Shape::One || is_set {
                let content = self.assemble(*inner, self.here())?;
                let record = self.record(field.number.unwrap_or_default(), content.start);
                parts.records.push((position, record));
            }
        }
        // Stable: the items of a list stay in their order.
        parts.records.sort_by_key(|(position, _)| parts.message.fields.get(*position).map(|field| field.number));
        let start = self.here();
        let mut records = parts.records.into_iter().peekable();
        for (number, position) in parts.message.by_number() {
            let mut is_set = false;
            while let Some((_, record)) = records.next_if(|(of, _)| of == position) {
                self.copy(record);
                is_set = true;
            }
            if let Some(field) = parts.message.fields.get(*position).filter(|_| !is_set) {
                zero_record(self.messages, field, *number, self.scratch)?;
            }
        }
        Ok(self.forget(begin, start))
    }
}

/// The records of a message that is read.
struct Parts {
    message: &'static Message,
    /// The place of its field, and where each record lies.
    records: SmallVec<[(usize, Range<usize>); 16]>,
    /// Structs whose fields stand among these.
    inner: SmallVec<[(usize, Box<Self>); 1]>,
}

impl Parts {
    fn of(messages: &'static Messages, id: StructId) -> Result<Self, SchemaError> {
        let message = messages.message(id)?;
        let mut inner = SmallVec::new();
        for (position, field) in message.fields.iter().enumerate() {
            if let (Mark::InPlace, Value::Struct(id)) = (field.mark, field.value) {
                inner.push((position, Box::new(Self::of(messages, id)?)));
            }
        }
        Ok(Self { message, records: SmallVec::new(), inner })
    }

    /// The parts and the field that a path leads to.
    fn at(&mut self, path: &[usize]) -> Option<(&mut Self, usize)> {
        let (last, outer) = path.split_last()?;
        let mut parts = self;
        for step in outer {
            parts = parts.inner.iter_mut().find(|(position, _)| position == step).map(|(_, inner)| &mut **inner)?;
        }
        Some((parts, *last))
    }
}

impl Messages {
    /// The fields of a message by their names in JSON.
    fn names(
        &'static self,
        message: &'static Message,
    ) -> Result<&'static HashMap<&'static str, FieldPath>, SchemaError> {
        if let Some(names) = message.writing.names.get() {
            return Ok(names);
        }
        let mut names = HashMap::new();
        for (position, field) in message.fields.iter().enumerate() {
            match (field.mark, field.value) {
                (Mark::Retired, _) => {}
                (Mark::InPlace, Value::Struct(id)) => {
                    for (name, path) in self.names(self.message(id)?)? {
                        let path = [position].into_iter().chain(path.iter().copied()).collect();
                        names.entry(*name).or_insert(path);
                    }
                }
                _ => drop(names.insert(field.name, SmallVec::from_slice(&[position]))),
            }
        }
        Ok(message.writing.names.get_or_init(|| names))
    }

    fn zero(&'static self, id: StructId) -> Result<&'static [u8], SchemaError> {
        let message = self.message(id)?;
        if let Some(zero) = message.writing.zero.get() {
            return Ok(zero);
        }
        let mut zero = Vec::new();
        for (number, position) in message.by_number() {
            if let Some(field) = message.fields.get(*position) {
                zero_record(self, field, *number, &mut zero)?;
            }
        }
        Ok(message.writing.zero.get_or_init(|| zero))
    }
}

/// Appends what stands for a field that is not set.
fn zero_record(messages: &'static Messages, field: &Field, number: u32, out: &mut Vec<u8>) -> Result<(), SchemaError> {
    let is_left_out = matches!(field.value, Value::Bytes | Value::WrappedStrings);
    if field.shape != Shape::One || field.mark == Mark::Retired || is_left_out {
        return Ok(());
    }
    zero_value(messages, field.value, number, out)
}

/// Appends the record of a zero value.
fn zero_value(messages: &'static Messages, value: Value, number: u32, out: &mut Vec<u8>) -> Result<(), SchemaError> {
    let content: &[u8] = match value {
        Value::Bool | Value::Int32 | Value::Int64 => {
            tag(out, number, 0);
            out.push(0);
            return Ok(());
        }
        Value::Double => {
            tag(out, number, 1);
            out.extend_from_slice(&[0; 8]);
            return Ok(());
        }
        Value::String | Value::Bytes | Value::WrappedStrings => b"",
        Value::Time | Value::MicroTime | Value::Raw | Value::Json | Value::Fields => b"",
        Value::Duration => b"\x08\x00",
        Value::Quantity => b"\x0a\x010",
        Value::IntOrString => b"\x08\x00\x10\x00\x1a\x00",
        Value::Struct(id) => messages.zero(id)?,
    };
    length_delimited(out, number, content);
    Ok(())
}

/// Reads an object, and appends its message. Gives where that lies.
struct OfMessage<'e, 'o> {
    encoder: &'e mut Encoder<'o>,
    id: StructId,
}

impl<'de> DeserializeSeed<'de> for OfMessage<'_, '_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let message = self.encoder.message(self.id).map_err(D::Error::custom)?;
        match message.style {
            Style::Object => deserializer.deserialize_any(self),
            Style::Either => either(self.encoder, self.id, message, deserializer),
        }
    }
}

impl<'de> Visitor<'de> for OfMessage<'_, '_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        let parts = Parts::of(self.encoder.messages, self.id).map_err(E::custom)?;
        self.encoder.assemble(parts, self.encoder.here()).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self { encoder, id } = self;
        let begin = encoder.here();
        let mut parts = Parts::of(encoder.messages, id).map_err(A::Error::custom)?;
        let names = encoder.messages.names(parts.message).map_err(A::Error::custom)?;
        while let Some(key) = map.next_key_seed(Key(names))? {
            let Some(path) = key else {
                // The envelope says it.
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let Some((of, position)) = parts.at(path) else { continue };
            let Some(field) = of.message.fields.get(position) else { continue };
            let records = &mut of.records;
            map.next_value_seed(OfField { encoder, field, position, records })?;
        }
        encoder.assemble(parts, begin).map_err(A::Error::custom)
    }
}

/// The path of a field by its name. `None`: it is the type, which is not sent.
struct Key(&'static HashMap<&'static str, FieldPath>);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static FieldPath>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static FieldPath>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        match self.0.get(name) {
            Some(path) => Ok(Some(path)),
            None if matches!(name, "kind" | "apiVersion") => Ok(None),
            None => Err(E::custom(format_args!("unknown field {name:?}"))),
        }
    }
}

/// Reads the value of a field, and notes where its records lie.
struct OfField<'e, 'o, 'r> {
    encoder: &'e mut Encoder<'o>,
    field: &'static Field,
    position: usize,
    records: &'r mut SmallVec<[(usize, Range<usize>); 16]>,
}

impl<'de> DeserializeSeed<'de> for OfField<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.shape {
            Shape::One | Shape::Pointer => {
                let Self { encoder, field, position, records } = self;
                let number = field.number.unwrap_or_default();
                let record = OfValue { encoder, value: field.value, number }.deserialize(deserializer)?;
                records.extend(record.map(|record| (position, record)));
                Ok(())
            }
            Shape::Repeated | Shape::Map => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for OfField<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.field.shape == Shape::Map { "an object" } else { "a list" })
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.field.shape != Shape::Repeated {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let Self { encoder, field, position, records } = self;
        let (value, number) = (field.value, field.number.unwrap_or_default());
        while let Some(record) = list.next_element_seed(OfItem(OfValue { encoder, value, number }))? {
            records.push((position, record));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.field.shape != Shape::Map {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let Self { encoder, field, position, records } = self;
        let number = field.number.unwrap_or_default();
        let mut entries: Vec<(Cow<'de, str>, Range<usize>)> = Vec::new();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let before = encoder.here();
            let value = map.next_value_seed(OfValue { encoder, value: field.value, number: 2 })?;
            let value = match (value, field.value) {
                (Some(value), _) => value,
                (None, Value::Bytes) => 0..0,
                (None, of) => zero_item(encoder, of, 2).map_err(A::Error::custom)?,
            };
            let start = encoder.here();
            length_delimited(encoder.scratch, 1, key.0.as_bytes());
            encoder.copy(value);
            let content = encoder.forget(before, start);
            entries.push((key.0, encoder.record(number, content.start)));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        records.extend(entries.into_iter().map(|(_, record)| (position, record)));
        Ok(())
    }
}

/// Borrowed text where it has no escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An item of a list: `null` is its zero value.
struct OfItem<'e, 'o>(OfValue<'e, 'o>);

impl<'de> DeserializeSeed<'de> for OfItem<'_, '_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let OfValue { encoder, value, number } = self.0;
        match (OfValue { encoder: &mut *encoder, value, number }).deserialize(deserializer)? {
            Some(record) => Ok(record),
            None => zero_item(encoder, value, number).map_err(D::Error::custom),
        }
    }
}

/// Appends the record of an item or map value that is `null`.
fn zero_item(encoder: &mut Encoder<'_>, value: Value, number: u32) -> Result<Range<usize>, SchemaError> {
    let start = encoder.here();
    zero_value(encoder.messages, value, number, encoder.scratch)?;
    Ok(start..encoder.here())
}

/// Reads one value, and appends its record. `None`: it is `null`.
struct OfValue<'e, 'o> {
    encoder: &'e mut Encoder<'o>,
    value: Value,
    number: u32,
}

impl<'de> DeserializeSeed<'de> for OfValue<'_, '_> {
    type Value = Option<Range<usize>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let Self { encoder, value, number } = self;
        match value {
            Value::Struct(id) => {
                let content = deserializer.deserialize_option(Nullable(OfMessage { encoder: &mut *encoder, id }))?;
                Ok(content.map(|content| encoder.record(number, content.start)))
            }
            Value::Double => {
                // Not by serde_json, which reads some numbers inexactly.
                let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?.get();
                if raw == "null" {
                    return Ok(None);
                }
                let is: f64 = raw.parse().map_err(D::Error::custom)?;
                let start = encoder.here();
                tag(encoder.scratch, number, 1);
                encoder.scratch.extend_from_slice(&is.to_bits().to_le_bytes());
                Ok(Some(start..encoder.here()))
            }
            Value::Raw | Value::Json | Value::Fields => {
                let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Some(raw.get()).filter(|text| *text != "null").map(|text| {
                    let start = encoder.here();
                    length_delimited(encoder.scratch, 1, text.as_bytes());
                    encoder.record(number, start)
                }))
            }
            Value::WrappedStrings => {
                let texts = <Option<Vec<Text<'de>>> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(texts.map(|texts| {
                    let start = encoder.here();
                    texts.iter().for_each(|text| length_delimited(encoder.scratch, 1, text.0.as_bytes()));
                    encoder.record(number, start)
                }))
            }
            _ => deserializer.deserialize_any(OfLeaf { out: encoder.scratch, value, number }),
        }
    }
}

/// `None` for `null`.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// Reads what JSON prints as the first of its fields that is set: the JSON's own type says which.
///
/// Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1/marshal.go`.
fn either<'de, D: Deserializer<'de>>(
    encoder: &mut Encoder<'_>,
    id: StructId,
    message: &'static Message,
    deserializer: D,
) -> Result<Range<usize>, D::Error> {
    let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?.get();
    let begin = encoder.here();
    let mut parts = Parts::of(encoder.messages, id).map_err(D::Error::custom)?;
    let is_of = |field: &Field| {
        matches!(
            (raw.as_bytes().first(), field.shape, field.value),
            (Some(b'['), Shape::Repeated, _)
                | (Some(b'{'), Shape::Pointer, Value::Struct(_))
                | (Some(b't' | b'f'), Shape::One, Value::Bool)
        )
    };
    let mut put = |encoder: &mut Encoder<'_>, position: usize, json: &str| match message.fields.get(position) {
        Some(field) => {
            let records = &mut parts.records;
            let mut parser = serde_json::Deserializer::from_str(json);
            OfField { encoder, field, position, records }.deserialize(&mut parser).map_err(D::Error::custom)
        }
        None => Ok(()),
    };
    match message.fields.iter().position(is_of) {
        Some(position) => put(encoder, position, raw)?,
        None if raw == "null" => {}
        None => return Err(D::Error::custom(format_args!("{raw} is none of the types of its field"))),
    }
    // A schema is also an allowance.
    let allows = message.fields.iter().position(|field| field.value == Value::Bool);
    if let (Some(position), true) = (allows, raw.starts_with('{')) {
        put(encoder, position, "true")?;
    }
    encoder.assemble(parts, begin).map_err(D::Error::custom)
}
