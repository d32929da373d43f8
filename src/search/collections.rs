//! Collections: several kinds in one list.

use crate::search::{GroupResource, fields};

/// Several kinds in one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// What it is called in a path.
    pub name: String,
    /// The kinds.
    pub kinds: CollectionKinds,
}

/// Which kinds a collection has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionKinds {
    /// These.
    Listed(Vec<GroupResource>),
    /// Every kind that Kubernetes brings itself.
    BuiltIn,
    /// Those that a request names.
    Named,
}

/// A kind, or all kinds of a group, as the parameters `groups` and `resources` of a collection name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindName {
    /// As it is written.
    pub text: String,
    /// The group; empty for the core.
    pub group: String,
    /// The version, if it names one.
    pub version: Option<String>,
    /// The resource; absent for all of the group.
    pub resource: Option<String>,
}

impl Collection {
    /// Those that Clusterpedia has.
    pub fn built_in() -> Vec<Self> {
        let workloads = ["deployments.apps", "daemonsets.apps", "statefulsets.apps"];
        let workloads = workloads.iter().map(|text| GroupResource::parse(text)).collect();
        let collection = |name: &str, kinds| Self { name: name.to_owned(), kinds };
        vec![
            collection("any", CollectionKinds::Named),
            collection("workloads", CollectionKinds::Listed(workloads)),
            collection("kuberesources", CollectionKinds::BuiltIn),
        ]
    }
}

impl KindName {
    /// Reads the values of `groups`: `apps`, `apps/v1`; the core has no name, or `core`.
    pub fn groups(text: &str) -> Vec<Self> {
        each(text, |text| {
            let (group, version) = text.split_once('/').map_or((text, None), |(group, version)| (group, Some(version)));
            Self::new(text, group, version, None)
        })
    }

    /// Reads the values of `resources`: `pods`, `deployments.apps`, `apps/deployments`, `apps/v1/deployments`, `v1/pods`, and
    /// `apps/*` for all of a group.
    pub fn resources(text: &str) -> Vec<Self> {
        each(text, |text| {
            let parts: Vec<&str> = text.split('/').collect();
            match parts.as_slice() {
                [version, resource] if is_version(version) => Self::new(text, "", Some(version), Some(resource)),
                [group, resource] => Self::new(text, group, None, Some(resource)),
                [group, version, resource] => Self::new(text, group, Some(version), Some(resource)),
                _ => {
                    let GroupResource { group, resource } = GroupResource::parse(text);
                    Self::new(text, &group, None, Some(&resource))
                }
            }
        })
    }

    fn new(text: &str, group: &str, version: Option<&str>, resource: Option<&str>) -> Self {
        let group = if group == "core" { "" } else { group };
        Self {
            text: text.to_owned(),
            group: group.to_owned(),
            version: version.map(str::to_owned),
            resource: resource.filter(|resource| *resource != "*").map(str::to_lowercase),
        }
    }
}

fn each(text: &str, read: impl Fn(&str) -> KindName) -> Vec<KindName> {
    let values = fields::split(text, ',').into_iter().map(str::trim);
    values.map(|value| if value.is_empty() { read("core") } else { read(value) }).collect()
}

/// `v1`, `v2beta1`
fn is_version(text: &str) -> bool {
    let rest = text.strip_prefix('v').unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_digit()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_in_every_form() {
        let named = |names: Vec<KindName>| {
            let each = names.into_iter().map(|name| {
                [name.group, name.version.unwrap_or_default(), name.resource.unwrap_or_else(|| "*".into())].join("/")
            });
            each.collect::<Vec<_>>()
        };
        let resources = "pods,deployments.apps,batch/jobs,apps/v1/Deployments,v1/secrets,apps/*";
        assert_eq!(
            named(KindName::resources(resources)),
            ["//pods", "apps//deployments", "batch//jobs", "apps/v1/deployments", "/v1/secrets", "apps//*"]
        );
        assert_eq!(named(KindName::groups("apps,batch/v1,core,")), ["apps//*", "batch/v1/*", "//*", "//*"]);
    }
}
