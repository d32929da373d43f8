//! Configurations of admission webhooks.
//!
//! Source: kubernetes `pkg/apis/admissionregistration/validation/validation.go`; kubernetes/apiserver
//! `pkg/util/webhook/validation.go`.

use serde_json::Value;

use super::{
    Errors, Path,
    admission::{FAILURE_POLICIES, MATCH_POLICIES, known_text, match_conditions, rule},
    metadata, selector,
};
use crate::kinds::doc::Doc;
use kubefold_wire::names::{NameRule, dns_subdomain, dns1035_label};

/// Those of an `AdmissionReview` and of a `ConversionReview` that a kube-apiserver knows.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const FORM: &str = "; desired format: https://host[/path]";

/// What an update may leave as it was, though a create may not say it.
#[derive(Clone, Copy)]
struct Lenience {
    conditions: bool,
    side_effects: bool,
    review_versions: bool,
    names: bool,
}

/// A `ValidatingWebhookConfiguration` or a `MutatingWebhookConfiguration`.
pub(in crate::kinds) fn configuration(object: &Value, errors: &mut Errors) {
    let strict = Lenience { conditions: false, side_effects: false, review_versions: false, names: false };
    webhooks(object, strict, errors);
}

pub(in crate::kinds) fn configuration_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    let (hooks, before) = (new.items("webhooks"), old.items("webhooks"));
    let is_same = |(new, old): (&Value, &Value)| new.at("matchConditions") == old.at("matchConditions");
    let knows = |version: &Value| version.as_str().is_some_and(|version| REVIEW_VERSIONS.contains(&version));
    let has_known = |hook: &Value| {
        let versions = hook.items("admissionReviewVersions");
        versions.is_empty() || versions.iter().any(knows)
    };
    let is_twice =
        |(index, hook): (usize, &Value)| before.iter().take(index).any(|other| other.text("name") == hook.text("name"));
    let lenience = Lenience {
        conditions: hooks.len() == before.len() && hooks.iter().zip(before).all(is_same),
        side_effects: !before.iter().all(|hook| NO_SIDE_EFFECTS.contains(&hook.text("sideEffects"))),
        review_versions: !before.iter().all(has_known),
        names: before.iter().enumerate().any(is_twice),
    };
    webhooks(new, lenience, errors);
}

fn webhooks(object: &Value, lenience: Lenience, errors: &mut Errors) {
    let hooks = object.items("webhooks");
    for (index, hook) in hooks.iter().enumerate() {
        let at = Path::new("webhooks").index(index);
        webhook(hook, lenience, &at, errors);
        let versions = hook.items("admissionReviewVersions");
        review_versions(versions, lenience, &at.child("admissionReviewVersions"), errors);
        let name = hook.text("name");
        let is_twice = !name.is_empty() && hooks.iter().take(index).any(|other| other.text("name") == name);
        if is_twice && !lenience.names {
            errors.duplicate(&at.child("name"), name);
        }
    }
}

fn webhook(hook: &Value, lenience: Lenience, at: &Path, errors: &mut Errors) {
    qualified(hook.text("name"), &at.child("name"), errors);
    for (index, one) in hook.items("rules").iter().enumerate() {
        rule(one, &at.child("rules").index(index), errors);
    }
    known_text(hook, "failurePolicy", &FAILURE_POLICIES, at, errors);
    known_text(hook, "matchPolicy", &MATCH_POLICIES, at, errors);
    let allowed: &[&str] = if lenience.side_effects { &SIDE_EFFECTS } else { &NO_SIDE_EFFECTS };
    if !hook.has("sideEffects") {
        errors.required(&at.child("sideEffects"), &format!("must specify one of {}", allowed.join(", ")));
    }
    known_text(hook, "sideEffects", allowed, at, errors);
    if let Some(seconds) = hook.number("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&at.child("timeoutSeconds"), seconds, why);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector::check(hook.at(field), &at.child(field), errors);
    }
    known_text(hook, "reinvocationPolicy", &REINVOCATIONS, at, errors);
    client_config(hook.at("clientConfig").unwrap_or(&Value::Null), &at.child("clientConfig"), errors);
    if !lenience.conditions {
        match_conditions(hook, false, &at.child("matchConditions"), errors);
    }
}

/// Where a webhook is, of admission or of conversion.
pub(crate) fn client_config(config: &Value, at: &Path, errors: &mut Errors) {
    match (config.at("url"), config.at("service")) {
        (Some(url), None) => self::url(url.as_str().unwrap_or_default(), &at.child("url"), errors),
        (None, Some(reference)) => service(reference, &at.child("service"), errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

/// Source: kubernetes/apimachinery `pkg/util/validation/validation.go` `IsFullyQualifiedName`.
fn qualified(name: &str, at: &Path, errors: &mut Errors) {
    let wrong = dns_subdomain(name);
    if name.is_empty() {
        errors.required(at, "");
    } else if !wrong.is_empty() {
        errors.invalid(at, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(at, name, "should be a domain with at least three segments separated by dots");
    }
}

fn review_versions(versions: &[Value], lenience: Lenience, at: &Path, errors: &mut Errors) {
    if versions.is_empty() {
        return errors.required(at, &format!("must specify one of {}", REVIEW_VERSIONS.join(", ")));
    }
    known_versions(versions, lenience.review_versions, at, errors);
}

/// Versions of reviews, of which this server must know one unless that is left as it was.
pub(crate) fn known_versions(versions: &[Value], is_lenient: bool, at: &Path, errors: &mut Errors) {
    let known = REVIEW_VERSIONS.join(", ");
    for (index, version) in versions.iter().enumerate() {
        let at = at.index(index);
        let text = version.as_str().unwrap_or_default();
        if versions.iter().take(index).any(|other| other == version) {
            errors.invalid(&at, text, "duplicate version");
            continue;
        }
        errors.all_invalid(&at, text, &dns1035_label(text));
    }
    let is_known = versions.iter().any(|version| REVIEW_VERSIONS.iter().any(|known| version == known));
    if !is_known && !is_lenient {
        errors.invalid(at, versions.to_vec(), &format!("must include at least one of {known}"));
    }
}

fn url(url: &str, at: &Path, errors: &mut Errors) {
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        errors.invalid(at, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(at, host, &format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(at, query, "query parameters are not permitted in the URL");
    }
}

fn service(service: &Value, at: &Path, errors: &mut Errors) {
    // A kube-apiserver takes one for the other.
    for (field, said) in [("name", "namespace"), ("namespace", "name")] {
        if service.text(said).is_empty() {
            errors.required(&at.child(field), "");
        }
    }
    let port = service.number("port").unwrap_or(443);
    if !(1..=65535).contains(&port) {
        errors.invalid(&at.child("port"), port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    let (path, at) = (service.text("path"), at.child("path"));
    if matches!(path, "" | "/") {
        return;
    }
    if path == "//" {
        return errors.invalid(&at, path, "segment[0] may not be empty");
    }
    if !path.starts_with('/') {
        errors.invalid(&at, path, "must start with a '/'");
    }
    let inner: String = path.chars().skip(1).collect();
    let inner = inner.strip_suffix('/').unwrap_or(&inner);
    for (index, segment) in inner.split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(&at, path, &format!("segment[{index}] may not be empty"));
        }
        let wrong = if segment.is_empty() { Vec::new() } else { dns_subdomain(segment) };
        for why in wrong {
            errors.invalid(&at, path, &format!("segment[{index}]: {why}"));
        }
    }
}
