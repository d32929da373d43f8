//! Stateful sets: pods with numbers, one after another, each with its own claims.
//!
//! Source: kubernetes `pkg/controller/statefulset/`, `pkg/controller/history/`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome},
    context::Context,
    fields::{controller_reference, count, items, number, seconds_later, text},
    names::template_hash,
    replicaset::{Member, delete_pod, made, members, pod_of},
    resource::{CLAIMS, CONTROLLER_REVISIONS, DAEMON_SETS, PODS},
    view::Entry,
    world::Key,
};

/// The label of pods that says which revision they are of.
pub(super) const HASH: &str = "controller-revision-hash";
const BY: &str = "statefulset-controller";

/// A stateful set at work.
struct Row<'a> {
    context: &'a Context<'a>,
    tree: &'a Value,
    /// The revision of new pods.
    update: String,
    /// The revision of pods that are not rolled yet.
    current: String,
    first: i64,
    wanted: i64,
    pods: Vec<(i64, Member<'a>)>,
    outcome: Outcome,
}

/// Looks after a stateful set.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    if entry.deleting {
        return None;
    }
    let hash = template_hash(
        &tree["spec"]["template"],
        number(&tree, "/status/collisionCount").filter(|collisions| *collisions > 0),
    );
    let mut outcome = Outcome::default();
    if revise(context, entry, &tree, &hash, &mut outcome) {
        return Some(outcome);
    }
    let update = format!("{}-{hash}", context.key.name);
    let current = text(&tree, "/status/currentRevision");
    let current = if current.is_empty() { update.clone() } else { current.to_owned() };
    let prefix = format!("{}-", context.key.name);
    let numbered = members(context, entry).filter_map(|member| {
        let ordinal = member.0.name.strip_prefix(&prefix)?.parse::<i64>().ok()?;
        Some((ordinal, member))
    });
    let mut pods: Vec<_> = numbered.collect();
    pods.sort_by_key(|(ordinal, _)| *ordinal);
    let first = count(&tree, "/spec/ordinals/start");
    let wanted = number(&tree, "/spec/replicas").unwrap_or(1);
    let mut row = Row { context, tree: &tree, update, current, first, wanted, pods, outcome };
    row.run();
    let Row { mut outcome, update, current, pods, .. } = row;
    status(context, &tree, &update, &current, &pods, &mut outcome);
    Some(outcome)
}

impl Row<'_> {
    fn run(&mut self) {
        let is_parallel = text(self.tree, "/spec/podManagementPolicy") == "Parallel";
        let delay = count(self.tree, "/spec/minReadySeconds");
        for ordinal in self.first..self.first + self.wanted {
            let pod = self.pods.iter().find(|(of, _)| *of == ordinal).map(|(_, member)| *member);
            let Some((key, entry, part)) = pod else {
                self.create(ordinal);
                if is_parallel {
                    continue;
                }
                return;
            };
            if part.finished() && !entry.deleting {
                self.outcome.actions.push(delete_pod(self.context, key, entry, BY));
                return;
            }
            let available = part.ready && part.ready_since + delay <= self.context.now.as_second();
            if part.ready && !available {
                self.outcome.again(seconds_later(self.context.now, 1));
            }
            if !is_parallel && (entry.deleting || !available) {
                return;
            }
        }
        let surplus: Vec<Member<'_>> = self
            .pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| *ordinal >= self.first + self.wanted || *ordinal < self.first)
            .map(|(_, member)| *member)
            .collect();
        for (key, entry, _) in surplus {
            if !entry.deleting {
                self.delete(key, entry);
            }
            if !is_parallel {
                return;
            }
        }
        self.roll();
    }

    /// Old pods go one at a time, the last first.
    fn roll(&mut self) {
        if text(self.tree, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let partition = count(self.tree, "/spec/updateStrategy/rollingUpdate/partition");
        let wanted = self.first + self.wanted;
        let pods: Vec<(i64, Member<'_>)> = self.pods.iter().rev().copied().collect();
        for (ordinal, (key, entry, part)) in pods {
            if ordinal < self.first + partition || ordinal >= wanted {
                continue;
            }
            if entry.label(HASH) != Some(&self.update) {
                if !entry.deleting {
                    self.delete(key, entry);
                }
                return;
            }
            if !part.ready || entry.deleting {
                return;
            }
        }
    }

    fn delete(&mut self, key: &Key, entry: &Entry) {
        let Action::Delete { key, uid, propagation, grace, report } = delete_pod(self.context, key, entry, BY) else {
            return;
        };
        let mut report = report;
        if let Some(report) = &mut report {
            let pod = &key.name;
            report.done.message = format!("Delete Pod {pod} in StatefulSet {} successful", self.context.key.name);
        }
        self.outcome.actions.push(Action::Delete { key, uid, propagation, grace, report });
    }

    fn create(&mut self, ordinal: i64) {
        let set = &self.context.key.name;
        let name = format!("{set}-{ordinal}");
        let mut pod = pod_of(self.tree, &self.tree["spec"]["template"], json!({"name": name}));
        let partition = count(self.tree, "/spec/updateStrategy/rollingUpdate/partition");
        let is_new = ordinal >= self.first + partition || self.current == self.update;
        let revision = if is_new { &self.update } else { &self.current };
        if !pod["metadata"]["labels"].is_object() {
            pod["metadata"]["labels"] = json!({});
        }
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        pod["metadata"]["labels"][HASH] = revision.as_str().into();
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.as_str().into();
        pod["spec"]["hostname"] = name.as_str().into();
        if let Some(service) = self.tree["spec"]["serviceName"].as_str().filter(|service| !service.is_empty()) {
            pod["spec"]["subdomain"] = service.into();
        }
        let mut volumes = items(&pod, "/spec/volumes").to_vec();
        for template in items(self.tree, "/spec/volumeClaimTemplates") {
            let volume = text(template, "/metadata/name");
            let claim = format!("{volume}-{name}");
            volumes.retain(|present| present["name"] != volume);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
            self.claim(template, &claim, &name);
        }
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = volumes.into();
        }
        let mut report = made(self.context.key, BY, "SuccessfulCreate", "FailedCreate", "pod: ");
        report.done.message = format!("Create Pod {name} in StatefulSet {set} successful");
        self.outcome.create_telling(PODS, &self.context.key.namespace, pod, Some(report));
    }

    fn claim(&mut self, template: &Value, claim: &str, pod: &str) {
        let namespace = &self.context.key.namespace;
        let key = Key { resource: CLAIMS, namespace: Arc::clone(namespace), name: claim.into() };
        if self.context.world.get(&key).is_some() {
            return;
        }
        let mut object = template.clone();
        object["kind"] = "PersistentVolumeClaim".into();
        object["apiVersion"] = "v1".into();
        object["metadata"]["name"] = claim.into();
        object["metadata"]["namespace"] = (&**namespace).into();
        object["metadata"]["labels"] = self.tree["spec"]["selector"]["matchLabels"].clone();
        if let Some(object) = object.as_object_mut() {
            object.shift_remove("status");
        }
        self.outcome.create(CLAIMS, namespace, object);
        let set = &self.context.key.name;
        let message = format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success");
        self.outcome.tell(Event::normal(self.context.key, BY, "SuccessfulCreate", message));
    }
}

