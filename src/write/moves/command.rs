//! What an operator orders.

use crate::{config::MemberName, write::fleet::NamedObject};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// A member gets nothing new.
    Cordon,
    /// It does again.
    Uncordon,
    /// What runs in a member moves to others.
    Drain,
    /// What is divided is divided anew.
    Rebalance,
    /// What belongs in every member is made in those that lack it.
    Extend,
    /// Objects of members become parts of one placed object.
    Adopt,
    /// What waits for a member is given up.
    Forget,
}

/// An order, and the body of a `POST` to `/kubefold/v1/moves`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Command {
    /// What is to be done.
    pub verb: Verb,
    /// In which member; a rebalance is of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberName>,
    /// Of an adoption: the members, the home first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberName>,
    /// What is adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<NamedObject>,
    /// Nothing is changed.
    #[serde(default)]
    pub dry_run: bool,
    /// What cannot move without a gap, or run in two members, moves all the same.
    #[serde(default)]
    pub force: bool,
}

impl Command {
    /// `drain east`.
    pub(super) fn describe(&self) -> String {
        let verb = format!("{:?}", self.verb).to_lowercase();
        self.member.iter().fold(verb, |verb, member| format!("{verb} {member}"))
    }
}

impl Verb {
    /// Whether it cordons its member, or ends that.
    pub(super) fn cordons(self) -> Option<bool> {
        match self {
            Self::Cordon | Self::Drain => Some(true),
            Self::Uncordon => Some(false),
            Self::Rebalance | Self::Extend | Self::Adopt | Self::Forget => None,
        }
    }
}
