//! The inventory whose clusters are members, too: ClusterProfiles of a member (KEP-4322).

use serde_saphyr::Spanned;

use crate::config::{
    MemberConfig, MemberName, Names, Problem,
    checked::{Checked, fault, known_member},
    policies,
    raw::RawClusterProfiles,
};
use kubefold_wire::names::is_dns_label;

/// ClusterProfiles of one namespace of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterProfiles {
    /// The member that has them.
    pub member: MemberName,
    /// Their namespace.
    pub namespace: String,
    /// Which of them, as a label selector; empty: all.
    pub selector: String,
    /// The namespace of the Secrets with credentials.
    pub secret_namespace: String,
}

/// Checks the section.
pub(super) fn cluster_profiles(
    at: &Spanned<RawClusterProfiles>,
    names: Names,
    members: &[MemberConfig],
) -> Checked<ClusterProfiles> {
    let RawClusterProfiles { member, namespace, selector, secret_namespace } = &at.value;
    if names == Names::Plain {
        return fault(at, Problem::PlainProfiles);
    }
    let member = known_member(member, members)?;
    let namespace = name_of("namespace", namespace)?;
    selector.as_ref().map(|at| policies::selector("selector", at)).transpose()?;
    let secrets = secret_namespace.as_ref().map(|at| name_of("secretNamespace", at)).transpose()?;
    Ok(ClusterProfiles {
        member,
        secret_namespace: secrets.unwrap_or_else(|| namespace.clone()),
        namespace,
        selector: selector.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
    })
}

fn name_of(field: &'static str, at: &Spanned<String>) -> Checked<String> {
    if is_dns_label(&at.value) {
        return Ok(at.value.clone());
    }
    fault(at, Problem::Namespace { field, namespace: at.value.clone() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{ConfigError, load_text};

    fn read(section: &str) -> Result<ClusterProfiles, ConfigError> {
        let text = format!("members: [{{name: hub, inCluster: true}}]\n{section}\n");
        let read = load_text(&text, Path::new("clusters.yaml"));
        read.map(|config| config.cluster_profiles.unwrap())
    }

    #[test]
    fn an_inventory_is_a_namespace_of_a_member() {
        let bare = read("clusterProfiles: {member: hub, namespace: fleet}").unwrap();
        assert_eq!((bare.member.as_str(), bare.selector.as_str()), ("hub", ""));
        assert_eq!((bare.namespace.as_str(), bare.secret_namespace.as_str()), ("fleet", "fleet"));
        let whole = "clusterProfiles: {member: hub, namespace: fleet, selector: 'env in (a,b)', secretNamespace: s}";
        let whole = read(whole).unwrap();
        assert_eq!((whole.selector.as_str(), whole.secret_namespace.as_str()), ("env in (a,b)", "s"));
    }

    #[test]
    fn what_is_no_inventory_is_refused_with_its_line() {
        for (section, refused) in [
            ("clusterProfiles: {member: west, namespace: fleet}", "clusters.yaml:2: there is no member \"west\""),
            ("clusterProfiles: {member: hub}", "\"namespace\" is missing"),
            ("clusterProfiles: {member: hub, namespace: A.b}", "\"namespace: A.b\" is not a namespace"),
            ("clusterProfiles: {member: hub, namespace: a, secretNamespace: ''}", "is not a namespace"),
            ("clusterProfiles: {member: hub, namespace: a, selector: ''}", "\"selector\" is empty"),
            ("clusterProfiles: {member: hub, namespace: a, selector: 'a in'}", "is not a label selector"),
            ("clusterProfiles: {member: hub, namespace: a, exec: x}", "unknown field \"exec\""),
            ("clusterProfiles: {member: hub, namespace: a}\nnames: plain", "\"clusterProfiles\" may add some"),
        ] {
            let said = read(section).unwrap_err().to_string();
            assert!(said.contains(refused), "{section}: {said}");
        }
    }
}
