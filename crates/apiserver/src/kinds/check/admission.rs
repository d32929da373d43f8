//! Policies and their bindings, and what they have in common with webhooks.
//!
//! Source: kubernetes `pkg/apis/admissionregistration/validation/validation.go`.

use serde_json::Value;

use super::{Errors, Path, metadata, selector};
use crate::{
    kinds::doc::Doc,
    rules::{CompileError, Gives, Scope, is_reserved},
};
use kubefold_wire::{
    names::{NameRule, dns_subdomain, dns1035_label, path_segment, qualified_name},
    resource::split_api_version,
};

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const MATCH_CONDITIONS_MAX: usize = 64;
const AUDIT_ANNOTATIONS_MAX: usize = 20;
/// Units: bytes.
const VALUE_EXPRESSION_MAX: usize = 5 * 1024;

/// A `ValidatingAdmissionPolicy`.
pub(in crate::kinds) fn policy(object: &Value, errors: &mut Errors) {
    policy_spec(object, true, errors);
}

pub(in crate::kinds) fn policy_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    policy_spec(new, !keeps_conditions(new, old), errors);
}

/// Says whether conditions that were valid before stay so.
pub(super) fn keeps_conditions(new: &Value, old: &Value) -> bool {
    ["spec.paramKind", "spec.matchConditions"].into_iter().all(|field| new.at(field) == old.at(field))
}

fn policy_spec(object: &Value, judges_conditions: bool, errors: &mut Errors) {
    let (at, empty) = (Path::new("spec"), Value::Null);
    let spec = object.get("spec").unwrap_or(&empty);
    let scope = common_spec(
        spec,
        Frame { judges_conditions, has_variables: !spec.items("variables").is_empty() },
        |_, _, _| {},
        errors,
    );
    let (validations, annotations) = (spec.items("validations"), spec.items("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&at.child("validations"), why);
        errors.required(&at.child("auditAnnotations"), why);
    }
    for (index, one) in validations.iter().enumerate() {
        validation(one, &scope, &at.child("validations").index(index), errors);
    }
    let there = at.child("auditAnnotations");
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let why = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(&there, annotations.to_vec(), &why);
    }
    for (index, one) in annotations.iter().enumerate() {
        let at = there.index(index);
        audit_annotation(object.text("metadata.name"), one, &scope, &at, errors);
        if annotations.iter().take(index).any(|other| other.text("key") == one.text("key")) {
            errors.duplicate(&at.child("key"), one.text("key"));
        }
    }
}

/// How the `spec` of a policy is checked.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// Whether `matchConditions` are.
    pub(super) judges_conditions: bool,
    /// Whether expressions may name `variables`.
    pub(super) has_variables: bool,
}

/// What policies of both kinds have, beside what `constrain` wants of their `matchConstraints`. Answers what their expressions may
/// name.
pub(super) fn common_spec(
    spec: &Value,
    frame: Frame,
    constrain: impl FnOnce(&Value, &Path, &mut Errors),
    errors: &mut Errors,
) -> Scope {
    let at = Path::new("spec");
    choice(spec, "failurePolicy", &FAILURE_POLICIES, &at, errors);
    let param_kind = spec.at("paramKind");
    if let Some(kind) = param_kind {
        param_kind_of(kind, &at.child("paramKind"), errors);
    }
    let there = at.child("matchConstraints");
    match spec.at("matchConstraints") {
        None => errors.required(&there, ""),
        Some(constraints) => {
            match_resources(constraints, &there, errors);
            if constraints.items("resourceRules").is_empty() {
                errors.required(&there.child("resourceRules"), "");
            }
            constrain(constraints, &there, errors);
        }
    }
    let has_params = param_kind.is_some();
    if frame.judges_conditions {
        match_conditions(spec, has_params, &at.child("matchConditions"), errors);
    }
    let variables = spec.items("variables");
    let mut scope = Scope::new(has_params, frame.has_variables);
    for (index, variable) in variables.iter().enumerate() {
        declare(variable, &mut scope, &at.child("variables").index(index), errors);
    }
    scope
}

/// A field that must have one of these values.
pub(super) fn choice(of: &Value, field: &str, known: &[&str], at: &Path, errors: &mut Errors) {
    match of.at(field) {
        None => errors.required(&at.child(field), ""),
        Some(_) => known_text(of, field, known, at, errors),
    }
}

/// A field that has one of these values, if it is there.
pub(super) fn known_text(of: &Value, field: &str, known: &[&str], at: &Path, errors: &mut Errors) {
    if of.has(field) && !known.contains(&of.text(field)) {
        errors.unsupported(&at.child(field), of.text(field), known);
    }
}

