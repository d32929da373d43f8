//! What a namespace has to say about what is made in it.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/namespace/lifecycle/admission.go`.

use serde_json::Value;

use crate::{
    kinds::Kind,
    registry::{Object, Registry, errors},
};
use kubefold_wire::status::{Cause, Status};

/// Namespaces that nobody deletes.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Registry {
    /// Checks that objects may be made in a namespace.
    ///
    /// Errors: 404 if it is not there, 403 if it goes.
    pub(super) async fn admit_to_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Status> {
        // A server without namespaces as objects has all of them.
        if !kind.namespaced || self.kind("", "Namespace").is_none() {
            return Ok(());
        }
        let record = self.record(&format!("namespaces/{namespace}")).await?;
        let record = record.ok_or_else(|| Status::not_found("", "namespaces", namespace))?;
        let object = Object::of_record(&record);
        // Most say nothing of it, and need not be parsed.
        if !object.bare().contains("Terminating")
            || object.value().pointer("/status/phase").and_then(Value::as_str) != Some("Terminating")
        {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = errors::forbidden(kind, name, &why);
        let message = format!("namespace {namespace} is being terminated");
        status.details.causes = vec![Cause::new("NamespaceTerminating", "metadata.namespace", message)];
        Err(status)
    }
}

/// Says whether it is a namespace that nobody deletes.
pub(super) fn is_immortal(kind: &Kind, name: &str) -> bool {
    is_namespace(kind) && IMMORTAL.contains(&name)
}

/// Says whether the objects of a kind are namespaces.
pub(super) fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}
