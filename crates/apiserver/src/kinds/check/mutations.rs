//! Policies that change objects, and their bindings.
//!
//! Source: kubernetes `pkg/apis/admissionregistration/validation/validation.go` `validateMutatingAdmissionPolicy`.

use serde_json::Value;

use super::{
    Errors, Path,
    admission::{Frame, choice, common_binding, common_spec, compiled, keeps_conditions},
    metadata,
};
use crate::{
    kinds::doc::Doc,
    rules::{Gives, Scope},
};
use kubefold_wire::names::NameRule;

/// What is deleted cannot be changed.
const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];

/// A `MutatingAdmissionPolicy`.
pub(in crate::kinds) fn policy(object: &Value, errors: &mut Errors) {
    spec(object, true, errors);
}

pub(in crate::kinds) fn policy_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    spec(new, !keeps_conditions(new, old), errors);
}

fn spec(object: &Value, judges_conditions: bool, errors: &mut Errors) {
    let (at, empty) = (Path::new("spec"), Value::Null);
    let spec = object.get("spec").unwrap_or(&empty);
    let scope = common_spec(spec, Frame { judges_conditions, has_variables: true }, operations, errors);
    let (mutations, there) = (spec.items("mutations"), at.child("mutations"));
    if mutations.is_empty() {
        errors.required(&there, "mutations must contain at least one item");
    }
    for (index, one) in mutations.iter().enumerate() {
        mutation(one, &scope, &there.index(index), errors);
    }
    match spec.text("reinvocationPolicy") {
        "" => errors.required(&at.child("reinvocationPolicy"), ""),
        _ => choice(spec, "reinvocationPolicy", &REINVOCATION_POLICIES, &at, errors),
    }
}

/// The operations of all rules, told at one place.
fn operations(resources: &Value, at: &Path, errors: &mut Errors) {
    let there = at.child("resourceRules").child("operations");
    for operation in resources.items("resourceRules").iter().flat_map(|rule| rule.items("operations")) {
        let operation = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&operation) {
            errors.unsupported(&there, operation, &OPERATIONS);
        }
    }
}

fn mutation(one: &Value, scope: &Scope, at: &Path, errors: &mut Errors) {
    let (wanted, other, gives) = match one.text("patchType") {
        "" => return errors.required(&at.child("patchType"), ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Gives::JsonPatch),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Gives::Object),
        unknown => return errors.unsupported(&at.child("patchType"), unknown, &PATCH_TYPES),
    };
    let patch_type = one.text("patchType");
    match one.at(wanted) {
        None => errors.required(&at.child(wanted), &format!("must be specified when patchType is {patch_type}")),
        Some(patch) => {
            let there = at.child(wanted).child("expression");
            match patch.text("expression").trim() {
                "" => errors.required(&there, ""),
                expression => compiled(scope, [expression, expression], gives, &there, errors),
            }
        }
    }
    if one.at(other).is_some() {
        let why = format!("must not be specified when patchType is {patch_type}");
        errors.invalid(&at.child(other), format!("{{{other}}}"), &why);
    }
}

/// A `MutatingAdmissionPolicyBinding`.
pub(in crate::kinds) fn binding(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    common_binding(spec, errors);
    if let Some(resources) = spec.at("matchResources") {
        operations(resources, &Path::new("spec").child("matchResources"), errors);
    }
}

pub(in crate::kinds) fn binding_update(new: &Value, _old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    binding(new, errors);
}
