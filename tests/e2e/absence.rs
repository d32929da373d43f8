//! Members that are unknown, down, skewed or declared absent, in the three views of the fleet.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Answer, Api, FleetFile, Informer, Kubefold, Member, MemberOptions, Testbed, eventually, figure,
    objects::{CONFIG_MAPS, IN_DEFAULT, create, exact, held, same, union, update},
    samples::namespace,
};

const SOON: Duration = Duration::from_secs(30);
/// For a member that hangs to be noticed: two probes of five seconds each, and room.
const NOTICED: Duration = Duration::from_secs(40);
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn ask(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

/// That an answer is 503 and names all of these.
fn unavailable(answer: &Answer, names: &[&str]) -> Result<(), String> {
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    let is_it = answer.status == StatusCode::SERVICE_UNAVAILABLE && names.iter().all(|name| message.contains(name));
    is_it.then_some(()).ok_or_else(|| answer.to_string())
}

/// That an answer is 200, and whether one of its warnings holds all of these.
fn warns(answer: &Answer, texts: &[&str]) -> Result<(), String> {
    let is_it = answer.warnings().iter().any(|warning| texts.iter().all(|text| warning.contains(text)));
    (answer.status == StatusCode::OK && is_it).then_some(()).ok_or_else(|| format!("{:?} {answer}", answer.warnings()))
}

fn names(list: &Value) -> Vec<&str> {
    let name = |item: &'_ Value| -> bool { item["metadata"]["name"] != "kube-root-ca.crt" };
    let items = list["items"].as_array().unwrap().iter().filter(|item| name(item));
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_member_is_left_out_of_the_lenient_view_and_refused_by_the_others() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "one", "east").await;
    create(west, "one", "west").await;
    let both = FleetFile::default().member(east, 1).member(west, 1);
    let fleet = Kubefold::start(&both).await;
    let api = fleet.api().await;
    let before = api.get(CONFIG_MAPS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    west.kill();
    fleet.restart_without_mirror().await;
    // Whatever an informer asks after a restart, nothing reads as a deletion.
    let end = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in [
        String::new(),
        "?limit=500&resourceVersion=0".to_owned(),
        format!("?resourceVersion={before}&resourceVersionMatch=NotOlderThan"),
        format!("?watch=true&{end}"),
        format!("?watch=true&{end}&resourceVersion={before}"),
        format!("?watch=true&resourceVersion={before}"),
    ] {
        let answer = ask(&api, &format!("{CONFIG_MAPS}{query}")).await;
        unavailable(&answer, &["west is down", "connection refused"])
            .unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let request = Request::get(CONFIG_MAPS).header(header::ACCEPT, accept).body(Bytes::new()).unwrap();
    unavailable(&api.send(request).await.unwrap(), &["west is down"]).unwrap();
    unavailable(&ask(&api, &format!("/views/strict{CONFIG_MAPS}")).await, &["west is down"]).unwrap();

    let lenient = ask(&api, &format!("/views/lenient{IN_DEFAULT}")).await;
    warns(&lenient, &["configmaps of member west", "west is down", "left out"]).unwrap();
    assert_eq!(names(&lenient.ok()), ["one@east"]);
    // Who asks for one by its member's name asks about that member.
    unavailable(&ask(&api, &format!("/views/lenient{IN_DEFAULT}/one@west")).await, &["west is down"]).unwrap();
    assert_eq!(ask(&api, &format!("/views/lenient{IN_DEFAULT}/one@east")).await.ok()["data"]["is"], "east");
    let nested = ask(&api, &format!("/views/strict/clusters/east{IN_DEFAULT}")).await;
    assert_eq!(nested.status, StatusCode::NOT_FOUND, "{nested}");

    // It appears in an open watch, and in an informer of the lenient view, once it is known.
    let mut watch = api.watch(&format!("/views/lenient{IN_DEFAULT}?watch=true")).await;
    let mut informer = Informer::start(&fleet.kubeconfig(), Some("fleet-lenient"), "configmaps", true);
    informer.synced(SOON).await;
    west.restart().await;
    let told = async {
        loop {
            let event = watch.next(SOON).await.expect("the watch is open");
            if event["object"]["metadata"]["name"] == "one@west" {
                return event["type"].clone();
            }
        }
    };
    assert_eq!(told.await, "ADDED");
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    let want = union(&[east, west]).await;
    eventually(SOON, async || same(&held(&informer.dump().await), &want)).await;
    assert_eq!(informer.events_of("DELETE"), Vec::<Value>::new());

    // Declared absent, a member is nobody's concern.
    west.kill();
    fleet.configure(&FleetFile::default().member(east, 1).entry("west", &west.kubeconfig(), 1, "absent: true"));
    eventually(SOON, async || {
        let answer = api.try_request(Method::GET, &format!("/views/strict{IN_DEFAULT}"), "").await?;
        let is_it = answer.status == StatusCode::OK && answer.warnings().is_empty();
        is_it.then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_through_every_view() {
    let bed = Testbed::shared(&["east", "west"]).await;
    for member in bed.members() {
        namespace(member, "views").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let map = |name: &str| {
        let metadata = json!({"name": format!("{name}@west"), "namespace": "views"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"is": "made"}}).to_string()
    };
    for context in ["fleet-lenient", "fleet-strict"] {
        let kubectl = fleet.as_admin().in_context(context);
        let name = format!("made-{context}");
        kubectl.run_with_input(&["create", "--validate=strict", "-f", "-"], &map(&name)).await.ok();
        let list = kubectl.run(&["get", "configmaps", "-n", "views", "-o", "name"]).await;
        assert!(list.ok().contains(&name), "{list}");
        assert!(!list.stderr.contains("Warning"), "{list}");
        assert!(kubectl.run(&["api-resources"]).await.ok().contains("configmaps"));
        assert!(kubectl.run(&["version"]).await.ok().contains("Server Version"));
        assert_eq!(kubectl.run(&["get", "--raw", "/livez"]).await.ok(), "ok");
        let explained = kubectl.run(&["explain", "configmap.data"]).await;
        assert!(explained.ok().contains("FIELD: data"), "{explained}");
        let watching = kubectl.start(&["get", "configmaps", "-n", "views", "--watch", "-o", "name"]);
        eventually(SOON, async || watching.output().contains(&name).then_some(()).ok_or_else(|| watching.output()))
            .await;
        let later = format!("later-{context}");
        bed["east"].kubectl(&["create", "configmap", &later, "-n", "views"]).await.ok();
        eventually(SOON, async || watching.output().contains(&later).then_some(()).ok_or_else(|| watching.output()))
            .await;
        for watchlist in [true, false] {
            Informer::start(&fleet.kubeconfig(), Some(context), "configmaps", watchlist).synced(SOON).await;
        }
    }
    // A name that would be two contexts.
    let file = FleetFile::default().entry("lenient", &bed["east"].kubeconfig(), 1, "");
    fleet.configure(&file);
    assert!(!fleet.restart_in_vain().await.success());
    assert!(fleet.log().contains("the context fleet-lenient is a view of the whole fleet"), "{}", fleet.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_strict_view_goes_on_only_while_every_member_is_current() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "one", "east").await;
    create(west, "one", "west").await;
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let strict = format!("/views/strict{IN_DEFAULT}");
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    assert_eq!(names(&api.get(&strict).await), ["one@east", "one@west"]);
    let mut informer = Informer::start(&fleet.kubeconfig(), Some("fleet-strict"), "configmaps", true);
    informer.synced(SOON).await;
    let mut watch = api.watch(&format!("{strict}?watch=true&resourceVersion=0")).await;

    west.kill();
    eventually(NOTICED, async || unavailable(&ask(&api, &strict).await, &["west is down", "refused"])).await;
    let refused = ask(&api, &strict).await.to_string();
    assert!(!refused.contains("is shown"), "nothing is: {refused}");
    unavailable(&ask(&api, &format!("{strict}/one@west")).await, &["west"]).unwrap();
    assert_eq!(ask(&api, &format!("{strict}/one@east")).await.ok()["data"]["is"], "east");
    unavailable(&ask(&api, &format!("{strict}?watch=true")).await, &["west is down"]).unwrap();
    let mut last = Value::Null;
    while let Some(event) = watch.next(SOON).await {
        last = event;
    }
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(503)), "{last}");
    create(east, "two", "east").await;
    west.restart().await;
    eventually(SOON, async || {
        let answer = ask(&api, &strict).await;
        (answer.status == StatusCode::OK).then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
    let want = union(&[east, west]).await;
    eventually(NOTICED, async || same(&held(&informer.dump().await), &want)).await;
    assert_eq!(informer.events_of("DELETE"), Vec::<Value>::new());

    // A member whose data are out of reach behind a server that lives, or that hangs, may be old: people are told soon.
    west.stop_etcd();
    let since = Instant::now();
    eventually(NOTICED, async || warns(&ask(&api, IN_DEFAULT).await, &["west"])).await;
    figure(&format!("a member without its etcd is warned of after {:?}", since.elapsed()));
    unavailable(&ask(&api, &strict).await, &["west"]).unwrap();
    west.restart().await;
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    west.pause();
    let since = Instant::now();
    eventually(NOTICED, async || warns(&ask(&api, IN_DEFAULT).await, &["west"])).await;
    figure(&format!("a member that hangs is warned of after {:?}", since.elapsed()));
    west.resume();
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    update(west, "one", "again").await;
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
}

/// A CRD for `widgets.example.com` of these versions, the first of which is stored.
fn widgets(versions: &[&str], scope: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |(at, name): (usize, &&str)| json!({"name": name, "served": true, "storage": at == 0, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": scope,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Makes a widget once its CRD is in force.
async fn widget(member: &Member, path: &str, version: &str, name: &str) {
    let object = json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}});
    let api = member.api().await;
    eventually(SOON, async || {
        let answer = api.try_request(Method::POST, path, object.to_string()).await?;
        (answer.status == StatusCode::CREATED).then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_version_or_scope_is_left_out_with_a_warning() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let crds = [("east", widgets(&["v1", "v1beta1"], "Namespaced")), ("west", widgets(&["v1beta1"], "Namespaced"))];
    for (member, crd) in crds.iter().chain([&("north", widgets(&["v1"], "Cluster"))]) {
        bed[member].api().await.create(CRDS, crd).await;
    }
    let (v1, beta) = ("/apis/example.com/v1", "/apis/example.com/v1beta1");
    widget(&bed["east"], &format!("{v1}/namespaces/default/widgets"), "v1", "one").await;
    widget(&bed["west"], &format!("{beta}/namespaces/default/widgets"), "v1beta1", "one").await;
    widget(&bed["north"], &format!("{v1}/widgets"), "v1", "one").await;
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;

    let list = eventually(SOON, async || {
        let answer = ask(&api, &format!("{v1}/widgets")).await;
        warns(&answer, &["member west serves widgets.example.com in version v1beta1 only"]).map(|()| answer)
    })
    .await;
    warns(&list, &["member north serves widgets.example.com with another kind or scope"]).unwrap();
    assert_eq!(names(&list.ok()), ["one@east"]);
    let both = ask(&api, &format!("{beta}/namespaces/default/widgets")).await;
    assert_eq!(names(&both.ok()), ["one@east", "one@west"]);
    // Of one member only that one is spoken of.
    let one = ask(&api, &format!("{v1}/namespaces/default/widgets/one@east")).await;
    assert_eq!((one.status, one.warnings()), (StatusCode::OK, Vec::new()));
    let refused = ask(&api, &format!("/views/strict{v1}/widgets")).await;
    unavailable(&refused, &["member west serves", "member north serves"]).unwrap();
    let strict = ask(&api, &format!("/views/strict{v1}/namespaces/default/widgets/one@east")).await;
    assert_eq!(strict.status, StatusCode::OK, "{strict}");
    let kubectl = fleet.kubectl(&["get", "widgets.v1.example.com", "-A", "-o", "name"]).await;
    assert!(kubectl.stderr.contains("Warning: member west serves"), "{kubectl}");
}
