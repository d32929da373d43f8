//! Real members' documents, as kube-apiservers 1.36.3 gave them, and a member made of them.
//!
//! `east` has two CRD versions and an aggregated API that is down; `west` serves every alpha and beta API, and its
//! CRD of the same name differs in scope and versions.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{FetchError, Fetched, Fetcher, MemberCatalog, parse_aggregated, parse_server_version};
use crate::config::MemberName;

pub(crate) const EAST: &str = include_str!("testdata/kube-east.json");
pub(crate) const WEST: &str = include_str!("testdata/kube-west.json");

/// The documents of a member by form (`aggregated`, `legacy`) and path.
pub(crate) fn documents(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn name(name: &str) -> MemberName {
    MemberName::new(name).unwrap()
}

/// The catalog in a member's aggregated documents.
pub(crate) fn catalog(documents: &Value) -> Arc<MemberCatalog> {
    let groups = |path: &str| parse_aggregated(documents["aggregated"][path].to_string().as_bytes()).unwrap();
    let groups = [groups("/api"), groups("/apis")].concat().into_iter().map(Arc::new).collect();
    let server = parse_server_version(documents["legacy"]["/version"].to_string().as_bytes()).unwrap();
    Arc::new(MemberCatalog { groups, server: Some(Arc::new(server)) })
}

/// A member that answers from documents, which a test may change.
pub(crate) struct FakeMember {
    pub(crate) documents: Mutex<Value>,
    /// Whether it knows aggregated discovery.
    pub(crate) aggregated: bool,
    pub(crate) down: Mutex<bool>,
    pub(crate) ready: Mutex<bool>,
    pub(crate) asked: Mutex<HashMap<String, usize>>,
    pub(crate) not_modified: AtomicUsize,
}

impl FakeMember {
    pub(crate) fn new(text: &str, aggregated: bool) -> Self {
        Self {
            documents: Mutex::new(documents(text)),
            aggregated,
            down: Mutex::new(false),
            ready: Mutex::new(true),
            asked: Mutex::default(),
            not_modified: AtomicUsize::new(0),
        }
    }

    pub(crate) async fn catalog(&self) -> MemberCatalog {
        Fetched::default().fetch(self).await.unwrap().catalog(None)
    }

    /// Edits the aggregated document of the named groups.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut Vec<Value>)) {
        edit(self.documents.lock()["aggregated"]["/apis"]["items"].as_array_mut().unwrap());
    }

    fn answer(&self, path: &str, headers: &HeaderMap) -> Response<Bytes> {
        let documents = self.documents.lock();
        let accept = headers.get(header::ACCEPT).map_or("", |value| value.to_str().unwrap());
        let whole = |document: &Value| Bytes::from(document.to_string());
        let mut response = Response::new(Bytes::new());
        if path == "/readyz" {
            *response.status_mut() =
                if *self.ready.lock() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        } else if self.aggregated && accept.contains("v=v2;") && !documents["aggregated"][path].is_null() {
            let body = whole(&documents["aggregated"][path]);
            let etag = format!("\"{}\"", crc(&body));
            if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == etag.as_str()) {
                self.not_modified.fetch_add(1, Relaxed);
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return response;
            }
            response.headers_mut().insert(header::ETAG, etag.parse().unwrap());
            let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            response.headers_mut().insert(header::CONTENT_TYPE, aggregated.parse().unwrap());
            *response.body_mut() = body;
        } else if documents["legacy"][path].is_null() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        } else {
            response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            *response.body_mut() = whole(&documents["legacy"][path]);
        }
        response
    }
}

impl Fetcher for FakeMember {
    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, FetchError> {
        if *self.down.lock() {
            return Err("connection refused".into());
        }
        *self.asked.lock().entry(path.to_owned()).or_default() += 1;
        Ok(self.answer(path, &headers))
    }
}

/// A group with one resource, as aggregated discovery prints it.
pub(crate) fn group(group: &str, version: &str, resource: &str, kind: &str, freshness: &str) -> Value {
    let resource = json!({"resource": resource, "responseKind": {"group": group, "version": version, "kind": kind},
        "scope": "Namespaced", "singularResource": "", "verbs": ["get", "list", "watch"]});
    json!({"metadata": {"name": group},
        "versions": [{"version": version, "resources": [resource], "freshness": freshness}]})
}

fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}
