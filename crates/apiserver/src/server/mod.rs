//! A server in one call: kinds, a storage, and an address.
//!
//! ```no_run
//! # use kubefold_apiserver::{Kind, Server};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct Post { spec: serde_json::Value }
//! # async fn main_() -> Result<(), kubefold_apiserver::server::ServerError> {
//! Server::new().kind(Kind::of::<Post>("blog.example.com", "v1", "Post")).serve("127.0.0.1:8080").await
//! # }
//! ```
//!
//! - `certificate`: TLS
//! - `gate`: who asks
//! - `plain`: a listener without TLS, for this machine alone

mod certificate;
mod gate;
mod plain;
#[cfg(test)]
mod tests;

use std::{future::Future, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    admission,
    definitions::Definitions,
    kinds::Kind,
    rbac::{self, RbacError},
    registry::{Env, Registry},
    serve::{ApiServer, Settings, Tokens, bootstrap, built_in_kinds, registry_of},
    sim::{self, Sim},
    storage::{Memory, Storage},
    typed::{IntoKinds, KindError},
};
use gate::Gate;
use kubefold_serving::{
    Limits, ListenError, Listener, Shutdown,
    caller::Caller,
    tls::{Believed, ClientAuthority, TlsError, TlsFiles},
};
use kubefold_wire::status::{Status, qualified};

/// What the server says of itself, if nobody says otherwise: clients choose their ways by it.
const VERSION: &str = "v1.36.3";

/// Those of [`BuiltIn::Basic`], as `plural.group`.
const BASIC: [&str; 18] = [
    "namespaces",
    "configmaps",
    "secrets",
    "serviceaccounts",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "selfsubjectreviews.authentication.k8s.io",
    "tokenreviews.authentication.k8s.io",
    "localsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
    "subjectaccessreviews.authorization.k8s.io",
];

/// Which of Kubernetes' own kinds are served beside a program's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BuiltIn {
    /// None. Namespaces are then no objects: every one is there.
    None,
    /// What clients and controllers count on whatever the kinds are: namespaces, config maps, secrets, service accounts,
    /// events, leases, roles and bindings (see [`Authorization`]), custom resource definitions, access reviews.
    #[default]
    Basic,
    /// All that the embedded server knows: pods, deployments, services, ... Nothing runs in the pods.
    All,
    /// These, as `plural.group`: `["namespaces", "leases.coordination.k8s.io"]`.
    Only(Vec<String>),
}

/// What those may do who are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Everything. Only members of `system:masters` act as somebody else.
    #[default]
    Everything,
    /// What roles and bindings allow, as in Kubernetes. The server makes the roles that every cluster has (`cluster-admin`,
    /// `admin`, `edit`, `view`, ...) and keeps aggregated ones. Members of `system:masters` may do everything. Calls in this
    /// process are not asked about.
    Rbac,
}

/// Why a server does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A kind is not as Kubernetes wants it.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// Two kinds have the same name.
    #[error("{resource} in version {version} was given to the server twice; give one of them another plural or group")]
    Twice {
        /// Such as `posts.blog.example.com`.
        resource: String,
        /// Such as `v1`.
        version: String,
    },
    /// No such kind is built in.
    #[error("no built-in kind is called {0}; write plural.group, such as leases.coordination.k8s.io, or namespaces")]
    NotBuiltIn(String),
    /// The storage refused what every server begins with: namespaces, and a list of custom resource definitions.
    #[error("the storage does not answer what a server begins with: {}", .0.message)]
    Storage(Box<Status>),
    /// Access cannot be decided by roles.
    #[error(transparent)]
    Rbac(#[from] RbacError),
    /// The address cannot be found.
    #[error("{address} is no address to listen on ({source}); write host:port, such as 127.0.0.1:8080")]
    Address {
        /// As it was given.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// Without TLS, others could read and change everything.
    #[error(
        "{0} can be reached from other machines, and without TLS whoever is on the way reads and changes everything; give \
         a certificate with Server::tls, or listen on 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    /// With TLS, and nobody could log in.
    #[error(
        "nobody could log in; give a token with Server::token, or a client authority with Server::client_authority"
    )]
    NobodyLogsIn,
    /// The address is taken, or not this machine's.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The same without TLS.
    #[error("cannot listen on {address} ({source}); free the port, or give another address")]
    ListenPlain {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates that are none, or do not belong together.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The signals that end it cannot be followed.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}

