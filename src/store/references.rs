//! What documents refer to, collected while they are dressed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::{
    config::MemberName,
    store::identities::{GroupKind, Referent},
};

/// How many kinds the documents of a member may refer to. Beyond that (somebody makes kinds up in events) none counts as new.
const KINDS_MAX: usize = 512;

/// The kinds that documents of each member have referred to.
#[derive(Debug, Default)]
pub(super) struct ReferredKinds {
    by_member: RwLock<HashMap<MemberName, Arc<[GroupKind]>>>,
}

impl ReferredKinds {
    /// All kinds that documents of any member refer to.
    pub(super) fn all(&self) -> BTreeSet<GroupKind> {
        self.by_member.read().values().flat_map(|kinds| kinds.iter().cloned()).collect()
    }

    /// Forgets a member.
    pub(super) fn forget(&self, member: &MemberName) {
        self.by_member.write().remove(member);
    }

    fn of(&self, member: &MemberName) -> Arc<[GroupKind]> {
        self.by_member.read().get(member).cloned().unwrap_or_default()
    }

    /// Notes a kind. Says whether it is the first reference of the member's documents to it, and what is known then.
    fn insert(&self, member: &MemberName, group: &str, kind: &str) -> (bool, Arc<[GroupKind]>) {
        let mut all = self.by_member.write();
        let known = all.entry(member.clone()).or_default();
        let is_new = known.len() < KINDS_MAX && !holds(known, group, kind);
        if is_new {
            *known = known.iter().cloned().chain([(group.to_owned(), kind.to_owned())]).collect();
        }
        (is_new, Arc::clone(known))
    }
}

fn holds(kinds: &[GroupKind], group: &str, kind: &str) -> bool {
    kinds.iter().any(|(g, k)| k == kind && g == group)
}

/// What documents of one member refer to, collected while they are dressed.
#[derive(Debug)]
pub(super) struct References<'a> {
    kinds: &'a ReferredKinds,
    member: &'a MemberName,
    known: Arc<[GroupKind]>,
    /// Of the present document: hashes of referents, each once.
    pub(super) hashes: SmallVec<[u64; 8]>,
}

impl<'a> References<'a> {
    pub(super) fn new(kinds: &'a ReferredKinds, member: &'a MemberName) -> Self {
        Self { kinds, member, known: kinds.of(member), hashes: SmallVec::new() }
    }

    /// Notes that the document names an object of this kind. Says whether it is the member's first of that kind.
    pub(super) fn insert_kind(&mut self, group: &str, kind: &str) -> bool {
        if self.known.len() >= KINDS_MAX || holds(&self.known, group, kind) {
            return false;
        }
        let (is_new, known) = self.kinds.insert(self.member, group, kind);
        self.known = known;
        is_new
    }

    /// Notes that the document names this referent.
    pub(super) fn insert(&mut self, referent: &[u8]) {
        let hash = Referent::hash_of(referent);
        if !self.hashes.contains(&hash) {
            self.hashes.push(hash);
        }
    }
}
