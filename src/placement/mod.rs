//! Where objects of the fleet view go, and how their parts become one object again.
//!
//! Pure: values in, values out; no clock, no IO. May name `wire`, `config` and `observe`.

pub mod capacity;
pub mod carried;
pub mod children;
pub mod companions;
pub mod divided;
pub mod division;
mod edits;
pub mod fingerprint;
pub mod fold;
pub mod marker;
pub mod merge;
pub mod moved;
pub mod nodes;
pub mod noted;
pub mod overrides;
pub mod plan;
pub mod policy;
pub mod quota;
pub mod resources;
pub mod scheduling;
pub mod stamp;
pub mod visible;
