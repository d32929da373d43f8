//! Objects that are one in the fleet and several in the members: shared ones and placed ones.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    placement::{
        fingerprint::{Fingerprint, Mask},
        fold::Summand,
        marker::Marker,
    },
    store::{
        entry::{Draft, Edits, Entry, Holders},
        identities::{Identity, Referent},
        incoming::{Incoming, Scratch, push_revision},
        notices::{BEHIND, DIFFERS, Notices},
        part::Part,
        references::References,
        revision::Revision,
        rewrite::{Facts, Note, Rewriter},
        sequencer::Sequencer,
    },
};

/// Annotation that names the members of a folded object.
const CLUSTERS: &str = "kubefold.io/clusters";

/// All parts under one key.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// In configuration order.
    parts: Vec<Arc<Part>>,
    /// How many writers ask that nothing be shown yet.
    pub(super) held: u32,
    /// Members whose part is shown as a member-local object: those of a second placement under this key, and while a writer holds the
    /// key those that were member-local objects until now.
    exposed: Vec<MemberName>,
    /// Of a child: the first part in each member in this life of the whole, by its own UID.
    founders: HashMap<MemberName, String>,
    /// Who each part was last said to be.
    identified: HashMap<MemberName, Identity>,
    /// Parts of more than one placement may be here.
    is_mixed: bool,
    /// Which parts are shown, as long as nothing that decides it has changed.
    shape: Option<Arc<Shape>>,
}

/// Which parts are shown, and what is said of them: whatever a new status of one part leaves as it is.
#[derive(Debug)]
pub(super) struct Shape {
    /// Places of the parts that make the visible object, its body's first.
    chosen: Vec<usize>,
    /// Places of the parts of a younger placement.
    losers: Vec<usize>,
    /// The members of the chosen parts, in their order.
    holders: Holders,
    /// Of which state of the members.
    members_epoch: u64,
    /// Members whose part somebody touched, where no part is behind.
    pub(super) differs: Vec<MemberName>,
}

impl Fold {
    pub(super) fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    pub(super) fn part(&self, member: &MemberName) -> Option<&Arc<Part>> {
        self.parts.iter().find(|part| part.member == *member)
    }

