//! Pods, services, volumes, and the rest of the core group.

use serde_json::{Map, Value, json};

use super::{Doc, fill, fill_empty, inner, items_mut};

pub(super) fn apply(name: &str, value: &mut Value) {
    match name {
        "Pod" => pod(value),
        "PodSpec" => pod_spec(value),
        "Container" | "EphemeralContainer" => container(value),
        "ContainerPort" | "EndpointPort" => fill_empty(value, "protocol", "TCP"),
        "Probe" => {
            fill_empty(value, "timeoutSeconds", 1);
            fill_empty(value, "periodSeconds", 10);
            fill_empty(value, "successThreshold", 1);
            fill_empty(value, "failureThreshold", 3);
        }
        "HTTPGetAction" => {
            fill_empty(value, "path", "/");
            fill_empty(value, "scheme", "HTTP");
        }
        "GRPCAction" => fill(value, "service", ""),
        "ObjectFieldSelector" => fill_empty(value, "apiVersion", "v1"),
        "FileKeySelector" => fill(value, "optional", false),
        "Service" => service(value),
        "Namespace" => {
            let name = value.text("metadata.name").to_owned();
            if !name.is_empty()
                && let Some(labels) = inner(value, "metadata").and_then(|metadata| inner(metadata, "labels"))
            {
                crate::kinds::put(labels, "kubernetes.io/metadata.name", Some(name.into()));
            }
            set_phase(value, "Active");
        }
        "NodeStatus" => {
            if let Some(capacity) = value.at("capacity").cloned() {
                fill_empty(value, "allocatable", capacity);
            }
        }
        "Secret" => fill_empty(value, "type", "Opaque"),
        "PersistentVolume" => {
            set_phase(value, "Pending");
            if let Some(spec) = inner(value, "spec") {
                fill_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
                fill(spec, "volumeMode", "Filesystem");
            }
        }
        "PersistentVolumeClaim" => set_phase(value, "Pending"),
        "PersistentVolumeClaimSpec" => fill(value, "volumeMode", "Filesystem"),
        "ReplicationController" => replication_controller(value),
        "LimitRangeItem" => limit_range(value),
        _ => volume(name, value),
    }
}

fn set_phase(value: &mut Value, phase: &str) {
    if let Some(status) = inner(value, "status") {
        fill_empty(status, "phase", phase);
    }
}

/// The sources of a volume.
const SOURCES: [&str; 31] = [
    "hostPath",
    "emptyDir",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "projected",
    "portworxVolume",
    "scaleIO",
    "storageos",
    "csi",
    "ephemeral",
    "image",
    "volumeDevices",
];

fn volume(name: &str, value: &mut Value) {
    match name {
        "Volume" => {
            if !SOURCES.iter().any(|source| value.has(source)) {
                fill(value, "emptyDir", json!({}));
            }
            if let Some(image) = value.get_mut("image").filter(|image| !image.is_null()) {
                let policy = pull_policy(image.text("reference"));
                fill_empty(image, "pullPolicy", policy);
            }
        }
        "SecretVolumeSource" | "ConfigMapVolumeSource" | "DownwardAPIVolumeSource" | "ProjectedVolumeSource" => {
            fill(value, "defaultMode", 0o644);
        }
        "ServiceAccountTokenProjection" => fill(value, "expirationSeconds", 3600),
        "HostPathVolumeSource" => fill(value, "type", ""),
        "ISCSIVolumeSource" | "ISCSIPersistentVolumeSource" => fill_empty(value, "iscsiInterface", "default"),
        "RBDVolumeSource" | "RBDPersistentVolumeSource" => {
            fill_empty(value, "pool", "rbd");
            fill_empty(value, "user", "admin");
            fill_empty(value, "keyring", "/etc/ceph/keyring");
        }
        "AzureDiskVolumeSource" => {
            fill(value, "cachingMode", "ReadWrite");
            fill(value, "fsType", "ext4");
            fill(value, "readOnly", false);
            fill(value, "kind", "Shared");
        }
        "ScaleIOVolumeSource" | "ScaleIOPersistentVolumeSource" => {
            fill_empty(value, "storageMode", "ThinProvisioned");
            fill_empty(value, "fsType", "xfs");
        }
        _ => {}
    }
}

