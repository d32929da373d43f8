//! Deployments: replica sets of their templates, old ones replaced by new ones step by step.
//!
//! Source: kubernetes `pkg/controller/deployment/`.

mod rollout;
mod status;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome},
    context::Context,
    fields::{
        annotate, annotation, condition, controller_reference, count, is_true, items, number, share, text, time_text,
    },
    names::template_hash,
    resource::REPLICA_SETS,
    view::{Uid, selects},
    world::Key,
};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations of a deployment that its replica sets do not get.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, "deprecated.deployment.rollback.to"];
/// Labels and names of replica sets and pods tell which template they are of.
pub(super) const HASH: &str = "pod-template-hash";
const BY: &str = "deployment-controller";

/// A replica set of a deployment.
#[derive(Clone, Debug)]
struct Set {
    key: Key,
    uid: Uid,
    tree: Value,
    created: i64,
    deleting: bool,
}

impl Set {
    fn wanted(&self) -> i64 {
        count(&self.tree, "/spec/replicas")
    }

    fn has(&self, field: &str) -> i64 {
        self.tree["status"][field].as_i64().unwrap_or(0)
    }

    fn revision(&self) -> i64 {
        annotation(&self.tree, REVISION).parse().unwrap_or(0)
    }
}

/// A deployment with its replica sets.
struct Rollout<'a> {
    context: &'a Context<'a>,
    tree: Value,
    wanted: i64,
    surge: i64,
    unavailable: i64,
    is_rolling: bool,
    new: Option<Set>,
    old: Vec<Set>,
    outcome: Outcome,
}

/// Looks after a deployment.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    if entry.deleting {
        let mut rollout = Rollout::of(context, tree);
        rollout.status_only();
        return Some(rollout.outcome);
    }
    if let Some(adopted) = adopt(context, entry.uid, &tree) {
        return Some(adopted);
    }
    let mut rollout = Rollout::of(context, tree);
    rollout.run();
    Some(rollout.outcome)
}

/// Takes replica sets that nobody manages, and lets go those that the selector takes no more.
fn adopt(context: &Context<'_>, uid: Uid, tree: &Value) -> Option<Outcome> {
    let mut outcome = Outcome::default();
    for (key, set) in context.world.within(REPLICA_SETS, &context.key.namespace) {
        if set.controller().is_some() || set.deleting || !selects(&tree["spec"]["selector"], &set.labels) {
            continue;
        }
        let mut object = context.world.tree(key)?;
        object["metadata"]["ownerReferences"] = json!([controller_reference(tree)]);
        outcome.update(key, object);
    }
    for (key, set) in context.world.managed(uid, REPLICA_SETS) {
        if !selects(&tree["spec"]["selector"], &set.labels) {
            let object = super::release::without_owners(context.world.tree(key)?, |owner| owner == uid);
            outcome.update(key, object);
        }
    }
    (!outcome.is_idle()).then_some(outcome)
}

/// A template as it is without the label of its hash.
fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.shift_remove(HASH);
    }
    template
}

impl<'a> Rollout<'a> {
    fn of(context: &'a Context<'a>, tree: Value) -> Self {
        let uid = context.world.get(context.key).map(|entry| entry.uid);
        let managed = uid.into_iter().flat_map(|uid| context.world.managed(uid, REPLICA_SETS));
        let mut sets: Vec<Set> = managed
            .filter_map(|(key, entry)| {
                let tree = context.world.tree(key)?;
                Some(Set { key: key.clone(), uid: entry.uid, tree, created: entry.created, deleting: entry.deleting })
            })
            .collect();
        sets.sort_by(|left, right| (left.created, &left.key).cmp(&(right.created, &right.key)));
        let template = without_hash(&tree["spec"]["template"]);
        let is_new = |set: &Set| without_hash(&set.tree["spec"]["template"]) == template;
        let new = sets.iter().position(is_new).map(|place| sets.remove(place));
        let wanted = number(&tree, "/spec/replicas").unwrap_or(1);
        let is_rolling = text(&tree, "/spec/strategy/type") != "Recreate";
        let (surge, unavailable) = fenceposts(&tree, wanted, is_rolling);
        Self { context, tree, wanted, surge, unavailable, is_rolling, new, old: sets, outcome: Outcome::default() }
    }

    fn run(&mut self) {
        if is_true(&self.tree, "/spec/paused") {
            return self.paused();
        }
        if self.resumes() || self.is_scaling_event() && self.scale() {
            return;
        }
        if self.is_rolling { self.roll() } else { self.recreate() }
    }

