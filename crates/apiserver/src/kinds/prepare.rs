//! What a server decides of an object itself, by kind.
//!
//! Source: kubernetes `pkg/registry/*/*/strategy.go`, and the conversions `pkg/apis/*/v1/conversion.go`.

use serde_json::{Value, json};

use super::{
    doc::{Doc, fill, inner, items_mut},
    put,
};
use crate::schema::builtin;
use kubefold_wire::quantity::Quantity;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A new pod waits.
pub(super) fn pod(object: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(object)});
    if !object.items("spec.schedulingGates").is_empty() {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "lastTransitionTime": object.at("metadata.creationTimestamp"),
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        put(&mut status, "conditions", Some(json!([condition])));
    }
    put(object, "status", Some(status));
}

/// A pod stays five minutes on a node that is not ready.
pub(super) fn add_tolerations(spec: &mut Value) {
    let mut tolerations = spec.items("tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let known = toleration.text("key");
            (known == key || known.is_empty()) && matches!(toleration.text("effect"), "NoExecute" | "")
        };
        let there = spec.items("tolerations").iter().any(covers);
        if !there {
            let seconds = 300;
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
            }));
        }
    }
    put(spec, "tolerations", Some(tolerations.into()));
}

/// An update keeps what the admission of the create said of priority and tolerations.
pub(super) fn pod_update(new: &mut Value, old: &Value) {
    let Some(spec) = inner(new, "spec") else { return };
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old.at("spec").and_then(|spec| spec.at(field)) {
            fill(spec, field, value.clone());
        }
    }
    add_tolerations(spec);
}

/// The owners, and the class that follows from the spec.
pub(super) fn pod_status(new: &mut Value, old: &Value) {
    let class = old.at("status.qosClass").cloned();
    if let Some(status) = inner(new, "status") {
        if let Some(class) = class {
            fill(status, "qosClass", class);
        }
        // Of the two fields for addresses the older one is what a kubelet means.
        for (one, many) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
            let address = status.text(one).to_owned();
            let first = status.items(many).first().map_or("", |first| first.text("ip"));
            if !address.is_empty() && address != first && (many == "podIPs") {
                put(status, many, Some(json!([{"ip": address}])));
            }
        }
    }
}

