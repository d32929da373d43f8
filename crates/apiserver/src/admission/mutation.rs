//! What a `MutatingAdmissionPolicy` makes of an object.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/patch/`.

use serde::Deserialize;
use serde_json::Value;

use super::{
    patched::{JsonPatchError, PatchedError, Typed, internal, patched},
    policy::Acts,
};
use crate::{
    kinds::put,
    patch::{ConfigurationError, configured},
    rules::{COST_MAX, Evaluation, Expression, Gives, Inputs, PatchError, Scope},
};
use kubefold_wire::status::Status;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    mutations: Vec<SaidMutation>,
    reinvocation_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SaidMutation {
    patch_type: String,
    apply_configuration: Said,
    json_patch: Said,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    expression: String,
}

/// What a `MutatingAdmissionPolicy` does, in its order.
pub(super) struct Mutations {
    pub(super) each: Vec<Mutation>,
    /// Whether it is asked again when the object changed after it.
    pub(super) is_reinvoked: bool,
}

/// One change.
pub(super) enum Mutation {
    /// To what the object is to have.
    ApplyConfiguration(Expression),
    /// By operations.
    JsonPatch(Expression),
}

/// Why there is no changed object.
#[derive(Debug, thiserror::Error)]
pub(super) enum MutationError {
    /// The expression does not say how it is changed.
    #[error(transparent)]
    Expression(#[from] PatchError),
    /// What the object is to have does not fit it.
    #[error("error applying patch: {0}")]
    Configuration(#[from] ConfigurationError),
    /// Nothing can be laid over objects of its type.
    #[error("error applying patch: failed to convert patch object to typed object: no corresponding type for {0}")]
    Untyped(String),
    /// Operations do not apply to it.
    #[error("JSON Patch: {0}")]
    JsonPatch(JsonPatchError),
    /// It is not of its type any more.
    #[error(transparent)]
    Typed(PatchedError),
    /// Operations made something else of it, whatever the policy says of failures.
    #[error(transparent)]
    Unreadable(PatchedError),
}

impl MutationError {
    /// The answer to the write; `None`: the policy says what a failure means.
    pub(super) fn status(&self) -> Option<Box<Status>> {
        matches!(self, Self::Unreadable(_)).then(|| internal(self.to_string()))
    }
}

impl Acts for Mutations {
    fn read(spec: &Value, scope: &Scope) -> Self {
        let spec = Spec::deserialize(spec).unwrap_or_default();
        let mutation = |said: &SaidMutation| match said.patch_type.as_str() {
            "JSONPatch" => Mutation::JsonPatch(scope.compile(&said.json_patch.expression, Gives::JsonPatch)),
            _ => Mutation::ApplyConfiguration(scope.compile(&said.apply_configuration.expression, Gives::Object)),
        };
        Self {
            each: spec.mutations.iter().map(mutation).collect(),
            is_reinvoked: spec.reinvocation_policy == "IfNeeded",
        }
    }
}

impl Mutation {
    /// The changed object, with defaults.
    ///
    /// Errors: why there is none.
    pub(super) fn apply(
        &self,
        object: &Value,
        typed: &Typed<'_>,
        scope: &Scope,
        inputs: Inputs<'_>,
    ) -> Result<Value, MutationError> {
        let mut evaluation = Evaluation::new(scope, inputs, COST_MAX).map_err(PatchError::from)?;
        match self {
            Self::ApplyConfiguration(expression) => {
                let mut configuration = evaluation.object(expression)?;
                for field in ["kind", "apiVersion"] {
                    put(&mut configuration, field, object.get(field).cloned());
                }
                if let Some(shown) = typed.untyped() {
                    return Err(MutationError::Untyped(shown));
                }
                let object = configured(typed.schema(), object, &configuration)?;
                typed.completed(object).map_err(MutationError::Typed)
            }
            Self::JsonPatch(expression) => {
                let object = match patched(object, evaluation.operations(expression)?) {
                    // What is tested for is a condition of all other operations.
                    Err(JsonPatchError::Differs(_)) => object.clone(),
                    patched => patched.map_err(MutationError::JsonPatch)?,
                };
                typed.completed_strictly(object).map_err(MutationError::Unreadable)
            }
        }
    }
}