    pub(super) fn part_mut(&mut self, member: &MemberName) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.member == *member).map(Arc::make_mut)
    }

    pub(super) fn any_part(&self, which: impl Fn(&Part) -> bool) -> bool {
        self.parts.iter().any(|part| which(part))
    }

    /// Puts a part in the place of an earlier state of it, which it gives, or among the others.
    fn put(&mut self, part: Arc<Part>, order: &[MemberName]) -> Option<Arc<Part>> {
        let part = self.sharing_members(part);
        if let Some(held) = self.parts.iter_mut().find(|held| held.member == part.member) {
            self.is_mixed |= held.placement != part.placement;
            return Some(std::mem::replace(held, part));
        }
        match self.parts.first() {
            None => self.is_mixed = false,
            Some(first) => self.is_mixed |= first.placement != part.placement,
        }
        self.parts.push(part);
        self.sort(order);
        None
    }

    /// The part, with the list of members that the others have, if it is the same.
    fn sharing_members(&self, mut part: Arc<Part>) -> Arc<Part> {
        let others = self.parts.iter().find(|other| other.placement == part.placement);
        if let (Some(theirs), Some(mine)) = (others.and_then(|other| other.marker.as_ref()), part.marker.as_ref())
            && !Arc::ptr_eq(&theirs.members, &mine.members)
            && theirs.members == mine.members
        {
            let members = Arc::clone(&theirs.members);
            if let Some(marker) = &mut Arc::make_mut(&mut part).marker {
                Arc::make_mut(marker).members = members;
            }
        }
        part
    }

    /// Takes the prints of all parts anew: policies changed.
    pub(super) fn print(&mut self, group: &str, resource: &str, mask: &Mask) {
        for part in self.parts.iter_mut().filter(|part| part.fingerprint.is_some()) {
            let print = Fingerprint::of(&part.document, group, resource, mask).map(Arc::new);
            Arc::make_mut(part).fingerprint = print;
        }
    }

    /// Puts the parts in configuration order; one of a member that is leaving comes last.
    pub(super) fn sort(&mut self, order: &[MemberName]) {
        let places: HashMap<&MemberName, usize> = order.iter().enumerate().map(|(at, name)| (name, at)).collect();
        self.parts.sort_by_key(|part| places.get(&part.member).copied().unwrap_or(usize::MAX));
        self.shape = None;
    }

    /// Says whether the member's part is in the fold that is shown, and not beside it.
    pub(super) fn shows(&self, member: &MemberName) -> bool {
        self.part(member).is_some() && !self.exposed.contains(member)
    }

    /// Which parts are shown, where that is known and the members are still as they were.
    pub(super) fn shape(&self, members_epoch: u64) -> Option<&Arc<Shape>> {
        self.shape.as_ref().filter(|shape| shape.members_epoch == members_epoch)
    }

    /// Members whose parts are of another placement than the one that is shown.
    pub(super) fn exposed(&self) -> &[MemberName] {
        &self.exposed
    }

    fn take(&mut self, member: &MemberName) -> Option<Arc<Part>> {
        let at = self.parts.iter().position(|part| part.member == *member)?;
        self.shape = None;
        self.identified.remove(member);
        Some(self.parts.remove(at))
    }

    fn unexpose(&mut self, member: &MemberName) -> bool {
        let before = self.exposed.len();
        self.exposed.retain(|name| name != member);
        self.exposed.len() < before
    }

    /// The parts that make the visible object, its body's first; the others are a younger placement's.
    pub(super) fn chosen(&self) -> Vec<&Arc<Part>> {
        let places = self.shape.as_ref().map_or_else(|| self.choose(), |shape| shape.chosen.clone());
        places.into_iter().filter_map(|at| self.parts.get(at)).collect()
    }

    /// Places of the parts that make the visible object.
    fn choose(&self) -> Vec<usize> {
        let places: HashMap<&MemberName, usize> =
            self.parts.iter().enumerate().map(|(at, part)| (&part.member, at)).collect();
        let Some(marker) = self.winner(&places) else {
            // Shared: the first holder that is not deleting it, healthy or not; the first of all when all are.
            let first = self.parts.iter().position(|part| !part.deleting).unwrap_or_default();
            let mut chosen: Vec<usize> = (0..self.parts.len()).collect();
            if first < chosen.len() {
                let body = chosen.remove(first);
                chosen.insert(0, body);
            }
            return chosen;
        };
        let of_placement = |(name, _): &(MemberName, String)| {
            let at = *places.get(name)?;
            self.is_of(at, &marker.uid).then_some(at)
        };
        marker.members.iter().filter_map(of_placement).collect()
    }

    fn is_of(&self, at: usize, uid: &str) -> bool {
        self.parts.get(at).and_then(|part| part.marker.as_ref()).is_some_and(|marker| marker.uid == uid)
    }

    /// Of several placements under one key the one with the older home has the name.
    fn winner(&self, places: &HashMap<&MemberName, usize>) -> Option<&Marker> {
        let home_age = |marker: &Marker| {
            let holds = |name: &MemberName| places.get(name).is_some_and(|at| self.is_of(*at, &marker.uid));
            let home = marker.home(holds).and_then(|home| places.get(home)).and_then(|at| self.parts.get(*at));
            home.map(|part| part.created.as_str())
        };
        let mut seen: SmallVec<[u64; 2]> = SmallVec::new();
        let is_first = |part: &&Arc<Part>| {
            part.placement.is_some_and(|placement| {
                let is_new = !seen.contains(&placement);
                seen.push(placement);
                is_new
            })
        };
        let firsts: SmallVec<[&Arc<Part>; 2]> = match self.is_mixed {
            false => self.parts.iter().filter(|part| part.placement.is_some()).take(1).collect(),
            true => self.parts.iter().filter(is_first).collect(),
        };
        let markers = firsts.into_iter().filter_map(|part| part.marker.as_deref());
        markers.min_by_key(|marker| (home_age(marker), marker.uid.as_str()))
    }
}

