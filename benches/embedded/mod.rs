//! Embedded members of this process, and the program before them: what benches share. The program is a process of its own, so
//! that its CPU and memory can be told.

use std::{fs, sync::Arc, time::Duration};

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kubefold_apiserver::{
    endpoint::Endpoint,
    faults::Faults,
    registry::{Env, Registry},
    serve::{ApiServer, Settings, bootstrap, built_in},
    sim::TokioClock,
    storage::Memory,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::body::full;
use serde_json::{Value, json};
use testbed::{Api, FleetFile, Kubefold};
use tokio::time::Instant;

const TOKEN: &str = "bench";

pub(crate) struct Member {
    server: ApiServer,
    pub(crate) endpoint: Endpoint,
}

pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    pub(crate) kubefold: Kubefold,
    pub(crate) api: Api,
}

impl Fleet {
    pub(crate) async fn filled(count: usize, fill: impl AsyncFn(&Registry, usize)) -> Self {
        Self::started(FleetFile::default(), &[], count, fill).await
    }

    /// The same with settings and flags of the program.
    pub(crate) async fn started(
        mut file: FleetFile,
        flags: &[&str],
        count: usize,
        fill: impl AsyncFn(&Registry, usize),
    ) -> Self {
        let mut members = Vec::new();
        for at in 0..count {
            let member = Member::start(at, &fill).await;
            file = file.written(&format!("member-{at:03}"), &member.settings());
            members.push(member);
        }
        let begun = Instant::now();
        let kubefold = Kubefold::launch_with(&file, flags);
        kubefold.ready().await;
        let api = kubefold.api().await;
        let ready = begun.elapsed();
        let whole = api.request(Method::GET, "/api/v1/pods?limit=1", "").await;
        assert_eq!(whole.status, StatusCode::OK, "{whole}");
        println!(
            "{count} members: ready after {ready:.1?}, first list of pods after {:.1?}, {} MiB at most",
            begun.elapsed(),
            memory(kubefold.pid(), "VmHWM:") >> 10
        );
        let fleet = Self { members, kubefold, api };
        fleet.held("filling").await;
        fleet
    }

    /// The longest hold of a store's lock since the start.
    pub(crate) async fn held(&self, when: &str) {
        let metrics = self.api.request(Method::GET, "/metrics", "").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name) && !line.contains('{'));
            line.and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok()).unwrap_or(f64::NAN)
        };
        let (longest, count) =
            (value("kubefold_store_write_hold_longest_seconds"), value("kubefold_store_write_hold_seconds_count"));
        println!(
            "  {} members, {when}: longest hold of a store {:.1} ms so far, of {count} holds",
            self.members.len(),
            longest * 1000.0
        );
    }
}

impl Member {
    pub(crate) async fn start(at: usize, fill: impl AsyncFn(&Registry, usize)) -> Self {
        let time = Arc::new(TokioClock::starting(Timestamp::now()));
        let registry = built_in(Arc::new(Memory::default()), Env::seeded(1 + at as u64, time));
        bootstrap(&registry).await.unwrap_or_else(|status| panic!("{}", status.message));
        fill(&registry, at).await;
        let server = ApiServer::new(registry, Settings::new("v1.36.3"));
        let local = ([127, 0, 0, 1], 0).into();
        let endpoint = Endpoint::start(local, TOKEN.into(), Arc::new(server.clone()), Faults::default()).await.unwrap();
        Self { server, endpoint }
    }

    /// Its entry in `clusters.yaml`.
    pub(crate) fn settings(&self) -> String {
        let certificate = self.endpoint.certificate().replace('\n', "\n  ");
        let address = self.endpoint.address();
        let entry = format!("server: https://{address}\ntoken: {TOKEN}\ncertificateAuthorityData: |\n  {certificate}");
        entry.trim_end().to_owned()
    }

    /// The member's own API, without the program.
    pub(crate) async fn api(&self) -> Api {
        let url = format!("https://{}", self.endpoint.address());
        Api::of_server(&url, self.endpoint.certificate()).with_token(TOKEN)
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value, seed: usize) {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        let mut request = request.body(full(patch.to_string())).unwrap();
        request.extensions_mut().insert(Caller { user: format!("bench-{seed}"), groups, ..Caller::default() });
        let answer = self.server.answer(request).await;
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }
}

pub(crate) async fn put(registry: &Registry, group: &str, plural: &str, objects: impl Iterator<Item = Value> + Send) {
    let kind = registry.resource(group, "v1", plural).unwrap();
    registry.fill(&kind, objects).await.unwrap_or_else(|status| panic!("{}", status.message));
}

pub(crate) fn object(kind: &str, namespace: &str, name: &str, bytes: usize) -> Value {
    let mut object =
        json!({"kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}}});
    match kind {
        "ConfigMap" => object["data"] = json!({"x": "x".repeat(bytes)}),
        _ => object["spec"] = json!({"holderIdentity": "kubelet", "leaseDurationSeconds": 40}),
    }
    object
}

/// CPU that a process has used.
pub(crate) fn cpu(pid: u32) -> Duration {
    let [user, system] = cpu_by_mode(pid);
    user + system
}

/// CPU that a process has used itself, and that the system has used for it: sockets, files, waking threads.
pub(crate) fn cpu_by_mode(pid: u32) -> [Duration; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [11, 12].map(|at: usize| Duration::from_millis(after_name[at].parse::<u64>().unwrap() * 10))
}

/// A figure of a process's memory. Units: KiB.
pub(crate) fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
