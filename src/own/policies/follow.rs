//! Follows the objects: each change is in force at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::stream::{BoxStream, StreamExt, select_all};

use super::{Kept, Key, Policies};
use crate::{
    karmada,
    own::{GROUP, VERSION},
};
use kubefold_apiserver::registry::{Event, From, Object, Registry, Selection};
use kubefold_wire::status::Status;
use serde_json::Value;

/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);

/// Where the kinds are.
pub(super) const KINDS: [(Kept, &str, &str, &str); 5] = [
    (Kept::Placement, GROUP, VERSION, "placementpolicies"),
    (Kept::Propagation, karmada::GROUP, karmada::VERSION, "propagationpolicies"),
    (Kept::ClusterPropagation, karmada::GROUP, karmada::VERSION, "clusterpropagationpolicies"),
    (Kept::Overriding, karmada::GROUP, karmada::VERSION, "overridepolicies"),
    (Kept::ClusterOverriding, karmada::GROUP, karmada::VERSION, "clusteroverridepolicies"),
];

/// The watches of all kinds, after their beginning.
pub struct Watches {
    events: BoxStream<'static, (Kept, Option<Result<Event, Status>>)>,
    /// Up to where each was told.
    seen: BTreeMap<Kept, u64>,
}

impl Policies {
    /// Puts the objects that there are in force.
    ///
    /// Errors: the storage's.
    pub async fn load(&self, registry: &Registry) -> Result<Watches, Status> {
        let (mut objects, mut all, mut seen) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (kept, group, version, plural) in KINDS {
            let Some(kind) = registry.resource(group, version, plural) else { continue };
            let mut events = registry.watch(&kind, "", Selection::default(), From::Start).await?;
            let own: &mut BTreeMap<Key, Value> = objects.entry(kept).or_default();
            while let Some(event) = events.next().await.transpose()? {
                let revision = take(own, &event);
                if matches!(event, Event::Synced(_)) {
                    seen.insert(kept, revision);
                    break;
                }
            }
            // The end of one is the end of all.
            let events = events.map(Some).chain(futures::stream::iter([None]));
            all.push(events.map(move |event| (kept, event)).boxed());
        }
        self.take(|all| *all = objects);
        let watches = Watches { events: select_all(all).boxed(), seen };
        self.announce(&watches);
        Ok(watches)
    }

    /// Follows them for ever, whatever the storage says. Meanwhile what was there last is in force.
    ///
    /// Cancel: safe.
    pub async fn follow(self: Arc<Self>, registry: Registry, watches: Watches) {
        let mut loaded = Some(watches);
        loop {
            if let Err(status) = self.run(&registry, loaded.take()).await {
                tracing::warn!(error = status.message, "restarting the watches of policies");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn run(&self, registry: &Registry, loaded: Option<Watches>) -> Result<(), Status> {
        let mut watches = match loaded {
            Some(watches) => watches,
            None => self.load(registry).await?,
        };
        while let Some((kept, event)) = watches.events.next().await {
            let Some(event) = event else { break };
            let (event, mut revision) = (event?, 0);
            match &event {
                Event::Synced(seen) | Event::Progress(seen) => revision = *seen,
                _ => self.take(|all| revision = take(all.entry(kept).or_default(), &event)),
            }
            let seen = watches.seen.entry(kept).or_default();
            *seen = revision.max(*seen);
            self.announce(&watches);
        }
        Ok(())
    }

    fn announce(&self, watches: &Watches) {
        let seen = watches.seen.values().copied().min().unwrap_or_default();
        self.seen.send_if_modified(|known| std::mem::replace(known, seen) != seen);
    }
}

/// Takes an event in. Answers its revision.
fn take(objects: &mut BTreeMap<Key, Value>, event: &Event) -> u64 {
    let key = |object: &Object| (object.namespace().to_owned(), object.name().to_owned());
    match event {
        Event::Added(object) | Event::Modified(object) => {
            let value = serde_json::from_str(object.bare()).unwrap_or_default();
            objects.insert(key(object), value);
            object.revision()
        }
        Event::Deleted(object) => {
            objects.remove(&key(object));
            object.revision()
        }
        Event::Synced(revision) | Event::Progress(revision) => *revision,
    }
}
