//! What the fleet serves, as members gain and lose kinds.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Api, Kubefold, Member, MemberOptions, Testbed, eventually, figure,
    samples::{config_map, crd, name, namespace},
};

const SOON: Duration = Duration::from_secs(30);
/// For a kind to be served once its member serves it.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/shop/widgets";

/// Creates a CRD and waits until the member itself serves it.
async fn define(member: &Member, kind: &str) {
    let api = member.api().await;
    api.create(CRDS, &crd(kind)).await;
    let path = format!("/apis/e2e.kubefold.io/v1/{}s", kind.to_lowercase());
    eventually(SOON, async || {
        let answer = api.request(Method::GET, &path, "").await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer) }
    })
    .await;
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"n": 1}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_serves_what_its_members_serve() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    kubectl_discovers(&fleet).await;
    readiness_names_members(&fleet).await;
    a_new_kind_comes(&bed, &fleet).await;
    kinds_are_explained(&fleet).await;
    a_second_member_gains_it(&bed, &fleet).await;
    hashes_of_storage_versions_are_those_of_all(&bed, &fleet).await;
    it_goes(&bed, &fleet).await;
    what_is_not_there(&fleet).await;
}

/// What the fleet says is established can be created, listed and watched at once, and what becomes of it is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_at_hand_once_it_is_established() {
    let bed = Testbed::shared(&["east", "west", "north"]).await;
    for member in bed.members() {
        namespace(member, "prompt").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    for kind in ["Alpha", "Beta", "Gamma"] {
        let plural = format!("{}s", kind.to_lowercase());
        let made = api.create(CRDS, &crd(kind)).await;
        let from = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let selector = format!("fieldSelector=metadata.name%3D{plural}.e2e.kubefold.io");
        let mut definitions = api.watch(&format!("{CRDS}?watch=1&resourceVersion={from}&{selector}")).await;
        let is_established = |definition: &Value| {
            let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        // It may be so before the last member has made it.
        let mut now = made;
        while !is_established(&now) {
            now = definitions.next(SOON).await.unwrap()["object"].take();
        }
        let established = Instant::now();
        let path = format!("/apis/e2e.kubefold.io/v1/namespaces/prompt/{plural}");
        let listed = api.get(&path).await;
        assert_eq!(listed["items"], json!([]));
        let at = listed["metadata"]["resourceVersion"].as_str().unwrap();
        let mut watch = api.watch(&format!("{path}?watch=1&resourceVersion={at}")).await;
        let read = established.elapsed();
        let object = json!({"apiVersion": "e2e.kubefold.io/v1", "kind": kind, "metadata": {"name": "first"}});
        api.create(&path, &object).await;
        let created = established.elapsed();
        let added = watch.next(SERVED_WITHIN).await.unwrap();
        assert_eq!((&added["type"], name(&added["object"])), (&json!("ADDED"), "first"));
        let deleted = Instant::now();
        api.request(Method::DELETE, &format!("{path}/first"), "").await.ok();
        let event = watch.next(SERVED_WITHIN).await.unwrap();
        assert_eq!((&event["type"], name(&event["object"])), (&json!("DELETED"), "first"));
        let told = deleted.elapsed();
        // A kube-apiserver holds creates back for 2 s after it has established a kind.
        let (theirs, one) = (bed["east"].api().await, crd(&format!("{kind}Own")));
        let own =
            format!("/apis/e2e.kubefold.io/v1/namespaces/prompt/{}", one["spec"]["names"]["plural"].as_str().unwrap());
        theirs.create(CRDS, &one).await;
        let object =
            json!({"apiVersion": "e2e.kubefold.io/v1", "kind": format!("{kind}Own"), "metadata": {"name": "first"}});
        let begun = eventually(SOON, async || {
            let begun = Instant::now();
            let answer = theirs.request(Method::POST, &own, object.to_string()).await;
            if answer.status == StatusCode::CREATED { Ok(begun) } else { Err(answer.to_string()) }
        })
        .await;
        figure(&format!(
            "a kind that is established: listed and watched after {read:?}, created after {created:?} (by a member alone {:?}), its deletion told after {told:?}",
            begun.elapsed()
        ));
        let own = one["metadata"]["name"].as_str().unwrap();
        theirs.request(Method::DELETE, &format!("{CRDS}/{own}"), "").await.ok();
        api.request(Method::DELETE, &format!("{CRDS}/{plural}.e2e.kubefold.io"), "").await.ok();
    }
}

async fn kubectl_discovers(fleet: &Kubefold) {
    let resources = fleet.kubectl(&["api-resources", "--no-headers"]).await;
    for line in [
        "pods po v1 true Pod",
        "deployments deploy apps/v1 true Deployment",
        "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
    ] {
        let found = resources.ok().lines().any(|one| one.split_whitespace().eq(line.split_whitespace()));
        assert!(found, "no {line:?} in {resources}");
    }
    let once = resources.ok().lines().filter(|line| line.starts_with("pods ")).count();
    assert_eq!((once, resources.stderr.as_str()), (1, ""), "each kind once, and nothing to warn of");
    let versions = fleet.kubectl(&["api-versions"]).await;
    for version in ["v1", "apps/v1", "apiextensions.k8s.io/v1"] {
        assert!(versions.ok().lines().any(|line| line == version), "{versions}");
    }
    assert!(fleet.kubectl(&["version"]).await.ok().contains("Server Version: v1.36."));
    fleet.kubectl(&["cluster-info"]).await.ok();
}

async fn readiness_names_members(fleet: &Kubefold) {
    // What every member's kube-apiserver passes, in its own names, and the members beside it.
    let asked = fleet.request(Method::GET, "/clusters/east/readyz?verbose", "").await;
    let passed = String::from_utf8(asked.body.to_vec()).unwrap();
    let passed: Vec<&str> = passed.lines().filter(|line| line.starts_with("[+]")).collect();
    assert!(passed.len() > 20 && passed.contains(&"[+]etcd ok"), "{passed:?}");
    for path in ["/readyz?verbose", "/livez?verbose", "/healthz?verbose"] {
        let ready = fleet.request(Method::GET, path, "").await;
        let text = String::from_utf8(ready.body.to_vec()).unwrap();
        assert_eq!(ready.status, StatusCode::OK);
        for member in ["east", "west", "north"] {
            assert!(text.lines().any(|line| line.starts_with(&format!("[+]member/{member} ok"))), "{text}");
        }
        // `/livez` has what never fails. These two are kubefold's own.
        let of_readyz = |check: &str| ["[+]informer-sync ok", "[+]shutdown ok"].contains(&check);
        for check in passed.iter().filter(|check| !path.starts_with("/livez") || !of_readyz(check)) {
            assert!(text.lines().any(|line| line == *check), "{path} has no {check}: {text}");
        }
    }
    for check in ["/readyz/member/west", "/livez/etcd", "/readyz/etcd"] {
        assert_eq!(fleet.request(Method::GET, check, "").await.status, StatusCode::OK, "{check}");
    }
    assert_eq!(fleet.request(Method::GET, "/readyz/member/south", "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(fleet.kubectl(&["get", "--raw", "/readyz"]).await.ok().trim(), "ok");
}

async fn a_new_kind_comes(bed: &Testbed, fleet: &Kubefold) {
    let (api, east) = (fleet.api().await, bed["east"].api().await);
    assert_eq!(api.request(Method::GET, WIDGETS, "").await.status, StatusCode::NOT_FOUND);
    define(&bed["east"], "Widget").await;
    eventually(SERVED_WITHIN, async || {
        let answer = api.request(Method::GET, WIDGETS, "").await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer) }
    })
    .await;
    let known = fleet.kubectl(&["api-resources", "--api-group=e2e.kubefold.io", "-o", "name"]).await;
    assert_eq!(known.ok().trim(), "widgets.e2e.kubefold.io");

    let at = api.get(WIDGETS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{WIDGETS}?watch=1&resourceVersion={at}")).await;
    east.create(WIDGETS, &widget("first")).await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("ADDED"), "first@east"));
    assert_eq!(
        fleet.kubectl(&["get", "widgets", "-A", "-o", "name"]).await.ok().trim(),
        "widget.e2e.kubefold.io/first@east"
    );
}

