//! Events, of both groups.
//!
//! Source: kubernetes `pkg/apis/core/validation/events.go`.

use serde_json::Value;

use super::{Errors, Path, metadata, words::IMMUTABLE};
use crate::kinds::{convert, doc::Doc};
use kubefold_wire::names::{NameRule, dns_subdomain, qualified_name};

pub(in crate::kinds) fn check(event: &Value, errors: &mut Errors) {
    legacy(event, "reportingComponent", errors);
}

pub(in crate::kinds) fn check_update(new: &Value, _old: &Value, errors: &mut Errors) {
    check(new, errors);
}

fn legacy(event: &Value, reporter: &str, errors: &mut Errors) {
    let namespace = event.text("metadata.namespace");
    let about = event.text("involvedObject.namespace");
    let old_style = !event.has("eventTime");
    let fits = match (old_style, about) {
        (true, "") => matches!(namespace, "" | "default"),
        (true, about) => about == namespace,
        (false, "") => matches!(namespace, "default" | "kube-system"),
        (false, _) => true,
    };
    if !fits {
        errors.invalid(&Path::new("involvedObject.namespace"), about, "does not match event.namespace");
    }
    if !old_style {
        let controller = event.text("reportingComponent");
        let at = Path::new(reporter);
        if controller.is_empty() {
            errors.required(&at, "");
        }
        errors.all_invalid(&at, controller, &qualified_name(controller));
        for field in ["reportingInstance", "action", "reason"] {
            if event.text(field).is_empty() {
                errors.required(&Path::new(field), "");
            }
            if event.text(field).len() > 128 {
                errors.invalid(&Path::new(field), "", "can have at most 128 characters");
            }
        }
        if event.text("message").len() > 1024 {
            errors.invalid(&Path::new("message"), "", "can have at most 1024 characters");
        }
    }
    errors.all_invalid(&Path::new("namespace"), namespace, &dns_subdomain(namespace));
}

/// An event of `events.k8s.io`.
pub(in crate::kinds) fn check_new(event: &Value, errors: &mut Errors) {
    let event = convert::event_to_core(event.clone());
    legacy(&event, "reportingController", errors);
    metadata::check(&event, true, NameRule::Subdomain, errors);
    series(&event, errors);
    if !event.has("eventTime") {
        errors.required(&Path::new("eventTime"), "");
    }
    let of = event.text("type");
    if !matches!(of, "Normal" | "Warning") {
        errors.invalid(&Path::new("type"), "", &format!("has invalid value: {of}"));
    }
    let count = event.number("count").unwrap_or(0) != 0;
    let source = !event.text("source.component").is_empty() || !event.text("source.host").is_empty();
    let set = [
        ("firstTimestamp", event.has("firstTimestamp")),
        ("lastTimestamp", event.has("lastTimestamp")),
        ("count", count),
        ("source", source),
    ];
    for (field, _) in set.into_iter().filter(|(_, set)| *set) {
        errors.invalid(&Path::new(field), "", "needs to be unset");
    }
}

fn series(event: &Value, errors: &mut Errors) {
    if !event.has("series") {
        return;
    }
    if event.number("series.count").unwrap_or(0) < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if !event.has("series.lastObservedTime") {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}

/// An update of an event of `events.k8s.io`.
pub(in crate::kinds) fn check_new_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (convert::event_to_core(new.clone()), convert::event_to_core(old.clone()));
    legacy(&new, "reportingController", errors);
    metadata::check_update(&new, &old, errors);
    if new.at("series") != old.at("series") {
        series(&new, errors);
    }
    let fields = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, shown) in fields {
        if new.at(field) != old.at(field) {
            errors.invalid(&Path::new(shown), new.at(field).cloned().unwrap_or(Value::Null), IMMUTABLE);
        }
    }
}
