//! The single writer of a kind's store: what members say goes in, one order of events comes out.
//!
//! Pure: no clock, no IO, no lock. Its owner ([`super::FleetStore`]) serializes the calls.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use imbl::OrdSet;

use crate::{
    config::MemberName,
    placement::fold::FoldKind,
    store::{
        dependents::Referred,
        entry::{Edits, Entry, Slot},
        fold::{Fold, Part},
        identities::{Identities, Referent},
        kind::KindSpec,
        log::{Log, LogLimits},
        naming::{Naming, key},
        revision::{Revision, Revisions},
        rewrite::{BadObject, Facts},
        snapshot::{Counts, Snapshot, count},
        tally::Tally,
    },
};
use kubefold_wire::{locate::Found, watch::EventType};

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
    pub(super) cluster_uid: String,
    /// Which life of the member the positions and revisions below belong to.
    pub(super) incarnation: u32,
    /// The highest member revision of the reflector's own events, bookmarks and full lists; never of a live answer.
    pub(super) position: u64,
    /// Says whether the store has held the member's objects completely since it started.
    pub(super) filled: bool,
    /// Number of the current full list; what it has seen has it.
    pub(super) seen: u32,
    /// The revision of the last full list of this life.
    listed_at: u64,
    /// It was removed, or serves the kind no more: answers that are still under way are not taken in.
    pub(super) left: bool,
    /// Own keys under which there was nothing at a revision, by a live answer: what is told of them up to there is of the
    /// past. Each is forgotten when the position has passed it.
    pub(super) gone: HashMap<String, u64>,
    /// Its member-local objects. Parts that are shown as member-local objects are the folds' to count.
    pub(super) member_locals: HashSet<Slot>,
    /// What its documents refer to.
    pub(super) refs: Referred,
}

impl MemberState {
    /// What is not above the position nobody tells any more.
    pub(super) fn forget_gone(&mut self) {
        let position = self.position;
        self.gone.retain(|_, gone_at| *gone_at > position);
    }

    /// Says whether a member-local object is one that the last full list should have seen, and did not.
    fn has_lost(&self, entry: &Entry) -> bool {
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
    pub(super) objects: OrdSet<Slot>,
    pub(super) counts: Counts,
    pub(super) tally: Tally,
    pub(super) log: Log,
    pub(super) head: Revision,
    pub(super) members: Vec<MemberState>,
    pub(super) folds: HashMap<String, Fold>,
    /// The members in which an object is behind, with the object's UID, by key: what an unfinished write says.
    pub(super) behind: HashMap<String, (String, Vec<MemberName>)>,
    /// Identities that changed and that other stores must hear of.
    pub(super) changed: Vec<Referent>,
    pub(super) opened: bool,
    /// Somebody who waits may want to look: an event, a part that came or went, a member that is filled.
    pub(super) news: bool,
    /// Lives of members so far: none is ever given twice, so that no late answer is taken for one of a later life.
    lives: u32,
    pub(super) scratch: Scratch,
}

/// Memory that is used again for every document.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) edits: Edits,
    pub(super) found: Vec<Found>,
    pub(super) referent: Vec<u8>,
    pub(super) own_key: String,
    pub(super) member_local_key: String,
}

impl Sequencer {
    pub(super) fn new(spec: Arc<KindSpec>, shared: Shared) -> Self {
        Self {
            spec,
            log: Log::new(shared.log_limits.clone()),
            shared,
            parts_only: false,
            objects: OrdSet::new(),
            counts: Counts::new(),
            tally: Tally::default(),
            head: Revision(0),
            members: Vec::new(),
            folds: HashMap::new(),
            behind: HashMap::new(),
            changed: Vec::new(),
            opened: false,
            news: false,
            lives: 0,
            scratch: Scratch::default(),
        }
    }

    /// Begins to log: from here on watches may begin. A first fill is not logged, as nobody can have seen less.
    pub(super) fn open(&mut self) {
        if !self.opened {
            self.opened = true;
            self.head = self.shared.revisions.next();
            self.log.open_at(self.head);
        }
    }

