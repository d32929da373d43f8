//! Subresources of folded objects, and what a PUT makes: by kubectl, and against what a kube-apiserver says.

use http::{Method, Request, header};
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed, samples::crd};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const MEMBERS: [&str; 3] = ["east", "west", "north"];

async fn start(options: MemberOptions) -> (Testbed, Kubefold, Api) {
    let bed = Testbed::start(&MEMBERS, options).await;
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    (bed, fleet, api)
}

async fn patch(api: &Api, path: &str, body: &Value) -> Answer {
    let request = Request::patch(path).header(header::CONTENT_TYPE, MERGE);
    api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
}

/// The only member that holds what stands at a path.
async fn home<'b>(bed: &'b Testbed, path: &str) -> &'b Member {
    let mut holders = Vec::new();
    for name in MEMBERS {
        if in_member(&bed[name], path).await.is_some() {
            holders.push(&bed[name]);
        }
    }
    let [home] = holders.as_slice() else { panic!("{path} is in {} members", holders.len()) };
    home
}

fn pod(name: &str, scheduler: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [
            {"name": "main", "image": "main:1", "resources": {"requests": {"cpu": "10m"}}}
        ]}
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn subresources_of_placed_objects_are_their_homes() {
    let (bed, fleet, api) = start(MemberOptions::with_workloads(1)).await;
    api.create(PODS_PATH, &pod("bound", "mine")).await;
    resized(&bed, &fleet, &api).await;
    bound(&bed, &api).await;
    debugged(&bed, &fleet, &api).await;
    tokens(&bed, &fleet, &api).await;
    evicted(&bed, &fleet, &api).await;
    scaled(&bed, &fleet, &api).await;
}

async fn running(api: &Api, name: &str) -> Value {
    eventually(PODS, async || {
        let shown = api.get(&format!("{PODS_PATH}/{name}")).await;
        if shown["status"]["phase"] == "Running" { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await
}

/// A scheduler of the fleet's own, as it were.
async fn bound(bed: &Testbed, api: &Api) {
    let path = format!("{PODS_PATH}/bound");
    let made = api.get(&path).await;
    let home = home(bed, &path).await;
    let binding = |node: &str, uid: &str| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound", "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
        .to_string()
    };
    let bind =
        async |node: &str, uid: &str| api.request(Method::POST, &format!("{path}/binding"), binding(node, uid)).await;
    let uid = text(&made, "/metadata/uid");
    let away = MEMBERS.into_iter().find(|name| *name != home.name()).unwrap();
    refused(&bind(&format!("node-0@{away}"), uid).await, 422, "Invalid", &["target.name", "the pod is in member"]);
    let node = format!("node-0@{}", home.name());
    let other = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";
    let told = refused(&bind(&node, other).await, 409, "Conflict", &["Precondition failed: UID", other, uid]);
    assert!(!told.contains("@north"), "{told}");
    bind(&node, uid).await.ok();
    assert_eq!(api.get(&path).await["spec"]["nodeName"], node, "who reads next knows");
    running(api, "bound").await;
}

async fn debugged(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let path = format!("{PODS_PATH}/bound");
    fleet.kubectl(&["debug", "bound", "--image=debug:1", "-c", "look", "--profile=general"]).await.ok();
    let part = in_member(home(bed, &path).await, &path).await.unwrap();
    assert_eq!(part["spec"]["ephemeralContainers"][0]["name"], "look", "{part}");
    assert_eq!(api.get(&path).await["spec"]["ephemeralContainers"][0]["image"], "debug:1");
}

/// Before it runs, as the nodes here know nothing of it.
async fn resized(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let path = format!("{PODS_PATH}/bound");
    let cpu = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20m"}}}]}}"#;
    fleet.kubectl(&["patch", "pod", "bound", "--subresource=resize", "-p", cpu]).await.ok();
    let mut shown = api.get(&path).await;
    let at = "/spec/containers/0/resources/requests/cpu";
    assert_eq!(text(&shown, at), "20m");
    shown["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "30m".into();
    let now = api.request(Method::PUT, &format!("{path}/resize"), shown.to_string()).await.ok();
    assert_eq!((text(&now, at), &now["metadata"]["uid"]), ("30m", &shown["metadata"]["uid"]));
    assert_eq!(text(&in_member(home(bed, &path).await, &path).await.unwrap(), at), "30m");
}

async fn tokens(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    fleet.kubectl(&["create", "serviceaccount", "robot"]).await.ok();
    // One that all members have from their start, and one that is placed in all.
    for account in ["default", "robot"] {
        let token = fleet.kubectl(&["create", "token", account]).await;
        assert_eq!(token.ok().trim().split('.').count(), 3, "{token}");
        let shown = api.get(&format!("{NAMESPACE}/serviceaccounts/{account}")).await;
        let request = |uid: &str| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"uid": uid}, "spec": {}});
        let path = format!("{NAMESPACE}/serviceaccounts/{account}/token");
        let made = api.request(Method::POST, &path, request(text(&shown, "/metadata/uid")).to_string()).await;
        let made = made.ok();
        assert_eq!((text(&made, "/metadata/name"), &made["metadata"]["uid"]), (account, &shown["metadata"]["uid"]));
    }
    let bound = ["create", "token", "default", "--bound-object-kind=Pod", "--bound-object-name=bound"];
    let uid = api.get(&format!("{PODS_PATH}/bound")).await["metadata"]["uid"].clone();
    let token = fleet.kubectl(&[bound.as_slice(), &["--bound-object-uid", uid.as_str().unwrap()]].concat()).await;
    assert_eq!(token.ok().trim().split('.').count(), 3, "it is made where the pod is: {token}");
    let holder = home(bed, &format!("{PODS_PATH}/bound")).await;
    let claims = holder.kubectl(&["get", "--raw", "/api/v1/namespaces/default/pods/bound"]).await;
    assert!(claims.ok().contains("\"name\":\"bound\""), "{claims}");
    token_secrets(bed, fleet, api).await;
}

