//! LimitRanges: what they make of pods and claims, and whom they refuse.
//!
//! Source: kubernetes `plugin/pkg/admission/limitranger/admission.go`.

use serde_json::{Map, Value};

use super::{
    Context,
    doc::{Doc, inner, items_mut},
    forbidden::forbidden,
    put,
};
use kubefold_wire::{quantity::Quantity, status::Status};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

fn limits<'a>(context: Context<'a>, of: &'a str) -> impl Iterator<Item = &'a Value> {
    let ranges = context.others.iter().filter(|other| other.text("kind") == "LimitRange");
    ranges.flat_map(|range| range.items("spec.limits")).filter(move |limit| limit.text("type") == of)
}

/// Gives containers the requests and limits that they do not name.
pub(super) fn default(pod: &mut Value, context: Context<'_>) {
    let mut given = [Map::new(), Map::new()];
    for limit in limits(context, "Container") {
        for (list, into) in ["defaultRequest", "default"].into_iter().zip(&mut given) {
            into.extend(limit.entries(list).map(|(name, amount)| (name.clone(), amount.clone())));
        }
    }
    if given.iter().all(Map::is_empty) {
        return;
    }
    let [requests, limits] = given;
    let mut told = Vec::new();
    if let Some(spec) = inner(pod, "spec") {
        for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
            for container in items_mut(spec, list) {
                let name = container.text("name").to_owned();
                let Some(resources) = inner(container, "resources") else { continue };
                for (field, what, defaults) in [("limits", "limit", &limits), ("requests", "request", &requests)] {
                    let set = fill(resources, field, defaults);
                    if !set.is_empty() {
                        told.push((name.clone(), what, format!("{} {what} for {word} {name}", set.join(", "))));
                    }
                }
            }
        }
    }
    // Requests are told before limits.
    for pair in 1..told.len() {
        if let Some([(first, "limit", _), (second, "request", _)]) = told.get(pair - 1..=pair)
            && first == second
        {
            told.swap(pair - 1, pair);
        }
    }
    let told: Vec<String> = told.into_iter().map(|(_, _, text)| text).collect();
    if !told.is_empty()
        && let Some(annotations) = inner(pod, "metadata").and_then(|metadata| inner(metadata, "annotations"))
    {
        put(annotations, ANNOTATION, Some(format!("LimitRanger plugin set: {}", told.join("; ")).into()));
    }
}

fn fill(resources: &mut Value, field: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let Some(there) = inner(resources, field).and_then(Value::as_object_mut) else { return Vec::new() };
    let mut set: Vec<String> = defaults.keys().filter(|name| !there.contains_key(*name)).cloned().collect();
    set.sort();
    for name in &set {
        there.insert(name.clone(), defaults.get(name).cloned().unwrap_or(Value::Null));
    }
    set
}

/// Refuses containers that want too little or too much.
///
/// Errors: 403.
pub(super) fn check(pod: &Value, context: Context<'_>) -> Result<(), Box<Status>> {
    let mut wrong = Vec::new();
    let containers = || pod.items("spec.containers").iter().chain(pod.items("spec.initContainers"));
    for limit in limits(context, "Container") {
        for container in containers() {
            let empty = Value::Null;
            let resources = container.get("resources").unwrap_or(&empty);
            bounds(limit, "Container", resources, true, &mut wrong);
        }
    }
    refuse(&wrong, "pods", pod)
}

/// Refuses claims that want too little or too much.
///
/// Errors: 403.
pub(super) fn check_claim(claim: &Value, context: Context<'_>) -> Result<(), Box<Status>> {
    let mut wrong = Vec::new();
    let empty = Value::Null;
    for limit in limits(context, "PersistentVolumeClaim") {
        bounds(limit, "PersistentVolumeClaim", claim.at("spec.resources").unwrap_or(&empty), false, &mut wrong);
    }
    refuse(&wrong, "persistentvolumeclaims", claim)
}

fn refuse(wrong: &[String], resource: &str, object: &Value) -> Result<(), Box<Status>> {
    match wrong {
        [] => Ok(()),
        [only] => Err(forbidden("", resource, object, only)),
        many => Err(forbidden("", resource, object, &format!("[{}]", many.join(", ")))),
    }
}

fn bounds(limit: &Value, of: &str, resources: &Value, by_limit: bool, wrong: &mut Vec<String>) {
    let amount = |list: &str, name: &str| {
        let text = resources.at(list)?.get(name)?.as_str()?;
        Some((Quantity::parse(text).ok()?, text.to_owned()))
    };
    for (word, list) in [("minimum", "min"), ("maximum", "max")] {
        for (name, enforced) in limit.entries(list) {
            let enforced = enforced.as_str().unwrap_or("0");
            let Ok(bound) = Quantity::parse(enforced) else { continue };
            let begin = format!("{word} {name} usage per {of} is {enforced}");
            let (request, most) = (amount("requests", name), amount("limits", name).filter(|_| by_limit));
            let beyond = |amount: &Quantity| if list == "min" { *amount < bound } else { *amount > bound };
            let first = if list == "min" || !by_limit { ("request", &request) } else { ("limit", &most) };
            let second = if list == "min" || !by_limit { ("limit", &most) } else { ("request", &request) };
            match (first, second) {
                ((what, None), _) => wrong.push(format!("{begin}.  No {what} is specified")),
                ((what, Some((amount, text))), _) | (_, (what, Some((amount, text)))) if beyond(amount) => {
                    wrong.push(format!("{begin}, but {what} is {text}"));
                }
                _ => {}
            }
        }
    }
}
