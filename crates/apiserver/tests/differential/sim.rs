//! The controllers of the embedded server and those of a real cluster, given the same to do: what people see of their
//! objects in the end is alike.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kubefold_apiserver::{
    registry::Env,
    serve::{ApiServer, Settings, bootstrap, built_in},
    sim::{Options, Sim},
    storage::Memory,
};
use kubefold_wire::body::full;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use testbed::{Api, Member, MemberOptions, eventually};

const DEADLINE: Duration = Duration::from_secs(90);
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const EVENTS: &str = "/api/v1/namespaces/default/events?limit=500";
/// Sets whose letters were made up, in the order of their images.
const MADE_UP: [&str; 3] = ["SET-A", "SET-B", "SET-C"];

enum Server {
    Real(Box<Api>),
    Embedded(ApiServer),
}

impl Server {
    async fn send(&self, method: &'static str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, kind);
        match self {
            Self::Real(api) => api.send(request.body(body.into()).unwrap()).await.unwrap().json(),
            Self::Embedded(server) => {
                let answer = server.answer(request.body(full(body)).unwrap()).await;
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                serde_json::from_slice(&body).unwrap()
            }
        }
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        self.send("GET", path, &Value::Null).await["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until an object is as a test wants it.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(DEADLINE, async || {
            let object = self.send("GET", path, &Value::Null).await;
            if holds(&object) { Ok(object) } else { Err(object.to_string()) }
        })
        .await
    }

    /// Waits until there are so many objects.
    async fn count(&self, path: &str, count: usize) {
        eventually(DEADLINE, async || {
            let items = self.items(path).await;
            if items.len() == count { Ok(()) } else { Err(format!("{} of {path}", items.len())) }
        })
        .await;
    }

    /// What people see of everything that a test made.
    async fn seen(&self, paths: &[&str]) -> String {
        let mut sets = self.items(SETS).await;
        sets.sort_by_key(|set| set["spec"]["template"]["spec"]["containers"][0]["image"].to_string());
        let letters: Vec<String> = sets
            .iter()
            .map(|set| set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or_default().to_owned())
            .collect();
        let mut out = String::new();
        for path in paths {
            let mut seen: Vec<String> = self.items(path).await.iter().map(shown).collect();
            seen.sort();
            seen.dedup();
            out.push_str(&format!("{path}\n{}\n", seen.join("\n")));
        }
        for (letters, instead) in letters.iter().zip(MADE_UP) {
            out = out.replace(letters, instead);
        }
        let mut lines: Vec<&str> = out.lines().collect();
        // The letters of pods decide their order no more.
        lines.dedup();
        lines.join("\n")
    }

    /// Reasons and words of what controllers tell; those of pods are kubelets'.
    async fn told(&self, kinds: &[&str]) -> BTreeSet<String> {
        let mut sets = self.items(SETS).await;
        sets.sort_by_key(|set| set["spec"]["template"]["spec"]["containers"][0]["image"].to_string());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = self.items(EVENTS).await;
        let of = events.iter().filter(|event| kinds.contains(&text(&event["involvedObject"]["kind"]).as_str()));
        let words = of.map(|event| {
            // After ten alike, a recorder of Kubernetes' writes them into one.
            let mut message = text(&event["message"]).replace("(combined from similar events): ", "");
            for (set, instead) in sets.iter().zip(MADE_UP) {
                message = message.replace(&text(&set["metadata"]["labels"]["pod-template-hash"]), instead);
            }
            let message: Vec<String> = message.split(' ').map(without_letters).collect();
            let by = text(&event["source"]["component"]);
            format!("{} {} {by} {}", text(&event["type"]), text(&event["reason"]), message.join(" "))
        });
        words.collect()
    }
}

/// `web-SET-A-x7k2p` is `web-SET-A-LETTERS`.
fn without_letters(word: &str) -> String {
    let letters = |end: &str| end.len() == 5 && end.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    match word.rsplit_once('-') {
        Some((before, end)) if letters(end) => format!("{before}-LETTERS"),
        _ => word.to_owned(),
    }
}

