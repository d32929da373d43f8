//! Placement policies as they are configured.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    config::{CarriedKind, Edit, MemberName, Weight},
    view::FleetSelector,
};
use kubefold_wire::{media::is_built_in, patch::JsonPatch};

/// How an object is spread over members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// A whole part in every member.
    Duplicate,
    /// Parts that together are the whole.
    Divide,
    /// One part in one member.
    One,
}

/// One entry of `policies`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Its name, for `kubefold.io/placement-policy`.
    pub name: String,
    /// Which objects it holds for; `None`: only for those that name it.
    pub matches: Option<Match>,
    /// `None`: the default of the kind.
    pub strategy: Option<Strategy>,
    /// Who may get parts: the first of these groups of members that can take an object.
    pub groups: Vec<Chosen>,
    /// A member is in every group that names it, and not in the first alone.
    pub overlapping: bool,
    /// What shares go by.
    pub weights: Weights,
    /// What holds in every member that [`PolicyConfig::per_member`] does not name.
    pub each: Bounds,
    /// What holds in single members.
    pub per_member: BTreeMap<MemberName, MemberTerms>,
    /// The labels of members over whose values it is divided evenly first, each within the one before.
    pub spread: Vec<SpreadLevel>,
    /// How many of the members that could take a part get one; `None`: all.
    pub picked: Option<Picked>,
    /// It goes to the fewest members that can carry it.
    pub fewest: bool,
    /// As much as fits is placed where not all does.
    pub partial: bool,
    /// What is carried along with its workloads.
    pub carry: Vec<CarriedKind>,
    /// Taints of members that its objects have.
    pub tolerations: Vec<MemberToleration>,
    /// When its objects leave a member that does not answer.
    pub failover: Option<Failover>,
    /// When its objects are divided anew.
    pub rebalance: Option<Rebalance>,
}

/// What the shares of members go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The weights that are configured.
    Static,
    /// What is allocatable and not requested.
    Capacity,
    /// What is allocatable and not used, where a member measures that; no more than its requests leave room for.
    Use,
}

impl Weights {
    /// Says whether they are read from the members.
    pub fn are_measured(self) -> bool {
        self != Self::Static
    }
}

/// When objects leave a member that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// How long it has not answered.
    pub after: Duration,
    /// Also those that may run twice then.
    pub force: bool,
}

/// When objects are divided anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// How often they are looked at.
    pub every: Duration,
    /// Less than this of an object is not moved. Units: percent of its replicas.
    pub threshold: u32,
}

/// What an object must be like. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// One of these kinds; empty is every kind.
    pub kinds: Vec<KindPattern>,
    /// In one of these namespaces (a last `*` is a prefix); empty is every namespace, and none.
    pub namespaces: Vec<String>,
    /// With one of these names; empty is every name.
    pub names: Vec<String>,
    /// With such labels.
    pub labels: Option<FleetSelector>,
    /// With these annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Match {
    /// How precisely it names objects: by name, by labels, or neither. What is more precise comes first of policies, and last of
    /// overrides.
    pub fn precision(&self) -> Precision {
        match (self.names.is_empty(), &self.labels) {
            (false, _) => Precision::Name,
            (true, Some(_)) => Precision::Labels,
            (true, None) => Precision::Kind,
        }
    }
}

/// How precisely objects are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Precision {
    Kind,
    Labels,
    Name,
}

/// `Deployment`, `Widget.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPattern {
    /// The kind.
    pub kind: String,
    /// Its group; `None` is every built-in group.
    pub group: Option<String>,
}

impl KindPattern {
    /// Says whether it means a kind of a group.
    pub fn matches(&self, group: &str, kind: &str) -> bool {
        let is_group = self.group.as_deref().map_or_else(|| is_built_in(group), |own| own == group);
        is_group && self.kind == kind
    }
}

/// Which members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Chosen {
    /// All.
    #[default]
    All,
    /// These.
    Named(Vec<MemberName>),
    /// Those with such labels, and the text that was written.
    Selected(Box<FleetSelector>, String),
}

/// A label of members that divided numbers are spread over. The members with one value of it are a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadLevel {
    /// The label; `kubefold.io/cluster` is each member by itself.
    pub label: String,
    /// Fewer groups than this are refused.
    pub min: u32,
    /// At most so many groups get parts.
    pub max: Option<u32>,
}

/// How many of the members that could take a part get one. Which ones are the same for every object, as far as they have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picked {
    /// Every group of members that is picked gets a part; the fewest groups that have enough members are picked.
    pub groups: Option<SpreadLevel>,
    /// Fewer members than this are refused.
    pub min: u32,
    /// At most so many members get parts, but one of each group.
    pub max: Option<u32>,
}

/// How large a part may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// At least so many.
    pub min: Option<u32>,
    /// At most so many.
    pub max: Option<u32>,
}

/// What holds in one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberTerms {
    /// Its share, in place of the member's own weight.
    pub weight: Option<Weight>,
    /// Its bounds, each in place of the policy's.
    pub bounds: Bounds,
    /// How its part differs.
    pub overrides: Overrides,
}

/// How the part in one member differs. The journal keeps it, for parts that are made later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// A JSON patch, as a kube-apiserver applies it; absent where the part differs in nothing but its images.
    pub patch: Option<JsonPatch>,
    /// The registry that every image of a pod comes from there: `mirror.example/x`.
    pub registry: Option<String>,
    /// What is changed after that, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
}

impl Overrides {
    /// Says whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A taint of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberTaint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// What a taint of a member does to objects that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// They get no new part there.
    NoSchedule,
    /// They have none there, either.
    NoExecute,
}

impl TaintEffect {
    /// The effect of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::NoSchedule, Self::NoExecute].into_iter().find(|effect| effect.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// What has taints of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberToleration {
    /// Key; `None` is every key.
    pub key: Option<String>,
    /// Value; `None` is every value.
    pub value: Option<String>,
    /// Effect; `None` is every effect.
    pub effect: Option<TaintEffect>,
    /// How long a taint `NoExecute` is tolerated; `None` is for ever. Units: seconds.
    pub seconds: Option<i64>,
}

/// Why objects of a kind cannot be placed so. `None` in place of a group is every built-in one; one that `is_declared` can be
/// divided.
pub fn unfit(strategy: Strategy, group: Option<&str>, kind: &str, is_declared: bool) -> Option<String> {
    let group = |name: &str| group.is_none_or(|group| group == name);
    let sized = is_declared
        || (group("apps") && matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet"))
        || (group("") && kind == "ReplicationController")
        || (group("batch") && kind == "Job");
    let along = (group("autoscaling") && kind == "HorizontalPodAutoscaler")
        || (group("policy") && kind == "PodDisruptionBudget");
    let by_policy = group("") && kind == "ResourceQuota";
    match strategy {
        Strategy::Divide if !sized && !along && !by_policy => Some(format!("a {kind} has nothing to divide")),
        Strategy::Duplicate if sized || along => Some(format!(
            "a {kind} cannot be duplicated: the fleet view shows the sum over its parts, so that applying it again would \
             shrink them; use divide, with min for a number in each member"
        )),
        Strategy::Duplicate if group("coordination.k8s.io") && kind == "Lease" => {
            Some("a Lease must have one arbiter, so it cannot be duplicated".to_owned())
        }
        Strategy::Divide | Strategy::Duplicate | Strategy::One => None,
    }
}
