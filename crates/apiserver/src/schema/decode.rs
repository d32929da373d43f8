//! Reads an object of a built-in kind as a kube-apiserver's decoder does: values must be of the types of the Go
//! structs; fields that these do not have are dropped and told, as are fields that are there twice.
//!
//! Source: sigs.k8s.io/json `internal/golang/encoding/json/decode.go`.

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use kubefold_wire::{findings::Findings, quantity::Quantity};
use serde_json::{Map, Value};

use crate::schema::{
    DecodeError, Field, Go, GoKind, Text, Type, arrange, conform,
    time::{canonical_micro_time, canonical_time},
};

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// As Go would print it.
    pub object: Value,
    /// What strictness forbids, such as `unknown field "spec.foo"`, in the order of the text.
    pub findings: Vec<String>,
}

/// Reads an object: of a type that Go knows, or of a custom resource's.
///
/// Of a custom resource, what is there twice is told first, then what is unknown.
///
/// Errors: what Go says, such as `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of
/// type int32`.
pub fn decode(typed: Type<'_>, text: &Text<'_>) -> Result<Decoded, DecodeError> {
    if typed.go().is_none() {
        let mut findings = Findings::default();
        findings.duplicates(text);
        let mut object = text.value();
        let mut findings = findings.told();
        findings.extend(conform(typed, &mut object)?);
        return Ok(Decoded { object, findings });
    }
    let mut decoder = Decoder { findings: Findings::default(), place: Vec::new(), structure: "", mistake: None };
    let value = decoder.value(typed, text, None)?;
    match decoder.mistake {
        Some(mistake) => Err(mistake),
        None => Ok(Decoded { object: arrange(typed, value), findings: decoder.findings.told() }),
    }
}

struct Decoder<'a> {
    findings: Findings,
    /// The fields on the way here, as Go's errors name them.
    place: Vec<String>,
    /// The Go struct of the last of them.
    structure: &'a str,
    /// The first value of a wrong type. Reading goes on, since a worse mistake may follow.
    mistake: Option<DecodeError>,
}

impl<'a> Decoder<'a> {
    /// Errors: what ends the reading at once.
    fn value(&mut self, typed: Type<'a>, text: &Text<'_>, before: Option<Value>) -> Result<Value, DecodeError> {
        let Some(go) = typed.go() else { return Ok(text.value()) };
        match go.kind {
            GoKind::Struct => self.structure(typed, go, text, before),
            GoKind::List => self.list(typed, go, text),
            GoKind::Map => self.map(typed, go, text, before),
            GoKind::Bool | GoKind::Int32 | GoKind::Int64 | GoKind::Double | GoKind::Text | GoKind::Bytes => {
                Ok(self.scalar(go, text))
            }
            GoKind::Raw | GoKind::SchemaOr => Ok(text.value()),
            GoKind::Time | GoKind::MicroTime | GoKind::Duration | GoKind::Quantity | GoKind::IntOrString => {
                self.special(go, text)
            }
        }
    }

    fn structure(
        &mut self,
        typed: Type<'a>,
        go: &'a Go,
        text: &Text<'_>,
        before: Option<Value>,
    ) -> Result<Value, DecodeError> {
        let entries = match text {
            Text::Null => return Ok(if go.pointer { Value::Null } else { before.unwrap_or(Value::Null) }),
            Text::Object(entries) => entries,
            other => return Ok(self.mistaken(other.name(), &go.name)),
        };
        // A struct that is there twice is read into the same struct.
        let mut object = match before {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let outer = self.structure;
        let mut seen = HashSet::new();
        for (key, value) in entries {
            let Some((field, typed)) = typed.fields().find(|(field, _)| field.name == *key) else {
                self.findings.tell("unknown", key);
                continue;
            };
            if !seen.insert(key.as_str()) {
                self.findings.tell("duplicate", key);
            }
            self.structure = go.name.rsplit('.').next().unwrap_or(&go.name);
            self.enter(field);
            let before = object.shift_remove(key);
            let value = self.value(typed, value, before)?;
            object.insert(key.clone(), value);
            self.leave(field);
        }
        self.structure = outer;
        Ok(Value::Object(object))
    }

    fn enter(&mut self, field: &Field) {
        self.place.push(format!("{}{}", field.within, field.name));
        self.findings.enter(&field.name);
    }

    fn leave(&mut self, _field: &Field) {
        self.place.pop();
        self.findings.leave();
    }

    fn list(&mut self, typed: Type<'a>, go: &'a Go, text: &Text<'_>) -> Result<Value, DecodeError> {
        let (items, texts) = match (typed.items(), text) {
            (_, Text::Null) => return Ok(Value::Null),
            (Some(items), Text::List(texts)) => (items, texts),
            (_, other) => return Ok(self.mistaken(other.name(), &go.name)),
        };
        let mut out = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            self.findings.enter_item(index);
            out.push(self.value(items, text, None)?);
            self.findings.leave();
        }
        Ok(Value::Array(out))
    }

