//! What is wrong with a field, in Kubernetes' words.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/field/errors.go`.

use crate::schema::go_quoted;
use kubefold_wire::status::Cause;

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) field: String,
    reason: &'static str,
    message: String,
}

impl Fault {
    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {why}") }
    }

    /// `value` is as it is printed.
    pub(super) fn invalid(field: impl Into<String>, value: &str, why: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {why}") }
    }

    pub(super) fn unsupported(field: impl Into<String>, value: &str, known: &[&str]) -> Self {
        let known: Vec<_> = known.iter().map(|known| go_quoted(known)).collect();
        let message = format!("Unsupported value: {}: supported values: {}", go_quoted(value), known.join(", "));
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    pub(super) fn of(cause: Cause) -> Self {
        let reasons = ["FieldValueRequired", "FieldValueNotSupported", "FieldValueTypeInvalid", "FieldValueTooLong"];
        let reason = reasons.into_iter().chain(["FieldValueTooMany", "FieldValueDuplicate"]);
        let reason = reason.into_iter().find(|reason| *reason == cause.reason).unwrap_or("FieldValueInvalid");
        Self { field: cause.field, reason, message: cause.message }
    }

    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    pub(super) fn into_cause(self) -> Cause {
        Cause { reason: self.reason.to_owned(), message: self.message, field: self.field }
    }
}
