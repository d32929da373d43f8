//! All mutating policies about one write, one after another.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/dispatcher.go`,
//! `pkg/admission/plugin/policy/generic/policy_dispatcher.go`.

use serde_json::Value;

use super::{
    access::Write,
    binding::Binding,
    invocation::{Hook, Invocation, Misconfigured, is_exempt, select},
    mutation::Mutations,
    patched::{Typed, internal},
    policy::Policy,
    request::{refused, taken},
    versions::Versions,
};
use crate::registry::{AdmissionRequest, Operation, Plugin, Registry, Rounds};
use kubefold_wire::{
    golang::Quoted,
    status::{Cause, Reason, Status},
};

/// Why a policy refuses a write.
struct Refusal {
    message: String,
    /// `None`: that of any refusal.
    reason: Option<Reason>,
}

/// One write, and what became of it.
struct Case<'a> {
    registry: &'a Registry,
    request: &'a AdmissionRequest<'a>,
    versions: Versions<'a>,
    /// The version that the last policy saw, and whether anybody changed it.
    last: Option<Last>,
    refusals: Vec<Refusal>,
}

#[derive(Clone, Copy)]
struct Last {
    place: usize,
    is_changed: bool,
}

/// Has policies change an object, in their order.
///
/// Errors: the first of them that fails, if its failures refuse.
pub(super) async fn mutate(
    hooks: Vec<Hook<Mutations>>,
    write: &Write<'_>,
    object: Option<Value>,
    rounds: &mut Rounds,
) -> Result<Option<Value>, Box<Status>> {
    let Write { registry, request, .. } = *write;
    // Of what is deleted there is nothing to change.
    if hooks.is_empty() || request.operation == Operation::Delete || is_exempt(request) {
        return Ok(object);
    }
    let selection = select(hooks, registry, request, object.as_ref()).await?;
    let versions = Versions::new(write, object.as_ref(), selection.namespace);
    let mut case = Case { registry, request, versions, last: None, refusals: Vec::new() };
    for misconfigured in selection.found.iter().filter_map(|found| found.as_ref().err()) {
        case.misconfigured(misconfigured, None);
    }
    let invocations = || selection.found.iter().filter_map(|found| found.as_ref().ok());
    let mut new = None;
    if invocations().next().is_some() {
        rounds.begin(Plugin::Policies, object.as_ref());
        for invocation in invocations() {
            case.invoke(invocation, rounds).await?;
        }
        new = case.changed(rounds).await?;
        rounds.end(Plugin::Policies, new.as_ref().or(object.as_ref()));
    }
    match case.refused(object.as_ref()) {
        Some(status) => Err(status),
        None => Ok(new.or(object)),
    }
}

impl Case<'_> {
    /// Has a policy change the object.
    ///
    /// Errors: what it makes of the object is none.
    async fn invoke(&mut self, invocation: &Invocation<Mutations>, rounds: &mut Rounds) -> Result<(), Box<Status>> {
        let Invocation { policy, binding, matched, param } = invocation;
        let place = match self.versions.place_of(matched).await {
            Ok(place) => place,
            Err(error) => {
                self.misconfigured(&Misconfigured::new(policy, None, &error), Some(Reason::Invalid));
                return Ok(());
            }
        };
        let Some(version) = self.versions.at(place) else { return Ok(()) };
        match policy.is_matched(self.versions.inputs(version, param.as_ref())) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                self.refuse(policy, Some(binding), &error.to_string(), Some(Reason::Invalid));
                return Ok(());
            }
        }
        let id = invocation.id();
        if !rounds.asks(Plugin::Policies, &id) {
            return Ok(());
        }
        if self.mutate(invocation, place)? {
            rounds.changed(Plugin::Policies);
        }
        if policy.acts.is_reinvoked {
            rounds.asked(Plugin::Policies, &id);
        }
        Ok(())
    }

    /// Makes the changes of a policy, and says whether the object is another one.
    ///
    /// Errors: what one of them makes of the object is none.
    fn mutate(&mut self, invocation: &Invocation<Mutations>, place: usize) -> Result<bool, Box<Status>> {
        let Invocation { policy, binding, matched, param } = invocation;
        let before = self.versions.at(place).and_then(|version| version.object.clone());
        let typed = Typed::of(self.request, matched);
        for mutation in &policy.acts.each {
            let was_changed = self.last.is_some_and(|last| last.place == place && last.is_changed);
            let mut last = Last { place, is_changed: was_changed };
            let Some(version) = self.versions.at(place) else { break };
            let Some(object) = &version.object else { break };
            match mutation.apply(object, &typed, &policy.scope, self.versions.inputs(version, param.as_ref())) {
                Ok(new) => {
                    last.is_changed = true;
                    if let Some(version) = self.versions.at_mut(place) {
                        version.object = Some(new);
                    }
                }
                Err(error) => match error.status() {
                    Some(status) => return Err(status),
                    None => self.refuse(policy, Some(binding), &error.to_string(), Some(Reason::Invalid)),
                },
            }
            self.last = Some(last);
        }
        Ok(before.as_ref() != self.versions.at(place).and_then(|version| version.object.as_ref()))
    }

    /// The object of the write as policies changed it; `None`: none of them did.
    ///
    /// Errors: it cannot be said in the version of the write.
    async fn changed(&self, rounds: &mut Rounds) -> Result<Option<Value>, Box<Status>> {
        let Some(last) = self.last.filter(|last| last.is_changed) else { return Ok(None) };
        let Some(version) = self.versions.at(last.place) else { return Ok(None) };
        let Some(object) = version.object.clone() else { return Ok(None) };
        // Whoever wants to is asked again, even if nothing differs.
        rounds.changed(Plugin::Policies);
        let object = taken(self.registry, self.request, &version.matched, object).await;
        object.map(Some).map_err(|error| internal(format!("failed to convert object: {error}")))
    }

    fn misconfigured(&mut self, misconfigured: &Misconfigured<Mutations>, reason: Option<Reason>) {
        let Misconfigured { policy, binding, .. } = misconfigured;
        self.refuse(policy, binding.as_deref(), &misconfigured.message(), reason);
    }

    fn refuse(&mut self, policy: &Policy<Mutations>, binding: Option<&Binding>, why: &str, reason: Option<Reason>) {
        if policy.fails_open {
            tracing::warn!(policy = policy.name, error = why, "failing open");
            return;
        }
        let by = match binding {
            Some(binding) => format!("policy '{}' with binding '{}'", policy.name, binding.name),
            None => format!("policy {}", Quoted(&policy.name)),
        };
        self.refusals.push(Refusal { message: format!("{by} denied request: {why}"), reason });
    }

    /// The answer to a write that is refused.
    fn refused(&self, object: Option<&Value>) -> Option<Box<Status>> {
        let first = self.refusals.first()?;
        let mut status = refused(self.request, object, "admission request denied by policy");
        status.message.clone_from(&first.message);
        if let Some(reason) = first.reason {
            status.reason = reason;
        }
        status.details.causes.extend(self.refusals.iter().map(|refusal| Cause::new("", "", refusal.message.clone())));
        Some(status)
    }
}
