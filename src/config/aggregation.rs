//! The host: a cluster whose kube-aggregator serves groups of this fleet.

use std::collections::BTreeSet;

use serde_saphyr::Spanned;

use crate::config::{
    Access, MemberConfig, MemberName, Problem,
    checked::{Checked, Fault, fault, known_member},
    files::Files,
    kubeconfig,
    raw::RawAggregation,
};
use kubefold_wire::names::{is_dns_label, is_dns_subdomain};

/// Where `deploy/kustomize` makes the Service.
const SERVICE: &str = "kubefold";

/// The host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// How kubefold reaches it, and as whom it asks there.
    pub access: Access,
    /// The member that is the host, where one is.
    pub member: Option<MemberName>,
    /// The Service by which the host's kube-apiserver reaches kubefold.
    pub service: ServiceRef,
    /// Groups of the fleet that the host serves beside kubefold's own.
    pub groups: Vec<GroupVersion>,
}

impl Aggregation {
    /// The names of the groups that the host serves beside kubefold's own.
    pub fn group_names(&self) -> BTreeSet<String> {
        self.groups.iter().map(|group| group.group.clone()).collect()
    }
}

/// A Service of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceRef {
    /// The name by which a kube-aggregator verifies who serves.
    ///
    /// Source: kubernetes/kube-aggregator `pkg/apiserver/handler_proxy.go`, `updateAPIService`.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// A version of a group: `apps.example.com/v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group, which is not the core one.
    pub group: String,
    /// The version.
    pub version: String,
}

impl GroupVersion {
    /// Reads `group/version`; `None` if it is none, or of the core group.
    pub fn parse(text: &str) -> Option<Self> {
        let (group, version) = text.split_once('/')?;
        let fits = is_dns_subdomain(group) && is_dns_label(version);
        fits.then(|| Self { group: group.to_owned(), version: version.to_owned() })
    }
}

/// Checks the section.
pub(super) fn aggregation(
    raw: &Spanned<RawAggregation>,
    members: &[MemberConfig],
    files: &mut Files,
) -> Checked<Aggregation> {
    let RawAggregation { kubeconfig, context, in_cluster, member, service, groups } = &raw.value;
    let access = match (kubeconfig, in_cluster.as_ref().filter(|at| at.value)) {
        (Some(_), Some(at)) => {
            let problem = Box::new(Problem::Exclusive { one: "kubeconfig", other: "inCluster" });
            return Err(Fault { line: at.referenced.line(), problem });
        }
        (Some(path), None) => kubeconfig::access(path, context.as_ref(), files)?,
        (None, Some(_)) => Access::InCluster,
        (None, None) => return fault(raw, Problem::NoHost),
    };
    if let (Some(context), None) = (context, kubeconfig) {
        return fault(context, Problem::FieldWithout { field: "context", needs: "kubeconfig" });
    }
    let mut seen = BTreeSet::new();
    let group = |at: &Spanned<String>| match GroupVersion::parse(&at.value) {
        Some(group) if group.group == OWN_GROUP => fault(at, Problem::OwnGroup { group: at.value.clone() }),
        Some(group) if !seen.insert(group.clone()) => fault(at, Problem::GroupTwice { group: at.value.clone() }),
        Some(group) => Ok(group),
        None => fault(at, Problem::GroupVersion { group: at.value.clone() }),
    };
    Ok(Aggregation {
        access,
        member: member.as_ref().map(|at| known_member(at, members)).transpose()?,
        service: service.as_ref().map_or_else(|| Ok(default_service()), service_ref)?,
        groups: groups.iter().map(group).collect::<Checked<_>>()?,
    })
}

/// The group of kubefold's own kinds: no member serves it but through a kubefold.
pub const OWN_GROUP: &str = "kubefold.io";
/// The namespace that kubefold stores itself, and that no member has.
pub const OWN_NAMESPACE: &str = "kubefold-system";

fn default_service() -> ServiceRef {
    ServiceRef { namespace: SERVICE.to_owned(), name: SERVICE.to_owned() }
}

fn service_ref(at: &Spanned<String>) -> Checked<ServiceRef> {
    match at.value.split_once('/') {
        Some((namespace, name)) if is_dns_label(namespace) && is_dns_label(name) => {
            Ok(ServiceRef { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        Some(_) | None => fault(at, Problem::Service { service: at.value.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{ConfigError, load_text};

    fn read(section: &str) -> Result<Aggregation, ConfigError> {
        let text = format!("members: [{{name: east, inCluster: true}}]\naggregation: {section}\n");
        let read = load_text(&text, Path::new("clusters.yaml"));
        read.map(|config| config.aggregation.unwrap())
    }

    #[test]
    fn the_host_is_reached_in_one_way_and_serves_groups_that_are_not_kubefolds_own() {
        let whole =
            read("{inCluster: true, member: east, service: fleet/fold, groups: [apps.example.com/v1]}").unwrap();
        assert_eq!(whole.member.as_ref().map(MemberName::as_str), Some("east"));
        assert_eq!(whole.service.server_name(), "fold.fleet.svc");
        assert_eq!(whole.group_names(), ["apps.example.com".to_owned()].into());
        assert_eq!(read("{inCluster: true}").unwrap().service.server_name(), "kubefold.kubefold.svc");
        for (section, refused) in [
            ("{groups: []}", "no way to reach the host is given"),
            ("{inCluster: true, kubeconfig: x}", "both \"kubeconfig\" and \"inCluster\" are given"),
            ("{inCluster: true, context: x}", "\"context\" has no meaning without \"kubeconfig\""),
            ("{inCluster: true, member: west}", "there is no member \"west\""),
            ("{inCluster: true, service: fold}", "\"fold\" is not a Service"),
            ("{inCluster: true, groups: [v1]}", "\"v1\" is not a version of a group"),
            ("{inCluster: true, groups: [a.example.com/v1, a.example.com/v1]}", "is given twice"),
            ("{inCluster: true, groups: [kubefold.io/v1alpha1]}", "is kubefold's own"),
        ] {
            let said = read(section).unwrap_err().problem.to_string();
            assert!(said.contains(refused), "{section}: {said}");
        }
    }
}
