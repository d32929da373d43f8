//! Kinds of which less is stored than is shown: see [`Compose`].

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    kinds::{Applying, Author, Carried, Compose, Composed, Kind, Reading},
    registry::{
        DeleteOptions, Event, Object, Preconditions, Registry, WriteOptions, Written,
        create::stored,
        delete,
        errors::{self, MODIFIED},
        key_of, shown_value,
        update::{ATTEMPTS_MAX, Revise, check, may_create},
    },
    storage::{Record, StorageError, When},
};
use kubefold_wire::status::Status;

/// Objects of a list that are composed at once.
const AT_ONCE: usize = 16;

/// Keys of objects that somebody writes now. What the writer changes elsewhere is stored by him alone: otherwise whoever looks
/// meanwhile would store it first, and the write would begin anew.
#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Locks {
    fn of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock();
        if let Some(lock) = all.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        all.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        all.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// A stored object, and what is shown of it.
struct Seen {
    record: Record,
    stored: Value,
    shown: Value,
}

impl Registry {
    fn author<'a>(&'a self, options: &'a WriteOptions) -> Author<'a> {
        let applies = options.applies.then_some(Applying { force: options.force });
        let WriteOptions { dry_run, manager, validation, .. } = options;
        Author { caller: self.caller(), dry_run: *dry_run, manager, validation: *validation, applies }
    }

