//! Namespaces, what they hold, and a cluster's own affairs.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    kinds::{Print, name_and_age, with_more},
    object::{Count, List, Map, Object, Text},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("", "ComponentStatus") => component_status,
        ("", "ConfigMap") => config_map,
        ("", "Namespace") => namespace,
        ("", "ResourceQuota") => resource_quota,
        ("", "Secret") => secret,
        ("", "ServiceAccount") => name_and_age,
        ("apiregistration.k8s.io", "APIService") => api_service,
        ("coordination.k8s.io", "Lease") => lease,
        ("coordination.k8s.io", "LeaseCandidate") => lease_candidate,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => priority_level,
        ("internal.apiserver.k8s.io", "StorageVersion") => storage_version,
        ("node.k8s.io", "RuntimeClass") => runtime_class,
        ("storagemigration.k8s.io", "StorageVersionMigration") => storage_version_migration,
        _ => return None,
    })
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConfigMap {
    data: Count,
    binary_data: Count,
}

/// `printConfigMap`
fn config_map(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let ConfigMap { data, binary_data } = object.read()?;
    cells.name();
    cells.number(data.0 + binary_data.0);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Secret<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    data: Count,
}

/// `printSecret`
fn secret(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Secret { type_, data } = object.read()?;
    cells.name();
    cells.text(type_.as_str());
    cells.number(data.0);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Namespace<'a> {
    status: Phase<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Phase<'a> {
    phase: Text<'a>,
}

/// `printNamespace`
fn namespace(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Namespace { status } = object.read()?;
    cells.name();
    cells.text(status.phase.as_str());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Quota<'a> {
    status: QuotaStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct QuotaStatus<'a> {
    hard: Map<'a>,
    used: Map<'a>,
}

/// `printResourceQuota`
fn resource_quota(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Quota { status } = object.read()?;
    let mut hard: Vec<&(Text<'_>, Text<'_>)> = status.hard.0.iter().collect();
    hard.sort();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in hard {
        let used = status.used.get(name.as_str()).unwrap_or("0");
        let column = if name.as_str().starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{}: {used}/{}", name.0, hard.0));
    }
    cells.name();
    cells.text(&requests.join(", "));
    cells.text(&limits.join(", "));
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Component<'a> {
    conditions: List<Condition<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
    message: Text<'a>,
    error: Text<'a>,
}

