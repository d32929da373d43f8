//! Watches: what a storage tells, as events of objects of one kind and one selection.

use std::sync::Arc;

use futures::{
    future::ready,
    stream::{self, BoxStream, StreamExt},
};
use parking_lot::Mutex;

use crate::{
    kinds::Kind,
    registry::{ListOptions, Object, Registry, Selection, errors, prefix_of},
    storage::{Change, Record, StorageError, WatchItem},
};
use kubefold_wire::{media::is_built_in, status::Status};

/// Changes whose conversions are under way at once. They are told in their order.
const AHEAD: usize = 8;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the objects of now, as if they had just been made. [`Event::Synced`] follows them.
    Start,
    /// After a revision.
    After(u64),
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Event {
    /// It is there, or matches, and was or did not before.
    Added(Object),
    /// It changed.
    Modified(Object),
    /// It is gone, or does not match any more: its last state, as of the revision of the change.
    Deleted(Object),
    /// All objects of the beginning were told; they are as of this revision.
    Synced(u64),
    /// Nothing up to this revision that was not told.
    Progress(u64),
}

/// Events, in the order of their revisions. After an error there are none.
pub type Events = BoxStream<'static, Result<Event, Status>>;

impl Registry {
    /// What happens to objects of a kind: of one namespace, or of all where it is empty.
    ///
    /// Errors: 410 for a revision that is forgotten; it comes in the stream, too, where a watcher is too slow.
    pub async fn watch(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        selection: Selection,
        from: From,
    ) -> Result<Events, Status> {
        if let Some(rest) = &kind.rest {
            return self.watch_elsewhere(&**rest, kind, namespace, selection, from).await;
        }
        let (initial, after) = match from {
            From::After(revision) => (None, revision),
            From::Start => {
                let options = ListOptions { selection: selection.clone(), ..ListOptions::default() };
                let list = self.list(kind, namespace, &options).await?;
                (Some(list.objects), list.revision)
            }
        };
        let told =
            self.inner.storage.watch(&prefix_of(kind, namespace), after).await.map_err(|error| too_old(&error))?;
        let changes = Judge::new(self, Arc::clone(kind), selection).events(told);
        let changes = if kind.composer.is_some() {
            let (registry, kind) = (self.clone(), Arc::clone(kind));
            let composed = move |event| {
                let (registry, kind) = (registry.clone(), Arc::clone(&kind));
                async move { registry.compose_event(kind, event).await }
            };
            changes.then(composed).boxed()
        } else {
            changes.boxed()
        };
        let Some(initial) = initial else { return Ok(changes) };
        let beginning = initial.into_iter().map(Event::Added).chain([Event::Synced(after)]).map(Ok);
        Ok(stream::iter(beginning).chain(changes).boxed())
    }
}

fn too_old(error: &StorageError) -> Status {
    match error {
        StorageError::Future { asked, newest } => {
            Status::expired(format!("too old resource version: {asked} ({newest})"))
        }
        other => errors::of_storage(other),
    }
}

/// What the storage tells, as events of a kind and a selection.
struct Judge {
    registry: Registry,
    known: Mutex<Known>,
    selection: Selection,
}

/// A kind as it was in a catalog. That of a definition may be another one while it is watched.
struct Known {
    kind: Arc<Kind>,
    epoch: u64,
}

impl Judge {
    fn new(registry: &Registry, kind: Arc<Kind>, selection: Selection) -> Self {
        Self { registry: registry.clone(), known: Mutex::new(Known { kind, epoch: 0 }), selection }
    }

    fn events(self, told: BoxStream<'static, Result<WatchItem, StorageError>>) -> Events {
        let kind = Arc::clone(&self.known.lock().kind);
        let (converts, is_fixed) = (kind.strategy.converter().is_some(), is_built_in(&kind.group));
        let judge = Arc::new(self);
        if is_fixed {
            let events = told.filter_map(move |told| {
                let event = judge.event(&kind, told);
                async move { event }
            });
            return events.boxed();
        }
        let events = move |told| Arc::clone(&judge).event_now(told);
        if converts {
            told.map(events).buffered(AHEAD).filter_map(ready).boxed()
        } else {
            told.filter_map(events).boxed()
        }
    }

    /// The kind as it is served now; what is served no more is what it was.
    fn kind(&self) -> Arc<Kind> {
        let catalog = self.registry.catalog();
        let mut known = self.known.lock();
        if known.epoch != catalog.epoch() {
            known.epoch = catalog.epoch();
            let Kind { group, version, plural, .. } = &*known.kind;
            if let Some(kind) = catalog.resource(group, version, plural) {
                known.kind = kind;
            }
        }
        Arc::clone(&known.kind)
    }

    async fn event_now(self: Arc<Self>, told: Result<WatchItem, StorageError>) -> Option<Result<Event, Status>> {
        let kind = self.kind();
        let told = match told {
            Ok(WatchItem::Change(change)) if kind.strategy.converter().is_some() => {
                match Box::pin(self.readable(&kind, change)).await {
                    Ok(change) => Ok(WatchItem::Change(change)),
                    Err(status) => return Some(Err(status)),
                }
            }
            told => told,
        };
        self.event(&kind, told)
    }

    /// A change with its records as they would be if they were stored in this version.
    async fn readable(&self, kind: &Kind, change: Change) -> Result<Change, Status> {
        let Change { revision, before, after } = change;
        // Of what was there before only counts that it was, if all is selected and it stays.
        let is_told = after.is_none() || !self.selection.is_everything();
        let before = match before {
            Some(before) if is_told => Some(self.registry.readable(kind, before).await?),
            before => before,
        };
        let after = match after {
            Some(after) => Some(self.registry.readable(kind, after).await?),
            None => None,
        };
        Ok(Change { revision, before, after })
    }

    fn event(&self, kind: &Kind, told: Result<WatchItem, StorageError>) -> Option<Result<Event, Status>> {
        let change = match told {
            Err(error) => return Some(Err(too_old(&error))),
            Ok(WatchItem::Progress(revision)) => return Some(Ok(Event::Progress(revision))),
            Ok(WatchItem::Change(change)) => change,
        };
        let Change { revision, before, after } = change;
        let object = |record: &Record| Registry::shown(kind, record.clone(), revision);
        let matching = |object: &Object| self.selection.is_everything() || self.selection.matches(object);
        let read = before.as_ref().map(object).transpose();
        let read = read.and_then(|before| Ok((before, after.as_ref().map(object).transpose()?)));
        let (before, after) = match read {
            Ok((before, after)) => (before.filter(matching), after.filter(matching)),
            Err(status) => return Some(Err(status)),
        };
        let event = match (before, after) {
            (None, None) => Event::Progress(revision),
            (None, Some(after)) => Event::Added(after),
            (Some(_), Some(after)) => Event::Modified(after),
            (Some(before), None) => Event::Deleted(before),
        };
        Some(Ok(event))
    }
}
