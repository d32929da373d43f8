//! Kinds that something else answers for: what a storage does otherwise. All the rest is done here as for any kind.

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use serde_json::Value;

use crate::{
    kinds::{AnyRest, Changed, Kind, Target},
    registry::{
        DeleteOptions, Deleted, Event, Events, From, List, ListOptions, Object, Operation, Preconditions, Registry,
        Selection, WriteOptions, Written,
        admission::Admitted,
        delete, errors, key_of, meta, shown_value,
        update::{Revise, check, may_create},
    },
};
use kubefold_wire::status::Status;

/// An object of such a kind.
pub(super) struct Elsewhere {
    key: String,
    /// In the version of the kind.
    value: Value,
    /// 0 if it says none.
    revision: u64,
}

impl Elsewhere {
    pub(super) fn shown(self, kind: &Kind) -> Object {
        shown_value(kind, &self.key, self.value, self.revision)
    }
}

impl Registry {
    pub(super) fn target(&self, namespace: &str, name: &str) -> Target {
        Target { caller: self.caller().clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) async fn get_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Elsewhere>, Status> {
        let target = self.target(namespace, name);
        rest.get(&target).await?.map(|value| read(kind, &target, value)).transpose()
    }

    pub(super) async fn list_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<List, Status> {
        let target = self.target(namespace, "");
        let mut objects = Vec::new();
        for value in rest.list(&target).await? {
            let object = read(kind, &target, value)?.shown(kind);
            let is_in = namespace.is_empty() || !kind.namespaced || object.namespace() == namespace;
            let is_after = options.after.as_deref().is_none_or(|after| object.key() > after);
            if is_in && is_after && options.selection.matches(&object) {
                objects.push(object);
            }
        }
        objects.sort_by(|left, right| left.key().cmp(right.key()));
        Ok(List { objects, revision: self.revision().await?, next: None, remaining: None })
    }

    pub(super) async fn watch_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Arc<Kind>,
        namespace: &str,
        selection: Selection,
        from: From,
    ) -> Result<Events, Status> {
        let target = self.target(namespace, "");
        // First the watch: what changes while the list is read is told twice rather than not at all.
        let watch = rest.watch(&target).await?;
        let mut initial = Vec::new();
        if from == From::Start {
            let options = ListOptions { selection: selection.clone(), ..ListOptions::default() };
            let list = self.list_elsewhere(rest, kind, namespace, &options).await?;
            initial.extend(list.objects.into_iter().map(Event::Added));
            initial.push(Event::Synced(list.revision));
        }
        let kind = Arc::clone(kind);
        let changes = watch.filter_map(move |changed| {
            let event = changed.and_then(|changed| told(&kind, &target, &selection, changed)).transpose();
            async move { event }
        });
        Ok(stream::iter(initial.into_iter().map(Ok)).chain(changes).boxed())
    }

    pub(super) async fn create_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Object, Status> {
        let target = self.target(namespace, meta::text(&object, "name"));
        let wanted = kind.strategy.to_storage(object.clone()).map_err(|error| errors::unstorable(kind, &error))?;
        let made = if options.dry_run { object } else { rest.create(&target, wanted).await? };
        Ok(read(kind, &target, made)?.shown(kind))
    }

    pub(super) async fn revise_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Kind,
        target: &Target,
        options: &WriteOptions,
        preconditions: &Preconditions,
        revise: &mut Revise<'_>,
    ) -> Result<Written, Status> {
        let (namespace, name) = (&*target.namespace, &*target.name);
        let Some(there) = self.get_elsewhere(rest, kind, namespace, name).await? else {
            if !may_create(kind, options) {
                return Err(errors::not_found(kind, name));
            }
            let (object, warnings) = Box::pin(self.made_by_update(kind, namespace, name, options, revise)).await?;
            let object = self.create_elsewhere(rest, kind, namespace, object, options).await?;
            return Ok(Written { object, created: true, warnings });
        };
        let old = there.value;
        check(kind, name, preconditions, &old)?;
        let (new, warnings) = Box::pin(self.changed(kind, namespace, name, options, &old, revise)).await?;
        if options.dry_run || new == old {
            let object = read(kind, target, new)?.shown(kind);
            return Ok(Written { object, created: false, warnings });
        }
        let stored = |value| kind.strategy.to_storage(value).map_err(|error| errors::unstorable(kind, &error));
        let made = rest.update(target, stored(new)?, stored(old)?).await?;
        Ok(Written { object: read(kind, target, made)?.shown(kind), created: false, warnings })
    }

    pub(super) async fn delete_elsewhere(
        &self,
        rest: &dyn AnyRest,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        said: &str,
    ) -> Result<Deleted, Status> {
        let target = self.target(namespace, name);
        let there = self.get_elsewhere(rest, kind, namespace, name).await?;
        let there = there.ok_or_else(|| errors::not_found(kind, name))?;
        delete::check(kind, name, options, &there.value)?;
        let old = Some(&there.value);
        let of = Admitted { kind, namespace, name: said, operation: Operation::Delete, old };
        Box::pin(self.admit_delete(&of, options)).await?;
        if options.dry_run {
            return Ok(Deleted { object: there.shown(kind), gone: true });
        }
        let old = kind.strategy.to_storage(there.value.clone()).map_err(|error| errors::unstorable(kind, &error))?;
        Ok(match rest.delete(&target, old).await? {
            Some(left) => Deleted { object: read(kind, &target, left)?.shown(kind), gone: false },
            None => Deleted { object: there.shown(kind), gone: true },
        })
    }
}

/// What was answered, in the version of the kind, with its type and its place.
///
/// Errors: 500, if it cannot be said in that version, or has no name.
fn read(kind: &Kind, target: &Target, value: Value) -> Result<Elsewhere, Status> {
    let name = meta::text(&value, "name").to_owned();
    let value = kind.strategy.from_storage(value);
    let mut value = value.map_err(|error| errors::unreadable(kind, &name, &error))?;
    meta::set_type(&mut value, kind);
    for (field, said) in [("name", &target.name), ("namespace", &target.namespace)] {
        if meta::text(&value, field).is_empty() && !said.is_empty() {
            meta::set(&mut value, field, Some(said.as_str().into()));
        }
    }
    let (namespace, name) = (meta::text(&value, "namespace").to_owned(), meta::text(&value, "name").to_owned());
    if name.is_empty() {
        return Err(Status::internal(format!("an object of {} was answered without a name", kind.plural)));
    }
    let revision = meta::text(&value, "resourceVersion").parse().unwrap_or_default();
    Ok(Elsewhere { key: key_of(kind, &namespace, &name), value, revision })
}

fn told(kind: &Kind, target: &Target, selection: &Selection, changed: Changed<Value>) -> Result<Option<Event>, Status> {
    let shown = |value| Ok::<_, Status>(read(kind, target, value)?.shown(kind));
    let is_in =
        |object: &Object| target.namespace.is_empty() || !kind.namespaced || object.namespace() == target.namespace;
    let event = match changed {
        Changed::Added(value) => shown(value).map(|object| (object.clone(), Event::Added(object))),
        Changed::Modified(value) => shown(value).map(|object| (object.clone(), Event::Modified(object))),
        Changed::Deleted(value) => shown(value).map(|object| (object.clone(), Event::Deleted(object))),
    };
    let (object, event) = event?;
    if !is_in(&object) {
        return Ok(None);
    }
    if selection.matches(&object) {
        return Ok(Some(event));
    }
    // Whether it matched before is not known: a client forgets what it may not have had.
    Ok(matches!(event, Event::Modified(_)).then_some(Event::Deleted(object)))
}
