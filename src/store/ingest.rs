//! How one document of a member enters the store: compared with what is held, rewritten, and put where it belongs.

use std::{borrow::Cow, sync::Arc};

use crate::{
    config::MemberName,
    placement::{
        fingerprint::Fingerprint,
        marker::{Controller, MARKER_KEY, Marker},
    },
    store::{
        entry::{Draft, Edits, Entry, Holders, Slot},
        fold::Part,
        identities::Referent,
        kind::{KindSpec, id},
        revision::Revision,
        rewrite::{BadObject, Facts, Note, Rewriter},
        sequencer::{Ingested, Scratch, Sequencer, Source},
    },
};
use kubefold_wire::{locate::Found, resource::split_api_version, splice::push_string};

/// Annotation that names the member of a member-local object.
pub(super) const CLUSTER: &str = "kubefold.io/cluster";

/// A document on its way in. Its whole form, which is the one that is kept and compared, has `lead` behind the brace: the
/// kind and apiVersion that items of built-in kinds' lists lack.
pub(super) struct Incoming<'a> {
    /// The member's place among the members.
    pub(super) at: usize,
    pub(super) text: &'a str,
    pub(super) lead: &'a str,
    pub(super) facts: Facts<'a>,
}

impl<'a> Incoming<'a> {
    /// Walks a document once; what else was found stays in `found`.
    pub(super) fn read(
        at: usize,
        spec: &'a KindSpec,
        text: &'a str,
        found: &mut Vec<Found>,
    ) -> Result<Self, BadObject> {
        // A kube-apiserver ends an answer with a line feed, which is no part of the object.
        let text = text.trim_ascii();
        let facts = Facts::read(spec, text, found)?;
        let lead = if facts.has_kind { "" } else { spec.type_meta.as_str() };
        Ok(Self { at, text, lead, facts })
    }

    /// Length of the kind and apiVersion that a built-in kind's whole document begins with, and its list items lack.
    pub(super) fn type_meta_len(&self, spec: &KindSpec) -> usize {
        let leads = !self.lead.is_empty() || self.text.get(1..).is_some_and(|rest| rest.starts_with(&spec.type_meta));
        if leads { spec.type_meta.len() } else { 0 }
    }

    fn whole(&self) -> Arc<str> {
        if self.lead.is_empty() {
            return self.text.into();
        }
        ["{", self.lead, self.text.get(1..).unwrap_or_default()].concat().into()
    }

    /// As much of the document as says who the object is.
    fn identity(&self) -> Arc<str> {
        let (facts, mut out) = (&self.facts, b"{\"metadata\":{\"name\":".to_vec());
        push_string(&facts.name, &mut out);
        if !facts.namespace.is_empty() {
            out.extend_from_slice(b",\"namespace\":");
            push_string(&facts.namespace, &mut out);
        }
        out.extend_from_slice(b",\"uid\":");
        push_string(facts.uid, &mut out);
        out.extend_from_slice(b",\"resourceVersion\":");
        push_string(&facts.member_rv.to_string(), &mut out);
        out.extend_from_slice(b"}}");
        String::from_utf8(out).unwrap_or_default().into()
    }

    fn is_whole(&self, whole: &str) -> bool {
        if self.lead.is_empty() {
            return self.text == whole;
        }
        whole.get(1..).and_then(|rest| rest.strip_prefix(self.lead)) == self.text.get(1..)
    }
}

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

/// Where the state that is held came from.
struct Held<'a> {
    uid: &'a str,
    member_rv: u64,
    incarnation: u32,
}

impl Held<'_> {
    fn judge(&self, facts: &Facts<'_>, incarnation: u32, is_same: impl FnOnce() -> bool) -> Verdict {
        // Revisions of two lives do not compare.
        let current = self.incarnation == incarnation;
        let is_older = current && facts.member_rv < self.member_rv;
        match self.uid == facts.uid {
            false if is_older => Verdict::Dead,
            false => Verdict::Reborn,
            true if is_older => Verdict::Stale,
            true if current && facts.member_rv > self.member_rv => Verdict::Newer,
            // Otherwise the bytes decide.
            true if is_same() => Verdict::Same,
            true => Verdict::Newer,
        }
    }
}

