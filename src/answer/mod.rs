//! What requests of the fleet view ask for, and how their answers are written: forms, Tables, encodings, refusals.
//!
//! [`RequestContext`] is what a request says beside its target; `form` and `table` write objects; [`reply`] is a whole answer as
//! JSON; [`unbuilt`] refuses what no room does yet.
//!
//! May name: `view`, `config`, `store`, `respond`, `stores`, `access` and what is below them. No request is answered here.

mod context;
pub(crate) mod form;
mod partial;
pub mod reply;
pub(crate) mod table;
pub mod unbuilt;

pub use context::{Collection, RequestContext};