/// What a server is to be. Nothing happens before [`Server::serve`], [`Server::bind`] or [`Server::start`].
#[must_use = "nothing is served before it is started"]
pub struct Server {
    kinds: Vec<Kind>,
    wrong: Option<KindError>,
    built_in: BuiltIn,
    authorization: Authorization,
    storage: Arc<dyn Storage>,
    env: Env,
    version: String,
    tokens: Vec<(String, Caller)>,
    tls: TlsFiles,
    account_tokens: Option<Arc<dyn Tokens>>,
    root_ca: Option<Arc<str>>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            wrong: None,
            built_in: BuiltIn::default(),
            authorization: Authorization::default(),
            storage: Arc::new(Memory::default()),
            env: Env::default(),
            version: VERSION.to_owned(),
            tokens: Vec::new(),
            tls: TlsFiles::default(),
            account_tokens: None,
            root_ca: None,
        }
    }
}

impl Server {
    /// A server of [`BuiltIn::Basic`] in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a kind: a [`TypedKind`](crate::typed::TypedKind), or a [`Kind`]. What is wrong with it is told by the start.
    pub fn kind(mut self, kind: impl IntoKinds) -> Self {
        match kind.into_kinds() {
            Ok(kinds) => self.kinds.extend(kinds),
            Err(error) => drop(self.wrong.get_or_insert(error)),
        }
        self
    }

    /// Says which of Kubernetes' own kinds are served, too.
    pub fn built_in(mut self, which: BuiltIn) -> Self {
        self.built_in = which;
        self
    }

    /// Says what those may do who are let in: everything, if nobody says otherwise.
    pub fn authorize(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Says where objects are stored. In memory, if nobody says so. Who closes the storage in the end keeps a clone.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// Says what tells the time and gives names and UIDs: for tests that are the same in every run.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Says which version of Kubernetes clients are told, such as `v1.36.3`.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Lets whoever has a bearer token in, as somebody. Once there is one, nobody gets in without.
    pub fn token(mut self, token: &str, caller: Caller) -> Self {
        self.tokens.push((token.to_owned(), caller));
        self
    }

    /// Says who signs the tokens of service accounts (`kubectl create token`), and whose a token is that is reviewed. It is for
    /// servers with a gate of their own, which lets callers in by these tokens: see [`Running::service`]. Every namespace then has a
    /// service account `default`. If nobody says so, such tokens are not signed, and let nobody in.
    pub fn account_tokens(mut self, tokens: Arc<dyn Tokens>) -> Self {
        self.account_tokens = Some(tokens);
        self
    }

    /// Says by which authorities (PEM) clients know this server: every namespace has them in the ConfigMap `kube-root-ca.crt`.
    pub fn root_ca(mut self, bundle: &str) -> Self {
        self.root_ca = Some(bundle.into());
        self
    }

    /// Serves with TLS: a PEM chain and the PEM key of its first certificate.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        (self.tls.certificate, self.tls.key) = (certificate.to_owned(), key.to_owned());
        self
    }

    /// Lets whoever has a client certificate of this authority (PEM) in, by its common name and organizations. With TLS only.
    pub fn client_authority(mut self, bundle: &str) -> Self {
        let authority = ClientAuthority { bundle: bundle.to_owned(), believed: Believed::Everything };
        self.tls.client_authorities.push(authority);
        self
    }

