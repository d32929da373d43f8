//! Deletes of a placed object: every part goes, and what it owned, as the client asked.

use http::Method;
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, Testbed, samples::namespace};

/// Of the namespace that this test works in.
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/deletes/deployments";

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_takes_every_part_as_it_is_told() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    let all = [&bed["east"], &bed["west"]];
    let fleet = Kubefold::start(&FleetFile::default().member(all[0], 1).member(all[1], 2)).await;
    let fleet = fleet.for_namespace("deletes");
    for member in all {
        namespace(member, "deletes").await;
    }
    let api = fleet.api().await;
    for name in ["plain", "waited", "foreground", "orphaned", "guarded", "told"] {
        post_to(&api, DEPLOYMENTS, &deployment(name, 3)).await.ok();
    }
    for name in ["plain", "waited", "foreground", "orphaned", "guarded", "told"] {
        runs(&api, name).await;
    }
    preconditions(&api, &all).await;
    dry_runs(&fleet, &api, &all).await;
    by_kubectl(&fleet, &api, &all).await;
    told_once(&api, &all).await;
    what_is_not_placed(&fleet, &api, &all).await;
    pods_are_seen_as_deleting(&api).await;
    the_answer_is_of_the_kind_of_a_members(&api, all[0]).await;
}

async fn remove(api: &Api, name: &str, options: &Value) -> Answer {
    let body = if options.is_null() { String::new() } else { options.to_string() };
    api.request(Method::DELETE, &format!("{DEPLOYMENTS}/{name}"), body).await
}

async fn runs(api: &Api, name: &str) {
    eventually(PODS, async || {
        let shown = api.get(&format!("{DEPLOYMENTS}/{name}")).await;
        (shown["status"]["readyReplicas"] == 3).then_some(()).ok_or_else(|| shown["status"].to_string())
    })
    .await;
}

/// The names of ReplicaSets and Pods whose name begins so.
async fn owned(api: &Api, name: &str) -> Vec<String> {
    let mut owned = Vec::new();
    for path in ["/apis/apps/v1/namespaces/deletes/replicasets", "/api/v1/namespaces/deletes/pods"] {
        let list = api.get(path).await;
        let names = list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned());
        owned.extend(names.filter(|found| found.starts_with(&format!("{name}-"))));
    }
    owned
}

