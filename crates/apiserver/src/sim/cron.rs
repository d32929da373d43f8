//! Cron jobs: a job each time that a schedule says.
//!
//! Source: kubernetes `pkg/controller/cronjob/cronjob_controllerv2.go`, `utils.go`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome, Report},
    context::Context,
    fields::{condition, controller_reference, is_true, items, number, seconds_later, text, time, time_text},
    resource::JOBS,
    view::{Entry, Uid},
    world::Key,
};
use crate::cron::Schedule;

const BY: &str = "cronjob-controller";
/// Times that are looked at, of those that were missed.
const MISSED_MAX: usize = 100;

/// Looks after a cron job.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let tree = context.world.tree(context.key)?;
    if entry.deleting {
        return None;
    }
    let mut outcome = Outcome::default();
    let jobs: Vec<(Key, Uid, Value)> = context
        .world
        .managed(entry.uid, JOBS)
        .filter_map(|(key, job)| Some((key.clone(), job.uid, context.world.tree(key)?)))
        .collect();
    let before = tree.get("status").cloned().unwrap_or_default();
    let mut new = tree;
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    follow(context, &mut new, &jobs, &mut outcome);
    clean_up(context, &new, &jobs, &mut outcome);
    start(context, entry, &mut new, &jobs, &mut outcome);
    if new["status"] != before && !(before.is_null() && new["status"] == json!({})) {
        outcome.update_status(context.key, new);
    }
    Some(outcome)
}

fn ended(job: &Value) -> Option<&'static str> {
    let conditions = items(job, "/status/conditions");
    ["Complete", "Failed"].into_iter().find(|kind| condition(conditions, kind).is_some_and(|c| c["status"] == "True"))
}

/// Which jobs are at work.
fn follow(context: &Context<'_>, new: &mut Value, jobs: &[(Key, Uid, Value)], outcome: &mut Outcome) {
    let listed: Vec<Uid> = items(new, "/status/active").iter().map(|r| Uid::of(text(r, "/uid"))).collect();
    let mut active = Vec::new();
    let mut last = time(new, "/status/lastSuccessfulTime");
    for (key, uid, job) in jobs {
        let Some(how) = ended(job) else {
            active.push(json!({
                "kind": "Job", "namespace": *key.namespace, "name": *key.name, "uid": job["metadata"]["uid"],
                "apiVersion": "batch/v1", "resourceVersion": job["metadata"]["resourceVersion"],
            }));
            continue;
        };
        if listed.contains(uid) {
            let message = format!("Saw completed job: {}, condition: {how}", key.name);
            outcome.tell(Event::normal(context.key, BY, "SawCompletedJob", message));
        }
        last = last.max(time(job, "/status/completionTime").filter(|_| how == "Complete"));
    }
    // A reference keeps the resource version that it began with.
    for reference in &mut active {
        let uid = reference["uid"].clone();
        if let Some(before) = items(new, "/status/active").iter().find(|before| before["uid"] == uid) {
            *reference = before.clone();
        }
    }
    if let Some(status) = new["status"].as_object_mut() {
        status.shift_remove("active");
        if !active.is_empty() {
            status.insert("active".to_owned(), active.into());
        }
        if let Some(last) = last {
            status.insert("lastSuccessfulTime".to_owned(), time_text(last).into());
        }
    }
}

/// Old jobs go.
fn clean_up(context: &Context<'_>, tree: &Value, jobs: &[(Key, Uid, Value)], outcome: &mut Outcome) {
    for (how, limit, usual) in
        [("Complete", "/spec/successfulJobsHistoryLimit", 3), ("Failed", "/spec/failedJobsHistoryLimit", 1)]
    {
        let limit = usize::try_from(number(tree, limit).unwrap_or(usual)).unwrap_or(0);
        let mut done: Vec<&(Key, Uid, Value)> = jobs.iter().filter(|(_, _, job)| ended(job) == Some(how)).collect();
        done.sort_by_key(|(key, _, job)| (time(job, "/status/startTime"), key.clone()));
        let surplus = done.len().saturating_sub(limit);
        for (key, uid, _) in done.into_iter().take(surplus) {
            delete(context, key, *uid, outcome);
        }
    }
}

