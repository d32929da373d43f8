//! Where the pods of a service are: its `Endpoints` and its slices.
//!
//! Source: kubernetes `pkg/controller/endpoint/`, kubernetes/endpointslice `reconciler.go`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    action::Outcome,
    context::Context,
    fields::{controller_reference, items, text, time_text},
    names::{Dice, hash},
    resource::{ENDPOINT_SLICES, ENDPOINTS, NODES},
    view::{Entry, PodPart, selects_equal},
    world::Key,
};

/// Endpoints in one slice.
const PER_SLICE: usize = 100;
/// Addresses in one `Endpoints`.
const PER_ENDPOINTS: usize = 1000;
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

type Found<'a> = (&'a Key, &'a Entry, &'a PodPart);

/// Looks after a service.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    context.world.get(context.key).filter(|entry| !entry.deleting)?;
    let service = context.world.tree(context.key)?;
    let selector = &service["spec"]["selector"];
    if text(&service, "/spec/type") == "ExternalName" || selector.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let mut outcome = Outcome::default();
    let pods: Vec<Found<'_>> = context
        .world
        .pods_in(&context.key.namespace)
        .filter(|(_, entry, pod)| pod.address.is_some() && !pod.finished() && selects_equal(selector, &entry.labels))
        .collect();
    let first = pods.first().and_then(|(key, ..)| context.world.tree(key));
    let ports = ports(&service, first.as_ref());
    put_endpoints(context, &service, &pods, &ports, &mut outcome);
    put_slices(context, &service, &pods, &ports, &mut outcome);
    Some(outcome)
}

/// The ports of the pods behind a service.
fn ports(service: &Value, pod: Option<&Value>) -> Vec<Value> {
    let of = |port: &Value| {
        let target = &port["targetPort"];
        let number = target.as_i64().or_else(|| match target.as_str() {
            Some(name) => {
                let containers = pod.map_or(&[][..], |pod| items(pod, "/spec/containers"));
                let mut ports = containers.iter().flat_map(|container| items(container, "/ports"));
                ports.find(|port| port["name"] == name).and_then(|port| port["containerPort"].as_i64())
            }
            None => port["port"].as_i64(),
        })?;
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        Some(json!({"name": text(port, "/name"), "port": number, "protocol": protocol}))
    };
    items(service, "/spec/ports").iter().filter_map(of).collect()
}

fn target(key: &Key, tree_uid: &str) -> Value {
    json!({"kind": "Pod", "namespace": *key.namespace, "name": *key.name, "uid": tree_uid})
}

fn uid_text(entry: &Entry) -> String {
    entry.uid.text()
}

fn put_endpoints(context: &Context<'_>, service: &Value, pods: &[Found<'_>], ports: &[Value], outcome: &mut Outcome) {
    let shown = pods.iter().filter(|(_, entry, _)| !entry.deleting).take(PER_ENDPOINTS);
    let (mut ready, mut unready) = (Vec::new(), Vec::new());
    for (key, entry, pod) in shown {
        let address = json!({
            "ip": pod.address, "nodeName": pod.node.as_deref(), "targetRef": target(key, &uid_text(entry)),
        });
        if pod.ready { ready.push(address) } else { unready.push(address) }
    }
    let mut subset = json!({});
    for (name, addresses) in [("addresses", ready), ("notReadyAddresses", unready)] {
        if !addresses.is_empty() {
            subset[name] = addresses.into();
        }
    }
    let subsets = if subset.as_object().is_some_and(serde_json::Map::is_empty) {
        json!([])
    } else {
        let ports: Vec<Value> = ports.iter().cloned().map(without_empty_name).collect();
        subset["ports"] = ports.into();
        json!([subset])
    };
    let key =
        Key { resource: ENDPOINTS, namespace: Arc::clone(&context.key.namespace), name: Arc::clone(&context.key.name) };
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("endpoints.kubernetes.io/managed-by".to_owned(), "endpoint-controller".into());
    if text(service, "/spec/clusterIP") == "None" {
        labels.insert("service.kubernetes.io/headless".to_owned(), "".into());
    }
    let changed = json!({"endpoints.kubernetes.io/last-change-trigger-time": time_text(context.now)});
    match context.world.tree(&key) {
        Some(mut present) => {
            if items(&present, "/subsets") != items(&subsets, "")
                || present["metadata"]["labels"] != Value::Object(labels.clone())
            {
                present["subsets"] = subsets;
                present["metadata"]["labels"] = labels.into();
                present["metadata"]["annotations"] = changed;
                outcome.update(&key, present);
            }
        }
        None => {
            let mut object = json!({
                "kind": "Endpoints", "apiVersion": "v1",
                "metadata": {
                    "name": *key.name, "namespace": *key.namespace, "labels": labels, "annotations": changed,
                },
            });
            if items(&subsets, "").is_empty() {
                object["metadata"]["annotations"] = json!({});
            } else {
                object["subsets"] = subsets;
            }
            outcome.create(ENDPOINTS, &key.namespace, object);
        }
    }
}

