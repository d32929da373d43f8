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
    placement::{fold::FoldKind, marker::Marker},
    store::{
        dress::{BadObject, Facts, Wardrobe},
        entry::{Draft, Edits, Entry, Holders, Slot},
        fold::{Fold, Part},
        identities::{Identities, Referent},
        kind::KindSpec,
        log::{Log, LogLimits},
        naming::{Naming, key},
        revision::{Revision, Revisions},
    },
    wire::{locate::Found, watch::EventType},
};

/// Annotation that names the member of a native object.
const CLUSTER: &str = "kubefold.io/cluster";

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
    /// Number of the current full list; what it has seen bears it.
    pub(super) seen: u32,
    natives: HashSet<Slot>,
    refs: HashSet<u64>,
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
    pub(super) objects: OrdSet<Slot>,
    pub(super) counts: imbl::HashMap<Arc<str>, u64>,
    pub(super) log: Log,
    pub(super) head: Revision,
    pub(super) members: Vec<MemberState>,
    pub(super) folds: HashMap<String, Fold>,
    /// Identities that changed and that other stores must hear of.
    pub(super) changed: Vec<Referent>,
    opened: bool,
    edits: Edits,
    found: Vec<Found>,
    buffer: Vec<u8>,
}

/// How an incoming state compares with the one that is held.
enum Verdict {
    /// Older than what is held.
    Stale,
    /// Nothing new; the provenance is refreshed.
    Same,
    /// A newer state of the same object.
    Newer,
    /// Another object under the same name.
    Reborn,
    /// Nothing is held.
    New,
}

/// How an object is shown.
enum Class {
    Native,
    Folded(Option<Marker>),
}

impl Sequencer {
    pub(super) fn new(spec: Arc<KindSpec>, shared: Shared) -> Self {
        Self {
            spec,
            log: Log::new(shared.log_limits.clone()),
            shared,
            objects: OrdSet::new(),
            counts: imbl::HashMap::new(),
            head: Revision(0),
            members: Vec::new(),
            folds: HashMap::new(),
            changed: Vec::new(),
            opened: false,
            edits: Edits::default(),
            found: Vec::new(),
            buffer: Vec::new(),
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
            return;
        }
        let state = MemberState {
            name: name.clone(),
            cluster_uid: cluster_uid.to_owned(),
            incarnation: 1,
            position: 0,
            filled: false,
            seen: 0,
            natives: HashSet::new(),
            refs: HashSet::new(),
        };
        self.members.push(state);
        let order = Arc::clone(&self.shared.naming);
        let place = |name: &MemberName| order.members().iter().position(|known| known == name).unwrap_or(usize::MAX);
        self.members.sort_by_key(|member| place(&member.name));
    }

    /// Takes new names: members were added, removed or put in another order. What they change is shown.
    pub(super) fn rename(&mut self, naming: &Arc<Naming>) {
        self.shared.naming = Arc::clone(naming);
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
        if let Some(member) = self.member_mut(name) {
            member.incarnation += 1;
            member.position = 0;
        }
    }

    /// Begins a full list of a member. What it does not see is gone when it ends.
    pub(super) fn begin_list(&mut self, name: &MemberName) {
        if let Some(member) = self.member_mut(name) {
            member.seen += 1;
        }
    }

    /// Takes one object in.
    ///
    /// Errors: a document that is no object; nothing is changed then.
    pub(super) fn ingest(
        &mut self,
        member: &MemberName,
        document: &str,
        source: Source,
    ) -> Result<Option<Ingested>, BadObject> {
        let Some(at) = self.members.iter().position(|known| known.name == *member) else { return Ok(None) };
        let mut found = std::mem::take(&mut self.found);
        let spec = Arc::clone(&self.spec);
        let outcome = self.ingest_located(at, &spec, document, source, &mut found);
        self.found = found;
        outcome
    }

    fn ingest_located(
        &mut self,
        at: usize,
        spec: &KindSpec,
        document: &str,
        source: Source,
        found: &mut Vec<Found>,
    ) -> Result<Option<Ingested>, BadObject> {
        let mut facts = Facts::read(spec, document, found)?;
        // Items of a list of a built-in kind lack kind and apiVersion: the whole form is the one that is kept.
        let whole;
        let mut document = document;
        if !facts.has_kind {
            let rest = document.trim_start().get(1..).unwrap_or_default();
            whole = ["{", &spec.type_meta, rest].concat();
            document = &whole;
            facts = Facts::read(spec, document, found)?;
        }
        let outcome = self.place(at, document, &facts, source, found);
        if matches!(source, Source::Watch)
            && let Some(member) = self.members.get_mut(at)
        {
            member.position = member.position.max(facts.member_rv);
        }
        Ok(outcome)
    }

