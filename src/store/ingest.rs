//! How one document of a member enters the store: compared with what is held, rewritten, and put where it belongs.

use crate::{
    config::MemberName,
    store::{
        dress::{Class, Dressed, Dressing, Prepared},
        entry::Entry,
        identities::Referent,
        incoming::{Incoming, Scratch},
        part::Part,
        references::References,
        rewrite::Facts,
        sequencer::{Ingested, Sequencer, Source},
    },
};

/// How an incoming state compares with the one that is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Older than what is held.
    Stale,
    /// Of an object that lived before the one that is held.
    Dead,
    /// Nothing new; the provenance is refreshed.
    Same,
    /// A newer state of the same object.
    Newer,
    /// Another object under the same name.
    Reborn,
    /// Nothing is held.
    New,
}

/// What came of comparing a document with what is held.
struct Judged {
    verdict: Verdict,
    /// The store holds it as a part.
    is_part: bool,
    /// The list that saw it.
    seen: u32,
}

/// Where the state that is held came from.
struct Held<'a> {
    uid: &'a str,
    member_rv: u64,
    incarnation: u32,
}

impl Held<'_> {
    fn judge(&self, facts: &Facts<'_>, incarnation: u32, source: Source, is_same: impl FnOnce() -> bool) -> Verdict {
        // Revisions of two lives do not compare.
        let current = self.incarnation == incarnation;
        let is_older = current && facts.member_rv < self.member_rv;
        match self.uid == facts.uid {
            false if is_older => Verdict::Dead,
            false => Verdict::Reborn,
            true if is_older => Verdict::Stale,
            true if current && facts.member_rv > self.member_rv => Verdict::Newer,
            // Several API servers of a member may write one state in different ways. Only a list lets bytes decide: they
            // differ when the kind's defaults do.
            true if current && source != Source::List => Verdict::Same,
            true if is_same() => Verdict::Same,
            true => Verdict::Newer,
        }
    }
}

impl Sequencer {
    /// Takes one object in. For a live answer, gives where it is visible; `None` where it is older than what is known.
    pub(super) fn commit(
        &mut self,
        member: &MemberName,
        mut prepared: Prepared<'_>,
        source: Source,
    ) -> Option<Ingested> {
        let at = self.index_of(member)?;
        let is_filled = self.opened || self.recognizing.as_ref().is_some_and(|recognizing| recognizing.is_filled);
        self.is_filling = source == Source::List && !is_filled && !self.parts_only;
        let mut scratch = std::mem::take(&mut self.scratch);
        if self.is_outdated(&prepared) {
            self.prepare_again(at, &mut prepared, &mut scratch);
        }
        let (uid, member_rv) = (prepared.incoming.facts.uid, prepared.incoming.facts.member_rv);
        let taken = self.take_in(at, prepared, source, &mut scratch);
        if source == Source::Watch
            && let Some(member) = self.members.get_mut(at)
        {
            member.position = member.position.max(member_rv);
            member.events += 1;
        }
        let ingested = (taken && source == Source::Live).then(|| self.ingested(at, uid, &scratch));
        self.scratch = scratch;
        ingested
    }

    /// Says whether what a document was dressed with has changed since, as far as that concerns it.
    fn is_outdated(&self, prepared: &Prepared<'_>) -> bool {
        let Prepared { epoch, dressed, .. } = prepared;
        if epoch.store != self.epoch {
            return true;
        }
        let Dressed::Entry(entry) = dressed else { return false };
        self.shared.identities.epoch() != epoch.identities
            && self.shared.identities.changed_since(epoch.identities, entry.referents())
    }

    fn prepare_again(&self, at: usize, prepared: &mut Prepared<'_>, scratch: &mut Scratch) {
        let Some(dressing) = self.dressing(at) else { return };
        let mut references = References::new(&dressing.kinds, &dressing.member);
        // What was an object once is one again.
        if let Ok(again) = dressing.prepare(prepared.incoming.text, &mut references, scratch, |_| None, |_, _| false) {
            (prepared.class, prepared.dressed) = (again.class, again.dressed);
        }
    }

    fn ingested(&self, at: usize, own_uid: &str, scratch: &Scratch) -> Ingested {
        let fold = self.folds.get(scratch.own_key.as_str());
        let member = self.members.get(at).map(|state| &state.name);
        let in_fold = fold.zip(member).is_some_and(|(fold, member)| fold.shows(member));
        let key = if in_fold { &scratch.own_key } else { &scratch.member_local_key };
        Ingested { key: key.clone(), own_uid: own_uid.to_owned() }
    }