    /// The conditions say when a rollout was stopped and when it went on.
    fn resumes(&mut self) -> bool {
        let conditions = items(&self.tree, "/status/conditions");
        let progressing = condition(conditions, "Progressing");
        if !self.has_deadline() || progressing.is_none_or(|c| c["reason"] != "DeploymentPaused") {
            return false;
        }
        let message = "Deployment is resumed";
        self.set_progressing("Unknown", "DeploymentResumed", message);
        let tree = self.tree.clone();
        self.outcome.update_status(self.context.key, tree);
        true
    }

    fn paused(&mut self) {
        let conditions = items(&self.tree, "/status/conditions");
        let reason = condition(conditions, "Progressing").map(|c| text(c, "/reason").to_owned());
        if self.has_deadline() && !matches!(reason.as_deref(), Some("DeploymentPaused" | "ProgressDeadlineExceeded")) {
            self.set_progressing("Unknown", "DeploymentPaused", "Deployment is paused");
            let tree = self.tree.clone();
            self.outcome.update_status(self.context.key, tree);
            return;
        }
        if !self.sync_new(false) && !self.scale() {
            self.status_only();
        }
    }

    fn has_deadline(&self) -> bool {
        number(&self.tree, "/spec/progressDeadlineSeconds").is_some_and(|deadline| deadline != i64::from(i32::MAX))
    }

    fn sets(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    fn sum(&self, field: &str) -> i64 {
        self.sets().map(|set| set.has(field)).sum()
    }

    /// Sees to the newest set: its annotations, and that it is there. Answers whether something is to be written first.
    fn sync_new(&mut self, creates: bool) -> bool {
        let revision = self.old.iter().map(Set::revision).max().unwrap_or(0) + 1;
        let Some(set) = &self.new else {
            if creates {
                self.create(revision);
            }
            return creates;
        };
        let mut tree = set.tree.clone();
        let mut changed = annotate_set(&mut tree, &self.tree, revision);
        if tree["spec"]["minReadySeconds"].as_i64().unwrap_or(0) != count(&self.tree, "/spec/minReadySeconds") {
            tree["spec"]["minReadySeconds"] = self.tree["spec"]["minReadySeconds"].clone();
            changed = true;
        }
        if changed {
            let key = set.key.clone();
            self.outcome.update(&key, tree);
            return true;
        }
        let revision = annotation(&tree, REVISION).to_owned();
        let name = Arc::clone(&set.key.name);
        self.take_revision(&revision, &format!("Found new replica set \"{name}\""), "FoundNewReplicaSet")
    }

    /// The deployment says the revision of its newest set, and that there is one.
    fn take_revision(&mut self, revision: &str, message: &str, reason: &str) -> bool {
        let mut writes = annotation(&self.tree, REVISION) != revision;
        annotate(&mut self.tree, REVISION, revision);
        let conditions = items(&self.tree, "/status/conditions");
        if self.has_deadline() && condition(conditions, "Progressing").is_none() {
            self.set_progressing("True", reason, message);
            writes = true;
        }
        if writes {
            // The annotation goes with the status, as Kubernetes has it: an update would be a new generation.
            let tree = self.tree.clone();
            self.outcome.update_status(self.context.key, tree);
        }
        writes
    }

    fn create(&mut self, revision: i64) {
        let collisions = number(&self.tree, "/status/collisionCount");
        let template = &self.tree["spec"]["template"];
        let hash = template_hash(template, collisions);
        let name = format!("{}-{hash}", self.context.key.name);
        let namespace = Arc::clone(&self.context.key.namespace);
        let key = Key { resource: REPLICA_SETS, namespace: Arc::clone(&namespace), name: name.as_str().into() };
        if self.context.world.get(&key).is_some() {
            // Two templates have one hash: another count makes another hash.
            self.tree["status"]["collisionCount"] = (collisions.unwrap_or(0) + 1).into();
            let tree = self.tree.clone();
            return self.outcome.update_status(self.context.key, tree);
        }
        let mut set = self.new_set(&name, &hash);
        annotate_set(&mut set, &self.tree, revision);
        let replicas = self.new_replicas(0);
        set["spec"]["replicas"] = replicas.into();
        annotate(&mut set, DESIRED, &self.wanted.to_string());
        annotate(&mut set, MAX, &(self.wanted + self.surge).to_string());
        let about = self.context.key;
        let event =
            Event::normal(about, BY, "ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {replicas}"));
        self.outcome.create(REPLICA_SETS, &namespace, set);
        if replicas > 0 {
            self.outcome.tell(event);
        }
        annotate(&mut self.tree, REVISION, &revision.to_string());
        if self.has_deadline() {
            self.set_progressing("True", "NewReplicaSetCreated", &format!("Created new replica set \"{name}\""));
        }
        let tree = self.tree.clone();
        self.outcome.update_status(self.context.key, tree);
    }

