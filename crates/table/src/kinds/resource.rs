//! Devices, and what is scheduled with them.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Error;

use crate::{
    cells::Cells,
    duration::parse_time,
    kinds::{Print, name_and_age},
    object::{Count, List, Object, Text},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => name_and_age,
        ("resource.k8s.io", "DeviceTaintRule") => device_taint_rule,
        ("resource.k8s.io", "ResourceClaim") => resource_claim,
        ("resource.k8s.io", "ResourcePoolStatusRequest") => pool_status_request,
        ("resource.k8s.io", "ResourceSlice") => resource_slice,
        ("scheduling.k8s.io", "PodGroup") => pod_group,
        ("scheduling.k8s.io", "PriorityClass") => priority_class,
        ("scheduling.k8s.io", "Workload") => name_and_age,
        _ => return None,
    })
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TaintRule<'a> {
    spec: TaintRuleSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TaintRuleSpec<'a> {
    taint: Taint<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Taint<'a> {
    key: Text<'a>,
    value: Text<'a>,
    effect: Text<'a>,
    time_added: Option<Text<'a>>,
}

/// `printDeviceTaint`
fn device_taint_rule(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let TaintRule { spec } = object.read()?;
    cells.name();
    cells.text(spec.taint.key.as_str());
    cells.text(spec.taint.value.as_str());
    cells.text(spec.taint.effect.as_str());
    match &spec.taint.time_added {
        Some(time) => cells.since_text(time),
        None => cells.text(""),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Claim {
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    allocation: Option<IgnoredAny>,
    reserved_for: Count,
}

/// `printResourceClaim`
fn resource_claim(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Claim { status } = object.read()?;
    cells.name();
    let allocated = match (status.allocation.is_some(), status.reserved_for.0 > 0) {
        (true, true) => "allocated,reserved",
        (true, false) => "allocated",
        (false, _) => "",
    };
    match (object.is_deleting(), allocated) {
        (true, "") => cells.text("deleted"),
        (true, allocated) => cells.print(format_args!("deleted,{allocated}")),
        (false, "") => cells.text("pending"),
        (false, allocated) => cells.text(allocated),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Slice<'a> {
    spec: SliceSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct SliceSpec<'a> {
    driver: Text<'a>,
    node_name: Text<'a>,
    pool: Pool<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Pool<'a> {
    name: Text<'a>,
}

/// `printResourceSlice`
fn resource_slice(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Slice { spec } = object.read()?;
    cells.name();
    cells.text(spec.node_name.as_str());
    cells.text(spec.driver.as_str());
    cells.text(spec.pool.name.as_str());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PoolStatusRequest<'a> {
    spec: SliceSpec<'a>,
    status: Option<PoolStatus<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PoolStatus<'a> {
    conditions: List<Condition<'a>>,
    pool_count: i64,
    pools: List<PoolState>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
    last_transition_time: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PoolState {
    validation_error: Option<IgnoredAny>,
    total_devices: i64,
    available_devices: i64,
    allocated_devices: i64,
    unavailable_devices: i64,
}

/// `printResourcePoolStatusRequest`
fn pool_status_request(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PoolStatusRequest { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.driver.as_str());
    let decided = |condition: &&Condition<'_>| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status.as_str() == "True"
    };
    let decision = status.as_ref().and_then(|status| status.conditions.iter().find(decided));
    let is_failed = decision.is_some_and(|condition| condition.type_.as_str() == "Failed");
    let sums: [fn(&PoolState) -> i64; 5] = [
        |pool| pool.total_devices,
        |pool| pool.available_devices,
        |pool| pool.allocated_devices,
        |pool| pool.unavailable_devices,
        |pool| i64::from(pool.validation_error.is_some()),
    ];
    for sum in sums {
        match status.as_ref().filter(|_| !is_failed) {
            Some(status) => cells.print(format_args!("{}", status.pools.iter().map(sum).sum::<i64>())),
            None => cells.text("-"),
        }
    }
    let (known, count) = status.as_ref().map_or((0, 0), |status| (status.pools.len(), status.pool_count));
    cells.number(count);
    match decision.map(|condition| condition.type_.as_str()) {
        Some("Complete") if usize::try_from(count).is_ok_and(|count| count > known) => {
            cells.print(format_args!("Complete ({known}/{count} pools)"));
        }
        state => cells.text(state.unwrap_or("Pending")),
    }
    match decision.filter(|_| !is_failed) {
        Some(complete) => cells.since(parse_time(complete.last_transition_time.as_str())),
        None => cells.text("<none>"),
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PodGroup<'a> {
    spec: PodGroupSpec<'a>,
    status: PodGroupStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PodGroupSpec<'a> {
    scheduling_policy: SchedulingPolicy,
    pod_group_template_ref: Option<TemplateRef<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SchedulingPolicy {
    gang: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TemplateRef<'a> {
    workload: WorkloadRef<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct WorkloadRef<'a> {
    workload_name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PodGroupStatus<'a> {
    conditions: List<Condition<'a>>,
}

/// `printPodGroup`
fn pod_group(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PodGroup { spec, status } = object.read()?;
    let last = |type_: &str| status.conditions.iter().rfind(|condition| condition.type_.as_str() == type_);
    cells.name();
    cells.text(if spec.scheduling_policy.gang.is_some() { "Gang" } else { "Basic" });
    cells.text(
        spec.pod_group_template_ref.as_ref().map_or("<none>", |template| template.workload.workload_name.as_str()),
    );
    cells.text(match (last("DisruptionTarget"), last("PodGroupScheduled")) {
        (Some(disrupted), _) => disrupted.reason.as_str(),
        (None, Some(scheduled)) if scheduled.status.as_str() == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    });
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PriorityClass<'a> {
    value: i64,
    global_default: bool,
    preemption_policy: Text<'a>,
}

/// `printPriorityClass`
fn priority_class(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let class: PriorityClass<'_> = object.read()?;
    cells.name();
    cells.number(class.value);
    cells.bool(class.global_default);
    cells.age();
    cells.text(class.preemption_policy.as_str());
    Ok(())
}
