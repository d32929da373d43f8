//! Deletes: with grace, finalizers, preconditions.
//!
//! Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go` `Delete`, `pkg/registry/rest/delete.go`;
//! kubernetes `pkg/registry/core/namespace/storage/storage.go`.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    kinds::{Kind, Propagation},
    registry::{
        DeleteOptions, ListOptions, Object, Operation, Registry,
        admission::Admitted,
        errors::{self, MODIFIED},
        key_of, meta, namespace, shown_value, time_text,
    },
    storage::{Record, StorageError, When},
};
use kubefold_wire::status::Status;

const ATTEMPTS_MAX: usize = 64;
/// The finalizer by which an object waits until its dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer by which an object waits until its dependents do not name it any more.
pub(super) const ORPHAN: &str = "orphan";

/// What a delete came to.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The last state, or the present one if it is not gone.
    pub object: Object,
    /// It is gone. If not, it waits for its finalizers or for its time.
    pub gone: bool,
}

/// What is to be done with an object that is to go.
enum Step {
    /// It is gone with this change.
    Remove,
    /// It becomes this, and then it is gone: it has no time left.
    End(Value),
    /// It becomes this.
    Put(Value),
    /// It is on its way already.
    Wait,
}

impl Registry {
    /// Deletes an object, or has it wait for its finalizers or its time.
    ///
    /// Errors: 403, 404, 409.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        Box::pin(self.delete_as(kind, namespace, name, options, name)).await
    }

    /// The same; `said` is the name that the request names.
    async fn delete_as(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        said: &str,
    ) -> Result<Deleted, Status> {
        if namespace::is_immortal(kind, name) {
            return Err(errors::forbidden(kind, name, "this namespace may not be deleted"));
        }
        if let Some(rest) = &kind.rest {
            return self.delete_elsewhere(&**rest, kind, namespace, name, options, said).await;
        }
        let key = key_of(kind, namespace, name);
        let mut there = self.record(&key).await?;
        for _ in 0..ATTEMPTS_MAX {
            let record = there.ok_or_else(|| errors::not_found(kind, name))?;
            let of = Admitted { kind, namespace, name: said, operation: Operation::Delete, old: None };
            match self.delete_once(&of, name, &record, options).await? {
                Ok(deleted) => return self.shown_of_deletion(kind, deleted).await,
                Err(now) => there = now,
            }
        }
        Err(errors::conflict(kind, name, MODIFIED))
    }

    /// Deletes all objects of a selection, one after another. Answers what was there.
    ///
    /// Errors: those of the first that cannot be deleted; those before it are.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: &str,
        which: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<super::List, Status> {
        let list = self.list(kind, namespace, which).await?;
        for object in &list.objects {
            match Box::pin(self.delete_as(kind, object.namespace(), object.name(), options, "")).await {
                Err(status) if status.reason == kubefold_wire::status::Reason::NotFound => {}
                other => {
                    other?;
                }
            }
        }
        Ok(list)
    }

    /// What is shown of an object that goes.
    async fn shown_of_deletion(&self, kind: &Kind, deleted: Deleted) -> Result<Deleted, Status> {
        let Some(composer) = &kind.composer else { return Ok(deleted) };
        let object = self.compose_one(&**composer, kind, deleted.object).await?;
        Ok(Deleted { object, ..deleted })
    }

    async fn delete_once(
        &self,
        of: &Admitted<'_>,
        name: &str,
        record: &Record,
        options: &DeleteOptions,
    ) -> Result<Result<Deleted, Option<Record>>, Status> {
        let kind = of.kind;
        let readable = self.readable(kind, record.clone()).await?;
        let value = Self::object(kind, readable, record.revision)?.value();
        let shown = |value: Value, revision| shown_value(kind, &record.key, value, revision);
        check(kind, name, options, &value)?;
        let now = self.inner.env.now();
        // What is on its way already is not asked about again.
        if !matches!(step(kind, &value, options, now), Step::Wait) {
            Box::pin(self.admit_delete(&Admitted { old: Some(&value), ..*of }, options)).await?;
        }
        let value = Box::pin(self.begin_delete(kind, value, options)).await?;
        let storage = &self.inner.storage;
        let done = |object, gone| Ok(Ok(Deleted { object, gone }));
        let outcome = match step(kind, &value, options, now) {
            Step::Wait => return done(shown(value, record.revision), false),
            Step::Remove if options.dry_run => return done(shown(value, record.revision), true),
            Step::End(new) if options.dry_run => return done(shown(new, record.revision), true),
            Step::Put(new) if options.dry_run => return done(shown(new, record.revision), false),
            Step::Remove => storage.delete(&record.key, record.revision).await.map(|revision| {
                kind.strategy.release(&value, None, &self.inner.allocator);
                Deleted { object: shown(value.clone(), revision), gone: true }
            }),
            Step::End(new) => self.end(kind, record, &value, new).await?,
            Step::Put(new) if new == value => return done(shown(value, record.revision), false),
            Step::Put(new) => {
                let storable = self.storable(kind, &new).await?;
                let new = storable.shown.unwrap_or(new);
                storage
                    .put(&record.key, storable.value, When::At(record.revision))
                    .await
                    .map(|revision| Deleted { object: shown(new, revision), gone: false })
            }
        };
        match outcome {
            Ok(deleted) => Ok(Ok(deleted)),
            Err(StorageError::Unmet(now)) => Ok(Err(now)),
            Err(error) => Err(errors::of_storage(&error)),
        }
    }
}

