//! kubefold folds many Kubernetes clusters into one Kubernetes API.
//!
//! A request walks `serve -> route -> read | write | stream | discovery -> store | member -> wire`
//! and never back up. `ARCHITECTURE.md` has the rooms; `tests/tidy.rs` holds the direction.

pub mod app;
pub mod cli;
pub mod config;
pub mod discovery;
pub mod member;
pub mod observe;
pub mod placement;
pub mod read;
pub mod route;
pub mod serve;
pub mod store;
pub mod stream;
pub mod view;
pub mod write;
