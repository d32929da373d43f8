//! What runs pods.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    duration::parse_time,
    kinds::{Print, containers::Template},
    object::{Count, List, Map, Object, Text},
    selector::{Selector, labels, selector},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("", "PodTemplate") => pod_template,
        ("", "ReplicationController") => replication_controller,
        ("apps", "ControllerRevision") => controller_revision,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "Deployment") => deployment,
        ("apps", "ReplicaSet") => replica_set,
        ("apps", "StatefulSet") => stateful_set,
        ("batch", "CronJob") => cron_job,
        ("batch", "Job") => job,
        ("policy", "PodDisruptionBudget") => pod_disruption_budget,
        _ => return None,
    })
}

/// The specs and statuses of most of them.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Workload<'a> {
    spec: Spec<'a>,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    replicas: i64,
    selector: Option<Selector<'a>>,
    template: Template<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    replicas: i64,
    ready_replicas: i64,
    updated_replicas: i64,
    available_replicas: i64,
    desired_number_scheduled: i64,
    current_number_scheduled: i64,
    number_ready: i64,
    updated_number_scheduled: i64,
    number_available: i64,
}

/// `printDeployment`
fn deployment(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Workload { spec, status } = object.read()?;
    cells.name();
    cells.print(format_args!("{}/{}", status.ready_replicas, spec.replicas));
    cells.number(status.updated_replicas);
    cells.number(status.available_replicas);
    cells.age();
    spec.template.containers(cells);
    cells.text(&spec.selector.map(|selector| selector.text()).unwrap_or_default());
    Ok(())
}

/// `printReplicaSet`
fn replica_set(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Workload { spec, status } = object.read()?;
    cells.name();
    cells.number(spec.replicas);
    cells.number(status.replicas);
    cells.number(status.ready_replicas);
    cells.age();
    spec.template.containers(cells);
    cells.text(&selector(spec.selector.as_ref()));
    Ok(())
}

/// `printStatefulSet`
fn stateful_set(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Workload { spec, status } = object.read()?;
    cells.name();
    cells.print(format_args!("{}/{}", status.ready_replicas, spec.replicas));
    cells.age();
    spec.template.containers(cells);
    Ok(())
}

/// `printDaemonSet`
fn daemon_set(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Workload { spec, status } = object.read()?;
    cells.name();
    for number in [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
    ] {
        cells.number(number);
    }
    cells.text(&labels(&spec.template.spec.node_selector));
    cells.age();
    spec.template.containers(cells);
    cells.text(&selector(spec.selector.as_ref()));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ReplicationController<'a> {
    spec: ReplicationControllerSpec<'a>,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ReplicationControllerSpec<'a> {
    replicas: i64,
    selector: Map<'a>,
    template: Template<'a>,
}

/// `printReplicationController`
fn replication_controller(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let ReplicationController { spec, status } = object.read()?;
    cells.name();
    cells.number(spec.replicas);
    cells.number(status.replicas);
    cells.number(status.ready_replicas);
    cells.age();
    spec.template.containers(cells);
    cells.text(&labels(&spec.selector));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PodTemplate<'a> {
    template: Template<'a>,
}

/// `printPodTemplate`
fn pod_template(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PodTemplate { template } = object.read()?;
    cells.name();
    template.containers(cells);
    cells.text(&labels(&template.metadata.labels));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Owned<'a> {
    owner_references: List<Owner<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Owner<'a> {
    api_version: Text<'a>,
    kind: Text<'a>,
    name: Text<'a>,
    controller: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ControllerRevision {
    revision: i64,
}

/// `printControllerRevision`
fn controller_revision(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let ControllerRevision { revision } = object.read()?;
    let owned: Owned<'_> = object.read_metadata()?;
    cells.name();
    match owned.owner_references.iter().find(|owner| owner.controller == Some(true)) {
        None => cells.text("<none>"),
        Some(owner) => {
            let group = owner.api_version.as_str().split_once('/').map(|(group, _)| format!(".{group}"));
            let kind = format!("{}{}", owner.kind.0, group.unwrap_or_default()).to_lowercase();
            cells.print(format_args!("{kind}/{}", owner.name.0));
        }
    }
    cells.number(revision);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Job<'a> {
    spec: JobSpec<'a>,
    status: JobStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JobSpec<'a> {
    completions: Option<i64>,
    parallelism: Option<i64>,
    selector: Option<Selector<'a>>,
    template: Template<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct JobStatus<'a> {
    succeeded: i64,
    start_time: Text<'a>,
    completion_time: Text<'a>,
    conditions: List<Condition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    status: Text<'a>,
}

/// `printJob`
fn job(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Job { spec, status } = object.read()?;
    let has = |type_: &&str| {
        let found = status.conditions.iter().find(|condition| condition.type_.as_str() == *type_);
        found.is_some_and(|condition| condition.status.as_str() == "True")
    };
    let state = if let Some(done) = ["Complete", "Failed"].into_iter().find(has) {
        done
    } else if object.is_deleting() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(has).unwrap_or("Running")
    };
    cells.name();
    cells.text(state);
    let succeeded = status.succeeded;
    match (spec.completions, spec.parallelism.unwrap_or_default()) {
        (Some(completions), _) => cells.print(format_args!("{succeeded}/{completions}")),
        (None, parallelism) if parallelism > 1 => cells.print(format_args!("{succeeded}/1 of {parallelism}")),
        (None, _) => cells.print(format_args!("{succeeded}/1")),
    }
    let (start, end) = (parse_time(status.start_time.as_str()), parse_time(status.completion_time.as_str()));
    match start {
        None => cells.text(""),
        Some(start) => cells.micros(end.unwrap_or(cells.now.0) - start),
    }
    cells.age();
    spec.template.containers(cells);
    cells.text(&selector(spec.selector.as_ref()));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct CronJob<'a> {
    spec: CronJobSpec<'a>,
    status: CronJobStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CronJobSpec<'a> {
    schedule: Text<'a>,
    time_zone: Option<Text<'a>>,
    suspend: Option<bool>,
    job_template: JobTemplate<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct JobTemplate<'a> {
    spec: JobSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CronJobStatus<'a> {
    active: Count,
    last_schedule_time: Option<Text<'a>>,
}

/// `printCronJob`
fn cron_job(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let CronJob { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.schedule.as_str());
    cells.text(spec.time_zone.as_ref().map_or("<none>", Text::as_str));
    cells.text(match spec.suspend {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    });
    cells.number(status.active.0);
    match &status.last_schedule_time {
        Some(time) => cells.since_text(time),
        None => cells.text("<none>"),
    }
    cells.age();
    let job = &spec.job_template.spec;
    job.template.containers(cells);
    cells.text(&selector(job.selector.as_ref()));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Budget<'a> {
    spec: BudgetSpec<'a>,
    status: BudgetStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct BudgetSpec<'a> {
    min_available: Option<Text<'a>>,
    max_unavailable: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetStatus {
    disruptions_allowed: i64,
}

/// `printPodDisruptionBudget`
fn pod_disruption_budget(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Budget { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.min_available.as_ref().map_or("N/A", Text::as_str));
    cells.text(spec.max_unavailable.as_ref().map_or("N/A", Text::as_str));
    cells.number(status.disruptions_allowed);
    cells.age();
    Ok(())
}
