//! What is special to each built-in kind.

use serde_json::Value;

use super::{
    Allocator, Context, Dependency, Propagation, admit,
    check::{
        Errors, admission, core, events, job, metadata, mutations, networking, others, pod, service as services,
        storage, webhooks, workload,
    },
    convert,
    doc::Doc,
    prepare, service,
};
use kubefold_wire::names::NameRule;
use kubefold_wire::status::{Cause, Status};

/// When `metadata.generation` moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// There is none.
    No,
    /// It is 1 and stays.
    One,
    /// It is 1, and one more after each change of these fields.
    Of(&'static [&'static str]),
    /// There is none at first, but one more after each change of these fields.
    Later(&'static [&'static str]),
}

/// The steps of a strategy that differ between kinds.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) name: NameRule,
    pub(super) generation: Generation,
    pub(super) creates_with_status: bool,
    pub(super) creates_on_update: bool,
    pub(super) updates_unconditionally: bool,
    pub(super) propagation: Propagation,
    /// Fields of the metadata that an update of `/status` may not change.
    pub(super) status_keeps: &'static [&'static str],
    pub(super) wants: fn(&Value) -> Vec<Dependency>,
    pub(super) admit: fn(&mut Value, Context<'_>) -> Result<(), Box<Status>>,
    pub(super) prepare_for_create: fn(&mut Value),
    pub(super) prepare_for_update: fn(&mut Value, &Value),
    pub(super) prepare_for_status: fn(&mut Value, &Value),
    pub(super) canonicalize: fn(&mut Value),
    pub(super) check: fn(&Value, &mut Errors),
    pub(super) check_update: fn(&Value, &Value, &mut Errors),
    pub(super) check_status: fn(&Value, &Value, &mut Errors),
    pub(super) warnings: fn(&Value) -> Vec<String>,
    pub(super) allocate: Allocate,
    pub(super) release: fn(&Value, Option<&Value>, &Allocator),
    pub(super) to_storage: fn(Value) -> Value,
    pub(super) from_storage: fn(Value) -> Value,
    pub(super) grace_seconds: fn(&Value, Option<i64>) -> Option<i64>,
}

