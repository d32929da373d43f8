//! The documents from before aggregated discovery, which many clients still ask for.
//!
//! Source: field order as in kubernetes/apimachinery `pkg/apis/meta/v1/types.go`. `storageVersionHash` is left out: it
//! tells clients when a member's stored form changes, which members of one fleet do at different times.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::{aggregated::words, documents::compact};
use crate::member::catalog::{Catalogue, MergedGroup, MergedResource, MergedVersion, ResponseKind, Scope};
use kubefold_wire::resource::api_version;

/// `/api`. It has no `apiVersion`, since release 1.1.
pub(super) fn api_versions(catalogue: &Catalogue, host: &str) -> Bytes {
    let core = catalogue.group("").into_iter().flat_map(|group| &group.versions);
    compact(&ApiVersionsJson {
        kind: "APIVersions",
        versions: core.map(|version| &*version.version).collect(),
        server_address_by_client_cidrs: [ServerAddressJson { client_cidr: "0.0.0.0/0", server_address: host }],
    })
}

/// `/apis`
pub(super) fn group_list(catalogue: &Catalogue) -> Bytes {
    let groups = catalogue.groups.iter().filter(|group| !group.name.is_empty());
    compact(&GroupListJson {
        kind: "APIGroupList",
        api_version: "v1",
        groups: groups.map(|group| GroupJson::new(group, None)).collect(),
    })
}

/// `/apis/<group>`
pub(super) fn group(group: &MergedGroup) -> Bytes {
    compact(&GroupJson::new(group, Some("APIGroup")))
}

/// `/api/v1`, `/apis/<group>/<version>`. The core group's has no `apiVersion`, since release 1.1.
pub(super) fn resource_list(group: &str, version: &MergedVersion) -> Bytes {
    compact(&ResourceListJson {
        kind: "APIResourceList",
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: api_version(group, &version.version),
        resources: version.resources.iter().flat_map(rows).collect(),
    })
}

#[derive(Serialize)]
struct ApiVersionsJson<'a> {
    kind: &'static str,
    versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_address_by_client_cidrs: [ServerAddressJson<'a>; 1],
}

#[derive(Serialize)]
struct ServerAddressJson<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    server_address: &'a str,
}

#[derive(Serialize)]
struct GroupListJson<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    groups: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(rename = "apiVersion", skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersionJson<'a>>,
    #[serde(rename = "preferredVersion", skip_serializing_if = "Option::is_none")]
    preferred_version: Option<GroupVersionJson<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersionJson<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceListJson<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ResourceJson<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceJson<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'a str>,
}

impl<'a> GroupJson<'a> {
    fn new(group: &'a MergedGroup, kind: Option<&'static str>) -> Self {
        let named = |version: &'a MergedVersion| GroupVersionJson {
            group_version: api_version(&group.name, &version.version),
            version: &version.version,
        };
        Self {
            kind,
            api_version: kind.map(|_| "v1"),
            name: &group.name,
            versions: group.versions.iter().map(named).collect(),
            preferred_version: group.preferred().map(named),
        }
    }
}

/// A resource and, after it, its subresources: `pods`, `pods/attach`, ...
fn rows(resource: &MergedResource) -> impl Iterator<Item = ResourceJson<'_>> {
    let parent = ResourceJson {
        singular_name: &resource.singular,
        short_names: words(&resource.short_names),
        categories: words(&resource.categories),
        ..row(resource, resource.gvr.resource.to_string(), resource.response_kind.as_ref(), &resource.verbs)
    };
    let children = resource.subresources.iter().map(|sub| {
        let name = format!("{}/{}", resource.gvr.resource, sub.subresource);
        row(resource, name, sub.kind.as_ref(), &sub.verbs)
    });
    // A resource may be there for its subresources alone; it has no row of its own then.
    let alone = parent.kind.is_empty() && parent.verbs.is_empty();
    (!alone).then_some(parent).into_iter().chain(children)
}

/// Group and version are told only where they are not the list's.
fn row<'a>(
    of: &'a MergedResource,
    name: String,
    kind: Option<&'a ResponseKind>,
    verbs: &'a [Arc<str>],
) -> ResourceJson<'a> {
    let elsewhere =
        kind.filter(|kind| !kind.version.is_empty() && (kind.group != of.gvr.group || kind.version != of.gvr.version));
    ResourceJson {
        name,
        singular_name: "",
        namespaced: of.scope == Scope::Namespaced,
        group: elsewhere.map_or("", |kind| &kind.group),
        version: elsewhere.map_or("", |kind| &kind.version),
        kind: kind.map_or("", |kind| &kind.kind),
        verbs: words(verbs),
        short_names: Vec::new(),
        categories: Vec::new(),
    }
}
