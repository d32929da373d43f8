//! The composition root: builds the rooms, owns their tasks, and ends them in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::{Access, Kept},
    accounts::Accounts,
    authn::{self, Authentication, Reviewer},
    config::{Config, MemberName, ReloadHandle, Reloads},
    member::{self, Member, registry::Registry, renewal::keep_tokens},
    observe::Metrics,
    read::{Freshness, Reader},
    route::Router,
    serve::{Gate, Handler, Published, Served, StateDir, authority},
    store::{Identities, LogLimits, Naming, Revision, Revisions, Shared, unix_micros},
    stores::{self, Stores},
    write::{Writer, journal::Journal, live::LiveFleet},
};
use kubefold_serving::{
    Limits, Listener, Shutdown,
    health::Check,
    tls::{Believed, ClientAuthority, Tls, TlsFiles, read_given},
};
use kubefold_wire::{
    body::{Body, BodyError},
    golang::Quoted,
};

/// How soon a shared object's end is written down.
const LIVES_EVERY: Duration = Duration::from_secs(1);

/// What `kubefold serve` is told on its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// `clusters.yaml`.
    pub config: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where kubefold keeps what must outlive it.
    pub state_dir: PathBuf,
    /// Serving certificate and key in place of the own.
    pub serving_certificate: Option<(PathBuf, PathBuf)>,
    /// More authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Files that say whose bearer tokens count.
    pub tokens: authn::Sources,
    /// More names for the own serving certificate.
    pub names: Vec<String>,
    /// What clients call it, where that is not the address listened on.
    pub external_url: Option<Uri>,
    /// How fresh reads are that name no revision.
    pub freshness: Freshness,
}

/// A running kubefold.
pub struct App {
    address: SocketAddr,
    reload_handle: ReloadHandle,
    draining: CancellationToken,
    tasks: TaskTracker,
    _state: Arc<StateDir>,
}

/// Serves until a signal ends it: SIGTERM or SIGINT drain, a second one cuts; SIGHUP reads the configuration again.
///
/// Errors: kubefold cannot start. A [`crate::config::ConfigError`] or [`kubefold_serving::tls::TlsError`] in the chain
/// is the operator's input.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let app = App::start(options).await?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => app.reload(),
        }
    }
    tokio::select! {
        () = app.drain() => {}
        _ = terminate.recv() => tracing::warn!("second signal: closing all connections"),
        _ = interrupt.recv() => tracing::warn!("second signal: closing all connections"),
    }
    Ok(())
}

impl App {
    /// Starts everything, and returns once it listens.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        // The configuration first: a refused one leaves no trace on disk.
        let (config, reloads) = Reloads::start(&options.config).await?;
        let state = Arc::new(StateDir::open(&options.state_dir)?);
        let security = Security::prepare(&options, &state)?;
        let tls = Arc::new(ArcSwap::from_pointee(Tls::new(&security.files)?));
        let authentication = Authentication::read(options.tokens.clone())?;
        let listener = Listener::bind(options.listen, Arc::clone(&tls), Limits::DEFAULT.for_tokens()).await?;
        let address = listener.address()?;
        let published = Published {
            url: options.external_url.as_ref().map_or_else(|| local_url(address), |url| bare(&url.to_string())),
            members: member_names(&config),
            certificate_authority: security.trust.clone(),
        };
        published.write(&state)?;
        tracing::info!(%address, url = published.url, members = config.members.len(), "serving");

