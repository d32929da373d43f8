//! How kubefold says what it does: logs to standard error, as text or JSON, and metrics.
//!
//! May name: `wire`.

mod class;
mod metrics;
mod slis;
mod traffic;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

pub use {
    class::{RESOURCES, RequestClass, resource_class},
    metrics::{Exposed, Metrics},
    slis::Slis,
    traffic::{Party, Traffic},
};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// What a server logs where `RUST_LOG` says nothing.
pub const LEVEL: &str = "info";

/// Sets logging up, once per process; a second call changes nothing.
///
/// `level` is what is logged where `RUST_LOG` says nothing.
pub fn init(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let result = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
    };
    // The only failure is that somebody else has set it up: then it is set up.
    drop(result);
}
