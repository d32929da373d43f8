//! What one member serves, as it says itself.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use kubefold_wire::resource::Gvk;

/// Everything that one member serves, in the member's own order; the core group is the one without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCatalog {
    /// The groups in the member's order of priority. One that has not changed is the same as in the catalog before.
    pub groups: Vec<Arc<Group>>,
    /// What it answers on `/version`, if it did.
    pub server: Option<Arc<ServerVersion>>,
}

/// One API group of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name; empty is core.
    pub name: Arc<str>,
    /// Its versions, the preferred one first.
    pub versions: Vec<Version>,
}

/// One version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `v1`, `v1beta1`, ...
    pub version: Arc<str>,
    /// Whether the member could ask whoever serves it.
    pub freshness: Freshness,
    /// Its resources, in the member's order.
    pub resources: Vec<Resource>,
}

/// Whether a version's resources were known when the document was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// They were.
    Current,
    /// Whoever serves them did not answer; what is listed may be old, or nothing.
    Stale,
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// They do.
    Namespaced,
    /// They do not.
    Cluster,
}

/// One resource of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Plural, as in the URL.
    pub resource: Arc<str>,
    /// The kind that it answers with, as the member prints it.
    pub kind: Option<ResponseKind>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// Singular, for people.
    pub singular: Arc<str>,
    /// What may be done, in the member's order.
    pub verbs: Vec<Arc<str>>,
    /// `po`, `deploy`, ...
    pub short_names: Vec<Arc<str>>,
    /// `all`, ...
    pub categories: Vec<Arc<str>>,
    /// `status`, `scale`, ...
    pub subresources: Vec<Subresource>,
}

/// One subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Its name in the URL.
    pub subresource: Arc<str>,
    /// The kind that it answers with, as the member prints it.
    pub kind: Option<ResponseKind>,
    /// Kinds that it takes, where the member says.
    pub accepted: Vec<ResponseKind>,
    /// What may be done.
    pub verbs: Vec<Arc<str>>,
}

/// A kind as a discovery document prints it: an empty group *and* version mean those of the document's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseKind {
    /// API group, or empty.
    pub group: Arc<str>,
    /// Version, or empty.
    pub version: Arc<str>,
    /// Kind; empty where the endpoint says nothing.
    pub kind: Arc<str>,
}

/// What a member answers on `/version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// Major, minor and patch; digits only, so that they compare.
    pub number: (u32, u32, u32),
    /// The whole document, in the member's order of fields.
    pub document: serde_json::Map<String, serde_json::Value>,
}

impl ResponseKind {
    /// The full kind, given the group and version under which it is listed.
    pub fn resolve(&self, group: &Arc<str>, version: &Arc<str>) -> Gvk {
        let of_here = self.version.is_empty();
        Gvk {
            group: if of_here { group.clone() } else { self.group.clone() },
            version: if of_here { version.clone() } else { self.version.clone() },
            kind: self.kind.clone(),
        }
    }
}

impl MemberCatalog {
    /// The group of this name; empty is core.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.shared_group(name).map(|group| &**group)
    }

    /// The same, to be kept.
    pub(super) fn shared_group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| &*group.name == name)
    }

    /// The resource, if the member serves it in this very version.
    pub fn resource(&self, group: &str, version: &str, resource: &str) -> Option<&Resource> {
        self.group(group)?.version(version)?.resource(resource)
    }

    /// The same without groups of these names.
    #[must_use]
    pub fn without(mut self, groups: &BTreeSet<String>) -> Self {
        self.groups.retain(|group| !groups.contains(&*group.name));
        self
    }

    /// Whether it lacks a resource, or a whole group-version, that another has.
    pub fn lacks_some_of(&self, other: &Self) -> bool {
        let groups: HashMap<&str, &Arc<Group>> = self.groups.iter().map(|group| (&*group.name, group)).collect();
        let lacks = |here: &Group, version: &Version| {
            let here = here.version(&version.version);
            here.is_none_or(|here| version.resources.iter().any(|one| here.resource(&one.resource).is_none()))
        };
        other.groups.iter().any(|group| match groups.get(&*group.name) {
            Some(here) if Arc::ptr_eq(here, group) => false,
            Some(here) => group.versions.iter().any(|version| lacks(here, version)),
            None => !group.versions.is_empty(),
        })
    }
}

impl Group {
    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| &*version.version == name)
    }
}

impl Version {
    /// The resource of this plural name.
    pub fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|one| &*one.resource == name)
    }
}

impl Resource {
    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|one| &*one.subresource == name)
    }
}