        let (draining, tasks) = (CancellationToken::new(), TaskTracker::new());
        // Connections to members outlive the answers that go through them.
        let members = CancellationToken::new();
        let registry = Arc::new(Registry::new(tasks.clone(), members.clone()));
        if let Some(text) = state.read(CLUSTERS)? {
            registry.restore_clusters(serde_json::from_str(&text).with_context(|| format!("{CLUSTERS} is damaged"))?);
        }
        registry.apply(&config)?;
        let accounts = Arc::new(Accounts::new(Arc::clone(&registry)));
        accounts.configure(&config.subjects);
        let authentication = Arc::new(authentication.reviewed_by(Arc::clone(&accounts) as Arc<dyn Reviewer>));
        let shared = shared(&config, &state)?;
        let stores = Stores::new(Arc::clone(&registry), shared, tasks.clone(), draining.clone());
        // First of all: what an earlier process left half-made is not to be shown.
        let journal = Journal::open(state.path()).context("cannot open the journal in the state directory")?;
        let writer = Writer::new(LiveFleet::new(Arc::clone(&stores)), journal, tasks.clone(), draining.clone());
        stores.configure(&config);
        tasks.spawn(Arc::clone(&stores).follow());
        let of_members = Arc::clone(&registry);
        let keeping = async move { keep_tokens(&of_members).await };
        tasks.spawn(draining.clone().run_until_cancelled_owned(keeping));
        tasks.spawn(keep_lives(Arc::clone(&stores), Arc::clone(&state), draining.clone()));
        let reader = Reader::new(Arc::clone(&stores), options.freshness, draining.clone());
        tasks.spawn(settle(Arc::clone(&writer), Arc::clone(&registry), draining.clone()));
        let mut metrics = Metrics::default();
        let served = Served::default();
        metrics.room("member", |room| {
            member::states::register(&registry, room);
            stores::metrics::register_lag(&stores, room);
        });
        metrics.room("store", |room| stores::metrics::register(&stores, room));
        metrics.room("http", |room| served.register(room));
        let access = Access::new(Arc::clone(&stores), tasks.clone(), draining.clone());
        if let Some(kept) = kept(&state)? {
            access.restore(kept);
            tasks.spawn(keep_decisions(Arc::clone(&access), Arc::clone(&state), draining.clone()));
        }
        let router = Arc::new(Router::new(access, reader, writer, metrics));
        let readiness = move || checks(&registry);
        let gate = Gate::new(Arc::new(Routed(router)), Arc::new(readiness), draining.clone()).counting(served);
        let gate = gate.authenticating(Arc::clone(&authentication));
        tasks.spawn(gate.sweep());
        let serving = listener.serve(gate, Shutdown { drain: draining.clone(), ..Shutdown::default() });
        tasks.spawn(async move {
            serving.await;
            members.cancel();
        });
        let reload_handle = reloads.reload_handle();
        let published = Arc::new(Mutex::new(published));
        let following = follow(reloads, stores, accounts, Arc::clone(&published), Arc::clone(&state));
        tasks.spawn(draining.clone().run_until_cancelled_owned(following));
        let renewing = renew(options, security, tls, published, authentication, Arc::clone(&state));
        tasks.spawn(draining.clone().run_until_cancelled_owned(renewing));
        tasks.close();
        Ok(Self { address, reload_handle, draining, tasks, _state: state })
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
        self.tasks.wait().await;
    }
}

/// Applies every later good configuration.
async fn follow(
    mut reloads: Reloads,
    stores: Arc<Stores>,
    accounts: Arc<Accounts>,
    published: Arc<Mutex<Published>>,
    state: Arc<StateDir>,
) {
    while let Some(config) = reloads.next().await {
        if let Err(error) = stores.registry().apply(&config) {
            tracing::error!("the new configuration is not applied: {error}");
            continue;
        }
        stores.configure(&config);
        accounts.configure(&config.subjects);
        let mut published = published.lock();
        published.members = member_names(&config);
        if let Err(error) = published.write(&state) {
            tracing::error!("cannot write serving.json, so new kubeconfigs have the old members: {error}");
        }
    }
}

/// How often it is looked whether certificates have changed, or are to be renewed.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// What was last said to be wrong with files. They are read again and again, and one fault is logged once.
#[derive(Default)]
struct Complaint(Option<String>);

impl Complaint {
    /// The value, or `None` and a line in the log: a file that is half written is whole a moment later.
    fn unless_good<T>(&mut self, read: anyhow::Result<T>, consequence: &str) -> Option<T> {
        let fault = read.as_ref().err().map(|error| format!("{error:#}"));
        if let Some(error) = fault.as_ref().filter(|_| fault != self.0) {
            tracing::warn!(error, "{consequence}");
        }
        self.0 = fault;
        read.ok()
    }
}

