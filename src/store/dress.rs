//! What is done with a member's document before the store is locked: it is parsed, told apart, and given its visible form.

use std::{
    borrow::Cow,
    hash::{BuildHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};

use hashbrown::DefaultHashBuilder;

use crate::{
    config::MemberName,
    placement::{
        fingerprint::Fingerprint,
        fold::{FoldKind, Numbers, Summand},
        marker::{Controller, MARKER_KEY, Marker},
    },
    store::{
        document::Document,
        entry::{Draft, Entry, Holders},
        identities::Identities,
        incoming::{CLUSTER, Incoming, Scratch, push_revision},
        kind::{KindSpec, id},
        naming::Naming,
        part::{Part, placement_of},
        references::{References, ReferredKinds},
        revision::{Revision, Revisions},
        rewrite::{BadObject, Note, Rewriter},
    },
};
use kubefold_wire::{locate::Found, resource::split_api_version};

/// How an object is shown.
#[derive(Debug)]
pub(super) enum Class {
    MemberLocal,
    Folded(Option<Arc<Marker>>),
}

/// A marker names all members of its object: it is long, and each event of a part has it.
static HASHES: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// A number that stands for an object's labels, annotations and owners.
struct Header {
    hash: u64,
}

impl Header {
    /// `None`: nothing in them can be a marker, nor a copy of one.
    fn of(spec: &KindSpec, incoming: &Incoming<'_>, found: &[Found]) -> Option<Self> {
        let (annotations, labels) = (incoming.facts.annotations(incoming.text), incoming.facts.labels(incoming.text));
        let names = |map: &Option<&str>| {
            map.is_some_and(|map| memchr::memmem::find(map.as_bytes(), MARKER_KEY.as_bytes()).is_some())
        };
        (names(&annotations) || spec.is_labelled && names(&labels)).then_some(())?;
        let mut hasher = HASHES.build_hasher();
        (annotations, labels).hash(&mut hasher);
        let owners = found.iter().filter(|item| item.id == id::OWNER);
        owners.for_each(|item| incoming.text.get(item.range.clone()).hash(&mut hasher));
        Some(Self { hash: hasher.finish() })
    }
}

/// A document's visible form.
#[derive(Debug)]
pub(super) enum Dressed {
    /// It was not made: the document is held already, as far as could be seen, or it is none that is kept.
    Nothing,
    /// Of a member-local object: the entry, under some revision.
    Entry(Entry),
    /// Of a folded one: its part.
    Part(Box<Part>),
}

/// A document on its way in, with all that could be done before the lock.
#[derive(Debug)]
pub(super) struct Prepared<'t> {
    pub(super) incoming: Incoming<'t>,
    pub(super) class: Class,
    pub(super) dressed: Dressed,
    pub(super) epoch: Epoch,
}

/// What the forms of documents depend on beside the documents, as two counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    /// Of the store: its naming, and which clusters its members are.
    pub(super) store: u64,
    /// Of the identities.
    pub(super) identities: u64,
}

/// What the documents of one member are dressed with.
#[derive(Clone, Debug)]
pub(super) struct Dressing {
    pub(super) spec: Arc<KindSpec>,
    pub(super) naming: Arc<Naming>,
    pub(super) identities: Arc<Identities>,
    pub(super) revisions: Arc<Revisions>,
    pub(super) kinds: Arc<ReferredKinds>,
    pub(super) member: MemberName,
    /// It alone.
    pub(super) holders: Holders,
    pub(super) cluster_uid: Arc<str>,
    pub(super) parts_only: bool,
    pub(super) epoch: Epoch,
    /// Its digits are the room for the revision that the entry is going to have.
    pub(super) revision: Revision,
}

impl Dressing {
    /// The same with the counters of now.
    pub(super) fn now(&self) -> Self {
        let epoch = Epoch { identities: self.identities.epoch(), ..self.epoch };
        Self { epoch, revision: self.revisions.last(), ..self.clone() }
    }

