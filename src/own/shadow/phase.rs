//! Whether an object is ready: by what its kind says of itself, else by its conditions.
//!
//! The rules are those of kstatus (kubernetes-sigs/cli-utils `pkg/kstatus/status/core.go`, `generic.go`), in the words of a
//! ShadowResource.

use serde_json::Value;

use kubefold_wire::access::{items, number, text};

/// How far an item is. The order is that in which one of them decides for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Ready,
    Progressing,
    Unknown,
    Missing,
    Failed,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Progressing => "Progressing",
            Self::Unknown => "Unknown",
            Self::Missing => "Missing",
            Self::Failed => "Failed",
        }
    }

    pub(super) fn named(name: &str) -> Self {
        let all = [Self::Ready, Self::Progressing, Self::Missing, Self::Failed];
        all.into_iter().find(|phase| phase.name() == name).unwrap_or(Self::Unknown)
    }
}

/// How far an object is, and why it is not ready.
pub(super) fn of(object: &Value) -> (Phase, String) {
    let says = |phase, why: &str| (phase, why.to_owned());
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        return says(Phase::Progressing, "it is being deleted");
    }
    let generation = number(object, "/metadata/generation");
    if number(object, "/status/observedGeneration").is_some_and(|seen| generation.is_some_and(|now| seen < now)) {
        return says(Phase::Progressing, "its controller has not seen its last change");
    }
    match (text(object, "/apiVersion"), text(object, "/kind")) {
        ("v1", "Pod") => pod(object),
        ("apps/v1", "Deployment" | "ReplicaSet") => replicated(object, "readyReplicas", "/status/availableReplicas"),
        ("apps/v1", "StatefulSet") => replicated(object, "readyReplicas", "/status/readyReplicas"),
        ("apps/v1", "DaemonSet") => {
            let wanted = number(object, "/status/desiredNumberScheduled").unwrap_or_default();
            counted(wanted, number(object, "/status/numberReady").unwrap_or_default())
        }
        ("v1", "PersistentVolumeClaim") => match text(object, "/status/phase") {
            "Bound" => says(Phase::Ready, ""),
            "Lost" => says(Phase::Failed, "its volume is lost"),
            _ => says(Phase::Progressing, "it is not bound"),
        },
        ("v1", "Service") => {
            let waits = text(object, "/spec/type") == "LoadBalancer"
                && items(object, "/status/loadBalancer/ingress").is_empty();
            if waits { says(Phase::Progressing, "it has no address yet") } else { says(Phase::Ready, "") }
        }
        ("batch/v1", "Job") => job(object),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            by_condition(object, "Established").unwrap_or_else(|| says(Phase::Progressing, "it is not established yet"))
        }
        _ => generic(object),
    }
}

fn pod(object: &Value) -> (Phase, String) {
    match text(object, "/status/phase") {
        "Succeeded" => (Phase::Ready, String::new()),
        "Failed" => (Phase::Failed, said(text(object, "/status/message"), "it failed")),
        "Running" => {
            by_condition(object, "Ready").unwrap_or_else(|| (Phase::Progressing, "it is not ready".to_owned()))
        }
        _ => {
            let waiting = items(object, "/status/containerStatuses").iter().find_map(|container| {
                let reason = text(container, "/state/waiting/reason");
                (!reason.is_empty()).then(|| reason.to_owned())
            });
            (Phase::Progressing, waiting.unwrap_or_else(|| "it has not started".to_owned()))
        }
    }
}

fn job(object: &Value) -> (Phase, String) {
    match condition(object, "Failed") {
        Some(failed) if text(failed, "/status") == "True" => {
            return (Phase::Failed, said(text(failed, "/message"), "it failed"));
        }
        _ => {}
    }
    let is_done = condition(object, "Complete").is_some_and(|done| text(done, "/status") == "True");
    if is_done { (Phase::Ready, String::new()) } else { (Phase::Progressing, "it is not complete".to_owned()) }
}

