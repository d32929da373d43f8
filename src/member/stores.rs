//! The stores of all kinds, and the reflectors that feed them.
//!
//! A store starts on the first use of its kind. Members come and go under it: what one says enters as events, and its
//! silence as nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Config, MemberName},
    member::{
        Class, Member, Registry,
        catalog::{Catalogue, FetchError, Fetcher, FleetCatalogue, MergedResource, Scope},
        collect,
        reflector::{Reflector, ReflectorState},
    },
    store::{FleetStore, Hold, KindSpec, Naming, Referent, SLICE_ITEMS_MAX, Shared},
    wire::{body::empty, resource::Gvr, status::Status},
};

/// How long a read waits for members that are not known yet.
pub const UNKNOWN_WAIT_MAX: Duration = Duration::from_secs(10);
/// A store that nobody has used for so long stops, unless a member is down.
const IDLE_MAX: Duration = Duration::from_mins(30);

/// Kinds whose objects may be placed: others refer to them by their visible names and UIDs, so their stores are filled
/// before anything is served.
const PLACEABLE: &[(&str, &str, &str)] = &[("apps", "v1", "deployments")];

/// The stores of a fleet.
pub struct Stores {
    registry: Arc<Registry>,
    catalogue: FleetCatalogue,
    shared: ArcSwap<Shared>,
    polled: Mutex<HashMap<MemberName, Polled>>,
    running: Mutex<HashMap<Gvr, Arc<Running>>>,
    /// Keys that no store shows from its start on: resource and key.
    withheld: Mutex<Vec<(Gvr, String)>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    this: Weak<Self>,
}

