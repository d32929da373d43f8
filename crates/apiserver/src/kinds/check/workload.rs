//! Deployments, sets, jobs.
//!
//! Source: kubernetes `pkg/apis/{apps,batch}/validation/validation.go`, and `core` for replication controllers.

use serde_json::Value;

use super::{
    Errors, Path, internal,
    metadata::{self, immutable, nonnegative},
    pod, selector, storage,
};
use crate::kinds::{doc::Doc, put};
use kubefold_wire::names::{NameRule, dns_label, percent};

fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

pub(in crate::kinds) fn deployment(object: &Value, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    nonnegative(spec.number("replicas"), &at.child("replicas"), errors);
    selected_template(spec, "deployment", "invalid label selector", "ReplicaSet", &at, errors);
    let strategy = at.child("strategy");
    match spec.text("strategy.type") {
        "Recreate" if spec.has("strategy.rollingUpdate") => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&strategy.child("rollingUpdate"), why);
        }
        "Recreate" => {}
        "RollingUpdate" => rolling_deployment(spec, &strategy.child("rollingUpdate"), errors),
        _ => {
            errors.unsupported(&strategy, shown_strategy(spec.at("strategy")), &["Recreate", "RollingUpdate"]);
        }
    }
    let ready = spec.number("minReadySeconds");
    nonnegative(ready, &at.child("minReadySeconds"), errors);
    nonnegative(spec.number("revisionHistoryLimit"), &at.child("revisionHistoryLimit"), errors);
    if let Some(deadline) = spec.number("progressDeadlineSeconds") {
        let at = at.child("progressDeadlineSeconds");
        nonnegative(Some(deadline), &at, errors);
        if deadline <= ready.unwrap_or(0) {
            errors.invalid(&at, deadline, "must be greater than minReadySeconds");
        }
    }
}

fn shown_strategy(strategy: Option<&Value>) -> Value {
    let fields = [("Type", "type", "".into()), ("RollingUpdate", "rollingUpdate", Value::Null)];
    internal(strategy.unwrap_or(&Value::Null), &fields)
}

fn rolling_deployment(spec: &Value, at: &Path, errors: &mut Errors) {
    let unavailable = spec.at("strategy.rollingUpdate.maxUnavailable");
    let surge = spec.at("strategy.rollingUpdate.maxSurge");
    amount_or_percent(unavailable, &at.child("maxUnavailable"), errors);
    amount_or_percent(surge, &at.child("maxSurge"), errors);
    if number_of(unavailable) == 0 && number_of(surge) == 0 {
        let given = unavailable.cloned().unwrap_or(Value::Null);
        errors.invalid(&at.child("maxUnavailable"), given, "may not be 0 when `maxSurge` is 0");
    }
    at_most_all(unavailable, &at.child("maxUnavailable"), errors);
}

/// A number from zero, or a percentage.
pub(in crate::kinds) fn amount_or_percent(value: Option<&Value>, at: &Path, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) => errors.all_invalid(at, text, &percent(text)),
        value => nonnegative(value.and_then(Value::as_i64), at, errors),
    }
}

fn percentage(value: Option<&Value>) -> Option<i64> {
    let text = value?.as_str().filter(|text| percent(text).is_empty())?;
    text.strip_suffix('%')?.parse().ok()
}

fn number_of(value: Option<&Value>) -> i64 {
    let text = || value.and_then(Value::as_str).and_then(|text| text.parse().ok());
    percentage(value).or_else(|| value.and_then(Value::as_i64)).or_else(text).unwrap_or(0)
}

/// No more than 100 percent.
pub(in crate::kinds) fn at_most_all(value: Option<&Value>, at: &Path, errors: &mut Errors) {
    if percentage(value).is_some_and(|percent| percent > 100) {
        errors.invalid(at, value.cloned().unwrap_or(Value::Null), "must not be greater than 100%");
    }
}

