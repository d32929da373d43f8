//! Names and amounts of resources.
//!
//! Source: kubernetes `pkg/apis/core/validation/validation.go`, `pkg/apis/core/helper/helpers.go`.

use serde_json::Value;

use super::{Errors, Path, words::NEGATIVE};
use crate::kinds::doc::Doc;
use kubefold_wire::names::qualified_name;
use kubefold_wire::quantity::Quantity;

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// What is counted.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const HUGE_PAGES: &str = "hugepages-";

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Says whether more of it may be promised than there is.
fn overcommits(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

fn amount(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

/// A name of a resource; says whether it is one.
pub(in crate::kinds) fn name(name: &str, at: &Path, errors: &mut Errors) -> bool {
    let wrong = qualified_name(name);
    errors.all_invalid(at, name, &wrong);
    let huge = name.starts_with(HUGE_PAGES) || name.starts_with("requests.hugepages-");
    let unknown = wrong.is_empty() && !name.contains('/') && !STANDARD.contains(&name) && !huge;
    if unknown {
        errors.invalid(at, name, "must be a standard resource type or fully qualified");
    }
    wrong.is_empty() && !unknown
}

/// A name of a resource of containers.
pub(in crate::kinds) fn container_name(given: &str, at: &Path, errors: &mut Errors) {
    name(given, at, errors);
    if !given.contains('/') {
        if !matches!(given, "cpu" | "memory" | "ephemeral-storage") && !given.starts_with(HUGE_PAGES) {
            errors.invalid(at, given, "must be a standard resource for containers");
        }
    } else if !is_native(given) && !is_extended(given) {
        errors.invalid(at, given, "doesn't follow extended resource name standard");
    }
}

/// An amount of a resource.
pub(in crate::kinds) fn quantity(name: &str, value: &Value, at: &Path, errors: &mut Errors) {
    let Some(quantity) = amount(value) else { return };
    if quantity.is_negative() {
        errors.invalid(at, value.clone(), NEGATIVE);
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !quantity.is_whole() {
        errors.invalid(at, value.clone(), "must be an integer");
    }
}

/// Requests and limits of a container.
pub(in crate::kinds) fn container(resources: Option<&Value>, at: &Path, errors: &mut Errors) {
    let Some(resources) = resources else { return };
    let (limits, requests) = (at.child("limits"), at.child("requests"));
    let mut computes = false;
    let mut huge = false;
    for (name, value) in resources.entries("limits") {
        let at = limits.key(name);
        container_name(name, &at, errors);
        quantity(name, value, &at, errors);
        huge |= name.starts_with(HUGE_PAGES);
        computes |= matches!(&**name, "cpu" | "memory");
    }
    for (name, value) in resources.entries("requests") {
        let at = requests.key(name);
        container_name(name, &at, errors);
        quantity(name, value, &at, errors);
        huge |= name.starts_with(HUGE_PAGES);
        computes |= matches!(&**name, "cpu" | "memory");
        let limit = resources.at("limits").and_then(|limits| limits.get(name));
        match (limit, limit.and_then(amount), amount(value)) {
            (Some(shown), Some(limit), Some(request)) => {
                let shown = shown.as_str().unwrap_or("");
                if request != limit && !overcommits(name) {
                    errors.invalid(&requests, value.clone(), &format!("must be equal to {name} limit of {shown}"));
                } else if request > limit {
                    let why = format!("must be less than or equal to {name} limit of {shown}");
                    errors.invalid(&requests, value.clone(), &why);
                }
            }
            (None, ..) if !overcommits(name) => {
                errors.required(&limits, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    if huge && !computes {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
}

/// What a pod costs beyond its containers.
pub(in crate::kinds) fn overhead(overhead: Option<&Value>, at: &Path, errors: &mut Errors) {
    for (name, value) in overhead.and_then(Value::as_object).into_iter().flatten() {
        let at = at.key(name);
        container_name(name, &at, errors);
        quantity(name, value, &at, errors);
    }
}

/// An amount above zero.
pub(in crate::kinds) fn positive(value: &Value, at: &Path, errors: &mut Errors) -> bool {
    let positive = amount(value).is_none_or(|quantity| quantity.is_positive());
    if !positive {
        errors.invalid(at, value.clone(), "must be greater than zero");
    }
    positive
}

/// Compares two amounts.
pub(in crate::kinds) fn is_more(left: &Value, right: &Value) -> bool {
    match (amount(left), amount(right)) {
        (Some(left), Some(right)) => left > right,
        _ => false,
    }
}

/// A name of a resource that a quota may bound.
pub(in crate::kinds) fn quota_name(given: &str, at: &Path, errors: &mut Errors) {
    name(given, at, errors);
    let huge = given.starts_with(HUGE_PAGES) || given.starts_with("requests.hugepages-");
    if !given.contains('/') && (given == "storage" || !STANDARD.contains(&given)) && !huge {
        errors.invalid(at, given, "must be a standard resource for quota");
    }
}

/// Says whether a quota of a scope may bound a resource.
pub(in crate::kinds) fn fits_scope(scope: &str, name: &str) -> bool {
    let computes = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    let claims = ["persistentvolumeclaims", "requests.storage"];
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            name == "pods" || computes.contains(&name)
        }
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => claims.contains(&name),
        _ => true,
    }
}

/// Says whether it is a resource that quotas know by itself.
pub(in crate::kinds) fn is_standard_quota(name: &str) -> bool {
    name != "storage" && STANDARD.contains(&name)
}
