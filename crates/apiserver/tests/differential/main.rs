//! The embedded server beside a real kube-apiserver: the same requests, and the same answers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod collecting;
mod conversion;
mod costs;
mod custom;
#[cfg(feature = "etcd")]
mod etcd;
mod kinds;
mod openapi;
mod patch;
mod patterns;
mod policies;
mod rbac;
mod rules;
mod schema;
mod sim;
mod typed;
mod urls;
mod wardle;
mod webhooks;
mod writes;
