//! The shell around the controllers: it tells them what happens and does what they decide.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use hashbrown::HashMap;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    action::Action,
    context::Settings,
    machine::{Machine, Refusal},
    resource::{Described, Resource},
    world::Key,
};
use crate::{
    kinds::{Kind, Propagation},
    registry::{Clock, DeleteOptions, Object, Part, Preconditions, Registry, WriteOptions},
    storage::{Range, Record, StorageError, WatchItem},
};
use kubefold_wire::status::{Reason, Status, qualified};

/// Seconds after which a storage that failed is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// The longest time that nothing is looked at.
const IDLE: Duration = Duration::from_secs(3600);

/// The time as tokio's clock tells it, from a beginning: it stands where that one is paused.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Timestamp,
    since: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows this time now.
    pub fn starting(start: Timestamp) -> Self {
        Self { start, since: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start.checked_add(self.since.elapsed()).unwrap_or(Timestamp::MAX)
    }
}

/// How workloads live.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all choices follow from.
    pub seed: u64,
    /// Milliseconds that an image takes, from and to.
    pub pull_ms: (i64, i64),
    /// Whether workloads live. Else namespaces live and garbage is collected, and nothing more: what a server needs whatever
    /// its kinds are.
    pub workloads: bool,
    /// Whether every namespace has the service account `default`.
    pub accounts: bool,
    /// The certificate authority (PEM) in the ConfigMap `kube-root-ca.crt` of every namespace. `None`: there is none.
    pub root_ca: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        let Settings { seed, pull_ms, workloads, accounts, root_ca, .. } = Settings::default();
        Self { seed, pull_ms, workloads, accounts, root_ca }
    }
}

/// The controllers of one cluster.
pub struct Sim {
    registry: Registry,
    settings: Settings,
    pub(super) machine: Machine,
    names: HashMap<String, Resource>,
    kinds: HashMap<Resource, Arc<Kind>>,
    epoch: u64,
    /// All changes up to this revision were told.
    seen: u64,
}

type Changes = BoxStream<'static, Result<WatchItem, StorageError>>;

impl Sim {
    /// Controllers of the objects of a registry.
    pub fn new(registry: Registry, options: Options) -> Self {
        let Options { seed, pull_ms, workloads, accounts, root_ca } = options;
        let settings = Settings { seed, pull_ms, workloads, accounts, root_ca, ..Settings::default() };
        let (names, kinds) = (HashMap::new(), HashMap::new());
        Self { registry, settings, machine: Machine::default(), names, kinds, epoch: 0, seen: 0 }
    }

