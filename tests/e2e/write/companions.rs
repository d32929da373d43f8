//! What goes with a workload: budgets, autoscalers and claims, by the shares that the workload's parts have.

use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const WHOLE: &str = "kubefold.io/whole";

async fn stage() -> Stage {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::with_workloads(1)).await;
    let file = ["east", "west", "north"].iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    Stage { bed, fleet, api }
}

fn budget(name: &str, limit: &str, number: Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {limit: number, "selector": {"matchLabels": {"app": name}}}
    })
}

fn autoscaler(name: &str, least: Value, most: i64) -> Value {
    let mut made = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": most}
    });
    if !least.is_null() {
        made["spec"]["minReplicas"] = least;
    }
    made
}

/// One field of the spec of each part, by member.
async fn parts(stage: &Stage, path: &str, field: &str) -> Vec<(String, Value)> {
    let mut parts = Vec::new();
    for member in stage.all() {
        if let Some(part) = in_member(member, path).await {
            parts.push((member.name().to_owned(), part["spec"][field].clone()));
        }
    }
    parts
}

fn everywhere(number: impl Into<Value>) -> Vec<(String, Value)> {
    let number = number.into();
    ["east", "west", "north"].iter().map(|name| ((*name).to_owned(), number.clone())).collect()
}

/// Applies a manifest twice, as GitOps does: the second time there is nothing to do, and nobody is told anything.
async fn apply_twice(stage: &Stage, path: &str, manifest: &Value, server_side: bool) {
    let mut args = vec!["apply", "-f", "-"];
    if server_side {
        args.extend(["--server-side", "--field-manager=gitops"]);
    }
    stage.kubectl_with(&args, manifest).await.ok();
    let name = text(manifest, "/metadata/name");
    // The controllers have said what they have to say.
    let settled = async || {
        let now = stage.api.get(&format!("{path}/{name}")).await;
        let spec = now["spec"].clone();
        (spec, now["metadata"]["generation"].clone())
    };
    let before = settled().await;
    for (field, value) in manifest["spec"].as_object().unwrap() {
        if ["minAvailable", "maxUnavailable", "minReplicas", "maxReplicas"].contains(&field.as_str()) {
            assert_eq!(before.0[field], *value, "{field} reads back as it is written: {before:?}");
        }
    }
    let told = stage.kubectl_with(&args, manifest).await;
    // Of a budget kubectl says `configured` on one cluster, too: it replaces the selector each time.
    let words = match (server_side, path) {
        (true, _) => "serverside-applied",
        (false, BUDGETS) => "configured",
        (false, _) => "unchanged",
    };
    assert!(told.ok().contains(words), "{told}");
    assert_eq!(settled().await, before, "nothing was changed");
    let diff = stage.kubectl_with(&["diff", "-f", "-"], manifest).await;
    if !server_side {
        assert_eq!(diff.code, Some(0), "no drift: {diff}");
    }
}

