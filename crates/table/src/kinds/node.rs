//! Nodes.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    object::{List, Map, Object, Text},
};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Node<'a> {
    spec: Spec,
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Status<'a> {
    conditions: List<Condition<'a>>,
    addresses: List<Address<'a>>,
    node_info: Info<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    status: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Address<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    address: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Info<'a> {
    kubelet_version: Text<'a>,
    os_image: Text<'a>,
    kernel_version: Text<'a>,
    container_runtime_version: Text<'a>,
    architecture: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    labels: Map<'a>,
}

/// `printNode`
pub(super) fn node(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Node { spec, status } = object.read()?;
    let metadata: Metadata<'_> = object.read_metadata()?;
    cells.name();
    let ready = status.conditions.iter().rfind(|condition| condition.type_.as_str() == "Ready");
    let state = match ready.map(|condition| condition.status.as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    cells.print(format_args!("{state}{}", if spec.unschedulable { ",SchedulingDisabled" } else { "" }));
    let roles: BTreeSet<&str> = metadata.labels.0.iter().filter_map(|(key, value)| role(key, value)).collect();
    let roles: Vec<&str> = roles.into_iter().collect();
    cells.text(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }.as_str());
    cells.age();
    let info = &status.node_info;
    cells.text(info.kubelet_version.as_str());
    for wanted in ["InternalIP", "ExternalIP"] {
        let found = status.addresses.iter().find(|one| one.type_.as_str() == wanted);
        cells.text(found.map_or("<none>", |one| one.address.as_str()));
    }
    cells.text(info.os_image.or("<unknown>"));
    let kernel = info.kernel_version.or("<unknown>");
    if info.architecture.is_empty() {
        cells.text(kernel);
    } else {
        cells.print(format_args!("{kernel} ({})", info.architecture.0));
    }
    cells.text(info.container_runtime_version.or("<unknown>"));
    Ok(())
}

fn role<'a>(key: &'a Text<'_>, value: &'a Text<'_>) -> Option<&'a str> {
    let role = match key.as_str().strip_prefix(ROLE_PREFIX) {
        Some(role) => role,
        None if key.as_str() == ROLE => value.as_str(),
        None => return None,
    };
    Some(role).filter(|role| !role.is_empty())
}
