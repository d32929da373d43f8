//! The fleet's own part of serving: its certificate authority, what happens to every request, published kubeconfigs.
//!
//! May name: `route` and what is below it. A connection goes through `kubefold_serving`; each of its requests goes
//! `gate -> Handler`.

mod audit;
pub mod authority;
mod cached;
pub mod expiry;
mod gate;
mod handing;
mod holder;
pub mod login;
mod monitor;
mod published;
pub mod revoked;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod traffic;

pub use audit::{AuditError, AuditOptions, Auditing};
pub use gate::{Gate, Handler, Telling};
pub use handing::Handing;
pub use holder::{Holder, HolderBody};
pub use monitor::{Health, Monitor};
pub use published::{Login, Published, PublishedError};
pub use shared::{Shared, SharedError};
pub use state::{StateDir, StateError};
pub use traffic::Served;
