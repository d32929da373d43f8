//! A client of a store.

use std::{collections::BTreeMap, sync::Arc};

use crate::store::{Cursor, Entry, FleetStore, Key, ReadAfter, Record, Snapshot};
use kubefold_wire::watch::EventType;

/// A client that believes every event.
pub(super) struct Watcher {
    pub(super) cursor: Cursor,
    pub(super) objects: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Watcher {
    pub(super) fn read(&mut self, store: &FleetStore) -> Vec<Arc<Record>> {
        let mut out: Vec<Arc<Record>> = Vec::new();
        loop {
            let before = out.len();
            assert_eq!(store.read(&mut self.cursor, 3, &mut out), ReadAfter::Read);
            if out.len() == before {
                break;
            }
        }
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

pub(super) fn objects(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pair = |(_, entry): (&Key, &Arc<Entry>)| (entry.key().to_vec(), entry.json().to_vec());
    let all: BTreeMap<_, _> = snapshot.objects.iter().map(pair).collect();
    assert_eq!(all.len(), snapshot.objects.len());
    all
}
