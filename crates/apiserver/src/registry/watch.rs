//! Watches: what a storage tells, as events of objects of one kind and one selection.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};

use crate::{
    kinds::Kind,
    registry::{ListOptions, Object, Registry, Selection, errors, prefix_of},
    storage::{Change, Record, StorageError, WatchItem},
};
use kubefold_wire::status::Status;

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
        let judge = Judge { kind: Arc::clone(kind), selection };
        let changes = told.filter_map(move |told| {
            let event = judge.event(told);
            async move { event }
        });
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

struct Judge {
    kind: Arc<Kind>,
    selection: Selection,
}

impl Judge {
    fn event(&self, told: Result<WatchItem, StorageError>) -> Option<Result<Event, Status>> {
        let change = match told {
            Err(error) => return Some(Err(too_old(&error))),
            Ok(WatchItem::Progress(revision)) => return Some(Ok(Event::Progress(revision))),
            Ok(WatchItem::Change(change)) => change,
        };
        let Change { revision, before, after } = change;
        let object = |record: &Record| Registry::shown(&self.kind, record.clone(), revision);
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
