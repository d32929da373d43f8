//! Sets of fields of an object.
//!
//! Source: sigs.k8s.io/structured-merge-diff `fieldpath`.

mod element;
mod set;
mod wire;

pub use element::{Element, same, shown};
pub use set::Set;
pub use wire::FieldsError;
