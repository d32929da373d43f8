//! What `/kubefold/v1/moves` tells: the moves that are not finished, and what an order came to.

use serde::{Deserialize, Serialize};

use crate::write::{fleet::Key, journal::Placement};

/// The answer to a `GET` or `POST` of `/kubefold/v1/moves`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MovesReport {
    /// `Moves`.
    pub kind: String,
    /// `kubefold.io/v1`.
    pub api_version: String,
    /// The members that get nothing new.
    pub cordoned: Vec<String>,
    /// The moves that are not finished; in the answer to an order those that it began, or would begin.
    pub moves: Vec<MoveState>,
    /// Why no object leaves a lost member by policy just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// In the answer to an order: what does not move, and why. In the answer to a `GET`: what does not move as its policy says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftObject>,
    /// Parts of lost members that are deleted once these answer again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<LeftObject>,
}

/// A placement that moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MoveState {
    /// `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The command, such as `drain east`.
    pub why: String,
    /// Who asked for it.
    pub by: String,
    /// When it began. Units: seconds since 1970.
    pub begun_at: u64,
    /// The members that are to have a part, the home first, each with its share if the object is divided.
    pub to: Vec<PartState>,
    /// The members whose part is to go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// What is done just now, in words.
    pub stage: String,
    /// Why it does not go on just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A part that is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartState {
    /// The member.
    pub member: String,
    /// Its share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
}

/// An object of which something is to be said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeftObject {
    /// `deployments.apps`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// One sentence.
    pub why: String,
}

impl MoveState {
    /// The state of a placement; `None`: it has arrived.
    pub(super) fn of(placement: &Placement) -> Option<Self> {
        let Placement { key, goal, .. } = placement;
        let goal = goal.as_ref()?;
        Some(Self {
            resource: key.gvr.qualified(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            why: goal.why.clone(),
            by: goal.by.clone(),
            begun_at: goal.begun_at,
            to: goal
                .parts
                .iter()
                .map(|part| PartState { member: part.member.to_string(), share: part.share })
                .collect(),
            leaving: goal.leaving.iter().map(|part| part.member.to_string()).collect(),
            stage: goal.stage.describe().to_owned(),
            problem: goal.problem.clone(),
        })
    }
}

impl LeftObject {
    pub(super) fn of(key: &Key, why: String) -> Self {
        Self { resource: key.gvr.qualified(), namespace: key.namespace.clone(), name: key.name.clone(), why }
    }
}
