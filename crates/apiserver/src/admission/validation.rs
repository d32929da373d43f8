//! What a `ValidatingAdmissionPolicy` says of a write.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/validating/validator.go`.

use serde::Deserialize;
use serde_json::Value;

use super::policy::{Acts, Policy};
use crate::rules::{COST_MAX, Evaluation, EvaluationError, Expression, ExpressionError, Gives, Inputs, Outcome, Scope};
use kubefold_wire::status::Reason;

/// Units: bytes. Source: kubernetes/apiserver `pkg/apis/cel/config.go` `MaxEvaluatedMessageExpressionSizeBytes`.
const MESSAGE_MAX: usize = 5 * 1024;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    validations: Vec<SaidValidation>,
    audit_annotations: Vec<SaidAnnotation>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SaidValidation {
    expression: String,
    message: String,
    message_expression: String,
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SaidAnnotation {
    key: String,
    value_expression: String,
}

/// What a `ValidatingAdmissionPolicy` refuses, and what it notes.
pub(super) struct Validations {
    each: Vec<Validation>,
    annotations: Vec<Annotation>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Reason,
}

struct Annotation {
    key: String,
    value: Expression,
}

/// Something that a policy refuses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// The place of the validation in the policy.
    pub(super) index: usize,
    pub(super) message: String,
    pub(super) reason: Reason,
}

/// What a policy says of a write, with one parameter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// What the binding's actions are about.
    pub(super) denials: Vec<Denial>,
    /// What refuses the write whatever the actions of the binding are.
    pub(super) failures: Vec<String>,
    /// For the audit log, by their keys.
    pub(super) annotations: Vec<(String, String)>,
}

impl Acts for Validations {
    fn read(spec: &Value, scope: &Scope) -> Self {
        let spec = Spec::deserialize(spec).unwrap_or_default();
        let compile = |source: &str, gives| scope.compile(source, gives);
        let validation = |said: &SaidValidation| Validation {
            expression: compile(&said.expression, Gives::Bool),
            message: said.message.trim().to_owned(),
            message_expression: (!said.message_expression.is_empty())
                .then(|| compile(&said.message_expression, Gives::Text)),
            reason: match said.reason.as_deref() {
                Some("Forbidden") => Reason::Forbidden,
                Some("RequestEntityTooLarge") => Reason::RequestEntityTooLarge,
                Some("Unauthorized") => Reason::Unauthorized,
                _ => Reason::Invalid,
            },
        };
        let annotation = |said: &SaidAnnotation| Annotation {
            key: said.key.clone(),
            value: compile(&said.value_expression, Gives::TextOrNull),
        };
        Self {
            each: spec.validations.iter().map(validation).collect(),
            annotations: spec.audit_annotations.iter().map(annotation).collect(),
        }
    }
}

impl Policy<Validations> {
    /// What it says of a write.
    pub(super) fn judge(&self, inputs: Inputs<'_>) -> Verdict {
        match self.is_matched(inputs) {
            Ok(true) => {}
            Ok(false) => return Verdict::default(),
            Err(error) => return self.failed(&error),
        }
        let denials = match self.denials(inputs) {
            Ok(denials) => denials,
            Err(error) => return self.failed(&error),
        };
        let mut verdict = Verdict { denials, ..Verdict::default() };
        match self.annotate(inputs, &mut verdict) {
            Ok(()) => verdict,
            Err(error) => self.failed(&error),
        }
    }

    /// What it says if it cannot be evaluated.
    fn failed(&self, error: &dyn std::error::Error) -> Verdict {
        let denial = Denial { index: 0, message: error.to_string(), reason: Reason::Invalid };
        Verdict { denials: (!self.fails_open).then_some(denial).into_iter().collect(), ..Verdict::default() }
    }

    fn denials(&self, inputs: Inputs<'_>) -> Result<Vec<Denial>, EvaluationError> {
        let mut evaluation = Evaluation::new(&self.scope, inputs, COST_MAX)?;
        let mut results = Vec::new();
        for validation in &self.acts.each {
            results.push(evaluation.evaluate(&validation.expression)?);
        }
        let mut messages = Evaluation::new(&self.scope, Inputs { access: None, ..inputs }, evaluation.left())?;
        let mut over = None;
        let mut told = Vec::new();
        for validation in &self.acts.each {
            match validation.message_expression.as_ref().map(|expression| messages.evaluate(expression)).transpose() {
                Ok(message) => told.push(message),
                Err(error) => {
                    over = Some(format!("failed messageExpression: {error}"));
                    break;
                }
            }
        }
        let mut denials = Vec::new();
        for (index, (validation, result)) in self.acts.each.iter().zip(results).enumerate() {
            let mut deny = |message: String, reason| denials.push(Denial { index, message, reason });
            match (result, &over) {
                (Err(_), _) | (Ok(_), Some(_)) if self.fails_open => {}
                (Err(error), _) => deny(error.to_string(), Reason::Invalid),
                (Ok(_), Some(why)) => deny(why.clone(), Reason::Invalid),
                (Ok(Outcome::Truth(true)), None) => {}
                (Ok(_), None) => {
                    let made = told.get(index).and_then(Option::as_ref);
                    deny(validation.message(made), validation.reason);
                }
            }
        }
        Ok(denials)
    }

    fn annotate(&self, inputs: Inputs<'_>, verdict: &mut Verdict) -> Result<(), EvaluationError> {
        // As at a kube-apiserver: annotations may name `authorizer`, and fail when they do.
        let mut evaluation = Evaluation::new(&self.scope, Inputs { access: None, ..inputs }, COST_MAX)?;
        for Annotation { key, value } in &self.acts.annotations {
            match evaluation.evaluate(value)? {
                Ok(Outcome::Text(text)) if !text.trim().is_empty() => {
                    verdict.annotations.push((key.clone(), text.trim().to_owned()));
                }
                Ok(Outcome::Text(_) | Outcome::Null) => {}
                Err(_) if self.fails_open => {}
                Err(error) => verdict.failures.push(error.to_string()),
                Ok(other) => {
                    let of = match other {
                        Outcome::Other(of) => of,
                        _ => "bool".to_owned(),
                    };
                    verdict.failures.push(format!(
                        "valueExpression '{}' resulted in unsupported return type: {of}. Return type must be either \
                         string or null.",
                        value.source()
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Validation {
    /// What is told of a write that it refuses.
    fn message(&self, made: Option<&Result<Outcome, ExpressionError>>) -> String {
        if let Some(Ok(Outcome::Text(text))) = made {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n') {
                return text.to_owned();
            }
        }
        if self.message.is_empty() {
            return format!("failed expression: {}", self.expression.source().trim());
        }
        self.message.clone()
    }
}
