//! Objects that every cluster has, folded into one; and objects that refer to one another.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Api, Kubefold, Member, MemberOptions, Testbed, Watch, eventually,
    samples::{crd, deployment, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(30);

fn holders(object: &Value) -> &str {
    object["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap_or("nobody")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// The next event about an object, as type and object.
async fn next_about(watch: &mut Watch, about: &str) -> (String, Value) {
    loop {
        let event = watch.next(SOON).await.expect("an event before the end of the watch");
        if name(&event["object"]) == about {
            return (event["type"].as_str().unwrap().to_owned(), event["object"].clone());
        }
    }
}

/// Creates and deletes one object in members, and follows its fold.
async fn comes_and_goes(api: &Api, members: [&Member; 2], collection: &str, object: &Value) {
    let [first, second] = members;
    let about = name(object);
    let at = revision(&api.get(collection).await);
    let mut watch = api.watch(&format!("{collection}?watch=1&resourceVersion={at}")).await;
    // The second in configuration order makes it first.
    second.api().await.create(collection, object).await;
    let (kind, born) = next_about(&mut watch, about).await;
    assert_eq!((kind.as_str(), holders(&born)), ("ADDED", second.name()), "{born}");
    let one = format!("{collection}/{about}");
    assert_eq!(uid(&api.get(&one).await), uid(&born));

    first.api().await.create(collection, object).await;
    let both = format!("{},{}", first.name(), second.name());
    let grown = loop {
        let (kind, now) = next_about(&mut watch, about).await;
        assert_eq!((kind.as_str(), uid(&now)), ("MODIFIED", uid(&born)), "a holder more is the same object");
        if holders(&now) == both {
            break now;
        }
    };
    let list = api.get(collection).await;
    let listed: Vec<&Value> = list["items"].as_array().unwrap().iter().filter(|item| name(item) == about).collect();
    assert_eq!((listed.len(), holders(listed[0])), (1, both.as_str()), "one object, however many hold it");
    assert!(revision(listed[0]) >= revision(&grown));

    // A definition is gone when the member has looked for objects of its kind, and it waits longer after each failure.
    let delete = async |member: &Member| {
        let answer = member.request(Method::DELETE, &one, "").await;
        assert!(answer.status.is_success(), "{answer}");
        eventually(3 * SOON, async || {
            let gone = member.request(Method::GET, &one, "").await;
            if gone.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(format!("{}: {gone}", member.name())) }
        })
        .await;
    };
    delete(second).await;
    let shrunk = loop {
        let (kind, now) = next_about(&mut watch, about).await;
        assert_eq!((kind.as_str(), uid(&now)), ("MODIFIED", uid(&born)), "it lives on in the other");
        if holders(&now) == first.name() {
            break now;
        }
    };
    delete(first).await;
    let last = loop {
        let (kind, now) = next_about(&mut watch, about).await;
        assert_eq!(uid(&now), uid(&born));
        if kind == "DELETED" {
            break now;
        }
    };
    assert!(revision(&last) > revision(&shrunk));
    eventually(SOON, async || {
        let gone = api.request(Method::GET, &one, "").await;
        if gone.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(gone) }
    })
    .await;

    // Another life is another object.
    first.api().await.create(collection, object).await;
    let (kind, again) = next_about(&mut watch, about).await;
    assert_eq!((kind.as_str(), holders(&again)), ("ADDED", first.name()));
    assert_ne!(uid(&again), uid(&born));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_cluster_has_is_one_object() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;

    for path in ["/api/v1/namespaces/shop", "/api/v1/namespaces/shop/serviceaccounts/default"] {
        let folded = api.get(path).await;
        assert_eq!(holders(&folded), "east,west");
        let (of_east, of_west) = (east.api().await.get(path).await, west.api().await.get(path).await);
        assert!(uid(&folded) != uid(&of_east) && uid(&folded) != uid(&of_west), "it is neither member's own");
        // The first member in configuration order supplies the body.
        assert_eq!(folded["metadata"]["creationTimestamp"], of_east["metadata"]["creationTimestamp"]);
    }
    let namespaces = fleet.kubectl(&["get", "namespaces", "-o", "name"]).await;
    assert_eq!(namespaces.ok().matches("namespace/shop\n").count(), 1, "{namespaces}");
    assert!(!namespaces.ok().contains('@'), "{namespaces}");

    let service = api.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(holders(&service), "east,west");
    west.kubectl(&["create", "clusterrole", "reader", "--verb=get", "--resource=pods"]).await.ok();
    let roles = eventually(SOON, async || {
        let roles = api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles").await;
        let roles = roles["items"].as_array().unwrap().clone();
        if roles.iter().any(|role| name(role) == "reader@west") { Ok(roles) } else { Err("no reader@west") }
    })
    .await;
    for role in roles.iter().filter(|role| name(role) != "reader@west") {
        assert_eq!(holders(role), "east,west", "every cluster makes {} for itself", name(role));
    }

    let root = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}});
    comes_and_goes(&api, [east, west], "/api/v1/namespaces/shop/configmaps", &root).await;
    comes_and_goes(&api, [east, west], "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Gizmo")).await;
    // A UID outlives kubefold.
    let before = api.get("/api/v1/namespaces/shop/configmaps/kube-root-ca.crt").await;
    fleet.terminate(SOON).await;
    fleet.restart().await;
    let after = fleet.api().await.get("/api/v1/namespaces/shop/configmaps/kube-root-ca.crt").await;
    assert_eq!(uid(&before), uid(&after));
    assert_eq!(revision(&before), revision(&after), "nobody has changed it");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_refer_to_one_another_by_visible_names() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    let fleet = Kubefold::before(bed.members()).await.for_namespace("joins");
    let api = fleet.api().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    for member in bed.members() {
        namespace(member, "joins").await;
        let api = member.api().await;
        api.create("/apis/apps/v1/namespaces/joins/deployments", &deployment("web", 2)).await;
        api.create("/api/v1/namespaces/joins/services", &service).await;
    }
    let pods = eventually(Duration::from_secs(60), async || {
        let list = api.get("/api/v1/namespaces/joins/pods").await;
        let pods = list["items"].as_array().unwrap().clone();
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        if running == 4 { Ok(pods) } else { Err(format!("{running} of 4 pods run")) }
    })
    .await;
    for pod in &pods {
        let (own, member) = name(pod).rsplit_once('@').unwrap();
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        assert_eq!(node, format!("node-0@{member}"));
        assert_eq!(name(&api.get(&format!("/api/v1/nodes/{node}")).await), node, "the join leads somewhere");

        let owner = &pod["metadata"]["ownerReferences"][0];
        let set = owner["name"].as_str().unwrap();
        let set = api.get(&format!("/apis/apps/v1/namespaces/joins/replicasets/{set}")).await;
        assert_eq!(uid(&set), owner["uid"].as_str().unwrap());
        assert_eq!(set["metadata"]["ownerReferences"][0]["name"], format!("web@{member}"));
        // A pod's own short name is enough, as nobody applies pods.
        let short = api.get(&format!("/api/v1/namespaces/joins/pods/{own}")).await;
        assert_eq!((name(&short), uid(&short)), (own, uid(pod)));
    }
    let names: Vec<&str> = pods.iter().map(name).collect();
    eventually(SOON, async || {
        let slices = api.get("/apis/discovery.k8s.io/v1/namespaces/joins/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb").await;
        let mut targets = Vec::new();
        for slice in slices["items"].as_array().unwrap() {
            let member = name(slice).rsplit_once('@').unwrap().1;
            assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], format!("web@{member}"));
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                assert_eq!(endpoint["nodeName"], format!("node-0@{member}"));
                targets.push(endpoint["targetRef"]["name"].as_str().unwrap().to_owned());
            }
        }
        targets.sort();
        if targets == names { Ok(()) } else { Err(format!("{targets:?}")) }
    })
    .await;
    events_name_their_pods(&api, &pods).await;
    kubectl_joins(&fleet, names[0]).await;
}

