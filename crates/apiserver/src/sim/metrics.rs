//! `metrics.k8s.io`: what simulated nodes and pods use, as an aggregated API of a cluster tells it.
//!
//! Source: kubernetes/metrics `pkg/apis/metrics/v1beta1/types.go`.

use std::{collections::HashMap, f64::consts::TAU};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    activity::Activity,
    fields::{items, later, seconds_later, text, time_text},
    names::{Dice, hash},
    pods::Containers,
};
use crate::{
    kinds::{Kind, Rest, Target},
    registry::{ListOptions, Registry},
    typed::{KindError, TypedKind},
};
use kubefold_wire::{quantity::Quantity, status::Status};

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// How often a metrics server measures, and over what time. Units: seconds.
const WINDOW_SECONDS: i64 = 15;
/// CPU of one request, spread over the time in which requests count. Units: thousandths of a core, and seconds.
const REQUEST_MILLIS: f64 = 4.0;
const BUSY_SECONDS: i64 = 60;
/// What a node uses for itself. Units: thousandths of a core, and bytes.
const NODE_MILLIS: f64 = 90.0;
const NODE_BYTES: f64 = 700e6;

/// Metrics of a node or a pod: the fields of both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Metrics {
    metadata: Value,
    timestamp: String,
    window: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The kinds of metrics of a cluster.
///
/// Errors: none but a mistake in their definitions.
pub fn metrics_kinds(registry: &Registry, containers: &Containers) -> Result<Vec<Kind>, KindError> {
    let usage = Usage { registry: registry.clone(), activity: containers.activity.clone() };
    let of = |kind: &str, plural: &str, scope: &str| {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Kind::defined::<Metrics>(json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{GROUP}"),
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/metrics"},
            },
            "spec": {
                "group": GROUP, "scope": scope,
                "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
            },
        }))
    };
    let nodes: TypedKind<Metrics> = of("NodeMetrics", "nodes", "Cluster").rest(Nodes(usage.clone()));
    let pods: TypedKind<Metrics> = of("PodMetrics", "pods", "Namespaced").rest(PodsUsage(usage));
    Ok([nodes.build()?, pods.build()?].concat())
}

struct Nodes(Usage);

impl Rest for Nodes {
    type Object = Metrics;
    const VERBS: &'static [&'static str] = &["get", "list"];

    async fn get(&self, target: &Target) -> Result<Option<Metrics>, Status> {
        let Self(usage) = self;
        Ok(usage.nodes().await?.into_iter().find(|node| text(&node.metadata, "/name") == target.name))
    }

    async fn list(&self, _: &Target) -> Result<Vec<Metrics>, Status> {
        let Self(usage) = self;
        usage.nodes().await
    }
}

struct PodsUsage(Usage);

impl Rest for PodsUsage {
    type Object = Metrics;
    const VERBS: &'static [&'static str] = &["get", "list"];

    async fn get(&self, target: &Target) -> Result<Option<Metrics>, Status> {
        let Self(usage) = self;
        let Some(kind) = usage.registry.kind("", "Pod") else { return Ok(None) };
        let pod = usage.registry.get(&kind, &target.namespace, &target.name).await;
        Ok(pod.ok().and_then(|pod| usage.pod(&pod.value(), usage.measured())))
    }

    async fn list(&self, target: &Target) -> Result<Vec<Metrics>, Status> {
        let Self(usage) = self;
        let at = usage.measured();
        Ok(usage.all("Pod", &target.namespace).await?.iter().filter_map(|pod| usage.pod(pod, at)).collect())
    }
}

/// What pods use. It follows from their names, the time, and the requests to them.
#[derive(Clone)]
struct Usage {
    registry: Registry,
    activity: Activity,
}

/// Units: thousandths of a core, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    millis: f64,
    bytes: f64,
}

impl Used {
    fn plus(self, other: Self) -> Self {
        Self { millis: self.millis + other.millis, bytes: self.bytes + other.bytes }
    }

    fn value(self) -> Value {
        let nanos = (self.millis * 1e6).round() as u64;
        let kibibytes = (self.bytes / 1024.0).round() as u64;
        json!({"cpu": format!("{nanos}n"), "memory": format!("{kibibytes}Ki")})
    }
}

impl Usage {
    /// The last time at which something was measured.
    fn measured(&self) -> Timestamp {
        let now = self.registry.env().now();
        later(now, -1000 * now.as_second().rem_euclid(WINDOW_SECONDS))
    }

    async fn all(&self, kind: &str, namespace: &str) -> Result<Vec<Value>, Status> {
        let Some(kind) = self.registry.kind("", kind) else { return Ok(Vec::new()) };
        let list = self.registry.list(&kind, namespace, &ListOptions::default()).await?;
        Ok(list.objects.iter().map(|object| object.value()).collect())
    }

