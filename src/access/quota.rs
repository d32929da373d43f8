//! How many records one who asks may have: whoever asks about name after name pushes out his own, and nobody else's.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Weak},
};

use kubefold_serving::caller::Caller;
use parking_lot::Mutex;

use crate::access::record::Record;

/// Records of one who asks.
const RECORDS_MAX: usize = 2_000;
/// The same as a part of all that is kept, where many members make each record large.
const PART_OF_ALL: u64 = 4;
/// After so many new records those are forgotten that are gone.
const SWEEP_EVERY: usize = 100_000;

/// Whose records there are.
pub(super) struct Quota {
    hasher: RandomState,
    words_max: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The oldest first.
    by_owner: HashMap<u64, VecDeque<Weak<Record>>>,
    added: usize,
}

impl Quota {
    /// For records that together weigh so much at most.
    pub(super) fn new(words_max: u64) -> Self {
        Self { hasher: RandomState::new(), words_max, held: Mutex::default() }
    }

    /// A number for who asks, whatever else his credential says of him.
    pub(super) fn owner(&self, caller: &Caller) -> u64 {
        self.hasher.hash_one((&caller.user, &caller.domain))
    }

    /// Counts a new record; gives those of the same owner that have to go for it.
    pub(super) fn add(&self, record: &Arc<Record>) -> Vec<Arc<Record>> {
        let part = self.words_max / PART_OF_ALL / record.weight().max(1);
        let max = RECORDS_MAX.min(usize::try_from(part).unwrap_or(RECORDS_MAX)).max(1);
        let mut held = self.held.lock();
        held.added += 1;
        if held.added > SWEEP_EVERY {
            held.added = 0;
            held.by_owner.values_mut().for_each(|own| own.retain(|record| record.strong_count() > 0));
            held.by_owner.retain(|_, own| !own.is_empty());
        }
        let own = held.by_owner.entry(record.owner()).or_default();
        own.push_back(Arc::downgrade(record));
        let mut gone = Vec::new();
        // Each that is in use is passed over once.
        for _ in 0..own.len() * 2 {
            if own.len() <= max {
                break;
            }
            let Some(oldest) = own.pop_front() else { break };
            match oldest.upgrade() {
                Some(record) if record.was_used() => own.push_back(oldest),
                Some(record) => gone.push(record),
                None => {}
            }
        }
        gone
    }

    /// How many records an owner has.
    #[cfg(test)]
    pub(super) fn count(&self, owner: u64) -> usize {
        self.held.lock().by_owner.get(&owner).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{access::question::Question, member::review::Action};

    #[test]
    fn whoever_asks_much_pushes_out_his_own_that_he_does_not_use() {
        let quota = Quota::new(1_000_000);
        let [eve, jane] = ["eve", "jane"].map(|user| Caller { user: user.into(), ..Caller::default() });
        let record = |caller: &Caller, name: usize| {
            let action = Action { name: name.to_string(), ..Action::default() };
            Arc::new(Record::new(Question::of(caller, &action), 3, quota.owner(caller)))
        };
        let of_jane = record(&jane, 0);
        assert!(quota.add(&of_jane).is_empty());
        let own: Vec<_> = (0..RECORDS_MAX).map(|name| record(&eve, name)).collect();
        assert!(own.iter().all(|record| quota.add(record).is_empty()));
        own[0].use_it();
        let more = record(&eve, RECORDS_MAX);
        let gone = quota.add(&more);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &own[1]), "the oldest that is not in use");
        assert_eq!((quota.count(quota.owner(&eve)), quota.count(quota.owner(&jane))), (RECORDS_MAX, 1));
        let scoped = Caller { extra: [("scopes".to_owned(), vec!["x".to_owned()])].into(), ..eve.clone() };
        assert_eq!(quota.owner(&scoped), quota.owner(&eve));
    }

    #[test]
    fn of_many_members_fewer_records_are_as_much() {
        let quota = Quota::new(4_000);
        let eve = Caller { user: "eve".into(), ..Caller::default() };
        let add = |name: usize| {
            let action = Action { name: name.to_string(), ..Action::default() };
            let record = Arc::new(Record::new(Question::of(&eve, &action), 99, quota.owner(&eve)));
            (quota.add(&record).len(), record)
        };
        let held: Vec<_> = (0..12).map(add).collect();
        assert_eq!(held.iter().map(|(gone, _)| gone).sum::<usize>(), 2, "a quarter of all words is ten records");
    }
}