/// Each group's document is one member's own: of a kind that only one has, that one's.
async fn kinds_are_explained(fleet: &Kubefold) {
    assert!(fleet.kubectl(&["explain", "deployment.spec.replicas"]).await.ok().contains("FIELD: replicas <integer>"));
    eventually(SOON, async || fleet.kubectl(&["explain", "widgets"]).await.holds("KIND:       Widget")).await;
    let index = fleet.api().await.get("/openapi/v3").await;
    for path in ["api/v1", "apis/apps/v1", "apis/e2e.kubefold.io/v1"] {
        assert!(index["paths"][path]["serverRelativeURL"].is_string(), "{path}");
    }
    // kubectl asks the documents whether the server validates; only then it sends.
    let create = ["create", "-f", "-"];
    let said = fleet.as_admin().run_with_input(&create, &config_map("new", json!({})).to_string()).await;
    said.ok();
    let nothing = fleet.request(Method::GET, "/openapi/v3/apis/nope.io/v1", "").await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}

/// Watches that are open take the second member in.
async fn a_second_member_gains_it(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let mut watch = api.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(name(&watch.next(SOON).await.unwrap()["object"]), "first@east");
    define(&bed["west"], "Widget").await;
    bed["west"].api().await.create(WIDGETS, &widget("second")).await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("ADDED"), "second@west"));
    let crd = api.get(&format!("{CRDS}/widgets.e2e.kubefold.io")).await;
    assert_eq!(crd["metadata"]["annotations"]["kubefold.io/clusters"], "east,west");
}

