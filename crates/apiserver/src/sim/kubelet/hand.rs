//! A pod as its kubelet holds it.

use serde_json::{Value, json};

use crate::sim::{action::Outcome, context::Context, names::Dice, view::PodPart};

/// Seconds that a container waits after its first crash; they double.
pub(super) const BACKOFF_SECONDS: i64 = 10;
pub(super) const BACKOFF_SECONDS_MAX: i64 = 300;

/// What shall happen to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Fine,
    Crash { code: i64, reason: &'static str },
    Fail,
    Image,
    Unready,
    Hang,
}

/// A pod in the hands of its kubelet.
pub(super) struct Hand<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) pod: &'a PodPart,
    pub(super) tree: Value,
    pub(super) script: Script,
    pub(super) dice: Dice,
    pub(super) outcome: Outcome,
}

pub(super) fn pull_failure(image: &str) -> String {
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \
         \"{image}\": {image}: not found"
    )
}

/// A condition as kubelets write it.
pub(super) fn told_condition(kind: &str, holds: bool, since: Value, generation: &Value) -> Value {
    let mut condition = json!({
        "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null,
        "lastTransitionTime": since,
    });
    if !generation.is_null() {
        condition["observedGeneration"] = generation.clone();
    }
    condition
}
