//! Webhooks that are asked about a write: those that change it one after another, those that validate it at once.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use serde_json::{Map, Value, json};

use super::{
    access::Write,
    matching::{Matched, Seen},
    namespace::namespace_of,
    patched::{Typed, internal, patched},
    request::{GROUP, described, seen, taken},
    review::{Answer, AnswerError, Review, Verdict},
    webhook::Webhook,
};
use crate::{
    registry::{AdmissionRequest, Plugin, Registry, Rounds},
    rules::{Access, Inputs},
    webhook::ClientError,
};
use kubefold_serving::audit;
use kubefold_wire::{
    golang::Quoted,
    status::{Status, qualified},
};

/// Why a webhook does not admit a write.
#[derive(Debug, thiserror::Error)]
enum HookError {
    /// It could not be asked. Its failure policy says what that means.
    #[error("failed calling webhook {}: {why}", Quoted(.webhook))]
    Calling {
        /// Its name.
        webhook: String,
        /// What went wrong.
        why: CallError,
    },
    /// It refuses the write, or its answer cannot be used.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    /// There is nothing to send.
    #[error("could not create admission objects: {0}")]
    Objects(&'static str),
    /// Its configuration does not let it be called.
    #[error("could not get REST client: {0}")]
    Configuration(ClientError),
    /// Nothing came back.
    #[error("failed to call webhook: {0}")]
    Client(ClientError),
    /// Something else came back.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Configuration(_) => Self::Configuration(error),
            other => Self::Client(other),
        }
    }
}

/// A write that webhooks are asked about.
struct Case<'a> {
    registry: &'a Registry,
    request: &'a AdmissionRequest<'a>,
    /// What its sender may do.
    access: &'a Access,
    /// `None`: it is not looked up yet.
    namespace: Option<Option<Value>>,
}

/// One call: a webhook, and what it sees of the write.
struct Call {
    webhook: Arc<Webhook>,
    matched: Matched,
    object: Option<Value>,
    old: Option<Value>,
}

/// A write that no webhook is asked about, so that nobody locks himself out.
///
/// Source: kubernetes/apiserver `pkg/admission/plugin/webhook/predicates/rules/rules.go`
/// `IsExemptAdmissionConfigurationResource`.
fn is_exempt(request: &AdmissionRequest<'_>) -> bool {
    request.kind.group == GROUP
}

/// Has webhooks change an object, in their order.
///
/// Errors: the first of them that refuses.
pub(super) async fn mutate(
    webhooks: Vec<Arc<Webhook>>,
    write: &Write<'_>,
    mut object: Option<Value>,
    rounds: &mut Rounds,
) -> Result<Option<Value>, Box<Status>> {
    if is_exempt(write.request) {
        return Ok(object);
    }
    rounds.begin(Plugin::Webhooks, object.as_ref());
    let mut case = Case::of(write);
    for (at, webhook) in webhooks.into_iter().enumerate() {
        let Some(call) = case.call_of(webhook, object.as_ref()).await? else { continue };
        if !rounds.asks(Plugin::Webhooks, &call.webhook.id) {
            continue;
        }
        let mutated = case.mutated(&call).await;
        let new = mutated.as_ref().ok().and_then(Option::as_ref);
        let is_changed = new.is_some() && new != object.as_ref();
        if is_changed {
            rounds.changed(Plugin::Webhooks);
            object = new.cloned();
        }
        if call.webhook.is_reinvoked {
            rounds.asked(Plugin::Webhooks, &call.webhook.id);
        }
        let round = u8::from(rounds.is_second());
        case.note(&call, &format!("mutation.webhook.admission.k8s.io/round_{round}_index_{at}"), |webhook| {
            let (name, configuration) = (&webhook.name, &webhook.configuration);
            json!({"configuration": configuration, "webhook": name, "mutated": is_changed}).to_string()
        });
        if let Err(error) = mutated {
            let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{at}");
            case.settle(&call, error, &key)?;
        }
    }
    rounds.end(Plugin::Webhooks, object.as_ref());
    Ok(object)
}

