//! Writes through the fleet view: one object for the client, parts in the members.

mod alike;
mod balancers;
mod behind;
mod carried;
mod children;
mod companions;
mod crash;
mod create;
mod declared;
mod delete;
mod denied;
mod endpoints;
mod events;
mod extend;
mod forward;
mod karmada;
mod kinds;
mod kubectl;
mod logical;
mod moves;
mod nodes;
mod outage;
mod pinned;
mod plan;
mod policies;
mod quota;
mod refused;
mod release;
mod rollout;
mod sealed;
mod shared;
mod status;
mod subresources;
mod texts;
mod undone;
mod update;

use std::{collections::BTreeMap, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{Answer, Api, Kubefold, Member, Output, Testbed, Watch, eventually};

/// For what takes a few round trips on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// For pods to run, be replaced or go.
const PODS: Duration = Duration::from_secs(60);

const MARKER: &str = "kubefold.io/placement";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A Deployment as a person writes it.
fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "web:1"}]}
            }
        }
    })
}

/// Three members and kubefold before them.
struct Stage {
    bed: Testbed,
    fleet: Kubefold,
    api: Api,
}

impl Stage {
    fn all(&self) -> [&Member; 3] {
        ["east", "west", "north"].map(|name| &self.bed[name])
    }

    async fn kubectl(&self, args: &[&str]) -> Output {
        self.fleet.kubectl(args).await
    }

    async fn kubectl_with(&self, args: &[&str], input: &Value) -> Output {
        self.fleet.as_admin().run_with_input(args, &input.to_string()).await
    }
}

/// Creates a Deployment in the fleet view, whatever comes of it.
async fn post(api: &Api, object: &Value) -> Answer {
    post_to(api, DEPLOYMENTS, object).await
}

/// The same in any namespace, by the path of its Deployments.
async fn post_to(api: &Api, deployments: &str, object: &Value) -> Answer {
    api.request(Method::POST, deployments, object.to_string()).await
}

/// What stands at a path in a member itself.
async fn in_member(member: &Member, path: &str) -> Option<Value> {
    let answer = member.request(Method::GET, path, "").await;
    match answer.status {
        StatusCode::OK => Some(answer.json()),
        StatusCode::NOT_FOUND => None,
        _ => panic!("{path} in {}: {answer}", member.name()),
    }
}

/// The part of a Deployment in a member itself.
async fn part(member: &Member, name: &str) -> Option<Value> {
    in_member(member, &format!("{DEPLOYMENTS}/{name}")).await
}

/// Which members hold a part, and of how many replicas.
async fn shares(members: &[&Member], name: &str) -> BTreeMap<String, i64> {
    shares_at(members, &format!("{DEPLOYMENTS}/{name}")).await
}

/// The same of a Deployment at a path.
async fn shares_at(members: &[&Member], path: &str) -> BTreeMap<String, i64> {
    let mut shares = BTreeMap::new();
    for member in members {
        if let Some(part) = in_member(member, path).await {
            shares.insert(member.name().to_owned(), part["spec"]["replicas"].as_i64().unwrap());
        }
    }
    shares
}

/// What [`shares`] should be.
fn split(parts: &[(&str, i64)]) -> BTreeMap<String, i64> {
    parts.iter().map(|(member, replicas)| ((*member).to_owned(), *replicas)).collect()
}

/// That an answer is a refusal of that code and reason whose message holds all of these; gives the message.
#[track_caller]
fn refused(answer: &Answer, code: u16, reason: &str, texts: &[&str]) -> String {
    assert_eq!(answer.status.as_u16(), code, "{answer}");
    let status = answer.json();
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!(reason)), "{status}");
    assert_eq!(status["code"], json!(code), "{status}");
    let message = status["message"].as_str().unwrap().to_owned();
    for text in texts {
        assert!(message.contains(text), "no {text:?} in: {message}");
    }
    message
}

/// Waits for the next event of a watch about an object of that name, which must be of that type.
async fn event(watch: &mut Watch, name: &str) -> (String, Value) {
    loop {
        let event = watch.next(SOON).await.expect("the watch is open");
        if event["object"]["metadata"]["name"] == name {
            return (event["type"].as_str().unwrap().to_owned(), event["object"].clone());
        }
    }
}

/// Waits until a Deployment is gone from the fleet view and from these members.
async fn gone(api: &Api, members: &[&Member], name: &str) {
    gone_from(api, members, &format!("{DEPLOYMENTS}/{name}")).await;
}

/// The same of a Deployment at a path.
async fn gone_from(api: &Api, members: &[&Member], path: &str) {
    eventually(SOON, async || {
        let shown = api.try_request(Method::GET, path, "").await?;
        let left = shares_at(members, path).await;
        match shown.status == StatusCode::NOT_FOUND && left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?} are left, and the fleet says {shown}")),
        }
    })
    .await;
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}
