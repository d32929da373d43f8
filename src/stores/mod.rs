//! The stores of all kinds, and the reflectors that feed them.
//!
//! A store starts on the first use of its kind. Members come and go under it: what one says enters as events, and its
//! silence as nothing.
//!
//! One cycle of files: [`Stores`] is one type, and its methods stand in a file for each subject, which this one declares.
//!
//! May name: `view`, `config`, `observe`, `placement`, `store`, `upstream`, `respond`, `member`, `mirror`, `catalog`.

mod cache_frames;
mod cache_source;
mod definitions;
mod feeds;
mod figures;
mod follow;
mod heed;
mod late;
mod marks;
pub mod metrics;
mod mirrored;
pub(crate) mod names;
mod parts;
mod poll;
mod progress;
mod proof;
mod readiness;
mod ready;
mod resumption;
mod stored;
mod telling;
#[cfg(test)]
pub(crate) mod tests;
mod told;
mod watch_cache;
mod written;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    catalog::{self, Catalog, FleetCatalogue, Group, MemberCatalog, MergedResource},
    config::{Config, MemberName},
    member::{
        Member,
        reflector::{ReflectorState, Together},
        registry::Registry,
    },
    mirror::{Mirror, MirrorError},
    placement::{moved::Moved, policy::Rules},
    respond::StoresError,
    search::Collection,
    store::{Earlier, FleetStore, GroupKind, Hold, KindSpec, LockHolds, Naming, Referent, Shared},
};
use kubefold_sql::MayTell;
use kubefold_wire::resource::{EVENT_GROUPS, Gvr};

use definitions::Definitions;
use late::Late;
use marks::Marks;
use proof::Flight;
use readiness::Readiness;
use written::Mirrored;

pub use {
    cache_frames::{WATCH_CACHE_PATH, WatchCacheAsked, is_for_replicas},
    figures::{Following, StoreFigures},
    follow::{Heard, follow},
    late::{Patience, SILENT_MAX},
    marks::Marking,
    names::Target,
    progress::{FILLING_WAIT_MAX, Filling},
    proof::{Scope, Unproven},
    ready::{Reading, Ready, UNKNOWN_WAIT_MAX},
    told::{Hearing, SHOWN_PATH, Told, Unreadable},
    watch_cache::{CacheFilling, Shown, WatchCache, WatchCaches},
};

/// A store that nobody has used for so long stops, unless a member is down.
const IDLE_MAX: Duration = Duration::from_mins(30);

