//! `name@member`: creates of any kind that say where.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Output, Testbed};

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_creates_in_its_member_alone() {
    let bed = Testbed::start(&["east", "north"], MemberOptions::default()).await;
    let all = [&bed["east"], &bed["north"]];
    let fleet = Kubefold::start(&FleetFile::default().member(all[0], 1).member(all[1], 2)).await;
    let api = fleet.api().await;
    for member in all {
        // Without controllers nobody makes it, and pods ask for it.
        member.kubectl(&["create", "serviceaccount", "default"]).await.ok();
        member.apply(WIDGETS).await;
    }

    by_kubectl(&fleet, &api, &all).await;
    the_answer_is_what_is_stored(&api).await;
    any_kind(&fleet, &api, &all).await;
    references(&api, &all).await;
    refusals(&fleet, &api, &all).await;
    dry_runs(&api, &all).await;
}

/// Created, shown at once under its whole name, and to be found in that member alone.
async fn pinned(fleet: &Kubefold, all: &[&Member; 2], args: &[&str], what: &str, own: &str, member: &str) -> Output {
    let made = fleet.kubectl(args).await;
    assert!(made.ok().contains(&format!("{own}@{member} created")), "{made}");
    fleet.kubectl(&["get", what, &format!("{own}@{member}")]).await.holds(own).unwrap();
    for at in all {
        let there = at.kubectl(&["get", what, own]).await.succeeded();
        assert_eq!(there, at.name() == member, "{what} {own} in {}", at.name());
    }
    made
}

/// kubectl copies the name into labels, selectors and container names, where an `@` is illegal.
async fn by_kubectl(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    pinned(fleet, all, &["create", "configmap", "a@east", "--from-literal=k=v"], "configmap", "a", "east").await;
    pinned(fleet, all, &["create", "deployment", "p@north", "--image=web:1"], "deployment", "p", "north").await;
    let stands = part(all[1], "p").await.unwrap();
    assert_eq!(
        (&stands["metadata"]["labels"]["app"], &stands["spec"]["template"]["spec"]["containers"][0]["name"]),
        (&json!("p"), &json!("web"))
    );
    assert!(stands["metadata"]["annotations"][MARKER].is_null(), "it is member-local");
    pinned(fleet, all, &["run", "x@east", "--image=web:1"], "pod", "x", "east").await;
    let pod = api.get("/api/v1/namespaces/default/pods/x@east").await;
    assert_eq!((text(&pod, "/metadata/labels/run"), text(&pod, "/spec/containers/0/name")), ("x", "x"));
    pinned(fleet, all, &["create", "secret", "generic", "s@north", "--from-literal=k=v"], "secret", "s", "north").await;
    pinned(
        fleet,
        all,
        &["create", "clusterrole", "reader@east", "--verb=get", "--resource=pods"],
        "clusterrole",
        "reader",
        "east",
    )
    .await;
    pinned(fleet, all, &["create", "quota", "q@east", "--hard=pods=9"], "resourcequota", "q", "east").await;
    pinned(fleet, all, &["create", "job", "j@north", "--image=web:1"], "job", "j", "north").await;
}

async fn the_answer_is_what_is_stored(api: &Api) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut watch = api.watch(&format!("{maps}?watch=true")).await;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "same@east"}, "data": {"k": "same@east"}});
    let made = api.create(maps, &object).await;
    assert_eq!(
        (text(&made, "/metadata/name"), text(&made, "/metadata/annotations/kubefold.io~1cluster")),
        ("same@east", "east")
    );
    assert_eq!(api.get(&format!("{maps}/same@east")).await, made);
    assert_eq!(api.get(&format!("{maps}/same%40east")).await, made);
    let (type_, added) = event(&mut watch, "same@east").await;
    assert_eq!((type_.as_str(), &added), ("ADDED", &made));
}

async fn any_kind(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    eventually(SOON, async || fleet.kubectl(&["api-resources"]).await.holds("widgets")).await;
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "w@north"}, "spec": {"size": 3}});
    let widgets = "/apis/shop.example.com/v1/namespaces/default/widgets";
    let made = api.create(widgets, &widget).await;
    assert_eq!((text(&made, "/metadata/name"), &made["spec"]["size"]), ("w@north", &json!(3)));
    assert_eq!(api.get(&format!("{widgets}/w@north")).await, made);
    assert_eq!(in_member(all[1], &format!("{widgets}/w")).await.unwrap()["metadata"]["uid"], made["metadata"]["uid"]);
    let manifest = widget.to_string().replace("w@north", "file@east");
    fleet.as_admin().run_with_input(&["create", "-f", "-"], &manifest).await.holds("file@east created").unwrap();

    // A shared kind keeps its plain name, also where only one member was asked.
    let made = fleet.kubectl(&["create", "namespace", "solo@east"]).await;
    assert!(made.ok().contains("namespace/solo"), "{made}");
    let shown = api.get("/api/v1/namespaces/solo").await;
    assert_eq!(text(&shown, "/metadata/annotations/kubefold.io~1clusters"), "east");
    let inside = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "in@east"}});
    api.create("/api/v1/namespaces/solo/configmaps", &inside).await;
}

