//! What `kubefold doctor` finds out about the host of `aggregation`: whether kubefold can log in there, and do what an aggregated
//! API server has to.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::checkup::{Checkup, Outcome, failed};
use crate::{cli::aggregation::ask, config::Aggregation, upstream::access::client};

const REVIEW_SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW_RIGHTS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const TRUSTED: &str = "/data/requestheader-client-ca-file";
const MANIFEST: &str = "apply what kubefold aggregation manifest prints to the host, as its administrator";

/// Checks the host. What rests on a check that failed is left out.
pub(super) async fn examine_host(host: &Aggregation) -> Checkup {
    let mut checkup = Checkup::default();
    let login = async {
        client(&host.access).map(|client| (client, "read".to_owned())).map_err(|error| {
            failed(error.to_string(), "correct the kubeconfig that the section aggregation of clusters.yaml names")
        })
    };
    let Some(client) = checkup.check("credentials", login).await else { return checkup };
    if checkup.check("authentication", who(&client)).await.is_none() {
        return checkup;
    }
    checkup.check("authorization", rights(&client)).await;
    checkup.check("trust", trust(&client)).await;
    checkup
}

async fn who(client: &Client) -> Outcome<()> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = posted(client, REVIEW_SELF, &review).await.map_err(|error| {
        failed(format!("{error:#}"), "check that the host answers, and that the login is one of its users")
    })?;
    let user = answer.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or("somebody");
    Ok(((), format!("kubefold is {user} in the host")))
}

/// Asks the host whose a token is, and what somebody may do there.
async fn rights(client: &Client) -> Outcome<()> {
    let mut lacking = Vec::new();
    for (group, resource) in
        [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
    {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "create", "group": group, "resource": resource}},
        });
        let answer = posted(client, REVIEW_RIGHTS, &review).await;
        let answer = answer.map_err(|error| failed(format!("{error:#}"), "ask again when the host answers"))?;
        if answer.pointer("/status/allowed") != Some(&Value::Bool(true)) {
            lacking.push(format!("create {resource}.{group}"));
        }
    }
    if lacking.is_empty() {
        return Ok(((), "kubefold may ask whose a token is and what somebody may do".to_owned()));
    }
    Err(failed(format!("kubefold may not {}", lacking.join(", ")), MANIFEST))
}

/// Reads whose requests count that come by the host's front proxy.
async fn trust(client: &Client) -> Outcome<()> {
    let request = Request::get(TRUST).body(Vec::new()).map_err(|error| failed(error.to_string(), MANIFEST))?;
    let answer = ask(client, request).await.map_err(|error| failed(format!("{error:#}"), MANIFEST))?;
    if answer.pointer(TRUSTED).is_none() {
        let why = "the host has no front proxy (no requestheader-client-ca-file in kube-system/extension-apiserver-authentication)";
        return Err(failed(
            why,
            "start the host's API server with --requestheader-client-ca-file and --proxy-client-cert-file",
        ));
    }
    Ok(((), "the host says whose requests count".to_owned()))
}

async fn posted(client: &Client, path: &str, body: &Value) -> anyhow::Result<Value> {
    let json = "application/json";
    ask(client, Request::post(path).header("content-type", json).body(body.to_string().into_bytes())?).await
}
