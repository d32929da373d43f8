//! Three replicas on one database, before members that are embedded API servers, and what a seed makes of them: several things
//! fail at once, at any moment. In the end client-go's informers hold what the members hold, and what was stored through the fleet view is
//! in every member.
//!
//! `scripts/soak schedules` plays thousands of seeds. `KUBEFOLD_SCHEDULES_SEED=n KUBEFOLD_SCHEDULES=1` plays one.

use std::{
    collections::BTreeSet,
    env, fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::join_all;
use http::{Method, StatusCode};
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use testbed::{
    Api, ApiServer, FleetFile, Informer, Kubefold, Relay, StateEngine, StateServer, eventually, figure,
    objects::{Cluster, IN_DEFAULT, config_map},
};

use crate::{
    informer::{churn_counted, settled},
    standby::key_file,
    upgrade::Written,
};

const SOON: Duration = Duration::from_secs(120);
/// Rounds of one schedule. All is whole again between two of them.
const ROUNDS: usize = 3;
/// Schedules that are played where nobody says how many.
const SCHEDULES: u64 = 2;
/// Things that fail in one round, at most.
const TROUBLES_MAX: u64 = 3;
/// Requests to the members until something happens, at most.
const MOMENT_MAX: u64 = 400;
const REPLICAS: u64 = 3;
const MEMBERS: u64 = 2;
/// Config maps of each member when the first schedule begins.
const EACH: usize = 50;

/// Lines of a replica's log that are shown where a schedule fails.
const TOLD: usize = 60;

/// Knuth's linear congruential generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What fails. It is there again a while later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    ReplicaKilled(u64),
    ReplicaEnds(u64),
    ReplicaHangs(u64),
    MemberKilled(u64),
    DatabaseKilled,
    ConnectionsCut,
}

impl Trouble {
    fn any(dice: &mut Dice) -> Self {
        let replica = dice.below(REPLICAS);
        match dice.below(8) {
            0 | 1 => Self::ReplicaKilled(replica),
            2 => Self::ReplicaEnds(replica),
            3 | 4 => Self::ReplicaHangs(replica),
            5 => Self::MemberKilled(dice.below(MEMBERS)),
            6 => Self::DatabaseKilled,
            _ => Self::ConnectionsCut,
        }
    }

    /// What it happens to: each of them has one trouble at a time, and of the members only one.
    fn victim(self) -> u64 {
        match self {
            Self::ReplicaKilled(at) | Self::ReplicaEnds(at) | Self::ReplicaHangs(at) => at,
            Self::MemberKilled(_) => REPLICAS,
            Self::DatabaseKilled => REPLICAS + 1,
            Self::ConnectionsCut => REPLICAS + 2,
        }
    }
}

/// A trouble, when it begins, and how long it lasts. Units: requests to the members.
#[derive(Clone, Copy, Debug)]
struct Planned {
    trouble: Trouble,
    begins: u64,
    lasts: u64,
}

/// A round of a schedule.
fn round(dice: &mut Dice) -> Vec<Planned> {
    let mut all: Vec<Planned> = Vec::new();
    for _ in 0..=dice.below(TROUBLES_MAX) {
        let (trouble, begins, lasts) = (Trouble::any(dice), dice.below(MOMENT_MAX), dice.below(MOMENT_MAX));
        if all.iter().all(|planned| planned.trouble.victim() != trouble.victim()) {
            all.push(Planned { trouble, begins, lasts });
        }
    }
    all
}

struct Embedded {
    name: &'static str,
    server: Mutex<ApiServer>,
    api: Api,
}

impl Embedded {
    async fn start(name: &'static str) -> Self {
        let server = ApiServer::start(&[]).await;
        let api = server.api().await;
        for number in 0..EACH {
            api.create(IN_DEFAULT, &config_map(&format!("churn-{number:05}"), "first")).await;
        }
        Self { name, server: Mutex::new(server), api }
    }
}

impl Cluster for Embedded {
    fn name(&self) -> &str {
        self.name
    }

    async fn api(&self) -> Api {
        self.api.clone()
    }
}

/// All that can fail.
struct World {
    replicas: [Kubefold; REPLICAS as usize],
    members: [Embedded; MEMBERS as usize],
    balancer: Relay,
    server: StateServer,
    /// Requests to the members.
    asked: AtomicUsize,
}

impl World {
    /// Waits until so many requests have gone to the members.
    async fn moment(&self, requests: u64) {
        let then = self.asked.load(Ordering::Relaxed) + requests as usize;
        eventually(SOON, async || {
            let now = self.asked.load(Ordering::Relaxed);
            (now >= then).then_some(()).ok_or_else(|| format!("{now} of {then} requests"))
        })
        .await;
    }

