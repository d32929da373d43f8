//! The fleet's catalog, kept current: one poll per member, one merge per change.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    fetch::{CatalogError, Fetched, Fetcher, is_ready},
    merged::Catalog,
    served::MemberCatalog,
};
use crate::config::MemberName;

/// Between two polls of a member: a CRD created in it is to be served within 2 s. A poll of an unchanged member is two answers
/// without a body.
pub const POLL_PERIOD: Duration = Duration::from_secs(1);
/// For one poll; a member before 1.26 has some thirty documents.
const FETCH_DEADLINE: Duration = Duration::from_secs(20);

/// What the fleet serves now. One per process; shared.
///
/// Readers take a snapshot and are never held up; whoever follows changes waits on [`Self::changes`].
#[derive(Debug)]
pub struct FleetCatalogue {
    current: ArcSwap<Catalog>,
    changes: watch::Sender<u64>,
    /// In configuration order. Never held over an await.
    members: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    name: MemberName,
    /// Held while the member is asked, so that two refreshes do not overtake each other.
    fetched: Arc<tokio::sync::Mutex<Fetched>>,
    catalog: Option<Arc<MemberCatalog>>,
}

impl FleetCatalogue {
    /// Makes one that knows its members and nothing of them.
    pub fn new(members: Vec<MemberName>) -> Self {
        let fleet =
            Self { current: ArcSwap::default(), changes: watch::Sender::new(0), members: Mutex::new(Vec::new()) };
        fleet.set_members(members);
        fleet
    }

    /// The catalog as of now.
    pub fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Counts the catalogs; wakes whoever follows them.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What one member serves, down or not, as last known. `None` while it is unknown.
    ///
    /// A kind is gone from a member when it is missing here.
    pub fn member(&self, name: &MemberName) -> Option<Arc<MemberCatalog>> {
        self.members.lock().iter().find(|entry| entry.name == *name)?.catalog.clone()
    }

    /// Takes a new configuration: what is known of members that stay, stays.
    pub fn set_members(&self, names: Vec<MemberName>) {
        let mut members = self.members.lock();
        let mut before = std::mem::take(&mut *members);
        for name in names {
            let known = before.iter().position(|entry| entry.name == name).map(|at| before.swap_remove(at));
            members.push(known.unwrap_or_else(|| Entry { name, fetched: Arc::default(), catalog: None }));
        }
        self.publish(&members);
    }

    /// Asks one member now, and merges what has changed. Returns whether anything has.
    ///
    /// Use: before a 404 for a kind that a member may have got since the last poll, or after a CRD was written.
    /// Errors: the member's last known catalog stays.
    /// Cancel: safe.
    pub async fn refresh(&self, name: &MemberName, fetcher: &impl Fetcher) -> Result<bool, CatalogError> {
        let slot = self.members.lock().iter().find(|entry| entry.name == *name).map(|entry| entry.fetched.clone());
        let Some(slot) = slot else { return Ok(false) };
        let mut fetched = slot.lock().await;
        let earlier = self.member(name);
        let outcome = timeout(FETCH_DEADLINE, fetch_believably(&fetched, earlier.as_deref(), fetcher)).await;
        match outcome.unwrap_or(Err(CatalogError::TooSlow { seconds: FETCH_DEADLINE.as_secs() })) {
            Ok(newer) => {
                let catalog = newer.catalog(earlier.as_deref());
                *fetched = newer;
                Ok(self.record(name, &slot, Some(catalog)))
            }
            Err(error) => {
                self.record(name, &slot, None);
                Err(error)
            }
        }
    }

    /// Polls one member until cancelled. One task per member, so that a slow one slows only itself.
    ///
    /// Cancel: by the token, or by dropping it.
    pub async fn poll(&self, name: &MemberName, fetcher: &impl Fetcher, cancel: &CancellationToken) {
        let mut tick = interval(POLL_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        let polling = async {
            loop {
                tick.tick().await;
                match self.refresh(name, fetcher).await {
                    Ok(changed) if changed || failing => {
                        failing = false;
                        tracing::info!(member = %name, changed, "API catalog read");
                    }
                    Ok(_) => {}
                    Err(error) if failing => tracing::debug!(member = %name, %error, "API catalog not read"),
                    Err(error) => {
                        failing = true;
                        tracing::warn!(member = %name, %error, "API catalog not read; the last known one stays");
                    }
                }
            }
        };
        cancel.run_until_cancelled(polling).await;
    }

    /// Notes what came of asking a member; `None` is a failure. Returns whether the fleet's catalog changed.
    fn record(&self, name: &MemberName, slot: &Arc<tokio::sync::Mutex<Fetched>>, newer: Option<MemberCatalog>) -> bool {
        let mut members = self.members.lock();
        // The configuration may have dropped the member, or dropped and added it, meanwhile.
        let Some(entry) = members.iter_mut().find(|entry| entry.name == *name && Arc::ptr_eq(&entry.fetched, slot))
        else {
            return false;
        };
        let Some(newer) = newer.filter(|newer| entry.catalog.as_deref() != Some(newer)) else { return false };
        entry.catalog = Some(Arc::new(newer));
        self.publish(&members);
        true
    }

    /// Merges and tells. Under the lock, so that a later merge never loses to an earlier one.
    fn publish(&self, members: &[Entry]) {
        let inputs: Vec<(MemberName, Option<Arc<MemberCatalog>>)> =
            members.iter().map(|entry| (entry.name.clone(), entry.catalog.clone())).collect();
        self.current.store(Arc::new(Catalog::merge(&inputs)));
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Fetches what has changed, and reads twice before it believes that something is gone.
///
/// A kube-apiserver that starts lists groups only as it learns of them; once it is ready, it has them all.
async fn fetch_believably(
    fetched: &Fetched,
    earlier: Option<&MemberCatalog>,
    fetcher: &impl Fetcher,
) -> Result<Fetched, CatalogError> {
    let newer = fetched.fetch(fetcher).await?;
    let Some(earlier) = earlier.filter(|earlier| newer.catalog(Some(earlier)).lacks_some_of(earlier)) else {
        return Ok(newer);
    };
    if !is_ready(fetcher).await? {
        tracing::debug!("discovery omits kinds, but the member is not ready: the last known catalog stays");
        return Err(CatalogError::NotReady);
    }
    let again = newer.without_etags().fetch(fetcher).await?;
    tracing::debug!(gone = again.catalog(Some(earlier)).lacks_some_of(earlier), "discovery omitted kinds; read again");
    Ok(again)
}
