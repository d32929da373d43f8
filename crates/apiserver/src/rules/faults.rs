//! What is wrong with the rules of a schema.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`.

use kubefold_wire::{access::text, golang, status::Cause};
use serde_json::{Value, json};

use super::{
    evaluate::field_path,
    program::{CompileError, Program},
    rules_of, schemas,
    types::Type,
};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the rules of a structural schema, at a path.
pub(crate) fn faults(path: &str, schema: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    place(&mut found, schema, &Place { path: path.to_owned(), is_root: true, uncorrelated: None });
    found
}

struct Place {
    path: String,
    is_root: bool,
    /// The list or map within which nobody can say which value was which.
    uncorrelated: Option<String>,
}

fn place(found: &mut Vec<Cause>, schema: &Value, at: &Place) {
    let inside = |name: &str, correlates: bool| Place {
        path: format!("{}.{name}", at.path),
        is_root: false,
        uncorrelated: at.uncorrelated.clone().or_else(|| (!correlates).then(|| at.path.clone())),
    };
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        place(found, values, &inside("additionalProperties", true));
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        place(found, property, &inside(&format!("properties[{name}]"), true));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        place(found, items, &inside("items", text(schema, "/x-kubernetes-list-type") == "map"));
    }
    for (index, rule) in rules_of(schema).iter().enumerate() {
        let path = format!("{}.x-kubernetes-validations[{index}]", at.path);
        let before = found.len();
        said(found, schema, rule, &path);
        if found.len() == before {
            compiled(found, schema, rule, &path, at);
        }
    }
}

fn has_lines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// What is wrong with the fields of a rule.
fn said(found: &mut Vec<Cause>, schema: &Value, rule: &Value, path: &str) {
    let (source, message) = (text(rule, "/rule").trim(), text(rule, "/message"));
    let invalid =
        |name: &str, value: &str, why: &str| Cause::invalid(format!("{path}.{name}"), &golang::quoted(value), why);
    if source.is_empty() {
        found.push(Cause::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        found.push(invalid("message", message, "must be non-empty if specified"));
    } else if has_lines(message.trim()) {
        found.push(invalid("message", message, "must not contain line breaks"));
    } else if has_lines(source) && message.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        found.push(Cause::required(format!("{path}.message"), why));
    }
    let expression = text(rule, "/messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        found.push(Cause::required(format!("{path}.messageExpression"), why));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason)) {
        found.push(Cause::unsupported(format!("{path}.reason"), reason, &REASONS));
    }
    let place = text(rule, "/fieldPath");
    if !place.is_empty() && place.trim().is_empty() {
        found.push(invalid("fieldPath", place, "must be non-empty if specified"));
    }
    if has_lines(place) {
        found.push(invalid("fieldPath", place, "must not contain line breaks"));
    }
    if !place.is_empty() && field_path(place, schema).is_none() {
        found.push(invalid("fieldPath", place, "must be a valid path"));
    }
}

fn compiled(found: &mut Vec<Cause>, schema: &Value, rule: &Value, path: &str, at: &Place) {
    let scope = &schemas::type_of_self(schema, at.is_root);
    let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
    let shown = json!({
        "Rule": text(rule, "/rule"), "Message": text(rule, "/message"),
        "MessageExpression": text(rule, "/messageExpression"), "Reason": rule.get("reason"),
        "FieldPath": text(rule, "/fieldPath"), "OptionalOldSelf": optional,
    })
    .to_string();
    // As Go writes JSON, with the fields in the order of its struct.
    let shown = shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let program = match Program::compile(text(rule, "/rule"), scope, optional == Some(true), &Type::Bool) {
        Ok(program) => program,
        Err(error) => {
            found.push(Cause::invalid(format!("{path}.rule"), &shown, &error.of_rule()));
            return;
        }
    };
    let expression = text(rule, "/messageExpression");
    if !expression.is_empty()
        && let Err(error) = Program::compile(expression, scope, optional == Some(true), &Type::Text)
    {
        let why = match &error {
            CompileError::OtherType { gives, .. } => format!("messageExpression must evaluate to a {gives}"),
            CompileError::Compilation(_) => format!("messageExpression {error}"),
        };
        found.push(Cause::invalid(format!("{path}.messageExpression"), &shown, &why));
    }
    if program.uses_old {
        if let Some(within) = &at.uncorrelated {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            found.push(Cause::invalid(format!("{path}.rule"), &golang::quoted(text(rule, "/rule")), &why));
        }
    } else if let Some(optional) = optional {
        let why = "may not be set if oldSelf is not used in rule";
        found.push(Cause::invalid(format!("{path}.optionalOldSelf"), &optional.to_string(), why));
    }
}