impl Sequencer {
    /// Puts a part in and shows what that makes.
    pub(super) fn put_part(&mut self, key: &str, part: Part) {
        let order = Arc::clone(&self.shared.naming);
        let part = Arc::new(part);
        let fold = match self.folds.get_mut(key) {
            Some(fold) => fold,
            None => self.folds.entry(key.to_owned()).or_default(),
        };
        let before = fold.put(Arc::clone(&part), order.members());
        let members = self.members_epoch;
        if before.is_some_and(|before| before.stands_as(&part)) && fold.shape(members).is_some() {
            self.part_goes_on(key, &part);
            return;
        }
        fold.shape = None;
        let may_wait = !fold.is_mixed && fold.held == 0 && fold.exposed.is_empty();
        self.judge_life(key);
        if may_wait && self.is_filling {
            self.identify(key, std::slice::from_ref(&part), &[]);
            self.unshown.insert(key.to_owned());
            return;
        }
        self.refold(key);
    }

    /// Shows what a new state of a part makes that stands among the others as the earlier one did.
    fn part_goes_on(&mut self, key: &str, part: &Part) {
        let Some(fold) = self.folds.get(key) else { return };
        let Some(shape) = fold.shape(self.members_epoch).cloned().filter(|_| fold.held == 0) else { return };
        let is_it = |at: &usize| fold.parts.get(*at).is_some_and(|held| held.member == part.member);
        if shape.losers.iter().any(is_it) {
            self.refold(key);
            return;
        }
        // Of a shared object only the body is shown.
        let is_body = shape.chosen.first().is_some_and(is_it);
        if part.marker.is_some() || is_body {
            self.show_fold(key, &shape);
        }
    }