/// What is stored in another version in one member is no more told, and what all store alike is.
async fn hashes_of_storage_versions_are_those_of_all(bed: &Testbed, fleet: &Kubefold) {
    let hash = async |api: &Api, path: &str, resource: &str| {
        let list = api.get(path).await;
        let one = list["resources"].as_array().unwrap().iter().find(|one| one["name"] == resource).cloned();
        one.unwrap()["storageVersionHash"].as_str().map(str::to_owned)
    };
    let (api, west) = (fleet.api().await, bed["west"].api().await);
    for (path, resource) in
        [("/apis/e2e.kubefold.io/v1", "widgets"), ("/api/v1", "pods"), ("/apis/apps/v1", "deployments")]
    {
        let of_west = hash(&west, path, resource).await;
        assert!(of_west.is_some() && hash(&api, path, resource).await == of_west, "{path}");
    }
    let mut versions = crd("Widget")["spec"]["versions"].clone();
    let mut second = versions[0].clone();
    (versions[0]["storage"], second["name"]) = (false.into(), "v2".into());
    versions.as_array_mut().unwrap().push(second);
    let patch = json!({"spec": {"versions": versions}}).to_string();
    bed["west"].kubectl(&["patch", "crd", "widgets.e2e.kubefold.io", "--type=merge", "-p", &patch]).await.ok();
    eventually(SOON, async || {
        let of_west = hash(&west, "/apis/e2e.kubefold.io/v1", "widgets").await;
        let told = hash(&api, "/apis/e2e.kubefold.io/v1", "widgets").await;
        if told.is_none() { Ok(()) } else { Err(format!("{told:?}, of west {of_west:?}")) }
    })
    .await;
    assert!(hash(&api, "/apis/e2e.kubefold.io/v2", "widgets").await.is_some(), "west alone serves it in this version");
}

async fn it_goes(bed: &Testbed, fleet: &Kubefold) {
    let api = fleet.api().await;
    let mut watch = api.watch(&format!("{WIDGETS}?watch=1&labelSelector=!x")).await;
    for wanted in ["first@east", "second@west"] {
        assert_eq!(name(&watch.next(SOON).await.unwrap()["object"]), wanted);
    }
    bed["east"].kubectl(&["delete", "crd", "widgets.e2e.kubefold.io"]).await.ok();
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("DELETED"), "first@east"));
    // The other's are still there, and not one event says otherwise.
    let left = fleet.kubectl(&["get", "widgets", "-A", "-o", "name"]).await;
    assert_eq!(left.ok().trim(), "widget.e2e.kubefold.io/second@west");
    bed["west"].kubectl(&["delete", "crd", "widgets.e2e.kubefold.io"]).await.ok();
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("DELETED"), "second@west"));
    assert!(watch.next(SOON).await.is_none(), "a watch of a kind that nobody serves ends cleanly");
    eventually(SOON, async || {
        let answer = api.request(Method::GET, WIDGETS, "").await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer) }
    })
    .await;
    let said = fleet.kubectl(&["get", "widgets", "-A"]).await;
    assert!(
        said.refused().contains("doesn't have a resource type \"widgets\"") || said.refused().contains("NotFound"),
        "{said}"
    );
}

async fn what_is_not_there(fleet: &Kubefold) {
    let api = fleet.api().await;
    for path in
        ["/nope", "/apis/nope.io", "/apis/nope.io/v1", "/apis/nope.io/v1/foos", "/api/v2", "/api/v1/foos", "/clusters"]
    {
        let answer = api.request(Method::GET, path, "").await;
        assert_eq!((answer.status, &answer.json()["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")), "{path}");
    }
    for (path, status) in
        [("/api/v1/namespaces/a%2Fb/pods", 400), ("/api/v1/namespaces/../pods", 400), ("/api/v1//pods", 400)]
    {
        assert_eq!(api.request(Method::GET, path, "").await.status.as_u16(), status, "{path}");
    }
}
