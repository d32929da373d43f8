//! An index of roles and bindings that follows a registry.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    rbac::{
        attributes::Attributes,
        index::{Binding, Decision, Index, Metadata, Missing, told},
        names::{GROUP, MASTERS, RESOURCES},
        rule::Rule,
    },
    registry::{self, Event, Followed, Follower, Object, Registry},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{matching::nullable, status::Status};

/// Why there is no authorizer.
#[derive(Debug, thiserror::Error)]
pub enum RbacError {
    /// The kinds are not served.
    #[error("RBAC has no {0}.{GROUP} to go by; serve all roles and bindings, as BuiltIn::Basic does")]
    NoKind(&'static str),
    /// The storage does not answer.
    #[error("the roles and bindings cannot be read or written: {}", .0.message)]
    Storage(Box<Status>),
}

impl From<Status> for RbacError {
    fn from(status: Status) -> Self {
        Self::Storage(Box::new(status))
    }
}

/// Says who may do what. Clones are the same authorizer.
#[derive(Clone)]
pub struct Authorizer {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    followed: Arc<Followed<Index>>,
}

/// A role, as it is stored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Role {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Rule>,
}

impl Authorizer {
    /// An authorizer that knows nobody yet, and what makes it follow the registry.
    ///
    /// Errors: the registry does not serve roles and bindings.
    pub(super) fn new(registry: &Registry) -> Result<(Self, Follower<Index>), RbacError> {
        let kind = |plural| registry.resource(GROUP, "v1", plural).ok_or(RbacError::NoKind(plural));
        let kinds = RESOURCES.into_iter().map(kind).collect::<Result<_, _>>()?;
        let (followed, follower) = Followed::new("roles and bindings", registry, kinds);
        Ok((Self { shared: Arc::new(Shared { registry: registry.clone(), followed }) }, follower))
    }

    /// Says whether somebody may do something.
    pub fn decide(&self, caller: &Caller, attributes: &Attributes<'_>) -> Decision {
        if caller.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        self.with(|index| index.decide(caller, attributes))
    }

    /// All that somebody may do in a namespace, as rules, and what could not be found out; empty: nothing.
    ///
    /// Source: kubernetes `pkg/registry/authorization/selfsubjectrulesreview/rest.go`.
    pub fn rules_for(&self, caller: &Caller, namespace: &str) -> (Vec<Rule>, String) {
        let (rules, missing) = self.with(|index| index.rules_for(caller, namespace));
        (rules, told(&missing, Missing::by_kind).unwrap_or_default())
    }

    /// Looks into the index.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        self.shared.followed.with(look)
    }

    /// Waits until all counts that was written before. So whoever wrote a role finds it in force with his next request.
    pub async fn settled(&self) {
        self.shared.followed.settled(&self.shared.registry).await;
    }
}

/// The place of a kind is that in [`RESOURCES`].
impl registry::Index for Index {
    fn take(&mut self, place: usize, event: &Event) {
        take(self, place, event);
    }
}

fn take(index: &mut Index, place: usize, event: &Event) {
    let are_bindings = RESOURCES.get(place).is_some_and(|plural| plural.ends_with("bindings"));
    match event {
        Event::Added(object) | Event::Modified(object) => {
            let is_read = if are_bindings {
                read(object).map(|binding: Binding| index.set_binding(binding))
            } else {
                read(object).map(|Role { metadata, rules }| {
                    index.set_role(&metadata.namespace, &metadata.name, rules.into());
                })
            };
            // What cannot be read grants nothing.
            if is_read.is_none() {
                remove(index, are_bindings, object);
            }
        }
        Event::Deleted(object) => remove(index, are_bindings, object),
        Event::Synced(_) | Event::Progress(_) => {}
    }
}

fn remove(index: &mut Index, is_binding: bool, object: &Object) {
    if is_binding {
        index.remove_binding(object.namespace(), object.name());
    } else {
        index.remove_role(object.namespace(), object.name());
    }
}

fn read<'a, T: Deserialize<'a>>(object: &'a Object) -> Option<T> {
    serde_json::from_str(object.bare()).ok()
}
