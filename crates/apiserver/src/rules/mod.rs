//! Rules in CEL of the schemas of custom resources, `x-kubernetes-validations`, and expressions of admission policies.
//!
//! - `types`, `functions`, `schemas`: types of expressions, of what functions take and give, and of what schemas describe
//! - `check`, `clauses`: what is wrong with an expression before it ever runs; `found`: what they find out of its parts
//! - `program`: an expression that is ready to run, and its budget; `meter`: what is left of that
//! - `pairs`: macros with two variables
//! - `library`: the functions that Kubernetes adds to those of CEL
//! - `values`: values of an object as CEL sees them
//! - `faults`: what is wrong with the rules of a schema
//! - `cost`, `calls`: what an expression of a schema costs at most; `estimate`, `sizes`, `paths`, `range`: by what sizes
//! - `budget`: what the rules of a schema may cost together
//! - `evaluate`: the rules of one version of a definition, and what of an object breaks them
//! - `conditions`: the expressions of a policy
//! - `patches`: the values with which an expression says how an object is changed
//!
//! Pure. Expressions are parsed once per version of a definition or of a policy. Parser and interpreter are the crate `cel`, which follows
//! cel-go closely; `kube-cel` builds on an older `cel` that copies every value it selects and gives no positions.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/`.

mod budget;
mod calls;
mod check;
mod clauses;
mod conditions;
mod cost;
mod estimate;
mod evaluate;
mod faults;
mod found;
mod functions;
mod library;
mod meter;
mod pairs;
mod patches;
mod paths;
mod program;
mod range;
mod schemas;
mod sizes;
mod types;
mod values;

pub(crate) use conditions::{
    COST_MAX, Evaluation, EvaluationError, Expression, ExpressionError, Gives, Inputs, MATCH_COST_MAX, Outcome,
    PatchError, Scope,
};
pub(crate) use evaluate::Rules;
pub(crate) use faults::faults;
pub(crate) use library::{Access, Authority, Decided, Wanted};
pub(crate) use program::CompileError;
pub(crate) use values::is_reserved;

use serde_json::Value;

/// The rules that a schema has at its own place.
fn rules_of(schema: &Value) -> &[Value] {
    kubefold_wire::access::items(schema, "/x-kubernetes-validations")
}

#[cfg(test)]
mod tests;
