//! Admission by what users say: policies and webhooks that change or refuse writes, with the bindings and parameters of policies.
//!
//! [`start`] follows policies, bindings and configurations of webhooks by watches, and answers an [`Admitter`], which a registry asks
//! about every write. What is admitted by the kinds themselves (defaults of pods and the like) is in `kinds`.
//!
//! - `matching`: which writes a policy, a binding or a webhook is about. Pure
//! - `access`: a write, and whom expressions ask what its sender may do
//! - `conditions`: whether match conditions hold. Pure
//! - `policy`: a policy of either kind. Pure
//! - `binding`: where a policy is in force, and with which parameters
//! - `installed`: all policies of one kind, with their bindings
//! - `invocation`: which of them are asked about a write
//! - `versions`: the objects of a write as policies see them
//! - `validation`, `judge`: what a validating policy says of a write, and all of them about one
//! - `mutation`, `mutate`: what a mutating policy makes of an object, and all of them about one
//! - `patched`: objects that were changed, as their types have them. Pure
//! - `request`: a write as an `AdmissionRequest`, in the version that is wanted. Pure
//! - `namespace`: the namespace of a write
//! - `status`: says in policies that they are in force
//! - `webhook`: a webhook of a configuration
//! - `review`: an `AdmissionReview`, and what the answer means. Pure
//! - `dispatch`: all webhooks about one write
//!
//! May name: `registry`, `kinds`, `rbac`, `rules`, `schema`, `patch`, and `webhook`, which makes the calls.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/{policy,webhook}/`.

mod access;
mod binding;
mod conditions;
mod dispatch;
mod installed;
mod invocation;
mod judge;
mod matching;
mod mutate;
mod mutation;
mod namespace;
mod patched;
mod policy;
mod request;
mod review;
mod status;
#[cfg(test)]
mod tests;
mod validation;
mod versions;
mod webhook;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    rbac::Authorizer,
    registry::{Admission, AdmissionRequest, Followed, Index, Registry, Rounds},
    rules::{Access, Authority},
};
use access::{Asked, Write};
use installed::Installed;
use invocation::Hook;
use mutation::Mutations;
use policy::Acts;
pub use request::GROUP;
pub(crate) use request::user_info;
use validation::Validations;
use webhook::{Webhook, Webhooks};

use kubefold_wire::status::Status;

/// The kinds of policies that change objects, in the order in which they are followed.
const MUTATING_POLICIES: [&str; 2] = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
/// The same of those that validate.
const VALIDATING_POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
const MUTATING: [&str; 1] = ["mutatingwebhookconfigurations"];
const VALIDATING: [&str; 1] = ["validatingwebhookconfigurations"];

/// Admits writes by policies and webhooks. Clones are the same.
#[derive(Clone)]
pub struct Admitter {
    mutating_policies: Option<Arc<Followed<Installed<Mutations>>>>,
    validating_policies: Option<Arc<Followed<Installed<Validations>>>>,
    mutating: Option<Arc<Followed<Webhooks>>>,
    validating: Option<Arc<Followed<Webhooks>>>,
    authority: Arc<dyn Authority>,
}