/// Serves with every later good set of certificates: those of files that have changed, and the own when they come to their
/// end. Connections that are open keep theirs; who logs in on them is judged by the new authorities.
async fn renew(
    options: Options,
    mut security: Security,
    tls: Arc<ArcSwap<Tls>>,
    published: Arc<Mutex<Published>>,
    authentication: Arc<Authentication>,
    state: Arc<StateDir>,
) {
    let [mut of_tokens, mut of_certificates] = [Complaint::default(), Complaint::default()];
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let reloaded = authentication.reload().map_err(anyhow::Error::from);
        if of_tokens.unless_good(reloaded, "keeps the bearer tokens that it accepts") == Some(true) {
            tracing::info!("accepts other bearer tokens");
        }
        let prepared = Security::prepare(&options, &state).and_then(|now| {
            let changed = if now == security { None } else { Some((Tls::new(&now.files)?, now)) };
            Ok(changed)
        });
        let changed = of_certificates.unless_good(prepared, "keeps the certificates that it has").flatten();
        let Some((new_tls, now)) = changed else { continue };
        tls.store(Arc::new(new_tls));
        security = now;
        tracing::info!("serves with other certificates or client authorities");
        let mut published = published.lock();
        published.certificate_authority.clone_from(&security.trust);
        if let Err(error) = published.write(&state) {
            tracing::error!("cannot write serving.json, so new kubeconfigs trust the old certificate: {error}");
        }
    }
}

/// kubefold is ready when every member has been tried, with whatever result.
fn checks(registry: &Registry) -> Vec<Check> {
    let check = |member: &Arc<Member>| Check {
        name: member.name().to_string(),
        ready: member.tried(),
        note: member.describe(),
    };
    registry.members().iter().map(check).collect()
}

/// Names of files in the state directory.
const HIGH_WATER: &str = "revision";
const LIVES: &str = "lives.json";
const PLACED: &str = "placed.json";
const CLUSTERS: &str = "clusters.json";
const DECISIONS: &str = "decisions.json";
const DECISIONS_KEY: &str = "decisions.key";
/// Bytes of the key by which decisions are hashed.
const DECISIONS_KEY_BYTES: usize = 32;

/// What all stores share; the counter begins above what an earlier process gave out.
fn shared(config: &Config, state: &Arc<StateDir>) -> anyhow::Result<Shared> {
    let high_water = match state.read(HIGH_WATER)? {
        None => 0,
        Some(text) => text.trim().parse().with_context(|| {
            format!(
                "{}/{HIGH_WATER} holds {text} and not a number; if no client holds a revision any more, remove the file",
                state.path().display(), text = Quoted(text))
        })?,
    };
    let keep = Arc::clone(state);
    let reserve = move |mark: Revision| keep.write(HIGH_WATER, &mark.to_string(), false).map_err(std::io::Error::other);
    let identities = Identities::default();
    if let Some(text) = state.read(LIVES)? {
        identities.restore_lives(serde_json::from_str(&text).with_context(|| format!("{LIVES} is damaged"))?);
    }
    if let Some(text) = state.read(PLACED)? {
        identities.restore_placed(serde_json::from_str(&text).with_context(|| format!("{PLACED} is damaged"))?);
    }
    Ok(Shared {
        naming: Arc::new(Naming::new(config)),
        identities: Arc::new(identities),
        revisions: Arc::new(Revisions::new(Revision(high_water), 0, unix_micros, Box::new(reserve))),
        log_limits: LogLimits::default(),
    })
}

/// How often it is looked whether a member has recovered.
const RECOVERY_EVERY: Duration = Duration::from_secs(1);

/// Goes on with unfinished writes: once every member was tried, and whenever one that was down is not any more.
async fn settle(writer: Arc<Writer<LiveFleet>>, registry: Arc<Registry>, until: CancellationToken) {
    let mut down_before: Option<BTreeSet<MemberName>> = None;
    while until.run_until_cancelled(tokio::time::sleep(RECOVERY_EVERY)).await.is_some() {
        if !registry.all_tried() {
            continue;
        }
        let down: BTreeSet<MemberName> = registry
            .members()
            .iter()
            .filter(|member| !member.health().is_reachable())
            .map(|member| member.name().clone())
            .collect();
        if down_before.as_ref().is_none_or(|before| before.difference(&down).next().is_some()) {
            writer.replay();
        }
        down_before = Some(down);
    }
}