fn container(value: &mut Value) {
    let policy = pull_policy(value.text("image"));
    fill_empty(value, "imagePullPolicy", policy);
    fill_empty(value, "terminationMessagePath", "/dev/termination-log");
    fill_empty(value, "terminationMessagePolicy", "File");
}

/// An image without tag and digest is the latest.
///
/// Source: kubernetes `pkg/util/parsers/parsers.go`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map(|(_, tag)| tag);
    // What does not parse has no tag.
    let parses = !name.is_empty() && !name.contains(char::is_whitespace) && last == last.to_lowercase().as_str();
    let parses =
        parses || tag.is_some_and(|tag| last.strip_suffix(tag).is_some_and(|name| name == name.to_lowercase()));
    match (tag, digest) {
        (Some("latest"), _) if parses => "Always",
        (None, None) if parses => "Always",
        _ => "IfNotPresent",
    }
}

fn pod_spec(value: &mut Value) {
    fill_empty(value, "dnsPolicy", "ClusterFirst");
    fill_empty(value, "restartPolicy", "Always");
    fill(value, "securityContext", json!({}));
    fill(value, "terminationGracePeriodSeconds", 30);
    fill_empty(value, "schedulerName", "default-scheduler");
}

/// What only a pod gets, not a template of pods.
fn pod(value: &mut Value) {
    let Some(spec) = value.get_mut("spec") else { return };
    let host_network = spec.truth("hostNetwork");
    fill(spec, "enableServiceLinks", true);
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            let limits = container.at("resources.limits").and_then(Value::as_object).cloned();
            if let (Some(limits), Some(resources)) = (limits, inner(container, "resources"))
                && let Some(requests) = inner(resources, "requests").and_then(Value::as_object_mut)
            {
                limits.into_iter().for_each(|(name, amount)| {
                    requests.entry(name).or_insert(amount);
                });
            }
            if host_network {
                for port in items_mut(container, "ports") {
                    if let Some(number) = port.get("containerPort").cloned() {
                        fill_empty(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

fn service(value: &mut Value) {
    let Some(spec) = inner(value, "spec") else { return };
    fill_empty(spec, "sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => crate::kinds::put(spec, "sessionAffinityConfig", None),
        "ClientIP" if !spec.has("sessionAffinityConfig.clientIP.timeoutSeconds") => {
            let config = json!({"clientIP": {"timeoutSeconds": 10800}});
            crate::kinds::put(spec, "sessionAffinityConfig", Some(config));
        }
        _ => {}
    }
    fill_empty(spec, "type", "ClusterIP");
    for port in items_mut(spec, "ports") {
        fill_empty(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            fill_empty(port, "targetPort", number);
        }
    }
    let kind = spec.text("type").to_owned();
    let exposed = matches!(&*kind, "NodePort" | "LoadBalancer");
    if exposed || (kind == "ClusterIP" && !spec.items("externalIPs").is_empty()) {
        fill_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if exposed || kind == "ClusterIP" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        let balancer = value.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
        if let Some(balancer) = balancer {
            let with_address = |ingress: &&mut Value| !ingress.text("ip").is_empty();
            items_mut(balancer, "ingress").filter(with_address).for_each(|ingress| fill(ingress, "ipMode", "VIP"));
        }
    }
}

fn replication_controller(value: &mut Value) {
    let labels = value.at("spec.template.metadata.labels").cloned();
    if let Some(spec) = inner(value, "spec") {
        fill(spec, "replicas", 1);
        if let Some(labels) = labels.clone() {
            fill_empty(spec, "selector", labels);
        }
    }
    if let (Some(labels), Some(metadata)) = (labels, inner(value, "metadata")) {
        fill_empty(metadata, "labels", labels);
    }
}

fn limit_range(value: &mut Value) {
    if value.text("type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let given: Map<String, Value> = value.at(from).and_then(Value::as_object).cloned().unwrap_or_default();
        let Some(target) = inner(value, to).and_then(Value::as_object_mut) else { continue };
        given.into_iter().for_each(|(name, amount)| {
            target.entry(name).or_insert(amount);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_an_image_is_pulled_always() {
        for image in ["nginx", "nginx:latest", "r.example:5000/nginx", "a/b"] {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
        for image in ["nginx:1", "nginx@sha256:0", "", "r.example:5000/nginx:1", "A B", "nginx:1@sha256:0", "Nginx"] {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
    }
}
