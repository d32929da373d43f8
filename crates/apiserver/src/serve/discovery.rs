//! What is served: `/api`, `/apis`, their groups and versions, `/version`; both forms of discovery; OpenAPI.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/discovery/`. `kubefold_wire::discovery` writes the documents.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Subresource},
    registry::Catalog,
    serve::{NOT_ALLOWED, Settings, json_response},
};
use kubefold_wire::{
    accept::{accept_header, negotiate, not_acceptable, wants_aggregated, wants_pretty},
    body::{Body, empty, full},
    discovery::{
        AGGREGATED, Aggregated, ApiGroup, ApiGroupList, ApiResource, ApiResourceList, ApiVersions, GroupDiscovery,
        KindDiscovery, Metadata, ResourceDiscovery, SubresourceDiscovery, Text, VersionDiscovery, compact, indented,
        pretty, storage_version_hash,
    },
    status::Status,
};

/// Answers discovery, and keeps the documents of the present catalog.
#[derive(Default)]
pub(super) struct Discovery {
    aggregated: ArcSwapOption<Documents>,
}

/// The two aggregated documents of one catalog, with their tags.
struct Documents {
    epoch: u64,
    core: Aggregated,
    named: Aggregated,
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
            [""] => Some(pretty(&roots(catalog))),
            ["api"] | ["apis"] if wants_aggregated(&parts.headers) => {
                return Some(allowed(parts).map(|()| self.aggregated(catalog, segments == ["api"], parts)));
            }
            ["api"] => Some(api_versions(catalog, parts)),
            ["apis"] => Some(compact(&ApiGroupList::new(groups(catalog).collect()))),
            ["apis", name] => groups(catalog).find(|group| group.name == *name).map(|group| compact(&group.alone())),
            ["api", version] => resource_list(catalog, "", version),
            ["apis", group, version] => resource_list(catalog, group, version),
            ["version"] => Some(pretty(&version(&settings.version))),
            _ => return None,
        };
        Some(allowed(parts).and_then(|()| {
            let document = document.ok_or_else(Status::no_such_path)?;
            let accepted = negotiate(accept_header(&parts.headers), &[]).ok_or_else(not_acceptable)?;
            let for_people = accepted.pretty || wants_pretty(parts.uri.query(), &parts.headers);
            Ok(json_response(full(if for_people { indented(&document) } else { document })))
        }))
    }

    fn aggregated(&self, catalog: &Catalog, is_core: bool, parts: &Parts) -> Response<Body> {
        let kept = self.aggregated.load_full().filter(|kept| kept.epoch == catalog.epoch());
        let documents = kept.unwrap_or_else(|| {
            let document = |is_core: bool| Aggregated::new(aggregated_groups(catalog, is_core));
            let documents =
                Arc::new(Documents { epoch: catalog.epoch(), core: document(true), named: document(false) });
            self.aggregated.store(Some(Arc::clone(&documents)));
            documents
        });
        let document = if is_core { &documents.core } else { &documents.named };
        let asked = parts.headers.get(header::IF_NONE_MATCH);
        let mut response = if asked == Some(&document.etag) {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_response(full(document.json.clone()))
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(header::ETAG, document.etag.clone());
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

fn api_versions(catalog: &Catalog, parts: &Parts) -> Bytes {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    let host = host.or_else(|| parts.uri.authority().map(ToString::to_string)).unwrap_or_default();
    let groups = by_group(catalog);
    let core = groups.iter().find(|(group, _)| group.is_empty()).map(|(_, versions)| versions.as_slice());
    compact(&ApiVersions::new(core.unwrap_or_default().iter().map(|version| Text::from(*version)).collect(), &host))
}

/// All groups but the core.
fn groups(catalog: &Catalog) -> impl Iterator<Item = ApiGroup<'_>> {
    let groups = by_group(catalog).into_iter().filter(|(group, _)| !group.is_empty());
    groups.map(|(group, versions)| {
        let preferred = versions.first().copied();
        ApiGroup::new(group, versions.into_iter(), preferred)
    })
}

fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Bytes> {
    let kinds = catalog.kinds().iter().filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<ApiResource<'_>> = kinds.flat_map(|kind| rows(kind, stored_version(catalog, kind))).collect();
    (!resources.is_empty()).then(|| compact(&ApiResourceList::new(group, version, resources)))
}

fn words(words: &[String]) -> Vec<Text<'_>> {
    words.iter().map(Text::from).collect()
}

