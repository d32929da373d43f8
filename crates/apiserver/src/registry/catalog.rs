//! The kinds that are served. They change while the server runs: definitions of custom resources come and go.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::kinds::Kind;

/// The kinds that are served at one moment.
#[derive(Clone, Default)]
pub struct Catalog {
    kinds: Vec<Arc<Kind>>,
    by_resource: HashMap<[String; 3], Arc<Kind>>,
    /// How often it changed.
    epoch: u64,
}

impl Catalog {
    /// All of them, in the order in which they came.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// A number that is another once it has changed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The kind of a group, version and plural.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let key = [group, version, plural].map(str::to_owned);
        self.by_resource.get(&key).cloned()
    }

    /// The kind of a group and kind in its preferred version.
    pub fn kind(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|known| known.group == group && known.kind == kind).cloned()
    }

    pub(super) fn add(&mut self, kind: Arc<Kind>) {
        let key = key_of(&kind);
        match self.kinds.iter_mut().find(|known| key_of(known) == key) {
            Some(known) => *known = Arc::clone(&kind),
            None => self.kinds.push(Arc::clone(&kind)),
        }
        self.by_resource.insert(key, kind);
        self.epoch += 1;
    }

    pub(super) fn remove(&mut self, group: &str, version: &str, plural: &str) {
        let key = [group, version, plural].map(str::to_owned);
        self.kinds.retain(|known| key_of(known) != key);
        self.by_resource.remove(&key);
        self.epoch += 1;
    }
}

fn key_of(kind: &Kind) -> [String; 3] {
    [kind.group.clone(), kind.version.clone(), kind.plural.clone()]
}

/// The catalog of now.
pub(super) struct Shared {
    now: ArcSwap<Catalog>,
    changing: Mutex<()>,
}

impl Shared {
    pub(super) fn new(kinds: impl IntoIterator<Item = Arc<Kind>>) -> Self {
        let mut catalog = Catalog::default();
        kinds.into_iter().for_each(|kind| catalog.add(kind));
        Self { now: ArcSwap::from_pointee(catalog), changing: Mutex::new(()) }
    }

    pub(super) fn load(&self) -> Arc<Catalog> {
        self.now.load_full()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Catalog)) {
        let _one_at_a_time = self.changing.lock();
        let mut catalog = Catalog::clone(&self.now.load());
        change(&mut catalog);
        self.now.store(Arc::new(catalog));
    }
}
