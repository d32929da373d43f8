//! Jobs and cron jobs.
//!
//! Source: kubernetes `pkg/apis/batch/validation/validation.go`.

use serde_json::Value;

use super::{
    Errors, Path,
    metadata::{self, immutable, nonnegative},
    pod, selector,
};
use crate::{
    cron::Schedule,
    kinds::{doc::Doc, put},
};
use kubefold_wire::names::dns_label;

fn spec_of(object: &Value) -> &Value {
    object.get("spec").unwrap_or(&Value::Null)
}

pub(in crate::kinds) fn job(object: &Value, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    generated(object, errors);
    job_spec(spec, &at, errors);
    selection(spec, &at, errors);
    let completions = spec.number("completions").unwrap_or(0);
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let name = object.text("metadata.name");
        let host = format!("{name}-{}", completions - 1);
        if !dns_label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            errors.invalid(&Path::new("metadata.name"), name, &why);
        }
    }
}

fn selection(spec: &Value, at: &Path, errors: &mut Errors) {
    let given = spec.at("selector");
    match given {
        None => errors.required(&at.child("selector"), ""),
        given => selector::check(given, &at.child("selector"), errors),
    }
    let labels = spec.at("template.metadata.labels");
    // No selector selects nothing.
    let selects = given.is_some_and(|given| !selector::parses(given) || selector::matches(given, labels));
    if !selects {
        let shown = labels.cloned().unwrap_or(Value::Null);
        let why = "`selector` does not match template `labels`";
        errors.invalid(&at.child("template.metadata.labels"), shown, why);
    }
}

/// The labels and the selector that the server made.
fn generated(object: &Value, errors: &mut Errors) {
    let spec = spec_of(object);
    if spec.truth("manualSelector") || !spec.has("selector") {
        return;
    }
    let (name, uid) = (object.text("metadata.name"), object.text("metadata.uid"));
    if uid.is_empty() {
        errors.required(&Path::new("metadata.uid"), "");
    }
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = spec.at("template.metadata.labels");
    let at = Path::new("spec.template.metadata.labels");
    for (key, value) in expected {
        match labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) {
            None => errors.required(&at.key(key), &format!("must be '{value}'")),
            Some(given) if given != value => {
                errors.invalid(&at.key(key), labels.cloned().unwrap_or(Value::Null), &format!("must be '{value}'"));
            }
            _ => {}
        }
    }
    let expected = expected.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value)));
    let expected: Value = expected.collect::<serde_json::Map<_, _>>().into();
    if let Some(given) = spec.at("selector").filter(|given| selector::parses(given))
        && !selector::matches(given, Some(&expected))
    {
        errors.invalid(&Path::new("spec.selector"), given.clone(), "`selector` not auto-generated");
    }
}

fn job_spec(spec: &Value, at: &Path, errors: &mut Errors) {
    let counters = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in counters {
        nonnegative(spec.number(field), &at.child(field), errors);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&at.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    match spec.text("completionMode") {
        "Indexed" => {
            if !spec.has("completions") {
                errors.required(&at.child("completions"), "when completion mode is Indexed");
            }
            if let Some(parallelism) = spec.number("parallelism").filter(|parallelism| *parallelism > 100_000) {
                let why = "must be less than or equal to 100000 when completion mode is Indexed";
                errors.invalid(&at.child("parallelism"), parallelism, why);
            }
        }
        "NonIndexed" | "" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(given) = spec.number(field) {
                    errors.invalid(&at.child(field), given, "requires indexed completion mode");
                }
            }
        }
        other => errors.unsupported(&at.child("completionMode"), other, &["NonIndexed", "Indexed"]),
    }
    let replacement = spec.text("podReplacementPolicy");
    if !matches!(replacement, "" | "Failed" | "TerminatingOrFailed") {
        errors.unsupported(&at.child("podReplacementPolicy"), replacement, &["Failed", "TerminatingOrFailed"]);
    }
    let empty = Value::Null;
    let template = spec.get("template").unwrap_or(&empty);
    pod::template(template, &at.child("template"), errors);
    let at = at.child("template.spec.restartPolicy");
    match template.text("spec.restartPolicy") {
        "" | "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(&at, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        other => errors.unsupported(&at, other, &["OnFailure", "Never"]),
    }
}

