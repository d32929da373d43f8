//! The documents from before aggregated discovery, which many clients still ask for.

use std::sync::Arc;

use bytes::Bytes;

use super::{aggregated::text, storage_hashes::StorageHashes};
use crate::catalog::words;
use crate::catalog::{Catalog, MergedGroup, MergedResource, MergedVersion, ResponseKind, Scope};
use kubefold_wire::discovery::{ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, compact};

/// `/api`
pub(super) fn api_versions(catalog: &Catalog, host: &str) -> Bytes {
    let core = catalog.group("").into_iter().flat_map(|group| &group.versions);
    compact(&ApiVersions::new(core.map(|version| text(&version.version)).collect(), host))
}

/// `/apis`
pub(super) fn group_list(catalog: &Catalog) -> Bytes {
    let groups = catalog.groups.iter().filter(|group| !group.name.is_empty());
    compact(&ApiGroupList::new(groups.map(|group| document(group)).collect()))
}

/// `/apis/<group>`
pub(super) fn group(group: &MergedGroup) -> Bytes {
    compact(&document(group).alone())
}

fn document(group: &MergedGroup) -> ApiGroup<'_> {
    let versions = group.versions.iter().map(|version| &*version.version);
    ApiGroup::new(&group.name, versions, group.preferred().map(|version| &*version.version))
}

/// `/api/v1`, `/apis/<group>/<version>`
pub(super) fn resource_list(group: &str, version: &MergedVersion, hashes: &StorageHashes) -> Bytes {
    let resources = version.resources.iter().flat_map(|resource| rows(resource, hashes)).collect();
    compact(&ApiResourceList::new(group, &version.version, resources))
}

/// A resource and, after it, its subresources: `pods`, `pods/attach`, ...
fn rows<'a>(resource: &'a MergedResource, hashes: &'a StorageHashes) -> impl Iterator<Item = ApiResource<'a>> {
    let parent = ApiResource {
        singular_name: text(&resource.singular),
        short_names: words(&resource.short_names),
        categories: words(&resource.categories),
        storage_version_hash: hashes.get(&*resource.gvr.resource).map_or("", String::as_str).into(),
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

/// Group and version are written only where they are not the list's.
fn row<'a>(
    of: &'a MergedResource,
    name: String,
    kind: Option<&'a ResponseKind>,
    verbs: &'a [Arc<str>],
) -> ApiResource<'a> {
    let elsewhere =
        kind.filter(|kind| !kind.version.is_empty() && (kind.group != of.gvr.group || kind.version != of.gvr.version));
    ApiResource {
        name: name.into(),
        namespaced: of.scope == Scope::Namespaced,
        group: elsewhere.map_or("", |kind| &kind.group).into(),
        version: elsewhere.map_or("", |kind| &kind.version).into(),
        kind: kind.map_or("", |kind| &kind.kind).into(),
        verbs: words(verbs),
        ..ApiResource::default()
    }
}
