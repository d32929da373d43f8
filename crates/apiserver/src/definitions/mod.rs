//! Definitions of custom resources: kinds that come and go while the server runs.
//!
//! - `strategy`, `spec`, `schema`, `fault`: a definition as an object of its own, and what is wrong with it
//! - `custom`: the kinds that it makes, and what is special to their objects
//! - `conversion`: objects that a webhook converts; `review`: what it is asked, and what its answer means
//! - `controller`: accepts names, serves kinds, and clears up when a definition goes
//!
//! Not here: rules in `x-kubernetes-validations` are `rules`, and calls of webhooks `webhook`.

mod controller;
mod conversion;
mod custom;
mod review;
mod schema;
mod spec;
mod strategy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Kind, Strategy, put};
use kubefold_wire::status::Cause;

pub use controller::Definitions;

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";

/// What a definition waits for when it is deleted: that its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The kinds of a definition that no client sent: it is a program's own, so that nobody else has its names, and a group of
/// Kubernetes' own needs no word of approval. Fills in its defaults and its status.
///
/// Errors: what is wrong with it.
pub(crate) fn kinds_of(definition: &mut Value) -> Result<Vec<Kind>, Vec<Cause>> {
    let strategy = strategy::Definition;
    if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        put(annotations, "api-approved.kubernetes.io", Some("unapproved, a program's own".into()));
    }
    strategy.default(definition);
    put(definition, "status", None);
    strategy::add_stored(definition);
    let causes = spec::faults(definition, None);
    if !causes.is_empty() {
        return Err(causes);
    }
    let names = definition.pointer("/spec/names").cloned();
    if let Some(status) = definition.get_mut("status") {
        put(status, "acceptedNames", names);
    }
    Ok(custom::kinds(definition, None))
}

#[cfg(test)]
const TYPE: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

/// The kind of definitions with all that is special to it, of the one that only knows its form.
pub fn definition_kind(built_in: &Kind) -> Kind {
    Kind { strategy: Arc::new(strategy::Definition), ..built_in.clone() }
}
