//! What the state records of a placement that has moved: the record decides, and the markers in the members follow it.
//!
//! Kubernetes copies annotations to ReplicaSets and back (`kubectl rollout undo`), backups restore them, and anyone may forge
//! them. So the members that a marker lists count only as long as no record of the placement says otherwise.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{config::MemberName, placement::marker::Marker};

/// The record of a placement that has moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// How often it has moved.
    pub epoch: u64,
    /// The members of the placement, in order, each with its cluster's UID.
    pub members: Vec<(MemberName, String)>,
    /// How many of those have a part: the others may get one by a later scale.
    pub made: usize,
    /// Parts that were taken out of the placement while their member could not be reached. They go when it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<Superseded>,
    /// What the divided number of a part counts at most, by its cluster's UID: others have what it has above that, and it
    /// is about to give it up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ceilings: BTreeMap<String, u32>,
    /// The clusters of parts that are going: their generations are in [`Self::generation`] already.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<String>,
    /// When the object was made: a home that was made later shows that, too. As Kubernetes writes times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// What the generations of parts that are gone or going came to: a generation never falls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: i64,
}

/// A part that does not belong to its placement any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// The member that has it.
    pub member: MemberName,
    /// The UID of the member's cluster.
    pub cluster_uid: String,
    /// The part's own UID: no other object is ever taken for it.
    pub uid: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Moved {
    /// The marker of an object with that own UID in a cluster, as the record has it. `None`: the object is no part.
    pub fn judge(&self, marker: Marker, cluster_uid: &str, own_uid: &str) -> Option<Marker> {
        let is_out = self.superseded.iter().any(|one| one.cluster_uid == cluster_uid && one.uid == own_uid);
        if is_out || !self.members.iter().any(|(_, cluster)| cluster == cluster_uid) {
            return None;
        }
        // What is known by a label names its own place alone.
        Some(if marker.is_of_labels() { marker } else { self.apply(marker) })
    }

    /// The marker with the members of the record.
    pub fn apply(&self, marker: Marker) -> Marker {
        let made = if marker.is_child { self.members.len() } else { self.made };
        Marker {
            members: self.members.clone().into(),
            made,
            is_unknown: marker.epoch > self.epoch,
            epoch: self.epoch,
            ..marker
        }
    }

    /// What the part in a cluster counts at most.
    pub fn ceiling(&self, cluster_uid: &str) -> Option<u32> {
        self.ceilings.get(cluster_uid).copied()
    }

    /// Says whether the part in a cluster is the first: it has the generations of parts that are gone.
    pub fn is_first(&self, cluster_uid: &str) -> bool {
        self.members.first().is_some_and(|(_, cluster)| cluster == cluster_uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(epoch: u64) -> Marker {
        let east = MemberName::new("east").unwrap();
        let gvk = kubefold_wire::resource::Gvk::new("apps", "v1", "Deployment");
        let members = [(east.clone(), "c-e".to_owned())].into();
        let uid = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455".to_owned();
        Marker { epoch, ..Marker::new(uid, &gvk, "default", "web", east, members) }
    }

    #[test]
    fn the_record_decides_who_has_a_part() {
        let name = |name| MemberName::new(name).unwrap();
        let superseded = Superseded { member: name("east"), cluster_uid: "c-e".into(), uid: "old".into() };
        let moved = Moved {
            epoch: 2,
            members: vec![(name("west"), "c-w".into()), (name("east"), "c-e".into())],
            made: 2,
            superseded: vec![superseded],
            ..Moved::default()
        };
        // A marker of before the move, as a rollout undo or a backup brings it back.
        let part = moved.judge(marker(1), "c-e", "new").unwrap();
        assert_eq!((&*part.members, part.epoch, part.is_unknown), (&*moved.members, 2, false));
        assert_eq!(moved.judge(marker(1), "c-e", "old"), None, "it was taken out by its UID");
        assert_eq!(moved.judge(marker(9), "c-n", "new"), None, "a forged marker takes no place");
        assert!(moved.judge(marker(9), "c-e", "new").unwrap().is_unknown, "and is shown where there is a part");
    }
}