/// Writes down how often shared objects have lived, whenever one is gone, which kinds were placed, and which cluster each
/// member is.
async fn keep_lives(stores: Arc<Stores>, state: Arc<StateDir>, until: CancellationToken) {
    let identities = Arc::clone(&stores.shared().identities);
    let (mut lives_written, mut placed_written) = (identities.lives().1, identities.placed());
    let mut clusters_written = BTreeMap::new();
    loop {
        let going = until.run_until_cancelled(tokio::time::sleep(LIVES_EVERY)).await.is_none();
        let (lives, version) = identities.lives();
        if version != lives_written {
            let lives: BTreeMap<&String, &u32> = lives.iter().collect();
            if keep(&state, LIVES, &lives) {
                lives_written = version;
            }
        }
        let placed = identities.placed();
        if placed != placed_written && keep(&state, PLACED, &placed) {
            placed_written = placed;
        }
        let clusters = stores.registry().clusters();
        if clusters != clusters_written && keep(&state, CLUSTERS, &clusters) {
            clusters_written = clusters;
        }
        // What ended in the last second counts, too.
        if going {
            return;
        }
    }
}

/// What members decided before kubefold was started. `None`: this process keeps nothing.
///
/// Errors: the state directory cannot be read or written.
fn kept(state: &StateDir) -> anyhow::Result<Option<Kept>> {
    let decode = |text: String| URL_SAFE_NO_PAD.decode(text.trim()).ok().filter(|key| key.len() == DECISIONS_KEY_BYTES);
    let known = state.read(DECISIONS_KEY)?.and_then(decode);
    let key = match &known {
        Some(key) => key.clone(),
        None => {
            let mut key = vec![0; DECISIONS_KEY_BYTES];
            aws_lc_rs::rand::fill(&mut key).map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
            state.write(DECISIONS_KEY, &URL_SAFE_NO_PAD.encode(&key), false)?;
            key
        }
    };
    let text = state.read(DECISIONS)?;
    let kept = Kept::read(&key, text.as_deref().filter(|_| known.is_some()));
    if kept.is_none() {
        // To know less is safe: the members are asked.
        tracing::warn!("{DECISIONS} is damaged: what members allowed before counts no more");
    }
    Ok(kept.or_else(|| Kept::read(&key, None)))
}

/// How often the decisions of members are written down.
const DECISIONS_EVERY: Duration = Duration::from_secs(30);

/// Writes down what members decided, for a restart while one of them is down.
async fn keep_decisions(access: Arc<Access>, state: Arc<StateDir>, until: CancellationToken) {
    let mut written = String::new();
    loop {
        let going = until.run_until_cancelled(tokio::time::sleep(DECISIONS_EVERY)).await.is_none();
        let (access, state) = (Arc::clone(&access), Arc::clone(&state));
        // Many take a while to write.
        let kept = tokio::task::spawn_blocking(move || {
            let text = access.keep()?;
            if text != written
                && let Err(error) = state.write(DECISIONS, &text, false)
            {
                tracing::error!("cannot write {DECISIONS}, so that kubefold knows less after a restart: {error}");
            }
            Some(text)
        });
        written = kept.await.ok().flatten().unwrap_or_default();
        if going {
            return;
        }
    }
}

/// Writes a value down. Says whether that could be done.
fn keep(state: &StateDir, file: &str, value: &impl serde::Serialize) -> bool {
    let written = state.write(file, &serde_json::to_string(value).unwrap_or_default(), false);
    if let Err(error) = &written {
        tracing::error!("cannot write {file}, so that kubefold knows less after a restart: {error}");
    }
    written.is_ok()
}

/// Lets the gate hand requests to the router, which does not know the gate.
struct Routed(Arc<Router>);

impl Handler for Routed {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        self.0.route(request).await
    }
}

/// Certificates to serve with, and what a client must trust.
#[derive(PartialEq, Eq)]
struct Security {
    files: TlsFiles,
    trust: String,
}

impl Security {
    /// Takes the given certificates, and makes what is not given in the state directory.
    fn prepare(options: &Options, state: &StateDir) -> anyhow::Result<Self> {
        let host =
            options.external_url.as_ref().and_then(Uri::host).map(|host| host.trim_matches(['[', ']']).to_owned());
        let extra: Vec<String> = options.names.iter().cloned().chain(host).collect();
        let names: BTreeSet<String> = authority::serving_names(options.listen.ip(), &extra);
        let own = authority::ensure(state, &names, SystemTime::now())?;
        let own_authority = ClientAuthority { bundle: own.ca_certificate.clone(), believed: Believed::Everything };
        let given = options.client_ca.as_ref().map(|path| read_given("--client-ca-file", path)).transpose()?;
        let given = given.map(|bundle| ClientAuthority { bundle, believed: Believed::PeopleOnly });
        let client_authorities = std::iter::once(own_authority).chain(given).collect();
        let (certificate, key, trust) = match &options.serving_certificate {
            Some((certificate, key)) => {
                let chain = read_given("--tls-cert-file", certificate)?;
                (chain.clone(), read_given("--tls-key-file", key)?, chain)
            }
            None => (own.serving_certificate, own.serving_key, own.ca_certificate),
        };
        Ok(Self { files: TlsFiles { certificate, key, client_authorities }, trust })
    }
}

