//! A document of OpenAPI v2 as a message, as client-go reads it: kubectl validates a `kind: List` by it.
//!
//! Tables of fields say what is written. A field without a value, or with that of a field that is not there, is not written, as in
//! Go. Kubernetes' documents have more: who may log in (`security`), which a client of this form does not ask for.
//!
//! Source: google/gnostic-models `openapiv2/OpenAPIv2.proto`.

use serde_json::{Map, Value};

use super::leaf::{length_delimited, tag, varint};
use crate::yaml;

/// The media type of such a document.
pub const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// As clients ask for it, and servers before 1.27 know it only so.
pub const OPENAPI_V2_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Messages nest no deeper.
const DEPTH_MAX: usize = 64;

/// The fields of a message, in the order of their numbers, from 1 on. Extensions (`x-...`) have the number after the last.
struct Message(&'static [&'static [(&'static str, Form)]]);

/// How the value of a field is written.
enum Form {
    Text,
    Texts,
    Flag,
    Count,
    Double,
    /// A value of any type, as YAML.
    Any,
    Anys,
    /// A message inside messages of one field each, which have these numbers.
    One(&'static [u32], &'static Message),
    Many(&'static Message),
    /// A message of named ones, which have this number in it; each inside messages of one field each.
    Named(u32, &'static [u32], &'static Message),
    NamedParameters,
    Parameters,
    /// The names of types: a text or several.
    Types,
    /// A schema, or whether there may be any.
    SchemaOrFlag,
    Unwritten,
}

use Form::{
    Any, Anys, Count, Double, Flag, Many, Named, NamedParameters, One, Parameters, SchemaOrFlag, Text, Texts, Types,
    Unwritten,
};

static DOCUMENT: Message = Message(&[&[
    ("swagger", Text),
    ("info", One(&[], &INFO)),
    ("host", Text),
    ("basePath", Text),
    ("schemes", Texts),
    ("consumes", Texts),
    ("produces", Texts),
    ("paths", Named(2, &[], &PATH)),
    ("definitions", Named(1, &[], &SCHEMA)),
    ("parameters", NamedParameters),
    ("responses", Unwritten),
    ("security", Unwritten),
    ("securityDefinitions", Unwritten),
    ("tags", Unwritten),
    ("externalDocs", Unwritten),
]]);

static INFO: Message = Message(&[&[
    ("title", Text),
    ("version", Text),
    ("description", Text),
    ("termsOfService", Text),
    ("contact", Unwritten),
    ("license", Unwritten),
]]);

static PATH: Message = Message(&[&[
    ("$ref", Text),
    ("get", One(&[], &OPERATION)),
    ("put", One(&[], &OPERATION)),
    ("post", One(&[], &OPERATION)),
    ("delete", One(&[], &OPERATION)),
    ("options", One(&[], &OPERATION)),
    ("head", One(&[], &OPERATION)),
    ("patch", One(&[], &OPERATION)),
    ("parameters", Parameters),
]]);

static OPERATION: Message = Message(&[&[
    ("tags", Texts),
    ("summary", Text),
    ("description", Text),
    ("externalDocs", Unwritten),
    ("operationId", Text),
    ("produces", Texts),
    ("consumes", Texts),
    ("parameters", Parameters),
    ("responses", Named(1, &[1], &RESPONSE)),
    ("schemes", Texts),
    ("deprecated", Flag),
    ("security", Unwritten),
]]);

static RESPONSE: Message = Message(&[&[
    ("description", Text),
    ("schema", One(&[1], &SCHEMA)),
    ("headers", Unwritten),
    ("examples", Unwritten),
]]);

static REFERENCE: Message = Message(&[&[("$ref", Text), ("description", Text)]]);

static OF_BODY: Message = Message(&[&[
    ("description", Text),
    ("name", Text),
    ("in", Text),
    ("required", Flag),
    ("schema", One(&[], &SCHEMA)),
]]);

static OF_QUERY: Message = Message(&[
    PARAMETER,
    &[("allowEmptyValue", Flag)],
    PARAMETER_TYPE,
    BOUNDS,
    &[("enum", Anys), ("multipleOf", Double)],
]);

/// That of a header has the same fields.
static OF_PATH: Message = Message(&[PARAMETER, PARAMETER_TYPE, BOUNDS, &[("enum", Anys), ("multipleOf", Double)]]);

const PARAMETER: &[(&str, Form)] = &[("required", Flag), ("in", Text), ("description", Text), ("name", Text)];

const PARAMETER_TYPE: &[(&str, Form)] =
    &[("type", Text), ("format", Text), ("items", Unwritten), ("collectionFormat", Text), ("default", Any)];

/// What a value may be, of a parameter and of a schema.
const BOUNDS: &[(&str, Form)] = &[
    ("maximum", Double),
    ("exclusiveMaximum", Flag),
    ("minimum", Double),
    ("exclusiveMinimum", Flag),
    ("maxLength", Count),
    ("minLength", Count),
    ("pattern", Text),
    ("maxItems", Count),
    ("minItems", Count),
    ("uniqueItems", Flag),
];

static SCHEMA: Message = Message(&[
    &[
        ("$ref", Text),
        ("format", Text),
        ("title", Text),
        ("description", Text),
        ("default", Any),
        ("multipleOf", Double),
    ],
    BOUNDS,
    &[
        ("maxProperties", Count),
        ("minProperties", Count),
        ("required", Texts),
        ("enum", Anys),
        ("additionalProperties", SchemaOrFlag),
        ("type", Types),
        ("items", One(&[1], &SCHEMA)),
        ("allOf", Many(&SCHEMA)),
        ("properties", Named(1, &[], &SCHEMA)),
        ("discriminator", Text),
        ("readOnly", Flag),
        ("xml", Unwritten),
        ("externalDocs", Unwritten),
        ("example", Any),
    ],
]);

/// Writes a document of OpenAPI v2 as a message.
///
/// Shape: a document in JSON -> a `Document` without `security`, `tags` and other parts that Kubernetes' clients do not read.
pub fn from_openapi_v2(document: &Value) -> Vec<u8> {
    DOCUMENT.of(document, DEPTH_MAX)
}

/// Appends `content` inside as many messages as the path has numbers.
pub fn push_nested(path: &[u32], content: &[u8], out: &mut Vec<u8>) {
    match path {
        [] => out.extend_from_slice(content),
        [number] => length_delimited(out, *number, content),
        [number, below @ ..] => {
            let mut message = Vec::with_capacity(content.len() + 12);
            push_nested(below, content, &mut message);
            length_delimited(out, *number, &message);
        }
    }
}

impl Message {
    fn of(&self, value: &Value, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let (Some(depth), Some(value)) = (depth.checked_sub(1), value.as_object()) else { return out };
        let mut number = 1;
        for (name, form) in self.0.iter().copied().flatten() {
            if let Some(value) = value.get(*name) {
                form.write(number, value, depth, &mut out);
            }
            number += 1;
        }
        for (name, extension) in sorted(value).into_iter().filter(|(name, _)| name.starts_with("x-")) {
            length_delimited(&mut out, number, &named(name, &any(extension)));
        }
        out
    }
}

impl Form {
    fn write(&self, number: u32, value: &Value, depth: usize, out: &mut Vec<u8>) {
        let list = || value.as_array().into_iter().flatten();
        match self {
            Text => {
                if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                    length_delimited(out, number, text.as_bytes());
                }
            }
            Texts => list().filter_map(Value::as_str).for_each(|one| length_delimited(out, number, one.as_bytes())),
            Flag => push_number(number, u64::from(value == &Value::Bool(true)), out),
            Count => push_number(number, value.as_u64().unwrap_or_default(), out),
            Double => {
                if let Some(value) = value.as_f64().filter(|value| *value != 0.0) {
                    tag(out, number, 1);
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            // An empty list is written.
            Any if value.is_null() || value.as_object().is_some_and(Map::is_empty) => {}
            Any => length_delimited(out, number, &any(value)),
            Anys => list().for_each(|one| length_delimited(out, number, &any(one))),
            One(below, message) => length_delimited(out, number, &inside(below, message.of(value, depth))),
            Many(message) => list().for_each(|one| length_delimited(out, number, &message.of(one, depth))),
            Named(of_entry, below, message) => {
                push_entries(number, *of_entry, value, |one| inside(below, message.of(one, depth)), out);
            }
            NamedParameters => push_entries(number, 1, value, |one| parameter(one, depth), out),
            Parameters => list().for_each(|one| {
                let item = match one.get("$ref") {
                    Some(_) => inside(&[2], REFERENCE.of(one, depth)),
                    None => inside(&[1], parameter(one, depth)),
                };
                length_delimited(out, number, &item);
            }),
            Types => {
                let types = value.as_str().into_iter().chain(list().filter_map(Value::as_str));
                let mut item = Vec::new();
                types.for_each(|one| length_delimited(&mut item, 1, one.as_bytes()));
                length_delimited(out, number, &item);
            }
            SchemaOrFlag => {
                let item = match value.as_bool() {
                    Some(allowed) => vec![2 << 3, u8::from(allowed)],
                    None => inside(&[1], SCHEMA.of(value, depth)),
                };
                length_delimited(out, number, &item);
            }
            Unwritten => {}
        }
    }
}

/// Appends a number other than 0.
fn push_number(number: u32, value: u64, out: &mut Vec<u8>) {
    if value > 0 {
        tag(out, number, 0);
        varint(out, value);
    }
}

/// Appends a message of named ones.
fn push_entries(number: u32, of_entry: u32, value: &Value, write: impl Fn(&Value) -> Vec<u8>, out: &mut Vec<u8>) {
    let mut all = Vec::new();
    for (name, one) in value.as_object().map(sorted).unwrap_or_default() {
        length_delimited(&mut all, of_entry, &named(name, &write(one)));
    }
    length_delimited(out, number, &all);
}

/// `Parameter`. Kubernetes has none of a form.
fn parameter(value: &Value, depth: usize) -> Vec<u8> {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => inside(&[1], OF_BODY.of(value, depth)),
        Some("header") => inside(&[2, 1], OF_PATH.of(value, depth)),
        Some("query") => inside(&[2, 3], OF_QUERY.of(value, depth)),
        Some("path") => inside(&[2, 4], OF_PATH.of(value, depth)),
        _ => Vec::new(),
    }
}

/// A message inside messages of one field each.
fn inside(path: &[u32], message: Vec<u8>) -> Vec<u8> {
    if path.is_empty() {
        return message;
    }
    let mut out = Vec::with_capacity(message.len() + 12);
    push_nested(path, &message, &mut out);
    out
}

/// `NamedSchema`, `NamedAny` and the like.
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 12);
    length_delimited(&mut out, 1, name.as_bytes());
    length_delimited(&mut out, 2, value);
    out
}

/// In the order of names, as Go writes its maps.
fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

/// `Any`: YAML.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let yaml = yaml::from_json(value.to_string().as_bytes()).unwrap_or_default();
    length_delimited(&mut out, 2, &yaml);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::{Payload, Records};

    fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let payload = |payload: Payload<'_>| match payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Varint(number) | Payload::Fixed64(number) => number.to_le_bytes().to_vec(),
            Payload::Fixed32 => Vec::new(),
        };
        Records::new(message).map(Result::unwrap).map(|(number, value)| (number, payload(value))).collect()
    }

    /// A kube-apiserver makes the same of its own document: kubefold's `tests/e2e/openapi.rs`.
    #[test]
    fn a_definition_has_the_fields_of_its_json() {
        let definition = json!({
            "description": "How many.", "type": "integer", "format": "int32", "default": 3, "minimum": 0.5, "maxLength": 300,
            "uniqueItems": true, "readOnly": false, "enum": ["a"], "x-kubernetes-list-map-keys": ["type"],
            "additionalProperties": false, "properties": {"deep": {"$ref": "#/definitions/Other"}},
        });
        let document = json!({"swagger": "2.0", "definitions": {"Some": definition}});
        let [(1, swagger), (9, all)] = &fields(&from_openapi_v2(&document))[..] else { panic!("both") };
        assert_eq!(swagger, b"2.0");
        let [(1, one)] = &fields(all)[..] else { panic!("one of them") };
        let [(1, name), (2, schema)] = &fields(one)[..] else { panic!("its name and itself") };
        assert_eq!(name, b"Some");
        let text = |text: &str| text.as_bytes().to_vec();
        let one_text = |number: u8, of: &str| [&[number << 3 | 2, of.len() as u8][..], of.as_bytes()].concat();
        let reference = one_text(1, "#/definitions/Other");
        let property = [one_text(1, "deep"), vec![2 << 3 | 2, reference.len() as u8], reference].concat();
        let properties = [vec![1 << 3 | 2, property.len() as u8], property].concat();
        let extension = [one_text(1, "x-kubernetes-list-map-keys"), vec![0x12, 9], one_text(2, "- type\n")].concat();
        let expected = [
            (2, text("int32")),
            (4, text("How many.")),
            (5, one_text(2, "3\n")),
            (9, 0.5_f64.to_le_bytes().to_vec()),
            (11, 300_u64.to_le_bytes().to_vec()),
            (16, 1_u64.to_le_bytes().to_vec()),
            (20, one_text(2, "a\n")),
            (21, vec![2 << 3, 0]),
            (22, one_text(1, "integer")),
            (25, properties),
            (31, extension),
        ];
        assert_eq!(fields(schema), expected);
    }

    #[test]
    fn what_is_too_deep_or_of_another_shape_is_left_out() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        let document = from_openapi_v2(&json!({"definitions": {"Deep": deep}}));
        assert!((100..500).contains(&document.len()), "{} bytes", document.len());
        for odd in [json!([]), json!("text"), json!({"paths": {"/apis/": {"get": 1, "parameters": [{"in": "form"}]}}})]
        {
            Records::new(&from_openapi_v2(&odd)).for_each(|record| assert!(record.is_ok(), "{odd}"));
        }
    }
}
