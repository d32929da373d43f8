//! Nodes: what their kubelets would say of them, without any machine.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    action::Outcome,
    context::Context,
    fields::{condition, items, seconds_later, stamp_micro, text, time, time_text},
    resource::LEASES,
    world::Key,
};

/// The namespace of the nodes' leases.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Seconds between two renewals of a lease, at least; there are no more than ten a second.
const RENEWAL_SECONDS: i64 = 10;
const RENEWALS_PER_SECOND: i64 = 10;
/// Seconds between two reports of a node.
const REPORT_SECONDS: i64 = 300;
const CORDONED: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What a node says of its health.
pub(super) const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// Looks after a node.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let mut tree = context.world.tree(context.key)?;
    let mut outcome = Outcome::default();
    if entry.deleting {
        return None;
    }
    if taint(&mut tree) {
        outcome.update(context.key, tree);
        return Some(outcome);
    }
    let reported = items(&tree, "/status/conditions").iter().filter_map(|c| time(c, "/lastHeartbeatTime")).max();
    let next = reported.map_or(context.now, |reported| seconds_later(reported, REPORT_SECONDS));
    if next <= context.now {
        report(&mut tree, context.now, &address(context));
        outcome.update_status(context.key, tree);
        return Some(outcome);
    }
    outcome.again(next);
    renew(context, &tree, &mut outcome);
    Some(outcome)
}

/// A node that takes no more pods has a taint that says so; one that is ready has none that says that it is not.
fn taint(tree: &mut Value) -> bool {
    let cordoned = tree["spec"]["unschedulable"] == true;
    let ready = condition(items(tree, "/status/conditions"), "Ready").is_some_and(|ready| ready["status"] == "True");
    let before = items(tree, "/spec/taints");
    let stays = |taint: &&Value| !(taint["key"] == CORDONED && !cordoned || taint["key"] == NOT_READY && ready);
    let mut taints: Vec<Value> = before.iter().filter(stays).cloned().collect();
    if cordoned && !taints.iter().any(|taint| taint["key"] == CORDONED) {
        taints.push(json!({"key": CORDONED, "effect": "NoSchedule"}));
    }
    if taints == before {
        return false;
    }
    let taints = Some(Value::from(taints)).filter(|taints| *taints != json!([]));
    crate::kinds::put(&mut tree["spec"], "taints", taints);
    true
}

fn address(context: &Context<'_>) -> String {
    let place = context.world.nodes().position(|(key, ..)| key == context.key).unwrap_or(0);
    super::fields::address([172, 18, 0, 2], u32::try_from(place).unwrap_or(0)).to_string()
}

/// Fills in what a kubelet reports.
fn report(tree: &mut Value, now: Timestamp, address: &str) {
    let name = text(tree, "/metadata/name").to_owned();
    if !tree["status"].is_object() {
        tree["status"] = json!({});
    }
    let status = &mut tree["status"];
    if !status["capacity"].is_object() {
        status["capacity"] =
            json!({"cpu": "16", "ephemeral-storage": "203056560Ki", "memory": "65536Mi", "pods": "110"});
    }
    if !status["allocatable"].is_object() {
        status["allocatable"] = status["capacity"].clone();
    }
    if !status["addresses"].is_array() {
        status["addresses"] =
            json!([{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]);
    }
    if !status["nodeInfo"].is_object() {
        status["nodeInfo"] = node_info(&name, "v1.36.3");
    }
    let before = items(status, "/conditions").to_vec();
    let now = time_text(now);
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        .map(|(kind, answer, reason, message)| {
            let old = condition(&before, kind).filter(|old| old["status"] == *answer);
            let since = old.map_or_else(|| now.clone().into(), |old| old["lastTransitionTime"].clone());
            json!({
                "type": kind, "status": answer, "lastHeartbeatTime": now, "lastTransitionTime": since,
                "reason": reason, "message": message,
            })
        })
        .collect();
    status["conditions"] = conditions.into();
}

/// What a node says of its software.
pub(super) fn node_info(name: &str, version: &str) -> Value {
    let id = super::names::hash(name.as_bytes());
    json!({
        "machineID": format!("{id:016x}{id:016x}"),
        "systemUUID": super::names::Dice::new(id, "system").uid(),
        "bootID": super::names::Dice::new(id, "boot").uid(),
        "kernelVersion": "6.12.48",
        "osImage": "Debian GNU/Linux 13 (trixie)",
        "containerRuntimeVersion": "containerd://2.2.1",
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    })
}

/// The lease by which a node says that it lives.
pub(super) fn lease(node: &Value, now: Timestamp) -> Value {
    let name = &node["metadata"]["name"];
    json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": name, "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"],
            }],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": stamp_micro(now)},
    })
}

fn renew(context: &Context<'_>, node: &Value, outcome: &mut Outcome) {
    let namespace: Arc<str> = LEASE_NAMESPACE.into();
    let key = Key { resource: LEASES, namespace: Arc::clone(&namespace), name: Arc::clone(&context.key.name) };
    let nodes = i64::try_from(context.world.nodes().count()).unwrap_or(0);
    let every = RENEWAL_SECONDS.max(nodes / RENEWALS_PER_SECOND);
    let Some(mut present) = context.world.tree(&key) else {
        let namespaces = Key { resource: super::resource::NAMESPACES, namespace: "".into(), name: namespace.clone() };
        if context.world.get(&namespaces).is_some() {
            outcome.create(LEASES, &namespace, lease(node, context.now));
        }
        outcome.again(seconds_later(context.now, every));
        return;
    };
    let renewed = time(&present, "/spec/renewTime").unwrap_or_default();
    let next = seconds_later(renewed, every);
    if next > context.now {
        outcome.again(next);
        return;
    }
    outcome.again(seconds_later(context.now, every));
    present["spec"]["renewTime"] = stamp_micro(context.now).into();
    outcome.update(&key, present);
}
