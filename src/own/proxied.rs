//! The fleet as a resource: nothing of it is stored, and its subresource `proxy` is the fleet itself, by which a host's
//! kube-aggregator reaches all of it (`view::FLEET_PROXY`).

use std::sync::Arc;

use crate::{
    catalog::{Freshness, Group, Resource, ResponseKind, Scope, Subresource, Version},
    own::{GROUP, VERSION},
};

/// Those that a proxy takes, by HTTP method.
const VERBS: [&str; 5] = ["create", "delete", "get", "patch", "update"];

/// The groups of the own server, with the fleet among the resources of its own version. So discovery has that version, whatever
/// kinds are stored.
pub(super) fn with_fleet(mut groups: Vec<Arc<Group>>) -> Vec<Arc<Group>> {
    if groups.iter().all(|group| *group.name != *GROUP) {
        groups.push(Arc::new(Group { name: GROUP.into(), versions: Vec::new() }));
    }
    for group in groups.iter_mut().filter(|group| *group.name == *GROUP) {
        let versions = &mut Arc::make_mut(group).versions;
        if versions.iter().all(|version| *version.version != *VERSION) {
            let (version, freshness) = (VERSION.into(), Freshness::Current);
            versions.push(Version { version, freshness, resources: Vec::new() });
        }
        let own = versions.iter_mut().filter(|version| *version.version == *VERSION);
        own.for_each(|version| version.resources.push(fleets()));
    }
    groups
}

fn fleets() -> Resource {
    let kind = Some(ResponseKind { group: GROUP.into(), version: VERSION.into(), kind: "Fleet".into() });
    let verbs = VERBS.iter().map(|verb| Arc::from(*verb)).collect();
    let proxy = Subresource { subresource: "proxy".into(), kind: kind.clone(), accepted: Vec::new(), verbs };
    Resource {
        resource: "fleets".into(),
        kind,
        scope: Scope::Cluster,
        singular: "fleet".into(),
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: vec![proxy],
    }
}
