//! What is served: `/api`, `/apis`, their groups and versions, `/version`; both forms of discovery; OpenAPI.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/discovery/`; field order as in kubernetes/api `apidiscovery/v2/types.go`
//! and kubernetes/apimachinery `pkg/apis/meta/v1/types.go`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::{
    kinds::{Kind, Subresource},
    registry::Catalog,
    serve::{NOT_ALLOWED, Settings, json_response},
};
use kubefold_wire::{
    accept::{accept_header, negotiate, not_acceptable, wants_aggregated},
    body::{Body, empty, full},
    resource::api_version,
    status::Status,
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers discovery, and keeps the documents of the present catalog.
#[derive(Default)]
pub(super) struct Discovery {
    aggregated: ArcSwapOption<Aggregated>,
}

/// The two aggregated documents of one catalog, with their tags.
struct Aggregated {
    epoch: u64,
    core: (Bytes, String),
    named: (Bytes, String),
}

impl Discovery {
    /// Answers a question for what is served; `None`: it is another.
    pub(super) fn answer(
        &self,
        catalog: &Catalog,
        settings: &Settings,
        parts: &Parts,
    ) -> Option<Result<Response<Body>, Status>> {
        let path = parts.uri.path().trim_end_matches('/');
        let segments: Vec<&str> = path.strip_prefix('/').unwrap_or_default().split('/').collect();
        let document = match segments.as_slice() {
            [""] => Some(roots(catalog)),
            ["api"] | ["apis"] if wants_aggregated(&parts.headers) => {
                return Some(allowed(parts).map(|()| self.aggregated(catalog, segments == ["api"], parts)));
            }
            ["api"] => Some(api_versions(catalog, parts)),
            ["apis"] => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(catalog, None)})),
            ["apis", group] => groups(catalog, Some(group)).into_iter().next(),
            ["api", version] => resource_list(catalog, "", version),
            ["apis", group, version] => resource_list(catalog, group, version),
            ["version"] => Some(version(&settings.version)),
            _ => return None,
        };
        Some(allowed(parts).and_then(|()| {
            let document = document.ok_or_else(Status::no_such_path)?;
            let accepted = negotiate(accept_header(&parts.headers), &[]).ok_or_else(not_acceptable)?;
            let pretty = accepted.pretty || kubefold_wire::accept::wants_pretty(parts.uri.query(), &parts.headers);
            let indented = pretty || matches!(segments.as_slice(), [""] | ["version"]);
            let mut text =
                if indented { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }
                    .unwrap_or_default();
            if !indented {
                text.push('\n');
            }
            Ok(json_response(full(text)))
        }))
    }

    fn aggregated(&self, catalog: &Catalog, is_core: bool, parts: &Parts) -> Response<Body> {
        let kept = self.aggregated.load_full().filter(|kept| kept.epoch == catalog.epoch());
        let documents = kept.unwrap_or_else(|| {
            let document = |is_core: bool| {
                let items = aggregated_groups(catalog, is_core);
                let document = json!({
                    "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
                });
                let bytes = Bytes::from(document.to_string() + "\n");
                let tag = Sha512::digest(&bytes).iter().map(|byte| format!("{byte:02X}")).collect::<String>();
                (bytes, format!("\"{tag}\""))
            };
            let documents =
                Arc::new(Aggregated { epoch: catalog.epoch(), core: document(true), named: document(false) });
            self.aggregated.store(Some(Arc::clone(&documents)));
            documents
        });
        let (bytes, tag) = if is_core { &documents.core } else { &documents.named };
        let asked = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut response = if asked == Some(tag.as_str()) {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_response(full(bytes.clone()))
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        if let Ok(tag) = HeaderValue::from_str(tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

pub(super) fn allowed(parts: &Parts) -> Result<(), Status> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Status::method_not_allowed(NOT_ALLOWED)),
    }
}

/// Groups, in the order of their first kind, each with its versions.
fn by_group(catalog: &Catalog) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in catalog.kinds() {
        let at = groups.iter().position(|(group, _)| *group == kind.group);
        let at = at.unwrap_or_else(|| {
            groups.push((&kind.group, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, versions)) = groups.get_mut(at).filter(|(_, known)| !known.contains(&kind.version.as_str())) {
            versions.push(&kind.version);
        }
    }
    groups
}

fn kinds_of<'c>(catalog: &'c Catalog, group: &'c str, version: &'c str) -> impl Iterator<Item = &'c Arc<Kind>> {
    catalog.kinds().iter().filter(move |kind| kind.group == group && kind.version == version)
}

