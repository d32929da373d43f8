//! Four stores, three members, and everything that can happen between them.

mod restart;

use std::sync::{Arc, OnceLock, Weak};

use crate::{
    config::Names,
    store::{
        Entry, FleetStore, Hold, Identities, Interest, LogLimits, Naming, Revisions, Shared, Snapshot,
        tests::{
            copied::Copied,
            model::{ANNOTATIONS, Doc, Etcd, KINDS, Kind, LABELS, MEMBERS, member},
            proofs::All,
            watcher::Watcher,
        },
    },
};
use kubefold_wire::watch::Event;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Somebody changes an object in a member.
    Mutate(Target, u8),
    /// The same through kubefold: the answer enters before anything else is heard.
    Write(Target, u8),
    /// The member's watch says the next few things.
    Deliver(usize, usize, u8),
    Bookmark(usize, usize),
    /// A read or write is answered; kubefold sees the answer some time later.
    Answer(Target),
    AnswerArrives(u8),
    /// A member is asked what it holds of a kind, and that is compared at once.
    Prove(usize, usize),
    /// The same, but it is compared some time later.
    AskAll(usize, usize),
    AllArrives(u8),
    /// A full list as of some moment: its pages come one by one.
    List(usize, usize, u8),
    ListGoesOn(usize, usize),
    ListFails(usize, usize),
    RemoveSlice(usize, usize),
    Restore(usize, u8),
    Replace(usize),
    Leave(usize),
    Rejoin(usize),
    Hold(usize),
    Release,
    Watch,
    Retain,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) member: usize,
    pub(super) kind: usize,
    pub(super) name: usize,
}

impl Op {
    /// The same about one of a few objects, so that more of it meets. No few objects are all.
    pub(super) fn at(self, few: &[Target]) -> Self {
        let target = |target: Target| {
            let number = target.member + 3 * target.kind + 12 * target.name;
            few.get(number % few.len().max(1)).copied().unwrap_or(target)
        };
        let place = |member: usize, kind: usize| {
            let target = target(Target { member, kind, name: 0 });
            (target.member, target.kind)
        };
        match self {
            Self::Mutate(about, what) => Self::Mutate(target(about), what),
            Self::Write(about, what) => Self::Write(target(about), what),
            Self::Answer(about) => Self::Answer(target(about)),
            Self::Deliver(member, kind, count) => {
                let (member, kind) = place(member, kind);
                Self::Deliver(member, kind, count)
            }
            Self::List(member, kind, when) => {
                let (member, kind) = place(member, kind);
                Self::List(member, kind, when)
            }
            Self::ListGoesOn(member, kind) => {
                let (member, kind) = place(member, kind);
                Self::ListGoesOn(member, kind)
            }
            Self::Prove(member, kind) => {
                let (member, kind) = place(member, kind);
                Self::Prove(member, kind)
            }
            Self::AskAll(member, kind) => {
                let (member, kind) = place(member, kind);
                Self::AskAll(member, kind)
            }
            Self::RemoveSlice(member, kind) => {
                let (member, kind) = place(member, kind);
                Self::RemoveSlice(member, kind)
            }
            other => other,
        }
    }
}

const NAMES: [[(&str, &str); 5]; 4] = [
    [("a", "web"), ("a", "db"), ("a", "x@east"), ("b", "web"), ("b", "x")],
    [("a", "web-1"), ("a", "web-2"), ("a", "r@west"), ("b", "web-1"), ("b", "r")],
    [("", "a"), ("", "b"), ("", "b"), ("", "x@east"), ("", "c")],
    [("a", "w"), ("a", "w@joe"), ("b", "w"), ("b", "v"), ("b", "w@north")],
];
const SLICE: usize = 2;

struct Listing {
    items: Vec<String>,
    revision: u64,
    index: usize,
}

/// What one reflector has heard so far.
#[derive(Default)]
struct Reflector {
    delivered: usize,
    needs_list: bool,
    listing: Option<Listing>,
    doomed: Vec<Arc<Entry>>,
}

struct Answer {
    target: Target,
    incarnation: u32,
    text: String,
}

