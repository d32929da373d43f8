//! Jobs: pods until enough have succeeded, or too many have failed.
//!
//! Source: kubernetes `pkg/controller/job/job_controller.go`, `tracking_utils.go`, `indexed_job_utils.go`.

mod indexes;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    action::{Event, Outcome},
    context::Context,
    fields::{condition, count, is_true, items, number, remove_condition, seconds_later, text, time, time_text},
    release::without_finalizer,
    replicaset::{Member, delete_pod, made, members, pod_of},
    resource::{JOBS, PODS},
    view::{Entry, Phase, Uid},
};

/// A pod has it until its end was counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const BY: &str = "job-controller";
/// Seconds after the first failure; they double.
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_SECONDS_MAX: i64 = 600;

/// A job at work.
struct Work<'a> {
    context: &'a Context<'a>,
    tree: Value,
    pods: Vec<Member<'a>>,
    outcome: Outcome,
}

/// How a job ends.
struct End {
    target: &'static str,
    last: &'static str,
    reason: &'static str,
    message: &'static str,
}

const SUCCESS: End = End {
    target: "SuccessCriteriaMet",
    last: "Complete",
    reason: "CompletionsReached",
    message: "Reached expected number of succeeded pods",
};
const TOO_MANY_FAILURES: End = End {
    target: "FailureTarget",
    last: "Failed",
    reason: "BackoffLimitExceeded",
    message: "Job has reached the specified backoff limit",
};
const TOO_LATE: End = End {
    target: "FailureTarget",
    last: "Failed",
    reason: "DeadlineExceeded",
    message: "Job was active longer than specified deadline",
};

/// Looks after a job.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    let pods = members(context, entry).collect();
    let mut work = Work { context, tree, pods, outcome: Outcome::default() };
    if work.track() {
        return Some(work.outcome);
    }
    if work.is_finished() {
        work.expire(entry);
    } else if !entry.deleting {
        work.run();
    }
    Some(work.outcome)
}

/// Lets a pod go whose job is gone, so that nobody counts it.
pub(super) fn let_go(context: &Context<'_>, entry: &Entry) -> Option<Outcome> {
    if context.key.resource != PODS || !entry.finalized {
        return None;
    }
    let controller = entry.controller();
    let is_managed = controller.is_some_and(|controller| {
        controller.resource == Some(JOBS)
            && context
                .world
                .by_uid(controller.uid)
                .is_some_and(|(_, job)| !job.deleting || job.finalized && !entry.deleting)
    });
    let tree = context.world.tree(context.key)?;
    let tracked = items(&tree, "/metadata/finalizers").iter().any(|finalizer| finalizer == TRACKING);
    if is_managed || !tracked {
        return None;
    }
    let mut outcome = Outcome::default();
    outcome.update(context.key, without_finalizer(tree, TRACKING));
    Some(outcome)
}

impl<'a> Work<'a> {
    fn is_finished(&self) -> bool {
        let conditions = items(&self.tree, "/status/conditions");
        ["Complete", "Failed"].iter().any(|kind| condition(conditions, kind).is_some_and(|c| c["status"] == "True"))
    }

    /// Deletes it some time after its end.
    fn expire(&mut self, entry: &Entry) {
        let Some(after) = number(&self.tree, "/spec/ttlSecondsAfterFinished") else { return };
        let conditions = items(&self.tree, "/status/conditions");
        let ended = ["Complete", "Failed"].iter().find_map(|kind| condition(conditions, kind));
        let Some(ended) = ended.and_then(|ended| time(ended, "/lastTransitionTime")) else { return };
        let end = seconds_later(ended, after);
        if end > self.context.now {
            self.outcome.again(end);
        } else if !entry.deleting {
            self.outcome.delete(self.context.key, entry.uid, Some("Foreground"));
        }
    }

    /// Counts each pod that has ended exactly once: its UID is written down, then its finalizer goes, then it counts.
    fn track(&mut self) -> bool {
        let listed = |tree: &Value, list: &str| -> Vec<Uid> {
            let uids = items(tree, &format!("/status/uncountedTerminatedPods/{list}")).iter();
            uids.filter_map(Value::as_str).map(Uid::of).collect()
        };
        let (succeeded, failed) = (listed(&self.tree, "succeeded"), listed(&self.tree, "failed"));
        let mut new = [Vec::new(), Vec::new()];
        for (key, entry, pod) in self.pods.iter().filter(|(_, entry, pod)| entry.finalized && pod.finished()) {
            let Some(tree) = self.context.world.tree(key) else { continue };
            if !items(&tree, "/metadata/finalizers").iter().any(|finalizer| finalizer == TRACKING) {
                continue;
            }
            if succeeded.contains(&entry.uid) || failed.contains(&entry.uid) {
                self.outcome.update(key, without_finalizer(tree, TRACKING));
            } else {
                let list = usize::from(pod.phase == Phase::Failed);
                new[list].push(tree["metadata"]["uid"].clone());
            }
        }
        if !self.outcome.is_idle() {
            return true;
        }
        let is_new = new.iter().any(|list| !list.is_empty());
        let [new_succeeded, new_failed] = new;
        for (list, new) in [("succeeded", new_succeeded), ("failed", new_failed)] {
            let counted = items(&self.tree, &format!("/status/uncountedTerminatedPods/{list}")).len();
            self.ensure_status();
            if is_new {
                let mut all = items(&self.tree, &format!("/status/uncountedTerminatedPods/{list}")).to_vec();
                all.extend(new);
                self.tree["status"]["uncountedTerminatedPods"][list] = all.into();
            } else if counted > 0 {
                let sum = count(&self.tree, &format!("/status/{list}")) + i64::try_from(counted).unwrap_or(0);
                self.tree["status"][list] = sum.into();
            }
        }
        if is_new {
            self.tidy_uncounted();
            self.count_pods();
            let tree = self.tree.clone();
            self.outcome.update_status(self.context.key, tree);
            return true;
        }
        if !succeeded.is_empty() || !failed.is_empty() {
            self.tree["status"]["uncountedTerminatedPods"] = json!({});
        }
        false
    }

