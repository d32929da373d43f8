//! Updates of pods: little may change.

use serde_json::Value;

use super::{super::metadata, Doc, Errors, Path, affinity, body};
use kubefold_wire::names::NameRule;

const UPDATABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

/// An update of a pod.
pub(in crate::kinds) fn check_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    body(new, errors);
    let at = Path::new("spec");
    let empty = Value::Null;
    let (new, old) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    for list in ["containers", "initContainers"] {
        if new.items(list).len() != old.items(list).len() {
            return errors.forbidden(&at.child(list), "pod updates may not add or remove containers");
        }
        for (index, container) in new.items(list).iter().enumerate() {
            if container.text("image").is_empty() {
                errors.required(&at.child(list).index(index).child("image"), "");
            }
        }
    }
    if !deadline(new, old, &at, errors) {
        return;
    }
    tolerations(new, old, &at, errors);
    gates(new, old, &at, errors);
    if munged(new, old) != *old {
        errors.forbidden(&at, UPDATABLE);
    }
}

/// Says whether to go on.
fn deadline(new: &Value, old: &Value, at: &Path, errors: &mut Errors) -> bool {
    let at = at.child("activeDeadlineSeconds");
    match (new.number("activeDeadlineSeconds"), old.number("activeDeadlineSeconds")) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            errors.invalid(&at, now, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(now), Some(before)) if before < now => {
            errors.invalid(&at, now, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&at, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations(new: &Value, old: &Value, at: &Path, errors: &mut Errors) {
    let at = at.child("tolerations");
    let but_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        crate::kinds::put(&mut toleration, "tolerationSeconds", None);
        toleration
    };
    let now: Vec<Value> = new.items("tolerations").iter().map(but_seconds).collect();
    if old.items("tolerations").iter().any(|toleration| !now.contains(&but_seconds(toleration))) {
        return errors.forbidden(&at, "existing toleration can not be modified except its tolerationSeconds");
    }
    affinity::tolerations(new.items("tolerations"), &at, errors);
}

fn gates(new: &Value, old: &Value, at: &Path, errors: &mut Errors) {
    for (index, gate) in new.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !old.items("schedulingGates").iter().any(|known| known.text("name") == name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&at.child("schedulingGates").index(index).child("name"), &why);
        }
    }
}

/// The new spec with the old one's values where it may differ.
fn munged(new: &Value, old: &Value) -> Value {
    use crate::kinds::put;
    let mut spec = new.clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            old.items(list).iter().map(|container| container.get("image").cloned()).collect();
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, image) in containers.zip(images) {
            put(container, "image", image);
        }
    }
    let gated = !old.items("schedulingGates").is_empty();
    let free = ["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    let while_gated = ["nodeSelector"];
    for field in free.iter().chain(while_gated.iter().filter(|_| gated)) {
        put(&mut spec, field, old.get(*field).cloned());
    }
    if old.number("terminationGracePeriodSeconds").is_some_and(|before| before < 0)
        && spec.number("terminationGracePeriodSeconds") == Some(1)
    {
        put(&mut spec, "terminationGracePeriodSeconds", old.get("terminationGracePeriodSeconds").cloned());
    }
    spec
}
