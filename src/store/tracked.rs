//! What changes of a member's objects, for who keeps them outside of the store: with each batch of changes the position
//! that it leads to, so that both always agree.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use crate::{
    config::MemberName,
    store::{
        entry::Key,
        fleet_store::FleetStore,
        naming::key,
        sequencer::Sequencer,
        tracking::{Changes, MemberDocument, Position, Tracking},
    },
};

/// Changed objects of one member that are remembered. With more, all of its objects count as changed.
const CHANGED_MAX: usize = 1 << 16;
/// Objects that are looked at under one lock.
const LOOKED_AT_MAX: usize = 1024;

impl FleetStore {
    /// Remembers from here on what changes of a member's objects, which are in the store completely. With `is_whole` all of them
    /// count as changed. It ends with the next full list, or another life of the member.
    pub fn track(&self, member: &MemberName, definition: u64, is_whole: bool) {
        if self.passes() {
            return self.report_listed(member, definition);
        }
        let mut inner = self.lock();
        if let Some(state) = inner.member_mut(member) {
            state.tracking = Some(Tracking { definition, is_whole, changed: HashMap::new() });
        }
    }

    /// What changed of a member's objects since this was asked last. `None`: it is not tracked, and may be half-listed.
    pub fn take_changes(&self, member: &MemberName) -> Option<Changes> {
        let mut inner = self.lock();
        let state = inner.member_mut(member)?;
        let (cluster_uid, revision) = (Arc::clone(&state.cluster_uid), state.position);
        let tracking = state.tracking.as_mut().filter(|_| revision > 0)?;
        let is_whole = std::mem::take(&mut tracking.is_whole);
        let objects = std::mem::take(&mut tracking.changed);
        let position = Position { cluster_uid, revision, definition: tracking.definition };
        Some(Changes { position, is_whole, objects })
    }

    /// Has all objects of a member count as changed: what was taken could not be kept.
    pub fn give_changes_back(&self, member: &MemberName) {
        let mut inner = self.lock();
        if let Some(tracking) = inner.member_mut(member).and_then(|state| state.tracking.as_mut()) {
            tracking.is_whole = true;
            tracking.changed = HashMap::new();
        }
    }

    /// All objects of a member by own key, read in slices: some may have changed since the first was read.
    pub fn documents(&self, member: &MemberName) -> HashMap<String, MemberDocument> {
        let mut documents = HashMap::new();
        for kind in [Own::Parts, Own::Locals] {
            let mut after = None;
            while let Some(last) = self.peek(|inner| inner.documents_after(member, kind, after.take(), &mut documents))
            {
                after = Some(last);
            }
        }
        documents
    }

    /// The UID of the cluster that a member's objects are of; `None` while the store does not know the member.
    pub fn cluster_uid(&self, member: &MemberName) -> Option<Arc<str>> {
        self.peek(|inner| inner.member(member).map(|state| Arc::clone(&state.cluster_uid)))
    }
}

/// Which of a member's objects.
#[derive(Clone, Copy)]
enum Own {
    Parts,
    Locals,
}

impl Sequencer {
    /// Notes that something may be another document under a member's own key, or none.
    pub(super) fn note_change(&mut self, member: &MemberName, own_key: &str) {
        let is_tracked = self.member(member).and_then(|state| state.tracking.as_ref());
        if is_tracked.is_none_or(|tracking| tracking.is_whole) {
            return;
        }
        let document = self.document(member, own_key);
        let Some(tracking) = self.member_mut(member).and_then(|state| state.tracking.as_mut()) else { return };
        tracking.changed.insert(own_key.to_owned(), document);
        if tracking.changed.len() > CHANGED_MAX {
            tracking.is_whole = true;
            tracking.changed = HashMap::new();
        }
    }

    /// What a member has under an own key.
    fn document(&self, member: &MemberName, own_key: &str) -> Option<MemberDocument> {
        if let Some(part) = self.folds.get(own_key).and_then(|fold| fold.part(member)) {
            return Some(MemberDocument::Part(Arc::clone(part)));
        }
        let entry = self.objects.get(self.member_local_key(own_key, member).as_str())?;
        let is_it = !entry.folded && entry.holders.first() == Some(member);
        is_it.then(|| MemberDocument::Local(Arc::clone(entry)))
    }

    /// Adds the next slice of a member's documents. Gives the key behind which to go on, if there may be more.
    fn documents_after(
        &self,
        member: &MemberName,
        own: Own,
        after: Option<Key>,
        documents: &mut HashMap<String, MemberDocument>,
    ) -> Option<Key> {
        let state = self.member(member)?;
        let keys: &BTreeSet<Key> = match own {
            Own::Parts => &state.parts,
            Own::Locals => &state.member_locals,
        };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let slice = keys.range((start, Bound::Unbounded)).take(LOOKED_AT_MAX);
        let (mut looked_at, mut last) = (0, None);
        for visible in slice {
            let own_key = match own {
                Own::Parts => visible.to_string(),
                Own::Locals => {
                    let (namespace, name) = visible.split_once('/').unwrap_or(("", visible));
                    key(namespace, &self.shared.naming.own(&self.spec.gvr, name))
                }
            };
            if let Some(document) = self.document(member, &own_key) {
                documents.insert(own_key, document);
            }
            (looked_at, last) = (looked_at + 1, Some(visible));
        }
        last.filter(|_| looked_at == LOOKED_AT_MAX).cloned()
    }
}
