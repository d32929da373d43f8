//! Bodies in which a field stands twice. Which of the two counts is settled before anything is planned, and the client is told as a
//! kube-apiserver tells him: a member sees each field once.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use crate::respond::WriteError;
use kubefold_apiserver::schema::{builtin, builtin_kind, decode};
use kubefold_serving::request::ReadBody;
use kubefold_wire::{findings, options::query_value, resource::split_api_version, text::Text, warning::Warnings};

/// What a body is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// An object.
    Object,
    /// The object of a server-side apply, which is YAML.
    Applied,
}

/// A body in which each field stands once.
#[derive(Debug)]
pub(super) struct Once {
    pub(super) json: Bytes,
    /// What the client is told.
    pub(super) warnings: Warnings,
}

impl From<Bytes> for Once {
    fn from(json: Bytes) -> Self {
        Self { json, warnings: Warnings::default() }
    }
}

/// Puts what a body's reader warns of before what the members warn of, as a kube-apiserver does.
pub(super) fn warn_first(warnings: &Warnings, headers: &mut HeaderMap) {
    if warnings.is_empty() {
        return;
    }
    let later: Vec<HeaderValue> = headers.get_all(header::WARNING).iter().cloned().collect();
    headers.remove(header::WARNING);
    warnings.write_to(headers);
    for warning in later {
        headers.append(header::WARNING, warning);
    }
}

/// Lets the last of each repeated field count.
///
/// Errors: 400 where `fieldValidation` is `Strict`.
/// Shape: linear in the body; it is written anew only where a field is repeated.
pub(super) fn once(read: ReadBody, query: &str, decoding: Decoding) -> Result<Once, WriteError> {
    let ReadBody { json, repeated: of_yaml } = read;
    // JSON that was YAML has each field once.
    let of_json = if of_yaml.is_empty() { findings::repeated(&json) } else { Vec::new() };
    if of_yaml.is_empty() && of_json.is_empty() {
        return Ok(json.into());
    }
    let value: Value =
        serde_json::from_slice(&json).map_err(|error| WriteError::Body { what: "object", cause: error.to_string() })?;
    let mut warnings = Warnings::default();
    match query_value(query, "fieldValidation").unwrap_or_default().as_str() {
        "" | "Warn" => of_yaml.iter().chain(&of_json).for_each(|found| warnings.add(found)),
        "Strict" => return Err(refused(&json, &value, decoding, &of_yaml, &of_json)),
        // Ignored; or no such word, which the members refuse.
        _ => {}
    }
    let json = if of_json.is_empty() { json } else { Bytes::from(value.to_string()) };
    Ok(Once { json, warnings })
}

fn refused(json: &[u8], value: &Value, decoding: Decoding, of_yaml: &[String], of_json: &[String]) -> WriteError {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let found = if of_yaml.is_empty() {
        let all = of_builtin(json, api_version, kind);
        all.as_deref().unwrap_or(of_json).join(", ")
    } else {
        format!("yaml: unmarshal errors:\n  {}", of_yaml.join("\n  "))
    };
    let decoding = match decoding {
        Decoding::Object => {
            format!("{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error")
        }
        Decoding::Applied => "error strict decoding YAML: error converting YAML to JSON".to_owned(),
    };
    WriteError::Repeated { decoding, found }
}

/// All that strictness forbids in an object of a built-in kind, in the order of the text: a kube-apiserver tells in the same
/// sentence what is unknown. `None` of other kinds, and of what cannot be decoded.
fn of_builtin(json: &[u8], api_version: &str, kind: &str) -> Option<Vec<String>> {
    let (group, version) = split_api_version(api_version)?;
    let (types, text) = (builtin(), Text::read(std::str::from_utf8(json).ok()?).ok()?);
    let typed = types.named(builtin_kind(group, version, kind)?)?;
    let findings = decode(typed, &text).ok()?.findings;
    (!findings.is_empty()).then_some(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &'static str, of_yaml: &[&str]) -> ReadBody {
        ReadBody {
            json: Bytes::from_static(json.as_bytes()),
            repeated: of_yaml.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    const TWICE: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"1","b":"2","a":"3"}}"#;

    #[test]
    fn the_last_counts_and_the_client_is_told() {
        for (query, told) in [("", true), ("fieldValidation=Warn", true), ("fieldValidation=Ignore", false)] {
            let once = once(read(TWICE, &[]), query, Decoding::Object).unwrap();
            let wanted = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"3","b":"2"}}"#;
            assert_eq!(once.json, wanted, "{query}");
            assert_eq!(!once.warnings.is_empty(), told, "{query}");
        }
        let same = once(read("{\"a\": 1}", &[]), "fieldValidation=Strict", Decoding::Object).unwrap();
        assert_eq!(same.json, "{\"a\": 1}");
    }

    #[test]
    fn strictness_refuses_in_the_words_of_a_kube_apiserver() {
        let strict = "fieldManager=x&fieldValidation=Strict";
        let json = once(read(TWICE, &[]), strict, Decoding::Object).unwrap_err().to_string();
        let wanted = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \"data.a\"";
        assert_eq!(json, wanted);
        let unknown =
            r#"{"kind":"ConfigMap","apiVersion":"v1","colour":1,"data":{"a":"1","a":"3"},"metadata":{"nmae":"x"}}"#;
        let json = once(read(unknown, &[]), strict, Decoding::Object).unwrap_err().to_string();
        let found = r#"error: unknown field "colour", duplicate field "data.a", unknown field "metadata.nmae""#;
        assert!(json.ends_with(found), "{json}");
        let lines = ["line 5: key \"a\" already set in map", "line 6: key \"b\" already set in map"];
        let applied = once(read("{}", &lines), strict, Decoding::Applied).unwrap_err().to_string();
        let wanted = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
                      line 5: key \"a\" already set in map\n  line 6: key \"b\" already set in map";
        assert_eq!(applied, wanted);
    }
}
