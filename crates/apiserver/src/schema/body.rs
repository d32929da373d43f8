//! An object out of a request's body.
//!
//! Source: kubernetes/apimachinery `pkg/runtime/serializer/json/json.go`; kubernetes/apiserver
//! `pkg/endpoints/handlers/create.go`, `rest.go`.

use crate::schema::{
    BodyError, DecodeError, Decoded, StrictError, Text, Type, Unhandled, Unrecognized, builtin_kind, decode,
};

/// So much of a body is shown that is no object.
const SHOWN_MAX: usize = 30;

/// What becomes of fields that are unknown or there twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is warned.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// What a body should hold.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Empty is core.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Pod`.
    pub kind: &'a str,
    /// Its type. A type that Go does not know takes any object.
    pub typed: Type<'a>,
}

impl FieldValidation {
    /// The value of the parameter `fieldValidation`; `None` if it is no such word.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }

    /// As a request says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }

    /// The warnings for the client.
    ///
    /// Errors: why the object is refused.
    pub fn judge(self, findings: Vec<String>) -> Result<Vec<String>, StrictError> {
        match self {
            Self::Strict if !findings.is_empty() => Err(StrictError(findings)),
            Self::Warn => Ok(findings),
            _ => Ok(Vec::new()),
        }
    }
}

/// Reads an object out of a body in JSON.
///
/// Errors: a `BadRequest`.
pub fn read_body(expected: Expected<'_>, body: &[u8], validation: FieldValidation) -> Result<Decoded, BodyError> {
    let unrecognized =
        |source: Unrecognized| BodyError::Unrecognized { kind: expected.kind.to_owned(), source, shown: shown(body) };
    let body_text = String::from_utf8_lossy(body);
    let text = Text::read(&body_text).map_err(|why| unrecognized(why.into()))?;
    let (api_version, kind) = expected.type_meta(&text).map_err(|why| unrecognized(why.into()))?;
    if kind.is_empty() {
        return Err(unrecognized(Unrecognized::NoKind(body_text.into_owned())));
    }
    let unhandled = |source: Unhandled| {
        let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
        BodyError::Unhandled { kind: kind.clone(), version, expected: expected.kind.to_owned(), source }
    };
    expected.check(&api_version, &kind, unhandled)?;
    let decoded = decode(expected.typed, &text).map_err(|why| unhandled(why.into()))?;
    let findings = validation.judge(decoded.findings).map_err(|why| unhandled(why.into()))?;
    Ok(Decoded { object: expected.named(decoded.object), findings })
}

impl Expected<'_> {
    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// What the object says of itself. What a built-in kind does not say is taken for granted.
    fn type_meta(&self, text: &Text<'_>) -> Result<(String, String), DecodeError> {
        let entries: &[_] = match text {
            Text::Object(entries) => entries,
            Text::Null => &[],
            other => {
                let fields =
                    r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
                return Err(DecodeError::WrongType {
                    value: other.name().to_owned(),
                    target: "value".to_owned(),
                    go_type: format!("struct {{ {fields} }}"),
                });
            }
        };
        let mut said = match self.typed.go() {
            Some(_) => (self.api_version(), self.kind.to_owned()),
            None => (String::new(), String::new()),
        };
        for (key, value) in entries {
            let place = match key.as_str() {
                "apiVersion" => &mut said.0,
                "kind" => &mut said.1,
                _ => continue,
            };
            match value {
                Text::String(value) if value.is_empty() => {}
                Text::String(value) => value.clone_into(place),
                Text::Null => {}
                other => {
                    return Err(DecodeError::WrongType {
                        value: other.name().to_owned(),
                        target: format!("struct field .{key}"),
                        go_type: "string".to_owned(),
                    });
                }
            }
        }
        Ok(said)
    }

    fn check(
        &self,
        api_version: &str,
        kind: &str,
        unhandled: impl Fn(Unhandled) -> BodyError,
    ) -> Result<(), BodyError> {
        let own = self.api_version();
        if api_version == own && kind == self.kind {
            return Ok(());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let other_version = || BodyError::OtherVersion { found: api_version.to_owned(), expected: own.clone() };
        if self.typed.go().is_none() {
            // Any custom resource can be read; what it is not is told later, as a fault of the object.
            return if api_version == own { Ok(()) } else { Err(other_version()) };
        }
        if builtin_kind(group, version, kind).is_none() {
            let (kind, api_version) = (kind.to_owned(), api_version.to_owned());
            return Err(unhandled(Unhandled::NotRegistered { kind, api_version }));
        }
        if kind == self.kind && group == self.group {
            return Err(other_version());
        }
        let package = if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() };
        let (from, to) = (format!("{version}.{kind}"), format!("{package}.{}", self.kind));
        Err(unhandled(Unhandled::OtherKind { from, to }))
    }

    /// Sets what the object left for granted.
    fn named(&self, mut object: serde_json::Value) -> serde_json::Value {
        if let Some(fields) = object.as_object_mut()
            && self.typed.go().is_some()
        {
            fields.shift_remove("kind");
            fields.shift_remove("apiVersion");
            fields.shift_insert(0, "kind".to_owned(), self.kind.into());
            fields.shift_insert(1, "apiVersion".to_owned(), self.api_version().into());
        }
        object
    }
}

fn shown(body: &[u8]) -> String {
    let start = body.get(..SHOWN_MAX).unwrap_or(body);
    let more = if body.len() > SHOWN_MAX { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{more}", start.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

#[cfg(test)]
mod tests;
