//! What clients ask for beside a name: selectors, revisions, pages. Asked of a kube-apiserver and of a kubefold before it.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, Kubefold, Member, MemberOptions, Testbed, Watch, eventually,
    samples::{config_map, controlled_pod, crd, create_all, deployment, keys, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(30);
const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const EVENTS: &str = "/api/v1/namespaces/shop/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/shop/events";
// In a namespace of their own: a kube-apiserver that repairs a Service's address writes an Event about it.
const SERVICES: &str = "/api/v1/namespaces/net/services";
const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets";
/// Of the tests that use shared members, each its own.
const HELD: &str = "/api/v1/namespaces/held/configmaps";
const FIELD_PODS: &str = "/api/v1/namespaces/fields/pods";
const FIELD_EVENTS: &str = "/api/v1/namespaces/fields/events";
/// Above every revision.
const FUTURE: &str = "9007199254740991";

fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// An answer up to numbers: status, what clients branch on, and every word.
fn told(answer: &Answer) -> (StatusCode, Option<String>, String) {
    let retry_after = answer.headers.get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
    let text = String::from_utf8_lossy(&answer.body);
    let mut words = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if words.ends_with('N') => {}
            '0'..='9' => words.push('N'),
            c => words.push(c),
        }
    }
    (answer.status, retry_after, words)
}

async fn both(theirs: &Api, ours: &Api, path: &str) -> (Answer, Answer) {
    let ask = async |api: &Api| {
        let request = Request::get(path).header(header::ACCEPT, "application/json").body(Bytes::new()).unwrap();
        api.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    tokio::join!(ask(theirs), ask(ours))
}

async fn refused_alike(theirs: &Api, ours: &Api, path: &str) {
    let (said, got) = both(theirs, ours, path).await;
    assert!(!said.status.is_success(), "{path}: the member has no objection: {said}");
    assert_eq!(told(&got), told(&said), "{path}");
}

/// A CRD whose `spec.color` and `spec.size` may be selected by.
fn selectable() -> Value {
    let mut crd = crd("Gadget");
    crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}}}});
    crd
}

fn object(kind: &str, api_version: &str, name: &str, more: &Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": {"app": name}}});
    more.as_object().unwrap().iter().for_each(|(key, value)| object[key] = value.clone());
    object
}

fn event(name: &str, about: &Value, more: &Value) -> Value {
    let more = more.as_object().unwrap().clone();
    let mut whole = json!({"involvedObject": about, "reason": "Tested", "message": "so it was", "type": "Warning"});
    more.into_iter().for_each(|(key, value)| whole[key] = value);
    object("Event", "v1", name, &whole)
}

async fn status(api: &Api, path: &str, status: Value) {
    let patch = Request::patch(format!("{path}/status"))
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Bytes::from(json!({"status": status}).to_string()));
    api.send(patch.unwrap()).await.unwrap().ok();
}