pub(super) struct World {
    pub(super) members: [Option<Etcd>; 3],
    pub(super) stores: Vec<Arc<FleetStore>>,
    pub(super) shared: Shared,
    reflectors: [[Reflector; 4]; 3],
    answers: Vec<Answer>,
    all: Vec<All>,
    /// UIDs of member-local objects that are gone by their member's word; none comes back, but out of a backup.
    pub(super) dead: std::collections::HashSet<String>,
    pub(super) holds: Vec<Hold>,
    pub(super) watchers: [Vec<Watcher>; 4],
    /// Those of a part of a kind.
    pub(super) narrow: [Vec<Watcher>; 4],
    /// What a standby has of each kind.
    pub(super) copies: Vec<Copied>,
    pub(super) retained: Vec<(usize, Snapshot)>,
    /// States of before, of which the stores know nothing but their logs.
    pub(super) past: Vec<(usize, Snapshot)>,
    made: u64,
}

pub(super) fn naming(names: Names, members: usize) -> Naming {
    let rule = |resource: &str| crate::config::SharedRule {
        group: String::new(),
        resource: resource.into(),
        namespace: None,
        name: None,
    };
    Naming::of(names, vec![rule("namespaces")], (0..members).map(member).collect())
}

pub(super) fn shared(naming: Naming) -> Shared {
    Shared {
        naming: Arc::new(naming),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::default(),
    }
}

/// One store of each kind; each tells all of identities that changed.
pub(super) fn stores(shared: &Shared) -> Vec<Arc<FleetStore>> {
    let all: Arc<OnceLock<Vec<Weak<FleetStore>>>> = Arc::default();
    let make = |kind: Kind| {
        let all = Arc::clone(&all);
        Arc::new(FleetStore::new(Arc::new(kind.spec()), shared.clone(), move |changed| {
            let all = all.get().into_iter().flatten().filter_map(Weak::upgrade);
            all.for_each(|store: Arc<FleetStore>| store.rewrite_dependents(changed));
        }))
    };
    let stores: Vec<_> = KINDS.into_iter().map(make).collect();
    all.set(stores.iter().map(Arc::downgrade).collect()).unwrap();
    stores
}

impl World {
    pub(super) fn new() -> Self {
        let shared = shared(naming(Names::Suffixed, 3));
        let stores = stores(&shared);
        let mut this = Self {
            members: std::array::from_fn(|at| Some(Etcd::new(format!("cluster-{at}")))),
            stores,
            shared,
            reflectors: Default::default(),
            answers: Vec::new(),
            all: Vec::new(),
            dead: std::collections::HashSet::new(),
            holds: Vec::new(),
            watchers: Default::default(),
            narrow: Default::default(),
            copies: Vec::new(),
            retained: Vec::new(),
            past: Vec::new(),
            made: 0,
        };
        for at in 0..MEMBERS.len() {
            this.join(at);
        }
        this.stores.iter().for_each(|store| store.open());
        this.watch();
        let copies = KINDS.into_iter().zip(&this.stores).map(|(kind, store)| Copied::of(kind, store));
        this.copies = copies.collect();
        this
    }

    fn join(&mut self, at: usize) {
        let Some(etcd) = &self.members[at] else { return };
        for kind in 0..4 {
            self.stores[kind].join(&member(at), &etcd.cluster_uid);
            self.reflectors[at][kind] = Reflector { needs_list: true, ..Reflector::default() };
        }
    }

    fn watch(&mut self) {
        for (kind, store) in self.stores.iter().enumerate() {
            self.watchers[kind].push(Watcher::new(store, Interest::Everything));
            let key = store.snapshot().objects.keys().next().map_or_else(|| "a/x".into(), Clone::clone);
            let narrow = [Interest::Namespace("a".into()), Interest::Object(key.as_str().into())];
            let past = self.past.iter().rev().find(|(past, _)| *past == kind).map(|(_, snapshot)| snapshot);
            let from = past.cloned().unwrap_or_else(|| store.snapshot());
            for interest in narrow {
                self.narrow[kind].push(Watcher::from(store, &from, interest.clone()));
                self.narrow[kind].push(Watcher::new(store, interest));
            }
        }
    }