type Allocate = fn(&mut Value, Option<&Value>, Context<'_>) -> Result<(), Vec<Cause>>;

/// A kind with nothing special.
const PLAIN: Rules = Rules {
    name: NameRule::Subdomain,
    generation: Generation::No,
    creates_with_status: false,
    creates_on_update: false,
    updates_unconditionally: true,
    propagation: Propagation::Background,
    status_keeps: &[],
    wants: |_| Vec::new(),
    admit: |_, _| Ok(()),
    prepare_for_create: |_| {},
    prepare_for_update: |_, _| {},
    prepare_for_status: |_, _| {},
    canonicalize: |_| {},
    check: |_, _| {},
    check_update: metadata::check_update,
    check_status: metadata::check_update,
    warnings: |_| Vec::new(),
    allocate: |_, _, _| Ok(()),
    release: |_, _, _| {},
    to_storage: |object| object,
    from_storage: |object| object,
    grace_seconds: |_, _| None,
};

const SPEC: Generation = Generation::Of(&["spec"]);
const ALL_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// The rules of a kind.
pub(super) fn of(group: &str, version: &str, kind: &str) -> Rules {
    match group {
        "" => of_core(kind),
        "apps" | "batch" => of_workloads(kind),
        "events.k8s.io" => Rules {
            check: events::check_new,
            check_update: events::check_new_update,
            to_storage: convert::event_to_core,
            from_storage: convert::event_from_core,
            ..event()
        },
        "autoscaling" => {
            let rules = Rules { check: others::autoscaler, check_update: others::autoscaler_update, ..PLAIN };
            if version == "v1" {
                Rules {
                    canonicalize: convert::autoscaler_round_trip,
                    to_storage: convert::autoscaler_to_v2,
                    from_storage: convert::autoscaler_to_v1,
                    ..rules
                }
            } else {
                rules
            }
        }
        "admissionregistration.k8s.io" => of_admission(kind),
        "networking.k8s.io" => of_networking(kind),
        "rbac.authorization.k8s.io" => Rules {
            name: NameRule::PathSegment,
            creates_on_update: true,
            check: others::access,
            check_update: others::access_update,
            ..PLAIN
        },
        "storage.k8s.io" => of_storage(kind),
        _ => of_others(kind),
    }
}

fn event() -> Rules {
    // Events are checked for little, and their names for nothing but what a URL needs.
    Rules {
        name: NameRule::PathSegment,
        creates_on_update: true,
        check: events::check,
        check_update: events::check_update,
        ..PLAIN
    }
}

fn of_core(kind: &str) -> Rules {
    match kind {
        "Pod" => Rules {
            generation: SPEC,
            status_keeps: &["ownerReferences", "deletionTimestamp"],
            wants: admit::pod_wants,
            admit: admit::pod,
            prepare_for_create: prepare::pod,
            prepare_for_update: prepare::pod_update,
            prepare_for_status: prepare::pod_status,
            check: pod::check,
            check_update: pod::check_update,
            grace_seconds: pod_grace,
            ..PLAIN
        },
        "Service" => Rules {
            name: NameRule::Label,
            creates_on_update: true,
            prepare_for_create: service::create,
            prepare_for_update: service::update,
            check: services::check,
            check_update: services::check_update,
            allocate: service::allocate,
            release: service::release,
            ..PLAIN
        },
        "Namespace" => Rules {
            name: NameRule::Label,
            prepare_for_create: prepare::namespace,
            prepare_for_update: prepare::namespace_update,
            canonicalize: prepare::namespace_label,
            check: core::namespace,
            ..PLAIN
        },
        "Node" => Rules {
            creates_with_status: true,
            prepare_for_create: prepare::node,
            prepare_for_update: prepare::node_update,
            check: core::node,
            check_update: core::node_update,
            ..PLAIN
        },
        "Secret" => Rules {
            prepare_for_create: prepare::secret,
            prepare_for_update: prepare::secret_update,
            check: core::secret,
            check_update: core::secret_update,
            ..PLAIN
        },
        "ConfigMap" => Rules { check: core::config_map, check_update: core::config_map_update, ..PLAIN },
        "ReplicationController" => Rules {
            generation: SPEC,
            propagation: Propagation::Orphan,
            check: workload::replication_controller,
            check_update: workload::replication_controller_update,
            check_status: workload::check_status,
            ..PLAIN
        },
        _ => of_small_core(kind),
    }
}

fn of_small_core(kind: &str) -> Rules {
    match kind {
        "PersistentVolume" => Rules {
            prepare_for_create: prepare::volume,
            check: storage::volume,
            check_update: storage::volume_update,
            ..PLAIN
        },
        "PersistentVolumeClaim" => Rules {
            wants: admit::claim_wants,
            admit: admit::claim,
            prepare_for_create: prepare::claim,
            prepare_for_update: prepare::claim_update,
            check: storage::claim,
            check_update: storage::claim_update,
            ..PLAIN
        },
        "ResourceQuota" => Rules { check: core::quota, check_update: core::quota_update, ..PLAIN },
        "LimitRange" => {
            Rules { creates_on_update: true, check: core::limit_range, check_update: core::limit_range_update, ..PLAIN }
        }
        "Endpoints" => {
            Rules { creates_on_update: true, check: core::endpoints, check_update: core::endpoints_update, ..PLAIN }
        }
        "PodTemplate" => Rules {
            generation: Generation::Of(&["template"]),
            check: pod::template_kind,
            check_update: pod::template_kind_update,
            ..PLAIN
        },
        "Event" => event(),
        _ => Rules { check_update: core::account_update, ..PLAIN },
    }
}

/// A pod is given the seconds that its spec says, or those that are asked for; one that is on no node, or has ended,
/// goes at once.
///
/// Source: kubernetes `pkg/registry/core/pod/strategy.go` `CheckGracefulDelete`.
fn pod_grace(pod: &Value, asked: Option<i64>) -> Option<i64> {
    let period = asked.or_else(|| pod.number("spec.terminationGracePeriodSeconds")).unwrap_or(0);
    let at_once = pod.text("spec.nodeName").is_empty() || matches!(pod.text("status.phase"), "Failed" | "Succeeded");
    let period = if at_once {
        0
    } else if period < 0 {
        1
    } else {
        period
    };
    // None is a grace, too: it is told before the pod is gone.
    Some(period)
}

fn of_workloads(kind: &str) -> Rules {
    match kind {
        "Deployment" => Rules {
            generation: Generation::Of(&["spec", "metadata.annotations"]),
            status_keeps: &["labels"],
            check: workload::deployment,
            check_update: workload::deployment_update,
            check_status: workload::check_status,
            ..PLAIN
        },
        "ReplicaSet" => Rules {
            generation: SPEC,
            check: workload::replica_set,
            check_update: workload::replica_set_update,
            check_status: workload::check_status,
            ..PLAIN
        },
        "StatefulSet" => Rules {
            name: NameRule::Label,
            generation: SPEC,
            prepare_for_create: prepare::stateful_set,
            prepare_for_update: prepare::stateful_set_update,
            check: workload::stateful_set,
            check_update: workload::stateful_set_update,
            check_status: workload::check_status,
            ..PLAIN
        },
        "DaemonSet" => Rules {
            generation: SPEC,
            prepare_for_create: prepare::daemon_set,
            prepare_for_update: prepare::daemon_set_update,
            check: workload::daemon_set,
            check_update: workload::daemon_set_update,
            ..PLAIN
        },
        "Job" => Rules {
            generation: SPEC,
            propagation: Propagation::Orphan,
            prepare_for_create: prepare::job,
            check: job::job,
            check_update: job::job_update,
            ..PLAIN
        },
        "CronJob" => Rules { generation: SPEC, check: job::cron_job, check_update: job::cron_job_update, ..PLAIN },
        _ => Rules { check: workload::revision, check_update: workload::revision_update, ..PLAIN },
    }
}

fn of_networking(kind: &str) -> Rules {
    match kind {
        "Ingress" => Rules {
            generation: SPEC,
            wants: admit::ingress_wants,
            admit: admit::ingress,
            check: networking::ingress,
            check_update: networking::ingress_update,
            ..PLAIN
        },
        "IngressClass" => Rules {
            generation: SPEC,
            check: networking::ingress_class,
            check_update: networking::ingress_class_update,
            ..PLAIN
        },
        _ => Rules { generation: SPEC, check: networking::policy, check_update: networking::policy_update, ..PLAIN },
    }
}

fn of_storage(kind: &str) -> Rules {
    match kind {
        "StorageClass" => Rules { check: storage::class, check_update: storage::class_update, ..PLAIN },
        "CSIDriver" => Rules {
            updates_unconditionally: false,
            generation: Generation::Later(&["spec"]),
            check: storage::driver,
            ..PLAIN
        },
        "VolumeAttachment" => Rules {
            updates_unconditionally: false,
            status_keeps: ALL_METADATA,
            check: storage::attachment,
            check_update: storage::attachment_update,
            ..PLAIN
        },
        _ => Rules { updates_unconditionally: false, ..PLAIN },
    }
}

fn of_others(kind: &str) -> Rules {
    match kind {
        "PodDisruptionBudget" => Rules {
            name: NameRule::PathSegment,
            generation: SPEC,
            updates_unconditionally: false,
            check: others::budget,
            check_update: others::budget_update,
            ..PLAIN
        },
        "PriorityClass" => Rules {
            generation: Generation::One,
            check: others::priority,
            check_update: others::priority_update,
            ..PLAIN
        },
        "Lease" => Rules {
            creates_on_update: true,
            updates_unconditionally: false,
            check: others::lease,
            check_update: others::lease_update,
            ..PLAIN
        },
        "EndpointSlice" => Rules {
            generation: Generation::Of(&["endpoints", "ports", "addressType", "metadata.labels"]),
            check: networking::slice,
            check_update: networking::slice_update,
            ..PLAIN
        },
        "CertificateSigningRequest" => Rules {
            prepare_for_create: prepare::signing_request,
            prepare_for_update: prepare::signing_request_update,
            ..PLAIN
        },
        "RuntimeClass" => Rules { creates_on_update: true, updates_unconditionally: false, ..PLAIN },
        "CustomResourceDefinition" => Rules {
            generation: SPEC,
            updates_unconditionally: false,
            status_keeps: ALL_METADATA,
            prepare_for_update: prepare::definition_update,
            ..PLAIN
        },
        "APIService" => Rules {
            updates_unconditionally: false,
            status_keeps: ALL_METADATA,
            prepare_for_create: prepare::api_service,
            ..PLAIN
        },
        _ => PLAIN,
    }
}

fn of_admission(kind: &str) -> Rules {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => Rules {
            generation: Generation::Of(&["webhooks"]),
            updates_unconditionally: false,
            check: webhooks::configuration,
            check_update: webhooks::configuration_update,
            warnings: static_name,
            ..PLAIN
        },
        "ValidatingAdmissionPolicy" => Rules {
            generation: SPEC,
            updates_unconditionally: false,
            status_keeps: ALL_METADATA,
            check: admission::policy,
            check_update: admission::policy_update,
            warnings: static_name,
            ..PLAIN
        },
        "ValidatingAdmissionPolicyBinding" => Rules {
            generation: SPEC,
            updates_unconditionally: false,
            check: admission::binding,
            check_update: admission::binding_update,
            warnings: static_name,
            ..PLAIN
        },
        "MutatingAdmissionPolicy" => Rules {
            generation: SPEC,
            updates_unconditionally: false,
            check: mutations::policy,
            check_update: mutations::policy_update,
            warnings: static_name,
            ..PLAIN
        },
        "MutatingAdmissionPolicyBinding" => Rules {
            generation: SPEC,
            updates_unconditionally: false,
            check: mutations::binding,
            check_update: mutations::binding_update,
            warnings: static_name,
            ..PLAIN
        },
        _ => PLAIN,
    }
}

/// Source: kubernetes `pkg/apis/admissionregistration/validation/static_suffix.go`.
fn static_name(object: &Value) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    let why = "are reserved for static manifest-based configurations and cannot be managed via the API";
    let is_static = object.text("metadata.name").ends_with(SUFFIX);
    is_static.then(|| format!("metadata.name: names ending with \"{SUFFIX}\" {why}")).into_iter().collect()
}
