//! What each fuzz target does with its bytes: it decodes them, and panics where a promise of theirs does not hold.
//!
//! `fuzz/run` feeds them from libFuzzer, and the tests here run every target over its seeds and over damaged ones.

mod json;
mod patches;
mod stream;
mod text;

#[cfg(test)]
mod tests;

pub use json::{edits, list, locate, protobuf};
pub use patches::{fields, patch};
pub use stream::watch;
pub use text::{negotiate, path, selectors, token, warning};
