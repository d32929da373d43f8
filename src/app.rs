//! The composition root: builds the rooms, owns their tasks, and ends them in order.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

use anyhow::Context;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Config, Nudge, Reloads},
    route::Router,
    serve::{
        Gate, Handler, Limits, Listener, Published, StateDir, authority,
        health::Check,
        tls::{Tls, TlsFiles, read_given},
    },
    wire::body::Body,
};

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
    /// Authority of client certificates in place of the own.
    pub client_ca: Option<PathBuf>,
    /// More names for the own serving certificate.
    pub names: Vec<String>,
    /// What clients call it, where that is not the address listened on.
    pub external_url: Option<Uri>,
}

/// A running kubefold.
pub struct App {
    address: SocketAddr,
    nudge: Nudge,
    draining: CancellationToken,
    tasks: TaskTracker,
    _state: Arc<StateDir>,
}

/// Serves until a signal ends it: SIGTERM or SIGINT drain, a second one cuts; SIGHUP reads the configuration again.
///
/// Errors: kubefold cannot start. A [`crate::config::ConfigError`] or [`crate::serve::tls::TlsError`] in the chain
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
        _ = terminate.recv() => tracing::warn!("told twice to end: cutting connections"),
        _ = interrupt.recv() => tracing::warn!("told twice to end: cutting connections"),
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
        let listener = Listener::bind(options.listen, Tls::new(&security.files)?, Limits::default()).await?;
        let address = listener.address()?;
        let published = Published {
            url: options.external_url.as_ref().map_or_else(|| local_url(address), |url| bare(&url.to_string())),
            members: member_names(&config),
            certificate_authority: security.trust,
            own_logins: options.client_ca.is_none(),
        };
        published.write(&state)?;
        tracing::info!(%address, url = published.url, members = config.members.len(), "serving");

        let (draining, tasks) = (CancellationToken::new(), TaskTracker::new());
        let router = Arc::new(Router::new(config));
        let gate = Gate::new(Arc::new(Routed(Arc::clone(&router))), Arc::new(checks), draining.clone());
        tasks.spawn(listener.serve(gate, draining.clone()));
        let nudge = reloads.nudge();
        let following = follow(reloads, router, published, Arc::clone(&state));
        let until = draining.clone();
        tasks.spawn(async move { until.run_until_cancelled_owned(following).await });
        tasks.close();
        Ok(Self { address, nudge, draining, tasks, _state: state })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the configuration again, changed or not.
    pub fn reload(&self) {
        self.nudge.now();
    }

    /// Ends it: not ready, no new connections, watches end, answers finish within the grace, the rest is cut.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.tasks.wait().await;
    }
}

/// Applies every later good configuration.
async fn follow(mut reloads: Reloads, router: Arc<Router>, mut published: Published, state: Arc<StateDir>) {
    while let Some(config) = reloads.next().await {
        published.members = member_names(&config);
        if let Err(error) = published.write(&state) {
            tracing::error!("kubeconfigs will name the former members: {error}");
        }
        router.apply(config);
    }
}

/// What readiness depends on beyond the process itself.
fn checks() -> Vec<Check> {
    Vec::new()
}

/// Lets the gate hand requests to the router, which does not know the gate.
struct Routed(Arc<Router>);

impl Handler for Routed {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        self.0.route(request).await
    }
}

/// Certificates to serve with, and what a client must trust.
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
        let client_ca = match &options.client_ca {
            Some(path) => read_given("--client-ca-file", path)?,
            None => own.ca_certificate.clone(),
        };
        let (certificate, key, trust) = match &options.serving_certificate {
            Some((certificate, key)) => {
                let chain = read_given("--tls-cert-file", certificate)?;
                (chain.clone(), read_given("--tls-key-file", key)?, chain)
            }
            None => (own.serving_certificate, own.serving_key, own.ca_certificate),
        };
        Ok(Self { files: TlsFiles { certificate, key, client_ca }, trust })
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
            names: Vec::new(),
            external_url: None,
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

    #[test]
    fn nobody_dials_all_addresses() {
        let cases =
            [("0.0.0.0:1", "https://127.0.0.1:1"), ("[::]:1", "https://[::1]:1"), ("10.0.0.1:1", "https://10.0.0.1:1")];
        for (address, url) in cases {
            assert_eq!(local_url(address.parse().unwrap()), url);
        }
    }
}
