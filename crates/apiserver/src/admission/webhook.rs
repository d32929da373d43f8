//! A webhook of a configuration, and which writes it is asked about.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/webhook/accessors.go`, `pkg/admission/plugin/webhook/generic/webhook.go`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use super::{
    conditions::{ConditionError, is_matched},
    matching::{Matched, Rule, Seen, first, selects_namespace, selects_object},
};
use crate::{
    registry::{AdmissionRequest, Event, Index, Registry},
    rules::{Expression, Gives, Inputs, Scope},
    webhook::{Client, ClientConfig},
};
use kubefold_wire::matching::ObjectSelector;

/// The versions of an `AdmissionReview` that this server speaks.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    name: String,
    client_config: ClientConfig,
    rules: Vec<Rule>,
    failure_policy: String,
    match_policy: String,
    namespace_selector: ObjectSelector,
    object_selector: ObjectSelector,
    side_effects: String,
    timeout_seconds: u64,
    admission_review_versions: Vec<String>,
    reinvocation_policy: String,
    match_conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    expression: String,
}

/// A webhook of a configuration.
pub(super) struct Webhook {
    pub(super) name: String,
    /// The name of its configuration.
    pub(super) configuration: String,
    /// Unique among all webhooks of its kind.
    pub(super) id: String,
    pub(super) client: Client,
    pub(super) timeout: Duration,
    /// A write is admitted if the webhook cannot be asked.
    pub(super) fails_open: bool,
    /// Whether it may not be asked about a dry run.
    pub(super) has_side_effects: bool,
    /// Whether it is asked again when a later webhook changed the object.
    pub(super) is_reinvoked: bool,
    /// The version of the `AdmissionReview` that it is sent; `None`: it knows none of this server's.
    pub(super) version: Option<&'static str>,
    rules: Vec<Rule>,
    is_exact: bool,
    namespaces: ObjectSelector,
    objects: ObjectSelector,
    scope: Scope,
    conditions: Vec<Expression>,
}

impl Webhook {
    /// The webhooks of a configuration, in their order.
    fn all(configuration: &Value) -> Vec<Arc<Self>> {
        let name = configuration.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let webhooks = configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        let specs = webhooks.filter_map(|webhook| Spec::deserialize(webhook).ok());
        specs.enumerate().map(|(at, spec)| Arc::new(Self::of(spec, name, at))).collect()
    }

    fn of(spec: Spec, configuration: &str, at: usize) -> Self {
        let scope = Scope::new(false, false);
        let compile = |one: &Condition| scope.compile(one.expression.trim(), Gives::Bool);
        let known = |version: &String| VERSIONS.into_iter().find(|known| version == known);
        Self {
            id: format!("{configuration}/{}/{at}", spec.name),
            configuration: configuration.to_owned(),
            client: Client::new(spec.client_config),
            timeout: Duration::from_secs(spec.timeout_seconds.clamp(1, 30)),
            fails_open: spec.failure_policy == "Ignore",
            has_side_effects: !matches!(spec.side_effects.as_str(), "None" | "NoneOnDryRun"),
            is_reinvoked: spec.reinvocation_policy == "IfNeeded",
            version: spec.admission_review_versions.iter().find_map(known),
            conditions: spec.match_conditions.iter().map(compile).collect(),
            name: spec.name,
            rules: spec.rules,
            is_exact: spec.match_policy != "Equivalent",
            namespaces: spec.namespace_selector,
            objects: spec.object_selector,
            scope,
        }
    }

    /// As what its rules see a write that they are about.
    pub(super) fn rules_match(&self, registry: &Registry, request: &AdmissionRequest<'_>) -> Option<Matched> {
        first(&self.rules, self.is_exact, registry, request)
    }

    /// Whether it looks at labels of namespaces.
    pub(super) fn wants_namespace(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Says by its selectors whether it is about a write.
    pub(super) fn selects(&self, request: &AdmissionRequest<'_>, seen: Seen<'_>) -> bool {
        selects_namespace(&self.namespaces, request, seen) && selects_object(&self.objects, request, seen)
    }

    pub(super) fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Says by its conditions whether it is asked.
    ///
    /// Errors: a condition gives nothing, and what fails refuses.
    pub(super) fn is_asked(&self, inputs: Inputs<'_>) -> Result<bool, ConditionError> {
        match is_matched(&self.scope, &self.conditions, inputs) {
            Err(_) if self.fails_open => Ok(false),
            matched => matched,
        }
    }
}

/// The webhooks of all configurations of one kind, by the name of the configuration.
#[derive(Default)]
pub(super) struct Webhooks(BTreeMap<String, Vec<Arc<Webhook>>>);

impl Webhooks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they are asked.
    pub(super) fn all(&self) -> Vec<Arc<Webhook>> {
        self.0.values().flatten().cloned().collect()
    }
}

impl Index for Webhooks {
    fn take(&mut self, _place: usize, event: &Event) {
        match event {
            Event::Added(object) | Event::Modified(object) => {
                self.0.insert(object.name().to_owned(), Webhook::all(&object.value()));
            }
            Event::Deleted(object) => drop(self.0.remove(object.name())),
            Event::Synced(_) | Event::Progress(_) => {}
        }
    }
}
