//! The pods of one owner, made one after another of one model.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Place;
use crate::sim::{
    fields::{address, items, later, seconds_later, text, time_text},
    kubelet::status::{container_id, image_id},
    names::Dice,
};

/// How a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Running,
    Crashing,
    NoImage,
    Unassigned,
    Succeeded,
}

impl Health {
    pub(super) fn is_ready(self) -> bool {
        self == Self::Running
    }
}

/// One pod to be made.
#[derive(Clone, Debug)]
pub(super) struct One {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) place: usize,
    pub(super) address: u32,
    pub(super) age: i64,
    pub(super) health: Health,
    /// Fields to be set in it, by their JSON pointers.
    pub(super) set: Vec<(&'static str, Value)>,
}

/// The pods of one owner.
pub(super) struct Batch {
    /// A pod as its template and a server's defaults make it.
    pub(super) model: Value,
    pub(super) pods: Vec<One>,
    pub(super) places: Arc<[Place]>,
    pub(super) now: Timestamp,
}

/// What a scheduler says of pods that want a node that nobody has.
pub(super) fn unassigned_words(nodes: usize) -> String {
    format!(
        "0/{nodes} nodes are available: {nodes} node(s) didn't match Pod's node affinity/selector. no new claims to \
         deallocate, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )
}

impl Batch {
    pub(super) fn pods(&self) -> impl Iterator<Item = Value> + Send {
        self.pods.iter().map(|one| self.pod(one))
    }

    pub(super) fn pod(&self, one: &One) -> Value {
        let mut pod = self.model.clone();
        let began = seconds_later(self.now, -one.age);
        pod["metadata"]["name"] = one.name.as_str().into();
        pod["metadata"]["uid"] = one.uid.as_str().into();
        pod["metadata"]["creationTimestamp"] = time_text(began).into();
        for (pointer, value) in &one.set {
            set(&mut pod, pointer, value.clone());
        }
        match one.health {
            Health::Crashing => script(&mut pod, "crash"),
            Health::NoImage => script(&mut pod, "image"),
            _ => {}
        }
        let place = self.places.get(one.place % self.places.len().max(1));
        if let Some(place) = place.filter(|_| one.health != Health::Unassigned) {
            pod["spec"]["nodeName"] = place.name.as_str().into();
        }
        pod["status"] = self.status(one, &pod, place, began);
        pod
    }

    fn status(&self, one: &One, pod: &Value, place: Option<&Place>, began: Timestamp) -> Value {
        let generation = &pod["metadata"]["generation"];
        let (took, up) = (time_text(began), time_text(later(began, 4000)));
        let condition = |kind: &str, holds: bool, since: &str| {
            let status = if holds { "True" } else { "False" };
            let mut condition =
                json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
            if !generation.is_null() {
                condition["observedGeneration"] = generation.clone();
            }
            condition
        };
        let qos = pod["status"]["qosClass"].as_str().unwrap_or("Burstable");
        if one.health == Health::Unassigned {
            let mut unassigned = condition("PodScheduled", false, &took);
            unassigned["reason"] = "Unschedulable".into();
            unassigned["message"] = unassigned_words(self.places.len()).into();
            return json!({"phase": "Pending", "conditions": [unassigned], "qosClass": qos});
        }
        let (ready, ended) = (one.health.is_ready(), one.health == Health::Succeeded);
        let names: Vec<&str> =
            items(pod, "/spec/containers").iter().map(|container| text(container, "/name")).collect();
        let dress = |mut condition: Value| {
            if ended {
                condition["reason"] = "PodCompleted".into();
            } else if !ready {
                condition["reason"] = "ContainersNotReady".into();
                condition["message"] = format!("containers with unready status: [{}]", names.join(" ")).into();
            }
            condition
        };
        let conditions = [
            condition("PodReadyToStartContainers", !ended, &up),
            condition("Initialized", true, &took),
            dress(condition("Ready", ready, &up)),
            dress(condition("ContainersReady", ready, &up)),
            condition("PodScheduled", true, &took),
        ];
        let phase = match one.health {
            Health::NoImage => "Pending",
            Health::Succeeded => "Succeeded",
            _ => "Running",
        };
        let containers = items(pod, "/spec/containers").iter().map(|container| self.container(one, container, &up));
        let containers: Vec<Value> = containers.collect();
        let host = place.map(|place| place.address.as_str()).unwrap_or_default();
        let address = if pod["spec"]["hostNetwork"] == true {
            host.to_owned()
        } else {
            address([10, 244, 0, 0], one.address).to_string()
        };
        let mut status = json!({
            "phase": phase, "conditions": conditions, "hostIP": host, "hostIPs": [{"ip": host}], "podIP": address,
            "podIPs": [{"ip": address}], "startTime": took, "containerStatuses": containers, "qosClass": qos,
        });
        if !generation.is_null() {
            status["observedGeneration"] = generation.clone();
        }
        status
    }

    fn container(&self, one: &One, container: &Value, up: &str) -> Value {
        let (name, image) = (text(container, "/name"), text(container, "/image"));
        let mut dice = Dice::new(crate::sim::names::hash(one.uid.as_bytes()), name);
        // Now and then one of them was restarted.
        let restarts = match one.health {
            Health::Crashing => dice.between(6, 240),
            Health::Running if dice.below(20) == 0 => dice.between(1, 4),
            _ => 0,
        };
        let id = container_id(&one.uid, name, restarts);
        let ended = |code: i64, reason: &str, at: i64| {
            let (from, to) = (seconds_later(self.now, -at - 3), seconds_later(self.now, -at));
            json!({
                "exitCode": code, "reason": reason, "startedAt": time_text(from), "finishedAt": time_text(to), "containerID": id,
            })
        };
        let (state, last) = match one.health {
            Health::Crashing => {
                let pod = format!("{}({})", one.name, one.uid);
                let message = format!("back-off 5m0s restarting failed container={name} pod={pod}");
                let at = dice.between(1, 290);
                let last = json!({"terminated": ended(1, "Error", at)});
                (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), last)
            }
            Health::NoImage => {
                let message = format!("Back-off pulling image \"{image}\"");
                (json!({"waiting": {"reason": "ImagePullBackOff", "message": message}}), json!({}))
            }
            Health::Succeeded => (json!({"terminated": ended(0, "Completed", one.age - 30)}), json!({})),
            _ if restarts > 0 => {
                let at = dice.between(3600, one.age.max(3700));
                let since = time_text(seconds_later(self.now, -at));
                (json!({"running": {"startedAt": since}}), json!({"terminated": ended(137, "OOMKilled", at)}))
            }
            _ => (json!({"running": {"startedAt": up}}), json!({})),
        };
        let runs = one.health.is_ready();
        let mut status = json!({
            "name": name, "state": state, "lastState": last, "ready": runs, "restartCount": restarts,
            "image": image, "imageID": "", "started": runs,
        });
        if one.health != Health::NoImage {
            status["imageID"] = image_id(image).into();
            status["containerID"] = id.into();
        }
        status
    }
}

fn script(pod: &mut Value, script: &str) {
    crate::sim::fields::annotate(pod, crate::sim::view::SCRIPT, script);
}

fn set(pod: &mut Value, pointer: &str, value: Value) {
    let Some((above, field)) = pointer.rsplit_once('/') else { return };
    if let Some(above) = pod.pointer_mut(above).and_then(Value::as_object_mut) {
        above.insert(field.to_owned(), value);
    }
}
