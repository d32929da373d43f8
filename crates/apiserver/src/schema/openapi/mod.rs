//! OpenAPI documents of what a server serves, for `kubectl explain`, `apply`, `diff` and whoever reads schemas.
//!
//! Source: kubernetes/kube-openapi `pkg/builder3`, `pkg/builder`, `pkg/handler3`.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::schema::Types;

mod descriptions;
mod paths;
mod schemas;
#[cfg(test)]
mod tests;

/// The media types of objects.
const JSON: &str = "application/json";

/// A kind, as documents tell of it.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Empty is core.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Pod`.
    pub kind: &'a str,
    /// Such as `pods`.
    pub plural: &'a str,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
    /// As discovery tells them.
    pub verbs: &'a [String],
    /// What is below an object.
    pub subresources: &'a [Part<'a>],
    /// The types of its fields.
    pub types: &'a Types,
    /// Such as `io.k8s.api.core.v1.Pod`.
    pub type_name: &'a str,
    /// The schema out of a definition; `None`: the types say it.
    pub schema: Option<&'a Value>,
    /// Such as `spec.color`: what a field selector may name, beside metadata.
    pub selectable_fields: &'a [String],
}

/// A subresource, as documents tell of it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Such as `status`.
    pub name: &'a str,
    /// As discovery tells them.
    pub verbs: &'a [String],
    /// The group of what is read or written there.
    pub group: &'a str,
    /// As `group`.
    pub version: &'a str,
    /// As `group`, such as `Scale`.
    pub kind: &'a str,
    /// Such as `io.k8s.api.autoscaling.v1.Scale`.
    pub type_name: &'a str,
}

impl Part<'_> {
    fn kind_value(&self) -> Value {
        json!({"group": self.group, "kind": self.kind, "version": self.version})
    }
}

/// Which specification a document follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    V2,
    V3,
}

impl Spec {
    fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

impl Served<'_> {
    fn kind_value(&self) -> Value {
        json!({"group": self.group, "kind": self.kind, "version": self.version})
    }

    /// Where the group version is served, without slashes at its ends: `api/v1`, `apis/apps/v1`.
    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("api/{}", self.version)
        } else {
            format!("apis/{}/{}", self.group, self.version)
        }
    }

    fn list_name(&self) -> String {
        format!("{}List", self.type_name)
    }
}

/// The documents of `/openapi/v3`: one for each group version, by its path, such as `apis/apps/v1`.
pub fn v3(served: &[Served<'_>]) -> BTreeMap<String, Value> {
    let text = descriptions::text();
    let words = descriptions::Descriptions::of(&text);
    let mut groups: BTreeMap<String, Vec<Served<'_>>> = BTreeMap::new();
    for one in served {
        groups.entry(one.root()).or_default().push(*one);
    }
    let document = |(root, served): (String, Vec<Served<'_>>)| {
        let is_custom = served.iter().all(|one| one.schema.is_some());
        let [title, version] =
            if is_custom { ["Kubernetes CRD Swagger", "v0.1.0"] } else { ["Kubernetes", "unversioned"] };
        let document = json!({
            "openapi": "3.0.0",
            "info": {"title": title, "version": version},
            "paths": paths::paths(Spec::V3, &served),
            "components": {"schemas": schemas::schemas(Spec::V3, &served, &words)},
        });
        (root, document)
    };
    groups.into_iter().map(document).collect()
}

/// The document of `/openapi/v2`.
pub fn v2(served: &[Served<'_>]) -> Value {
    let text = descriptions::text();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths::paths(Spec::V2, served),
        "definitions": schemas::schemas(Spec::V2, served, &descriptions::Descriptions::of(&text)),
    })
}

/// The index at `/openapi/v3`, of paths and the hashes of their documents.
pub fn v3_index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let mut paths = Map::new();
    for (path, hash) in documents {
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path.to_owned(), json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The hash of a document's text, by which clients know it again.
pub fn hash(document: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha512::digest(document) {
        let _ = write!(text, "{byte:02X}");
    }
    text
}
