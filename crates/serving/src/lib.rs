//! What a server of the Kubernetes API needs around its answers.
//!
//! It knows nothing of fleets and nothing of storage: kubefold and the embedded API server both stand on it. A
//! connection goes `listener -> tls -> authenticate`; what answers its requests uses the other modules.

pub mod audit;
pub mod authenticate;
pub mod caller;
pub mod credential;
pub mod delivery;
pub mod encode;
pub mod fingerprint;
pub mod front_proxy;
mod gather;
pub mod headers;
pub mod health;
pub mod impersonation;
mod indent;
mod listener;
pub mod network;
pub mod packed;
pub mod peer;
pub mod plain;
pub mod replica;
pub mod request;
pub mod shares;
pub mod tls;
pub mod upgrade;

pub use listener::{Answer, Closed, Limits, ListenError, Listener, PeerAddress, Seat, Shutdown};

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
