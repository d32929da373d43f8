//! What the state directory has of placements that move.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    config::{MemberName, Overrides},
    placement::{
        divided::Value,
        moved::{Moved, Superseded},
    },
    write::{fleet::Key, journal::record::KeyWords},
};
use kubefold_serving::caller::Caller;

/// A placement that has moved, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The object.
    #[serde(with = "KeyWords")]
    pub key: Key,
    /// The placement's UID.
    pub uid: String,
    /// Where it is now.
    pub moved: Moved,
    /// Where it is going; `None`: it has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// It was carried along with a workload, by somebody who may read and create it. So it comes along when the workload moves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carried: bool,
}

/// A placed object whose parts are to get the overrides of now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overriding {
    /// The object.
    #[serde(with = "KeyWords")]
    pub key: Key,
    /// The placement's UID.
    pub uid: String,
    /// Who asked for it.
    pub by: String,
    /// When. Units: seconds since 1970.
    pub begun_at: u64,
    /// The clusters whose parts were changed: the next one is when these are available.
    #[serde(default)]
    pub changed: BTreeSet<String>,
}

/// Where a placement is going.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Goal {
    /// The command, such as `drain east`.
    pub why: String,
    /// Who asked for it.
    pub by: String,
    /// As whom parts are made; `None`: as the mover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// When. Units: seconds since 1970.
    pub begun_at: u64,
    /// The parts that are to be, in order: the first is the home.
    pub parts: Vec<Wanted>,
    /// The parts that are to go.
    pub leaving: Vec<Superseded>,
    /// How far it is.
    pub stage: Stage,
    /// Why it does not go on just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A part that is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// The member that is to have it.
    pub member: MemberName,
    /// In which cluster: another one under the member's name gets none.
    pub cluster_uid: String,
    /// Its share; `None` where nothing is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Of a part that is made and whose share is not one number: what is set in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
    /// Of a companion: what its parts note of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// How the policy has it differ.
    #[serde(default)]
    pub overrides: Overrides,
}

/// How far a move is. Each stage begins anew after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Parts are made and grow.
    Growing,
    /// What was made becomes available.
    Waiting,
    /// The home moves, and what others have taken over goes.
    Shrinking,
    /// Parts are going.
    Leaving,
}

impl Stage {
    /// What is done in it, as people read it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Growing => "making parts",
            Self::Waiting => "waiting until they are available",
            Self::Shrinking => "taking away what they replace",
            Self::Leaving => "waiting until that is gone",
        }
    }
}

impl Placement {
    /// Says whether something is left to do.
    pub(in crate::write) fn is_unfinished(&self) -> bool {
        self.goal.is_some() || !self.moved.superseded.is_empty()
    }
}
