//! Which objects a reader sees, and under which name.

use crate::{
    store::{Entry, Interest, KindSpec, Transition},
    view::FleetSelector,
};
use kubefold_wire::{
    selector::{FieldSelector, Subject},
    watch::EventType,
};

/// A namespace and selectors, and the name that the answer echoes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Empty for all.
    pub(super) namespace: String,
    pub(super) labels: FleetSelector,
    pub(super) fields: FieldSelector,
    /// Member-local objects have their member's name behind their own.
    pub(super) suffixed: bool,
    /// The caller's own name for the one object that is selected, where that is not its visible name.
    pub(super) echo: Option<String>,
}

impl Filter {
    /// Says whether only the namespace decides.
    pub(super) fn is_namespace_only(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The only namespace in which something can match; empty: any.
    pub(super) fn sought_namespace(&self) -> &str {
        if self.namespace.is_empty() { self.fields.namespace().unwrap_or_default() } else { &self.namespace }
    }

    /// What a watcher that selects so may see at most.
    pub(super) fn interest(&self, spec: &KindSpec) -> Interest {
        match (self.fields.name(), self.sought_namespace(), self.fields.node()) {
            (Some(name), "", _) if !spec.namespaced => Interest::Object(name.into()),
            (Some(name), namespace, _) if !namespace.is_empty() => {
                Interest::Object(format!("{namespace}/{name}").into())
            }
            (_, _, Some(node)) => Interest::Node(node.into()),
            (_, "", None) => Interest::Everything,
            (_, namespace, None) => Interest::Namespace(namespace.into()),
        }
    }

    /// What an event is to a watcher that selects so: entering the selector is ADDED, leaving it DELETED with the state before.
    pub(super) fn judge(&self, event_type: EventType, entry: &Entry, previous: Option<&Entry>) -> Option<Transition> {
        let now = self.matches(entry);
        match event_type {
            EventType::Modified => match (previous.is_some_and(|previous| self.matches(previous)), now) {
                (true, true) => Some(Transition::Modified),
                (false, true) => Some(Transition::Added),
                (true, false) => Some(Transition::Left),
                (false, false) => None,
            },
            EventType::Deleted => now.then_some(Transition::Deleted),
            _ => now.then_some(Transition::Added),
        }
    }

    pub(super) fn matches(&self, entry: &Entry) -> bool {
        if !self.namespace.is_empty() && entry.namespace() != self.namespace {
            return false;
        }
        if !self.fields.is_everything() && !self.fields.matches(&self.subject(entry)) {
            return false;
        }
        if self.labels.is_everything() {
            return true;
        }
        let holders: smallvec::SmallVec<[&str; 4]> = entry.holders.iter().map(|name| name.as_str()).collect();
        self.labels.matches(entry.labels(), &holders)
    }

    fn subject<'a>(&self, entry: &'a Entry) -> Subject<'a> {
        let member = entry.holders.first().filter(|_| self.suffixed && !entry.folded);
        Subject {
            namespace: entry.namespace(),
            name: entry.name(),
            json: entry.json(),
            suffix: ["@", member.map_or("", |member| member.as_str())],
        }
    }
}
