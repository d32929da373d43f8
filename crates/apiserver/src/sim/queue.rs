//! Which objects controllers have to look at, and when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::{HashMap, HashSet};
use jiff::Timestamp;

use super::{fields::later, world::Key};

/// Who looks at an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Controller {
    Garbage,
    Namespace,
    Node,
    Scheduler,
    Kubelet,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    Endpoints,
    Disruption,
    Claim,
    Volume,
    Autoscaler,
    Event,
}

/// One look.
pub(super) type Item = (Controller, Key);

/// The first of several tries again after this time; it doubles.
const BACKOFF_MS: i64 = 100;
/// Tries that double the time.
const DOUBLINGS_MAX: u32 = 8;

/// What is to be looked at: first come, first served.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: VecDeque<Item>,
    waiting: HashSet<Item>,
    timers: BTreeMap<Timestamp, BTreeSet<Item>>,
    failures: HashMap<Item, u32>,
}

impl Queue {
    /// Looks at it soon.
    pub(super) fn add(&mut self, controller: Controller, key: &Key) {
        let item = (controller, key.clone());
        if self.waiting.insert(item.clone()) {
            self.order.push_back(item);
        }
    }

    /// Looks at it then.
    pub(super) fn add_at(&mut self, at: Timestamp, item: Item) {
        self.timers.entry(at).or_default().insert(item);
    }

    /// Looks at it again some time after a failure.
    pub(super) fn failed(&mut self, now: Timestamp, item: Item) {
        let failures = self.failures.entry(item.clone()).or_insert(0);
        *failures += 1;
        let wait = BACKOFF_MS << (*failures - 1).min(DOUBLINGS_MAX);
        self.add_at(later(now, wait), item);
    }

    /// Forgets its failures.
    pub(super) fn succeeded(&mut self, item: &Item) {
        if !self.failures.is_empty() {
            self.failures.remove(item);
        }
    }

    /// The next to look at.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Item> {
        if self.order.is_empty() {
            while let Some(due) = self.timers.first_entry().filter(|due| *due.key() <= now) {
                for (controller, key) in due.remove() {
                    self.add(controller, &key);
                }
            }
        }
        let item = self.order.pop_front()?;
        self.waiting.remove(&item);
        Some(item)
    }

    /// When there is something to look at though nothing changes.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.timers.keys().next().copied()
    }
}
