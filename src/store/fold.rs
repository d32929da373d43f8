//! Objects that are one in the fleet and several in the members: shared ones and placed ones.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    placement::{
        fingerprint::{Fingerprint, Mask},
        fold::{PartView, fold_behind},
        marker::Marker,
    },
    store::{
        entry::{Draft, Edits, Entry, Holders},
        identities::{Identity, Referent},
        incoming::{Incoming, Scratch, push_revision},
        notices::{BEHIND, DIFFERS, Notices},
        references::References,
        revision::Revision,
        rewrite::{Facts, Note, Rewriter},
        sequencer::Sequencer,
    },
};

/// Annotation that names the members of a folded object.
const CLUSTERS: &str = "kubefold.io/clusters";

/// One member's share of a folded object, as the member sent it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The member that holds it.
    pub member: MemberName,
    /// Its document, whole.
    pub document: Arc<str>,
    /// Its UID in its member.
    pub uid: String,
    /// Its revision in its member.
    pub member_rv: u64,
    pub(super) incarnation: u32,
    pub(super) seen: u32,
    /// The marker of a placed object's part; a shared object has none.
    pub marker: Option<Marker>,
    /// What of it is its author's, where there are other parts to compare it with.
    pub(super) fingerprint: Option<Arc<Fingerprint>>,
    /// It carries a `deletionTimestamp`.
    pub deleting: bool,
    pub(super) created: String,
}

impl Part {
    /// Says whether its marker names a part in that member.
    pub(super) fn lists(&self, member: &MemberName) -> bool {
        self.marker.as_ref().is_some_and(|marker| marker.members.iter().any(|(name, _)| name == member))
    }
}

/// All parts under one key.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// In configuration order.
    parts: Vec<Part>,
    /// How many writers ask that nothing be shown yet.
    pub(super) held: u32,
    /// Members whose part is shown as a member-local object: those of a second placement under this key, and while a writer holds the
    /// key those that were member-local objects until now.
    exposed: Vec<MemberName>,
    /// Of a child: the first part in each member in this life of the whole, by its own UID.
    founders: Vec<(MemberName, String)>,
}

impl Fold {
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn part(&self, member: &MemberName) -> Option<&Part> {
        self.parts.iter().find(|part| part.member == *member)
    }

    pub(super) fn part_mut(&mut self, member: &MemberName) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.member == *member)
    }

    pub(super) fn any_part(&self, which: impl Fn(&Part) -> bool) -> bool {
        self.parts.iter().any(which)
    }

    pub(super) fn put(&mut self, part: Part, order: &[MemberName]) {
        match self.part_mut(&part.member) {
            Some(held) => *held = part,
            None => {
                self.parts.push(part);
                self.sort(order);
            }
        }
    }

    /// Takes the prints of all parts anew: policies changed.
    pub(super) fn print(&mut self, group: &str, resource: &str, mask: &Mask) {
        for part in self.parts.iter_mut().filter(|part| part.fingerprint.is_some()) {
            part.fingerprint = Fingerprint::of(&part.document, group, resource, mask).map(Arc::new);
        }
    }

    /// Puts the parts in configuration order; one of a member that is leaving comes last.
    pub(super) fn sort(&mut self, order: &[MemberName]) {
        self.parts.sort_by_key(|part| order.iter().position(|name| *name == part.member).unwrap_or(usize::MAX));
    }

    /// Says whether the member's part is in the fold that is shown, and not beside it.
    pub(super) fn shows(&self, member: &MemberName) -> bool {
        self.part(member).is_some() && !self.exposed.contains(member)
    }

    /// Members whose parts are of another placement than the one that is shown.
    pub(super) fn exposed(&self) -> &[MemberName] {
        &self.exposed
    }

    fn take(&mut self, member: &MemberName) -> Option<Part> {
        let at = self.parts.iter().position(|part| part.member == *member)?;
        Some(self.parts.remove(at))
    }

    fn unexpose(&mut self, member: &MemberName) -> bool {
        let before = self.exposed.len();
        self.exposed.retain(|name| name != member);
        self.exposed.len() < before
    }

    /// The parts that make the visible object, its body's first; the others are a younger placement's.
    pub(super) fn chosen(&self) -> Vec<&Part> {
        let Some(marker) = self.winner() else {
            // Shared: the first holder that is not deleting it, healthy or not; the first of all when all are.
            let first = self.parts.iter().position(|part| !part.deleting).unwrap_or_default();
            let mut chosen: Vec<&Part> = self.parts.iter().collect();
            if first < chosen.len() {
                let body = chosen.remove(first);
                chosen.insert(0, body);
            }
            return chosen;
        };
        let of_placement = |name: &MemberName| {
            self.part(name).filter(|part| part.marker.as_ref().is_some_and(|own| own.uid == marker.uid))
        };
        marker.members.iter().filter_map(|(name, _)| of_placement(name)).collect()
    }

    /// Of several placements under one key the one with the older home has the name.
    fn winner(&self) -> Option<&Marker> {
        let home_age = |marker: &Marker| {
            let holds = |name: &MemberName| {
                self.part(name).is_some_and(|part| part.marker.as_ref().is_some_and(|own| own.uid == marker.uid))
            };
            marker.home(holds).and_then(|home| self.part(home)).map(|part| part.created.clone())
        };
        self.parts
            .iter()
            .filter_map(|part| part.marker.as_ref())
            .min_by_key(|marker| (home_age(marker), marker.uid.clone()))
    }
}

