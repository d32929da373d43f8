//! The namespace that selectors and expressions see.

use serde_json::Value;

use crate::registry::{AdmissionRequest, Registry};
use kubefold_wire::status::{Reason, Status};

/// The namespace in which something is written; `None`: in none.
///
/// Errors: 404; the storage's.
pub(super) async fn namespace_of(
    registry: &Registry,
    request: &AdmissionRequest<'_>,
) -> Result<Option<Value>, Box<Status>> {
    if request.namespace.is_empty() {
        return Ok(None);
    }
    // A server without namespaces as objects has all of them.
    let Some(kind) = registry.kind("", "Namespace") else { return Ok(None) };
    match registry.get(&kind, "", request.namespace).await {
        Ok(object) => Ok(Some(object.value())),
        // It is being made.
        Err(status) if status.reason == Reason::NotFound && request.kind.plural == "namespaces" => Ok(None),
        Err(status) => Err(Box::new(status)),
    }
}