    /// Shows up to `max` objects whose parts came in while the store filled. Says whether there are more.
    pub(super) fn show_unshown(&mut self, max: usize) -> bool {
        for _ in 0..max {
            let Some(key) = self.unshown.pop_first() else { return false };
            self.refold(&key);
        }
        !self.unshown.is_empty()
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
        let shape = self.shape(fold);
        let parts = |places: &[usize]| -> Vec<Arc<Part>> {
            places.iter().filter_map(|at| fold.parts.get(*at)).map(Arc::clone).collect()
        };
        let (chosen, losers) = (parts(&shape.chosen), parts(&shape.losers));
        // Also while it is held: what refers to a part shall know who that is from the first.
        self.identify(key, &chosen, &losers);
        let Some(fold) = self.folds.get_mut(key) else { return };
        fold.shape = Some(Arc::clone(&shape));
        if held {
            return;
        }
        self.unshown.remove(key);
        self.show_fold(key, &shape);
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

    fn shape(&self, fold: &Fold) -> Arc<Shape> {
        let chosen = fold.choose();
        let mut is_chosen = vec![false; fold.parts.len()];
        for at in &chosen {
            if let Some(is_chosen) = is_chosen.get_mut(*at) {
                *is_chosen = true;
            }
        }
        let losers = is_chosen.iter().enumerate().filter(|(_, is_chosen)| !**is_chosen).map(|(at, _)| at).collect();
        let parts: Vec<&Arc<Part>> = chosen.iter().filter_map(|at| fold.parts.get(*at)).collect();
        let holders = parts.iter().map(|part| part.member.clone()).collect();
        let differs = self.in_order(self.differing(&parts));
        Arc::new(Shape { chosen, losers, holders, members_epoch: self.members_epoch, differs })
    }

    fn identify(&mut self, key: &str, chosen: &[Arc<Part>], losers: &[Arc<Part>]) {
        let visible = chosen.first().and_then(|home| home.marker.as_ref()).map(|marker| self.visible_uid(key, marker));
        let visible: Arc<str> = visible.unwrap_or_default().as_ref().into();
        let Some(mut identified) = self.folds.get_mut(key).map(|fold| std::mem::take(&mut fold.identified)) else {
            return;
        };
        for part in chosen {
            let Some(marker) = &part.marker else { continue };
            let is_alone = marker.members.len() == 1 && !marker.is_child;
            let is_known = identified.get(&part.member).is_some_and(|known| {
                *known.own_uid == *part.uid && known.visible_uid == visible && known.is_alone == is_alone
            });
            if is_known {
                continue;
            }
            let identity = Identity { own_uid: part.uid.as_str().into(), visible_uid: Arc::clone(&visible), is_alone };
            let referent = self.referent(key, &part.member);
            identified.insert(part.member.clone(), identity.clone());
            if self.shared.identities.set(&referent, identity) {
                self.changed.push(referent);
            }
        }
        for part in losers {
            let referent = self.referent(key, &part.member);
            identified.remove(&part.member);
            if self.shared.identities.unset(&referent, &part.uid) {
                self.changed.push(referent);
            }
        }
        if let Some(fold) = self.folds.get_mut(key) {
            fold.identified = identified;
        }
    }

    fn show_fold(&mut self, key: &str, shape: &Shape) {
        let held = self.objects.get(key).cloned().filter(|entry| entry.folded);
        if shape.chosen.is_empty() {
            if held.is_some() {
                self.remove_visible(key);
                self.end_life(key);
            }
            return;
        }
        // Should another object's deletion come first, its revision does.
        let deletion = self.shared.revisions.next();
        let revision = self.shared.revisions.next();
        let Some(entry) = self.rewrite_fold(key, shape, revision) else { return };
        match held {
            Some(held) if held.is_same_but_for_revision(&entry) => {}
            Some(held) if held.uid() != entry.uid() => {
                self.remove_visible_at(key, deletion);
                drop(self.put(entry));
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
        let Fold { parts, founders, .. } = fold;
        let children = || parts.iter().filter(|part| part.marker.as_ref().is_some_and(|marker| marker.is_child));
        let is_founder = |part: &Arc<Part>| founders.get(&part.member).is_some_and(|uid| *uid == part.uid);
        if founders.is_empty() || children().any(is_founder) {
            for part in children() {
                if !founders.contains_key(&part.member) {
                    founders.insert(part.member.clone(), part.uid.clone());
                }
            }
            return;
        }
        *founders = children().map(|part| (part.member.clone(), part.uid.clone())).collect();
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

    fn rewrite_fold(&mut self, key: &str, shape: &Shape, revision: Revision) -> Option<Entry> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let entry = self.rewrite_fold_with(key, shape, revision, &mut scratch);
        self.scratch = scratch;
        entry
    }

    fn rewrite_fold_with(&self, key: &str, shape: &Shape, revision: Revision, scratch: &mut Scratch) -> Option<Entry> {
        let parts = &self.folds.get(key)?.parts;
        let body = parts.get(*shape.chosen.first()?)?;
        let document: &str = &body.document;
        let Scratch { edits, found, referent, .. } = scratch;
        let incoming = Incoming::read(&self.spec, document, found).ok()?;
        let facts = &incoming.facts;
        edits.clear();
        let holders = Arc::clone(&shape.holders);
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
                let chosen = shape.chosen.iter().filter_map(|at| parts.get(*at));
                let summands: Vec<&Summand> = chosen.filter_map(|part| part.summand.as_deref()).collect();
                // A body that was read a line above is an object.
                for edit in Summand::fold(document, &summands, self.fold_kind(), &uid, behind).unwrap_or_default() {
                    edits.add(&edit);
                }
            }
            None => {
                let life = self.shared.identities.life_of_living(&self.life_key(key));
                if let Some(uid) =
                    self.shared.naming.shared_uid(&self.spec.gvr.group, &self.spec.gvr.resource, key, life)
                {
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
            type_meta_len: incoming.type_meta_len(&self.spec),
            labels: facts.labels_at.clone(),
            resource_version: facts.resource_version_at.clone(),
            uid: facts.uid_at.clone(),
            metadata: facts.metadata_at.clone(),
            node: facts.node_at.clone(),
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
