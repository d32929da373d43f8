//! The built-in kinds, as the discovery of a kube-apiserver lists them.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::{Kind, Scale, Subresource, rules, strategy::BuiltIn};
use crate::schema::{Types, builtin_kind};

#[derive(Deserialize)]
struct Group {
    group: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    resources: Vec<Resource>,
}

/// As in `APIGroupDiscovery`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    response_kind: ResponseKind,
    scope: String,
    singular_resource: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<Sub>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sub {
    subresource: String,
    response_kind: ResponseKind,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

/// Groups, versions and resources in the order of a real server's discovery, of which this is a part.
static CATALOG: LazyLock<Vec<Group>> =
    LazyLock::new(|| serde_json::from_str(include_str!("catalog.json")).unwrap_or_default());

/// The kinds that every server serves, in the order of discovery: groups, and versions in each, most preferred first.
///
/// `types` are those of all of them, under their names in OpenAPI.
pub fn built_in(types: &Arc<Types>) -> Vec<Kind> {
    let versions = CATALOG.iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)));
    let resources = versions.flat_map(|(group, version)| version.resources.iter().map(move |of| (group, version, of)));
    resources.map(|(group, version, resource)| kind(&group.group, &version.version, resource, types)).collect()
}

/// Group and plural of each of them, of the first version that has it and of each further one.
#[cfg(feature = "etcd")]
pub(crate) fn built_in_resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    CATALOG.iter().flat_map(|group| {
        let resources = group.versions.iter().flat_map(|version| &version.resources);
        resources.map(|resource| (group.group.as_str(), resource.resource.as_str()))
    })
}

fn kind(group: &str, version: &str, resource: &Resource, types: &Arc<Types>) -> Kind {
    let name = &resource.response_kind.kind;
    let namespaced = resource.scope == "Namespaced";
    let has = |wanted: &str| resource.subresources.iter().any(|sub| sub.subresource == wanted);
    let scale = has("scale").then(|| Scale {
        spec_replicas: ".spec.replicas".into(),
        status_replicas: ".status.replicas".into(),
        selector: Some(".spec.selector".into()),
    });
    let type_name = builtin_kind(group, version, name).unwrap_or_default().to_owned();
    debug_assert!(types.named(&type_name).is_some(), "no type of {group}/{version} {name}");
    let rules = rules::of(group, version, name);
    let strategy = BuiltIn {
        types: Arc::clone(types),
        type_name: type_name.clone(),
        namespaced,
        has_status: has("status"),
        rules,
    };
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: name.clone(),
        plural: resource.resource.clone(),
        singular: resource.singular_resource.clone(),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        namespaced,
        verbs: resource.verbs.clone(),
        has_status: has("status"),
        // See `convert`.
        stored_version: (group == "autoscaling").then(|| "v2".to_owned()),
        subresources: resource.subresources.iter().map(subresource).collect(),
        scale,
        types: Arc::clone(types),
        type_name,
        strategy: Arc::new(strategy),
        ..Kind::default()
    }
}

fn subresource(sub: &Sub) -> Subresource {
    let ResponseKind { group, version, kind } = &sub.response_kind;
    let own = group.is_empty() && version.is_empty();
    Subresource {
        name: sub.subresource.clone(),
        group: (!own).then(|| group.clone()),
        version: (!own).then(|| version.clone()),
        kind: kind.clone(),
        verbs: sub.verbs.clone(),
    }
}