    /// Reads a document and gives it its form, unless `is_held` says that the store has this state of it.
    ///
    /// Errors: a document that is no object.
    pub(super) fn prepare<'t>(
        &'t self,
        text: &'t str,
        references: &mut References<'_>,
        scratch: &mut Scratch,
        held_part: impl FnOnce(&Incoming<'_>) -> Option<Arc<Part>>,
        is_held: impl FnOnce(&Incoming<'_>, &Class) -> bool,
    ) -> Result<Prepared<'t>, BadObject> {
        let incoming = Incoming::read(&self.spec, text, &mut scratch.found)?;
        let header = Header::of(&self.spec, &incoming, &scratch.found);
        let before = header
            .as_ref()
            .and_then(|_| held_part(&incoming))
            .filter(|part| header.as_ref().is_some_and(|header| part.header == header.hash));
        let class = self.class(&incoming, &scratch.found, before.as_deref());
        let dressed = match &class {
            Class::MemberLocal if self.parts_only => Dressed::Nothing,
            class if is_held(&incoming, class) => Dressed::Nothing,
            Class::MemberLocal => Dressed::Entry(self.member_local(&incoming, references, scratch)),
            Class::Folded(marker) => {
                let header = header.map_or(0, |header| header.hash);
                let numbers = numbers(&scratch.found);
                Dressed::Part(Box::new(self.part(&incoming, &numbers, marker.clone(), header, before.as_deref())))
            }
        };
        Ok(Prepared { incoming, class, dressed, epoch: self.epoch })
    }

    /// `before` is an earlier state of the object as a part, with the same marker or copy of one.
    fn class(&self, incoming: &Incoming<'_>, found: &[Found], before: Option<&Part>) -> Class {
        let (gvr, gvk, facts) = (&self.spec.gvr, &self.spec.gvk, &incoming.facts);
        if self.naming.is_shared(&gvr.group, &gvr.resource, &facts.namespace, &facts.name) {
            return Class::Folded(None);
        }
        if self.naming.split_of(gvr, &facts.name).is_some() {
            return Class::MemberLocal;
        }
        let read = || {
            let marker = Marker::read(facts.labels(incoming.text), facts.annotations(incoming.text));
            let of_placement = marker.map(|marker| (marker.uid.clone(), marker));
            let (placement, marker) = of_placement.or_else(|| self.child_marker(incoming, found))?;
            let marker = match self.identities.moved(&placement) {
                Some(moved) => moved.judge(marker, &self.cluster_uid, facts.uid)?,
                None => marker,
            };
            marker.seen_in(&self.member, &self.cluster_uid).map(Arc::new)
        };
        // It was ours in that state, which is of the same life of the member.
        if let Some(marker) = before.and_then(|before| before.marker.clone()) {
            return Class::Folded(Some(marker));
        }
        let is_ours = |marker: &Arc<Marker>| {
            let (namespace, name) = (&facts.namespace, &facts.name);
            // Both groups have the same events.
            let group = if self.spec.is_event { "" } else { &*gvk.group };
            marker.belongs_to(group, &gvk.kind, namespace, name, &self.member, &self.cluster_uid)
        };
        read().filter(is_ours).map_or(Class::MemberLocal, |marker| Class::Folded(Some(marker)))
    }