async fn nothing_owned(api: &Api, name: &str) {
    eventually(PODS, async || {
        let left = owned(api, name).await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

async fn preconditions(api: &Api, all: &[&Member; 2]) {
    let options =
        |preconditions: Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
    let shown = api.get(&format!("{DEPLOYMENTS}/guarded")).await;
    let (uid, version) = (text(&shown, "/metadata/uid"), text(&shown, "/metadata/resourceVersion"));
    let of_part = in_member(all[0], &format!("{DEPLOYMENTS}/guarded")).await.unwrap();
    for (wrong, what) in [
        (json!({"uid": of_part["metadata"]["uid"]}), "the UID in the precondition ("),
        (json!({"uid": uid, "resourceVersion": "7"}), "the ResourceVersion in the precondition (7)"),
    ] {
        let told = remove(api, "guarded", &options(wrong)).await;
        refused(&told, 409, "Conflict", &["Deployment.apps \"guarded\"", what]);
    }
    assert_eq!(shares_at(all, &format!("{DEPLOYMENTS}/guarded")).await, split(&[("east", 1), ("west", 2)]));
    remove(api, "guarded", &options(json!({"uid": uid, "resourceVersion": version}))).await.ok();
    gone_from(api, all, &format!("{DEPLOYMENTS}/guarded")).await;
}

async fn dry_runs(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    let said = fleet.kubectl(&["delete", "deployment", "plain", "--dry-run=server"]).await;
    assert!(said.ok().contains("(server dry run)"), "{said}");
    remove(api, "plain", &json!({"dryRun": ["All"]})).await.ok();
    let query = api.request(Method::DELETE, &format!("{DEPLOYMENTS}/plain?dryRun=All"), "").await;
    query.ok();
    assert_eq!(shares_at(all, &format!("{DEPLOYMENTS}/plain")).await, split(&[("east", 1), ("west", 2)]));
}

async fn by_kubectl(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    let said = fleet.kubectl(&["delete", "deployment", "plain", "--wait=false"]).await;
    assert!(said.ok().contains("deployment.apps \"plain\" deleted"), "{said}");
    gone_from(api, all, &format!("{DEPLOYMENTS}/plain")).await;
    nothing_owned(api, "plain").await;

    fleet.kubectl(&["delete", "deployment", "waited"]).await.ok();
    assert_eq!(
        shares_at(all, &format!("{DEPLOYMENTS}/waited")).await,
        split(&[]),
        "kubectl has waited for the last part"
    );

    // A finalizer of the garbage collector holds each part until its pods are gone.
    fleet.kubectl(&["delete", "deployment", "foreground", "--cascade=foreground"]).await.ok();
    assert_eq!(shares_at(all, &format!("{DEPLOYMENTS}/foreground")).await, split(&[]));
    assert!(owned(api, "foreground").await.is_empty(), "pods go first");

    fleet.kubectl(&["delete", "deployment", "orphaned", "--cascade=orphan"]).await.ok();
    gone_from(api, all, &format!("{DEPLOYMENTS}/orphaned")).await;
    let left = owned(api, "orphaned").await;
    assert_eq!(left.len(), 1 + 3, "the ReplicaSet, which is nobody's child now, and pods stay: {left:?}");
    let sets = api.get("/apis/apps/v1/namespaces/deletes/replicasets").await;
    let orphan = |set: &&Value| text(set, "/metadata/name").starts_with("orphaned-");
    for set in sets["items"].as_array().unwrap().iter().filter(orphan) {
        assert!(set["metadata"]["ownerReferences"].is_null(), "{set}");
    }
    // The next of that name takes them over, as in one cluster.
    post_to(api, DEPLOYMENTS, &deployment("orphaned", 3)).await.ok();
    runs(api, "orphaned").await;
    let uid = api.get(&format!("{DEPLOYMENTS}/orphaned")).await["metadata"]["uid"].clone();
    eventually(SOON, async || {
        let sets = api.get("/apis/apps/v1/namespaces/deletes/replicasets").await;
        let sets: Vec<_> = sets["items"].as_array().unwrap().iter().filter(orphan).cloned().collect();
        let adopted = |set: &Value| set["metadata"]["ownerReferences"][0]["uid"] == uid;
        if sets.len() == 1 && sets.iter().all(adopted) { Ok(()) } else { Err(format!("{sets:?}")) }
    })
    .await;
}

/// A watcher is told of a deletion once, when the last part is gone; reads after the answer know of it.
async fn told_once(api: &Api, all: &[&Member; 2]) {
    let before = api.get(&format!("{DEPLOYMENTS}/told")).await;
    let version = text(&before, "/metadata/resourceVersion");
    let mut watch = api.watch(&format!("{DEPLOYMENTS}?watch=true&resourceVersion={version}")).await;
    let answer = remove(api, "told", &Value::Null).await.ok();
    assert_eq!((&answer["status"], &answer["details"]["uid"]), (&json!("Success"), &before["metadata"]["uid"]));
    let shown = api.request(Method::GET, &format!("{DEPLOYMENTS}/told"), "").await;
    refused(&shown, 404, "NotFound", &["deployments.apps \"told\" not found"]);
    refused(&remove(api, "told", &Value::Null).await, 404, "NotFound", &["deployments.apps \"told\" not found"]);
    post_to(api, DEPLOYMENTS, &deployment("told", 3)).await.ok();
    let (mut types, mut uids) = (Vec::new(), Vec::new());
    while types.last().map(String::as_str) != Some("ADDED") {
        let (type_, object) = event(&mut watch, "told").await;
        types.push(type_);
        uids.push(text(&object, "/metadata/uid").to_owned());
    }
    types.retain(|type_| type_ != "MODIFIED");
    assert_eq!(types, ["DELETED", "ADDED"]);
    assert_ne!(uids.first(), uids.last());
    remove(api, "told", &Value::Null).await.ok();
    gone_from(api, all, &format!("{DEPLOYMENTS}/told")).await;
}

/// Though the kubelet is done with it before its DELETE is answered.
async fn pods_are_seen_as_deleting(api: &Api) {
    let all = "/api/v1/namespaces/deletes/pods";
    for name in ["graceful-1", "graceful-2", "graceful-3"] {
        let spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
        api.create(all, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})).await;
        let path = format!("{all}/{name}");
        let running = eventually(PODS, async || {
            let shown = api.get(&path).await;
            if shown["status"]["phase"] == "Running" { Ok(shown) } else { Err(shown.to_string()) }
        })
        .await;
        let version = text(&running, "/metadata/resourceVersion");
        let mut watch = api.watch(&format!("{all}?watch=true&resourceVersion={version}")).await;
        let answer = api.request(Method::DELETE, &path, r#"{"gracePeriodSeconds": 31}"#).await.ok();
        let grace = |pod: &Value| (pod["kind"].clone(), pod["metadata"]["deletionGracePeriodSeconds"].clone());
        assert_eq!(grace(&answer), (json!("Pod"), json!(31)), "{answer}");
        let mut first = None;
        loop {
            let (type_, pod) = event(&mut watch, name).await;
            if pod["metadata"]["deletionTimestamp"].is_string() {
                first.get_or_insert_with(|| (type_.clone(), grace(&pod)));
            }
            if type_ == "DELETED" {
                assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
                break;
            }
        }
        assert_eq!(first, Some(("MODIFIED".to_owned(), (json!("Pod"), json!(31)))));
    }
}

/// For some kinds the object that was deleted, for the others a `Status`.
async fn the_answer_is_of_the_kind_of_a_members(api: &Api, member: &Member) {
    let pod = json!({"containers": [{"name": "web", "image": "web:1"}]});
    for (resource, kind, fields) in [
        ("services", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("serviceaccounts", "ServiceAccount", json!({})),
        ("resourcequotas", "ResourceQuota", json!({"spec": {"hard": {"pods": "100"}}})),
        ("podtemplates", "PodTemplate", json!({"template": {"spec": pod}})),
        ("configmaps", "ConfigMap", json!({})),
    ] {
        let mut answers = Vec::new();
        for api in [api, &member.api().await] {
            let all = format!("/api/v1/namespaces/deletes/{resource}");
            let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "answer"}});
            object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            api.create(&all, &object).await;
            for query in ["?dryRun=All", ""] {
                let told = api.request(Method::DELETE, &format!("{all}/answer{query}"), "").await.ok();
                let is = |at: &str| told.pointer(at).cloned().unwrap_or_default();
                let whose = [is("/metadata/name"), is("/metadata/namespace"), is("/details/name"), is("/details/kind")];
                answers.push((told["kind"].clone(), whose));
            }
        }
        let of_member = answers.split_off(2);
        assert_eq!(answers, of_member, "{resource}");
    }
}