fn replicated(object: &Value, ready: &str, available: &str) -> (Phase, String) {
    if let Some(progress) = condition(object, "Progressing")
        && text(progress, "/reason") == "ProgressDeadlineExceeded"
    {
        return (Phase::Failed, said(text(progress, "/message"), "it does not progress"));
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let updated = number(object, "/status/updatedReplicas");
    if updated.is_some_and(|updated| updated < wanted) {
        return (Phase::Progressing, format!("{} of {wanted} replicas are updated", updated.unwrap_or_default()));
    }
    let ready = number(object, &format!("/status/{ready}")).unwrap_or_default();
    counted(wanted, ready.min(number(object, available).unwrap_or_default()))
}

fn counted(wanted: i64, ready: i64) -> (Phase, String) {
    if ready >= wanted {
        (Phase::Ready, String::new())
    } else {
        (Phase::Progressing, format!("{ready} of {wanted} replicas are ready"))
    }
}

/// A kind that nothing is known of: what exists is ready, unless it says otherwise.
fn generic(object: &Value) -> (Phase, String) {
    if let Some(stalled) = condition(object, "Stalled").filter(|stalled| text(stalled, "/status") == "True") {
        return (Phase::Failed, said(text(stalled, "/message"), "it is stalled"));
    }
    if let Some(reconciling) = condition(object, "Reconciling").filter(|one| text(one, "/status") == "True") {
        return (Phase::Progressing, said(text(reconciling, "/message"), "it is being reconciled"));
    }
    ["Ready", "Available", "Established"]
        .into_iter()
        .find_map(|name| by_condition(object, name))
        .unwrap_or((Phase::Ready, String::new()))
}

fn by_condition(object: &Value, name: &str) -> Option<(Phase, String)> {
    let condition = condition(object, name)?;
    let why = said(text(condition, "/message"), text(condition, "/reason"));
    Some(match text(condition, "/status") {
        "True" => (Phase::Ready, String::new()),
        "False" => (Phase::Progressing, why),
        _ => (Phase::Progressing, said(&why, "its condition is not known")),
    })
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == name)
}

fn said(first: &str, else_: &str) -> String {
    if first.is_empty() { else_.to_owned() } else { first.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn phase(object: Value) -> Phase {
        of(&object).0
    }

    #[test]
    fn each_kind_says_itself_when_it_is_ready() {
        let pod = |phase: &str, ready: &str| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
        };
        assert_eq!(phase(pod("Running", "True")), Phase::Ready);
        assert_eq!(phase(pod("Running", "False")), Phase::Progressing);
        assert_eq!(phase(pod("Pending", "False")), Phase::Progressing);
        assert_eq!(phase(pod("Failed", "False")), Phase::Failed);
        assert_eq!(phase(pod("Succeeded", "False")), Phase::Ready);
        let deployment = |generation: i64, seen: i64, ready: i64, reason: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": generation},
                "spec": {"replicas": 3}, "status": {"observedGeneration": seen, "updatedReplicas": 3,
                "readyReplicas": ready, "availableReplicas": ready,
                "conditions": [{"type": "Progressing", "status": "True", "reason": reason}]}})
        };
        assert_eq!(phase(deployment(2, 2, 3, "NewReplicaSetAvailable")), Phase::Ready);
        assert_eq!(phase(deployment(2, 1, 3, "NewReplicaSetAvailable")), Phase::Progressing);
        assert_eq!(phase(deployment(2, 2, 1, "ReplicaSetUpdated")), Phase::Progressing);
        assert_eq!(phase(deployment(2, 2, 1, "ProgressDeadlineExceeded")), Phase::Failed);
        let job = |name: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": [{"type": name, "status": "True"}]}});
        assert_eq!(
            [job("Complete"), job("Failed"), job("Suspended")].map(phase),
            [Phase::Ready, Phase::Failed, Phase::Progressing]
        );
        let custom =
            |conditions: Value| json!({"apiVersion": "x/v1", "kind": "Redis", "status": {"conditions": conditions}});
        assert_eq!(phase(custom(json!([]))), Phase::Ready);
        assert_eq!(phase(custom(json!([{"type": "Ready", "status": "False"}]))), Phase::Progressing);
        assert_eq!(phase(custom(json!([{"type": "Stalled", "status": "True"}]))), Phase::Failed);
        let going =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(phase(going), Phase::Progressing);
        assert_eq!(phase(json!({"apiVersion": "v1", "kind": "ConfigMap"})), Phase::Ready);
    }

    #[test]
    fn a_name_is_a_phase_again() {
        for phase in [Phase::Ready, Phase::Progressing, Phase::Unknown, Phase::Missing, Phase::Failed] {
            assert_eq!(Phase::named(phase.name()), phase);
        }
    }
}
