//! The testbed: real clusters, the real program before them, and the real clients of both, all on this machine.
//!
//! ```ignore
//! let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
//! let fleet = Kubefold::before(bed.members()).await;
//! bed["east"].kubectl(&["create", "namespace", "shop"]).await.ok();
//! bed["west"].pause();
//! eventually(Duration::from_secs(10), async || fleet.kubectl(&["get", "ns"]).await.holds("shop")).await;
//! ```
//!
//! Everything stops with the value that started it, also in a panic; and with the test process, however that ends
//! (see [`process`]). Ports are reserved, data lives in temporary directories, and every server writes its log there;
//! `KUBEFOLD_TESTBED_KEEP=1` keeps the directories.
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
mod binaries;
mod directory;
mod etcd;
mod eventually;
mod gateway;
mod informer;
mod kubeconfig;
mod kubectl;
mod kubefold;
mod member;
mod metrics;
pub mod objects;
mod pki;
mod port;
pub mod process;
mod relay;
mod saboteur;
pub mod samples;
mod servers;

use std::ops::Index;

pub use admission::{Admission, Held, Verdict, Which};
pub use api::{Answer, Api, Watch};
pub use binaries::{binary, client};
pub use eventually::eventually;
pub use gateway::Gateway;
pub use informer::Informer;
pub use kubectl::{Kubectl, Output};
pub use kubefold::{FleetFile, Kubefold, program};
pub use member::{Member, MemberOptions};
pub use metrics::{Metrics, node_metrics, pod_metrics};
pub use port::Port;
pub use process::Process;
pub use relay::Relay;
pub use saboteur::{Kind, Lie, Saboteur};

/// Says what was measured, for whoever reads the output with `--nocapture`; nothing is asserted on it.
#[expect(clippy::print_stdout, reason = "a test's output is for people")]
pub fn figure(text: &str) {
    println!("{text}");
}

/// Several members, started together.
pub struct Testbed {
    members: Vec<Member>,
}

impl Testbed {
    /// Starts a member of each name, in parallel, and waits until all are ready.
    pub async fn start(names: &[&str], options: MemberOptions) -> Self {
        let members = names.iter().map(|name| Member::start(name, options.clone()));
        Self { members: futures::future::join_all(members).await }
    }

    /// Starts members of different make.
    pub async fn start_each(members: &[(&str, MemberOptions)]) -> Self {
        let members = members.iter().map(|(name, options)| Member::start(name, options.clone()));
        Self { members: futures::future::join_all(members).await }
    }

    /// All members, in the order in which they were named.
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

/// The member of a name.
impl Index<&str> for Testbed {
    type Output = Member;

    fn index(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.name() == name).unwrap_or_else(|| panic!("no member {name}"))
    }
}
