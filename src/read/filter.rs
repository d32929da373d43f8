//! Which objects a reader sees, and under which name.

use crate::{
    store::Entry,
    wire::selector::{FieldSelector, LabelSelector},
};

/// A namespace and selectors, and the name that the answer echoes.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Empty for all.
    pub(super) namespace: String,
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    /// The caller's own name for the one object that is selected, where that is not its visible name.
    pub(super) echo: Option<String>,
}

impl Filter {
    /// Says whether only the namespace decides.
    pub(super) fn is_namespace_only(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub(super) fn matches(&self, entry: &Entry) -> bool {
        if !self.namespace.is_empty() && entry.namespace() != self.namespace {
            return false;
        }
        if !self.fields.matches(entry.namespace(), entry.name()) {
            return false;
        }
        if self.labels.is_everything() {
            return true;
        }
        let holders: smallvec::SmallVec<[&str; 4]> = entry.holders.iter().map(|name| name.as_str()).collect();
        self.labels.matches(entry.labels(), &holders)
    }
}
