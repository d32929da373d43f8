//! What a kind's fold sums, and which way its conditions point.

use crate::placement::divided::{Declared, Division, Kinds, Path};
use kubefold_wire::resource::{Gvk, Gvr};

/// What a kind sums. `Other` sums generations only; every status is the home's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum FoldKind {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    DaemonSet,
    Job,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
    ResourceQuota,
    Service,
    Ingress,
    Other,
    /// One that the configuration declares.
    Declared(&'static Declared),
}

/// Which part's condition stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polarity {
    /// It holds when it holds in every part.
    All,
    /// It holds when it holds in one.
    Any,
    /// The home's.
    Home,
}

impl FoldKind {
    /// Knows a kind, also one that is declared.
    pub fn known(kinds: &Kinds, gvr: &Gvr, gvk: &Gvk) -> Self {
        match Self::of(&gvr.group, &gvr.resource) {
            Self::Other => kinds.declared(gvk).map_or(Self::Other, Self::Declared),
            own => own,
        }
    }

    /// Knows one of Kubernetes' own by its group and plural resource.
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("apps", "deployments") => Self::Deployment,
            ("apps", "replicasets") => Self::ReplicaSet,
            ("", "replicationcontrollers") => Self::ReplicationController,
            ("apps", "statefulsets") => Self::StatefulSet,
            ("apps", "daemonsets") => Self::DaemonSet,
            ("batch", "jobs") => Self::Job,
            ("policy", "poddisruptionbudgets") => Self::PodDisruptionBudget,
            ("autoscaling", "horizontalpodautoscalers") => Self::HorizontalPodAutoscaler,
            ("", "resourcequotas") => Self::ResourceQuota,
            ("", "services") => Self::Service,
            ("networking.k8s.io", "ingresses") => Self::Ingress,
            _ => Self::Other,
        }
    }

    /// The fields of `spec` that are divided among the parts.
    pub fn divided(self) -> &'static [Path] {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::ReplicationController | Self::StatefulSet => &[&["replicas"]],
            Self::Job => &[&["parallelism"], &["completions"]],
            Self::PodDisruptionBudget => &[&["minAvailable"], &["maxUnavailable"]],
            Self::HorizontalPodAutoscaler => &[&["minReplicas"], &["maxReplicas"]],
            Self::DaemonSet | Self::ResourceQuota | Self::Service | Self::Ingress | Self::Other => &[],
            Self::Declared(declared) => declared.divided(),
        }
    }

    /// What is divided of a companion; `None`: it is none, and what is divided is a sum.
    pub fn companion(self) -> Option<Division> {
        match self {
            Self::PodDisruptionBudget => Some(Division::Budget),
            Self::HorizontalPodAutoscaler => Some(Division::Autoscaler),
            Self::ResourceQuota => Some(Division::Quota),
            _ => None,
        }
    }

    /// The counters in `status`, `observedGeneration` apart.
    ///
    /// Source: kubernetes/api v0.36.3 `apps/v1`, `core/v1`, `batch/v1`, `policy/v1`, `autoscaling/v2` `types.go`.
    pub(super) fn counters(self) -> &'static [Path] {
        match self {
            Self::Deployment => &[
                &["replicas"],
                &["updatedReplicas"],
                &["readyReplicas"],
                &["availableReplicas"],
                &["unavailableReplicas"],
                &["terminatingReplicas"],
            ],
            Self::ReplicaSet => &[
                &["replicas"],
                &["fullyLabeledReplicas"],
                &["readyReplicas"],
                &["availableReplicas"],
                &["terminatingReplicas"],
            ],
            Self::ReplicationController => {
                &[&["replicas"], &["fullyLabeledReplicas"], &["readyReplicas"], &["availableReplicas"]]
            }
            Self::StatefulSet => {
                &[&["replicas"], &["readyReplicas"], &["currentReplicas"], &["updatedReplicas"], &["availableReplicas"]]
            }
            Self::DaemonSet => &[
                &["currentNumberScheduled"],
                &["numberMisscheduled"],
                &["desiredNumberScheduled"],
                &["numberReady"],
                &["updatedNumberScheduled"],
                &["numberAvailable"],
                &["numberUnavailable"],
            ],
            Self::Job => &[&["active"], &["succeeded"], &["failed"], &["terminating"], &["ready"]],
            Self::PodDisruptionBudget => {
                &[&["disruptionsAllowed"], &["currentHealthy"], &["desiredHealthy"], &["expectedPods"]]
            }
            Self::HorizontalPodAutoscaler => &[&["currentReplicas"], &["desiredReplicas"]],
            Self::ResourceQuota | Self::Service | Self::Ingress | Self::Other => &[],
            Self::Declared(declared) => declared.counters(),
        }
    }

    /// How a condition of this kind folds: what `kubectl wait` and `rollout status` read must be true of every part.
    ///
    /// Source: the condition types in the same files; kubernetes/kubectl `pkg/cmd/wait/condition.go` and
    /// `pkg/polymorphichelpers/rollout_status.go` (which gives up at reason `ProgressDeadlineExceeded`).
    pub(super) fn polarity(self, condition: &str) -> Polarity {
        match (self, condition) {
            (Self::Deployment, "Available" | "Progressing")
            | (Self::Job, "Complete" | "SuccessCriteriaMet" | "Suspended")
            | (Self::HorizontalPodAutoscaler, "AbleToScale" | "ScalingActive") => Polarity::All,
            (Self::Deployment | Self::ReplicaSet | Self::ReplicationController, "ReplicaFailure")
            | (Self::Job, "Failed" | "FailureTarget")
            | (Self::PodDisruptionBudget, "DisruptionAllowed")
            | (Self::HorizontalPodAutoscaler, "ScalingLimited") => Polarity::Any,
            _ => Polarity::Home,
        }
    }
}
