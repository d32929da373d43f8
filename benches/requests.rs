//! What one request costs the program, before three embedded members: gets, member views, changes of a placed object.
//!
//! `cargo bench --bench requests [-- CASE...]`, where a case is a part of the names that it prints. Requests are sent when they
//! are due, whatever the earlier ones do, and a latency begins when its request was due. The same get of the member
//! itself is measured in the same run. The program's CPU is printed for each request. `-- --test` sends a few.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

#[allow(dead_code, reason = "each bench needs a part of it")]
mod embedded;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kubefold_apiserver::registry::Registry;
use serde_json::{Value, json};
use testbed::Api;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use embedded::{Fleet, cpu_by_mode, object, put};

const MEMBERS: usize = 3;
const CONFIG_MAPS: usize = 500;
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/team-1/deployments";
/// Placed objects, which are changed in turn.
const PLACED: u32 = 20;
/// What one case is measured over, after a tenth of that has warmed it up.
const SPAN: Duration = Duration::from_secs(10);
/// Gets in one second, as the goals say.
const GETS: u32 = 2_000;
/// Changes in one second.
const CHANGES: u32 = 50;
/// Requests under way at once, each on a connection. A later one waits, and its time goes on.
const OPEN_MAX: usize = 32;

struct Case {
    name: &'static str,
    method: Method,
    path: String,
    /// Whether `{}` in the path is the number of an object, each in its turn.
    in_turn: bool,
    content_type: &'static str,
    /// Of the so many-th request.
    body: Box<dyn Fn(u32) -> String>,
    /// Requests in one second.
    rate: u32,
}

impl Case {
    fn get(name: &'static str, path: &str) -> Self {
        let body = Box::new(|_| String::new());
        let (method, path, content_type) = (Method::GET, path.into(), "application/json");
        Self { name, method, path, in_turn: false, content_type, body, rate: GETS }
    }

    fn patch(
        name: &'static str,
        query: &str,
        content_type: &'static str,
        body: impl Fn(u32) -> String + 'static,
    ) -> Self {
        let (path, body) = (format!("{DEPLOYMENTS}/web-{{}}{query}"), Box::new(body));
        Self { name, method: Method::PATCH, path, in_turn: true, content_type, body, rate: CHANGES }
    }

    /// Of whole objects, as they were read once.
    fn put(name: &'static str, read: Vec<Value>) -> Self {
        let body = move |at: u32| {
            let mut whole = read[(at % PLACED) as usize].clone();
            whole["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            whole["metadata"]["annotations"]["at"] = at.to_string().into();
            whole.to_string()
        };
        Self { method: Method::PUT, ..Self::patch(name, "", "application/json", body) }
    }

    fn request(&self, at: u32) -> Request<Bytes> {
        let path = if self.in_turn { self.path.replace("{}", &(at % PLACED).to_string()) } else { self.path.clone() };
        let request = Request::builder().method(self.method.clone()).uri(path);
        let request = request.header(header::CONTENT_TYPE, self.content_type);
        request.header(header::ACCEPT, "application/json").body((self.body)(at).into()).unwrap()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_test = arguments.iter().any(|argument| argument == "--test");
    let named: Vec<String> = arguments.into_iter().filter(|argument| !argument.starts_with('-')).collect();
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fleet = fleet().await;
        let member = fleet.members[0].api().await;
        let span = if is_test { SPAN / 100 } else { SPAN };
        let one = "/api/v1/namespaces/team-1/configmaps/c7";
        let columns = ["own us", "system us", "CPU us", "p50 ms", "p99 ms"];
        println!(
            "{:<34} {:>8} {:>8} {:>8} {:>10} {:>10}",
            "", columns[0], columns[1], columns[2], columns[3], columns[4]
        );
        let direct = Case::get("get, of the member itself", one);
        let wants = |case: &Case| named.is_empty() || named.iter().any(|name| case.name.contains(name));
        if wants(&direct) {
            measure(&member, None, &direct, span).await;
        }
        let mut placed = Vec::new();
        for at in 0..PLACED {
            placed.push(fleet.api.get(&format!("{DEPLOYMENTS}/web-{at}")).await);
        }
        for case in cases(one, placed) {
            if wants(&case) {
                measure(&fleet.api, Some(fleet.kubefold.pid()), &case, span).await;
            }
        }
    });
}