    /// Says whether the store holds this state of the object now, or a later one.
    fn take_in(&mut self, at: usize, mut prepared: Prepared<'_>, source: Source, scratch: &mut Scratch) -> bool {
        let incoming = &prepared.incoming;
        let Some(state) = self.members.get(at) else { return false };
        let (member, position) = (state.name.clone(), state.position);
        self.write_keys(incoming, &member, scratch);
        if self.is_gone(at, incoming, &scratch.own_key) {
            return false;
        }
        let is_part = !self.folds.is_empty()
            && self.folds.get(scratch.own_key.as_str()).is_some_and(|fold| fold.part(&member).is_some());
        let (mut verdict, seen) = if is_part {
            self.judge_part(at, incoming, source, &scratch.own_key)
        } else {
            self.judge_member_local(at, incoming, source, &scratch.member_local_key)
        };
        if verdict == Verdict::Same && is_part != matches!(prepared.class, Class::Folded(_)) {
            // The same bytes may count otherwise: a marker does in one cluster and not in another.
            verdict = Verdict::Newer;
        }
        let is_past = source == Source::Live && incoming.facts.member_rv <= position;
        match verdict {
            Verdict::Stale | Verdict::Same => return true,
            Verdict::Dead => return false,
            // What is absent, and not above the position, was deleted since.
            Verdict::New | Verdict::Reborn if is_past => return false,
            Verdict::New | Verdict::Reborn | Verdict::Newer => {}
        }
        let is_kept = !self.parts_only || matches!(prepared.class, Class::Folded(_));
        if is_kept && matches!(prepared.dressed, Dressed::Nothing) {
            self.prepare_again(at, &mut prepared, scratch);
        }
        self.put_prepared(at, prepared, Judged { verdict, is_part, seen }, scratch);
        if source != Source::List {
            self.note_change(&member, &scratch.own_key);
        }
        true
    }

    /// Puts a document where it belongs: as a member-local object or as a part.
    fn put_prepared(&mut self, at: usize, prepared: Prepared<'_>, judged: Judged, scratch: &mut Scratch) {
        let Judged { verdict, is_part, seen } = judged;
        let Prepared { incoming, dressed, .. } = prepared;
        let Some(member) = self.members.get(at).map(|state| state.name.clone()) else { return };
        let is_reborn = verdict == Verdict::Reborn;
        if let Dressed::Part(part) = dressed {
            let incarnation = self.members.get(at).map_or(0, |state| state.incarnation);
            let part = Part { incarnation, seen, ..*part };
            if is_part && is_reborn {
                self.last_part_goes(&scratch.own_key, &part);
            } else if !is_part && self.is_member_local_of(&scratch.member_local_key, &member) {
                self.member_local_turns_part(&scratch.own_key, &scratch.member_local_key, &part);
            }
            self.put_part(&scratch.own_key, part);
            return;
        }
        if is_part {
            self.part_turns_member_local(&scratch.own_key, &member, incoming.facts.uid);
        } else if verdict != Verdict::Newer && !self.shared.identities.is_empty() {
            self.is_no_part(&incoming, &member, &mut scratch.referent);
        }
        let Dressed::Entry(entry) = dressed else { return };
        if is_reborn || is_part || self.shared.naming.is_plain() {
            self.make_way(&scratch.member_local_key, incoming.facts.uid);
        }
        let Some(entry) = self.stamped(at, entry, &incoming, seen, scratch) else { return };
        if is_part || verdict != Verdict::Newer {
            self.put_own(entry);
        } else {
            drop(self.put(entry));
        }
    }

    /// An entry with the next revision. One that has no room for it is dressed again.
    fn stamped(
        &self,
        at: usize,
        mut entry: Entry,
        incoming: &Incoming<'_>,
        seen: u32,
        scratch: &mut Scratch,
    ) -> Option<Entry> {
        if !entry.stamp(self.shared.revisions.next()) {
            Incoming::read(&self.spec, incoming.text, &mut scratch.found).ok()?;
            return self.rewrite_member_local(at, incoming, seen, scratch);
        }
        let incarnation = self.members.get(at)?.incarnation;
        entry.provenance.set(incoming.facts.member_rv, incarnation, seen);
        Some(entry)
    }

    /// An object that was a part may come back as a member-local object: restored, or in a member that is another cluster now.
    fn is_no_part(&mut self, incoming: &Incoming<'_>, member: &MemberName, referent: &mut Vec<u8>) {
        let (gvk, facts) = (&self.spec.gvk, &incoming.facts);
        Referent::write(member, &gvk.group, &gvk.kind, &facts.namespace, &facts.name, referent);
        if self.shared.identities.get(referent, Some(facts.uid)).is_some() {
            let referent = Referent::new(member, &gvk.group, &gvk.kind, &facts.namespace, &facts.name);
            self.shared.identities.unset(&referent, facts.uid);
            self.changed.push(referent);
        }
    }

