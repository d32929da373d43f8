//! The strategy of the built-in kinds: what is alike for all of them, and a table of what is not.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Allocator, Context, ConversionError, Dependency, Strategy,
    check::{Errors, metadata},
    defaults,
    doc::Doc,
    keep, put,
    rules::{Generation, Rules},
    set_generation,
};
use crate::schema::{Types, arrange_stored};
use kubefold_wire::status::{Cause, Status};

/// What is special to one built-in kind in one version.
pub(super) struct BuiltIn {
    /// Those of all built-in kinds.
    pub(super) types: Arc<Types>,
    /// The name of its own among them.
    pub(super) type_name: String,
    pub(super) namespaced: bool,
    pub(super) has_status: bool,
    pub(super) rules: Rules,
}

impl BuiltIn {
    /// Brings an object into the form in which it is stored.
    fn normalize(&self, object: &mut Value) {
        if let Some(typed) = self.types.named(&self.type_name) {
            *object = arrange_stored(typed, object.take());
        }
    }

    fn next_generation(&self, new: &mut Value, old: &Value) {
        let before = old.number("metadata.generation");
        let changed = match self.rules.generation {
            Generation::Of(fields) | Generation::Later(fields) => {
                fields.iter().any(|field| new.at(field) != old.at(field))
            }
            _ => false,
        };
        match before {
            None if !changed => metadata_field(new, "generation", None),
            _ => set_generation(new, before.unwrap_or(0) + i64::from(changed)),
        }
    }
}

fn metadata_field(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(metadata) = object.get_mut("metadata") {
        put(metadata, field, value);
    }
}

impl Strategy for BuiltIn {
    fn default(&self, object: &mut Value) {
        self.normalize(object);
        if let Some(typed) = self.types.named(&self.type_name) {
            defaults::apply(typed, object);
        }
    }

    fn wants(&self, object: &Value) -> Vec<Dependency> {
        (self.rules.wants)(object)
    }

    fn admit(&self, object: &mut Value, context: Context<'_>) -> Result<(), Box<Status>> {
        (self.rules.admit)(object, context)
    }

    fn prepare_for_create(&self, object: &mut Value, _context: Context<'_>) {
        if self.has_status && !self.rules.creates_with_status {
            super::clear_status(object);
        }
        // Where it means nothing, a client's own stays.
        if matches!(self.rules.generation, Generation::One | Generation::Of(_)) {
            set_generation(object, 1);
        }
        (self.rules.prepare_for_create)(object);
        self.normalize(object);
    }

    fn validate(&self, object: &Value, _context: Context<'_>) -> Vec<Cause> {
        let mut errors = Errors::default();
        metadata::check(object, self.namespaced, self.rules.name, &mut errors);
        (self.rules.check)(object, &mut errors);
        errors.into_causes()
    }

    fn warnings(&self, object: &Value, _context: Context<'_>) -> Vec<String> {
        (self.rules.warnings)(object)
    }

    fn canonicalize(&self, object: &mut Value) {
        (self.rules.canonicalize)(object);
        self.default(object);
        // What a default made of nothing is written in the order of the others.
        self.normalize(object);
    }

    fn allocate(&self, new: &mut Value, old: Option<&Value>, context: Context<'_>) -> Result<(), Vec<Cause>> {
        (self.rules.allocate)(new, old, context)?;
        self.normalize(new);
        Ok(())
    }

    fn release(&self, gone: &Value, stays: Option<&Value>, allocator: &Allocator) {
        (self.rules.release)(gone, stays, allocator);
    }

    fn to_storage(&self, object: Value) -> Result<Value, ConversionError> {
        Ok((self.rules.to_storage)(object))
    }

    fn from_storage(&self, object: Value) -> Result<Value, ConversionError> {
        Ok((self.rules.from_storage)(object))
    }

    fn creates_on_update(&self) -> bool {
        self.rules.creates_on_update
    }

    fn updates_unconditionally(&self) -> bool {
        self.rules.updates_unconditionally
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, _context: Context<'_>) {
        if self.has_status {
            keep(new, old, "status");
        }
        (self.rules.prepare_for_update)(new, old);
        self.default(new);
        self.next_generation(new, old);
    }

    fn validate_update(&self, new: &Value, old: &Value, _context: Context<'_>) -> Vec<Cause> {
        let mut errors = Errors::default();
        metadata::check_update_common(new, old, self.namespaced, &mut errors);
        (self.rules.check_update)(new, old, &mut errors);
        errors.into_causes()
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let (status, given) = (new.get("status").cloned(), new.get("metadata").cloned());
        *new = old.clone();
        put(new, "status", status);
        let kept: Vec<_> = self.rules.status_keeps.iter().copied().chain(["generation"]).collect();
        if let Some(mut given) = given {
            for field in kept {
                put(&mut given, field, old.get("metadata").and_then(|metadata| metadata.get(field)).cloned());
            }
            put(new, "metadata", Some(given));
        }
        (self.rules.prepare_for_status)(new, old);
        self.default(new);
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _context: Context<'_>) -> Vec<Cause> {
        let mut errors = Errors::default();
        metadata::check_update_common(new, old, self.namespaced, &mut errors);
        (self.rules.check_status)(new, old, &mut errors);
        errors.into_causes()
    }

    fn default_propagation(&self) -> super::Propagation {
        self.rules.propagation
    }

    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        (self.rules.grace_seconds)(object, asked)
    }
}
