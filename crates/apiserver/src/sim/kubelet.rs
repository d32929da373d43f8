//! The kubelets: pods live without any machine.
//!
//! A pod's annotation `kubefold.io/sim` says what shall go wrong: `crash`, `oom`, `fail`, `image`, `unready`, `hang`;
//! `run=20s` how long a pod that ends lives.

mod hand;
pub(super) mod status;

use jiff::Timestamp;
use serde_json::Value;

use self::{
    hand::{BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Hand, Script, pull_failure},
    status::ContainerState,
};
use super::{
    action::{Action, Event, Outcome},
    context::Context,
    fields::{annotation, count, items, later, number, seconds_later, text, time},
    names::{Dice, hash},
    view::{Entry, Phase, SCRIPT},
};

const BY: &str = "kubelet";
/// Seconds that a container runs before it crashes.
const CRASH_SECONDS: i64 = 3;

fn script(tree: &Value) -> Script {
    match annotation(tree, SCRIPT) {
        "crash" => Script::Crash { code: 1, reason: "Error" },
        "oom" => Script::Crash { code: 137, reason: "OOMKilled" },
        "fail" => Script::Fail,
        "image" => Script::Image,
        "unready" => Script::Unready,
        "hang" => Script::Hang,
        _ if items(tree, "/spec/containers").iter().any(|container| is_bad_image(text(container, "/image"))) => {
            Script::Image
        }
        _ => Script::Fine,
    }
}

/// An image whose name says that it is not there.
fn is_bad_image(image: &str) -> bool {
    ["does-not-exist", "doesnotexist", "no-such-image", "nonexistent", "invalid-image", "typo"]
        .iter()
        .any(|word| image.contains(word))
}

/// Looks after a pod that has a node.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let pod = entry.pod()?;
    let node = pod.node.as_ref()?;
    // What most looks find: it runs and goes on running.
    if !entry.deleting && (pod.finished() || pod.phase == Phase::Running && pod.ready && pod.restarts && !pod.scripted)
    {
        return (context.world.node(node).is_none()).then(|| lost(context, entry));
    }
    let tree = context.world.tree(context.key)?;
    if context.world.node(node).is_none() {
        return Some(lost(context, entry));
    }
    let script = script(&tree);
    let dice = Dice::new(context.settings.seed ^ hash(text(&tree, "/metadata/uid").as_bytes()), "kubelet");
    let mut hand = Hand { context, pod, tree, script, dice, outcome: Outcome::default() };
    if entry.deleting {
        hand.end(entry);
    } else {
        hand.live();
    }
    Some(hand.outcome)
}

/// Its node is gone.
fn lost(context: &Context<'_>, entry: &Entry) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.actions.push(Action::Delete {
        key: context.key.clone(),
        uid: entry.uid,
        propagation: None,
        grace: Some(0),
        report: None,
    });
    outcome
}

