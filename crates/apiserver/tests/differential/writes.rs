//! The embedded API server and a kube-apiserver, asked the same: creates, updates, deletes with all that can be said of
//! them, and what stands below objects. Codes and bodies agree, but for what no two servers can have alike.

use std::{sync::Arc, time::Duration};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kubefold_apiserver::{
    Caller,
    registry::Env,
    serve::{ApiServer, Settings, bootstrap, built_in},
    storage::Memory,
};
use kubefold_wire::body::full;
use serde_json::{Map, Value, json};

use testbed::{Api, Member, MemberOptions, eventually};

/// One request. `{uid}` and `{rv}` in a body are those of the object at the path; where it is not there, nothing.
pub(super) struct Step {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: Value,
}

pub(super) fn step(method: &'static str, path: &'static str, body: Value) -> Step {
    Step { method, path, body }
}

/// Within this time a defined kind is served.
const SERVED: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

fn map(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}, "finalizers": finalizers}, "data": {"a": "1"}})
}

fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "main:1"}]},
            },
        },
    })
}

fn none() -> Value {
    Value::Null
}

fn creates() -> Vec<Step> {
    vec![
        step("POST", MAPS, map("a", &[])),
        step("POST", MAPS, map("a", &[])),
        step("POST", MAPS, map("A_b", &[])),
        step("POST", MAPS, json!({"metadata": {}})),
        step("POST", MAPS, json!({"metadata": {"name": "x", "namespace": "other"}})),
        step("POST", MAPS, json!({"metadata": {"name": "x", "labels": {"a b": "c d"}}})),
        step("POST", MAPS, json!({"metadata": {"name": "x", "ownerReferences": [{"kind": "Pod"}]}})),
        step("POST", MAPS, json!({"metadata": {"name": "x", "finalizers": ["nope"]}})),
        step("POST", "/api/v1/namespaces/nope/configmaps", map("a", &[])),
        step("POST", concat!("/api/v1/namespaces/shop/configmaps", "?dryRun=All"), map("dry", &[])),
        step("POST", concat!("/api/v1/namespaces/shop/configmaps", "?dryRun=x"), map("dry", &[])),
        step("POST", concat!("/api/v1/namespaces/shop/configmaps", "?fieldValidation=x"), map("dry", &[])),
        step("GET", concat!("/api/v1/namespaces/shop/configmaps", "/dry"), none()),
        step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "a.b"}})),
        step("POST", MAPS, json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}})),
    ]
}

fn updates() -> Vec<Step> {
    const A: &str = "/api/v1/namespaces/shop/configmaps/a";
    vec![
        step(
            "PUT",
            A,
            json!({"metadata": {"name": "a", "uid": "{uid}", "resourceVersion": "{rv}"}, "data": {"a": "2"}}),
        ),
        step("PUT", A, json!({"metadata": {"name": "a", "resourceVersion": "1"}, "data": {"a": "3"}})),
        step("PUT", A, json!({"metadata": {"name": "b"}})),
        step("PUT", A, json!({"metadata": {}})),
        step("PUT", A, json!({"metadata": {"name": "a", "namespace": "other"}})),
        step("PUT", A, json!({"metadata": {"name": "a"}, "data": {"a": "4"}})),
        step("PUT", "/api/v1/namespaces/shop/configmaps/nope", map("nope", &[])),
        step("PUT", "/api/v1/namespaces/shop/configmaps/a?dryRun=All", json!({"metadata": {"name": "a"}})),
        step("GET", A, none()),
        step("POST", DEPLOYMENTS, deployment("web")),
        step("GET", "/apis/apps/v1/namespaces/shop/deployments/web/scale", none()),
        step(
            "PUT",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 5}}),
        ),
        step("GET", "/apis/apps/v1/namespaces/shop/deployments/web", none()),
        step(
            "PUT",
            "/apis/apps/v1/namespaces/shop/deployments/web/status",
            json!({
                "kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web"},
                "spec": deployment("web")["spec"], "status": {"replicas": 3, "observedGeneration": 1},
            }),
        ),
    ]
}

