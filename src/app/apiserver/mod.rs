//! `kubefold apiserver`: an API server of its own behind the gate that a fleet has, too.
//!
//! - `storage`: where objects are, as an operator writes it
//! - `etcd`: which etcd, likewise
//! - `migrate`: from one storage to another
//! - `accounts`: tokens of its service accounts
//! - `handler`: who answers a request that was let in
//! - `readiness`, `watches`: what probes and metrics tell

mod accounts;
mod etcd;
mod handler;
mod migrate;
mod readiness;
mod storage;
mod watches;

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    accounts::AccountKeyError,
    etcd::{EtcdUrl, EtcdUrlError},
    migrate::{Move, MoveError, run as migrate},
    storage::{ClientIdentity, StorageOpenError, StorageSource, StorageTls, StorageUrl, UrlError},
};
use self::{
    accounts::{Accounts, AllTokens},
    handler::Api,
    readiness::StorageState,
    watches::Watches,
};
pub use crate::app::carry::Moved;
use crate::{
    app::{
        carry::{Place, check_whole},
        front::{Answers, Front},
        options::ServingOptions,
        security::{Authorities, Renewal},
        signals::Signals,
    },
    authn::Reviewer,
    observe::Metrics,
    serve::{Auditing, Health, Published, Served, StateDir, expiry::Expiries},
};
use kubefold_apiserver::{BuiltIn, Server, Storage, server::Authorization};
use kubefold_serving::Shutdown;

/// How requests are counted that no view of a fleet answers.
const VIEW: &str = "apiserver";

/// What `kubefold apiserver` is told on its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// How clients reach it.
    pub serving: ServingOptions,
    /// Where objects are stored.
    pub storage: StorageSource,
    /// How the database's certificate is checked, and what is shown to it.
    pub storage_tls: StorageTls,
    /// Which of Kubernetes' own kinds are served.
    pub kinds: BuiltIn,
    /// Who may do what.
    pub authorization: Authorization,
}

/// A running API server.
pub struct ApiServerApp {
    address: SocketAddr,
    draining: CancellationToken,
    tasks: TaskTracker,
    storage: Arc<dyn Storage>,
    _state: Arc<StateDir>,
}

/// Serves until a signal ends it: SIGTERM or SIGINT drain, a second one cuts.
///
/// Errors: it cannot start. A [`StorageOpenError`], [`crate::authn::AuthnError`] or [`kubefold_serving::tls::TlsError`] in
/// the chain may be the operator's input.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let signals = Signals::follow()?;
    let app = Box::pin(ApiServerApp::start(options)).await?;
    // The files that it follows are read again anyway.
    signals.serve(|| (), std::future::pending(), app.drain()).await;
    Ok(())
}

impl ApiServerApp {
    /// Starts everything, and returns once it listens.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let state = Arc::new(StateDir::open(&options.serving.state_dir)?);
        let place = storage::open(&options.storage, &options.storage_tls, state.path()).await?;
        check_whole(&place).await?;
        let Place { storage, name } = place;
        let accounts = Arc::new(Accounts::open(&state)?);
        let Front { door, address, url, security, tls, expiries, authentication, auditing } =
            Front::open(&options.serving, &state, Authorities::default(), None).await?;
        let authentication = Arc::new(authentication.reviewed_by(Arc::clone(&accounts) as Arc<dyn Reviewer>));
        let tokens = Arc::new(AllTokens {
            accounts: Arc::clone(&accounts),
            authentication: Arc::clone(&authentication),
            url: url.clone(),
        });
        let trust = security.trust.clone();
        let server = server(&options, Arc::clone(&storage)).account_tokens(tokens).root_ca(&trust);
        let running = Box::pin(server.start()).await?;
        accounts.serve(running.registry().clone());
        let published = Published { url, fleet: false, members: Vec::new(), certificate_authority: trust };
        published.write(&state)?;
        tracing::info!(%address, url = published.url, storage = name, "serving");

        let (draining, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (stored, watches, served) = (StorageState::new(Arc::clone(&storage)), Watches::default(), Served::of(VIEW));
        tasks.spawn(draining.clone().run_until_cancelled_owned(stored.clone().follow()));
        let metrics = Arc::new(metrics(&stored, &watches, &served, &expiries, auditing.as_ref()));
        let health = Health::new(Arc::new(stored), draining.clone()).counting(metrics.slis());
        let handler = Arc::new(Api { server: running.service(), metrics: Arc::clone(&metrics), watches });
        let logins = Arc::clone(&authentication);
        let answers = Answers { handler, health, metrics, served, authentication: logins, auditing: auditing.clone() };
        tasks.spawn(door.open(answers, &tasks, Shutdown { drain: draining.clone(), ..Shutdown::default() })?);
        // Watches would hold the end up.
        let ended = draining.clone();
        tasks.spawn(async move {
            ended.cancelled().await;
            running.end().await;
        });
        let (published, registry, kept) = (Arc::new(Mutex::new(published)), None, Arc::clone(&state));
        let options = options.serving;
        let renewal = Renewal {
            options,
            security,
            tls,
            published,
            authentication,
            auditing,
            registry,
            host: None,
            expiries,
            state,
        };
        tasks.spawn(draining.clone().run_until_cancelled_owned(renewal.run()));
        tasks.close();
        Ok(Self { address, draining, tasks, storage, _state: kept })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it: not ready, no new connections, watches end, answers finish within the grace, the rest is cut; then the storage
    /// is closed.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.tasks.wait().await;
        self.storage.close().await;
    }
}

fn server(options: &Options, storage: Arc<dyn Storage>) -> Server {
    Server::new().built_in(options.kinds.clone()).authorize(options.authorization).storage(storage)
}

/// What is counted.
fn metrics(
    stored: &StorageState,
    watches: &Watches,
    served: &Served,
    expiries: &Expiries,
    auditing: Option<&Auditing>,
) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.room("http", |room| {
        served.register(room);
        watches.register(room);
    });
    metrics.room("storage", |room| room.register_collector(Box::new(stored.clone())));
    metrics.room("certificate", |room| expiries.register(room));
    if let Some(auditing) = auditing {
        metrics.room("audit", |room| auditing.register(room));
    }
    metrics
}
