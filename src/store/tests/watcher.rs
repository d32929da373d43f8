//! A client of a store.

use std::{collections::BTreeMap, sync::Arc};

use crate::store::{Cursor, Entry, FleetStore, Interest, Key, ReadAfter, Record, Revision, Snapshot};
use kubefold_wire::watch::EventType;

/// A client that believes every event that concerns it.
pub(super) struct Watcher {
    interest: Interest,
    pub(super) cursor: Cursor,
    pub(super) objects: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Watcher {
    pub(super) fn new(store: &FleetStore, interest: Interest) -> Self {
        let (snapshot, cursor) = store.snapshot_and_cursor(Revision(0), &interest);
        Self { cursor, objects: objects(&snapshot, &interest), interest }
    }

    /// One that was told of everything up to a snapshot.
    pub(super) fn from(store: &FleetStore, snapshot: &Snapshot, interest: Interest) -> Self {
        let cursor = store.cursor(snapshot.revision, &interest).unwrap();
        Self { cursor, objects: objects(snapshot, &interest), interest }
    }

    pub(super) fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Another process answers: it goes on where it is, or begins anew.
    pub(super) fn meets(&mut self, store: &FleetStore, goes_on: bool) {
        if goes_on {
            self.cursor = store.cursor(self.cursor.revision, &self.interest).unwrap();
        } else {
            *self = Self::new(store, self.interest.clone());
        }
    }

    /// What it should believe now.
    pub(super) fn truth(&self, snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
        objects(snapshot, &self.interest)
    }

    pub(super) fn read(&mut self, store: &FleetStore) -> Vec<Arc<Record>> {
        let mut out: Vec<Arc<Record>> = Vec::new();
        loop {
            let before = out.len();
            assert_eq!(store.read(&mut self.cursor, 3, usize::MAX, &mut out), ReadAfter::Read);
            if out.len() == before {
                break;
            }
        }
        // To those who see all parts it is no event when these make the same.
        out.retain(|record| concerns(&self.interest, &record.entry) && !record.is_of_parts());
        for record in &out {
            let key = record.entry.key().to_vec();
            let mut json = Vec::new();
            record.entry.write_at(record.revision, &mut json);
            let previous = match record.event_type {
                EventType::Added | EventType::Modified => self.objects.insert(key, json),
                _ => self.objects.remove(&key),
            };
            assert_eq!(previous.is_some(), record.event_type != EventType::Added, "{record:?}");
            let told = record.previous.as_ref().map(|entry| entry.json().to_vec());
            if record.event_type == EventType::Modified {
                assert_eq!(told, previous);
            }
        }
        out
    }
}

fn concerns(interest: &Interest, entry: &Entry) -> bool {
    match interest {
        Interest::Everything => true,
        Interest::Namespace(namespace) => *entry.namespace() == **namespace,
        Interest::Object(key) => *entry.key() == *key.as_bytes(),
        Interest::Node(node) => entry.node() == Some(node),
    }
}

pub(super) fn objects(snapshot: &Snapshot, interest: &Interest) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pair = |(_, entry): (&Key, &Arc<Entry>)| (entry.key().to_vec(), entry.json().to_vec());
    let concerned = snapshot.objects.iter().filter(|(_, entry)| concerns(interest, entry));
    concerned.map(pair).collect()
}
