//! Discovery: what the fleet serves, described as one API server describes itself.
//!
//! `/api`, `/apis`, their groups and versions, `/version` and `/openapi/...`. May name: `wire`, `config`, `observe`, `placement`,
//! `store`, `member`, `respond`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use self::{documents::Documents, storage_hashes::Told};
use crate::{catalog::Catalog, respond::DiscoveryError, stores::Stores};
use kubefold_wire::{
    accept::{accept_header, negotiate, parse_accept, wants_aggregated, wants_pretty},
    body::{Body, empty, full},
    discovery::{AGGREGATED, Aggregated, indented, pretty},
    status::Status,
    warning::Warnings,
};

mod aggregated;
mod documents;
mod legacy;
mod openapi;
mod storage_hashes;
#[cfg(test)]
mod tests;

pub use {
    openapi::{OpenApi, OwnDocuments, is_openapi_path},
    storage_hashes::StorageHashes,
};

/// Answers discovery; holds the documents of the newest catalog, each encoded once.
#[derive(Debug, Default)]
pub struct Discovery {
    documents: ArcSwapOption<Documents>,
    told: Told,
}

/// What a discovery path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target<'a> {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(&'a str),
    /// `/api/<version>`, where the group is empty, or `/apis/<group>/<version>`
    GroupVersion(&'a str, &'a str),
    /// `/version`
    Version,
    /// `/openapi/...`, or a path under `/api` that no API server has
    Nothing,
}

/// Whether [`Discovery::handle`] answers this path.
pub fn is_discovery_path(path: &str) -> bool {
    Target::of(path).is_some()
}

impl Discovery {
    /// What [`Self::handle`] needs for a list of resources: in which versions members store them. Empty for any other path.
    ///
    /// Cancel: safe.
    pub async fn storage_hashes(&self, stores: &Stores, path: &str, catalog: &Arc<Catalog>) -> StorageHashes {
        let Some(Target::GroupVersion(group, version)) = Target::of(path) else { return StorageHashes::new() };
        let group = catalog.group(group).and_then(|group| Some((group, group.version(version)?)));
        let Some((group, version)) = group else { return StorageHashes::new() };
        self.told.agreed(stores, group, version, path.trim_end_matches('/')).await
    }

    /// Answers a request for discovery; `None` when the path is not discovery's.
    ///
    /// Source: kubernetes/apiserver `pkg/endpoints/discovery`; kube-aggregator `pkg/apiserver/handler_apis.go`.
    pub fn handle(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
        catalog: &Arc<Catalog>,
        hashes: &StorageHashes,
    ) -> Option<Response<Body>> {
        let target = Target::of(path)?;
        if method != Method::GET && method != Method::HEAD {
            return Some(Status::from(DiscoveryError::Method).into_response());
        }
        let answer = self.answer(target, query, headers, catalog, hashes);
        let mut response = answer.map_err(Status::from).unwrap_or_else(|status| match target {
            Target::Core | Target::Groups => status.into_response_to(headers),
            _ => status.into_response(),
        });
        warn_of_unknown(catalog, &mut response);
        Some(response)
    }

    fn answer(
        &self,
        target: Target<'_>,
        query: Option<&str>,
        headers: &HeaderMap,
        catalog: &Arc<Catalog>,
        hashes: &StorageHashes,
    ) -> Result<Response<Body>, DiscoveryError> {
        if target == Target::Nothing {
            return Err(DiscoveryError::NoSuchPath);
        }
        if catalog.groups.is_empty() {
            return Err(none_known(catalog));
        }
        let documents = self.documents_of(catalog);
        match target {
            Target::Core if wants_aggregated(headers) => Ok(aggregated_response(documents.core(), query, headers)),
            Target::Groups if wants_aggregated(headers) => Ok(aggregated_response(documents.named(), query, headers)),
            Target::Version => version(catalog, headers),
            _ => {
                let accepted = negotiate(accept_header(headers), &[]).ok_or(DiscoveryError::NotAcceptable)?;
                let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
                let document = match target {
                    Target::Core => legacy::api_versions(catalog, host),
                    Target::Groups => documents.group_list(),
                    Target::Group(group) => documents.group(group).ok_or(DiscoveryError::NoSuchPath)?,
                    Target::GroupVersion(group, version) => documents.resource_list(group, version, hashes)?,
                    Target::Version | Target::Nothing => return Err(DiscoveryError::NoSuchPath),
                };
                let for_people = accepted.pretty || wants_pretty(query, headers);
                Ok(json_response(if for_people { indented(&document) } else { document }))
            }
        }
    }

