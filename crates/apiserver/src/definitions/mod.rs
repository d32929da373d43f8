//! Definitions of custom resources: kinds that come and go while the server runs.
//!
//! - `strategy`, `spec`, `schema`, `fault`: a definition as an object of its own, and what is wrong with it
//! - `custom`: the kinds that it makes, and what is special to their objects
//! - `controller`: accepts names, serves kinds, and clears up when a definition goes
//!
//! Not here: conversion by webhooks (refused), `selectableFields` (kept, not selectable), rules in
//! `x-kubernetes-validations` (kept, not evaluated; a warning says so).

mod controller;
mod custom;
mod schema;
mod spec;
mod strategy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::kinds::Kind;

pub use controller::Definitions;

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";

/// What a definition waits for when it is deleted: that its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

#[cfg(test)]
const TYPE: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

/// The kind of definitions with all that is special to it, of the one that only knows its form.
pub fn definition_kind(built_in: &Kind) -> Kind {
    Kind { strategy: Arc::new(strategy::Definition), ..built_in.clone() }
}