/// Source: kubernetes `pkg/apis/core/helper/qos/qos.go`.
fn qos_class(pod: &Value) -> &'static str {
    let mut guaranteed = true;
    let (mut requests, mut limits) = (<[Quantity; 2]>::default(), <[Quantity; 2]>::default());
    let names = ["cpu", "memory"];
    let whole = pod.at("spec.resources");
    let of_containers = || pod.items("spec.containers").iter().chain(pod.items("spec.initContainers"));
    let resources: Vec<&Value> = match whole {
        Some(whole) => vec![whole],
        None => of_containers().map(|container| container.get("resources").unwrap_or(&Value::Null)).collect(),
    };
    for resources in resources {
        let amount = |list: &str, name: &str| {
            let text = resources.at(list)?.get(name)?.as_str()?;
            Quantity::parse(text).ok().filter(Quantity::is_positive)
        };
        for (index, name) in names.iter().enumerate() {
            let (request, limit) = (amount("requests", name), amount("limits", name));
            guaranteed &= limit.is_some();
            if let (Some(sum), Some(request)) = (requests.get_mut(index), request) {
                *sum = sum.plus(&request);
            }
            if let (Some(sum), Some(limit)) = (limits.get_mut(index), limit) {
                *sum = sum.plus(&limit);
            }
        }
    }
    if requests.iter().chain(&limits).all(Quantity::is_zero) {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// What the names `serviceAccount` and `serviceAccountName` say is one.
pub(super) fn pod_spec_aliases(spec: &mut Value) {
    let name = match spec.text("serviceAccountName") {
        "" => spec.text("serviceAccount"),
        name => name,
    };
    let name = (!name.is_empty()).then(|| Value::from(name));
    put(spec, "serviceAccountName", name.clone());
    put(spec, "serviceAccount", name);
}

pub(super) fn namespace(object: &mut Value) {
    put(object, "status", Some(json!({"phase": "Active"})));
    let Some(spec) = inner(object, "spec") else { return };
    let mut finalizers = spec.items("finalizers").to_vec();
    if !finalizers.iter().any(|known| known == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    put(spec, "finalizers", Some(finalizers.into()));
}

/// Its finalizers change by `/finalize` alone.
pub(super) fn namespace_update(new: &mut Value, old: &Value) {
    let finalizers = old.at("spec.finalizers").cloned();
    if let Some(spec) = inner(new, "spec") {
        put(spec, "finalizers", finalizers);
    }
}

/// The label that says its name, also where the name was made up.
pub(super) fn namespace_label(object: &mut Value) {
    let name = object.text("metadata.name").to_owned();
    if let Some(labels) = inner(object, "metadata").and_then(|metadata| inner(metadata, "labels")) {
        put(labels, "kubernetes.io/metadata.name", Some(name.into()));
    }
}

/// `stringData` is written, never read.
pub(super) fn secret(object: &mut Value) {
    let given = object.get("stringData").and_then(Value::as_object).cloned();
    put(object, "stringData", None);
    let Some(given) = given.filter(|given| !given.is_empty()) else { return };
    let Some(data) = inner(object, "data") else { return };
    for (key, value) in given {
        let text = value.as_str().unwrap_or("");
        put(data, &key, Some(base64(text.as_bytes()).into()));
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(super) fn secret_update(new: &mut Value, old: &Value) {
    secret(new);
    if new.text("type").is_empty() {
        put(new, "type", old.get("type").cloned());
    }
}

/// A volume begins to wait at its creation.
pub(super) fn volume(object: &mut Value) {
    let now = object.at("metadata.creationTimestamp").cloned().unwrap_or(Value::Null);
    put(object, "status", Some(json!({"phase": "Pending", "lastPhaseTransitionTime": now})));
    add_finalizer(object, "kubernetes.io/pv-protection");
}

pub(super) fn claim(object: &mut Value) {
    claim_sources(object);
    add_finalizer(object, "kubernetes.io/pvc-protection");
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let Some(metadata) = inner(object, "metadata") else { return };
    let mut finalizers = metadata.items("finalizers").to_vec();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
        put(metadata, "finalizers", Some(finalizers.into()));
    }
}

/// `dataSource` and `dataSourceRef` say the same.
fn claim_sources(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else { return };
    match (spec.at("dataSource").cloned(), spec.at("dataSourceRef").cloned()) {
        (Some(source), None) => put(spec, "dataSourceRef", Some(source)),
        (None, Some(reference)) if !reference.has("namespace") => put(spec, "dataSource", Some(reference)),
        _ => {}
    }
}

pub(super) fn claim_update(new: &mut Value, _old: &Value) {
    claim_sources(new);
}

/// Claims in a set say their kind.
pub(super) fn stateful_set(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else { return };
    for claim in items_mut(spec, "volumeClaimTemplates") {
        put(claim, "kind", Some("PersistentVolumeClaim".into()));
        put(claim, "apiVersion", Some("v1".into()));
        put(claim, "status", None);
    }
}

pub(super) fn stateful_set_update(new: &mut Value, _old: &Value) {
    stateful_set(new);
}

pub(super) fn daemon_set(object: &mut Value) {
    set_template_generation(object, 1);
}

pub(super) fn daemon_set_update(new: &mut Value, old: &Value) {
    let annotations = old.at("metadata.annotations");
    let before = annotations.and_then(|annotations| annotations.get(TEMPLATE_GENERATION)).and_then(Value::as_str);
    let before = before.and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
    // Compared in the form in which the old one is.
    if let Some(typed) = builtin().named("io.k8s.api.apps.v1.DaemonSet") {
        super::defaults::apply(typed, new);
    }
    let differs = new.at("spec.template") != old.at("spec.template");
    set_template_generation(new, before + i64::from(differs));
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = inner(object, "metadata").and_then(|metadata| inner(metadata, "annotations")) {
        put(annotations, TEMPLATE_GENERATION, Some(generation.to_string().into()));
    }
}

/// A job whose selector nobody gave selects by its own UID.
pub(super) fn job(object: &mut Value) {
    let (name, uid) = (object.text("metadata.name").to_owned(), object.text("metadata.uid").to_owned());
    // Labels that a job took over from its template are the very same map in a kube-apiserver: they grow as one.
    let template = object.at("spec.template.metadata.labels");
    let shared = template.is_some() && template == object.at("metadata.labels");
    let Some(spec) = inner(object, "spec").filter(|spec| !spec.truth("manualSelector")) else { return };
    let labels = inner(spec, "template").and_then(|template| inner(template, "metadata"));
    if let Some(labels) = labels.and_then(|metadata| inner(metadata, "labels")) {
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            fill(labels, key, name.clone());
        }
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            fill(labels, key, uid.clone());
        }
    }
    if let Some(labels) = inner(spec, "selector").and_then(|selector| inner(selector, "matchLabels")) {
        fill(labels, "batch.kubernetes.io/controller-uid", uid);
    }
    if shared
        && let Some(labels) = object.at("spec.template.metadata.labels").cloned()
        && let Some(metadata) = inner(object, "metadata")
    {
        put(metadata, "labels", Some(labels));
    }
}

/// Who made the object is the server's word; it is not known here.
pub(super) fn signing_request(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else { return };
    ["username", "uid", "groups", "extra"].iter().for_each(|field| put(spec, field, None));
}

pub(super) fn signing_request_update(new: &mut Value, old: &Value) {
    super::keep(new, old, "spec");
}

/// A service that is served by the server itself is there at once.
pub(super) fn api_service(object: &mut Value) {
    if object.has("spec.service") {
        return;
    }
    let now = object.at("metadata.creationTimestamp").cloned().unwrap_or(Value::Null);
    let condition = json!({
        "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available",
    });
    put(object, "status", Some(json!({"conditions": [condition]})));
}

/// The stored version of a definition is among its stored versions.
pub(super) fn definition_update(new: &mut Value, _old: &Value) {
    let stored = new.items("spec.versions").iter().find(|version| version.truth("storage"));
    let Some(stored) = stored.map(|version| version.text("name").to_owned()) else { return };
    let mut versions = new.items("status.storedVersions").to_vec();
    if !versions.iter().any(|version| *version == *stored) {
        versions.push(stored.into());
        if let Some(status) = inner(new, "status") {
            put(status, "storedVersions", Some(versions.into()));
        }
    }
}

/// A node keeps the status that it was made with, and is tainted until it is ready.
pub(super) fn node(object: &mut Value) {
    node_ranges(object);
    let Some(spec) = inner(object, "spec") else { return };
    let taint = "node.kubernetes.io/not-ready";
    let mut taints = spec.items("taints").to_vec();
    let known = |known: &Value| known.text("key") == taint && known.text("effect") == "NoSchedule";
    if !taints.iter().any(known) {
        taints.push(json!({"key": taint, "effect": "NoSchedule"}));
        put(spec, "taints", Some(taints.into()));
    }
}

pub(super) fn node_update(new: &mut Value, _old: &Value) {
    node_ranges(new);
}

fn node_ranges(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else { return };
    let range = spec.text("podCIDR").to_owned();
    let first = spec.items("podCIDRs").first().and_then(Value::as_str).unwrap_or("").to_owned();
    if !range.is_empty() && range != first {
        put(spec, "podCIDRs", Some(json!([range])));
    } else if !first.is_empty() {
        put(spec, "podCIDR", Some(first.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_pod_follows_from_its_requests() {
        let class = |resources: Value| qos_class(&json!({"spec": {"containers": [{"resources": resources}]}}));
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(json!({"requests": all, "limits": {"cpu": "1000m", "memory": "1024Mi"}})), "Guaranteed");
        assert_eq!(class(json!({"limits": {"nvidia.com/gpu": "1"}})), "BestEffort");
    }
}