impl Sequencer {
    /// Puts a part in and shows what that makes.
    pub(super) fn put_part(&mut self, key: &str, part: Part) {
        let order = Arc::clone(&self.shared.naming);
        let fold = match self.folds.get_mut(key) {
            Some(fold) => fold,
            None => self.folds.entry(key.to_owned()).or_default(),
        };
        fold.put(part, order.members());
        self.judge_life(key);
        self.refold(key);
    }

    /// Drops a part that is gone and shows what is left.
    pub(super) fn remove_part(&mut self, key: &str, member: &MemberName) {
        let Some(fold) = self.folds.get_mut(key) else { return };
        let Some(part) = fold.take(member) else { return };
        self.news = true;
        let exposed = fold.unexpose(member);
        if part.marker.is_some() {
            self.shared.identities.gone(self.referent(key, member));
        }
        if exposed {
            let member_local = self.member_local_key(key, member);
            self.remove_visible(&member_local);
        }
        self.judge_life(key);
        self.refold(key);
    }

    /// Takes a part out, as its object lives on as a member-local object: what is shown of it stays until that is put. What refers to
    /// it shall do so by the member-local object's name.
    pub(super) fn part_turns_member_local(&mut self, key: &str, member: &MemberName, uid: &str) {
        let referent = self.referent(key, member);
        let Some(fold) = self.folds.get_mut(key) else { return };
        let Some(part) = fold.take(member) else { return };
        self.news = true;
        fold.unexpose(member);
        if part.uid != uid {
            self.shared.identities.gone(referent);
        } else if self.shared.identities.unset(&referent, uid) {
            self.changed.push(referent);
        }
        self.refold(key);
    }

    /// Leaves a member-local object visible until the fold that its object is now a part of is shown.
    pub(super) fn member_local_turns_part(&mut self, key: &str, member_local_key: &str, part: &Part) {
        let Some(entry) = self.objects.get(member_local_key).cloned() else { return };
        if member_local_key == key || entry.uid() != part.uid {
            self.remove_visible(member_local_key);
            return;
        }
        if let Some(state) = self.member_mut(&part.member) {
            state.member_locals.remove(entry.shared_key());
        }
        self.folds.entry(key.to_owned()).or_default().exposed.push(part.member.clone());
    }

    /// Ends a shared object's life when its only holder has another object in its place.
    pub(super) fn last_part_goes(&mut self, key: &str, successor: &Part) {
        let is_last = self.folds.get(key).is_some_and(|fold| fold.parts.len() == 1 && fold.held == 0);
        if successor.marker.is_none() && is_last {
            self.remove_part(key, &successor.member);
        }
    }

    fn referent(&self, key: &str, member: &MemberName) -> Referent {
        let (namespace, name) = if self.spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        Referent::new(member, &self.spec.gvk.group, &self.spec.gvk.kind, namespace, name)
    }

    /// Shows what the parts under a key make, unless a writer holds it back.
    pub(super) fn refold(&mut self, key: &str) {
        let Some(fold) = self.folds.get(key) else { return };
        let held = fold.held > 0;
        let chosen: Vec<Part> = fold.chosen().into_iter().cloned().collect();
        let is_chosen = |part: &&Part| chosen.iter().any(|chosen| chosen.member == part.member);
        let losers: Vec<Part> = fold.parts.iter().filter(|part| !is_chosen(part)).cloned().collect();
        // Also while it is held: what refers to a part shall know who that is from the first.
        self.identify(key, &chosen, &losers);
        if held {
            return;
        }
        self.show_fold(key, &chosen);
        let Some(fold) = self.folds.get_mut(key) else { return };
        let exposed_before = std::mem::take(&mut fold.exposed);
        fold.exposed = losers.iter().map(|part| part.member.clone()).collect();
        if fold.parts.is_empty() {
            self.folds.remove(key);
        }
        for member in exposed_before.iter().filter(|name| !losers.iter().any(|part| part.member == **name)) {
            let member_local = self.member_local_key(key, member);
            self.remove_visible(&member_local);
        }
        for loser in &losers {
            self.expose(loser);
        }
    }