/// An object without what no two clusters have alike.
fn shown(object: &Value) -> String {
    let metadata = &object["metadata"];
    let mut owners = metadata["ownerReferences"].clone();
    for owner in owners.as_array_mut().into_iter().flatten() {
        owner["uid"] = Value::Null;
    }
    let name = without_letters(metadata["name"].as_str().unwrap_or_default());
    let mut seen = json!({
        "name": name, "labels": metadata["labels"], "annotations": metadata["annotations"], "owners": owners,
        "finalizers": metadata["finalizers"],
    });
    if object["kind"] != "Pod" && object["spec"]["containers"].is_null() {
        seen["replicas"] = object["spec"]["replicas"].clone();
        let mut status = object["status"].clone();
        masked(&mut status);
        seen["status"] = status;
    } else {
        seen["phase"] = object["status"]["phase"].clone();
    }
    let mut seen: Value = serde_json::from_str(&seen.to_string()).unwrap();
    masked(&mut seen);
    sorted(&seen).to_string()
}

/// Times and UIDs say no more than that they are there.
fn masked(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(masked),
        Value::Array(items) => items.iter_mut().for_each(masked),
        Value::String(text) => {
            if text.parse::<jiff::Timestamp>().is_ok() {
                *text = "TIME".to_owned();
            } else if uuid::Uuid::try_parse(text).is_ok() {
                *text = "UID".to_owned();
            }
        }
        _ => {}
    }
}

/// The same with its fields and conditions in one order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            names.into_iter().map(|name| (name.clone(), sorted(&fields[name]))).collect()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        other => other.clone(),
    }
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}})
}

fn is_rolled(deployment: &Value, replicas: i64) -> bool {
    let status = &deployment["status"];
    let of = |name: &str| status[name].as_i64().unwrap_or(0);
    let done = status["conditions"].as_array().into_iter().flatten();
    of("availableReplicas") == replicas
        && of("updatedReplicas") == replicas
        && of("replicas") == replicas
        && of("terminatingReplicas") == 0
        && of("observedGeneration") == deployment["metadata"]["generation"].as_i64().unwrap_or(0)
        && done.into_iter().any(|condition| condition["reason"] == "NewReplicaSetAvailable")
}

