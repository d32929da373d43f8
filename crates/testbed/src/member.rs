//! One member: a real cluster of its own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpStream, time::Instant};

use super::{
    Answer, Api, Identity, Kubectl, Output, Process, Relay,
    baseline::Baseline,
    directory, kubeconfig,
    servers::{self, Place},
};

/// For one server to be ready. Alone it takes 3 s; many tests share few cores.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// Attempts to start a member whose port a stranger took between our look and the server's.
const START_ATTEMPTS: usize = 3;
/// For a member to be as it was when it had started.
const RESET_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at whether a server is ready.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a member is made of, beyond etcd and kube-apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberOptions {
    /// kube-controller-manager: Deployments get pods, namespaces their ServiceAccount, owners' deaths are followed.
    pub controllers: bool,
    /// kube-scheduler: pods get nodes.
    pub scheduler: bool,
    /// Nodes `node-0`, `node-1`, ... on which kwok plays kubelet: pods run, have logs, and can be exec'ed into.
    pub kwok_nodes: usize,
    /// Whether [`Member::audit`] knows who asked for what.
    pub audit: bool,
    /// More flags for kube-apiserver, each in the place of the testbed's own of its name.
    pub apiserver_args: Vec<String>,
}

impl MemberOptions {
    /// All that it takes for a Deployment to become running pods.
    pub fn with_workloads(kwok_nodes: usize) -> Self {
        Self { controllers: true, scheduler: true, kwok_nodes, ..Self::default() }
    }
}

/// A running cluster. Dropping it kills its processes and removes its data.
pub struct Member {
    servers: Mutex<Servers>,
    pub(crate) place: Place,
    /// Whether other tests use it at the same time.
    is_shared: bool,
    /// What it held when it had started, if another test may use it again.
    baseline: Option<Baseline>,
    _dir: TempDir,
}

/// Declared, and so dropped, from the outermost to the innermost.
#[derive(Default)]
struct Servers {
    kwok: Option<Process>,
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
}

impl Servers {
    fn all(&mut self) -> [&mut Option<Process>; 5] {
        [&mut self.kwok, &mut self.scheduler, &mut self.controller_manager, &mut self.apiserver, &mut self.etcd]
    }
}

/// Why a server did not come up.
struct StartError {
    message: String,
    port_taken: bool,
}

impl Member {
    /// Starts a cluster and waits until it serves; with nodes and controllers, until it could run a pod.
    ///
    /// Panics with the end of the log of the server that failed.
    pub async fn start(name: &str, options: MemberOptions) -> Self {
        for attempt in 1.. {
            let dir = directory::temporary(name);
            let place = Place::lay_out(name, options.clone(), dir.path().to_owned());
            let mut member = Self { servers: Mutex::default(), place, is_shared: false, baseline: None, _dir: dir };
            match member.boot().await {
                Ok(()) => {
                    member.keep_baseline().await;
                    return member;
                }
                Err(error) if error.port_taken && attempt < START_ATTEMPTS => {}
                Err(error) => panic!("member {name} did not start: {}", error.message),
            }
        }
        unreachable!("the last attempt returns or panics")
    }

