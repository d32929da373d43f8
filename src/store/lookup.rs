//! Objects as they were at a revision, looked up by whom they refer to or by their own UIDs.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use crate::store::{
    entry::{Entry, Key},
    fleet_store::{FleetStore, SLICE_ITEMS_MAX, UNDONE_MAX},
    identities::Referent,
    log::ReadAfter,
    places::Expired,
    revision::Revision,
    rows::Row,
    sequencer::Sequencer,
    uids::Uids,
};

impl FleetStore {
    /// The objects that referred to one of these at a revision that was given out, in order. A referent stands for the object
    /// of its name in every member: what is made of several members' parts refers as one of them does.
    ///
    /// Shape: costs O(objects given + events since). Errors: the log does not reach so far back.
    pub fn referring_at(&self, revision: Revision, referents: &[Referent]) -> Result<Vec<Arc<Entry>>, Expired> {
        self.peek(|inner| {
            let names: BTreeSet<&[u8]> = referents.iter().map(Referent::within_member).collect();
            let members = inner.shared.naming.members();
            let of_name =
                |name: &&[u8]| members.iter().map(|member| Referent::hash_in(member, name)).collect::<Vec<_>>();
            let hashes: HashSet<u64> = names.iter().flat_map(of_name).collect();
            let refers = |entry: &Arc<Entry>| entry.referents().any(|hash| hashes.contains(&hash));
            then(inner, revision, &inner.dependents.of_hashes(hashes.iter().copied()), refers)
        })
    }

    /// The objects that had a row of this UID at a revision that was given out, in order. `None`: not all objects are
    /// [indexed](Self::index_uids).
    ///
    /// Shape: costs O(events since). Errors: the log does not reach so far back.
    pub fn of_uid_at(&self, revision: Revision, uid: &str) -> Result<Option<Vec<Arc<Entry>>>, Expired> {
        self.peek(|inner| {
            let Some(uids) = inner.uids.as_ref().filter(|uids| uids.is_whole) else { return Ok(None) };
            let keys: Vec<Key> = uids.keys(uid).cloned().collect();
            then(inner, revision, &keys, |entry| !Row::of_uid(entry, uid).is_empty()).map(Some)
        })
    }

    /// Indexes the next objects behind `after` by their UIDs, and moves it. Says whether all are indexed.
    pub fn index_uids(&self, after: &mut String) -> bool {
        let mut inner = self.lock();
        let Sequencer { objects, uids, .. } = &mut *inner;
        let uids = uids.get_or_insert_with(Uids::default);
        if uids.is_whole {
            return true;
        }
        let mut last = None;
        let behind = (Bound::Excluded(after.as_str()), Bound::Unbounded);
        for (at, (key, entry)) in objects.range::<_, str>(behind).take(SLICE_ITEMS_MAX).enumerate() {
            uids.insert(entry);
            last = (at + 1 == SLICE_ITEMS_MAX).then_some(key);
        }
        uids.is_whole = last.is_none();
        if let Some(last) = last {
            last.as_str().clone_into(after);
        }
        uids.is_whole
    }
}

/// What stood at a revision under one of these keys, or under any that has changed since, as far as `fits` says so.
fn then(
    inner: &Sequencer,
    revision: Revision,
    keys: &[Key],
    fits: impl Fn(&Arc<Entry>) -> bool,
) -> Result<Vec<Arc<Entry>>, Expired> {
    let mut since = Vec::new();
    let reached = inner.log.read_after(revision, UNDONE_MAX + 1, usize::MAX, &mut since) == ReadAfter::Read;
    if !reached || since.len() > UNDONE_MAX {
        return Err(Expired { floor: inner.log.floor() });
    }
    let mut changed: HashMap<&Key, Option<&Arc<Entry>>> = HashMap::with_capacity(since.len());
    for record in &since {
        changed.entry(record.entry.shared_key()).or_insert_with(|| record.before());
    }
    let unchanged = keys.iter().filter(|key| !changed.contains_key(key)).filter_map(|key| inner.objects.get(key));
    let all = unchanged.chain(changed.values().copied().flatten());
    let mut found: Vec<Arc<Entry>> = all.filter(|entry| fits(entry)).cloned().collect();
    found.sort_unstable_by(|one, other| one.shared_key().cmp(other.shared_key()));
    Ok(found)
}
