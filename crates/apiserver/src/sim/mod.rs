//! Controllers, a scheduler and kubelets that make workloads live without any machine.
//!
//! The core is pure: `machine::Machine` takes the changes of a cluster's objects and the time, and says what to do.
//! A shell carries that out by the same calls that clients of HTTP get.
//!
//! Everything follows from a seed: the same changes at the same times make the same objects.

mod action;
#[cfg(feature = "demo")]
mod activity;
mod autoscaler;
mod churn;
mod context;
mod cron;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod event;
mod fields;
mod garbage;
mod job;
mod kubelet;
#[cfg(feature = "demo")]
mod logs;
mod machine;
#[cfg(feature = "demo")]
mod metrics;
mod names;
mod namespace;
mod node;
#[cfg(feature = "demo")]
mod page;
#[cfg(feature = "demo")]
mod pods;
mod queue;
mod release;
mod replicaset;
mod resource;
mod run;
mod scheduler;
mod seed;
#[cfg(feature = "demo")]
mod shell;
mod statefulset;
#[cfg(test)]
mod tests;
mod view;
mod volume;
mod world;

pub use {
    churn::{Churn, churn},
    run::{Options, Sim, TokioClock},
    seed::{Seed, Seeded, seed},
};
#[cfg(feature = "demo")]
pub use {logs::logs, metrics::metrics_kinds, pods::Containers};
