//! Which objects a reader sees, and under which name.

use crate::{store::Entry, view::FleetSelector};
use kubefold_wire::selector::{FieldSelector, Subject};

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
