//! The demo's members, and kubefold before them.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use futures::future::BoxFuture;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    app::{App, Options, ServingOptions},
    cli::{
        demo::control::{CONTEXT, Control, Members, told},
        kubeconfig,
    },
    read::Freshness,
    serve::Published,
};
use kubefold_apiserver::{
    Service,
    cluster::{self, Cluster},
    endpoint::Endpoint,
    faults::Faults,
    registry::Registry,
    sim,
};
use kubefold_wire::status::Status;

/// What the first members are called.
const NAMES: [&str; 4] = ["east", "west", "north", "south"];
/// The versions that members say they are of, in turn.
const VERSIONS: [&str; 3] = ["v1.36.3", "v1.35.6", "v1.34.9"];
/// How members share pods, and creates are divided, in turn.
const WEIGHTS: [usize; 3] = [1, 2, 1];

/// What is to be started.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Plan {
    pub(in crate::cli) members: usize,
    pub(in crate::cli) pods: usize,
    pub(in crate::cli) churn: f64,
    pub(in crate::cli) seed: u64,
    pub(in crate::cli) listen: SocketAddr,
}

/// One member, as it is to be.
#[derive(Clone, Debug)]
struct MemberPlan {
    name: String,
    weight: usize,
    version: &'static str,
    pods: usize,
    churn: f64,
    seed: u64,
}

impl Plan {
    fn members(&self) -> Vec<MemberPlan> {
        let weight = |index: usize| *WEIGHTS.get(index % WEIGHTS.len()).unwrap_or(&1);
        let whole: usize = (0..self.members).map(weight).sum();
        let member = |index: usize| MemberPlan {
            name: NAMES.get(index).map_or_else(|| format!("member-{}", index + 1), |name| (*name).to_owned()),
            weight: weight(index),
            version: VERSIONS.get(index % VERSIONS.len()).unwrap_or(&VERSIONS[0]),
            pods: (self.pods * weight(index)).div_ceil(whole),
            churn: self.churn * weight(index) as f64 / whole as f64,
            seed: self.seed.wrapping_add(index as u64),
        };
        (0..self.members).map(member).collect()
    }
}

/// All of it, running.
pub(in crate::cli) struct Fleet {
    app: App,
    names: Vec<String>,
    members: Members,
    control: Endpoint,
    folder: Folder,
    listen: SocketAddr,
    pods: usize,
}

impl Fleet {
    /// Starts the members, fills them, and starts kubefold before them.
    ///
    /// Errors: an address is taken; the temporary folder cannot be written.
    pub(in crate::cli) async fn start(
        plan: &Plan,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let folder = Folder::make()?;
        // The address first: a taken one is said before a minute of work.
        drop(tokio::net::TcpListener::bind(plan.listen).await.map_err(|error| taken(plan.listen, &error))?);
        let plans = plan.members();
        let started = plans.iter().map(|member| {
            let (member, own, stop) = (member.clone(), tasks.clone(), stop.clone());
            tasks.spawn(async move { start_member(&member, &own, &stop).await })
        });
        let (mut members, mut clusters, mut pods) = (Members::new(), "members:\n".to_owned(), 0);
        for (member, started) in plans.iter().zip(futures::future::join_all(started).await) {
            let (cluster, filled) = started.context("a member could not be made")??;
            pods += filled;
            folder.write(
                &format!("{}.kubeconfig", member.name),
                &kubeconfig::of_endpoint("member", cluster.endpoint())?,
            )?;
            let (name, weight) = (&member.name, member.weight);
            let _infallible =
                writeln!(clusters, "  - {{name: {name}, kubeconfig: {name}.kubeconfig, weight: {weight}}}");
            members.insert(name.clone(), Arc::clone(cluster.endpoint()));
        }
        folder.write("clusters.yaml", &clusters)?;
        let control = Arc::new(Control { members: members.clone() });
        let control = endpoint(control).await?;
        let app = Box::pin(App::start(options(&folder, plan.listen))).await?;
        let names = plans.into_iter().map(|member| member.name).collect();
        Ok(Self { app, names, members, control, folder, listen: plan.listen, pods })
    }

