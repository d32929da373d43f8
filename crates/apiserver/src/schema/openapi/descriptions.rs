//! What Kubernetes says of its types and their fields, in words.
//!
//! `tests/testbed/types` writes `descriptions.txt`, which explains its own format; `build.rs` compresses it. It is read when
//! documents are made, and not kept.

use std::{collections::HashMap, io::Read as _};

use flate2::read::DeflateDecoder;
use serde_json::{Map, Value};

use super::Spec;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions"));

/// The text of all descriptions.
pub(super) fn text() -> String {
    let mut text = String::new();
    let read = DeflateDecoder::new(PACKED).read_to_string(&mut text);
    debug_assert!(read.is_ok(), "the descriptions are broken: {read:?}");
    text
}

/// Descriptions by the name of their type.
pub(super) struct Descriptions<'t>(HashMap<&'t str, Described<'t>>);

#[derive(Default)]
struct Described<'t> {
    text: &'t str,
    fields: Vec<(&'t str, &'t str)>,
}

impl<'t> Descriptions<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let (mut all, mut name) = (HashMap::<_, Described<'_>>::new(), "");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((field, text)) = line.strip_prefix(' ').and_then(|rest| rest.split_once(' ')) {
                all.entry(name).or_default().fields.push((field, text));
            } else if let Some((of, text)) = line.split_once(' ') {
                name = of;
                all.entry(name).or_default().text = text;
            }
        }
        Self(all)
    }

    /// The description of a field; the first of that name.
    pub(super) fn field(&self, name: &str, field: &str) -> Option<String> {
        let Self(all) = self;
        let (_, text) = all.get(name)?.fields.iter().find(|(one, _)| *one == field)?;
        Some(unescaped(text))
    }

    /// Adds the descriptions of a type and its fields to its schema.
    pub(super) fn add(&self, spec: Spec, name: &str, schema: &mut Value) {
        let Self(all) = self;
        let (Some(known), Some(schema)) = (all.get(name), schema.as_object_mut()) else { return };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (field, text) in &known.fields {
                if let Some(Value::Object(property)) = properties.get_mut(*field) {
                    *property = spec.beside(std::mem::take(property));
                    property.insert("description".to_owned(), unescaped(text).into());
                }
            }
        }
        if !known.text.is_empty() {
            schema.insert("description".to_owned(), unescaped(known.text).into());
        }
    }
}

impl Spec {
    /// A reference that may have neighbours: in OpenAPI 3 it has none itself.
    pub(super) fn beside(self, schema: Map<String, Value>) -> Map<String, Value> {
        if self == Self::V3 && schema.contains_key("$ref") {
            return Map::from_iter([("allOf".to_owned(), Value::Array(vec![Value::Object(schema)]))]);
        }
        schema
    }
}

fn unescaped(text: &str) -> String {
    let (mut out, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped })),
            letter => out.push(letter),
        }
    }
    out
}
