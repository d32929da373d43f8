//! The testbed: real clusters, the real program before them, and the real clients of both, all on this machine.
//!
//! Everything stops with the value that started it, also in a panic; and with the test process, however that ends
//! (see [`process`]). Members that tests share stop with the process alone (see [`SharedMembers`]), and so do those of a
//! [`Testbed`] that wait for another test. Ports are reserved, data lives in temporary directories, and every server writes its
//! log there; `KUBEFOLD_TESTBED_KEEP=1` keeps the directories.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    dead_code,
    unused_imports,
    reason = "test support: a failure here is a failed test, and not every test target uses all of it"
)]

mod admission;
mod api;
mod apiserver;
mod baseline;
mod binaries;
mod browser;
mod counts;
mod database;
mod directory;
mod etcd;
mod etcd_server;
mod eventually;
mod gateway;
mod informer;
mod kubeconfig;
mod kubectl;
mod kubefold;
mod mariadb;
mod member;
mod metrics;
pub mod objects;
mod pki;
mod port;
mod postgres;
pub mod process;
mod relay;
mod reuse;
mod saboteur;
mod sample_apiserver;
pub mod samples;
mod servers;
mod shared;
mod state_server;
mod terminal;
mod webhook;

use std::ops::Index;

pub use admission::{Admission, Held, Verdict, Which};
pub use api::{Answer, Api, Watch};
pub use apiserver::ApiServer;
pub use binaries::{before, binary, client};
pub use browser::Browser;
pub use counts::{Counts, Outcome, TOLERANCE_PERCENT};
pub use etcd_server::EtcdServer;
pub use eventually::eventually;
pub use gateway::Gateway;
pub use informer::Informer;
pub use kubectl::{Kubectl, Output};
pub use kubefold::{FleetFile, Kubefold, example, program};
pub use mariadb::MariadbServer;
pub use member::{Member, MemberOptions};
pub use metrics::{Metrics, node_metrics, pod_metrics};
pub use pki::{Authority, Identity};
pub use port::Port;
pub use postgres::PostgresServer;
pub use process::Process;
pub use relay::Relay;
pub use saboteur::{Kept, Kind, Lie, Place, Saboteur};
pub use sample_apiserver::SampleApiServer;
pub use shared::SharedMembers;
pub use state_server::{StateEngine, StateServer};
pub use terminal::{ScreenSize, Terminal};
pub use webhook::{Reply, Webhook, ca_bundle};

/// Says what was measured, for whoever reads the output with `--nocapture`; nothing is asserted on it.
#[expect(clippy::print_stdout, reason = "a test's output is for people")]
pub fn figure(text: &str) {
    println!("{text}");
}

/// Several members, started together.
pub struct Testbed {
    members: Members,
}

enum Members {
    /// No other test uses them at the same time.
    Own(Vec<Member>),
    /// Other tests use them too.
    Shared(&'static [Member]),
}

impl Testbed {
    /// A member of each name for this test alone, as it is after its start. It is one that a test before had, if there is
    /// one that has forgotten everything; else it is started, all in parallel.
    pub async fn start(names: &[&str], options: MemberOptions) -> Self {
        let members = names.iter().map(|name| reuse::take(name, options.clone()));
        Self { members: Members::Own(futures::future::join_all(members).await) }
    }

    /// The same of members of different make.
    pub async fn start_each(members: &[(&str, MemberOptions)]) -> Self {
        let members = members.iter().map(|(name, options)| reuse::take(name, options.clone()));
        Self { members: Members::Own(futures::future::join_all(members).await) }
    }

    /// The first of `east`, `west` and `north`, which have no controllers and which other tests use at the same time: for
    /// a test that works in a namespace of its own, gives its own names to what no namespace holds, and asserts on nothing
    /// else. Whoever stops, pauses or restores a member starts one.
    pub async fn shared(names: &[&str]) -> Self {
        Self::of(&shared::PLAIN, names).await
    }

    /// The same of members with controllers and one node each, on which pods run.
    pub async fn shared_with_workloads(names: &[&str]) -> Self {
        Self::of(&shared::WITH_WORKLOADS, names).await
    }

    /// The first of members that a file of tests shares.
    pub async fn of(shared: &'static SharedMembers, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let first = move || shared.first(&names.iter().map(String::as_str).collect::<Vec<_>>());
        // The start takes seconds, and this thread may have others to serve.
        let members = tokio::task::spawn_blocking(first).await.expect("no panic");
        Self { members: Members::Shared(members.unwrap_or_else(|cause| panic!("{cause}"))) }
    }

    /// All members, in the order in which they were named.
    pub fn members(&self) -> &[Member] {
        match &self.members {
            Members::Own(members) => members,
            Members::Shared(members) => members,
        }
    }
}

/// Keeps the members of a test that has passed for another one; shows a failed test which server of the members that it
/// shares is to blame.
impl Drop for Testbed {
    #[expect(clippy::print_stderr, reason = "a failed test's output is for people")]
    fn drop(&mut self) {
        match &mut self.members {
            Members::Own(members) if !std::thread::panicking() => reuse::give_back(members),
            Members::Own(_) => {}
            Members::Shared(members) => {
                if let Some(servers) = std::thread::panicking().then(|| shared::ended(members)).flatten() {
                    eprintln!("a server of the shared members has ended:\n{servers}");
                }
            }
        }
    }
}

/// The member of a name.
impl Index<&str> for Testbed {
    type Output = Member;

    fn index(&self, name: &str) -> &Member {
        self.members().iter().find(|member| member.name() == name).unwrap_or_else(|| panic!("no member {name}"))
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
