//! The composition root: builds the rooms, owns their tasks, and ends them in order.

#[cfg(feature = "apiserver")]
pub mod apiserver;
mod applied;
mod carry;
mod database;
mod front;
mod kept;
mod memory;
mod options;
mod own;
mod records;
mod security;
mod signals;
mod standby;
mod state_move;

use std::{
    collections::{BTreeSet, HashMap},
    net::{SocketAddr, TcpListener},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kubefold_sql::RemoteState;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    applied::{Applied, member_names},
    front::{Answers, Front},
    kept::{CLUSTERS, keep_decisions, keep_lives, kept, share_revoked, shared},
    own::Own,
    records::{Opening, Records},
    security::{Authorities, Renewal},
    signals::Signals,
    standby::Waited,
};
pub use self::{
    database::{DatabaseFileError, StateUrl, StateUrlError},
    options::{AdvertiseError, Advertised, FrontProxy, Options, ServingOptions, StateSource},
    records::{STATE_MARKS, StateOpenError},
    state_move::{StateMove, StateMoveError, StateMoved, run as move_state},
};
use crate::{
    access::Access,
    accounts::Accounts,
    authn::Reviewer,
    config::{Config, MemberName, ReloadHandle, Reloads},
    host::{Host, HostServing},
    member::{self, Member, authority::keep_authorities, registry::Registry, renewal::keep_tokens},
    mirror::{self, Mirror},
    observe::Metrics,
    own::{Members, OwnObjects},
    read::Reader,
    route::Router,
    serve::{Auditing, Handler, Health, Published, Served, StateDir, expiry::Expiries},
    store::Earlier,
    stores::{self, Stores},
    upstream,
    write::{Writer, journal::KeyFile, live::LiveFleet},
};
use kubefold_serving::{Shutdown, health::Check};
use kubefold_wire::{
    body::{Body, BodyError},
    resource::Gvr,
};

/// A running kubefold.
pub struct App {
    address: SocketAddr,
    reload_handle: ReloadHandle,
    draining: CancellationToken,
    tasks: TaskTracker,
    stores: Arc<Stores>,
    own: Arc<OwnObjects>,
    database: Option<Arc<RemoteState>>,
    _state: Arc<StateDir>,
}

/// Serves until a signal ends it: SIGTERM or SIGINT drain, a second one cuts; SIGHUP reads the configuration again.
///
/// Errors: kubefold cannot start. A [`crate::config::ConfigError`] or [`kubefold_serving::tls::TlsError`] in the chain
/// is the operator's input.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mut signals = Signals::follow()?;
    let begun = Begun::of(options).await?;
    let ending = CancellationToken::new();
    let mut waiting = Box::pin(begun.with_state(&ending));
    let waited = tokio::select! {
        waited = &mut waiting => waited?,
        () = signals.end() => {
            ending.cancel();
            // A second signal closes all connections.
            tokio::select! {
                ended = waiting => drop(ended?),
                () = signals.end() => {}
            }
            return Ok(());
        }
    };
    let Some(begun) = waited else { return Ok(()) };
    let app = Box::pin(App::begin(begun)).await?;
    let lost = OnceLock::new();
    let ended = async {
        let why = app.lost().await;
        lost.get_or_init(|| why);
    };
    let drain = async {
        // Nobody is to be told by two processes what is so.
        let most = match lost.get() {
            Some(_) => LOST_DRAIN,
            None if app.has_standby() => STANDBY_DRAIN,
            None => Duration::MAX,
        };
        if timeout(most, app.drain()).await.is_err() {
            // Who has lost the state can write nothing.
            if lost.get().is_none() {
                app.stores.end().await;
            }
            app.release().await;
        }
    };
    signals.serve(|| app.reload(), ended, drain).await;
    lost.into_inner().map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}

/// How long answers may take that were begun before the state was lost.
const LOST_DRAIN: Duration = Duration::from_secs(3);

/// The same where another process waits for the state: nobody answers new requests before this one has ended.
const STANDBY_DRAIN: Duration = Duration::from_secs(5);

/// What is known before anything is served.
struct Begun {
    options: Options,
    config: Config,
    reloads: Reloads,
    state: Arc<StateDir>,
    opening: Opening,
}