async fn filled() -> Member {
    let east = Member::start("east", MemberOptions::default()).await;
    namespace(&east, "shop").await;
    namespace(&east, "net").await;
    let api = east.api().await;
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &selectable()).await;
    let mut pods = [controlled_pod("a", "web"), controlled_pod("b", "web"), controlled_pod("c", "db")];
    pods[1]["spec"]["nodeName"] = json!("n1");
    pods[1]["spec"]["restartPolicy"] = json!("Never");
    pods[2]["spec"]["hostNetwork"] = json!(true);
    pods[2]["spec"]["schedulerName"] = json!("mine");
    create_all(&api, PODS, &pods).await;
    let running = json!({"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]});
    status(&api, &format!("{PODS}/b"), running).await;
    let node = |name: &str, spec: Value| object("Node", "v1", name, &json!({ "spec": spec }));
    create_all(&api, "/api/v1/nodes", &[node("n1", json!({})), node("n2", json!({"unschedulable": true}))]).await;
    let about = |name: &str| json!({"kind": "Pod", "namespace": "shop", "name": name, "uid": format!("u-{name}")});
    let events = [
        event("e1", &about("a"), &json!({"source": {"component": "kubelet"}})),
        event("e2", &about("b"), &json!({"reportingComponent": "mine", "reportingInstance": "x", "type": "Normal"})),
    ];
    create_all(&api, EVENTS, &events).await;
    let secret = |name: &str, kind: &str| object("Secret", "v1", name, &json!({ "type": kind }));
    create_all(&api, "/api/v1/namespaces/shop/secrets", &[secret("s1", "Opaque"), secret("s2", "x/y")]).await;
    let service = |name: &str, spec: Value| object("Service", "v1", name, &json!({ "spec": spec }));
    let port = json!([{"port": 80}]);
    let services = [
        service("v1", json!({"ports": port, "type": "NodePort"})),
        service("v2", json!({"ports": port, "clusterIP": "None"})),
    ];
    create_all(&api, SERVICES, &services).await;
    let template = deployment("web", 1)["spec"].clone();
    create_all(
        &api,
        "/apis/apps/v1/namespaces/shop/replicasets",
        &[object(
            "ReplicaSet",
            "apps/v1",
            "web",
            &json!({"spec": {"selector": template["selector"], "template": template["template"]}}),
        )],
    )
    .await;
    let containers = json!([{"name": "main", "image": "main:1"}]);
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}});
    create_all(&api, "/apis/batch/v1/namespaces/shop/jobs", &[object("Job", "batch/v1", "j", &job)]).await;
    create_all(&api, SHOP, &[config_map("x", json!({"l": "1"})), config_map("y", json!({"l": "2"}))]).await;
    eventually(SOON, async || {
        let served = api.request(Method::GET, GADGETS, "").await;
        if served.status.is_success() { Ok(()) } else { Err(served) }
    })
    .await;
    let gadget = |name: &str, spec: Value| object("Gadget", "e2e.kubefold.io/v1", name, &json!({ "spec": spec }));
    let gadgets = [gadget("g1", json!({"color": "blue", "size": 3})), gadget("g2", json!({"color": "red"}))];
    create_all(&api, GADGETS, &[gadgets.as_slice(), &[gadget("g3", json!({}))]].concat()).await;
    east
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_one_is_queried_as_its_member() {
    let east = filled().await;
    let fleet = Kubefold::before(std::slice::from_ref(&east)).await;
    let (theirs, ours) = (east.api().await, fleet.api().await);
    bad_selectors(&theirs, &ours).await;
    bad_options(&theirs, &ours).await;
    fields_of_kinds(&theirs, &ours).await;
    streams(&theirs, &ours).await;
    limits(&theirs, &ours).await;
}

/// Label selectors that nobody can mean.
const BAD_LABELS: &[&str] = &[
    "a in (b",
    "a=b=c",
    "x>a",
    "x<",
    "a in b",
    "a in (",
    ",",
    "a,",
    "a,,b",
    "=a",
    "a!",
    "a b",
    "(a)",
    "a in",
    "!",
    "!a=b",
    "a notin (b",
    "a===b",
    "a=>b",
    "a in (b)c",
    "x>1,",
    "-a=b",
    "a/b/c=d",
    "A.b/=c",
    "/a=b",
    "a=b@nowhere",
    "a=$",
    "UP/a=b",
    "a=b c",
    "in (a)",
    "a in (b c)",
    "a=(b)",
    "a>=1",
    "ä=b",
    "a=ä",
    "a in (a@b)",
    "a in (c,$,-)",
    "a>-1",
    "a>1.5",
    "a<9999999999999999999999",
    "a!in (b)",
    "a=b,,",
    "x>'1'",
    "a.b..c/d=e",
    "a in (b))",
];

async fn bad_selectors(theirs: &Api, ours: &Api) {
    let long = "x".repeat(64);
    let too_long = [format!("a={long}"), format!("{long}=a"), format!("{}/a=b", "x".repeat(254)), format!("a={long}$")];
    for selector in BAD_LABELS.iter().copied().chain(too_long.iter().map(String::as_str)) {
        refused_alike(theirs, ours, &format!("{PODS}?labelSelector={}", escaped(selector))).await;
    }
    let fields = [
        "a",
        "a=b=c",
        "metadata.name",
        "spec.nodeName>3",
        "=x",
        r"metadata.name=a\b",
        r"metadata.name=a\",
        "!a",
        "metadata.name in (a)",
        " metadata.name=x",
        "metadata.name =x",
        "zz..z=1,aa..a=2",
        "bad,metadata.name=x",
        "spec..nodeName=x",
        ".spec.nodeName=x",
        "spec.containers[=x",
        "spec.containers[x]=y",
    ];
    for selector in fields {
        refused_alike(theirs, ours, &format!("{PODS}?fieldSelector={}", escaped(selector))).await;
        refused_alike(theirs, ours, &format!("{PODS}?watch=1&fieldSelector={}", escaped(selector))).await;
    }
    // Of several mistakes the same one is told.
    for query in [
        "fieldSelector=a&resourceVersionMatch=Foo&labelSelector=,&limit=x",
        "fieldSelector=a&resourceVersionMatch=Foo&labelSelector=,",
        "fieldSelector=a&resourceVersionMatch=Foo",
        "fieldSelector=a..b%3Dx&resourceVersionMatch=Foo",
        "fieldSelector=a..b%3Dx&resourceVersion=x",
    ] {
        refused_alike(theirs, ours, &format!("{PODS}?{query}")).await;
    }
    for query in ["fieldSelector=metadata.name%3Dfoo", "fieldSelector=metadata.namespace%3Dshop"] {
        refused_alike(theirs, ours, &format!("/api/v1/watch/namespaces/shop/configmaps/x?{query}")).await;
    }
}

