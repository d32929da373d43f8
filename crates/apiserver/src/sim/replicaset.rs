//! Replica sets and replication controllers: as many pods as they say.
//!
//! Source: kubernetes `pkg/controller/replicaset/`, `pkg/controller/controller_utils.go`.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome, Report},
    context::Context,
    fields::{controller_reference, count, seconds_later, text},
    release::without_owners,
    resource::{PODS, REPLICA_SETS},
    view::{Entry, Labels, PodPart, selects, selects_equal},
    world::Key,
};

/// Pods that are made or deleted at once.
const BURST: usize = 500;

/// A pod of a set.
pub(super) type Member<'a> = (&'a Key, &'a Entry, &'a PodPart);

/// Looks after a replica set or a replication controller.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    let mut outcome = Outcome::default();
    let is_set = context.key.resource == REPLICA_SETS;
    let takes = |labels: &Labels| match is_set {
        true => selects(&tree["spec"]["selector"], labels),
        false => selects_equal(&tree["spec"]["selector"], labels),
    };
    if !entry.deleting {
        claim(context, entry, &tree, &takes, &mut outcome);
        if !outcome.is_idle() {
            return Some(outcome);
        }
    }
    let (active, ending): (Vec<Member<'_>>, Vec<Member<'_>>) =
        members(context, entry).filter(|(_, _, pod)| !pod.finished()).partition(|(_, pod, _)| !pod.deleting);
    if !entry.deleting {
        let wanted = usize::try_from(count(&tree, "/spec/replicas")).unwrap_or(0);
        manage(context, &tree, wanted, active.clone(), &mut outcome);
        if !outcome.is_idle() {
            return Some(outcome);
        }
    }
    status(context, tree, &active, is_set.then_some(ending.len()), &mut outcome);
    Some(outcome)
}

/// The pods that an object manages.
pub(super) fn members<'a>(context: &Context<'a>, entry: &Entry) -> impl Iterator<Item = Member<'a>> + use<'a> {
    context.world.managed(entry.uid, PODS).filter_map(|(key, entry)| Some((key, entry, entry.pod()?)))
}

/// Takes pods that nobody manages, and lets go those that the selector takes no more.
fn claim(context: &Context<'_>, entry: &Entry, tree: &Value, takes: &impl Fn(&Labels) -> bool, outcome: &mut Outcome) {
    let own = members(context, entry).filter(|(_, pod, _)| !takes(&pod.labels)).map(|(key, _, _)| (key, true));
    let loose = context.world.loose_in(&context.key.namespace);
    let adopted = loose.filter(|(_, pod, part)| !pod.deleting && !part.finished() && takes(&pod.labels));
    for (key, releases) in own.chain(adopted.map(|(key, _, _)| (key, false))) {
        let Some(mut object) = context.world.tree(key) else { continue };
        if releases {
            outcome.update(key, without_owners(object, |uid| uid == entry.uid));
            continue;
        }
        if !object["metadata"]["ownerReferences"].is_array() {
            object["metadata"]["ownerReferences"] = json!([]);
        }
        if let Some(references) = object["metadata"]["ownerReferences"].as_array_mut() {
            references.push(controller_reference(tree));
        }
        outcome.update(key, object);
    }
}

fn manage(context: &Context<'_>, tree: &Value, wanted: usize, mut active: Vec<Member<'_>>, outcome: &mut Outcome) {
    let by = by(context);
    if active.len() < wanted {
        for _ in 0..(wanted - active.len()).min(BURST) {
            let pod =
                pod_of(tree, &tree["spec"]["template"], json!({"generateName": format!("{}-", context.key.name)}));
            let report = made(context.key, by, "SuccessfulCreate", "FailedCreate", "pod: ");
            outcome.create_telling(PODS, &context.key.namespace, pod, Some(report));
        }
    } else if active.len() > wanted {
        active.sort_by_key(|member| rank(context, member));
        for (key, pod, _) in active.iter().take((active.len() - wanted).min(BURST)) {
            outcome.actions.push(delete_pod(context, key, pod, by));
        }
    }
}

