//! `collections` of `clusters.yaml`: kinds that are searched together.

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::{
    config::{
        Problem,
        checked::{Checked, fault},
    },
    search::{Collection, CollectionKinds, GroupResource},
};
use kubefold_wire::names::is_dns_label;

/// Several kinds in one list.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCollection {
    /// What it is called: a DNS label. It is served at `/apis/clusterpedia.io/v1beta1/collectionresources/<name>`.
    #[cfg_attr(test, schemars(with = "String"))]
    name: Spanned<String>,
    /// The kinds, each as `deployments.apps`; a core resource is its plural alone.
    resources: Vec<String>,
}

/// Reads all collections.
pub(super) fn collections(raw: &[Spanned<RawCollection>]) -> Checked<Vec<Collection>> {
    let mut collections: Vec<Collection> = Vec::new();
    let known = Collection::built_in();
    for RawCollection { name, resources } in raw.iter().map(|raw| &raw.value) {
        let called = name.value.clone();
        if !is_dns_label(&called) {
            return fault(name, Problem::CollectionName { name: called });
        }
        if known.iter().chain(&collections).any(|known| known.name == called) {
            return fault(name, Problem::CollectionTwice { name: called });
        }
        if resources.is_empty() {
            return fault(name, Problem::CollectionEmpty { name: called });
        }
        let kinds = CollectionKinds::Listed(resources.iter().map(|text| GroupResource::parse(text)).collect());
        collections.push(Collection { name: called, kinds });
    }
    Ok(collections)
}