async fn bad_options(theirs: &Api, ours: &Api) {
    let future = format!("resourceVersion={FUTURE}");
    for query in [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=1.5",
        "resourceVersion=99999999999999999999999999",
        "resourceVersion=abc&resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Foo",
        "resourceVersionMatch=Foo&resourceVersion=1",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Exact&continue=abc",
        "resourceVersionMatch=Exact&resourceVersion=0&continue=abc",
        "sendInitialEvents=true",
        "sendInitialEvents=",
        "sendInitialEvents=true&resourceVersionMatch=Foo",
        "limit=x",
        "limit=1.5",
        "limit=",
        "limit=99999999999999999999",
        "timeoutSeconds=x",
        "timeoutSeconds=",
        &future,
        &format!("{future}&resourceVersionMatch=Exact"),
        &format!("{future}&resourceVersionMatch=NotOlderThan"),
        &format!("{future}&limit=1"),
    ] {
        refused_alike(theirs, ours, &format!("{SHOP}?{query}")).await;
    }
    for query in [
        "sendInitialEvents=true",
        "sendInitialEvents=false",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=true&resourceVersionMatch=Foo",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Foo",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=abc",
        "continue=abc",
        "timeoutSeconds=x",
        "limit=x",
        "labelSelector=a%3Db%3Dc",
    ] {
        refused_alike(theirs, ours, &format!("{SHOP}?watch=1&{query}")).await;
    }
    let (said, got) = both(theirs, ours, &format!("{SHOP}/x?resourceVersion={FUTURE}")).await;
    assert_eq!((said.status, told(&got)), (StatusCode::GATEWAY_TIMEOUT, told(&said)));
    // Status and reason alone: the words behind them are a parser's of Go.
    for token in ["abc", "!!!", "eyJ2IjoxfQ"] {
        let (said, got) = both(theirs, ours, &format!("{SHOP}?continue={token}")).await;
        assert_eq!((got.status, &got.json()["reason"]), (said.status, &said.json()["reason"]));
        let words = "invalid continue token: continue key is not valid: ";
        assert!(got.json()["message"].as_str().unwrap().starts_with(words), "{got}");
    }
}

/// Names of a list, as the member calls its objects.
fn own_names(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| name(item).trim_end_matches("@east").to_owned()).collect()
}