    /// Its name, which is also the context's in its kubeconfigs.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server_url(&self) -> String {
        self.place.server_url()
    }

    /// `127.0.0.1:<port>`.
    pub fn addr(&self) -> String {
        self.place.api.addr()
    }

    /// The certificate of its authority.
    pub fn ca_pem(&self) -> String {
        self.place.authority.cert_pem()
    }

    /// Its directory: logs are `<program>.log` there, and a test may add files.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// The kubeconfig of its administrator (`system:masters`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.dir.join("admin.kubeconfig")
    }

    /// The administrator's kubeconfig, but through a relay.
    pub fn kubeconfig_through(&self, relay: &Relay) -> PathBuf {
        let (file, server) = (format!("relay-{}", relay.addr().port()), format!("https://{}", relay.addr()));
        self.place.write_kubeconfig_to(&file, "admin", Some("system:masters"), &server)
    }

    /// A kubeconfig for any user, by a client certificate.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> PathBuf {
        self.place.write_kubeconfig(&format!("user-{}", user.replace([':', '/'], "-")), user, group)
    }

    /// kubectl as its administrator.
    pub fn as_admin(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.dir())
    }

    /// A kubeconfig for whoever has a certificate, whose authority it is that signed it.
    pub fn kubeconfig_with(&self, name: &str, identity: &Identity) -> PathBuf {
        let path = self.place.dir.join(format!("with-{name}.kubeconfig"));
        kubeconfig::write(&path, self.name(), &self.server_url(), &self.ca_pem(), identity);
        path
    }

    /// A client certificate of its authority.
    pub fn identity_of(&self, user: &str, group: Option<&str>) -> Identity {
        self.place.authority.client(user, group)
    }

    /// Runs kubectl as its administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Output {
        self.as_admin().run(args).await
    }

    /// Creates or changes what a manifest describes; panics when kubectl fails.
    pub async fn apply(&self, manifest: &str) -> String {
        self.as_admin().run_with_input(&["apply", "-f", "-"], manifest).await.ok().to_owned()
    }

    /// An HTTPS client as its administrator, with connections of its own.
    pub async fn api(&self) -> Api {
        Api::from_kubeconfig(&self.kubeconfig(), None).await
    }

    /// One request over a connection of its own.
    pub async fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        self.api().await.request(method, path, body).await
    }

    /// Every request that it has answered, as audit events; with [`MemberOptions::audit`].
    pub fn audit(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.place.dir.join("audit.log")).expect("MemberOptions::audit");
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The log of a server: `kube-apiserver`, `etcd`, ...
    pub fn log(&self, program: &str) -> String {
        std::fs::read_to_string(self.place.dir.join(format!("{program}.log"))).unwrap_or_default()
    }

    /// The kube-apiserver stops in its tracks: connections stay open and new ones are accepted by the kernel, nothing is
    /// answered.
    pub fn pause(&self) {
        self.own().apiserver.as_ref().expect("a running kube-apiserver").pause();
    }

    /// It goes on where it stopped.
    pub fn resume(&self) {
        self.own().apiserver.as_ref().expect("a running kube-apiserver").resume();
    }

    /// `kill -9` for kube-apiserver and etcd. Controllers, scheduler and kwok live on and knock.
    pub fn kill(&self) {
        let mut servers = self.own();
        servers.apiserver = None;
        servers.etcd = None;
    }

    /// `kill -9` for etcd alone: its kube-apiserver lives on without data.
    pub fn stop_etcd(&self) {
        self.own().etcd = None;
    }

    /// Asks kube-apiserver to end, as a rolling upgrade does, and waits until it has.
    pub async fn terminate_apiserver(&self, deadline: Duration) {
        let mut apiserver = self.own().apiserver.take().expect("a running kube-apiserver");
        apiserver.terminate(deadline).await;
    }

    /// The id of its kube-apiserver's process.
    pub fn apiserver_id(&self) -> u32 {
        self.servers.lock().apiserver.as_ref().expect("a running kube-apiserver").id()
    }

    /// `kill -9` for kube-apiserver alone.
    pub fn stop_apiserver(&self) {
        self.own().apiserver = None;
    }

    /// Starts kube-apiserver where it was and waits until it serves. Its watch cache is empty, its data are not.
    pub async fn start_apiserver(&self) {
        self.restart().await;
    }

    /// Starts what is not running, on the same ports with the same data, and waits until all of it serves.
    pub async fn restart(&self) {
        self.assert_own();
        if let Err(error) = self.boot().await {
            panic!("member {} did not restart: {}", self.name(), error.message);
        }
    }

    /// Kills every server of the member.
    pub(crate) fn stop_all(&self) {
        self.own().all().into_iter().for_each(|server| drop(server.take()));
    }

    /// The servers, for whoever disturbs them: the test that started this member, and no other.
    fn own(&self) -> MutexGuard<'_, Servers> {
        self.assert_own();
        self.servers.lock()
    }

    /// That no other test uses it.
    #[track_caller]
    pub(crate) fn assert_own(&self) {
        assert!(!self.is_shared, "member {} is shared; a test that disturbs a member starts its own", self.name());
    }

    /// Forbids whatever would disturb other tests.
    pub(crate) fn share(&mut self) {
        self.is_shared = true;
    }

    /// The servers that have ended of themselves, each with the end of its log.
    pub(crate) fn ended(&self) -> Vec<String> {
        let mut servers = self.servers.lock();
        let started = servers.all().into_iter().flatten();
        let fate = |server: &mut Process| {
            let status = server.exited()?;
            Some(format!("{} ended: {status}\n{}", server.name(), server.tail()))
        };
        started.filter_map(fate).collect()
    }

    pub(crate) fn options(&self) -> &MemberOptions {
        &self.place.options
    }

    /// Whether another test may use it, once it is reset: all of it runs, and nothing is to be counted from its start.
    pub(crate) fn is_reusable(&self) -> bool {
        let mut servers = self.servers.lock();
        let has_data = servers.apiserver.is_some() && servers.etcd.is_some();
        let runs = |server: &mut Process| server.exited().is_none();
        self.baseline.is_some() && has_data && servers.all().into_iter().flatten().all(runs)
    }

    /// Stops all its servers in their tracks, who ask before who answers.
    pub(crate) fn freeze(&self) {
        self.servers.lock().all().into_iter().flatten().for_each(|server| server.signal(Signal::STOP));
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) {
        self.servers.lock().all().into_iter().rev().flatten().for_each(|server| server.signal(Signal::CONT));
    }

    /// Makes it what it was when it had started.
    ///
    /// Errors: why that cannot be.
    pub(crate) async fn reset(&self) -> Result<(), String> {
        let baseline = self.baseline.as_ref().ok_or("nobody knows what it was")?;
        let reset = async {
            let api = self.api().await;
            // It may have been stopped for long, and finds its connection to etcd broken.
            while !api.try_request(Method::GET, "/readyz", "").await.is_ok_and(|ready| ready.status == StatusCode::OK) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // kubectl's cache of what is served.
            std::fs::remove_dir_all(self.dir().join(".kube")).ok();
            baseline.restore(&Api::of_plain_server(&self.etcd_url()), &api).await
        };
        tokio::time::timeout(RESET_TIMEOUT, reset).await.unwrap_or_else(|_| Err(format!("no end in {RESET_TIMEOUT:?}")))
    }

    /// Without a baseline the member is for one test.
    async fn keep_baseline(&mut self) {
        let MemberOptions { controllers, audit, apiserver_args, .. } = self.options();
        if !audit && apiserver_args.is_empty() {
            match Baseline::of(&Api::of_plain_server(&self.etcd_url()), *controllers).await {
                Ok(baseline) => self.baseline = Some(baseline),
                Err(cause) => super::figure(&format!("{} is for one test: {cause}", self.name())),
            }
        }
    }

    async fn boot(&self) -> Result<(), StartError> {
        for server in self.servers.lock().all() {
            server.take_if(|server| server.exited().is_some());
        }
        self.ensure(|servers| &mut servers.etcd, Place::etcd);
        self.ready(
            |servers| &mut servers.etcd,
            async || {
                let addr = self.place.etcd_url().replace("http://", "");
                TcpStream::connect(addr).await.map(drop).map_err(|error| error.to_string())
            },
        )
        .await?;
        self.ensure(|servers| &mut servers.apiserver, Place::apiserver);
        self.ready(
            |servers| &mut servers.apiserver,
            async || {
                let answer = self.api().await.try_request(Method::GET, "/readyz", "").await?;
                (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
            },
        )
        .await?;
        self.boot_companions().await
    }

    async fn boot_companions(&self) -> Result<(), StartError> {
        let MemberOptions { controllers, scheduler, kwok_nodes, .. } = self.place.options;
        if controllers {
            self.ensure(|servers| &mut servers.controller_manager, Place::controller_manager);
        }
        if scheduler {
            self.ensure(|servers| &mut servers.scheduler, Place::scheduler);
        }
        let api = self.api().await;
        if kwok_nodes > 0 {
            self.ensure(|servers| &mut servers.kwok, Place::kwok);
            for number in 0..kwok_nodes {
                let node = servers::node(&format!("node-{number}"));
                let answer = api.request(Method::POST, "/api/v1/nodes", node.to_string()).await;
                assert!(matches!(answer.status, StatusCode::CREATED | StatusCode::CONFLICT), "{answer}");
            }
        }
        if controllers {
            self.ready(
                |servers| &mut servers.controller_manager,
                async || {
                    let path = "/api/v1/namespaces/default/serviceaccounts/default";
                    let answer = api.try_request(Method::GET, path, "").await?;
                    (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
                },
            )
            .await?;
        }
        if kwok_nodes > 0 {
            self.ready(|servers| &mut servers.kwok, async || self.nodes_ready(&api, controllers).await).await?;
        }
        Ok(())
    }

    /// All nodes are Ready and, where somebody takes taints away, have none.
    async fn nodes_ready(&self, api: &Api, untainted: bool) -> Result<(), String> {
        let nodes = api.try_request(Method::GET, "/api/v1/nodes", "").await?.json();
        let ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array();
            let ready =
                conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
            ready && !(untainted && node["spec"]["taints"].is_array())
        };
        let count = nodes["items"].as_array().map_or(0, |nodes| nodes.iter().filter(ready).count());
        let wanted = self.place.options.kwok_nodes;
        (count >= wanted).then_some(()).ok_or_else(|| format!("{count} of {wanted} nodes are ready"))
    }

    fn ensure(&self, slot: impl Fn(&mut Servers) -> &mut Option<Process>, start: impl Fn(&Place) -> Process) {
        slot(&mut self.servers.lock()).get_or_insert_with(|| start(&self.place));
    }

    /// Waits for a server; ends early when it has died.
    async fn ready(
        &self,
        slot: impl Fn(&mut Servers) -> &mut Option<Process>,
        mut probe: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<(), StartError> {
        let end = Instant::now() + READY_TIMEOUT;
        loop {
            let probed = tokio::time::timeout(Duration::from_secs(10), probe()).await;
            let Err(cause) = probed.unwrap_or_else(|_| Err("no answer in 10 s".into())) else { return Ok(()) };
            if let Some(error) = self.given_up(&slot, &cause, Instant::now() > end) {
                return Err(error);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Why there is nothing to wait for any more, if so.
    fn given_up(
        &self,
        slot: impl Fn(&mut Servers) -> &mut Option<Process>,
        cause: &str,
        late: bool,
    ) -> Option<StartError> {
        let mut servers = self.servers.lock();
        let Some(server) = slot(&mut servers) else {
            return Some(StartError { message: "it was stopped while it started".into(), port_taken: false });
        };
        let fate = match server.exited() {
            Some(status) => format!("ended: {status}"),
            None if late => format!("is not ready after {READY_TIMEOUT:?}: {cause}"),
            None => return None,
        };
        let message = format!("{} {fate}\n{}", server.name(), server.tail());
        Some(StartError { port_taken: message.contains("address already in use"), message })
    }
}
