//! The way to one member: credentials, connections, tunnels, limits, whom a request is made for, and what went wrong on it.
//!
//! [`Upstream`] sends; an [`Outgoing`] request is kubefold's own or a caller's, whom `impersonate` writes into its headers; [`error`] and [`cause`] sort what failed;
//! [`health`] is the state machine that traffic and probes feed. Whose way it is, `member` knows.
//!
//! May name: `authn`, `config`, `observe`. One cycle of files: `client` and `client/upgrade`, which hold the methods of one type.

pub(crate) mod access;
mod answer;
pub mod cause;
pub(crate) mod client;
pub(crate) mod dial;
pub mod error;
pub mod health;
pub(crate) mod impersonate;
pub(crate) mod metrics;
mod outgoing;
pub(crate) mod permits;
mod places;
mod pool;
mod probe_state;
pub mod replica;
pub(crate) mod tunnel;

pub use {
    answer::{UpResponseBody, collect},
    client::{UpBody, Upgrade, Upstream},
    error::{Blame, Failure, Retry, UpstreamError},
    health::Health,
    impersonate::ImpersonateError,
    metrics::{Meter, UpstreamMetrics},
    outgoing::{Outgoing, OutgoingError, OwnPath},
    permits::TooManyStreams,
    places::Class,
    probe_state::{LastError, ProbeState},
};