/// `printComponentStatus`
fn component_status(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Component { conditions } = object.read()?;
    cells.name();
    match conditions.iter().find(|condition| condition.type_.as_str() == "Healthy") {
        None => ["Unknown", "", ""].into_iter().for_each(|text| cells.text(text)),
        Some(healthy) => {
            cells.text(if healthy.status.as_str() == "True" { "Healthy" } else { "Unhealthy" });
            cells.text(healthy.message.as_str());
            cells.text(healthy.error.as_str());
        }
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ApiService<'a> {
    spec: ApiServiceSpec<'a>,
    status: Component<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ApiServiceSpec<'a> {
    service: Option<ServiceRef<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ServiceRef<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
}

/// kube-aggregator `pkg/registry/apiservice/etcd/etcd.go`
fn api_service(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let ApiService { spec, status } = object.read()?;
    cells.name();
    match &spec.service {
        Some(service) => cells.print(format_args!("{}/{}", service.namespace.0, service.name.0)),
        None => cells.text("Local"),
    }
    match status.conditions.iter().find(|condition| condition.type_.as_str() == "Available") {
        None => cells.text("Unknown"),
        Some(condition) if condition.status.as_str() != "True" && !condition.reason.is_empty() => {
            cells.print(format_args!("{} ({})", condition.status.0, condition.reason.0));
        }
        Some(condition) => cells.text(condition.status.as_str()),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Lease<'a> {
    spec: LeaseSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct LeaseSpec<'a> {
    holder_identity: Text<'a>,
    lease_name: Text<'a>,
    binary_version: Text<'a>,
    emulation_version: Text<'a>,
}

/// `printLease`
fn lease(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Lease { spec } = object.read()?;
    cells.name();
    cells.text(spec.holder_identity.as_str());
    cells.age();
    Ok(())
}

/// `printLeaseCandidate`
fn lease_candidate(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Lease { spec } = object.read()?;
    cells.name();
    cells.text(spec.lease_name.as_str());
    cells.text(spec.binary_version.as_str());
    cells.text(spec.emulation_version.as_str());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct FlowSchema<'a> {
    spec: FlowSchemaSpec<'a>,
    status: Component<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct FlowSchemaSpec<'a> {
    priority_level_configuration: Named<'a>,
    matching_precedence: i64,
    distinguisher_method: Option<Method<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Named<'a> {
    name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Method<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
}

/// `printFlowSchema`
fn flow_schema(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let FlowSchema { spec, status } = object.read()?;
    cells.name();
    cells.text(spec.priority_level_configuration.name.as_str());
    cells.number(spec.matching_precedence);
    cells.text(spec.distinguisher_method.as_ref().map_or("<none>", |method| method.type_.as_str()));
    cells.age();
    let dangling = status.conditions.iter().find(|condition| condition.type_.as_str() == "Dangling");
    cells.text(dangling.map_or("?", |condition| condition.status.as_str()));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PriorityLevel<'a> {
    spec: PriorityLevelSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PriorityLevelSpec<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    limited: Option<Limited>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: i64,
    limit_response: LimitResponse,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    queuing: Option<Queuing>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Queuing {
    queues: i64,
    hand_size: i64,
    queue_length_limit: i64,
}

/// `printPriorityLevelConfiguration`
fn priority_level(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PriorityLevel { spec } = object.read()?;
    cells.name();
    cells.text(spec.type_.as_str());
    let limited = spec.limited.as_ref();
    let queuing = limited.and_then(|limited| limited.limit_response.queuing.as_ref());
    for number in [
        limited.map(|limited| limited.nominal_concurrency_shares),
        queuing.map(|queuing| queuing.queues),
        queuing.map(|queuing| queuing.hand_size),
        queuing.map(|queuing| queuing.queue_length_limit),
    ] {
        match number {
            Some(number) => cells.number(number),
            None => cells.text("<none>"),
        }
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct StorageVersion<'a> {
    status: StorageVersionStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct StorageVersionStatus<'a> {
    common_encoding_version: Option<Text<'a>>,
    storage_versions: List<ServerVersion<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ServerVersion<'a> {
    #[serde(rename = "apiServerID")]
    api_server_id: Text<'a>,
    encoding_version: Text<'a>,
}

/// `printStorageVersion`
fn storage_version(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let StorageVersion { status } = object.read()?;
    let one = |version: &ServerVersion<'_>| format!("{}={}", version.api_server_id.0, version.encoding_version.0);
    let versions: Vec<String> = status.storage_versions.iter().map(one).collect();
    cells.name();
    cells.text(status.common_encoding_version.as_ref().map_or("<unset>", Text::as_str));
    cells.text(&with_more(&versions));
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct RuntimeClass<'a> {
    handler: Text<'a>,
}

/// `printRuntimeClass`
fn runtime_class(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let RuntimeClass { handler } = object.read()?;
    cells.name();
    cells.text(handler.as_str());
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Migration<'a> {
    spec: MigrationSpec<'a>,
    status: Component<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MigrationSpec<'a> {
    resource: GroupResource<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GroupResource<'a> {
    group: Text<'a>,
    resource: Text<'a>,
}

/// `printStorageVersionMigration`
fn storage_version_migration(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Migration { spec, status } = object.read()?;
    cells.name();
    let GroupResource { group, resource } = &spec.resource;
    let dot = if group.is_empty() { "" } else { "." };
    cells.print(format_args!("{}{dot}{}", resource.0, group.0));
    let is_state = |condition: &&Condition<'_>| {
        condition.status.as_str() == "True" && matches!(condition.type_.as_str(), "Running" | "Failed" | "Succeeded")
    };
    cells.text(status.conditions.iter().rfind(is_state).map_or("Unknown", |condition| condition.type_.as_str()));
    Ok(())
}