fn cases(one: &str, placed: Vec<Value>) -> Vec<Case> {
    let apply = Case::patch(
        "server-side apply, three parts",
        "?fieldManager=bench&force=true",
        "application/apply-patch+yaml",
        |at| {
            let mut whole = deployment(at % PLACED);
            whole["metadata"]["annotations"] = json!({"at": at.to_string()});
            whole.to_string()
        },
    );
    vec![
        Case::get("nothing: /livez", "/livez"),
        Case::get("get, resourceVersion=0", &format!("{one}@member-000?resourceVersion=0")),
        Case::get("get, one member's object", &format!("{one}@member-000")),
        Case::get("get, member view", &format!("/clusters/member-000{one}")),
        Case { rate: GETS / 4, ..Case::get("get, three parts", &format!("{DEPLOYMENTS}/web-0")) },
        Case::put("update, three parts", placed),
        Case::patch("merge patch, three parts", "", "application/merge-patch+json", |at| {
            json!({"metadata": {"annotations": {"at": at.to_string()}}}).to_string()
        }),
        Case::patch("strategic patch, three parts", "", "application/strategic-merge-patch+json", |at| {
            let container = json!({"name": "main", "image": format!("nginx:{at}")});
            json!({"spec": {"template": {"spec": {"containers": [container]}}}}).to_string()
        }),
        apply,
    ]
}

/// Three members, each with its own ConfigMaps and a part of each Deployment.
async fn fleet() -> Fleet {
    let fleet = Fleet::filled(MEMBERS, async |registry: &Registry, _: usize| {
        put(registry, "", "namespaces", [json!({"metadata": {"name": "team-1"}})].into_iter()).await;
        let objects = (0..CONFIG_MAPS).map(|at| object("ConfigMap", "team-1", &format!("c{at}"), 1000));
        put(registry, "", "configmaps", objects).await;
    })
    .await;
    for at in 0..PLACED {
        let made = fleet.api.create(DEPLOYMENTS, &deployment(at)).await;
        let parts = made["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap_or_default();
        assert_eq!(parts.split(',').count(), MEMBERS, "{made}");
    }
    fleet
}

fn deployment(at: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{at}"), "namespace": "team-1"},
        "spec": {
            "replicas": 6, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "nginx", "env": [{"name": "A", "value": "b"}]}]},
            },
        },
    })
}

async fn measure(api: &Api, program: Option<u32>, case: &Case, span: Duration) {
    send(api, case, span / 10, 0).await;
    let before = program.map(cpu_by_mode);
    let mut took = send(api, case, span, 1_000_000).await;
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    let each = |now: Duration, before: Duration| (now.saturating_sub(before) / took.len() as u32).as_micros();
    let [own, system] = program.zip(before).map_or([0, 0], |(pid, before)| {
        let now = cpu_by_mode(pid);
        [each(now[0], before[0]), each(now[1], before[1])]
    });
    println!("{:<34} {own:>8} {system:>8} {:>8} {:>10.2} {:>10.2}", case.name, own + system, at(50), at(99));
}

/// Sends what is due within `span`, and returns how long each took since it was due.
async fn send(api: &Api, case: &Case, span: Duration, first: u32) -> Vec<Duration> {
    let count = (span.as_secs_f64() * f64::from(case.rate)).ceil().max(3.0) as u32;
    let begun = Instant::now();
    let mut open = JoinSet::new();
    let mut took = Vec::new();
    for at in 0..count {
        let due = begun + Duration::from_secs(1) * at / case.rate;
        while let Some(next) = tokio::select! {
            biased;
            Some(one) = open.join_next(), if !open.is_empty() => Some(one),
            () = sleep_until(due), if open.len() < OPEN_MAX => None,
        } {
            took.push(next.unwrap());
        }
        let (api, request, name) = (api.clone(), case.request(first + at), case.name);
        open.spawn(async move {
            let answer = api.send(request).await.expect(name);
            assert_eq!(answer.status, StatusCode::OK, "{name}: {answer}");
            due.elapsed()
        });
    }
    took.extend(open.join_all().await);
    took
}