    fn new_set(&self, name: &str, hash: &str) -> Value {
        let mut template = self.tree["spec"]["template"].clone();
        template["metadata"]["labels"][HASH] = hash.into();
        let mut selector = self.tree["spec"]["selector"].clone();
        if !selector["matchLabels"].is_object() {
            selector["matchLabels"] = json!({});
        }
        selector["matchLabels"][HASH] = hash.into();
        let mut spec = json!({"replicas": 0, "selector": selector, "template": template});
        if let Some(seconds) = number(&self.tree, "/spec/minReadySeconds").filter(|seconds| *seconds > 0) {
            spec["minReadySeconds"] = seconds.into();
        }
        json!({
            "kind": "ReplicaSet", "apiVersion": "apps/v1",
            "metadata": {
                "name": name,
                "namespace": *self.context.key.namespace,
                "labels": spec["template"]["metadata"]["labels"],
                "ownerReferences": [controller_reference(&self.tree)],
            },
            "spec": spec,
        })
    }

    /// Scales a set, and tells of it.
    fn scale_set(&mut self, set: &Set, to: i64, annotates: bool) -> bool {
        let from = set.wanted();
        let most = (self.wanted + self.surge).to_string();
        let desired = self.wanted.to_string();
        let mut tree = set.tree.clone();
        let stale = annotation(&tree, DESIRED) != desired || annotation(&tree, MAX) != most;
        if from == to && !(annotates && stale) {
            return false;
        }
        tree["spec"]["replicas"] = to.into();
        annotate(&mut tree, DESIRED, &desired);
        annotate(&mut tree, MAX, &most);
        self.outcome.update(&set.key, tree);
        if from != to {
            let way = if from < to { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {} from {from} to {to}", set.key.name);
            self.outcome.tell(Event::normal(self.context.key, BY, "ScalingReplicaSet", message));
        }
        true
    }

    fn set_progressing(&mut self, status: &str, reason: &str, message: &str) {
        let now = time_text(self.context.now);
        let mut conditions = items(&self.tree, "/status/conditions").to_vec();
        let before = condition(&conditions, "Progressing").cloned();
        let mut wanted = json!({
            "type": "Progressing", "status": status, "lastUpdateTime": now, "lastTransitionTime": now,
            "reason": reason, "message": message,
        });
        if let Some(before) = before.filter(|before| before["status"] == status) {
            wanted["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
        super::fields::remove_condition(&mut conditions, "Progressing");
        conditions.push(wanted);
        if !self.tree["status"].is_object() {
            self.tree["status"] = json!({});
        }
        self.tree["status"]["conditions"] = conditions.into();
    }

    /// Old sets beyond those that a rollback may want go.
    fn clean_up(&mut self) {
        let limit = number(&self.tree, "/spec/revisionHistoryLimit").unwrap_or(10);
        let mut alive: Vec<&Set> = self.old.iter().filter(|set| !set.deleting).collect();
        let surplus = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        alive.sort_by_key(|set| set.revision());
        let generation = |set: &Set| count(&set.tree, "/metadata/generation");
        let idle = |set: &&Set| {
            set.has("replicas") == 0 && set.wanted() == 0 && generation(set) <= set.has("observedGeneration")
        };
        let gone: Vec<(Key, Uid)> =
            alive.into_iter().take(surplus).filter(idle).map(|set| (set.key.clone(), set.uid)).collect();
        for (key, uid) in gone {
            self.outcome.actions.push(Action::Delete { key, uid, propagation: None, grace: None, report: None });
        }
    }
}

/// How many more and how many fewer pods there may be.
fn fenceposts(tree: &Value, wanted: i64, is_rolling: bool) -> (i64, i64) {
    if !is_rolling {
        return (0, 0);
    }
    let rolling = &tree["spec"]["strategy"]["rollingUpdate"];
    let surge = share(&rolling["maxSurge"], wanted, true);
    let unavailable = share(&rolling["maxUnavailable"], wanted, false);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    (surge, if wanted == 0 { 0 } else { unavailable.min(wanted) })
}

/// Gives a set its deployment's annotations and its revision. Answers whether that is new.
fn annotate_set(set: &mut Value, deployment: &Value, revision: i64) -> bool {
    let before = set["metadata"]["annotations"].clone();
    for (name, value) in deployment["metadata"]["annotations"].as_object().into_iter().flatten() {
        if !OWN.contains(&name.as_str()) {
            annotate(set, name, value.as_str().unwrap_or_default());
        }
    }
    let old = annotation(set, REVISION).to_owned();
    if old.parse::<i64>().unwrap_or(0) < revision {
        if !old.is_empty() {
            let history = annotation(set, HISTORY);
            let history = if history.is_empty() { old } else { format!("{history},{old}") };
            annotate(set, HISTORY, &history);
        }
        annotate(set, REVISION, &revision.to_string());
    }
    set["metadata"]["annotations"] != before
}
