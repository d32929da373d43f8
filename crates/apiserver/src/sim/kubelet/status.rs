//! What a kubelet says of a pod.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::hand::{BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Hand, pull_failure, told_condition};
use crate::sim::{
    fields::{address, condition, items, text, time_text},
    names::{hash, mixed},
};

/// Addresses of pods.
const ADDRESSES: u32 = 65_000;

/// What has become of a pod's containers.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContainerState {
    /// They are being made.
    Creating,
    /// They cannot be made.
    Waiting { reason: &'static str },
    /// They run.
    Running { ready: bool, started: Timestamp },
    /// They have ended, and are not started again before some time.
    Crashed { code: i64, reason: &'static str },
    /// They run again.
    Restarted,
    /// They have ended.
    Ended { code: i64, reason: &'static str, failed: bool },
}

impl ContainerState {
    fn ready(self) -> bool {
        match self {
            Self::Running { ready, .. } => ready,
            _ => false,
        }
    }

    pub(super) fn status(&self, hand: &Hand<'_>) -> Value {
        let before = &hand.tree["status"];
        let now = time_text(hand.context.now);
        let mut status = before.clone();
        if !status.is_object() {
            status = json!({});
        }
        let generation = hand.tree["metadata"].get("generation").cloned().unwrap_or_default();
        if !generation.is_null() {
            status["observedGeneration"] = generation.clone();
        }
        status["phase"] = match self {
            Self::Creating | Self::Waiting { .. } => "Pending",
            Self::Ended { failed: true, .. } => "Failed",
            Self::Ended { .. } => "Succeeded",
            _ => "Running",
        }
        .into();
        status["conditions"] = self.conditions(hand, &generation).into();
        let node = hand.pod.node.as_ref().and_then(|node| hand.context.world.node(node));
        let host = node.map(|node| node.address.clone()).unwrap_or_default();
        status["hostIP"] = host.as_str().into();
        status["hostIPs"] = json!([{"ip": host}]);
        if !matches!(self, Self::Creating) {
            let ip = before["podIP"].as_str().map_or_else(|| free_address(hand, &host), str::to_owned);
            status["podIPs"] = json!([{"ip": ip}]);
            status["podIP"] = ip.into();
        }
        if status["startTime"].is_null() {
            status["startTime"] = now.into();
        }
        let containers = items(&hand.tree, "/spec/containers").iter().enumerate();
        let statuses: Vec<Value> =
            containers.map(|(place, container)| self.container(hand, place, container)).collect();
        status["containerStatuses"] = statuses.into();
        let init = items(&hand.tree, "/spec/initContainers");
        if !init.is_empty() && !matches!(self, Self::Creating | Self::Waiting { .. }) {
            let statuses: Vec<Value> = init.iter().map(|container| self.init(hand, container)).collect();
            status["initContainerStatuses"] = statuses.into();
        }
        status
    }

    fn conditions(self, hand: &Hand<'_>, generation: &Value) -> Vec<Value> {
        let before = items(&hand.tree, "/status/conditions");
        let now: Value = time_text(hand.context.now).into();
        let begun = !matches!(self, Self::Creating);
        let ended = matches!(self, Self::Ended { .. });
        let has_init = !items(&hand.tree, "/spec/initContainers").is_empty();
        let initialized = begun && !matches!(self, Self::Waiting { .. }) || !has_init;
        let wanted = [
            ("PodReadyToStartContainers", begun && !ended),
            ("Initialized", initialized),
            ("Ready", self.ready()),
            ("ContainersReady", self.ready()),
            ("PodScheduled", true),
        ];
        let names: Vec<&str> = items(&hand.tree, "/spec/containers").iter().map(|c| text(c, "/name")).collect();
        wanted
            .into_iter()
            .map(|(kind, holds)| {
                let old = condition(before, kind);
                let kept = old.filter(|old| (old["status"] == "True") == holds);
                let since = kept.map_or_else(|| now.clone(), |old| old["lastTransitionTime"].clone());
                let mut condition = told_condition(kind, holds, since, generation);
                let is_ready = matches!(kind, "Ready" | "ContainersReady");
                if matches!(self, Self::Ended { failed: false, .. }) && (is_ready || kind == "Initialized") {
                    condition["reason"] = "PodCompleted".into();
                } else if matches!(self, Self::Ended { .. }) && is_ready {
                    condition["reason"] = "PodFailed".into();
                } else if is_ready && !holds {
                    condition["reason"] = "ContainersNotReady".into();
                    condition["message"] = format!("containers with unready status: [{}]", names.join(" ")).into();
                }
                condition
            })
            .collect()
    }

    fn container(self, hand: &Hand<'_>, place: usize, container: &Value) -> Value {
        let (name, image) = (text(container, "/name"), text(container, "/image"));
        let before = &hand.tree["status"]["containerStatuses"][place];
        let restarts = before["restartCount"].as_i64().unwrap_or(0);
        let uid = text(&hand.tree, "/metadata/uid");
        let now = time_text(hand.context.now);
        let began = before["state"]["running"]["startedAt"].clone();
        let id = |restarts: i64| container_id(uid, name, restarts);
        let ended = |code: i64, reason: &str| {
            let began = if began.is_string() { began.clone() } else { now.clone().into() };
            json!({"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now, "containerID": id(restarts)})
        };
        let last = if before["lastState"].is_object() { before["lastState"].clone() } else { json!({}) };
        let (state, last, restarts) = match self {
            Self::Creating => (json!({"waiting": {"reason": "ContainerCreating"}}), last, restarts),
            Self::Waiting { reason } => {
                let message = if reason == "ImagePullBackOff" {
                    format!("Back-off pulling image \"{image}\"")
                } else {
                    pull_failure(image)
                };
                (json!({"waiting": {"reason": reason, "message": message}}), last, restarts)
            }
            Self::Running { started, .. } => {
                let since = if began.is_string() { began.clone() } else { time_text(started).into() };
                (json!({"running": {"startedAt": since}}), last, restarts)
            }
            Self::Restarted => (json!({"running": {"startedAt": now}}), last, restarts + 1),
            Self::Crashed { code, reason } => {
                let wait = (BACKOFF_SECONDS << restarts.clamp(0, 8)).min(BACKOFF_SECONDS_MAX);
                let wait = if wait < 60 { format!("{wait}s") } else { format!("{}m{}s", wait / 60, wait % 60) };
                let pod = format!("{}_{}({uid})", hand.context.key.name, hand.context.key.namespace);
                let message = format!("back-off {wait} restarting failed container={name} pod={pod}");
                let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
                (waiting, json!({"terminated": ended(code, reason)}), restarts)
            }
            Self::Ended { code, reason, .. } => (json!({"terminated": ended(code, reason)}), last, restarts),
        };
        let runs = state["running"].is_object();
        let mut status = json!({
            "name": name, "state": state, "lastState": last, "ready": self.ready(), "restartCount": restarts,
            "image": image, "imageID": "", "started": runs,
        });
        if !matches!(self, Self::Creating | Self::Waiting { .. }) {
            status["imageID"] = image_id(image).into();
            status["containerID"] = id(restarts).into();
        }
        status
    }

    /// What runs before the containers has ended well; what runs beside them runs.
    fn init(self, hand: &Hand<'_>, container: &Value) -> Value {
        let (name, image) = (text(container, "/name"), text(container, "/image"));
        let id = container_id(text(&hand.tree, "/metadata/uid"), name, 0);
        let now = time_text(hand.context.now);
        let before = items(&hand.tree, "/status/initContainerStatuses");
        if let Some(before) = before.iter().find(|status| status["name"] == name) {
            return before.clone();
        }
        let beside = text(container, "/restartPolicy") == "Always";
        let state = if beside {
            json!({"running": {"startedAt": now}})
        } else {
            let ended =
                json!({"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now, "containerID": id});
            json!({"terminated": ended})
        };
        json!({
            "name": name, "state": state, "lastState": {}, "ready": true, "restartCount": 0, "image": image,
            "imageID": image_id(image), "containerID": id, "started": beside,
        })
    }
}

/// What a runtime calls a container.
pub(in crate::sim) fn container_id(uid: &str, name: &str, restarts: i64) -> String {
    let of = mixed(mixed(hash(uid.as_bytes()), name.as_bytes()), &restarts.to_be_bytes());
    format!("containerd://{}", digest(of))
}

/// What a runtime calls an image.
pub(in crate::sim) fn image_id(image: &str) -> String {
    format!("sha256:{}", digest(hash(image.as_bytes())))
}

fn digest(of: u64) -> String {
    let parts = (0..4_u64).map(|part| format!("{:016x}", mixed(of, &part.to_be_bytes())));
    parts.collect()
}

/// An address that no other pod has; the node's own for pods in its network.
fn free_address(hand: &Hand<'_>, host: &str) -> String {
    if hand.tree["spec"]["hostNetwork"] == true {
        return host.to_owned();
    }
    let first = u32::try_from(hash(text(&hand.tree, "/metadata/uid").as_bytes()) % u64::from(ADDRESSES)).unwrap_or(0);
    let range = hand.context.settings.pods;
    let mut places = (0..ADDRESSES).map(|step| address(range, 2 + (first + step) % ADDRESSES));
    let free = places.find(|address| !hand.context.world.has_address(*address));
    free.unwrap_or_else(|| address(range, 2)).to_string()
}