    /// Starts it without an address: for calls in this process, and as a tower service.
    ///
    /// Errors: a kind is wrong, or there twice; the storage does not answer.
    pub async fn start(self) -> Result<Running, ServerError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong.into());
        }
        let mut kinds = built_in(&self.built_in)?;
        for (at, kind) in self.kinds.iter().enumerate() {
            let same = |other: &&Kind| {
                (&other.group, &other.version, &other.plural) == (&kind.group, &kind.version, &kind.plural)
            };
            if self.kinds.iter().take(at).any(|other| same(&other)) {
                let (resource, version) = (qualified(&kind.group, &kind.plural), kind.version.clone());
                return Err(ServerError::Twice { resource, version });
            }
        }
        kinds.extend(self.kinds);
        let registry = registry_of(self.storage, self.env, kinds);
        bootstrap(&registry).await.map_err(|status| ServerError::Storage(Box::new(status)))?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let authorizer = match self.authorization {
            Authorization::Everything => None,
            Authorization::Rbac => Some(Box::pin(rbac::start(&registry, &tasks, &stop)).await?),
        };
        let admitter = Box::pin(admission::start(&registry, &tasks, &stop)).await;
        let admitter = admitter.map_err(|status| ServerError::Storage(Box::new(status)))?;
        let admitter = match (admitter, &authorizer) {
            (Some(admitter), Some(authorizer)) => Some(admitter.asking(authorizer.clone())),
            (admitter, _) => admitter,
        };
        let registry = match &admitter {
            Some(admitter) => registry.admitted_by(Arc::new(admitter.clone())),
            None => registry,
        };
        if let Some(mut definitions) = Definitions::new(registry.clone()) {
            definitions.begin().await.map_err(|status| ServerError::Storage(Box::new(status)))?;
            tasks.spawn(definitions.follow_until(stop.clone()));
        }
        let serves = |plural: &str| registry.resource("", "v1", plural).is_some();
        let accounts = self.account_tokens.is_some() && serves("serviceaccounts");
        let root_ca = self.root_ca.filter(|_| serves("configmaps"));
        let options = sim::Options { workloads: false, accounts, root_ca, ..sim::Options::default() };
        tasks.spawn(Sim::new(registry.clone(), options).run(stop.clone()));
        tasks.close();
        let mut settings = Settings { drain: stop.clone(), authorizer, admitter, ..Settings::new(&self.version) };
        if let Some(tokens) = self.account_tokens {
            settings.tokens = tokens;
        }
        let server = ApiServer::new(registry, settings);
        Ok(Running { server, tasks, stop: stop.clone(), _ends: stop.drop_guard() })
    }

    /// Starts it, and takes an address, such as `127.0.0.1:8080`; port 0 takes a free one. Nothing is answered before
    /// [`Bound::serve_until`].
    ///
    /// Without [`Server::tls`] the address must be this machine's own. Whoever is on this machine is then an administrator,
    /// unless there are tokens.
    ///
    /// Errors: as of [`Server::start`]; the address is taken, or open to other machines without TLS.
    pub async fn bind(self, address: &str) -> Result<Bound, ServerError> {
        let of_address = |source| ServerError::Address { address: address.to_owned(), source };
        let found = tokio::net::lookup_host(address).await.map_err(of_address)?.next();
        let none = || of_address(std::io::Error::from(std::io::ErrorKind::NotFound));
        let place = found.ok_or_else(none)?;
        let has_tls = !self.tls.certificate.is_empty();
        if !has_tls && !place.ip().is_loopback() {
            return Err(ServerError::NotLoopback(place));
        }
        if has_tls && self.tokens.is_empty() && self.tls.client_authorities.is_empty() {
            return Err(ServerError::NobodyLogsIn);
        }
        let socket = if has_tls {
            let tls = Arc::new(ArcSwap::from_pointee(certificate::tls(&self.tls)?));
            Socket::Tls(Listener::bind(place, tls, Limits::DEFAULT.for_tokens()).await?)
        } else {
            let bound = TcpListener::bind(place).await;
            Socket::Plain(bound.map_err(|source| ServerError::ListenPlain { address: place, source })?)
        };
        let address = match &socket {
            Socket::Tls(listener) => listener.address(),
            Socket::Plain(socket) => socket.local_addr(),
        };
        let address = address.map_err(|source| ServerError::ListenPlain { address: place, source })?;
        let tokens = self.tokens.clone();
        let running = self.start().await?;
        let gate = Gate::new(running.server.clone(), &tokens, has_tls);
        Ok(Bound { running, gate, socket, address })
    }

    /// Serves at an address until Ctrl-C, or SIGTERM. As [`Server::bind`].
    ///
    /// Errors: as [`Server::bind`].
    pub async fn serve(self, address: &str) -> Result<(), ServerError> {
        let bound = self.bind(address).await?;
        tracing::info!(address = %bound.address(), "serving");
        bound.serve_until(interrupted()?).await;
        Ok(())
    }
}

