//! An index of roles and bindings that follows a registry.

use std::{sync::Arc, time::Duration};

use futures::stream::{BoxStream, StreamExt, select_all};
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    kinds::Kind,
    rbac::{
        attributes::Attributes,
        index::{Binding, Decision, Index, Metadata, Missing, told},
        names::{GROUP, MASTERS, RESOURCES},
        rule::Rule,
    },
    registry::{Event, Events, From, Object, Registry, Selection},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{matching::nullable, status::Status};

/// After a failure of the storage.
const RETRY: Duration = Duration::from_secs(1);
/// How long a write waits to be followed: it is made, whatever becomes of the watch.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// Why there is no authorizer.
#[derive(Debug, thiserror::Error)]
pub enum RbacError {
    /// The kinds are not served.
    #[error("RBAC has no {0}.{GROUP} to go by; serve all roles and bindings, as BuiltIn::Basic does")]
    NoKind(&'static str),
    /// The storage does not answer.
    #[error("the roles and bindings cannot be read or written: {}", .0.message)]
    Storage(Box<Status>),
}

impl std::convert::From<Status> for RbacError {
    fn from(status: Status) -> Self {
        Self::Storage(Box::new(status))
    }
}

/// Says who may do what. Clones are the same authorizer.
#[derive(Clone)]
pub struct Authorizer {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    index: RwLock<Index>,
    /// The revision up to which roles and bindings count.
    seen: watch::Sender<u64>,
}

/// A role, as it is stored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Role {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Rule>,
}

impl Authorizer {
    /// An authorizer that knows nobody yet, and what makes it follow the registry.
    ///
    /// Errors: the registry does not serve roles and bindings.
    pub(super) fn new(registry: &Registry) -> Result<(Self, Follower), RbacError> {
        let shared =
            Shared { registry: registry.clone(), index: RwLock::new(Index::default()), seen: watch::Sender::new(0) };
        let authorizer = Self { shared: Arc::new(shared) };
        let kind = |plural| registry.resource(GROUP, "v1", plural).ok_or(RbacError::NoKind(plural));
        let kinds = RESOURCES.into_iter().map(kind).collect::<Result<_, _>>()?;
        Ok((authorizer.clone(), Follower { authorizer, kinds }))
    }

    /// Says whether somebody may do something.
    pub fn decide(&self, caller: &Caller, attributes: &Attributes<'_>) -> Decision {
        if caller.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        self.shared.index.read().decide(caller, attributes)
    }

    /// All that somebody may do in a namespace, as rules, and what could not be found out; empty: nothing.
    ///
    /// Source: kubernetes `pkg/registry/authorization/selfsubjectrulesreview/rest.go`.
    pub fn rules_for(&self, caller: &Caller, namespace: &str) -> (Vec<Rule>, String) {
        let (rules, missing) = self.shared.index.read().rules_for(caller, namespace);
        (rules, told(&missing, Missing::by_kind).unwrap_or_default())
    }

    /// Looks into the index.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.shared.index.read())
    }

    /// Waits until all counts that was written before. So whoever wrote a role finds it in force with his next request.
    pub async fn settled(&self) {
        let Ok(revision) = self.shared.registry.revision().await else { return };
        let mut seen = self.shared.seen.subscribe();
        if timeout(SETTLE_MAX, seen.wait_for(|seen| *seen >= revision)).await.is_err() {
            tracing::warn!(revision, "a role or a binding was written and is not in force yet");
        }
    }
}

/// Makes an authorizer follow a registry.
pub(super) struct Follower {
    authorizer: Authorizer,
    /// In the order of [`RESOURCES`].
    kinds: Vec<Arc<Kind>>,
}

/// The watches of all kinds, after their beginning.
pub(super) struct Watches {
    /// With the place of the kind.
    events: BoxStream<'static, (usize, Option<Result<Event, Status>>)>,
    /// Up to where each was told.
    seen: Vec<u64>,
}

impl Follower {
    /// Follows them until it is cancelled, whatever the storage says. Meanwhile what was there last is in force.
    ///
    /// Cancel: safe.
    pub(super) async fn follow_until(self, loaded: Watches, stop: CancellationToken) {
        let mut loaded = Some(loaded);
        while !stop.is_cancelled() {
            let Some(Err(status)) = stop.run_until_cancelled(self.run(loaded.take())).await else { continue };
            tracing::warn!(error = status.message, "restarting the watches of roles and bindings");
            let _cancelled = stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }

    async fn run(&self, loaded: Option<Watches>) -> Result<(), Status> {
        let mut watches = match loaded {
            Some(watches) => watches,
            None => self.load().await?,
        };
        while let Some((place, event)) = watches.events.next().await {
            let Some(event) = event else { break };
            let revision = take(&mut self.authorizer.shared.index.write(), place, &event?);
            if let Some(seen) = watches.seen.get_mut(place) {
                *seen = (*seen).max(revision);
            }
            self.announce(&watches);
        }
        Ok(())
    }

    /// Reads all of them into a new index, and puts it in place of the old one.
    ///
    /// Errors: the storage's.
    pub(super) async fn load(&self) -> Result<Watches, Status> {
        let registry = &self.authorizer.shared.registry;
        let (mut index, mut all, mut seen) = (Index::default(), Vec::new(), Vec::new());
        for (place, kind) in self.kinds.iter().enumerate() {
            let mut events: Events = registry.watch(kind, "", Selection::default(), From::Start).await?;
            let mut synced = 0;
            while let Some(event) = events.next().await.transpose()? {
                take(&mut index, place, &event);
                if let Event::Synced(revision) = event {
                    synced = revision;
                    break;
                }
            }
            seen.push(synced);
            // The end of one is the end of all.
            let events = events.map(Some).chain(futures::stream::iter([None]));
            all.push(events.map(move |event| (place, event)).boxed());
        }
        *self.authorizer.shared.index.write() = index;
        let watches = Watches { events: select_all(all).boxed(), seen };
        self.announce(&watches);
        Ok(watches)
    }

    fn announce(&self, watches: &Watches) {
        let seen = watches.seen.iter().copied().min().unwrap_or_default();
        self.authorizer.shared.seen.send_if_modified(|known| std::mem::replace(known, seen) != seen);
    }
}

/// Takes an event of the kind at a place of [`RESOURCES`] in. Answers its revision.
fn take(index: &mut Index, place: usize, event: &Event) -> u64 {
    let are_bindings = RESOURCES.get(place).is_some_and(|plural| plural.ends_with("bindings"));
    match event {
        Event::Added(object) | Event::Modified(object) => {
            let is_read = if are_bindings {
                read(object).map(|binding: Binding| index.set_binding(binding))
            } else {
                read(object).map(|Role { metadata, rules }| {
                    index.set_role(&metadata.namespace, &metadata.name, rules.into());
                })
            };
            // What cannot be read grants nothing.
            if is_read.is_none() {
                remove(index, are_bindings, object);
            }
            object.revision()
        }
        Event::Deleted(object) => {
            remove(index, are_bindings, object);
            object.revision()
        }
        Event::Synced(revision) | Event::Progress(revision) => *revision,
    }
}

fn remove(index: &mut Index, is_binding: bool, object: &Object) {
    if is_binding {
        index.remove_binding(object.namespace(), object.name());
    } else {
        index.remove_role(object.namespace(), object.name());
    }
}

fn read<'a, T: Deserialize<'a>>(object: &'a Object) -> Option<T> {
    serde_json::from_str(object.bare()).ok()
}