impl Hand<'_> {
    fn node(&self) -> &str {
        self.pod.node.as_deref().unwrap_or_default()
    }

    fn containers(&self) -> Vec<(String, String)> {
        let of = |container: &Value| (text(container, "/name").to_owned(), text(container, "/image").to_owned());
        items(&self.tree, "/spec/containers").iter().map(of).collect()
    }

    fn tell(&mut self, warning: bool, container: &str, reason: &'static str, message: String) {
        let mut event = Event::normal(self.context.key, BY, reason, message);
        event.warning = warning;
        let container = Some(container).filter(|container| !container.is_empty());
        let event = event.at(container, self.node());
        self.outcome.tell(event);
    }

    fn write(&mut self, told: &ContainerState) {
        let status = told.status(self);
        let mut tree = self.tree.clone();
        tree["status"] = status;
        self.outcome.update_status(self.context.key, tree);
    }

    fn end(&mut self, entry: &Entry) {
        let grace = number(&self.tree, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let Some(deadline) = time(&self.tree, "/metadata/deletionTimestamp") else { return };
        if grace == 0 && entry.finalized && (self.pod.finished() || !self.pod.started) {
            return;
        }
        let asked = seconds_later(deadline, -grace);
        let takes = self.dice.between(700, 2200).min(grace * 1000);
        let end = later(asked, takes).min(deadline);
        let is_running = self.pod.phase == Phase::Running;
        if end > self.context.now {
            if is_running {
                for (name, _) in self.containers() {
                    self.tell(false, &name, "Killing", format!("Stopping container {name}"));
                }
            }
            self.outcome.again(end);
            return;
        }
        if entry.finalized && !self.pod.finished() {
            return self.write(&ContainerState::Ended { code: 137, reason: "Error", failed: true });
        }
        let (key, uid) = (self.context.key.clone(), entry.uid);
        self.outcome.actions.push(Action::Delete { key, uid, propagation: None, grace: Some(0), report: None });
    }

    fn live(&mut self) {
        if !self.pod.started {
            return self.take();
        }
        let Some(start) = time(&self.tree, "/status/startTime") else { return };
        let (from, to) = self.context.settings.pull_ms;
        let pull = self.dice.between(from, to.max(from + 1));
        let began = later(start, pull);
        match self.pod.phase {
            Phase::Pending => self.start(began, pull),
            Phase::Running => self.run(),
            Phase::Succeeded | Phase::Failed => {}
        }
    }

    /// The kubelet sees the pod for the first time.
    fn take(&mut self) {
        self.write(&ContainerState::Creating);
        if self.script != Script::Hang {
            for (name, image) in self.containers() {
                self.tell(false, &name, "Pulling", format!("Pulling image \"{image}\""));
            }
        }
        self.outcome.again(self.context.now);
    }

    fn start(&mut self, began: Timestamp, pull: i64) {
        if self.script == Script::Hang {
            return;
        }
        if began > self.context.now {
            return self.outcome.again(began);
        }
        if self.script == Script::Image {
            return self.bad_image();
        }
        for (name, image) in self.containers() {
            let (seconds, size) = (format!("{}ms", pull.max(1)), 8_000_000 + hash(image.as_bytes()) % 180_000_000);
            let took = format!("in {seconds} ({seconds} including waiting)");
            let message = format!("Successfully pulled image \"{image}\" {took}. Image size: {size} bytes.");
            self.tell(false, &name, "Pulled", message);
            self.tell(false, &name, "Created", "Container created".to_owned());
            self.tell(false, &name, "Started", "Container started".to_owned());
        }
        let ready = self.script == Script::Fine && self.readiness_ms() == 0;
        self.write(&ContainerState::Running { ready, started: self.context.now });
    }

    fn bad_image(&mut self) {
        let reason = text(&self.tree, "/status/containerStatuses/0/state/waiting/reason").to_owned();
        if reason == "ImagePullBackOff" {
            return;
        }
        let start = time(&self.tree, "/status/startTime").unwrap_or(self.context.now);
        let at = later(start, self.context.settings.pull_ms.1 + 1000 * BACKOFF_SECONDS);
        if reason == "ErrImagePull" && at > self.context.now {
            return self.outcome.again(at);
        }
        for (name, image) in self.containers() {
            if reason == "ErrImagePull" {
                self.tell(false, &name, "BackOff", format!("Back-off pulling image \"{image}\""));
                self.tell(true, &name, "Failed", "Error: ImagePullBackOff".to_owned());
            } else {
                let cause = pull_failure(&image);
                self.tell(true, &name, "Failed", format!("Failed to pull image \"{image}\": {cause}"));
                self.tell(true, &name, "Failed", "Error: ErrImagePull".to_owned());
            }
        }
        let next = if reason == "ErrImagePull" { "ImagePullBackOff" } else { "ErrImagePull" };
        self.write(&ContainerState::Waiting { reason: next });
    }

    fn run(&mut self) {
        match self.script {
            Script::Crash { code, reason } => return self.crash(code, reason),
            Script::Unready if !self.pod.ready => return self.unready(),
            Script::Fail => return self.finish(1, "Error"),
            _ => {}
        }
        if !self.pod.ready {
            let since = self.running_since();
            let at = later(since, self.readiness_ms());
            if at > self.context.now {
                return self.outcome.again(at);
            }
            return self.write(&ContainerState::Running { ready: true, started: since });
        }
        if !self.pod.restarts {
            self.finish(0, "Completed");
        }
    }

    fn running_since(&self) -> Timestamp {
        time(&self.tree, "/status/containerStatuses/0/state/running/startedAt").unwrap_or(self.context.now)
    }

    /// Milliseconds until the readiness probe finds it ready.
    fn readiness_ms(&self) -> i64 {
        let probes =
            items(&self.tree, "/spec/containers").iter().filter_map(|container| container.get("readinessProbe"));
        let longest = probes.map(|probe| 1000 * count(probe, "/initialDelaySeconds") + 1000).max();
        longest.unwrap_or(0)
    }

    fn unready(&mut self) {
        for (name, _) in self.containers() {
            let message = "Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned();
            self.tell(true, &name, "Unhealthy", message);
        }
        self.outcome.again(seconds_later(self.context.now, BACKOFF_SECONDS_MAX));
    }

    /// A pod that is to end does so after a while.
    fn finish(&mut self, code: i64, reason: &'static str) {
        let millis = self.run_ms();
        let at = later(self.running_since(), millis);
        if at > self.context.now {
            return self.outcome.again(at);
        }
        if code != 0 && (self.pod.restarts || text(&self.tree, "/spec/restartPolicy") == "OnFailure") {
            return self.crash(code, reason);
        }
        self.write(&ContainerState::Ended { code, reason, failed: code != 0 });
    }

    fn run_ms(&mut self) -> i64 {
        let said = annotation(&self.tree, SCRIPT).strip_prefix("run=").and_then(|text| text.strip_suffix('s'));
        let said = said.and_then(|text| text.parse::<i64>().ok()).map(|seconds| seconds * 1000);
        let words = ["command", "args"].map(|field| self.tree["spec"]["containers"][0][field].to_string());
        let slept = words.iter().find_map(|words| {
            let (_, after) = words.split_once("sleep")?;
            let digits: String =
                after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            digits.parse::<i64>().ok().map(|seconds| seconds * 1000)
        });
        let usual = self.dice.between(3000, 9000);
        said.or(slept).unwrap_or(usual)
    }

    fn crash(&mut self, code: i64, reason: &'static str) {
        let status = self.tree["status"]["containerStatuses"][0].clone();
        let restarts = u32::try_from(count(&status, "/restartCount")).unwrap_or(0);
        if status["state"]["running"].is_object() {
            let at = seconds_later(self.running_since(), CRASH_SECONDS);
            if at > self.context.now && self.script != Script::Fail {
                return self.outcome.again(at);
            }
            if !self.pod.restarts && text(&self.tree, "/spec/restartPolicy") != "OnFailure" {
                return self.write(&ContainerState::Ended { code, reason, failed: true });
            }
            let pod = format!("{}_{}", self.context.key.name, self.context.key.namespace);
            let uid = text(&self.tree, "/metadata/uid").to_owned();
            for (name, _) in self.containers() {
                let message = format!("Back-off restarting failed container {name} in pod {pod}({uid})");
                self.tell(true, &name, "BackOff", message);
            }
            return self.write(&ContainerState::Crashed { code, reason });
        }
        let ended = time(&status, "/lastState/terminated/finishedAt").unwrap_or(self.context.now);
        let wait = (BACKOFF_SECONDS << restarts.min(8)).min(BACKOFF_SECONDS_MAX);
        let at = seconds_later(ended, wait);
        if at > self.context.now {
            return self.outcome.again(at);
        }
        for (name, image) in self.containers() {
            let message = format!("Container image \"{image}\" already present on machine");
            self.tell(false, &name, "Pulled", message);
            self.tell(false, &name, "Created", "Container created".to_owned());
            self.tell(false, &name, "Started", "Container started".to_owned());
        }
        self.write(&ContainerState::Restarted);
    }
}
