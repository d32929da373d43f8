//! The catalog in the aggregated form of discovery.

use std::sync::Arc;

use crate::catalog::{
    Catalog, Freshness, MergedGroup, MergedResource, MergedVersion, ResponseKind, Scope, Subresource,
};
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
    let freshness = match version.freshness {
        Freshness::Current => "Current",
        Freshness::Stale => "Stale",
    };
    VersionDiscovery {
        version: text(&version.version),
        resources: version.resources.iter().map(resource).collect(),
        freshness: freshness.into(),
    }
}

fn resource(resource: &MergedResource) -> ResourceDiscovery<'_> {
    let scope = match resource.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    ResourceDiscovery {
        resource: text(&resource.gvr.resource),
        response_kind: resource.response_kind.as_ref().map(kind),
        scope: scope.into(),
        singular_resource: text(&resource.singular),
        verbs: words(&resource.verbs),
        short_names: words(&resource.short_names),
        categories: words(&resource.categories),
        subresources: resource.subresources.iter().map(subresource).collect(),
    }
}

fn subresource(subresource: &Subresource) -> SubresourceDiscovery<'_> {
    SubresourceDiscovery {
        subresource: text(&subresource.subresource),
        response_kind: subresource.kind.as_ref().map(kind),
        accepted_types: subresource.accepted.iter().map(kind).collect(),
        verbs: words(&subresource.verbs),
    }
}

fn kind(kind: &ResponseKind) -> KindDiscovery<'_> {
    KindDiscovery { group: text(&kind.group), version: text(&kind.version), kind: text(&kind.kind) }
}

/// A word as a document has it.
pub(super) fn text(word: &str) -> Text<'_> {
    word.into()
}

/// Words as a document has them.
pub(super) fn words(words: &[Arc<str>]) -> Vec<Text<'_>> {
    words.iter().map(|word| text(word)).collect()
}
