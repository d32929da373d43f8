//! Deployments, jobs and their like.

use serde_json::{Value, json};

use super::{Doc, fill, fill_empty, inner};

pub(super) fn apply(name: &str, value: &mut Value) {
    match name {
        "Deployment" => deployment(value),
        "ReplicaSet" => {
            if let Some(spec) = inner(value, "spec") {
                fill(spec, "replicas", 1);
            }
        }
        "DaemonSet" => daemon_set(value),
        "StatefulSet" => stateful_set(value),
        "Job" => job(value),
        "CronJob" => {
            let Some(spec) = inner(value, "spec") else { return };
            fill_empty(spec, "concurrencyPolicy", "Allow");
            fill(spec, "suspend", false);
            fill(spec, "successfulJobsHistoryLimit", 3);
            fill(spec, "failedJobsHistoryLimit", 1);
        }
        "PodFailurePolicyOnPodConditionsPattern" => fill_empty(value, "status", "True"),
        _ => {}
    }
}

fn deployment(value: &mut Value) {
    let Some(spec) = inner(value, "spec") else { return };
    fill(spec, "replicas", 1);
    if let Some(strategy) = inner(spec, "strategy") {
        fill_empty(strategy, "type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", "25%");
            fill(rolling, "maxSurge", "25%");
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(value: &mut Value) {
    let Some(spec) = inner(value, "spec") else { return };
    if let Some(strategy) = inner(spec, "updateStrategy") {
        fill_empty(strategy, "type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", 1);
            fill(rolling, "maxSurge", 0);
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
}

fn stateful_set(value: &mut Value) {
    let Some(spec) = inner(value, "spec") else { return };
    fill_empty(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = inner(spec, "updateStrategy") {
        if strategy.text("type").is_empty() {
            fill_empty(strategy, "type", "RollingUpdate");
            fill(strategy, "rollingUpdate", json!({}));
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.get_mut("rollingUpdate")
        {
            fill(rolling, "partition", 0);
        }
    }
    if let Some(policy) = inner(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_empty(policy, "whenDeleted", "Retain");
        fill_empty(policy, "whenScaled", "Retain");
    }
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
}

fn job(value: &mut Value) {
    let labels = value.at("spec.template.metadata.labels").cloned();
    let Some(spec) = inner(value, "spec") else { return };
    if !spec.has("completions") && !spec.has("parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let limit = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    fill(spec, "backoffLimit", limit);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    fill(spec, "podReplacementPolicy", replacement);
    fill(spec, "manualSelector", false);
    if let (Some(labels), Some(metadata)) = (labels, inner(value, "metadata")) {
        fill_empty(metadata, "labels", labels);
    }
}
