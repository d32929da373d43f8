//! The single writer of a kind's store: what members say goes in, one order of events comes out.
//!
//! Pure: no clock, no IO, no lock. Its owner ([`super::FleetStore`]) serializes the calls.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use imbl::OrdMap;

use crate::{
    config::MemberName,
    placement::fold::FoldKind,
    store::{
        dependents::Dependents,
        dress::{Dressing, Epoch},
        entry::{Entry, Key},
        fold::Fold,
        identities::{Identities, Referent},
        incoming::Scratch,
        kind::KindSpec,
        log::{Log, LogLimits},
        naming::{Naming, key},
        nodes::Nodes,
        parts::Parts,
        published::{MemberView, MemberViews, Published},
        recognizing::Recognizing,
        references::ReferredKinds,
        revision::{Revision, Revisions},
        rewrite::Facts,
        snapshot::{Counts, Snapshot, count},
        tally::Tally,
        tracking::Tracking,
        uids::Uids,
    },
};
use kubefold_wire::watch::EventType;

/// Where a member's object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An item of a consistent list.
    List,
    /// An `ADDED` or `MODIFIED` of the watch.
    Watch,
    /// The answer to a request that kubefold forwarded.
    Live,
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingested {
    /// The key under which it is visible.
    pub key: String,
    /// Its UID in its member.
    pub own_uid: String,
}

/// What the store knows of one member.
#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) name: MemberName,
    pub(super) cluster_uid: Arc<str>,
    /// Which life of the member the positions and revisions below belong to.
    pub(super) incarnation: u32,
    /// The highest member revision of the reflector's own events, bookmarks and full lists; never of a live answer.
    pub(super) position: u64,
    /// Events of its watch that were taken in, whatever they changed.
    pub(super) events: u64,
    /// Says whether the store has held the member's objects completely since it started.
    pub(super) filled: bool,
    /// Number of the current full list; what it has seen has it.
    pub(super) seen: u32,
    /// The revision of the last full list of this life.
    pub(super) listed_at: u64,
    /// It was removed, or serves the kind no more: answers that are still under way are not taken in.
    pub(super) left: bool,
    /// Own keys under which there was nothing at a revision, by a live answer: what is told of them up to there is of the
    /// past. Each is forgotten when the position has passed it.
    pub(super) gone: HashMap<String, u64>,
    /// Keys of its member-local objects. Parts that are shown as member-local objects are the folds' to count.
    pub(super) member_locals: BTreeSet<Key>,
    /// Keys of the folds that have a part of it.
    pub(super) parts: BTreeSet<Key>,
    /// What changed of its objects, while somebody asks for that.
    pub(super) tracking: Option<Tracking>,
}

impl MemberState {
    /// What is not above the position nobody tells any more.
    pub(super) fn forget_gone(&mut self) {
        let position = self.position;
        self.gone.retain(|_, gone_at| *gone_at > position);
    }

    /// Says whether a member-local object is one that the last full list should have seen, and did not.
    pub(super) fn has_lost(&self, entry: &Entry) -> bool {
        let from = &entry.provenance;
        from.incarnation() != self.incarnation || (from.seen() != self.seen && from.member_rv() <= self.listed_at)
    }
}

/// What is shared by the stores of all kinds.
#[derive(Clone, Debug)]
pub struct Shared {
    /// How objects are named.
    pub naming: Arc<Naming>,
    /// Who the parts of placed objects are.
    pub identities: Arc<Identities>,
    /// The counter.
    pub revisions: Arc<Revisions>,
    /// Bounds of the logs.
    pub log_limits: LogLimits,
}

