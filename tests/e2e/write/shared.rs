//! Objects that every cluster has, written through the fleet: by kubectl, over members whose controllers run.

use http::{Method, Request, header};
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed, samples::crd};

const MEMBERS: [&str; 3] = ["east", "west", "north"];
const MERGE: &str = "application/merge-patch+json";
const SHOP: &str = "/api/v1/namespaces/shop";

#[tokio::test(flavor = "multi_thread")]
async fn what_every_cluster_has_is_written_in_all() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| {
        file.entry(name, &bed[name].kubeconfig(), 1, "deadlines: {write: 3s}")
    });
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let all = MEMBERS.map(|name| &bed[name]);
    fleet.kubectl(&["create", "namespace", "shop"]).await.ok();
    changed(&fleet, &all).await;
    finalized(&fleet, &api, &all).await;
    deleted(&fleet, &api, &all).await;
    definitions(&fleet, &all).await;
    deployments(&api, &all).await;
    late(&bed, &fleet, &all).await;
}

async fn everywhere(all: &[&Member; 3], path: &str, pointer: &str, wanted: &Value) {
    for member in all {
        let held = in_member(member, path).await.unwrap_or_else(|| panic!("no {path} in {}", member.name()));
        assert_eq!(held.pointer(pointer).unwrap_or(&Value::Null), wanted, "{path} in {}", member.name());
    }
}

async fn nowhere(all: &[&Member; 3], path: &str) {
    for member in all {
        assert!(in_member(member, path).await.is_none(), "{path} is in {}", member.name());
    }
}

async fn changed(fleet: &Kubefold, all: &[&Member; 3]) {
    fleet.kubectl(&["label", "namespace", "shop", "team=a"]).await.ok();
    everywhere(all, SHOP, "/metadata/labels/team", &json!("a")).await;
    fleet.kubectl(&["annotate", "namespace", "shop", "note=b"]).await.ok();
    everywhere(all, SHOP, "/metadata/annotations/note", &json!("b")).await;
    let account = format!("{SHOP}/serviceaccounts/default");
    eventually(SOON, async || {
        let made = fleet.kubectl(&["get", "serviceaccount", "default", "-n", "shop", "-o", "yaml"]).await;
        made.holds("kubefold.io/clusters: east,west,north")
    })
    .await;
    fleet.kubectl(&["annotate", "serviceaccount", "default", "-n", "shop", "note=b"]).await.ok();
    everywhere(all, &account, "/metadata/annotations/note", &json!("b")).await;
}

