//! What is wrong with an object's metadata, in Kubernetes' very sentences.
//!
//! Source: kubernetes/apimachinery `pkg/api/validation/objectmeta.go`, `pkg/api/validate/content/`.

use serde_json::Value;

use crate::{
    kinds::Kind,
    registry::{
        errors::{cause, invalid_value},
        meta,
    },
};
use kubefold_wire::{
    media::is_built_in,
    resource::split_api_version,
    selector::{key_faults, value_faults},
    status::Cause,
};

/// Of all annotations of an object. Source: `objectmeta.go`, `TotalAnnotationSizeLimitB`.
const ANNOTATION_BYTES_MAX: usize = 256 << 10;
const LABEL_CHARS_MAX: usize = 63;
const SUBDOMAIN_CHARS_MAX: usize = 253;
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                          alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                          regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// What the names of a kind look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Subdomain,
    Label,
    Label1035,
    /// Whatever can stand in a path.
    Segment,
}

impl Rule {
    fn of(kind: &Kind) -> Self {
        match (kind.group.as_str(), kind.plural.as_str()) {
            ("", "namespaces") => Self::Label,
            ("", "services") => Self::Label1035,
            ("rbac.authorization.k8s.io" | "flowcontrol.apiserver.k8s.io", _) => Self::Segment,
            _ => Self::Subdomain,
        }
    }

    fn faults(self, name: &str) -> Vec<String> {
        let too_long = |max: usize| (name.len() > max).then(|| format!("must be no more than {max} bytes"));
        let (long, odd) = match self {
            Self::Segment => return segment_faults(name),
            Self::Subdomain => (too_long(SUBDOMAIN_CHARS_MAX), (!is_subdomain(name)).then(|| SUBDOMAIN.to_owned())),
            Self::Label => {
                let what = if is_subdomain(name) { "must not contain dots" } else { LABEL };
                (too_long(LABEL_CHARS_MAX), (!is_label(name)).then(|| what.to_owned()))
            }
            Self::Label1035 => {
                let fits = is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
                (too_long(LABEL_CHARS_MAX), (!fits).then(|| LABEL_1035.to_owned()))
            }
        };
        long.into_iter().chain(odd).collect()
    }
}

/// What is wrong with an object's metadata.
pub(super) fn faults(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let rule = Rule::of(kind);
    let base = meta::text(object, "generateName");
    if !base.is_empty() {
        // What a name may not end in, its beginning may.
        let masked = base.strip_suffix('-').filter(|rest| !rest.is_empty() && rule != Rule::Segment);
        let masked = masked.map_or_else(|| base.to_owned(), |rest| format!("{rest}a"));
        let wrong = rule.faults(&masked);
        causes.extend(wrong.iter().map(|why| invalid_value("metadata.generateName", base, why)));
    }
    let name = meta::text(object, "name");
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        causes.push(cause("FieldValueRequired", "metadata.name", message));
    } else {
        let wrong = rule.faults(name);
        causes.extend(wrong.iter().map(|why| invalid_value("metadata.name", name, why)));
    }
    let namespace = meta::text(object, "namespace");
    if kind.namespaced {
        if namespace.is_empty() {
            causes.push(cause("FieldValueRequired", "metadata.namespace", "Required value"));
        } else {
            let wrong = Rule::Label.faults(namespace);
            causes.extend(wrong.iter().map(|why| invalid_value("metadata.namespace", namespace, why)));
        }
    } else if !namespace.is_empty() {
        causes.push(cause("FieldValueForbidden", "metadata.namespace", "Forbidden: not allowed on this type"));
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
            let added: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.join(", ")
            );
            causes.push(cause("FieldValueForbidden", "metadata.finalizers", message));
        }
    }
    let generation = |object: &Value| meta::field(object, "generation").as_i64().unwrap_or_default();
    if generation(new) < generation(old) {
        let message = format!("Invalid value: {}: must not be decremented", generation(new));
        causes.push(cause("FieldValueInvalid", "metadata.generation", message));
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (now, before) = (meta::field(new, name), meta::field(old, name));
        if now != before {
            let shown = if now.is_null() { "null".to_owned() } else { now.to_string() };
            let message = format!("Invalid value: {shown}: field is immutable");
            causes.push(cause("FieldValueInvalid", &format!("metadata.{name}"), message));
        }
    }
    causes
}

fn faults_of_maps(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fields = |name| meta::field(object, name).as_object().into_iter().flatten();
    for (key, value) in fields("labels") {
        let wrong = key_faults(key);
        causes.extend(wrong.iter().map(|why| invalid_value("metadata.labels", key, why)));
        let value = value.as_str().unwrap_or_default();
        causes.extend(value_faults(value).iter().map(|why| invalid_value("metadata.labels", value, why)));
    }
    let mut bytes = 0;
    for (key, value) in fields("annotations") {
        bytes += key.len() + value.as_str().unwrap_or_default().len();
        let wrong = key_faults(&key.to_lowercase());
        causes.extend(wrong.iter().map(|why| invalid_value("metadata.annotations", key, why)));
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let message = format!("Too long: may not be more than {ANNOTATION_BYTES_MAX} bytes");
        causes.push(cause("FieldValueTooLong", "metadata.annotations", message));
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
            causes.push(invalid_value(&at("apiVersion"), version, why));
        }
        for name in ["apiVersion", "kind", "name", "uid"] {
            if text(name).is_empty() {
                causes.push(cause("FieldValueRequired", &at(name), "Required value: must not be empty"));
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
                causes.push(cause("FieldValueInvalid", "metadata.ownerReferences", message));
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
        let wrong = key_faults(finalizer);
        causes.extend(wrong.iter().map(|why| invalid_value("metadata.finalizers", finalizer, why)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let shown: Vec<String> = finalizers.iter().map(|finalizer| format!("{finalizer:?}")).collect();
        let message =
            format!("Invalid value: [{}]: finalizer orphan and foregroundDeletion cannot be both set", shown.join(","));
        causes.push(cause("FieldValueInvalid", "metadata.finalizers", message));
    }
    causes
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
        && text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn segment_faults(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let odd = ["/", "%"].into_iter().filter(|odd| name.contains(odd));
    odd.map(|odd| format!("may not contain '{odd}'")).collect()
}