    pub(super) fn step(&mut self, op: Op) {
        match op {
            Op::Mutate(target, what) => drop(self.mutate(target, what)),
            Op::Write(target, what) => self.write(target, what),
            Op::Deliver(at, kind, count) => (0..count).for_each(|_| self.deliver(at, kind)),
            Op::Bookmark(at, kind) => {
                self.bookmark(at, kind);
                self.past.push((kind, self.stores[kind].snapshot()));
            }
            Op::Answer(target) => self.answer(target),
            Op::AnswerArrives(which) => self.answer_arrives(which.into()),
            Op::Prove(at, kind) => self.prove(at, kind),
            Op::AskAll(at, kind) => self.all.extend(self.ask_all(at, kind)),
            Op::AllArrives(which) => {
                if !self.all.is_empty() {
                    let all = self.all.swap_remove(usize::from(which) % self.all.len());
                    self.compare(&all);
                }
            }
            Op::List(at, kind, when) => self.list(at, kind, when.into()),
            Op::ListGoesOn(at, kind) => self.list_goes_on(at, kind),
            Op::ListFails(at, kind) => self.reflectors[at][kind].listing = None,
            Op::RemoveSlice(at, kind) => self.remove_slice(at, kind),
            Op::Restore(at, back) => self.restore(at, Some(back.into())),
            Op::Replace(at) => self.restore(at, None),
            Op::Leave(at) => self.leave(at),
            Op::Rejoin(at) => self.rejoin(at),
            Op::Hold(name) => {
                let (namespace, name) = NAMES[0][name];
                self.holds.push(self.stores[0].hold(&format!("{namespace}/{name}")));
            }
            Op::Release if self.made.is_multiple_of(2) => drop(self.holds.pop()),
            Op::Release => drop(self.holds.pop().map(Hold::release_as_written)),
            Op::Watch => self.watch(),
            Op::Retain => {
                for kind in 0..4 {
                    let snapshot = self.stores[kind].snapshot();
                    self.stores[kind].retain(&snapshot);
                    self.retained.push((kind, snapshot));
                }
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn born(&mut self, target: Target) -> Doc {
        let number = self.number();
        let (namespace, name) = NAMES[target.kind][target.name];
        Doc {
            kind: KINDS[target.kind],
            namespace,
            name,
            uid: format!("00000000-0000-4000-8000-{number:012}"),
            rv: 0,
            created: number / 3,
            generation: 1,
            deleting: false,
            labels: number as usize % LABELS.len(),
            annotations: number as usize % ANNOTATIONS.len(),
            replicas: number % 4,
            owner: None,
            marker: None,
            inherited: None,
        }
    }

    fn mutate(&mut self, target: Target, what: u8) -> Option<Doc> {
        let kind = KINDS[target.kind];
        let key = NAMES[target.kind][target.name];
        let known = self.members[target.member].as_ref()?.objects[target.kind].get(&key).cloned();
        let Some(mut doc) = known else {
            let mut doc = self.born(target);
            self.decorate(&mut doc, target, what);
            return Some(self.members[target.member].as_mut()?.put(doc));
        };
        match what % 12 {
            0 | 1 => {
                self.members[target.member].as_mut()?.delete(kind, key);
                return None;
            }
            2 => {
                self.members[target.member].as_mut()?.delete(kind, key);
                let (marker, owner, inherited) = (doc.marker, doc.owner, doc.inherited);
                doc = self.born(target);
                doc.marker = marker.filter(|_| what > 128);
                if inherited.is_some() && what > 128 {
                    (doc.owner, doc.inherited) = (owner, inherited);
                }
            }
            3 => doc.deleting = true,
            4 => doc.labels = (doc.labels + 1) % LABELS.len(),
            5 => doc.annotations = (doc.annotations + 1) % ANNOTATIONS.len(),
            6 => doc.replicas += 1,
            7 => (doc.marker, doc.inherited) = (None, None),
            8 => {}
            _ => self.decorate(&mut doc, target, what),
        }
        doc.generation += 1;
        Some(self.members[target.member].as_mut()?.put(doc))
    }

    /// Marks a Deployment, or gives another object an owner.
    fn decorate(&self, doc: &mut Doc, target: Target, what: u8) {
        let Some(etcd) = &self.members[target.member] else { return };
        if doc.kind == Kind::Deployments && !what.is_multiple_of(3) {
            let placement = usize::from(what % 2);
            let order = (0..3).map(|at| (at + placement) % 3);
            let cluster =
                |at: usize| self.members[at].as_ref().map_or_else(|| "gone".into(), |etcd| etcd.cluster_uid.clone());
            let members: Vec<_> = order.map(|at| (member(at), cluster(at))).collect();
            let uid = format!("{:08}-0000-4000-8000-{placement:012}", target.name);
            doc.mark(uid, if what > 250 { "copied" } else { doc.name }, member(target.member), members);
        }
        if matches!(doc.kind, Kind::ReplicaSets | Kind::Widgets) {
            let owners: Vec<&Doc> = etcd.objects[0].values().filter(|owner| owner.namespace == doc.namespace).collect();
            if let Some(owner) = owners.get(usize::from(what) % owners.len().max(1)) {
                doc.owner = Some((owner.name, owner.uid.clone()));
                if doc.kind == Kind::ReplicaSets && !what.is_multiple_of(4) {
                    doc.inherited.clone_from(&owner.marker);
                }
            }
        }
    }

    fn write(&mut self, target: Target, what: u8) {
        let incarnation = self.stores[target.kind].incarnation(&member(target.member));
        let Some(doc) = self.mutate(target, what) else { return };
        let text = doc.whole() + "\n";
        let ingested = self.stores[target.kind].ingest_live(&member(target.member), incarnation, &text).unwrap();
        let ingested = ingested.expect("a write's own answer is never of the past");
        assert_eq!(ingested.own_uid, doc.uid);
        let shown = self.stores[target.kind].get(&ingested.key);
        if let Some(entry) = shown.as_ref().filter(|entry| !entry.folded && self.holds.is_empty()) {
            assert!(entry.is_original(&doc.whole(), ""), "a write is in the store when its answer leaves");
        }
        assert!(shown.is_some() || !self.holds.is_empty(), "{ingested:?}");
    }

    fn deliver(&mut self, at: usize, kind: usize) {
        let reflector = &mut self.reflectors[at][kind];
        let Some(etcd) = self.members[at].as_ref().filter(|_| !reflector.needs_list && reflector.listing.is_none())
        else {
            return;
        };
        let Some(happened) = etcd.history[kind].get(reflector.delivered) else { return };
        reflector.delivered += 1;
        let text = happened.doc.whole();
        let event = Event { event_type: happened.event_type, object: &text };
        self.stores[kind].watch_event(&member(at), &event).unwrap();
    }

    fn bookmark(&self, at: usize, kind: usize) {
        let reflector = &self.reflectors[at][kind];
        let Some(etcd) = self.members[at].as_ref().filter(|_| !reflector.needs_list) else { return };
        if reflector.delivered == etcd.history[kind].len() && reflector.listing.is_none() {
            self.stores[kind].bookmark(&member(at), etcd.rv);
        }
    }

    fn answer(&mut self, target: Target) {
        let incarnation = self.stores[target.kind].incarnation(&member(target.member));
        let key = NAMES[target.kind][target.name];
        let Some(doc) = self.members[target.member].as_ref().and_then(|etcd| etcd.objects[target.kind].get(&key))
        else {
            return;
        };
        self.answers.push(Answer { target, incarnation, text: doc.whole() + "\n" });
    }

    fn answer_arrives(&mut self, which: usize) {
        if self.answers.is_empty() {
            return;
        }
        let answer = self.answers.swap_remove(which % self.answers.len());
        let store = &self.stores[answer.target.kind];
        store.ingest_live(&member(answer.target.member), answer.incarnation, &answer.text).unwrap();
    }

    fn list(&mut self, at: usize, kind: usize, when: usize) {
        let reflector = &mut self.reflectors[at][kind];
        let Some(etcd) = self.members[at].as_ref().filter(|_| reflector.listing.is_none()) else { return };
        let len = etcd.history[kind].len();
        // As fresh as can be, or as of a while ago.
        let index = len - (when % 4).min(len);
        let revision = match etcd.history[kind].get(index) {
            None => etcd.rv,
            Some(next) => etcd.history[kind][..index].last().map_or(next.doc.rv - 1, |last| last.doc.rv),
        };
        if revision < self.stores[kind].position(&member(at)) {
            return;
        }
        let items = etcd.state_at(KINDS[kind], index).values().rev().map(Doc::item).collect();
        reflector.listing = Some(Listing { items, revision, index });
        self.stores[kind].begin_list(&member(at));
    }

    fn list_goes_on(&mut self, at: usize, kind: usize) {
        let reflector = &mut self.reflectors[at][kind];
        let Some(listing) = &mut reflector.listing else { return };
        if !listing.items.is_empty() {
            let slice = listing.items.split_off(listing.items.len().saturating_sub(SLICE));
            let items: Vec<&str> = slice.iter().map(String::as_str).collect();
            assert!(self.stores[kind].list_slice(&member(at), &items).is_empty());
            return;
        }
        let doomed = self.stores[kind].end_list(&member(at), listing.revision);
        reflector.doomed.extend(doomed);
        reflector.delivered = listing.index;
        reflector.needs_list = false;
        reflector.listing = None;
    }

    fn remove_slice(&mut self, at: usize, kind: usize) {
        let doomed = &mut self.reflectors[at][kind].doomed;
        let slice = doomed.split_off(doomed.len().saturating_sub(SLICE));
        self.stores[kind].remove_slice(&slice);
    }

    /// The member comes back with an older history, or as another cluster.
    fn restore(&mut self, at: usize, back: Option<u64>) {
        let number = self.number();
        self.dead.clear();
        let Some(etcd) = &mut self.members[at] else { return };
        match back {
            Some(back) => etcd.restore(back % 16),
            None => {
                // Somebody moved the workloads over with all their bytes.
                etcd.cluster_uid = format!("cluster-{at}-{number}");
            }
        }
        for kind in 0..4 {
            if let Some(etcd) = &self.members[at] {
                self.stores[kind].join(&member(at), &etcd.cluster_uid);
            }
            self.stores[kind].reset(&member(at));
            let reflector = &mut self.reflectors[at][kind];
            (reflector.needs_list, reflector.listing) = (true, None);
        }
    }

    fn leave(&mut self, at: usize) {
        if self.members[at].take().is_none() {
            return;
        }
        for kind in 0..4 {
            let reflector = &mut self.reflectors[at][kind];
            reflector.listing = None;
            reflector.doomed.extend(self.stores[kind].leave(&member(at)));
        }
    }

    fn rejoin(&mut self, at: usize) {
        if self.members[at].is_some() {
            return;
        }
        let number = self.number();
        // No other member is that cluster.
        self.members[at] = Some(Etcd::new(format!("again-{number}")));
        if number.is_multiple_of(2) {
            // Some callers wait for the slices and forget; some members are back before.
            self.stores.iter().for_each(|store| store.forget(&member(at)));
        }
        let doomed: [Vec<Arc<Entry>>; 4] =
            std::array::from_fn(|kind| std::mem::take(&mut self.reflectors[at][kind].doomed));
        self.join(at);
        for (kind, doomed) in doomed.into_iter().enumerate() {
            self.reflectors[at][kind].doomed = doomed;
        }
    }

    /// Everything is heard: by a list, or by what the watch has left to say.
    pub(super) fn settle(&mut self) {
        self.holds.clear();
        while !self.answers.is_empty() {
            self.answer_arrives(0);
        }
        while let Some(all) = self.all.pop() {
            self.compare(&all);
        }
        for at in 0..MEMBERS.len() {
            for kind in 0..4 {
                while self.reflectors[at][kind].listing.is_some() {
                    self.list_goes_on(at, kind);
                }
                if self.reflectors[at][kind].needs_list && self.members[at].is_some() {
                    self.list(at, kind, 0);
                    while self.reflectors[at][kind].listing.is_some() {
                        self.list_goes_on(at, kind);
                    }
                }
                while !self.reflectors[at][kind].doomed.is_empty() {
                    self.remove_slice(at, kind);
                }
                (0..1000).for_each(|_| self.deliver(at, kind));
                self.bookmark(at, kind);
            }
            if self.members[at].is_none() {
                self.stores.iter().for_each(|store| store.forget(&member(at)));
            }
        }
    }

    /// Lists everything anew, fresh.
    pub(super) fn relist(&mut self) {
        for (at, kind) in (0..3).flat_map(|at| (0..4).map(move |kind| (at, kind))) {
            self.list(at, kind, 0);
            while self.reflectors[at][kind].listing.is_some() {
                self.list_goes_on(at, kind);
            }
            while !self.reflectors[at][kind].doomed.is_empty() {
                self.remove_slice(at, kind);
            }
        }
    }
}
