//! Proofs: a member is asked what it holds, and the store is made to hold that.

use std::collections::BTreeMap;

use crate::store::{
    HeldVersion,
    tests::{
        model::{Doc, member},
        world::World,
    },
};

/// What a member held of a kind when it was asked.
pub(super) struct All {
    at: usize,
    kind: usize,
    incarnation: u32,
    revision: u64,
    docs: Vec<Doc>,
}

impl World {
    pub(super) fn ask_all(&self, at: usize, kind: usize) -> Option<All> {
        let etcd = self.members[at].as_ref()?;
        let incarnation = self.stores[kind].incarnation(&member(at));
        let docs = etcd.objects[kind].values().cloned().collect();
        Some(All { at, kind, incarnation, revision: etcd.rv, docs })
    }

    /// As a proof does it: what is not there any more is gone, and all else is fetched.
    pub(super) fn compare(&self, all: &All) {
        let (store, name) = (&self.stores[all.kind], member(all.at));
        let mut held = store.held(&name, "", None, |_| true);
        for doc in &all.docs {
            held.remove(&crate::store::key(doc.namespace, doc.name));
            store.ingest_live(&name, all.incarnation, &doc.whole()).unwrap();
        }
        for own_key in held.keys() {
            store.gone(&name, all.incarnation, own_key, all.revision).unwrap();
        }
    }

    pub(super) fn prove(&mut self, at: usize, kind: usize) {
        let Some(all) = self.ask_all(at, kind) else { return };
        let before = self.stores[kind].held(&member(at), "", None, |_| true);
        self.compare(&all);
        let after = self.stores[kind].held(&member(at), "", None, |_| true);
        let alive: Vec<&str> = all.docs.iter().map(|doc| doc.uid.as_str()).collect();
        self.dead.extend(before.into_values().map(|held| held.uid).filter(|uid| !alive.contains(&uid.as_str())));
        if self.holds.is_empty() {
            let uid_and_rv = |(key, held): (String, HeldVersion)| (key, (held.uid, held.member_rv));
            let shown: BTreeMap<_, _> = after.into_iter().map(uid_and_rv).collect();
            let key = |doc: &Doc| crate::store::key(doc.namespace, doc.name);
            let is: BTreeMap<_, _> = all.docs.iter().map(|doc| (key(doc), (doc.uid.clone(), doc.rv))).collect();
            assert_eq!(shown, is, "a proven store holds what the member holds");
        }
    }
}
