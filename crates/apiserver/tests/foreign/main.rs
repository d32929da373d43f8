//! Programs that know nothing of this crate, unmodified, over a server of it on every storage: Kubernetes' sample-controller, a
//! controller of kube-rs, and kubectl.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod kube_rs;
mod kubectl;
mod sample_controller;
mod served;