/// What is known once the state is this process's.
struct Ready {
    options: Options,
    config: Config,
    reloads: Reloads,
    state: Arc<StateDir>,
    records: Arc<Records>,
    /// On which connections come in already.
    socket: Option<TcpListener>,
    /// What the process showed that had the state before.
    told: HashMap<Gvr, Earlier>,
}

impl Begun {
    /// Reads what is given, and takes the state if nobody has it.
    async fn of(options: Options) -> anyhow::Result<Self> {
        options.check_advertised()?;
        // The configuration first: a refused one leaves no trace on disk.
        let (config, reloads) = Reloads::start(&options.config).await?;
        let state = Arc::new(StateDir::open(&options.serving.state_dir)?);
        let opening = Records::open(&options, &state).await?;
        Ok(Self { options, config, reloads, state, opening })
    }

    /// Waits until the state is this process's. `None`: it was told to end before.
    async fn with_state(self, ending: &CancellationToken) -> anyhow::Result<Option<Ready>> {
        let Self { mut options, config, reloads, state, opening } = self;
        let (records, socket, told) = match opening {
            Opening::Here(records) => (records, None, HashMap::new()),
            Opening::Waits(candidate) => {
                let key = KeyFile::new(options.state_key_file.clone(), state.path()).key(true)?;
                match standby::wait(&mut options, &config, &state, *candidate, &key, ending).await? {
                    Waited::Taken { state, socket, told } => (Records::taken(state), socket, told),
                    Waited::Ended => return Ok(None),
                }
            }
        };
        records.share(&options, &state).await?;
        Ok(Some(Ready { options, config, reloads, state, records: Arc::new(records), socket, told }))
    }
}