pub(super) struct Sequencer {
    pub(super) spec: Arc<KindSpec>,
    pub(super) shared: Shared,
    /// It is read by nobody, and knows who the parts are and nothing else.
    pub(super) parts_only: bool,
    pub(super) objects: OrdMap<Key, Arc<Entry>>,
    pub(super) counts: Counts,
    nodes: Nodes,
    pub(super) tally: Tally,
    pub(super) log: Arc<Log>,
    pub(super) head: Revision,
    pub(super) members: Vec<MemberState>,
    /// Where each member is among them.
    places: HashMap<MemberName, usize>,
    /// What readers see of the members, and whether that is to be made anew.
    views: Arc<MemberViews>,
    members_changed: bool,
    /// Rises with every change of the members themselves.
    pub(super) members_epoch: u64,
    pub(super) folds: HashMap<Key, Fold>,
    /// Their keys in order, and of those that are placed objects.
    pub(super) keys_of_folds: BTreeSet<Key>,
    pub(super) placed: BTreeSet<Key>,
    /// The members in which an object is behind, with the object's UID, by key: what an unfinished write says.
    pub(super) behind: HashMap<String, (String, Vec<MemberName>)>,
    /// Keys of folds whose parts came in before the store opened, and which are not shown yet.
    pub(super) unshown: BTreeSet<String>,
    /// A list is coming in, and nobody sees the store yet.
    pub(super) is_filling: bool,
    /// Who refers to whom.
    pub(super) dependents: Dependents,
    /// Who has which UID of its own. Absent until somebody asks for that.
    pub(super) uids: Option<Uids>,
    /// Identities that changed and that other stores must hear of.
    pub(super) changed: Vec<Referent>,
    /// Rises with what the forms of documents depend on: the naming, and which clusters the members are.
    pub(super) epoch: u64,
    /// The kinds that documents refer to.
    pub(super) kinds: Arc<ReferredKinds>,
    pub(super) opened: bool,
    /// While it fills: what an earlier process showed.
    pub(super) recognizing: Option<Recognizing>,
    /// Somebody who waits may want to look: an event, a part that came or went, a member that is filled.
    pub(super) news: bool,
    /// Lives of members so far: none is ever given twice, so that no late answer is taken for one of a later life.
    pub(super) lives: u32,
    pub(super) scratch: Scratch,
}

impl Sequencer {
    pub(super) fn new(spec: Arc<KindSpec>, shared: Shared) -> Self {
        Self {
            spec,
            log: Arc::new(Log::new(shared.log_limits.clone())),
            shared,
            parts_only: false,
            objects: OrdMap::new(),
            counts: Counts::new(),
            nodes: Nodes::default(),
            tally: Tally::default(),
            head: Revision(0),
            members: Vec::new(),
            places: HashMap::new(),
            views: Arc::default(),
            members_changed: false,
            members_epoch: 0,
            folds: HashMap::new(),
            keys_of_folds: BTreeSet::new(),
            placed: BTreeSet::new(),
            behind: HashMap::new(),
            unshown: BTreeSet::new(),
            is_filling: false,
            dependents: Dependents::default(),
            uids: None,
            changed: Vec::new(),
            epoch: 0,
            kinds: Arc::default(),
            opened: false,
            recognizing: None,
            news: false,
            lives: 0,
            scratch: Scratch::default(),
        }
    }

    /// Begins to log: from here on watches may begin. A first fill is not logged, as nobody can have seen less.
    pub(super) fn open(&mut self) {
        if !self.opened {
            while self.show_unshown(usize::MAX) {}
            self.recognizing = None;
            let now = self.shared.revisions.next();
            self.open_at(now);
        }
    }

    /// The same as of a revision.
    pub(super) fn open_at(&mut self, revision: Revision) {
        self.opened = true;
        self.head = revision;
        self.log.open_at(revision);
    }

