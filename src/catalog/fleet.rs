//! The fleet's catalog, kept current: one poll per member, one merge per change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    fetch::{CatalogError, Fetched, Fetcher, is_ready},
    merge::{own_group, shared},
    merged::{Catalog, MergedGroup},
    served::{Group, MemberCatalog},
};
use crate::config::{MemberName, ResourcePattern};

/// Between two polls of a member, at least: a CRD created in it is to be served within 2 s. A poll of an unchanged member is
/// one answer without a body.
const POLL_PERIOD_MIN: Duration = Duration::from_secs(1);
/// Between two polls of any members: many members are polled less often each. Who asks for a kind that is not known, or has
/// seen its definition, waits for no poll.
const POLL_SPACING: Duration = Duration::from_millis(75);
/// For how many times as long as a merge took there is no other: members that change one after the other take no more than a
/// fifth of a core.
const MERGE_REST: u32 = 4;
/// For one poll; a member before 1.26 has some thirty documents.
const FETCH_DEADLINE: Duration = Duration::from_secs(20);

/// What the fleet serves now. One per process; shared.
///
/// Readers take a snapshot and are never held up; whoever follows changes waits on [`Self::changes`].
#[derive(Debug)]
pub struct FleetCatalogue {
    current: ArcSwap<Catalog>,
    /// What kubefold serves itself.
    own: ArcSwap<Vec<Arc<MergedGroup>>>,
    /// Whose objects are in the mirror's tables alone.
    stored: ArcSwap<Vec<ResourcePattern>>,
    changes: watch::Sender<u64>,
    /// Never held over an await, nor while anything is compared or merged.
    members: Mutex<Members>,
    /// Held by who merges: the others' changes are in the next merge, however many they are. Before that time there is none.
    merging: tokio::sync::Mutex<Option<Instant>>,
    /// Of which number of changes `current` is; changed with it.
    merged: Mutex<u64>,
    /// The same number, for who only looks.
    merged_up_to: AtomicU64,
}

/// What is known of each member, in configuration order.
#[derive(Debug, Default)]
struct Members {
    entries: Vec<Entry>,
    /// Counts changes of the entries.
    changes: u64,
}

impl Members {
    fn get(&self, name: &MemberName) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == *name)
    }
}

#[derive(Debug)]
struct Entry {
    name: MemberName,
    /// Held while the member is asked, so that two refreshes do not overtake each other.
    fetched: Arc<tokio::sync::Mutex<Fetched>>,
    catalog: Option<Arc<MemberCatalog>>,
    /// Groups that it serves for this very fleet.
    ignored: Arc<BTreeSet<String>>,
}

impl FleetCatalogue {
    /// Makes one that knows its members and nothing of them.
    pub fn new(members: Vec<MemberName>) -> Self {
        let fleet = Self {
            current: ArcSwap::default(),
            own: ArcSwap::default(),
            stored: ArcSwap::default(),
            changes: watch::Sender::new(0),
            members: Mutex::default(),
            merging: tokio::sync::Mutex::default(),
            merged: Mutex::default(),
            merged_up_to: AtomicU64::new(0),
        };
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
        self.members.lock().get(name)?.catalog.clone()
    }

    /// Takes a new configuration: what is known of members that stay, stays.
    pub fn set_members(&self, names: Vec<MemberName>) {
        self.set_members_ignoring(names, &BTreeMap::new());
    }

    /// The same with groups that members serve for this very fleet: to read them there would be to ask oneself. The group of
    /// kubefold's own kinds is read from no member anyway.
    pub fn set_members_ignoring(&self, names: Vec<MemberName>, groups: &BTreeMap<MemberName, BTreeSet<String>>) {
        let mut members = self.members.lock();
        let mut before = std::mem::take(&mut members.entries);
        for name in names {
            let known = before.iter().position(|entry| entry.name == name).map(|at| before.swap_remove(at));
            let ignored = Arc::new(groups.get(&name).cloned().unwrap_or_default());
            let new = || Entry { name, fetched: Arc::default(), catalog: None, ignored: Arc::clone(&ignored) };
            let mut entry = known.unwrap_or_else(new);
            if entry.ignored != ignored {
                // What was fetched is no news to the next poll; another catalog is to be made of it.
                (entry.fetched, entry.ignored) = (Arc::default(), ignored);
            }
            members.entries.push(entry);
        }
        members.changes += 1;
        drop(members);
        self.merge();
    }

    /// Takes what a member served when an earlier process asked it, unless it has said so itself.
    pub fn restore(&self, name: &MemberName, catalog: MemberCatalog) {
        let catalog = self.shared(name, catalog);
        let mut members = self.members.lock();
        let Some(entry) = members.entries.iter_mut().find(|entry| entry.name == *name) else { return };
        if entry.catalog.is_some() {
            return;
        }
        entry.catalog = Some(Arc::new(catalog.without(&entry.ignored)));
        members.changes += 1;
        drop(members);
        self.merge();
    }

    /// Takes the groups that kubefold serves itself. What members serve under their names is not seen from here on.
    pub fn set_own(&self, groups: &[Arc<Group>]) {
        self.own.store(Arc::new(groups.iter().filter_map(own_group).collect()));
        self.members.lock().changes += 1;
        self.merge();
    }

    /// Takes the kinds whose objects are in the mirror's tables alone.
    pub fn set_stored(&self, stored: &[ResourcePattern]) {
        self.stored.store(Arc::new(stored.to_vec()));
        self.members.lock().changes += 1;
        self.merge();
    }

