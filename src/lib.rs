//! kubefold folds many Kubernetes clusters into one Kubernetes API.
//!
//! A request walks `serve -> route -> read | write | review | stream | discovery -> answer -> access -> stores -> member ->
//! respond -> upstream | store`
//! and never back up. `ARCHITECTURE.md` has the rooms; `tests/tidy.rs` holds the direction.

pub mod access;
pub mod accounts;
pub mod answer;
pub mod app;
pub mod authn;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod discovery;
pub mod host;
pub mod karmada;
pub mod member;
pub mod mirror;
pub mod observe;
pub mod own;
pub mod placement;
pub mod read;
pub mod respond;
pub mod review;
pub mod route;
pub mod search;
pub mod serve;
pub mod status;
pub mod store;
pub mod stores;
pub mod stream;
pub mod upstream;
pub mod view;
pub mod write;