/// What client-go's `UpdateStatus` and `Finalize` put.
async fn finalized(fleet: &Kubefold, api: &Api, all: &[&Member; 3]) {
    let mut shown = api.get(SHOP).await;
    shown["status"]["conditions"] = json!([{"type": "Tested", "status": "True", "reason": "E2e", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    api.request(Method::PUT, &format!("{SHOP}/status"), shown.to_string()).await.ok();
    everywhere(all, SHOP, "/status/conditions/0/type", &json!("Tested")).await;
    let mut shown = api.get(SHOP).await;
    shown["spec"]["finalizers"] = json!(["kubernetes", "example.com/hold"]);
    let now = api.request(Method::PUT, &format!("{SHOP}/finalize"), shown.to_string()).await.ok();
    assert_eq!((&now["spec"], &now["metadata"]["uid"]), (&shown["spec"], &shown["metadata"]["uid"]));
    everywhere(all, SHOP, "/spec/finalizers/1", &json!("example.com/hold")).await;
    // Held by it in all, the namespace is shown as going.
    fleet.kubectl(&["delete", "namespace", "shop", "--wait=false"]).await.ok();
    let shown = api.get(SHOP).await;
    assert!(shown["metadata"]["deletionTimestamp"].is_string(), "{shown}");
    assert_eq!(shown["status"]["phase"], "Terminating");
    eventually(PODS, async || {
        let mut shown = api.get(SHOP).await;
        shown["spec"]["finalizers"] = json!(["kubernetes"]);
        let answer = api.request(Method::PUT, &format!("{SHOP}/finalize"), shown.to_string()).await;
        if answer.status.is_success() { Ok(()) } else { Err(answer) }
    })
    .await;
    fleet.kubectl(&["wait", "namespace/shop", "--for=delete", "--timeout=60s"]).await.ok();
    nowhere(all, SHOP).await;
}

async fn deleted(fleet: &Kubefold, api: &Api, all: &[&Member; 3]) {
    fleet.kubectl(&["create", "namespace", "shop"]).await.ok();
    let uid = api.get(SHOP).await["metadata"]["uid"].clone();
    fleet.kubectl(&["create", "configmap", "c", "-n", "shop"]).await.ok();
    let said = fleet.kubectl(&["delete", "namespace", "shop", "--timeout=60s"]).await;
    assert!(said.ok().contains("namespace \"shop\" deleted"), "{said}");
    nowhere(all, SHOP).await;
    assert!(fleet.kubectl(&["get", "namespace", "shop"]).await.refused().contains("not found"));
    fleet.kubectl(&["create", "namespace", "shop"]).await.ok();
    assert_ne!(api.get(SHOP).await["metadata"]["uid"], uid, "another life");
}

async fn definitions(fleet: &Kubefold, all: &[&Member; 3]) {
    let admin = fleet.as_admin();
    admin.run_with_input(&["create", "-f", "-"], &crd("Gizmo").to_string()).await.ok();
    let name = "gizmos.e2e.kubefold.io";
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    fleet.kubectl(&["label", "crd", name, "team=a"]).await.ok();
    everywhere(all, &path, "/metadata/labels/team", &json!("a")).await;
    let said = fleet.kubectl(&["delete", "crd", name, "--timeout=60s"]).await;
    assert!(said.ok().contains("deleted"), "{said}");
    nowhere(all, &path).await;
}

/// A status write of a divided object: its counters go to the home, the rest to all.
async fn deployments(api: &Api, all: &[&Member; 3]) {
    let mut stopped = deployment("web", 0);
    stopped["spec"]["replicas"] = 3.into();
    stopped["spec"]["paused"] = true.into();
    post(api, &stopped).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let shown = eventually(PODS, async || {
        let shown = api.get(&path).await;
        let seen = shown["status"]["observedGeneration"] == shown["metadata"]["generation"];
        if seen { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    let condition = json!({"type": "Tested", "status": "True", "reason": "E2e", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"});
    let body = json!({"status": {"conditions": [condition], "collisionCount": 7}, "spec": {"replicas": 30}});
    let request = Request::patch(format!("{path}/status?dryRun=All")).header(header::CONTENT_TYPE, MERGE);
    let dry = api.send(request.body(body.to_string().into()).unwrap()).await.unwrap().ok();
    assert_eq!(dry["spec"]["replicas"], shown["spec"]["replicas"], "the spec is not its affair");
    let tested = |shown: &Value| {
        let conditions = shown["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Tested")
    };
    assert!(tested(&dry), "{dry}");
    let request = Request::patch(format!("{path}/status")).header(header::CONTENT_TYPE, MERGE);
    let now = api.send(request.body(body.to_string().into()).unwrap()).await.unwrap().ok();
    assert!(tested(&now), "{now}");
    assert_eq!(shares(all, "web").await.values().sum::<i64>(), 3);
}

/// A member that is down is behind, and the object is not gone before it is there.
async fn late(bed: &Testbed, fleet: &Kubefold, all: &[&Member; 3]) {
    let west = &bed["west"];
    west.pause();
    let said = fleet.kubectl(&["delete", "namespace", "shop", "--wait=false"]).await;
    assert!(said.ok().contains("deleted"), "{said}");
    assert!(said.stderr.contains("is not deleted in member west yet"), "{said}");
    fleet.kubectl(&["get", "namespace", "shop"]).await.ok();
    west.resume();
    fleet.kubectl(&["wait", "namespace/shop", "--for=delete", "--timeout=120s"]).await.ok();
    nowhere(all, SHOP).await;
}
