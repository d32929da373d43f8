use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Options, Sim, TokioClock};
use crate::{
    kinds::{Allocator, Propagation, built_in},
    registry::{DeleteOptions, Env, ListOptions, Registry, WriteOptions},
    schema::builtin,
    storage::{Memory, StorageError, WatchItem},
};
use kubefold_wire::status::Status;

mod collecting;
mod seeds;
mod workloads;

const START: &str = "2026-03-01T12:00:00Z";

/// A cluster in which controllers live.
struct Town {
    registry: Registry,
    sim: Sim,
    changes: BoxStream<'static, Result<WatchItem, StorageError>>,
}

impl Town {
    /// A cluster of the usual namespaces and some nodes.
    async fn new(nodes: usize) -> Self {
        Self::seeded(7, nodes).await
    }

    async fn seeded(seed: u64, nodes: usize) -> Self {
        let clock = TokioClock::starting(START.parse().unwrap());
        let kinds = built_in(&builtin()).into_iter().map(Arc::new);
        let allocator = Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 16);
        let env = Env::seeded(seed, Arc::new(clock));
        let registry = Registry::new(Arc::new(Memory::default()), env, allocator, kinds);
        let mut sim = Sim::new(registry.clone(), Options { seed, ..Options::default() });
        let changes = sim.begin().await.unwrap();
        let mut town = Self { registry, sim, changes };
        for namespace in ["default", "kube-system", "kube-node-lease"] {
            town.create("namespaces", json!({"metadata": {"name": namespace}})).await.unwrap();
        }
        for node in 0..nodes {
            let name = format!("node-{node}");
            let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
            town.create("nodes", json!({"metadata": {"name": name, "labels": labels}})).await.unwrap();
        }
        town.live(1).await;
        town
    }

    fn now(&self) -> Timestamp {
        self.registry.env().now()
    }

    fn kind(&self, plural: &str) -> Arc<crate::kinds::Kind> {
        let catalog = self.registry.catalog();
        Arc::clone(catalog.kinds().iter().find(|kind| kind.plural == plural && kind.group != "events.k8s.io").unwrap())
    }

    /// Lets the time go on.
    async fn live(&mut self, seconds: i64) {
        let end = super::fields::seconds_later(self.now(), seconds);
        loop {
            self.sim.settle(&mut self.changes).await.unwrap();
            let next = self.sim.machine.due().unwrap_or(end).min(end);
            let wait = Duration::try_from(next - self.now()).unwrap_or_default();
            if wait.is_zero() && next >= end {
                return;
            }
            // The clock steps in milliseconds.
            tokio::time::advance(wait.max(Duration::from_millis(1))).await;
        }
    }

    async fn create(&self, plural: &str, object: Value) -> Result<Value, Status> {
        let kind = self.kind(plural);
        let namespace = match kind.namespaced {
            true => object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned(),
            false => String::new(),
        };
        let written = self.registry.create(&kind, &namespace, object, &WriteOptions::default()).await?;
        Ok(written.object.value())
    }

    async fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let kind = self.kind(plural);
        let namespace = if kind.namespaced { "default" } else { "" };
        self.registry.get(&kind, namespace, name).await.ok().map(|object| object.value())
    }

    async fn list(&self, plural: &str) -> Vec<Value> {
        let list = self.registry.list(&self.kind(plural), "default", &ListOptions::default()).await.unwrap();
        list.objects.iter().map(|object| object.value()).collect()
    }

    async fn names(&self, plural: &str) -> Vec<String> {
        self.list(plural).await.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn edit(&self, plural: &str, name: &str, mut edit: impl FnMut(&mut Value) + Send) -> Value {
        let kind = self.kind(plural);
        let namespace = if kind.namespaced { "default" } else { "" };
        let change = |object: &mut Value| {
            edit(object);
            Ok(())
        };
        let options = WriteOptions::default();
        self.registry.modify(&kind, namespace, name, &options, change).await.unwrap().object.value()
    }

    async fn delete(&self, plural: &str, name: &str, propagation: Propagation) {
        let kind = self.kind(plural);
        let namespace = if kind.namespaced { "default" } else { "" };
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        self.registry.delete(&kind, namespace, name, &options).await.unwrap();
    }

    /// Reasons and messages of the events about an object, in the order of their names.
    async fn told(&self, name: &str) -> Vec<String> {
        let events = self.list("events").await;
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        let mut told: Vec<(String, String)> = about
            .map(|event| {
                let words = format!("{}: {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap());
                (event["metadata"]["name"].as_str().unwrap().to_owned(), words)
            })
            .collect();
        told.sort();
        told.into_iter().map(|(_, words)| words).collect()
    }
}

fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": pod_template(name),
        },
    })
}

fn pod_template(name: &str) -> Value {
    let container =
        json!({"name": "app", "image": "nginx:1.27", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}})
}
