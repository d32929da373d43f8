//! A policy: which writes it is about, and what its expressions may name. What it does is its own: see [`Acts`].
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/`.

use serde::Deserialize;
use serde_json::Value;

use super::{
    conditions::{ConditionError, is_matched},
    matching::MatchResources,
};
use crate::{
    registry::Object,
    rules::{Expression, Gives, Inputs, Scope},
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    failure_policy: String,
    param_kind: Option<ParamKind>,
    match_constraints: MatchResources,
    match_conditions: Vec<Named>,
    variables: Vec<Named>,
}

/// The kind of the objects that bindings may give a policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ParamKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    expression: String,
}

/// What a kind of policies does with a write.
pub(super) trait Acts: Send + Sync + 'static {
    /// Reads the `spec` of a policy whose expressions may name what the scope has.
    fn read(spec: &Value, scope: &Scope) -> Self;
}

/// A policy.
pub(super) struct Policy<T> {
    pub(super) name: String,
    uid: Value,
    generation: Value,
    pub(super) constraints: MatchResources,
    pub(super) param_kind: Option<ParamKind>,
    /// What fails admits.
    pub(super) fails_open: bool,
    pub(super) scope: Scope,
    conditions: Vec<Expression>,
    pub(super) acts: T,
}

impl<T: Acts> Policy<T> {
    /// Reads a policy. What is wrong with its expressions is told when they are needed.
    pub(super) fn of(object: &Value) -> Self {
        let metadata = |field: &str| object.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default();
        let said = object.get("spec").unwrap_or(&Value::Null);
        let spec = Spec::deserialize(said).unwrap_or_default();
        let mut scope = Scope::new(spec.param_kind.is_some(), true);
        for variable in &spec.variables {
            scope.declare(&variable.name, &variable.expression);
        }
        let condition = |one: &Named| scope.compile(&one.expression, Gives::Bool);
        Self {
            name: metadata("name").as_str().unwrap_or_default().to_owned(),
            uid: metadata("uid"),
            generation: metadata("generation"),
            fails_open: spec.failure_policy == "Ignore",
            conditions: spec.match_conditions.iter().map(condition).collect(),
            acts: T::read(said, &scope),
            constraints: spec.match_constraints,
            param_kind: spec.param_kind,
            scope,
        }
    }

    /// Says whether its conditions hold of a write.
    ///
    /// Errors: why a condition gives nothing.
    pub(super) fn is_matched(&self, inputs: Inputs<'_>) -> Result<bool, ConditionError> {
        is_matched(&self.scope, &self.conditions, inputs)
    }

    /// Says whether an object says something else: a change of its status is none.
    pub(super) fn is_other(&self, object: &Object) -> bool {
        let value = object.value();
        let metadata = value.get("metadata").unwrap_or(&Value::Null);
        let same = |field: &str, known: &Value| metadata.get(field).unwrap_or(&Value::Null) == known;
        !(same("uid", &self.uid) && same("generation", &self.generation))
    }
}
