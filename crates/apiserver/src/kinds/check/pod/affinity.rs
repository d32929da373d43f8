//! Where pods may run: affinity, spreading, tolerations and taints.

use serde_json::Value;

use super::{
    super::{internal, selector},
    Doc, Errors, Path, one_of, qualified_name,
};
use kubefold_wire::names::label_value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(affinity: Option<&Value>, at: &Path, errors: &mut Errors) {
    let Some(affinity) = affinity else { return };
    if let Some(node) = affinity.at("nodeAffinity") {
        let at = at.child("nodeAffinity");
        if let Some(required) = node.at(REQUIRED) {
            node_selector(required, &at.child(REQUIRED), errors);
        }
        for (index, preferred) in node.items(PREFERRED).iter().enumerate() {
            let at = at.child(PREFERRED).index(index);
            weight(preferred, &at, errors);
            let empty = Value::Null;
            node_term(preferred.get("preference").unwrap_or(&empty), &at.child("preference"), errors);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(of_pods) = affinity.at(kind) else { continue };
        let at = at.child(kind);
        for (index, term) in of_pods.items(REQUIRED).iter().enumerate() {
            pod_term(term, &at.child(REQUIRED).index(index), errors);
        }
        for (index, preferred) in of_pods.items(PREFERRED).iter().enumerate() {
            let at = at.child(PREFERRED).index(index);
            weight(preferred, &at, errors);
            let empty = Value::Null;
            pod_term(preferred.get("podAffinityTerm").unwrap_or(&empty), &at.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(preferred: &Value, at: &Path, errors: &mut Errors) {
    let weight = preferred.number("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&at.child("weight"), weight, "must be in the range 1-100");
    }
}

/// A `NodeSelector`.
pub(in crate::kinds::check) fn node_selector(required: &Value, at: &Path, errors: &mut Errors) {
    let at = at.child("nodeSelectorTerms");
    let terms = required.items("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&at, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(term, &at.index(index), errors);
    }
}

fn node_term(term: &Value, at: &Path, errors: &mut Errors) {
    for (index, requirement) in term.items("matchExpressions").iter().enumerate() {
        let at = at.child("matchExpressions").index(index);
        let values = requirement.items("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&at.child("values"), why);
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(&at.child("values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(&at.child("operator"), other, "not a valid selector operator"),
        }
        let key = requirement.text("key");
        errors.all_invalid(&at.child("key"), key, &qualified_name(key));
        for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
            errors.all_invalid(&at.child("values").index(index), value, &label_value(value));
        }
    }
}

fn pod_term(term: &Value, at: &Path, errors: &mut Errors) {
    selector::check(term.at("labelSelector"), &at.child("labelSelector"), errors);
    selector::check(term.at("namespaceSelector"), &at.child("namespaceSelector"), errors);
    for name in term.items("namespaces").iter().filter_map(Value::as_str) {
        errors.all_invalid(&at.child("namespace"), name, &super::dns_label(name));
    }
    match term.text("topologyKey") {
        "" => {
            errors.required(&at.child("topologyKey"), "can not be empty");
            errors.all_invalid(&at.child("topologyKey"), "", &qualified_name(""));
        }
        key => errors.all_invalid(&at.child("topologyKey"), key, &qualified_name(key)),
    }
}

pub(super) fn spread(constraints: &[Value], at: &Path, errors: &mut Errors) {
    for (index, constraint) in constraints.iter().enumerate() {
        let at = at.index(index);
        let skew = constraint.number("maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&at.child("maxSkew"), skew, "must be greater than zero");
        }
        if constraint.text("topologyKey").is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        let when = constraint.text("whenUnsatisfiable");
        if !matches!(when, "DoNotSchedule" | "ScheduleAnyway") {
            errors.unsupported(&at.child("whenUnsatisfiable"), when, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let same = |other: &&Value| {
            other.text("topologyKey") == constraint.text("topologyKey") && other.text("whenUnsatisfiable") == when
        };
        if constraints.get(index + 1..).into_iter().flatten().any(|other| same(&other)) {
            let shown = format!("{{{}, {when}}}", constraint.text("topologyKey"));
            errors.duplicate(&at.child("{topologyKey, whenUnsatisfiable}"), shown);
        }
        selector::check(constraint.at("labelSelector"), &at.child("labelSelector"), errors);
    }
}

pub(super) fn tolerations(tolerations: &[Value], at: &Path, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = at.index(index);
        let (key, operator, value, effect) =
            (toleration.text("key"), toleration.text("operator"), toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            errors.all_invalid(&at.child("key"), key, &qualified_name(key));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&at.child("operator"), operator, why);
        }
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&at.child("effect"), effect, why);
        }
        match operator {
            "Equal" | "" => {
                let wrong = label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(&at.child("operator"), value, &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&at.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                errors.unsupported(&at.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.unsupported(&at.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.unsupported(&at.child("effect"), effect, &EFFECTS);
        }
    }
}

/// The taints of a node.
pub(in crate::kinds) fn node_taints(taints: &[Value], at: &Path, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = at.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        errors.all_invalid(&at.child("key"), key, &qualified_name(key));
        let wrong = label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&at.child("value"), value, &wrong.join(";"));
        }
        one_of(taint, "effect", &EFFECTS, &at, errors);
        if seen.contains(&(key, effect)) {
            let empty = || Value::from("");
            let fields = [
                ("Key", "key", empty()),
                ("Value", "value", empty()),
                ("Effect", "effect", empty()),
                ("TimeAdded", "timeAdded", Value::Null),
            ];
            let why = "taints must be unique by key and effect pair";
            errors.duplicate_because(&at, internal(taint, &fields), why);
        }
        seen.push((key, effect));
    }
}