    /// The members, in order.
    pub(in crate::cli) fn names(&self) -> &[String] {
        &self.names
    }

    /// How many pods they had at first.
    pub(in crate::cli) fn pods(&self) -> usize {
        self.pods
    }

    /// Where kubefold is.
    pub(in crate::cli) fn url(&self) -> String {
        format!("https://{}", self.app.address())
    }

    /// The one that is flaky: the last of several.
    pub(in crate::cli) fn flaky(&self) -> Option<Arc<Endpoint>> {
        self.names.last().filter(|_| self.names.len() > 1).and_then(|name| self.members.get(name)).map(Arc::clone)
    }

    /// Ends kubefold alone, and starts another before the same members. Its address may be another.
    ///
    /// Errors: it does not start.
    pub(in crate::cli) async fn restart(self) -> anyhow::Result<Self> {
        let Self { app, folder, listen, .. } = self;
        app.drain().await;
        // It holds the lock of the state directory.
        drop(app);
        let app = Box::pin(App::start(options(&folder, listen))).await?;
        Ok(Self { app, folder, ..self })
    }

    /// A member's endpoint.
    pub(in crate::cli) fn member(&self, name: &str) -> Option<&Arc<Endpoint>> {
        self.members.get(name)
    }

    /// Kills a member, or revives it. Says which.
    pub(in crate::cli) async fn toggle(&self, name: &str) -> anyhow::Result<String> {
        let Some(member) = self.members.get(name) else { return Ok(String::new()) };
        if member.is_alive() {
            member.kill();
        } else {
            member.revive().await?;
        }
        Ok(told(name, member).trim_end().to_owned())
    }

    /// What clients need: the contexts of kubefold, and the one that commands to the demo use.
    pub(in crate::cli) fn kubeconfig(&self) -> anyhow::Result<String> {
        let state = self.folder.state();
        let (published, admin) = (Published::read(&state)?, Published::read_admin(&state)?);
        kubeconfig::with_endpoint(&published, &admin, CONTEXT, &self.control)
    }

    /// Ends it: kubefold first, then the members.
    pub(in crate::cli) async fn end(&self) {
        self.app.drain().await;
        let ends = self.members.values().map(|member| member.end());
        futures::future::join(futures::future::join_all(ends), self.control.end()).await;
    }
}

/// How kubefold is started before the members of a folder.
fn options(folder: &Folder, listen: SocketAddr) -> Options {
    Options {
        config: folder.path.join("clusters.yaml"),
        serving: ServingOptions::new(listen, folder.state()),
        state: None,
        state_ca: None,
        state_key_file: None,
        advertise: None,
        freshness: Freshness::default(),
        store_bytes_max: None,
    }
}

fn taken(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!(
        "cannot listen on {address} ({error}); another demo or kubefold may be running: end it, or give another --listen"
    )
}

/// A member with what it holds, and how many pods that are.
async fn start_member(
    plan: &MemberPlan,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<(Cluster, usize)> {
    let options = cluster::Options {
        name: plan.name.clone(),
        version: plan.version.to_owned(),
        seed: plan.seed,
        churn: plan.churn,
        listen: ([127, 0, 0, 1], 0).into(),
        token: token(),
    };
    let seed = sim::Seed {
        seed: plan.seed,
        pods: plan.pods,
        name: plan.name.clone(),
        version: plan.version.to_owned(),
        ..sim::Seed::default()
    };
    let (told, seeded) = tokio::sync::oneshot::channel();
    let fill = |registry: Registry| -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async move {
            // Who waits for it is below.
            let _unheard = told.send(sim::seed(&registry, &seed).await?.pods);
            Ok(())
        })
    };
    let cluster = Cluster::start(options, tasks, stop, fill).await?;
    Ok((cluster, seeded.await?))
}

fn token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

async fn endpoint(service: Arc<dyn Service>) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::start(([127, 0, 0, 1], 0).into(), token(), service, Faults::default()).await?)
}

/// A folder of this process, removed when it ends.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("kubefold-demo-{}", uuid::Uuid::new_v4().simple()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path: &Path = &self.path.join(name);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}