    async fn suffer(&self, planned: Planned) {
        let Planned { trouble, begins, lasts } = planned;
        self.moment(begins).await;
        match trouble {
            Trouble::ReplicaKilled(at) => {
                let replica = &self.replicas[at as usize];
                replica.kill9();
                self.moment(lasts).await;
                replica.relaunch();
            }
            Trouble::ReplicaEnds(at) => {
                let replica = &self.replicas[at as usize];
                // However it ends: it may have lost the state just before.
                let _status = replica.terminate(SOON).await;
                self.moment(lasts).await;
                replica.relaunch();
            }
            Trouble::ReplicaHangs(at) => {
                let replica = &self.replicas[at as usize];
                replica.pause();
                self.moment(lasts).await;
                replica.resume();
            }
            Trouble::MemberKilled(at) => {
                let mut member = self.members[at as usize].server.lock().await;
                member.kill9();
                self.moment(lasts).await;
                member.restart().await;
            }
            Trouble::DatabaseKilled => {
                self.server.kill();
                self.moment(lasts).await;
                self.server.restart();
            }
            Trouble::ConnectionsCut => self.balancer.sever().await,
        }
    }

    /// Waits until all is whole. A replica that hung and found that another one has the state has ended.
    async fn heal(&self) {
        eventually(SOON, async || {
            for (at, replica) in self.replicas.iter().enumerate() {
                if !replica.is_running() {
                    replica.relaunch();
                }
                let ready = replica.api().await.try_request(Method::GET, "/readyz", "").await;
                let ready = ready.map_err(|error| format!("replica {at}: {error}"))?;
                if ready.status != StatusCode::OK {
                    return Err(format!("replica {at}: {ready}\n{}", replica.log()));
                }
            }
            Ok(())
        })
        .await;
    }

    /// Waits until nothing is left to be done in any member.
    async fn rest(&self, fleet: &Api) {
        eventually(SOON, async || {
            let status = fleet.try_request(Method::GET, "/kubefold/v1/status", "").await?;
            let unfinished = status.json()["unfinished"].take();
            unfinished.as_array().is_some_and(Vec::is_empty).then_some(()).ok_or_else(|| unfinished.to_string())
        })
        .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (at, replica) in self.replicas.iter().enumerate() {
                let log = replica.log();
                let lines: Vec<&str> = log.lines().filter(|line| !line.contains("serve::gate")).collect();
                eprintln!("replica {at}:\n{}", lines[lines.len().saturating_sub(TOLD)..].join("\n"));
            }
        }
    }
}

async fn world(folder: &std::path::Path, engine: StateEngine) -> World {
    let server = StateServer::start(engine);
    let (east, west) = tokio::join!(Embedded::start("east"), Embedded::start("west"));
    let (url, key) = (folder.join("url"), folder.join("key"));
    fs::write(&url, server.url()).unwrap();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
    let mut file = FleetFile::default();
    for member in [&east, &west] {
        file = file.entry(member.name, &member.server.lock().await.kubeconfig(), 1, "");
    }
    let first = Kubefold::start_with(&file, &flags).await;
    let replicas = [first, Kubefold::launch_with(&file, &flags), Kubefold::launch_with(&file, &flags)];
    for replica in &replicas {
        replica.ready().await;
    }
    let balancer = Relay::among(&replicas.each_ref().map(Kubefold::addr)).await;
    World { replicas, members: [east, west], balancer, server, asked: AtomicUsize::new(0) }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_at_once_members_informers_and_answers_agree() {
    Box::pin(members_informers_and_answers_agree(StateEngine::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mysql_whatever_fails_at_once_members_informers_and_answers_agree() {
    Box::pin(members_informers_and_answers_agree(StateEngine::Mysql)).await;
}

async fn members_informers_and_answers_agree(engine: StateEngine) {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path(), engine).await;
    let kubeconfig = world.replicas[0].kubeconfig_through(&world.balancer);
    let mut informers = [true, false].map(|list| Informer::start(&kubeconfig, None, "configmaps", list));
    for informer in &informers {
        informer.synced(SOON).await;
    }
    let (fleet, written) = (Api::from_kubeconfig(&kubeconfig, None).await, Written::default());
    let (first, count) = (number("KUBEFOLD_SCHEDULES_SEED"), number("KUBEFOLD_SCHEDULES"));
    let (first, count) = (first.unwrap_or_default(), count.unwrap_or(SCHEDULES));
    let mut deleted = BTreeSet::new();
    for seed in first..first + count {
        let (mut dice, until, began) = (Dice(seed), CancellationToken::new(), Instant::now());
        let rounds: Vec<_> = (0..ROUNDS).map(|_| round(&mut dice)).collect();
        figure(&format!("schedule {seed}: {rounds:?}"));
        let schedule = async {
            for round in rounds {
                join_all(round.into_iter().map(|planned| world.suffer(planned))).await;
                world.heal().await;
                written.goes_on().await;
            }
            until.cancel();
        };
        let churns = world.members.each_ref().map(|member| churn_counted(member, &until, &world.asked));
        let (churned, (), ()) = tokio::join!(join_all(churns), written.write(&fleet, &until), schedule);
        deleted.extend(churned.into_iter().flatten());
        world.rest(&fleet).await;
        let members = world.members.each_ref();
        for informer in &mut informers {
            settled(informer, &members, &deleted).await;
        }
        written.are_stored(members).await;
        figure(&format!("schedule {seed} took {:?}", began.elapsed()));
    }
}