/// Each member's controller fills in the token of its own account, and deletes a Secret that names the UID of another.
async fn token_secrets(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let robot = api.get(&format!("{NAMESPACE}/serviceaccounts/robot")).await["metadata"]["uid"].clone();
    let secret = |name: &str, annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations}})
    };
    let (account, uid) = ("kubernetes.io/service-account.name", "kubernetes.io/service-account.uid");
    let secrets = format!("{NAMESPACE}/secrets");
    api.create(&secrets, &secret("by-name", json!({account: "robot"}))).await;
    let made = api.create(&secrets, &secret("by-uid", json!({account: "robot", uid: robot, "own": "x"}))).await;
    assert_eq!((&made["metadata"]["annotations"][uid], &made["metadata"]["annotations"]["own"]), (&robot, &json!("x")));
    for name in ["by-name", "by-uid"] {
        let path = format!("{secrets}/{name}");
        for member in MEMBERS {
            let own = in_member(&bed[member], &format!("{NAMESPACE}/serviceaccounts/robot")).await.unwrap();
            let filled = async || match in_member(&bed[member], &path).await {
                Some(part) if part["data"]["token"].is_string() => Ok(part),
                part => Err(format!("{name} in {member}: {part:?}")),
            };
            let part = eventually(SOON, filled).await;
            assert_eq!(part["metadata"]["annotations"][uid], own["metadata"]["uid"], "{name} in {member}");
        }
        let shown = eventually(SOON, async || match api.get(&path).await {
            shown if shown["data"]["token"].is_string() => Ok(shown),
            shown => Err(shown.to_string()),
        })
        .await;
        assert_eq!(shown["metadata"]["annotations"][uid], robot, "{shown}");
        // What is shown may be written back.
        let put = api.request(Method::PUT, &path, shown.to_string()).await;
        assert_eq!(put.ok()["metadata"]["annotations"][uid], robot);
        let part = in_member(&bed["west"], &path).await.unwrap();
        assert_ne!(part["metadata"]["annotations"][uid], robot, "{part}");
    }
    fleet.kubectl(&["delete", "secret", "by-name", "by-uid"]).await.ok();
}

