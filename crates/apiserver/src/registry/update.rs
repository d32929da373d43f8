//! Updates: a loop that works out the new object of the one that is there, until nobody came between.
//!
//! Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go` `Update`, `pkg/registry/rest/update.go`.

use serde_json::Value;

use crate::{
    kinds::{Context, Kind, put},
    patch::managed,
    registry::{
        Object, Operation, Part, Preconditions, Registry, Rounds, WriteOptions, Written,
        admission::Admitted,
        create::{place, set_type},
        delete,
        errors::{self, MODIFIED},
        key_of,
        managed::arranged,
        meta, names, shown_value,
        versions::Conversions,
    },
    storage::{Record, StorageError, When},
};
use kubefold_wire::status::{Cause, Status};

/// How often others may come between before a write is a conflict.
pub(super) const ATTEMPTS_MAX: usize = 64;

/// Works out the new object; `None`: there is none yet.
pub(super) type Revise<'r> = dyn FnMut(Option<&Value>, &Conversions) -> Result<Value, Status> + Send + 'r;

/// What one attempt came to.
enum Attempt {
    Done(Box<Written>),
    /// Somebody came between; this is there now.
    Again(Option<Record>),
}

impl Registry {
    /// Puts an object in place of the one that is there. Its resource version, if it has one, must be that one's.
    ///
    /// Errors: in Kubernetes' words: 400, 404, 409, 422.
    pub async fn update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let uid = Some(meta::text(&object, "uid")).filter(|uid| !uid.is_empty()).map(str::to_owned);
        let preconditions = Preconditions { uid, resource_version: None };
        Box::pin(self.revise(kind, namespace, name, options, &preconditions, &mut |_, _| Ok(object.clone()))).await
    }

    /// Changes an object, again and again until nobody comes between.
    ///
    /// Errors: 404, 409, 422, and those of `change`.
    pub async fn modify(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        mut change: impl FnMut(&mut Value) -> Result<(), Status> + Send,
    ) -> Result<Written, Status> {
        let mut revise = |there: Option<&Value>, _: &Conversions| {
            let mut object = there.cloned().ok_or_else(|| errors::not_found(kind, name))?;
            change(&mut object)?;
            Ok(object)
        };
        Box::pin(self.revise(kind, namespace, name, options, &Preconditions::default(), &mut revise)).await
    }

    /// Changes any part of an object: what a binding or a finalizer does.
    ///
    /// Errors: 404, 409, 422, and those of `change`.
    pub async fn modify_all(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        change: impl FnMut(&mut Value) -> Result<(), Status> + Send,
    ) -> Result<Written, Status> {
        let options = WriteOptions { part: Part::Special, ..options.clone() };
        self.modify(kind, namespace, name, &options, change).await
    }

    /// Puts the finalizers of a namespace's content in place of those that are there: `/finalize`.
    ///
    /// Errors: 404, 409, 422.
    pub async fn finalize(
        &self,
        kind: &Kind,
        name: &str,
        namespace: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let finalizers = namespace.pointer("/spec/finalizers").cloned();
        let revision = meta::text(&namespace, "resourceVersion").to_owned();
        let change = |there: &mut Value| {
            if !revision.is_empty() {
                meta::set(there, "resourceVersion", Some(revision.as_str().into()));
            }
            if let Some(spec) = there.get_mut("spec") {
                put(spec, "finalizers", finalizers.clone());
            }
            Ok(())
        };
        self.modify_all(kind, "", name, options, change).await
    }

    /// The loop below all writes to what may be there.
    pub(super) async fn revise(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        preconditions: &Preconditions,
        revise: &mut Revise<'_>,
    ) -> Result<Written, Status> {
        if let Some(rest) = &kind.rest {
            let target = self.target(namespace, name);
            return Box::pin(self.revise_elsewhere(&**rest, kind, &target, options, preconditions, revise)).await;
        }
        // What a finalizer or a controller of the kind changes is what is stored.
        if let Some(composer) = kind.composer.as_ref().filter(|_| options.part != Part::Special) {
            let target = self.target(namespace, name);
            return Box::pin(self.revise_composed(&**composer, kind, &target, options, preconditions, revise)).await;
        }
        let key = key_of(kind, namespace, name);
        let mut there = self.record(&key).await?;
        for _ in 0..ATTEMPTS_MAX {
            let attempt = match &there {
                Some(record) => {
                    Box::pin(self.change_once(kind, namespace, name, options, preconditions, record, revise)).await?
                }
                None => Box::pin(self.create_by_update(kind, namespace, name, options, revise)).await?,
            };
            match attempt {
                Attempt::Done(written) => return Ok(*written),
                Attempt::Again(now) => there = now,
            }
        }
        Err(errors::conflict(kind, name, MODIFIED))
    }

    async fn create_by_update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        revise: &mut Revise<'_>,
    ) -> Result<Attempt, Status> {
        if !may_create(kind, options) {
            return Err(errors::not_found(kind, name));
        }
        let (object, warnings) = Box::pin(self.made_by_update(kind, namespace, name, options, revise)).await?;
        let key = key_of(kind, namespace, name);
        let release = || kind.strategy.release(&object, None, &self.inner.allocator);
        let storable = self.storable(kind, &object).await.inspect_err(|_| release())?;
        let (value, shown) = (storable.value, storable.shown);
        let done = |revision| {
            let object = shown_value(kind, &key, shown.unwrap_or_else(|| object.clone()), revision);
            Ok(Attempt::Done(Box::new(Written { object, created: true, warnings })))
        };
        if options.dry_run {
            release();
            return done(0);
        }
        match self.inner.storage.put(&key, value, When::Absent).await {
            Ok(revision) => done(revision),
            Err(error) => {
                release();
                again(error)
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one step of a loop")]
    async fn change_once(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        preconditions: &Preconditions,
        record: &Record,
        revise: &mut Revise<'_>,
    ) -> Result<Attempt, Status> {
        let strategy = &kind.strategy;
        let readable = self.readable(kind, record.clone()).await?;
        let old = Self::object(kind, readable, record.revision)?.value();
        check(kind, name, preconditions, &old)?;
        let (new, warnings) = Box::pin(self.changed(kind, namespace, name, options, &old, revise)).await?;
        let undo = || strategy.release(&new, Some(&old), &self.inner.allocator);
        let done = |shown: Value, revision| {
            Attempt::Done(Box::new(Written {
                object: shown_value(kind, &record.key, shown, revision),
                created: false,
                warnings: warnings.clone(),
            }))
        };
        let storage = &self.inner.storage;
        if delete::ends_with(&new, &old) && !options.dry_run {
            return match storage.delete(&record.key, record.revision).await {
                Ok(revision) => {
                    strategy.release(&new, None, &self.inner.allocator);
                    Ok(done(new, revision))
                }
                Err(error) => again(error),
            };
        }
        let storable = self.storable(kind, &new).await.inspect_err(|_| undo())?;
        let (value, shown) = (storable.value, storable.shown);
        let written = |revision| done(shown.clone().unwrap_or_else(|| new.clone()), revision);
        if options.dry_run {
            undo();
            return Ok(written(record.revision));
        }
        // What is stored in another version than new objects is written, though nothing else changes.
        if new == old && Object::of_record(record).is_as_stored(&value) {
            return Ok(written(record.revision));
        }
        match storage.put(&record.key, value, When::At(record.revision)).await {
            Ok(revision) => {
                strategy.release(&old, Some(&new), &self.inner.allocator);
                Ok(written(revision))
            }
            Err(error) => {
                undo();
                again(error)
            }
        }
    }

    /// A new object of what an update says where there is none, with all that the server says, and its warnings.
    ///
    /// Errors: 400, 403, 404, 422.
    pub(super) async fn made_by_update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        revise: &mut Revise<'_>,
    ) -> Result<(Value, Vec<String>), Status> {
        let mut object = self.calculated(kind, |conversions| revise(None, conversions)).await?;
        set_type(kind, &mut object)?;
        place(kind, namespace, &mut object)?;
        Box::pin(self.made(kind, namespace, name, object, options)).await
    }

    /// The new state of an object, valid, and the warnings. What it takes from the allocator is the caller's to release.
    ///
    /// Errors: 400, 409, 422.
    pub(super) async fn changed(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        old: &Value,
        revise: &mut Revise<'_>,
    ) -> Result<(Value, Vec<String>), Status> {
        let strategy = &kind.strategy;
        let mut new = self.calculated(kind, |conversions| revise(Some(old), conversions)).await?;
        set_type(kind, &mut new)?;
        place(kind, namespace, &mut new)?;
        strategy.default(&mut new);
        let (now, suffix) = (self.inner.env.now_text(), self.inner.env.suffix());
        if !options.applies {
            new = self.tracked(kind, Some(old), new, options, &now).await;
        }
        let of = Admitted { kind, namespace, name, operation: Operation::Update, old: Some(old) };
        let mut rounds = Rounds::default();
        loop {
            new = Box::pin(self.mutated(&of, new, options, &mut rounds)).await?;
            if !rounds.begin_second() {
                break;
            }
        }
        if rounds.is_changed() {
            set_type(kind, &mut new)?;
            place(kind, namespace, &mut new)?;
        }
        self.check_attempt(kind, namespace, name, &new, Some(old))?;
        check_revision(kind, name, &new, old)?;
        let revision = Some(meta::field(old, "resourceVersion").clone()).filter(|revision| !revision.is_null());
        // Without one it is the present one's: what is there is written over.
        meta::set(&mut new, "resourceVersion", revision.clone());
        let others = self.others(&strategy.wants(&new)).await?;
        let context = self.context(&now, &suffix, &others);
        // What is there was arranged, too: what only looks different is no difference.
        let mut new = arranged(kind, new);
        let warnings = prepared(kind, name, options.part, &mut new, old, context)?;
        Box::pin(self.admit(&of, &new, options)).await?;
        strategy.allocate(&mut new, Some(old), context).map_err(|causes| errors::invalid(kind, name, causes))?;
        meta::set(&mut new, "resourceVersion", revision);
        let mut new = arranged(kind, new);
        managed::keep_times(&mut new, old);
        Ok((new, warnings))
    }
}

/// Says whether an update of what is not there makes it.
pub(super) fn may_create(kind: &Kind, options: &WriteOptions) -> bool {
    options.part == Part::Whole && (kind.strategy.creates_on_update() || options.may_create)
}

fn again(error: StorageError) -> Result<Attempt, Status> {
    match error {
        StorageError::Unmet(there) => Ok(Attempt::Again(there)),
        other => Err(errors::of_storage(&other)),
    }
}

/// Checks what must hold of the object that is there.
///
/// Errors: 409.
pub(super) fn check(kind: &Kind, name: &str, preconditions: &Preconditions, there: &Value) -> Result<(), Status> {
    let failed = |what: &str, asked: &str, is: &str| {
        let why = format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {is}");
        Err(errors::conflict(kind, name, &why))
    };
    if let Some(uid) = &preconditions.uid
        && uid != meta::text(there, "uid")
    {
        return failed("UID", uid, meta::text(there, "uid"));
    }
    if let Some(revision) = &preconditions.resource_version
        && revision != meta::text(there, "resourceVersion")
    {
        return failed("ResourceVersion", revision, meta::text(there, "resourceVersion"));
    }
    Ok(())
}

/// Checks the revision that a client wants to write over.
///
/// Errors: 409, 422.
fn check_revision(kind: &Kind, name: &str, new: &Value, old: &Value) -> Result<(), Status> {
    match meta::text(new, "resourceVersion") {
        // What has none there, an object that is not stored, needs none.
        "" | "0" if kind.strategy.updates_unconditionally() || meta::text(old, "resourceVersion").is_empty() => Ok(()),
        "" | "0" => {
            let why = "Invalid value: 0: must be specified for an update";
            let cause = Cause::new("FieldValueInvalid", "metadata.resourceVersion", why);
            Err(Status::invalid(&kind.group, &kind.plural, name, vec![cause]))
        }
        asked if asked != meta::text(old, "resourceVersion") => Err(errors::conflict(kind, name, MODIFIED)),
        _ => Ok(()),
    }
}

/// Makes a new state of what a client wants and what is there, and answers the warnings.
///
/// Errors: 422.
fn prepared(
    kind: &Kind,
    name: &str,
    part: Part,
    new: &mut Value,
    old: &Value,
    context: Context<'_>,
) -> Result<Vec<String>, Status> {
    let strategy = &kind.strategy;
    meta::set(new, "generation", Some(meta::field(old, "generation").clone()).filter(|value| !value.is_null()));
    match part {
        Part::Whole => strategy.prepare_for_update(new, old, context),
        Part::Status => strategy.prepare_for_status_update(new, old),
        Part::Special => {}
    }
    if meta::text(new, "uid").is_empty() {
        meta::set(new, "uid", Some(meta::field(old, "uid").clone()));
    }
    for kept in ["creationTimestamp", "deletionTimestamp"] {
        if meta::field(old, kept).is_string() {
            meta::set(new, kept, Some(meta::field(old, kept).clone()));
        }
    }
    if meta::field(new, "deletionGracePeriodSeconds").is_null() {
        let grace = meta::field(old, "deletionGracePeriodSeconds").clone();
        meta::set(new, "deletionGracePeriodSeconds", Some(grace).filter(|grace| !grace.is_null()));
    }
    meta::normalize(new);
    let mut causes = match part {
        Part::Whole => strategy.validate_update(new, old, context),
        Part::Status => strategy.validate_status_update(new, old, context),
        Part::Special => Vec::new(),
    };
    if causes.is_empty() {
        causes = names::faults(kind, new);
        causes.extend(names::faults_of_update(new, old));
    }
    if !causes.is_empty() {
        return Err(errors::invalid(kind, name, causes));
    }
    let mut warnings = Vec::new();
    if part == Part::Whole {
        strategy.admit_valid(new, Some(old), context).map_err(|status| *status)?;
        warnings = strategy.warnings_on_update(new, old, context);
    }
    strategy.canonicalize(new);
    Ok(warnings)
}
