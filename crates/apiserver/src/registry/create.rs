//! Creates.
//!
//! Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go` `Create`, `pkg/registry/rest/create.go`.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    kinds::{Context, Kind},
    registry::{
        Attempt, Object, Operation, Registry, Rounds, WriteOptions, Written, admission::Admitted, errors, key_of,
        managed::arranged, meta, names, shown_value,
    },
    storage::{StorageError, When},
    stored::encode,
};
use kubefold_wire::{
    media::is_built_in,
    status::{Cause, Reason, Status},
};

/// How often a name is made up. Source: `store.go`, `maxNameGenerationCreateAttempts`.
const NAMES_MAX: usize = 8;

impl Registry {
    /// Makes an object.
    ///
    /// Errors: in Kubernetes' words: 400, 403, 404, 409, 422.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let generated = meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty();
        for _ in 1..NAMES_MAX {
            let made = Box::pin(self.create_once(kind, namespace, object.clone(), options)).await;
            match made {
                Err(status) if generated && status.reason == Reason::AlreadyExists => {}
                made => return made,
            }
        }
        Box::pin(self.create_once(kind, namespace, object, options)).await
    }

    async fn create_once(
        &self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        set_type(kind, &mut object)?;
        place(kind, namespace, &mut object)?;
        if !matches!(meta::text(&object, "resourceVersion"), "" | "0") {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        let (object, warnings) = Box::pin(self.made(kind, namespace, "", object, options)).await?;
        let name = meta::text(&object, "name").to_owned();
        let key = key_of(kind, namespace, &name);
        if let Some(rest) = &kind.rest {
            let object = self.create_elsewhere(&**rest, kind, namespace, object, options).await?;
            return Ok(Written { object, created: true, warnings });
        }
        if let Some(composer) = &kind.composer {
            let made = self.create_composed(&**composer, kind, namespace, &name, object, options);
            let (object, further) = Box::pin(made).await?;
            return Ok(Written { object, created: true, warnings: [warnings, further].concat() });
        }
        let release = |gone: &Value| kind.strategy.release(gone, None, &self.inner.allocator);
        let storable = self.storable(kind, &object).await.inspect_err(|_| release(&object))?;
        let (value, object) = (storable.value, storable.shown.unwrap_or(object));
        if options.dry_run {
            release(&object);
            if self.record(&key).await?.is_some() {
                return Err(errors::already_exists(kind, &name));
            }
            return Ok(Written { object: shown_value(kind, &key, object, 0), created: true, warnings });
        }
        match self.inner.storage.put(&key, value, When::Absent).await {
            Ok(revision) => Ok(Written { object: shown_value(kind, &key, object, revision), created: true, warnings }),
            // The object may be stored, and have what the allocator gave it.
            Err(error @ StorageError::Unknown(_)) => Err(errors::of_storage(&error)),
            Err(error) => {
                release(&object);
                let StorageError::Unmet(there) = error else { return Err(errors::of_storage(&error)) };
                let mut status = errors::already_exists(kind, &name);
                let going = there.map(|record| Object::of_record(&record).value());
                if going.is_some_and(|there| meta::field(&there, "deletionTimestamp").is_string()) {
                    status.message = format!("object is being deleted: {}", status.message);
                }
                Err(status)
            }
        }
    }

    /// A new object with all that the server says, valid, and its warnings. `asked` is the name that the request names; empty
    /// for a create.
    ///
    /// Errors: 403, 404, 422.
    pub(super) async fn made(
        &self,
        kind: &Kind,
        namespace: &str,
        asked: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), Status> {
        let strategy = &kind.strategy;
        strategy.default(&mut object);
        meta::wipe(&mut object);
        let (now, suffix) = (self.inner.env.now_text(), self.inner.env.suffix());
        if !options.applies {
            object = self.tracked(kind, None, object, options, &now).await;
        }
        self.admit_to_namespace(kind, namespace, meta::text(&object, "name")).await?;
        let alone = self.context(&now, &suffix, &[]);
        let (mut object, others) = Box::pin(self.mutated_for_create(kind, namespace, object, options, alone)).await?;
        let context = Context { others: &others, ..alone };
        self.check_attempt(kind, namespace, asked, &object, None)?;
        meta::fill(&mut object, &self.inner.env);
        strategy.prepare_for_create(&mut object, context);
        meta::normalize(&mut object);
        let name = meta::text(&object, "name").to_owned();
        let mut causes = strategy.validate(&object, context);
        if causes.is_empty() {
            causes = names::faults(kind, &object);
        }
        if !causes.is_empty() {
            return Err(errors::invalid(kind, &name, causes));
        }
        if let (Some(guard), false) = (&self.guard, asked.is_empty()) {
            let attempt = Attempt { caller: self.caller(), kind, namespace, name: asked, new: &object, old: None };
            guard.check_create(&attempt).map_err(|status| *status)?;
        }
        strategy.admit_valid(&object, None, context).map_err(|status| *status)?;
        let of = Admitted { kind, namespace, name: &name, operation: Operation::Create, old: None };
        Box::pin(self.admit(&of, &object, options)).await?;
        let warnings = strategy.warnings(&object, context);
        strategy.canonicalize(&mut object);
        strategy.allocate(&mut object, None, context).map_err(|causes| errors::invalid(kind, &name, causes))?;
        Ok((arranged(kind, object), warnings))
    }

    /// A new object after all that changes it before it is validated, and what its strategy wants to see of others.
    ///
    /// Errors: the whole answer.
    async fn mutated_for_create(
        &self,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
        context: Context<'_>,
    ) -> Result<(Value, Vec<Value>), Status> {
        let mut rounds = Rounds::default();
        loop {
            let mut others = self.others(&kind.strategy.wants(&object)).await?;
            kind.strategy.admit(&mut object, Context { others: &others, ..context }).map_err(|status| *status)?;
            let name = meta::text(&object, "name").to_owned();
            let of = Admitted { kind, namespace, name: &name, operation: Operation::Create, old: None };
            object = self.mutated(&of, object, options, &mut rounds).await?;
            if !rounds.begin_second() {
                if rounds.is_changed() {
                    set_type(kind, &mut object)?;
                    place(kind, namespace, &mut object)?;
                    meta::wipe(&mut object);
                    others = self.others(&kind.strategy.wants(&object)).await?;
                }
                return Ok((object, others));
            }
        }
    }
}