fn deletes() -> Vec<Step> {
    const B: &str = "/api/v1/namespaces/shop/configmaps/b";
    vec![
        step("DELETE", "/api/v1/namespaces/shop/configmaps/nope", none()),
        step("POST", MAPS, map("b", &["e2e.kubefold.io/x"])),
        step("DELETE", B, json!({"preconditions": {"uid": "no"}})),
        step("DELETE", B, json!({"preconditions": {"resourceVersion": "1"}})),
        step("DELETE", B, json!({"propagationPolicy": "Sideways"})),
        step("DELETE", B, json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
        step("DELETE", B, json!({"dryRun": ["x"]})),
        step("DELETE", B, json!({"kind": "Pod", "apiVersion": "v1"})),
        step("DELETE", B, json!({"dryRun": ["All"]})),
        step("DELETE", B, json!({"preconditions": {"uid": "{uid}", "resourceVersion": "{rv}"}})),
        step("GET", B, none()),
        step("DELETE", B, none()),
        step("POST", MAPS, map("b", &[])),
        step("PUT", B, map("b", &["e2e.kubefold.io/x", "e2e.kubefold.io/y"])),
        step("PUT", B, map("b", &[])),
        step("GET", B, none()),
        step("DELETE", "/apis/apps/v1/namespaces/shop/deployments/web?propagationPolicy=Foreground", none()),
        step("GET", "/apis/apps/v1/namespaces/shop/deployments/web", none()),
        step("POST", DEPLOYMENTS, deployment("kept")),
        step("DELETE", "/apis/apps/v1/namespaces/shop/deployments/kept", json!({"orphanDependents": true})),
        step("POST", DEPLOYMENTS, deployment("gone")),
        step("DELETE", "/apis/apps/v1/namespaces/shop/deployments/gone", json!({"orphanDependents": false})),
        step("POST", DEPLOYMENTS, deployment("also-gone")),
        step("DELETE", "/apis/apps/v1/namespaces/shop/deployments/also-gone", none()),
        step("POST", MAPS, map("c", &[])),
        step("POST", MAPS, map("d", &["e2e.kubefold.io/x"])),
        step("DELETE", concat!("/api/v1/namespaces/shop/configmaps", "?labelSelector=app+in+(c,d)"), none()),
        step("GET", concat!("/api/v1/namespaces/shop/configmaps", "?labelSelector=app+in+(c,d)"), none()),
        step("DELETE", "/api/v1/namespaces/default", none()),
    ]
}

fn pods() -> Vec<Step> {
    vec![
        step("POST", PODS, pod("free", "")),
        step("DELETE", "/api/v1/namespaces/shop/pods/free", none()),
        step("POST", PODS, pod("bound", "")),
        step(
            "POST",
            "/api/v1/namespaces/shop/pods/bound/binding",
            json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}),
        ),
        step(
            "POST",
            "/api/v1/namespaces/shop/pods/bound/binding",
            json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n2"}}),
        ),
        step("GET", "/api/v1/namespaces/shop/pods/bound", none()),
        step("DELETE", "/api/v1/namespaces/shop/pods/bound", none()),
        step("DELETE", "/api/v1/namespaces/shop/pods/bound?gracePeriodSeconds=60", none()),
        step("DELETE", "/api/v1/namespaces/shop/pods/bound?gracePeriodSeconds=10", none()),
        step("DELETE", "/api/v1/namespaces/shop/pods/bound?gracePeriodSeconds=0", none()),
        step("GET", "/api/v1/namespaces/shop/pods/bound", none()),
        step("POST", PODS, pod("evicted", "")),
        step("POST", "/api/v1/namespaces/shop/pods/evicted/eviction", json!({"metadata": {"name": "evicted"}})),
        step("GET", "/api/v1/namespaces/shop/pods/evicted", none()),
    ]
}

fn namespaces() -> Vec<Step> {
    vec![
        step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "going"}})),
        step("DELETE", "/api/v1/namespaces/going", none()),
        step("GET", "/api/v1/namespaces/going", none()),
        step("POST", "/api/v1/namespaces/going/configmaps", map("a", &[])),
        step("DELETE", "/api/v1/namespaces/going", none()),
        step(
            "PUT",
            "/api/v1/namespaces/going/finalize",
            json!({"metadata": {"name": "going"}, "spec": {"finalizers": []}}),
        ),
        step("GET", "/api/v1/namespaces/going", none()),
    ]
}

