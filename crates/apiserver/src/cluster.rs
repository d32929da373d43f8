//! A whole cluster in one process: built-in kinds over memory, served over TLS, with controllers that make it live.

use std::{net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission,
    definitions::Definitions,
    endpoint::{Endpoint, EndpointError},
    faults::Faults,
    registry::{Env, Registry},
    serve::{ApiServer, Settings, bootstrap, built_in},
    sim::{self, Churn, Containers, Sim, TokioClock, churn, metrics_kinds},
    storage::Memory,
    typed::KindError,
};
use kubefold_wire::status::Status;

/// What a cluster is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its pods say that they are in.
    pub name: String,
    /// What it says of itself, such as `v1.36.3`.
    pub version: String,
    /// The same seed makes the same names and UIDs.
    pub seed: u64,
    /// How many things happen in it each second, beside what clients do.
    pub churn: f64,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What clients log in with.
    pub token: String,
}

/// A running cluster.
pub struct Cluster {
    registry: Registry,
    endpoint: Arc<Endpoint>,
}

impl Cluster {
    /// Starts one. `fill` puts objects into it before anything runs.
    ///
    /// Errors: the address is taken; what is filled in is refused.
    pub async fn start(
        options: Options,
        tasks: &TaskTracker,
        stop: &CancellationToken,
        fill: impl FnOnce(Registry) -> BoxFuture<'static, Result<(), Status>>,
    ) -> Result<Self, ClusterError> {
        let clock = Arc::new(TokioClock::starting(Timestamp::now()));
        let env = Env::seeded(options.seed, clock);
        let registry = built_in(Arc::new(Memory::default()), env);
        fill(registry.clone()).await?;
        bootstrap(&registry).await?;
        let admitter = admission::start(&registry, tasks, stop).await?;
        let registry = match &admitter {
            Some(admitter) => registry.admitted_by(Arc::new(admitter.clone())),
            None => registry,
        };
        if let Some(definitions) = Definitions::new(registry.clone()) {
            tasks.spawn(definitions.follow_until(stop.clone()));
        }
        let containers = Containers::new(registry.clone(), &options.name);
        metrics_kinds(&registry, &containers)?.into_iter().for_each(|kind| registry.serve_kind(Arc::new(kind)));
        let settings =
            Settings { drain: stop.clone(), admitter, pods: Arc::new(containers), ..Settings::new(&options.version) };
        let server = ApiServer::new(registry.clone(), settings);
        let endpoint = Endpoint::start(options.listen, options.token, Arc::new(server), Faults::default()).await?;
        let sim = Sim::new(registry.clone(), sim::Options { seed: options.seed, ..sim::Options::default() });
        tasks.spawn(sim.run(stop.clone()));
        let busy = Churn { seed: options.seed, per_second: options.churn };
        tasks.spawn(churn(registry.clone(), busy, stop.clone()));
        Ok(Self { registry, endpoint: Arc::new(endpoint) })
    }

    /// Its objects.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where it is reached.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It cannot be reached.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// It does not take what it is filled with.
    #[error("the cluster cannot be filled: {}", .0.message)]
    Fill(Status),
    /// The kinds of its metrics are not as Kubernetes wants them.
    #[error("the kinds of metrics cannot be served: {0}")]
    Metrics(#[from] KindError),
}

impl From<Status> for ClusterError {
    fn from(status: Status) -> Self {
        Self::Fill(status)
    }
}