fn param_kind_of(kind: &Value, at: &Path, errors: &mut Errors) {
    let there = at.child("apiVersion");
    let (version, name) = (kind.text("apiVersion"), kind.text("kind"));
    match (version, split_api_version(version)) {
        ("", _) => errors.required(&there, ""),
        (_, None) => errors.invalid(&there, version, &format!("unexpected GroupVersion string: {version}")),
        (_, Some((group, short))) => {
            let wrong = dns_subdomain(group);
            if !group.is_empty() && !wrong.is_empty() {
                errors.invalid(&there, group, &wrong.join(","));
            }
            let wrong = dns1035_label(short);
            if short.is_empty() {
                errors.invalid(&there, version, "version must be specified");
            } else if !wrong.is_empty() {
                errors.invalid(&there, short, &wrong.join(","));
            }
        }
    }
    let wrong = dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&at.child("kind"), "");
    } else if !wrong.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(&at.child("kind"), name, &why);
    }
}

fn match_resources(of: &Value, at: &Path, errors: &mut Errors) {
    choice(of, "matchPolicy", &MATCH_POLICIES, at, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        match of.at(field) {
            None => errors.required(&at.child(field), ""),
            given => selector::check(given, &at.child(field), errors),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in of.items(field).iter().enumerate() {
            named_rule(rule, &at.child(field).index(index), errors);
        }
    }
}

fn named_rule(rule: &Value, at: &Path, errors: &mut Errors) {
    let names = rule.items("resourceNames");
    for (index, name) in names.iter().enumerate() {
        let there = at.child("resourceNames").index(index);
        let text = name.as_str().unwrap_or_default();
        errors.all_invalid(&there, text, &path_segment(text));
        if names.iter().take(index).any(|other| other == name) {
            errors.duplicate(&there, text);
        }
    }
    self::rule(rule, at, errors);
}

/// A rule with operations.
pub(super) fn rule(rule: &Value, at: &Path, errors: &mut Errors) {
    let operations = rule.items("operations");
    wildcard_alone(rule, "operations", "operations", at, errors);
    for (index, operation) in operations.iter().enumerate() {
        let operation = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&operation) {
            errors.unsupported(&at.child("operations").index(index), operation, &OPERATIONS);
        }
    }
    wildcard_alone(rule, "apiGroups", "API groups", at, errors);
    wildcard_alone(rule, "apiVersions", "API versions", at, errors);
    for (index, version) in rule.items("apiVersions").iter().enumerate() {
        if version == "" {
            errors.required(&at.child("apiVersions").index(index), "");
        }
    }
    resources(rule.items("resources"), &at.child("resources"), errors);
    known_text(rule, "scope", &SCOPES, at, errors);
}

fn wildcard_alone(rule: &Value, field: &str, said: &str, at: &Path, errors: &mut Errors) {
    let all = rule.items(field);
    if all.is_empty() {
        errors.required(&at.child(field), "");
    }
    if all.len() > 1 && all.iter().any(|one| one == "*") {
        let why = format!("if '*' is present, must not specify other {said}");
        errors.invalid(&at.child(field), all.to_vec(), &why);
    }
}

fn resources(resources: &[Value], at: &Path, errors: &mut Errors) {
    if resources.is_empty() {
        errors.required(at, "");
    }
    let (mut of_all_below, mut below_of_all) = (Vec::new(), Vec::new());
    let (mut everything, mut all, mut plain) = (false, false, false);
    for (index, resource) in resources.iter().enumerate() {
        let at = at.index(index);
        let name = resource.as_str().unwrap_or_default();
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        everything |= name == "*/*";
        all |= name == "*";
        let Some((resource, below)) = name.split_once('/') else {
            plain = name != "*";
            continue;
        };
        if of_all_below.contains(&resource) {
            errors.invalid(&at, name, &format!("if '{resource}/*' is present, must not specify {name}"));
        }
        if below_of_all.contains(&below) {
            errors.invalid(&at, name, &format!("if '*/{below}' is present, must not specify {name}"));
        }
        of_all_below.extend((below == "*").then_some(resource));
        below_of_all.extend((resource == "*").then_some(below));
    }
    if resources.len() > 1 && everything {
        errors.invalid(at, resources.to_vec(), "if '*/*' is present, must not specify other resources");
    }
    if all && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(at, resources.to_vec(), why);
    }
}

/// `matchConditions` of a policy or a webhook.
pub(super) fn match_conditions(of: &Value, has_params: bool, at: &Path, errors: &mut Errors) {
    let conditions = of.items("matchConditions");
    if conditions.len() > MATCH_CONDITIONS_MAX {
        errors.too_many(at, conditions.len(), MATCH_CONDITIONS_MAX);
    }
    let scope = Scope::new(has_params, false);
    for (index, condition) in conditions.iter().enumerate() {
        let at = at.index(index);
        let (expression, name) = (condition.text("expression").trim(), condition.text("name"));
        if expression.is_empty() {
            errors.required(&at.child("expression"), "");
        } else {
            compiled(&scope, [expression, expression], Gives::Bool, &at.child("expression"), errors);
        }
        if name.is_empty() {
            errors.required(&at.child("name"), "");
            continue;
        }
        errors.all_invalid(&at.child("name"), name, &qualified_name(name));
        if conditions.iter().take(index).any(|other| other.text("name") == name) {
            errors.duplicate(&at.child("name"), name);
        }
    }
}

/// An expression, and as what it is shown.
pub(super) fn compiled(scope: &Scope, [source, shown]: [&str; 2], gives: Gives, at: &Path, errors: &mut Errors) {
    if let Some(why) = scope.compile(source, gives).wrong() {
        uncompiled(why, shown, at, errors);
    }
}

