//! Three replicas on one database, behind a load balancer, in trouble: what client-go's informers hold in the end is what the members
//! hold, and they were never told that an object is gone that nobody deleted.
//!
//! Each kind of trouble comes once, in an order that a seed decides. `scripts/soak replicas` plays other orders.

use std::{collections::BTreeSet, env, fs, str::FromStr, time::Duration};

use http::Method;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use testbed::{
    FleetFile, Informer, Kubefold, Member, MemberOptions, Relay, StateEngine, StateServer, Testbed, eventually, figure,
    objects::{CONFIG_MAPS, create_many},
};

use crate::{
    informer::{EACH, churn, settled},
    standby::key_file,
};

const SOON: Duration = Duration::from_secs(90);
/// How many informers there are, unless a soak wants more.
const INFORMERS: usize = 3;
/// Events that each of so many informers is told between two troubles.
const CALM: usize = 20;

#[derive(Clone, Copy, Debug)]
enum Trouble {
    HolderKilled,
    HolderEnds,
    HolderHangs,
    StandbyKilled,
    ConnectionsCut,
    MemberKilled,
    DatabaseKilled,
}

impl Trouble {
    /// All of them, in an order that the seed decides.
    fn all(seed: u64) -> Vec<Self> {
        let mut left = vec![
            Self::HolderKilled,
            Self::HolderEnds,
            Self::HolderHangs,
            Self::StandbyKilled,
            Self::ConnectionsCut,
            Self::MemberKilled,
            Self::DatabaseKilled,
        ];
        let (mut all, mut dice) = (Vec::new(), seed);
        while !left.is_empty() {
            // Knuth's linear congruential generator.
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.push(left.swap_remove((dice >> 33) as usize % left.len()));
        }
        all
    }
}

/// All that can fail.
struct World<'a> {
    replicas: [Kubefold; 3],
    balancer: Relay,
    server: &'a StateServer,
    member: &'a Member,
}

impl World<'_> {
    /// The place of the replica that has the state, once one has it that is not `former`.
    async fn holder(&self, former: Option<usize>) -> usize {
        eventually(SOON, async || {
            for (at, replica) in self.replicas.iter().enumerate().filter(|(at, _)| Some(*at) != former) {
                let metrics = replica.api().await.try_request(Method::GET, "/metrics", "").await;
                if metrics.is_ok_and(|metrics| metrics.to_string().contains("kubefold_state_held 1")) {
                    return Ok(at);
                }
            }
            Err("no replica has the state")
        })
        .await
    }

    /// Watches that the holder has told to list again.
    async fn expired(&self) -> u64 {
        let metrics = self.replicas[self.holder(None).await].request(Method::GET, "/metrics", "").await.to_string();
        let expired = metrics.lines().filter(|line| line.starts_with("kubefold_store_expired_watches_total{"));
        expired.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    async fn suffer(&self, trouble: Trouble) {
        let holder = self.holder(None).await;
        let (replica, began) = (&self.replicas[holder], Instant::now());
        match trouble {
            Trouble::HolderKilled => {
                replica.kill9();
                self.holder(Some(holder)).await;
                replica.relaunch();
            }
            Trouble::HolderEnds => {
                assert!(replica.terminate(SOON).await.success(), "{}", replica.log());
                self.holder(Some(holder)).await;
                replica.relaunch();
            }
            Trouble::HolderHangs => {
                replica.pause();
                self.holder(Some(holder)).await;
                replica.resume();
                assert!(!replica.ended().await.success(), "another one has the state");
                replica.relaunch();
            }
            Trouble::StandbyKilled => self.replicas[(holder + 1) % 3].relaunch(),
            Trouble::ConnectionsCut => self.balancer.sever().await,
            Trouble::MemberKilled => {
                self.member.kill();
                self.member.restart().await;
            }
            Trouble::DatabaseKilled => {
                self.server.kill();
                // Reads go on.
                let list = replica.request(Method::GET, CONFIG_MAPS, "").await;
                assert!(list.status.is_success(), "{list}");
                self.server.restart();
            }
        }
        for replica in &self.replicas {
            replica.ready().await;
        }
        figure(&format!("{trouble:?}: all replicas are ready after {:?}", began.elapsed()));
    }
}

/// Waits until all informers have been told more, so that the next trouble meets them in the middle of something.
pub(crate) async fn calm(informers: &[Informer]) {
    let told = |informer: &Informer| informer.events().len();
    let before: Vec<usize> = informers.iter().map(told).collect();
    eventually(SOON, async || {
        let now: Vec<usize> = informers.iter().map(told).collect();
        let moved = now.iter().zip(&before).all(|(now, before)| *now >= before + CALM);
        moved.then_some(()).ok_or_else(|| format!("{before:?} {now:?} {}", informers[0].errors()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_hold_what_the_members_hold_while_replicas_members_and_the_database_are_killed() {
    Box::pin(informers_hold_what_the_members_hold(StateEngine::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_hold_what_the_members_hold_while_replicas_members_and_a_mysql_are_killed() {
    Box::pin(informers_hold_what_the_members_hold(StateEngine::Mysql)).await;
}

/// A number that a soak sets.
fn number<N: FromStr>(name: &str) -> Option<N> {
    env::var(name).ok()?.parse().ok()
}

async fn informers_hold_what_the_members_hold(engine: StateEngine) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let members = [&bed["east"], &bed["west"]];
    futures::future::join_all(members.map(|member| create_many(member, "churn", EACH, 100))).await;
    let (server, folder) = (StateServer::start(engine), tempfile::tempdir().unwrap());
    let (url, key) = (folder.path().join("url"), folder.path().join("key"));
    fs::write(&url, server.url()).unwrap();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
    let file = FleetFile::default().member(members[0], 1).member(members[1], 1);
    let first = Kubefold::start_with(&file, &flags).await;
    let replicas = [first, Kubefold::launch_with(&file, &flags), Kubefold::launch_with(&file, &flags)];
    for replica in &replicas {
        replica.ready().await;
    }
    let balancer = Relay::among(&replicas.each_ref().map(Kubefold::addr)).await;
    let kubeconfig = replicas[0].kubeconfig_through(&balancer);
    let start = |at| Informer::start(&kubeconfig, None, "configmaps", at % 2 == 0);
    let mut informers: Vec<Informer> =
        (0..number("KUBEFOLD_REPLICAS_INFORMERS").unwrap_or(INFORMERS)).map(start).collect();
    for informer in &informers {
        informer.synced(SOON).await;
    }

    let seed = number("KUBEFOLD_REPLICAS_SEED").unwrap_or_default();
    let (world, until) = (World { replicas, balancer, server: &server, member: members[1] }, CancellationToken::new());
    let trouble = async {
        let some = &informers[..INFORMERS.min(informers.len())];
        calm(some).await;
        for trouble in Trouble::all(seed) {
            world.suffer(trouble).await;
            calm(some).await;
            figure(&format!("{trouble:?}: {} watches have begun anew at the holder", world.expired().await));
        }
        until.cancel();
    };
    let (east, west, ()) = tokio::join!(churn(members[0], &until), churn(members[1], &until), trouble);
    let deleted: BTreeSet<String> = east.into_iter().chain(west).collect();
    for informer in &mut informers {
        settled(informer, &members, &deleted).await;
    }
}
