//! Discovery documents into catalogs: pure.

use std::{collections::HashMap, sync::Arc};

use http::{HeaderMap, header};
use serde::de::DeserializeOwned;

use super::served::{Freshness, Group, Resource, ResponseKind, Scope, ServerVersion, Subresource, Version};
use kubefold_wire::{
    accept::{Transform, parse_accept},
    discovery::{
        ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupDiscoveryList, KindDiscovery,
        ResourceDiscovery, SubresourceDiscovery, Text, VersionDiscovery,
    },
};

/// Why a discovery document could not be read.
#[derive(Debug, thiserror::Error)]
#[error("it is no {expected}: {source}")]
pub struct ParseError {
    expected: &'static str,
    source: serde_json::Error,
}

impl ParseError {
    pub(super) fn of(expected: &'static str, source: serde_json::Error) -> Self {
        Self { expected, source }
    }
}

/// Whether an answer is aggregated discovery, by its `Content-Type`: nothing else tells (an old member answers
/// `/apis` with an APIGroupList, whatever was asked).
pub fn is_aggregated(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let clauses = parse_accept(value);
    matches!(
        clauses.first().and_then(|clause| clause.transform()),
        Some(Transform { group: "apidiscovery.k8s.io", version: "v2" | "v2beta1", kind: "APIGroupDiscoveryList" })
    )
}

/// Parses an `APIGroupDiscoveryList`, v2 or v2beta1: they have the same fields.
pub fn parse_aggregated(bytes: &[u8]) -> Result<Vec<Group>, ParseError> {
    let list: GroupDiscoveryList<'_> = parse("APIGroupDiscoveryList", bytes)?;
    let mut groups: Vec<Group> = Vec::with_capacity(list.items.len());
    for item in list.items {
        let versions = unique(item.versions.into_iter().map(Version::from), |version| &version.version);
        groups.push(Group { name: item.metadata.name.into(), versions });
    }
    Ok(unique(groups, |group| &group.name))
}

/// Parses an `APIVersions` document (`/api`) into the versions of the core group.
pub fn parse_api_versions(bytes: &[u8]) -> Result<Vec<Arc<str>>, ParseError> {
    Ok(words(parse::<ApiVersions<'_>>("APIVersions", bytes)?.versions))
}

/// A group's name and the names of its versions, the preferred one first.
pub type ListedGroup = (Arc<str>, Vec<Arc<str>>);

/// Parses an `APIGroupList` (`/apis`) into groups and their versions, the preferred one first.
pub fn parse_group_list(bytes: &[u8]) -> Result<Vec<ListedGroup>, ParseError> {
    let in_order = |group: ApiGroup<'_>| {
        let preferred = group.preferred_version.unwrap_or_default().version;
        let mut versions: Vec<Text<'_>> = group.versions.into_iter().map(|one| one.version).collect();
        versions.sort_by_key(|version| *version != preferred);
        (group.name.into(), words(versions))
    };
    Ok(parse::<ApiGroupList<'_>>("APIGroupList", bytes)?.groups.into_iter().map(in_order).collect())
}

/// Parses an `APIResourceList` (`/api/v1`, `/apis/<group>/<version>`): `pods/status` becomes a subresource.
///
/// Source: kubernetes/apiserver `pkg/endpoints/installer.go` `ConvertGroupVersionIntoToDiscovery`.
pub fn parse_resource_list(bytes: &[u8]) -> Result<Vec<Resource>, ParseError> {
    let list: ApiResourceList<'_> = parse("APIResourceList", bytes)?;
    let (parents, children): (Vec<_>, Vec<_>) = list.resources.into_iter().partition(|one| !one.name.contains('/'));
    let mut resources = unique(parents.into_iter().map(Resource::from), |one| &one.resource);
    let mut at: HashMap<Arc<str>, usize> =
        resources.iter().enumerate().map(|(at, one)| (one.resource.clone(), at)).collect();
    for child in children {
        let Some((parent, name)) = child.name.split_once('/') else { continue };
        let parent_at = *at.entry(parent.into()).or_insert_with(|| {
            // An aggregated API may serve a subresource alone.
            resources.push(Resource::bare(parent, scope_of(child.namespaced)));
            resources.len() - 1
        });
        let subresource = Subresource {
            subresource: name.into(),
            kind: Some(response_kind(&child.group, &child.version, &child.kind)),
            accepted: Vec::new(),
            verbs: words(child.verbs),
        };
        let known = &mut resources[parent_at].subresources;
        if known.iter().all(|one| one.subresource != subresource.subresource) {
            known.push(subresource);
        }
    }
    Ok(resources)
}

/// Parses the answer of `/version`.
pub fn parse_server_version(bytes: &[u8]) -> Result<ServerVersion, ParseError> {
    let document: serde_json::Map<String, serde_json::Value> = parse("version.Info", bytes)?;
    let text = |field: &str| document.get(field).and_then(|value| value.as_str()).unwrap_or_default();
    // Managed clusters say minor `29+`; a git version is `v1.29.4-eks-036c24b`.
    let leading = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().unwrap_or(0)
    };
    let patch = text("gitVersion").split('.').nth(2).map_or(0, leading);
    let number = (leading(text("major")), leading(text("minor")), patch);
    Ok(ServerVersion { number, document })
}

fn parse<T: DeserializeOwned>(expected: &'static str, bytes: &[u8]) -> Result<T, ParseError> {
    serde_json::from_slice(bytes).map_err(|source| ParseError::of(expected, source))
}

/// Keeps the first of equal names: lookups and merging go by name.
fn unique<T>(items: impl IntoIterator<Item = T>, name: fn(&T) -> &Arc<str>) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    items.into_iter().filter(|item| seen.insert(name(item).clone())).collect()
}