fn delete(context: &Context<'_>, key: &Key, uid: Uid, outcome: &mut Outcome) {
    if context.world.get(key).is_none_or(|job| job.deleting) {
        return;
    }
    let report = Report {
        done: Event::normal(context.key, BY, "SuccessfulDelete", format!("Deleted job {}", key.name)),
        failed: Event::warning(context.key, BY, "FailedDelete", "Deleted job: {}".to_owned()),
    };
    let propagation = Some("Background");
    outcome.actions.push(Action::Delete { key: key.clone(), uid, propagation, grace: None, report: Some(report) });
}

fn start(context: &Context<'_>, entry: &Entry, new: &mut Value, jobs: &[(Key, Uid, Value)], outcome: &mut Outcome) {
    if is_true(new, "/spec/suspend") {
        return;
    }
    let schedule = match text(new, "/spec/timeZone") {
        "" => Schedule::parse(text(new, "/spec/schedule")),
        zone => Schedule::parse(&format!("TZ={zone} {}", text(new, "/spec/schedule"))),
    };
    let schedule = match schedule {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: \"{}\" : {why}", text(new, "/spec/schedule"));
            return outcome.tell(Event::warning(context.key, BY, "UnparseableSchedule", message));
        }
    };
    let created = Timestamp::from_second(entry.created).unwrap_or_default();
    let mut since = time(new, "/status/lastScheduleTime").unwrap_or(created);
    let deadline = number(new, "/spec/startingDeadlineSeconds");
    if let Some(deadline) = deadline {
        since = since.max(seconds_later(context.now, -deadline));
    }
    let mut due = None;
    let mut at = schedule.after(since);
    for _ in 0..MISSED_MAX {
        let Some(next) = at.filter(|next| *next <= context.now) else { break };
        due = Some(next);
        at = schedule.after(next);
    }
    if let Some(next) = schedule.after(context.now) {
        outcome.again(next);
    }
    let Some(due) = due else { return };
    let name = format!("{}-{}", context.key.name, due.as_second() / 60);
    let key = Key { resource: JOBS, namespace: Arc::clone(&context.key.namespace), name: name.as_str().into() };
    if context.world.get(&key).is_some() {
        new["status"]["lastScheduleTime"] = time_text(due).into();
        return;
    }
    let working: Vec<&(Key, Uid, Value)> = jobs.iter().filter(|(_, _, job)| ended(job).is_none()).collect();
    match text(new, "/spec/concurrencyPolicy") {
        "Forbid" if !working.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return outcome.tell(Event::normal(context.key, BY, "JobAlreadyActive", message.to_owned()));
        }
        "Replace" => working.iter().for_each(|(key, uid, _)| delete(context, key, *uid, outcome)),
        _ => {}
    }
    let report = Report {
        done: Event::normal(context.key, BY, "SuccessfulCreate", "Created job {}".to_owned()),
        failed: Event::warning(context.key, BY, "FailedCreate", "Error creating job: {}".to_owned()),
    };
    outcome.create_telling(JOBS, &context.key.namespace, job_of(new, &name, due), Some(report));
    new["status"]["lastScheduleTime"] = time_text(due).into();
}

/// A job of the template.
pub(super) fn job_of(cron: &Value, name: &str, due: Timestamp) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let mut metadata = json!({"name": name, "namespace": cron["metadata"]["namespace"]});
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert("batch.kubernetes.io/cronjob-scheduled-timestamp".to_owned(), time_text(due).into());
    metadata["annotations"] = annotations.into();
    metadata["ownerReferences"] = json!([controller_reference(cron)]);
    json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata, "spec": template["spec"]})
}
