//! What a plan is asked, and what it comes to.

use crate::{
    config::{MemberName, Overrides, Weight},
    placement::{
        capacity::Capacity,
        children::Orphans,
        companions::{Limits, Shares},
        divided::{Amount, Value, Wholes},
        policy::{Policy, Strategy},
        quota::Cap,
        scheduling::{Misfit, PodRequirements},
    },
};

/// How a member is, as far as placing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answers.
    Ready,
    /// It does not answer, but its objects of the kind are known. The text says why, with age.
    Down(String),
    /// Its objects of the kind are not known: no name can be promised to be free. The text says why.
    Unknown(String),
}

/// What is known of one member, for one create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub name: MemberName,
    /// UID of its cluster (of its namespace `kube-system`); `None` before the first contact.
    pub cluster_uid: Option<String>,
    /// Its weight.
    pub weight: Weight,
    /// The operator declared it absent.
    pub absent: bool,
    /// How it is.
    pub standing: Standing,
    /// It lets the caller create the object.
    pub allowed: bool,
    /// It serves the kind in the version asked.
    pub serves_kind: bool,
    /// It holds the namespace, and is not deleting it.
    pub has_namespace: bool,
    /// Owners named in the body that it does not hold: its garbage collector would delete the part.
    pub missing_owners: Vec<String>,
    /// Claims that its pods mount and that it does not hold, but another member does.
    pub missing_claims: Vec<String>,
    /// What [`fits`](crate::placement::scheduling::fits) said.
    pub fits: Result<(), Misfit>,
    /// What is free there; `None` if that is not known or was not asked.
    pub capacity: Option<Capacity>,
    /// What the namespace's quotas let it have; `None`: none of them limits it.
    pub quota: Option<Cap>,
}

impl Candidate {
    /// Why it is not known what it holds of the kind; `None`: it is.
    pub fn unknown(&self) -> Option<&str> {
        match &self.standing {
            Standing::Unknown(why) => Some(why),
            Standing::Ready | Standing::Down(_) => None,
        }
    }
}

/// What is asked of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The object's minted UID.
    pub uid: &'a str,
    /// The policy that holds for it.
    pub policy: &'a Policy,
    /// What is divided of it.
    pub wholes: &'a Wholes,
    /// What its pods ask of nodes; `None` where it makes none.
    pub pod: Option<&'a PodRequirements>,
    /// The member that holds the namespace's single objects.
    pub sticky: Option<&'a MemberName>,
    /// The member that has what came before it and belongs to it: the claim of its pods, the pods of a claim, an
    /// autoscaler. It goes there if it can.
    pub drawn: Option<&'a MemberName>,
    /// What an earlier workload of the name left. It goes there, in the same shares.
    pub orphans: Option<&'a Orphans>,
    /// The claims that its pods mount, existing or not: one member has them.
    pub claims: &'a [String],
    /// Of a companion: what it is about.
    pub companion: Option<Companion<'a>>,
    /// It is a revision of what owns it, and goes wherever that is: each member's controller keeps its own.
    pub is_revision: bool,
}

/// What a companion is placed by.
#[derive(Clone, Copy, Debug)]
pub struct Companion<'a> {
    /// The divided fields as they are written.
    pub whole: &'a Limits,
    /// The shares of the workload, or of all that a budget selects. Empty while there is none.
    pub shares: &'a Shares,
}

/// One part: one to make, or one that a later write may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The member of the part.
    pub member: MemberName,
    /// In which cluster: if the member becomes another one meanwhile, the part is not made.
    pub cluster_uid: String,
    /// What is set in this part: its shares.
    pub values: Vec<Value>,
    /// Its share is not 0, or it is the home. Others are only listed in the marker: a scale-up may make them.
    pub made: bool,
    /// Why the part can only be made later.
    pub behind: Option<String>,
    /// How this part differs.
    pub overrides: Overrides,
    /// Of a companion: what its parts note of the whole.
    pub whole: Option<String>,
    /// Why its share is 0, where more than the division says so.
    pub why: Option<String>,
}

impl Target {
    /// The share: the first of the divided fields.
    pub fn share(&self) -> Option<u32> {
        match self.values.first()?.number {
            Amount::Number(number) => Some(number),
            Amount::Quantity(_) => None,
        }
    }
}