    /// One object as it is now.
    ///
    /// Errors: 404, and what the composing says.
    pub(super) async fn get_composed(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Object, Status> {
        let key = key_of(kind, namespace, name);
        let lock = self.inner.written.of(&key);
        let seen = match lock.try_lock() {
            Ok(_alone) => self.seen(composer, kind, name, self.record(&key).await?).await?,
            Err(_) => {
                let record = self.record(&key).await?.ok_or_else(|| errors::not_found(kind, name))?;
                let stored = Self::object(kind, record.clone(), record.revision)?.value();
                let shown = composer.compose(self.caller(), stored.clone(), Reading::Live).await?.shown;
                Seen { record, stored, shown }
            }
        };
        Ok(shown_value(kind, &seen.record.key, seen.shown, seen.record.revision))
    }

    /// What is there now, with a new revision where it is not what was stored.
    async fn seen(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        name: &str,
        record: Option<Record>,
    ) -> Result<Seen, Status> {
        let mut there = record;
        for _ in 0..ATTEMPTS_MAX {
            let record = there.ok_or_else(|| errors::not_found(kind, name))?;
            let object = Self::object(kind, record.clone(), record.revision)?.value();
            let Composed { mut shown, stored: changed } =
                composer.compose(self.caller(), object.clone(), Reading::Live).await?;
            let Some(changed) = changed else { return Ok(Seen { record, stored: object, shown }) };
            let value = stored(kind, &changed)?;
            match self.inner.storage.put(&record.key, value.clone(), When::At(record.revision)).await {
                Ok(revision) => {
                    let record = Record { value, revision, ..record };
                    set_revision(&mut shown, revision);
                    let stored = Self::object(kind, record.clone(), revision)?.value();
                    return Ok(Seen { record, stored, shown });
                }
                Err(StorageError::Unmet(now)) => there = now,
                Err(error) => return Err(errors::of_storage(&error)),
            }
        }
        Err(errors::conflict(kind, name, MODIFIED))
    }

    /// Objects as they are known, in their order.
    pub(super) async fn compose_all(&self, kind: &Kind, objects: Vec<Object>) -> Result<Vec<Object>, Status> {
        let Some(composer) = &kind.composer else { return Ok(objects) };
        let each = objects.into_iter().map(|object| self.compose_one(&**composer, kind, object));
        stream::iter(each).buffered(AT_ONCE).try_collect().await
    }

    /// One object as it is known.
    pub(super) async fn compose_one(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        object: Object,
    ) -> Result<Object, Status> {
        let composed = composer.compose(self.caller(), object.value(), Reading::Known).await?;
        Ok(shown_value(kind, object.key(), composed.shown, object.revision()))
    }

    /// An event with its object as it is known.
    pub(super) async fn compose_event(&self, kind: Arc<Kind>, event: Result<Event, Status>) -> Result<Event, Status> {
        let (Some(composer), event) = (&kind.composer, event?) else { return Err(Status::internal("no composer")) };
        let compose = async |object| self.compose_one(&**composer, &kind, object).await;
        // The object of an event is what it is when it is told.
        Ok(match event {
            Event::Added(object) => Event::Added(compose(object).await?),
            Event::Modified(object) => Event::Modified(compose(object).await?),
            Event::Deleted(object) => Event::Deleted(compose(object).await?),
            other => other,
        })
    }

    /// Carries a new object out, and stores what comes of it.
    pub(super) async fn create_composed(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        namespace: &str,
        name: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<String>), Status> {
        let key = key_of(kind, namespace, name);
        let lock = self.inner.written.of(&key);
        let _alone = lock.lock().await;
        if self.record(&key).await?.is_some() {
            return Err(errors::already_exists(kind, name));
        }
        let carried = composer.create(self.author(options), object).await?;
        let shown = |revision| shown_value(kind, &key, carried.shown.clone(), revision);
        if options.dry_run {
            return Ok((shown(0), carried.warnings.clone()));
        }
        let revision = self.put_carried(composer, kind, &key, &carried, When::Absent).await?;
        match revision {
            Some(revision) => Ok((shown(revision), carried.warnings.clone())),
            None => Err(errors::already_exists(kind, name)),
        }
    }

    /// Stores what a write came to. `None`: somebody came between, and what it made is to go.
    async fn put_carried(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        key: &str,
        carried: &Carried,
        when: When,
    ) -> Result<Option<u64>, Status> {
        let value = match stored(kind, &carried.stored) {
            Ok(value) => value,
            Err(status) => {
                composer.settle(carried, false).await;
                return Err(status);
            }
        };
        match self.inner.storage.put(key, value, when).await {
            Ok(revision) => {
                composer.settle(carried, true).await;
                Ok(Some(revision))
            }
            // What is stored is found out when the storage answers again.
            Err(error @ StorageError::Unknown(_)) => Err(errors::of_storage(&error)),
            Err(error) => {
                composer.settle(carried, false).await;
                let StorageError::Unmet(_) = error else { return Err(errors::of_storage(&error)) };
                Ok(None)
            }
        }
    }

    /// The loop of an update: what is there now is what the change is worked out against.
    pub(super) async fn revise_composed(
        &self,
        composer: &dyn Compose,
        kind: &Kind,
        target: &crate::kinds::Target,
        options: &WriteOptions,
        preconditions: &Preconditions,
        revise: &mut Revise<'_>,
    ) -> Result<Written, Status> {
        let (namespace, name) = (&*target.namespace, &*target.name);
        let key = key_of(kind, namespace, name);
        for _ in 0..ATTEMPTS_MAX {
            let lock = self.inner.written.of(&key);
            let there = self.record(&key).await?;
            if there.is_none() && may_create(kind, options) {
                let (object, mut warnings) =
                    Box::pin(self.made_by_update(kind, namespace, name, options, revise)).await?;
                let (object, further) =
                    Box::pin(self.create_composed(composer, kind, namespace, name, object, options)).await?;
                warnings.extend(further);
                return Ok(Written { object, created: true, warnings });
            }
            let alone = lock.lock().await;
            let there = self.record(&key).await?;
            let Seen { record, stored: before, shown: old } = self.seen(composer, kind, name, there).await?;
            check(kind, name, preconditions, &old)?;
            // Nobody waits for webhooks but the write that they are asked about.
            let alone = (!self.is_admitted(options)).then_some(alone);
            let (new, mut warnings) = Box::pin(self.changed(kind, namespace, name, options, &old, revise)).await?;
            let alone = match alone {
                Some(alone) => Some(alone),
                None => self.alone_again(&lock, composer, kind, &record).await?,
            };
            let Some(_alone) = alone else { continue };
            let done = |shown: Value, revision, warnings| {
                let object = shown_value(kind, &record.key, shown, revision);
                Ok(Written { object, created: false, warnings })
            };
            if new == old {
                return done(new, record.revision, warnings);
            }
            if delete::ends_with(&new, &old) && !options.dry_run {
                match self.inner.storage.delete(&record.key, record.revision).await {
                    Ok(revision) => return done(new, revision, warnings),
                    Err(StorageError::Unmet(_)) => continue,
                    Err(error) => return Err(errors::of_storage(&error)),
                }
            }
            let mut carried = composer.update(self.author(options), before.clone(), &old, new).await?;
            warnings.append(&mut carried.warnings);
            if is_same(&carried.shown, &old) {
                if !options.dry_run {
                    composer.settle(&carried, true).await;
                }
                return done(old, record.revision, warnings);
            }
            if options.dry_run {
                return done(carried.shown, record.revision, warnings);
            }
            let when = When::At(record.revision);
            if let Some(revision) = self.put_carried(composer, kind, &record.key, &carried, when).await? {
                return done(carried.shown, revision, warnings);
            }
        }
        Err(errors::conflict(kind, name, MODIFIED))
    }

    /// Waits until nobody else writes an object. `None`: somebody came between, and it is not what it was.
    async fn alone_again<'l>(
        &self,
        lock: &'l tokio::sync::Mutex<()>,
        composer: &dyn Compose,
        kind: &Kind,
        was: &Record,
    ) -> Result<Option<tokio::sync::MutexGuard<'l, ()>>, Status> {
        let alone = lock.lock().await;
        let there = self.record(&was.key).await?;
        let name = was.key.rsplit('/').next().unwrap_or_default();
        let now = self.seen(composer, kind, name, there).await?;
        Ok((now.record.revision == was.revision).then_some(alone))
    }

    /// What is stored of an object whose deletion is asked for.
    pub(super) async fn begin_delete(
        &self,
        kind: &Kind,
        stored: Value,
        options: &DeleteOptions,
    ) -> Result<Value, Status> {
        let Some(composer) = &kind.composer else { return Ok(stored) };
        let write = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
        let author = self.author(&write);
        composer.delete(author, stored, options.propagation).await
    }
}

/// Says whether two states of an object show the same: nobody has written anything, whenever he said so.
fn is_same(new: &Value, old: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        super::meta::set(&mut object, "resourceVersion", None);
        let managers = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        for manager in managers.into_iter().flatten().filter_map(Value::as_object_mut) {
            manager.remove("time");
        }
        object
    };
    bare(new) == bare(old)
}

fn set_revision(object: &mut Value, revision: u64) {
    super::meta::set(object, "resourceVersion", Some(revision.to_string().into()));
}