fn without_empty_name(mut port: Value) -> Value {
    if port["name"] == ""
        && let Some(port) = port.as_object_mut()
    {
        port.shift_remove("name");
    }
    port
}

/// What a slice says of a pod.
fn endpoint(context: &Context<'_>, (key, entry, pod): &Found<'_>) -> Value {
    let ready = pod.ready && !entry.deleting;
    let mut endpoint = json!({
        "addresses": [pod.address],
        "conditions": {"ready": ready, "serving": pod.ready, "terminating": entry.deleting},
        "targetRef": target(key, &uid_text(entry)),
        "nodeName": pod.node.as_deref(),
    });
    let node = pod.node.as_ref().map(|node| Key { resource: NODES, namespace: "".into(), name: Arc::clone(node) });
    let node = node.and_then(|node| context.world.get(&node));
    if let Some(zone) = node.and_then(|node| node.label("topology.kubernetes.io/zone")) {
        endpoint["zone"] = zone.into();
    }
    endpoint
}

fn put_slices(context: &Context<'_>, service: &Value, pods: &[Found<'_>], ports: &[Value], outcome: &mut Outcome) {
    let mut present: Vec<Key> = context
        .world
        .within(ENDPOINT_SLICES, &context.key.namespace)
        .filter(|(_, entry)| entry.label(SERVICE_NAME) == Some(&*context.key.name) && !entry.deleting)
        .filter(|(_, entry)| entry.label(MANAGED_BY) == Some("endpointslice-controller.k8s.io"))
        .map(|(key, _)| key.clone())
        .collect();
    let ports: Vec<Value> = if pods.is_empty() { Vec::new() } else { ports.to_vec() };
    let mut chunks: Vec<Vec<Value>> =
        pods.chunks(PER_SLICE).map(|chunk| chunk.iter().map(|found| endpoint(context, found)).collect()).collect();
    if chunks.is_empty() {
        chunks.push(Vec::new());
    }
    let mut labels = service["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), "endpointslice-controller.k8s.io".into());
    labels.insert(SERVICE_NAME.to_owned(), (&*context.key.name).into());
    if text(service, "/spec/clusterIP") == "None" {
        labels.insert("service.kubernetes.io/headless".to_owned(), "".into());
    }
    let surplus = present.split_off(chunks.len().min(present.len()));
    let slots = present.into_iter().map(Some).chain(std::iter::repeat(None));
    for (place, (endpoints, slot)) in chunks.into_iter().zip(slots).enumerate() {
        if let Some(mut slice) = slot.as_ref().and_then(|key| context.world.tree(key)) {
            if slice["endpoints"] != json!(endpoints)
                || items(&slice, "/ports") != ports
                || slice["metadata"]["labels"] != Value::Object(labels.clone())
            {
                slice["endpoints"] = endpoints.into();
                slice["ports"] = ports.clone().into();
                slice["metadata"]["labels"] = labels.clone().into();
                if let Some(key) = &slot {
                    outcome.update(key, slice);
                }
            }
            continue;
        }
        let uid = text(service, "/metadata/uid");
        let letters = Dice::new(hash(uid.as_bytes()), &format!("slice {place}")).letters(5);
        let object = json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": format!("{}-{letters}", context.key.name),
                "generateName": format!("{}-", context.key.name),
                "namespace": *context.key.namespace,
                "labels": labels,
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": time_text(context.now)},
                "ownerReferences": [controller_reference(service)],
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        });
        outcome.create(ENDPOINT_SLICES, &context.key.namespace, object);
    }
    for key in surplus {
        if let Some(entry) = context.world.get(&key) {
            outcome.delete(&key, entry.uid, None);
        }
    }
}
