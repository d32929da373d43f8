//! `APIGroupDiscoveryList`, v2.
//!
//! Source: KEP-3352; field order as in kubernetes/api `apidiscovery/v2/types.go`.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::documents::compact;
use crate::catalog::{
    Catalogue, Freshness, MergedGroup, MergedResource, MergedVersion, ResponseKind, Scope, Subresource,
};

/// How every document begins.
pub(super) const TYPE_META: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;

/// The document of the groups that are wanted.
pub(super) fn list(catalogue: &Catalogue, wanted: fn(&str) -> bool) -> Bytes {
    compact(&ListJson {
        kind: "APIGroupDiscoveryList",
        api_version: "apidiscovery.k8s.io/v2",
        metadata: Metadata { name: "" },
        items: catalogue.groups.iter().filter(|group| wanted(&group.name)).map(GroupJson::from).collect(),
    })
}

#[derive(Serialize)]
struct ListJson<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Metadata<'a>,
    items: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<VersionJson<'a>>,
}

#[derive(Serialize)]
struct VersionJson<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<ResourceJson<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceJson<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_kind: Option<KindJson<'a>>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceJson<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceJson<'a> {
    subresource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_kind: Option<KindJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepted_types: Vec<KindJson<'a>>,
    verbs: Vec<&'a str>,
}

#[derive(Serialize)]
struct KindJson<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

impl<'a> From<&'a MergedGroup> for GroupJson<'a> {
    fn from(group: &'a MergedGroup) -> Self {
        Self {
            metadata: Metadata { name: &group.name },
            versions: group.versions.iter().map(VersionJson::from).collect(),
        }
    }
}

impl<'a> From<&'a MergedVersion> for VersionJson<'a> {
    fn from(version: &'a MergedVersion) -> Self {
        Self {
            version: &version.version,
            resources: version.resources.iter().map(ResourceJson::from).collect(),
            freshness: match version.freshness {
                Freshness::Current => "Current",
                Freshness::Stale => "Stale",
            },
        }
    }
}

impl<'a> From<&'a MergedResource> for ResourceJson<'a> {
    fn from(resource: &'a MergedResource) -> Self {
        Self {
            resource: &resource.gvr.resource,
            response_kind: resource.response_kind.as_ref().map(KindJson::from),
            scope: match resource.scope {
                Scope::Namespaced => "Namespaced",
                Scope::Cluster => "Cluster",
            },
            singular_resource: &resource.singular,
            verbs: words(&resource.verbs),
            short_names: words(&resource.short_names),
            categories: words(&resource.categories),
            subresources: resource.subresources.iter().map(SubresourceJson::from).collect(),
        }
    }
}

impl<'a> From<&'a Subresource> for SubresourceJson<'a> {
    fn from(subresource: &'a Subresource) -> Self {
        Self {
            subresource: &subresource.subresource,
            response_kind: subresource.kind.as_ref().map(KindJson::from),
            accepted_types: subresource.accepted.iter().map(KindJson::from).collect(),
            verbs: words(&subresource.verbs),
        }
    }
}

impl<'a> From<&'a ResponseKind> for KindJson<'a> {
    fn from(kind: &'a ResponseKind) -> Self {
        Self { group: &kind.group, version: &kind.version, kind: &kind.kind }
    }
}

/// The words as serde can write them.
pub(super) fn words(words: &[Arc<str>]) -> Vec<&str> {
    words.iter().map(|word| &**word).collect()
}