/// A pod of a workload in a member, by its name in the fleet.
async fn pod_in(stage: &Stage, app: &str, member: &str) -> String {
    let list = stage.api.get(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")).await;
    let names = list["items"].as_array().unwrap().iter().map(|pod| text(pod, "/metadata/name").to_owned());
    names.into_iter().find(|name| name.ends_with(&format!("@{member}"))).unwrap_or_else(|| panic!("{list}"))
}

async fn evict(stage: &Stage, pod: &str) -> Answer {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    stage.api.request(Method::POST, &path, eviction.to_string()).await
}

/// Waits until the fleet's budget has these numbers: expected pods, desired and healthy ones, and allowed disruptions.
async fn counts(stage: &Stage, name: &str, wanted: [i64; 4]) {
    eventually(PODS, async || {
        let status = stage.api.get(&format!("{BUDGETS}/{name}")).await["status"].clone();
        let numbers = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"];
        let numbers = numbers.map(|name| status[name].as_i64().unwrap_or(-1));
        if numbers == wanted { Ok(()) } else { Err(format!("{numbers:?} in {status}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_lets_each_member_be_drained_and_the_fleet_keep_to_the_whole() {
    let stage = stage().await;
    let web = budget("web", "maxUnavailable", json!(1));
    let path = format!("{BUDGETS}/web");
    // It waits for nothing: until there are pods each part holds back as the whole does.
    apply_twice(&stage, BUDGETS, &web, false).await;
    assert_eq!(parts(&stage, &path, "maxUnavailable").await, everywhere(1));
    post(&stage.api, &deployment("web", 3)).await.ok();
    stage.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    assert_eq!(parts(&stage, &path, "maxUnavailable").await, everywhere(1), "no part says 0");
    counts(&stage, "web", [3, 2, 3, 1]).await;
    apply_twice(&stage, BUDGETS, &web, false).await;
    let shown = stage.api.get(&path).await;
    assert!(!shown.to_string().contains(WHOLE), "{shown}");

    // One pod goes and cannot come back: the fleet lets no other go, whatever its own member says.
    let [of_east, of_west] = [pod_in(&stage, "web", "east").await, pod_in(&stage, "web", "west").await];
    let nodes = stage.bed["east"].kubectl(&["get", "nodes", "-o", "name"]).await.ok().trim().to_owned();
    stage.bed["east"].kubectl(&["cordon", &nodes]).await.ok();
    assert_eq!(evict(&stage, &of_east).await.status, 201);
    let again = evict(&stage, &of_west).await;
    refused(&again, 429, "TooManyRequests", &["Cannot evict pod as it would violate the pod's disruption budget."]);
    let cause = again.json()["details"]["causes"][0].clone();
    assert_eq!(cause["reason"], "DisruptionBudget", "{cause}");
    assert!(text(&cause, "/message").contains("needs 2 healthy pods and has 2"), "{cause}");
    counts(&stage, "web", [3, 2, 2, 0]).await;
    refused(&evict(&stage, &of_west).await, 429, "TooManyRequests", &[]);
    stage.bed["east"].kubectl(&["uncordon", &nodes]).await.ok();
    counts(&stage, "web", [3, 2, 3, 1]).await;
    assert_eq!(evict(&stage, &of_west).await.status, 201);
    counts(&stage, "web", [3, 2, 3, 1]).await;

    for member in stage.all() {
        let node = member.kubectl(&["get", "nodes", "-o", "name"]).await.ok().trim().to_owned();
        let drained = member.kubectl(&["drain", &node, "--force", "--timeout=30s"]).await;
        assert!(drained.ok().contains("drained"), "{drained}");
        member.kubectl(&["uncordon", &node]).await.ok();
    }
    counts(&stage, "web", [3, 2, 3, 1]).await;
    let node = nodes.trim_start_matches("node/");
    let drained = stage.kubectl(&["drain", &format!("{node}@west"), "--force", "--timeout=60s"]).await;
    assert!(drained.ok().contains("drained"), "{drained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_follows_the_actual_shares() {
    let stage = stage().await;
    // A quorum that is whole in one member stays whole there.
    let mut quorum = deployment("db", 3);
    quorum["kind"] = "StatefulSet".into();
    quorum["spec"]["serviceName"] = "db".into();
    stage.kubectl_with(&["create", "-f", "-"], &quorum).await.ok();
    stage.kubectl_with(&["create", "-f", "-"], &budget("db", "minAvailable", json!(2))).await.ok();
    let path = format!("{BUDGETS}/db");
    assert_eq!(parts(&stage, &path, "minAvailable").await, everywhere(2));
    assert_eq!(stage.api.get(&path).await["spec"]["minAvailable"], 2);
    stage.kubectl(&["rollout", "status", "statefulset/db", "--timeout=60s"]).await.ok();
    counts(&stage, "db", [3, 2, 3, 1]).await;

    // What is divided is so by the workload's parts, again with each scale.
    let web = budget("web", "minAvailable", json!("50%"));
    let path = format!("{BUDGETS}/web");
    post(&stage.api, &deployment("web", 3)).await.ok();
    apply_twice(&stage, BUDGETS, &web, true).await;
    assert_eq!(parts(&stage, &path, "minAvailable").await, everywhere(0), "half of one pod would be one");
    let scaled = stage.kubectl(&["scale", "deployment/web", "--replicas=9"]).await;
    assert!(scaled.ok().contains("scaled"), "{scaled}");
    assert_eq!(parts(&stage, &path, "minAvailable").await, everywhere("50%"));
    assert_eq!(stage.api.get(&path).await["spec"]["minAvailable"], "50%");
    // Its author changes it after kubefold has divided it: that is no conflict.
    apply_twice(&stage, BUDGETS, &budget("web", "minAvailable", json!(6)), true).await;
    assert_eq!(parts(&stage, &path, "minAvailable").await, everywhere(2));
    stage.kubectl(&["delete", "deployment/web"]).await.ok();
    assert_eq!(parts(&stage, &path, "minAvailable").await, everywhere(6), "it holds back what may come");
}

/// The bounds of each part of an autoscaler.
async fn bounds(stage: &Stage, name: &str) -> Vec<(String, i64, i64)> {
    let path = format!("{AUTOSCALERS}/{name}");
    let (least, most) = (parts(stage, &path, "minReplicas").await, parts(stage, &path, "maxReplicas").await);
    let number = |value: &Value| value.as_i64().unwrap();
    least.iter().zip(&most).map(|((name, least), (_, most))| (name.clone(), number(least), number(most))).collect()
}

/// Waits until the autoscaler finds what it is for in every member where it has a part.
async fn finds_its_target(stage: &Stage, name: &str) {
    eventually(PODS, async || {
        let shown = stage.api.get(&format!("{AUTOSCALERS}/{name}")).await;
        let conditions = shown["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let able = conditions.iter().find(|condition| condition["type"] == "AbleToScale");
        match able {
            Some(able) if able["status"] == "True" => Ok(()),
            _ => Err(shown["status"].to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_is_where_its_target_is_and_reads_back_as_written() {
    let stage = stage().await;
    // The commonest manifest.
    post(&stage.api, &deployment("one", 1)).await.ok();
    let home = shares(&stage.all(), "one").await.into_keys().next().unwrap();
    apply_twice(&stage, AUTOSCALERS, &autoscaler("one", json!(1), 10), false).await;
    assert_eq!(bounds(&stage, "one").await, [(home, 1, 10)]);

    // Before its Deployment, by GitOps, without a minimum.
    let late = autoscaler("late", Value::Null, 10);
    apply_twice(&stage, AUTOSCALERS, &late, true).await;
    post(&stage.api, &deployment("late", 1)).await.ok();
    let home = shares(&stage.all(), "late").await.into_keys().next().unwrap();
    assert_eq!(bounds(&stage, "late").await, [(home, 1, 10)]);

    // Before a Deployment that is divided: the parts come with it.
    apply_twice(&stage, AUTOSCALERS, &autoscaler("web", json!(3), 9), false).await;
    assert_eq!(bounds(&stage, "web").await.len(), 1);
    post(&stage.api, &deployment("web", 3)).await.ok();
    let even: Vec<_> = ["east", "west", "north"].iter().map(|name| ((*name).to_owned(), 1, 3)).collect();
    assert_eq!(bounds(&stage, "web").await, even);
    apply_twice(&stage, AUTOSCALERS, &autoscaler("web", json!(3), 9), false).await;
    assert_eq!(bounds(&stage, "web").await, even);
    for name in ["one", "late", "web"] {
        finds_its_target(&stage, name).await;
    }
    apply_twice(&stage, AUTOSCALERS, &autoscaler("web", json!(6), 12), false).await;
    let even: Vec<_> = ["east", "west", "north"].iter().map(|name| ((*name).to_owned(), 2, 4)).collect();
    assert_eq!(bounds(&stage, "web").await, even);
    let wrong = stage.kubectl_with(&["apply", "-f", "-"], &autoscaler("web", json!(6), 5)).await;
    assert!(wrong.refused().contains("must be greater than or equal to `minReplicas`"), "{wrong}");
}

/// A volume for whoever claims it, in a member itself.
async fn volume(member: &Member, name: &str) {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": name,
            "hostPath": {"path": "/data"}
        }
    });
    let made = member.request(Method::POST, "/api/v1/persistentvolumes", volume.to_string()).await;
    assert_eq!(made.status, 201, "{made}");
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
    })
}

fn mounting(name: &str, claim: &str) -> Value {
    let mut made = deployment(name, 3);
    made["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_where_their_claim_is_whichever_file_is_applied_first() {
    let stage = stage().await;
    for member in stage.all() {
        volume(member, "first").await;
        volume(member, "last").await;
    }
    let file = |objects: [Value; 2]| json!({"apiVersion": "v1", "kind": "List", "items": objects});
    for (claimed, objects) in
        [("first", [claim("first"), mounting("first", "first")]), ("last", [mounting("last", "last"), claim("last")])]
    {
        stage.kubectl_with(&["apply", "-f", "-"], &file(objects)).await.ok();
        let done = stage.kubectl(&["rollout", "status", &format!("deployment/{claimed}"), "--timeout=60s"]).await;
        assert!(done.ok().contains("successfully rolled out"), "{done}");
        let of_workload = shares(&stage.all(), claimed).await;
        assert_eq!(of_workload.values().collect::<Vec<_>>(), [&3], "it is whole");
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{claimed}");
        assert_eq!(parts(&stage, &path, "storageClassName").await.len(), 1);
        assert_eq!(parts(&stage, &path, "storageClassName").await[0].0, *of_workload.keys().next().unwrap());
    }
    // A member's own claim draws as well.
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let made = stage.bed["north"].request(Method::POST, path, claim("own").to_string()).await;
    assert_eq!(made.status, 201, "{made}");
    eventually(SOON, async || {
        let shown = stage.api.get(&format!("{path}?fieldSelector=metadata.name%3Down@north")).await;
        if shown["items"].as_array().is_some_and(|items| items.len() == 1) { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    post(&stage.api, &mounting("own", "own")).await.ok();
    assert_eq!(shares(&stage.all(), "own").await, split(&[("north", 3)]));
}

/// As Kubernetes' conformance test of evictions: the budget is there first, and its pods are a ReplicaSet's.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_was_there_before_its_pods_holds_evictions_back() {
    let stage = stage().await;
    let (sets, pods) = ("/apis/apps/v1/namespaces/default/replicasets", "/api/v1/namespaces/default/pods");
    for (kind, path) in [("ReplicaSet", sets), ("Deployment", DEPLOYMENTS)] {
        let name = kind.to_lowercase();
        stage.api.create(BUDGETS, &budget(&name, "minAvailable", json!(3))).await;
        let mut workload = deployment(&name, 3);
        workload["kind"] = json!(kind);
        stage.api.create(path, &workload).await;
        let selected = format!("{pods}?labelSelector=app%3D{name}");
        let pod = eventually(PODS, async || {
            let list = stage.api.get(&selected).await;
            let all = list["items"].as_array().unwrap();
            let is_ready = |pod: &&Value| {
                let conditions = pod["status"]["conditions"].as_array();
                conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
            };
            let ready: Vec<&Value> = all.iter().filter(is_ready).collect();
            if ready.len() == 3 { Ok(text(ready[0], "/metadata/name").to_owned()) } else { Err(list.to_string()) }
        })
        .await;
        let evict = async |pod: &str| {
            let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
            stage.api.request(Method::POST, &format!("{pods}/{pod}/eviction"), body.to_string()).await
        };
        let of_budget = format!("{BUDGETS}/{name}");
        // At once, whatever the controllers have seen of it, and when they have seen all.
        refused(&evict(&pod).await, 429, "TooManyRequests", &[]);
        let healthy = async |count: i64, allowed: i64| {
            eventually(SOON, async || {
                let now = stage.api.get(&of_budget).await;
                let (spec, status) = (&now["metadata"], &now["status"]);
                let is_seen = spec["generation"] == status["observedGeneration"];
                let is_so = status["currentHealthy"] == count && status["disruptionsAllowed"] == allowed;
                if is_seen && is_so { Ok(()) } else { Err(now.to_string()) }
            })
            .await;
        };
        healthy(3, 0).await;
        refused(&evict(&pod).await, 429, "TooManyRequests", &["disruption budget"]);
        let patch = async |number: i64| {
            let body = json!({"spec": {"minAvailable": number}}).to_string();
            stage.kubectl(&["patch", "poddisruptionbudget", &name, "-p", &body]).await.ok();
        };
        patch(2).await;
        healthy(3, 1).await;
        let evicted = evict(&pod).await;
        assert!(evicted.status.is_success(), "{evicted}");
        // The next one is held back until its successor is ready.
        patch(3).await;
        healthy(3, 0).await;
        let list = stage.api.get(&selected).await;
        let another = text(&list["items"][0], "/metadata/name").to_owned();
        refused(&evict(&another).await, 429, "TooManyRequests", &[]);
        stage.api.request(Method::DELETE, &of_budget, "").await.ok();
        let free = evict(&another).await;
        assert!(free.status.is_success(), "{free}");
    }
}

/// Pods that no workload makes count where they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_was_there_before_pods_of_two_members_lets_go_what_one_cluster_would() {
    let stage = stage().await;
    let pods = "/api/v1/namespaces/default/pods";
    stage.api.create(BUDGETS, &budget("bare", "minAvailable", json!(3))).await;
    for (name, member) in [("a", "east"), ("b", "east"), ("c", "west"), ("d", "west")] {
        let metadata =
            json!({"name": name, "labels": {"app": "bare"}, "annotations": {"kubefold.io/place-on": member}});
        let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "web:1"}]});
        stage.api.create(pods, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).await;
    }
    let path = format!("{BUDGETS}/bare");
    let healthy = async |count: i64, allowed: i64| {
        eventually(PODS, async || {
            let now = stage.api.get(&path).await;
            let status = &now["status"];
            let is_seen = now["metadata"]["generation"] == status["observedGeneration"];
            let is_so = status["currentHealthy"] == count && status["disruptionsAllowed"] == allowed;
            if is_seen && is_so { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    };
    healthy(4, 1).await;
    let evict = async |pod: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
        stage.api.request(Method::POST, &format!("{pods}/{pod}/eviction"), body.to_string()).await
    };
    let first = evict("a").await;
    assert!(first.status.is_success(), "{first}");
    healthy(3, 0).await;
    for pod in ["b", "c", "d"] {
        refused(&evict(pod).await, 429, "TooManyRequests", &["disruption budget"]);
    }
}
