//! Volumes, claims, classes and drivers.
//!
//! Source: kubernetes `pkg/apis/{core,storage}/validation/validation.go`.

use serde_json::Value;

use super::{Errors, Path, metadata, metadata::immutable, pod, resources, selector};
use crate::kinds::{doc::Doc, put};
use kubefold_wire::names::{NameRule, dns_subdomain, qualified_name};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn access_modes(spec: &Value, at: &Path, errors: &mut Errors) {
    let at = at.child("accessModes");
    let modes = spec.items("accessModes");
    for mode in modes.iter().filter_map(Value::as_str).filter(|mode| !MODES.contains(mode)) {
        errors.unsupported(&at, mode, &MODES);
    }
    let known = modes.iter().filter_map(Value::as_str).filter(|mode| MODES.contains(mode));
    let (one_pod, others): (Vec<&str>, Vec<&str>) = known.partition(|mode| *mode == "ReadWriteOncePod");
    if !one_pod.is_empty() && !others.is_empty() {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn volume_mode(spec: &Value, at: &Path, errors: &mut Errors) {
    if let Some(mode) = spec.at("volumeMode").and_then(Value::as_str)
        && !matches!(mode, "Block" | "Filesystem")
    {
        errors.unsupported(&at.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
}

pub(in crate::kinds) fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(object.get("spec").unwrap_or(&Value::Null), &Path::new("spec"), errors);
}

/// What a claim asks for.
pub(in crate::kinds) fn claim_spec(spec: &Value, at: &Path, errors: &mut Errors) {
    if spec.items("accessModes").is_empty() {
        errors.required(&at.child("accessModes"), "at least 1 access mode is required");
    }
    selector::check(spec.at("selector"), &at.child("selector"), errors);
    access_modes(spec, at, errors);
    let storage = at.child("resources").key("storage");
    match spec.at("resources.requests.storage") {
        None => errors.required(&storage, ""),
        Some(amount) => {
            if resources::positive(amount, &storage, errors) {
                resources::quantity("storage", amount, &storage, errors);
            }
        }
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        errors.all_invalid(&at.child("storageClassName"), class, &dns_subdomain(class));
    }
    volume_mode(spec, at, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.at(field) {
            data_source(source, &at.child(field), errors);
        }
    }
}

fn data_source(source: &Value, at: &Path, errors: &mut Errors) {
    for field in ["name", "kind"].into_iter().filter(|field| source.text(field).is_empty()) {
        errors.required(&at.child(field), "");
    }
    match (source.text("apiGroup"), source.text("kind")) {
        ("", "PersistentVolumeClaim") => {}
        ("", kind) => {
            errors.invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
        (group, _) => errors.all_invalid(&at.child("apiGroup"), group, &dns_subdomain(group)),
    }
}

pub(in crate::kinds) fn claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    claim(new, errors);
    let empty = Value::Null;
    let before = old.get("spec").unwrap_or(&empty);
    let mut same = new.get("spec").cloned().unwrap_or(Value::Null);
    let adopt = |same: &mut Value, field: &str| put(same, field, before.get(field).cloned());
    if before.text("volumeName").is_empty() {
        adopt(&mut same, "volumeName");
    }
    if !before.has("storageClassName") {
        adopt(&mut same, "storageClassName");
    }
    if new.text("status.phase") == "Bound" {
        adopt(&mut same, "volumeAttributesClassName");
        let storage = before.at("resources.requests.storage").cloned();
        if let Some(requests) = same.get_mut("resources").and_then(|resources| resources.get_mut("requests")) {
            put(requests, "storage", storage);
        }
    }
    if same != *before {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        errors.forbidden(&Path::new("spec"), why);
    }
    let zero = Value::from("0");
    let amount = |object: &Value, path: &str| object.at(path).cloned().unwrap_or_else(|| zero.clone());
    let (now, was) = (amount(new, "spec.resources.requests.storage"), amount(old, "spec.resources.requests.storage"));
    if resources::is_more(&was, &now) && !resources::is_more(&now, &amount(old, "status.capacity.storage")) {
        let why = "field can not be less than status.capacity";
        errors.forbidden(&Path::new("spec.resources.requests.storage"), why);
    }
    if new.at("spec.volumeMode") != old.at("spec.volumeMode") {
        let given = new.at("spec.volumeMode").cloned().unwrap_or(Value::Null);
        errors.invalid(&Path::new("volumeMode"), given, super::words::IMMUTABLE);
    }
}

pub(in crate::kinds) fn volume(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    if spec.items("accessModes").is_empty() {
        errors.required(&at.child("accessModes"), "");
    }
    access_modes(spec, &at, errors);
    let capacity = spec.at("capacity");
    let names: Vec<&String> = spec.entries("capacity").map(|(name, _)| name).collect();
    if names.is_empty() {
        errors.required(&at.child("capacity"), "");
    }
    if names.len() != 1 || names.iter().all(|name| **name != "storage") {
        errors.unsupported(&at.child("capacity"), capacity.cloned().unwrap_or(Value::Null), &["storage"]);
    }
    for (name, amount) in spec.entries("capacity") {
        resources::positive(amount, &at.child("capacity").key(name), errors);
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        errors.unsupported(&at.child("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity = spec.at("nodeAffinity.required");
    if let Some(required) = affinity {
        pod::node_selector(required, &at.child("nodeAffinity.required"), errors);
    }
    source(spec, affinity.is_some(), &at, errors);
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        errors.all_invalid(&at.child("storageClassName"), class, &dns_subdomain(class));
    }
    volume_mode(spec, &at, errors);
}

fn source(spec: &Value, has_affinity: bool, at: &Path, errors: &mut Errors) {
    let mut sources = 0;
    for kind in SOURCES {
        let Some(source) = spec.at(kind) else { continue };
        let at_source = at.child(kind);
        if sources > 0 {
            errors.forbidden(&at_source, "may not specify more than 1 volume type");
            continue;
        }
        sources += 1;
        let required = |fields: &[&str], errors: &mut Errors| {
            for field in fields.iter().filter(|field| source.text(field).is_empty()) {
                errors.required(&at_source.child(field), "");
            }
        };
        match kind {
            "hostPath" => pod::host_path(source, &at_source, errors),
            "nfs" => {
                required(&["server", "path"], errors);
                if !source.text("path").starts_with('/') {
                    errors.invalid(&at_source.child("path"), source.text("path"), "must be an absolute path");
                }
            }
            "local" => {
                required(&["path"], errors);
                if !has_affinity {
                    errors.required(&at.child("nodeAffinity"), "Local volume requires node affinity");
                }
            }
            "csi" => required(&["driver", "volumeHandle"], errors),
            _ => {}
        }
    }
    if sources == 0 {
        errors.required(at, "must specify a volume type");
    }
}

pub(in crate::kinds) fn volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    volume(new, errors);
    let source = |object: &Value| -> Vec<Option<Value>> {
        SOURCES.iter().map(|kind| object.at("spec").and_then(|spec| spec.at(kind)).cloned()).collect()
    };
    if source(new) != source(old) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&Path::new("spec.persistentvolumesource"), why);
    }
    if new.at("spec.volumeMode") != old.at("spec.volumeMode") {
        let given = new.at("spec.volumeMode").cloned().unwrap_or(Value::Null);
        errors.invalid(&Path::new("volumeMode"), given, super::words::IMMUTABLE);
    }
}

pub(in crate::kinds) fn class(object: &Value, errors: &mut Errors) {
    match object.text("provisioner") {
        "" => errors.required(&Path::new("provisioner"), ""),
        name => {
            errors.all_invalid(&Path::new("provisioner"), &name.to_lowercase(), &qualified_name(&name.to_lowercase()))
        }
    }
    for (key, _) in object.entries("parameters").filter(|(key, _)| key.is_empty()) {
        errors.invalid(&Path::new("parameters"), &**key, "field can not be empty.");
    }
    let policy = object.text("reclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Retain") {
        errors.unsupported(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = object.text("volumeBindingMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        errors.unsupported(&Path::new("volumeBindingMode"), mode, &["Immediate", "WaitForFirstConsumer"]);
    }
}

pub(in crate::kinds) fn class_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(new, old, field, errors);
    }
}

pub(in crate::kinds) fn driver(object: &Value, errors: &mut Errors) {
    let policy = object.text("spec.fsGroupPolicy");
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if !policies.contains(&policy) {
        errors.unsupported(&Path::new("spec.fsGroupPolicy"), policy, &policies);
    }
    for mode in object.items("spec.volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !matches!(mode, "Ephemeral" | "Persistent") {
            errors.unsupported(&Path::new("spec.volumeLifecycleModes"), mode, &["Ephemeral", "Persistent"]);
        }
    }
}

pub(in crate::kinds) fn attachment(object: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let attacher = object.text("spec.attacher");
    if attacher.is_empty() {
        errors.required(&at.child("attacher"), "");
    } else {
        errors.all_invalid(&at.child("attacher"), attacher, &dns_subdomain(&attacher.to_lowercase()));
    }
    let source = at.child("source");
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (object.has("spec.source.inlineVolumeSpec"), object.at("spec.source.persistentVolumeName")) {
        (false, None) => errors.required(&source, why),
        (true, Some(_)) => errors.forbidden(&source, why),
        (false, Some(name)) if name == "" => {
            errors.required(&source.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        _ => {}
    }
    let node = object.text("spec.nodeName");
    errors.all_invalid(&at.child("nodeName"), node, &dns_subdomain(node));
    if let Some(name) = object.at("spec.source.persistentVolumeName").and_then(Value::as_str) {
        errors.all_invalid(&source.child("persistentVolumeName"), name, &dns_subdomain(name));
    }
}

pub(in crate::kinds) fn attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check(new, false, NameRule::Subdomain, errors);
    attachment(new, errors);
    immutable(new, old, "spec", errors);
}
