//! Admission by what users say: webhooks that change or refuse writes, and validating admission policies with their bindings and
//! parameters.
//!
//! [`start`] follows policies, bindings and configurations of webhooks by watches, and answers an [`Admitter`], which a registry asks
//! about every write. What is admitted by the kinds themselves (defaults of pods and the like) is in `kinds`.
//!
//! - `matching`: which writes a policy, a binding or a webhook is about. Pure
//! - `conditions`: whether match conditions hold. Pure
//! - `policy`: a policy that is ready to judge, and what it says. Pure
//! - `binding`: where a policy is in force, and with which parameters
//! - `request`: a write as an `AdmissionRequest`, in the version that is wanted. Pure
//! - `namespace`: the namespace of a write
//! - `judge`: all policies about one write
//! - `status`: says in policies that they are in force
//! - `webhook`: a webhook of a configuration
//! - `review`: an `AdmissionReview`, and what the answer means. Pure
//! - `dispatch`: all webhooks about one write
//!
//! May name: `registry`, `kinds`, `rules`, `schema`, `webhook`, which makes the calls.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/{policy,webhook}/`.

mod binding;
mod conditions;
mod dispatch;
mod judge;
mod matching;
mod namespace;
mod policy;
mod request;
mod review;
mod status;
#[cfg(test)]
mod tests;
mod webhook;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::registry::{Admission, AdmissionRequest, Event, Followed, Index, Object, Registry, Rounds};
use binding::Binding;
use judge::Hook;
use policy::Policy;
pub use request::GROUP;
pub(crate) use request::user_info;
use webhook::{Webhook, Webhooks};

use kubefold_wire::status::Status;

/// The kinds of policies, in the order in which they are followed.
const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
const MUTATING: [&str; 1] = ["mutatingwebhookconfigurations"];
const VALIDATING: [&str; 1] = ["validatingwebhookconfigurations"];

/// Admits writes by policies and webhooks. Clones are the same.
#[derive(Clone)]
pub struct Admitter {
    policies: Option<Arc<Followed<Installed>>>,
    mutating: Option<Arc<Followed<Webhooks>>>,
    validating: Option<Arc<Followed<Webhooks>>>,
}

/// The policies and bindings that are in force.
#[derive(Default)]
struct Installed {
    policies: BTreeMap<String, Arc<Policy>>,
    /// By the name of the policy, and by their own.
    bindings: HashMap<String, BTreeMap<String, Arc<Binding>>>,
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
        policies: follows.begin("admission policies", &POLICIES).await?,
        mutating: follows.begin("mutating webhooks", &MUTATING).await?,
        validating: follows.begin("validating webhooks", &VALIDATING).await?,
    };
    if admitter.policies.is_some()
        && let Some(kind) = registry.resource(GROUP, "v1", "validatingadmissionpolicies")
    {
        tasks.spawn(status::follow_until(registry.clone(), kind, stop.clone()));
    }
    let Admitter { policies, mutating, validating } = &admitter;
    let is_any = policies.is_some() || mutating.is_some() || validating.is_some();
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
    /// Waits until all policies, bindings and configurations of webhooks that were written before are in force.
    pub async fn settled(&self, registry: &Registry) {
        if let Some(policies) = &self.policies {
            policies.settled(registry).await;
        }
        for webhooks in [&self.mutating, &self.validating].into_iter().flatten() {
            webhooks.settled(registry).await;
        }
    }

    fn hooks(&self) -> Vec<Hook> {
        let Some(policies) = &self.policies else { return Vec::new() };
        policies.with(|installed| {
            let hook = |policy: &Arc<Policy>| {
                let bindings = installed.bindings.get(&policy.name)?.values().cloned().collect();
                Some(Hook { policy: Arc::clone(policy), bindings })
            };
            installed.policies.values().filter_map(hook).collect()
        })
    }
}

fn has_any(webhooks: Option<&Arc<Followed<Webhooks>>>) -> bool {
    webhooks.is_some_and(|webhooks| webhooks.with(|webhooks| !webhooks.is_empty()))
}

fn all(webhooks: Option<&Arc<Followed<Webhooks>>>) -> Vec<Arc<Webhook>> {
    webhooks.map(|webhooks| webhooks.with(Webhooks::all)).unwrap_or_default()
}

impl Admission for Admitter {
    fn is_idle(&self) -> bool {
        let has_policies =
            |installed: &Installed| installed.policies.keys().any(|name| installed.bindings.contains_key(name));
        !(self.policies.as_ref().is_some_and(|policies| policies.with(has_policies))
            || has_any(self.mutating.as_ref())
            || has_any(self.validating.as_ref()))
    }

    fn mutates(&self) -> bool {
        has_any(self.mutating.as_ref())
    }

    fn mutate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<Value>,
        rounds: &'a mut Rounds,
    ) -> BoxFuture<'a, Result<Option<Value>, Box<Status>>> {
        Box::pin(dispatch::mutate(all(self.mutating.as_ref()), registry, request, object, rounds))
    }

    fn validate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Box<Status>>> {
        Box::pin(async move {
            judge::judge(self.hooks(), registry, request, object).await?;
            dispatch::validate(all(self.validating.as_ref()), registry, request, object).await
        })
    }
}

impl Installed {
    fn set_binding(&mut self, name: &str, binding: Option<Binding>) {
        // It may have been another policy's.
        self.bindings.retain(|_, of_policy| {
            of_policy.remove(name);
            !of_policy.is_empty()
        });
        if let Some(binding) = binding {
            let of_policy = self.bindings.entry(binding.policy.clone()).or_default();
            of_policy.insert(name.to_owned(), Arc::new(binding));
        }
    }
}

/// The place of a kind is that in [`POLICIES`].
impl Index for Installed {
    fn take(&mut self, place: usize, event: &Event) {
        let (object, stays) = match event {
            Event::Added(object) | Event::Modified(object) => (object, true),
            Event::Deleted(object) => (object, false),
            Event::Synced(_) | Event::Progress(_) => return,
        };
        let name = object.name();
        if place > 0 {
            return self.set_binding(name, stays.then(|| Binding::of(&object.value())));
        }
        if !stays {
            self.policies.remove(name);
        } else if self.policies.get(name).is_none_or(|known| known.is_other(object)) {
            self.policies.insert(name.to_owned(), Arc::new(Policy::of(&object.value())));
        }
    }
}

impl Policy {
    /// Says whether an object says something else: a change of its status is none.
    fn is_other(&self, object: &Object) -> bool {
        let value = object.value();
        let metadata = value.get("metadata").unwrap_or(&Value::Null);
        let same = |field: &str, known: &Value| metadata.get(field).unwrap_or(&Value::Null) == known;
        !(same("uid", &self.uid) && same("generation", &self.generation))
    }
}