fn member_names(config: &Config) -> Vec<String> {
    config.members.iter().map(|member| member.name.to_string()).collect()
}

/// The URL of an address; from outside one never dials "all addresses".
fn local_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

fn bare(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(folder: &std::path::Path) -> Options {
        Options {
            config: folder.join("clusters.yaml"),
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: folder.join("state"),
            serving_certificate: None,
            client_ca: None,
            tokens: authn::Sources::default(),
            names: Vec::new(),
            external_url: None,
            freshness: Freshness::default(),
        }
    }

    #[tokio::test]
    async fn a_reload_reaches_the_kubeconfig_and_a_drain_ends_everything() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        fs::write(&options.config, "members: [{name: east, inCluster: true}]\n").unwrap();
        let app = App::start(options.clone()).await.unwrap();
        let published = Published::read(&options.state_dir).unwrap();
        assert_eq!(published.members, ["east"]);
        assert_eq!(published.url, format!("https://{}", app.address()));

        fs::write(&options.config, "members: [{name: west, inCluster: true}]\n").unwrap();
        app.reload();
        while Published::read(&options.state_dir).unwrap().members != ["west"] {
            tokio::task::yield_now().await;
        }
        app.drain().await;
        drop(app);
        App::start(options).await.unwrap();
    }

    #[tokio::test]
    async fn a_refused_configuration_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        fs::write(&options.config, "members: []\n").unwrap();
        assert!(App::start(options.clone()).await.is_err());
        assert!(!options.state_dir.exists());
    }

    /// A certificate that is good, and a file that is not whole yet.
    #[tokio::test(start_paused = true)]
    async fn certificates_that_change_are_served_and_broken_ones_are_not() {
        let (folder, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let given = folder.path().join("given.pem");
        let options = Options { client_ca: Some(given.clone()), ..options(folder.path()) };
        let state = Arc::new(StateDir::open(&options.state_dir).unwrap());
        let other = StateDir::open(others.path().join("state").as_path()).unwrap();
        let names = authority::serving_names([127, 0, 0, 1].into(), &[]);
        let [own, second] =
            [&*state, &other].map(|state| authority::ensure(state, &names, SystemTime::now()).unwrap().ca_certificate);
        fs::write(&given, &own).unwrap();
        let security = Security::prepare(&options, &state).unwrap();
        let tls = Arc::new(ArcSwap::from_pointee(Tls::new(&security.files).unwrap()));
        let published = Arc::new(Mutex::new(Published {
            url: String::new(),
            members: Vec::new(),
            certificate_authority: String::new(),
        }));
        let authentication = Arc::new(Authentication::read(authn::Sources::default()).unwrap());
        let renewing = renew(options, security, Arc::clone(&tls), published, authentication, Arc::clone(&state));
        let tasks = TaskTracker::new();
        let until = CancellationToken::new();
        tasks.spawn(until.clone().run_until_cancelled_owned(renewing));
        let mut seen = Vec::new();
        // What is there, what a writer has half done, what is whole, and again nothing new.
        for bundle in [own.as_str(), "-----BEGIN CERTIFICATE-----\nMII", &second, &second] {
            fs::write(&given, bundle).unwrap();
            let before = tls.load_full();
            tokio::time::sleep(RENEW_EVERY + Duration::from_secs(1)).await;
            seen.push(!Arc::ptr_eq(&before, &tls.load_full()));
        }
        assert_eq!(seen, [false, false, true, false]);
        until.cancel();
    }

    #[test]
    fn nobody_dials_all_addresses() {
        let cases =
            [("0.0.0.0:1", "https://127.0.0.1:1"), ("[::]:1", "https://[::1]:1"), ("10.0.0.1:1", "https://10.0.0.1:1")];
        for (address, url) in cases {
            assert_eq!(local_url(address.parse().unwrap()), url);
        }
    }
}
