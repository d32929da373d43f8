//! Another process that begins with what an earlier one had.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{Op, Reflector, World, stores};
use crate::store::{
    Earlier, Identities, Interest, Later, LogLimits, MemberDocument, Revision, Revisions, Shared,
    tests::{
        model::{Etcd, KINDS, Kind, MEMBERS, member},
        watcher::Watcher,
    },
    unix_micros,
};

/// What is known of one member and kind outside of a process.
struct Mirrored {
    cluster_uid: String,
    documents: Vec<String>,
    position: u64,
    delivered: usize,
}

/// What is known outside of a process that is killed.
pub(crate) struct Known {
    mirror: [[Option<Mirrored>; 4]; 3],
    /// What it showed, told whole once and then in changes.
    told: [Earlier; 4],
}

impl Op {
    /// Whether it may happen in the moments before and after a kill: no member is restored, becomes another cluster, leaves or comes.
    pub(crate) fn is_of_a_moment(self) -> bool {
        !matches!(self, Self::Restore(..) | Self::Replace(_) | Self::Leave(_) | Self::Rejoin(_))
    }

    /// Whether a store may see it that nobody reads yet, and whose members are followed.
    pub(crate) fn is_of_a_beginning(self) -> bool {
        matches!(
            self,
            Self::Mutate(..) | Self::Write(..) | Self::Deliver(..) | Self::Answer(_) | Self::AnswerArrives(_)
        )
    }
}

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
        let no_deletion = || self.known().told.iter().all(|told| told.events.iter().all(|event| event.gone == 0));
        self.holds.is_empty()
            && ((0..4).all(|kind| self.is_level(kind)) || no_deletion())
            && self.members.iter().all(|member| member.as_ref().is_some_and(has_owners))
            && self.reflectors.as_flattened().iter().all(is_listed)
            && replica_sets.objects.keys().all(|key| child_life(key) == 0)
    }

    /// The process ends, and another one begins with what its stores had of the members, and had shown. Says which go on.
    pub(crate) fn restart(&mut self) -> [bool; 4] {
        let Known { mirror, told } = self.known();
        self.begin_with(mirror, told);
        let goes_on: [bool; 4] = std::array::from_fn(|kind| self.stores[kind].resume(self.is_level(kind)));
        self.stores.iter().for_each(|store| store.open());
        self.meet(goes_on);
        let stores = &self.stores;
        self.past.retain(|(kind, was)| goes_on[*kind] && was.revision >= stores[*kind].snapshot().revision);
        goes_on
    }

    /// What the mirror and a standby know now.
    pub(crate) fn known(&self) -> Known {
        let last = self.shared.revisions.last();
        let told = std::array::from_fn(|kind| self.stores[kind].shown(last).unwrap());
        Known { mirror: std::array::from_fn(|at| std::array::from_fn(|kind| self.mirrored(at, kind))), told }
    }

    /// Tells a standby what has happened; the mirror is behind.
    pub(crate) fn tell(&self, known: &mut Known) {
        let last = self.shared.revisions.last();
        for (store, told) in self.stores.iter().zip(&mut known.told) {
            let later = store.shown_after(told.head(), last).unwrap();
            told.change(&Later::decode(&later.encode()).unwrap());
            told.reach(last);
            let whole = store.shown(last).unwrap();
            assert_eq!(*told, Earlier { since: told.since, ..whole });
        }
    }

    /// A standby has events in its watch caches that it was not told of.
    pub(crate) fn complete(&self, known: &mut Known) {
        for ((copy, told), store) in self.copies.iter().zip(&mut known.told).zip(&self.stores) {
            copy.complete(told, store);
        }
    }

    /// The process is killed, and another one begins with what is known outside. Meanwhile things go on. Says which stores go on.
    pub(crate) fn killed(&mut self, known: Known, meanwhile: Vec<Op>) -> [bool; 4] {
        let reached = known.told.each_ref().map(Earlier::last);
        let heads = known.told.each_ref().map(Earlier::head);
        self.begin_with(known.mirror, known.told);
        let mut goes_on = [false; 4];
        let look = |goes_on: &mut [bool; 4], world: &Self| {
            for (kind, goes_on) in goes_on.iter_mut().enumerate() {
                *goes_on = *goes_on || world.stores[kind].resume(world.is_level(kind));
            }
        };
        look(&mut goes_on, self);
        for op in meanwhile {
            self.step(op);
            look(&mut goes_on, self);
        }
        for (at, kind) in (0..MEMBERS.len()).flat_map(|at| (0..4).map(move |kind| (at, kind))) {
            for _ in 0..1000 {
                self.deliver(at, kind);
                look(&mut goes_on, self);
            }
        }
        self.stores.iter().for_each(|store| store.open());
        for (kind, store) in self.stores.iter().enumerate() {
            // Of what came after it was told, nobody knows.
            let is_known = |revision: Revision| heads[kind] <= revision && revision <= reached[kind];
            for watcher in self.watchers[kind].iter().chain(&self.narrow[kind]) {
                let began = store.cursor(watcher.cursor.revision, watcher.interest());
                assert_eq!(began.is_ok(), goes_on[kind] && is_known(watcher.cursor.revision));
            }
            // One that knows of no later revision goes on if it has been told all that concerned it, and is told the rest.
            for (_, was) in self.past.iter().filter(|(of, was)| *of == kind && was.revision < heads[kind]) {
                let goes_on_there = |interest: &&Interest| store.cursor(was.revision, interest).is_ok();
                for interest in self.narrow[kind].iter().map(Watcher::interest).filter(goes_on_there) {
                    assert!(goes_on[kind]);
                    let mut watcher = Watcher::from(store, was, interest.clone());
                    watcher.read(store);
                    assert_eq!(watcher.objects, watcher.truth(&store.snapshot()));
                }
            }
        }
        let all_known: [bool; 4] = std::array::from_fn(|kind| {
            let revision = self.watchers[kind][0].cursor.revision;
            goes_on[kind] && heads[kind] <= revision && revision <= reached[kind]
        });
        self.meet(all_known);
        self.past
            .retain(|(kind, was)| goes_on[*kind] && heads[*kind] <= was.revision && was.revision <= reached[*kind]);
        goes_on
    }

    /// The members have told all that they have.
    fn is_level(&self, kind: usize) -> bool {
        let is_told = |(reflectors, etcd): (&[Reflector; 4], &Option<Etcd>)| {
            etcd.as_ref().is_none_or(|etcd| reflectors[kind].delivered == etcd.history[kind].len())
        };
        self.reflectors.iter().zip(&self.members).all(is_told)
    }

    /// Another process has nothing but what is known outside.
    fn begin_with(&mut self, mirror: [[Option<Mirrored>; 4]; 3], told: [Earlier; 4]) {
        self.shared = self.shared_after();
        self.stores = stores(&self.shared);
        for (store, earlier) in self.stores.iter().zip(told) {
            store.recognize(Earlier::decode(&earlier.encode()).unwrap());
        }
        for (at, of_member) in mirror.into_iter().enumerate() {
            for (kind, mirrored) in of_member.into_iter().enumerate() {
                self.fill(at, kind, mirrored);
            }
        }
        self.stores.iter().for_each(|store| store.filled_from_mirror());
        self.answers.clear();
        self.all.clear();
        self.holds.clear();
        self.retained.clear();
    }

    /// Clients meet the new stores, some of which go on.
    fn meet(&mut self, goes_on: [bool; 4]) {
        for (kind, store) in self.stores.iter().enumerate() {
            let watchers = self.watchers[kind].iter_mut().chain(&mut self.narrow[kind]);
            watchers.for_each(|watcher| watcher.meets(store, goes_on[kind]));
            self.copies[kind].meets(KINDS[kind], store, goes_on[kind]);
        }
        if goes_on != [true; 4] {
            // Who begins anew knows of no deletion, and hears of it later.
            self.dead.clear();
        }
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

    /// What the mirror has of a member, if its store was level.
    fn mirrored(&self, at: usize, kind: usize) -> Option<Mirrored> {
        let (reflector, store) = (&self.reflectors[at][kind], &self.stores[kind]);
        let etcd = self.members[at].as_ref().filter(|_| !reflector.needs_list && reflector.is_level())?;
        let documents: HashMap<String, MemberDocument> = store.documents(&member(at));
        let text = |document: &MemberDocument| {
            let mut text = Vec::new();
            document.write(&mut text);
            String::from_utf8(text).unwrap()
        };
        Some(Mirrored {
            cluster_uid: etcd.cluster_uid.clone(),
            documents: documents.values().map(text).collect(),
            position: store.position(&member(at)),
            delivered: reflector.delivered,
        })
    }

    /// Fills a store with what the mirror has of a member.
    fn fill(&mut self, at: usize, kind: usize, mirrored: Option<Mirrored>) {
        let (member, store) = (member(at), &self.stores[kind]);
        let reflector = &mut self.reflectors[at][kind];
        let delivered = mirrored.as_ref().map_or(reflector.delivered, |mirrored| mirrored.delivered);
        *reflector = Reflector { needs_list: mirrored.is_none(), delivered, ..Reflector::default() };
        let Some(etcd) = &self.members[at] else { return };
        store.join(&member, &etcd.cluster_uid);
        let Some(Mirrored { cluster_uid, documents, position, .. }) = mirrored else { return };
        assert_eq!(cluster_uid, etcd.cluster_uid);
        let items: Vec<&str> = documents.iter().map(String::as_str).collect();
        store.begin_list(&member);
        assert!(store.list_slice(&member, &items).is_empty());
        assert!(store.end_list(&member, position).is_empty());
    }
}

impl Reflector {
    /// Nothing of a list is under way.
    fn is_level(&self) -> bool {
        self.listing.is_none() && self.doomed.is_empty()
    }
}
