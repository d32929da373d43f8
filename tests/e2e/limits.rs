//! One client takes much, and others still get their share.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::json;

use testbed::{Api, FleetFile, Kind, Kubefold, Lie, Saboteur, Testbed, eventually, samples::namespace};

/// Whoever takes all requests that a member is sent must not make it look down: a get that was never sent is refused, as
/// what the caller may see is not known then. The answer is not taken from what kubefold has in memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_get_that_cannot_be_sent_is_not_answered_from_memory() {
    let bed = Testbed::shared(&["east"]).await;
    namespace(&bed["east"], "limits").await;
    let saboteur = Saboteur::before(&bed["east"], "east").await;
    let fleet = Kubefold::start(&FleetFile::default().entry("east", saboteur.kubeconfig(), 1, "inFlightMax: 2")).await;
    let api = fleet.api().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    bed["east"].api().await.create("/api/v1/namespaces/limits/configmaps", &map).await;
    let kept = "/api/v1/namespaces/limits/configmaps/kept@east";
    api.get(kept).await;

    saboteur.lie(Kind::List, Lie::Endless(b"          "));
    let greedy = Api::from_kubeconfig(&fleet.kubeconfig(), None).await;
    let mut held = Vec::new();
    let refused = loop {
        let list = Request::get("/clusters/east/api/v1/configmaps").body(Bytes::new()).unwrap();
        let answer = greedy.open(list).await.unwrap();
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            break api.request(Method::GET, kept, "").await;
        }
        held.push(answer);
        assert!(held.len() <= 2, "no more than inFlightMax");
    };
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{refused}");
    assert_eq!(refused.headers["retry-after"], "1");
    drop(held);
    eventually(Duration::from_secs(20), async || {
        let answer = api.request(Method::GET, kept, "").await;
        (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
}