/// The bytes that are stored of an object.
///
/// Errors: as [`to_store`].
pub(super) fn stored(kind: &Kind, object: &Value) -> Result<Bytes, Status> {
    Ok(encode(&to_store(kind, object.clone())?))
}

/// An object in the version that is stored.
///
/// Errors: 400, if it cannot be said in that version.
pub(super) fn to_store(kind: &Kind, object: Value) -> Result<Value, Status> {
    kind.strategy.to_storage(object).map_err(|error| errors::unstorable(kind, &error))
}

/// Says the kind and version of the request in an object.
///
/// Errors: 422, if a custom resource says another kind. Source: kubernetes/apiextensions-apiserver
/// `pkg/registry/customresource/validator.go` `ValidateTypeMeta`.
pub(super) fn set_type(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let said = object.get("kind").and_then(Value::as_str).unwrap_or(&kind.kind);
    if said != kind.kind && !is_built_in(&kind.group) {
        let cause = Cause::invalid_text("kind", said, &format!("must be {}", kind.kind));
        return Err(Status::invalid(&kind.group, said, meta::text(object, "name"), vec![cause]));
    }
    meta::set_type(object, kind);
    Ok(())
}

/// Puts an object into the namespace of the request.
///
/// Errors: 400 if it says another.
pub(super) fn place(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    if !kind.namespaced {
        meta::set(object, "namespace", None);
        return Ok(());
    }
    match meta::text(object, "namespace") {
        "" => meta::set(object, "namespace", Some(namespace.into())),
        said if said == namespace => {}
        _ => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}
