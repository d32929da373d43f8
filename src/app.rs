//! The composition root: builds the rooms, owns their tasks, and ends them in order.

mod kept;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use arc_swap::ArcSwap;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::kept::{CLUSTERS, keep_decisions, keep_lives, kept, shared};
use crate::{
    access::Access,
    accounts::Accounts,
    authn::{self, Authentication, Reviewer},
    config::{Config, MemberName, ReloadHandle, Reloads},
    member::{self, Member, registry::Registry, renewal::keep_tokens},
    observe::Metrics,
    read::{Freshness, Reader},
    route::Router,
    serve::{AuditOptions, Auditing, Gate, Handler, Health, Monitor, Published, Served, StateDir, authority},
    stores::{self, Stores},
    write::{Writer, journal::Journal, live::LiveFleet},
};
use kubefold_serving::{
    Limits, Listener, Shutdown,
    health::Check,
    plain::PlainListener,
    tls::{Believed, ClientAuthority, Tls, TlsFiles, read_given},
};
use kubefold_wire::body::{Body, BodyError};

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
    /// Events of requests are written there.
    pub audit: Option<AuditOptions>,
    /// Where metrics and health are served without TLS and login.
    pub metrics_listen: Option<SocketAddr>,
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
        let monitored = options.metrics_listen.map(PlainListener::bind).transpose()?;
        let auditing = options.audit.clone().map(Auditing::open).transpose()?;
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
        let (auditing, audit_writer) = auditing.unzip();
        if let Some(auditing) = &auditing {
            metrics.room("audit", |room| auditing.register(room));
        }
        let metrics = Arc::new(metrics);
        let access = Access::new(Arc::clone(&stores), tasks.clone(), draining.clone());
        access.configure(&config.own);
        if let Some(kept) = kept(&state)? {
            access.restore(kept);
            tasks.spawn(keep_decisions(Arc::clone(&access), Arc::clone(&state), draining.clone()));
        }
        let router = Arc::new(Router::new(Arc::clone(&access), reader, writer, Arc::clone(&metrics)));
        let readiness = move || checks(&registry);
        let health = Health::new(Arc::new(readiness), draining.clone());
        let gate = Gate::new(Arc::new(Routed(router)), health.clone(), draining.clone()).counting(served);
        let gate = gate.authenticating(Arc::clone(&authentication)).audited(auditing.as_ref().map(Auditing::log));
        tasks.spawn(gate.sweep());
        if let Some(listener) = monitored {
            monitor(&tasks, listener, Monitor::new(health, metrics), draining.clone())?;
        }
        if let Some(writer) = audit_writer {
            // It ends after the last request, which the gate and its answers hold the log for.
            tasks.spawn_blocking(move || writer.run());
        }
        let serving = listener.serve(gate, Shutdown { drain: draining.clone(), ..Shutdown::default() });
        tasks.spawn(async move {
            serving.await;
            members.cancel();
        });
        let reload_handle = reloads.reload_handle();
        let published = Arc::new(Mutex::new(published));
        let following = follow(reloads, access, accounts, Arc::clone(&published), Arc::clone(&state));
        tasks.spawn(draining.clone().run_until_cancelled_owned(following));
        let followed = Followed { authentication, auditing };
        let renewing = renew(options, security, tls, published, followed, Arc::clone(&state));
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
    access: Arc<Access>,
    accounts: Arc<Accounts>,
    published: Arc<Mutex<Published>>,
    state: Arc<StateDir>,
) {
    let stores = Arc::clone(access.stores());
    while let Some(config) = reloads.next().await {
        if let Err(error) = stores.registry().apply(&config) {
            tracing::error!("the new configuration is not applied: {error}");
            continue;
        }
        stores.configure(&config);
        accounts.configure(&config.subjects);
        access.configure(&config.own);
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

/// Serves metrics and health on a thread of its own.
fn monitor(
    tasks: &TaskTracker,
    listener: PlainListener,
    monitor: Monitor,
    until: CancellationToken,
) -> anyhow::Result<()> {
    tracing::info!(address = %listener.address()?, "serves metrics and health without a login");
    tasks.spawn_blocking(move || {
        if let Err(error) = listener.run(monitor, until) {
            tracing::error!(%error, "cannot serve metrics and health");
        }
    });
    Ok(())
}

/// What is read from files again and again, beside certificates.
struct Followed {
    authentication: Arc<Authentication>,
    auditing: Option<Auditing>,
}

/// Serves with every later good set of certificates: those of files that have changed, and the own when they come to their
/// end. Connections that are open keep theirs; who logs in on them is judged by the new authorities.
async fn renew(
    options: Options,
    mut security: Security,
    tls: Arc<ArcSwap<Tls>>,
    published: Arc<Mutex<Published>>,
    followed: Followed,
    state: Arc<StateDir>,
) {
    let [mut of_tokens, mut of_certificates, mut of_audit] = [(); 3].map(|()| Complaint::default());
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        if let Some(auditing) = &followed.auditing {
            let reloaded = auditing.reload().map_err(anyhow::Error::from);
            if of_audit.unless_good(reloaded, "keeps the audit policy that it has") == Some(true) {
                tracing::info!("audits by another policy");
            }
        }
        let reloaded = followed.authentication.reload().map_err(anyhow::Error::from);
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

/// Lets the gate hand requests to the router, which does not know the gate.
struct Routed(Arc<Router>);

impl Handler for Routed {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(|body| body.map_err(|error| -> BodyError { Box::new(error) }).boxed_unsync());
        // One allocation a request, in place of a future of 8 KiB in every task.
        Box::pin(self.0.route(request)).await
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
            audit: None,
            metrics_listen: None,
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
        let followed = Followed { authentication, auditing: None };
        let renewing = renew(options, security, Arc::clone(&tls), published, followed, Arc::clone(&state));
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
