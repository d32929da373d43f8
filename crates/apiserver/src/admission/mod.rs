//! Admission by what users say: validating admission policies with their bindings and parameters.
//!
//! [`start`] follows policies and bindings by watches, and answers an [`Admitter`], which a registry asks about every write. What is
//! admitted by the kinds themselves (defaults of pods and the like) is in `kinds`.
//!
//! - `matching`: which writes a policy or a binding is about. Pure
//! - `policy`: a policy that is ready to judge, and what it says. Pure
//! - `binding`: where a policy is in force, and with which parameters
//! - `request`: a write as an `AdmissionRequest`, in the version that is wanted. Pure
//! - `judge`: all policies about one write
//! - `status`: says in policies that they are in force
//!
//! May name: `registry`, `kinds`, `rules`.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/policy/`.

mod binding;
mod judge;
mod matching;
mod policy;
mod request;
mod status;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::registry::{Admission, AdmissionRequest, Event, Followed, Index, Object, Registry};
use binding::Binding;
use judge::Hook;
use policy::Policy;
pub use request::GROUP;
pub(crate) use request::user_info;

use kubefold_wire::status::Status;

/// The kinds that are followed, in this order.
const RESOURCES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

/// Admits writes by policies. Clones are the same.
#[derive(Clone)]
pub struct Admitter {
    followed: Arc<Followed<Installed>>,
}

/// The policies and bindings that are in force.
#[derive(Default)]
struct Installed {
    policies: BTreeMap<String, Arc<Policy>>,
    /// By the name of the policy, and by their own.
    bindings: HashMap<String, BTreeMap<String, Arc<Binding>>>,
}

/// Follows policies until `stop`, and keeps their status. `None`: the registry does not serve them.
///
/// Errors: its storage does not answer.
pub async fn start(
    registry: &Registry,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Option<Admitter>, Status> {
    let Some(kinds) = RESOURCES.into_iter().map(|plural| registry.resource(GROUP, "v1", plural)).collect() else {
        return Ok(None);
    };
    let (followed, follower) = Followed::new("admission policies", registry, kinds);
    let loaded = follower.load().await?;
    tasks.spawn(follower.follow_until(loaded, stop.clone()));
    if let Some(kind) = registry.resource(GROUP, "v1", "validatingadmissionpolicies") {
        tasks.spawn(status::follow_until(registry.clone(), kind, stop.clone()));
    }
    Ok(Some(Admitter { followed }))
}

impl Admitter {
    /// Waits until all policies and bindings that were written before are in force.
    pub async fn settled(&self, registry: &Registry) {
        self.followed.settled(registry).await;
    }

    fn hooks(&self) -> Vec<Hook> {
        self.followed.with(|installed| {
            let hook = |policy: &Arc<Policy>| {
                let bindings = installed.bindings.get(&policy.name)?.values().cloned().collect();
                Some(Hook { policy: Arc::clone(policy), bindings })
            };
            installed.policies.values().filter_map(hook).collect()
        })
    }
}

impl Admission for Admitter {
    fn is_idle(&self) -> bool {
        self.followed.with(|installed| !installed.policies.keys().any(|name| installed.bindings.contains_key(name)))
    }

    fn validate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Box<Status>>> {
        Box::pin(judge::judge(self.hooks(), registry, request, object))
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

/// The place of a kind is that in [`RESOURCES`].
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