fn uncompiled(why: &CompileError, shown: &str, at: &Path, errors: &mut Errors) {
    match why {
        CompileError::Instantiation(_) => errors.internal(at, &why.to_string()),
        _ => errors.invalid(at, shown, &why.to_string()),
    }
}

fn declare(variable: &Value, scope: &mut Scope, at: &Path, errors: &mut Errors) {
    let (name, expression) = (variable.text("name"), variable.text("expression"));
    if name.trim().is_empty() {
        errors.required(&at.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        errors.invalid(&at.child("name"), name, "must be a valid CEL identifier");
    }
    if expression.trim().is_empty() {
        errors.required(&at.child("expression"), "expression is not specified");
    } else if let Some(why) = scope.declare(name, expression) {
        uncompiled(&why, expression, &at.child("expression"), errors);
    }
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    name.starts_with(is_letter)
        && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
        && !is_reserved(name)
}

fn validation(one: &Value, scope: &Scope, at: &Path, errors: &mut Errors) {
    let text = |field: &str| one.text(field);
    let (expression, message, told) = (text("expression"), text("message"), text("messageExpression"));
    if expression.trim().is_empty() {
        errors.required(&at.child("expression"), "expression is not specified");
    } else {
        compiled(scope, [expression, expression], Gives::Bool, &at.child("expression"), errors);
    }
    if !told.is_empty() && told.trim().is_empty() {
        errors.invalid(&at.child("messageExpression"), told, "must be non-empty if specified");
    } else if !told.is_empty() {
        compiled(scope, [told, told], Gives::Text, &at.child("messageExpression"), errors);
    }
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at.child("message"), message, "must not contain line breaks");
    }
    known_text(one, "reason", &REASONS, at, errors);
}

fn audit_annotation(policy: &str, one: &Value, scope: &Scope, at: &Path, errors: &mut Errors) {
    let key = one.text("key");
    if policy.is_empty() {
        errors.invalid(&at.child("key"), key, "requires metadata.name be non-empty");
    } else {
        let whole = format!("{policy}/{key}");
        errors.all_invalid(&at.child("key"), &whole, &qualified_name(&whole));
    }
    let (expression, at) = (one.text("valueExpression"), at.child("valueExpression"));
    if expression.trim().is_empty() {
        errors.required(&at, "valueExpression is not specified");
    } else if expression.trim().len() > VALUE_EXPRESSION_MAX {
        errors.required(&at, &format!("must not exceed {VALUE_EXPRESSION_MAX} bytes in length"));
    } else {
        compiled(scope, [expression.trim(), expression], Gives::TextOrNull, &at, errors);
    }
}

/// A `ValidatingAdmissionPolicyBinding`.
pub(in crate::kinds) fn binding(object: &Value, errors: &mut Errors) {
    let (at, empty) = (Path::new("spec"), Value::Null);
    let spec = object.get("spec").unwrap_or(&empty);
    common_binding(spec, errors);
    let (actions, at) = (spec.items("validationActions"), at.child("validationActions"));
    for (index, action) in actions.iter().enumerate() {
        let text = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&text) {
            errors.unsupported(&at.index(index), text, &ACTIONS);
        }
        if actions.iter().take(index).any(|other| other == action) {
            errors.duplicate(&at.index(index), text);
        }
    }
    if ["Deny", "Warn"].iter().all(|known| actions.iter().any(|action| action == known)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.invalid(&at, actions.to_vec(), why);
    }
    if actions.is_empty() {
        errors.required(&at, "at least one validation action is required");
    }
}

/// What bindings of both kinds have.
pub(super) fn common_binding(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    match spec.text("policyName") {
        "" => errors.required(&at.child("policyName"), ""),
        name => errors.all_invalid(&at.child("policyName"), name, &dns_subdomain(name)),
    }
    if let Some(reference) = spec.at("paramRef") {
        param_ref(reference, &at.child("paramRef"), errors);
    }
    if let Some(resources) = spec.at("matchResources") {
        match_resources(resources, &at.child("matchResources"), errors);
    }
}

pub(in crate::kinds) fn binding_update(new: &Value, _old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    binding(new, errors);
}

fn param_ref(reference: &Value, at: &Path, errors: &mut Errors) {
    let (name, selects) = (reference.text("name"), reference.at("selector"));
    let both = "name and selector are mutually exclusive";
    if !name.is_empty() {
        errors.all_invalid(&at.child("name"), name, &path_segment(name));
        if selects.is_some() {
            errors.forbidden(&at.child("name"), both);
        }
    }
    if selects.is_some() {
        selector::check(selects, &at.child("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&at.child("selector"), both);
        }
    } else if name.is_empty() {
        errors.required(at, "one of name or selector must be specified");
    }
    match reference.text("parameterNotFoundAction") {
        "" => errors.required(&at.child("parameterNotFoundAction"), ""),
        "Allow" | "Deny" => {}
        other => errors.unsupported(&at.child("parameterNotFoundAction"), other, &["Deny", "Allow"]),
    }
}
