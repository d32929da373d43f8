//! `kubefold demo`: a fleet of embedded members with kubefold before them, in one process, to play with or to load.

mod control;
pub(in crate::cli) mod fleet;
mod look;
mod weather;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::{keys::Keys, paint, print},
    observe::{self, LogFormat},
};

use fleet::{Fleet, Plan};

/// Where clients find the demo, in the folder that it was started in.
const KUBECONFIG: &str = "kubefold-demo.kubeconfig";
/// The first line of that file: another file of its name is not overwritten.
const MARK: &str = "# Written by \"kubefold demo\", which removes it when it ends.\n";
/// What is logged where `RUST_LOG` says nothing: a person at the terminal plays, and does not operate.
const LOGGED: &str = "error";
/// More members than this is a mistake of the flag.
const MEMBERS_MAX: usize = 200;
/// More objects than this do not fit a machine.
const PODS_MAX: usize = 2_000_000;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Demo {
    #[command(subcommand)]
    command: Option<control::Command>,
    /// The number of members.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=MEMBERS_MAX as i64))]
    members: u16,
    /// About how many pods all members have together.
    #[arg(long, value_name = "M", default_value_t = 400, value_parser = pods)]
    pods: usize,
    /// How many changes happen each second: rollouts, restarts, jobs.
    #[arg(long, value_name = "R", default_value_t = 2.0, value_parser = churn)]
    churn: f64,
    /// The same seed makes the same fleet.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The address and port to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// No member is flaky.
    #[arg(long)]
    calm: bool,
    /// Print the first merged list, and exit.
    #[arg(long)]
    once: bool,
}

pub(super) fn run(flags: Demo) -> anyhow::Result<()> {
    if let Some(command) = &flags.command {
        return control::send(command, Path::new(KUBECONFIG));
    }
    observe::init(LogFormat::Text, LOGGED);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(play(flags)))
}

async fn play(flags: Demo) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let mut ended = std::pin::pin!(ended);
    let (begun, file) = (Instant::now(), Kubeconfig::claim(std::env::current_dir()?.join(KUBECONFIG))?);
    let plan = Plan {
        members: usize::from(flags.members),
        pods: flags.pods,
        churn: flags.churn,
        seed: flags.seed,
        listen: flags.listen,
    };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let starting = Box::pin(Fleet::start(&plan, &tasks, &stop));
    let fleet = tokio::select! {
        fleet = starting => fleet?,
        () = &mut ended => return Ok(()),
    };
    let result = tokio::select! {
        result = Box::pin(show(&flags, &fleet, &file, begun)) => result,
        () = &mut ended => Ok(()),
    };
    stop.cancel();
    tasks.close();
    fleet.end().await;
    tasks.wait().await;
    result
}

/// Shows the fleet, and follows keys until one of them ends it.
async fn show(flags: &Demo, fleet: &Fleet, file: &Kubeconfig, begun: Instant) -> anyhow::Result<()> {
    file.write(&fleet.kubeconfig()?)?;
    let list = look::pods(&file.path).await?;
    print(&format!(
        "{} clusters with {} pods, one API: {} (after {:.1} s)\n\n$ kubectl get pods -A\n{list}",
        fleet.names().len(),
        fleet.pods(),
        fleet.url(),
        begun.elapsed().as_secs_f64(),
    ))?;
    if flags.once {
        return Ok(());
    }
    let flaky = fleet.flaky().filter(|_| !flags.calm);
    print(&next_steps(&file.path, fleet.names(), flaky.is_some()))?;
    let weather = async {
        match flaky {
            Some(flaky) => weather::blow(flaky, flags.seed).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        result = follow_keys(fleet) => result,
        () = weather => Ok(()),
    }
}

async fn follow_keys(fleet: &Fleet) -> anyhow::Result<()> {
    let Some(mut keys) = Keys::of_terminal()? else {
        return std::future::pending().await;
    };
    let names = fleet.names();
    while let Some(key) = keys.next().await {
        let member = char::to_digit(key, 10).and_then(|digit| names.get((digit as usize).checked_sub(1)?));
        match (key, member) {
            ('q', _) => return Ok(()),
            (_, Some(name)) => {
                let said = fleet.toggle(name).await?;
                print(&format!("{}\n", paint::paint(&said, paint::Paint::Odd, paint::on_stdout())))?;
            }
            _ => print(&format!("{}\n", keys_help(names)))?,
        }
    }
    Ok(())
}

fn next_steps(kubeconfig: &Path, names: &[String], has_flaky: bool) -> String {
    let at = |index: usize| names.get(index).or_else(|| names.first()).map_or("east", String::as_str);
    let (second, last) = (at(1), names.last().map_or("east", String::as_str));
    let flaky = if has_flaky && names.len() > 1 {
        format!("\n{last} is flaky: from time to time it is slow, refuses requests or is down. Lists stay complete.\n")
    } else {
        String::new()
    };
    format!(
        "
In another terminal, in this folder:

  export KUBECONFIG={}

  kubectl get deployments -A                             # all clusters, one list
  kubectl get pods -A -l kubefold.io/cluster={second}         # one of them
  kubectl -n shop create deployment web --image=nginx --replicas=8
  kubectl -n shop get pods -l app=web                    # divided across the clusters
  kubectl -n shop scale deployment web --replicas=14
  kubectl -n shop rollout status deployment web          # one object
  kubectl -n shop get pods -w                            # leave it running, and:
  kubefold demo kill {second}                                 # lists still work, with a Warning that names {second}
  kubectl get nodes
  kubefold demo revive {second}                               # no watch was closed, no pod was lost
  kubectl --context fleet-{last} get pods -A               # a member's own API, untouched
{flaky}
{}
",
        kubeconfig.display(),
        keys_help(names)
    )
}

fn keys_help(names: &[String]) -> String {
    let keys: Vec<String> = names.iter().take(9).zip(1..).map(|(name, key)| format!("{key} {name}")).collect();
    format!("Keys: {} (kill it, or start it again); q or Ctrl-C stops the demo.", keys.join(", "))
}

/// The demo's kubeconfig in the current folder, removed when it ends.
struct Kubeconfig {
    path: PathBuf,
}

impl Kubeconfig {
    /// Errors: the file is there, and not a demo's.
    fn claim(path: PathBuf) -> anyhow::Result<Self> {
        match std::fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(MARK) => bail!(
                "{} exists and was not written by a demo; move it, or start the demo in another folder",
                path.display()
            ),
            _ => Ok(Self { path }),
        }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        use std::{io::Write as _, os::unix::fs::OpenOptionsExt};
        let cannot = || format!("cannot write {}; start the demo in a folder where you may write", self.path.display());
        // It logs in: nobody else is to read it, also where a looser file was left.
        drop(std::fs::remove_file(&self.path));
        let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        let mut file = open.with_context(cannot)?;
        file.write_all(MARK.as_bytes()).and_then(|()| file.write_all(text.as_bytes())).with_context(cannot)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

fn pods(text: &str) -> Result<usize, FlagError> {
    let count = text.parse().ok().filter(|count| (1..=PODS_MAX).contains(count));
    count.ok_or(FlagError::Pods)
}

fn churn(text: &str) -> Result<f64, FlagError> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.0..=10_000.0).contains(rate));
    rate.ok_or(FlagError::Churn)
}

/// How the value of a flag is to be written.
#[derive(Debug, thiserror::Error)]
enum FlagError {
    #[error("write a number from 1 to {PODS_MAX}")]
    Pods,
    #[error("write how many a second, from 0 to 10000")]
    Churn,
}
