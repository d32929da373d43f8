//! How much the stores hold of each member, and how far each is followed: for `kubefold status` and `/metrics`.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{config::MemberName, stores::Stores};
use kubefold_wire::resource::Gvr;

/// Counting walks over every object: whoever asks more often gets what was counted last.
const COUNTED_FOR: Duration = Duration::from_secs(5);

/// What a store holds of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Visible objects that it holds; one of several members counts in each.
    pub objects: usize,
    /// What they cost to hold; of an object of several members each has its share. Units: bytes.
    pub bytes: usize,
}

/// How one member is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// Kinds that are followed in it.
    pub stores: usize,
    /// How long the one that is furthest behind has not been followed; zero: all are current.
    pub lag: Duration,
}

/// One store and what it holds of each member.
#[derive(Clone, Debug)]
pub struct StoreFigures {
    /// Its kind.
    pub gvr: Gvr,
    /// Watches of clients.
    pub watchers: usize,
    /// Watches of clients that were told 410.
    pub expired: u64,
    /// Visible objects.
    pub objects: usize,
    /// By member.
    pub held: BTreeMap<MemberName, Held>,
}

/// What was counted last, and when.
#[derive(Debug, Default)]
pub(super) struct Counted(Mutex<Option<(Instant, Vec<StoreFigures>)>>);

impl Stores {
    /// What every running store holds, at most five seconds old.
    pub fn figures(&self) -> Vec<StoreFigures> {
        let mut counted = self.counted.0.lock();
        if let Some((_, figures)) = counted.as_ref().filter(|(at, _)| at.elapsed() < COUNTED_FOR) {
            return figures.clone();
        }
        let figures = self.count();
        *counted = Some((Instant::now(), figures.clone()));
        figures
    }

    fn count(&self) -> Vec<StoreFigures> {
        let count = |running: std::sync::Arc<super::Running>| {
            let snapshot = running.store.snapshot();
            let mut held: BTreeMap<MemberName, Held> = BTreeMap::new();
            for entry in snapshot.range("", b"") {
                let share = entry.size() / entry.holders.len().max(1);
                for holder in &*entry.holders {
                    let held = held.entry(holder.clone()).or_default();
                    held.objects += 1;
                    held.bytes += share;
                }
            }
            StoreFigures {
                gvr: running.store.spec().gvr.clone(),
                watchers: running.store.watchers(),
                expired: running.store.expired(),
                objects: snapshot.objects.len(),
                held,
            }
        };
        self.all_running().into_iter().map(count).collect()
    }

    /// How a member is followed now.
    pub fn following(&self, member: &MemberName) -> Following {
        let mut following = Following::default();
        for running in self.all() {
            let feeds = running.feeds.lock();
            let Some(feed) = feeds.get(member) else { continue };
            following.stores += 1;
            let lag = feed.state.trouble().map_or(Duration::ZERO, |trouble| trouble.since.elapsed());
            following.lag = following.lag.max(lag);
        }
        following
    }
}
