//! A store that is told what another one shows has what that one has.

use std::sync::Arc;

use crate::{
    config::Names,
    store::{
        Change, Cursor, Earlier, Entry, FleetStore, Interest, KnownHolders, ReadAfter, Revision, Snapshot,
        tests::{
            model::Kind,
            watcher::{Watcher, objects},
            world::{naming, shared},
        },
    },
};
use kubefold_wire::watch::EventType;

/// A copy of a store, as a standby has it, and a client of the copy.
pub(super) struct Copied {
    store: FleetStore,
    holders: KnownHolders,
    cursor: Cursor,
    watcher: Watcher,
    since: Revision,
}

impl Copied {
    pub(super) fn of(kind: Kind, store: &FleetStore) -> Self {
        let copy = FleetStore::new(Arc::new(kind.spec()), shared(naming(Names::Suffixed, 0)), |_| {});
        let (snapshot, cursor) = store.snapshot_and_cursor(Revision(0), &Interest::Everything);
        let mut holders = KnownHolders::default();
        copy.fill(snapshot.objects.values().map(|entry| through_bytes(entry, &mut holders)).collect());
        copy.filled_as_of(snapshot.revision);
        let watcher = Watcher::new(&copy, Interest::Everything);
        Self { store: copy, holders, cursor, watcher, since: snapshot.revision }
    }

    /// Another process tells it: it goes on where it is, or begins anew.
    pub(super) fn meets(&mut self, kind: Kind, store: &FleetStore, goes_on: bool) {
        if goes_on {
            self.cursor = store.cursor(self.cursor.revision, &Interest::Everything).unwrap();
        } else {
            *self = Self::of(kind, store);
        }
    }

    /// Takes in what has happened, and has then what the other store has.
    pub(super) fn follows(&mut self, store: &FleetStore) {
        let mut records = Vec::new();
        assert_eq!(store.read(&mut self.cursor, usize::MAX, usize::MAX, &mut records), ReadAfter::Read);
        let mut changes = Vec::new();
        for record in records.iter().filter(|record| !record.is_of_parts()) {
            changes.push(match record.event_type {
                EventType::Deleted => Change::Removed(record.entry.shared_key().to_string(), record.revision),
                _ => Change::Put(Box::new(through_bytes(&record.entry, &mut self.holders))),
            });
        }
        changes.push(Change::Reached(self.cursor.revision));
        self.store.apply(changes);
        let (now, copied) = (store.snapshot(), self.store.snapshot());
        is_copy(&copied, &now);
        assert_eq!(self.store.head_at(Revision(0)), now.revision);
        self.watcher.read(&self.store);
        assert_eq!(self.watcher.objects, self.watcher.truth(&now));
        assert_eq!(self.watcher.cursor.revision, now.revision);
    }

    /// Adds to what was told of a store what this copy has beyond that: then it is what the store shows.
    pub(super) fn complete(&self, told: &mut Earlier, store: &FleetStore) {
        self.store.complete(told);
        let whole = store.shown(store.last()).unwrap();
        if told.head() == whole.head() {
            assert_eq!(*told, Earlier { since: told.since, last: told.last, ..whole });
        }
    }

    /// What it takes back is what there was.
    pub(super) fn had(&self, was: &Snapshot) {
        if was.revision >= self.since {
            is_copy(&self.store.snapshot_at(was.revision).unwrap(), was);
        }
    }
}

fn is_copy(copied: &Snapshot, of: &Snapshot) {
    let all = Interest::Everything;
    assert_eq!((copied.revision, objects(copied, &all)), (of.revision, objects(of, &all)));
    for namespace in ["", "a", "b", "none"] {
        assert_eq!(copied.count(namespace), of.count(namespace));
    }
    for (copied, entry) in copied.objects.values().zip(of.objects.values()) {
        let facts = |entry: &Entry| {
            let names = [entry.namespace(), entry.name(), entry.uid(), entry.labels().unwrap_or_default()];
            (names.map(str::to_owned), entry.revision, entry.holders.clone(), entry.folded, entry.deleting)
        };
        assert_eq!(facts(copied), facts(entry));
        let written = |entry: &Entry| {
            let (mut item, mut metadata) = (Vec::new(), Vec::new());
            entry.write_item(&mut item);
            entry.write_metadata_at(entry.revision, &mut metadata);
            (item, metadata)
        };
        assert_eq!(written(copied), written(entry));
    }
}

/// An entry as the bytes bring it that another process sends; cut off anywhere, they are none.
fn through_bytes(entry: &Entry, holders: &mut KnownHolders) -> Entry {
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        assert!(Entry::decode(&bytes[..cut], holders).is_none());
    }
    Entry::decode(&bytes, holders).unwrap()
}
