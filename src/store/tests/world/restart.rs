//! Another process that begins with what an earlier one had.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{Reflector, World, stores};
use crate::store::{
    Earlier, FleetStore, Identities, LogLimits, MemberDocument, Revision, Revisions, Shared,
    tests::model::{Etcd, KINDS, Kind, MEMBERS, member},
    unix_micros,
};

impl World {
    /// Says whether nothing stands in the way of another process that goes on: all members were listed, nothing is held back or is on
    /// its way out, no child of a placed object has lived before, and all owners are there. Of the latter no process is told.
    pub(crate) fn is_calm(&self) -> bool {
        let replica_sets = self.stores[Kind::ReplicaSets as usize].snapshot();
        let child_life = |key: &str| self.shared.identities.child_life(&format!("apps/replicasets/{key}"));
        let has_owners = |etcd: &Etcd| {
            let owners: HashSet<&String> = etcd.objects[0].values().map(|owner| &owner.uid).collect();
            let owned = etcd.objects.iter().flat_map(BTreeMap::values).filter_map(|doc| doc.owner.as_ref());
            owned.map(|(_, uid)| uid).all(|uid| owners.contains(uid))
        };
        let is_listed = |reflector: &Reflector| !reflector.needs_list && reflector.is_level();
        self.holds.is_empty()
            && self.stores.iter().all(|store| store.shown().is_some())
            && self.members.iter().all(|member| member.as_ref().is_some_and(has_owners))
            && self.reflectors.as_flattened().iter().all(is_listed)
            && replica_sets.objects.keys().all(|key| child_life(key) == 0)
    }

    /// The process ends, and another one begins with what its stores had of the members, and had shown. Says which go on.
    pub(crate) fn restart(&mut self) -> [bool; 4] {
        let earlier: Vec<Option<Earlier>> = self.stores.iter().map(|store| store.shown()).collect();
        let shared = self.shared_after();
        let former = std::mem::replace(&mut self.stores, stores(&shared));
        self.shared = shared;
        for (store, earlier) in self.stores.iter().zip(earlier) {
            if let Some(earlier) = earlier {
                store.recognize(Earlier::decode(&earlier.encode()).unwrap());
            }
        }
        for at in 0..MEMBERS.len() {
            for kind in KINDS {
                self.fill(at, kind as usize, &former[kind as usize]);
            }
        }
        let goes_on: [bool; 4] = std::array::from_fn(|kind| self.stores[kind].resume());
        self.stores.iter().for_each(|store| store.open());
        for (kind, store) in self.stores.iter().enumerate() {
            let watchers = self.watchers[kind].iter_mut().chain(&mut self.narrow[kind]);
            watchers.for_each(|watcher| watcher.meets(store, goes_on[kind]));
        }
        if goes_on != [true; 4] {
            // Who begins anew knows of no deletion, and hears of it later.
            self.dead.clear();
        }
        self.answers.clear();
        self.all.clear();
        self.holds.clear();
        self.retained.clear();
        let stores = &self.stores;
        self.past.retain(|(kind, was)| goes_on[*kind] && was.revision >= stores[*kind].snapshot().revision);
        goes_on
    }

    fn shared_after(&self) -> Shared {
        let identities = Identities::default();
        identities.restore_lives(self.shared.identities.lives().0.into_iter().collect());
        let high_water = Revision(self.shared.revisions.last().0 + 8000);
        Shared {
            naming: Arc::clone(&self.shared.naming),
            identities: Arc::new(identities),
            revisions: Arc::new(Revisions::new(high_water, 0, unix_micros, Box::new(Ok))),
            log_limits: LogLimits::default(),
        }
    }

    /// Fills a store with what the former one had of a member, if that was level.
    fn fill(&mut self, at: usize, kind: usize, former: &FleetStore) {
        let (member, store) = (member(at), &self.stores[kind]);
        let reflector = &mut self.reflectors[at][kind];
        let is_kept = !reflector.needs_list && reflector.is_level();
        let delivered = reflector.delivered;
        *reflector = Reflector { needs_list: !is_kept, delivered, ..Reflector::default() };
        let Some(etcd) = &self.members[at] else { return };
        store.join(&member, &etcd.cluster_uid);
        if !is_kept {
            return;
        }
        let documents: HashMap<String, MemberDocument> = former.documents(&member);
        let text = |document: &MemberDocument| {
            let mut text = Vec::new();
            document.write(&mut text);
            String::from_utf8(text).unwrap()
        };
        let texts: Vec<String> = documents.values().map(text).collect();
        let items: Vec<&str> = texts.iter().map(String::as_str).collect();
        store.begin_list(&member);
        assert!(store.list_slice(&member, &items).is_empty());
        assert!(store.end_list(&member, former.position(&member)).is_empty());
    }
}

impl Reflector {
    /// Nothing of a list is under way.
    fn is_level(&self) -> bool {
        self.listing.is_none() && self.doomed.is_empty()
    }
}