/// Is over with Ctrl-C (SIGINT), or when whoever runs the process wants it to end (SIGTERM).
///
/// Errors: the signals cannot be followed.
pub fn interrupted() -> Result<impl Future<Output = ()>, ServerError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// The kinds that are served beside a program's.
fn built_in(which: &BuiltIn) -> Result<Vec<Kind>, ServerError> {
    let mut all = built_in_kinds();
    let name = |kind: &Kind| qualified(&kind.group, &kind.plural);
    match which {
        BuiltIn::None => all.clear(),
        BuiltIn::All => {}
        BuiltIn::Basic => all.retain(|kind| BASIC.contains(&name(kind).as_str())),
        BuiltIn::Only(names) => {
            if let Some(unknown) = names.iter().find(|wanted| !all.iter().any(|kind| name(kind) == **wanted)) {
                return Err(ServerError::NotBuiltIn(unknown.clone()));
            }
            all.retain(|kind| names.contains(&name(kind)));
        }
    }
    Ok(all)
}

/// A server that runs: custom resource definitions are followed, namespaces end, garbage is collected. All of it ends when
/// this is dropped.
pub struct Running {
    server: ApiServer,
    tasks: TaskTracker,
    stop: CancellationToken,
    _ends: DropGuard,
}

impl Running {
    /// The objects, for calls in this process. What they do is what requests over HTTP do.
    pub fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// What answers HTTP requests: a `tower::Service`. It authenticates nobody: the request's
    /// [`Caller`] is in its extensions. Without one the server itself asks; with [`Authorization::Rbac`] it is
    /// `system:anonymous`.
    pub fn service(&self) -> ApiServer {
        self.server.clone()
    }

    /// Rewrites all objects that are stored in another version than new ones are: after a program's hub has changed. Answers how
    /// many there were. It may be stopped and begun again; clients may read and write meanwhile.
    ///
    /// Errors: 400 or 500, for an object that cannot be converted (those before it were); the storage's. Cancel: safe.
    pub async fn migrate(&self) -> Result<usize, Status> {
        let mut count = 0;
        for kind in self.registry().catalog().kinds() {
            count += self.registry().migrate(kind).await?;
        }
        Ok(count)
    }

    /// Ends watches and controllers, and waits until they have ended.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

enum Socket {
    Tls(Listener),
    Plain(TcpListener),
}

/// A server that has an address.
pub struct Bound {
    running: Running,
    gate: Gate,
    socket: Socket,
    address: SocketAddr,
}

impl Bound {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server itself.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Answers requests until something happens; then answers that are on their way finish.
    pub async fn serve_until(self, until: impl Future<Output = ()>) {
        let Self { running, gate, socket, .. } = self;
        let shutdown = Shutdown::default();
        let ends = async {
            until.await;
            // Watches would hold the end up.
            running.stop.cancel();
            shutdown.drain.cancel();
        };
        match socket {
            Socket::Tls(listener) => drop(tokio::join!(listener.serve(gate, shutdown.clone()), ends)),
            Socket::Plain(socket) => drop(tokio::join!(plain::serve(socket, gate, shutdown.drain.clone()), ends)),
        }
        running.end().await;
    }
}
