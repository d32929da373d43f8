//! Where a policy is in force, and with which parameters.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/generic/policy_dispatcher.go` `CollectParams`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::{matching::MatchResources, policy::ParamKind};
use crate::{
    kinds::Kind,
    registry::{ListOptions, Registry, Selection},
};
use kubefold_wire::{
    matching::ObjectSelector,
    resource::split_api_version,
    status::{Reason, Status},
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    policy_name: String,
    param_ref: Option<ParamRef>,
    match_resources: Option<MatchResources>,
    validation_actions: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<ObjectSelector>,
    parameter_not_found_action: String,
}

/// A `ValidatingAdmissionPolicyBinding`.
pub(super) struct Binding {
    pub(super) name: String,
    /// The name of the policy.
    pub(super) policy: String,
    /// `None`: whatever the policy is about.
    pub(super) resources: Option<MatchResources>,
    /// `Deny`, `Warn`, `Audit`.
    pub(super) actions: Vec<String>,
    params: Option<ParamRef>,
}

/// Why there are no parameters to judge with.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParamError {
    /// The kind of the policy's parameters is not served.
    #[error("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")]
    NoKind {
        /// Empty is core.
        group: String,
        /// As the policy says it.
        version: String,
        /// As the policy says it.
        kind: String,
    },
    /// Parameters lie in namespaces, and what is written does not.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    /// Parameters do not lie in namespaces.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    Namespace,
    /// There are none.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    /// They cannot be read.
    #[error("{}", .0.message)]
    Unreadable(Box<Status>),
}

impl Binding {
    /// Reads a binding.
    pub(super) fn of(object: &Value) -> Self {
        let spec = object.get("spec").and_then(|spec| Spec::deserialize(spec).ok()).unwrap_or_default();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        Self {
            name: name.to_owned(),
            policy: spec.policy_name,
            resources: spec.match_resources,
            actions: spec.validation_actions,
            params: spec.param_ref,
        }
    }

    /// The parameters for a write to a namespace, each of which the policy is to be judged with. Without any to name, that is one
    /// that is `None`.
    ///
    /// Errors: there are none, or their kind is not as the binding has it; the storage's.
    pub(super) async fn params(
        &self,
        kind: Option<&Arc<Kind>>,
        registry: &Registry,
        namespace: &str,
    ) -> Result<Vec<Option<Value>>, ParamError> {
        let (Some(kind), Some(reference)) = (kind, &self.params) else { return Ok(vec![None]) };
        let namespace = match (kind.namespaced, reference.namespace.as_str()) {
            (true, "") if namespace.is_empty() => return Err(ParamError::NoNamespace),
            (true, "") => namespace,
            (true, said) => said,
            (false, "") => "",
            (false, _) => return Err(ParamError::Namespace),
        };
        let found = match &reference.selector {
            Some(selector) => selected(kind, registry, namespace, selector).await,
            None => match registry.get(kind, namespace, &reference.name).await {
                Ok(object) => Ok(vec![Some(object.value())]),
                Err(status) if status.reason == Reason::NotFound => Ok(Vec::new()),
                Err(status) => Err(status),
            },
        };
        let found = found.map_err(|status| ParamError::Unreadable(Box::new(status)))?;
        if found.is_empty() && reference.parameter_not_found_action == "Deny" {
            return Err(ParamError::NotFound);
        }
        Ok(found)
    }
}

async fn selected(
    kind: &Kind,
    registry: &Registry,
    namespace: &str,
    selector: &ObjectSelector,
) -> Result<Vec<Option<Value>>, Status> {
    let options = ListOptions { selection: Selection::default(), ..ListOptions::default() };
    let list = registry.list(kind, namespace, &options).await?;
    let values = list.objects.iter().map(|object| object.value());
    let is_selected = |object: &Value| {
        let labels = object.pointer("/metadata/labels");
        selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    };
    Ok(values.filter(is_selected).map(Some).collect())
}

/// The kind of a policy's parameters; `None`: it has none.
///
/// Errors: it is not served.
pub(super) fn kind_of(said: Option<&ParamKind>, registry: &Registry) -> Result<Option<Arc<Kind>>, ParamError> {
    let Some(said) = said else { return Ok(None) };
    let (group, version) = split_api_version(&said.api_version).unwrap_or_default();
    let is_it = |kind: &&Arc<Kind>| kind.group == group && kind.version == version && kind.kind == said.kind;
    let found = registry.catalog().kinds().iter().find(is_it).cloned();
    let missing =
        || ParamError::NoKind { group: group.to_owned(), version: version.to_owned(), kind: said.kind.clone() };
    found.map(Some).ok_or_else(missing)
}
