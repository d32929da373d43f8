//! Volumes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::storage,
    Doc, Errors, Path,
    container::{descending, field_reference, no_backsteps, resource_reference},
    dns_label, dns_subdomain,
};
use kubefold_wire::golang::Quoted;

/// The order in which sources are looked at.
const SOURCES: [&str; 28] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "csi",
    "ephemeral",
];
const HOST_PATHS: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Volumes; answers the good ones, by name.
pub(super) fn check_all(volumes: &[Value], pod: &str, at: &Path, errors: &mut Errors) -> BTreeMap<String, Value> {
    let mut good = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        let name = volume.text("name");
        let mut wrong = Errors::default();
        source(volume, pod, &at, &mut wrong);
        if name.is_empty() {
            wrong.required(&at.child("name"), "");
        } else {
            wrong.all_invalid(&at.child("name"), name, &dns_label(name));
        }
        if good.contains_key(name) {
            wrong.duplicate(&at.child("name"), name);
        }
        if wrong.is_empty() {
            good.insert(name.to_owned(), volume.clone());
        } else {
            errors.append(wrong);
        }
    }
    good
}

fn source(volume: &Value, pod: &str, at: &Path, errors: &mut Errors) {
    let mut sources = 0;
    for kind in SOURCES.iter().copied().chain(["scaleIO", "image"]) {
        let Some(source) = volume.at(kind) else { continue };
        let there = match kind {
            "cephfs" => at.child("cephFS"),
            "downwardAPI" => at.child("downwarAPI"),
            kind => at.child(kind),
        };
        if sources > 0 && kind != "emptyDir" {
            errors.forbidden(&there, "may not specify more than 1 volume type");
            continue;
        }
        sources += 1;
        if kind == "ephemeral" {
            ephemeral(volume, pod, at, errors);
        } else {
            of_kind(kind, source, &at.child(kind), errors);
        }
    }
    if sources == 0 {
        errors.required(at, "must specify a volume type");
    }
}

fn of_kind(kind: &str, source: &Value, at: &Path, errors: &mut Errors) {
    let required = |field: &str, errors: &mut Errors| {
        if source.text(field).is_empty() {
            errors.required(&at.child(field), "");
        }
    };
    match kind {
        "emptyDir" if is_negative(source.at("sizeLimit")) => {
            errors.forbidden(&at.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" => host_path(source, at, errors),
        "secret" => {
            required("secretName", errors);
            keys(source, at, errors);
        }
        "configMap" => {
            required("name", errors);
            keys(source, at, errors);
        }
        "persistentVolumeClaim" => required("claimName", errors),
        "nfs" => {
            required("server", errors);
            required("path", errors);
            if !source.text("path").starts_with('/') {
                errors.invalid(&at.child("path"), source.text("path"), "must be an absolute path");
            }
        }
        "downwardAPI" => {
            mode(source, "defaultMode", at, errors);
            downward(source, at, errors);
        }
        "projected" => projected(source, at, errors),
        "csi" => required("driver", errors),
        _ => {}
    }
}

fn is_negative(amount: Option<&Value>) -> bool {
    amount.and_then(Value::as_str).is_some_and(|amount| amount.starts_with('-'))
}

pub(in crate::kinds::check) fn host_path(source: &Value, at: &Path, errors: &mut Errors) {
    let path = source.text("path");
    if path.is_empty() {
        return errors.required(&at.child("path"), "");
    }
    no_backsteps(path, &at.child("path"), errors);
    let kind = source.text("type");
    if !HOST_PATHS.contains(&kind) {
        errors.unsupported(&at.child("type"), kind, &HOST_PATHS);
    }
}

fn mode(source: &Value, field: &str, at: &Path, errors: &mut Errors) {
    if let Some(mode) = source.number(field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(&at.child(field), mode, MODE);
    }
}

fn keys(source: &Value, at: &Path, errors: &mut Errors) {
    mode(source, "defaultMode", at, errors);
    for (index, item) in source.items("items").iter().enumerate() {
        let at = at.child("items").index(index);
        for field in ["key", "path"] {
            if item.text(field).is_empty() {
                errors.required(&at.child(field), "");
            }
        }
        let path = item.text("path");
        non_reserved(path, &at.child("path"), errors);
        mode(item, "mode", &at, errors);
    }
}

/// Names that begin with two dots are the kubelet's own.
fn non_reserved(path: &str, at: &Path, errors: &mut Errors) {
    descending(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}

fn downward(source: &Value, at: &Path, errors: &mut Errors) {
    for file in source.items("items") {
        // Where no item is named: so it is in Kubernetes.
        if file.text("path").is_empty() {
            errors.required(&at.child("path"), "");
        }
        non_reserved(file.text("path"), &at.child("path"), errors);
        match (file.at("fieldRef"), file.at("resourceFieldRef")) {
            (Some(field), other) => {
                field_reference(field, &FIELDS, &at.child("fieldRef"), errors);
                if other.is_some() {
                    errors.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
                }
            }
            (None, Some(resource)) => resource_reference(resource, true, &at.child("resourceFieldRef"), errors),
            (None, None) => errors.required(at, "one of fieldRef and resourceFieldRef is required"),
        }
        mode(file, "mode", at, errors);
    }
}

fn projected(source: &Value, whole: &Path, errors: &mut Errors) {
    mode(source, "defaultMode", whole, errors);
    for (index, projection) in source.items("sources").iter().enumerate() {
        let at = whole.child("sources").index(index);
        for kind in ["secret", "configMap"] {
            let Some(source) = projection.at(kind) else { continue };
            let at = at.child(kind);
            if source.text("name").is_empty() {
                errors.required(&at.child("name"), "");
            }
            keys(source, &at, errors);
        }
        if let Some(source) = projection.at("downwardAPI") {
            downward(source, &at.child("downwardAPI"), errors);
        }
        if let Some(token) = projection.at("serviceAccountToken") {
            let at = at.child("serviceAccountToken").child("expirationSeconds");
            let seconds = token.number("expirationSeconds").unwrap_or(0);
            if seconds < 600 {
                errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
            }
            if token.text("path").is_empty() {
                // Not the source's own path, in Kubernetes neither.
                errors.required(&whole.child("path"), "");
            }
        }
    }
}

fn ephemeral(volume: &Value, pod: &str, whole: &Path, errors: &mut Errors) {
    let at = whole.child("ephemeral");
    let Some(source) = volume.at("ephemeral") else { return };
    let Some(template) = source.at("volumeClaimTemplate") else {
        return errors.required(&at.child("volumeClaimTemplate"), "");
    };
    storage::claim_spec(template.get("spec").unwrap_or(&Value::Null), &at.child("volumeClaimTemplate.spec"), errors);
    let name = volume.text("name");
    if !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for why in dns_subdomain(&claim) {
            errors.invalid(&whole.child("name"), name, &format!("PVC name {claim}: {why}", claim = Quoted(&claim)));
        }
    }
}
