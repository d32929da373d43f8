//! The scheduler: pods onto nodes.
//!
//! Source: kubernetes `pkg/scheduler/framework/types.go` (words of failures) and the plugins beside it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome},
    context::Context,
    fields::{condition, items, remove_condition, seconds_later, text, time_text},
    names::{hash, mixed},
    resource::CLAIMS,
    view::{Entry, NodePart, PodPart},
    world::Key,
};
use kubefold_wire::matching::{NodeRequirements, ObjectSelector, Taint};

const BY: &str = "default-scheduler";
/// Seconds after which a pod that found no node is tried again in any case.
const RETRY_SECONDS: i64 = 300;

/// Why a node does not fit.
struct Misfit {
    reasons: Vec<&'static str>,
    /// No pod less on it would help.
    lasting: bool,
}

impl Misfit {
    fn lasting(reason: &'static str) -> Self {
        Self { reasons: vec![reason], lasting: true }
    }
}

/// Looks for a node for a pod.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let pod = entry.pod()?;
    if pod.node.is_some() || entry.deleting || pod.finished() {
        return None;
    }
    let tree = context.world.tree(context.key)?;
    let scheduler = text(&tree, "/spec/schedulerName");
    if !matches!(scheduler, "" | BY) || !items(&tree, "/spec/schedulingGates").is_empty() {
        return None;
    }
    let mut outcome = Outcome::default();
    match place(context, &tree, entry, pod) {
        Ok(node) => {
            outcome.actions.push(Action::Bind { key: context.key.clone(), node: Arc::clone(&node), uid: entry.uid });
            let Key { namespace, name, .. } = context.key;
            let message = format!("Successfully assigned {namespace}/{name} to {node}");
            outcome.tell(Event::normal(context.key, BY, "Scheduled", message));
        }
        Err(why) => unschedulable(context, tree, &why.to_string(), &mut outcome),
    }
    Some(outcome)
}

fn unschedulable(context: &Context<'_>, mut tree: Value, why: &str, outcome: &mut Outcome) {
    outcome.again(seconds_later(context.now, RETRY_SECONDS));
    let mut conditions = items(&tree, "/status/conditions").to_vec();
    let before = condition(&conditions, "PodScheduled").cloned().unwrap_or_default();
    if before["message"] == why {
        return;
    }
    let since =
        if before["status"] == "False" { before["lastTransitionTime"].clone() } else { time_text(context.now).into() };
    remove_condition(&mut conditions, "PodScheduled");
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": since,
        "reason": "Unschedulable", "message": why,
    });
    if let Some(generation) = tree["metadata"].get("generation") {
        condition["observedGeneration"] = generation.clone();
    }
    conditions.push(condition);
    tree["status"]["conditions"] = conditions.into();
    outcome.update_status(context.key, tree);
    outcome.tell(Event::warning(context.key, BY, "FailedScheduling", why.to_owned()));
}

/// Why no node takes a pod.
#[derive(Debug, thiserror::Error)]
enum Unschedulable {
    #[error("no nodes available to schedule pods")]
    NoNodes,
    #[error("0/{total} nodes are available: {why}. {}", after_word(*total, *lasting))]
    NoneFits {
        total: usize,
        why: String,
        /// Nodes on which the end of other pods would not help.
        lasting: usize,
    },
}