    /// What one member serves, as a fleet of it alone. The same kinds are in the mirror's tables.
    pub fn of_one(&self, name: &MemberName) -> Catalog {
        Catalog::merge_storing(&[(name.clone(), self.member(name))], &self.stored.load())
    }

    /// Asks one member now, and merges what has changed. Returns whether anything has.
    ///
    /// Use: before a 404 for a kind that a member may have got since the last poll, or after a CRD was written.
    /// Errors: the member's last known catalog stays.
    /// Cancel: safe.
    pub async fn refresh(&self, name: &MemberName, fetcher: &impl Fetcher) -> Result<bool, CatalogError> {
        let entry = self.members.lock().get(name).map(|entry| (entry.fetched.clone(), Arc::clone(&entry.ignored)));
        let Some((slot, ignored)) = entry else { return Ok(false) };
        let mut fetched = slot.lock().await;
        let earlier = self.member(name);
        let outcome = timeout(FETCH_DEADLINE, fetch_believably(&fetched, earlier.as_deref(), fetcher)).await;
        let newer = outcome.unwrap_or(Err(CatalogError::TooSlow { seconds: FETCH_DEADLINE.as_secs() }))?;
        let is_same = earlier.is_some() && newer.is(&fetched);
        let catalog = if is_same { None } else { Some(newer.catalog(earlier.as_deref()).without(&ignored)) };
        *fetched = newer;
        let catalog = catalog.filter(|catalog| earlier.as_deref() != Some(catalog));
        let catalog = catalog.map(|catalog| self.shared(name, catalog));
        let has_changed = catalog.is_some_and(|catalog| self.record(name, &slot, catalog));
        if let Some(catalog) = self.member(name).filter(|_| !is_same) {
            fetched.share(&catalog);
        }
        drop(fetched);
        self.publish().await;
        Ok(has_changed)
    }

    /// Polls one member until cancelled. One task per member, so that a slow one slows only itself.
    ///
    /// Cancel: by the token, or by dropping it.
    pub async fn poll(&self, name: &MemberName, fetcher: &impl Fetcher, cancel: &CancellationToken) {
        let mut failing = false;
        let polling = async {
            loop {
                let begun = Instant::now();
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
                sleep_until(begun + self.poll_period()).await;
            }
        };
        cancel.run_until_cancelled(polling).await;
    }

    /// Between two polls of one member.
    pub(super) fn poll_period(&self) -> Duration {
        let members = u32::try_from(self.members.lock().entries.len()).unwrap_or(u32::MAX);
        POLL_SPACING.saturating_mul(members).max(POLL_PERIOD_MIN)
    }

    /// Says whether there are so many members that one is polled later than a change in it is to be seen.
    pub fn polls_seldom(&self) -> bool {
        self.poll_period() > POLL_PERIOD_MIN
    }

    /// The same, with what other members have alike.
    fn shared(&self, name: &MemberName, catalog: MemberCatalog) -> MemberCatalog {
        let members = self.members.lock();
        let others = members.entries.iter().filter(|entry| entry.name != *name);
        let others: Vec<Arc<MemberCatalog>> = others.filter_map(|entry| entry.catalog.clone()).collect();
        drop(members);
        shared(catalog, others.iter().map(|other| &**other))
    }

    /// Notes what a member serves. Returns whether it is configured still.
    fn record(&self, name: &MemberName, slot: &Arc<tokio::sync::Mutex<Fetched>>, newer: MemberCatalog) -> bool {
        let mut members = self.members.lock();
        // The configuration may have dropped the member, or dropped and added it, meanwhile.
        let is_it = |entry: &&mut Entry| entry.name == *name && Arc::ptr_eq(&entry.fetched, slot);
        let Some(entry) = members.entries.iter_mut().find(is_it) else { return false };
        entry.catalog = Some(Arc::new(newer));
        members.changes += 1;
        true
    }

    /// Merges what was noted until now, if nobody has: one merge is for all members that changed meanwhile.
    async fn publish(&self) {
        let noted = self.members.lock().changes;
        if self.merged_up_to.load(Ordering::Acquire) >= noted {
            return;
        }
        let mut not_before = self.merging.lock().await;
        if self.merged_up_to.load(Ordering::Acquire) >= noted {
            return;
        }
        if let Some(not_before) = *not_before {
            sleep_until(not_before).await;
        }
        // Those whose answers are here already are in this merge.
        tokio::task::yield_now().await;
        let begun = Instant::now();
        self.merge();
        *not_before = Some(Instant::now() + begun.elapsed() * MERGE_REST);
    }

    /// Merges and tells. A merge that a later one has overtaken is dropped.
    fn merge(&self) {
        let earlier = self.current();
        let members = self.members.lock();
        let inputs: Vec<(MemberName, Option<Arc<MemberCatalog>>)> =
            members.entries.iter().map(|entry| (entry.name.clone(), entry.catalog.clone())).collect();
        let changes = members.changes;
        drop(members);
        let newer = Arc::new(earlier.merge_next(&inputs, &self.own.load(), &self.stored.load()));
        let mut merged = self.merged.lock();
        if changes <= *merged {
            return;
        }
        *merged = changes;
        self.current.store(newer);
        self.merged_up_to.store(changes, Ordering::Release);
        drop(merged);
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
    if newer.is(fetched) {
        return Ok(newer);
    }
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
