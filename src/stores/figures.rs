//! How much the stores hold of each member, and how far each is followed: for `kubefold status` and `/metrics`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    config::MemberName,
    store::Held,
    stores::{Running, Stores},
};
use kubefold_wire::resource::Gvr;

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
    /// Answers that could not be given in protobuf.
    pub unfit: u64,
    /// Visible objects.
    pub objects: usize,
    /// By member.
    pub held: BTreeMap<MemberName, Held>,
    /// Events of each member's watch that were taken in.
    pub events: BTreeMap<MemberName, u64>,
}

impl Stores {
    /// What every running store holds. Shape: members x stores.
    pub fn figures(&self) -> Vec<StoreFigures> {
        let figures = |running: Arc<Running>| StoreFigures {
            gvr: running.store.spec().gvr.clone(),
            watchers: running.store.watchers(),
            expired: running.store.expired(),
            unfit: running.store.unfit(),
            objects: running.store.snapshot().objects.len(),
            held: running.store.held_by_member(),
            events: running.store.events_by_member(),
        };
        self.all_running().into_iter().map(figures).collect()
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