/// The node for a pod, or why there is none.
fn place(context: &Context<'_>, tree: &Value, entry: &Entry, pod: &PodPart) -> Result<Arc<str>, Unschedulable> {
    let total = context.world.nodes().count();
    if total == 0 {
        return Err(Unschedulable::NoNodes);
    }
    if let Some(why) = missing_claim(context, tree) {
        return Err(Unschedulable::NoneFits { total, why, lasting: total });
    }
    let asked = NodeRequirements::of(&tree["spec"]);
    let own = entry.controller().map(|controller| controller.uid);
    let mut best: Option<(i64, u64, Arc<str>)> = None;
    let (mut reasons, mut lasting) = (BTreeMap::<&str, usize>::new(), 0);
    for (key, node_entry, node) in context.world.nodes() {
        if let Some(misfit) = misfit(context, tree, &asked, pod, key, node_entry, node) {
            misfit.reasons.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
            lasting += usize::from(misfit.lasting);
            continue;
        }
        let load = context.world.load_of(&key.name);
        let filled = |used: i64, of: i64| (used * 100).checked_div(of).unwrap_or(100);
        let mut score = -filled(load.cpu + pod.cpu, node.cpu) - filled(load.memory + pod.memory, node.memory);
        // Pods of one owner lie apart.
        if own.is_some() {
            let alike = context.world.pods_on(&key.name);
            let alike = alike.filter(|(_, other)| other.controller().map(|controller| controller.uid) == own).count();
            score -= 100 * i64::try_from(alike).unwrap_or(0);
        }
        let chance = mixed(hash(&context.settings.seed.to_be_bytes()), context.key.name.as_bytes());
        let chance = mixed(chance, key.name.as_bytes());
        if best.as_ref().is_none_or(|(other, luck, _)| (*other, *luck) < (score, chance)) {
            best = Some((score, chance, Arc::clone(&key.name)));
        }
    }
    best.map(|(_, _, node)| node).ok_or_else(|| {
        let mut texts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        texts.sort();
        Unschedulable::NoneFits { total, why: texts.join(", "), lasting }
    })
}

/// What the scheduler says of pods that it could end for this one.
fn after_word(total: usize, lasting: usize) -> String {
    let mut parts = Vec::new();
    if total > lasting {
        parts.push(format!("{} No preemption victims found for incoming pod", total - lasting));
    }
    if lasting > 0 {
        parts.push(format!("{lasting} Preemption is not helpful for scheduling"));
    }
    parts.sort();
    let parts = parts.join(", ");
    format!("no new claims to deallocate, preemption: 0/{total} nodes are available: {parts}.")
}

fn missing_claim(context: &Context<'_>, tree: &Value) -> Option<String> {
    let volumes = items(tree, "/spec/volumes").iter();
    let mut claims =
        volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty());
    claims.find_map(|name| {
        let key = Key { resource: CLAIMS, namespace: Arc::clone(&context.key.namespace), name: name.into() };
        let Some(claim) = context.world.tree(&key) else {
            return Some(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        (text(&claim, "/status/phase") != "Bound")
            .then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
    })
}

fn misfit(
    context: &Context<'_>,
    tree: &Value,
    asked: &NodeRequirements,
    pod: &PodPart,
    key: &Key,
    entry: &Entry,
    node: &NodePart,
) -> Option<Misfit> {
    let cordon = || Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    if node.unschedulable && !asked.tolerate(&cordon()) {
        return Some(Misfit::lasting("node(s) were unschedulable"));
    }
    if node.taints.iter().any(|taint| taint.is_hard() && !asked.tolerate(taint)) {
        return Some(Misfit::lasting("node(s) had untolerated taint(s)"));
    }
    if !asked.select(&key.name, |name| entry.label(name)) {
        return Some(Misfit::lasting("node(s) didn't match Pod's node affinity/selector"));
    }
    let load = context.world.load_of(&key.name);
    let wants = [
        ("Insufficient cpu", pod.cpu, load.cpu, node.cpu),
        ("Insufficient memory", pod.memory, load.memory, node.memory),
        ("Too many pods", 1, load.pods, node.pods),
    ];
    let short: Vec<_> = wants.into_iter().filter(|(_, wants, used, has)| *wants > 0 && wants + used > *has).collect();
    if !short.is_empty() {
        let lasting = short.iter().any(|(_, wants, _, has)| wants > has);
        return Some(Misfit { reasons: short.into_iter().map(|(reason, ..)| reason).collect(), lasting });
    }
    let repelled = items(tree, "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    let repels = repelled.iter().filter(|term| text(term, "/topologyKey") == "kubernetes.io/hostname").any(|term| {
        let selector = ObjectSelector::of(&term["labelSelector"]).unwrap_or_default();
        context.world.pods_on(&key.name).any(|(other, entry)| {
            other.namespace == context.key.namespace && selector.matches(|name| entry.label(name))
        })
    });
    repels.then(|| Misfit { reasons: vec!["node(s) didn't match pod anti-affinity rules"], lasting: false })
}
