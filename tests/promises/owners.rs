//! Who has which fields of an object, by its `metadata.managedFields`, as far as a part's can be compared with one cluster's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

/// kubefold's own field manager.
const KUBEFOLD: &str = "kubefold";
/// What kubefold writes in parts.
const OWN: &str = "f:kubefold.io/";
/// What is divided.
const REPLICAS: &str = "/f:spec/f:replicas";
/// Whose first entry makes them.
const MAPS: [&str; 2] = ["/f:metadata/f:labels", "/f:metadata/f:annotations"];

/// The fields of each manager, by its name, its operation and the subresource that it wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(BTreeMap<(String, String, String), BTreeSet<String>>);

impl Owners {
    /// Without times, kubefold's own fields, and what says that a map is there: a part always has labels and annotations.
    pub(crate) fn of(object: &Value) -> Self {
        let mut owners = Self::default();
        for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let owner = (text("manager"), text("operation"), text("subresource"));
            if owner.0 == KUBEFOLD {
                continue;
            }
            let mut fields = BTreeSet::new();
            collect(&entry["fieldsV1"], "", &mut fields);
            if !fields.is_empty() {
                owners.0.entry(owner).or_default().extend(fields);
            }
        }
        owners
    }

    /// The same, where it is not said who has the number of replicas.
    pub(crate) fn without_replicas(mut self) -> Self {
        for fields in self.0.values_mut() {
            fields.remove(REPLICAS);
        }
        self.0.retain(|_, fields| !fields.is_empty());
        self
    }
}

/// The paths of all leaves.
fn collect(fields: &Value, at: &str, paths: &mut BTreeSet<String>) {
    let Some(map) = fields.as_object() else { return };
    for (name, below) in map {
        let path = format!("{at}/{name}");
        let is_of = |map: &str| path == map || path == format!("{map}/.");
        match below.as_object().is_some_and(|below| !below.is_empty()) {
            _ if name.starts_with(OWN) => {}
            true => collect(below, &path, paths),
            false if MAPS.into_iter().any(is_of) => {}
            false => drop(paths.insert(path)),
        }
    }
}

impl fmt::Display for Owners {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((manager, operation, subresource), fields) in &self.0 {
            writeln!(out, "  {operation} of {manager} {subresource}: {fields:?}")?;
        }
        Ok(())
    }
}