    fn identify(&mut self, key: &str, chosen: &[Part], losers: &[Part]) {
        let visible = chosen.first().and_then(|home| home.marker.as_ref()).map(|marker| self.visible_uid(key, marker));
        let visible: Arc<str> = visible.unwrap_or_default().as_ref().into();
        for part in chosen {
            let Some(marker) = &part.marker else { continue };
            let referent = self.referent(key, &part.member);
            let identity = Identity {
                own_uid: part.uid.as_str().into(),
                visible_uid: Arc::clone(&visible),
                is_alone: marker.members.len() == 1 && !marker.is_child,
            };
            if self.shared.identities.set(&referent, identity) {
                self.changed.push(referent);
            }
        }
        for part in losers {
            let referent = self.referent(key, &part.member);
            if self.shared.identities.unset(&referent, &part.uid) {
                self.changed.push(referent);
            }
        }
    }

    fn show_fold(&mut self, key: &str, chosen: &[Part]) {
        let held = self.objects.get(key).cloned().filter(|entry| entry.folded);
        let Some(body) = chosen.first() else {
            if held.is_some() {
                self.remove_visible(key);
                self.end_life(key);
            }
            return;
        };
        // Should another object's deletion come first, its revision does.
        let deletion = self.shared.revisions.next();
        let revision = self.shared.revisions.next();
        let Some(entry) = self.rewrite_fold(key, body, chosen, revision) else { return };
        match held {
            Some(held) if held.is_same_but_for_revision(&entry) => {}
            Some(held) if held.uid() != entry.uid() => {
                self.remove_visible_at(key, deletion);
                let _shown = self.put(entry);
            }
            Some(_) | None => drop(self.put(entry)),
        }
    }

    /// The last holder of a shared object is gone: should it come back it is another one, and has another UID.
    fn end_life(&mut self, key: &str) {
        if !self.is_shared_key(key) {
            return;
        }
        self.shared.identities.raise_life(&self.life_key(key));
        let members: Vec<MemberName> = self.members.iter().map(|member| member.name.clone()).collect();
        for member in members {
            let referent = self.referent(key, &member);
            self.changed.push(referent);
        }
    }

