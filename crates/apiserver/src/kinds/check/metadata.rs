//! What every object has.
//!
//! Source: kubernetes/apimachinery `pkg/api/validation/objectmeta.go`, `pkg/apis/meta/v1/validation/validation.go`.

use serde_json::Value;

use super::{
    Errors, Path,
    words::{IMMUTABLE, NEGATIVE},
};
use crate::kinds::doc::Doc;
use kubefold_wire::{
    golang::Quoted,
    names::{NameRule, dns_label, label_value, qualified_name},
};

const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
const MANAGER_BYTES_MAX: usize = 128;

/// Kinds whose finalizers may have any name.
const FREE: [&str; 12] = [
    "Lease",
    "PodDisruptionBudget",
    "Event",
    "RuntimeClass",
    "CustomResourceDefinition",
    "APIService",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

/// A new object's metadata.
pub(in crate::kinds) fn check(object: &Value, namespaced: bool, name: NameRule, errors: &mut Errors) {
    check_common(object, namespaced, name, errors);
    known_finalizers(object, errors);
}

/// Finalizers of built-in kinds are qualified, or Kubernetes' own.
fn known_finalizers(object: &Value, errors: &mut Errors) {
    if FREE.contains(&object.text("kind")) {
        return;
    }
    let at = Path::new("metadata.finalizers");
    let all = object.items("metadata.finalizers").iter().filter_map(Value::as_str).enumerate();
    for (index, finalizer) in all {
        known_finalizer(finalizer, &at.index(index), errors);
    }
}

/// A finalizer that is qualified, or Kubernetes' own.
pub(in crate::kinds) fn known_finalizer(finalizer: &str, at: &Path, errors: &mut Errors) {
    if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(at, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn check_common(object: &Value, namespaced: bool, name: NameRule, errors: &mut Errors) {
    let at = Path::new("metadata");
    let empty = Value::Null;
    let metadata = object.get("metadata").unwrap_or(&empty);
    let prefix = metadata.text("generateName");
    if !prefix.is_empty() {
        errors.all_invalid(&at.child("generateName"), prefix, &name.wrong_prefix(prefix));
    }
    match metadata.text("name") {
        "" => errors.required(&at.child("name"), "name or generateName is required"),
        given => errors.all_invalid(&at.child("name"), given, &name.wrong(given)),
    }
    common(metadata, namespaced, &at, errors);
}

fn common(metadata: &Value, namespaced: bool, at: &Path, errors: &mut Errors) {
    let namespace = metadata.text("namespace");
    let there = at.child("namespace");
    match (namespaced, namespace) {
        (true, "") => errors.required(&there, ""),
        (true, given) => errors.all_invalid(&there, given, &dns_label(given)),
        (false, "") => {}
        (false, _) => errors.forbidden(&there, "not allowed on this type"),
    }
    nonnegative(metadata.number("generation"), &at.child("generation"), errors);
    labels(metadata.at("labels"), &at.child("labels"), errors);
    annotations(metadata.at("annotations"), &at.child("annotations"), errors);
    owners(metadata, &at.child("ownerReferences"), errors);
    let finalizers = metadata.items("finalizers");
    let there = at.child("finalizers");
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.all_invalid(&there, finalizer, &qualified_name(finalizer));
    }
    let both = ["foregroundDeletion", "orphan"].iter().all(|known| finalizers.iter().any(|given| given == known));
    if both {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.invalid(&there, Value::Array(finalizers.to_vec()), why);
    }
    managers(metadata, &at.child("managedFields"), errors);
}

/// What an update of any kind is checked for before its own.
pub(in crate::kinds) fn check_update_common(new: &Value, old: &Value, namespaced: bool, errors: &mut Errors) {
    check_common(new, namespaced, NameRule::PathSegment, errors);
    check_changes(new, old, errors);
}

/// What an update changes of the metadata.
pub(in crate::kinds) fn check_update(new: &Value, old: &Value, errors: &mut Errors) {
    check_changes(new, old, errors);
    known_finalizers(new, errors);
}

fn check_changes(new: &Value, old: &Value, errors: &mut Errors) {
    let at = Path::new("metadata");
    let empty = Value::Null;
    let (new, old) = (new.get("metadata").unwrap_or(&empty), old.get("metadata").unwrap_or(&empty));
    if old.has("deletionTimestamp") {
        let mut extra: Vec<&str> = new.items("finalizers").iter().filter_map(Value::as_str).collect();
        extra.retain(|finalizer| !old.items("finalizers").iter().any(|known| known == finalizer));
        extra.sort_unstable();
        extra.dedup();
        if !extra.is_empty() {
            let shown: Vec<_> = extra.iter().map(|finalizer| Quoted(finalizer).to_string()).collect();
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
            errors.forbidden(&at.child("finalizers"), &format!("{why} []string{{{}}}", shown.join(", ")));
        }
    }
    if new.text("resourceVersion").is_empty() {
        errors.invalid(&at.child("resourceVersion"), "", "must be specified for an update");
    }
    let (generation, before) = (new.number("generation").unwrap_or(0), old.number("generation").unwrap_or(0));
    if generation < before {
        errors.invalid(&at.child("generation"), generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        if new.text(field) != old.text(field) {
            errors.invalid(&at.child(field), new.text(field), IMMUTABLE);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if new.at(field) != old.at(field) {
            errors.invalid(&at.child(field), new.at(field).cloned().unwrap_or(Value::Null), IMMUTABLE);
        }
    }
    labels(new.at("labels"), &at.child("labels"), errors);
    annotations(new.at("annotations"), &at.child("annotations"), errors);
    owners(new, &at.child("ownerReferences"), errors);
    managers(new, &at.child("managedFields"), errors);
}

/// Labels, in the order of their keys.
pub(in crate::kinds) fn labels(labels: Option<&Value>, at: &Path, errors: &mut Errors) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.all_invalid(at, key, &qualified_name(key));
        let value = value.as_str().unwrap_or("");
        errors.all_invalid(at, value, &label_value(value));
    }
}

/// Annotations, in the order of their keys.
pub(in crate::kinds) fn annotations(annotations: Option<&Value>, at: &Path, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        errors.all_invalid(at, key, &qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(at, ANNOTATIONS_BYTES_MAX);
    }
}

fn owners(metadata: &Value, at: &Path, errors: &mut Errors) {
    let owners = metadata.items("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        let version = owner.text("apiVersion");
        if version.rsplit('/').next().is_none_or(str::is_empty) || version.matches('/').count() > 1 {
            errors.invalid(&at.child("apiVersion"), version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if owner.text(field).is_empty() {
                errors.invalid(&at.child(field), "", "must not be empty");
            }
        }
        if (version, owner.text("kind")) == ("v1", "Event") {
            errors.invalid(at, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.truth("controller") {
            let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
            if let Some(first) = &controller {
                let why = "Only one reference can have Controller set to true. Found \"true\" in references for";
                errors.invalid(at, Value::Array(owners.to_vec()), &format!("{why} {first} and {this}"));
            } else {
                controller = Some(this);
            }
        }
    }
}

fn managers(metadata: &Value, at: &Path, errors: &mut Errors) {
    for (index, entry) in metadata.items("managedFields").iter().enumerate() {
        let at = at.index(index);
        if !matches!(entry.text("operation"), "Apply" | "Update") {
            errors.invalid(&at.child("operation"), entry.text("operation"), "must be `Apply` or `Update`");
        }
        if !matches!(entry.text("fieldsType"), "" | "FieldsV1") {
            errors.invalid(&at.child("fieldsType"), entry.text("fieldsType"), "must be `FieldsV1`");
        }
        if entry.text("manager").len() > MANAGER_BYTES_MAX {
            errors.too_long(&at.child("manager"), MANAGER_BYTES_MAX);
        }
    }
}

/// A number that may not be below zero.
pub(in crate::kinds) fn nonnegative(value: Option<i64>, at: &Path, errors: &mut Errors) {
    if let Some(value) = value.filter(|value| *value < 0) {
        errors.invalid(at, value, NEGATIVE);
    }
}

/// A field that may not change.
pub(in crate::kinds) fn immutable(new: &Value, old: &Value, path: &str, errors: &mut Errors) {
    if new.at(path) != old.at(path) {
        errors.invalid(&Path::new(path), new.at(path).cloned().unwrap_or(Value::Null), IMMUTABLE);
    }
}