    /// The metrics of a pod; `None`: it does not run, or not long enough.
    fn pod(&self, pod: &Value, at: Timestamp) -> Option<Metrics> {
        let containers: Vec<Value> = self
            .containers(pod, at)?
            .into_iter()
            .map(|(name, used)| json!({"name": name, "usage": used.value()}))
            .collect();
        let mut metadata = json!({"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]});
        if pod["metadata"]["labels"].is_object() {
            metadata["labels"] = pod["metadata"]["labels"].clone();
        }
        Some(metrics(metadata, at, "containers", containers.into()))
    }

    async fn nodes(&self) -> Result<Vec<Metrics>, Status> {
        let (at, pods) = (self.measured(), self.all("Pod", "").await?);
        let mut by_node: HashMap<&str, Used> = HashMap::new();
        for pod in &pods {
            let containers = self.containers(pod, at).into_iter().flatten();
            let used = containers.fold(Used::default(), |sum, (_, used)| sum.plus(used));
            let node = by_node.entry(text(pod, "/spec/nodeName")).or_default();
            *node = node.plus(used);
        }
        let metrics_of = |node: &Value| {
            let name = text(node, "/metadata/name");
            let own = Used { millis: NODE_MILLIS * wave(name, at), bytes: NODE_BYTES };
            let used = own.plus(by_node.get(name).copied().unwrap_or_default());
            let mut metadata = json!({"name": name});
            if node["metadata"]["labels"].is_object() {
                metadata["labels"] = node["metadata"]["labels"].clone();
            }
            metrics(metadata, at, "usage", used.value())
        };
        Ok(self.all("Node", "").await?.iter().map(metrics_of).collect())
    }

    fn containers<'p>(&self, pod: &'p Value, at: Timestamp) -> Option<Vec<(&'p str, Used)>> {
        if text(pod, "/status/phase") != "Running" {
            return None;
        }
        let uid = text(pod, "/metadata/uid");
        let requests = self.activity.after(uid, seconds_later(self.registry.env().now(), -BUSY_SECONDS)).len();
        let containers = items(pod, "/spec/containers").iter().enumerate();
        Some(
            containers
                .map(|(place, container)| {
                    let mut used = used(uid, container, at);
                    // The first of them answers requests.
                    used.millis += if place == 0 { requests as f64 * REQUEST_MILLIS } else { 0.0 };
                    (text(container, "/name"), used)
                })
                .collect(),
        )
    }
}

fn metrics(metadata: Value, at: Timestamp, field: &str, value: Value) -> Metrics {
    let rest = Map::from_iter([(field.to_owned(), value)]);
    Metrics { metadata, timestamp: time_text(at), window: format!("{WINDOW_SECONDS}s"), rest }
}

/// What a container uses without requests: a part of what it asks for, and never above its limit of memory.
fn used(uid: &str, container: &Value, at: Timestamp) -> Used {
    let name = text(container, "/name");
    let mut dice = Dice::new(hash(uid.as_bytes()), name);
    let amount = |field: &str| {
        let text = text(container, &format!("/resources/{field}"));
        Quantity::parse(text).ok().filter(|_| !text.is_empty())
    };
    let cpu = amount("requests/cpu").map_or_else(|| dice.between(2, 40) as f64, |cpu| cpu.milli_value() as f64);
    let memory =
        amount("requests/memory").map_or_else(|| dice.between(24, 160) as f64 * 1e6, |memory| memory.value() as f64);
    let limit = amount("limits/memory").map_or(f64::MAX, |limit| limit.value() as f64);
    let part = |dice: &mut Dice, from: i64, to: i64| dice.between(from, to) as f64 / 100.0;
    let (of_cpu, of_memory) = (part(&mut dice, 15, 80), part(&mut dice, 45, 95));
    let key = format!("{uid}/{name}");
    Used {
        millis: cpu * of_cpu * wave(&key, at),
        bytes: (memory * of_memory * (0.96 + 0.04 * wave(&key, at))).min(limit * 0.95),
    }
}

/// A number around 1 that moves within minutes, each name's in its own way.
fn wave(name: &str, at: Timestamp) -> f64 {
    let mut dice = Dice::new(hash(name.as_bytes()), "wave");
    let (period, phase) = (dice.between(240, 1200) as f64, dice.between(0, 1200) as f64);
    let jitter = Dice::new(hash(name.as_bytes()), &at.as_second().to_string()).between(-8, 9) as f64 / 100.0;
    1.0 + 0.3 * (TAU * (at.as_second().rem_euclid(86_400) as f64 + phase) / period).sin() + jitter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_moves_and_stays_below_limits() {
        let container = json!({"name": "app", "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "64Mi"}}});
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let all: Vec<Used> = (0..40).map(|step| used("uid", &container, at(step * 15))).collect();
        let millis = |used: &Used| used.millis;
        let (least, most) =
            (all.iter().map(millis).fold(f64::MAX, f64::min), all.iter().map(millis).fold(0.0, f64::max));
        assert!(least > 1.0 && most < 100.0 && most > least * 1.1, "{least} {most}");
        assert!(all.iter().all(|used| used.bytes <= 64.0 * 1024.0 * 1024.0), "{all:?}");
        assert_eq!(used("uid", &container, at(0)), all[0], "the same at every read");
        assert_ne!(used("other", &container, at(0)), all[0]);
    }
}
