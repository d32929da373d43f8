//! All policies about one write.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/validating/dispatcher.go`.

use std::{collections::BTreeMap, sync::Arc};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    binding::{Binding, kind_of},
    matching::{Matched, Seen},
    namespace::namespace_of,
    policy::{Denial, Policy},
    request::{GROUP, described, seen},
};
use crate::{
    kinds::forbidden,
    registry::{AdmissionRequest, Registry},
    rules::Inputs,
};
use kubefold_serving::audit;
use kubefold_wire::status::{Cause, Reason, Status};

/// Questions, which no policy is about. Source: kubernetes `pkg/kubeapiserver/admission/exclusion/resources.go`.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];
/// Units: bytes.
const ANNOTATION_MAX: usize = 10 * 1024;

/// A policy and where it is in force.
pub(super) struct Hook {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// Why a write is refused.
struct Refusal {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Reason,
}

/// One write, and what was found out about it.
struct Case<'a> {
    registry: &'a Registry,
    request: &'a AdmissionRequest<'a>,
    object: Option<&'a Value>,
    namespace: Option<Value>,
    refusals: Vec<Refusal>,
}

/// Has all policies judge a write.
///
/// Errors: what the first of them says that refuses it.
pub(super) async fn judge(
    hooks: Vec<Hook>,
    registry: &Registry,
    request: &AdmissionRequest<'_>,
    object: Option<&Value>,
) -> Result<(), Box<Status>> {
    // Nobody locks himself out of his policies.
    if request.kind.group == GROUP || REVIEWS.contains(&request.kind.group.as_str()) {
        return Ok(());
    }
    let mut case = Case { registry, request, object, namespace: None, refusals: Vec::new() };
    let mut is_looked_up = false;
    for hook in &hooks {
        let Some(matched) = hook.policy.constraints.rules_match(registry, request) else { continue };
        if !is_looked_up {
            case.namespace = namespace_of(registry, request).await?;
            is_looked_up = true;
        }
        case.hear(hook, &matched).await;
    }
    match case.refusals.first() {
        None => Ok(()),
        Some(refusal) => Err(refusal.status(request, object)),
    }
}

impl Case<'_> {
    fn fail(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.fails_open {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        self.refuse(policy, binding, Denial { index: 0, message, reason: Reason::Invalid });
    }

    fn refuse(&mut self, policy: &Policy, binding: Option<&Binding>, denial: Denial) {
        let Denial { message, reason, .. } = denial;
        let binding = binding.map(|binding| binding.name.clone());
        self.refusals.push(Refusal { policy: policy.name.clone(), binding, message, reason });
    }

    async fn hear(&mut self, hook: &Hook, matched: &Matched) {
        let policy = &*hook.policy;
        let seen_by = Seen { object: self.object, namespace: self.namespace.as_ref() };
        if !policy.constraints.selects(self.request, seen_by) {
            return;
        }
        let kind = match kind_of(policy.param_kind.as_ref(), self.registry) {
            Ok(kind) => kind,
            Err(error) => return self.fail(policy, None, &error.to_string()),
        };
        let mut annotations = BTreeMap::<String, Vec<String>>::new();
        for binding in &hook.bindings {
            let seen_by = Seen { object: self.object, namespace: self.namespace.as_ref() };
            let about = |resources: &super::matching::MatchResources| {
                resources.rules_match(self.registry, self.request).is_some() && resources.selects(self.request, seen_by)
            };
            if !binding.resources.as_ref().is_none_or(about) {
                continue;
            }
            match binding.params(kind.as_ref(), self.registry, self.request.namespace).await {
                Ok(params) => self.ask(policy, binding, matched, &params, &mut annotations).await,
                Err(error) => self.fail(policy, Some(binding), &error.to_string()),
            }
        }
        if let Some(notes) = audit::notes() {
            for (key, values) in annotations {
                notes.annotate(&format!("{}/{key}", policy.name), values.join(", "));
            }
        }
    }

    /// Has a policy judge with each parameter of a binding.
    async fn ask(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        matched: &Matched,
        params: &[Option<Value>],
        annotations: &mut BTreeMap<String, Vec<String>>,
    ) {
        let (mut both, sides) = (Vec::with_capacity(2), [self.object, self.request.old]);
        for side in sides {
            match seen(self.registry, self.request, matched, side).await {
                Ok(seen) => both.push(seen),
                Err(error) => {
                    return self.fail(policy, Some(binding), &format!("failed to convert object version: {error}"));
                }
            }
        }
        let (old, object) = (both.pop().flatten(), both.pop().flatten());
        let request = described(self.request, matched, self.registry.caller());
        // A namespace does not lie in itself.
        let is_in_one = !(self.request.kind.group.is_empty() && self.request.kind.plural == "namespaces");
        for params in params {
            let inputs = Inputs {
                object: object.as_ref(),
                old_object: old.as_ref(),
                request: &request,
                namespace: self.namespace.as_ref().filter(|_| is_in_one),
                params: params.as_ref(),
            };
            let verdict = policy.judge(inputs);
            for denial in verdict.denials {
                self.act(policy, binding, denial);
            }
            for message in verdict.failures {
                self.refuse(policy, Some(binding), Denial { index: 0, message, reason: Reason::Invalid });
            }
            for (key, mut value) in verdict.annotations {
                value.truncate(value.floor_char_boundary(ANNOTATION_MAX));
                let values = annotations.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }

    /// Does what a binding wants done about what its policy refuses.
    fn act(&mut self, policy: &Policy, binding: &Binding, denial: Denial) {
        let has = |action: &str| binding.actions.iter().any(|one| one == action);
        if has("Warn") {
            self.registry.warn(&format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                policy.name, binding.name, denial.message
            ));
        }
        if has("Audit")
            && let Some(notes) = audit::notes()
        {
            let failure = json!([{
                "message": denial.message, "policy": policy.name, "binding": binding.name,
                "expressionIndex": denial.index, "validationActions": binding.actions,
            }]);
            notes.annotate("validation.policy.admission.k8s.io/validation_failure", failure.to_string());
        }
        if has("Deny") {
            self.refuse(policy, Some(binding), denial);
        }
    }
}

impl Refusal {
    fn status(&self, request: &AdmissionRequest<'_>, object: Option<&Value>) -> Box<Status> {
        let Self { policy, binding, message, reason } = self;
        let with = binding.as_ref().map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        let why = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
        let named = json!({"metadata": {"name": request.name}});
        let object = if request.name.is_empty() { object.unwrap_or(&Value::Null) } else { &named };
        let mut status = forbidden(&request.kind.group, &request.kind.plural, object, &why);
        status.reason = *reason;
        status.code = match reason {
            Reason::Forbidden => StatusCode::FORBIDDEN,
            Reason::Unauthorized => StatusCode::UNAUTHORIZED,
            Reason::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        status.details.causes.push(Cause::new("", "", why));
        status
    }
}
