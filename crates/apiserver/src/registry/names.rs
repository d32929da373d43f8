//! What is wrong with an object's metadata, in Kubernetes' very sentences.
//!
//! Source: kubernetes/apimachinery `pkg/api/validation/objectmeta.go`, `pkg/api/validate/content/`.

use serde_json::Value;

use crate::{kinds::Kind, registry::meta};
use kubefold_wire::{
    golang::Quoted,
    media::is_built_in,
    names::{NameRule, dns_label, label_value, qualified_name},
    resource::split_api_version,
    status::Cause,
};

/// Of all annotations of an object. Source: `objectmeta.go`, `TotalAnnotationSizeLimitB`.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;

/// How the names of a kind's objects are spelled.
fn name_rule(kind: &Kind) -> NameRule {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => NameRule::Label,
        ("", "services") => NameRule::Label1035,
        ("rbac.authorization.k8s.io" | "flowcontrol.apiserver.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

/// What is wrong with an object's metadata.
pub(super) fn faults(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let rule = name_rule(kind);
    let base = meta::text(object, "generateName");
    if !base.is_empty() {
        let wrong = rule.wrong_prefix(base);
        causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.generateName", base, why)));
    }
    let name = meta::text(object, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let wrong = rule.wrong(name);
        causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.name", name, why)));
    }
    let namespace = meta::text(object, "namespace");
    if kind.namespaced {
        if namespace.is_empty() {
            causes.push(Cause::required("metadata.namespace", ""));
        } else {
            let wrong = dns_label(namespace);
            causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.namespace", namespace, why)));
        }
    } else if !namespace.is_empty() {
        causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
    }
    causes.extend(faults_of_maps(object));
    causes.extend(faults_of_owners(object));
    if is_built_in(&kind.group) || !meta::field(object, "finalizers").is_null() {
        causes.extend(faults_of_finalizers(object));
    }
    causes
}

/// What may not change in an object's metadata.
pub(super) fn faults_of_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if meta::field(old, "deletionTimestamp").is_string() {
        let before = meta::texts(old, "finalizers");
        let mut added = meta::texts(new, "finalizers");
        added.retain(|finalizer| !before.contains(finalizer));
        added.sort_unstable();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|finalizer| Quoted(finalizer).to_string()).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::new("FieldValueForbidden", "metadata.finalizers", message));
        }
    }
    let generation = |object: &Value| meta::field(object, "generation").as_i64().unwrap_or_default();
    if generation(new) < generation(old) {
        let message = format!("Invalid value: {}: must not be decremented", generation(new));
        causes.push(Cause::new("FieldValueInvalid", "metadata.generation", message));
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (now, before) = (meta::field(new, name), meta::field(old, name));
        if now != before {
            let shown = if now.is_null() { "null".to_owned() } else { now.to_string() };
            let message = format!("Invalid value: {shown}: field is immutable");
            causes.push(Cause::new("FieldValueInvalid", format!("metadata.{name}"), message));
        }
    }
    causes
}

/// What is wrong with labels and annotations.
pub(crate) fn faults_of_maps(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fields = |name| meta::field(object, name).as_object().into_iter().flatten();
    for (key, value) in fields("labels") {
        let wrong = qualified_name(key);
        causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.labels", key, why)));
        let value = value.as_str().unwrap_or_default();
        causes.extend(label_value(value).iter().map(|why| Cause::invalid_text("metadata.labels", value, why)));
    }
    let mut bytes = 0;
    for (key, value) in fields("annotations") {
        bytes += key.len() + value.as_str().unwrap_or_default().len();
        let wrong = qualified_name(&key.to_lowercase());
        causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.annotations", key, why)));
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let message = format!("Too long: may not be more than {ANNOTATION_BYTES_MAX} bytes");
        causes.push(Cause::new("FieldValueTooLong", "metadata.annotations", message));
    }
    causes
}

fn faults_of_owners(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let owners = meta::field(object, "ownerReferences").as_array().map(Vec::as_slice).unwrap_or_default();
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        let text = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let at = |name: &str| format!("metadata.ownerReferences[{index}].{name}");
        let version = text("apiVersion");
        if !version.is_empty() && split_api_version(version).is_none_or(|(_, version)| version.is_empty()) {
            let why = "must be <group>/<version> or <version>";
            causes.push(Cause::invalid_text(at("apiVersion"), version, why));
        }
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(name).is_empty() {
                causes.push(Cause::required(at(name), "must not be empty"));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let message = format!(
                    "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in \
                     references for {first} and {name}",
                    Value::from(owners)
                );
                causes.push(Cause::new("FieldValueInvalid", "metadata.ownerReferences", message));
            }
            controller.get_or_insert(name);
        }
    }
    causes
}

fn faults_of_finalizers(object: &Value) -> Vec<Cause> {
    let finalizers = meta::texts(object, "finalizers");
    let mut causes = Vec::new();
    for finalizer in &finalizers {
        let wrong = qualified_name(finalizer);
        causes.extend(wrong.iter().map(|why| Cause::invalid_text("metadata.finalizers", finalizer, why)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let shown: Vec<String> = finalizers.iter().map(|finalizer| Quoted(finalizer).to_string()).collect();
        let message =
            format!("Invalid value: [{}]: finalizer orphan and foregroundDeletion cannot be both set", shown.join(","));
        causes.push(Cause::new("FieldValueInvalid", "metadata.finalizers", message));
    }
    causes
}
