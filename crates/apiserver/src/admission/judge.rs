//! All validating policies about one write.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/validating/dispatcher.go`.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    access::Write,
    binding::Binding,
    invocation::{Hook, Invocation, Misconfigured, is_exempt, select},
    policy::Policy,
    request::{SeenError, refused},
    validation::{Denial, Validations},
    versions::Versions,
};
use crate::registry::{AdmissionRequest, Registry};
use kubefold_serving::audit;
use kubefold_wire::status::{Cause, Reason, Status};

/// Units: bytes.
const ANNOTATION_MAX: usize = 10 * 1024;

/// Why a write is refused.
struct Refusal {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Reason,
}

/// Why a policy does not see a write.
#[derive(Debug, thiserror::Error)]
#[error("failed to convert object version: {0}")]
struct UnseenError(#[from] SeenError);

/// One write, and what was found out about it.
struct Case<'a> {
    registry: &'a Registry,
    versions: Versions<'a>,
    refusals: Vec<Refusal>,
    /// For the audit log, by their whole keys.
    annotations: BTreeMap<String, Vec<String>>,
}

/// Has all policies judge a write.
///
/// Errors: what the first of them says that refuses it.
pub(super) async fn judge(
    hooks: Vec<Hook<Validations>>,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<(), Box<Status>> {
    let Write { registry, request, .. } = *write;
    if is_exempt(request) {
        return Ok(());
    }
    let selection = select(hooks, registry, request, object).await?;
    let versions = Versions::new(write, object, selection.namespace);
    let mut case = Case { registry, versions, refusals: Vec::new(), annotations: BTreeMap::new() };
    for found in &selection.found {
        match found {
            Ok(invocation) => case.ask(invocation).await,
            Err(misconfigured) => case.fail(misconfigured),
        }
    }
    if let Some(notes) = audit::notes() {
        for (key, values) in case.annotations {
            notes.annotate(&key, values.join(", "));
        }
    }
    match case.refusals.first() {
        None => Ok(()),
        Some(refusal) => Err(refusal.status(request, object)),
    }
}

impl Case<'_> {
    fn fail(&mut self, misconfigured: &Misconfigured<Validations>) {
        let Misconfigured { policy, binding, .. } = misconfigured;
        if !policy.fails_open {
            let denial = Denial { index: 0, message: misconfigured.message(), reason: Reason::Invalid };
            self.refuse(policy, binding.as_deref(), denial);
        }
    }

    fn refuse(&mut self, policy: &Policy<Validations>, binding: Option<&Binding>, denial: Denial) {
        let Denial { message, reason, .. } = denial;
        let binding = binding.map(|binding| binding.name.clone());
        self.refusals.push(Refusal { policy: policy.name.clone(), binding, message, reason });
    }

    /// Has a policy judge.
    async fn ask(&mut self, invocation: &Invocation<Validations>) {
        let Invocation { policy, binding, matched, param } = invocation;
        let place = self.versions.place_of(matched).await.map_err(UnseenError::from);
        let version = match place.as_ref().map(|place| self.versions.at(*place)) {
            Ok(version) => version,
            Err(error) => return self.fail(&Misconfigured::new(policy, Some(binding), error)),
        };
        let Some(version) = version else { return };
        let verdict = policy.judge(self.versions.inputs(version, param.as_ref()));
        for denial in verdict.denials {
            self.act(policy, binding, denial);
        }
        for message in verdict.failures {
            self.refuse(policy, Some(binding), Denial { index: 0, message, reason: Reason::Invalid });
        }
        for (key, mut value) in verdict.annotations {
            value.truncate(value.floor_char_boundary(ANNOTATION_MAX));
            let values = self.annotations.entry(format!("{}/{key}", policy.name)).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    /// Does what a binding wants done about what its policy refuses.
    fn act(&mut self, policy: &Policy<Validations>, binding: &Binding, denial: Denial) {
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
        let mut status = refused(request, object, &why);
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
