//! The fleet that a run brings along: embedded members, and a kubefold before them, as of `kubefold demo`.

use anyhow::Context;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::cli::demo::fleet::{Fleet, Plan};

/// Starts members without objects.
///
/// Errors: as of [`Fleet::start`].
pub(super) async fn start(members: u16, tasks: &TaskTracker, stop: &CancellationToken) -> anyhow::Result<Fleet> {
    let listen = ([127, 0, 0, 1], 0).into();
    let plan = Plan { members: usize::from(members), pods: 0, churn: 0.0, seed: 1, listen };
    Fleet::start(&plan, tasks, stop).await
}

/// How clients of the fleet are made.
///
/// Errors: what it published cannot be read.
pub(super) async fn config(fleet: &Fleet) -> anyhow::Result<Config> {
    let read = Kubeconfig::from_yaml(&fleet.kubeconfig()?).context("cannot read the fleet's own kubeconfig")?;
    Ok(Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
}
