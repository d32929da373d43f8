//! A believable cluster at once: namespaces, nodes, workloads with their pods, as controllers would have left them.
//!
//! What is cheap to work out (endpoints, leases, what each namespace has) is left to the controllers.

mod base;
mod pods;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    fields::{seconds_later, text, time_text},
    names::Dice,
};
use crate::{
    kinds::{Context, Kind},
    registry::Registry,
};
use kubefold_wire::status::Status;

/// What a cluster shall look like.
#[derive(Clone, Debug)]
pub struct Seed {
    /// What all choices follow from.
    pub seed: u64,
    /// About so many pods, those on every node among them.
    pub pods: usize,
    /// So many nodes; 0: as many as the pods need.
    pub nodes: usize,
    /// So many namespaces with workloads, beside Kubernetes' own; 0: as many as look good.
    pub namespaces: usize,
    /// What the nodes are called, such as `east`.
    pub name: String,
    /// The version of the nodes, such as `v1.36.3`.
    pub version: String,
    /// Such as `eu-west-1`; its zones are `eu-west-1a` and so on.
    pub region: String,
}

impl Default for Seed {
    fn default() -> Self {
        Self {
            seed: 0,
            pods: 40,
            nodes: 0,
            namespaces: 0,
            name: "node".to_owned(),
            version: "v1.36.3".to_owned(),
            region: "eu-west-1".to_owned(),
        }
    }
}

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seeded {
    /// Objects of all kinds.
    pub objects: usize,
    /// Pods among them.
    pub pods: usize,
}

/// Pods that a node has room for.
const PODS_PER_NODE: usize = 110;
/// Days that the cluster has lived.
const DAYS: i64 = 120;
/// Where people work.
const NAMESPACES: [&str; 8] =
    ["shop", "payments", "monitoring", "search", "media", "identity", "analytics", "logistics"];

/// Kinds of which a new server has some already.
const SELF_MADE: [&str; 2] = ["Namespace", "Service"];

/// Fills a registry that has nothing but what a server begins with.
///
/// Errors: it is not empty, or its storage is full.
pub async fn seed(registry: &Registry, seed: &Seed) -> Result<Seeded, Status> {
    let mut made = Seeded::default();
    let mut planner = Planner::new(registry, seed);
    planner.base();
    planner.workloads();
    let lots = std::mem::take(&mut planner.lots);
    for Lot { group, kind, objects } in lots {
        let Some(kind) = registry.kind(group, kind) else { continue };
        let mut new = Vec::with_capacity(objects.len());
        for object in objects {
            // A server makes some by itself: namespaces, the service of its API.
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            if !SELF_MADE.contains(&kind.kind.as_str()) || registry.get(&kind, namespace, name).await.is_err() {
                new.push(object);
            }
        }
        made.objects += registry.fill(&kind, new.into_iter()).await?;
    }
    let Some(kind) = registry.kind("", "Pod") else { return Ok(made) };
    let batches = std::mem::take(&mut planner.batches);
    for batch in &batches {
        let count = registry.fill(&kind, batch.pods()).await?;
        made.objects += count;
        made.pods += count;
    }
    Ok(made)
}

/// Objects of one kind.
struct Lot {
    group: &'static str,
    kind: &'static str,
    objects: Vec<Value>,
}

/// A node to put pods on.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    address: String,
}

/// Works out what to make.
struct Planner<'a> {
    registry: &'a Registry,
    seed: &'a Seed,
    now: Timestamp,
    dice: Dice,
    lots: Vec<Lot>,
    batches: Vec<pods::Batch>,
    places: Arc<[Place]>,
    /// The next address of a pod, and the next node.
    next_address: u32,
    /// How many addresses of services are given out.
    next_service: u32,
    next_place: usize,
    /// Pods so far.
    count: usize,
}

impl<'a> Planner<'a> {
    fn new(registry: &'a Registry, seed: &'a Seed) -> Self {
        let nodes = match seed.nodes {
            0 => (seed.pods / 60 + 2).max(3),
            nodes => nodes,
        };
        let place = |place: usize| Place {
            name: format!("{}-{:0width$}", seed.name, place + 1, width = nodes.to_string().len()),
            address: super::fields::address([172, 18, 0, 2], u32::try_from(place).unwrap_or(0)).to_string(),
        };
        Self {
            registry,
            seed,
            now: registry.env().now(),
            dice: Dice::new(seed.seed, "seed"),
            lots: Vec::new(),
            batches: Vec::new(),
            places: (0..nodes).map(place).collect(),
            next_address: 2,
            next_service: 0,
            next_place: 0,
            count: 0,
        }
    }

    fn add(&mut self, group: &'static str, kind: &'static str, objects: Vec<Value>) {
        self.lots.push(Lot { group, kind, objects });
    }

    /// A time so many seconds ago.
    fn ago(&self, seconds: i64) -> String {
        time_text(seconds_later(self.now, -seconds))
    }

    /// Seconds since some day after the cluster's beginning.
    fn age(&mut self) -> i64 {
        let days = self.dice.between(1, DAYS - 1);
        days * 86_400 + self.dice.between(0, 86_400)
    }

    /// Metadata of an object made so many seconds ago.
    fn metadata(&mut self, namespace: &str, name: &str, age: i64) -> Value {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        metadata["uid"] = self.dice.uid().into();
        metadata["creationTimestamp"] = self.ago(age).into();
        metadata
    }

    /// Fills in what a server does for a new object.
    fn defaulted(&self, group: &str, kind: &str, mut object: Value) -> Value {
        if let Some(kind) = self.registry.kind(group, kind) {
            let Kind { strategy, version, group, .. } = &*kind;
            object["kind"] = kind.kind.as_str().into();
            object["apiVersion"] = match group.as_str() {
                "" => version.as_str().into(),
                group => format!("{group}/{version}").into(),
            };
            strategy.default(&mut object);
            let status = object.get("status").cloned();
            let now = self.registry.env().now_text();
            let context = Context {
                caller: self.registry.caller(),
                now: &now,
                suffix: "",
                allocator: self.registry.allocator(),
                others: &[],
            };
            strategy.prepare_for_create(&mut object, context);
            crate::kinds::put(&mut object, "status", status);
        }
        object
    }
}
