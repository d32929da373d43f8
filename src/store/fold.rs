//! All parts of an object that is one in the fleet and several in the members, and which of them are shown.

use std::{collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use crate::{
    config::MemberName,
    placement::{
        fingerprint::{Fingerprint, Mask},
        fold::{FoldKind, Summand, Sums},
        marker::Marker,
    },
    store::{
        entry::Holders,
        identities::{Identities, Identity},
        part::Part,
        parts::Parts,
        revision::Revision,
        template::Template,
    },
};
use kubefold_wire::resource::Gvr;

/// All parts under one key.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// In configuration order.
    pub(super) parts: Vec<Arc<Part>>,
    /// Where each member's is among them, as long as that is so; empty otherwise.
    places: HashMap<MemberName, usize>,
    /// How many writers ask that nothing be shown yet.
    pub(super) held: u32,
    /// How many of them have made a part of what may never become an object.
    pub(super) withheld: u32,
    /// The first state that each part took on since somebody holds the key: what a write made of it, before any controller.
    pub(super) first: Vec<Arc<Part>>,
    /// Members whose part is shown as a member-local object: those of a second placement under this key, and while a writer holds the
    /// key those that were member-local objects until now.
    pub(super) exposed: Vec<MemberName>,
    /// Of a child: the first part in each member in this life of the whole, by its own UID.
    pub(super) founders: HashMap<MemberName, String>,
    /// Who each part was last said to be.
    pub(super) identified: HashMap<MemberName, Identity>,
    /// Parts of more than one placement may be here.
    pub(super) is_mixed: bool,
    /// Which parts are shown, as long as nothing that decides it has changed.
    pub(super) shape: Option<Arc<Shape>>,
    /// What they were shown as, in that shape.
    pub(super) shown: Option<Shown>,
}

/// Which parts are shown, and what is said of them: whatever a new status of one part leaves as it is.
#[derive(Debug)]
pub(super) struct Shape {
    /// Places of the parts that make the visible object, its body's first.
    pub(super) chosen: Vec<usize>,
    /// Places of the parts of a younger placement.
    pub(super) losers: Vec<usize>,
    /// The members of the chosen parts, in their order.
    pub(super) holders: Holders,
    /// Of which state of the members.
    pub(super) members_epoch: u64,
    /// Members whose part somebody touched, where no part is behind.
    pub(super) differs: Vec<MemberName>,
}

/// What the parts of a shape were last shown as, so that a new state of one of them costs as much as that part.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) parts: Parts,
    pub(super) sums: Sums,
    /// Of a placed object with several parts.
    pub(super) template: Option<Template>,
}

impl Shown {
    /// Puts a new state of a part in.
    pub(super) fn put(&mut self, at: usize, part: Arc<Part>, revision: Revision) {
        let before = self.parts.list.put(at, Arc::clone(&part));
        let before = before.as_ref().and_then(|before| before.summand.as_deref());
        self.sums.put(at, before, part.summand.as_deref());
        self.parts.revision = revision;
    }
}

impl Fold {
    pub(super) fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    pub(super) fn part(&self, member: &MemberName) -> Option<&Arc<Part>> {
        self.parts.get(self.place(member)?)
    }

    pub(super) fn part_mut(&mut self, member: &MemberName) -> Option<&mut Part> {
        let at = self.place(member)?;
        self.parts.get_mut(at).map(Arc::make_mut)
    }

    /// Where a member's part is. Constant time while a shape holds.
    pub(super) fn place(&self, member: &MemberName) -> Option<usize> {
        if self.places.is_empty() {
            return self.parts.iter().position(|part| part.member == *member);
        }
        self.places.get(member).copied()
    }

    /// Takes the shape that the parts have now.
    pub(super) fn take_shape(&mut self, shape: &Arc<Shape>) {
        self.places = self.parts.iter().enumerate().map(|(at, part)| (part.member.clone(), at)).collect();
        self.shape = Some(Arc::clone(shape));
        self.shown = None;
    }

    /// Says whether a part of a placed object is not in a member that its marker names.
    pub(super) fn expects(&self, member: &MemberName) -> bool {
        // All parts of one placement have the same members.
        let firsts = if self.is_mixed { self.parts.len() } else { 1 };
        let placed = self.parts.iter().filter(|part| part.marker.is_some());
        placed.take(firsts).any(|part| part.lists(member)) && !self.shows(member)
    }

    /// Notes what a part first became since somebody holds the key; of one that is being deleted, what it first was then.
    pub(super) fn note_first(&mut self, part: &Arc<Part>) {
        if self.held == 0 {
            return;
        }
        match self.first.iter_mut().find(|first| first.member == part.member) {
            None => self.first.push(Arc::clone(part)),
            Some(first) if first.uid == part.uid && part.deleting && !first.deleting => *first = Arc::clone(part),
            Some(_) => {}
        }
    }