    fn place(
        &mut self,
        at: usize,
        document: &str,
        facts: &Facts<'_>,
        source: Source,
        found: &[Found],
    ) -> Option<Ingested> {
        let member = self.members.get(at)?.name.clone();
        let own_key = key(&facts.namespace, &facts.name);
        let native_key = self.native_key(&own_key, &member);
        let class = self.class(at, document, facts);
        let ingested = |key: &str| Some(Ingested { key: key.to_owned(), own_uid: facts.uid.to_owned() });
        let is_part = self.folds.get(&own_key).is_some_and(|fold| fold.part(&member).is_some());
        let verdict = if is_part {
            self.judge_part(at, &own_key, document, facts)
        } else {
            self.judge_native(at, &native_key, document, facts)
        };
        match verdict {
            Verdict::New if source == Source::Live && facts.member_rv <= self.members.get(at)?.position => return None,
            Verdict::Reborn if source == Source::Live && self.is_older(at, is_part, &own_key, &native_key, facts) => {
                return None;
            }
            Verdict::Stale | Verdict::Same => {
                return ingested(if is_part { &own_key } else { &native_key });
            }
            Verdict::New | Verdict::Newer => {}
            Verdict::Reborn if is_part => {}
            Verdict::Reborn => self.remove_visible(native_key.as_bytes()),
        }
        match class {
            Class::Native => {
                if is_part {
                    self.remove_part(&own_key, &member);
                }
                self.put_native(at, document, facts, found);
                ingested(&native_key)
            }
            Class::Folded(marker) => {
                if !is_part && self.is_native_of(&native_key, &member) {
                    self.remove_visible(native_key.as_bytes());
                }
                self.put_part(at, &own_key, document, facts, marker);
                ingested(&own_key)
            }
        }
    }

    /// Says whether a live answer about another UID tells of the past.
    fn is_older(&self, at: usize, is_part: bool, own_key: &str, native_key: &str, facts: &Facts<'_>) -> bool {
        let Some(member) = self.members.get(at) else { return true };
        let held = if is_part {
            self.folds.get(own_key).and_then(|fold| fold.part(&member.name)).map(|part| part.member_rv)
        } else {
            self.objects.get(native_key.as_bytes()).map(|slot| slot.0.provenance.member_rv())
        };
        held.is_some_and(|held| facts.member_rv <= held.max(member.position))
    }

    fn class(&self, at: usize, document: &str, facts: &Facts<'_>) -> Class {
        let naming = &self.shared.naming;
        let gvr = &self.spec.gvr;
        if naming.is_shared(&gvr.group, &gvr.resource, &facts.namespace, &facts.name) {
            return Class::Folded(None);
        }
        if naming.split(&facts.name).is_some() {
            return Class::Native;
        }
        let marker = Marker::read(facts.labels(document), facts.annotations(document));
        let bears = |marker: &Marker| {
            self.members.get(at).is_some_and(|member| {
                marker.bears(
                    &self.spec.gvk.group,
                    &self.spec.gvk.kind,
                    &facts.namespace,
                    &facts.name,
                    &member.name,
                    &member.cluster_uid,
                )
            })
        };
        match marker.filter(bears) {
            Some(marker) => Class::Folded(Some(marker)),
            None => Class::Native,
        }
    }