/// How an object is shown.
enum Class {
    MemberLocal,
    Folded(Option<Marker>),
}

impl Sequencer {
    /// Takes one object in. For a live answer, gives where it is visible; `None` where it tells of the past.
    ///
    /// Errors: a document that is no object; nothing is changed then.
    pub(super) fn ingest(
        &mut self,
        member: &MemberName,
        document: &str,
        source: Source,
    ) -> Result<Option<Ingested>, BadObject> {
        let Some(at) = self.members.iter().position(|known| known.name == *member) else { return Ok(None) };
        let mut scratch = std::mem::take(&mut self.scratch);
        let spec = Arc::clone(&self.spec);
        let outcome = Incoming::read(at, &spec, document, &mut scratch.found).map(|incoming| {
            let taken = self.take_in(&incoming, source, &mut scratch);
            if source == Source::Watch
                && let Some(member) = self.members.get_mut(at)
            {
                member.position = member.position.max(incoming.facts.member_rv);
            }
            (taken && source == Source::Live).then(|| self.ingested(&incoming, &scratch))
        });
        self.scratch = scratch;
        outcome
    }

    fn ingested(&self, incoming: &Incoming<'_>, scratch: &Scratch) -> Ingested {
        let fold = self.folds.get(&scratch.own_key);
        let member = self.members.get(incoming.at).map(|state| &state.name);
        let in_fold = fold.zip(member).is_some_and(|(fold, member)| fold.shows(member));
        let key = if in_fold { &scratch.own_key } else { &scratch.member_local_key };
        Ingested { key: key.clone(), own_uid: incoming.facts.uid.to_owned() }
    }

