//! `PropagationPolicy` and `ClusterPropagationPolicy`: which objects go where.
//!
//! Source: karmada `pkg/apis/policy/v1alpha1/propagation_types.go`. Every field of it is here, also those that are refused: a
//! field that nobody reads would be ignored.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::karmada::selectors::{ClusterAffinity, Metadata, ResourceSelector};

/// Where the selected objects of its namespace go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicy {
    /// Its name and namespace.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it orders.
    pub spec: PropagationSpec,
    /// How many objects it holds for. Karmada has no status here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HeldStatus>,
}

/// Where the selected objects go: those without a namespace, and those of every namespace. A PropagationPolicy that selects an
/// object comes before every ClusterPropagationPolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPropagationPolicy {
    /// Its name.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it orders.
    pub spec: PropagationSpec,
    /// How many objects it holds for. Karmada has no status here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HeldStatus>,
}

/// How many placed objects a policy holds for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldStatus {
    /// How many. Absent until they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<HeldKind>,
}

/// How many objects of a kind a policy holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldKind {
    /// The kind, with its group if that is not the core one: `Deployment.apps`.
    pub kind: String,
    /// How many placed objects of it.
    pub objects: usize,
}

/// What a policy orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PropagationSpec {
    /// The objects that it is for: those that one of these selects.
    #[schemars(length(min = 1))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Not served: use `propagateDeps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub association: Option<bool>,
    /// The ConfigMaps and Secrets that the pods of a workload name go where the workload goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// The members that the objects go to. Default: all.
    #[serde(default, skip_serializing_if = "Placement::is_empty")]
    pub placement: Placement,
    /// Of several policies that select an object the one of the highest priority counts; of these the one that selects it more
    /// precisely (by name, by labels, by kind); of these the first by name.
    #[serde(default)]
    pub priority: i32,
    /// `Never`. `Always` is not served: an object that exists keeps its policy.
    #[serde(default)]
    pub preemption: Preemption,
    /// Not served: create the OverridePolicies first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependent_overrides: Vec<String>,
    /// `default-scheduler`. Others are not served.
    #[serde(default = "default_scheduler")]
    pub scheduler_name: String,
    /// What becomes of objects in a member that does not answer. `cluster` is served, `application` is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// `Abort`. `Overwrite` is not served: `kubefold adopt` takes over what a member has.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When a changed policy reaches objects that exist. Absent: Deployments, ReplicaSets and ReplicationControllers move, and changed
    /// overrides reach their parts. `Lazy`: with the next change of the number of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<ActivationPreference>,
    /// Not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// `false`. `true` is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

/// The scheduler that Karmada has by itself.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";

fn default_scheduler() -> String {
    DEFAULT_SCHEDULER.to_owned()
}

/// Whether an object leaves its policy for one of higher priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum Preemption {
    #[default]
    Never,
    Always,
}

/// What becomes of a create where a member has an object of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum ConflictResolution {
    #[default]
    Abort,
    Overwrite,
}

/// When a changed policy reaches objects that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum ActivationPreference {
    Lazy,
}

/// Which members, and how the replicas are divided among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The members that objects may go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Groups of members, in place of `clusterAffinity`: all of an object goes to the first group that can take it. A member can be in
    /// several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    /// The taints of members that the objects tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_tolerations: Vec<ClusterToleration>,
    /// How many members are picked. It has no meaning with static weights, as in Karmada.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How the replicas of workloads are divided. Absent: each member gets all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaScheduling>,
    /// Not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

impl Placement {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A group of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// Its name, of its own in the policy.
    #[schemars(length(min = 1, max = 32))]
    pub affinity_name: String,
    /// Its members.
    #[serde(flatten)]
    pub affinity: ClusterAffinity,
}

/// A toleration, like a pod's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterToleration {
    /// The key of the taint. Absent: every taint (with the operator `Exists`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Equal` (the default) or `Exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// What `Equal` compares. Default: empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule` or `NoExecute`. Default: every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// How long a taint `NoExecute` is tolerated. Units: seconds. Default: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How many groups of members get a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// What makes a group: `cluster` (each member is one), or the members' label `region`, `zone` or `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadField>,
    /// What makes a group: a label of members. Not with `spreadByField`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by_label: Option<String>,
    /// At most so many groups. Default, and with 0: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_groups: Option<i32>,
    /// At least so many groups. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_groups: Option<i32>,
}

/// What makes a group of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum SpreadField {
    Cluster,
    Region,
    Zone,
    Provider,
}

/// How the replicas of workloads are divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaScheduling {
    /// `Divided` (the default), or `Duplicated`: each member gets all.
    #[serde(default)]
    pub replica_scheduling_type: SchedulingType,
    /// `Aggregated`: the fewest members that have room. `Weighted` (the default): by `weightPreference`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<DivisionPreference>,
    /// The weights. Absent: equal ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<WeightPreference>,
}

/// Whether replicas are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum SchedulingType {
    Duplicated,
    #[default]
    Divided,
}

/// How replicas are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum DivisionPreference {
    Aggregated,
    Weighted,
}

/// Weights of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightPreference {
    /// Weights by member; the largest that names a member is its. A member that none names gets nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_weight_list: Vec<StaticWeight>,
    /// `AvailableReplicas`: by how many replicas fit, in place of `staticWeightList`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

/// The weight of some members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticWeight {
    /// The members.
    pub target_cluster: ClusterAffinity,
    /// Their weight.
    #[schemars(range(min = 1))]
    pub weight: i64,
}

/// What weights are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names are Karmada's own")]
pub enum DynamicWeight {
    AvailableReplicas,
}

/// What belongs together, or apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinity {
    /// Workloads with one value of a label are together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<GroupedBy>,
    /// Workloads with one value of a label are apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<GroupedBy>,
}

/// The label that makes groups of workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupedBy {
    /// The label.
    pub group_by_label_key: String,
}

/// When objects leave a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// Not served: leaves a member where the application is not healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    /// Leaves a member that does not answer: after the `tolerationSeconds` of a toleration of `cluster.karmada.io/not-ready` or
    /// `cluster.karmada.io/unreachable`, and after 300 s without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
}

/// Leaves a member where the application is not healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationFailover {
    /// After how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_conditions: Option<DecisionConditions>,
    /// When the earlier part goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<String>,
    /// How long the earlier part stays at most. Units: seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// What of the state the new part gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// How long an application is not healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// Units: seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i32>,
}

/// Leaves a member that does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// `Gracefully`, the default: the new part comes first. Others are not served: a member that does not answer deletes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<String>,
    /// Not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// What of the state the new part gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservation {
    /// The rules.
    pub rules: Vec<StatePreservationRule>,
}

/// One value of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// The label that has it.
    pub alias_label_name: String,
    /// Where it is in the status.
    pub json_path: String,
}

/// What is not sent to members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// `true`: nothing is sent to any member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// Nothing is sent to these members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Members that nothing is sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
}

/// Which workloads are placed first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// `KubePriorityClass`.
    pub priority_class_source: String,
    /// The class.
    pub priority_class_name: String,
}
