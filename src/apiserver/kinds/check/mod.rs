//! What is wrong with an object, beyond what its schema says.
//!
//! Source: kubernetes `pkg/apis/*/validation/validation.go`. `docs/embedded.md` lists what is not checked.

pub(super) mod field;
pub(super) mod metadata;
pub(super) mod selector;
pub(super) mod words;

pub(super) use field::{Errors, Path};