    pub(super) fn native_key(&self, own_key: &str, member: &MemberName) -> String {
        let mut out = Vec::with_capacity(own_key.len() + member.as_str().len() + 1);
        self.shared.naming.push_native(own_key, member, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    fn is_native_of(&self, native_key: &str, member: &MemberName) -> bool {
        self.objects
            .get(native_key.as_bytes())
            .is_some_and(|slot| !slot.0.folded && slot.0.holders.first() == Some(member))
    }

    fn judge_native(&mut self, at: usize, native_key: &str, document: &str, facts: &Facts<'_>) -> Verdict {
        let Some(member) = self.members.get(at) else { return Verdict::Stale };
        let Some(Slot(held)) = self.objects.get(native_key.as_bytes()) else { return Verdict::New };
        if held.folded {
            return Verdict::New;
        }
        let provenance = &held.provenance;
        provenance.see(member.seen);
        let current = provenance.incarnation() == member.incarnation;
        if held.uid() != facts.uid {
            return if current && facts.member_rv < provenance.member_rv() { Verdict::Stale } else { Verdict::Reborn };
        }
        if current && facts.member_rv < provenance.member_rv() {
            return Verdict::Stale;
        }
        if current && facts.member_rv > provenance.member_rv() {
            return Verdict::Newer;
        }
        // Equal revisions, or revisions that do not compare: the bytes decide.
        self.buffer.clear();
        held.write_original(&mut self.buffer);
        if self.buffer == document.as_bytes() {
            provenance.set(facts.member_rv, member.incarnation, member.seen);
            return Verdict::Same;
        }
        Verdict::Newer
    }

    fn judge_part(&mut self, at: usize, own_key: &str, document: &str, facts: &Facts<'_>) -> Verdict {
        let Some(member) = self.members.get(at) else { return Verdict::Stale };
        let Some(part) = self.folds.get_mut(own_key).and_then(|fold| fold.part_mut(&member.name)) else {
            return Verdict::New;
        };
        part.seen = member.seen;
        let current = part.incarnation == member.incarnation;
        if part.uid != facts.uid {
            return if current && facts.member_rv < part.member_rv { Verdict::Stale } else { Verdict::Reborn };
        }
        if current && facts.member_rv < part.member_rv {
            return Verdict::Stale;
        }
        if current && facts.member_rv > part.member_rv {
            return Verdict::Newer;
        }
        if *part.document == *document {
            part.member_rv = facts.member_rv;
            part.incarnation = member.incarnation;
            return Verdict::Same;
        }
        Verdict::Newer
    }

    fn put_native(&mut self, at: usize, document: &str, facts: &Facts<'_>, found: &[Found]) {
        if let Some(entry) = self.dress_native(at, document, facts, found) {
            self.put(entry);
        }
    }

    /// Splices one native document. The entry bears a revision of its own.
    pub(super) fn dress_native(
        &mut self,
        at: usize,
        document: &str,
        facts: &Facts<'_>,
        found: &[Found],
    ) -> Option<Entry> {
        let revision = self.shared.revisions.next();
        let Self { spec, shared, members, edits, buffer, .. } = self;
        let member = members.get_mut(at)?;
        edits.clear();
        let mut visible = Vec::with_capacity(facts.name.len() + 64);
        shared.naming.push_native(&facts.name, &member.name, &mut visible);
        let visible = String::from_utf8(visible).unwrap_or_default();
        let mut wardrobe = Wardrobe {
            naming: &shared.naming,
            identities: &shared.identities,
            member: &member.name,
            refs: &mut member.refs,
            buffer: std::mem::take(buffer),
        };
        wardrobe.name(facts, &visible, edits);
        Wardrobe::annotate(document, facts, CLUSTER, member.name.as_str(), edits);
        wardrobe.references(document, facts, found, edits);
        *buffer = wardrobe.buffer;
        edits.put(facts.resource_version_at.clone(), |out| push_revision(revision, out));
        let draft = Draft {
            namespace: &facts.namespace,
            name: &visible,
            document,
            type_meta_len: type_meta_len(spec, document),
            labels: facts.labels_at.clone(),
            resource_version: facts.resource_version_at.clone(),
            uid: facts.uid_at.clone(),
            revision,
            holders: Holders::from_elem(member.name.clone(), 1),
            folded: false,
            deleting: facts.deleting,
        };
        let entry = draft.build(edits);
        entry.provenance.set(facts.member_rv, member.incarnation, member.seen);
        Some(entry)
    }

    fn put_part(&mut self, at: usize, own_key: &str, document: &str, facts: &Facts<'_>, marker: Option<Marker>) {
        let Some(member) = self.members.get(at) else { return };
        let part = Part {
            member: member.name.clone(),
            document: document.into(),
            uid: facts.uid.to_owned(),
            member_rv: facts.member_rv,
            incarnation: member.incarnation,
            seen: member.seen,
            marker,
            deleting: facts.deleting,
            created: facts.created.to_owned(),
        };
        let order = Arc::clone(&self.shared.naming);
        let fold = self.folds.entry(own_key.to_owned()).or_default();
        fold.put(part, order.members());
        self.refold(own_key);
    }

    /// Takes a member's word that an object is gone.
    ///
    /// Errors: a document that is no object; nothing is changed then.
    pub(super) fn deleted(&mut self, member: &MemberName, document: &str) -> Result<(), BadObject> {
        let mut found = std::mem::take(&mut self.found);
        let spec = Arc::clone(&self.spec);
        let facts = Facts::read(&spec, document, &mut found);
        self.found = found;
        let facts = facts?;
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(facts.member_rv);
        }
        let own_key = key(&facts.namespace, &facts.name);
        if self.folds.get(&own_key).and_then(|fold| fold.part(member)).is_some_and(|part| part.uid == facts.uid) {
            self.remove_part(&own_key, member);
            return Ok(());
        }
        let native_key = self.native_key(&own_key, member);
        if self.is_native_of(&native_key, member)
            && self.objects.get(native_key.as_bytes()).is_some_and(|slot| slot.0.uid() == facts.uid)
        {
            self.remove_visible(native_key.as_bytes());
        }
        Ok(())
    }

    /// Notes the revision of a bookmark.
    pub(super) fn bookmark(&mut self, member: &MemberName, revision: u64) {
        if let Some(state) = self.member_mut(member) {
            state.position = state.position.max(revision);
        }
    }

    /// Ends a full list that was read at `revision`: gives the natives that it did not see, to be removed in slices.
    pub(super) fn end_list(&mut self, member: &MemberName, revision: u64) -> Vec<Slot> {
        let Some(state) = self.member_mut(member) else { return Vec::new() };
        state.position = state.position.max(revision);
        state.filled = true;
        let (seen, incarnation) = (state.seen, state.incarnation);
        let doomed: Vec<Slot> = state
            .natives
            .iter()
            .filter(|Slot(entry)| {
                let from = &entry.provenance;
                from.seen() != seen && (from.incarnation() != incarnation || from.member_rv() <= revision)
            })
            .cloned()
            .collect();
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
        doomed
    }

    /// Removes natives that are still the ones that were doomed.
    pub(super) fn remove_doomed(&mut self, doomed: &[Slot]) {
        for Slot(entry) in doomed {
            if self.objects.get(entry.key()).is_some_and(|Slot(held)| Arc::ptr_eq(held, entry)) {
                self.remove_visible(entry.key());
            }
        }
    }

    /// Everything native of a member, and its parts gone: the operator removed it, or it serves the kind no more.
    pub(super) fn leave(&mut self, member: &MemberName) -> Vec<Slot> {
        let keys: Vec<String> =
            self.folds.iter().filter(|(_, fold)| fold.part(member).is_some()).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove_part(&key, member);
        }
        let doomed = self.member(member).map(|state| state.natives.iter().cloned().collect()).unwrap_or_default();
        if let Some(state) = self.member_mut(member) {
            state.filled = false;
            state.position = 0;
            state.incarnation += 1;
        }
        doomed
    }

