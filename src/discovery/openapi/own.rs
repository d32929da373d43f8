//! kubefold's own OpenAPI v2 document, beside those of the members: in JSON as its server gives it, and its definitions as protobuf,
//! in which client-go reads it.
//!
//! Paths are in JSON only: clients of the protobuf form explain and validate by definitions.
//!
//! Source: google/gnostic-models `openapiv2/OpenAPIv2.proto`.

use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest, Sha512};

use super::{
    merge::{Encoding, push_nested, push_varint},
    urls::upper_hex,
};
use kubefold_wire::yaml;

/// Definitions nest no deeper.
const DEPTH_MAX: usize = 64;

/// The document, in both encodings.
pub(super) struct OwnSwagger {
    json: Bytes,
    protobuf: Bytes,
    hash: String,
}

impl OwnSwagger {
    /// Takes a document. `None`: it is not one.
    pub(super) fn of(json: Bytes) -> Option<Self> {
        let document: Value = serde_json::from_slice(&json).ok()?;
        let mut protobuf = Vec::new();
        for (name, definition) in document.get("definitions")?.as_object()? {
            push_nested(&[9, 1], &named(name, &schema(definition, DEPTH_MAX)), &mut protobuf);
        }
        let hash = upper_hex(&Sha512::digest(&json));
        Some(Self { json, protobuf: protobuf.into(), hash })
    }

    pub(super) fn bytes(&self, encoding: Encoding) -> &[u8] {
        match encoding {
            Encoding::Json => &self.json,
            Encoding::Protobuf => &self.protobuf,
        }
    }

    /// Changes with the document.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}

/// `NamedSchema`, `NamedAny`
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_nested(&[1], name.as_bytes(), &mut out);
    push_nested(&[2], value, &mut out);
    out
}

/// `Schema`
fn schema(value: &Value, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(depth) = depth.checked_sub(1) else { return out };
    let fields = Fields(value);
    for (number, field) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description")] {
        fields.text(number, field, &mut out);
    }
    fields.any(5, "default", &mut out);
    fields.double(6, "multipleOf", &mut out);
    fields.double(7, "maximum", &mut out);
    fields.flag(8, "exclusiveMaximum", &mut out);
    fields.double(9, "minimum", &mut out);
    fields.flag(10, "exclusiveMinimum", &mut out);
    fields.count(11, "maxLength", &mut out);
    fields.count(12, "minLength", &mut out);
    fields.text(13, "pattern", &mut out);
    fields.count(14, "maxItems", &mut out);
    fields.count(15, "minItems", &mut out);
    fields.flag(16, "uniqueItems", &mut out);
    fields.count(17, "maxProperties", &mut out);
    fields.count(18, "minProperties", &mut out);
    for required in fields.list("required").iter().filter_map(Value::as_str) {
        push_nested(&[19], required.as_bytes(), &mut out);
    }
    for allowed in fields.list("enum") {
        push_nested(&[20], &any(allowed), &mut out);
    }
    match value.get("additionalProperties") {
        Some(Value::Bool(allowed)) => push_nested(&[21], &[2 << 3, u8::from(*allowed)], &mut out),
        Some(further) => push_nested(&[21, 1], &schema(further, depth), &mut out),
        None => {}
    }
    fields.types(22, &mut out);
    if let Some(items) = value.get("items") {
        push_nested(&[23, 1], &schema(items, depth), &mut out);
    }
    for one in fields.list("allOf") {
        push_nested(&[24], &schema(one, depth), &mut out);
    }
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        let mut all = Vec::new();
        for (name, property) in sorted(properties) {
            push_nested(&[1], &named(name, &schema(property, depth)), &mut all);
        }
        push_nested(&[25], &all, &mut out);
    }
    fields.flag(27, "readOnly", &mut out);
    let extensions = value.as_object().map(sorted).unwrap_or_default();
    for (name, extension) in extensions.into_iter().filter(|(name, _)| name.starts_with("x-")) {
        push_nested(&[31], &named(name, &any(extension)), &mut out);
    }
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
    push_nested(&[2], &yaml, &mut out);
    out
}

/// The fields of a schema in JSON. What has no value, or that of a field that is not there, is not written.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn list(&self, field: &str) -> &'a [Value] {
        self.0.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn text(&self, number: u32, field: &str, out: &mut Vec<u8>) {
        if let Some(text) = self.0.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            push_nested(&[number], text.as_bytes(), out);
        }
    }

    /// `null` and an empty object are left out, as a kube-aggregator does; an empty list is not.
    fn any(&self, number: u32, field: &str, out: &mut Vec<u8>) {
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if let Some(value) = self.0.get(field).filter(|value| !is_empty(value)) {
            push_nested(&[number], &any(value), out);
        }
    }

    fn flag(&self, number: u32, field: &str, out: &mut Vec<u8>) {
        if self.0.get(field) == Some(&Value::Bool(true)) {
            push_varint(u64::from(number) << 3, out);
            out.push(1);
        }
    }

    fn count(&self, number: u32, field: &str, out: &mut Vec<u8>) {
        if let Some(count) = self.0.get(field).and_then(Value::as_u64).filter(|count| *count > 0) {
            push_varint(u64::from(number) << 3, out);
            push_varint(count, out);
        }
    }

    fn double(&self, number: u32, field: &str, out: &mut Vec<u8>) {
        if let Some(value) = self.0.get(field).and_then(Value::as_f64).filter(|value| *value != 0.0) {
            push_varint(u64::from(number) << 3 | 1, out);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn types(&self, number: u32, out: &mut Vec<u8>) {
        let Some(types) = self.0.get("type") else { return };
        let mut item = Vec::new();
        for one in types.as_str().into_iter().chain(self.list("type").iter().filter_map(Value::as_str)) {
            push_nested(&[1], one.as_bytes(), &mut item);
        }
        push_nested(&[number], &item, out);
    }
}

#[cfg(test)]
mod tests {
    use kubefold_wire::protobuf::{Payload, Records};
    use serde_json::json;

    use super::*;

    fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let payload = |payload: Payload<'_>| match payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Varint(number) | Payload::Fixed64(number) => number.to_le_bytes().to_vec(),
            Payload::Fixed32 => Vec::new(),
        };
        Records::new(message).map(Result::unwrap).map(|(number, value)| (number, payload(value))).collect()
    }

    /// A kube-aggregator makes the same of it: `tests/e2e/aggregation.rs`.
    #[test]
    fn a_definition_has_the_fields_of_its_json() {
        let definition = json!({
            "description": "How many.", "type": "integer", "format": "int32", "default": 3, "minimum": 0.5, "maxLength": 300,
            "uniqueItems": true, "readOnly": false, "enum": ["a"], "x-kubernetes-list-map-keys": ["type"],
            "additionalProperties": false, "properties": {"deep": {"$ref": "#/definitions/Other"}},
        });
        let document = json!({"swagger": "2.0", "definitions": {"Some": definition}, "paths": {"/apis/": {}}});
        let own = OwnSwagger::of(Bytes::from(document.to_string())).unwrap();
        let [(9, all)] = &fields(own.bytes(Encoding::Protobuf))[..] else { panic!("definitions alone") };
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
        assert!(OwnSwagger::of(Bytes::from_static(b"<html>")).is_none());
    }
}