/// Every field that Kubernetes selects by, and those of a custom resource.
async fn fields_of_kinds(theirs: &Api, ours: &Api) {
    let secrets = "/api/v1/namespaces/shop/secrets";
    let sets = "/apis/apps/v1/namespaces/shop/replicasets";
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    // A name that the fleet has otherwise is written `n1@`, for `n1` and `n1@east`.
    let cases: &[(&str, &[&str])] = &[
        (PODS, &["spec.nodeName=n1@", "spec.nodeName=", "spec.nodeName!=n1@", "spec.host=n1@", "spec.host!=n1@"]),
        (PODS, &["spec.restartPolicy=Never", "spec.schedulerName=mine", "spec.serviceAccountName=default"]),
        (PODS, &["spec.hostNetwork=true", "spec.hostNetwork=false", "spec.hostNetwork!=false", "spec.hostNetwork="]),
        (PODS, &["status.phase=Running", "status.phase!=Running", "status.podIP=10.0.0.7", "status.podIP="]),
        (PODS, &["status.podIPs=10.0.0.7", "status.podIPs=", "status.nominatedNodeName=", "metadata.namespace=shop"]),
        (
            PODS,
            &["spec.nodeName=n1@,status.phase=Running", "spec.nodeName=n1@,status.phase=Failed", "metadata.name=b@"],
        ),
        (
            PODS,
            &["metadata.name!=b@", "metadata.name=b@,status.phase==Running", ",", "metadata.name=a@,metadata.name=b@"],
        ),
        ("/api/v1/pods", &["metadata.namespace=shop", "metadata.namespace!=shop", "metadata.namespace=nope"]),
        ("/api/v1/nodes", &["spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable!=true"]),
        (EVENTS, &["involvedObject.name=a@", "involvedObject.name!=a@", "involvedObject.uid=u-b", "reason=Tested"]),
        (
            EVENTS,
            &["involvedObject.kind=Pod,involvedObject.namespace=shop", "involvedObject.apiVersion=", "type=Normal"],
        ),
        (EVENTS, &["source=kubelet", "source=mine", "source=", "source!=mine", "reportingComponent=mine"]),
        (EVENTS, &["involvedObject.resourceVersion=", "involvedObject.fieldPath="]),
        (
            NEW_EVENTS,
            &["regarding.name=a@", "regarding.uid!=u-b", "reportingController=mine", "reason=Tested", "type=Normal"],
        ),
        (
            NEW_EVENTS,
            &["regarding.kind=Pod", "regarding.namespace=shop", "regarding.apiVersion=", "regarding.fieldPath="],
        ),
        (secrets, &["type=Opaque", "type!=Opaque", "type=x/y", "type="]),
        ("/api/v1/namespaces", &["status.phase=Active", "status.phase!=Active", "metadata.name=shop"]),
        (SERVICES, &["spec.clusterIP=None", "spec.clusterIP!=None", "spec.type=NodePort", "spec.type!=NodePort"]),
        (jobs, &["status.successful=0", "status.successful!=0", "status.successful="]),
        (GADGETS, &["spec.color=blue", "spec.color!=blue", "spec.color=", "spec.size=3", "spec.size!=3", "spec.size="]),
        (SHOP, &["metadata.name=x@", "metadata.namespace=shop"]),
    ];
    for (path, selectors) in cases {
        for selector in *selectors {
            let (own, visible) = (selector.replace('@', ""), selector.replace('@', "@east"));
            let query = |selector: &str| format!("{path}?fieldSelector={}", escaped(selector));
            let (said, got) = (theirs.get(&query(&own)).await, ours.get(&query(&visible)).await);
            assert_eq!(own_names(&got), own_names(&said), "{path}: {selector}");
        }
    }
    // Beyond what Kubernetes selects by.
    for (path, selector, wanted) in [
        (sets, "status.replicas=0", &["web"][..]),
        (SHOP, "data.a=1", &["x", "y"]),
        (SHOP, "metadata.labels.l=1", &["x"]),
        (SHOP, "metadata.annotations.kubefold\\.io/cluster=east,metadata.labels['l']!=1", &["y"]),
        (PODS, "spec.containers[0].image=main:1,spec.containers[*].name!=other,spec.nodeName!=", &["b"]),
        (PODS, "status.podIPs[*].ip=10.0.0.7", &["b"]),
        (PODS, "spec.nope=x", &[]),
    ] {
        let list = ours.get(&format!("{path}?fieldSelector={}", escaped(selector))).await;
        assert!(own_names(&list).iter().filter(|name| !name.starts_with("kube-root")).eq(wanted), "{selector}: {list}");
    }
}

/// Type and own name of every event; of a bookmark what it says, of an error its code.
async fn gist(api: &Api, path: &str) -> Vec<String> {
    let mut watch = api.watch(path).await;
    assert_eq!(watch.status, StatusCode::OK, "{path}");
    let mut gist = Vec::new();
    while let Some(event) = watch.next(SOON).await {
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        gist.push(match kind {
            "BOOKMARK" => {
                let mut told = object.clone();
                assert!(revision(&told) > 0);
                told["metadata"]["resourceVersion"] = json!("");
                format!("{kind} {told}")
            }
            "ERROR" => format!("{kind} {} {} {}", object["code"], object["reason"], object["details"]),
            _ => format!("{kind} {}", name(object).trim_end_matches("@east")),
        });
    }
    gist
}

