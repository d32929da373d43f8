//! Creates that are refused: whole, before anything is made, and by whom.

use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::*;
use testbed::{Admission, FleetFile, Kubefold, MemberOptions, Testbed, Verdict, Which};

const BODY_MAX: usize = 3 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_refuses_is_made_nowhere() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let all = [&bed["east"], &bed["west"], &bed["north"]];
    let file = FleetFile::default().member(all[0], 1).member(all[1], 2).member(all[2], 4);
    let (fleet, admission) = tokio::join!(Kubefold::start(&file), Admission::before(all[1]));
    let api = fleet.api().await;

    names_in_use(&api, &all).await;
    malformed(&api, &all).await;
    namespaces(&api, &all).await;
    quotas(&api, &all).await;
    policies(&api, &all, &admission).await;
    nodes(&api, &all).await;
    owners(&api, &all).await;
}

/// An owner that a member lacks is refused to a part there: the member would collect the part.
async fn owners(api: &Api, all: &[&Member; 3]) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str, annotations: Value| {
        let metadata = json!({"name": name, "namespace": "default", "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    };
    let boss = api.create(maps, &map("boss", json!({"kubefold.io/place-on": "east"}))).await;
    let chief = api.create(maps, &map("chief", json!({}))).await;
    api.create(maps, &map("owned", json!({}))).await;
    let by = |owner: &Value| {
        let of = &owner["metadata"];
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": of["name"], "uid": of["uid"]}])
    };
    let path = format!("{maps}/owned");
    let patch = async |content_type: &str, body: &Value| {
        let request = Request::patch(&path).header("content-type", content_type);
        api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
    };
    let body = |owner| json!({"metadata": {"ownerReferences": by(owner)}});
    let mut whole = api.get(&path).await;
    whole["metadata"]["ownerReferences"] = by(&boss);
    let operation = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": by(&boss)}]);
    for told in [
        patch("application/merge-patch+json", &body(&boss)).await,
        patch("application/strategic-merge-patch+json", &body(&boss)).await,
        patch("application/json-patch+json", &operation).await,
        api.request(Method::PUT, &path, whole.to_string()).await,
    ] {
        refused(&told, 422, "Invalid", &["west: it does not hold the owner ConfigMap \"boss\"", "north: it does not"]);
        assert!(!told.to_string().contains("east: it does not"), "{told}");
    }
    patch("application/merge-patch+json", &body(&chief)).await.ok();
    for member in all {
        let (part, owner) =
            (in_member(member, &path).await.unwrap(), in_member(member, &format!("{maps}/chief")).await.unwrap());
        assert_eq!(part["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    }
    assert_eq!(api.get(&path).await["metadata"]["ownerReferences"][0]["uid"], chief["metadata"]["uid"]);
}

async fn names_in_use(api: &Api, all: &[&Member; 3]) {
    all[1].api().await.create(DEPLOYMENTS, &deployment("native", 1)).await;
    let told = post(api, &deployment("native", 7)).await;
    refused(&told, 409, "AlreadyExists", &["deployments.apps \"native\" already exists (member west; ", "native@west"]);
    assert_eq!(shares(all, "native").await, split(&[("west", 1)]));

    // Where nothing of it goes to that member, a member-local object does not stand in the way: its visible name is another.
    post(api, &deployment("native", 1)).await.ok();
    assert_eq!(shares(all, "native").await, split(&[("west", 1), ("north", 1)]));
    let told = post(api, &deployment("native", 1)).await;
    refused(&told, 409, "AlreadyExists", &["deployments.apps \"native\" already exists in member north"]);
    let shared = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let told = api.request(Method::POST, "/api/v1/namespaces", shared.to_string()).await;
    refused(&told, 409, "AlreadyExists", &["namespaces \"default\" already exists in members east, west, north"]);
    let dry =
        api.request(Method::POST, &format!("{DEPLOYMENTS}?dryRun=All"), deployment("native", 1).to_string()).await;
    refused(&dry, 409, "AlreadyExists", &["already exists"]);
}

async fn malformed(api: &Api, all: &[&Member; 3]) {
    let send = async |content_type: &str, body: String| {
        let request = Request::post(DEPLOYMENTS).header("content-type", content_type).body(body.into()).unwrap();
        api.send(request).await.unwrap()
    };
    let good = deployment("bad", 7).to_string();
    refused(&send("application/json", "{\"metadata\":".into()).await, 400, "BadRequest", &[]);
    refused(&send("application/json", "[]".into()).await, 400, "BadRequest", &[]);
    refused(&send("application/json", "{}".into()).await, 400, "BadRequest", &[]);
    refused(
        &send("application/json", good.replace("\"replicas\":7", "\"replicas\":-1")).await,
        422,
        "Invalid",
        &["spec.replicas"],
    );
    refused(&send("text/plain", good.clone()).await, 415, "UnsupportedMediaType", &["application/json"]);
    refused(&send("application/vnd.kubernetes.protobuf", good.clone()).await, 400, "BadRequest", &[]);
    let large = good.replace("web:1", &"x".repeat(BODY_MAX));
    refused(&send("application/json", large).await, 413, "RequestEntityTooLarge", &["limit is 3145728"]);
    let named = |name: &str| good.replace("\"name\":\"bad\"", &format!("\"name\":{name:?}"));
    refused(&send("application/json", named("bad@nowhere")).await, 422, "Invalid", &["bad@nowhere", "@east"]);
    refused(&send("application/json", named("Bad_1")).await, 422, "Invalid", &["member ", "Bad_1"]);
    refused(&send("application/json", named("")).await, 422, "Invalid", &["name or generateName is required"]);
    let other = good.replace("apps/v1", "apps/v1beta1");
    refused(&send("application/json", other).await, 400, "BadRequest", &["member "]);
    let elsewhere = good.replace("\"labels\"", "\"namespace\":\"elsewhere\",\"labels\"");
    refused(&send("application/json", elsewhere).await, 400, "BadRequest", &["member ", "namespace"]);
    let annotated = |text: &str| good.replace("\"labels\"", &format!("\"annotations\":{{{text}}},\"labels\""));
    let nowhere = annotated("\"kubefold.io/place-on\":\"south\"");
    refused(&send("application/json", nowhere).await, 422, "Invalid", &["kubefold.io/place-on", "east, west, north"]);
    let lawless = annotated("\"kubefold.io/placement-policy\":\"none\"");
    refused(&send("application/json", lawless).await, 422, "Invalid", &["there is no such policy"]);
    assert_eq!(shares(all, "bad").await, split(&[]));
}

async fn namespaces(api: &Api, all: &[&Member; 3]) {
    let create = async |namespace: &str| {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        api.request(Method::POST, &path, deployment("there", 7).to_string()).await
    };
    refused(&create("nowhere").await, 404, "NotFound", &["namespaces \"nowhere\" not found"]);
    all[0].kubectl(&["create", "namespace", "only-east"]).await.ok();
    // At once: the store need not have heard of it.
    assert_eq!(create("only-east").await.ok()["spec"]["replicas"], 7);
    let path = "/apis/apps/v1/namespaces/only-east/deployments/there";
    assert_eq!(in_member(all[0], path).await.unwrap()["spec"]["replicas"], 7);
    assert!(in_member(all[2], path).await.is_none());
}

async fn quotas(api: &Api, all: &[&Member; 3]) {
    for member in all {
        member.kubectl(&["create", "namespace", "tight"]).await.ok();
    }
    all[1].kubectl(&["create", "quota", "none", "--hard=count/deployments.apps=0", "-n", "tight"]).await.ok();
    // There is no controller that would fill the status in.
    let counts = r#"{"status":{"hard":{"count/deployments.apps":"0"},"used":{"count/deployments.apps":"0"}}}"#;
    all[1]
        .kubectl(&["patch", "quota", "none", "-n", "tight", "--subresource=status", "--type=merge", "-p", counts])
        .await
        .ok();
    let path = "/apis/apps/v1/namespaces/tight/deployments";
    eventually(SOON, async || {
        let answer = api.request(Method::POST, path, deployment("much", 7).to_string()).await;
        let told = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        match answer.status == StatusCode::FORBIDDEN && told.contains("exceeded quota") {
            true => Ok(refused(&answer, 403, "Forbidden", &["(member west; nothing was made)"])),
            false => Err(answer.to_string()),
        }
    })
    .await;
    for member in all {
        assert!(in_member(member, &format!("{path}/much")).await.is_none());
    }
    // Where the member gets no share, its quota does not matter.
    let made = api.request(Method::POST, path, deployment("little", 1).to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made}");
}

/// A webhook of one member: what it says in the dry run, and what it says for the first time when it is for real.
async fn policies(api: &Api, all: &[&Member; 3], admission: &Admission) {
    let creates = |name, dry| Which { name, operation: "CREATE", dry };
    admission.answer(creates("denied", true), Verdict::Deny("no such thing here"));
    let told = post(api, &deployment("denied", 7)).await;
    refused(&told, 403, "Forbidden", &["no such thing here (member west; nothing was made)"]);
    assert_eq!(shares(all, "denied").await, split(&[]));

    admission.answer(creates("fickle", false), Verdict::Deny("on second thought"));
    let told = post(api, &deployment("fickle", 7)).await;
    refused(&told, 403, "Forbidden", &["on second thought (member west; ", "member east: removed again"]);
    assert_eq!(shares(all, "fickle").await, split(&[]));
    let shown = api.request(Method::GET, &format!("{DEPLOYMENTS}/fickle"), "").await;
    assert_eq!(shown.status, StatusCode::NOT_FOUND);
    post(api, &deployment("fickle", 7)).await.ok();

    admission.answer(creates("warned", true), Verdict::Warn("mind the gap"));
    admission.answer(creates("warned", false), Verdict::Warn("mind the gap"));
    let told = post(api, &deployment("warned", 7)).await;
    assert_eq!(told.status, StatusCode::CREATED);
    assert_eq!(told.warnings(), ["299 - \"mind the gap\""]);
}

/// A pod that only one member's nodes can run goes there.
async fn nodes(api: &Api, all: &[&Member; 3]) {
    for member in all {
        let zone = json!({"zone": member.name()});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": zone}});
        let api = member.api().await;
        api.create("/api/v1/nodes", &node).await;
        // No controllers run here that would make it.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        api.create("/api/v1/namespaces/default/serviceaccounts", &account).await;
    }
    eventually(SOON, async || {
        let nodes = api.get("/api/v1/nodes").await["items"].as_array().unwrap().len();
        if nodes == 3 { Ok(()) } else { Err(format!("{nodes} nodes")) }
    })
    .await;
    let mut picky = deployment("picky", 7);
    picky["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "east"});
    post(api, &picky).await.ok();
    assert_eq!(shares(all, "picky").await, split(&[("east", 7)]));
    let mut on_a_node = deployment("on-a-node", 2);
    on_a_node["spec"]["template"]["spec"]["nodeName"] = json!("node@west");
    let made = post(api, &on_a_node).await.ok();
    assert_eq!(text(&made, "/spec/template/spec/nodeName"), "node@west");
    assert_eq!(shares(all, "on-a-node").await, split(&[("west", 2)]));
    let there = part(all[1], "on-a-node").await.unwrap();
    assert_eq!(text(&there, "/spec/template/spec/nodeName"), "node");

    picky["metadata"]["name"] = json!("pickier");
    picky["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "moon"});
    // As a kube-apiserver does: an autoscaler may bring such a node.
    let waiting = post(api, &picky).await;
    assert_eq!(waiting.status, StatusCode::CREATED);
    let said = waiting.warnings().join("\n");
    let why = "none of its nodes matches the node selector";
    assert!(["east", "west", "north"].iter().all(|member| said.contains(&format!("{member}: {why}"))), "{said}");
    assert_eq!(shares(all, "pickier").await.values().sum::<i64>(), 7);
    on_named_nodes(api, all).await;
}

/// What names a node of one member goes to that member, whose node it is then.
async fn on_named_nodes(api: &Api, all: &[&Member; 3]) {
    let containers = json!([{"name": "c", "image": "c:1"}]);
    let pod =
        |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let fields = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node@west"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": fields}});
    let affine = pod("affine", json!({"containers": containers, "affinity": {"nodeAffinity": required}}));
    let named = pod("named", json!({"containers": containers, "nodeName": "node@north"}));
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "attached"},
        "spec": {"attacher": "a.example.com", "nodeName": "node@north", "source": {"persistentVolumeName": "volume"}}});
    let (pods, attachments) = ("/api/v1/namespaces/default/pods", "/apis/storage.k8s.io/v1/volumeattachments");
    for (body, path, member, field, own) in [
        (&affine, pods, 1, AFFINE, "node"),
        (&named, pods, 2, "/spec/nodeName", "node"),
        (&attachment, attachments, 2, "/spec/nodeName", "node"),
    ] {
        let name = body["metadata"]["name"].as_str().unwrap();
        let made = api.create(path, body).await;
        assert_eq!(made.pointer(field), body.pointer(field), "{made}");
        for (at, one) in all.iter().enumerate() {
            let there = one.api().await.get(path).await;
            let mut items = there["items"].as_array().unwrap().iter();
            let found = items.find(|item| item["metadata"]["name"] == name).and_then(|item| item.pointer(field));
            assert_eq!(found, (at == member).then(|| json!(own)).as_ref(), "{name} in {}", one.name());
        }
    }
    let two = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node@moon"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": two}});
    let lost = pod("lost", json!({"containers": containers, "affinity": {"nodeAffinity": required}}));
    let refusal = api.request(Method::POST, pods, lost.to_string()).await;
    assert_eq!(refusal.status, StatusCode::UNPROCESSABLE_ENTITY, "{refusal:?}");
}

const AFFINE: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