    /// Says whether the store holds this state of the object now, or a later one.
    fn take_in(&mut self, incoming: &Incoming<'_>, source: Source, scratch: &mut Scratch) -> bool {
        let Some(state) = self.members.get(incoming.at) else { return false };
        let (member, position) = (state.name.clone(), state.position);
        self.write_keys(incoming, &member, scratch);
        if self.is_gone(incoming, &scratch.own_key) {
            return false;
        }
        let class = self.class(incoming, &scratch.found);
        let is_part =
            !self.folds.is_empty() && self.folds.get(&scratch.own_key).is_some_and(|fold| fold.part(&member).is_some());
        let (mut verdict, seen) = if is_part {
            self.judge_part(incoming, source, &scratch.own_key)
        } else {
            self.judge_member_local(incoming, source, &scratch.member_local_key)
        };
        if verdict == Verdict::Same && is_part != matches!(class, Class::Folded(_)) {
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
        let is_reborn = verdict == Verdict::Reborn;
        match class {
            Class::MemberLocal => {
                if is_part {
                    self.part_turns_member_local(&scratch.own_key, &member, incoming.facts.uid);
                } else if verdict != Verdict::Newer && !self.shared.identities.is_empty() {
                    self.is_no_part(incoming, &member, &mut scratch.referent);
                }
                if self.parts_only {
                    return true;
                }
                if is_reborn || is_part || self.shared.naming.is_plain() {
                    self.make_way(&scratch.member_local_key, incoming.facts.uid);
                }
                let Scratch { edits, found, referent, .. } = scratch;
                if let Some(entry) = self.rewrite_member_local(incoming, seen, found, edits, referent) {
                    self.put_own(entry);
                }
            }
            Class::Folded(marker) => {
                let part = self.part(incoming, &member, seen, marker);
                if is_part && is_reborn {
                    self.last_part_goes(&scratch.own_key, &part);
                } else if !is_part && self.is_member_local_of(&scratch.member_local_key, &member) {
                    self.member_local_turns_part(&scratch.own_key, &scratch.member_local_key, &part);
                }
                self.put_part(&scratch.own_key, part);
            }
        }
        true
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
    fn is_gone(&self, incoming: &Incoming<'_>, own_key: &str) -> bool {
        let gone = self.members.get(incoming.at).map(|state| &state.gone).filter(|gone| !gone.is_empty());
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
        self.shared.naming.write_member_local(own, member, member_local);
    }

    /// Removes what is visible under a member-local object's key and is another object.
    fn make_way(&mut self, member_local_key: &str, uid: &str) {
        if self.objects.get(member_local_key.as_bytes()).is_some_and(|slot| slot.0.folded || slot.0.uid() != uid) {
            self.remove_visible(member_local_key.as_bytes());
        }
    }

    fn part(&self, incoming: &Incoming<'_>, member: &MemberName, seen: u32, marker: Option<Marker>) -> Part {
        let facts = &incoming.facts;
        let gvr = &self.spec.gvr;
        // What a controller made is no author's.
        let is_compared = marker.as_ref().is_some_and(|marker| marker.members.len() > 1 && !marker.is_child);
        let print = is_compared
            .then(|| Fingerprint::of(incoming.text, &gvr.group, &gvr.resource, self.shared.naming.mask()))
            .flatten();
        Part {
            member: member.clone(),
            document: if self.parts_only { incoming.identity() } else { incoming.whole() },
            uid: facts.uid.to_owned(),
            member_rv: facts.member_rv,
            incarnation: self.members.get(incoming.at).map_or(0, |state| state.incarnation),
            seen,
            marker,
            fingerprint: print.map(Arc::new),
            deleting: facts.deleting,
            created: facts.created.to_owned(),
        }
    }

    fn class(&self, incoming: &Incoming<'_>, found: &[Found]) -> Class {
        let naming = &self.shared.naming;
        let (gvr, facts) = (&self.spec.gvr, &incoming.facts);
        if naming.is_shared(&gvr.group, &gvr.resource, &facts.namespace, &facts.name) {
            return Class::Folded(None);
        }
        if naming.split(&facts.name).is_some() {
            return Class::MemberLocal;
        }
        let marker = Marker::read(facts.labels(incoming.text), facts.annotations(incoming.text))
            .or_else(|| self.child_marker(incoming, found));
        let marker = marker.filter(|marker| {
            let gvk = &self.spec.gvk;
            self.members.get(incoming.at).is_some_and(|member| {
                marker.belongs_to(
                    &gvk.group,
                    &gvk.kind,
                    &facts.namespace,
                    &facts.name,
                    &member.name,
                    &member.cluster_uid,
                )
            })
        });
        marker.map_or(Class::MemberLocal, |marker| Class::Folded(Some(marker)))
    }

    /// The marker of what the controller of a placed object made. Where names are plain there is nothing to fold.
    fn child_marker(&self, incoming: &Incoming<'_>, found: &[Found]) -> Option<Marker> {
        /// The fields of an owner reference that decide.
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Owner<'a> {
            #[serde(borrow)]
            api_version: Cow<'a, str>,
            #[serde(borrow)]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(default)]
            controller: bool,
        }
        let (spec, facts) = (&self.spec, &incoming.facts);
        if spec.parents.is_empty() || self.shared.naming.is_plain() {
            return None;
        }
        let annotations = facts.annotations(incoming.text)?;
        memchr::memmem::find(annotations.as_bytes(), MARKER_KEY.as_bytes())?;
        let owners = found.iter().filter(|item| item.id == id::OWNER);
        let owners = owners.filter_map(|item| incoming.text.get(item.range.clone()));
        let mut owners = owners.filter_map(|json| serde_json::from_str::<Owner<'_>>(json).ok());
        let owner = owners.find(|owner| owner.controller)?;
        let (group, _) = split_api_version(&owner.api_version)?;
        let is_parent = *group == *spec.gvk.group && spec.parents.contains(&owner.kind.as_ref());
        let controller = is_parent.then(|| Controller { group, kind: &owner.kind, name: &owner.name })?;
        Marker::of_child(Some(annotations), &spec.gvk, &facts.name, controller)
    }

    /// Compares with the member-local object that is held, and says which list saw that. Only a list sees: a live answer may be
    /// older than the list that is being read, and would keep alive what the list no longer holds.
    fn judge_member_local(&self, incoming: &Incoming<'_>, source: Source, member_local_key: &str) -> (Verdict, u32) {
        let Some(member) = self.members.get(incoming.at) else { return (Verdict::Dead, 0) };
        let list = if source == Source::List { member.seen } else { 0 };
        let held = self.objects.get(member_local_key.as_bytes()).filter(|slot| !slot.0.folded);
        let Some(Slot(entry)) = held else { return (Verdict::New, list) };
        let from = &entry.provenance;
        let held = Held { uid: entry.uid(), member_rv: from.member_rv(), incarnation: from.incarnation() };
        let is_same = || entry.is_original(incoming.text, incoming.lead);
        let verdict = held.judge(&incoming.facts, member.incarnation, is_same);
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
    fn judge_part(&mut self, incoming: &Incoming<'_>, source: Source, own_key: &str) -> (Verdict, u32) {
        let Some(member) = self.members.get(incoming.at) else { return (Verdict::Dead, 0) };
        let list = if source == Source::List { member.seen } else { 0 };
        let Some(part) = self.folds.get_mut(own_key).and_then(|fold| fold.part_mut(&member.name)) else {
            return (Verdict::New, list);
        };
        let held = Held { uid: &part.uid, member_rv: part.member_rv, incarnation: part.incarnation };
        let verdict = held.judge(&incoming.facts, member.incarnation, || incoming.is_whole(&part.document));
        if matches!(verdict, Verdict::Dead | Verdict::Reborn) {
            return (verdict, list);
        }
        if source == Source::List {
            part.seen = member.seen;
        }
        if verdict == Verdict::Same {
            part.member_rv = incoming.facts.member_rv;
            part.incarnation = member.incarnation;
        }
        (verdict, part.seen)
    }

    /// Splices one member-local document. The entry has a revision of its own.
    pub(super) fn rewrite_member_local(
        &mut self,
        incoming: &Incoming<'_>,
        seen: u32,
        found: &[Found],
        edits: &mut Edits,
        referent: &mut Vec<u8>,
    ) -> Option<Entry> {
        let revision = self.shared.revisions.next();
        let Self { spec, shared, members, .. } = self;
        let member = members.get_mut(incoming.at)?;
        let (document, facts) = (incoming.text, &incoming.facts);
        edits.clear();
        let mut rewriter = Rewriter {
            naming: &shared.naming,
            identities: &shared.identities,
            member: &member.name,
            refs: &mut member.refs,
            referent,
        };
        rewriter.name(facts, edits);
        let cluster = Note { key: CLUSTER, members: std::slice::from_ref(&member.name) };
        Rewriter::annotate(document, facts, &[cluster], edits);
        rewriter.references(document, facts, found, edits);
        edits.put(facts.resource_version_at.clone(), |out| push_revision(revision, out));
        let draft = Draft {
            namespace: &facts.namespace,
            name: &facts.name,
            suffix: shared.naming.suffix(&member.name),
            document,
            lead: incoming.lead,
            type_meta_len: incoming.type_meta_len(spec),
            labels: facts.labels_at.clone(),
            resource_version: facts.resource_version_at.clone(),
            uid: facts.uid_at.clone(),
            metadata: facts.metadata_at.clone(),
            revision,
            holders: Holders::from_elem(member.name.clone(), 1),
            folded: false,
            deleting: facts.deleting,
        };
        let entry = draft.build(edits);
        entry.provenance.set(facts.member_rv, member.incarnation, seen);
        Some(entry)
    }
}

/// Writes a revision as Kubernetes does: a string of digits.
pub(super) fn push_revision(revision: Revision, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to memory has no way to fail.
    let _infallible = write!(out, "\"{revision}\"");
}
