//! An object out of a request's body.
//!
//! Source: kubernetes/apimachinery `pkg/runtime/serializer/json/json.go`; kubernetes/apiserver
//! `pkg/endpoints/handlers/create.go`, `rest.go`.

use crate::schema::{Decoded, Text, Type, builtin_kind, decode};
use kubefold_wire::golang;

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

    /// The warnings for the client.
    ///
    /// Errors: why the object is refused.
    pub fn judge(self, findings: Vec<String>) -> Result<Vec<String>, String> {
        match self {
            Self::Strict if !findings.is_empty() => Err(format!("strict decoding error: {}", findings.join(", "))),
            Self::Warn => Ok(findings),
            _ => Ok(Vec::new()),
        }
    }
}

/// Reads an object out of a body in JSON.
///
/// Errors: the message of a `BadRequest`.
pub fn read_body(expected: Expected<'_>, body: &[u8], validation: FieldValidation) -> Result<Decoded, String> {
    let body_text = String::from_utf8_lossy(body);
    let text = Text::read(&body_text).map_err(|why| expected.unrecognized(&why.to_string(), body))?;
    let meta_error = |why: String| expected.unrecognized(&why, body);
    let (api_version, kind) = expected.type_meta(&text).map_err(meta_error)?;
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{body_text}'");
        return Err(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            expected.kind,
            shown(body)
        ));
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let refused = |why: &str| {
        let own = expected.kind;
        format!("{kind} in version {} cannot be handled as a {own}: {why}", golang::quoted(version))
    };
    expected.check(&api_version, &kind, refused)?;
    let decoded = decode(expected.typed, &text).map_err(|why| refused(&why))?;
    let findings = validation.judge(decoded.findings).map_err(|why| refused(&why))?;
    Ok(Decoded { object: expected.named(decoded.object), findings })
}

impl Expected<'_> {
    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    fn unrecognized(&self, why: &str, body: &[u8]) -> String {
        let why = format!("couldn't get version/kind; json parse error: {why}");
        format!("the object provided is unrecognized (must be of type {}): {why} ({})", self.kind, shown(body))
    }

    /// What the object says of itself. What a built-in kind does not say is taken for granted.
    fn type_meta(&self, text: &Text<'_>) -> Result<(String, String), String> {
        let entries: &[_] = match text {
            Text::Object(entries) => entries,
            Text::Null => &[],
            other => {
                let fields =
                    r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
                return Err(format!(
                    "json: cannot unmarshal {} into Go value of type struct {{ {fields} }}",
                    other.name()
                ));
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
                    let name = other.name();
                    return Err(format!("json: cannot unmarshal {name} into Go struct field .{key} of type string"));
                }
            }
        }
        Ok(said)
    }

    fn check(&self, api_version: &str, kind: &str, refused: impl Fn(&str) -> String) -> Result<(), String> {
        let own = self.api_version();
        if api_version == own && kind == self.kind {
            return Ok(());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        if self.typed.go().is_none() {
            // Any custom resource can be read; what it is not is told later, as a fault of the object.
            return if api_version == own { Ok(()) } else { Err(mismatch(api_version, &own)) };
        }
        if builtin_kind(group, version, kind).is_none() {
            let registered = "in scheme \"pkg/runtime/scheme.go:111\"";
            let why = format!(
                "no kind {} is registered for version {} {registered}",
                golang::quoted(kind),
                golang::quoted(api_version)
            );
            return Err(refused(&why));
        }
        if kind == self.kind && group == self.group {
            return Err(mismatch(api_version, &own));
        }
        let package = if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() };
        Err(refused(&format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", self.kind)))
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

fn mismatch(found: &str, own: &str) -> String {
    format!("the API version in the data ({found}) does not match the expected API version ({own})")
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
