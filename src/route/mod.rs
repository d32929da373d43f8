//! Reads what a request is about, and picks who answers it.
//!
//! May name: `discovery`, `read`, `write`, `member`, and what is below them.

mod info;

pub use info::{PathError, RequestInfo, View};