impl App {
    /// Starts everything, and returns once it listens. Where another process has the state, that is once it has it no more.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let begun = Box::pin(Begun::of(options)).await?;
        let ready = Box::pin(begun.with_state(&CancellationToken::new())).await?;
        Box::pin(Self::begin(ready.context("it was told to end")?)).await
    }

    async fn begin(ready: Ready) -> anyhow::Result<Self> {
        let Ready { options, config, reloads, state, records, socket, told } = ready;
        let state_key = KeyFile::new(options.state_key_file.clone(), state.path());
        let journal = records.journal(&state_key, &state)?;
        let of_host = HostServing::before(config.aggregation.as_ref());
        let configured = Authorities { configured: &config.client_authorities, members: &[], host: Some(&of_host) };
        let Front { door, address, url, security, tls, expiries, authentication, auditing } =
            Front::open(&options.serving, &state, configured, socket).await?;
        records.announce(&options, address);
        let (members, trust) = (member_names(&config), security.trust.clone());
        let published = Published { url, fleet: true, members, certificate_authority: trust };
        published.write(&state)?;
        tracing::info!(%address, url = published.url, members = config.members.len(), "serving");

        // Connections to members outlive the answers that go through them.
        let (draining, members, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let registry = registry(&config, &state, tasks.clone(), members.clone())?;
        let accounts = Arc::new(Accounts::new(Arc::clone(&registry)));
        accounts.configure(&config.subjects);
        let authentication = Arc::new(authentication.reviewed_by(Arc::clone(&accounts) as Arc<dyn Reviewer>));
        let host = Host::new(config.aggregation.as_ref(), Arc::clone(&authentication));
        let shared = shared(&config, &state, records.remote()).await?;
        let stores = Stores::new(Arc::clone(&registry), shared, tasks.clone(), draining.clone());
        bound(&stores, &options, records.remote());
        let writer = {
            let fleet = LiveFleet::new(Arc::clone(&stores)).under(journal.state().cloned());
            Writer::new(fleet, journal, tasks.clone(), draining.clone())
        };
        stores.configure(&config);
        let reader = Reader::new(Arc::clone(&stores), options.freshness, draining.clone());
        let served = Served::default();
        let access = Access::new(Arc::clone(&stores), tasks.clone(), draining.clone());
        access.configure(&config.own);
        access.behind(Arc::clone(&host));
        tasks.spawn(draining.clone().run_until_cancelled_owned(Arc::clone(&host).follow()));
        if let Some(kept) = kept(&state)? {
            access.restore(kept);
            tasks.spawn(keep_decisions(Arc::clone(&access), Arc::clone(&state), draining.clone()));
        }
        let own = Box::pin(Own::open(&records, &state, &stores, config, &state_key, &tasks, &draining)).await?;
        let mirror = records.mirror(&options, &own.config()?, &state);
        stores.begins_with(told, Arc::clone(&mirror));
        // With all members: what an earlier process knew of one that is not there yet would be forgotten.
        keep(&tasks, &draining, &registry, &stores, &state);
        tasks.spawn(settle(Arc::clone(&writer), Arc::clone(&registry), draining.clone()));
        let mut metrics = metrics(&registry, &stores, &mirror, &served, &expiries, auditing.as_ref());
        metrics.room("state", |room| records.register(room));
        let (metrics, database) = (Arc::new(metrics), records.remote().cloned());
        let (objects, counted) = (Arc::clone(&own.rooms.objects), Arc::clone(&metrics));
        let router = Arc::new(Router::new(Arc::clone(&access), reader, writer, counted, own.rooms.clone()));
        let published = Arc::new(Mutex::new(published));
        let applied = own.applied(access, accounts, &published, &state);
        let (of_members, written) = (Arc::clone(&registry), Arc::clone(&own.rooms.members));
        own.follow(&router, &stores, &tasks, &draining);
        let readiness = move || checks(&of_members, &written).into_iter().chain(records.check()).collect();
        let health = Health::new(Arc::new(readiness), draining.clone()).counting(metrics.slis());
        let (door, handler, logins) = (door.telling(&stores), Arc::new(Routed(router)), Arc::clone(&authentication));
        let answers = Answers { handler, health, metrics, served, authentication: logins, auditing: auditing.clone() };
        let serving = door.open(answers, &tasks, Shutdown { drain: draining.clone(), ..Shutdown::default() })?;
        tasks.spawn(async move {
            serving.await;
            members.cancel();
        });
        let reload_handle = reloads.reload_handle();
        tasks.spawn(draining.clone().run_until_cancelled_owned(follow(reloads, applied)));
        tasks.spawn(draining.clone().run_until_cancelled_owned(share_revoked(Arc::clone(&state))));
        let (options, registry, host, held) = (options.serving, Some(registry), Some(host), Arc::clone(&state));
        let renewal =
            Renewal { options, security, tls, published, authentication, auditing, registry, host, expiries, state };
        tasks.spawn(draining.clone().run_until_cancelled_owned(renewal.run()));
        tasks.close();
        Ok(Self { address, reload_handle, draining, tasks, stores, own: objects, database, _state: held })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the configuration again, changed or not.
    pub fn reload(&self) {
        self.reload_handle.now();
    }

    /// Ends it: not ready, no new connections, watches end, answers finish within the grace, the rest is cut.
    pub async fn drain(&self) {
        self.draining.cancel();
        // Watches of its objects would hold the end up.
        self.own.end().await;
        self.tasks.wait().await;
        self.stores.end().await;
        self.own.close().await;
        self.release().await;
    }

    /// Leaves the state to another process, and writes nothing more.
    async fn release(&self) {
        if let Some(database) = &self.database {
            database.release().await;
        }
    }

    /// Whether another process waits for the state.
    fn has_standby(&self) -> bool {
        self.database.as_ref().is_some_and(|database| database.replicas().iter().any(|replica| !replica.is_holder))
    }

    /// Until another process may have the state.
    async fn lost(&self) -> String {
        match &self.database {
            Some(database) => database.lost().await,
            None => std::future::pending().await,
        }
    }
}

/// How much stores hold, and whether they may tell what comes.
fn bound(stores: &Stores, options: &Options, database: Option<&Arc<RemoteState>>) {
    stores.bound(options.store_bytes_max.or_else(memory::for_objects));
    if let Some(database) = database.cloned() {
        stores.tell_if(move || database.may_tell());
    }
}

/// The members, with what an earlier process knew of them.
fn registry(
    config: &Config,
    state: &StateDir,
    tasks: TaskTracker,
    cancel: CancellationToken,
) -> anyhow::Result<Arc<Registry>> {
    let registry = Arc::new(Registry::new(tasks, cancel));
    if let Some(text) = state.read(CLUSTERS)? {
        registry.restore_clusters(serde_json::from_str(&text).with_context(|| format!("{CLUSTERS} is damaged"))?);
    }
    registry.apply(config)?;
    Ok(registry)
}

/// Follows what members serve, keeps kubefold's logins there good, learns whom they accept, and writes down what outlives it.
fn keep(
    tasks: &TaskTracker,
    draining: &CancellationToken,
    registry: &Arc<Registry>,
    stores: &Arc<Stores>,
    state: &Arc<StateDir>,
) {
    tasks.spawn(Arc::clone(stores).follow());
    let of_members = Arc::clone(registry);
    let keeping = async move { keep_tokens(&of_members).await };
    tasks.spawn(draining.clone().run_until_cancelled_owned(keeping));
    let of_members = Arc::clone(registry);
    let learning = async move { keep_authorities(&of_members).await };
    tasks.spawn(draining.clone().run_until_cancelled_owned(learning));
    tasks.spawn(keep_lives(Arc::clone(stores), Arc::clone(state), draining.clone()));
}

/// What every room counts.
fn metrics(
    registry: &Arc<Registry>,
    stores: &Arc<Stores>,
    mirror: &Arc<Mirror>,
    served: &Served,
    expiries: &Expiries,
    auditing: Option<&Auditing>,
) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.room("member", |room| {
        member::states::register(registry, room);
        stores::metrics::register_lag(stores, room);
    });
    metrics.room("store", |room| stores::metrics::register(stores, room));
    metrics.room("mirror", |room| mirror::metrics::register(mirror, room));
    metrics.room("http", |room| served.register(room));
    metrics.room("certificate", |room| expiries.register(room));
    if let Some(auditing) = auditing {
        metrics.room("audit", |room| auditing.register(room));
    }
    metrics
}