pub(in crate::kinds) fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    let (spec, before, at) = (spec_of(new), spec_of(old), Path::new("spec"));
    job_spec(spec, &at, errors);
    selection(spec, &at, errors);
    if spec.text("completionMode") != "Indexed" {
        immutable(new, old, "spec.completions", errors);
    } else if spec.at("completions") != before.at("completions") && spec.at("completions") != spec.at("parallelism") {
        let given = spec.at("completions").cloned().unwrap_or(Value::Null);
        errors.invalid(&at.child("completions"), given, "can only be modified in tandem with spec.parallelism");
    }
    immutable(new, old, "spec.selector", errors);
    // What schedules the pods of a job that waits may change.
    let mut old = old.clone();
    if before.truth("suspend") && !old.has("status.startTime") {
        let template = old.get_mut("spec").and_then(|spec| spec.get_mut("template"));
        if let (Some(template), Some(now)) = (template, spec.get("template")) {
            adopt_directives(template, now);
        }
    }
    for field in
        ["template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        immutable(new, &old, &format!("spec.{field}"), errors);
    }
}

fn adopt_directives(template: &mut Value, now: &Value) {
    for (part, fields) in [
        ("spec", ["nodeSelector", "tolerations", "schedulingGates", "affinity"].as_slice()),
        ("metadata", ["annotations", "labels"].as_slice()),
    ] {
        if let Some(target) = template.get_mut(part) {
            let given = now.get(part);
            fields.iter().for_each(|field| put(target, field, given.and_then(|given| given.get(*field)).cloned()));
        }
    }
}

pub(in crate::kinds) fn cron_job(object: &Value, errors: &mut Errors) {
    cron_spec(object, None, errors);
    let name = object.text("metadata.name");
    if name.len() > 52 {
        errors.invalid(&Path::new("metadata.name"), name, "must be no more than 52 characters");
    }
}

fn cron_spec(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, at) = (spec_of(object), Path::new("spec"));
    let there = at.child("schedule");
    match spec.text("schedule") {
        "" => errors.required(&there, ""),
        schedule => {
            if let Err(why) = Schedule::parse(schedule) {
                errors.invalid(&there, schedule, &why.to_string());
            }
            let allowed = old.is_some_and(|old| old.text("spec.schedule").contains("TZ"));
            if schedule.contains("TZ") && !allowed {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid(&there, schedule, why);
            } else if schedule.contains("TZ") && spec.has("timeZone") {
                let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                errors.invalid(&there, schedule, why);
            }
        }
    }
    nonnegative(spec.number("startingDeadlineSeconds"), &at.child("startingDeadlineSeconds"), errors);
    if old.is_none_or(|old| old.at("spec.timeZone") != spec.at("timeZone")) {
        time_zone(spec, &at.child("timeZone"), errors);
    }
    pod::one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &at, errors);
    let at_job = at.child("jobTemplate.spec");
    let empty = Value::Null;
    let job = spec.at("jobTemplate.spec").unwrap_or(&empty);
    job_spec(job, &at_job, errors);
    if let Some(given) = job.at("selector") {
        errors.invalid(&at_job.child("selector"), given.clone(), "`selector` will be auto-generated");
    }
    if job.truth("manualSelector") {
        errors.unsupported(&at_job.child("manualSelector"), true, &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        nonnegative(spec.number(field), &at.child(field), errors);
    }
}

fn time_zone(spec: &Value, at: &Path, errors: &mut Errors) {
    let Some(zone) = spec.at("timeZone").and_then(Value::as_str) else { return };
    if zone.is_empty() {
        return errors.invalid(at, zone, "timeZone must be nil or non-empty string");
    }
    let odd = |part: &str| {
        let fits = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c));
        matches!(part, "." | "..") || part.starts_with('-') || !fits
    };
    if zone.split('/').any(odd) {
        return errors.invalid(at, zone, &format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(at, zone, why);
    } else if !jiff::tz::db().is_definitively_empty() && jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(at, zone, &format!("unknown time zone {zone}"));
    }
}

pub(in crate::kinds) fn cron_job_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    cron_spec(new, Some(old), errors);
}
