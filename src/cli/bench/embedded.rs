//! The fleet that a run brings along: embedded members, and a kubefold before them, as of `kubefold demo`.

use std::time::Duration;

use anyhow::Context;
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::cli::{
    bench::target::Target,
    demo::fleet::{Fleet, Plan},
};

/// How long kubefold may take to read what the members serve.
const READY: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Starts members without objects.
///
/// Errors: as of [`Fleet::start`].
pub(super) async fn start(members: u16, tasks: &TaskTracker, stop: &CancellationToken) -> anyhow::Result<Fleet> {
    let listen = ([127, 0, 0, 1], 0).into();
    let plan = Plan { members: usize::from(members), pods: 0, churn: 0.0, seed: 1, listen };
    Fleet::start(&plan, tasks, stop).await
}

/// Connects to the fleet as soon as it is ready: before, it refuses with 503.
///
/// Errors: what it published cannot be read; it is not ready after a minute.
pub(super) async fn open(fleet: &Fleet, clients: u16) -> anyhow::Result<Target> {
    let read = Kubeconfig::from_yaml(&fleet.kubeconfig()?).context("cannot read the fleet's own kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let (client, ends) = (Client::try_from(config.clone())?, Instant::now() + READY);
    while let Err(error) = client.request_text(Request::get("/readyz").body(Vec::new())?).await {
        if Instant::now() > ends {
            return Err(error).context("the embedded kubefold is not ready after a minute; is the machine overloaded?");
        }
        sleep(ASK_AGAIN).await;
    }
    Target::open(config, clients).await
}