fn words(words: Vec<Text<'_>>) -> Vec<Arc<str>> {
    words.into_iter().map(Arc::from).collect()
}

fn response_kind(group: &str, version: &str, kind: &str) -> ResponseKind {
    ResponseKind { group: group.into(), version: version.into(), kind: kind.into() }
}

fn scope_of(namespaced: bool) -> Scope {
    if namespaced { Scope::Namespaced } else { Scope::Cluster }
}

impl From<VersionDiscovery<'_>> for Version {
    fn from(version: VersionDiscovery<'_>) -> Self {
        Self {
            version: version.version.into(),
            freshness: if version.freshness == "Stale" { Freshness::Stale } else { Freshness::Current },
            resources: unique(version.resources.into_iter().map(Resource::from), |one| &one.resource),
        }
    }
}

impl From<ResourceDiscovery<'_>> for Resource {
    fn from(resource: ResourceDiscovery<'_>) -> Self {
        Self {
            resource: resource.resource.into(),
            kind: resource.response_kind.map(ResponseKind::from),
            scope: scope_of(resource.scope == "Namespaced"),
            singular: resource.singular_resource.into(),
            verbs: words(resource.verbs),
            short_names: words(resource.short_names),
            categories: words(resource.categories),
            subresources: unique(resource.subresources.into_iter().map(Subresource::from), |one| &one.subresource),
        }
    }
}

impl From<SubresourceDiscovery<'_>> for Subresource {
    fn from(subresource: SubresourceDiscovery<'_>) -> Self {
        Self {
            subresource: subresource.subresource.into(),
            kind: subresource.response_kind.map(ResponseKind::from),
            accepted: subresource.accepted_types.into_iter().map(ResponseKind::from).collect(),
            verbs: words(subresource.verbs),
        }
    }
}

impl From<KindDiscovery<'_>> for ResponseKind {
    fn from(kind: KindDiscovery<'_>) -> Self {
        response_kind(&kind.group, &kind.version, &kind.kind)
    }
}

impl From<ApiResource<'_>> for Resource {
    fn from(resource: ApiResource<'_>) -> Self {
        Self {
            resource: resource.name.into(),
            kind: Some(response_kind(&resource.group, &resource.version, &resource.kind)),
            scope: scope_of(resource.namespaced),
            singular: resource.singular_name.into(),
            verbs: words(resource.verbs),
            short_names: words(resource.short_names),
            categories: words(resource.categories),
            subresources: Vec::new(),
        }
    }
}

impl Resource {
    fn bare(name: &str, scope: Scope) -> Self {
        Self {
            resource: name.into(),
            kind: Some(response_kind("", "", "")),
            scope,
            singular: "".into(),
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }
}
