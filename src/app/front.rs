//! What stands before the requests of a server: its address, certificates, who logs in, the audit log, health and metrics.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
};

use arc_swap::ArcSwap;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::{
        options::ServingOptions,
        security::{Authorities, Security},
    },
    authn::Authentication,
    observe::Metrics,
    serve::{Auditing, Gate, Handing, Handler, Health, Monitor, Served, StateDir, Telling, expiry::Expiries},
    stores::{SHOWN_PATH, Stores, WatchCacheAsked},
};
use kubefold_serving::{Limits, Listener, Shutdown, audit::LogWriter, plain::PlainListener, tls::Tls};

/// All of it, before anything is answered.
pub(super) struct Front {
    pub(super) door: Door,
    pub(super) address: SocketAddr,
    /// What clients call it: `https://host:port`, without a last slash.
    pub(super) url: String,
    pub(super) security: Security,
    pub(super) tls: Arc<ArcSwap<Tls>>,
    pub(super) expiries: Expiries,
    pub(super) authentication: Authentication,
    pub(super) auditing: Option<Auditing>,
}

/// The addresses, taken and not yet served.
pub(super) struct Door {
    listener: Listener,
    monitored: Option<PlainListener>,
    audit_writer: Option<LogWriter>,
    handing: Option<Arc<Handing>>,
    telling: Option<Telling>,
}

/// Who answers.
pub(super) struct Answers<H> {
    pub(super) handler: Arc<H>,
    pub(super) health: Health,
    pub(super) metrics: Arc<Metrics>,
    pub(super) served: Served,
    pub(super) authentication: Arc<Authentication>,
    pub(super) auditing: Option<Auditing>,
}

impl Front {
    /// Reads what the operator gives, makes what is not given, and takes the addresses; `socket` is one that is taken already.
    ///
    /// Errors: the operator's.
    pub(super) async fn open(
        options: &ServingOptions,
        state: &StateDir,
        authorities: Authorities<'_>,
        socket: Option<TcpListener>,
    ) -> anyhow::Result<Self> {
        let security = Security::prepare(options, state, authorities)?;
        let expiries = Expiries::default();
        security.tell(&expiries);
        let tls = Arc::new(ArcSwap::from_pointee(Tls::new(&security.files)?));
        let authentication = Authentication::read(options.tokens.clone())?;
        let limits = Limits::DEFAULT.for_tokens();
        let listener = match socket {
            Some(socket) => Listener::on(socket, Arc::clone(&tls), limits)?,
            None => Listener::bind(options.listen, Arc::clone(&tls), limits).await?,
        };
        let address = listener.address()?;
        let monitored = options.metrics_listen.map(PlainListener::bind).transpose()?;
        let (auditing, audit_writer) = options.audit.clone().map(Auditing::open).transpose()?.unzip();
        let url = options.external_url.as_ref().map_or_else(|| local_url(address), |url| bare(&url.to_string()));
        let door = Door { listener, monitored, audit_writer, handing: None, telling: None };
        Ok(Self { door, address, url, security, tls, expiries, authentication, auditing })
    }
}

impl Door {
    /// The socket once more: while one of both is there, connections are taken.
    pub(super) fn socket(&self) -> std::io::Result<TcpListener> {
        self.listener.socket()
    }

    /// Has requests handed on.
    pub(super) fn handing(self, handing: Arc<Handing>) -> Self {
        Self { handing: Some(handing), ..self }
    }

    /// Has other replicas told what these stores show.
    pub(super) fn telling(self, stores: &Arc<Stores>) -> Self {
        let stores = Arc::clone(stores);
        let telling = move |path: &str, query: &str| match path {
            SHOWN_PATH => Some(stores.telling()),
            _ => WatchCacheAsked::of(path, query).map(|asked| stores.watch_cache_source(asked)),
        };
        Self { telling: Some(Arc::new(telling)), ..self }
    }

    /// Opens it. What comes back serves until `shutdown` says otherwise and answers that are on their way have finished.
    ///
    /// Errors: the address of metrics is gone.
    pub(super) fn open<H: Handler>(
        self,
        answers: Answers<H>,
        tasks: &TaskTracker,
        shutdown: Shutdown,
    ) -> anyhow::Result<impl Future<Output = ()> + Send + use<H>> {
        let Answers { handler, health, metrics, served, authentication, auditing } = answers;
        let gate = Gate::new(handler, health.clone(), shutdown.drain.clone()).counting(served);
        let gate = gate.handing(self.handing).telling(self.telling);
        let gate = gate.authenticating(authentication).audited(auditing.as_ref().map(Auditing::log));
        tasks.spawn(gate.sweep());
        let monitor_until = shutdown.drain.clone();
        self.monitored
            .map_or(Ok(()), |listener| monitor(tasks, listener, Monitor::new(health, metrics), monitor_until))?;
        // It ends after the last request, which the gate and its answers hold the log for.
        self.audit_writer.map(|writer| tasks.spawn_blocking(move || writer.run()));
        Ok(self.listener.serve(gate, shutdown))
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
    use super::*;

    #[test]
    fn nobody_dials_all_addresses() {
        let cases =
            [("0.0.0.0:1", "https://127.0.0.1:1"), ("[::]:1", "https://[::1]:1"), ("10.0.0.1:1", "https://10.0.0.1:1")];
        for (address, url) in cases {
            assert_eq!(local_url(address.parse().unwrap()), url);
        }
    }
}
