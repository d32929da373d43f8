//! Policies as objects: kubefold's own PlacementPolicy, and those of Karmada. They and the policies of `clusters.yaml` are one list.
//!
//! What is written is in force when its answer is given: [`Policies::settled`] waits for it.

mod follow;
mod held;
mod kinds;
mod namespaces;
mod placement;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use self::placement::PlacementPolicy;
use crate::{
    config::Config,
    karmada::{self, Fleet, Objects},
    stores::Stores,
};
use kubefold_apiserver::registry::Registry;
use kubefold_wire::{resource::Gvr, status::Cause};

/// How long a write waits to be in force: it is made, whatever becomes of the watch.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// The policies that are objects, and the configuration that they go with.
pub struct Policies {
    stores: Arc<Stores>,
    state: Mutex<State>,
    /// The revision up to which they count.
    seen: watch::Sender<u64>,
}

struct State {
    /// What `clusters.yaml` says.
    file: Config,
    /// The objects of each kind, by namespace and name.
    objects: BTreeMap<Kept, BTreeMap<Key, Value>>,
    /// What is in force.
    applied: Config,
}

/// Namespace and name.
type Key = (String, String);

/// A kind of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Placement,
    Propagation,
    ClusterPropagation,
    Overriding,
    ClusterOverriding,
}

impl Policies {
    /// Begins with what `clusters.yaml` says, which is in force.
    pub fn new(stores: Arc<Stores>, file: Config) -> Arc<Self> {
        let state = State { applied: file.clone(), file, objects: BTreeMap::new() };
        Arc::new(Self { stores, state: Mutex::new(state), seen: watch::Sender::new(0) })
    }

    /// Takes a new `clusters.yaml`, and puts it in force with the objects that there are.
    pub fn configure(&self, file: Config) {
        let mut state = self.state.lock();
        state.file = file;
        state.applied = state.merged();
        self.stores.configure(&state.applied);
    }

    /// Says whether a resource is one of policies.
    pub fn are(gvr: &Gvr) -> bool {
        follow::KINDS.iter().any(|(_, group, _, plural)| *gvr.group == **group && *gvr.resource == **plural)
    }

    /// Waits until all is in force that was written before.
    pub async fn settled(&self, registry: &Registry) {
        let Ok(revision) = registry.revision().await else { return };
        let mut seen = self.seen.subscribe();
        if timeout(SETTLE_MAX, seen.wait_for(|seen| *seen >= revision)).await.is_err() {
            tracing::warn!(revision, "a policy was written and is not in force yet");
        }
    }

    /// Takes the state of some objects in, and puts it in force where that changes something.
    fn take(&self, change: impl FnOnce(&mut BTreeMap<Kept, BTreeMap<Key, Value>>)) {
        let mut state = self.state.lock();
        change(&mut state.objects);
        let merged = state.merged();
        if merged != state.applied {
            state.applied = merged;
            self.stores.configure(&state.applied);
        }
    }

    /// Judges with the members as they are configured.
    fn judge<R>(&self, judge: impl FnOnce(Fleet<'_>) -> R) -> R {
        judge(Fleet::from(&self.state.lock().file))
    }

    /// Judges with `clusters.yaml`.
    fn with_file<R>(&self, judge: impl FnOnce(&Config) -> R) -> R {
        judge(&self.state.lock().file)
    }
}

impl State {
    /// The whole list: the file's policies, then PlacementPolicies by name, then Karmada's.
    fn merged(&self) -> Config {
        let mut config = self.file.clone();
        for policy in self.all::<PlacementPolicy>(Kept::Placement) {
            match policy.compiled(&self.file) {
                Ok(compiled) => config.policies.push(compiled),
                Err(cause) => tracing::warn!(
                    policy = policy.metadata.name,
                    why = cause.text(),
                    "a PlacementPolicy does not go with the fleet as it is, and has no effect"
                ),
            }
        }
        let objects = Objects {
            propagation: self.all(Kept::Propagation),
            cluster_propagation: self.all(Kept::ClusterPropagation),
            overriding: self.all(Kept::Overriding),
            cluster_overriding: self.all(Kept::ClusterOverriding),
        };
        let compiled = karmada::compile(&objects, Fleet::from(&self.file));
        for refused in &compiled.refused {
            let whys: Vec<String> = refused.causes.iter().map(Cause::text).collect();
            let why = whys.join("; ");
            tracing::warn!(policy = refused.name, why, "it does not go with the fleet as it is, and has no effect");
        }
        config.policies.extend(compiled.policies);
        config.overrides = compiled.overrides;
        config
    }

    /// What cannot be read has no effect: it was written by another version.
    fn all<T: serde::de::DeserializeOwned>(&self, kept: Kept) -> Vec<T> {
        let objects = self.objects.get(&kept).into_iter().flat_map(BTreeMap::values);
        objects.filter_map(|object| serde_json::from_value(object.clone()).ok()).collect()
    }
}
