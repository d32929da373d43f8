//! End-to-end tests: real kube-apiservers, real kubectl and the real program.
//!
//! One test target, so that everything is linked once. A new file of tests is one more `mod` here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod absence;
mod access;
mod access_faults;
mod access_proofs;
mod access_random;
mod accounts;
mod action;
mod aggregation;
mod apiserver;
mod audit;
mod authentication;
mod bench;
mod chart;
mod cli;
mod clients;
mod cluster_profiles;
mod clusters;
mod config;
mod dashboards;
mod demo;
mod deploy;
mod differential;
mod discovery;
mod docs;
mod etcd;
mod fanout;
mod fault;
mod fault_definitions;
mod fault_matrix;
mod foreign;
mod forms;
mod freshness;
mod informer;
mod join;
mod limits;
mod list_watch;
mod login;
mod member_view;
mod members;
mod membership;
mod mirror;
mod observe;
mod openapi;
mod partial;
mod paths;
mod provider;
mod query;
mod read;
mod recording;
mod replicas;
mod restarts;
mod resumed;
mod rewrite;
mod schedules;
mod search;
mod shadow;
mod shadow_informer;
mod shared_objects;
mod sso;
mod standby;
mod standby_steps;
mod state;
mod stored;
mod streams;
mod table;
mod ui;
mod upgrade;
mod verbs;

mod watch_caches;
mod write;
