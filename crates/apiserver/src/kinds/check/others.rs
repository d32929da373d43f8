//! Access, autoscalers, budgets, priorities, leases.
//!
//! Source: kubernetes `pkg/apis/{rbac,autoscaling,policy,scheduling,coordination}/validation/validation.go`.

use serde_json::Value;

use super::{
    Errors, Path,
    metadata::{self, immutable},
    resources, selector,
    workload::{amount_or_percent, at_most_all},
};
use crate::kinds::doc::Doc;
use kubefold_wire::names::{NameRule, dns_label, dns_subdomain, path_segment};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles and bindings, of namespaces and of clusters.
pub(in crate::kinds) fn access(object: &Value, errors: &mut Errors) {
    let of = object.text("kind");
    if of.ends_with("Binding") {
        binding(object, of == "RoleBinding", errors)
    } else {
        role(object, of == "Role", errors)
    }
}

fn role(object: &Value, namespaced: bool, errors: &mut Errors) {
    for (index, rule) in object.items("rules").iter().enumerate() {
        let at = Path::new("rules").index(index);
        let list = |field: &str| rule.items(field);
        if list("verbs").is_empty() {
            errors.required(&at.child("verbs"), "verbs must contain at least one value");
        }
        let urls = list("nonResourceURLs");
        if !urls.is_empty() {
            let at = at.child("nonResourceURLs");
            if namespaced {
                errors.invalid(&at, urls.to_vec(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !list(field).is_empty()) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&at, urls.to_vec(), why);
            }
            continue;
        }
        if list("apiGroups").is_empty() {
            errors.required(&at.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if list("resources").is_empty() {
            errors.required(&at.child("resources"), "resource rules must supply at least one resource");
        }
    }
    if let Some(aggregation) = object.at("aggregationRule").filter(|_| !namespaced) {
        let at = Path::new("aggregationRule.clusterRoleSelectors");
        let selectors = aggregation.items("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (index, given) in selectors.iter().enumerate() {
            selector::check(Some(given), &at.index(index), errors);
        }
    }
}

fn binding(object: &Value, namespaced: bool, errors: &mut Errors) {
    let at = Path::new("roleRef");
    let group = object.text("roleRef.apiGroup");
    if group != GROUP {
        errors.unsupported(&at.child("apiGroup"), group, &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = object.text("roleRef.kind");
    if !kinds.contains(&kind) {
        errors.unsupported(&at.child("kind"), kind, kinds);
    }
    match object.text("roleRef.name") {
        "" => errors.required(&at.child("name"), ""),
        name => errors.all_invalid(&at.child("name"), name, &path_segment(name)),
    }
    for (index, subject) in object.items("subjects").iter().enumerate() {
        let at = Path::new("subjects").index(index);
        let (name, group) = (subject.text("name"), subject.text("apiGroup"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        match subject.text("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.all_invalid(&at.child("name"), name, &dns_subdomain(name));
                }
                if !group.is_empty() {
                    errors.unsupported(&at.child("apiGroup"), group, &[""]);
                }
                if !namespaced && subject.text("namespace").is_empty() {
                    errors.required(&at.child("namespace"), "");
                }
            }
            "User" | "Group" if group == GROUP => {}
            "User" | "Group" => errors.unsupported(&at.child("apiGroup"), group, &[GROUP]),
            other => errors.unsupported(&at.child("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}

pub(in crate::kinds) fn access_update(new: &Value, old: &Value, errors: &mut Errors) {
    let namespaced = matches!(new.text("kind"), "Role" | "RoleBinding");
    metadata::check(new, namespaced, NameRule::PathSegment, errors);
    access(new, errors);
    metadata::check_update(new, old, errors);
    if new.at("roleRef") != old.at("roleRef") {
        let given = new.at("roleRef");
        let field = |name: &str| given.map_or("", |given| given.text(name));
        // Go's own type of it, which has no names for JSON.
        let shown = serde_json::json!({"APIGroup": field("apiGroup"), "Kind": field("kind"), "Name": field("name")});
        errors.invalid(&Path::new("roleRef"), shown, "cannot change roleRef");
    }
}

pub(in crate::kinds) fn autoscaler(object: &Value, errors: &mut Errors) {
    // Both versions are judged as the one that is stored.
    let v1 = object.text("apiVersion") == "autoscaling/v1";
    let converted = v1.then(|| crate::kinds::convert::autoscaler_to_v2(object.clone()));
    let object = converted.as_ref().unwrap_or(object);
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    let (least, most) = (spec.number("minReplicas"), spec.number("maxReplicas").unwrap_or(0));
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.invalid(&at.child("minReplicas"), least, "must be greater than or equal to 1");
    }
    match most {
        0 => errors.required(&at.child("maxReplicas"), "must be set and greater than 0"),
        most if most < 0 => errors.invalid(&at.child("maxReplicas"), most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid(&at.child("maxReplicas"), most, "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef").unwrap_or(&empty);
    target_reference(target, &at.child("scaleTargetRef"), errors);
    let version = target.text("apiVersion");
    let there = at.child("scaleTargetRef.apiVersion");
    match version.matches('/').count() {
        0 => errors.invalid(&there, version, "apiVersion must specify API group"),
        1 => {}
        _ => errors.invalid(&there, version, &format!("unexpected GroupVersion string: {version}")),
    }
    let metrics = spec.items("metrics");
    for (index, metric) in metrics.iter().enumerate() {
        check_metric(metric, &at.child("metrics").index(index), errors);
    }
    let scales_to_none = metrics.iter().any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if least == Some(0) && !scales_to_none {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&at.child("metrics"), why);
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = spec.at("behavior").and_then(|behavior| behavior.at(direction)) {
            scaling_rules(rules, &at.child("behavior").child(direction), errors);
        }
    }
}

fn target_reference(reference: &Value, at: &Path, errors: &mut Errors) {
    for field in ["kind", "name"] {
        match reference.text(field) {
            "" => errors.required(&at.child(field), ""),
            given => errors.all_invalid(&at.child(field), given, &path_segment(given)),
        }
    }
}

fn scaling_rules(rules: &Value, at: &Path, errors: &mut Errors) {
    if let Some(seconds) = rules.number("stabilizationWindowSeconds") {
        let at = at.child("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(&at, seconds, "must be greater than or equal to zero");
        }
        if seconds > 3600 {
            errors.invalid(&at, seconds, "must be less than or equal to 3600");
        }
    }
    if let Some(policy) = rules.at("selectPolicy").and_then(Value::as_str)
        && !matches!(policy, "Max" | "Min" | "Disabled")
    {
        errors.unsupported(&at.child("selectPolicy"), policy, &["Disabled", "Max", "Min"]);
    }
    let policies = rules.items("policies");
    let at = at.child("policies");
    if policies.is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = at.index(index);
        let of = policy.text("type");
        if !matches!(of, "Pods" | "Percent") {
            errors.unsupported(&at.child("type"), of, &["Percent", "Pods"]);
        }
        for field in ["value", "periodSeconds"] {
            let number = policy.number(field).unwrap_or(0);
            if number <= 0 {
                errors.invalid(&at.child(field), number, "must be greater than zero");
            }
            if field == "periodSeconds" && number > 1800 {
                errors.invalid(&at.child(field), number, "must be less than or equal to 1800");
            }
        }
    }
}

const METRICS: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const METRIC_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

fn check_metric(metric: &Value, at: &Path, errors: &mut Errors) {
    let of = metric.text("type");
    if of.is_empty() {
        errors.required(&at.child("type"), "must specify a metric source type");
    }
    if !METRIC_TYPES.contains(&of) {
        errors.unsupported(&at.child("type"), of, &METRIC_TYPES);
    }
    let present: Vec<&str> = METRICS.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(field) = present.first()
        && let Some(source) = metric.at(field)
    {
        metric_source(field, source, &at.child(field), errors);
    }
    let expected = METRICS.iter().find(|(known, _)| *known == of).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.has(field) => {
            errors.required(&at.child(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.unsupported(&at.child("type"), of, &METRIC_TYPES),
    }
    if present.len() != 1 {
        for field in present.iter().filter(|field| Some(**field) != expected) {
            errors.forbidden(&at.child(field), "must populate the given metric source only");
        }
    }
}

fn metric_source(kind: &str, source: &Value, at: &Path, errors: &mut Errors) {
    let empty = Value::Null;
    let target = source.get("target").unwrap_or(&empty);
    let there = at.child("target");
    if kind == "object" {
        let object = source.get("describedObject").unwrap_or(&empty);
        target_reference(object, &at.child("describedObject"), errors);
    }
    if kind.ends_with("esource") {
        match source.text("name") {
            "" => errors.required(&at.child("name"), "must specify a resource name"),
            name if kind == "containerResource" => resources::container_name(name, &at.child("name"), errors),
            _ => {}
        }
        if kind == "containerResource" {
            match source.text("container") {
                "" => errors.required(&at.child("container"), "must specify a container"),
                name => errors.all_invalid(&at.child("container"), name, &dns_label(name)),
            }
        }
    } else {
        match source.text("metric.name") {
            "" => errors.required(&at.child("metric.name"), "must specify a metric name"),
            name => errors.all_invalid(&at.child("metric.name"), name, &path_segment(name)),
        }
    }
    metric_target(target, &there, errors);
    let (value, average, percent) = (target.has("value"), target.has("averageValue"), target.has("averageUtilization"));
    match kind {
        "object" if !value && !average => {
            errors.required(&there.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => {
            let why = "must set either a target value for metric or a per-pod target";
            errors.required(&there.child("averageValue"), why);
        }
        "external" if value && average => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&there.child("value"), why);
        }
        "pods" if !average => {
            errors.required(&there.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !percent && !average => {
            let why = "must set either a target raw value or a target utilization";
            errors.required(&there.child("averageUtilization"), why);
        }
        "resource" | "containerResource" if percent && average => {
            let why = "may not set both a target raw value and a target utilization";
            errors.forbidden(&there.child("averageValue"), why);
        }
        _ => {}
    }
}

fn metric_target(target: &Value, at: &Path, errors: &mut Errors) {
    let of = target.text("type");
    if of.is_empty() {
        errors.required(&at.child("type"), "must specify a metric target type");
    }
    if !matches!(of, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&at.child("type"), of, "must be either Utilization, Value, or AverageValue");
    }
    let zero = Value::from("0");
    for field in ["value", "averageValue"] {
        if let Some(given) = target.at(field).filter(|given| !resources::is_more(given, &zero)) {
            errors.invalid(&at.child(field), given.clone(), "must be positive");
        }
    }
    if let Some(percent) = target.number("averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&at.child("averageUtilization"), percent, "must be greater than 0");
    }
}

pub(in crate::kinds) fn autoscaler_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    autoscaler(new, errors);
}

pub(in crate::kinds) fn budget(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_some() && most.is_some() {
        // Go's own type of it, which has no names for JSON.
        let policy = spec.at("unhealthyPodEvictionPolicy");
        let shown = serde_json::json!({
            "MinAvailable": least, "Selector": spec.at("selector"), "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": policy,
        });
        errors.invalid(&at, shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for (field, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        if value.is_some() {
            amount_or_percent(value, &at.child(field), errors);
            at_most_all(value, &at.child(field), errors);
        }
    }
    selector::check(spec.at("selector"), &at.child("selector"), errors);
    if let Some(policy) = spec.at("unhealthyPodEvictionPolicy").and_then(Value::as_str)
        && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
    {
        errors.unsupported(&at.child("unhealthyPodEvictionPolicy"), policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
}

pub(in crate::kinds) fn budget_update(new: &Value, _old: &Value, errors: &mut Errors) {
    budget(new, errors);
}

const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const PRIORITY_MAX: i64 = 1_000_000_000;

pub(in crate::kinds) fn priority(object: &Value, errors: &mut Errors) {
    let (name, value) = (object.text("metadata.name"), object.number("value").unwrap_or(0));
    if name.starts_with("system-") {
        let known = SYSTEM.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let why = match known {
            None => format!("{name} is not a known system priority class"),
            Some(wanted) if wanted != value => format!("value of {name} PriorityClass must be {wanted}"),
            Some(_) if object.truth("globalDefault") => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let why =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.forbidden(&Path::new("metadata.name"), &why);
        }
    } else if value > PRIORITY_MAX {
        let why = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
        errors.forbidden(&Path::new("value"), &why);
    }
    let policy = object.text("preemptionPolicy");
    if !matches!(policy, "" | "PreemptLowerPriority" | "Never") {
        errors.unsupported(&Path::new("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
}

pub(in crate::kinds) fn priority_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    if new.number("value") != old.number("value") {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    immutable(new, old, "preemptionPolicy", errors);
}

pub(in crate::kinds) fn lease(object: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    if let Some(seconds) = object.number("spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&at.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(times) = object.number("spec.leaseTransitions").filter(|times| *times < 0) {
        errors.invalid(&at.child("leaseTransitions"), times, "must be greater than or equal to 0");
    }
    if !object.text("spec.preferredHolder").is_empty() && object.text("spec.strategy").is_empty() {
        errors.forbidden(&at.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

pub(in crate::kinds) fn lease_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    lease(new, errors);
}
