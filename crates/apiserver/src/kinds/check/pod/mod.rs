//! Pods and templates of pods.

mod affinity;
mod container;
mod probe;
mod update;
mod volume;

use serde_json::Value;

use super::{Errors, Path, metadata, resources};
use crate::kinds::doc::Doc;
use kubefold_wire::names::{dns_label, dns_subdomain, qualified_name};

pub(super) use affinity::node_selector;
pub(in crate::kinds) use affinity::node_taints;
pub(super) use probe::port;
pub(in crate::kinds) use update::check_update;
pub(super) use volume::host_path;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A new pod.
pub(in crate::kinds) fn check(pod: &Value, errors: &mut Errors) {
    body(pod, errors);
    if !pod.items("spec.ephemeralContainers").is_empty() {
        errors.forbidden(&Path::new("spec.ephemeralContainers"), "cannot be set on create");
    }
    if !pod.text("spec.nodeName").is_empty() && !pod.items("spec.schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&Path::new("spec.nodeName"), why);
    }
}

/// What is said of a pod at creation and update alike, beyond its metadata.
fn body(pod: &Value, errors: &mut Errors) {
    annotations(pod.at("metadata.annotations"), &Path::new("metadata.annotations"), errors);
    let empty = Value::Null;
    let spec = pod.get("spec").unwrap_or(&empty);
    let at = Path::new("spec");
    check_spec(spec, Some(pod.text("metadata.name")), &at, errors);
    for list in ["containers", "initContainers"] {
        for (index, container) in spec.items(list).iter().enumerate() {
            let image = container.text("image");
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.invalid(&at.child(list).index(index).child("image"), image, why);
            }
        }
    }
}

fn annotations(annotations: Option<&Value>, at: &Path, errors: &mut Errors) {
    let cost = annotations.and_then(|all| all.get(DELETION_COST)).and_then(Value::as_str);
    if let Some(cost) = cost {
        let fits = cost.parse::<i32>().is_ok() && !cost.starts_with('+') && (cost == "0" || !cost.starts_with('0'));
        if !fits {
            errors.invalid(&at.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
}

/// A template of pods.
pub(in crate::kinds) fn template(template: &Value, at: &Path, errors: &mut Errors) {
    metadata::labels(template.at("metadata.labels"), &at.child("labels"), errors);
    metadata::annotations(template.at("metadata.annotations"), &at.child("annotations"), errors);
    annotations(template.at("metadata.annotations"), &at.child("annotations"), errors);
    let empty = Value::Null;
    check_spec(template.get("spec").unwrap_or(&empty), None, &at.child("spec"), errors);
    if !template.items("spec.ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.forbidden(&at.child("spec.ephemeralContainers"), why);
    }
}

pub(in crate::kinds) fn template_kind(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    template(object.get("template").unwrap_or(&empty), &Path::new("template"), errors);
}

pub(in crate::kinds) fn template_kind_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    template_kind(new, errors);
}

/// A spec of a pod with a name, or of a template.
fn check_spec(spec: &Value, pod_name: Option<&str>, at: &Path, errors: &mut Errors) {
    let volumes = volume::check_all(spec.items("volumes"), pod_name.unwrap_or(""), &at.child("volumes"), errors);
    container::check_all(spec, &volumes, at, errors);
    host_network(spec, pod_name.is_some(), at, errors);
    one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], at, errors);
    one_of(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], at, errors);
    metadata::labels(spec.at("nodeSelector"), &at.child("nodeSelector"), errors);
    security(spec, &at.child("securityContext"), errors);
    affinity::check(spec.at("affinity"), &at.child("affinity"), errors);
    dns_config(spec, &at.child("dnsConfig"), errors);
    gates(spec, at, errors);
    affinity::spread(spec.items("topologySpreadConstraints"), &at.child("topologySpreadConstraints"), errors);
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.all_invalid(&at.child(field), name, &dns_subdomain(name));
        }
    }
    if let Some(seconds) =
        spec.number("activeDeadlineSeconds").filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        errors.invalid(&at.child("activeDeadlineSeconds"), seconds, "must be between 1 and 2147483647, inclusive");
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.all_invalid(&at.child(field), name, &dns_label(name));
        }
    }
    affinity::tolerations(spec.items("tolerations"), &at.child("tolerations"), errors);
    host_aliases(spec, &at.child("hostAliases"), errors);
    for field in ["priorityClassName", "runtimeClassName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.all_invalid(&at.child(field), name, &dns_subdomain(name));
        }
    }
    if spec.has("preemptionPolicy") {
        one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], at, errors);
    }
    resources::overhead(spec.at("overhead"), &at.child("overhead"), errors);
}

