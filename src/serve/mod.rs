//! The edge: listeners, TLS, who the caller is, header hygiene, health, and an end that lets answers finish.
//!
//! May name: `route` and what is below it. A connection goes `listener -> tls -> authenticate`; each of its requests
//! goes `gate -> headers -> Handler`.

pub mod authenticate;
pub mod authority;
mod gate;
mod headers;
pub mod health;
mod listener;
mod published;
mod state;
#[cfg(test)]
mod tests;
pub mod tls;
mod traffic;

pub use gate::{Gate, Handler};
pub use listener::{Limits, ListenError, Listener};
pub use published::{Published, PublishedError};
pub use state::{StateDir, StateError};
pub use traffic::Served;
