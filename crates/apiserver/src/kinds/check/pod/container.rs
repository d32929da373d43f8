//! Containers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{super::internal, super::words::PORT, Doc, Errors, Path, dns_label, one_of, probe, resources};
use kubefold_wire::names::{config_key, dns_subdomain, environment_name, masked, port_name};

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// All containers of a spec. `volumes` are those that they may mount.
pub(super) fn check_all(spec: &Value, volumes: &BTreeMap<String, Value>, at: &Path, errors: &mut Errors) {
    let containers = spec.items("containers");
    let there = at.child("containers");
    let mut names: Vec<&str> = Vec::new();
    if containers.is_empty() {
        errors.required(&there, "");
    }
    for (index, container) in containers.iter().enumerate() {
        let at = there.index(index);
        common(container, volumes, &at, errors);
        let name = container.text("name");
        if names.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        names.push(name);
        probe::all(container, spec.number("terminationGracePeriodSeconds"), &at, errors);
        restart_policy(container, &at, errors);
    }
    host_ports(containers, &there, errors);
    let there = at.child("initContainers");
    for (index, container) in spec.items("initContainers").iter().enumerate() {
        let at = there.index(index);
        common(container, volumes, &at, errors);
        restart_policy(container, &at, errors);
        let name = container.text("name");
        if names.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        } else if !name.is_empty() {
            names.push(name);
        }
        host_ports(std::slice::from_ref(container), &there, errors);
        if container.text("restartPolicy") == "Always" {
            probe::all(container, spec.number("terminationGracePeriodSeconds"), &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(field) {
                let why = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&at.child(field), why);
            }
        }
    }
}

fn restart_policy(container: &Value, at: &Path, errors: &mut Errors) {
    let rules = container.items("restartPolicyRules");
    match container.at("restartPolicy").and_then(Value::as_str) {
        None if !rules.is_empty() => {
            errors.required(&at.child("restartPolicy"), "must specify restartPolicy when restart rules are used");
        }
        None | Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => errors.unsupported(&at.child("restartPolicy"), other, &["Always", "Never", "OnFailure"]),
    }
}

fn common(container: &Value, volumes: &BTreeMap<String, Value>, at: &Path, errors: &mut Errors) {
    match container.text("name") {
        "" => errors.required(&at.child("name"), ""),
        name => errors.all_invalid(&at.child("name"), name, &dns_label(name)),
    }
    if container.text("image").is_empty() {
        errors.required(&at.child("image"), "");
    }
    one_of(container, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], at, errors);
    ports(container, &at.child("ports"), errors);
    environment(container, &at.child("env"), errors);
    environment_sources(container, &at.child("envFrom"), errors);
    mounts(container, volumes, &at.child("volumeMounts"), errors);
    devices(container, volumes, &at.child("volumeDevices"), errors);
    one_of(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], at, errors);
    resources::container(container.at("resources"), &at.child("resources"), errors);
    security(container, &at.child("securityContext"), errors);
}

fn ports(container: &Value, at: &Path, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in container.items("ports").iter().enumerate() {
        let at = at.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let wrong = port_name(name);
            if !wrong.is_empty() {
                errors.all_invalid(&at.child("name"), name, &wrong);
            } else if names.contains(&name) {
                errors.duplicate(&at.child("name"), name);
            } else {
                names.push(name);
            }
        }
        match port.number("containerPort").unwrap_or(0) {
            0 => errors.required(&at.child("containerPort"), ""),
            1..=65535 => {}
            number => errors.invalid(&at.child("containerPort"), number, PORT),
        }
        if let Some(number) = port.number("hostPort").filter(|number| !(0..=65535).contains(number)) {
            errors.invalid(&at.child("hostPort"), number, PORT);
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
    }
}

fn host_ports(containers: &[Value], at: &Path, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in container.items("ports").iter().enumerate() {
            let Some(number) = port.number("hostPort").filter(|number| *number != 0) else { continue };
            let shown = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if seen.contains(&shown) {
                let at = at.index(index).child("ports").index(port_index).child("hostPort");
                errors.duplicate(&at, shown);
            } else {
                seen.push(shown);
            }
        }
    }
}

fn environment(container: &Value, at: &Path, errors: &mut Errors) {
    for (index, variable) in container.items("env").iter().enumerate() {
        let at = at.index(index);
        match variable.text("name") {
            "" => errors.required(&at.child("name"), ""),
            name => errors.all_invalid(&at.child("name"), name, &environment_name(name)),
        }
        let Some(from) = variable.at("valueFrom") else { continue };
        let at = at.child("valueFrom");
        let mut sources = 0;
        if let Some(field) = from.at("fieldRef") {
            sources += 1;
            field_reference(field, &FIELDS, &at.child("fieldRef"), errors);
        }
        if let Some(resource) = from.at("resourceFieldRef") {
            sources += 1;
            resource_reference(resource, false, &at.child("resourceFieldRef"), errors);
        }
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(key) = from.at(source) {
                sources += 1;
                key_reference(key, &at.child(source), errors);
            }
        }
        sources += i32::from(from.has("fileKeyRef"));
        if sources == 0 {
            let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                       `fileKeyRef`";
            errors.invalid(&at, "", why);
        } else if !variable.text("value").is_empty() {
            errors.invalid(&at, "", "may not be specified when `value` is not empty");
        } else if sources > 1 {
            errors.invalid(&at, "", "may not have more than one field specified at a time");
        }
    }
}

