//! The catalog in the aggregated form of discovery.

use crate::catalog::{Catalog, MergedGroup, MergedResource, MergedVersion, words};
use kubefold_wire::discovery::{
    Aggregated, GroupDiscovery, KindDiscovery, Metadata, ResourceDiscovery, SubresourceDiscovery, Text,
    VersionDiscovery,
};

/// The document of the groups that are wanted.
pub(super) fn list(catalog: &Catalog, wanted: fn(&str) -> bool) -> Aggregated {
    Aggregated::new(catalog.groups.iter().filter(|one| wanted(&one.name)).map(|one| group(one)).collect())
}

fn group(group: &MergedGroup) -> GroupDiscovery<'_> {
    GroupDiscovery {
        metadata: Metadata { name: text(&group.name) },
        versions: group.versions.iter().map(version).collect(),
    }
}

fn version(version: &MergedVersion) -> VersionDiscovery<'_> {
    VersionDiscovery {
        version: text(&version.version),
        resources: version.resources.iter().map(resource).collect(),
        freshness: version.freshness.as_str().into(),
    }
}

fn resource(resource: &MergedResource) -> ResourceDiscovery<'_> {
    ResourceDiscovery {
        resource: text(&resource.gvr.resource),
        response_kind: resource.response_kind.as_ref().map(KindDiscovery::from),
        scope: resource.scope.as_str().into(),
        singular_resource: text(&resource.singular),
        verbs: words(&resource.verbs),
        short_names: words(&resource.short_names),
        categories: words(&resource.categories),
        subresources: resource.subresources.iter().map(SubresourceDiscovery::from).collect(),
    }
}

/// A word as a document has it.
pub(super) fn text(word: &str) -> Text<'_> {
    word.into()
}
