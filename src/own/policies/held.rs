//! How many objects each policy holds for. It is written into the status of PlacementPolicies and propagation policies.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use super::{Kept, Policies, placement::PlacementPolicy};
use crate::{
    karmada::{self, ClusterPropagationPolicy, HeldKind, HeldStatus, Metadata, PropagationPolicy},
    own::GROUP,
    placement::policy::{Rules, Subject},
    store::{Entry, GroupKind},
    stores::{Running, Stores},
};
use kubefold_apiserver::registry::{Registry, WriteOptions};
use kubefold_wire::{scan::value_of, status::Status};

/// How often it is looked whether numbers have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Counting takes one part in so many of the time, however many objects there are.
const SHARE: u32 = 20;
/// Objects that are counted before others have their turn.
const AT_ONCE: usize = 500;

/// What was counted last, by kind.
#[derive(Default)]
struct Held(HashMap<GroupKind, Counted>);

struct Counted {
    /// What the store's news were then.
    seen: u64,
    store: Arc<Running>,
    rules: Arc<Rules>,
    by_policy: BTreeMap<String, usize>,
}

impl Policies {
    /// Keeps the numbers of objects in the status of policies, until cancelled.
    pub async fn count(self: Arc<Self>, registry: Registry) {
        let mut held = Held::default();
        loop {
            let began = Instant::now();
            if let Err(status) = self.write_counts(&mut held, &registry).await {
                tracing::warn!(error = status.message, "how many objects policies hold for is not written down");
            }
            sleep(LOOK_EVERY.max(began.elapsed() * SHARE)).await;
        }
    }

    async fn write_counts(&self, held: &mut Held, registry: &Registry) -> Result<(), Status> {
        let policies = self.counted();
        if policies.is_empty() {
            return Ok(());
        }
        let by_policy = held.count(&self.stores).await;
        for policy in policies {
            let Some(kind) = registry.kind(policy.group, policy.kind) else { continue };
            let kinds = by_policy.get(&policy.rule).filter(|_| policy.is_in_force).cloned().unwrap_or_default();
            if policy.status.objects.is_some() && policy.status.kinds == kinds {
                continue;
            }
            let objects: usize = kinds.iter().map(|held| held.objects).sum();
            let change = |object: &mut Value| {
                object["status"]["objects"] = objects.into();
                object["status"]["kinds"] = json!(kinds);
                Ok(())
            };
            let Metadata { namespace, name } = &policy.metadata;
            match registry.modify_all(&kind, namespace, name, &WriteOptions::default(), change).await {
                Err(status) if status.code != http::StatusCode::NOT_FOUND => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    /// The policies that say how many objects they hold for.
    fn counted(&self) -> Vec<CountedPolicy> {
        let (placement, propagation, cluster) = {
            let state = self.state.lock();
            let placement: Vec<PlacementPolicy> = state.all(Kept::Placement);
            let propagation: Vec<PropagationPolicy> = state.all(Kept::Propagation);
            let cluster: Vec<ClusterPropagationPolicy> = state.all(Kept::ClusterPropagation);
            (placement, propagation, cluster)
        };
        let own = placement.into_iter().map(|policy| CountedPolicy {
            group: GROUP,
            kind: "PlacementPolicy",
            rule: policy.metadata.name.clone(),
            is_in_force: self.with_file(|file| policy.compiled(file).is_ok()),
            status: policy
                .status
                .map(|status| HeldStatus { objects: status.objects, kinds: status.kinds })
                .unwrap_or_default(),
            metadata: policy.metadata,
        });
        let karmadas = |kind, metadata: Metadata, status| CountedPolicy {
            group: karmada::GROUP,
            kind,
            rule: metadata.policy_name(),
            // One that is not has no rule of its name.
            is_in_force: true,
            status,
            metadata,
        };
        let namespaced = propagation
            .into_iter()
            .map(|policy| karmadas("PropagationPolicy", policy.metadata, policy.status.unwrap_or_default()));
        let cluster = cluster
            .into_iter()
            .map(|policy| karmadas("ClusterPropagationPolicy", policy.metadata, policy.status.unwrap_or_default()));
        own.chain(namespaced).chain(cluster).collect()
    }
}

/// A policy that says how many objects it holds for.
struct CountedPolicy {
    group: &'static str,
    kind: &'static str,
    metadata: Metadata,
    /// Its name among the rules in force.
    rule: String,
    is_in_force: bool,
    status: HeldStatus,
}

impl Held {
    /// How many objects each policy holds for, by kind in order. Only what has changed is counted anew.
    async fn count(&mut self, stores: &Stores) -> BTreeMap<String, Vec<HeldKind>> {
        let (rules, placed) = (stores.rules(), stores.shared().identities.placed());
        self.0.retain(|kind, _| placed.contains(kind));
        for kind in &placed {
            let Some(store) = stores.parts_of(kind) else { continue };
            let seen = *store.store.subscribe().borrow();
            let is_same = self.0.get(kind).is_some_and(|known| {
                known.seen == seen && Arc::ptr_eq(&known.store, &store) && Arc::ptr_eq(&known.rules, &rules)
            });
            if !is_same {
                let by_policy = count(&store, &rules).await;
                self.0.insert(kind.clone(), Counted { seen, store, rules: Arc::clone(&rules), by_policy });
            }
        }
        let mut all: BTreeMap<String, Vec<HeldKind>> = BTreeMap::new();
        for kind in placed {
            let Some(counted) = self.0.get(&kind) else { continue };
            let (group, kind) = kind;
            let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
            for (policy, objects) in &counted.by_policy {
                all.entry(policy.clone()).or_default().push(HeldKind { kind: kind.clone(), objects: *objects });
            }
        }
        all
    }
}

async fn count(running: &Running, rules: &Rules) -> BTreeMap<String, usize> {
    let (store, mut by_policy) = (&running.store, BTreeMap::new());
    for (at, (plain_key, parts)) in store.placed().into_iter().enumerate() {
        if at % AT_ONCE == AT_ONCE - 1 {
            yield_now().await;
        }
        let Some(entry) = store.get(&plain_key) else { continue };
        let (namespace, name) = plain_key.split_once('/').unwrap_or(("", &plain_key));
        let marker = parts.first().and_then(|home| home.marker.as_ref());
        let subject = Subject {
            gvk: &store.spec().gvk,
            namespace,
            name,
            labels: entry.labels(),
            annotations: annotations(&entry),
            shared: false,
            policy: marker.and_then(|marker| marker.policy.as_deref()),
        };
        if let Some(policy) = rules.policy_of(&subject) {
            *by_policy.entry(policy.to_owned()).or_default() += 1;
        }
    }
    by_policy
}

fn annotations(entry: &Entry) -> Option<&str> {
    let (text, metadata) = entry.text_and_metadata();
    text.get(value_of(text, metadata.start, "annotations")?)
}