/// A Deployment's life: made, given another image, more pods, the first image again, deleted.
async fn deployment(server: &Server) -> Vec<String> {
    let web = format!("{DEPLOYMENTS}/web");
    let mut seen = Vec::new();
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")});
    server.send("POST", DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": spec})).await;
    server.until(&web, |web| is_rolled(web, 2)).await;
    server.count(PODS, 2).await;
    let all = [DEPLOYMENTS, SETS, PODS];
    seen.push(server.seen(&all).await);
    for (image, replicas) in [("main:2", 2), ("main:2", 3), ("main:1", 3)] {
        let container = json!({"name": "main", "image": image});
        let spec = json!({"replicas": replicas, "template": {"spec": {"containers": [container]}}});
        server.send("PATCH", &web, &json!({"spec": spec})).await;
        server.until(&web, |web| is_rolled(web, replicas)).await;
        server.count(PODS, usize::try_from(replicas).unwrap()).await;
        seen.push(server.seen(&all).await);
    }
    let told = server.told(&["Deployment"]).await;
    // How a rollout steps depends on how fast pods are.
    let told: Vec<String> =
        told.into_iter().filter(|words| words.contains("from 0 to") || words.contains("to 0")).collect();
    seen.push(told.join("\n"));
    server.send("DELETE", &web, &json!({"propagationPolicy": "Foreground"})).await;
    for path in all {
        server.count(path, 0).await;
    }
    seen
}

async fn job(server: &Server) -> Vec<String> {
    let mut template = template("sum");
    template["spec"]["restartPolicy"] = "Never".into();
    let spec = json!({"completions": 2, "parallelism": 2, "template": template});
    server.send("POST", JOBS, &json!({"metadata": {"name": "sum"}, "spec": spec})).await;
    server.until(&format!("{JOBS}/sum"), |job| job["status"]["completionTime"].is_string()).await;
    let seen =
        vec![server.seen(&[JOBS, PODS]).await, server.told(&["Job"]).await.into_iter().collect::<Vec<_>>().join("\n")];
    server.send("DELETE", &format!("{JOBS}/sum"), &json!({"propagationPolicy": "Background"})).await;
    server.count(PODS, 0).await;
    seen
}

async fn stateful_set(server: &Server) -> Vec<String> {
    let spec = json!({
        "serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": template("db"),
    });
    server.send("POST", STATEFUL_SETS, &json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let db = server.until(&format!("{STATEFUL_SETS}/db"), |db| db["status"]["availableReplicas"] == 2).await;
    let revision = db["status"]["updateRevision"].as_str().unwrap().to_owned();
    let letters = revision.rsplit('-').next().unwrap().to_owned();
    let seen = server.seen(&[STATEFUL_SETS, PODS, REVISIONS]).await.replace(&letters, "LETTERS");
    let told = server.told(&["StatefulSet"]).await.into_iter().collect::<Vec<_>>().join("\n");
    server.send("DELETE", &format!("{STATEFUL_SETS}/db"), &json!({"propagationPolicy": "Background"})).await;
    server.count(PODS, 0).await;
    vec![seen, told]
}

/// What `proxy` says of what cannot be reached, before anybody is asked.
async fn refused_proxies(server: &Server) -> Vec<String> {
    let mut waiting = template("waiting");
    waiting["metadata"]["name"] = "waiting".into();
    waiting["spec"]["nodeSelector"] = json!({"no": "node"});
    server.send("POST", PODS, &waiting).await;
    let ports = json!([{"name": "http", "port": 80}, {"name": "admin", "port": 81}]);
    for name in ["bare", "empty"] {
        server.send("POST", SERVICES, &json!({"metadata": {"name": name}, "spec": {"ports": ports}})).await;
    }
    server.send("POST", "/api/v1/namespaces/default/endpoints", &json!({"metadata": {"name": "empty"}})).await;
    let mut said = Vec::new();
    for name in ["none", "none:80", "a:b:c:d", "ftp:waiting:80", ":80", "waiting", "http:waiting:80"] {
        said.push(format!("{PODS}/{name}/proxy/"));
    }
    for name in ["none", "none:80", "a:b:c:d", "bare", "bare:80", "bare:9", "empty:80", "empty:admin", "https:empty:no"]
    {
        said.push(format!("{SERVICES}/{name}/proxy/a?b"));
    }
    for path in &mut said {
        let status = server.send("GET", path, &Value::Null).await;
        *path = format!("{path}: {} {}: {}", status["code"], status["reason"], status["message"]);
    }
    server.send("DELETE", &format!("{PODS}/waiting"), &json!({"gracePeriodSeconds": 0})).await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_live_as_in_a_real_cluster() {
    let member = Member::start("sim", MemberOptions::with_workloads(3)).await;
    let real = Server::Real(Box::new(member.api().await));
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let embedded = Server::Embedded(ApiServer::new(registry.clone(), Settings::new("v1.36.3")));
    for node in 0..3 {
        embedded.send("POST", "/api/v1/nodes", &json!({"metadata": {"name": format!("node-{node}")}})).await;
    }
    let stop = CancellationToken::new();
    let live = Sim::new(registry, Options { pull_ms: (50, 300), ..Options::default() }).run(stop.clone());
    let compare = async {
        let mut wrong = String::new();
        let lives = async |server: &Server| {
            [deployment(server).await, job(server).await, stateful_set(server).await, refused_proxies(server).await]
        };
        let (ours, theirs) = (Box::pin(lives(&embedded)).await, Box::pin(lives(&real)).await);
        for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
            for (ours, theirs) in ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs) {
                wrong.push_str(&format!("ours   {ours}\ntheirs {theirs}\n\n"));
            }
            if ours.lines().count() != theirs.lines().count() {
                wrong.push_str(&format!("ours:\n{ours}\ntheirs:\n{theirs}\n\n"));
            }
        }
        stop.cancel();
        assert!(wrong.is_empty(), "{wrong}");
    };
    tokio::join!(Box::pin(live), Box::pin(compare));
}