impl Registry {
    /// Tells watchers that an object has no time left, and removes it.
    ///
    /// Errors: 400. The storage's are inside.
    async fn end(
        &self,
        kind: &Kind,
        record: &Record,
        old: &Value,
        new: Value,
    ) -> Result<Result<Deleted, StorageError>, Status> {
        let storage = &self.inner.storage;
        let storable = self.storable(kind, &new).await?;
        let new = storable.shown.unwrap_or(new);
        let ended = match storage.put(&record.key, storable.value, When::At(record.revision)).await {
            Ok(revision) => storage.delete(&record.key, revision).await,
            Err(error) => Err(error),
        };
        Ok(ended.map(|revision| {
            kind.strategy.release(old, None, &self.inner.allocator);
            Deleted { object: shown_value(kind, &record.key, new, revision), gone: true }
        }))
    }
}

/// Says whether an update takes the last finalizer from an object that was to go.
pub(super) fn ends_with(new: &Value, old: &Value) -> bool {
    let spec = new.pointer("/spec/finalizers").and_then(Value::as_array);
    let is_namespace = new.get("kind").and_then(Value::as_str) == Some("Namespace");
    meta::texts(new, "finalizers").is_empty()
        && !(is_namespace && spec.is_some_and(|finalizers| !finalizers.is_empty()))
        && meta::field(old, "deletionTimestamp").is_string()
        && meta::field(old, "deletionGracePeriodSeconds").as_i64().unwrap_or_default() == 0
}

/// Errors: 409.
pub(super) fn check(kind: &Kind, name: &str, options: &DeleteOptions, there: &Value) -> Result<(), Status> {
    let mismatch = |what: &str, asked: &str, is: &str, why: &str| {
        let why = format!(
            "the {what} in the precondition ({asked}) does not match the {what} in record ({is}). The object might \
             have been {why}"
        );
        // The words of Kubernetes' have the kind where the resource belongs.
        let mut status = errors::conflict(kind, name, &why);
        let resource = kubefold_wire::status::qualified(&kind.group, &kind.plural);
        let named = kubefold_wire::status::qualified(&kind.group, &kind.kind);
        status.message = status.message.replacen(&resource, &named, 1);
        status.details.kind.clone_from(&kind.kind);
        Err(status)
    };
    if let Some(uid) = options.preconditions.uid.as_deref()
        && uid != meta::text(there, "uid")
    {
        return mismatch("UID", uid, meta::text(there, "uid"), "deleted and then recreated");
    }
    if let Some(revision) = options.preconditions.resource_version.as_deref()
        && revision != meta::text(there, "resourceVersion")
    {
        return mismatch("ResourceVersion", revision, meta::text(there, "resourceVersion"), "modified");
    }
    Ok(())
}

