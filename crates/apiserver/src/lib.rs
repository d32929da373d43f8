//! An embeddable API server in Kubernetes' style: kinds of your own in one call, for kubectl, client-go and controllers.
//!
//! Begin with [`Server`]. A kind is a [`Kind::of`] a Rust type, with what [`TypedKind`] lets be said of it; one whose
//! objects are not stored is a [`Rest`]. What is wrong with an object is a list of [`Cause`]s, any other refusal a
//! [`Status`]. [`registry::Registry`] does in this process what requests do over HTTP. The README has an example.
//!
//! The members of `kubefold demo` are such servers, too. It speaks for itself alone: nothing in it knows of fleets.
//!
//! - `patterns`: regular expressions as Go reads them
//! - `schema`: the types of an object's fields; decoding, defaults, pruning, validation, OpenAPI documents
//! - `rules`: rules in CEL of custom resources, and expressions of admission policies
//! - `patch`: JSON, merge, strategic and apply patches; managed fields
//! - `cron`: schedules of cron jobs, for `kinds` and `sim`
//! - `kinds`: what a server knows of a kind, its strategy, and the built-in kinds
//! - `webhook`: calls of webhooks over HTTPS
//! - `stored`: objects as they are stored
//! - `storage`: keys, values, revisions, watches: a trait, memory, a file of SQLite, PostgreSQL, etcd
//! - `registry`: create, get, list, watch, update, patch, delete over a storage, for any kind
//! - `definitions`: custom resources, whose kinds come and go
//! - `typed`: kinds of Rust types
//! - `rbac`: who may do what, by roles and bindings
//! - `admission`: webhooks that change or refuse writes, policies that refuse them
//! - `serve`: the registry over HTTP, with discovery
//! - `streaming`: exec, attach and forwarded ports, as a kubelet serves them
//! - `sim`: namespaces that end, garbage that is collected; and controllers, a scheduler and a kubelet that make workloads
//!   live
//! - `server`: all of these in one call
//! - `faults`: what can go wrong with answers, on demand
//! - `cluster`: all of these together
//! - `endpoint`: an address with TLS, that can be killed and revived
//!
//! May name: `serving`, `sql`, `table`, `wire`. Rooms in it name those above them in this list only.

pub mod admission;
#[cfg(feature = "demo")]
pub mod cluster;
mod cron;
pub mod definitions;
#[cfg(feature = "demo")]
pub mod endpoint;
#[cfg(feature = "demo")]
pub mod faults;
pub mod kinds;
pub mod patch;
mod patterns;
pub mod rbac;
pub mod registry;
mod rules;
pub mod schema;
pub mod serve;
pub mod server;
pub mod sim;
pub mod storage;
mod stored;
#[cfg(feature = "demo")]
mod streaming;
pub mod typed;
mod webhook;

use futures::future::BoxFuture;
use http::{Request, Response};

use kubefold_wire::body::Body;

pub use crate::{
    kinds::{Changed, Connect, Context, Dependency, Kind, Rest, Target, Watch},
    server::{Authorization, BuiltIn, Server},
    storage::{Memory, Storage},
    typed::{TypedKind, Version},
};
pub use kubefold_serving::caller::Caller;
pub use kubefold_wire::status::{Cause, Status};

/// What answers requests. The caller is in the request's extensions.
pub trait Service: Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>>;
}

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