/// Has webhooks validate a write, all at once.
///
/// Errors: the first of them, in their order, that refuses.
pub(super) async fn validate(
    webhooks: Vec<Arc<Webhook>>,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<(), Box<Status>> {
    if is_exempt(write.request) {
        return Ok(());
    }
    let mut case = Case::of(write);
    let mut calls = Vec::new();
    for webhook in webhooks {
        calls.extend(case.call_of(webhook, object).await?);
    }
    let answers = join_all(calls.iter().map(|call| case.ask(call, false))).await;
    for (at, (call, answer)) in calls.iter().zip(answers).enumerate() {
        if let Err(error) = answer {
            let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{at}");
            case.settle(call, error, &key)?;
        }
    }
    Ok(())
}

impl<'a> Case<'a> {
    fn of(write: &'a Write<'a>) -> Self {
        Self { registry: write.registry, request: write.request, access: &write.access, namespace: None }
    }
}

impl Case<'_> {
    /// The call of a webhook about this object; `None`: it is not about the write.
    ///
    /// Errors: nobody knows whether it is.
    async fn call_of(&mut self, webhook: Arc<Webhook>, object: Option<&Value>) -> Result<Option<Call>, Box<Status>> {
        let (registry, request) = (self.registry, self.request);
        let Some(matched) = webhook.rules_match(registry, request) else { return Ok(None) };
        if webhook.wants_namespace() && self.namespace.is_none() {
            self.namespace = Some(namespace_of(registry, request).await?);
        }
        let seen_by = Seen { object, namespace: self.namespace.as_ref().and_then(Option::as_ref) };
        if !webhook.selects(request, seen_by) {
            return Ok(None);
        }
        let seen = async |object| seen(registry, request, &matched, object).await;
        let object = seen(object).await.map_err(|error| internal(error.to_string()))?;
        let old = seen(request.old).await.map_err(|error| internal(error.to_string()))?;
        if webhook.has_conditions() {
            let described = described(request, &matched, registry.caller());
            let inputs = Inputs {
                object: object.as_ref(),
                old_object: old.as_ref(),
                request: &described,
                namespace: None,
                params: None,
                access: Some(self.access),
            };
            match webhook.is_asked(inputs) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(self.forbidden(&error.to_string())),
            }
        }
        Ok(Some(Call { webhook, matched, object, old }))
    }

    /// Source: kubernetes/apimachinery `pkg/api/errors/errors.go` `NewForbidden`.
    fn forbidden(&self, why: &str) -> Box<Status> {
        let (kind, name) = (self.request.kind, self.request.name);
        let resource = qualified(&kind.group, &kind.plural);
        let named = if name.is_empty() { String::new() } else { format!(" {}", Quoted(name)) };
        let status = Status::forbidden(format!("{resource}{named} is forbidden: {why}"));
        Box::new(status.about(&kind.group, &kind.plural, name))
    }

    /// Asks a webhook.
    ///
    /// Errors: it refuses the write, or cannot be asked.
    async fn ask(&self, call: &Call, mutates: bool) -> Result<Option<Bytes>, HookError> {
        let (webhook, registry) = (&*call.webhook, self.registry);
        if self.request.dry_run && webhook.has_side_effects {
            let why = format!("admission webhook {} does not support dry run", Quoted(&webhook.name));
            return Err(HookError::Refused(Box::new(Status::bad_request(why))));
        }
        let Answer { warnings, annotations, verdict } = self
            .answer(call, mutates)
            .await
            .map_err(|why| HookError::Calling { webhook: webhook.name.clone(), why })?;
        for (key, value) in annotations {
            self.note(call, &format!("{}/{key}", webhook.name), |_| value);
        }
        for warning in warnings {
            registry.warn(&warning);
        }
        match verdict {
            Verdict::Allowed(patch) => Ok(patch),
            Verdict::Denied(denied) => Err(HookError::Refused(Box::new(denied.status(&webhook.name)))),
        }
    }

    async fn answer(&self, call: &Call, mutates: bool) -> Result<Answer, CallError> {
        let (webhook, registry) = (&*call.webhook, self.registry);
        let known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        let version = webhook.version.ok_or(CallError::Objects(known))?;
        let uid = registry.env().uid();
        let review = Review { version, uid: &uid, mutates };
        let described = described(self.request, &call.matched, registry.caller());
        let body = review.body(described, call.object.as_ref(), call.old.as_ref());
        let answer = webhook.client.post(registry, body, webhook.timeout).await?;
        Ok(review.read(&answer)?)
    }

    /// The object of the write as a webhook changes it; `None`: it does not.
    ///
    /// Errors: it refuses the write, it cannot be asked, or what it says makes no object.
    async fn mutated(&self, call: &Call) -> Result<Option<Value>, HookError> {
        let Some(patch) = self.ask(call, true).await? else { return Ok(None) };
        let refused = |why: String| HookError::Refused(internal(why));
        let operations: Vec<Map<String, Value>> =
            serde_json::from_slice(&patch).map_err(|error| refused(error.to_string()))?;
        if operations.is_empty() {
            return Ok(None);
        }
        let Some(object) = &call.object else {
            return Err(refused(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                Quoted(&call.webhook.name)
            )));
        };
        let mut new = patched(object, operations).map_err(|error| refused(error.to_string()))?;
        let typed = Typed::of(self.request, &call.matched);
        if typed.kind.is_some() {
            new = typed.completed(new).map_err(|error| refused(error.to_string()))?;
        }
        let taken = taken(self.registry, self.request, &call.matched, new).await;
        taken.map(Some).map_err(|error| refused(error.to_string()))
    }

    /// Does what the failure policy says.
    ///
    /// Errors: the write is refused.
    fn settle(&self, call: &Call, error: HookError, key: &str) -> Result<(), Box<Status>> {
        match error {
            HookError::Refused(status) => Err(status),
            error @ HookError::Calling { .. } if call.webhook.fails_open => {
                tracing::warn!(%error, "failing open");
                self.note(call, key, |webhook| webhook.name.clone());
                Ok(())
            }
            error @ HookError::Calling { .. } => {
                tracing::warn!(%error, "failing closed");
                Err(internal(error.to_string()))
            }
        }
    }

    /// Notes something for the audit log.
    fn note(&self, call: &Call, key: &str, value: impl FnOnce(&Webhook) -> String) {
        if let Some(notes) = audit::notes() {
            notes.annotate(key, value(&call.webhook));
        }
    }
}
