//! The strategy of a kind with a Rust type: what its schema or its built-in kind says, and then the rules of whoever wrote
//! the kind, in its own type.
//!
//! An object that is none of the type (its schema said less than serde wants) passes the steps that change it, and is
//! refused by those that validate.

use std::sync::Arc;

use serde_json::Value;

use super::codec::{Codec, Unread};
use crate::kinds::{Allocator, Context, ConversionError, Dependency, Propagation, Strategy, forbidden, put};
use kubefold_table::Printer;
use kubefold_wire::status::{Cause, Status};

pub(super) type Change<T> = Box<dyn Fn(&mut T) + Send + Sync>;
pub(super) type Prepare<T> = Box<dyn Fn(&mut T, Context<'_>) + Send + Sync>;
pub(super) type PrepareUpdate<T> = Box<dyn Fn(&mut T, &T, Context<'_>) + Send + Sync>;
pub(super) type Admit<T> = Box<dyn Fn(&T, Option<&T>, Context<'_>) -> Option<String> + Send + Sync>;
pub(super) type Judge<T, A> = Box<dyn Fn(&T, Context<'_>) -> Vec<A> + Send + Sync>;
pub(super) type JudgeUpdate<T, A> = Box<dyn Fn(&T, &T, Context<'_>) -> Vec<A> + Send + Sync>;
pub(super) type Grace<T> = Box<dyn Fn(&T, Option<i64>) -> Option<i64> + Send + Sync>;
pub(super) type Wants<T> = Box<dyn Fn(&T) -> Vec<Dependency> + Send + Sync>;

/// The rules of whoever wrote the kind. What is `None` or empty is as the schema or the built-in kind has it.
pub(super) struct Hooks<T> {
    pub(super) default: Option<Change<T>>,
    pub(super) wants: Option<Wants<T>>,
    pub(super) admit: Option<Admit<T>>,
    pub(super) prepare_create: Option<Prepare<T>>,
    pub(super) prepare_update: Option<PrepareUpdate<T>>,
    pub(super) validate: Option<Judge<T, Cause>>,
    pub(super) validate_update: Option<JudgeUpdate<T, Cause>>,
    pub(super) validate_status: Option<JudgeUpdate<T, Cause>>,
    pub(super) warn: Option<Judge<T, String>>,
    pub(super) warn_update: Option<JudgeUpdate<T, String>>,
    pub(super) canonicalize: Option<Change<T>>,
    pub(super) decorate: Option<Change<T>>,
    pub(super) grace: Option<Grace<T>>,
    pub(super) creates_on_update: Option<bool>,
    pub(super) updates_unconditionally: Option<bool>,
    pub(super) propagation: Option<Propagation>,
    pub(super) finalizers: Vec<&'static str>,
}

impl<T> Default for Hooks<T> {
    fn default() -> Self {
        Self {
            default: None,
            wants: None,
            admit: None,
            prepare_create: None,
            prepare_update: None,
            validate: None,
            validate_update: None,
            validate_status: None,
            warn: None,
            warn_update: None,
            canonicalize: None,
            decorate: None,
            grace: None,
            creates_on_update: None,
            updates_unconditionally: None,
            propagation: None,
            finalizers: Vec::new(),
        }
    }
}

/// The strategy of one version.
pub(super) struct Typed<T> {
    /// Of the schema, or of the built-in kind.
    pub(super) inner: Arc<dyn Strategy>,
    pub(super) own: Arc<Codec<T>>,
    /// All versions, served or not.
    pub(super) codecs: Arc<[Arc<Codec<T>>]>,
    /// The version that is stored, with the strategy of its schema.
    pub(super) stored: Arc<Codec<T>>,
    pub(super) stored_inner: Arc<dyn Strategy>,
    pub(super) hooks: Arc<Hooks<T>>,
    /// For refusals.
    pub(super) group: String,
    pub(super) plural: String,
    /// It is a built-in kind, which converts by itself.
    pub(super) is_built_in: bool,
}

impl<T: Send + Sync + 'static> Typed<T> {
    fn edit(&self, object: &mut Value, change: impl FnOnce(&mut T)) {
        // What does not fit is told when it is validated.
        let _unread = self.own.edit(object, change);
    }

    /// Fills in what a client left out. In a version, what its conversions make of an object, too: a kube-apiserver decodes
    /// every object into the hub, so that a client is answered what is stored.
    fn fill_in(&self, object: &mut Value) {
        if self.own.api_version != self.stored.api_version {
            // What cannot be converted is refused where it is to be stored.
            let _unread = self.own.settle(object);
        }
        if let Some(default) = &self.hooks.default {
            self.edit(object, |typed| default(typed));
        }
    }

    /// What the type itself finds wrong, and the object if that is nothing.
    fn read(&self, object: &Value) -> Result<Option<T>, Cause> {
        match self.own.read(object) {
            Ok(typed) => Ok(Some(typed)),
            Err(Unread::Shape(why)) => Err(Cause::new("FieldValueInvalid", "<nil>", format!("Invalid value: {why}"))),
            // The conversion for the storage tells it.
            Err(Unread::Conversion(_)) => Ok(None),
        }
    }

    fn judged(&self, object: &Value, context: Context<'_>) -> Vec<Cause> {
        match self.read(object) {
            Err(cause) => vec![cause],
            Ok(typed) => match (&typed, &self.hooks.validate) {
                (Some(typed), Some(validate)) => validate(typed, context),
                _ => Vec::new(),
            },
        }
    }

    fn codec_of(&self, object: &Value) -> Result<&Arc<Codec<T>>, ConversionError> {
        let Some(said) = object.get("apiVersion").and_then(Value::as_str) else { return Ok(&self.stored) };
        self.codecs.iter().find(|codec| codec.api_version == said).ok_or_else(|| ConversionError {
            from: said.to_owned(),
            to: self.own.api_version.clone(),
            why: "this server does not know that version any more; declare it, not served, until all objects are migrated"
                .to_owned(),
        })
    }
}

impl<T: Send + Sync + 'static> Strategy for Typed<T> {
    fn default(&self, object: &mut Value) {
        self.inner.default(object);
        self.fill_in(object);
    }

    fn wants(&self, object: &Value) -> Vec<Dependency> {
        let mut wanted = self.inner.wants(object);
        if let (Some(wants), Ok(typed)) = (&self.hooks.wants, self.own.read(object)) {
            wanted.extend(wants(&typed));
        }
        wanted
    }

    fn admit(&self, object: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
        self.inner.admit(object, context)
    }

    fn prepare_for_create(&self, object: &mut Value, context: Context<'_>) {
        self.inner.prepare_for_create(object, context);
        // It may be of the type only now that a generated name is there.
        self.fill_in(object);
        if let Some(prepare) = &self.hooks.prepare_create {
            self.edit(object, |typed| prepare(typed, context));
        }
    }

    fn validate(&self, object: &Value, context: Context<'_>) -> Vec<Cause> {
        let causes = self.inner.validate(object, context);
        if causes.is_empty() { self.judged(object, context) } else { causes }
    }

    fn admit_valid(&self, new: &Value, old: Option<&Value>, context: Context<'_>) -> Result<(), Box<Status>> {
        self.inner.admit_valid(new, old, context)?;
        // What cannot be converted is refused where it is to be stored.
        let (Some(admit), Ok(typed)) = (&self.hooks.admit, self.own.read(new)) else { return Ok(()) };
        let old = old.and_then(|old| self.own.read(old).ok());
        admit(&typed, old.as_ref(), context).map_or(Ok(()), |why| Err(forbidden(&self.group, &self.plural, new, &why)))
    }

    fn warnings(&self, object: &Value, context: Context<'_>) -> Vec<String> {
        let mut warnings = self.inner.warnings(object, context);
        if let (Some(warn), Ok(typed)) = (&self.hooks.warn, self.own.read(object)) {
            warnings.extend(warn(&typed, context));
        }
        warnings
    }

    fn warnings_on_update(&self, new: &Value, old: &Value, context: Context<'_>) -> Vec<String> {
        let mut warnings = self.warnings(new, context);
        if let (Some(warn), Ok(new), Ok(old)) = (&self.hooks.warn_update, self.own.read(new), self.own.read(old)) {
            warnings.extend(warn(&new, &old, context));
        }
        warnings
    }

    fn canonicalize(&self, object: &mut Value) {
        if let Some(canonicalize) = &self.hooks.canonicalize {
            self.edit(object, |typed| canonicalize(typed));
        }
        self.inner.canonicalize(object);
    }

    fn allocate(&self, new: &mut Value, old: Option<&Value>, context: Context<'_>) -> Result<(), Vec<Cause>> {
        self.inner.allocate(new, old, context)
    }

    fn release(&self, gone: &Value, stays: Option<&Value>, allocator: &Allocator) {
        self.inner.release(gone, stays, allocator);
    }

    fn to_storage(&self, object: Value) -> Result<Value, ConversionError> {
        if self.is_built_in {
            return self.inner.to_storage(object);
        }
        if self.own.api_version == self.stored.api_version {
            return Ok(object);
        }
        let mut stored = self.own.convert(&object, &self.stored)?;
        self.stored_inner.canonicalize(&mut stored);
        Ok(stored)
    }

    fn from_storage(&self, object: Value) -> Result<Value, ConversionError> {
        if self.is_built_in {
            return self.inner.from_storage(object);
        }
        let codec = self.codec_of(&object)?;
        if codec.api_version == self.own.api_version {
            return Ok(object);
        }
        let mut shown = codec.convert(&object, &self.own)?;
        self.inner.default(&mut shown);
        self.inner.canonicalize(&mut shown);
        Ok(shown)
    }

    fn decorates(&self) -> bool {
        self.hooks.decorate.is_some() || self.inner.decorates()
    }

    fn decorate(&self, object: &mut Value) {
        self.inner.decorate(object);
        if let Some(decorate) = &self.hooks.decorate {
            self.edit(object, |typed| decorate(typed));
        }
    }

    fn creates_on_update(&self) -> bool {
        self.hooks.creates_on_update.unwrap_or_else(|| self.inner.creates_on_update())
    }

    fn updates_unconditionally(&self) -> bool {
        self.hooks.updates_unconditionally.unwrap_or_else(|| self.inner.updates_unconditionally())
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, context: Context<'_>) {
        self.inner.prepare_for_update(new, old, context);
        let (Some(prepare), Ok(before)) = (&self.hooks.prepare_update, self.own.read(old)) else { return };
        self.edit(new, |typed| prepare(typed, &before, context));
        // The generation counts what the rule changed, too; a status that it set stays.
        let status = new.get("status").cloned();
        self.inner.prepare_for_update(new, old, context);
        put(new, "status", status);
    }

    fn validate_update(&self, new: &Value, old: &Value, context: Context<'_>) -> Vec<Cause> {
        let mut causes = self.inner.validate_update(new, old, context);
        if !causes.is_empty() {
            return causes;
        }
        causes = self.judged(new, context);
        // What is there may be older than the type: then the new state alone counts, so that it can be put right.
        let both = (&self.hooks.validate_update, self.own.read(new), self.own.read(old));
        if let (Some(validate), Ok(new), Ok(old)) = both {
            causes.extend(validate(&new, &old, context));
        }
        causes
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        self.inner.prepare_for_status_update(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value, context: Context<'_>) -> Vec<Cause> {
        let causes = self.inner.validate_status_update(new, old, context);
        if !causes.is_empty() {
            return causes;
        }
        match (self.read(new), &self.hooks.validate_status, self.own.read(old)) {
            (Err(cause), _, _) => vec![cause],
            (Ok(Some(new)), Some(validate), Ok(old)) => validate(&new, &old, context),
            _ => Vec::new(),
        }
    }

    fn default_propagation(&self) -> Propagation {
        self.hooks.propagation.unwrap_or_else(|| self.inner.default_propagation())
    }

    fn finalizers_of_deletion(&self) -> &[&'static str] {
        if self.hooks.finalizers.is_empty() { self.inner.finalizers_of_deletion() } else { &self.hooks.finalizers }
    }

    fn printer(&self) -> Option<Printer> {
        self.inner.printer()
    }

    fn schema(&self) -> Option<&Value> {
        self.inner.schema()
    }

    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        match (&self.hooks.grace, self.own.read(object)) {
            (Some(grace), Ok(typed)) => grace(&typed, asked),
            _ => self.inner.grace_seconds(object, asked),
        }
    }
}
