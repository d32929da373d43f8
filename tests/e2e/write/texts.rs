//! `stringData` of a Secret, which a kube-apiserver takes and never shows.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Request;
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn write(api: &Api, name: &str, how: &str, said: &Value) -> Answer {
    let mut body = said.clone();
    if let Some(fields) = body.as_object_mut().filter(|_| [APPLY, ""].contains(&how)) {
        fields.extend([("apiVersion".into(), "v1".into()), ("kind".into(), "Secret".into())]);
        fields.insert("metadata".into(), json!({"name": name}));
    }
    let query = if how == APPLY { "?fieldManager=test&force=true" } else { "" };
    let (method, content_type) = if how.is_empty() { (Method::PUT, "application/json") } else { (Method::PATCH, how) };
    let request = Request::builder().method(method).uri(format!("{SECRETS}/{name}{query}"));
    let request = request.header("content-type", content_type).body(body.to_string().into()).unwrap();
    api.send(request).await.unwrap()
}

async fn data(member: &Member, name: &str) -> Value {
    member.api().await.get(&format!("{SECRETS}/{name}")).await["data"].take()
}

/// Each is written to a Secret of one cluster, and to one of the fleet: every part has what the former has.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_secret_says_in_texts_is_in_every_part() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let file = [east, west].into_iter().fold(FleetFile::default(), |file, member| {
        file.entry(member.name(), &member.kubeconfig(), 1, "deadlines: {write: 2s}")
    });
    let fleet = Kubefold::start(&file).await;
    let (api, alone) = (fleet.api().await, west.api().await);
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"a": "0", "z": "kept"}});
    api.create(SECRETS, &secret("placed")).await;
    alone.create(SECRETS, &secret("alone")).await;
    for (how, said) in [
        ("", json!({"data": {"z": "a2VwdA=="}, "stringData": {"a": "1"}})),
        (PATCH, json!({"stringData": {"b": "2"}})),
        (STRATEGIC, json!({"stringData": {"a": "é", "y": null}})),
        (STRATEGIC, json!({"data": {"b": null}, "stringData": {"c": "4"}})),
        (STRATEGIC, json!({"data": null, "stringData": {"d": "5"}})),
        (JSON_PATCH, json!([{"op": "add", "path": "/stringData", "value": {"e": "6"}}])),
        (APPLY, json!({"stringData": {"e": "7", "f": "8"}})),
        ("", json!({"stringData": {"a": null, "g": "9"}})),
        // Refused by both.
        ("", json!({"stringData": {"$patch": "replace"}})),
        (STRATEGIC, json!({"stringData": {"a": 1}})),
        ("", json!({"stringData": "a"})),
    ] {
        let (of_one, of_fleet) = (write(&alone, "alone", how, &said).await, write(&api, "placed", how, &said).await);
        assert_eq!(of_fleet.status, of_one.status, "{how} {said}: {of_fleet} {of_one}");
        let expected = data(west, "alone").await;
        for member in [east, west] {
            assert_eq!(data(member, "placed").await, expected, "{how} {said} in {}", member.name());
        }
    }

    // A member that did not answer gets the last of three updates. One of the two members is the home, without which nothing is changed.
    let mut stored = 0;
    for away in [east, west] {
        away.pause();
        let mut last = String::new();
        for value in 0..3 {
            let said = json!({"stringData": {"a": format!("{}-{value}", away.name())}});
            if write(&api, "placed", "", &said).await.status.is_success() {
                last = format!("{}-{value}", away.name());
                stored += 1;
            }
        }
        away.resume();
        eventually(SOON * 3, async || {
            let all = [data(east, "placed").await, data(west, "placed").await];
            let is_one = all[0] == all[1] && (last.is_empty() || all[0]["a"] == STANDARD.encode(&last));
            is_one.then_some(()).ok_or_else(|| format!("{last:?}: {all:?}"))
        })
        .await;
    }
    assert!(stored >= 3, "only {stored} updates were stored");
}
