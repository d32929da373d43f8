//! What a running kubefold serves, by its discovery.

use anyhow::Context;
use http::Method;
use serde_json::Value;

use crate::cli::client::{Ask, Connection};

/// Where discovery is.
pub(super) const PATHS: [&str; 2] = ["/api", "/apis"];
/// Discovery of a whole API in one document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource in one version of its group.
#[derive(Clone, Debug)]
pub(super) struct ServedResource {
    /// Empty for the core.
    pub(super) group: String,
    pub(super) version: String,
    /// The plural.
    pub(super) resource: String,
    /// `Deployment`.
    pub(super) kind: String,
    /// Its singular, and what else it is called.
    other_names: Vec<String>,
    pub(super) is_namespaced: bool,
    pub(super) is_listed: bool,
}

impl ServedResource {
    /// Says whether a person may call it so.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.resource == name || self.other_names.iter().any(|other| other == name)
    }

    /// `deployments.apps`, as `kubectl api-resources -o name` has it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }
}

/// What is served below one of [`PATHS`], the preferred version of each group first.
///
/// Errors: kubefold does not answer.
pub(super) fn read(connection: &Connection, path: &str) -> anyhow::Result<Vec<ServedResource>> {
    let headers = [("Accept", AGGREGATED)];
    let answer = connection.ask_with(Ask { method: Method::GET, path, headers: &headers, body: Vec::new() })?;
    Ok(all(&serde_json::from_str(&answer).context("discovery cannot be read")?))
}

/// What a document of discovery names.
pub(super) fn all(discovery: &Value) -> Vec<ServedResource> {
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let mut served = Vec::new();
    for group in items(&discovery["items"]) {
        for version in items(&group["versions"]) {
            served.extend(items(&version["resources"]).map(|one| ServedResource {
                group: text(&group["metadata"]["name"]),
                version: text(&version["version"]),
                resource: text(&one["resource"]),
                kind: text(&one["responseKind"]["kind"]),
                other_names: items(&one["shortNames"]).chain([&one["singularResource"]]).map(text).collect(),
                is_namespaced: one["scope"] == "Namespaced",
                is_listed: items(&one["verbs"]).any(|verb| verb == "list"),
            }));
        }
    }
    served
}

fn items(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}