async fn streams(theirs: &Api, ours: &Api) {
    let list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let queries = [
        String::new(),
        "&resourceVersion=0".into(),
        "&allowWatchBookmarks=true".into(),
        "&resourceVersion=0&allowWatchBookmarks=true".into(),
        format!("&{list}"),
        format!("&{list}&allowWatchBookmarks=true"),
        format!("&{list}&allowWatchBookmarks=true&resourceVersion=0"),
        format!("&{list}&allowWatchBookmarks=true&resourceVersion=1"),
        format!("&{list}&allowWatchBookmarks=true&labelSelector=l%3D1"),
        format!("&{list}&allowWatchBookmarks=true&resourceVersion={FUTURE}"),
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".into(),
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0".into(),
        "&limit=1".into(),
    ];
    let compare = async |query: &String| {
        let path = format!("{SHOP}?watch=1&timeoutSeconds=1{query}");
        let (mut said, mut got) = tokio::join!(gist(theirs, &path), gist(ours, &path));
        for told in [&mut said, &mut got] {
            // The bookmark before the end: of so short a watch, a kube-apiserver gives it or not.
            told.retain(|event| !event.starts_with("BOOKMARK") || event.contains("initial-events-end"));
            // Initial events come in any order.
            told.sort();
        }
        assert_eq!(got, said, "{path}");
    };
    futures::future::join_all(queries.iter().map(compare)).await;
    // A kube-apiserver ends such a watch at once too, with or without a word.
    assert_eq!(gist(ours, &format!("{SHOP}?watch=1&timeoutSeconds=-1")).await, [""; 0]);
    // Shortly before the end a bookmark, and then still what happens.
    let list = ours.get(SHOP).await;
    let path = format!("{SHOP}?watch=1&timeoutSeconds=4&allowWatchBookmarks=true&resourceVersion={}", revision(&list));
    assert_eq!(gist(ours, &path).await.len(), 1);
}

