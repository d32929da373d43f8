//! A kind's objects at one revision, and how an earlier revision is rebuilt from them.

use std::{collections::HashSet, ops::Bound, sync::Arc};

use imbl::OrdMap;

use crate::store::{
    entry::{Entry, Key},
    nodes::Nodes,
    record::Record,
    revision::Revision,
};

/// How many objects each namespace has.
pub(super) type Counts = imbl::HashMap<Arc<str>, u64>;

/// A kind's objects at one revision. Cheap to clone, and never changes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// In key order.
    pub objects: OrdMap<Key, Arc<Entry>>,
    pub(super) counts: Counts,
    /// Empty for kinds other than pods.
    pub(super) nodes: Nodes,
    /// The revision that it stands for.
    pub revision: Revision,
    /// Bytes that had been logged by then.
    pub(super) offset: u64,
}

impl Snapshot {
    /// Objects in a namespace, or in all (empty). Constant time.
    pub fn count(&self, namespace: &str) -> u64 {
        if namespace.is_empty() {
            return self.objects.len() as u64;
        }
        self.counts.get(namespace).copied().unwrap_or_default()
    }

    /// The namespaces that have objects.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.counts.keys().map(|namespace| &**namespace)
    }

    /// The keys of the pods that a node of that visible name runs, in order.
    pub fn keys_on_node(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.nodes.keys(node)
    }

    /// The object of that key.
    pub fn get(&self, key: &[u8]) -> Option<&Arc<Entry>> {
        self.objects.get(std::str::from_utf8(key).ok()?)
    }

    /// The objects whose key is above `after` and, where `namespace` is not empty, that lie in it.
    pub fn range<'a>(&'a self, namespace: &'a str, after: &[u8]) -> impl Iterator<Item = &'a Arc<Entry>> + 'a {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        // A token's key that is no text is nobody's, and begins where its text ends.
        let after = after.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let start = if after < prefix.as_str() { Bound::Included(prefix.as_str()) } else { Bound::Excluded(after) };
        self.objects
            .range::<_, str>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| entry)
    }

    /// Takes events back: all that came since some revision, oldest first. Of each object the first one tells what it was.
    pub(super) fn undo(&mut self, records: &[Arc<Record>]) {
        let mut seen = HashSet::with_capacity(records.len());
        for record in records {
            let entry = &record.entry;
            if !seen.insert(entry.key()) {
                continue;
            }
            match record.before() {
                Some(before) => {
                    let now = self.objects.insert(entry.shared_key().clone(), Arc::clone(before));
                    if now.is_none() {
                        count(&mut self.counts, entry.namespace(), 1);
                    }
                    self.nodes.replace(now.as_deref(), Some(before));
                }
                None => {
                    if let Some(now) = self.objects.remove(&**entry.shared_key()) {
                        count(&mut self.counts, entry.namespace(), -1);
                        self.nodes.replace(Some(&now), None);
                    }
                }
            }
        }
    }
}

/// Counts an object more or less. Cluster-scoped ones are not counted.
pub(super) fn count(counts: &mut Counts, namespace: &str, change: i64) {
    if namespace.is_empty() {
        return;
    }
    let now = counts.get(namespace).copied().unwrap_or_default().saturating_add_signed(change);
    if now == 0 {
        counts.remove(namespace);
    } else if let Some(count) = counts.get_mut(namespace) {
        *count = now;
    } else {
        counts.insert(namespace.into(), now);
    }
}