    /// Lets the workloads live until it is cancelled.
    ///
    /// Cancel: safe at any time; it goes on from what is stored.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let live = Box::pin(self.live());
            let Some(failed) = stop.run_until_cancelled(live).await else { return };
            tracing::warn!(error = %failed, "the simulation restarts");
            let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }

    /// Goes on for ever.
    async fn live(&mut self) -> StorageError {
        let mut changes = match self.begin().await {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        loop {
            if let Err(error) = self.settle(&mut changes).await {
                return error;
            }
            let now = self.registry.env().now();
            let wait = self.machine.due().map_or(IDLE, |due| Duration::try_from(due - now).unwrap_or_default());
            // Times of a clock that stands are not reached by waiting for less than its smallest step.
            let wait = wait.clamp(Duration::from_millis(1), IDLE);
            tokio::select! {
                told = changes.next() => {
                    if let Err(error) = self.take(told) {
                        return error;
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Reads all that is there.
    pub(super) async fn begin(&mut self) -> Result<Changes, StorageError> {
        self.machine = Machine::new(self.settings.clone());
        self.epoch = 0;
        self.learn();
        let storage = Arc::clone(self.registry.storage());
        let page = storage.range(Range::default()).await?;
        for record in &page.records {
            if let Some(key) = self.key_of(&record.key) {
                self.machine.load(&key, record.revision, Object::of_record(record).shared());
            }
        }
        self.machine.begin();
        self.seen = page.revision;
        storage.watch("", page.revision).await
    }

    /// Does all that is to be done now.
    pub(super) async fn settle(&mut self, changes: &mut Changes) -> Result<(), StorageError> {
        loop {
            while let Some(told) = changes.next().now_or_never() {
                self.take(told)?;
            }
            let now = self.registry.env().now();
            let Some(action) = self.machine.next(now) else { return Ok(()) };
            match Box::pin(self.act(&action)).await {
                Ok((object, name)) => {
                    while self.seen < object {
                        let told = changes.next().await;
                        self.take(told)?;
                    }
                    self.machine.done(&action, &name);
                }
                Err(status) => {
                    tracing::debug!(message = %status.message, "a controller was refused");
                    self.machine.refused(&action, refusal(&status), &status.message, now);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn take(&mut self, told: Option<Result<WatchItem, StorageError>>) -> Result<(), StorageError> {
        let told = told.unwrap_or_else(|| Err(StorageError::Unavailable("the watch has ended".to_owned())))?;
        match told {
            WatchItem::Progress(revision) => self.seen = self.seen.max(revision),
            WatchItem::Change(change) => {
                self.seen = self.seen.max(change.revision);
                self.learn();
                let record = change.after.as_ref().or(change.before.as_ref());
                if let Some(key) = record.and_then(|record: &Record| self.key_of(&record.key)) {
                    let after = change.after.as_ref().map(Object::of_record);
                    self.machine.tell(&key, change.revision, after.as_ref().map(Object::shared));
                }
            }
        }
        Ok(())
    }

    /// Takes in the kinds that are served now.
    fn learn(&mut self) {
        let catalog = self.registry.catalog();
        if catalog.epoch() == self.epoch && !self.kinds.is_empty() {
            return;
        }
        self.epoch = catalog.epoch();
        for kind in catalog.kinds() {
            // One that is stored as another's is no resource of its own.
            if kind.stored_group() != kind.group {
                continue;
            }
            let resource = self.machine.learn(Described {
                group: kind.group.clone(),
                version: kind.version.clone(),
                kind: kind.kind.clone(),
                plural: kind.plural.clone(),
                namespaced: kind.namespaced,
            });
            self.names.insert(qualified(&kind.group, &kind.plural), resource);
            self.kinds.entry(resource).or_insert_with(|| Arc::clone(kind));
        }
    }

    fn key_of(&mut self, key: &str) -> Option<Key> {
        let (resource, rest) = key.split_once('/')?;
        let resource = *self.names.get(resource)?;
        let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
        Some(self.machine.world.key(resource, namespace, name))
    }

    fn kind(&self, resource: Resource) -> Result<&Arc<Kind>, Status> {
        self.kinds.get(&resource).ok_or_else(|| Status::internal("this server does not serve that kind"))
    }

    /// Does it. Answers the revision, and the name of the object.
    async fn act(&self, action: &Action) -> Result<(u64, String), Status> {
        match action {
            Action::Create { resource, namespace, object, .. } => {
                let kind = self.kind(*resource)?;
                let written = self.registry.create(kind, namespace, object.clone(), &WriteOptions::default()).await?;
                Ok((written.object.revision(), written.object.name().to_owned()))
            }
            Action::Update { key, subresource, object } => {
                let part = match *subresource {
                    "" => Part::Whole,
                    "status" => Part::Status,
                    _ => Part::Special,
                };
                self.update(key, object.clone(), part).await
            }
            Action::Bind { key, node, uid } => {
                let Some(mut pod) = self.machine.world.tree(key) else { return Err(gone(key)) };
                if self.machine.world.get(key).is_none_or(|entry| entry.uid != *uid) {
                    return Err(gone(key));
                }
                bind(&mut pod, node, self.registry.env().now());
                self.update(key, pod, Part::Special).await
            }
            Action::Delete { key, uid, propagation, grace, .. } => {
                let kind = self.kind(key.resource)?;
                let preconditions = Preconditions { uid: Some(uid.text()), resource_version: None };
                let propagation = propagation.map(|propagation| match propagation {
                    "Orphan" => Propagation::Orphan,
                    "Foreground" => Propagation::Foreground,
                    _ => Propagation::Background,
                });
                let grace_seconds = *grace;
                let options = DeleteOptions { preconditions, grace_seconds, propagation, ..DeleteOptions::default() };
                let deleted = self.registry.delete(kind, &key.namespace, &key.name, &options).await?;
                Ok((deleted.object.revision(), key.name.to_string()))
            }
            Action::Event(_) => Ok((0, String::new())),
        }
    }

    async fn update(&self, key: &Key, object: Value, part: Part) -> Result<(u64, String), Status> {
        let kind = self.kind(key.resource)?;
        let options = WriteOptions { part, ..WriteOptions::default() };
        let written = self.registry.update(kind, &key.namespace, &key.name, object, &options).await?;
        Ok((written.object.revision(), key.name.to_string()))
    }
}

fn gone(key: &Key) -> Status {
    Status::not_found("", "pods", &key.name)
}

/// As `pods/binding` does. Source: kubernetes `pkg/registry/core/pod/storage/storage.go`, `setPodNodeAndMetadata`.
fn bind(pod: &mut Value, node: &str, now: Timestamp) {
    use super::fields::{items, remove_condition, time_text};
    pod["spec"]["nodeName"] = node.into();
    let mut conditions = items(pod, "/status/conditions").to_vec();
    remove_condition(&mut conditions, "PodScheduled");
    let mut condition = serde_json::json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time_text(now),
    });
    if let Some(generation) = pod["metadata"].get("generation") {
        condition["observedGeneration"] = generation.clone();
    }
    conditions.push(condition);
    pod["status"]["conditions"] = conditions.into();
}

fn refusal(status: &Status) -> Refusal {
    if status.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating") {
        return Refusal::Terminating;
    }
    match status.reason {
        Reason::Conflict | Reason::NotFound | Reason::AlreadyExists => Refusal::Stale,
        _ => Refusal::Other,
    }
}