    /// The UID that is shown of a placed object, or of a child of one.
    pub(super) fn visible_uid<'m>(&self, key: &str, marker: &'m Marker) -> Cow<'m, str> {
        if !marker.is_child {
            return Cow::Borrowed(&marker.uid);
        }
        marker.visible_uid(self.shared.identities.child_life(&self.life_key(key)))
    }

    /// Follows the lives of a child. One lives on while any part of it does that was the first in its member; after that,
    /// what its controllers made again under the name is another object.
    fn judge_life(&mut self, key: &str) {
        let Some(fold) = self.folds.get_mut(key) else { return };
        let is_child = |part: &Part| part.marker.as_ref().is_some_and(|marker| marker.is_child);
        let now =
            || fold.parts.iter().filter(|part| is_child(part)).map(|part| (part.member.clone(), part.uid.clone()));
        let lives = fold.founders.is_empty() || now().any(|part| fold.founders.contains(&part));
        if lives {
            let newcomers: Vec<_> =
                now().filter(|(member, _)| !fold.founders.iter().any(|(founder, _)| founder == member)).collect();
            fold.founders.extend(newcomers);
            return;
        }
        fold.founders = now().collect();
        // Of two stores of a kind the one that is read decides.
        if !self.parts_only {
            self.shared.identities.raise_child_life(&self.life_key(key));
        }
    }

    fn is_shared_key(&self, key: &str) -> bool {
        let (namespace, name) = if self.spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        self.shared.naming.is_shared(&self.spec.gvr.group, &self.spec.gvr.resource, namespace, name)
    }

    fn life_key(&self, key: &str) -> String {
        format!("{}/{}/{key}", self.spec.gvr.group, self.spec.gvr.resource)
    }

    fn rewrite_fold(&mut self, key: &str, body: &Part, chosen: &[Part], revision: Revision) -> Option<Entry> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let entry = self.rewrite_fold_with(key, body, chosen, revision, &mut scratch);
        self.scratch = scratch;
        entry
    }

    fn rewrite_fold_with(
        &self,
        key: &str,
        body: &Part,
        chosen: &[Part],
        revision: Revision,
        scratch: &mut Scratch,
    ) -> Option<Entry> {
        let spec = Arc::clone(&self.spec);
        let document: &str = &body.document;
        let Scratch { edits, found, referent, .. } = scratch;
        let incoming = Incoming::read(&spec, document, found).ok()?;
        let facts = &incoming.facts;
        edits.clear();
        let holders: Holders = chosen.iter().map(|part| part.member.clone()).collect();
        let behind = self.note(key, document, facts, &holders, edits);
        let mut references = References::new(&self.kinds, &body.member);
        let mut rewriter = Rewriter {
            naming: &self.shared.naming,
            identities: &self.shared.identities,
            member: &body.member,
            refs: &mut references,
            referent,
        };
        rewriter.references(document, facts, found, edits);
        edits.put(facts.resource_version_at.clone(), |out| push_revision(revision, out));
        match &body.marker {
            Some(marker) => {
                let uid = self.visible_uid(key, marker);
                let views: Vec<PartView<'_>> =
                    chosen.iter().map(|part| PartView { member: &part.member, json: &part.document }).collect();
                // A body that was read a line above is an object.
                for edit in fold_behind(&views, self.fold_kind(), &uid, behind).unwrap_or_default() {
                    edits.add(&edit);
                }
            }
            None => {
                let life = self.shared.identities.life(&self.life_key(key));
                if let Some(uid) = self.shared.naming.shared_uid(&spec.gvr.group, &spec.gvr.resource, key, life) {
                    edits.put(facts.uid_at.clone(), |out| kubefold_wire::splice::push_string(&uid, out));
                }
            }
        }
        let draft = Draft {
            namespace: &facts.namespace,
            name: &facts.name,
            suffix: ["", ""],
            document,
            lead: "",
            type_meta_len: incoming.type_meta_len(&spec),
            labels: facts.labels_at.clone(),
            resource_version: facts.resource_version_at.clone(),
            uid: facts.uid_at.clone(),
            metadata: facts.metadata_at.clone(),
            revision,
            holders,
            folded: true,
            deleting: facts.deleting,
            referents: &references.hashes,
        };
        Some(draft.build(edits))
    }

    /// Notes on the object who holds it, who is behind and who differs. Says how many are behind.
    fn note(&self, key: &str, document: &str, facts: &Facts<'_>, holders: &[MemberName], edits: &mut Edits) -> usize {
        let Notices { behind, differs, .. } = self.notices(key);
        let notes =
            [(CLUSTERS, holders), (BEHIND, &behind), (DIFFERS, &differs)].map(|(key, members)| Note { key, members });
        let said: SmallVec<[Note<'_>; 3]> = notes.into_iter().filter(|note| !note.members.is_empty()).collect();
        Rewriter::annotate(document, facts, &said, edits);
        behind.len()
    }

    /// Shows a part of a younger placement as the member-local object that it is in its member.
    fn expose(&mut self, part: &Part) {
        let Some(at) = self.members.iter().position(|member| member.name == part.member) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let spec = Arc::clone(&self.spec);
        let deletion = self.shared.revisions.next();
        let entry = Incoming::read(&spec, &part.document, &mut scratch.found)
            .ok()
            .and_then(|incoming| self.rewrite_member_local(at, &incoming, part.seen, &mut scratch));
        self.scratch = scratch;
        let Some(entry) = entry else { return };
        let held = self.objects.get(entry.shared_key()).cloned();
        match held {
            Some(held) if held.is_same_but_for_revision(&entry) => {}
            Some(held) if held.uid() != entry.uid() => {
                self.remove_visible_at(held.shared_key(), deletion);
                let _shown = self.put(entry);
            }
            Some(_) | None => drop(self.put(entry)),
        }
    }

    /// Holds a key back: its parts change and nothing is shown until it is released.
    pub(super) fn hold(&mut self, key: &str) {
        self.folds.entry(key.to_owned()).or_default().held += 1;
    }

    /// Releases a key, and shows what its parts make now.
    pub(super) fn release(&mut self, key: &str) {
        if let Some(fold) = self.folds.get_mut(key) {
            fold.held = fold.held.saturating_sub(1);
        }
        self.refold(key);
    }
}
