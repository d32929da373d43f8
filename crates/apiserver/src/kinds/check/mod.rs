//! What is wrong with an object, beyond what its schema says.
//!
//! Source: kubernetes `pkg/apis/*/validation/validation.go`. `docs/embedded-kinds.md` lists what is not validated.

mod address;
pub(super) mod admission;
pub(super) mod core;
pub(super) mod events;
pub(super) mod field;
pub(super) mod job;
pub(super) mod metadata;
pub(super) mod mutations;
pub(super) mod networking;
pub(super) mod others;
pub(super) mod pod;
mod resources;
mod selector;
pub(super) mod service;
pub(super) mod storage;
pub(super) mod webhooks;
pub(super) mod words;
pub(super) mod workload;

pub(super) use field::internal;
pub(super) use kubefold_wire::invalid::{Errors, Path};