/// Kinds that kubefold reads for itself, by group and resource; an empty one is the whole group.
const OWN_USE: [(&str, &str); 4] = [
    ("", "namespaces"),
    ("", "nodes"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", ""),
];

/// Says whether clients may be told what comes.
type AsksMayTell = Box<dyn Fn() -> MayTell + Send + Sync>;

/// Where that is to be found out, it is asked again after this.
pub const MAY_TELL_AGAIN: Duration = Duration::from_millis(20);

/// The stores of a fleet.
pub struct Stores {
    registry: Arc<Registry>,
    catalog: FleetCatalogue,
    shared: ArcSwap<Shared>,
    rules: ArcSwap<Rules>,
    /// Those that are configured.
    collections: ArcSwap<Vec<Collection>>,
    /// The rules as they are configured, and the members that get nothing new for now.
    configured: Mutex<Configured>,
    polled: Mutex<HashMap<MemberName, Polled>>,
    running: Mutex<HashMap<Gvr, Arc<Running>>>,
    /// What knows the parts of placed objects of kinds that nobody reads: see [`parts`].
    parts: Mutex<HashMap<GroupKind, Arc<Running>>>,
    /// Keys that no store shows from its start on: resource and key.
    withheld: Mutex<Vec<(Gvr, String)>>,
    /// What unfinished writes say of objects of any version, for stores that begin later, too.
    behind: Mutex<HashMap<ObjectName, Behind>>,
    telling: Mutex<()>,
    late: Late,
    lock_holds: Arc<LockHolds>,
    /// Where members' objects are kept for a restart, if they are.
    mirror: OnceLock<Arc<Mirror>>,
    /// What of the stores is in the mirror.
    mirrored: Mutex<Mirrored>,
    /// What another process showed, until a store goes on from there.
    told: Mutex<HashMap<Gvr, Earlier>>,
    /// Why the mirror's tables cannot be written, while they cannot.
    unwritable: watch::Sender<Option<MirrorError>>,
    /// Says whether clients may be told what comes; always without it.
    may_tell: OnceLock<AsksMayTell>,
    /// Bytes of objects; whoever would begin a further store above it is refused.
    bytes_max: AtomicU64,
    tasks: TaskTracker,
    cancel: CancellationToken,
    this: Weak<Self>,
}

/// What the rules are made of.
#[derive(Default)]
struct Configured {
    rules: Rules,
    cordoned: BTreeSet<MemberName>,
}

/// An object's resource without the version, and its key.
type ObjectName = (String, String);

/// An object's UID, and the members in which it is behind.
type Behind = (String, Vec<MemberName>);

/// One kind's store and who feeds it.
pub struct Running {
    /// The store.
    pub store: Arc<FleetStore>,
    /// It follows parts alone, and is read by nobody.
    of_parts: bool,
    /// Up to which of [`Identities::references`](crate::store::Identities::references) all that its objects refer to is
    /// known.
    known_at: AtomicU64,
    /// Of the store of definitions: what is known of them.
    definitions: Definitions,
    feeds: Mutex<HashMap<MemberName, Feed>>,
    /// Has the reflectors begin together, where an earlier process may have shown the kind.
    together: Option<Arc<Together>>,
    /// Counts what changes of the feeds, and in each.
    news: Arc<AtomicU64>,
    /// What readers must know of the members, as it was last made.
    readiness: ArcSwapOption<Readiness>,
    /// Held by who makes it anew.
    readiness_turn: Mutex<()>,
    /// Whose objects are on their way out. One that is configured again is followed once they are gone: its new list must
    /// not meet the old removal.
    leaving: Mutex<HashSet<MemberName>>,
    used: Mutex<Instant>,
    cancel: CancellationToken,
    /// Keys that are withheld since the store began.
    withheld: Mutex<HashMap<String, Hold>>,
    marks: Mutex<Marks>,
    /// Proofs under way, by member and scope.
    flights: Mutex<HashMap<String, Arc<Flight>>>,
}

struct Feed {
    member: Arc<Member>,
    state: Arc<ReflectorState>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// Whose discovery is read again and again, until cancelled.
struct Polled {
    member: Arc<Member>,
    cancel: CancellationToken,
}

impl Stores {
    /// Makes no store yet.
    pub fn new(registry: Arc<Registry>, shared: Shared, tasks: TaskTracker, cancel: CancellationToken) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            registry,
            catalog: FleetCatalogue::new(Vec::new()),
            shared: ArcSwap::from_pointee(shared),
            rules: ArcSwap::default(),
            collections: ArcSwap::default(),
            configured: Mutex::default(),
            polled: Mutex::default(),
            running: Mutex::default(),
            parts: Mutex::default(),
            withheld: Mutex::default(),
            behind: Mutex::default(),
            telling: Mutex::default(),
            late: Late::default(),
            lock_holds: Arc::default(),
            mirror: OnceLock::new(),
            mirrored: Mutex::default(),
            told: Mutex::default(),
            unwritable: watch::Sender::new(None),
            may_tell: OnceLock::new(),
            bytes_max: AtomicU64::new(u64::MAX),
            tasks,
            cancel,
            this: this.clone(),
        })
    }

    /// Begins no further store once all together hold so many bytes of objects. `None`: whatever they hold.
    pub fn bound(&self, bytes_max: Option<u64>) {
        self.bytes_max.store(bytes_max.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Has it asked before events are told whether they may be: another process may have taken this one's place. Once, before anything
    /// is read.
    pub fn tell_if(&self, may_tell: impl Fn() -> MayTell + Send + Sync + 'static) {
        self.may_tell.get_or_init(|| Box::new(may_tell));
    }

    /// Says whether clients may be told what comes.
    pub fn may_tell(&self) -> MayTell {
        self.may_tell.get().map_or(MayTell::Yes, |may_tell| may_tell())
    }

    /// What all stores share.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.load_full()
    }

    /// Where members' objects are kept, if they are.
    pub fn mirror(&self) -> Option<&Arc<Mirror>> {
        self.mirror.get()
    }

    /// What decides where objects go, as configured now.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.load_full()
    }

    /// Takes the groups that kubefold serves itself: they are in the catalog, and no member is asked for them.
    pub fn set_own(&self, groups: &[Arc<Group>]) {
        self.catalog.set_own(groups);
    }

    /// The merged catalog now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.current()
    }

    /// What one member serves, as last known. `None` while that is unknown.
    pub fn member_catalog(&self, name: &MemberName) -> Option<Arc<MemberCatalog>> {
        self.catalog.member(name)
    }

    /// The catalog of one member, as a fleet of it alone.
    pub fn catalog_of(&self, name: &MemberName) -> Catalog {
        self.catalog.of_one(name)
    }

    /// The members.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The collections of the configuration.
    pub fn collections(&self) -> Arc<Vec<Collection>> {
        self.collections.load_full()
    }

    /// Takes a new configuration: names first, then who is asked what it serves. The registry has it already.
    pub fn configure(&self, config: &Config) {
        let naming = Arc::new(Naming::new(config));
        let shared = Shared { naming: Arc::clone(&naming), ..Shared::clone(&self.shared.load()) };
        self.shared.store(Arc::new(shared));
        self.collections.store(Arc::new(config.collections.clone()));
        self.change_rules(|configured| configured.rules = Rules::new(config));
        for running in self.all() {
            running.store.rename(&naming);
        }
        let present = config.members.iter().filter(|member| !member.absent);
        let served = config.aggregation.as_ref().and_then(|host| Some((host.member.clone()?, host.group_names())));
        let served = served.into_iter().collect();
        self.catalog.set_members_ignoring(present.map(|member| member.name.clone()).collect(), &served);
        self.poll();
        self.reconcile();
    }

    /// Sets which members get nothing new.
    pub fn set_cordoned(&self, members: BTreeSet<MemberName>) {
        self.change_rules(|configured| configured.cordoned = members);
    }

    /// The members that get nothing new.
    pub fn cordoned(&self) -> BTreeSet<MemberName> {
        self.configured.lock().cordoned.clone()
    }

    fn change_rules(&self, change: impl FnOnce(&mut Configured)) {
        let mut configured = self.configured.lock();
        change(&mut configured);
        self.rules.store(Arc::new(configured.rules.clone().cordoned(&configured.cordoned)));
    }

    /// The record of a placement that has moved is another: judges its parts anew, in all versions.
    pub fn set_moved(&self, gvr: &Gvr, key: &str, uid: &str, moved: Option<Arc<Moved>>) {
        let identities = Arc::clone(&self.shared().identities);
        let places = |moved: &Option<Arc<Moved>>| {
            moved.as_ref().map(|moved| (moved.epoch, moved.members.clone(), moved.superseded.clone()))
        };
        let is_elsewhere = places(&identities.moved(uid)) != places(&moved);
        identities.set_moved(uid, moved);
        let of = gvr.qualified();
        for running in self.all().iter().filter(|running| running.store.spec().gvr.qualified() == of) {
            running.store.judge_parts(key);
        }
        // Nothing else of a record is about children.
        if is_elsewhere {
            self.judge_children(key, uid);
        }
    }

    /// Judges the children of a placed object anew.
    fn judge_children(&self, key: &str, uid: &str) {
        for running in self.all().iter().filter(|running| running.store.spec().is_made_of_placed()) {
            running.store.judge_children(key, uid);
        }
    }

    /// Follows members and catalog until cancelled: reflectors begin and end with them.
    pub async fn follow(self: Arc<Self>) {
        tokio::join!(self.follow_members(), self.notice_silence());
    }

    async fn follow_members(&self) {
        let mut catalog = self.catalog.changes();
        let mut members = self.registry.changes();
        loop {
            self.reconcile();
            self.follow_parts();
            let shared = self.shared();
            tokio::select! {
                () = self.cancel.cancelled() => return,
                Ok(()) = catalog.changed() => {}
                Ok(()) = members.changed() => {}
                () = shared.identities.news() => {}
                () = tokio::time::sleep(Duration::from_mins(1)) => self.stop_idle(),
            }
        }
    }

    /// Every store, those of parts too.
    fn all(&self) -> Vec<Arc<Running>> {
        let mut all: Vec<Arc<Running>> = self.running.lock().values().cloned().collect();
        all.extend(self.parts.lock().values().cloned());
        all
    }

    /// The store of a kind if it runs.
    pub fn peek(&self, gvr: &Gvr) -> Option<Arc<Running>> {
        self.running.lock().get(gvr).map(Arc::clone)
    }

    /// The running stores of all versions and groups in which a resource is served, its own first.
    pub fn twins(&self, gvr: &Gvr) -> Vec<Arc<Running>> {
        let catalog = self.catalog();
        let groups = if gvr.is_event() { EVENT_GROUPS.to_vec() } else { vec![&*gvr.group] };
        let versions = groups.into_iter().flat_map(|group| catalog.versions_of(group, &gvr.resource));
        let others = versions.map(|resource| &resource.gvr).filter(|other| *other != gvr);
        [gvr].into_iter().chain(others).filter_map(|gvr| self.peek(gvr)).collect()
    }

    /// Has a key not shown until [`Self::show`]: what an earlier process left of a write there is nobody's to see before
    /// it is whole or gone. For stores that have not begun.
    pub fn withhold(&self, gvr: &Gvr, key: String) {
        self.withheld.lock().push((gvr.clone(), key));
    }

    /// Shows a key that was withheld, as it is now.
    pub fn show(&self, gvr: &Gvr, key: &str) {
        self.withheld.lock().retain(|(withheld, name)| withheld != gvr || name != key);
        let held = self.peek(gvr).and_then(|running| running.withheld.lock().remove(key));
        drop(held);
    }

    /// Says in which members the object of that UID is behind; in none, that it has caught up. All versions show it.
    pub fn set_behind(&self, gvr: &Gvr, key: &str, uid: &str, members: &[MemberName]) {
        let of = gvr.qualified();
        // Two who say it do so in one order everywhere.
        let _in_turn = self.telling.lock();
        let name = (of.clone(), key.to_owned());
        if members.is_empty() {
            self.behind.lock().remove(&name);
        } else {
            self.behind.lock().insert(name, (uid.to_owned(), members.to_vec()));
        }
        // Not under the lock of all stores: what refers to the object may have to be rewritten.
        for running in self.all_running().iter().filter(|running| running.store.spec().gvr.qualified() == of) {
            running.store.set_behind(key, uid, members);
        }
    }

    /// The stores that run now.
    pub fn all_running(&self) -> Vec<Arc<Running>> {
        self.running.lock().values().cloned().collect()
    }

    /// The store of a kind, started where it is not; it may be empty yet.
    ///
    /// Errors: nobody serves the kind, or it is not known whether somebody does.
    pub fn running(&self, gvr: &Gvr) -> Result<Arc<Running>, StoresError> {
        self.start(gvr)
    }

    /// The running store of a kind that has its objects, started where it is not.
    fn start(&self, gvr: &Gvr) -> Result<Arc<Running>, StoresError> {
        match self.start_any(gvr)? {
            running if running.store.passes() => Err(StoresError::InTables { gvr: gvr.clone() }),
            running => Ok(running),
        }
    }

    /// The same, whether it has its objects or the mirror's tables have them.
    fn start_any(&self, gvr: &Gvr) -> Result<Arc<Running>, StoresError> {
        let mut all = self.running.lock();
        if let Some(running) = all.get(gvr).filter(|running| !running.store.is_ended()) {
            *running.used.lock() = Instant::now();
            return Ok(Arc::clone(running));
        }
        let catalog = self.catalog();
        let Some(resource) = catalog.get(gvr) else {
            let unknown: Vec<String> = catalog
                .unknown
                .iter()
                .filter_map(|name| self.registry.get(name.as_str()))
                .filter(|member| !member.config().absent)
                .map(|member| member.describe())
                .collect();
            if unknown.is_empty() {
                return Err(StoresError::NotServed);
            }
            return Err(StoresError::ExistenceUnknown { gvr: gvr.clone(), causes: unknown });
        };
        self.has_room(gvr, all.values())?;
        let running = self.make(resource, false);
        all.insert(gvr.clone(), Arc::clone(&running));
        self.feed(&running);
        self.resume(&running);
        if let Some(mirror) = self.mirror.get().filter(|_| running.store.passes()) {
            self.tasks.spawn(Arc::clone(&running).write_reports(self.this.clone(), Arc::clone(mirror)));
        }
        Ok(running)
    }

    /// What kubefold reads for itself has always room: without it nothing could be answered.
    fn has_room<'r>(&self, gvr: &Gvr, all: impl Iterator<Item = &'r Arc<Running>>) -> Result<(), StoresError> {
        let max = self.bytes_max.load(Ordering::Relaxed);
        let is_own = OWN_USE
            .iter()
            .any(|(group, resource)| *group == &*gvr.group && (resource.is_empty() || *resource == &*gvr.resource));
        if max == u64::MAX || is_own {
            return Ok(());
        }
        let held = held_by(all);
        if held < max { Ok(()) } else { Err(StoresError::Full { gvr: gvr.clone(), held, max }) }
    }

    fn make(&self, resource: &MergedResource, of_parts: bool) -> Arc<Running> {
        let spec =
            KindSpec::new(resource.gvr.clone(), resource.gvk.clone(), resource.scope == catalog::Scope::Namespaced);
        let this = self.this.clone();
        let tell = move |changed: &[Referent]| {
            if let Some(stores) = this.upgrade() {
                stores.rewrite_dependents(changed);
            }
        };
        let (spec, shared) = (Arc::new(spec), Shared::clone(&self.shared.load()));
        let store = match of_parts {
            true => FleetStore::of_parts(spec, shared, tell),
            false if self.is_stored(&resource.gvr) => FleetStore::passing(spec, shared, tell),
            false => FleetStore::new(spec, shared, tell),
        };
        let store = Arc::new(store.timed(Arc::clone(&self.lock_holds)));
        let withheld = self.withheld.lock();
        for ((of, key), (uid, members)) in &*self.behind.lock() {
            if *of == resource.gvr.qualified() {
                store.set_behind(key, uid, members);
            }
        }
        let keys = withheld.iter().filter(|(gvr, _)| *gvr == resource.gvr && !of_parts).map(|(_, key)| key);
        let withheld = keys.map(|key| (key.clone(), store.withhold(key))).collect();
        Arc::new(Running {
            store,
            of_parts,
            known_at: AtomicU64::new(u64::MAX),
            definitions: Definitions::default(),
            feeds: Mutex::default(),
            together: self.resumes(&resource.gvr, of_parts).then(Together::new),
            news: Arc::default(),
            readiness: ArcSwapOption::empty(),
            readiness_turn: Mutex::default(),
            leaving: Mutex::default(),
            used: Mutex::new(Instant::now()),
            cancel: self.cancel.child_token(),
            withheld: Mutex::new(withheld),
            marks: Mutex::default(),
            flights: Mutex::default(),
        })
    }

    /// Rewrites every store anew for identities that changed. The one that they changed in, too: an object may be owned by
    /// one of its own kind.
    fn rewrite_dependents(&self, changed: &[Referent]) {
        for running in self.all() {
            running.store.rewrite_dependents(changed);
        }
    }

    /// Brings every store's reflectors in line with members and catalog.
    fn reconcile(&self) {
        for running in self.all() {
            self.feed(&running);
            let catalog = self.catalog();
            let gvr = &running.store.spec().gvr;
            let is_fed = !running.feeds.lock().is_empty() || !running.leaving.lock().is_empty();
            if catalog.get(gvr).is_none() && catalog.complete() && !is_fed {
                running.store.end();
                running.cancel.cancel();
                self.running.lock().retain(|_, kept| !Arc::ptr_eq(kept, &running));
                self.parts.lock().retain(|_, kept| !Arc::ptr_eq(kept, &running));
            }
        }
    }

    /// Stops stores that nobody has used for long, but none while a member is down: it could not be filled again.
    fn stop_idle(&self) {
        if self.registry.members().iter().any(|member| member.health().is_down()) {
            return;
        }
        self.end_parts();
        // What is deleted while nobody follows a kind may be missed.
        let is_kept = |running: &Running| self.mirror().is_some_and(|to| to.keeps_deleted(&running.store.spec().gvr));
        let is_idle = |running: &Running| {
            !running.store.passes()
                && running.store.watchers() == 0
                && running.used.lock().elapsed() > IDLE_MAX
                && !is_kept(running)
        };
        let idle: Vec<Arc<Running>> =
            self.running.lock().values().filter(|running| is_idle(running)).cloned().collect();
        for running in idle {
            if !self.takes_over(&running) {
                continue;
            }
            let mut all = self.running.lock();
            // Somebody may have come meanwhile.
            if is_idle(&running) {
                tracing::info!(kind = %running.store.spec().label(), "stopping an idle store");
                running.cancel.cancel();
                all.retain(|_, kept| !Arc::ptr_eq(kept, &running));
            }
        }
    }
}

/// Bytes of objects that stores have in memory. Shape: members x stores.
fn held_by<'r>(all: impl Iterator<Item = &'r Arc<Running>>) -> u64 {
    all.map(|running| running.store.bytes()).sum()
}
