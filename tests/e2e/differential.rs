//! One contract, asked of a kube-apiserver and of a kubefold before that one member: they must agree.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, Kubefold, Member, SharedMembers, Testbed, eventually,
    samples::{controlled_pod, crd, create_all, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const SUFFIX: &str = "@east";
const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets";

/// Texts that a parser in between would write otherwise.
fn awkward() -> Value {
    json!({
        "html": "<a href=\"x\">&amp;</a>", "line": "a\u{2028}b\u{2029}c", "tab": "a\tb\\c/d", "emoji": "\u{1f600}",
        "empty": "", "null-ish": "\u{7f}\u{0}", "email": "joe@example.com",
    })
}

/// One object of each of many kinds: where it is, and what.
fn objects() -> Vec<(&'static str, Value)> {
    let meta = |name: &str| json!({"name": name, "annotations": {"note": "<&>", "a/b": ""}, "labels": {"app": "web"}});
    let object = |api_version: &str, kind: &str, name: &str, more: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": meta(name)});
        more.as_object().unwrap().iter().for_each(|(key, value)| object[key] = value.clone());
        object
    };
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let port = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "disk", "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let event = json!({"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"}, "reason": "Tested", "message": "a \"b\""});
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "node-x",
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-0"}}]});
    let numbers = json!({"whole": 1, "float": 1.5, "big": 9_007_199_254_740_993_u64, "exp": 1e30, "neg": -0.25, "deep": [[], {}, [null]]});
    vec![
        ("/api/v1/namespaces/shop/configmaps", object("v1", "ConfigMap", "texts", json!({"data": awkward()}))),
        ("/api/v1/namespaces/shop/secrets", object("v1", "Secret", "hidden", json!({"data": {"k": "AAEC"}}))),
        ("/api/v1/namespaces/shop/services", object("v1", "Service", "web", json!({"spec": port}))),
        ("/api/v1/namespaces/shop/pods", controlled_pod("web-0", "web")),
        ("/apis/apps/v1/namespaces/shop/deployments", deployment("web", 2)),
        (
            "/api/v1/namespaces/shop/persistentvolumeclaims",
            object("v1", "PersistentVolumeClaim", "disk", json!({"spec": claim})),
        ),
        ("/api/v1/persistentvolumes", object("v1", "PersistentVolume", "disk", json!({"spec": volume}))),
        ("/api/v1/nodes", object("v1", "Node", "node-x", json!({}))),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            object("rbac.authorization.k8s.io/v1", "ClusterRole", "joe@example.com-admin", json!({"rules": rule})),
        ),
        ("/api/v1/namespaces/shop/events", object("v1", "Event", "web-0.1", event)),
        (
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
            object("discovery.k8s.io/v1", "EndpointSlice", "web-1", slice),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
            object("coordination.k8s.io/v1", "Lease", "lock", json!({"spec": {"holderIdentity": "me"}})),
        ),
        (GADGETS, object("e2e.kubefold.io/v1", "Gadget", "cog", json!({"spec": numbers, "status": awkward()}))),
    ]
}

/// The tests of this file only read, also what is in all namespaces.
static EAST: SharedMembers = SharedMembers::filled(&["east"], |members| Box::pin(fill(&members[0])));

async fn fill(east: &Member) {
    namespace(east, "shop").await;
    let api = east.api().await;
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Gadget")).await;
    eventually(SOON, async || {
        let served = api.request(Method::GET, GADGETS, "").await;
        if served.status.is_success() { Ok(()) } else { Err(served) }
    })
    .await;
    for (path, object) in objects() {
        create_all(&api, path, &[object]).await;
    }
}

/// Undoes in a text what the fleet view is allowed to change, and blanks what differs by nature.
fn normal(answer: &str) -> String {
    let mut text = answer
        .replace(&format!("{SUFFIX}\""), "\"")
        .replace(&format!("{SUFFIX}\\\""), "\\\"")
        // An event is called after its object.
        .replace(&format!("{SUFFIX}."), ".")
        .replace(",\"annotations\":{\"kubefold.io/cluster\":\"east\"}", "")
        .replace(",\"annotations\":{\"kubefold.io/clusters\":\"east\"}", "")
        .replace("\"kubefold.io/cluster\":\"east\",", "")
        .replace("\"kubefold.io/clusters\":\"east\",", "");
    for key in ["resourceVersion", "continue"] {
        text = blank(&text, &format!("\"{key}\":\""));
    }
    text
}