#[tokio::test]
async fn writes_and_deletes_come_out_as_at_a_kube_apiserver() {
    let east = Member::start("east", MemberOptions::default()).await;
    let real = Server::Real(Box::new(east.api().await));
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let embedded = Server::Embedded(ApiServer::new(registry, Settings::new("v1.36.2")));
    for server in [&real, &embedded] {
        server.ask(&step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "shop"}}))).await;
        let accounts = "/api/v1/namespaces/shop/serviceaccounts";
        server.ask(&step("POST", accounts, json!({"metadata": {"name": "default"}}))).await;
    }
    let mut wrong = String::new();
    for step in creates().iter().chain(&updates()).chain(&deletes()).chain(&pods()).chain(&namespaces()) {
        let (said, told) = (real.ask(step).await, embedded.ask(step).await);
        if said != told {
            wrong.push_str(&format!(
                "{} {} {}\n  said {said:?}\n  told {told:?}\n\n",
                step.method, step.path, step.body
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

pub(super) enum Server {
    Real(Box<Api>),
    Embedded(ApiServer),
    /// One of them, which somebody asks.
    Asked(Box<Self>, Caller),
}

impl Server {
    /// For messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Real(_) => "the real server",
            Self::Embedded(_) => "the embedded server",
            Self::Asked(server, _) => server.name(),
        }
    }

    /// The code, and the body without what differs between any two servers.
    async fn ask(&self, step: &Step) -> (u16, String) {
        let (code, body) = self.answer(step).await;
        (code, body.to_string())
    }

    /// The same with the body as a tree: the order of fields is none of its.
    pub(super) async fn answer(&self, step: &Step) -> (u16, Value) {
        let (code, body) = self.raw(step).await;
        (code, masked(&body))
    }

    /// Makes a definition, and waits until its kind is served at the path.
    pub(super) async fn define(&self, definition: &Value, path: &str) {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = self.raw(&step("POST", definitions, definition.clone())).await;
        assert_eq!(made.0, 201, "{}", made.1);
        eventually(SERVED, async || match self.send("GET", path, String::new()).await {
            (200, _) => Ok(()),
            (code, _) => Err(code),
        })
        .await;
    }

    /// The code and the whole body.
    pub(super) async fn raw(&self, step: &Step) -> (u16, Value) {
        let path = step.path.split('?').next().unwrap();
        let mut body = if step.body.is_null() { String::new() } else { step.body.to_string() };
        if body.contains("{uid}") {
            let (_, there) = self.send("GET", path, String::new()).await;
            let text = |at: &str| there.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
            body = body.replace("{uid}", &text("/metadata/uid")).replace("{rv}", &text("/metadata/resourceVersion"));
        }
        self.send(step.method, step.path, body).await
    }

    pub(super) async fn send(&self, method: &'static str, path: &str, body: String) -> (u16, Value) {
        let (code, body) = self.bytes(method, path, body).await;
        // For a path that is not there, a kube-apiserver has no JSON.
        let plain = || json!({"code": code, "plain": String::from_utf8_lossy(&body)});
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| plain()))
    }

    /// The whole text of an answer, such as the lines of a watch that ends by itself.
    pub(super) async fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes("GET", path, String::new()).await.1.to_vec()).unwrap()
    }

    async fn bytes(&self, method: &'static str, path: &str, body: String) -> (u16, bytes::Bytes) {
        let (code, _, body) = self.whole(method, path, body).await;
        (code, body)
    }

    /// The code, the warnings and the body.
    pub(super) async fn whole(
        &self,
        method: &'static str,
        path: &str,
        body: String,
    ) -> (u16, Vec<String>, bytes::Bytes) {
        let warnings = |headers: &http::HeaderMap| {
            let all = headers.get_all(header::WARNING).iter();
            all.map(|value| value.to_str().unwrap().to_owned()).collect()
        };
        let (server, caller) = match self {
            Self::Asked(server, caller) => (&**server, Some(caller)),
            server => (server, None),
        };
        let mut request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(path)
            .header(header::CONTENT_TYPE, content_type(method, path))
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "e2e/1");
        match server {
            Self::Real(api) => {
                if let Some(caller) = caller {
                    request = request.header("impersonate-user", &caller.user);
                }
                let answer = api.send(request.body(body.into()).unwrap()).await.unwrap();
                (answer.status.as_u16(), warnings(&answer.headers), answer.body)
            }
            Self::Embedded(server) => {
                if let Some(caller) = caller {
                    request = request.extension(caller.clone());
                }
                let answer = server.answer(request.body(full(body)).unwrap()).await;
                let (code, warnings) = (answer.status().as_u16(), warnings(answer.headers()));
                (code, warnings, answer.into_body().collect().await.unwrap().to_bytes())
            }
            Self::Asked(..) => panic!("somebody asks in somebody's name"),
        }
    }
}

/// Patches are merged, but for those of an applier.
fn content_type(method: &str, path: &str) -> &'static str {
    match method {
        "PATCH" if path.contains("fieldManager=applier") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    }
}

/// The same without what two servers never have alike: UIDs, times, revisions, and those in sentences.
pub(super) fn masked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (name, value) in fields {
                let value = match name.as_str() {
                    "uid" | "resourceVersion" | "time" if value.is_string() => format!("<{name}>").into(),
                    name if name.ends_with("Timestamp") || name.ends_with("Time") => {
                        if value.is_null() {
                            Value::Null
                        } else {
                            "<time>".into()
                        }
                    }
                    // A kube-apiserver says so in lists of custom resources.
                    "continue" if value == "" => continue,
                    // Whose number `/scale` set is told in another way: docs/embedded.md.
                    "managedFields" if fields.contains_key("generation") => continue,
                    "name" if value.as_str().is_some_and(|name| name.starts_with("kube-api-access-")) => {
                        "<name>".into()
                    }
                    "message" => sentence(value.as_str().unwrap_or_default()).into(),
                    _ => masked(value),
                };
                out.insert(name.clone(), value);
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(items.iter().map(masked).collect()),
        other => other.clone(),
    }
}

/// Numbers and UIDs of a sentence as one sign.
fn sentence(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_uid = bare.len() == 36 && bare.matches('-').count() == 4;
            let is_number = bare.len() > 1 && bare.bytes().all(|byte| byte.is_ascii_digit());
            if is_uid || is_number { word.replace(bare, "#") } else { word.to_owned() }
        })
        .collect::<Vec<_>>()
        .join(" ")
}