async fn what_is_not_placed(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    refused(&remove(api, "never", &Value::Null).await, 404, "NotFound", &["\"never\" not found"]);
    post_to(api, DEPLOYMENTS, &deployment("whole", 3)).await.ok();
    let told = remove(api, "whole@east", &Value::Null).await;
    refused(&told, 409, "Conflict", &["the part in member east", "fleet-east"]);
    all[0].api().await.create(DEPLOYMENTS, &deployment("native", 1)).await;
    eventually(SOON, async || fleet.kubectl(&["get", "deployments"]).await.holds("native@east")).await;
    refused(&remove(api, "native", &Value::Null).await, 404, "NotFound", &["native@east"]);
    let removed = remove(api, "native@east", &Value::Null).await.ok();
    assert_eq!((&removed["status"], text(&removed, "/details/name")), (&json!("Success"), "native@east"));
    assert!(in_member(all[0], &format!("{DEPLOYMENTS}/native")).await.is_none());

    // Parts that somebody deletes where they live are gone, and nothing is repaired.
    all[0].kubectl(&["-n", "deletes", "delete", "deployment", "whole"]).await.ok();
    eventually(SOON, async || {
        let shown = api.get(&format!("{DEPLOYMENTS}/whole")).await;
        (shown["spec"]["replicas"] == 2).then_some(()).ok_or_else(|| shown.to_string())
    })
    .await;
    all[1].kubectl(&["-n", "deletes", "delete", "deployment", "whole"]).await.ok();
    gone_from(api, all, &format!("{DEPLOYMENTS}/whole")).await;
}