/// Empties the string behind every occurrence of `key`.
fn blank(text: &str, key: &str) -> String {
    let mut parts = text.split(key);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + key + &part[part.find('"').unwrap_or(0)..])
}

async fn ask(api: &Api, method: &Method, path: &str, accept: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    api.send(request.body(Bytes::new()).unwrap()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Asks both the same and compares every byte, but for what [`normal`] undoes.
async fn compare(member: &Api, fleet: &Api, path: &str, of_fleet: &str) {
    let get = Method::GET;
    let accept = "application/json";
    let (theirs, ours) = tokio::join!(ask(member, &get, path, accept), ask(fleet, &get, of_fleet, accept));
    assert_eq!(ours.status, theirs.status, "{path}: {ours}\nand the member: {theirs}");
    assert_eq!(ours.headers[header::CONTENT_TYPE], theirs.headers[header::CONTENT_TYPE], "{path}");
    assert_eq!(ours.headers[header::CACHE_CONTROL], theirs.headers[header::CACHE_CONTROL], "{path}");
    let text = |answer: &Answer| normal(std::str::from_utf8(&answer.body).unwrap());
    let (ours, theirs) = (text(&ours), text(&theirs));
    if path.contains("e2e.kubefold.io") && theirs.contains("\"kind\":\"GadgetList\"") {
        // Of custom resources a kube-apiserver writes the list's own keys in the order of the alphabet, and so behind
        // the items, with an empty `continue`; the items are the same.
        let items = |text: &str| {
            let from = text.find("\"items\":[").unwrap();
            text[from..].split("],\"kind\"").next().unwrap().trim_end().trim_end_matches(['}', ']']).to_owned()
        };
        assert_eq!(items(&ours), items(&theirs), "{path}");
        return;
    }
    assert_eq!(ours, theirs, "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_one_reads_as_its_member() {
    let bed = Testbed::of(&EAST, &["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (theirs, ours) = (bed["east"].api().await, fleet.api().await);
    for (path, object) in objects() {
        let name = object["metadata"]["name"].as_str().unwrap();
        // Every byte, but for names, revisions and kubefold's annotation.
        compare(&theirs, &ours, &format!("{path}/{name}"), &format!("{path}/{name}%40east")).await;
        compare(&theirs, &ours, path, path).await;
        let wide = path.replace("/namespaces/shop", "");
        compare(&theirs, &ours, &wide, &wide).await;
        let lists = ["limit=1", "labelSelector=app%3Dweb", "labelSelector=!app", "resourceVersion=0", "watch=false"];
        // Each lasts a second: all at once.
        let watches = ["watch=1", "watch=true&resourceVersion=0"].map(|query| format!("{query}&timeoutSeconds=1"));
        let queries = lists.into_iter().map(str::to_owned).chain(watches).map(|query| format!("{path}?{query}"));
        join_all(queries.map(async |query| compare(&theirs, &ours, &query, &query).await)).await;
    }
    let shared = [
        "/api/v1/namespaces",
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces/shop/serviceaccounts",
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ];
    for path in shared {
        compare(&theirs, &ours, path, path).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_one_refuses_as_its_member() {
    let bed = Testbed::of(&EAST, &["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (theirs, ours) = (bed["east"].api().await, fleet.api().await);
    // To the byte: the words in which clients are told.
    for path in [
        "/api/v1/namespaces/shop/configmaps/nope",
        "/api/v1/nodes/nope",
        "/api/v1/namespaces/nope",
        "/apis/apps/v1/namespaces/shop/deployments/nope",
        &format!("{GADGETS}/nope"),
        "/api/v1/pods?fieldSelector=spec..nope%3Dx",
        "/api/v1/configmaps?resourceVersionMatch=Exact",
        "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=0",
        "/api/v1/configmaps?resourceVersionMatch=Bla&resourceVersion=1",
        "/api/v1/configmaps?resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=x",
        "/api/v1/configmaps?sendInitialEvents=true",
        "/api/v1/configmaps?watch=1&sendInitialEvents=true",
        "/api/v1/configmaps?watch=1&resourceVersionMatch=NotOlderThan",
        "/api/v1/foos",
        "/api/v2",
        "/api/v1/namespaces/shop/foos",
        "/api/v1/namespaces/shop/nodes",
        "/api/v1/namespaces/shop/nodes/x",
        "/api/v1/pods/web-0",
        "/api/v1/namespaces/shop/pods/web-0/nope",
        "/api/v1/namespaces/shop/bindings",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "/api/v1/configmaps?limit=-1",
        "/api/v1/namespaces/nope/pods",
    ] {
        compare(&theirs, &ours, path, path).await;
    }
    // In status and reason: the words are a parser's of Go.
    for path in [
        "/api/v1/configmaps?fieldSelector=data..x%3Dy",
        "/api/v1/configmaps?labelSelector=a%3Db%3Dc",
        "/api/v1/configmaps?labelSelector=a%20b",
        "/api/v1/configmaps?labelSelector=a%20in%20b",
        "/api/v1/configmaps?labelSelector=-a",
        "/api/v1/configmaps?labelSelector=a%3Db%40nowhere",
        "/api/v1/configmaps?fieldSelector=a",
        "/api/v1/configmaps?resourceVersion=abc",
        "/api/v1/configmaps?limit=abc",
        "/api/v1/configmaps?continue=garbage",
        "/api/v1/configmaps?timeoutSeconds=abc",
        "/api/v1/configmaps?resourceVersion=9007199254740991",
        "/api/v1/namespaces/shop/configmaps/nope?resourceVersion=9007199254740991",
    ] {
        let (said, told) = (theirs.request(Method::GET, path, "").await, ours.request(Method::GET, path, "").await);
        assert_eq!(told.status, said.status, "{path}: {told}\nand the member: {said}");
        assert_eq!(told.json()["reason"], said.json()["reason"], "{path}: {told}\nand the member: {said}");
        assert_eq!(told.json()["details"]["causes"], said.json()["details"]["causes"], "{path}");
    }
    for (method, path) in [
        ("HEAD", "/api/v1/pods"),
        ("HEAD", "/api"),
        ("HEAD", "/nope"),
        ("OPTIONS", "/api/v1/pods"),
        ("POST", "/api/v1/foos"),
        ("DELETE", "/apis/nope.io/v1/foos"),
    ] {
        let method: Method = method.parse().unwrap();
        let (said, told) = (ask(&theirs, &method, path, "*/*").await, ask(&ours, &method, path, "*/*").await);
        assert_eq!((told.status, told.body.is_empty()), (said.status, said.body.is_empty()), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_one_is_discovered_as_its_member() {
    let bed = Testbed::of(&EAST, &["east"]).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (theirs, ours) = (bed["east"].api().await, fleet.api().await);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, accept) in [
        ("/api", aggregated),
        ("/apis", aggregated),
        ("/apis", "application/json"),
        ("/api/v1", "application/json"),
        ("/apis/apps", "application/json"),
        ("/apis/apps/v1", "application/json"),
        ("/apis/e2e.kubefold.io/v1", "application/json"),
        ("/version", "application/json"),
    ] {
        let said = ask(&theirs, &Method::GET, path, accept).await;
        let told = ask(&ours, &Method::GET, path, accept).await;
        assert_eq!(told.status, said.status, "{path}");
        assert_eq!(told.headers[header::CONTENT_TYPE], said.headers[header::CONTENT_TYPE], "{path}");
        assert_eq!(told.headers.get(header::VARY), said.headers.get(header::VARY), "{path}");
        assert_eq!(told.headers.get(header::ETAG).is_some(), said.headers.get(header::ETAG).is_some(), "{path}");
        let text = |answer: &Answer| {
            let mut document = answer.json();
            // kubefold's own groups are the fleet's, and no member's.
            for list in ["items", "groups"] {
                let Some(groups) = document.get_mut(list).and_then(Value::as_array_mut) else { continue };
                let own = ["kubefold.io", "policy.karmada.io", "clusterpedia.io"];
                groups
                    .retain(|group| !own.iter().any(|own| group["metadata"]["name"] == *own || group["name"] == *own));
            }
            document.to_string()
        };
        assert_eq!(text(&told), text(&said), "{path}");
    }
}
