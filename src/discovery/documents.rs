//! The documents of one catalogue, encoded when first asked for and then kept.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest, Sha512};

use super::{aggregated, legacy};
use crate::member::catalog::{Catalogue, Freshness};
use kubefold_wire::status::Status;

/// Everything that is told of one catalogue.
#[derive(Debug)]
pub(super) struct Documents {
    /// Held, so that its address stands for it as long as its documents do.
    catalogue: Arc<Catalogue>,
    core: OnceLock<Aggregated>,
    named: OnceLock<Aggregated>,
    group_list: OnceLock<Bytes>,
    /// By group and version; only those that exist are kept.
    resource_lists: Mutex<HashMap<(String, String), Bytes>>,
}

/// An aggregated document and its tag.
#[derive(Debug)]
pub(super) struct Aggregated {
    pub(super) json: Bytes,
    /// Of the bytes alone, so that every replica of kubefold gives the same, and kubectl's disk cache holds.
    pub(super) etag: HeaderValue,
}

impl Documents {
    pub(super) fn new(catalogue: Arc<Catalogue>) -> Self {
        Self {
            catalogue,
            core: OnceLock::new(),
            named: OnceLock::new(),
            group_list: OnceLock::new(),
            resource_lists: Mutex::default(),
        }
    }

    pub(super) fn are_of(&self, catalogue: &Arc<Catalogue>) -> bool {
        Arc::ptr_eq(&self.catalogue, catalogue)
    }

    /// Aggregated, of the core group.
    pub(super) fn core(&self) -> &Aggregated {
        self.core.get_or_init(|| Aggregated::new(aggregated::list(&self.catalogue, |name| name.is_empty())))
    }

    /// Aggregated, of all others.
    pub(super) fn named(&self) -> &Aggregated {
        self.named.get_or_init(|| Aggregated::new(aggregated::list(&self.catalogue, |name| !name.is_empty())))
    }

    /// `/apis`
    pub(super) fn group_list(&self) -> Bytes {
        self.group_list.get_or_init(|| legacy::group_list(&self.catalogue)).clone()
    }

    /// `/apis/<group>`; small, and so made each time.
    pub(super) fn group(&self, name: &str) -> Option<Bytes> {
        self.catalogue.group(name).map(legacy::group)
    }

    /// `/apis/<group>/<version>`, `/api/<version>`
    pub(super) fn resource_list(&self, group: &str, version: &str) -> Result<Bytes, Box<Status>> {
        let merged = self.catalogue.version(group, version).ok_or_else(|| Box::new(Status::no_such_path()))?;
        if merged.resources.is_empty() && merged.freshness == Freshness::Stale {
            // Whoever serves it is away, and never told: as a kube-apiserver says of an aggregated API that is down.
            return Err(Box::new(Status::unavailable("the server is currently unable to handle the request")));
        }
        let mut lists = self.resource_lists.lock();
        let list =
            lists.entry((group.to_owned(), version.to_owned())).or_insert_with(|| legacy::resource_list(group, merged));
        Ok(list.clone())
    }
}

impl Aggregated {
    /// Source of the tag: kubernetes/apiserver `pkg/endpoints/discovery/aggregated/etag.go`, which hashes the list before its
    /// kind is set.
    fn new(json: Bytes) -> Self {
        let bare = json.strip_prefix(aggregated::TYPE_META.as_bytes()).unwrap_or(&json).trim_ascii_end();
        let mut etag = String::with_capacity(130);
        etag.push('"');
        for byte in Sha512::new().chain_update(b"{").chain_update(bare).finalize() {
            // Writing to a string does not fail.
            let _ = write!(etag, "{byte:02X}");
        }
        etag.push('"');
        Self { json, etag: HeaderValue::from_str(&etag).unwrap_or_else(|_| HeaderValue::from_static("\"\"")) }
    }
}

/// Compact JSON with the newline that Go's encoder ends a document with.
pub(super) fn compact(document: &impl Serialize) -> Bytes {
    // Strings and lists only: serialization has no way to fail.
    let mut json = serde_json::to_vec(document).unwrap_or_default();
    json.push(b'\n');
    json.into()
}

/// JSON for people, two spaces deep, as `json.MarshalIndent` gives it.
pub(super) fn pretty(document: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(document).unwrap_or_default().into()
}

/// A compact document again, for people.
pub(super) fn indented(json: &[u8]) -> Bytes {
    serde_json::from_slice::<serde_json::Value>(json)
        .map_or_else(|_| Bytes::copy_from_slice(json), |value| pretty(&value))
}
