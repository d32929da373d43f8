//! Three real clusters with kubefold before them, to play with. `scripts/play` runs it.
//!
//! With `--once` it prints the merged list and ends: a smoke test of everything together.

use std::{fs, io, path::Path, process::ExitCode};

use tokio::signal::unix::{SignalKind, signal};

use testbed::{FleetFile, Kubefold, MemberOptions, Testbed, binary};

/// Name, weight in divisions, and what runs there.
const MEMBERS: [(&str, u32, &str); 3] = [
    ("east", 1, include_str!("east.yaml")),
    ("west", 2, include_str!("west.yaml")),
    ("north", 1, include_str!("north.yaml")),
];
const KUBECONFIG: &str = "kubefold-play.kubeconfig";

#[tokio::main]
async fn main() -> ExitCode {
    let once = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--once" => true,
        _ => {
            eprintln!("usage: scripts/play [--once]");
            return ExitCode::from(64);
        }
    };
    // An interrupt drops the play wherever it is, and with it every process and directory.
    let code = tokio::select! {
        code = play(once) => code,
        ended = interrupted() => ended.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
    };
    fs::remove_file(KUBECONFIG).ok();
    code
}

async fn play(once: bool) -> ExitCode {
    eprintln!("play: starting the members east, west and north");
    let bed = Testbed::start(&MEMBERS.map(|(name, ..)| name), MemberOptions::with_workloads(2)).await;
    let fill = MEMBERS.map(|(name, _, manifest)| fill(&bed, name, manifest));
    futures::future::join_all(fill).await;

    eprintln!("play: starting kubefold before them");
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, (name, weight, _)| file.member(&bed[name], *weight));
    let fleet = Kubefold::start(&file).await;
    let kubeconfig = std::env::current_dir().unwrap_or_default().join(KUBECONFIG);
    if let Err(error) = fs::copy(fleet.kubeconfig(), &kubeconfig) {
        eprintln!("play: {}: {error}", kubeconfig.display());
        return ExitCode::FAILURE;
    }

    let list = fleet.kubectl(&["get", "pods", "-A"]).await;
    show(&format!("$ kubectl get pods -A\n{}{}", list.stderr, list.stdout));
    if once || !list.succeeded() {
        return if list.succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    show(&next_steps(&kubeconfig, &fleet.addr()));
    let ended = fleet.ended().await;
    eprintln!("play: kubefold ended: {ended}\n{}", fleet.log());
    ExitCode::FAILURE
}

async fn fill(bed: &Testbed, name: &str, manifest: &str) {
    let member = &bed[name];
    // Objects of a custom kind are refused until its definition is established: definitions first.
    let is_definition = |document: &&str| document.contains("kind: CustomResourceDefinition");
    let (definitions, objects): (Vec<&str>, Vec<&str>) = manifest.split("\n---\n").partition(is_definition);
    if !definitions.is_empty() {
        member.apply(&definitions.join("\n---\n")).await;
        member.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]).await.ok();
    }
    member.apply(&objects.join("\n---\n")).await;
    member.kubectl(&["wait", "--for=condition=Available", "deployment", "--all", "-A", "--timeout=60s"]).await.ok();
}

fn next_steps(kubeconfig: &Path, addr: &str) -> String {
    let bin = binary("kubectl").parent().unwrap_or_else(|| Path::new("")).display().to_string();
    format!(
        "
kubefold serves https://{addr}. In another terminal:

  export KUBECONFIG={} PATH={bin}:$PATH

  kubectl get deployments -A                          # three clusters, one list
  kubectl get pods -A -l kubefold.io/cluster=west     # one of them
  kubectl get widgets -A                              # a kind that only west has
  kubectl -n shop scale deployment web@east --replicas=5
  kubectl -n shop create deployment spread --image=web:1 --replicas=8
  kubectl -n shop get pods -l app=spread              # divided 1 : 2 : 1
  kubectl --context fleet-north get pods -A           # the member's own API, untouched

Ctrl-C ends it all.",
        kubeconfig.display()
    )
}

async fn interrupted() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {},
        _ = terminate.recv() => {},
        _ = hangup.recv() => {},
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program that talks to its user")]
fn show(text: &str) {
    println!("{text}");
}
