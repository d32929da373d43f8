//! What is wrong with the rules of a schema.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/validation.go`.

use kubefold_wire::{access::text, golang, status::Cause};
use serde_json::{Value, json};

use super::{
    budget::{Budget, EXPRESSION_COST_MAX, exceeded, values_max},
    evaluate::field_path,
    program::{CompileError, Program},
    rules_of, schemas,
    sizes::Sizes,
    types::Type,
};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the rules of a structural schema, at a path. Of one that is stored so, each expression may cost what it costs.
pub(crate) fn faults(path: &str, schema: &Value, is_stored: bool) -> Vec<Cause> {
    let mut found = Faults { said: Vec::new(), compiled: Vec::new(), budget: Budget::default(), is_stored };
    place(&mut found, schema, &Place { path: path.to_owned(), is_root: true, count: Some(1), uncorrelated: None });
    let mut all = found.said;
    all.append(&mut found.compiled);
    found.budget.faults(path, &mut all);
    all
}

/// What was found so far.
struct Faults {
    /// About the fields of rules, which comes first.
    said: Vec<Cause>,
    /// About their expressions.
    compiled: Vec<Cause>,
    budget: Budget,
    is_stored: bool,
}

struct Place {
    path: String,
    is_root: bool,
    /// How often there may be a value by the limits of the lists and maps around it; `None`: one of them has no limit.
    count: Option<u64>,
    /// The list or map within which nobody can say which value was which.
    uncorrelated: Option<String>,
}

fn place(found: &mut Faults, schema: &Value, at: &Place) {
    let before = found.said.len();
    let inside = |name: &str, correlates: bool| Place {
        path: format!("{}.{name}", at.path),
        is_root: false,
        count: at.count.zip(values_max(schema)).map(|(count, each)| count.saturating_mul(each)),
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
    let path = |index: usize| format!("{}.x-kubernetes-validations[{index}]", at.path);
    for (index, rule) in rules_of(schema).iter().enumerate() {
        said(&mut found.said, schema, rule, &path(index));
    }
    // Expressions are not looked at where the fields of a rule are wrong, here or within.
    if found.said.len() == before {
        for (index, rule) in rules_of(schema).iter().enumerate() {
            compiled(found, schema, rule, &path(index), at);
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

fn compiled(found: &mut Faults, schema: &Value, rule: &Value, path: &str, at: &Place) {
    let scope = &schemas::type_of_self(schema, at.is_root);
    let sizes = Sizes { schema, is_root: at.is_root };
    let optional = rule.get("optionalOldSelf").and_then(Value::as_bool);
    let read = |source: &str, wanted: &Type<'_>| {
        Program::estimated(source, scope, optional == Some(true), wanted, Some(sizes))
    };
    let (source, at_rule) = (text(rule, "/rule"), format!("{path}.rule"));
    let mut uses_old = false;
    match read(source, &Type::Bool) {
        Ok(program) => {
            uses_old = program.uses_old;
            let cost = program.estimated.saturating_mul(at.count.unwrap_or_else(|| sizes.count_max()));
            costs(found, &at_rule, "estimated rule cost", cost);
            let expression = text(rule, "/messageExpression");
            if !expression.is_empty() {
                told(found, rule, path, read(expression, &Type::Text));
            }
        }
        Err(error) => found.compiled.push(Cause::invalid(at_rule.as_str(), &shown(rule), &error.of_rule())),
    }
    if uses_old {
        if let Some(within) = &at.uncorrelated {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            found.compiled.push(Cause::invalid(at_rule, &golang::quoted(source), &why));
        }
    } else if let Some(optional) = optional {
        let why = "may not be set if oldSelf is not used in rule";
        found.compiled.push(Cause::invalid(format!("{path}.optionalOldSelf"), &optional.to_string(), why));
    }
}

/// What is wrong with the expression of a rule's message.
fn told(found: &mut Faults, rule: &Value, path: &str, program: Result<Program, CompileError>) {
    let at = format!("{path}.messageExpression");
    let why = match program {
        // A message is told once: it does not matter how often there may be a value.
        Ok(program) => return costs(found, &at, "estimated messageExpression cost", program.estimated),
        Err(CompileError::OtherType { gives, .. }) => format!("messageExpression must evaluate to a {gives}"),
        Err(error) => format!("messageExpression {error}"),
    };
    found.compiled.push(Cause::invalid(at, &shown(rule), &why));
}

fn costs(found: &mut Faults, at: &str, of: &str, cost: u64) {
    if cost > EXPRESSION_COST_MAX && !found.is_stored {
        found.compiled.push(Cause::forbidden(at, &exceeded(of, cost, EXPRESSION_COST_MAX)));
    }
    found.budget.spend(at, cost);
}

/// A rule as Go writes it in JSON, with the fields in the order of its struct.
fn shown(rule: &Value) -> String {
    let shown = json!({
        "Rule": text(rule, "/rule"), "Message": text(rule, "/message"),
        "MessageExpression": text(rule, "/messageExpression"), "Reason": rule.get("reason"),
        "FieldPath": text(rule, "/fieldPath"),
        "OptionalOldSelf": rule.get("optionalOldSelf").and_then(Value::as_bool),
    })
    .to_string();
    shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
