//! A fleet in one process: embedded members, and the whole program before them as `kubefold serve` composes it.
//!
//! Everything runs on one thread under tokio's paused clock, over loopback sockets. A paused clock jumps to the next timer
//! whenever nothing is ready, though bytes may be on their way between two sockets; so a ticker keeps the next timer never
//! further away than [`TICK`]. That is what a hop of the network costs then. An hour of waiting takes no time, and a seed
//! runs the same way again, but for the bytes of keys and the real time in revisions.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use kubefold::{
    app::{App, Options},
    read::Freshness,
};
use kubefold_serving::caller::Caller;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    chance::Clock,
    client::{Authority, Client},
    kinds::KINDS,
    member::{Member, TOKEN},
};

/// The longest jump of the clock.
const TICK: Duration = Duration::from_millis(4);
/// For what must come to pass, by the virtual clock.
const SOON: Duration = Duration::from_secs(300);
/// What members are called, in the configuration's order.
pub(crate) const NAMES: [&str; 3] = ["east", "west", "north"];
/// Their shares of what is divided.
const WEIGHTS: [u32; 3] = [1, 2, 1];
/// How many clients there are.
pub(crate) const CLIENTS: usize = 4;

/// A running fleet.
pub(crate) struct World {
    clock: Clock,
    pub(crate) members: Vec<Member>,
    pub(crate) clients: Vec<Arc<Client>>,
    pub(crate) authority: Authority,
    pub(crate) tasks: TaskTracker,
    app: App,
    stop: CancellationToken,
    _folder: TempDir,
}

/// Runs a test on one thread, under a paused clock that ticks.
pub(crate) fn run(test: impl Future<Output = ()>) {
    // As `main` does once.
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        tokio::select! {
            () = test => {}
            () = tick() => {}
        }
    });
}

async fn tick() {
    loop {
        tokio::time::sleep(TICK).await;
    }
}

impl World {
    /// Starts all of it, and waits until every member is current in every kind.
    pub(crate) async fn start(seed: u64) -> Self {
        let (tasks, stop, clock) = (TaskTracker::new(), CancellationToken::new(), Clock::start());
        let mut members = Vec::new();
        for (name, number) in NAMES.into_iter().zip(0..) {
            let seed = seed.wrapping_mul(31).wrapping_add(number);
            members.push(Member::start(name, seed, clock.clone(), (&tasks, &stop)).await);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("clusters.yaml");
        std::fs::write(&config, clusters(&members)).expect("a file");
        let state_dir = folder.path().join("state");
        let app = App::start(Options {
            config,
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: state_dir.clone(),
            state_key_file: None,
            serving_certificate: None,
            client_ca: None,
            front_proxy: None,
            tokens: kubefold::authn::Sources::default(),
            names: Vec::new(),
            external_url: None,
            freshness: Freshness::default(),
            audit: None,
            metrics_listen: None,
            store_bytes_max: None,
        });
        let app = Box::pin(app).await.expect("kubefold starts");
        let authority = Authority::read(&state_dir);
        let client = |number| Arc::new(Client::new(caller(number), &authority, app.address(), &tasks));
        let clients = (0..CLIENTS).map(client).collect();
        let world = Self { clock, members, clients, authority, tasks, app, stop, _folder: folder };
        world.is_calm().await;
        world
    }

    /// The virtual time since it began; later with each call.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.app.address()
    }

    /// Waits until every member is current, for every kind.
    pub(crate) async fn is_calm(&self) {
        for kind in KINDS {
            let path = format!("/views/strict{}?limit=1", kind.path(""));
            self.eventually(async || {
                let answer = self.clients[0].get(&path).await;
                if answer.is_success() { Ok(()) } else { Err(answer.message()) }
            })
            .await;
        }
    }

    /// Asks again and again until it is so.
    pub(crate) async fn eventually<T>(&self, ask: impl AsyncFn() -> Result<T, String>) -> T {
        let deadline = Instant::now() + SOON;
        loop {
            match ask().await {
                Ok(done) => return done,
                Err(why) => assert!(Instant::now() < deadline, "not in {SOON:?}: {why}"),
            }
            self.next_tick().await;
        }
    }

    /// Lets the virtual clock go on a little.
    pub(crate) async fn next_tick(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    /// Ends it: kubefold first, then the members.
    pub(crate) async fn end(self) {
        self.app.drain().await;
        self.stop.cancel();
        for member in &self.members {
            member.endpoint.end().await;
        }
    }
}

/// Who a client is. Only `system:masters` may use the fleet view; the other group is its own.
fn caller(number: usize) -> Caller {
    let groups = vec!["system:masters".to_owned(), format!("team-{number}"), "system:authenticated".to_owned()];
    Caller { user: format!("client-{number}"), groups, ..Caller::default() }
}

/// The configuration of a fleet of these.
fn clusters(members: &[Member]) -> String {
    let mut text = "members:\n".to_owned();
    for (member, weight) in members.iter().zip(WEIGHTS) {
        let certificate = member.endpoint.certificate().replace('\n', "\n      ");
        let _infallible = writeln!(
            text,
            "  - name: {}\n    server: https://{}\n    token: {TOKEN}\n    weight: {weight}\n    \
             certificateAuthorityData: |\n      {certificate}",
            member.name,
            member.endpoint.address(),
        );
    }
    text
}