    /// The documents of this very catalog.
    fn documents_of(&self, catalog: &Arc<Catalog>) -> Arc<Documents> {
        if let Some(documents) = self.documents.load_full().filter(|documents| documents.are_of(catalog)) {
            return documents;
        }
        let documents = Arc::new(Documents::new(catalog.clone()));
        self.documents.store(Some(documents.clone()));
        documents
    }
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let mut segments = path.strip_prefix('/')?.split('/').collect::<Vec<_>>();
        if segments.last() == Some(&"") {
            // A kube-apiserver serves `/apis/` as `/apis`.
            segments.pop();
        }
        match *segments.as_slice() {
            ["api"] => Some(Self::Core),
            ["apis"] => Some(Self::Groups),
            ["version"] => Some(Self::Version),
            ["api", ""] | ["apis", ""] | ["apis", "", _] | ["apis", _, ""] => Some(Self::Nothing),
            ["api", version] => Some(Self::GroupVersion("", version)),
            ["apis", group] => Some(Self::Group(group)),
            ["apis", group, version] => Some(Self::GroupVersion(group, version)),
            ["openapi", ..] => Some(Self::Nothing),
            _ => None,
        }
    }
}

fn aggregated_response(document: &Aggregated, query: Option<&str>, headers: &HeaderMap) -> Response<Body> {
    let unchanged = headers.get(header::IF_NONE_MATCH) == Some(&document.etag);
    let body = match unchanged {
        true => empty(),
        false if wants_pretty(query, headers) => full(indented(&document.json)),
        false => full(document.json.clone()),
    };
    let mut response = Response::new(body);
    let out = response.headers_mut();
    out.insert(header::ETAG, document.etag.clone());
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        // Clients know aggregated discovery by these very parameters.
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    }
    response
}

/// The lowest version in the fleet: clients choose what to send by it, and every member must understand that.
fn version(catalog: &Catalog, headers: &HeaderMap) -> Result<Response<Body>, DiscoveryError> {
    let accept = accept_header(headers);
    if !accept.is_empty() && !parse_accept(accept).iter().any(|clause| clause.takes("application/json")) {
        return Err(DiscoveryError::NotAcceptable);
    }
    let server = catalog.server.as_ref().ok_or_else(|| none_known(catalog))?;
    Ok(json_response(pretty(&server.document)))
}

fn json_response(document: bytes::Bytes) -> Response<Body> {
    let mut response = Response::new(full(document));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn none_known(catalog: &Catalog) -> DiscoveryError {
    DiscoveryError::NothingKnown { unknown: names(catalog) }
}

/// Kinds that only an unknown member serves are missing, which must not pass in silence.
fn warn_of_unknown(catalog: &Catalog, response: &mut Response<Body>) {
    if catalog.complete() || response.status().is_server_error() {
        return;
    }
    let mut warnings = Warnings::default();
    warnings.add(&format!("discovery is incomplete: these members have not answered yet: {}", names(catalog)));
    warnings.write_to(response.headers_mut());
}

fn names(catalog: &Catalog) -> String {
    catalog.unknown.iter().map(|member| member.as_str()).collect::<Vec<_>>().join(", ")
}
