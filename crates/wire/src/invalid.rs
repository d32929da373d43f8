//! Which field is wrong, and why, in Kubernetes' words.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/field/errors.go`, `path.go`.

use std::fmt;

use serde_json::Value;

use crate::{golang, status::Cause};

impl Cause {
    /// A cause of a reason.
    pub fn new(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), field: field.into() }
    }

    /// A field is absent.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueRequired", field, with("Required value", why))
    }

    /// A field may not be set, or not so.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, with("Forbidden", why))
    }

    /// A value is wrong. `value` is as it is printed: a text in quotes.
    pub fn invalid(field: impl Into<String>, value: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, with(&format!("Invalid value: {value}"), why))
    }

    /// A text is wrong.
    pub fn invalid_text(field: impl Into<String>, value: &str, why: &str) -> Self {
        Self::invalid(field, &golang::quoted(value), why)
    }

    /// A text is none of the known ones.
    pub fn unsupported(field: impl Into<String>, value: &str, known: &[&str]) -> Self {
        Self::new("FieldValueNotSupported", field, unsupported(&golang::quoted(value), known))
    }

    /// The field and what is wrong with it, as one sentence.
    pub fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// The path of a field in an object.
#[derive(Clone, Debug)]
pub struct Path(String);

impl Path {
    /// A path as it is written: `spec.ports`.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// A field inside.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// An item of a list.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        Self(format!("{}[{at}]", self.0))
    }

    /// An entry of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

/// What is wrong with the fields of an object, so far.
#[derive(Debug, Default)]
pub struct Errors(Vec<Cause>);

impl Errors {
    /// The causes of a 422, in the order in which they were found.
    pub fn into_causes(self) -> Vec<Cause> {
        self.0
    }

    /// Says whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn add(&mut self, at: &Path, reason: &str, message: String) {
        self.0.push(Cause::new(reason, at.0.as_str(), message));
    }

    /// A field is absent.
    pub fn required(&mut self, at: &Path, why: &str) {
        self.0.push(Cause::required(at.0.as_str(), why));
    }

    /// A field may not be set, or not so.
    pub fn forbidden(&mut self, at: &Path, why: &str) {
        self.0.push(Cause::forbidden(at.0.as_str(), why));
    }

    /// A value is wrong.
    pub fn invalid(&mut self, at: &Path, value: impl Into<Value>, why: &str) {
        self.0.push(Cause::invalid(at.0.as_str(), &Shown(&value.into()).to_string(), why));
    }

    /// A text is wrong, for each of the reasons.
    pub fn all_invalid(&mut self, at: &Path, value: &str, whys: &[String]) {
        whys.iter().for_each(|why| self.invalid(at, value, why));
    }

    /// A value occurs before.
    pub fn duplicate(&mut self, at: &Path, value: impl Into<Value>) {
        self.duplicate_because(at, value, "");
    }

    /// A value occurs before, and why that is wrong.
    pub fn duplicate_because(&mut self, at: &Path, value: impl Into<Value>, why: &str) {
        self.add(at, "FieldValueDuplicate", with(&format!("Duplicate value: {}", Shown(&value.into())), why));
    }

    /// What a value names does not exist.
    pub fn not_found(&mut self, at: &Path, value: impl Into<Value>) {
        self.add(at, "FieldValueNotFound", format!("Not found: {}", Shown(&value.into())));
    }

    /// A text has too many bytes.
    pub fn too_long(&mut self, at: &Path, most: usize) {
        self.add(at, "FieldValueTooLong", format!("Too long: may not be more than {most} bytes"));
    }

    /// A list has too many items.
    pub fn too_many(&mut self, at: &Path, are: usize, most: usize) {
        self.add(at, "FieldValueTooMany", format!("Too many: {are}: must have at most {most} items"));
    }

    /// The server cannot use a value, although nothing is wrong with how it is written.
    pub fn internal(&mut self, at: &Path, why: &str) {
        self.add(at, "InternalError", format!("Internal error: {why}"));
    }

    /// A value is none of the known ones.
    pub fn unsupported(&mut self, at: &Path, value: impl Into<Value>, known: &[&str]) {
        self.add(at, "FieldValueNotSupported", unsupported(&Shown(&value.into()).to_string(), known));
    }
}

fn with(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
}

fn unsupported(shown: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|known| golang::quoted(known)).collect();
    format!("Unsupported value: {shown}: supported values: {}", known.join(", "))
}

/// A value as Go shows it.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(&golang::quoted(text)),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `errors.go`, `ErrorBody`, which prints texts with `%q`: Rust's own quotes say `\u{7f}`.
    #[test]
    fn errors_as_kubernetes_says_them() {
        let at = Path::new("spec").child("ports").index(1).key("a");
        let mut errors = Errors::default();
        errors.invalid(&at, "a\u{7f}'", "must be so");
        errors.unsupported(&at, "x", &["a", "b"]);
        errors.required(&at, "");
        let messages: Vec<String> = errors.into_causes().into_iter().map(|cause| cause.text()).collect();
        assert_eq!(
            messages,
            [
                r#"spec.ports[1][a]: Invalid value: "a\x7f'": must be so"#,
                r#"spec.ports[1][a]: Unsupported value: "x": supported values: "a", "b""#,
                "spec.ports[1][a]: Required value",
            ]
        );
    }
}
