//! An object that is printed: read once, and only where a cell needs it.

use std::{borrow::Cow, fmt, marker::PhantomData, ops::Range};

use kubefold_wire::scan::{Scanner, value_of};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor, value::BorrowedStrDeserializer},
    forward_to_deserialize_any,
};

/// One object.
pub struct Object<'a> {
    json: &'a str,
    metadata: Range<usize>,
    name: Option<&'a str>,
    deleting: Option<bool>,
    second_cell: &'a str,
}

impl<'a> Object<'a> {
    /// An object of which nothing is known but its text.
    pub fn new(json: &'a str) -> Self {
        let metadata = value_of(json, 0, "metadata").unwrap_or_default();
        Self { json, metadata, name: None, deleting: None, second_cell: "" }
    }

    /// An object whose metadata is known to lie there, with its name, and whether it is being deleted.
    pub fn known(json: &'a str, metadata: Range<usize>, name: &'a str, deleting: bool) -> Self {
        Self { json, metadata, name: Some(name), deleting: Some(deleting), second_cell: "" }
    }

    /// The same with what stands in the column of [`Printer::with_second_column`](crate::Printer::with_second_column).
    #[must_use]
    pub fn with_second_cell(self, text: &'a str) -> Self {
        Self { second_cell: text, ..self }
    }

    /// `{...}` of its metadata; empty if it has none.
    pub fn metadata_json(&self) -> &'a str {
        self.json.get(self.metadata.clone()).unwrap_or_default()
    }

    /// The whole.
    pub fn json(&self) -> &'a str {
        self.json
    }

    pub(super) fn second_cell(&self) -> &'a str {
        self.second_cell
    }

    pub(super) fn name(&self) -> Cow<'a, str> {
        if let Some(name) = self.name {
            return name.into();
        }
        let raw = self.in_metadata("name").unwrap_or_default();
        serde_json::from_str::<Text<'_>>(raw).map(|text| text.0).unwrap_or_default()
    }

    /// `creationTimestamp`, if it has one.
    pub(super) fn creation(&self) -> Option<&'a str> {
        self.in_metadata("creationTimestamp")?.strip_prefix('"')?.strip_suffix('"')
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deleting.unwrap_or_else(|| self.in_metadata("deletionTimestamp").is_some_and(|value| value != "null"))
    }

    /// The JSON of a value of the metadata.
    fn in_metadata(&self, key: &str) -> Option<&'a str> {
        self.json.get(value_of(self.json, self.metadata.start, key)?)
    }

    /// Reads what cells need of the metadata.
    pub(super) fn read_metadata<T: Deserialize<'a> + Default>(&self) -> Result<T, serde_json::Error> {
        match self.metadata_json() {
            "" | "null" => Ok(T::default()),
            metadata => serde_json::from_str(metadata),
        }
    }

    /// Reads what cells need of the rest. Metadata is stepped over unseen: it is half of most objects.
    pub(super) fn read<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(Fields {
            scanner: Scanner::new(self.json),
            text: self.json,
            skip: self.metadata.clone(),
            begun: false,
        })
    }
}

/// The top level of an object without its metadata.
struct Fields<'a> {
    scanner: Scanner<'a>,
    text: &'a str,
    skip: Range<usize>,
    begun: bool,
}

impl<'de> Deserializer<'de> for Fields<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        let fault = serde_json::Error::custom;
        loop {
            if !std::mem::replace(&mut self.begun, true) {
                if !self.scanner.eat(b'{') || self.scanner.eat(b'}') {
                    return Ok(None);
                }
            } else if !self.scanner.goes_on(b'}').map_err(fault)? {
                return Ok(None);
            }
            let key = self.scanner.key().map_err(fault)?;
            // Leads to the value's first byte.
            let _first = self.scanner.peek();
            if self.scanner.at() == self.skip.start && !self.skip.is_empty() {
                self.scanner.back_to(self.skip.end);
                continue;
            }
            let key = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
            return seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some);
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        let start = self.scanner.at();
        let mut deserializer = serde_json::Deserializer::from_str(self.text.get(start..).unwrap_or_default());
        let value = seed.deserialize(&mut deserializer)?;
        self.scanner.back_to(start + deserializer.into_iter::<IgnoredAny>().byte_offset());
        Ok(value)
    }
}

/// Text that is borrowed where it has no escapes; `null` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Itself, or another if it is empty.
    pub(super) fn or<'b>(&'b self, other: &'b str) -> &'b str {
        if self.is_empty() { other } else { &self.0 }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words<'a>(PhantomData<&'a str>);
        impl<'de: 'a, 'a> Visitor<'de> for Words<'a> {
            type Value = Text<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
            // A quantity may be written as a number, and an `IntOrString` is one or the other.
            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
        }
        deserializer.deserialize_any(Words(PhantomData))
    }
}

/// An array; `null` is an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> std::ops::Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default()))
    }
}

/// A map in the order of its text; `null` is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map<'a>(pub(super) Vec<(Text<'a>, Text<'a>)>);

impl Map<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name.as_str() == key).map(|(_, value)| value.as_str())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<'a>(PhantomData<&'a str>);
        impl<'de: 'a, 'a> Visitor<'de> for Pairs<'a> {
            type Value = Map<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Map::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Map(pairs))
            }
        }
        deserializer.deserialize_any(Pairs(PhantomData))
    }
}

/// How many elements an array has, or entries a map; `null` has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) i64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array or a map")
            }
            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(0))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                let mut count = Count(0);
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count.0 += 1;
                }
                Ok(count)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                let mut count = Count(0);
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count.0 += 1;
                }
                Ok(count)
            }
        }
        deserializer.deserialize_any(Counter)
    }
}
