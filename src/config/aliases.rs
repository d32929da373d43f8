//! `aliases` of `clusters.yaml`: further groups in which kubefold's own kinds are served.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{
    Problem,
    checked::{Checked, fault},
};
use kubefold_wire::{media::is_built_in, names::is_dns_label, resource::split_api_version};

/// The one group that has aliases.
const OWN: &str = "kubefold.io/v1alpha1";

/// A further group and version for ShadowResources, so that manifests of another system apply unchanged.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAlias {
    /// The group and version of those manifests: `apis.abc.com/v1`. No member may serve that group.
    #[cfg_attr(test, schemars(with = "String"))]
    from: Spanned<String>,
    /// What they mean: `kubefold.io/v1alpha1`.
    #[cfg_attr(test, schemars(with = "String"))]
    to: Spanned<String>,
}

/// A group and version in which kubefold's own kinds are served, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Such as `apis.abc.com`.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
}

/// Reads all aliases.
pub(super) fn aliases(raw: &[Spanned<RawAlias>]) -> Checked<Vec<Alias>> {
    let mut aliases: Vec<Alias> = Vec::new();
    for RawAlias { from, to } in raw.iter().map(|raw| &raw.value) {
        if to.value != OWN {
            return fault(to, Problem::AliasTo { to: to.value.clone(), own: OWN });
        }
        let (group, version) = split_api_version(&from.value).unwrap_or_default();
        let is_group = group.contains('.') && group.split('.').all(is_dns_label) && !is_built_in(group);
        let is_own = group == "kubefold.io" || group.ends_with(".kubefold.io");
        if !is_group || is_own || !is_dns_label(version) {
            return fault(from, Problem::AliasFrom { from: from.value.clone() });
        }
        if aliases.iter().any(|alias| alias.group == group) {
            return fault(from, Problem::AliasTwice { group: group.to_owned() });
        }
        aliases.push(Alias { group: group.to_owned(), version: version.to_owned() });
    }
    Ok(aliases)
}