async fn events_name_their_pods(api: &Api, pods: &[Value]) {
    let events = api.get("/api/v1/namespaces/joins/events").await;
    let about_pods: Vec<&Value> =
        events["items"].as_array().unwrap().iter().filter(|event| event["involvedObject"]["kind"] == "Pod").collect();
    assert!(!about_pods.is_empty());
    for event in about_pods {
        let pod = pods.iter().find(|pod| event["involvedObject"]["name"] == pod["metadata"]["name"]).unwrap();
        assert_eq!(event["involvedObject"]["uid"], pod["metadata"]["uid"]);
    }
}

async fn kubectl_joins(fleet: &Kubefold, pod: &str) {
    let described = fleet.kubectl(&["describe", "pod", pod]).await;
    let member = pod.rsplit_once('@').unwrap().1;
    for line in [format!("Name: {pod}"), format!("Node: node-0@{member}/"), "Controlled By: ReplicaSet/web-".into()] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let shown = described
            .ok()
            .lines()
            .any(|one| one.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&words.join(" ")));
        assert!(shown, "no {line:?} in {described}");
    }
    let described = fleet.kubectl(&["describe", "deployment", "web@west"]).await;
    assert!(described.ok().contains("(2/2 replicas created)"), "its replica set is found by owner UID: {described}");
    for args in [
        vec!["rollout", "status", "deployment/web@east", "--timeout=20s"],
        vec!["wait", "pods", "--all", "--for=condition=Ready", "--timeout=20s"],
        vec!["get", "pods", "-o", "wide"],
    ] {
        fleet.kubectl(&args).await.ok();
    }
}
