//! A fleet in one process: embedded members, and the whole program before them as `kubefold serve` composes it.
//!
//! Everything runs on one thread under tokio's paused clock, over loopback sockets. A paused clock jumps to the next timer
//! whenever nothing is ready, though bytes may be on their way between two sockets; so a ticker keeps the next timer never
//! further away than [`TICK`]. That is what a hop of the network costs then. An hour of waiting takes no time, and a seed
//! runs the same way again, but for the bytes of keys and the real time in revisions.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use kubefold::{
    app::{App, Options, ServingOptions},
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
    /// `None` only while it restarts.
    app: Option<App>,
    stop: CancellationToken,
    folder: TempDir,
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
        std::fs::write(folder.path().join("clusters.yaml"), clusters(&members)).expect("a file");
        let app = kubefold(&folder).await;
        let authority = Authority::read(&folder.path().join("state"));
        let clients = clients(&authority, &app, &tasks);
        let world = Self { clock, members, clients, authority, tasks, app: Some(app), stop, folder };
        world.is_calm().await;
        world
    }

    /// Starts one more embedded server, which is no member.
    pub(crate) async fn another(&self, name: &'static str, seed: u64) -> Member {
        Member::start(name, seed, self.clock.clone(), (&self.tasks, &self.stop)).await
    }

    /// Ends kubefold and starts it again with its state directory.
    pub(crate) async fn restart(&mut self) {
        if let Some(app) = self.app.take() {
            app.drain().await;
        }
        let app = kubefold(&self.folder).await;
        self.clients = clients(&self.authority, &app, &self.tasks);
        self.app = Some(app);
    }

    /// The virtual time since it began; later with each call.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.app.as_ref().expect("it runs").address()
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

    /// Waits until kubefold has noticed that a member is not there.
    pub(crate) async fn is_missed(&self, member: usize) {
        let name = self.members[member].name;
        self.eventually(async || {
            let status = self.clients[0].get("/kubefold/v1/status").await.json();
            let member = status["members"].as_array().into_iter().flatten().find(|member| member["name"] == name);
            let is_missed = member.is_some_and(|member| member["reachable"] == false);
            if is_missed { Ok(()) } else { Err(format!("{name} is not missed: {member:?}")) }
        })
        .await;
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
        if let Some(app) = self.app {
            app.drain().await;
        }
        self.stop.cancel();
        for member in &self.members {
            member.endpoint.end().await;
        }
    }
}

/// Starts kubefold in a folder that has its configuration.
async fn kubefold(folder: &TempDir) -> App {
    let app = App::start(Options {
        config: folder.path().join("clusters.yaml"),
        serving: ServingOptions::new(([127, 0, 0, 1], 0).into(), folder.path().join("state")),
        state: None,
        state_ca: None,
        state_key_file: None,
        advertise: None,
        freshness: Freshness::default(),
        store_bytes_max: None,
    });
    Box::pin(app).await.expect("kubefold starts")
}

fn clients(authority: &Authority, app: &App, tasks: &TaskTracker) -> Vec<Arc<Client>> {
    (0..CLIENTS).map(|number| Arc::new(Client::new(caller(number), authority, app.address(), tasks))).collect()
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