fn roots(catalog: &Catalog) -> Value {
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/readyz", "/version"].map(str::to_owned).to_vec();
    for (group, versions) in by_group(catalog).iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/openapi/v2", "/openapi/v3"].map(str::to_owned));
    paths.sort_unstable();
    json!({"paths": paths})
}

fn api_versions(catalog: &Catalog, parts: &Parts) -> Value {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let host = host.or_else(|| parts.uri.authority().map(ToString::to_string)).unwrap_or_default();
    let groups = by_group(catalog);
    let core = groups.iter().find(|(group, _)| group.is_empty()).map(|(_, versions)| versions.clone());
    json!({
        "kind": "APIVersions",
        "versions": core.unwrap_or_default(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    })
}

/// All groups but the core, or the one that is asked for, which says its type.
fn groups(catalog: &Catalog, only: Option<&str>) -> Vec<Value> {
    let groups = by_group(catalog);
    let wanted = groups.iter().filter(|(group, _)| !group.is_empty() && only.is_none_or(|only| only == *group));
    let document = |(group, versions): &(&str, Vec<&str>)| {
        let version = |version: &&str| json!({"groupVersion": api_version(group, version), "version": version});
        let mut document = if only.is_some() { json!({"kind": "APIGroup", "apiVersion": "v1"}) } else { json!({}) };
        document["name"] = (*group).into();
        document["versions"] = versions.iter().map(version).collect();
        document["preferredVersion"] = versions.first().map(version).unwrap_or_default();
        document
    };
    wanted.map(document).collect()
}

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<Value> = kinds_of(catalog, group, version).flat_map(|kind| rows(kind)).collect();
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({"kind": "APIResourceList"});
    // The core group's has no `apiVersion`, since release 1.1.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list["groupVersion"] = api_version(group, version).into();
    list["resources"] = resources.into();
    Some(list)
}

fn rows(kind: &Kind) -> Vec<Value> {
    let mut row = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        row["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        row["categories"] = kind.categories.clone().into();
    }
    let below = |sub: &Subresource| {
        let mut row = json!({
            "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
        });
        if let (Some(group), Some(version)) = (&sub.group, &sub.version) {
            if !group.is_empty() {
                row["group"] = group.as_str().into();
            }
            row["version"] = version.as_str().into();
        }
        row["kind"] = sub.kind.as_str().into();
        row["verbs"] = sub.verbs.clone().into();
        row
    };
    let mut rows = vec![row];
    rows.extend(kind.subresources.iter().map(below));
    rows
}

fn aggregated_groups(catalog: &Catalog, is_core: bool) -> Vec<Value> {
    let groups = by_group(catalog).into_iter().filter(|(group, _)| group.is_empty() == is_core);
    let document = |(group, versions): (&str, Vec<&str>)| {
        let version = |version: &str| {
            let resources: Vec<Value> =
                kinds_of(catalog, group, version).map(|kind| aggregated_resource(kind)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        };
        let versions: Vec<Value> = versions.into_iter().map(version).collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
        json!({"metadata": metadata, "versions": versions})
    };
    groups.map(document).collect()
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response_kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let is_built_in = kubefold_wire::media::is_built_in(&kind.group);
    let own = if is_built_in {
        response_kind("", "", &kind.kind)
    } else {
        response_kind(&kind.group, &kind.version, &kind.kind)
    };
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": own,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = kind.short_names.clone().into();
    }
    if !kind.categories.is_empty() {
        resource["categories"] = kind.categories.clone().into();
    }
    let below = |sub: &Subresource| {
        let said = match (&sub.group, &sub.version) {
            (Some(group), Some(version)) => response_kind(group, version, &sub.kind),
            _ if is_built_in => response_kind("", "", &sub.kind),
            _ => response_kind(&kind.group, &kind.version, &sub.kind),
        };
        json!({"subresource": sub.name, "responseKind": said, "verbs": sub.verbs})
    };
    if !kind.subresources.is_empty() {
        resource["subresources"] = kind.subresources.iter().map(below).collect();
    }
    resource
}

fn version(text: &str) -> Value {
    let mut parts = text.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor.parse::<u32>().unwrap_or_default().saturating_sub(1).to_string(),
        "gitVersion": text,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}
