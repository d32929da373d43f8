//! Members that join a fleet later get what was made through it to be in every member, and nothing else.

use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn has(bed: &Testbed, member: &str, path: &str) -> bool {
    in_member(&bed[member], path).await.is_some()
}

async fn comes(bed: &Testbed, member: &str, path: &str) {
    eventually(SOON, async || if has(bed, member, path).await { Ok(()) } else { Err(format!("{path} in {member}")) })
        .await;
}

async fn finished(fleet: &Kubefold) {
    eventually(SOON, async || {
        let left = fleet.api().await.get("/kubefold/v1/status").await["unfinished"].clone();
        if left == json!([]) { Ok(()) } else { Err(left) }
    })
    .await;
}

fn definition(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Kind{plural}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// A placed object of every member gets a part in one that joins, and stays the same object.
async fn placed_objects_come_too(bed: &Testbed, fleet: &Kubefold, path: &str, uid: &Value) {
    comes(bed, "north", path).await;
    eventually(SOON, async || {
        let shown = fleet.api().await.get(path).await;
        let annotations = &shown["metadata"]["annotations"];
        let holds = annotations["kubefold.io/clusters"].as_str().unwrap_or_default().split(',').count() == 3;
        let is_it = shown["metadata"]["uid"] == *uid && holds && annotations["kubefold.io/differs"].is_null();
        if is_it { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    fleet.kubectl(&["-n", "shop", "label", "configmap", "settings", "team=blue"]).await.ok();
    let part = in_member(&bed["north"], path).await.unwrap();
    assert_eq!(part["metadata"]["labels"]["team"], json!("blue"), "writes reach it");
}

/// A Secret, an object that is limited to one member, and one that is gone again.
async fn what_does_not_go_to_newcomers(fleet: &Kubefold) {
    fleet.kubectl(&["-n", "shop", "create", "secret", "generic", "password", "--from-literal=a=b"]).await.ok();
    let here = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "here", "annotations": {"kubefold.io/place-on": "east"}}});
    let maps = "/api/v1/namespaces/shop/configmaps";
    assert_eq!(fleet.api().await.request(Method::POST, maps, here.to_string()).await.status.as_u16(), 201);
    fleet.kubectl(&["-n", "shop", "create", "configmap", "gone", "--from-literal=a=b"]).await.ok();
    fleet.kubectl(&["-n", "shop", "delete", "configmap", "gone"]).await.ok();
}

async fn secrets_wait_to_be_asked_for(bed: &Testbed, fleet: &Kubefold) {
    let secret = "/api/v1/namespaces/shop/secrets/password";
    for path in [secret, "/api/v1/namespaces/shop/configmaps/here", "/api/v1/namespaces/shop/configmaps/gone"] {
        assert!(!has(bed, "north", path).await, "{path} goes nowhere unasked");
    }
    for member in ["east", "west", "north"] {
        bed[member].apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let extended = fleet.command(&["extend", "north"]).await;
    let said = String::from_utf8_lossy(&extended.stdout).into_owned();
    assert!(said.contains("secrets/password in shop moved") && !said.contains("here"), "{said} {extended:?}");
    comes(bed, "north", secret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_joins_gets_what_was_made_to_be_everywhere() {
    let bed = Testbed::start(&["east", "west", "north", "other"], MemberOptions::default()).await;
    let alone = FleetFile::default().member(&bed["east"], 1);
    let both = || FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1);
    let fleet = Kubefold::start(&alone).await;
    fleet.kubectl(&["create", "namespace", "shop"]).await.ok();
    for plural in ["widgets", "gone"] {
        let made = fleet.api().await.request(Method::POST, DEFINITIONS, definition(plural).to_string()).await;
        assert_eq!(made.status.as_u16(), 201, "{made}");
    }
    fleet.kubectl(&["label", "namespace", "shop", "team=blue"]).await.ok();
    fleet.kubectl(&["delete", "customresourcedefinition", "gone.example.com"]).await.ok();
    bed["east"].kubectl(&["create", "namespace", "private"]).await.ok();

    // From a fleet of one to one of two: that shows other UIDs.
    fleet.configure(&both());
    let [shop, widget] = [format!("{NAMESPACES}/shop"), format!("{DEFINITIONS}/widgets.example.com")];
    comes(&bed, "west", &shop).await;
    comes(&bed, "west", &widget).await;
    let made = in_member(&bed["west"], &shop).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "shop", "team": "blue"}));
    finished(&fleet).await;
    fleet.kubectl(&["-n", "shop", "create", "configmap", "settings", "--from-literal=a=b"]).await.ok();
    let settings = "/api/v1/namespaces/shop/configmaps/settings";
    comes(&bed, "west", settings).await;
    what_does_not_go_to_newcomers(&fleet).await;
    let uid = fleet.api().await.get(settings).await["metadata"]["uid"].clone();

    // What somebody deletes in a member stays deleted, whoever joins and whatever happens to kubefold.
    bed["west"].kubectl(&["delete", "customresourcedefinition", "widgets.example.com"]).await.ok();
    fleet.kill9();
    fleet.restart().await;
    fleet.configure(&both().member(&bed["north"], 1));
    comes(&bed, "north", &shop).await;
    comes(&bed, "north", &widget).await;
    finished(&fleet).await;
    placed_objects_come_too(&bed, &fleet, settings, &uid).await;
    secrets_wait_to_be_asked_for(&bed, &fleet).await;
    let gone = format!("{DEFINITIONS}/gone.example.com");
    for (member, path) in [("west", &widget), ("west", &gone), ("north", &gone)] {
        assert!(!has(&bed, member, path).await, "{path} in {member}");
    }
    for member in ["west", "north"] {
        assert!(!has(&bed, member, "/api/v1/namespaces/private").await, "{member}");
    }

    // Another cluster under a member's name may be a mistake: it gets nothing until the configuration says that it was rebuilt.
    let rebuilt = |settings: &str| both().entry("north", &bed["other"].kubeconfig(), 1, settings);
    fleet.configure(&rebuilt(""));
    let of_north = async || {
        let seen = fleet.api().await.get(&format!("{NAMESPACES}/default")).await;
        let uid = in_member(&bed["other"], "/api/v1/namespaces/kube-system").await.unwrap()["metadata"]["uid"].clone();
        let known = fleet.api().await.get("/kubefold/v1/status").await["members"].clone();
        let is = known.as_array().unwrap().iter().any(|member| member["name"] == "north" && member["cluster"] == uid);
        if is { Ok(()) } else { Err(format!("{known} {seen}")) }
    };
    eventually(SOON, of_north).await;
    fleet.kubectl(&["create", "namespace", "later"]).await.ok();
    comes(&bed, "other", "/api/v1/namespaces/later").await;
    assert!(!has(&bed, "other", &shop).await);
    fleet.configure(&rebuilt("rebuilt: true"));
    comes(&bed, "other", &shop).await;
    comes(&bed, "other", &widget).await;
    finished(&fleet).await;
}