/// Applies every later good configuration.
async fn follow(mut reloads: Reloads, applied: Arc<Applied>) {
    while let Some(config) = reloads.next().await {
        applied.configure(config);
    }
}

/// Checks of kubefold's own: what a member says of those is about the member.
const OWN_CHECKS: [&str; 4] = ["ping", "informer-sync", "shutdown", "state"];

/// kubefold is ready when every member has been tried, with whatever result, and is an object that can be listed. A
/// kube-apiserver's check of this name is the same: what it serves from memory was filled once. The checks that members pass and
/// the state of each member are told beside it, and never make kubefold unready.
fn checks(registry: &Registry, objects: &Members) -> Vec<Check> {
    let members = registry.members();
    let untried: Vec<&str> =
        members.iter().filter(|member| !member.tried()).map(|member| member.name().as_str()).collect();
    let note = match untried.as_slice() {
        [] if !objects.are_written() => "the members are not written down as objects yet".to_owned(),
        [] => String::new(),
        untried => format!("not tried yet: {}", untried.join(", ")),
    };
    let mut checks = vec![Check::of("informer-sync", note.is_empty(), note)];
    for member in members.iter().filter(|member| member.health() == upstream::Health::Ready) {
        for name in member.passed_checks().iter() {
            if !OWN_CHECKS.contains(&&**name) && checks.iter().all(|check| check.name != **name) {
                checks.push(Check::information(name.to_string(), String::new()));
            }
        }
    }
    let state = |member: &Arc<Member>| Check::information(format!("member/{}", member.name()), member.describe());
    checks.extend(members.iter().map(state));
    checks
}

/// What a member refuses is tried again after so long.
const RETRY_EVERY: Duration = Duration::from_mins(5);
/// How often it is looked whether a member has recovered.
const RECOVERY_EVERY: Duration = Duration::from_secs(1);

/// Goes on with unfinished writes: once every member was tried, and whenever one that was down is not any more.
async fn settle(writer: Arc<Writer<LiveFleet>>, registry: Arc<Registry>, until: CancellationToken) {
    writer.follow_policies();
    let mut retries = Retries::default();
    while until.run_until_cancelled(tokio::time::sleep(RECOVERY_EVERY)).await.is_some() {
        if !registry.all_tried() {
            continue;
        }
        let members = registry.members();
        let reachable = members.iter().filter(|member| member.health().is_reachable());
        if retries.are_due(reachable.map(Reached::of).collect(), Instant::now()) {
            writer.replay();
            writer.resume_moves();
            writer.extend();
        }
    }
}