    /// The objects now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let (objects, counts) = (self.objects.clone(), self.counts.clone());
        Snapshot { objects, counts, revision: self.head, offset: self.log.offset() }
    }

    pub(super) fn member(&self, name: &MemberName) -> Option<&MemberState> {
        self.members.iter().find(|member| member.name == *name)
    }

    pub(super) fn member_mut(&mut self, name: &MemberName) -> Option<&mut MemberState> {
        self.members.iter_mut().find(|member| member.name == *name)
    }

    /// Makes room for a member; its place among the others is that of the configuration.
    pub(super) fn join(&mut self, name: &MemberName, cluster_uid: &str) {
        if let Some(known) = self.member_mut(name) {
            cluster_uid.clone_into(&mut known.cluster_uid);
            known.left = false;
            return;
        }
        self.lives += 1;
        let state = MemberState {
            name: name.clone(),
            cluster_uid: cluster_uid.to_owned(),
            incarnation: self.lives,
            position: 0,
            filled: false,
            seen: 0,
            listed_at: 0,
            left: false,
            gone: HashMap::new(),
            member_locals: HashSet::new(),
            refs: Referred::default(),
        };
        self.members.push(state);
        let order = Arc::clone(&self.shared.naming);
        let place = |name: &MemberName| order.members().iter().position(|known| known == name).unwrap_or(usize::MAX);
        self.members.sort_by_key(|member| place(&member.name));
    }

    /// Takes new names: members were added, removed or put in another order. What they change is shown.
    pub(super) fn rename(&mut self, naming: &Arc<Naming>) {
        let former = std::mem::replace(&mut self.shared.naming, Arc::clone(naming));
        if former.mask() != naming.mask() {
            let (group, resource) = (&self.spec.gvr.group, &self.spec.gvr.resource);
            self.folds.values_mut().for_each(|fold| fold.print(group, resource, naming.mask()));
        }
        let place = |name: &MemberName| naming.members().iter().position(|known| known == name).unwrap_or(usize::MAX);
        self.members.sort_by_key(|member| place(&member.name));
        let keys: Vec<String> = self.folds.keys().cloned().collect();
        for key in keys {
            if let Some(fold) = self.folds.get_mut(&key) {
                fold.sort(naming.members());
            }
            self.refold(&key);
        }
    }

    /// Begins another life of a member: its revisions compare with no earlier ones, and the next full list decides.
    pub(super) fn reset(&mut self, name: &MemberName) {
        self.lives += 1;
        let life = self.lives;
        if let Some(member) = self.member_mut(name) {
            member.incarnation = life;
            member.position = 0;
            member.listed_at = 0;
            // A restored member may hold again what it had deleted.
            member.gone.clear();
        }
    }

    /// Begins a full list of a member. What it does not see is gone when it ends.
    pub(super) fn begin_list(&mut self, name: &MemberName) {
        if let Some(member) = self.member_mut(name) {
            member.seen += 1;
            member.left = false;
        }
    }

    /// Takes a member's word that an object is gone.
    ///
    /// Errors: a document that is no object; nothing is changed then.
    pub(super) fn deleted(&mut self, member: &MemberName, document: &str) -> Result<(), BadObject> {
        let mut found = std::mem::take(&mut self.scratch.found);
        let spec = Arc::clone(&self.spec);
        let facts = Facts::read(&spec, document, &mut found);
        self.scratch.found = found;
        let facts = facts?;
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(facts.member_rv);
        }
        let own_key = key(&facts.namespace, &facts.name);
        if self.folds.get(&own_key).and_then(|fold| fold.part(member)).is_some_and(|part| part.uid == facts.uid) {
            self.remove_part(&own_key, member);
            return Ok(());
        }
        let member_local_key = self.member_local_key(&own_key, member);
        if self.is_member_local_of(&member_local_key, member)
            && self.objects.get(member_local_key.as_bytes()).is_some_and(|slot| slot.0.uid() == facts.uid)
        {
            self.remove_visible(member_local_key.as_bytes());
        }
        Ok(())
    }

    /// Notes the revision of a bookmark.
    pub(super) fn bookmark(&mut self, member: &MemberName, revision: u64) {
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(revision);
            state.forget_gone();
        }
    }

    /// Ends a full list that was read at `revision`: gives the member-local objects that it did not see, to be removed in slices.
    pub(super) fn end_list(&mut self, member: &MemberName, revision: u64) -> Vec<Slot> {
        self.news = true;
        let Some(state) = self.member_mut(member) else { return Vec::new() };
        state.position = state.position.max(revision);
        state.filled = true;
        state.listed_at = revision;
        state.forget_gone();
        let (seen, incarnation) = (state.seen, state.incarnation);
        let doomed: Vec<Slot> =
            state.member_locals.iter().filter(|Slot(entry)| state.has_lost(entry)).cloned().collect();
        let is_gone = |part: &Part| {
            part.member == *member
                && part.seen != seen
                && (part.incarnation != incarnation || part.member_rv <= revision)
        };
        let folds: Vec<String> =
            self.folds.iter().filter(|(_, fold)| fold.any_part(is_gone)).map(|(key, _)| key.clone()).collect();
        for key in folds {
            self.remove_part(&key, member);
        }
        // Only now is it known that a part is not where its marker says.
        self.expect_parts_of(member);
        doomed
    }

    /// Removes member-local objects that are still the ones that were doomed: since then one may have been rewritten (it goes), or
    /// seen by another list, or succeeded by a later object (they stay).
    pub(super) fn remove_doomed(&mut self, doomed: &[Slot]) {
        for Slot(entry) in doomed {
            let Some(Slot(held)) = self.objects.get(entry.key()) else { continue };
            let is_it = !held.folded && held.uid() == entry.uid();
            let state = held.holders.first().and_then(|name| self.member(name));
            if is_it && state.is_none_or(|state| state.has_lost(held)) {
                self.remove_visible(entry.key());
            }
        }
    }

    /// Everything member-local of a member, and its parts gone: the operator removed it, or it serves the kind no more.
    pub(super) fn leave(&mut self, member: &MemberName) -> Vec<Slot> {
        // From the first: nothing is expected of it any more.
        if let Some(state) = self.member_mut(member) {
            state.left = true;
        }
        let keys: Vec<String> =
            self.folds.iter().filter(|(_, fold)| fold.part(member).is_some()).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove_part(&key, member);
        }
        self.expect_parts_of(member);
        self.reset(member);
        let Some(state) = self.member_mut(member) else { return Vec::new() };
        state.filled = false;
        state.left = true;
        // In the order of the store: a set that hashes has none that is the same twice.
        let mut member_locals: Vec<Slot> = state.member_locals.iter().cloned().collect();
        member_locals.sort_unstable();
        member_locals
    }

    /// Shows anew what lacks a part in a member: whether that is told depends on what is known of the member.
    fn expect_parts_of(&mut self, member: &MemberName) {
        let lacks = |fold: &Fold| !fold.shows(member) && fold.any_part(|part| part.lists(member));
        let lacking: Vec<String> =
            self.folds.iter().filter(|(_, fold)| lacks(fold)).map(|(key, _)| key.clone()).collect();
        for key in lacking {
            self.refold(&key);
        }
    }

    /// Forgets a member that left, and whatever of it is still here.
    pub(super) fn forget(&mut self, member: &MemberName) {
        let rest = self.leave(member);
        self.remove_doomed(&rest);
        self.members.retain(|known| known.name != *member);
    }

    /// Makes a member-local object visible, as its member's own.
    pub(super) fn put_own(&mut self, entry: Entry) {
        let slot = Slot(Arc::new(entry));
        if let Some(state) = slot.0.holders.first().cloned().and_then(|name| self.member_mut(&name)) {
            state.member_locals.replace(slot.clone());
        }
        self.put_slot(slot);
    }

    /// Makes a fold, or a part that is shown as a member-local object, visible.
    pub(super) fn put(&mut self, entry: Entry) {
        self.put_slot(Slot(Arc::new(entry)));
    }

    fn put_slot(&mut self, slot: Slot) {
        let entry = Arc::clone(&slot.0);
        let previous = self.objects.insert(slot).map(|Slot(previous)| previous);
        if previous.is_none() {
            count(&mut self.counts, entry.namespace(), 1);
        }
        self.tally.replace(previous.as_deref(), Some(&entry));
        let event_type = if previous.is_some() { EventType::Modified } else { EventType::Added };
        let revision = entry.revision;
        self.emit(revision, event_type, entry, previous);
    }

    /// Makes a visible object vanish and logs its deletion.
    pub(super) fn remove_visible(&mut self, key: &[u8]) {
        let revision = self.shared.revisions.next();
        self.remove_visible_at(key, revision);
    }

    /// The same as of a revision that was taken before.
    pub(super) fn remove_visible_at(&mut self, key: &[u8], revision: Revision) {
        let Some(slot) = self.objects.remove(key) else { return };
        if !slot.0.folded
            && let Some(state) = slot.0.holders.first().cloned().and_then(|name| self.member_mut(&name))
        {
            state.member_locals.remove(&slot);
        }
        let Slot(entry) = slot;
        count(&mut self.counts, entry.namespace(), -1);
        self.tally.replace(Some(&entry), None);
        self.emit(revision, EventType::Deleted, entry, None);
    }

    pub(super) fn member_local_key(&self, own_key: &str, member: &MemberName) -> String {
        let mut out = Vec::with_capacity(own_key.len() + member.as_str().len() + 1);
        self.shared.naming.push_member_local(own_key, member, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    pub(super) fn is_member_local_of(&self, member_local_key: &str, member: &MemberName) -> bool {
        self.objects
            .get(member_local_key.as_bytes())
            .is_some_and(|slot| !slot.0.folded && slot.0.holders.first() == Some(member))
    }

    fn emit(&mut self, revision: Revision, event_type: EventType, entry: Arc<Entry>, previous: Option<Arc<Entry>>) {
        self.head = revision;
        self.news = true;
        if self.opened {
            self.log.push(revision, event_type, entry, previous);
        }
    }

    /// What a fold of this kind sums.
    pub(super) fn fold_kind(&self) -> FoldKind {
        FoldKind::of(&self.spec.gvr.group, &self.spec.gvr.resource)
    }
}