/// Owners are named in the member as they are there, and in the fleet as they are shown.
async fn references(api: &Api, all: &[&Member; 2]) {
    let owner = api.get("/api/v1/namespaces/default/configmaps/a@east").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owned = |name: &str, api_version: &str, kind: &str, owner: &Value| {
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [reference]}})
    };
    let made = api.create(maps, &owned("of-native@east", "v1", "ConfigMap", &owner)).await;
    assert_eq!(text(&made, "/metadata/ownerReferences/0/name"), "a@east");
    let stands = in_member(all[0], &format!("{maps}/of-native")).await.unwrap();
    assert_eq!(text(&stands, "/metadata/ownerReferences/0/name"), "a");

    let placed = post(api, &deployment("owner", 3)).await.ok();
    let made = api.create(maps, &owned("of-placed@east", "apps/v1", "Deployment", &placed)).await;
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], placed["metadata"]["uid"]);
    let stands = in_member(all[0], &format!("{maps}/of-placed")).await.unwrap();
    let home = part(all[0], "owner").await.unwrap();
    assert_eq!(stands["metadata"]["ownerReferences"][0]["uid"], home["metadata"]["uid"], "the part's own, there");

    // A placed object goes only where its owner is: elsewhere it would be collected.
    let mut child = deployment("child", 7);
    child["metadata"]["ownerReferences"] = owned("x", "v1", "ConfigMap", &owner)["metadata"]["ownerReferences"].clone();
    let made = post(api, &child).await.ok();
    assert_eq!(text(&made, "/metadata/ownerReferences/0/name"), "a@east");
    assert_eq!(shares(all, "child").await, split(&[("east", 7)]));
    child["metadata"] = json!({"name": "stray", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "u"}]});
    refused(
        &post(api, &child).await,
        422,
        "Invalid",
        &["east: it does not hold the owner ConfigMap \"none\"", "north: "],
    );
}

async fn refusals(fleet: &Kubefold, api: &Api, all: &[&Member; 2]) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
    let again = api.request(Method::POST, maps, map("a@east")).await;
    refused(&again, 409, "AlreadyExists", &["configmaps \"a@east\" already exists"]);
    assert_eq!(again.json()["details"]["name"], "a@east");
    let said = fleet.kubectl(&["create", "configmap", "a@east"]).await;
    assert!(said.refused().contains("\"a@east\" already exists"), "{said}");
    // The same plain name in another member is another object.
    api.request(Method::POST, maps, map("a@north")).await.ok();
    let nowhere = api.request(Method::POST, maps, map("a@south")).await;
    refused(&nowhere, 422, "Invalid", &["a@south", "@east, @north"]);
    let bad = api.request(Method::POST, maps, map("A_@east")).await;
    refused(&bad, 422, "Invalid", &["A_@east"]);
    let absent = api.request(Method::POST, "/api/v1/namespaces/nowhere/configmaps", map("a@east")).await;
    refused(&absent, 404, "NotFound", &["namespaces \"nowhere\" not found"]);
    // Where a part stands its name is taken.
    let taken = post(api, &deployment("owner@east", 1)).await;
    refused(&taken, 409, "AlreadyExists", &["\"owner@east\" already exists"]);
    assert_eq!(shares(all, "owner").await, split(&[("east", 1), ("north", 2)]));
}

async fn dry_runs(api: &Api, all: &[&Member; 2]) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry@east"}}).to_string();
    let made = api.request(Method::POST, &format!("{maps}?dryRun=All&fieldValidation=Strict"), map).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made}");
    assert_eq!(text(&made.json(), "/metadata/name"), "dry@east");
    assert!(in_member(all[0], &format!("{maps}/dry")).await.is_none());
    let unknown = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry@east"}, "colour": "red"});
    let told = api.request(Method::POST, &format!("{maps}?fieldValidation=Strict"), unknown.to_string()).await;
    refused(&told, 400, "BadRequest", &["unknown field \"colour\""]);
}
