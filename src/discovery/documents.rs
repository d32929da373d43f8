//! The documents of one catalog, encoded when first asked for and then kept.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{aggregated, legacy, storage_hashes::StorageHashes};
use crate::{
    catalog::{Catalog, Freshness},
    respond::DiscoveryError,
};
use kubefold_wire::discovery::Aggregated;

/// Everything that is told of one catalog.
#[derive(Debug)]
pub(super) struct Documents {
    /// Held, so that its address stands for it as long as its documents do.
    catalog: Arc<Catalog>,
    core: OnceLock<Aggregated>,
    named: OnceLock<Aggregated>,
    group_list: OnceLock<Bytes>,
    /// By group and version, with the hashes in it; only those that exist are kept.
    resource_lists: Mutex<HashMap<(String, String), (StorageHashes, Bytes)>>,
}

impl Documents {
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        Self {
            catalog,
            core: OnceLock::new(),
            named: OnceLock::new(),
            group_list: OnceLock::new(),
            resource_lists: Mutex::default(),
        }
    }

    pub(super) fn are_of(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    /// Aggregated, of the core group.
    pub(super) fn core(&self) -> &Aggregated {
        self.core.get_or_init(|| aggregated::list(&self.catalog, str::is_empty))
    }

    /// Aggregated, of all others.
    pub(super) fn named(&self) -> &Aggregated {
        self.named.get_or_init(|| aggregated::list(&self.catalog, |name| !name.is_empty()))
    }

    /// `/apis`
    pub(super) fn group_list(&self) -> Bytes {
        self.group_list.get_or_init(|| legacy::group_list(&self.catalog)).clone()
    }

    /// `/apis/<group>`; small, and so made each time.
    pub(super) fn group(&self, name: &str) -> Option<Bytes> {
        self.catalog.group(name).map(legacy::group)
    }

    /// `/apis/<group>/<version>`, `/api/<version>`
    pub(super) fn resource_list(
        &self,
        group: &str,
        version: &str,
        hashes: &StorageHashes,
    ) -> Result<Bytes, DiscoveryError> {
        let merged = self.catalog.version(group, version).ok_or(DiscoveryError::NoSuchPath)?;
        if merged.resources.is_empty() && merged.freshness == Freshness::Stale {
            return Err(DiscoveryError::GroupDown);
        }
        let mut lists = self.resource_lists.lock();
        let key = (group.to_owned(), version.to_owned());
        if let Some((_, list)) = lists.get(&key).filter(|(of_list, _)| of_list == hashes) {
            return Ok(list.clone());
        }
        let list = legacy::resource_list(group, merged, hashes);
        lists.insert(key, (hashes.clone(), list.clone()));
        Ok(list)
    }
}
