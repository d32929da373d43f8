//! Patches, applies and managed fields: what a kube-apiserver makes of a script of writes is what
//! `kubefold_apiserver::patch` makes of them, write by write.
//!
//! The script speaks HTTP only, so that it runs against any API server. `KUBEFOLD_RECORD=1` writes what the
//! kube-apiserver did to `tests/differential/patch/recorded.json`, which unit tests hold without a cluster.

mod judge;
mod script;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kubefold_apiserver::{
    kinds::{Allocator, built_in},
    registry::{Env, Registry, SystemClock},
    serve::{ApiServer, Settings},
    storage::Memory,
};
use kubefold_wire::body::full;
use serde_json::{Value, json};

use judge::{Recording, Write};
use script::{Body, Step};
use testbed::{Api, Member, MemberOptions, eventually, samples::namespace};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential/patch/recorded.json");

#[tokio::test]
async fn patches_and_applies_come_out_as_at_a_kube_apiserver() {
    let east = Member::start("east", MemberOptions::default()).await;
    namespace(&east, "shop").await;
    let recording = play(&east.api().await).await;
    if std::env::var_os("KUBEFOLD_RECORD").is_some() {
        std::fs::write(RECORDED, recording.to_text()).unwrap();
    }
    let mut wrong = String::new();
    for write in &recording.writes {
        if let Err(why) = judge::judge(&recording, write) {
            wrong.push_str(&format!("{}: {} {}: {why}\n\n", write.what, write.method, write.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs the script against an API server.
async fn play(api: &Api) -> Recording {
    let definitions = script::definitions();
    for definition in &definitions {
        api.create(DEFINITIONS, definition).await;
    }
    for list in script::CUSTOM {
        eventually(Duration::from_secs(30), async || {
            let served = api.request(Method::GET, list, "").await;
            if served.status.is_success() { Ok(()) } else { Err(served) }
        })
        .await;
    }
    let mut writes = Vec::new();
    for step in script::steps() {
        writes.push(perform(api, step).await);
    }
    Recording { definitions, writes }
}

async fn perform(server: &impl Server, step: Step) -> Write {
    let object = step.path.split('?').next().unwrap_or_default().to_owned();
    let whole = object.trim_end_matches("/status").trim_end_matches("/scale").to_owned();
    let before = match step.method {
        "POST" => Value::Null,
        _ => {
            let (code, found) = server.ask(read(&whole)).await;
            if code == 404 { Value::Null } else { found }
        }
    };
    let body = match step.body {
        Body::Json(body) => body.to_string(),
        Body::Text(body) => body,
        Body::Changed(change) => {
            let mut body = before.clone();
            change(&mut body);
            body.to_string()
        }
    };
    let request = Request::builder()
        .method(step.method)
        .uri(&step.path)
        .header(header::CONTENT_TYPE, step.content_type)
        .header(header::USER_AGENT, step.agent)
        .header(header::ACCEPT, "application/json")
        .body(body.clone().into())
        .unwrap();
    let (code, mut answer) = server.ask(request).await;
    if code < 300 && object.ends_with("/scale") {
        // Of a scale, the object it is of.
        (_, answer) = server.ask(read(&whole)).await;
    }
    Write {
        what: step.what.to_owned(),
        method: step.method.to_owned(),
        path: step.path,
        agent: step.agent.to_owned(),
        content_type: step.content_type.to_owned(),
        body,
        filled: step.filled,
        before,
        code,
        answer,
    }
}

fn read(path: &str) -> Request<Bytes> {
    Request::get(path).header(header::ACCEPT, "application/json").body(Bytes::new()).unwrap()
}

/// What the script is sent to.
trait Server {
    /// Answers the code and the document.
    async fn ask(&self, request: Request<Bytes>) -> (u16, Value);
}

impl Server for Api {
    async fn ask(&self, request: Request<Bytes>) -> (u16, Value) {
        let answer = self.send(request).await.unwrap();
        (answer.status.as_u16(), answer.json())
    }
}

impl Server for ApiServer {
    async fn ask(&self, request: Request<Bytes>) -> (u16, Value) {
        let (parts, body) = self.answer(request.map(full)).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), serde_json::from_slice(&body).unwrap())
    }
}

/// Where the embedded server does not yet answer alike, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("entries that are none are as if not sent", "an empty list in a body is dropped before it is looked at"),
    ("no entries are as if not sent", "what that left"),
    ("a pod", "`serviceAccount`, the old name of `serviceAccountName`, is set after owners are told"),
    ("its image", "as of the pod"),
    ("its status by a kubelet", "as of the pod"),
    ("one condition of many", "as of the pod"),
    ("labels by an apply", "as of the pod"),
    ("an item without its name", "names of containers are not validated"),
];

/// The same script, against the embedded server: its answers are those that the kube-apiserver gave. Custom resources
/// are left out, which are the affair of their definitions, and `/scale`, by which it does not say who owns the number.
#[tokio::test]
async fn an_embedded_server_answers_the_same_writes_alike() {
    let types = kubefold_apiserver::schema::builtin();
    let env = Env::seeded(7, Arc::new(SystemClock));
    let allocator = Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 16);
    let kinds = built_in(&types).into_iter().map(Arc::new);
    let registry = Registry::new(Arc::new(Memory::default()), env, allocator, kinds);
    let server = ApiServer::new(registry, Settings::new("v1.36.3"));
    for (path, kind, name) in [
        ("/api/v1/namespaces", "Namespace", "shop"),
        ("/api/v1/namespaces/shop/serviceaccounts", "ServiceAccount", "default"),
    ] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let (code, answer) = server.ask(request.body(object.to_string().into()).unwrap()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let recording = Recording::of(include_str!("../../tests/differential/patch/recorded.json"));
    let mut wrong = String::new();
    let mut steps: Vec<Step> = script::steps();
    assert_eq!(steps.len(), recording.writes.len(), "the recording is of another script");
    for (step, recorded) in steps.drain(..).zip(&recording.writes) {
        if step.path.contains("patch.kubefold.io") || step.path.contains("/scaled") {
            continue;
        }
        let ours = perform(&server, step).await;
        let is_known = DIFFERENCES.iter().any(|(what, _)| *what == ours.what);
        if let Some(why) = judge::differ(&ours, recorded).filter(|_| !is_known) {
            wrong.push_str(&format!("{}: {} {}: {why}\n\n", ours.what, ours.method, ours.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The recording needs no cluster: `patches_and_applies_come_out_as_at_a_kube_apiserver` makes it and keeps it true.
#[test]
fn every_recorded_write_comes_out_as_it_did_at_a_kube_apiserver() {
    let recording = Recording::of(include_str!("patch/recorded.json"));
    let mut wrong = String::new();
    for write in &recording.writes {
        if let Err(why) = judge::judge(&recording, write) {
            wrong.push_str(&format!("{}: {} {}: {why}\n\n", write.what, write.method, write.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
