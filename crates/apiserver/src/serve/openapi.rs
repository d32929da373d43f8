//! `/openapi/v2`, `/openapi/v3`: documents that are made when they are first asked for.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use parking_lot::Mutex;

use crate::{
    kinds::{Kind, Subresource},
    registry::Catalog,
    schema::{
        builtin_kind,
        openapi::{Part, Served, hash, v2, v3, v3_index},
    },
    serve::discovery::allowed,
};
use kubefold_wire::{
    accept::{accept_header, choose},
    body::{Body, empty, full},
    protobuf::{OPENAPI_V2, OPENAPI_V2_ASKED, from_openapi_v2},
    status::Status,
};

/// Answers questions for OpenAPI documents, and keeps those of the present catalog.
#[derive(Default)]
pub(super) struct OpenApi {
    documents: ArcSwapOption<Documents>,
    /// Held while documents are made: clients ask for many at once.
    making: Mutex<()>,
}

struct Documents {
    epoch: u64,
    v2: Document,
    index: Document,
    /// By path, such as `apis/apps/v1`.
    v3: BTreeMap<String, Document>,
}

struct Document {
    json: Bytes,
    /// Of version 2, made when a client first asks for it.
    protobuf: OnceLock<Bytes>,
    hash: String,
}

const JSON: &str = "application/json";

impl OpenApi {
    /// Answers a question below `/openapi/`. As a kube-apiserver's, the refusal of every encoding has no body, and the index does
    /// not ask what the client takes.
    ///
    /// Errors: 404, 405.
    pub(super) fn answer(&self, catalog: &Catalog, path: &str, parts: &Parts) -> Result<Response<Body>, Status> {
        allowed(parts)?;
        let documents = self.documents_of(catalog);
        let document = match path.split_once('/') {
            None if path == "v2" => Some(&documents.v2),
            None if path == "v3" => Some(&documents.index),
            Some(("v3", rest)) => documents.v3.get(rest),
            _ => None,
        };
        let document = document.ok_or_else(Status::no_such_path)?;
        let offers: &[&str] = if path == "v2" { &[JSON, OPENAPI_V2, OPENAPI_V2_ASKED] } else { &[JSON] };
        let chosen = if path == "v3" { Some(JSON) } else { choose(accept_header(&parts.headers), offers) };
        let Some(chosen) = chosen else { return Ok(bare(StatusCode::NOT_ACCEPTABLE)) };
        // The index has the hashes of all the others, and none of its own.
        let tag = if path == "v3" { String::new() } else { format!("\"{}\"", document.hash) };
        let asked = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut response = if asked == Some(tag.as_str()) && !tag.is_empty() {
            bare(StatusCode::NOT_MODIFIED)
        } else {
            let (media_type, bytes) =
                if chosen == JSON { (JSON, document.json.clone()) } else { (OPENAPI_V2, document.protobuf()) };
            let mut response = bare(StatusCode::OK);
            *response.body_mut() = full(bytes);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            response
        };
        if let Some(tag) = HeaderValue::from_str(&tag).ok().filter(|tag| !tag.is_empty()) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        Ok(response)
    }

    fn documents_of(&self, catalog: &Catalog) -> Arc<Documents> {
        let kept = || self.documents.load_full().filter(|kept| kept.epoch == catalog.epoch());
        if let Some(kept) = kept() {
            return kept;
        }
        let _making = self.making.lock();
        if let Some(kept) = kept() {
            return kept;
        }
        let documents = Arc::new(Documents::new(catalog));
        self.documents.store(Some(Arc::clone(&documents)));
        documents
    }
}

impl Document {
    fn new(value: &serde_json::Value) -> Self {
        let json = Bytes::from(value.to_string());
        Self { hash: hash(&json), json, protobuf: OnceLock::new() }
    }

    fn protobuf(&self) -> Bytes {
        let made = || serde_json::from_slice(&self.json).map(|json| from_openapi_v2(&json)).unwrap_or_default().into();
        self.protobuf.get_or_init(made).clone()
    }
}

/// An answer without a body.
fn bare(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

impl Documents {
    fn new(catalog: &Catalog) -> Self {
        let subresources: Vec<Vec<Part<'_>>> = catalog
            .kinds()
            .iter()
            .map(|kind| kind.subresources.iter().map(|below| part(kind, below)).collect())
            .collect();
        let served: Vec<Served<'_>> = catalog
            .kinds()
            .iter()
            .zip(&subresources)
            .map(|(kind, subresources)| Served {
                group: &kind.group,
                version: &kind.version,
                kind: &kind.kind,
                plural: &kind.plural,
                namespaced: kind.namespaced,
                verbs: &kind.verbs,
                subresources,
                types: &kind.types,
                type_name: &kind.type_name,
                schema: kind.strategy.schema(),
                // A built-in kind does not say them.
                selectable_fields: if kind.strategy.schema().is_some() { &kind.selectable_fields } else { &[] },
            })
            .collect();
        let v3: BTreeMap<String, Document> =
            v3(&served).iter().map(|(path, document)| (path.clone(), Document::new(document))).collect();
        let index = v3_index(v3.iter().map(|(path, document)| (path.as_str(), document.hash.as_str())));
        Self { epoch: catalog.epoch(), v2: Document::new(&v2(&served)), index: Document::new(&index), v3 }
    }
}

/// What a subresource reads and writes: the kind itself, or another one.
fn part<'a>(kind: &'a Kind, below: &'a Subresource) -> Part<'a> {
    let group = below.group.as_deref().unwrap_or(&kind.group);
    let version = below.version.as_deref().unwrap_or(&kind.version);
    let is_own = below.kind.is_empty() || below.kind == kind.kind;
    let other = if is_own { None } else { builtin_kind(group, version, &below.kind) };
    let name = if is_own { &kind.kind } else { &below.kind };
    Part {
        name: &below.name,
        verbs: &below.verbs,
        group,
        version,
        kind: name,
        type_name: other.unwrap_or(&kind.type_name),
    }
}