    /// Forgets a member whose natives were all removed.
    pub(super) fn forget(&mut self, member: &MemberName) {
        self.members.retain(|known| known.name != *member);
    }

    /// Dresses anew every object that refers to one of these, and says so where that changes its bytes.
    pub(super) fn redress(&mut self, changed: &[Referent]) {
        for at in 0..self.members.len() {
            let Some(member) = self.members.get(at) else { continue };
            let name = member.name.clone();
            let prefix = [name.as_str().as_bytes(), b"\0"].concat();
            let hit: Vec<&Referent> = changed
                .iter()
                .filter(|referent| {
                    referent.bytes().starts_with(&prefix) && member.refs.contains(&super::dress::hash(referent.bytes()))
                })
                .collect();
            if hit.is_empty() {
                continue;
            }
            let names: Vec<&[u8]> = hit.iter().filter_map(|referent| referent.own_name()).collect();
            let touched: Vec<Slot> = member
                .natives
                .iter()
                .filter(|Slot(entry)| names.iter().any(|name| memchr::memmem::find(entry.json(), name).is_some()))
                .cloned()
                .collect();
            for slot in touched {
                self.redress_native(at, &slot);
            }
            let parts: Vec<String> =
                self.folds.iter().filter(|(_, fold)| fold.part(&name).is_some()).map(|(key, _)| key.clone()).collect();
            for key in parts {
                self.refold(&key);
            }
        }
    }

