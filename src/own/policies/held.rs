//! How many objects each policy holds for. It is written into the status of PlacementPolicies.

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

use super::{
    Kept, Policies,
    placement::{HeldKind, PlacementPolicy},
};
use crate::{
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
    /// Keeps the numbers of objects in the status of PlacementPolicies, until cancelled.
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
        let Some(kind) = registry.kind(GROUP, "PlacementPolicy") else { return Ok(()) };
        let policies = self.placement_policies();
        if policies.is_empty() {
            return Ok(());
        }
        let by_policy = held.count(&self.stores).await;
        for policy in policies {
            let name = &policy.metadata.name;
            let is_in_force = self.with_file(|file| policy.compiled(file).is_ok());
            let kinds: Vec<HeldKind> = by_policy.get(name).filter(|_| is_in_force).cloned().unwrap_or_default();
            if policy.status.as_ref().is_some_and(|status| status.says(&kinds)) {
                continue;
            }
            let objects: usize = kinds.iter().map(|held| held.objects).sum();
            let change = |object: &mut Value| {
                object["status"]["objects"] = objects.into();
                object["status"]["kinds"] = json!(kinds);
                Ok(())
            };
            match registry.modify_all(&kind, "", name, &WriteOptions::default(), change).await {
                Err(status) if status.code != http::StatusCode::NOT_FOUND => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    fn placement_policies(&self) -> Vec<PlacementPolicy> {
        self.state.lock().all(Kept::Placement)
    }
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
