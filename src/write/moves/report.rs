//! What `/kubefold/v1/moves` tells: the moves that are not finished, and what an order came to.

use serde::{Deserialize, Serialize};

use crate::write::{
    fleet::Key,
    journal::{Overriding, Placement},
};

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
    /// In the answer to a `GET`: what has parts whose overrides are not those of its policy, while nothing changes that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outdated: Vec<LeftObject>,
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
    /// In the answer to an order: the parts that get other overrides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverriddenPart>,
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

/// A part that gets other overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverriddenPart {
    /// The member.
    pub member: String,
    /// The values that change. None: it has the values, and notes of which overrides they are.
    pub values: Vec<OverriddenValue>,
    /// Why it cannot get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A value that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverriddenValue {
    /// `.spec.template.spec.containers[name="web"].image`.
    pub path: String,
    /// What stands there; absent if nothing does, or if it is of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<serde_json::Value>,
    /// What is to stand there; absent if nothing is, or if it is of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<serde_json::Value>,
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

/// What does not move by policy, and why.
#[derive(Debug, Default)]
pub(super) struct Stayed {
    /// Why no member is left just now.
    pub(super) halted: Option<String>,
    /// What is to leave its member and cannot.
    pub(super) objects: Vec<LeftObject>,
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
            overrides: Vec::new(),
            stage: goal.stage.describe().to_owned(),
            problem: goal.problem.clone(),
        })
    }

    /// The state of an object whose parts get other overrides.
    pub(super) fn of_overriding(overriding: &Overriding, overrides: Vec<OverriddenPart>) -> Self {
        let Overriding { key, by, begun_at, .. } = overriding;
        Self {
            resource: key.gvr.qualified(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            why: "rebalance".to_owned(),
            by: by.clone(),
            begun_at: *begun_at,
            overrides,
            stage: "bringing overrides".to_owned(),
            ..Self::default()
        }
    }
}

impl LeftObject {
    pub(super) fn of(key: &Key, why: String) -> Self {
        Self { resource: key.gvr.qualified(), namespace: key.namespace.clone(), name: key.name.clone(), why }
    }
}