async fn evicted(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let path = format!("{PODS_PATH}/bound");
    let shown = api.get(&path).await;
    let evict = async |preconditions: Value, query: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "bound", "namespace": "default"},
            "deleteOptions": {"preconditions": preconditions}});
        api.request(Method::POST, &format!("{path}/eviction{query}"), body.to_string()).await
    };
    let (uid, revision) = (text(&shown, "/metadata/uid"), text(&shown, "/metadata/resourceVersion"));
    let other = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455";
    refused(&evict(json!({"uid": other}), "").await, 409, "Conflict", &[other, uid]);
    refused(&evict(json!({"uid": uid, "resourceVersion": "3"}), "").await, 409, "Conflict", &["\"bound\""]);
    let both = json!({"uid": uid, "resourceVersion": revision});
    evict(both.clone(), "?dryRun=All").await.ok();
    assert!(api.get(&path).await["metadata"]["deletionTimestamp"].is_null());
    let done = evict(both, "").await.ok();
    assert_eq!((&done["kind"], &done["status"]), (&json!("Status"), &json!("Success")));
    eventually(PODS, async || {
        let left = api.request(Method::GET, &path, "").await;
        if left.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(left) }
    })
    .await;
    // What `kubectl drain` does with a pod that was placed.
    api.create(PODS_PATH, &pod("drained", "default-scheduler")).await;
    let node = text(&running(api, "drained").await, "/spec/nodeName").to_owned();
    let said = fleet.kubectl(&["drain", &node, "--force", "--ignore-daemonsets", "--timeout=60s"]).await;
    assert!(said.ok().contains("pod/drained evicted"), "{said}");
    for name in MEMBERS {
        assert!(in_member(&bed[name], &format!("{PODS_PATH}/drained")).await.is_none());
    }
    fleet.kubectl(&["uncordon", &node]).await.ok();
    refused(
        &api.request(Method::POST, &format!("{path}/eviction"), "{}").await,
        404,
        "NotFound",
        &["\"bound\" not found"],
    );
}

fn gadgets() -> Value {
    let mut gadgets = crd("Gadget");
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"});
    gadgets["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": scale});
    gadgets
}

const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/default/gadgets";

async fn scaled(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &gadgets()).await;
    fleet.as_admin().established("gadgets.e2e.kubefold.io").await;
    let gadget = json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"replicas": 3}});
    eventually(SOON, async || {
        let made = api.request(Method::POST, GADGETS, gadget.to_string()).await;
        if made.status == StatusCode::CREATED { Ok(()) } else { Err(made) }
    })
    .await;
    let path = format!("{GADGETS}/g");
    let home = home(bed, &path).await;
    fleet.kubectl(&["scale", "gadget/g", "--replicas=5"]).await.ok();
    assert_eq!(in_member(home, &path).await.unwrap()["spec"]["replicas"], 5);
    let shown = api.get(&path).await;
    assert_eq!(shown["spec"]["replicas"], 5, "who reads next knows");
    let mut scale = api.get(&format!("{path}/scale")).await;
    for field in ["name", "uid", "resourceVersion"] {
        assert_eq!(scale["metadata"][field], shown["metadata"][field], "{field}");
    }
    scale["spec"]["replicas"] = 6.into();
    let now = api.request(Method::PUT, &format!("{path}/scale"), scale.to_string()).await.ok();
    assert_eq!(now["spec"]["replicas"], 6);
    for field in ["uid", "resourceVersion"] {
        assert_eq!(now["metadata"][field], api.get(&path).await["metadata"][field], "{field}");
    }
    refused(
        &api.request(Method::PUT, &format!("{path}/scale"), scale.to_string()).await,
        409,
        "Conflict",
        &["modified"],
    );
    let said = fleet.kubectl(&["scale", "gadget/g", "--current-replicas=5", "--replicas=1"]).await;
    assert!(said.stderr.contains("Expected replicas to be 5, was 6"), "{said}");
    statuses(home, api, &path).await;
}

