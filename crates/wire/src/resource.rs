//! Which API a request or an object is about: group, version and resource, or group, version and kind.
//!
//! Source: kubernetes/apimachinery `pkg/runtime/schema/group_version.go`.

use std::{fmt, sync::Arc};

/// A group, version and plural resource: what a URL names. The core group is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvr {
    /// API group; empty is core.
    pub group: Arc<str>,
    /// Version within the group.
    pub version: Arc<str>,
    /// Plural resource, without a subresource.
    pub resource: Arc<str>,
}

/// A group, version and kind: what `apiVersion` and `kind` of an object name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// API group; empty is core.
    pub group: Arc<str>,
    /// Version within the group.
    pub version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}

/// The groups that serve events.
pub const EVENT_GROUPS: [&str; 2] = ["", "events.k8s.io"];

impl Gvr {
    /// Makes one of its three words.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Says whether it is one of the two groups' events, which are the same objects.
    pub fn is_event(&self) -> bool {
        EVENT_GROUPS.contains(&&*self.group) && &*self.resource == "events"
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `apps/v1/deployments`: how tokens and logs name a resource.
    pub fn label(&self) -> String {
        format!("{}/{}", self.api_version(), self.resource)
    }

    /// `deployments.apps`, or `pods` for the core group.
    pub fn qualified(&self) -> String {
        crate::status::qualified(&self.group, &self.resource)
    }
}

impl Gvk {
    /// Makes one of its three words.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

/// `deployments.v1.apps`, or `pods.v1` for the core group: as `kubectl get` takes it.
impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// `apps/v1, Kind=Deployment`, as Kubernetes' messages have it.
impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits `apps/v1` into group and version; `v1` has the core group. `None` with more than one slash.
pub fn split_api_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None => Some(("", api_version)),
        Some((_, version)) if version.contains('/') => None,
        Some(both) => Some(both),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_and_named_groups_are_written_as_kubernetes_writes_them() {
        let (pods, deployments) = (Gvr::new("", "v1", "pods"), Gvr::new("apps", "v1", "deployments"));
        assert_eq!((pods.to_string().as_str(), pods.api_version().as_str()), ("pods.v1", "v1"));
        assert_eq!(
            (deployments.to_string().as_str(), deployments.qualified().as_str()),
            ("deployments.v1.apps", "deployments.apps")
        );
    }

    #[test]
    fn api_versions_split_as_schema_parse_group_version_does() {
        assert_eq!(split_api_version("v1"), Some(("", "v1")));
        assert_eq!(split_api_version("apps/v1"), Some(("apps", "v1")));
        assert_eq!(split_api_version("a/b/c"), None);
    }
}
