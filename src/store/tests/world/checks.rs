//! What holds after every step.

use std::{collections::BTreeMap, sync::Arc};

use super::{Watcher, World};
use crate::{
    store::{FleetStore, ReadAfter, Record, Revision, Slot, Snapshot, tests::model::KINDS},
    wire::watch::EventType,
};

impl World {
    /// Lets all watchers read, and compares what they believe with what is. Gives the new records of each kind.
    pub(in crate::store::tests) fn check(&mut self) -> Vec<Arc<Record>> {
        let mut all = Vec::new();
        for (kind, store) in self.stores.iter().enumerate() {
            let now = store.snapshot();
            let truth = objects(&now);
            let mut orders: Vec<Vec<Revision>> = Vec::new();
            for watcher in &mut self.watchers[kind] {
                let records = watcher.read(store);
                orders.push(records.iter().map(|record| record.revision).collect());
                assert_eq!(watcher.objects.len(), truth.len(), "{:?} {records:?}", KINDS[kind]);
                assert_eq!(watcher.objects, truth);
                assert!(watcher.cursor.revision <= now.revision);
                if orders.len() == 1 {
                    all.extend(records);
                }
            }
            assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "all watchers see one order");
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            now.objects.iter().for_each(|Slot(entry)| *counts.entry(entry.namespace().to_owned()).or_default() += 1);
            for namespace in ["a", "b", "none"] {
                assert_eq!(now.count(namespace), counts.get(namespace).copied().unwrap_or_default());
            }
        }
        all
    }

    /// What the log takes back is what there was.
    pub(in crate::store::tests) fn check_past(&self) {
        for (kind, was) in &self.past {
            let again = self.stores[*kind].snapshot_at(was.revision).unwrap();
            assert_eq!((again.revision, objects(&again)), (was.revision, objects(was)));
            for namespace in ["", "a", "b", "none"] {
                assert_eq!(again.count(namespace), was.count(namespace));
            }
        }
    }

    /// Walks every retained snapshot in pages.
    pub(in crate::store::tests) fn check_pages(&self, page: usize) {
        for (kind, snapshot) in &self.retained {
            let kept = self.stores[*kind].retained(snapshot.revision).unwrap();
            for namespace in ["", "a", "b"] {
                let mut walked: Vec<Vec<u8>> = Vec::new();
                loop {
                    let after = walked.last().cloned().unwrap_or_default();
                    let before = walked.len();
                    walked.extend(kept.range(namespace, &after).take(page).map(|entry| entry.key().to_vec()));
                    if walked.len() == before {
                        break;
                    }
                }
                let wanted: Vec<Vec<u8>> = snapshot
                    .objects
                    .iter()
                    .filter(|Slot(entry)| namespace.is_empty() || entry.namespace() == namespace)
                    .map(|Slot(entry)| entry.key().to_vec())
                    .collect();
                assert_eq!((walked.len() as u64, &walked), (kept.count(namespace), &wanted));
            }
        }
    }
}

impl Watcher {
    fn read(&mut self, store: &FleetStore) -> Vec<Arc<Record>> {
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
    let pair = |Slot(entry): &Slot| (entry.key().to_vec(), entry.json().to_vec());
    let all: BTreeMap<_, _> = snapshot.objects.iter().map(pair).collect();
    assert_eq!(all.len(), snapshot.objects.len());
    all
}