/// A field that must be there, and be one of these.
pub(in crate::kinds) fn one_of(value: &Value, field: &str, known: &[&str], at: &Path, errors: &mut Errors) {
    match value.text(field) {
        "" => errors.required(&at.child(field), ""),
        given if known.contains(&given) => {}
        given => errors.unsupported(&at.child(field), given, known),
    }
}

fn host_network(spec: &Value, is_pod: bool, at: &Path, errors: &mut Errors) {
    if !spec.truth("hostNetwork") {
        return;
    }
    for (index, container) in spec.items("containers").iter().enumerate() {
        for (port_index, port) in container.items("ports").iter().enumerate() {
            let (host, own) = (port.number("hostPort").unwrap_or(0), port.number("containerPort").unwrap_or(0));
            if (is_pod || host != 0) && host != own {
                let at = at.child("containers").index(index).child("ports").index(port_index).child("hostPort");
                errors.invalid(&at, host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn security(spec: &Value, at: &Path, errors: &mut Errors) {
    let Some(context) = spec.at("securityContext") else { return };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = context.number(field).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            errors.invalid(&at.child(field), id, "must be between 0 and 2147483647, inclusive");
        }
    }
    if spec.truth("shareProcessNamespace") && spec.truth("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), true, why);
    }
}

fn dns_config(spec: &Value, at: &Path, errors: &mut Errors) {
    let config = spec.at("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        let Some(config) = config else {
            return errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        };
        if config.items("nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&at.child("nameservers"), why);
        }
    }
    let Some(config) = config else { return };
    let servers = config.items("nameservers");
    if servers.len() > 3 {
        errors.invalid(&at.child("nameservers"), servers.to_vec(), "must not have more than 3 nameservers");
    }
    for (index, server) in servers.iter().enumerate() {
        super::address::check(server.as_str().unwrap_or(""), &at.child("nameservers").index(index), errors);
    }
    let searches = config.items("searches");
    if searches.len() > 32 {
        errors.invalid(&at.child("searches"), searches.to_vec(), "must not have more than 32 search paths");
    }
    for (index, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&at.child("options").index(index), "must not be empty");
        }
    }
}

fn gates(spec: &Value, at: &Path, errors: &mut Errors) {
    for (index, gate) in spec.items("readinessGates").iter().enumerate() {
        let kind = gate.text("conditionType");
        errors.all_invalid(
            &at.child("readinessGates").index(index).child("conditionType"),
            kind,
            &qualified_name(kind),
        );
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, gate) in spec.items("schedulingGates").iter().enumerate() {
        let at = at.child("schedulingGates").index(index);
        let name = gate.text("name");
        errors.all_invalid(&at, name, &qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.push(name);
    }
}

fn host_aliases(spec: &Value, at: &Path, errors: &mut Errors) {
    for (index, alias) in spec.items("hostAliases").iter().enumerate() {
        let at = at.index(index);
        super::address::check(alias.text("ip"), &at.child("ip"), errors);
        for (index, name) in alias.items("hostnames").iter().filter_map(Value::as_str).enumerate() {
            errors.all_invalid(&at.child("hostnames").index(index), name, &dns_subdomain(name));
        }
    }
}
