//! The policies of one kind and their bindings, as they are stored.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    binding::Binding,
    invocation::Hook,
    policy::{Acts, Policy},
};
use crate::registry::{Event, Index};

/// The policies and bindings that are in force.
pub(super) struct Installed<T> {
    policies: BTreeMap<String, Arc<Policy<T>>>,
    /// By the name of the policy, and by their own.
    bindings: HashMap<String, BTreeMap<String, Arc<Binding>>>,
}

impl<T> Default for Installed<T> {
    fn default() -> Self {
        Self { policies: BTreeMap::new(), bindings: HashMap::new() }
    }
}

impl<T> Installed<T> {
    /// Says whether no policy is in force anywhere.
    pub(super) fn is_empty(&self) -> bool {
        !self.policies.keys().any(|name| self.bindings.contains_key(name))
    }

    /// All policies that are in force somewhere, in the order of their names.
    pub(super) fn hooks(&self) -> Vec<Hook<T>> {
        let hook = |policy: &Arc<Policy<T>>| {
            let bindings = self.bindings.get(&policy.name)?.values().cloned().collect();
            Some(Hook { policy: Arc::clone(policy), bindings })
        };
        self.policies.values().filter_map(hook).collect()
    }

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

/// Policies are followed in the first place, bindings in the second.
impl<T: Acts> Index for Installed<T> {
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