fn status(
    context: &Context<'_>,
    tree: &Value,
    update: &str,
    current: &str,
    pods: &[(i64, Member<'_>)],
    outcome: &mut Outcome,
) {
    let delay = count(tree, "/spec/minReadySeconds");
    let alive = || pods.iter().map(|(_, member)| member).filter(|(_, _, part)| !part.finished());
    let ready = alive().filter(|(_, _, part)| part.ready);
    let available = ready.clone().filter(|(_, _, part)| part.ready_since + delay <= context.now.as_second()).count();
    let of = |revision: &str| alive().filter(|(_, pod, _)| !pod.deleting && pod.label(HASH) == Some(revision)).count();
    let wanted = usize::try_from(number(tree, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
    let (updated, ready, total) = (of(update), ready.count(), alive().count());
    // All are new: the rollout is over.
    let is_done = updated == wanted && ready == wanted && total == wanted;
    let current = if is_done { update } else { current };
    let mut status = json!({
        "observedGeneration": tree["metadata"]["generation"],
        "replicas": total, "currentRevision": current, "updateRevision": update,
        "collisionCount": count(tree, "/status/collisionCount"), "availableReplicas": available,
    });
    let counts = [("readyReplicas", ready), ("currentReplicas", of(current)), ("updatedReplicas", updated)];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status[name] = count.into();
    }
    if status != tree["status"] {
        let mut tree = tree.clone();
        tree["status"] = status;
        outcome.update_status(context.key, tree);
    }
}

/// Sees to the revision of the present template. Answers whether it must be written first.
pub(super) fn revise(context: &Context<'_>, entry: &Entry, tree: &Value, hash: &str, outcome: &mut Outcome) -> bool {
    let name = format!("{}-{hash}", context.key.name);
    let present = revisions(context, entry);
    let highest = present.iter().filter_map(|(key, _)| context.world.tree(key)).map(|r| count(&r, "/revision")).max();
    let highest = highest.unwrap_or(0);
    if let Some((key, _)) = present.iter().find(|(key, _)| *key.name == *name) {
        let Some(mut revision) = context.world.tree(key) else { return false };
        // A rollback makes an old revision the newest.
        if count(&revision, "/revision") < highest {
            revision["revision"] = (highest + 1).into();
            outcome.update(key, revision);
            return true;
        }
        return trim(context, tree, &present, outcome);
    }
    let mut labels = tree["spec"]["template"]["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    let is_daemon = context.key.resource == DAEMON_SETS;
    labels[if is_daemon { HASH } else { "controller.kubernetes.io/hash" }] = hash.into();
    let mut template = tree["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    let revision = json!({
        "kind": "ControllerRevision", "apiVersion": "apps/v1",
        "metadata": {
            "name": name, "namespace": *context.key.namespace, "labels": labels,
            "ownerReferences": [controller_reference(tree)],
        },
        "data": {"spec": {"template": template}},
        "revision": highest + 1,
    });
    outcome.create(CONTROLLER_REVISIONS, &context.key.namespace, revision);
    true
}

/// Revisions that no pod is of go, but for some.
fn trim(context: &Context<'_>, tree: &Value, present: &[(&Key, &Entry)], outcome: &mut Outcome) -> bool {
    let limit = usize::try_from(number(tree, "/spec/revisionHistoryLimit").unwrap_or(10)).unwrap_or(0);
    if present.len() <= limit + 2 {
        return false;
    }
    let mut by_age: Vec<(i64, &(&Key, &Entry))> = present
        .iter()
        .filter_map(|revision| Some((count(&context.world.tree(revision.0)?, "/revision"), revision)))
        .collect();
    by_age.sort_by_key(|(revision, _)| *revision);
    let surplus = present.len() - limit - 2;
    for (_, (key, entry)) in by_age.into_iter().take(surplus) {
        outcome.delete(key, entry.uid, None);
    }
    false
}

/// The revisions of an object, oldest first.
pub(super) fn revisions<'a>(context: &Context<'a>, entry: &Entry) -> Vec<(&'a Key, &'a Entry)> {
    context.world.managed(entry.uid, CONTROLLER_REVISIONS).collect()
}