async fn limits(theirs: &Api, ours: &Api) {
    for query in
        ["limit=1&resourceVersion=0", "limit=-1", "limit=0", "limit=1", "limit=1&limit=2", "limit=1&labelSelector=l"]
    {
        let (said, got) = (theirs.get(&format!("{SHOP}?{query}")).await, ours.get(&format!("{SHOP}?{query}")).await);
        let shape = |list: &Value| {
            let meta = &list["metadata"];
            (own_names(list), meta.get("continue").is_some(), meta.get("remainingItemCount").cloned())
        };
        assert_eq!(shape(&got), shape(&said), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_revision_that_was_given_out_is_had_again() {
    let bed = Testbed::shared(&["east", "west"]).await;
    for member in bed.members() {
        namespace(member, "held").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let (east, west) = (bed["east"].api().await, bed["west"].api().await);
    create_all(&east, HELD, &[config_map("a", json!({})), config_map("b", json!({}))]).await;
    create_all(&west, HELD, &[config_map("c", json!({}))]).await;
    let shown = async |wanted: &[&str]| {
        eventually(SOON, async || {
            let list = api.get(HELD).await;
            let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(name).collect();
            if names == wanted { Ok(list) } else { Err(list.to_string()) }
        })
        .await
    };
    let first = shown(&["a@east", "b@east", "c@west"]).await;
    west.request(Method::DELETE, &format!("{HELD}/c"), "").await.ok();
    let second = shown(&["a@east", "b@east"]).await;
    create_all(&west, HELD, &[config_map("d", json!({}))]).await;
    east.request(Method::DELETE, &format!("{HELD}/a"), "").await.ok();
    create_all(&west, HELD, &[config_map("e", json!({}))]).await;
    let third = shown(&["b@east", "d@west", "e@west"]).await;
    for list in [&first, &second, &third] {
        let at = revision(list);
        let exact = api.get(&format!("{HELD}?resourceVersion={at}&resourceVersionMatch=Exact")).await;
        assert_eq!(&exact, list, "to the last bit");
        // A limit without a match means the same.
        let page = api.get(&format!("{HELD}?resourceVersion={at}&limit=1")).await;
        assert_eq!(
            (revision(&page), page["metadata"]["remainingItemCount"].as_u64()),
            (at, Some(keys(list).len() as u64 - 1))
        );
        let token = page["metadata"]["continue"].as_str().unwrap();
        let rest = api.get(&format!("{HELD}?continue={token}")).await;
        assert_eq!((revision(&rest), [keys(&page), keys(&rest)].concat()), (at, keys(list)));
    }
    other_kinds(&api, &west, &third).await;
    fresh_tokens(&api).await;
    let before = revision(&first) - (1 << 40);
    let gone =
        api.request(Method::GET, &format!("{HELD}?resourceVersion={before}&resourceVersionMatch=Exact"), "").await;
    assert_eq!((gone.status, &gone.json()["reason"]), (StatusCode::GONE, &json!("Expired")), "{gone}");
    // In no life of kubefold is a revision of an earlier one had again.
    fleet.restart().await;
    let at = revision(&third);
    let gone = fleet.request(Method::GET, &format!("{HELD}?resourceVersion={at}&resourceVersionMatch=Exact"), "").await;
    assert_eq!((gone.status, &gone.json()["reason"]), (StatusCode::GONE, &json!("Expired")), "{gone}");
}

/// Revisions are of one counter, as in a kube-apiserver: one that another kind gave out is good for this one.
async fn other_kinds(api: &Api, west: &Api, list: &Value) {
    let secrets = "/api/v1/namespaces/held/secrets";
    api.get(secrets).await;
    create_all(west, secrets, &[object("Secret", "v1", "s", &json!({}))]).await;
    let at = eventually(SOON, async || {
        let secrets = api.get(secrets).await;
        if keys(&secrets).len() == 1 { Ok(revision(&secrets)) } else { Err(secrets.to_string()) }
    })
    .await;
    assert!(at > revision(list));
    for query in ["&resourceVersionMatch=Exact", "&limit=100", "&resourceVersionMatch=NotOlderThan", ""] {
        let same = api.get(&format!("{HELD}?resourceVersion={at}{query}")).await;
        assert_eq!((revision(&same), keys(&same)), (at, keys(list)), "{query}");
    }
    let mut watch = api.watch(&format!("{HELD}?watch=1&resourceVersion={at}&timeoutSeconds=20")).await;
    create_all(west, HELD, &[config_map("late", json!({}))]).await;
    assert_eq!(next(&mut watch).await, ("ADDED".into(), "late@west".into()));
}

async fn next(watch: &mut Watch) -> (String, String) {
    let event = watch.next(SOON).await.expect("an event before the end of the watch");
    (event["type"].as_str().unwrap().to_owned(), name(&event["object"]).to_owned())
}

/// A token that is too old comes with one that goes on at the newest, and the pages behind it share one revision.
async fn fresh_tokens(api: &Api) {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let all = keys(&api.get(HELD).await);
    let page = api.get(&format!("{HELD}?limit=1")).await;
    let token = URL_SAFE_NO_PAD.decode(page["metadata"]["continue"].as_str().unwrap()).unwrap();
    let mut aged: Value = serde_json::from_slice(&token).unwrap();
    aged["rv"] = json!(revision(&page) - 8);
    let aged = URL_SAFE_NO_PAD.encode(aged.to_string());
    let expired = api.request(Method::GET, &format!("{HELD}?limit=1&continue={aged}"), "").await;
    let body = expired.json();
    assert_eq!((expired.status, &body["reason"]), (StatusCode::GONE, &json!("Expired")), "{expired}");
    let words = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.";
    assert_eq!((&body["message"], body.get("details")), (&json!(words), None));
    let mut token = body["metadata"]["continue"].as_str().unwrap().to_owned();
    let (mut seen, mut at) = (keys(&page), None);
    while !token.is_empty() {
        let page = api.get(&format!("{HELD}?limit=1&continue={token}")).await;
        assert_eq!(*at.get_or_insert_with(|| revision(&page)), revision(&page));
        seen.extend(keys(&page));
        let left = (all.len() - seen.len()) as u64;
        assert_eq!(page["metadata"]["remainingItemCount"].as_u64(), (left > 0).then_some(left));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_carry_visible_names() {
    let bed = Testbed::shared(&["east", "west"]).await;
    for member in bed.members() {
        namespace(member, "fields").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let placed = api.create("/apis/apps/v1/namespaces/fields/deployments", &deployment("web", 2)).await;
    for member in bed.members() {
        events_of(member, if member.name() == "east" { "web-0" } else { "web-1" }).await;
    }
    eventually(SOON, async || {
        let events = api.get("/api/v1/events").await;
        if keys(&events).iter().filter(|key| key.contains("/of-")).count() == 6 {
            Ok(())
        } else {
            Err(events.to_string())
        }
    })
    .await;
    let selected = async |selector: &str| {
        let list = api.get(&format!("/api/v1/events?fieldSelector={}", escaped(selector))).await;
        list["items"].as_array().unwrap().iter().map(|event| name(event).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(selected("involvedObject.name=web-0@east").await, ["of-pod@east"]);
    assert_eq!(selected("involvedObject.name=web-0").await, [""; 0]);
    assert_eq!(selected("involvedObject.name=n@west").await, ["of-node@west"]);
    // Of a placed object all parts' events, by its one name and its one UID.
    let uid = placed["metadata"]["uid"].as_str().unwrap();
    let of_whole = selected(&format!("involvedObject.name=web,involvedObject.uid={uid}")).await;
    assert_eq!(of_whole, ["of-whole@east", "of-whole@west"]);

    // What kubectl makes of it, by exact and by short names.
    for (args, reason, not) in [
        (["pod", "web-0@east"], "SeenPodeast", "SeenNode"),
        (["pod", "web-0"], "SeenPodeast", "SeenPodwest"),
        (["pod", "web-1"], "SeenPodwest", "SeenPodeast"),
        (["deployment", "web"], "SeenWholewest", "SeenPod"),
        (["node", "n@west"], "SeenNodewest", "SeenNodeeast"),
    ] {
        let told = fleet.kubectl(&[["-n", "fields", "describe"].as_slice(), &args].concat()).await.ok().to_owned();
        assert!(told.contains(reason) && !told.contains(not), "{args:?}: {told}");
    }
    let on_node =
        fleet.kubectl(&["-n", "fields", "get", "pods", "--field-selector", "spec.nodeName=n@east", "-o", "name"]);
    assert_eq!(on_node.await.ok().trim(), "pod/web-0@east");
    enters_and_leaves(&bed["east"], &api).await;
}

/// A node, a controlled pod on it, and events about these and the member's part of the Deployment `web`.
async fn events_of(member: &Member, pod: &str) {
    let api = member.api().await;
    create_all(&api, "/api/v1/nodes", &[object("Node", "v1", "n", &json!({}))]).await;
    let mut made = controlled_pod(pod, "web");
    made["spec"]["nodeName"] = json!("n");
    let made = api.create(FIELD_PODS, &made).await;
    let part = api.get("/apis/apps/v1/namespaces/fields/deployments/web").await;
    let (uid, part_uid) = (&made["metadata"]["uid"], &part["metadata"]["uid"]);
    let at = member.name();
    let now = json!("2026-11-20T10:00:00Z");
    let seen = |what: &str| json!({"reason": format!("Seen{what}{at}"), "source": {"component": "x"}, "firstTimestamp": now, "lastTimestamp": now});
    let about_pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "fields", "name": pod, "uid": uid});
    let about_whole =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "fields", "name": "web", "uid": part_uid});
    // A kubelet writes its node's name for the UID.
    let about_node = json!({"kind": "Node", "name": "n", "uid": "n"});
    create_all(
        &api,
        FIELD_EVENTS,
        &[event("of-pod", &about_pod, &seen("Pod")), event("of-whole", &about_whole, &seen("Whole"))],
    )
    .await;
    let mut of_node = event("of-node", &about_node, &seen("Node"));
    of_node["metadata"]["namespace"] = json!("default");
    create_all(&api, "/api/v1/namespaces/default/events", &[of_node]).await;
}

/// Entering what a watch selects is ADDED, leaving it DELETED.
async fn enters_and_leaves(east: &Member, api: &Api) {
    let selector = escaped("status.phase=Running,spec.nodeName=n@east");
    let mut watch = api.watch(&format!("{FIELD_PODS}?watch=1&timeoutSeconds=60&fieldSelector={selector}")).await;
    let own = east.api().await;
    status(&own, &format!("{FIELD_PODS}/web-0"), json!({"phase": "Running"})).await;
    assert_eq!(next(&mut watch).await, ("ADDED".into(), "web-0@east".into()));
    status(&own, &format!("{FIELD_PODS}/web-0"), json!({"phase": "Running", "message": "still"})).await;
    assert_eq!(next(&mut watch).await, ("MODIFIED".into(), "web-0@east".into()));
    status(&own, &format!("{FIELD_PODS}/web-0"), json!({"phase": "Failed"})).await;
    let event = watch.next(SOON).await.unwrap();
    let told = (event["type"].as_str().unwrap(), name(&event["object"]), event["object"]["status"]["phase"].as_str());
    assert_eq!(told, ("DELETED", "web-0@east", Some("Running")), "with the state before");
}
