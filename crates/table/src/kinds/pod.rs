//! Pods.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Error;

use crate::{
    cells::Cells,
    duration::parse_time,
    object::{Count, List, Object, Text},
};

const SUCCEEDED: &str = "{\"type\":\"Completed\",\"status\":\"True\",\"reason\":\"Succeeded\",\"message\":\"The pod has \
                         completed successfully.\"}";
const FAILED: &str =
    "{\"type\":\"Completed\",\"status\":\"True\",\"reason\":\"Failed\",\"message\":\"The pod failed.\"}";

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Pod<'a> {
    spec: Spec<'a>,
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    containers: Count,
    init_containers: List<InitContainer<'a>>,
    node_name: Text<'a>,
    readiness_gates: List<Gate<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct InitContainer<'a> {
    name: Text<'a>,
    restart_policy: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Gate<'a> {
    condition_type: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Status<'a> {
    phase: Text<'a>,
    reason: Text<'a>,
    conditions: List<Condition<'a>>,
    #[serde(rename = "podIP")]
    pod_ip: Text<'a>,
    nominated_node_name: Text<'a>,
    init_container_statuses: List<ContainerStatus<'a>>,
    container_statuses: List<ContainerStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ContainerStatus<'a> {
    name: Text<'a>,
    ready: bool,
    started: Option<bool>,
    restart_count: i64,
    state: State<'a>,
    last_state: State<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct State<'a> {
    waiting: Option<Waiting<'a>>,
    running: Option<IgnoredAny>,
    terminated: Option<Terminated<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Waiting<'a> {
    reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Terminated<'a> {
    exit_code: i64,
    signal: i64,
    reason: Text<'a>,
    finished_at: Text<'a>,
}

/// What the containers tell.
struct PodSummary {
    reason: String,
    restarts: i64,
    last_restart: Option<i64>,
    ready: i64,
    total: i64,
}

/// `printPod`
pub(super) fn pod(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Pod { spec, status } = object.read()?;
    let mut told = told(&spec, &status);
    let phase = status.phase.as_str();
    if object.is_deleting() {
        if status.reason.as_str() == "NodeLost" {
            "Unknown".clone_into(&mut told.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut told.reason);
        }
    }
    cells.conditions = match phase {
        "Succeeded" => Some(SUCCEEDED),
        "Failed" => Some(FAILED),
        _ => None,
    };
    cells.name();
    cells.print(format_args!("{}/{}", told.ready, told.total));
    cells.text(&told.reason);
    match told.last_restart.filter(|_| told.restarts != 0) {
        Some(last) => cells.print(format_args!("{} ({} ago)", told.restarts, cells.ago(last))),
        None => cells.print(format_args!("{}", told.restarts)),
    }
    cells.age();
    cells.text(status.pod_ip.or("<none>"));
    cells.text(spec.node_name.or("<none>"));
    cells.text(status.nominated_node_name.or("<none>"));
    if spec.readiness_gates.is_empty() {
        cells.text("<none>");
    } else {
        let is_true = |gate: &&Gate<'_>| status.is_true(gate.condition_type.as_str());
        let open = spec.readiness_gates.iter().filter(is_true).count();
        cells.print(format_args!("{open}/{}", spec.readiness_gates.len()));
    }
    Ok(())
}

fn told(spec: &Spec<'_>, status: &Status<'_>) -> PodSummary {
    let gated = |one: &Condition<'_>| one.type_.as_str() == "PodScheduled" && one.reason.as_str() == "SchedulingGated";
    let reason =
        if status.conditions.iter().any(gated) { "SchedulingGated" } else { status.reason.or(status.phase.as_str()) };
    let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar()).count();
    let total = spec.containers.0 + i64::try_from(sidecars).unwrap_or_default();
    let mut told = PodSummary { reason: reason.to_owned(), restarts: 0, last_restart: None, ready: 0, total };
    let mut of_sidecars = (0, None);
    let initializing = told.initializing(spec, status, &mut of_sidecars);
    if !initializing || status.is_true("Initialized") {
        (told.restarts, told.last_restart) = of_sidecars;
        told.running(status);
    }
    told
}

impl PodSummary {
    /// Walks the init containers up to the one that is at work, if one is.
    fn initializing(&mut self, spec: &Spec<'_>, status: &Status<'_>, of_sidecars: &mut (i64, Option<i64>)) -> bool {
        for (at, container) in status.init_container_statuses.iter().enumerate() {
            let named = spec.init_containers.iter().rfind(|one| one.name == container.name);
            let is_sidecar = named.is_some_and(InitContainer::is_sidecar);
            let ended = container.last_ended();
            self.restarts += container.restart_count;
            self.last_restart = self.last_restart.max(ended);
            if is_sidecar {
                of_sidecars.0 += container.restart_count;
                of_sidecars.1 = of_sidecars.1.max(ended);
            }
            let waiting = container.state.waiting.as_ref().map(|waiting| waiting.reason.as_str());
            self.reason = match (&container.state.terminated, waiting) {
                (Some(terminated), _) if terminated.exit_code == 0 => continue,
                _ if is_sidecar && container.started == Some(true) => {
                    self.ready += i64::from(container.ready);
                    continue;
                }
                (Some(terminated), _) => format!("Init:{}", terminated.text()),
                (None, Some(reason)) if !reason.is_empty() && reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{at}/{}", spec.init_containers.len()),
            };
            return true;
        }
        false
    }

    /// Walks the containers, the last one first, so that the first one has the last word.
    fn running(&mut self, status: &Status<'_>) {
        let (mut has_running, mut failure) = (false, None);
        for container in status.container_statuses.iter().rev() {
            self.restarts += container.restart_count;
            self.last_restart = self.last_restart.max(container.last_ended());
            let state = &container.state;
            match (&state.waiting, &state.terminated) {
                (Some(waiting), _) if !waiting.reason.is_empty() => {
                    waiting.reason.as_str().clone_into(&mut self.reason);
                }
                (_, Some(terminated)) => {
                    self.reason = terminated.text();
                    if terminated.exit_code != 0 {
                        failure = Some(self.reason.clone());
                    }
                }
                _ if container.ready && state.running.is_some() => {
                    has_running = true;
                    self.ready += 1;
                }
                _ => {}
            }
        }
        if self.reason == "Completed" {
            // A pod of which one container still runs is running.
            if has_running && status.is_true("Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if has_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

impl InitContainer<'_> {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_str() == "Always"
    }
}

impl Status<'_> {
    fn is_true(&self, type_: &str) -> bool {
        let found = self.conditions.iter().find(|condition| condition.type_.as_str() == type_);
        found.is_some_and(|condition| condition.status.as_str() == "True")
    }
}

impl ContainerStatus<'_> {
    fn last_ended(&self) -> Option<i64> {
        parse_time(self.last_state.terminated.as_ref()?.finished_at.as_str())
    }
}

impl Terminated<'_> {
    fn text(&self) -> String {
        if !self.reason.is_empty() {
            self.reason.0.to_string()
        } else if self.signal != 0 {
            format!("Signal:{}", self.signal)
        } else {
            format!("ExitCode:{}", self.exit_code)
        }
    }
}