    fn map(
        &mut self,
        typed: Type<'a>,
        go: &'a Go,
        text: &Text<'_>,
        before: Option<Value>,
    ) -> Result<Value, DecodeError> {
        let (values, entries) = match (typed.values(), text) {
            (_, Text::Null) => return Ok(Value::Null),
            (Some(values), Text::Object(entries)) => (values, entries),
            (_, other) => return Ok(self.mistaken(other.name(), &go.name)),
        };
        let mut object = match before {
            Some(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let mut seen = HashSet::new();
        for (key, value) in entries {
            if !seen.insert(key.as_str()) {
                self.findings.tell("duplicate", key);
            }
            self.findings.enter(key);
            let value = self.value(values, value, None)?;
            object.insert(key.clone(), value);
            self.findings.leave();
        }
        Ok(Value::Object(object))
    }

    fn scalar(&mut self, go: &Go, text: &Text<'_>) -> Value {
        match (go.kind, text) {
            // `null` leaves what is there; nothing is, in what counts.
            (_, Text::Null) => Value::Null,
            (GoKind::Bool, Text::Truth(truth)) => (*truth).into(),
            (GoKind::Text, Text::String(string)) => string.as_str().into(),
            (GoKind::Bytes, Text::String(string)) => self.bytes(string),
            (GoKind::Int32, Text::Number(number)) => match number.parse::<i32>() {
                Ok(whole) => whole.into(),
                Err(_) => self.mistaken(&format!("number {number}"), &go.name),
            },
            (GoKind::Int64, Text::Number(number)) => match number.parse::<i64>() {
                Ok(whole) => whole.into(),
                Err(_) => self.mistaken(&format!("number {number}"), &go.name),
            },
            (GoKind::Double, Text::Number(number)) => match number.parse::<f64>().ok().filter(|n| n.is_finite()) {
                Some(_) => text.value(),
                None => self.mistaken(&format!("number {number}"), &go.name),
            },
            (_, other) => self.mistaken(other.name(), &go.name),
        }
    }

    fn bytes(&mut self, string: &str) -> Value {
        // Go skips line ends.
        let joined: String = string.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
        match STANDARD.decode(&joined) {
            Ok(bytes) => STANDARD.encode(bytes).into(),
            Err(error) => {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _) => at,
                    base64::DecodeError::InvalidLastSymbol { offset, .. } => offset,
                    _ => joined.len(),
                };
                self.mistake.get_or_insert(DecodeError::Base64 { at });
                Value::Null
            }
        }
    }

    /// Types that read themselves. What is wrong with a literal ends the reading; with the rest it does not differ.
    fn special(&mut self, go: &Go, text: &Text<'_>) -> Result<Value, DecodeError> {
        let wrong = |decoder: &mut Self, value: &str, name: &str| {
            decoder.mistaken(value, name);
            Err(decoder.wrong_type(value, name))
        };
        match (go.kind, text) {
            (GoKind::IntOrString, Text::Null) if !go.pointer => Ok(0.into()),
            (_, Text::Null) => Ok(Value::Null),
            (GoKind::Time, Text::String(string)) => Ok(canonical_time(string)?.into()),
            (GoKind::MicroTime, Text::String(string)) => Ok(canonical_micro_time(string)?.into()),
            (GoKind::Duration, Text::String(string)) => Ok(string.as_str().into()),
            (GoKind::Quantity, Text::String(string)) => quantity(string.trim()),
            (GoKind::Quantity, Text::Number(number)) => quantity(number),
            (GoKind::Quantity, _) => quantity("?"),
            (GoKind::IntOrString, Text::String(string)) => Ok(string.as_str().into()),
            (GoKind::IntOrString, Text::Number(number)) => match number.parse::<i32>() {
                Ok(whole) => Ok(whole.into()),
                Err(_) => wrong(self, &format!("number {number}"), "int32"),
            },
            (GoKind::IntOrString, other) => wrong(self, other.name(), "int32"),
            (_, other) => wrong(self, other.name(), "string"),
        }
    }

    fn mistaken(&mut self, value: &str, name: &str) -> Value {
        if self.mistake.is_none() {
            self.mistake = Some(self.wrong_type(value, name));
        }
        Value::Null
    }

    fn wrong_type(&self, value: &str, go_type: &str) -> DecodeError {
        let target = match &*self.place {
            [] => "value".to_owned(),
            place => format!("struct field {}.{}", self.structure, place.join(".")),
        };
        DecodeError::WrongType { value: value.to_owned(), target, go_type: go_type.to_owned() }
    }
}

/// A quantity as a kube-apiserver stores it.
fn quantity(text: &str) -> Result<Value, DecodeError> {
    Ok(Quantity::parse(text)?.to_string().into())
}
