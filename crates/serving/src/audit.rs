//! Who did what: an event of each request in the audit log, and the `Audit-ID` by which the logs of all servers that work for a request
//! are joined.

mod event;
mod log;
mod policy;
#[cfg(test)]
mod tests;
mod trail;

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tracing::Instrument;

pub use {
    log::{AuditLog, AuditLogError, Counts, LogFile, LogWriter},
    policy::{Policy, PolicyError},
    trail::{Arrival, Full, Trail},
};

/// Carries one request's identity through the logs of all servers that work for it.
///
/// Source: kubernetes/apiserver `pkg/endpoints/filters/audit_init.go`.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Annotations of one event at most.
const NOTES_MAX: usize = 32;

/// What is added to a request's audit event while it is answered.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    annotations: BTreeMap<String, String>,
    /// The name of the object, where the path has none.
    name: String,
}

impl Notes {
    /// Adds an annotation; a later one replaces an earlier one of the same key.
    pub fn annotate(&self, key: &str, value: String) {
        let annotations = &mut self.0.lock().annotations;
        if annotations.len() < NOTES_MAX || annotations.contains_key(key) {
            annotations.insert(key.to_owned(), value);
        }
    }

    /// Names the object that a request makes, which its path does not.
    pub fn name(&self, name: &str) {
        name.clone_into(&mut self.0.lock().name);
    }
}

/// The request that a task works for.
#[derive(Clone)]
struct Current {
    id: HeaderValue,
    notes: Option<Notes>,
}

tokio::task_local! {
    static CURRENT: Current;
}

/// Runs a request's work under its id. What is noted meanwhile comes into `notes`.
pub async fn scoped<F: Future>(id: HeaderValue, notes: Option<Notes>, work: F) -> F::Output {
    let span = tracing::info_span!("request", audit = id.to_str().unwrap_or_default());
    CURRENT.scope(Current { id, notes }, work).instrument(span).await
}

/// The id of the request that this task works for.
pub fn current() -> Option<HeaderValue> {
    CURRENT.try_with(|current| current.id.clone()).ok()
}

/// Where to note something about the request that this task works for; `None` if no event is written of it.
pub fn notes() -> Option<Notes> {
    CURRENT.try_with(|current| current.notes.clone()).ok().flatten()
}

/// Has work that is to be spawned go on under the id of the request that it is begun for.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let current = CURRENT.try_with(Clone::clone).ok();
    async move {
        match current {
            Some(Current { id, notes }) => scoped(id, notes, work).await,
            None => work.await,
        }
    }
}