    /// Puts a part in the place of an earlier state of it, which it gives, or among the others.
    pub(super) fn put(&mut self, part: Arc<Part>, order: &[MemberName]) -> Option<Arc<Part>> {
        let part = self.sharing_members(part);
        let held = self.place(&part.member);
        if let Some(held) = held.and_then(|at| self.parts.get_mut(at)) {
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

    /// A document that is kept whole, and is another member's.
    pub(super) fn base_for(&self, member: &MemberName) -> Option<&Arc<str>> {
        self.parts.iter().filter(|part| part.member != *member).find_map(|part| part.document.as_whole())
    }

    /// Takes the prints of all parts anew: policies changed, or what is divided.
    pub(super) fn print(&mut self, gvr: &Gvr, kind: FoldKind, mask: &Mask) {
        for part in self.parts.iter_mut().filter(|part| part.fingerprint.is_some()) {
            let print = Fingerprint::of(&part.document.text(), gvr, kind, mask).map(Arc::new);
            Arc::make_mut(part).fingerprint = print;
        }
    }

    /// Reads of all parts anew what is added up: what is divided has changed.
    pub(super) fn add_up(&mut self, kind: FoldKind, identities: &Identities) {
        for part in self.parts.iter_mut().filter(|part| part.summand.is_some()) {
            let Ok(mut summand) = Summand::of(&part.document.text(), kind) else { continue };
            let moved = part.marker.as_ref().and_then(|marker| identities.moved(&marker.uid));
            if let (Some(moved), Some(cluster)) = (moved, part.cluster()) {
                summand.judge(&moved, cluster);
            }
            Arc::make_mut(part).summand = Some(Arc::new(summand));
        }
    }

    /// Puts the parts in configuration order; one of a member that is leaving comes last.
    pub(super) fn sort(&mut self, order: &[MemberName]) {
        let places: HashMap<&MemberName, usize> = order.iter().enumerate().map(|(at, name)| (name, at)).collect();
        self.parts.sort_by_key(|part| places.get(&part.member).copied().unwrap_or(usize::MAX));
        self.parts_moved();
    }

    fn parts_moved(&mut self) {
        self.places.clear();
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

    pub(super) fn take(&mut self, member: &MemberName) -> Option<Arc<Part>> {
        let part = self.parts.remove(self.place(member)?);
        self.parts_moved();
        self.identified.remove(member);
        Some(part)
    }

    pub(super) fn unexpose(&mut self, member: &MemberName) -> bool {
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
    pub(super) fn choose(&self) -> Vec<usize> {
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
        let of_placement = |listed| self.place_of(&places, listed, marker);
        let mut is_chosen = vec![false; self.parts.len()];
        let is_first = |at: &usize| is_chosen.get_mut(*at).is_some_and(|chosen| !std::mem::replace(chosen, true));
        let mut chosen: Vec<usize> = marker.members.iter().filter_map(of_placement).filter(is_first).collect();
        if marker.is_child && self.is_mixed {
            // Some have the marker of one placement, and some that of the next, which adopted them.
            let others = (0..self.parts.len()).filter(|at| self.is_of(*at, &marker.uid) && !chosen.contains(at));
            chosen.extend(others.collect::<Vec<_>>());
        }
        chosen
    }

    /// Where the part of a placement in a listed member is. The cluster decides, since a member may have another name by now;
    /// only of a cluster that is not listed at all the name does.
    fn place_of(
        &self,
        places: &HashMap<&MemberName, usize>,
        listed: &(MemberName, String),
        marker: &Marker,
    ) -> Option<usize> {
        let (name, cluster) = listed;
        let is_it = |at: &usize| self.is_of(*at, &marker.uid) && self.cluster_at(*at) == Some(cluster);
        let by_name = places.get(name).copied().filter(|at| self.is_of(*at, &marker.uid));
        let is_listed = |at: usize| marker.members.iter().any(|(_, listed)| self.cluster_at(at) == Some(listed));
        let by_cluster = by_name.filter(is_it).or_else(|| (0..self.parts.len()).find(is_it));
        by_cluster.or_else(|| by_name.filter(|at| !is_listed(*at)))
    }

    fn cluster_at(&self, at: usize) -> Option<&str> {
        self.parts.get(at)?.cluster()
    }

    fn is_of(&self, at: usize, uid: &str) -> bool {
        self.parts.get(at).and_then(|part| part.marker.as_ref()).is_some_and(|marker| marker.uid == uid)
    }

    /// Of several placements under one key the one with the older home has the name.
    fn winner(&self, places: &HashMap<&MemberName, usize>) -> Option<&Marker> {
        let home_age = |marker: &Marker| {
            let mut listed = marker.members.iter();
            let home = listed.find_map(|listed| self.place_of(places, listed, marker));
            home.and_then(|at| self.parts.get(at)).map(|part| part.created.as_str())
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