    fn ensure_status(&mut self) {
        if !self.tree["status"].is_object() {
            self.tree["status"] = json!({});
        }
        if !self.tree["status"]["uncountedTerminatedPods"].is_object() {
            self.tree["status"]["uncountedTerminatedPods"] = json!({});
        }
    }

    fn tidy_uncounted(&mut self) {
        if let Some(lists) = self.tree["status"]["uncountedTerminatedPods"].as_object_mut() {
            lists.retain(|_, list| list.as_array().is_some_and(|list| !list.is_empty()));
        }
    }

    fn active(&self) -> Vec<Member<'a>> {
        self.pods.iter().filter(|(_, entry, pod)| !pod.finished() && !entry.deleting).copied().collect()
    }

    fn count_pods(&mut self) {
        let active = self.active();
        let ready = active.iter().filter(|(_, _, pod)| pod.ready).count();
        let ending = self.pods.iter().filter(|(_, entry, pod)| !pod.finished() && entry.deleting).count();
        let active = active.len();
        self.ensure_status();
        let Some(status) = self.tree["status"].as_object_mut() else { return };
        status.shift_remove("active");
        if active > 0 {
            status.insert("active".to_owned(), active.into());
        }
        status.insert("ready".to_owned(), ready.into());
        status.insert("terminating".to_owned(), ending.into());
    }

    fn run(&mut self) {
        let before = self.context.world.tree(self.context.key).unwrap_or_default();
        self.ensure_status();
        self.suspend_or_resume();
        if is_true(&self.tree, "/spec/suspend") {
            for (key, entry, _) in self.active() {
                let action = delete_pod(self.context, key, entry, BY);
                self.outcome.actions.push(action);
            }
        } else if let Some(end) = self.end() {
            self.finish(&end);
        } else {
            self.deadline();
            self.manage();
        }
        if !self.outcome.actions.iter().any(|action| matches!(action, super::action::Action::Create { .. })) {
            self.count_pods();
        }
        if self.is_indexed() {
            self.index_status();
        }
        if self.tree["status"] != before["status"] {
            let tree = self.tree.clone();
            self.outcome.update_status(self.context.key, tree);
        }
    }

    fn suspend_or_resume(&mut self) {
        let suspends = is_true(&self.tree, "/spec/suspend");
        let conditions = items(&self.tree, "/status/conditions").to_vec();
        let suspended = condition(&conditions, "Suspended").map(|c| c["status"] == "True");
        let about = self.context.key;
        if suspends && suspended != Some(true) {
            self.set_condition("Suspended", true, "JobSuspended", "Job suspended");
            self.outcome.tell(Event::normal(about, BY, "Suspended", "Job suspended".to_owned()));
            if let Some(status) = self.tree["status"].as_object_mut() {
                status.shift_remove("startTime");
            }
        } else if !suspends && suspended == Some(true) {
            self.set_condition("Suspended", false, "JobResumed", "Job resumed");
            self.outcome.tell(Event::normal(about, BY, "Resumed", "Job resumed".to_owned()));
        }
        if !suspends && self.tree["status"]["startTime"].is_null() {
            self.tree["status"]["startTime"] = time_text(self.context.now).into();
        }
    }

    fn set_condition(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let now = time_text(self.context.now);
        let mut conditions = items(&self.tree, "/status/conditions").to_vec();
        remove_condition(&mut conditions, kind);
        conditions.push(json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": now,
            "lastTransitionTime": now, "reason": reason, "message": message,
        }));
        self.tree["status"]["conditions"] = conditions.into();
    }

    fn end(&self) -> Option<End> {
        let conditions = items(&self.tree, "/status/conditions");
        let holds = |kind: &str| condition(conditions, kind).filter(|c| c["status"] == "True");
        if holds("SuccessCriteriaMet").is_some() {
            return Some(SUCCESS);
        }
        if let Some(target) = holds("FailureTarget") {
            return Some(if text(target, "/reason") == "DeadlineExceeded" { TOO_LATE } else { TOO_MANY_FAILURES });
        }
        let restarts: i64 = self.active().iter().map(|member| self.restarts(member)).sum();
        let limit = number(&self.tree, "/spec/backoffLimit").unwrap_or(6);
        if count(&self.tree, "/status/failed") > limit || restarts > 0 && restarts >= limit {
            return Some(TOO_MANY_FAILURES);
        }
        if self.deadline_at().is_some_and(|at| at <= self.context.now) {
            return Some(TOO_LATE);
        }
        let succeeded = self.succeeded();
        let is_enough = match number(&self.tree, "/spec/completions") {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && self.active().is_empty(),
        };
        is_enough.then_some(SUCCESS)
    }

    /// Restarts count as failures where the pod stays.
    fn restarts(&self, (key, _, pod): &Member<'_>) -> i64 {
        if !pod.scripted || text(&self.tree, "/spec/template/spec/restartPolicy") != "OnFailure" {
            return 0;
        }
        let tree = self.context.world.tree(key).unwrap_or_default();
        items(&tree, "/status/containerStatuses").iter().map(|status| count(status, "/restartCount")).sum()
    }

    fn deadline_at(&self) -> Option<Timestamp> {
        let seconds = number(&self.tree, "/spec/activeDeadlineSeconds")?;
        Some(seconds_later(time(&self.tree, "/status/startTime")?, seconds))
    }

    fn deadline(&mut self) {
        if let Some(at) = self.deadline_at() {
            self.outcome.again(at);
        }
    }

    fn finish(&mut self, end: &End) {
        let conditions = items(&self.tree, "/status/conditions");
        if condition(conditions, end.target).is_none() {
            self.set_condition(end.target, true, end.reason, end.message);
        }
        for (key, entry, _) in self.active() {
            let action = delete_pod(self.context, key, entry, BY);
            self.outcome.actions.push(action);
        }
        if self.pods.iter().any(|(_, _, pod)| !pod.finished()) {
            return;
        }
        let about = self.context.key;
        self.set_condition(end.last, true, end.reason, end.message);
        if end.last == "Complete" {
            self.tree["status"]["completionTime"] = time_text(self.context.now).into();
            self.outcome.tell(Event::normal(about, BY, "Completed", "Job completed".to_owned()));
        } else {
            self.outcome.tell(Event::warning(about, BY, end.reason, end.message.to_owned()));
        }
    }

    fn manage(&mut self) {
        let active = self.active().len();
        let parallelism = usize::try_from(number(&self.tree, "/spec/parallelism").unwrap_or(1)).unwrap_or(0);
        let succeeded = self.succeeded();
        let wanted = match number(&self.tree, "/spec/completions") {
            Some(completions) => usize::try_from(completions - succeeded).unwrap_or(0).min(parallelism),
            None if succeeded > 0 => active.min(parallelism),
            None => parallelism,
        };
        if active > wanted {
            let surplus: Vec<Member<'a>> = self.active().into_iter().take(active - wanted).collect();
            for (key, entry, _) in surplus {
                let action = delete_pod(self.context, key, entry, BY);
                self.outcome.actions.push(action);
            }
            return;
        }
        let waits = self.backoff();
        if let Some(at) = waits.filter(|_| active < wanted) {
            self.outcome.again(at);
            return;
        }
        if self.is_indexed() {
            return self.create_indexed(wanted - active);
        }
        for _ in active..wanted {
            self.create(json!({"generateName": format!("{}-", self.context.key.name)}), |_| ());
        }
    }

    fn create(&mut self, name: Value, dress: impl FnOnce(&mut Value)) {
        let mut pod = pod_of(&self.tree, &self.tree["spec"]["template"], name);
        let mut finalizers = items(&pod, "/metadata/finalizers").to_vec();
        finalizers.push(TRACKING.into());
        pod["metadata"]["finalizers"] = finalizers.into();
        dress(&mut pod);
        let report = made(self.context.key, BY, "SuccessfulCreate", "FailedCreate", "pod: ");
        self.outcome.create_telling(PODS, &self.context.key.namespace, pod, Some(report));
    }

    /// How many pods have succeeded.
    fn succeeded(&self) -> i64 {
        count(&self.tree, "/status/succeeded")
    }

    /// Until when failures hold new pods back.
    fn backoff(&self) -> Option<Timestamp> {
        let failures = self.pods.iter().filter(|(_, _, pod)| pod.phase == Phase::Failed);
        let last = failures.clone().map(|(_, _, pod)| pod.ready_since).max()?;
        let exponent = u32::try_from(failures.count().saturating_sub(1)).unwrap_or(0).min(10);
        let seconds = (BACKOFF_SECONDS << exponent).min(BACKOFF_SECONDS_MAX);
        let at = seconds_later(Timestamp::from_second(last).ok()?, seconds);
        (at > self.context.now).then_some(at)
    }
}