    /// The objects now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let (objects, counts, nodes) = (self.objects.clone(), self.counts.clone(), self.nodes.clone());
        Snapshot { objects, counts, nodes, revision: self.head, offset: self.log.offset() }
    }

    /// Notes that something changed about the members themselves.
    pub(super) fn note_members(&mut self) {
        self.members_changed = true;
        self.members_epoch += 1;
    }

    /// A member's place among the members.
    pub(super) fn index_of(&self, name: &MemberName) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Puts the members in configuration order; one that is leaving comes last.
    pub(super) fn order_members(&mut self) {
        let naming = Arc::clone(&self.shared.naming);
        let places: HashMap<&MemberName, usize> =
            naming.members().iter().enumerate().map(|(at, name)| (name, at)).collect();
        self.members.sort_by_key(|member| places.get(&member.name).copied().unwrap_or(usize::MAX));
        self.places = self.members.iter().enumerate().map(|(at, member)| (member.name.clone(), at)).collect();
        self.note_members();
    }

    /// What a member's documents are dressed with now.
    pub(super) fn dressing(&self, at: usize) -> Option<Dressing> {
        let member = self.members.get(at)?;
        let Shared { naming, identities, revisions, .. } = &self.shared;
        Some(Dressing {
            spec: Arc::clone(&self.spec),
            naming: Arc::clone(naming),
            identities: Arc::clone(identities),
            revisions: Arc::clone(revisions),
            kinds: Arc::clone(&self.kinds),
            member: member.name.clone(),
            holders: Arc::from([member.name.clone()]),
            cluster_uid: Arc::clone(&member.cluster_uid),
            parts_only: self.parts_only,
            epoch: Epoch { store: self.epoch, identities: identities.epoch() },
            revision: revisions.last(),
        })
    }

    /// What readers are to see from now on.
    pub(super) fn publish(&mut self) -> Published {
        if std::mem::take(&mut self.members_changed) {
            self.views = self.member_views();
        }
        Published { snapshot: self.snapshot(), members: Arc::clone(&self.views), opened: self.opened }
    }

    /// What is published of the members.
    fn member_views(&self) -> Arc<MemberViews> {
        let view = |(at, member): (usize, &MemberState)| {
            let dressing = Arc::new(self.dressing(at)?);
            Some((member.name.clone(), MemberView { incarnation: member.incarnation, filled: member.filled, dressing }))
        };
        Arc::new(self.members.iter().enumerate().filter_map(view).collect())
    }

    pub(super) fn member(&self, name: &MemberName) -> Option<&MemberState> {
        self.members.get(self.index_of(name)?)
    }

    pub(super) fn member_mut(&mut self, name: &MemberName) -> Option<&mut MemberState> {
        let at = self.index_of(name)?;
        self.members.get_mut(at)
    }

    /// Takes a member's word that an object is gone.
    pub(super) fn deleted(&mut self, member: &MemberName, facts: &Facts<'_>) {
        let own_key = key(&facts.namespace, &facts.name);
        self.take_out(member, facts, &own_key);
        self.note_change(member, &own_key);
    }

    fn take_out(&mut self, member: &MemberName, facts: &Facts<'_>, own_key: &str) {
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(facts.member_rv);
            state.events += 1;
        }
        if self.folds.get(own_key).and_then(|fold| fold.part(member)).is_some_and(|part| part.uid == facts.uid) {
            self.remove_part(own_key, member);
            return;
        }
        let member_local_key = self.member_local_key(own_key, member);
        if self.is_member_local_of(&member_local_key, member)
            && self.objects.get(member_local_key.as_str()).is_some_and(|entry| entry.uid() == facts.uid)
        {
            self.remove_visible(&member_local_key);
        }
    }

    /// Notes the revision of a bookmark.
    pub(super) fn bookmark(&mut self, member: &MemberName, revision: u64) {
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(revision);
            state.forget_gone();
        }
    }

    /// Makes a member-local object visible, as its member's own.
    pub(super) fn put_own(&mut self, entry: Entry) {
        let holder = entry.holders.first().cloned();
        let entry = self.put(entry);
        if let Some(state) = holder.and_then(|name| self.member_mut(&name)) {
            state.member_locals.insert(entry.shared_key().clone());
        }
    }

    /// The same for a state of the object that is the member's own already.
    pub(super) fn put(&mut self, mut entry: Entry) -> Arc<Entry> {
        let previous = self.objects.get(entry.shared_key()).cloned();
        if let Some(previous) = &previous {
            entry.share_key(previous.shared_key());
        }
        let is_news = self.is_news(previous.as_deref(), Some(&mut entry));
        let entry = Arc::new(entry);
        self.dependents.change(previous.as_deref(), Some(&entry));
        self.follow_uids(previous.as_ref(), Some(&entry));
        self.objects.insert(entry.shared_key().clone(), Arc::clone(&entry));
        if previous.is_none() {
            count(&mut self.counts, entry.namespace(), 1);
        }
        self.nodes.replace(previous.as_deref(), Some(&entry));
        self.tally.replace(previous.as_deref(), Some(&entry));
        let event_type = if previous.is_some() { EventType::Modified } else { EventType::Added };
        self.emit(is_news, entry.revision, event_type, Arc::clone(&entry), previous);
        entry
    }

    /// Takes the parts of a visible object that make the same as before: an event for those alone who see some of them.
    pub(super) fn put_parts(&mut self, held: &Arc<Entry>, parts: Parts) {
        let revision = parts.revision;
        let mut entry = held.with_parts(parts);
        let is_news = self.is_news(Some(held), Some(&mut entry));
        let entry = Arc::new(entry);
        self.follow_uids(Some(held), Some(&entry));
        self.objects.insert(entry.shared_key().clone(), Arc::clone(&entry));
        self.tally.replace(Some(held), Some(&entry));
        self.emit(is_news, revision, EventType::Modified, entry, Some(Arc::clone(held)));
    }

    /// Makes a visible object vanish and logs its deletion.
    pub(super) fn remove_visible(&mut self, key: &str) {
        let revision = self.shared.revisions.next();
        self.remove_visible_at(key, revision);
    }

    /// The same as of a revision that was taken before.
    pub(super) fn remove_visible_at(&mut self, key: &str, revision: Revision) {
        let Some(entry) = self.objects.remove(key) else { return };
        let is_news = self.is_news(Some(&entry), None);
        if !entry.folded
            && let Some(state) = entry.holders.first().cloned().and_then(|name| self.member_mut(&name))
        {
            state.member_locals.remove(key);
        }
        self.dependents.change(Some(&entry), None);
        self.follow_uids(Some(&entry), None);
        count(&mut self.counts, entry.namespace(), -1);
        self.nodes.replace(Some(&entry), None);
        self.tally.replace(Some(&entry), None);
        self.emit(is_news, revision, EventType::Deleted, entry, None);
    }

    fn follow_uids(&mut self, before: Option<&Arc<Entry>>, after: Option<&Arc<Entry>>) {
        if let Some(uids) = &mut self.uids {
            uids.change(before, after);
        }
    }

    pub(super) fn member_local_key(&self, own_key: &str, member: &MemberName) -> String {
        self.shared.naming.pieces(self.spec.is_event, own_key, member).concat()
    }

    pub(super) fn is_member_local_of(&self, member_local_key: &str, member: &MemberName) -> bool {
        self.objects.get(member_local_key).is_some_and(|entry| !entry.folded && entry.holders.first() == Some(member))
    }

    /// Says whether a change is to be logged: watchers are told of it. While it is found out what an earlier process showed, `after`
    /// may get the revision that it had then.
    fn is_news(&mut self, before: Option<&Entry>, after: Option<&mut Entry>) -> bool {
        self.opened || self.recognizing.as_mut().is_some_and(|recognizing| recognizing.replaces(before, after))
    }

    fn emit(
        &mut self,
        is_news: bool,
        revision: Revision,
        event_type: EventType,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
    ) {
        self.head = revision;
        self.news = true;
        if is_news {
            self.log.push(revision, event_type, entry, previous);
        }
    }

    /// What a fold of this kind sums.
    pub(super) fn fold_kind(&self) -> FoldKind {
        FoldKind::known(self.shared.naming.kinds(), &self.spec.gvr, &self.spec.gvk)
    }
}
