//! Objects that are one in the fleet and several in the members, shared ones and placed ones: what their parts make is shown.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    placement::{
        fold::{Sums, hide},
        marker::Marker,
        noted::as_written,
    },
    store::{
        entry::{Draft, Edits, Entry, Holders, Key},
        fold::{Fold, Shape, Shown},
        hold::HoldKind,
        identities::{Identity, Referent},
        incoming::{Incoming, Scratch, push_revision},
        notices::{BEHIND, DIFFERS, Notices},
        part::Part,
        parts::{PartList, Parts},
        references::References,
        revision::Revision,
        rewrite::{Facts, Note, Rewriter},
        sequencer::Sequencer,
        template::Template,
    },
};

/// Annotation that names the members of a folded object.
const CLUSTERS: &str = "kubefold.io/clusters";

impl Sequencer {
    /// Puts a part in and shows what that makes.
    pub(super) fn put_part(&mut self, key: &str, part: Part) {
        let order = Arc::clone(&self.shared.naming);
        let part = Arc::new(part);
        let before = self.fold_at(key).put(Arc::clone(&part), order.members());
        if before.is_none() {
            self.note_part(key, &part);
        }
        let Some(fold) = self.folds.get_mut(key) else { return };
        fold.note_first(&part);
        let members = self.members_epoch;
        if before.is_some_and(|before| before.stands_as(&part)) && fold.shape(members).is_some() {
            self.part_goes_on(key, part);
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
    fn part_goes_on(&mut self, key: &str, part: Arc<Part>) {
        let Some(fold) = self.folds.get_mut(key) else { return };
        let Some(shape) = fold.shape(self.members_epoch).cloned().filter(|_| fold.held == 0) else { return };
        let place = fold.place(&part.member);
        let at = shape.chosen.iter().position(|chosen| Some(*chosen) == place);
        let Some((at, mut shown)) = at.zip(fold.shown.take()) else {
            self.refold(key);
            return;
        };
        let (deletion, revision) = (self.shared.revisions.next(), self.shared.revisions.next());
        shown.put(at, part, revision);
        let Some(made) = self.shown_after(key, at, &mut shown, &shape.holders) else {
            self.refold(key);
            return;
        };
        self.show(key, made, shown.parts.clone(), deletion);
        if let Some(fold) = self.folds.get_mut(key) {
            fold.shown = Some(shown);
        }
    }

    /// What is shown after the part at `at` was put in.
    fn shown_after(&mut self, key: &str, at: usize, shown: &mut Shown, holders: &Holders) -> Option<Made> {
        let Shown { parts, sums, template } = shown;
        let marker = parts.list.first()?.marker.as_deref();
        let (is_shared, uid) = (marker.is_none(), self.uid_of(key, marker));
        let is_of_now = |shown: &str| at > 0 && uid.as_deref().is_none_or(|uid| uid == shown);
        match template {
            Some(template) if is_of_now(template.uid()) => {
                return Some(Made::New(template.with(sums, parts, self.fold_kind(), &mut self.scratch.edits)));
            }
            // Of a shared object the body alone is shown.
            None if is_shared && self.objects.get(key).is_some_and(|held| held.folded && is_of_now(held.uid())) => {
                return Some(Made::AsBefore);
            }
            Some(_) | None => {}
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let made = self.made(parts, sums, holders, uid.as_deref(), &mut scratch);
        self.scratch = scratch;
        let (entry, made) = made?;
        *template = made;
        Some(Made::New(entry))
    }

    /// Shows up to `max` objects whose parts came in while the store filled. Says whether there are more.
    ///
    /// Also those that a writer holds back: whoever looks first would take them for deleted. Not those that are withheld.
    pub(super) fn show_unshown(&mut self, max: usize) -> bool {
        for _ in 0..max {
            let Some(key) = self.unshown.pop_first() else { return false };
            let shows = |fold: &Fold| fold.held == 0 || (fold.withheld == 0 && !fold.parts.is_empty());
            if self.folds.get(key.as_str()).is_some_and(shows) {
                self.refold_unless(&key, false);
            }
        }
        !self.unshown.is_empty()
    }

    /// Drops a part that is gone and shows what is left.
    pub(super) fn remove_part(&mut self, key: &str, member: &MemberName) {
        let Some(fold) = self.folds.get_mut(key) else { return };
        let Some(part) = fold.take(member) else { return };
        self.forget_part(key, member);
        let Some(fold) = self.folds.get_mut(key) else { return };
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
        fold.unexpose(member);
        fold.first.retain(|first| first.member != *member);
        self.forget_part(key, member);
        self.news = true;
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
        self.fold_at(key).exposed.push(part.member.clone());
    }

    /// Ends a shared object's life when its only holder has another object in its place.
    pub(super) fn last_part_goes(&mut self, key: &str, successor: &Part) {
        let is_last = self.folds.get(key).is_some_and(|fold| fold.parts.len() == 1 && fold.held == 0);
        if successor.marker.is_none() && is_last {
            self.remove_part(key, &successor.member);
        }
    }

    /// The fold of a key, a new one if there is none.
    pub(super) fn fold_at(&mut self, key: &str) -> &mut Fold {
        let key = match self.keys_of_folds.get(key) {
            Some(known) => known.clone(),
            None => Key::from(key),
        };
        if !self.folds.contains_key(&key) {
            self.keys_of_folds.insert(key.clone());
        }
        self.folds.entry(key).or_default()
    }

    fn note_part(&mut self, key: &str, part: &Part) {
        let Some(key) = self.keys_of_folds.get(key).cloned() else { return };
        if part.marker.is_some() {
            self.placed.insert(key.clone());
        }
        if let Some(state) = self.member_mut(&part.member) {
            state.parts.insert(key);
        }
    }

    fn forget_part(&mut self, key: &str, member: &MemberName) {
        if let Some(state) = self.member_mut(member) {
            state.parts.remove(key);
        }
    }

    fn referent(&self, key: &str, member: &MemberName) -> Referent {
        let (namespace, name) = if self.spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        Referent::new(member, &self.spec.gvk.group, &self.spec.gvk.kind, namespace, name)
    }

    /// Shows what the parts under a key make, unless a writer holds it back.
    pub(super) fn refold(&mut self, key: &str) {
        let is_held = self.folds.get(key).is_some_and(|fold| fold.held > 0);
        self.refold_unless(key, is_held);
    }

    fn refold_unless(&mut self, key: &str, is_held: bool) {
        let Some(fold) = self.folds.get(key) else { return };
        let shape = self.shape(fold);
        let parts = |places: &[usize]| -> Vec<Arc<Part>> {
            places.iter().filter_map(|at| fold.parts.get(*at)).map(Arc::clone).collect()
        };
        let (chosen, losers) = (parts(&shape.chosen), parts(&shape.losers));
        // Also while it is held: what refers to a part shall know who that is from the first.
        self.identify(key, &chosen, &losers);
        let Some(fold) = self.folds.get_mut(key) else { return };
        fold.take_shape(&shape);
        if is_held {
            if !self.opened {
                self.unshown.insert(key.to_owned());
            }
            return;
        }
        self.unshown.remove(key);
        self.show_fold(key, &shape);
        let Some(fold) = self.folds.get_mut(key) else { return };
        let exposed_before = std::mem::take(&mut fold.exposed);
        fold.exposed = losers.iter().map(|part| part.member.clone()).collect();
        if fold.parts.is_empty() {
            self.folds.remove(key);
            self.keys_of_folds.remove(key);
            self.placed.remove(key);
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
        if self.spec.is_event {
            // Nothing refers to an event.
            return;
        }
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
        if shape.chosen.is_empty() {
            if self.objects.get(key).is_some_and(|entry| entry.folded) {
                self.remove_visible(key);
                self.end_life(key);
            }
            return;
        }
        // Should another object's deletion come first, its revision does.
        let (deletion, revision) = (self.shared.revisions.next(), self.shared.revisions.next());
        let Some(fold) = self.folds.get(key) else { return };
        let list: Vec<Arc<Part>> = shape.chosen.iter().filter_map(|at| fold.parts.get(*at)).map(Arc::clone).collect();
        let Notices { behind, differs, .. } = self.notices(key);
        let parts = Parts { list: PartList::of(&list), behind: behind.into(), differs: differs.into(), revision };
        let sums = Sums::of(&parts.list);
        let mut scratch = std::mem::take(&mut self.scratch);
        let uid = self.uid_of(key, list.first().and_then(|body| body.marker.as_deref()));
        let made = self.made(&parts, &sums, &shape.holders, uid.as_deref(), &mut scratch);
        self.scratch = scratch;
        let Some((entry, template)) = made else { return };
        self.show(key, Made::New(entry), parts.clone(), deletion);
        if let Some(fold) = self.folds.get_mut(key) {
            fold.shown = Some(Shown { parts, sums, template });
        }
    }

    /// Shows what these parts make.
    fn show(&mut self, key: &str, made: Made, parts: Parts, deletion: Revision) {
        let held = self.objects.get(key).cloned().filter(|entry| entry.folded);
        let made = match (&held, made) {
            (Some(held), Made::New(entry)) if held.is_same_but_for_revision(&entry) => Made::AsBefore,
            (_, made) => made,
        };
        match (held, made) {
            (Some(held), Made::AsBefore) => {
                // Who sees some of the parts alone may see something else.
                if parts.list.len() > 1 && held.parts.as_ref().is_some_and(|before| !parts.are(before)) {
                    self.put_parts(&held, parts);
                }
            }
            (None, Made::AsBefore) => {}
            (held, Made::New(mut entry)) => {
                if held.is_some_and(|held| held.uid() != entry.uid()) {
                    self.remove_visible_at(key, deletion);
                }
                entry.parts = Some(Arc::new(parts));
                drop(self.put(entry));
            }
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

    /// The UID that is shown of an object with several parts; `None`: its body's own.
    fn uid_of(&self, key: &str, marker: Option<&Marker>) -> Option<String> {
        if let Some(marker) = marker {
            return Some(self.visible_uid(key, marker).into_owned());
        }
        let life = self.shared.identities.life_of_living(&self.life_key(key));
        self.shared.naming.shared_uid(&self.spec.gvr.group, &self.spec.gvr.resource, key, life)
    }

    /// What some parts of an object make.
    pub(super) fn folded(
        &self,
        parts: Parts,
        holders: &Holders,
        uid: Option<&str>,
        scratch: &mut Scratch,
    ) -> Option<Entry> {
        let sums = Sums::of(&parts.list);
        let (mut entry, _) = self.made(&parts, &sums, holders, uid, scratch)?;
        entry.parts = Some(Arc::new(parts));
        Some(entry)
    }

    /// The same, and of a placed object with several parts the template that it was made from: an event of the only part
    /// would make it anew.
    fn made(
        &self,
        parts: &Parts,
        sums: &Sums,
        holders: &Holders,
        uid: Option<&str>,
        scratch: &mut Scratch,
    ) -> Option<(Entry, Option<Template>)> {
        let body = self.body(parts, holders, uid, scratch)?;
        let Some(marker) = &parts.list.first()?.marker else { return Some((body, None)) };
        if marker.is_of_labels() {
            return Some((self.united(body, parts, scratch), None));
        }
        let template = Template::of(body)?;
        let entry = template.with(sums, parts, self.fold_kind(), &mut scratch.edits);
        Some((entry, Some(template).filter(|_| parts.list.len() > 1)))
    }

    /// The first part's document as its author wrote it and as it is shown, but for what is the sum of all.
    fn body(&self, parts: &Parts, holders: &Holders, uid: Option<&str>, scratch: &mut Scratch) -> Option<Entry> {
        let body = parts.list.first()?;
        let text = body.document.text();
        let written = body.marker.as_ref().and_then(|marker| as_written(&text, marker.is_child));
        let document: &str = written.as_deref().unwrap_or(&text);
        let Scratch { edits, found, referent, .. } = scratch;
        let incoming = Incoming::read(&self.spec, document, found).ok()?;
        let facts = &incoming.facts;
        edits.clear();
        note(parts, document, facts, holders, edits);
        let mut references = References::new(&self.kinds, &body.member);
        let mut rewriter = Rewriter {
            naming: &self.shared.naming,
            identities: &self.shared.identities,
            member: &body.member,
            refs: &mut references,
            referent,
        };
        rewriter.references(document, facts, found, edits);
        edits.put(facts.resource_version_at.clone(), |out| push_revision(parts.revision, out));
        match (body.marker.is_some(), uid) {
            (true, uid) => {
                // A body that was read a few lines above is an object.
                let hidden = hide(document, uid.unwrap_or_default()).unwrap_or_default();
                hidden.iter().for_each(|edit| edits.add(edit));
                let moved = body.marker.as_ref().and_then(|marker| self.shared.identities.moved(&marker.uid));
                if let (Some(at), Some(created)) =
                    (&facts.created_at, moved.as_ref().and_then(|moved| moved.created.as_deref()))
                {
                    edits.put(at.clone(), |out| kubefold_wire::splice::push_string(created, out));
                }
            }
            (false, Some(uid)) => edits.put(facts.uid_at.clone(), |out| kubefold_wire::splice::push_string(uid, out)),
            (false, None) => {}
        }
        let draft = Draft {
            type_meta_len: incoming.type_meta_len(&self.spec),
            revision: parts.revision,
            folded: true,
            referents: &references.hashes,
            ..facts.draft(document, Arc::clone(holders))
        };
        Some(draft.build(edits))
    }

    /// Shows a part of a younger placement as the member-local object that it is in its member.
    fn expose(&mut self, part: &Part) {
        let Some(at) = self.members.iter().position(|member| member.name == part.member) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let spec = Arc::clone(&self.spec);
        let deletion = self.shared.revisions.next();
        let entry = Incoming::read(&spec, &part.document.text(), &mut scratch.found)
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
    pub(super) fn hold(&mut self, key: &str, kind: HoldKind) {
        let fold = self.fold_at(key);
        fold.held += 1;
        fold.withheld += u32::from(kind == HoldKind::HalfMade);
    }

    /// Releases a key, and shows what its parts make now.
    pub(super) fn release(&mut self, key: &str, kind: HoldKind) {
        if let Some(fold) = self.folds.get_mut(key) {
            fold.held = fold.held.saturating_sub(1);
            fold.withheld = fold.withheld.saturating_sub(u32::from(kind == HoldKind::HalfMade));
            if fold.held == 0 {
                fold.first.clear();
            }
        }
        self.refold(key);
    }

    /// Shows what the parts of a key first became under the hold that ends next. A part that is gone since is shown once more, as
    /// what it was before: of an object that is deleted somebody may wait for that.
    pub(super) fn show_first(&mut self, key: &str, kind: HoldKind) {
        let order = Arc::clone(&self.shared.naming);
        let Some(fold) = self.folds.get_mut(key).filter(|fold| fold.held == 1) else { return };
        let (mut now, mut gone) = (Vec::new(), Vec::new());
        for part in std::mem::take(&mut fold.first) {
            let member = part.member.clone();
            match fold.part(&member).map(|there| there.uid == part.uid) {
                Some(true) => now.extend(fold.put(part, order.members())),
                // It is another object by now.
                Some(false) => {}
                // The UID of a child is another one as soon as all its parts are gone.
                None if part.marker.as_ref().is_some_and(|marker| marker.is_child) => {}
                None if !self.members.iter().any(|left| left.name == member) => {}
                None => {
                    fold.put(part, order.members());
                    gone.push(member);
                }
            }
        }
        fold.shape = None;
        self.refold_unless(key, kind == HoldKind::HalfMade);
        let Some(fold) = self.folds.get_mut(key) else { return };
        for part in now {
            fold.put(part, order.members());
        }
        fold.shape = None;
        for member in gone {
            self.remove_part(key, &member);
        }
    }
}

/// What parts make.
enum Made {
    /// Nothing else than is shown.
    AsBefore,
    New(Entry),
}

/// Notes on an object who holds it, who is behind and who differs.
fn note(parts: &Parts, document: &str, facts: &Facts<'_>, holders: &[MemberName], edits: &mut Edits) {
    let notes = [(CLUSTERS, holders), (BEHIND, &parts.behind), (DIFFERS, &parts.differs)];
    let notes = notes.map(|(key, members)| Note { key, members });
    let said: SmallVec<[Note<'_>; 3]> = notes.into_iter().filter(|note| !note.members.is_empty()).collect();
    Rewriter::annotate(document, facts, &said, edits);
}
