//! Which field is wrong, and why, in Kubernetes' words.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/field/errors.go`, `path.go`.

use std::fmt;

use serde_json::Value;

use kubefold_wire::status::Cause;

/// Where in an object.
#[derive(Clone, Debug)]
pub(in crate::kinds) struct Path(String);

impl Path {
    pub(in crate::kinds) fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    pub(in crate::kinds) fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(in crate::kinds) fn index(&self, at: usize) -> Self {
        Self(format!("{}[{at}]", self.0))
    }

    pub(in crate::kinds) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

/// What is wrong so far.
#[derive(Debug, Default)]
pub(in crate::kinds) struct Errors(Vec<Cause>);

impl Errors {
    pub(in crate::kinds) fn into_causes(self) -> Vec<Cause> {
        self.0
    }

    pub(in crate::kinds) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another.
    pub(in crate::kinds) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn add(&mut self, at: &Path, reason: &str, message: String) {
        self.0.push(Cause { reason: reason.to_owned(), message, field: at.0.clone() });
    }

    pub(in crate::kinds) fn required(&mut self, at: &Path, why: &str) {
        self.add(at, "FieldValueRequired", with("Required value", why));
    }

    pub(in crate::kinds) fn forbidden(&mut self, at: &Path, why: &str) {
        self.add(at, "FieldValueForbidden", with("Forbidden", why));
    }

    pub(in crate::kinds) fn invalid(&mut self, at: &Path, value: impl Into<Value>, why: &str) {
        self.add(at, "FieldValueInvalid", with(&format!("Invalid value: {}", Shown(&value.into())), why));
    }

    /// One for each of the reasons.
    pub(in crate::kinds) fn all_invalid(&mut self, at: &Path, value: &str, whys: &[String]) {
        whys.iter().for_each(|why| self.invalid(at, value, why));
    }

    pub(in crate::kinds) fn duplicate(&mut self, at: &Path, value: impl Into<Value>) {
        self.add(at, "FieldValueDuplicate", format!("Duplicate value: {}", Shown(&value.into())));
    }

    pub(in crate::kinds) fn duplicate_because(&mut self, at: &Path, value: impl Into<Value>, why: &str) {
        self.add(at, "FieldValueDuplicate", with(&format!("Duplicate value: {}", Shown(&value.into())), why));
    }

    pub(in crate::kinds) fn not_found(&mut self, at: &Path, value: impl Into<Value>) {
        self.add(at, "FieldValueNotFound", format!("Not found: {}", Shown(&value.into())));
    }

    pub(in crate::kinds) fn too_long(&mut self, at: &Path, most: usize) {
        self.add(at, "FieldValueTooLong", format!("Too long: may not be more than {most} bytes"));
    }

    pub(in crate::kinds) fn too_many(&mut self, at: &Path, are: usize, most: usize) {
        self.add(at, "FieldValueTooMany", format!("Too many: {are}: must have at most {most} items"));
    }

    pub(in crate::kinds) fn unsupported(&mut self, at: &Path, value: impl Into<Value>, supported: &[&str]) {
        let known: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let why = format!("Unsupported value: {}: supported values: {}", Shown(&value.into()), known.join(", "));
        self.add(at, "FieldValueNotSupported", why);
    }
}

/// A value as Go's internal type of it has it, which has no names for JSON: fields begin with a capital, and all of
/// them are shown. (`fields` are those, in order, with what an unset one is.)
pub(in crate::kinds) fn internal(value: &Value, fields: &[(&str, &str, Value)]) -> Value {
    let field = |(shown, name, unset): &(&str, &str, Value)| {
        let given = value.get(*name).filter(|given| !given.is_null());
        ((*shown).to_owned(), given.unwrap_or(unset).clone())
    };
    fields.iter().map(field).collect::<serde_json::Map<_, _>>().into()
}

fn with(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
}

/// A value as Go shows it.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => write!(f, "{text:?}"),
            other => write!(f, "{other}"),
        }
    }
}