/// One kind's store and who feeds it.
pub struct Running {
    /// The store.
    pub store: Arc<FleetStore>,
    feeds: Mutex<HashMap<MemberName, Feed>>,
    /// Whose objects are on their way out. One that is configured again is followed once they are gone: its new list must
    /// not meet the old removal.
    leaving: Mutex<HashSet<MemberName>>,
    used: Mutex<Instant>,
    cancel: CancellationToken,
    /// Keys that are withheld since the store began.
    withheld: Mutex<HashMap<String, Hold>>,
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

/// Largest discovery document that is read.
const DISCOVERY_BYTES_MAX: usize = 64 << 20;

/// Reads discovery of one member, as kubefold itself.
struct DiscoveryFetcher(Arc<Member>);

impl Fetcher for DiscoveryFetcher {
    async fn get(&self, path: &str, headers: HeaderMap) -> Result<Response<Bytes>, FetchError> {
        let mut request = Request::builder().method(Method::GET).uri(path).body(empty())?;
        request.headers_mut().extend(headers);
        let (head, body) = self.0.send(request, Class::Read).await?.into_parts();
        Ok(Response::from_parts(head, collect(body, DISCOVERY_BYTES_MAX).await?))
    }
}

/// A store that may be read, and what a reader must be told.
#[derive(Clone)]
pub struct Ready {
    /// The store.
    pub running: Arc<Running>,
    /// One sentence per member whose last known state is shown, or that is left out.
    pub warnings: Vec<String>,
}

impl Ready {
    /// The store.
    pub fn store(&self) -> &Arc<FleetStore> {
        &self.running.store
    }
}

impl Stores {
    /// Makes no store yet.
    pub fn new(registry: Arc<Registry>, shared: Shared, tasks: TaskTracker, cancel: CancellationToken) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            registry,
            catalogue: FleetCatalogue::new(Vec::new()),
            shared: ArcSwap::from_pointee(shared),
            polled: Mutex::default(),
            running: Mutex::default(),
            withheld: Mutex::default(),
            tasks,
            cancel,
            this: this.clone(),
        })
    }

    /// What all stores share.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.load_full()
    }

    /// The merged catalogue now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.current()
    }

    /// The members.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Takes a new configuration: names first, then who is asked what it serves. The registry has it already.
    pub fn configure(&self, config: &Config) {
        let naming = Arc::new(Naming::new(config));
        let shared = Shared { naming: Arc::clone(&naming), ..Shared::clone(&self.shared.load()) };
        self.shared.store(Arc::new(shared));
        let all: Vec<Arc<Running>> = self.running.lock().values().cloned().collect();
        for running in all {
            running.store.rename(&naming);
        }
        let present = config.members.iter().filter(|member| !member.absent);
        self.catalogue.set_members(present.map(|member| member.name.clone()).collect());
        self.poll();
        self.reconcile();
    }

    /// Reads the discovery of every member that is not declared absent.
    fn poll(&self) {
        let members = self.registry.members();
        let wanted = |member: &&Arc<Member>| !member.config().absent;
        let mut polled = self.polled.lock();
        polled.retain(|_, polled| {
            let stays = members.iter().filter(wanted).any(|member| Arc::ptr_eq(member, &polled.member));
            if !stays {
                polled.cancel.cancel();
            }
            stays
        });
        for member in members.iter().filter(wanted) {
            if polled.contains_key(member.name()) {
                continue;
            }
            let Some(this) = self.this.upgrade() else { return };
            let cancel = self.cancel.child_token();
            let (asked, until) = (Arc::clone(member), cancel.clone());
            self.tasks.spawn(async move {
                let name = asked.name().clone();
                let fetcher = DiscoveryFetcher(Arc::clone(&asked));
                tokio::join!(this.catalogue.poll(&name, &fetcher, &until), this.welcome(&asked, &until));
            });
            polled.insert(member.name().clone(), Polled { member: Arc::clone(member), cancel });
        }
    }

    /// Asks a member what it serves as soon as it can be reached: readers wait for one that was never asked.
    async fn welcome(&self, member: &Arc<Member>, until: &CancellationToken) {
        let mut health = member.health_changes();
        let welcoming = async {
            let mut was_reachable = health.borrow_and_update().is_reachable();
            while health.changed().await.is_ok() {
                let is_reachable = health.borrow_and_update().is_reachable();
                if is_reachable && !was_reachable {
                    self.refresh(Arc::clone(member)).await;
                }
                was_reachable = is_reachable;
            }
        };
        until.run_until_cancelled(welcoming).await;
    }

    /// Asks a member now what it serves, as something was written that may have changed it.
    pub async fn refresh(&self, member: Arc<Member>) {
        let name = member.name().clone();
        if let Err(error) = self.catalogue.refresh(&name, &DiscoveryFetcher(member)).await {
            tracing::debug!(member = %name, %error, "API catalogue not read");
        }
    }

    /// Follows members and catalogue until cancelled: reflectors begin and end with them.
    pub async fn follow(self: Arc<Self>) {
        let mut catalogue = self.catalogue.changes();
        let mut members = self.registry.changes();
        loop {
            self.reconcile();
            tokio::select! {
                () = self.cancel.cancelled() => return,
                Ok(()) = catalogue.changed() => {}
                Ok(()) = members.changed() => {}
                () = tokio::time::sleep(Duration::from_mins(1)) => self.stop_idle(),
            }
        }
    }

    /// Members that a watcher of this store sees the last known state of.
    pub fn stale(&self, running: &Running) -> Vec<String> {
        let feeds = running.feeds.lock();
        let mut names: Vec<String> = feeds
            .values()
            .filter(|feed| stale(&feed.member, &feed.state).is_some())
            .map(|feed| feed.member.name().to_string())
            .collect();
        names.sort();
        names
    }

    /// The store of a kind, with every member in that serves it.
    ///
    /// `only` names the one member that the reader asks about, if it is one.
    /// Errors: nobody serves the kind (404), or a member is still unknown when the wait is over (503).
    pub async fn ready(&self, gvr: &Gvr, only: Option<&MemberName>) -> Result<Ready, Status> {
        let deadline = Instant::now() + UNKNOWN_WAIT_MAX;
        self.settled(gvr, only, deadline).await;
        let running = self.start(gvr)?;
        let mut needed = vec![Arc::clone(&running)];
        for (group, version, resource) in PLACEABLE {
            let placeable = Gvr::new(group, version, resource);
            if placeable != *gvr
                && let Ok(store) = self.start(&placeable)
            {
                needed.push(store);
            }
        }
        for running in &needed {
            self.filled(running, only, deadline).await?;
            running.store.open();
        }
        Ok(Ready { warnings: self.warnings(&needed, only), running })
    }

    /// Waits until it is known what the members serve that are asked about: one that has never answered may serve the
    /// kind as well.
    async fn settled(&self, gvr: &Gvr, only: Option<&MemberName>, deadline: Instant) {
        let mut changes = self.catalogue.changes();
        loop {
            changes.borrow_and_update();
            if self.is_settled(&self.catalogue(), gvr, only) {
                return;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Says whether the catalogue is known of every member that is asked about.
    fn is_settled(&self, catalogue: &Catalogue, gvr: &Gvr, only: Option<&MemberName>) -> bool {
        match only {
            Some(only) => !catalogue.unknown.contains(only) && catalogue.get(gvr).is_some(),
            None => catalogue.unknown.iter().all(|name| self.is_left_out(name)),
        }
    }

    /// Says whether nobody waits for a member: it was declared absent, or what it holds is shown as another member's.
    fn is_left_out(&self, name: &MemberName) -> bool {
        self.registry.get(name.as_str()).is_none_or(|member| member.config().absent || member.twin_of().is_some())
    }

    /// Waits until every member that is asked about is filled.
    async fn filled(&self, running: &Running, only: Option<&MemberName>, deadline: Instant) -> Result<(), Status> {
        let mut changes = running.store.subscribe();
        loop {
            changes.borrow_and_update();
            let unknown = self.unknown(running, only);
            if unknown.is_empty() {
                return Ok(());
            }
            let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
            if changed.is_err() || running.store.is_ended() {
                return Err(self.unknown_status(running, &self.unknown(running, only)));
            }
        }
    }

    /// Members whose objects of this kind have not been held completely since kubefold started.
    pub fn unknown(&self, running: &Running, only: Option<&MemberName>) -> Vec<Arc<Member>> {
        let catalogue = self.catalogue();
        let serving = catalogue.serving_members(&running.store.spec().gvr);
        let members = self.registry.members();
        members
            .iter()
            .filter(|member| !member.config().absent)
            .filter(|member| only.map_or_else(|| member.twin_of().is_none(), |only| only == member.name()))
            .filter(|member| serving.contains(member.name()) || catalogue.unknown.contains(member.name()))
            .filter(|member| !running.store.is_filled(member.name()))
            .cloned()
            .collect()
    }

    /// The store of a kind if it runs.
    pub fn peek(&self, gvr: &Gvr) -> Option<Arc<Running>> {
        self.running.lock().get(gvr).map(Arc::clone)
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

    /// The store of a kind, started where it is not; it may be empty yet.
    ///
    /// Errors: nobody serves the kind, or it is not known whether somebody does.
    pub fn running(&self, gvr: &Gvr) -> Result<Arc<Running>, Status> {
        self.start(gvr)
    }

    /// The store of a kind after the bounded wait for its members, of whom some may be unknown still. `None`: nobody is
    /// known to serve the kind.
    pub async fn known(&self, gvr: &Gvr) -> Option<Arc<Running>> {
        // Whoever is unknown after the wait is asked for by name.
        let _waited = self.ready(gvr, None).await;
        self.peek(gvr)
    }

    fn unknown_status(&self, running: &Running, unknown: &[Arc<Member>]) -> Status {
        let resource = &running.store.spec().gvr.resource;
        let each: Vec<String> = unknown.iter().map(|member| running.describe(member)).collect();
        let names: Vec<&str> = unknown.iter().map(|member| member.name().as_str()).collect();
        Status::unavailable(format!(
            "the {resource} of {} have not been read since kubefold started ({}); an answer without them would read as \
             deletions. Wait for the member, declare it \"absent: true\" in clusters.yaml, or read the others through \
             their member views (--context fleet-<member>)",
            names.join(", "),
            each.join("; "),
        ))
    }

    fn warnings(&self, needed: &[Arc<Running>], only: Option<&MemberName>) -> Vec<String> {
        let Some(running) = needed.first() else { return Vec::new() };
        let gvr = &running.store.spec().gvr;
        let mut warnings: Vec<String> = running
            .feeds
            .lock()
            .values()
            .filter(|feed| only.is_none_or(|only| only == feed.member.name()))
            .filter(|feed| feed.member.twin_of().is_none() || running.store.is_filled(feed.member.name()))
            .filter_map(|feed| stale(&feed.member, &feed.state))
            .collect();
        let members = self.registry.members();
        let is_copy = |member: &&Arc<Member>| member.twin_of().is_some() && !running.store.is_filled(member.name());
        warnings
            .extend(members.iter().filter(is_copy).map(|copy| format!("member {}; it is left out", copy.describe())));
        warnings.sort();
        let catalogue = self.catalogue();
        for (member, version) in catalogue.members_serving_other_version(gvr) {
            warnings.push(format!(
                "member {member} serves {} in version {version} only: its objects are left out",
                gvr.qualified()
            ));
        }
        warnings
    }

    /// The running store of a kind, started where it is not.
    fn start(&self, gvr: &Gvr) -> Result<Arc<Running>, Status> {
        let mut all = self.running.lock();
        if let Some(running) = all.get(gvr).filter(|running| !running.store.is_ended()) {
            *running.used.lock() = Instant::now();
            return Ok(Arc::clone(running));
        }
        let catalogue = self.catalogue();
        let Some(resource) = catalogue.get(gvr) else {
            let unknown: Vec<String> = catalogue
                .unknown
                .iter()
                .filter_map(|name| self.registry.get(name.as_str()))
                .filter(|member| !member.config().absent)
                .map(|member| member.describe())
                .collect();
            if unknown.is_empty() {
                return Err(Status::no_such_path());
            }
            return Err(Status::unavailable(format!(
                "whether {} exists is not known: {}",
                gvr.qualified(),
                unknown.join("; ")
            )));
        };
        let running = self.make(resource);
        all.insert(gvr.clone(), Arc::clone(&running));
        self.feed(&running);
        Ok(running)
    }

    fn make(&self, resource: &MergedResource) -> Arc<Running> {
        let spec = KindSpec::new(resource.gvr.clone(), resource.gvk.clone(), resource.scope == Scope::Namespaced);
        let this = self.this.clone();
        let own = resource.gvr.clone();
        let tell = move |changed: &[Referent]| {
            if let Some(stores) = this.upgrade() {
                stores.redress(&own, changed);
            }
        };
        let store = Arc::new(FleetStore::new(Arc::new(spec), Shared::clone(&self.shared.load()), tell));
        let withheld = self.withheld.lock();
        let keys = withheld.iter().filter(|(gvr, _)| *gvr == resource.gvr).map(|(_, key)| key);
        let withheld = keys.map(|key| (key.clone(), store.hold(key))).collect();
        Arc::new(Running {
            store,
            feeds: Mutex::default(),
            leaving: Mutex::default(),
            used: Mutex::new(Instant::now()),
            cancel: self.cancel.child_token(),
            withheld: Mutex::new(withheld),
        })
    }

    /// Dresses every store anew for identities that changed, but the one that they changed in.
    fn redress(&self, own: &Gvr, changed: &[Referent]) {
        let others: Vec<Arc<Running>> =
            self.running.lock().iter().filter(|(gvr, _)| *gvr != own).map(|(_, running)| Arc::clone(running)).collect();
        for running in others {
            running.store.redress(changed);
        }
    }

    /// Brings every store's reflectors in line with members and catalogue.
    fn reconcile(&self) {
        let all: Vec<Arc<Running>> = self.running.lock().values().cloned().collect();
        for running in all {
            self.feed(&running);
            let catalogue = self.catalogue();
            let gvr = &running.store.spec().gvr;
            let is_fed = !running.feeds.lock().is_empty() || !running.leaving.lock().is_empty();
            if catalogue.get(gvr).is_none() && catalogue.complete() && !is_fed {
                running.store.end();
                running.cancel.cancel();
                self.running.lock().remove(gvr);
            }
        }
    }

    /// Starts and ends a store's reflectors. Members and catalogue are looked at under the lock: one who came with an older
    /// catalogue would take a member for gone that has just been heard of, and its objects for deleted.
    fn feed(&self, running: &Arc<Running>) {
        let mut feeds = running.feeds.lock();
        let catalogue = self.catalogue();
        let serving = catalogue.serving_members(&running.store.spec().gvr);
        let members = self.registry.members();
        let wanted = |member: &Arc<Member>| !member.config().absent && serving.contains(member.name());
        let gone: Vec<MemberName> = feeds
            .iter()
            .filter(|(name, feed)| {
                let configured = members.iter().find(|member| member.name() == *name);
                configured.is_none_or(|member| !Arc::ptr_eq(member, &feed.member) || !wanted(member))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(feed) = feeds.remove(&name) {
                running.leaving.lock().insert(name.clone());
                self.tasks.spawn(leave(self.this.clone(), Arc::clone(running), name, feed));
            }
        }
        for member in members.iter().filter(|member| wanted(member)) {
            if feeds.contains_key(member.name()) || running.leaving.lock().contains(member.name()) {
                continue;
            }
            let (state, cancel) = (Arc::default(), running.cancel.child_token());
            let reflector = Reflector {
                member: Arc::clone(member),
                store: Arc::clone(&running.store),
                state: Arc::clone(&state),
                cancel: cancel.clone(),
            };
            let task = self.tasks.spawn(reflector.run());
            feeds.insert(member.name().clone(), Feed { member: Arc::clone(member), state, cancel, task });
        }
    }

    /// Stops stores that nobody has used for long, but none while a member is down: it could not be filled again.
    fn stop_idle(&self) {
        if self.registry.members().iter().any(|member| member.health().is_down()) {
            return;
        }
        self.running.lock().retain(|gvr, running| {
            let placeable = PLACEABLE.iter().any(|(group, _, name)| *group == &*gvr.group && *name == &*gvr.resource);
            let idle = !placeable && running.store.watchers() == 0 && running.used.lock().elapsed() > IDLE_MAX;
            if idle {
                tracing::info!(kind = %running.store.spec().label(), "stopping an idle store");
                running.cancel.cancel();
            }
            !idle
        });
    }
}

impl Running {
    /// Why a member is not followed, in one line.
    fn describe(&self, member: &Member) -> String {
        let trouble = self.feeds.lock().get(member.name()).and_then(|feed| feed.state.trouble());
        match trouble {
            Some(trouble) if !member.health().is_down() => {
                format!("{} for {}s: {}", member.name(), trouble.since.elapsed().as_secs(), trouble.cause)
            }
            Some(_) | None => member.describe(),
        }
    }
}

/// One sentence, if what the store shows of the member may be old.
fn stale(member: &Member, state: &ReflectorState) -> Option<String> {
    if member.health().is_down() {
        return Some(format!("member {}; its last known state is shown", member.describe()));
    }
    let trouble = state.trouble()?;
    Some(format!(
        "member {} has not been followed for {}s: {}; its last known state is shown",
        member.name(),
        trouble.since.elapsed().as_secs(),
        trouble.cause
    ))
}

/// Takes a member's objects out of a store, in slices, once its reflector is silent. If it was configured again
/// meanwhile, it is followed from then on.
async fn leave(stores: Weak<Stores>, running: Arc<Running>, name: MemberName, feed: Feed) {
    feed.cancel.cancel();
    let _ended = feed.task.await;
    let doomed = running.store.leave(&name);
    for slice in doomed.chunks(SLICE_ITEMS_MAX) {
        while !running.store.has_room() && !running.cancel.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.store.remove_slice(slice);
        tokio::task::yield_now().await;
    }
    running.store.forget(&name);
    running.leaving.lock().remove(&name);
    if let Some(stores) = stores.upgrade() {
        stores.reconcile();
    }
}
