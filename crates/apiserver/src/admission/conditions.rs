//! Whether the `matchConditions` of a policy or a webhook hold.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/webhook/matchconditions/matcher.go`.

use crate::rules::{Evaluation, EvaluationError, Expression, ExpressionError, Inputs, MATCH_COST_MAX, Outcome, Scope};

/// Why nobody knows whether conditions hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConditionError {
    /// They are not evaluated any more.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// Some of them give nothing.
    #[error("{}", aggregated(.0))]
    Expressions(Vec<ExpressionError>),
}

/// Says whether all conditions hold. One that does not is enough to say no, though another fails.
///
/// Errors: why a condition gives nothing.
pub(super) fn is_matched(scope: &Scope, conditions: &[Expression], inputs: Inputs<'_>) -> Result<bool, ConditionError> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let inputs = Inputs { namespace: None, ..inputs };
    let mut evaluation = Evaluation::new(scope, inputs, MATCH_COST_MAX)?;
    let mut results = Vec::new();
    for condition in conditions {
        results.push(evaluation.evaluate(condition)?);
    }
    if results.contains(&Ok(Outcome::Truth(false))) {
        return Ok(false);
    }
    let mut errors: Vec<ExpressionError> = Vec::new();
    for error in results.into_iter().filter_map(Result::err) {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(true) } else { Err(ConditionError::Expressions(errors)) }
}

/// Source: kubernetes/apimachinery `pkg/util/errors/errors.go` `aggregate`.
fn aggregated(errors: &[ExpressionError]) -> String {
    let all: Vec<String> = errors.iter().map(ExpressionError::to_string).collect();
    if let [one] = all.as_slice() { one.clone() } else { format!("[{}]", all.join(", ")) }
}
