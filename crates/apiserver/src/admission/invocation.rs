//! Which policies are asked about a write, with which bindings and parameters.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/generic/policy_dispatcher.go` `Dispatch`.

use std::sync::Arc;

use serde_json::Value;

use super::{
    binding::{Binding, kind_of},
    matching::{MatchResources, Matched, Seen},
    namespace::namespace_of,
    policy::Policy,
    request::GROUP,
};
use crate::registry::{AdmissionRequest, Registry};
use kubefold_wire::status::Status;

/// Questions, which no policy is about. Source: kubernetes `pkg/kubeapiserver/admission/exclusion/resources.go`.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// A policy and where it is in force.
pub(super) struct Hook<T> {
    pub(super) policy: Arc<Policy<T>>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// A policy that is asked about a write.
pub(super) struct Invocation<T> {
    pub(super) policy: Arc<Policy<T>>,
    pub(super) binding: Arc<Binding>,
    pub(super) matched: Matched,
    pub(super) param: Option<Value>,
}

/// A policy that would be asked, were it not for something that it or its binding names.
pub(super) struct Misconfigured<T> {
    pub(super) policy: Arc<Policy<T>>,
    /// `None`: the policy names it.
    pub(super) binding: Option<Arc<Binding>>,
    why: String,
}

/// All that is asked about a write.
pub(super) struct Selection<T> {
    /// The namespace of the object as expressions see it.
    pub(super) namespace: Option<Value>,
    /// In the order of policies and their bindings.
    pub(super) found: Vec<Result<Invocation<T>, Misconfigured<T>>>,
}

/// A write that no policy is asked about, so that nobody locks himself out.
pub(super) fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    request.kind.group == GROUP || REVIEWS.contains(&request.kind.group.as_str())
}

/// Selects those policies that are asked about a write.
///
/// Errors: there is no such namespace; the storage's.
pub(super) async fn select<T>(
    hooks: Vec<Hook<T>>,
    registry: &Registry,
    request: &AdmissionRequest<'_>,
    object: Option<&Value>,
) -> Result<Selection<T>, Box<Status>> {
    let mut search = Search { registry, request, object, namespace: None, found: Vec::new() };
    let mut is_looked_up = false;
    for hook in hooks {
        let Some(matched) = hook.policy.constraints.rules_match(registry, request) else { continue };
        if !is_looked_up {
            search.namespace = namespace_of(registry, request).await?;
            is_looked_up = true;
        }
        search.add(hook, &matched).await;
    }
    // A namespace does not lie in itself.
    let is_in_one = !(request.kind.group.is_empty() && request.kind.plural == "namespaces");
    Ok(Selection { namespace: search.namespace.filter(|_| is_in_one), found: search.found })
}

struct Search<'a, T> {
    registry: &'a Registry,
    request: &'a AdmissionRequest<'a>,
    object: Option<&'a Value>,
    namespace: Option<Value>,
    found: Vec<Result<Invocation<T>, Misconfigured<T>>>,
}

impl<T> Search<'_, T> {
    async fn add(&mut self, hook: Hook<T>, matched: &Matched) {
        let policy = &hook.policy;
        if !self.selects(&policy.constraints) {
            return;
        }
        let kind = match kind_of(policy.param_kind.as_ref(), self.registry) {
            Ok(kind) => kind,
            Err(error) => return self.found.push(Err(Misconfigured::new(policy, None, &error))),
        };
        for binding in &hook.bindings {
            let is_about = |resources: &MatchResources| {
                resources.rules_match(self.registry, self.request).is_some() && self.selects(resources)
            };
            if !binding.resources.as_ref().is_none_or(is_about) {
                continue;
            }
            match binding.params(kind.as_ref(), self.registry, self.request.namespace).await {
                Ok(params) => self.found.extend(params.into_iter().map(|param| {
                    let (policy, binding) = (Arc::clone(policy), Arc::clone(binding));
                    Ok(Invocation { policy, binding, matched: matched.clone(), param })
                })),
                Err(error) => self.found.push(Err(Misconfigured::new(policy, Some(binding), &error))),
            }
        }
    }

    fn selects(&self, resources: &MatchResources) -> bool {
        resources.selects(self.request, Seen { object: self.object, namespace: self.namespace.as_ref() })
    }
}

impl<T> Misconfigured<T> {
    pub(super) fn new(policy: &Arc<Policy<T>>, binding: Option<&Arc<Binding>>, why: &dyn std::error::Error) -> Self {
        Self { policy: Arc::clone(policy), binding: binding.cloned(), why: why.to_string() }
    }

    /// What is told of it.
    pub(super) fn message(&self) -> String {
        let what = if self.binding.is_some() { "binding" } else { "policy" };
        format!("failed to configure {what}: {}", self.why)
    }
}

impl<T> Invocation<T> {
    /// What a second round knows it by.
    pub(super) fn id(&self) -> String {
        let param = |field: &str| {
            let text = self.param.as_ref().and_then(|param| param.pointer(field)).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let (namespace, name) = (param("/metadata/namespace"), param("/metadata/name"));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
}
