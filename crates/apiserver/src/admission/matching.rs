//! Which writes a policy or a binding is about.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/matching/matching.go`,
//! `pkg/admission/plugin/webhook/predicates/`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    kinds::Kind,
    registry::{AdmissionRequest, Operation, Registry},
};
use kubefold_wire::{matching::ObjectSelector, resource::Gvk};

/// What a policy or a binding says of the writes that it is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MatchResources {
    match_policy: String,
    pub(super) namespace_selector: ObjectSelector,
    pub(super) object_selector: ObjectSelector,
    resource_rules: Vec<Rule>,
    exclude_resource_rules: Vec<Rule>,
}

/// Operations on resources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    resource_names: Vec<String>,
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// As what a write is seen: in another version of its kind, if a rule names that one alone.
#[derive(Clone)]
pub(super) struct Matched {
    /// `None`: as it was sent.
    pub(super) other: Option<Arc<Kind>>,
    pub(super) object_type: Gvk,
}

impl Matched {
    fn as_sent(request: &AdmissionRequest<'_>) -> Self {
        Self { other: None, object_type: request.object_type.clone() }
    }

    /// Says whether a write is seen as the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let version = |of: &Self| of.other.as_ref().map(|kind| (kind.group.clone(), kind.version.clone()));
        version(self) == version(other) && self.object_type == other.object_type
    }
}

impl MatchResources {
    /// Says by its rules whether it is about a write.
    pub(super) fn rules_match(&self, registry: &Registry, request: &AdmissionRequest<'_>) -> Option<Matched> {
        let is_exact = self.match_policy != "Equivalent";
        if first(&self.exclude_resource_rules, is_exact, registry, request).is_some() {
            return None;
        }
        if self.resource_rules.is_empty() {
            return Some(Matched::as_sent(request));
        }
        first(&self.resource_rules, is_exact, registry, request)
    }

    /// Says by its selectors whether it is about a write.
    pub(super) fn selects(&self, request: &AdmissionRequest<'_>, seen: Seen<'_>) -> bool {
        selects_namespace(&self.namespace_selector, request, seen)
            && selects_object(&self.object_selector, request, seen)
    }
}

/// The objects that selectors look at.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) object: Option<&'a Value>,
    /// The one in which the object lies, as it is stored.
    pub(super) namespace: Option<&'a Value>,
}

/// Whether a namespace is selected, if the write is about one or in one.
pub(super) fn selects_namespace(selector: &ObjectSelector, request: &AdmissionRequest<'_>, seen: Seen<'_>) -> bool {
    let is_of_namespaces = request.kind.plural == "namespaces";
    if selector.is_empty() || (request.namespace.is_empty() && !is_of_namespaces) {
        return true;
    }
    let is_own = is_of_namespaces && request.subresource.is_empty() && request.operation != Operation::Delete;
    let namespace = if is_own { seen.object } else { seen.namespace };
    takes(selector, namespace.unwrap_or(&Value::Null))
}

/// Whether an object is selected, as it is written or as it was.
pub(super) fn selects_object(selector: &ObjectSelector, request: &AdmissionRequest<'_>, seen: Seen<'_>) -> bool {
    selector.is_empty() || [seen.object, request.old].into_iter().flatten().any(|one| takes(selector, one))
}

fn takes(selector: &ObjectSelector, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
}

/// As what the first rule sees a write that is about it.
pub(super) fn first(
    rules: &[Rule],
    is_exact: bool,
    registry: &Registry,
    request: &AdmissionRequest<'_>,
) -> Option<Matched> {
    if rules.iter().any(|rule| rule.matches(request.kind, request)) {
        return Some(Matched::as_sent(request));
    }
    if is_exact {
        return None;
    }
    let catalog = registry.catalog();
    let kind = request.kind;
    let is_equivalent = |other: &&Arc<Kind>| {
        (other.stored_group(), &other.plural) == (kind.stored_group(), &kind.plural)
            && (&other.group, &other.version) != (&kind.group, &kind.version)
    };
    let others: Vec<&Arc<Kind>> = catalog.kinds().iter().filter(is_equivalent).collect();
    let matching = rules.iter().flat_map(|rule| others.iter().filter(move |other| rule.matches(other, request)));
    let other = Arc::clone(matching.into_iter().next()?);
    let is_own = *request.object_type.kind == *kind.kind && *request.object_type.group == *kind.group;
    let object_type =
        if is_own { Gvk::new(&other.group, &other.version, &other.kind) } else { request.object_type.clone() };
    Some(Matched { other: Some(other), object_type })
}

impl Rule {
    /// Says whether a write is about it, if the resource is this kind's.
    fn matches(&self, kind: &Kind, request: &AdmissionRequest<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let is_cluster_wide = request.namespace.is_empty() || (kind.group.is_empty() && kind.plural == "namespaces");
        let fits = match self.scope.as_str() {
            "Namespaced" => !is_cluster_wide,
            "Cluster" => is_cluster_wide,
            _ => true,
        };
        let is_resource = |named: &String| {
            let (resource, below) = named.split_once('/').unwrap_or((named, ""));
            (resource == "*" || resource == kind.plural) && (below == "*" || below == request.subresource)
        };
        fits && has(&self.operations, request.operation.name())
            && has(&self.api_groups, &kind.group)
            && has(&self.api_versions, &kind.version)
            && self.resources.iter().any(is_resource)
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == request.name))
    }
}
