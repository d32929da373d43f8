//! What must hold of the stores, whatever happens.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    placement::fold::Sums,
    store::{
        Audience, Entry, FleetStore, Interest, Notices, Record, Revision,
        incoming::Scratch,
        parts::{PartList, Parts},
        tests::{model::KINDS, watcher::objects, world::World},
    },
};

/// Whoever may see some members alone sees their parts as they are, or as they were when a writer held them back, and hears
/// nothing of the others.
fn check_parts(store: &FleetStore, entry: &Arc<Entry>) {
    let key = std::str::from_utf8(entry.key()).unwrap();
    let is_held = store.peek(|inner| inner.folds.get(key).is_some_and(|fold| fold.held > 0));
    for member in entry.holders.iter() {
        let seen = store.seen_by(&Audience::of([member.clone()]), entry).unwrap();
        assert_eq!((&*seen.holders, seen.key(), seen.uid()), ([member.clone()].as_slice(), entry.key(), entry.uid()));
        let text = std::str::from_utf8(seen.json()).unwrap();
        let others = entry.holders.iter().filter(|other| *other != member);
        others.for_each(|other| assert!(!text.contains(&format!("kubefold.io/clusters\":\"{other}")), "{text}"));
        let part = store.parts(key).into_iter().find(|part| part.member == *member);
        let (Some(held), Some(part)) = (&seen.parts, part) else { continue };
        let may_be_older = is_held || entry.holders.len() == 1;
        assert!(
            may_be_older || held.list.first().unwrap().document.text() == part.document.text(),
            "{held:?} {part:?}"
        );
    }
    assert!(store.seen_by(&Audience::of([]), entry).is_none());
}

/// What was kept of a fold's parts as they changed makes what the parts make from scratch.
fn check_shown(store: &FleetStore) {
    store.peek(|inner| {
        for (key, fold) in &inner.folds {
            // A change of the members is shown slice by slice.
            let is_current = fold.held == 0 && fold.shape(inner.members_epoch).is_some();
            let Some(shown) = fold.shown.as_ref().filter(|_| is_current) else { continue };
            let entry = &inner.objects[key];
            let list = PartList::of(&fold.chosen().into_iter().cloned().collect::<Vec<_>>());
            assert_eq!(shown.sums, Sums::of(&list), "{key}");
            let Notices { behind, differs, .. } = inner.notices(key);
            let parts = Parts { list, behind: behind.into(), differs: differs.into(), revision: entry.revision };
            let made = inner.folded(parts, &entry.holders, Some(entry.uid()), &mut Scratch::default()).unwrap();
            assert_eq!(std::str::from_utf8(made.json()).unwrap(), std::str::from_utf8(entry.json()).unwrap(), "{key}");
        }
    });
}

impl World {
    /// Lets all watchers read, and compares what they believe with what is. Gives the new records of each kind.
    pub(super) fn check(&mut self) -> Vec<Arc<Record>> {
        let mut all = Vec::new();
        for (kind, store) in self.stores.iter().enumerate() {
            let now = store.snapshot();
            let mut orders: Vec<Vec<Revision>> = Vec::new();
            for watcher in &mut self.watchers[kind] {
                let records = watcher.read(store);
                orders.push(records.iter().map(|record| record.revision).collect());
                assert_eq!(watcher.objects, watcher.truth(&now), "{:?} {records:?}", KINDS[kind]);
                assert!(watcher.cursor.revision <= now.revision);
                if orders.len() == 1 {
                    all.extend(records);
                }
            }
            for watcher in &mut self.narrow[kind] {
                watcher.read(store);
                assert_eq!(watcher.objects, watcher.truth(&now));
                assert_eq!(watcher.cursor.revision, self.watchers[kind][0].cursor.revision);
            }
            self.copies[kind].follows(store);
            assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "all watchers see one order");
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            now.objects.values().for_each(|entry| *counts.entry(entry.namespace().to_owned()).or_default() += 1);
            now.objects.values().for_each(|entry| check_parts(store, entry));
            check_shown(store);
            for namespace in ["a", "b", "none"] {
                assert_eq!(now.count(namespace), counts.get(namespace).copied().unwrap_or_default());
            }
        }
        all
    }

    /// What the log takes back is what there was.
    pub(super) fn check_past(&self) {
        for (kind, was) in &self.past {
            let again = self.stores[*kind].snapshot_at(was.revision).unwrap();
            self.copies[*kind].had(was);
            let all = Interest::Everything;
            assert_eq!((again.revision, objects(&again, &all)), (was.revision, objects(was, &all)));
            for namespace in ["", "a", "b", "none"] {
                assert_eq!(again.count(namespace), was.count(namespace));
            }
        }
    }

    /// Walks every retained snapshot in pages.
    pub(super) fn check_pages(&self, page: usize) {
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
                let mut wanted: Vec<Vec<u8>> = snapshot.objects.keys().map(|key| key.as_bytes().to_vec()).collect();
                wanted.retain(|key| namespace.is_empty() || key.starts_with(format!("{namespace}/").as_bytes()));
                assert_eq!((walked.len() as u64, &walked), (kept.count(namespace), &wanted));
            }
        }
    }
}
