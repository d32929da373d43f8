//! Objects that are one in the fleet and several in the members: shared ones and placed ones.

use std::sync::Arc;

use crate::{
    config::MemberName,
    placement::{
        fold::{PartView, fold},
        marker::Marker,
    },
    store::{
        dress::{Facts, Wardrobe},
        entry::{Draft, Entry, Holders},
        identities::{Identity, Referent},
        revision::Revision,
        sequencer::{Sequencer, push_revision, type_meta_len},
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
    /// It carries a `deletionTimestamp`.
    pub deleting: bool,
    pub(super) created: String,
}

/// All parts under one key.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// In configuration order.
    parts: Vec<Part>,
    /// How many writers ask that nothing be shown yet.
    pub(super) held: u32,
    /// Parts of a second placement under this key: they are shown as natives.
    exposed: Vec<MemberName>,
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

    /// Puts the parts in configuration order; one of a member that is leaving comes last.
    pub(super) fn sort(&mut self, order: &[MemberName]) {
        self.parts.sort_by_key(|part| order.iter().position(|name| *name == part.member).unwrap_or(usize::MAX));
    }

    /// The parts that make the visible object, its body's first; the others are a younger placement's.
    fn chosen(&self) -> Vec<&Part> {
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

    /// Of several placements under one key the one with the older home bears the name.
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
    /// Drops one part and shows what is left.
    pub(super) fn remove_part(&mut self, key: &str, member: &MemberName) {
        let referent = self.referent(key, member);
        let Some(fold) = self.folds.get_mut(key) else { return };
        let placed = fold.part(member).is_some_and(|part| part.marker.is_some());
        fold.parts.retain(|part| part.member != *member);
        if placed {
            self.shared.identities.gone(referent);
        }
        self.refold(key);
    }

    fn referent(&self, key: &str, member: &MemberName) -> Referent {
        let (namespace, name) = if self.spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        Referent::new(member, &self.spec.gvk.group, &self.spec.gvk.kind, namespace, name)
    }

    /// Shows what the parts under a key make, unless a writer holds it back.
    pub(super) fn refold(&mut self, key: &str) {
        let Some(fold) = self.folds.get(key) else { return };
        if fold.held > 0 {
            return;
        }
        let chosen: Vec<Part> = fold.chosen().into_iter().cloned().collect();
        let exposed_before = fold.exposed.clone();
        let losers: Vec<Part> = fold
            .parts
            .iter()
            .filter(|part| !chosen.iter().any(|chosen| chosen.member == part.member))
            .cloned()
            .collect();
        self.show_fold(key, &chosen);
        for member in exposed_before.iter().filter(|name| !losers.iter().any(|part| part.member == **name)) {
            let native = self.native_key(key, member);
            self.remove_visible(native.as_bytes());
        }
        for loser in &losers {
            self.expose(loser);
        }
        if let Some(fold) = self.folds.get_mut(key) {
            fold.exposed = losers.into_iter().map(|part| part.member).collect();
            if fold.parts.is_empty() {
                self.folds.remove(key);
            }
        }
    }

    fn show_fold(&mut self, key: &str, chosen: &[Part]) {
        let held = self.objects.get(key.as_bytes()).map(|slot| Arc::clone(&slot.0));
        let Some(body) = chosen.first() else {
            let shared = self.is_shared_key(key);
            if held.is_some() {
                self.remove_visible(key.as_bytes());
                if shared {
                    self.shared.identities.raise_life(&self.life_key(key));
                }
            }
            return;
        };
        for part in chosen {
            if let Some(marker) = &part.marker {
                let referent = self.referent(key, &part.member);
                let identity = Identity { own_uid: part.uid.clone(), visible_uid: marker.uid.clone() };
                if self.shared.identities.set(&referent, identity) {
                    self.changed.push(referent);
                }
            }
        }
        // First with the revision that is shown: when nothing else differs, nothing happened.
        let shown = held.as_ref().map_or(Revision(0), |entry| entry.revision);
        let Some(trial) = self.dress_fold(key, body, chosen, shown) else { return };
        match held {
            Some(held) if held.is_same_but_for_revision(&trial) => {}
            Some(held) if held.uid() != trial.uid() => {
                self.remove_visible(key.as_bytes());
                self.put_fold(key, body, chosen);
            }
            Some(_) | None => self.put_fold(key, body, chosen),
        }
    }

    fn put_fold(&mut self, key: &str, body: &Part, chosen: &[Part]) {
        let revision = self.shared.revisions.next();
        if let Some(entry) = self.dress_fold(key, body, chosen, revision) {
            self.put(entry);
        }
    }

    fn is_shared_key(&self, key: &str) -> bool {
        let (namespace, name) = if self.spec.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
        self.shared.naming.is_shared(&self.spec.gvr.group, &self.spec.gvr.resource, namespace, name)
    }

    fn life_key(&self, key: &str) -> String {
        format!("{}/{}/{key}", self.spec.gvr.group, self.spec.gvr.resource)
    }

    fn dress_fold(&mut self, key: &str, body: &Part, chosen: &[Part], revision: Revision) -> Option<Entry> {
        let (mut edits, mut found, buffer) = self.scratch();
        let mut refs = self.refs_of(&body.member);
        let spec = Arc::clone(&self.spec);
        let document: &str = &body.document;
        let entry = Facts::read(&spec, document, &mut found).ok().map(|facts| {
            edits.clear();
            let mut wardrobe = Wardrobe {
                naming: &self.shared.naming,
                identities: &self.shared.identities,
                member: &body.member,
                refs: &mut refs,
                buffer,
            };
            let holders: Holders = chosen.iter().map(|part| part.member.clone()).collect();
            let names: Vec<&str> = holders.iter().map(MemberName::as_str).collect();
            Wardrobe::annotate(document, &facts, CLUSTERS, &names.join(","), &mut edits);
            wardrobe.references(document, &facts, &found, &mut edits);
            edits.put(facts.resource_version_at.clone(), |out| push_revision(revision, out));
            match &body.marker {
                Some(marker) => {
                    let views: Vec<PartView<'_>> =
                        chosen.iter().map(|part| PartView { member: &part.member, json: &part.document }).collect();
                    // A body that was read a line above is an object.
                    for edit in fold(&views, self.fold_kind(), &marker.uid).unwrap_or_default() {
                        edits.add(&edit);
                    }
                }
                None => {
                    let life = self.shared.identities.life(&self.life_key(key));
                    let gvr = &spec.gvr;
                    if let Some(uid) = self.shared.naming.shared_uid(&gvr.group, &gvr.resource, key, life) {
                        edits.put(facts.uid_at.clone(), |out| crate::wire::splice::push_string(&uid, out));
                    }
                }
            }
            let draft = Draft {
                namespace: &facts.namespace,
                name: &facts.name,
                document,
                type_meta_len: type_meta_len(&spec, document),
                labels: facts.labels_at.clone(),
                resource_version: facts.resource_version_at.clone(),
                uid: facts.uid_at.clone(),
                revision,
                holders,
                folded: true,
                deleting: facts.deleting,
            };
            draft.build(&mut edits)
        });
        self.give_back((edits, found, Vec::new()));
        self.give_refs(&body.member, refs);
        entry
    }

    /// Shows a part of a younger placement as the native object that it is in its member.
    fn expose(&mut self, part: &Part) {
        let Some(at) = self.members.iter().position(|member| member.name == part.member) else { return };
        let mut found = Vec::new();
        let spec = Arc::clone(&self.spec);
        let Ok(facts) = Facts::read(&spec, &part.document, &mut found) else { return };
        let Some(entry) = self.dress_native(at, &part.document, &facts, &found) else { return };
        let held = self.objects.get(entry.key()).map(|slot| Arc::clone(&slot.0));
        match held {
            Some(held) if held.is_same_but_for_revision(&entry) => {}
            Some(held) if held.uid() != entry.uid() => {
                self.remove_visible(held.key());
                if let Some(entry) = self.dress_native(at, &part.document, &facts, &found) {
                    self.put(entry);
                }
            }
            Some(_) | None => self.put(entry),
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
