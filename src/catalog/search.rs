//! What can be searched: the catalog as Clusterpedia's API shows it, and the group of that API.

use std::sync::Arc;

use crate::{
    catalog::{
        Catalog, Freshness, Group, MergedGroup, MergedResource, MergedVersion, Resource, ResponseKind, Scope, Version,
    },
    search::{GROUP, VERSION},
};

/// What a search does.
const VERBS: [&str; 3] = ["get", "list", "watch"];

impl Catalog {
    /// The kinds that are in stores, with what a search does with them, and without subresources.
    #[must_use]
    pub fn for_search(&self) -> Self {
        let groups = self.groups.iter().filter_map(|group| searched_group(group).map(Arc::new)).collect::<Vec<_>>();
        let by_group = groups.iter().enumerate().map(|(at, group)| (Arc::clone(&group.name), at)).collect();
        Self { groups, by_group, unknown: self.unknown.clone(), server: self.server.clone(), ..Self::default() }
    }
}

fn searched_group(group: &MergedGroup) -> Option<MergedGroup> {
    let versions: Vec<MergedVersion> = group.versions.iter().filter_map(searched_version).collect();
    (!versions.is_empty()).then(|| MergedGroup { name: Arc::clone(&group.name), versions, sources: Vec::new() })
}

fn searched_version(version: &MergedVersion) -> Option<MergedVersion> {
    let is_searched = |resource: &&MergedResource| {
        let is_in_store = resource.watchable && resource.allows("list") && resource.allows("watch");
        (is_in_store || resource.stored) && !resource.is_own()
    };
    let searched = |resource: &MergedResource| MergedResource {
        verbs: VERBS.iter().filter(|verb| resource.allows(verb)).map(|verb| Arc::from(*verb)).collect(),
        subresources: Vec::new(),
        ..resource.clone()
    };
    let resources: Vec<MergedResource> = version.resources.iter().filter(is_searched).map(searched).collect();
    let by_resource = resources.iter().enumerate().map(|(at, one)| (Arc::clone(&one.gvr.resource), at)).collect();
    let by_kind = resources.iter().enumerate().map(|(at, one)| (Arc::clone(&one.gvk.kind), at)).collect();
    let (version, freshness) = (Arc::clone(&version.version), version.freshness);
    (!resources.is_empty()).then_some(MergedVersion { version, freshness, resources, by_resource, by_kind })
}

/// The group of Clusterpedia's API, as discovery tells of it.
pub fn search_group() -> Arc<Group> {
    let resource = |name: &str, kind: &str, verbs: &[&str]| Resource {
        resource: name.into(),
        kind: Some(ResponseKind { group: GROUP.into(), version: VERSION.into(), kind: kind.into() }),
        scope: Scope::Cluster,
        singular: kind.to_lowercase().into(),
        verbs: verbs.iter().map(|verb| Arc::from(*verb)).collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    };
    let resources = vec![
        resource("collectionresources", "CollectionResource", &["get", "list"]),
        resource("resources", "Resources", &["get"]),
    ];
    let version = Version { version: VERSION.into(), freshness: Freshness::Current, resources };
    Arc::new(Group { name: GROUP.into(), versions: vec![version] })
}