/// A member that can be reached, as the cluster that it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    name: MemberName,
    cluster_uid: Option<Arc<str>>,
    is_rebuilt: bool,
}

impl Reached {
    fn of(member: &Arc<Member>) -> Self {
        let cluster_uid = member.cluster_uid().map(|uid| uid.to_string().into());
        Self { name: member.name().clone(), cluster_uid, is_rebuilt: member.config().rebuilt }
    }
}

/// When unfinished writes are tried again: at first, whenever a member is reached that was not before, and at a slow steady
/// rate, since a quota may be raised and a webhook mended without a word.
#[derive(Default)]
struct Retries {
    reached_before: Option<BTreeSet<Reached>>,
    last: Option<Instant>,
}

impl Retries {
    /// Says whether they are, with these members reached now.
    fn are_due(&mut self, reached: BTreeSet<Reached>, now: Instant) -> bool {
        let is_new = self.reached_before.as_ref().is_none_or(|before| reached.difference(before).next().is_some());
        let is_long_ago = self.last.is_none_or(|last| now.duration_since(last) >= RETRY_EVERY);
        self.reached_before = Some(reached);
        let are_due = is_new || is_long_ago;
        if are_due {
            self.last = Some(now);
        }
        are_due
    }
}

/// Lets the gate hand requests to the router, which does not know the gate.
struct Routed(Arc<Router>);

impl Handler for Routed {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        self.0.route(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{config::Config, stores::tests::stores_of};

    #[tokio::test]
    async fn a_reload_reaches_the_kubeconfig_and_a_drain_ends_everything() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_tests(folder.path());
        fs::write(&options.config, "members: [{name: east, inCluster: true}]\n").unwrap();
        let app = App::start(options.clone()).await.unwrap();
        let published = Published::read(&options.serving.state_dir).unwrap();
        assert_eq!(published.members, ["east"]);
        assert_eq!(published.url, format!("https://{}", app.address()));

        fs::write(&options.config, "members: [{name: west, inCluster: true}]\n").unwrap();
        app.reload();
        while Published::read(&options.serving.state_dir).unwrap().members != ["west"] {
            tokio::task::yield_now().await;
        }
        app.drain().await;
        drop(app);
        App::start(options).await.unwrap();
    }

    #[tokio::test]
    async fn kubefold_is_unready_before_its_members_are_objects() {
        let stores = stores_of(Vec::new());
        let told = checks(stores.registry(), &Members::new(Arc::clone(&stores), &Config::of(Vec::new())));
        assert_eq!(told, [Check::of("informer-sync", false, "the members are not written down as objects yet".into())]);
    }

    #[tokio::test]
    async fn a_refused_configuration_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_tests(folder.path());
        fs::write(&options.config, "members: []\n").unwrap();
        assert!(App::start(options.clone()).await.is_err());
        assert!(!options.serving.state_dir.exists());
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_writes_are_tried_when_a_member_recovers_and_now_and_then() {
        let mut retries = Retries::default();
        let reached = |uid: &str, is_rebuilt: bool| Reached {
            name: MemberName::new("north").unwrap(),
            cluster_uid: Some(uid.into()),
            is_rebuilt,
        };
        let named =
            |name: &&str| Reached { name: MemberName::new(name).unwrap(), cluster_uid: None, is_rebuilt: false };
        let mut are_due = |names: &[&str], further: &[Reached]| {
            retries.are_due(names.iter().map(named).chain(further.iter().cloned()).collect(), Instant::now())
        };
        assert!(are_due(&["west"], &[]), "at first");
        assert!(!are_due(&["west"], &[]) && !are_due(&[], &[]));
        assert!(are_due(&["east"], &[]) && !are_due(&["east"], &[]));
        for joins in [reached("a", false), reached("b", false), reached("b", true)] {
            assert!(are_due(&["east"], std::slice::from_ref(&joins)) && !are_due(&["east"], &[joins]));
        }
        tokio::time::sleep(RETRY_EVERY - Duration::from_secs(1)).await;
        assert!(!are_due(&["east"], &[]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            are_due(&["east"], &[]) && !are_due(&["east"], &[]),
            "a refusal is tried again, however long it stands"
        );
    }
}
