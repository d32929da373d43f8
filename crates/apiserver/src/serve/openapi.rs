//! `/openapi/v2`, `/openapi/v3`: documents that are made when they are first asked for.

use std::{collections::BTreeMap, sync::Arc};

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
    serve::{discovery::allowed, json_response},
};
use kubefold_wire::{
    accept::{accept_header, negotiate, not_acceptable},
    body::{Body, empty, full},
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
    bytes: Bytes,
    hash: String,
}

impl OpenApi {
    /// Answers a question below `/openapi/`.
    ///
    /// Errors: 404, 405, 406.
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
        negotiate(accept_header(&parts.headers), &[]).ok_or_else(not_acceptable)?;
        // The index has the hashes of all the others, and none of its own.
        let tag = if path == "v3" { String::new() } else { format!("\"{}\"", document.hash) };
        let asked = parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let mut response = if asked == Some(tag.as_str()) && !tag.is_empty() {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_response(full(document.bytes.clone()))
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
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
        let bytes = Bytes::from(value.to_string());
        Self { hash: hash(&bytes), bytes }
    }
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
