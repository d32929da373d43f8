//! Daemon sets: a pod on each node that fits.
//!
//! Source: kubernetes `pkg/controller/daemon/`.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    action::Outcome,
    context::Context,
    fields::{count, items, share, text},
    names::template_hash,
    replicaset::{Member, delete_pod, made, members, pod_of},
    resource::PODS,
    statefulset::{HASH, revise},
    view::Entry,
    world::Key,
};
use kubefold_wire::matching::NodeRequirements;

const BY: &str = "daemonset-controller";
/// What every pod of a daemon set tolerates: keys and effects.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Looks after a daemon set.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    let mut outcome = Outcome::default();
    if entry.deleting {
        return None;
    }
    let hash = template_hash(&tree["spec"]["template"], None);
    if revise(context, entry, &tree, &hash, &mut outcome) {
        return Some(outcome);
    }
    let (mut by_node, mut loose) = (BTreeMap::<Arc<str>, Vec<Member<'_>>>::new(), Vec::new());
    for member in members(context, entry) {
        match node_of(context, &member) {
            Some(node) => by_node.entry(node).or_default().push(member),
            None => loose.push(member),
        }
    }
    let template = dressed(&tree["spec"]["template"], &hash);
    let asked = NodeRequirements::of(&template["spec"]);
    let mut tally = Tally::default();
    for (key, node, part) in context.world.nodes() {
        let fits = asked.select(&key.name, |name| node.label(name))
            && part.taints.iter().all(|taint| !taint.is_hard() || asked.tolerate(taint));
        let pods = by_node.remove(&key.name).unwrap_or_default();
        tally.node(context, fits, &pods, &hash, count(&tree, "/spec/minReadySeconds"));
        place(context, &tree, &template, key, fits, &pods, &mut outcome);
    }
    for (key, pod, _) in by_node.into_values().flatten().chain(loose).filter(|(_, pod, _)| !pod.deleting) {
        outcome.actions.push(delete_pod(context, key, pod, BY));
    }
    if outcome.is_idle() && text(&tree, "/spec/updateStrategy/type") != "OnDelete" {
        roll(context, entry, &tree, &hash, &tally, &mut outcome);
    }
    tally.status(context, tree, &mut outcome);
    Some(outcome)
}

/// The node that a pod is on, or made for.
fn node_of(context: &Context<'_>, (key, _, pod): &Member<'_>) -> Option<Arc<str>> {
    pod.node.clone().or_else(|| {
        let tree = context.world.tree(key)?;
        let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
        let fields = items(tree.pointer(terms)?, "/matchFields");
        fields.first()?["values"][0].as_str().map(Into::into)
    })
}

/// The template with what all pods of daemon sets have.
pub(super) fn dressed(template: &Value, hash: &str) -> Value {
    let mut template = template.clone();
    template["metadata"]["labels"][HASH] = hash.into();
    let mut tolerations = items(&template, "/spec/tolerations").to_vec();
    tolerations.extend(TOLERATED.map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})));
    if template["spec"]["hostNetwork"] == true {
        let key = "node.kubernetes.io/network-unavailable";
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
    }
    template["spec"]["tolerations"] = tolerations.into();
    template
}

fn place(
    context: &Context<'_>,
    tree: &Value,
    template: &Value,
    node: &Key,
    fits: bool,
    pods: &[Member<'_>],
    outcome: &mut Outcome,
) {
    let alive = pods.iter().filter(|(_, pod, _)| !pod.deleting);
    if !fits {
        outcome.actions.extend(alive.map(|(key, pod, _)| delete_pod(context, key, pod, BY)));
        return;
    }
    for (key, pod, _) in alive.clone().filter(|(_, _, part)| part.finished()) {
        outcome.actions.push(delete_pod(context, key, pod, BY));
    }
    for (key, pod, _) in alive.filter(|(_, _, part)| !part.finished()).skip(1) {
        outcome.actions.push(delete_pod(context, key, pod, BY));
    }
    if !pods.is_empty() {
        return;
    }
    let mut pod = pod_of(tree, template, json!({"generateName": format!("{}-", context.key.name)}));
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [*node.name]}]}]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
        terms;
    let report = made(context.key, BY, "SuccessfulCreate", "FailedCreate", "pod: ");
    outcome.create_telling(PODS, &context.key.namespace, pod, Some(report));
}

/// Old pods go, a few at a time.
fn roll(context: &Context<'_>, entry: &Entry, tree: &Value, hash: &str, tally: &Tally, outcome: &mut Outcome) {
    let most = &tree["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
    let most = if most.is_null() { 1 } else { share(most, tally.desired, true).max(1) };
    let mut room = most - (tally.desired - tally.available);
    let old = members(context, entry).filter(|(_, pod, _)| !pod.deleting && pod.label(HASH) != Some(hash));
    let mut old: Vec<Member<'_>> = old.collect();
    old.sort_by_key(|(key, _, pod)| (pod.ready, (*key).clone()));
    for (key, pod, part) in old {
        // What is not available is in nobody's way.
        if part.ready && room <= 0 {
            break;
        }
        room -= i64::from(part.ready);
        outcome.actions.push(delete_pod(context, key, pod, BY));
    }
}

#[derive(Debug, Default)]
struct Tally {
    desired: i64,
    current: i64,
    ready: i64,
    available: i64,
    updated: i64,
    misplaced: i64,
}

impl Tally {
    fn node(&mut self, context: &Context<'_>, fits: bool, pods: &[Member<'_>], hash: &str, delay: i64) {
        let alive = pods.iter().find(|(_, pod, part)| !pod.deleting && !part.finished());
        self.misplaced += i64::from(!fits && !pods.is_empty());
        if !fits {
            return;
        }
        self.desired += 1;
        let Some((_, entry, pod)) = alive else { return };
        self.current += 1;
        self.ready += i64::from(pod.ready);
        self.available += i64::from(pod.ready && pod.ready_since + delay <= context.now.as_second());
        self.updated += i64::from(entry.label(HASH) == Some(hash));
    }

    fn status(&self, context: &Context<'_>, mut tree: Value, outcome: &mut Outcome) {
        let mut status = json!({
            "currentNumberScheduled": self.current, "numberMisscheduled": self.misplaced,
            "desiredNumberScheduled": self.desired, "numberReady": self.ready,
            "observedGeneration": tree["metadata"]["generation"],
        });
        let counts = [
            ("updatedNumberScheduled", self.updated),
            ("numberAvailable", self.available),
            ("numberUnavailable", self.desired - self.available),
        ];
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            status[name] = count.into();
        }
        if status != tree["status"] {
            tree["status"] = status;
            outcome.update_status(context.key, tree);
        }
    }
}