    /// The marker of what the controller of a placed object made. Where names are plain there is nothing to fold.
    fn child_marker(&self, incoming: &Incoming<'_>, found: &[Found]) -> Option<(String, Marker)> {
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
        if self.naming.is_plain() {
            return None;
        }
        if spec.is_labelled {
            let labels = facts.labels(incoming.text)?;
            let (namespace, name) = (&facts.namespace, &facts.name);
            return Marker::of_labelled(labels, &spec.gvk, namespace, name, &self.member, &self.cluster_uid);
        }
        if spec.parents.is_empty() {
            return None;
        }
        let annotations = facts.annotations(incoming.text)?;
        memchr::memmem::find(annotations.as_bytes(), MARKER_KEY.as_bytes())?;
        let owners = found.iter().filter(|item| item.id == id::OWNER);
        let owners = owners.filter_map(|item| incoming.text.get(item.range.clone()));
        let mut owners = owners.filter_map(|json| serde_json::from_str::<Owner<'_>>(json).ok());
        let Some(owner) = owners.find(|owner| owner.controller) else {
            return Marker::of_orphan(annotations, &spec.gvk, &facts.name, spec.parents);
        };
        let (group, _) = split_api_version(&owner.api_version)?;
        let is_parent = *group == *spec.gvk.group && spec.parents.contains(&owner.kind.as_ref());
        let controller = is_parent.then(|| Controller { group, kind: &owner.kind, name: &owner.name })?;
        Marker::of_child(Some(annotations), &spec.gvk, &facts.name, controller)
    }

    /// A member's part. Which life of the member it is of, and which list saw it, is noted as it enters.
    fn part(
        &self,
        incoming: &Incoming<'_>,
        numbers: &Numbers,
        marker: Option<Arc<Marker>>,
        header: u64,
        before: Option<&Part>,
    ) -> Part {
        let facts = &incoming.facts;
        // What a controller made is no author's.
        let is_compared = marker.as_ref().is_some_and(|marker| marker.members.len() > 1 && !marker.is_child);
        let kind = FoldKind::known(self.naming.kinds(), &self.spec.gvr, &self.spec.gvk);
        let (document, numbers) = match self.parts_only {
            true => (incoming.identity(), &Numbers::default()),
            false => (incoming.whole(), numbers),
        };
        let summand = marker.as_deref().map(|marker| {
            let mut summand = Summand::at(incoming.text, numbers, kind);
            if let Some(moved) = self.identities.moved(&marker.uid) {
                summand.judge(&moved, &self.cluster_uid);
            }
            Arc::new(summand)
        });
        let print = || Fingerprint::of(incoming.text, &self.spec.gvr, kind, self.naming.mask()).map(Arc::new);
        // Its author has changed nothing: the same labels and annotations, and the same generation where there is one.
        let generation = |summand: &Option<Arc<Summand>>| summand.as_ref().map_or(0, |summand| summand.generation());
        let unchanged = before.filter(|before| {
            before.uid == facts.uid && generation(&summand) > 0 && generation(&before.summand) == generation(&summand)
        });
        let fingerprint = match unchanged {
            _ if !is_compared => None,
            Some(before) => before.fingerprint.clone().or_else(print),
            None => print(),
        };
        Part {
            member: self.member.clone(),
            document: Document::whole(document),
            uid: facts.uid.to_owned(),
            member_rv: facts.member_rv,
            incarnation: 0,
            seen: 0,
            placement: match before {
                Some(before) => before.placement,
                None => marker.as_deref().map(placement_of),
            },
            summand,
            marker,
            header,
            fingerprint,
            deleting: facts.deleting,
            created: facts.created.to_owned(),
        }
    }

    /// Splices one member-local document.
    pub(super) fn member_local(
        &self,
        incoming: &Incoming<'_>,
        references: &mut References<'_>,
        scratch: &mut Scratch,
    ) -> Entry {
        let Scratch { edits, found, referent, .. } = scratch;
        let (document, facts) = (incoming.text, &incoming.facts);
        edits.clear();
        references.hashes.clear();
        let mut rewriter = Rewriter {
            naming: &self.naming,
            identities: &self.identities,
            member: &self.member,
            refs: references,
            referent,
        };
        rewriter.name(self.spec.is_event, facts, edits);
        let cluster = Note { key: CLUSTER, members: std::slice::from_ref(&self.member) };
        Rewriter::annotate(document, facts, &[cluster], edits);
        rewriter.references(document, facts, found, edits);
        edits.put(facts.resource_version_at.clone(), |out| push_revision(self.revision, out));
        let [name, at, suffix, end] = self.naming.pieces(self.spec.is_event, &facts.name, &self.member);
        let draft = Draft {
            name,
            suffix: [at, suffix, end],
            lead: incoming.lead,
            type_meta_len: incoming.type_meta_len(&self.spec),
            revision: self.revision,
            referents: &references.hashes,
            ..facts.draft(document, Arc::clone(&self.holders))
        };
        draft.build(edits)
    }
}

/// Where the numbers lie that a fold adds up.
fn numbers(found: &[Found]) -> Numbers {
    let place = |number: u16| found.iter().find(|item| item.id == number).map(|item| item.range.clone());
    Numbers { generation: place(id::GENERATION), spec: place(id::SPEC), status: place(id::STATUS) }
}
