//! Which pods run on which node.

use imbl::{OrdMap, OrdSet};

use crate::store::entry::{Entry, Key};

/// The keys of pods by the visible names of their nodes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(OrdMap<arcstr::ArcStr, OrdSet<Key>>);

impl Nodes {
    /// Notes that `after` stands where `before` stood, each if there is one.
    pub(super) fn replace(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let (from, to) = (before.and_then(Entry::node), after.and_then(Entry::node));
        if from == to {
            return;
        }
        if let (Some(node), Some(before)) = (from, before)
            && let Some(pods) = self.0.get_mut(node)
        {
            pods.remove(before.shared_key());
            if pods.is_empty() {
                self.0.remove(node);
            }
        }
        if let (Some(node), Some(after)) = (to, after) {
            let key = after.shared_key().clone();
            match self.0.get_mut(node) {
                Some(pods) => drop(pods.insert(key)),
                None => drop(self.0.insert(node.into(), OrdSet::unit(key))),
            }
        }
    }

    /// The keys of a node's pods, in order.
    pub(super) fn keys(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.0.get(node).into_iter().flatten()
    }
}
