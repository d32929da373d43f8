//! What a deployment says of itself.
//!
//! Source: kubernetes `pkg/controller/deployment/progress.go`, `sync.go`.

use serde_json::{Value, json};

use super::{Rollout, Set};
use crate::sim::fields::{
    condition, count, items, number, remove_condition, seconds_later, set_condition, text, time, time_text,
};

impl Rollout<'_> {
    /// Every pod is new and available.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete_by(&self.tree["status"])
    }

    fn is_complete_by(&self, status: &Value) -> bool {
        let of = |field: &str| status[field].as_i64().unwrap_or(0);
        of("updatedReplicas") == self.wanted
            && of("replicas") == self.wanted
            && of("availableReplicas") == self.wanted
            && of("observedGeneration") >= count(&self.tree, "/metadata/generation")
    }

    /// Writes the counts and whether enough is available.
    pub(super) fn status_only(&mut self) {
        let status = self.counted();
        self.write(status);
    }

    /// Writes the counts and how the rollout goes.
    pub(super) fn progress(&mut self) {
        let mut status = self.counted();
        let before = condition(items(&self.tree, "/status/conditions"), "Progressing").cloned();
        let mut conditions = items(&status, "/conditions").to_vec();
        if !self.has_deadline() {
            remove_condition(&mut conditions, "Progressing");
        }
        let is_settled = status["replicas"].as_i64().unwrap_or(0) == status["updatedReplicas"].as_i64().unwrap_or(0)
            && before.as_ref().is_some_and(|before| before["reason"] == "NewReplicaSetAvailable");
        if self.has_deadline() && !is_settled {
            let subject = match &self.new {
                Some(new) => format!("ReplicaSet \"{}\"", new.key.name),
                None => format!("Deployment \"{}\"", self.context.key.name),
            };
            let now = time_text(self.context.now);
            let told = |status: &str, reason: &str, message: String| {
                json!({
                    "type": "Progressing", "status": status, "lastUpdateTime": now, "lastTransitionTime": now,
                    "reason": reason, "message": message,
                })
            };
            if self.is_complete_by(&status) {
                let message = format!("{subject} has successfully progressed.");
                set_condition(&mut conditions, told("True", "NewReplicaSetAvailable", message));
            } else if self.progresses(&status) {
                let mut new = told("True", "ReplicaSetUpdated", format!("{subject} is progressing."));
                if let Some(before) = before.as_ref().filter(|before| before["status"] == "True") {
                    new["lastTransitionTime"] = before["lastTransitionTime"].clone();
                }
                remove_condition(&mut conditions, "Progressing");
                conditions.push(new);
            } else if self.is_late(before.as_ref()) {
                let message = format!("{subject} has timed out progressing.");
                set_condition(&mut conditions, told("False", "ProgressDeadlineExceeded", message));
            }
        }
        status["conditions"] = conditions.into();
        self.write(status);
    }

    fn write(&mut self, status: Value) {
        if status != self.tree["status"] {
            let mut tree = self.tree.clone();
            tree["status"] = status;
            self.outcome.update_status(self.context.key, tree);
            return;
        }
        // Nothing happens: the time for it may run out.
        let progressing = condition(items(&status, "/conditions"), "Progressing");
        let waits = progressing.filter(|p| {
            self.has_deadline() && !self.is_complete_by(&status) && p["reason"] != "ProgressDeadlineExceeded"
        });
        let deadline = number(&self.tree, "/spec/progressDeadlineSeconds").unwrap_or(600);
        if let Some(updated) = waits.and_then(|progressing| time(progressing, "/lastUpdateTime")) {
            self.outcome.again(seconds_later(updated, deadline + 1).max(seconds_later(self.context.now, 1)));
        }
    }

    fn progresses(&self, status: &Value) -> bool {
        let of = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
        let before = &self.tree["status"];
        let old = |status: &Value| of(status, "replicas") - of(status, "updatedReplicas");
        of(status, "updatedReplicas") > of(before, "updatedReplicas")
            || old(status) < old(before)
            || of(status, "readyReplicas") > of(before, "readyReplicas")
            || of(status, "availableReplicas") > of(before, "availableReplicas")
    }

    fn is_late(&self, progressing: Option<&Value>) -> bool {
        let Some(progressing) = progressing else { return false };
        match text(progressing, "/reason") {
            "NewReplicaSetAvailable" => false,
            "ProgressDeadlineExceeded" => true,
            _ => {
                let deadline = number(&self.tree, "/spec/progressDeadlineSeconds").unwrap_or(600);
                time(progressing, "/lastUpdateTime").is_some_and(|at| seconds_later(at, deadline) < self.context.now)
            }
        }
    }

    fn counted(&self) -> Value {
        let available = self.sum("availableReplicas");
        let total: i64 = self.sets().map(Set::wanted).sum();
        let mut status = json!({"observedGeneration": count(&self.tree, "/metadata/generation")});
        let counts = [
            ("replicas", self.sum("replicas")),
            ("updatedReplicas", self.new.as_ref().map_or(0, |new| new.has("replicas"))),
            ("readyReplicas", self.sum("readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (total - available).max(0)),
        ];
        // As Go leaves out what is 0.
        for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            status[name] = count.into();
        }
        status["terminatingReplicas"] = self.sum("terminatingReplicas").into();
        if let Some(collisions) = self.tree["status"].get("collisionCount") {
            status["collisionCount"] = collisions.clone();
        }
        let mut conditions = items(&self.tree, "/status/conditions").to_vec();
        let now = time_text(self.context.now);
        let (answer, reason, message) = if available >= self.wanted - self.unavailable {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set_condition(
            &mut conditions,
            json!({
                "type": "Available", "status": answer, "lastUpdateTime": now, "lastTransitionTime": now,
                "reason": reason, "message": message,
            }),
        );
        status["conditions"] = conditions.into();
        status
    }
}