/// Where an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The object's minted UID.
    pub uid: String,
    /// The policy's name, for the marker; `None` is the default of the kind.
    pub policy: Option<String>,
    /// The placement whose orphans it takes over.
    pub adopts: Option<String>,
    /// How the parts are made in the end: what cannot be divided goes to one member, or to all.
    pub strategy: Strategy,
    /// The marker's members, in order. At least one; the first is made last, as the commit, and is the home.
    pub targets: Vec<Target>,
    /// Who gets no part, and why.
    pub left_out: Vec<(MemberName, String)>,
    /// What the client should know.
    pub warnings: Vec<String>,
}

/// Why an object cannot be placed. Each reason names its member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No member can take it.
    #[error("no member can take it: {}", listed(.0))]
    NoCandidate(Vec<(MemberName, String)>),
    /// No member that could take it holds its namespace.
    #[error("no member holds the namespace")]
    NoNamespace,
    /// Who could take it is down.
    #[error("no member that is up can take it: {}", listed(.0))]
    AllDown(Vec<(MemberName, String)>),
    /// Not all of it fits, and the policy is all or nothing.
    #[error("only {fits} of {total} fit: {}; ask for less, or let the policy say `partial: true`", listed(.reasons))]
    NoRoom {
        /// How much was asked.
        total: u32,
        /// How much fits.
        fits: u32,
        /// What each member takes.
        reasons: Vec<(MemberName, String)>,
    },
    /// There are too few groups of members to spread over.
    #[error(transparent)]
    TooFewGroups(Box<TooFewGroups>),
    /// There are too few members that the policy could pick.
    #[error("policy {policy} picks at least {min} members, and {found} can take it{}", why_others(.others))]
    TooFewMembers {
        /// The policy.
        policy: String,
        /// How many there are to be.
        min: u32,
        /// How many there are.
        found: usize,
        /// Who can take nothing, and why.
        others: Vec<(MemberName, String)>,
    },
    /// None of the policy's groups of members can take it.
    #[error("no group of policy {policy} can take it: {}", why_groups(.groups))]
    NoGroup {
        /// The policy.
        policy: String,
        /// The groups that have members that could take something, counted from 1, with what is wrong.
        groups: Vec<(usize, Self)>,
    },
    /// Whether the name is free cannot be known.
    #[error("it is not known whether the name is free in {}; try again, or declare the member `absent: true`", listed(.0))]
    Unknown(Vec<(MemberName, String)>),
}

/// There are fewer groups of members that can take an object than its policy spreads it over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "policy {policy} spreads it over at least {min} groups of the member label {label}{}, and {found} can take it{}",
    in_value(.within.as_deref()),
    why_others(.others)
)]
pub struct TooFewGroups {
    /// The policy.
    pub policy: String,
    /// The label.
    pub label: String,
    /// How many there are to be.
    pub min: u32,
    /// How many there are.
    pub found: usize,
    /// The value of the label before it, within which they are looked for.
    pub within: Option<String>,
    /// Who can take nothing, and why.
    pub others: Vec<(MemberName, String)>,
}

impl PlanError {
    /// How much of the object can be placed.
    pub(super) fn fits(&self) -> u32 {
        match self {
            Self::NoRoom { fits, .. } => *fits,
            _ => 0,
        }
    }

    /// What is wrong, as far as one member is concerned.
    pub(super) fn of(&self, member: &MemberName) -> String {
        match self {
            Self::NoRoom { total, fits, reasons } => {
                let own = reasons.iter().find(|(name, _)| name == member);
                let own = own.map_or_else(String::new, |(_, why)| format!(", here {why}"));
                format!("only {fits} of {total} fit{own}")
            }
            Self::AllDown(reasons) => {
                reasons.iter().find(|(name, _)| name == member).map(|(_, why)| why.clone()).unwrap_or_default()
            }
            other => other.to_string(),
        }
    }
}

fn listed(reasons: &[(MemberName, String)]) -> String {
    if reasons.is_empty() {
        return "no member is configured".to_owned();
    }
    reasons.iter().map(|(member, why)| format!("{member}: {why}")).collect::<Vec<_>>().join("; ")
}

fn why_groups(groups: &[(usize, PlanError)]) -> String {
    groups.iter().map(|(at, why)| format!("group {at}: {why}")).collect::<Vec<_>>().join("; ")
}

fn why_others(others: &[(MemberName, String)]) -> String {
    if others.is_empty() { String::new() } else { format!(": {}", listed(others)) }
}

fn in_value(value: Option<&str>) -> String {
    value.map_or_else(String::new, |value| format!(" within {value}"))
}
