//! Which pods run on which node.

use std::{ops::Bound, sync::Arc};

use imbl::OrdSet;

use crate::store::entry::{Entry, Key};

/// The keys of pods by the visible names of their nodes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(OrdSet<(Arc<str>, Key)>);

impl Nodes {
    /// Notes that `after` stands where `before` stood, each if there is one.
    pub(super) fn replace(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let (from, to) = (before.and_then(Entry::node), after.and_then(Entry::node));
        if from == to {
            return;
        }
        if let (Some(node), Some(before)) = (from, before) {
            let at = (self.name(node), Arc::clone(before.shared_key()));
            self.0.remove(&at);
        }
        if let (Some(node), Some(after)) = (to, after) {
            let at = (self.name(node), Arc::clone(after.shared_key()));
            self.0.insert(at);
        }
    }

    /// The keys of a node's pods, in order.
    pub(super) fn keys(&self, node: &str) -> impl Iterator<Item = &Key> {
        let first = (Arc::from(node), Arc::from(""));
        let all = self.0.range((Bound::Included(first), Bound::Unbounded));
        all.take_while(move |(name, _)| **name == *node).map(|(_, key)| key)
    }

    /// All pods of a node share one text.
    fn name(&self, node: &str) -> Arc<str> {
        let first: (Arc<str>, Key) = (Arc::from(node), Arc::from(""));
        let next = self.0.range((Bound::Included(first.clone()), Bound::Unbounded)).next();
        next.filter(|(name, _)| *name == first.0).map_or(first.0, |(name, _)| Arc::clone(name))
    }
}