    fn redress_native(&mut self, at: usize, Slot(held): &Slot) {
        let mut original = Vec::with_capacity(held.json().len());
        held.write_original(&mut original);
        let Ok(document) = std::str::from_utf8(&original) else { return };
        let mut found = Vec::new();
        let spec = Arc::clone(&self.spec);
        let Ok(facts) = Facts::read(&spec, document, &mut found) else { return };
        let Some(entry) = self.dress_native(at, document, &facts, &found) else { return };
        let (from, to) = (&held.provenance, &entry.provenance);
        to.set(from.member_rv(), from.incarnation(), from.seen());
        if !entry.is_same_but_for_revision(held) {
            self.put(entry);
        }
    }

    /// Makes an entry visible and logs what that is.
    pub(super) fn put(&mut self, entry: Entry) {
        let entry = Arc::new(entry);
        let slot = Slot(Arc::clone(&entry));
        if !entry.folded
            && let Some(state) = entry.holders.first().cloned().and_then(|name| self.member_mut(&name))
        {
            state.natives.replace(slot.clone());
        }
        let previous = self.objects.insert(slot).map(|Slot(previous)| previous);
        if previous.is_none() {
            self.count(entry.namespace(), 1);
        }
        let event_type = if previous.is_some() { EventType::Modified } else { EventType::Added };
        let revision = entry.revision;
        self.emit(revision, event_type, entry, previous);
    }

    /// Makes a visible object vanish and logs its deletion.
    pub(super) fn remove_visible(&mut self, key: &[u8]) {
        let Some(slot) = self.objects.remove(key) else { return };
        let entry = Arc::clone(&slot.0);
        if !entry.folded
            && let Some(state) = entry.holders.first().cloned().and_then(|name| self.member_mut(&name))
        {
            state.natives.remove(&slot);
        }
        self.count(entry.namespace(), -1);
        let revision = self.shared.revisions.next();
        self.emit(revision, EventType::Deleted, entry, None);
    }

    fn count(&mut self, namespace: &str, change: i64) {
        if namespace.is_empty() {
            return;
        }
        let now = self.counts.get(namespace).copied().unwrap_or_default().saturating_add_signed(change);
        if now == 0 {
            self.counts.remove(namespace);
        } else if let Some(count) = self.counts.get_mut(namespace) {
            *count = now;
        } else {
            self.counts.insert(namespace.into(), now);
        }
    }

    fn emit(&mut self, revision: Revision, event_type: EventType, entry: Arc<Entry>, previous: Option<Arc<Entry>>) {
        self.head = revision;
        if self.opened {
            self.log.push(revision, event_type, entry, previous);
        }
    }

    /// What a fold of this kind sums.
    pub(super) fn fold_kind(&self) -> FoldKind {
        FoldKind::of(&self.spec.gvr.group, &self.spec.gvr.resource)
    }

    pub(super) fn scratch(&mut self) -> (Edits, Vec<Found>, Vec<u8>) {
        (std::mem::take(&mut self.edits), std::mem::take(&mut self.found), std::mem::take(&mut self.buffer))
    }

    pub(super) fn give_back(&mut self, (edits, found, buffer): (Edits, Vec<Found>, Vec<u8>)) {
        (self.edits, self.found, self.buffer) = (edits, found, buffer);
    }

    pub(super) fn refs_of(&mut self, member: &MemberName) -> HashSet<u64> {
        self.member_mut(member).map(|state| std::mem::take(&mut state.refs)).unwrap_or_default()
    }

    pub(super) fn give_refs(&mut self, member: &MemberName, refs: HashSet<u64>) {
        if let Some(state) = self.member_mut(member) {
            state.refs = refs;
        }
    }
}

/// Length of the leading kind and apiVersion of a built-in kind's document.
pub(super) fn type_meta_len(spec: &KindSpec, document: &str) -> usize {
    if document.get(1..).is_some_and(|rest| rest.starts_with(&spec.type_meta)) { spec.type_meta.len() } else { 0 }
}

/// Writes a revision as Kubernetes does: a string of digits.
pub(super) fn push_revision(revision: Revision, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory has no way to fail.
    let _infallible = write!(out, "\"{revision}\"");
}