/// Follows policies and configurations of webhooks until `stop`, and keeps the status of policies. `None`: the registry serves none
/// of their kinds.
///
/// Errors: its storage does not answer.
pub async fn start(
    registry: &Registry,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Option<Admitter>, Status> {
    let follows = Following { registry, tasks, stop };
    let admitter = Admitter {
        mutating_policies: follows.begin("mutating admission policies", &MUTATING_POLICIES).await?,
        validating_policies: follows.begin("admission policies", &VALIDATING_POLICIES).await?,
        mutating: follows.begin("mutating webhooks", &MUTATING).await?,
        validating: follows.begin("validating webhooks", &VALIDATING).await?,
        authority: Arc::new(Asked(None)),
    };
    if admitter.validating_policies.is_some()
        && let Some(kind) = registry.resource(GROUP, "v1", "validatingadmissionpolicies")
    {
        tasks.spawn(status::follow_until(registry.clone(), kind, stop.clone()));
    }
    let Admitter { mutating_policies, validating_policies, mutating, validating, .. } = &admitter;
    let has_policies = mutating_policies.is_some() || validating_policies.is_some();
    let is_any = has_policies || mutating.is_some() || validating.is_some();
    Ok(is_any.then_some(admitter))
}

/// What is followed, and until when.
struct Following<'a> {
    registry: &'a Registry,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Following<'_> {
    /// Begins to follow kinds; `None`: one of them is not served.
    async fn begin<I: Index>(&self, what: &'static str, plurals: &[&str]) -> Result<Option<Arc<Followed<I>>>, Status> {
        let kinds = plurals.iter().map(|plural| self.registry.resource(GROUP, "v1", plural)).collect();
        let Some(kinds) = kinds else { return Ok(None) };
        let (followed, follower) = Followed::new(what, self.registry, kinds);
        let loaded = follower.load().await?;
        self.tasks.spawn(follower.follow_until(loaded, self.stop.clone()));
        Ok(Some(followed))
    }
}

impl Admitter {
    /// The same, whose expressions ask this authorizer what somebody may do. Without one everybody may do everything.
    #[must_use]
    pub fn asking(self, authorizer: Authorizer) -> Self {
        Self { authority: Arc::new(Asked(Some(authorizer))), ..self }
    }

    /// What the sender of a request may do.
    fn access(&self, registry: &Registry) -> Access {
        Access::new(Arc::clone(&self.authority), registry.shared_caller())
    }

    /// Waits until all policies, bindings and configurations of webhooks that were written before are in force.
    pub async fn settled(&self, registry: &Registry) {
        if let Some(policies) = &self.mutating_policies {
            policies.settled(registry).await;
        }
        if let Some(policies) = &self.validating_policies {
            policies.settled(registry).await;
        }
        for webhooks in [&self.mutating, &self.validating].into_iter().flatten() {
            webhooks.settled(registry).await;
        }
    }
}

fn has_policies<T: Acts>(policies: Option<&Arc<Followed<Installed<T>>>>) -> bool {
    policies.is_some_and(|policies| policies.with(|installed| !installed.is_empty()))
}

fn hooks<T: Acts>(policies: Option<&Arc<Followed<Installed<T>>>>) -> Vec<Hook<T>> {
    policies.map(|policies| policies.with(Installed::hooks)).unwrap_or_default()
}

fn has_any(webhooks: Option<&Arc<Followed<Webhooks>>>) -> bool {
    webhooks.is_some_and(|webhooks| webhooks.with(|webhooks| !webhooks.is_empty()))
}

fn all(webhooks: Option<&Arc<Followed<Webhooks>>>) -> Vec<Arc<Webhook>> {
    webhooks.map(|webhooks| webhooks.with(Webhooks::all)).unwrap_or_default()
}

impl Admission for Admitter {
    fn is_idle(&self) -> bool {
        !(self.mutates() || has_policies(self.validating_policies.as_ref()) || has_any(self.validating.as_ref()))
    }

    fn mutates(&self) -> bool {
        has_policies(self.mutating_policies.as_ref()) || has_any(self.mutating.as_ref())
    }

    fn mutate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<Value>,
        rounds: &'a mut Rounds,
    ) -> BoxFuture<'a, Result<Option<Value>, Box<Status>>> {
        Box::pin(async move {
            let write = Write { registry, request, access: self.access(registry) };
            let object = mutate::mutate(hooks(self.mutating_policies.as_ref()), &write, object, rounds).await?;
            dispatch::mutate(all(self.mutating.as_ref()), &write, object, rounds).await
        })
    }

    fn validate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Box<Status>>> {
        Box::pin(async move {
            let write = Write { registry, request, access: self.access(registry) };
            judge::judge(hooks(self.validating_policies.as_ref()), &write, object).await?;
            dispatch::validate(all(self.validating.as_ref()), &write, object).await
        })
    }
}
