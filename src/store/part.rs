//! One member's share of a folded object.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{
    config::MemberName,
    placement::{fingerprint::Fingerprint, fold::Summand, marker::Marker},
    store::document::Document,
};

/// One member's share of a folded object.
#[derive(Clone, Debug)]
pub struct Part {
    /// The member that holds it.
    pub member: MemberName,
    /// Its document.
    pub document: Document,
    /// Its UID in its member.
    pub uid: String,
    /// Its revision in its member.
    pub member_rv: u64,
    pub(super) incarnation: u32,
    pub(super) seen: u32,
    /// The marker of a placed object's part; a shared object has none.
    pub marker: Option<Arc<Marker>>,
    /// A number that stands for what its marker says of the placement; without a marker there is none.
    pub(super) placement: Option<u64>,
    /// What of it is its author's, where there are other parts to compare it with.
    pub(super) fingerprint: Option<Arc<Fingerprint>>,
    /// What a fold needs of it; a shared object's part has none.
    pub(super) summand: Option<Arc<Summand>>,
    /// A number that stands for its labels, annotations and owners: of these the marker is made.
    pub(super) header: u64,
    /// It carries a `deletionTimestamp`.
    pub deleting: bool,
    pub(super) created: String,
}

/// A number that stands for the placement that a marker names.
pub(super) fn placement_of(marker: &Marker) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&marker.uid, &marker.members, marker.made, marker.is_child).hash(&mut hasher);
    hasher.finish()
}

impl Part {
    /// Says whether its marker names a part in that member.
    pub(super) fn lists(&self, member: &MemberName) -> bool {
        self.marker.as_ref().is_some_and(|marker| marker.members.iter().any(|(name, _)| name == member))
    }

    /// Says whether another state of it is shown as this one, alone or with others.
    pub(super) fn shows_as(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.member_rv == other.member_rv
            && self.incarnation == other.incarnation
            && self.placement == other.placement
    }

    /// Says whether another state of it takes the same place among the other parts: whatever says which parts are shown, who
    /// they are, and who of them differs.
    pub(super) fn stands_as(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.deleting == other.deleting
            && self.created == other.created
            && self.placement == other.placement
            && self.fingerprint == other.fingerprint
    }
}