/// The selector, and the template that it must select.
fn selected_template(spec: &Value, of: &str, unparsable: &str, kind: &str, at: &Path, errors: &mut Errors) {
    let there = at.child("selector");
    let empty = Value::Null;
    let template = spec.get("template").unwrap_or(&empty);
    let Some(selector) = spec.at("selector") else {
        errors.required(&there, "");
        // No selector selects nothing.
        mismatch(template.at("metadata.labels"), &at.child("template"), errors);
        return only_always(template, kind, &at.child("template"), true, errors);
    };
    selector::check(Some(selector), &there, errors);
    if selector::is_empty(selector) {
        errors.invalid(&there, selector.clone(), &format!("empty selector is invalid for {of}"));
    }
    if !selector::parses(selector) {
        return errors.invalid(&there, selector.clone(), unparsable);
    }
    let at = at.child("template");
    let labels = template.at("metadata.labels");
    if !selector::is_empty(selector) && !selector::matches(selector, labels) {
        mismatch(labels, &at, errors);
    }
    only_always(template, kind, &at, true, errors);
}

fn mismatch(labels: Option<&Value>, template: &Path, errors: &mut Errors) {
    let shown = labels.cloned().unwrap_or(Value::Null);
    let why = "`selector` does not match template `labels`";
    errors.invalid(&template.child("metadata.labels"), shown, why);
}

/// A template of pods that run for ever.
fn only_always(template: &Value, kind: &str, at: &Path, whole: bool, errors: &mut Errors) {
    if whole {
        pod::template(template, at, errors);
    }
    let policy = template.text("spec.restartPolicy");
    if policy != "Always" {
        errors.unsupported(&at.child("spec.restartPolicy"), policy, &["Always"]);
    }
    if template.has("spec.activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&at.child("spec.activeDeadlineSeconds"), &why);
    }
}

pub(in crate::kinds) fn deployment_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    deployment(new, errors);
    immutable(new, old, "spec.selector", errors);
}

pub(in crate::kinds) fn replica_set(object: &Value, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    nonnegative(spec.number("replicas"), &at.child("replicas"), errors);
    nonnegative(spec.number("minReadySeconds"), &at.child("minReadySeconds"), errors);
    selected_template(spec, "deployment", "invalid label selector", "ReplicaSet", &at, errors);
}

pub(in crate::kinds) fn replica_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    replica_set(new, errors);
    immutable(new, old, "spec.selector", errors);
}

pub(in crate::kinds) fn replication_controller(object: &Value, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    nonnegative(spec.number("minReadySeconds"), &at.child("minReadySeconds"), errors);
    let selects = spec.entries("selector").next().is_some();
    if !selects {
        errors.required(&at.child("selector"), "");
    }
    nonnegative(spec.number("replicas"), &at.child("replicas"), errors);
    let at = at.child("template");
    let Some(template) = spec.at("template") else { return errors.required(&at, "") };
    let labels = template.at("metadata.labels");
    let matches = spec.entries("selector").all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if selects && !matches {
        mismatch(labels, &at, errors);
    }
    only_always(template, "ReplicationController", &at, true, errors);
}

pub(in crate::kinds) fn replication_controller_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    replication_controller(new, errors);
}

pub(in crate::kinds) fn stateful_set(object: &Value, errors: &mut Errors) {
    stateful_spec(object, false, errors);
}