/// The status of a custom resource, which an operator writes.
async fn statuses(home: &Member, api: &Api, path: &str) {
    let mut shown = api.get(path).await;
    shown["status"] = json!({"replicas": 6, "selector": "app=g", "conditions": [{"type": "Ready", "status": "True"}]});
    shown["spec"]["replicas"] = 60.into();
    let now = api.request(Method::PUT, &format!("{path}/status"), shown.to_string()).await.ok();
    assert_eq!((&now["status"], &now["spec"]["replicas"]), (&shown["status"], &json!(6)), "the spec is not its affair");
    let stale = api.request(Method::PUT, &format!("{path}/status"), shown.to_string()).await;
    refused(&stale, 409, "Conflict", &["the object has been modified"]);
    patch(api, &format!("{path}/status"), &json!({"status": {"replicas": 7}})).await.ok();
    let part = in_member(home, path).await.unwrap();
    assert_eq!((&part["status"]["replicas"], &part["status"]["selector"]), (&json!(7), &json!("app=g")));
    // And a write of the whole leaves it alone.
    patch(api, path, &json!({"spec": {"replicas": 8}, "status": null})).await.ok();
    let part = in_member(home, path).await.unwrap();
    assert_eq!((&part["status"]["replicas"], &part["spec"]["replicas"]), (&json!(7), &json!(8)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_makes_what_a_kube_apiserver_makes_by_it() {
    let (bed, _fleet, api) = start(MemberOptions::default()).await;
    let member = bed["east"].api().await;
    let groups = bed["east"].request(Method::GET, "/apis", "").await.ok();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    let versions = versions.map(|version| {
        (format!("/apis/{}", text(version, "/groupVersion")), text(version, "/groupVersion").to_owned())
    });
    let (mut asked, mut made) = (0, Vec::new());
    for (root, version) in [("/api/v1".to_owned(), "v1".to_owned())].into_iter().chain(versions) {
        let resources = bed["east"].request(Method::GET, &root, "").await.ok();
        for resource in resources["resources"].as_array().unwrap() {
            let name = text(resource, "/name");
            let verbs = resource["verbs"].as_array().unwrap();
            if name.contains('/') || !["create", "update", "watch"].iter().all(|verb| verbs.contains(&json!(verb))) {
                continue;
            }
            let namespaced = resource["namespaced"] == true;
            let place = if namespaced { format!("{root}/namespaces/default/{name}") } else { format!("{root}/{name}") };
            let mut object = json!({"apiVersion": version, "kind": resource["kind"], "metadata": {"name": "absent"}});
            if namespaced {
                object["metadata"]["namespace"] = "default".into();
            }
            let path = format!("{place}/absent?dryRun=All");
            let theirs = member.request(Method::PUT, &path, object.to_string()).await;
            let ours = api.request(Method::PUT, &path, object.to_string()).await;
            assert_eq!(ours.status, theirs.status, "{path}: {ours} but {theirs}");
            if theirs.status == StatusCode::NOT_FOUND {
                assert_eq!(ours.json()["message"], theirs.json()["message"], "{path}");
            } else {
                made.push(format!("{version}/{name}"));
            }
            asked += 1;
        }
    }
    assert!(asked > 30 && made.contains(&"coordination.k8s.io/v1/leases".to_owned()), "{asked} {made:?}");
    made_by_puts(&bed, &api, &member).await;
}

async fn made_by_puts(bed: &Testbed, api: &Api, member: &Api) {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "default"}, "spec": {"holderIdentity": "me"}});
    let path = format!("{LEASES}/mine");
    let mut other_uid = lease("mine");
    other_uid["metadata"]["uid"] = "6f1c2d5e-0b1a-4c3d-8e9f-001122334455".into();
    let mut elsewhere = lease("mine");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    for wrong in [
        lease("yours"),
        lease(""),
        other_uid,
        elsewhere,
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
    ] {
        let theirs = member.request(Method::PUT, &path, wrong.to_string()).await;
        let ours = api.request(Method::PUT, &path, wrong.to_string()).await;
        // A kube-apiserver tells of its storage, and kubefold who spoke.
        let words = |answer: &Answer| {
            let message = text(&answer.json(), "/message").to_owned();
            let (_, message) = message.split_once("Precondition failed").unwrap_or(("", &message));
            message.split(" (member ").next().unwrap_or_default().to_owned()
        };
        assert_eq!((ours.status, words(&ours)), (theirs.status, words(&theirs)), "{wrong}");
    }
    let mut revised = lease("mine");
    revised["metadata"]["resourceVersion"] = "5".into();
    let dry = format!("{path}?dryRun=All");
    let theirs = member.request(Method::PUT, &dry, revised.to_string()).await;
    assert_eq!(api.request(Method::PUT, &dry, revised.to_string()).await.status, theirs.status);
    let made = api.request(Method::PUT, &path, lease("mine").to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made}");
    let mut made = made.json();
    let home = home(bed, &path).await;
    assert_eq!(text(&made, "/metadata/annotations/kubefold.io~1clusters"), home.name());
    made["spec"]["holderIdentity"] = "you".into();
    let now = api.request(Method::PUT, &path, made.to_string()).await;
    assert_eq!((now.status, &now.json()["metadata"]["uid"]), (StatusCode::OK, &made["metadata"]["uid"]));
    assert_eq!(in_member(home, &path).await.unwrap()["spec"]["holderIdentity"], "you");
    // What is duplicated is made in all.
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": []});
    let made = api.request(Method::PUT, &format!("{roles}/reader"), role.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made}");
    for name in MEMBERS {
        assert!(in_member(&bed[name], &format!("{roles}/reader")).await.is_some(), "{name}");
    }
}
