//! The fleet's catalog: one API of all members', with who serves what.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::served::{Freshness, Group, ResponseKind, Scope, ServerVersion, Subresource};
use crate::config::{MemberName, ResourcePattern};
use kubefold_wire::resource::{Gvk, Gvr};

/// What the fleet serves, merged over its members. A value: a new one replaces it when a member changes.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The groups in order of priority; the core group is the one without a name.
    pub groups: Vec<Arc<MergedGroup>>,
    /// Members whose catalog was never seen, in configuration order.
    pub unknown: Vec<MemberName>,
    /// The lowest version among members, for `/version`.
    pub server: Option<Arc<ServerVersion>>,
    pub(super) by_group: HashMap<Arc<str>, usize>,
    /// Whose objects are in the mirror's tables alone: while they are the same, so is a group of the same sources.
    pub(super) stored: Vec<ResourcePattern>,
}

/// One API group of the fleet.
#[derive(Clone, Debug)]
pub struct MergedGroup {
    /// Its name; empty is core.
    pub name: Arc<str>,
    /// Its versions. The first is the preferred one: the highest that every member holding the group serves.
    pub versions: Vec<MergedVersion>,
    /// What it was merged from: while that is the same, so is this.
    pub(super) sources: Vec<(MemberName, Arc<Group>)>,
}

/// One version of a group.
#[derive(Clone, Debug)]
pub struct MergedVersion {
    /// `v1`, `v1beta1`, ...
    pub version: Arc<str>,
    /// `Stale` when every member that has it calls it so.
    pub freshness: Freshness,
    /// Its resources.
    pub resources: Vec<MergedResource>,
    pub(super) by_resource: HashMap<Arc<str>, usize>,
    pub(super) by_kind: HashMap<Arc<str>, usize>,
}

/// One resource of the fleet, and who serves it.
#[derive(Clone, Debug)]
pub struct MergedResource {
    /// Where it is.
    pub gvr: Gvr,
    /// The kind of its objects, in full.
    pub gvk: Gvk,
    /// The kind as discovery prints it.
    pub response_kind: Option<ResponseKind>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// Singular, for people.
    pub singular: Arc<str>,
    /// What every member that serves it allows.
    pub verbs: Vec<Arc<str>>,
    /// Of all members.
    pub short_names: Vec<Arc<str>>,
    /// Of all members.
    pub categories: Vec<Arc<str>>,
    /// Of all members; the verbs of each are what every member that has it allows.
    pub subresources: Vec<Subresource>,
    /// Who serves it in this version with this kind and scope, in configuration order.
    pub members: Vec<MemberName>,
    /// Who serves something else under the same group, version and resource, in configuration order.
    pub conflicting: Vec<MemberName>,
    /// Whether every member can list and watch it.
    pub watchable: bool,
    /// Its objects are in the mirror's tables alone: it is only read.
    pub stored: bool,
}

impl Catalog {
    /// Whether the catalog of every member is known.
    pub fn complete(&self) -> bool {
        self.unknown.is_empty()
    }

    /// The group of this name; empty is core.
    pub fn group(&self, name: &str) -> Option<&MergedGroup> {
        self.shared_group(name).map(|group| &**group)
    }

    /// The same, to be shared with the next catalog.
    pub(super) fn shared_group(&self, name: &str) -> Option<&Arc<MergedGroup>> {
        self.groups.get(*self.by_group.get(name)?)
    }

    /// The version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&MergedVersion> {
        self.group(group)?.version(version)
    }

    /// The resource in this very version.
    pub fn resource(&self, group: &str, version: &str, resource: &str) -> Option<&MergedResource> {
        let version = self.version(group, version)?;
        version.resources.get(*version.by_resource.get(resource)?)
    }

    /// The resource in this very version.
    pub fn get(&self, gvr: &Gvr) -> Option<&MergedResource> {
        self.resource(&gvr.group, &gvr.version, &gvr.resource)
    }

    /// The resource whose objects have this kind (an owner reference names those).
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&MergedResource> {
        let version = self.version(group, version)?;
        version.resources.get(*version.by_kind.get(kind)?)
    }

    /// The resource whose objects have this kind, in the highest version that every member holding the group serves.
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<&MergedResource> {
        let versions = &self.group(group)?.versions;
        versions.iter().find_map(|version| version.resources.get(*version.by_kind.get(kind)?))
    }

    /// The resource that a person names as for kubectl: by its plural, singular, short name or kind, with its group behind a dot
    /// if need be.
    pub fn named(&self, text: &str) -> Option<&MergedResource> {
        let text = text.to_lowercase();
        let (name, of_group) = match text.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (text.as_str(), None),
        };
        let is_it = |resource: &&MergedResource| {
            *resource.gvr.resource == *name
                || *resource.singular == *name
                || resource.gvk.kind.to_lowercase() == name
                || resource.short_names.iter().any(|short| **short == *name)
        };
        let groups = self.groups.iter().filter(|group| of_group.is_none_or(|wanted| *group.name == *wanted));
        groups.flat_map(|group| &group.versions).flat_map(|version| &version.resources).find(is_it)
    }

    /// Who serves the resource in this very version, in configuration order.
    pub fn serving_members(&self, gvr: &Gvr) -> &[MemberName] {
        self.get(gvr).map_or(&[], |resource| &resource.members)
    }

    /// Who serves the resource of this group in other versions only, each with the first of those.
    pub fn members_serving_other_version(&self, gvr: &Gvr) -> Vec<(&MemberName, &Arc<str>)> {
        let here = self.get(gvr);
        let mut seen: HashSet<&MemberName> =
            here.iter().flat_map(|here| here.members.iter().chain(&here.conflicting)).collect();
        let mut others: Vec<(&MemberName, &Arc<str>)> = Vec::new();
        for resource in self.versions_of(&gvr.group, &gvr.resource) {
            for member in resource.members.iter().filter(|member| !seen.contains(member)) {
                others.push((member, &resource.gvr.version));
            }
            seen.extend(&resource.members);
        }
        others
    }

    /// The resource in every version of its group that serves it, in the group's order.
    pub fn versions_of(&self, group: &str, resource: &str) -> impl Iterator<Item = &MergedResource> {
        self.group(group)
            .into_iter()
            .flat_map(|group| &group.versions)
            .filter_map(move |version| version.resources.get(*version.by_resource.get(resource)?))
    }

    /// Every resource of every version.
    pub fn resources(&self) -> impl Iterator<Item = &MergedResource> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }
}

impl MergedGroup {
    /// The members that have it, and what each serves of it.
    pub fn sources(&self) -> impl Iterator<Item = (&MemberName, &Arc<Group>)> {
        self.sources.iter().map(|(member, group)| (member, group))
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&MergedVersion> {
        self.versions.iter().find(|version| &*version.version == name)
    }

    /// The version to use when none is asked for.
    pub fn preferred(&self) -> Option<&MergedVersion> {
        self.versions.first()
    }
}

impl MergedResource {
    /// Whether every member that serves it allows this verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| &**one == verb)
    }

    /// Whether kubefold serves it itself, and no member.
    pub fn is_own(&self) -> bool {
        self.members.is_empty() && self.conflicting.is_empty()
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|one| &*one.subresource == name)
    }
}