fn stateful_spec(object: &Value, is_update: bool, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    match spec.text("podManagementPolicy") {
        "" => errors.required(&at.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&at.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(spec, &at.child("updateStrategy"), errors);
    for field in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy").map_or("Retain", |policy| policy.text(field));
        if !matches!(policy, "Retain" | "Delete") {
            let at = at.child("persistentVolumeClaimRetentionPolicy").child(field);
            errors.unsupported(&at, policy, &["Retain", "Delete"]);
        }
    }
    if !is_update {
        for (index, claim) in spec.items("volumeClaimTemplates").iter().enumerate() {
            let at = at.child("volumeClaimTemplates").index(index).child("spec");
            storage::claim_spec(spec_of(claim), &at, errors);
        }
    }
    nonnegative(spec.number("replicas"), &at.child("replicas"), errors);
    nonnegative(spec.number("minReadySeconds"), &at.child("minReadySeconds"), errors);
    nonnegative(spec.number("ordinals.start"), &at.child("ordinals.start"), errors);
    let service = spec.text("serviceName");
    if !is_update && !service.is_empty() {
        errors.all_invalid(&at.child("serviceName"), service, &dns_label(service));
    }
    stateful_template(spec, &at, errors);
}

fn stateful_strategy(spec: &Value, at: &Path, errors: &mut Errors) {
    let rolling = at.child("rollingUpdate");
    match spec.text("updateStrategy.type") {
        "" => errors.required(at, ""),
        "OnDelete" => {
            if let Some(given) = spec.at("updateStrategy.rollingUpdate") {
                errors.invalid(&rolling, given.clone(), "only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            nonnegative(spec.number("updateStrategy.rollingUpdate.partition"), &rolling.child("partition"), errors);
            let unavailable = spec.at("updateStrategy.rollingUpdate.maxUnavailable");
            if unavailable.is_some() {
                let at = rolling.child("maxUnavailable");
                amount_or_percent(unavailable, &at, errors);
                if number_of(unavailable) == 0 {
                    errors.invalid(&at, unavailable.cloned().unwrap_or(Value::Null), "cannot be 0");
                }
                at_most_all(unavailable, &at, errors);
            }
        }
        _ => {
            let given = shown_strategy(spec.at("updateStrategy"));
            errors.invalid(at, given, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn stateful_template(spec: &Value, at: &Path, errors: &mut Errors) {
    let there = at.child("selector");
    let given = spec.at("selector");
    match given {
        None => errors.required(&there, ""),
        Some(selector) => {
            selector::check(Some(selector), &there, errors);
            if selector::is_empty(selector) {
                errors.invalid(&there, selector.clone(), "empty selector is invalid for statefulset");
            }
        }
    }
    let at = at.child("template");
    let mut template = spec.get("template").cloned().unwrap_or(Value::Null);
    match given {
        Some(selector) if !selector::parses(selector) => errors.invalid(&there, selector.clone(), ""),
        _ => {
            let labels = template.at("metadata.labels").cloned();
            // No selector selects nothing, an empty one is no matter here.
            let matches = given
                .is_some_and(|selector| selector::is_empty(selector) || selector::matches(selector, labels.as_ref()));
            if !matches {
                mismatch(labels.as_ref(), &at, errors);
            }
            // Each pod gets the claims as volumes, and its own host name.
            with_claims(&mut template, spec.items("volumeClaimTemplates"));
            pod::template(&template, &at, errors);
            metadata::labels(template.at("metadata.labels"), &at.child("labels"), errors);
            metadata::annotations(template.at("metadata.annotations"), &at.child("annotations"), errors);
        }
    }
    only_always(spec.get("template").unwrap_or(&Value::Null), "StatefulSet", &at, false, errors);
}

fn with_claims(template: &mut Value, claims: &[Value]) {
    let Some(spec) = template.get_mut("spec") else { return };
    put(spec, "subdomain", None);
    put(spec, "hostname", None);
    if claims.is_empty() {
        return;
    }
    let volume = |claim: &Value| {
        let name = claim.text("metadata.name");
        serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
    };
    let mut volumes: Vec<Value> = claims.iter().map(volume).collect();
    let is_claim = |name: &str| claims.iter().any(|claim| claim.text("metadata.name") == name);
    volumes.extend(spec.items("volumes").iter().filter(|volume| !is_claim(volume.text("name"))).cloned());
    put(spec, "volumes", Some(volumes.into()));
}

pub(in crate::kinds) fn stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    stateful_spec(new, true, errors);
    let mut same = spec_of(new).clone();
    let free = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    free.iter().for_each(|field| put(&mut same, field, spec_of(old).get(*field).cloned()));
    if same != *spec_of(old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.forbidden(&Path::new("spec"), why);
    }
}

pub(in crate::kinds) fn daemon_set(object: &Value, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    let given = spec.at("selector");
    selector::check(given, &at.child("selector"), errors);
    let empty = Value::Null;
    let template = spec.get("template").unwrap_or(&empty);
    let there = at.child("template");
    let labels = template.at("metadata.labels");
    // No selector selects nothing, an empty one everything.
    let selects = given.is_some_and(|selector| selector::parses(selector) && selector::matches(selector, labels));
    if given.is_none_or(selector::parses) && !selects {
        mismatch(labels, &there, errors);
    }
    if let Some(selector) = given.filter(|selector| selector::is_empty(selector)) {
        errors.invalid(&at.child("selector"), selector.clone(), "empty selector is invalid for daemonset");
    }
    only_always(template, "DaemonSet", &there, true, errors);
    nonnegative(spec.number("minReadySeconds"), &at.child("minReadySeconds"), errors);
    let strategy = at.child("updateStrategy");
    match spec.text("updateStrategy.type") {
        "OnDelete" => {}
        "RollingUpdate" => rolling_daemons(spec, &strategy.child("rollingUpdate"), errors),
        _ => {
            let given = shown_strategy(spec.at("updateStrategy"));
            errors.unsupported(&strategy, given, &["RollingUpdate", "OnDelete"]);
        }
    }
    nonnegative(spec.number("revisionHistoryLimit"), &at.child("revisionHistoryLimit"), errors);
}

fn rolling_daemons(spec: &Value, at: &Path, errors: &mut Errors) {
    let unavailable = spec.at("updateStrategy.rollingUpdate.maxUnavailable");
    let surge = spec.at("updateStrategy.rollingUpdate.maxSurge");
    let (unavailable_at, surge_at) = (at.child("maxUnavailable"), at.child("maxSurge"));
    amount_or_percent(unavailable, &unavailable_at, errors);
    amount_or_percent(surge, &surge_at, errors);
    at_most_all(unavailable, &unavailable_at, errors);
    at_most_all(surge, &surge_at, errors);
    match (number_of(unavailable) != 0, number_of(surge) != 0) {
        (true, true) => {
            let given = surge.cloned().unwrap_or(Value::Null);
            errors.invalid(&surge_at, given, "may not be set when maxUnavailable is non-zero");
        }
        (false, false) => errors.required(&unavailable_at, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

pub(in crate::kinds) fn daemon_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    immutable(new, old, "spec.selector", errors);
    daemon_set(new, errors);
}

pub(in crate::kinds) fn revision(object: &Value, errors: &mut Errors) {
    nonnegative(object.number("revision"), &Path::new("revision"), errors);
    match object.at("data") {
        None => errors.required(&Path::new("data"), "data is mandatory"),
        Some(data) if !data.is_object() => errors.required(&Path::new("data"), "data must be a valid JSON object"),
        _ => {}
    }
}

pub(in crate::kinds) fn revision_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    nonnegative(new.number("revision"), &Path::new("revision"), errors);
    immutable(new, old, "data", errors);
}

/// What the counters of a status may not be.
pub(in crate::kinds) fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    let at = Path::new("status");
    let empty = Value::Null;
    let status = new.get("status").unwrap_or(&empty);
    let counters = [
        "observedGeneration",
        "replicas",
        "fullyLabeledReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
    ];
    for field in counters {
        nonnegative(status.number(field), &at.child(field), errors);
    }
    let count = |field: &str| status.number(field).unwrap_or(0);
    let parts = ["fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "currentReplicas", "availableReplicas"];
    for field in parts.into_iter().filter(|field| count(field) > count("replicas")) {
        errors.invalid(&at.child(field), count(field), "cannot be greater than status.replicas");
    }
    if count("availableReplicas") > count("readyReplicas") {
        let whole = if new.text("kind") == "StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
        let why = format!("cannot be greater than {whole}");
        errors.invalid(&at.child("availableReplicas"), count("availableReplicas"), &why);
    }
}