/// A field of the pod itself.
pub(super) fn field_reference(field: &Value, known: &[&str], at: &Path, errors: &mut Errors) {
    let path = field.text("fieldPath");
    if path.is_empty() {
        return errors.required(&at.child("fieldPath"), "");
    }
    let path_at = at.child("fieldPath");
    if let Some((map, key)) = path.strip_suffix("']").and_then(|rest| rest.split_once("['")) {
        match map {
            "metadata.annotations" => {
                errors.all_invalid(at, key, &super::qualified_name(&key.to_lowercase()));
            }
            "metadata.labels" => errors.all_invalid(at, key, &super::qualified_name(key)),
            _ => {
                let why = format!("error converting fieldPath: field label does not support subscript: {path}");
                errors.invalid(&path_at, path, &why);
            }
        }
    } else {
        let labels = ["metadata.annotations", "metadata.labels", "status.phase", "spec.restartPolicy"];
        let convertible = FIELDS.contains(&path) || labels.contains(&path) || path == "spec.schedulerName";
        if !convertible {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            errors.invalid(&path_at, path, &why);
        } else if !known.contains(&path) {
            errors.unsupported(&path_at, path, known);
        }
    }
}

/// A resource of a container.
pub(super) fn resource_reference(resource: &Value, of_volume: bool, at: &Path, errors: &mut Errors) {
    let name = resource.text("resource");
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if of_volume && resource.text("containerName").is_empty() {
        errors.required(&at.child("containerName"), "");
    } else if name.is_empty() {
        errors.required(&at.child("resource"), "");
    } else if !RESOURCES.contains(&name) && !huge {
        errors.unsupported(&at.child("resource"), name, &RESOURCES);
    }
}

fn key_reference(reference: &Value, at: &Path, errors: &mut Errors) {
    let name = reference.text("name");
    errors.all_invalid(&at.child("name"), name, &dns_subdomain(name));
    match reference.text("key") {
        "" => errors.required(&at.child("key"), ""),
        key => errors.all_invalid(&at.child("key"), key, &config_key(key)),
    }
}

fn environment_sources(container: &Value, list: &Path, errors: &mut Errors) {
    for (index, from) in container.items("envFrom").iter().enumerate() {
        let at = list.index(index);
        let prefix = from.text("prefix");
        if !prefix.is_empty() {
            errors.all_invalid(&at.child("prefix"), prefix, &environment_name(prefix));
        }
        let mut sources = 0;
        for source in ["configMapRef", "secretRef"] {
            let Some(reference) = from.at(source) else { continue };
            sources += 1;
            let at = at.child(source).child("name");
            match reference.text("name") {
                "" => errors.required(&at, ""),
                name => errors.all_invalid(&at, name, &dns_subdomain(&masked(name))),
            }
        }
        match sources {
            0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
        }
    }
}

fn mounts(container: &Value, volumes: &BTreeMap<String, Value>, list: &Path, errors: &mut Errors) {
    let mut paths: Vec<&str> = Vec::new();
    for (index, mount) in container.items("volumeMounts").iter().enumerate() {
        let at = list.index(index);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(&at.child("name"), name);
        }
        if path.is_empty() {
            errors.required(&at.child("mountPath"), "");
        }
        if paths.contains(&path) {
            errors.invalid(&at.child("mountPath"), path, "must be unique");
        }
        paths.push(path);
        for device in container.items("volumeDevices") {
            if device.text("name") == name {
                errors.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
            }
            if device.text("devicePath") == path {
                errors.invalid(&at.child("mountPath"), path, "must not already exist as a path in volumeDevices");
            }
        }
        for field in ["subPath", "subPathExpr"] {
            let path = mount.text(field);
            if !path.is_empty() {
                if field == "subPathExpr" && !mount.text("subPath").is_empty() {
                    let why = "subPathExpr and subPath are mutually exclusive";
                    errors.invalid(&at.child(field), path, why);
                }
                descending(path, &list.child(field), errors);
            }
        }
    }
}

/// A path that stays below where it starts.
pub(super) fn descending(path: &str, at: &Path, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    no_backsteps(path, at, errors);
}

pub(super) fn no_backsteps(path: &str, at: &Path, errors: &mut Errors) {
    if path.split('/').any(|part| part == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

fn devices(container: &Value, volumes: &BTreeMap<String, Value>, list: &Path, errors: &mut Errors) {
    let (mut names, mut paths): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (index, device) in container.items("volumeDevices").iter().enumerate() {
        let at = list.index(index);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        if names.contains(&name) {
            errors.invalid(&at.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&at.child("name"), name, why);
            }
            Some(_) => {}
            None => errors.not_found(&at.child("name"), name),
        }
        if path.is_empty() {
            errors.required(&at.child("devicePath"), "");
        }
        if paths.contains(&path) {
            errors.invalid(&at.child("devicePath"), path, "must be unique");
        }
        paths.push(path);
        if !name.is_empty() {
            names.push(name);
        }
    }
}

fn security(container: &Value, at: &Path, errors: &mut Errors) {
    let Some(context) = container.at("securityContext") else { return };
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = context.number(field).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            errors.invalid(&at.child(field), id, "must be between 0 and 2147483647, inclusive");
        }
    }
    let escalates = context.at("allowPrivilegeEscalation").and_then(Value::as_bool);
    if escalates == Some(false) && context.truth("privileged") {
        let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(at, shown_context(context), why);
    }
}

fn shown_context(context: &Value) -> Value {
    let fields = [
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    internal(context, &fields.map(|(shown, name)| (shown, name, Value::Null)))
}