/// The version in which a kind's objects are stored; `None`: they are not, or it is not known of which version.
fn stored_version<'k>(catalog: &Catalog, kind: &'k Kind) -> Option<&'k str> {
    let can = |verb: &str| kind.verbs.iter().any(|known| known == verb);
    let is_stored = kind.rest.is_none() && can("get") && can("create");
    let is_version_of_it = |other: &&Arc<Kind>| other.group == kind.group && other.plural == kind.plural;
    let is_alone = || catalog.kinds().iter().filter(is_version_of_it).count() == 1;
    let own = || is_alone().then_some(kind.version.as_str());
    is_stored.then(|| kind.stored_version.as_deref().or_else(own)).flatten()
}

fn rows<'k>(kind: &'k Kind, stored: Option<&str>) -> Vec<ApiResource<'k>> {
    let hash = stored.map(|version| storage_version_hash(kind.stored_group(), version, &kind.kind));
    let row = ApiResource {
        name: Text::from(&kind.plural),
        singular_name: Text::from(&kind.singular),
        namespaced: kind.namespaced,
        kind: Text::from(&kind.kind),
        verbs: words(&kind.verbs),
        short_names: words(&kind.short_names),
        categories: words(&kind.categories),
        storage_version_hash: hash.unwrap_or_default().into(),
        ..ApiResource::default()
    };
    let mut rows = vec![row];
    rows.extend(kind.subresources.iter().map(|sub| below(kind, sub)));
    rows
}

fn below<'k>(kind: &'k Kind, sub: &'k Subresource) -> ApiResource<'k> {
    let (group, version) = match (&sub.group, &sub.version) {
        (Some(group), Some(version)) => (group.as_str(), version.as_str()),
        _ => ("", ""),
    };
    ApiResource {
        name: format!("{}/{}", kind.plural, sub.name).into(),
        namespaced: kind.namespaced,
        group: group.into(),
        version: version.into(),
        kind: Text::from(&sub.kind),
        verbs: words(&sub.verbs),
        ..ApiResource::default()
    }
}

fn aggregated_groups(catalog: &Catalog, is_core: bool) -> Vec<GroupDiscovery<'_>> {
    let groups = by_group(catalog).into_iter().filter(|(group, _)| group.is_empty() == is_core);
    let version_of = |group, version| VersionDiscovery {
        version: Text::from(version),
        resources: kinds_of(catalog, group, version),
        freshness: "Current".into(),
    };
    let document = |(group, versions): (_, Vec<_>)| GroupDiscovery {
        metadata: Metadata { name: Text::from(group) },
        versions: versions.into_iter().map(|version| version_of(group, version)).collect(),
    };
    groups.map(document).collect()
}

fn kinds_of<'c>(catalog: &'c Catalog, group: &str, version: &str) -> Vec<ResourceDiscovery<'c>> {
    let kinds = catalog.kinds().iter().filter(|kind| kind.group == group && kind.version == version);
    kinds.map(|kind| aggregated_resource(kind)).collect()
}

fn aggregated_resource(kind: &Kind) -> ResourceDiscovery<'_> {
    // Of built-in kinds a kube-apiserver leaves out what the group and version of the list say.
    let is_built_in = kubefold_wire::media::is_built_in(&kind.group);
    let (group, version) = if is_built_in { ("", "") } else { (kind.group.as_str(), kind.version.as_str()) };
    let subresources = kind.subresources.iter().map(|sub| {
        let (group, version) = match (&sub.group, &sub.version) {
            (Some(group), Some(version)) => (group.as_str(), version.as_str()),
            _ => (group, version),
        };
        SubresourceDiscovery {
            subresource: Text::from(&sub.name),
            response_kind: Some(response_kind(group, version, &sub.kind)),
            accepted_types: Vec::new(),
            verbs: words(&sub.verbs),
        }
    });
    ResourceDiscovery {
        resource: Text::from(&kind.plural),
        response_kind: Some(response_kind(group, version, &kind.kind)),
        scope: if kind.namespaced { "Namespaced" } else { "Cluster" }.into(),
        singular_resource: Text::from(&kind.singular),
        verbs: words(&kind.verbs),
        short_names: words(&kind.short_names),
        categories: words(&kind.categories),
        subresources: subresources.collect(),
    }
}

fn response_kind<'k>(group: &'k str, version: &'k str, kind: &'k str) -> KindDiscovery<'k> {
    KindDiscovery { group: group.into(), version: version.into(), kind: kind.into() }
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