fn step(kind: &Kind, old: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let mut new = old.clone();
    let is_graceful = match graceful(kind, &mut new, options, now) {
        Grace::Pending => return Step::Wait,
        Grace::Given(seconds) => Some(seconds),
        Grace::None => None,
    };
    let finalizers = finalizers(kind, old, options);
    let waits = !finalizers.is_empty() || holds_content(kind, old);
    meta::set(&mut new, "finalizers", Some(finalizers.into()).filter(|list: &Value| *list != Value::Array(Vec::new())));
    if holds_content(kind, old) {
        terminate(&mut new, now);
        return Step::Put(new);
    }
    match is_graceful {
        Some(seconds) if waits || seconds > 0 => Step::Put(new),
        Some(_) => Step::End(new),
        None if waits => {
            let begins = !meta::field(&new, "deletionTimestamp").is_string();
            if !(begins && kind.strategy.begin_deletion(&mut new, &time_text(now))) {
                mark(&mut new, now);
            }
            Step::Put(new)
        }
        _ => Step::Remove,
    }
}

/// A namespace waits until what is in it is gone.
fn holds_content(kind: &Kind, object: &Value) -> bool {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array);
    namespace::is_namespace(kind) && finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn terminate(object: &mut Value, now: Timestamp) {
    if !meta::field(object, "deletionTimestamp").is_string() {
        meta::set(object, "deletionTimestamp", Some(time_text(now).into()));
    }
    if let Some(fields) = object.as_object_mut() {
        let status = fields.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
        crate::kinds::put(status, "phase", Some("Terminating".into()));
    }
}

enum Grace {
    None,
    Pending,
    Given(i64),
}

/// Source: `BeforeDelete`.
fn graceful(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    // What is negative counts as a second.
    let positive = |seconds: i64| if seconds < 0 { 1 } else { seconds };
    let asked = options.grace_seconds.map(positive);
    let given = kind.strategy.grace_seconds(object, asked);
    let Some(deletion) = meta::field(object, "deletionTimestamp").as_str().map(str::to_owned) else {
        let Some(seconds) = given else { return Grace::None };
        let at = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        meta::set(object, "deletionTimestamp", Some(time_text(at).into()));
        meta::set(object, "deletionGracePeriodSeconds", Some(seconds.into()));
        raise_generation(object);
        return Grace::Given(seconds);
    };
    let before = meta::field(object, "deletionGracePeriodSeconds").as_i64().map(positive).unwrap_or_default();
    if before == 0 {
        return Grace::None;
    }
    let Some(mut seconds) = asked.filter(|asked| *asked < before) else { return Grace::Pending };
    let deletion: Timestamp = deletion.parse().unwrap_or(now);
    let moved = SignedDuration::from_secs(seconds - before);
    let mut at = deletion.saturating_add(moved).unwrap_or(now);
    if at < now {
        at = now;
        seconds = seconds.min(1);
    }
    meta::set(object, "deletionTimestamp", Some(time_text(at).into()));
    meta::set(object, "deletionGracePeriodSeconds", Some(seconds.into()));
    Grace::Given(seconds)
}

/// Source: `markAsDeleting`.
fn mark(object: &mut Value, now: Timestamp) {
    let deletion = meta::field(object, "deletionTimestamp").as_str().and_then(|text| text.parse::<Timestamp>().ok());
    if deletion.is_none() {
        raise_generation(object);
    }
    if deletion.is_none_or(|deletion| deletion > now) {
        meta::set(object, "deletionTimestamp", Some(time_text(now).into()));
    }
    meta::set(object, "deletionGracePeriodSeconds", Some(0.into()));
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = meta::field(object, "generation").as_i64().filter(|generation| *generation > 0) {
        meta::set(object, "generation", Some((generation + 1).into()));
    }
}

/// The finalizers of an object that is to go: what the caller says of its dependents is one.
fn finalizers(kind: &Kind, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let mut finalizers = meta::texts(object, "finalizers");
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    let policy = options.propagation.unwrap_or_else(|| {
        if has(ORPHAN) {
            Propagation::Orphan
        } else if has(FOREGROUND) {
            Propagation::Foreground
        } else {
            kind.strategy.default_propagation()
        }
    });
    finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    match policy {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    if !meta::field(object, "deletionTimestamp").is_string() {
        for own in kind.strategy.finalizers_of_deletion() {
            if !finalizers.iter().any(|there| there == own) {
                finalizers.push((*own).to_owned());
            }
        }
    }
    finalizers
}