fn by(context: &Context<'_>) -> &'static str {
    if context.key.resource == REPLICA_SETS { "replicaset-controller" } else { "replication-controller" }
}

/// What to tell of a created object.
pub(super) fn made(
    about: &Key,
    by: &'static str,
    done: &'static str,
    failed: &'static str,
    what: &'static str,
) -> Report {
    Report {
        done: Event::normal(about, by, done, format!("Created {what}{{}}")),
        failed: Event::warning(about, by, failed, "Error creating: {}".to_owned()),
    }
}

/// Deletes a pod, and tells of it.
pub(super) fn delete_pod(context: &Context<'_>, key: &Key, pod: &Entry, by: &'static str) -> Action {
    let report = Report {
        done: Event::normal(context.key, by, "SuccessfulDelete", format!("Deleted pod: {}", key.name)),
        failed: Event::warning(context.key, by, "FailedDelete", "Error deleting: {}".to_owned()),
    };
    Action::Delete { key: key.clone(), uid: pod.uid, propagation: None, grace: None, report: Some(report) }
}

/// A pod of a template.
pub(super) fn pod_of(owner: &Value, template: &Value, name: Value) -> Value {
    let mut metadata = name;
    for field in ["labels", "annotations", "finalizers"] {
        if template["metadata"][field].is_object() || template["metadata"][field].is_array() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    metadata["namespace"] = owner["metadata"]["namespace"].clone();
    metadata["ownerReferences"] = json!([controller_reference(owner)]);
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": template["spec"]})
}

/// Which pods go first: those without a node, pending, not ready, on crowded nodes, young.
fn rank(context: &Context<'_>, member: &Member<'_>) -> impl Ord + use<> {
    let (key, entry, pod) = member;
    let beside = pod.node.as_ref().map_or(0, |node| {
        let others = context.world.pods_on(node).filter(|(_, other)| {
            other.controller().map(|c| c.uid) == entry.controller().map(|c| c.uid) && !other.deleting
        });
        others.count()
    });
    let since = if pod.ready { pod.ready_since } else { 0 };
    (pod.node.is_some(), pod.phase, pod.ready, Reverse(beside), Reverse(since), Reverse(entry.created), (*key).clone())
}

fn status(context: &Context<'_>, mut tree: Value, active: &[Member<'_>], ending: Option<usize>, outcome: &mut Outcome) {
    let delay = count(&tree, "/spec/minReadySeconds");
    let available = |pod: &PodPart| pod.ready && pod.ready_since + delay <= context.now.as_second();
    let labels = tree["spec"]["template"]["metadata"]["labels"].clone();
    let full = active.iter().filter(|(_, pod, _)| labels.is_null() || selects_equal(&labels, &pod.labels)).count();
    let ready = active.iter().filter(|(_, _, pod)| pod.ready).count();
    let available_count = active.iter().filter(|(_, _, pod)| available(pod)).count();
    for (_, _, pod) in active.iter().filter(|(_, _, pod)| pod.ready && !available(pod)) {
        outcome.again(seconds_later(context.now, (pod.ready_since + delay - context.now.as_second()).max(1)));
    }
    let mut status = json!({"replicas": active.len()});
    // As Go leaves out what is 0.
    let counts = [("fullyLabeledReplicas", full), ("readyReplicas", ready), ("availableReplicas", available_count)];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status[name] = count.into();
    }
    if let Some(ending) = ending {
        status["terminatingReplicas"] = ending.into();
    }
    status["observedGeneration"] = tree["metadata"]["generation"].clone();
    if let Some(conditions) = tree["status"].get("conditions") {
        status["conditions"] = conditions.clone();
    }
    if status != tree["status"] && !text(&tree, "/metadata/name").is_empty() {
        tree["status"] = status;
        outcome.update_status(context.key, tree);
    }
}