    /// Says whether a live answer has told already that this is no more.
    fn is_gone(&self, at: usize, incoming: &Incoming<'_>, own_key: &str) -> bool {
        let gone = self.members.get(at).map(|state| &state.gone).filter(|gone| !gone.is_empty());
        gone.and_then(|gone| gone.get(own_key)).is_some_and(|gone_at| incoming.facts.member_rv <= *gone_at)
    }

    fn write_keys(&self, incoming: &Incoming<'_>, member: &MemberName, scratch: &mut Scratch) {
        let (own, member_local) = (&mut scratch.own_key, &mut scratch.member_local_key);
        own.clear();
        if !incoming.facts.namespace.is_empty() {
            own.push_str(&incoming.facts.namespace);
            own.push('/');
        }
        own.push_str(&incoming.facts.name);
        member_local.clear();
        self.shared.naming.write_member_local(self.spec.is_event, own, member, member_local);
    }

    /// Removes what is visible under a member-local object's key and is another object.
    fn make_way(&mut self, member_local_key: &str, uid: &str) {
        if self.objects.get(member_local_key).is_some_and(|entry| entry.folded || entry.uid() != uid) {
            self.remove_visible(member_local_key);
        }
    }

    /// Compares with the member-local object that is held, and says which list saw that. Only a list sees: a live answer may be
    /// older than the list that is being read, and would keep alive what the list no longer holds.
    fn judge_member_local(
        &self,
        at: usize,
        incoming: &Incoming<'_>,
        source: Source,
        member_local_key: &str,
    ) -> (Verdict, u32) {
        let Some(member) = self.members.get(at) else { return (Verdict::Dead, 0) };
        let list = if source == Source::List { member.seen } else { 0 };
        let held = self.objects.get(member_local_key).filter(|entry| !entry.folded);
        let Some(entry) = held else { return (Verdict::New, list) };
        let from = &entry.provenance;
        let held = Held { uid: entry.uid(), member_rv: from.member_rv(), incarnation: from.incarnation() };
        let is_same = || entry.is_original(incoming.text, incoming.lead);
        let verdict = held.judge(&incoming.facts, member.incarnation, source, is_same);
        if matches!(verdict, Verdict::Dead | Verdict::Reborn) {
            return (verdict, list);
        }
        let seen = if source == Source::List { member.seen } else { from.seen() };
        from.see(seen);
        if verdict == Verdict::Same {
            from.set(incoming.facts.member_rv, member.incarnation, seen);
        }
        (verdict, seen)
    }

    /// The same for a part.
    fn judge_part(&mut self, at: usize, incoming: &Incoming<'_>, source: Source, own_key: &str) -> (Verdict, u32) {
        let Some(member) = self.members.get(at) else { return (Verdict::Dead, 0) };
        let list = if source == Source::List { member.seen } else { 0 };
        let Some(fold) = self.folds.get_mut(own_key) else { return (Verdict::New, list) };
        let Some(part) = fold.part(&member.name) else { return (Verdict::New, list) };
        let held = Held { uid: &part.uid, member_rv: part.member_rv, incarnation: part.incarnation };
        let verdict =
            held.judge(&incoming.facts, member.incarnation, source, || incoming.is_whole(&part.document.text()));
        if matches!(verdict, Verdict::Dead | Verdict::Reborn) {
            return (verdict, list);
        }
        let seen = if source == Source::List { member.seen } else { part.seen };
        // Others may hold on to the part as it is: it is copied then.
        if (source == Source::List || verdict == Verdict::Same)
            && let Some(part) = fold.part_mut(&member.name)
        {
            part.seen = seen;
            if verdict == Verdict::Same {
                part.member_rv = incoming.facts.member_rv;
                part.incarnation = member.incarnation;
            }
        }
        (verdict, seen)
    }

    /// Dresses one member-local document that is walked already, as the state of the next revision.
    pub(super) fn rewrite_member_local(
        &self,
        at: usize,
        incoming: &Incoming<'_>,
        seen: u32,
        scratch: &mut Scratch,
    ) -> Option<Entry> {
        let revision = self.shared.revisions.next();
        let dressing = Dressing { revision, ..self.dressing(at)? };
        let mut references = References::new(&dressing.kinds, &dressing.member);
        let entry = dressing.member_local(incoming, &mut references, scratch);
        entry.provenance.set(incoming.facts.member_rv, self.members.get(at)?.incarnation, seen);
        Some(entry)
    }
}
