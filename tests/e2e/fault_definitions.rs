//! Definitions that change under a fleet, in one member.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{Api, Kubefold, Member, MemberOptions, Testbed, Watch, eventually, figure};

/// For a changed definition to be noticed: a kube-apiserver ends the watches by the old one.
const NOTICED: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);
const GADGETS: &str = "/apis/fault.kubefold.io/v1/namespaces/default/gadgets";

/// A definition of gadgets, with a default for the color where one is given.
fn definition(scope: &str, version: &str, color: Option<&str>) -> String {
    let mut properties = json!({"size": {"type": "integer"}, "color": {"type": "string"}});
    if let Some(color) = color {
        properties["color"]["default"] = color.into();
    }
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": properties}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.fault.kubefold.io"},
        "spec": {
            "group": "fault.kubefold.io", "scope": scope, "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
    .to_string()
}

async fn define(member: &Member, scope: &str, version: &str, color: Option<&str>) {
    member.apply(&definition(scope, version, color)).await;
    member.as_admin().established("gadgets.fault.kubefold.io").await;
}

async fn make(member: &Member, name: &str) {
    let gadget = json!({"apiVersion": "fault.kubefold.io/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": 1}});
    // Established is told a little before it is served.
    eventually(SOON, async || {
        let answer = member.request(Method::POST, GADGETS, gadget.to_string()).await;
        if answer.status == StatusCode::CREATED { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// `TYPE name color` of the next event.
async fn next(watch: &mut Watch, deadline: Duration) -> Option<String> {
    let event = watch.next(deadline).await?;
    let (name, color) = (&event["object"]["metadata"]["name"], &event["object"]["spec"]["color"]);
    Some(format!("{} {} {}", event["type"].as_str()?, name.as_str()?, color.as_str().unwrap_or("-")))
}

/// The names that the fleet lists, and what it warns of.
async fn named(api: &Api, path: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let answer = api.request(Method::GET, path, "").await;
    if answer.status != StatusCode::OK {
        return Err(answer.to_string());
    }
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    Ok((answer.json()["items"].as_array().unwrap().iter().map(name).collect(), answer.warnings()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_changes_in_one_member_changes_its_objects_there() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        define(member, "Namespaced", "v1", None).await;
        make(member, "one").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    eventually(SOON, async || {
        named(&api, GADGETS).await.and_then(|(names, warnings)| {
            if names == ["one@east", "one@west"] && warnings.is_empty() {
                Ok(())
            } else {
                Err(format!("{names:?} {warnings:?}"))
            }
        })
    })
    .await;
    let list = api.get(GADGETS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{GADGETS}?watch=true&resourceVersion={revision}")).await;

    // A new default: the objects of west read differently at the same revision, and no kube-apiserver says so.
    define(west, "Namespaced", "v1", Some("red")).await;
    let since = tokio::time::Instant::now();
    assert_eq!(next(&mut watch, NOTICED).await.as_deref(), Some("MODIFIED one@west red"));
    figure(&format!("a changed default is an event after {:?}", since.elapsed()));
    let told = api.get(&format!("{GADGETS}/one@west?resourceVersion=0")).await;
    assert_eq!((&told["spec"]["color"], &told["spec"]["size"]), (&"red".into(), &1.into()));
    make(west, "two").await;
    assert_eq!(next(&mut watch, SOON).await.as_deref(), Some("ADDED two@west red"));

    // Gone in west: its objects leave, one event each, and the kind stays with those of east.
    west.kubectl(&["delete", "crd", "gadgets.fault.kubefold.io"]).await.ok();
    let mut gone = [next(&mut watch, SOON).await.unwrap(), next(&mut watch, SOON).await.unwrap()];
    gone.sort();
    assert_eq!(gone, ["DELETED one@west red", "DELETED two@west red"]);
    let only_east = async || {
        let (names, warnings) = named(&api, GADGETS).await?;
        if names == ["one@east"] && warnings.is_empty() { Ok(()) } else { Err(format!("{names:?} {warnings:?}")) }
    };
    eventually(SOON, only_east).await;
    make(east, "two").await;
    assert_eq!(next(&mut watch, SOON).await.as_deref(), Some("ADDED two@east -"));

    // Back with another scope, then with another version only: west is left out of what it does not serve, and said so.
    define(west, "Cluster", "v1", None).await;
    let left_out = async || {
        let (names, warnings) = named(&api, GADGETS).await?;
        let warned = warnings.iter().any(|warning| warning.contains("member west"));
        if names == ["one@east", "two@east"] && warned { Ok(()) } else { Err(format!("{names:?} {warnings:?}")) }
    };
    eventually(SOON, left_out).await;
    west.kubectl(&["delete", "crd", "gadgets.fault.kubefold.io"]).await.ok();
    define(west, "Namespaced", "v2", None).await;
    eventually(SOON, left_out).await;
    make(east, "three").await;
    assert_eq!(next(&mut watch, SOON).await.as_deref(), Some("ADDED three@east -"));

    // Gone in the last member: the watch tells it and ends cleanly, and then there is no such path.
    east.kubectl(&["delete", "crd", "gadgets.fault.kubefold.io"]).await.ok();
    let mut rest = Vec::new();
    while let Some(event) = next(&mut watch, SOON).await {
        rest.push(event);
    }
    rest.sort();
    assert_eq!(rest, ["DELETED one@east -", "DELETED three@east -", "DELETED two@east -"]);
    eventually(SOON, async || {
        let answer = api.request(Method::GET, GADGETS, "").await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}
