//! The life of custom resource definitions and of their objects, at a kube-apiserver and at the embedded server: the same
//! requests in the same order, and the same answers.
//!
//! The steps are those of Kubernetes' own tests that need nothing but an API server. Source: kubernetes
//! `test/e2e/apimachinery/`: `custom_resource_definition.go`, `crd_watch.go`, `crd_publish_openapi.go`,
//! `crd_selectable_fields.go`; apiextensions-apiserver `test/integration/`: `finalization_test.go`, `versioning_test.go`,
//! `registration_test.go`, `defaulting_test.go`, `pruning_test.go`.

use std::time::Duration;

use kubefold_apiserver::Server as Own;
use serde_json::{Value, json};

use super::{
    openapi,
    schema::plain as plain_schema,
    writes::{Server, Step, masked, step},
};
use testbed::{Member, MemberOptions, eventually};

const SOON: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOXES_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foxes.stable.example.com";
const FOXES_STATUS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foxes.stable.example.com/status";
const FOXES: &str = "/apis/stable.example.com/v1/namespaces/shop/foxes";
const FOXES_V2: &str = "/apis/stable.example.com/v2/namespaces/shop/foxes";

enum Do {
    /// Both are asked, and answer alike.
    Ask(Step),
    /// Both come to have this at a place of an answer.
    Until(&'static str, &'static str, Value),
}

fn ask(method: &'static str, path: &'static str, body: Value) -> Do {
    Do::Ask(step(method, path, body))
}

fn read(path: &'static str) -> Do {
    ask("GET", path, Value::Null)
}

fn until(path: &'static str, at: &'static str, wanted: Value) -> Do {
    Do::Until(path, at, wanted)
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "description": format!("A fox of {name}."), "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "properties": {"seen": {"type": "integer"}}},
        }}},
        "subresources": {"status": {}},
    })
}

fn definition(plural: &str, kind: &str, versions: Value) -> Value {
    let names =
        json!({"plural": plural, "kind": kind, "shortNames": [format!("{}x", &plural[..2])], "categories": ["all"]});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.stable.example.com"), "labels": {"test": "custom"}},
        "spec": {"group": "stable.example.com", "scope": "Namespaced", "names": names, "versions": versions},
    })
}

fn fox(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("stable.example.com/{version}"), "kind": "Fox", "metadata": {"name": name}, "spec": spec,
    })
}

fn plain() -> Value {
    json!({
        "color": {"type": "string"}, "age": {"type": "integer", "format": "int32", "minimum": 0},
        "den": {"type": "object", "properties": {"depth": {"type": "number"}}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "either": {"x-kubernetes-int-or-string": true},
    })
}

fn versions(properties: Value) -> Value {
    let mut first = version("v1", true, properties.clone());
    first["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    first["additionalPrinterColumns"] = json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    json!([first, version("v2", false, properties)])
}

fn established() -> Vec<Do> {
    vec![
        ask("POST", DEFINITIONS, definition("foxes", "Fox", versions(plain()))),
        ask("POST", DEFINITIONS, definition("foxes", "Fox", versions(plain()))),
        until(FOXES_DEFINITION, "/status/conditions/1/status", "True".into()),
        until(FOXES, "/kind", "FoxList".into()),
        until(FOXES_V2, "/kind", "FoxList".into()),
        read(FOXES_DEFINITION),
        read(FOXES_STATUS),
        until("/apis/stable.example.com", "/versions/1/version", "v1".into()),
        read("/apis/stable.example.com"),
        until("/apis/stable.example.com/v1", "/resources/1/name", "foxes/status".into()),
        read("/apis/stable.example.com/v1"),
        until("/apis/stable.example.com/v2", "/resources/1/name", "foxes/status".into()),
        read("/apis/stable.example.com/v2"),
        read("/apis/stable.example.com/v3"),
        read("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector=test%3Dcustom"),
    ]
}

fn objects() -> Vec<Do> {
    const A: &str = "/apis/stable.example.com/v1/namespaces/shop/foxes/a";
    let odd = json!({"color": "red", "unknown": 1, "den": {"depth": 1.5, "unknown": 2}, "any": {"unknown": 3}});
    vec![
        ask("POST", FOXES, fox("v1", "a", json!({"age": 3}))),
        ask("POST", FOXES, fox("v1", "pruned", odd)),
        ask("POST", FOXES_V2, fox("v2", "b", json!({"color": "red", "tags": ["x", "y"], "either": "50%"}))),
        ask("POST", FOXES_V2, fox("v2", "z", json!({"tags": ["x", "x"]}))),
        ask("POST", FOXES_V2, fox("v2", "z", json!({"either": true, "color": null}))),
        ask("POST", FOXES_V2, fox("v2", "z", json!({"age": -1}))),
        ask("POST", FOXES_V2, fox("v1", "z", json!({}))),
        ask("PATCH", A, json!({"spec": {"color": "grey"}, "status": {"seen": 1}})),
        ask("PATCH", "/apis/stable.example.com/v1/namespaces/shop/foxes/a/status", json!({"status": {"seen": 2}})),
        ask("PATCH", "/apis/stable.example.com/v2/namespaces/shop/foxes/a", json!({"spec": {"age": null}})),
        read(A),
        read("/apis/stable.example.com/v2/namespaces/shop/foxes/b"),
        read(FOXES),
        read(FOXES_V2),
        read("/apis/stable.example.com/v1/foxes?fieldSelector=spec.color%3Dred"),
        read("/apis/stable.example.com/v1/foxes?fieldSelector=spec.color!%3Dred,metadata.namespace%3Dshop"),
        read("/apis/stable.example.com/v1/foxes?fieldSelector=spec.age%3D3"),
        read("/apis/stable.example.com/v2/foxes?fieldSelector=spec.color%3Dred"),
        ask("DELETE", A, Value::Null),
        ask("DELETE", "/apis/stable.example.com/v1/namespaces/shop/foxes?fieldSelector=spec.color%3Dred", Value::Null),
        read(FOXES),
    ]
}

fn defaults() -> Vec<Do> {
    const OLD: &str = "/apis/stable.example.com/v1/namespaces/shop/foxes/old";
    let mut with_defaults = plain();
    with_defaults["color"]["default"] = "red".into();
    with_defaults["den"]["default"] = json!({});
    with_defaults["den"]["properties"]["depth"]["default"] = 2.into();
    vec![
        ask("POST", FOXES, fox("v1", "old", json!({}))),
        ask("PATCH", FOXES_DEFINITION, json!({"spec": {"versions": versions(with_defaults)}})),
        until(OLD, "/spec/color", "red".into()),
        read(OLD),
        ask("POST", FOXES, fox("v1", "new", json!({"age": 1}))),
        ask("PATCH", "/apis/stable.example.com/v1/namespaces/shop/foxes/new", json!({"spec": {"color": null}})),
        read("/apis/stable.example.com/v1/foxes?fieldSelector=spec.color%3Dred"),
        ask("PATCH", FOXES_DEFINITION, json!({"spec": {"versions": versions(plain())}})),
        until(OLD, "/spec", json!({})),
        read(OLD),
        read(FOXES_DEFINITION),
    ]
}

fn statuses() -> Vec<Do> {
    let condition = json!({
        "type": "Own", "status": "True", "reason": "Own", "message": "of a test", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let conditions = |more: &str| {
        json!({"status": {"conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": more, "status": "True", "reason": more, "message": "of a test",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}})
    };
    vec![
        ask("PATCH", FOXES_STATUS, conditions("Own")),
        read(FOXES_DEFINITION),
        // What is no part of the status is left alone, and the other way around.
        ask("PATCH", FOXES_STATUS, json!({"spec": {"scope": "Cluster"}})),
        ask("PATCH", FOXES_DEFINITION, json!({"status": {"conditions": [condition]}})),
    ]
}

fn changes() -> Vec<Do> {
    let change = |spec: Value| ask("PATCH", FOXES_DEFINITION, json!({"spec": spec}));
    let only = |storage: &str| {
        let mut all = versions(plain());
        all[0]["storage"] = (storage == "v1").into();
        all[1]["storage"] = (storage == "v2").into();
        all
    };
    let mut unserved = only("v2");
    unserved[0]["served"] = false.into();
    let moved = json!({"metadata": {"labels": {"moved": "yes"}}});
    vec![
        change(json!({"scope": "Cluster"})),
        change(json!({"group": "other.example.com"})),
        change(json!({"names": {"plural": "vixens"}})),
        change(json!({"preserveUnknownFields": true})),
        change(json!({"versions": []})),
        change(json!({"versions": [version("v2", true, plain())]})),
        change(json!({"names": {"shortNames": ["fx"], "singular": "foxy"}})),
        until(FOXES_DEFINITION, "/status/acceptedNames/singular", "foxy".into()),
        read(FOXES_DEFINITION),
        change(json!({"versions": only("v2")})),
        read("/apis/stable.example.com/v1/namespaces/shop/foxes/old"),
        // Objects are stored in the new version once they are written.
        ask("PATCH", "/apis/stable.example.com/v2/namespaces/shop/foxes/old", moved.clone()),
        ask("PATCH", "/apis/stable.example.com/v2/namespaces/shop/foxes/new", moved),
        change(json!({"versions": unserved})),
        until(FOXES, "/code", 404.into()),
        read("/apis/stable.example.com/v2/namespaces/shop/foxes/old"),
        until("/apis/stable.example.com", "/versions/1", Value::Null),
        read("/apis/stable.example.com"),
        ask("PATCH", FOXES_STATUS, json!({"status": {"storedVersions": ["v2"]}})),
        change(json!({"versions": [version("v2", true, plain())]})),
        read(FOXES_DEFINITION),
        ask("PATCH", FOXES_STATUS, json!({"status": {"storedVersions": []}})),
    ]
}

fn conflicts() -> Vec<Do> {
    const DOGS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dogs.stable.example.com";
    let mut dogs = definition("dogs", "Fox", json!([version("v2", true, plain())]));
    dogs["spec"]["names"]["shortNames"] = json!(["fx", "dg"]);
    vec![
        ask("POST", DEFINITIONS, dogs),
        until(DOGS, "/status/conditions/0/status", "False".into()),
        until(DOGS, "/status/conditions/1/status", "False".into()),
        read(DOGS),
        read("/apis/stable.example.com/v2/namespaces/shop/dogs"),
        ask("PATCH", DOGS, json!({"spec": {"names": {"kind": "Dog", "listKind": "DogList", "shortNames": ["dg"]}}})),
        until(DOGS, "/status/conditions/1/status", "True".into()),
        until("/apis/stable.example.com/v2/namespaces/shop/dogs", "/kind", "DogList".into()),
        read(DOGS),
        ask("DELETE", DOGS, Value::Null),
        until("/apis/stable.example.com/v2/namespaces/shop/dogs", "/code", 404.into()),
    ]
}

/// Objects that are written in another version than the stored one, which knows less of them.
fn written_in_another_version() -> Vec<Do> {
    const BEAR_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bears.stable.example.com";
    const BEARS: &str = "/apis/stable.example.com/v1/namespaces/shop/bears";
    const BEARS_V2: &str = "/apis/stable.example.com/v2/namespaces/shop/bears";
    const BALU: &str = "/apis/stable.example.com/v2/namespaces/shop/bears/balu";
    let in_v1 = json!({
        "color": {"type": "string"}, "age": {"type": "integer", "default": 3}, "kilos": {"type": "integer", "default": 10},
        "legs": {"type": "integer"},
    });
    let in_v2 = json!({
        "color": {"type": "string"}, "size": {"type": "integer"}, "name": {"type": "string", "default": "bear"},
        "kilos": {"type": "integer"}, "legs": {"type": "integer"}, "food": {"type": "string", "default": "honey"},
    });
    let mut more = in_v1.clone();
    more["legs"]["default"] = 4.into();
    more["food"] = json!({"type": "string"});
    let both = |stored: &Value| json!([version("v1", true, stored.clone()), version("v2", false, in_v2.clone())]);
    let bear = |version: &str, name: &str, spec: Value| {
        let mut bear = fox(version, name, spec);
        bear["kind"] = "Bear".into();
        bear
    };
    vec![
        ask("POST", DEFINITIONS, definition("bears", "Bear", both(&in_v1))),
        until(BEARS, "/kind", "BearList".into()),
        until(BEARS_V2, "/kind", "BearList".into()),
        ask(
            "POST",
            "/apis/stable.example.com/v2/namespaces/shop/bears?dryRun=All",
            bear("v2", "dry", json!({"size": 1})),
        ),
        ask("POST", BEARS_V2, bear("v2", "balu", json!({"color": "grey", "size": 4, "age": 9}))),
        read(BALU),
        ask("PATCH", BALU, json!({"spec": {"size": 5}})),
        ask("PATCH", BALU, json!({"spec": {"size": 6, "color": "brown"}})),
        ask("PUT", BALU, bear("v2", "balu", json!({"size": 7}))),
        read("/apis/stable.example.com/v1/namespaces/shop/bears/balu"),
        ask("POST", BEARS, bear("v1", "ted", json!({"color": "white"}))),
        read("/apis/stable.example.com/v2/namespaces/shop/bears/ted"),
        read(BEARS_V2),
        // The schema of the stored version changes.
        ask("PATCH", BEAR_DEFINITION, json!({"spec": {"versions": both(&more)}})),
        until("/apis/stable.example.com/v1/namespaces/shop/bears/balu", "/spec/legs", 4.into()),
        until(BALU, "/spec/legs", 4.into()),
        read(BALU),
        read(BEARS_V2),
        ask("PATCH", BALU, json!({"spec": {"kilos": 11}})),
        ask("POST", BEARS_V2, bear("v2", "new", json!({"size": 4}))),
        ask("DELETE", BALU, Value::Null),
        ask("DELETE", BEAR_DEFINITION, Value::Null),
        until(BEARS, "/code", 404.into()),
    ]
}

fn ends() -> Vec<Do> {
    const HELD: &str = "/apis/stable.example.com/v2/namespaces/shop/foxes/held";
    let mut held = fox("v2", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    vec![
        ask("POST", FOXES_V2, held),
        ask("DELETE", FOXES_DEFINITION, Value::Null),
        until(HELD, "/metadata/deletionGracePeriodSeconds", 0.into()),
        until("/apis/stable.example.com/v2/namespaces/shop/foxes/old", "/code", 404.into()),
        until(FOXES_DEFINITION, "/status/conditions/3/type", "Terminating".into()),
        read(FOXES_V2),
        ask("POST", FOXES_V2, fox("v2", "late", json!({}))),
        ask("PATCH", HELD, json!({"metadata": {"finalizers": null}})),
        until(FOXES_DEFINITION, "/code", 404.into()),
        until(FOXES_V2, "/code", 404.into()),
        read(FOXES_V2),
        // A later one of the same name has nothing of the former.
        ask("POST", DEFINITIONS, definition("foxes", "Fox", versions(plain()))),
        until(FOXES, "/kind", "FoxList".into()),
        read(FOXES),
        ask(
            "DELETE",
            concat!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "?labelSelector=test%3Dcustom"),
            Value::Null,
        ),
        until(FOXES_DEFINITION, "/code", 404.into()),
    ]
}

/// What a watch of foxes tells while they are made, changed and deleted, from the revision of a list on.
async fn watched(server: &Server) -> Vec<Value> {
    let (_, list) = server.send("GET", FOXES, String::new()).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let one = format!("{FOXES}/watched");
    server.send("POST", FOXES, fox("v1", "watched", json!({"color": "red"})).to_string()).await;
    server.send("PATCH", &one, json!({"spec": {"age": 2}}).to_string()).await;
    server.send("PATCH", &one, json!({"spec": {"color": "grey"}}).to_string()).await;
    server.send("PATCH", &one, json!({"spec": {"color": "red"}}).to_string()).await;
    server.send("DELETE", &one, String::new()).await;
    let mut events = Vec::new();
    for query in ["", "&fieldSelector=spec.color%3Dred", "&fieldSelector=spec.color%3Dgrey"] {
        let path = format!("{FOXES}?watch=1&timeoutSeconds=1&resourceVersion={revision}{query}");
        let text = server.text(&path).await;
        events.extend(text.lines().map(|line| masked(&serde_json::from_str(line).unwrap())));
    }
    events
}

/// The document of a version of foxes.
async fn document(server: &Server) -> Value {
    const PATH: &str = "/openapi/v3/apis/stable.example.com/v1";
    eventually(SOON, async || match server.send("GET", PATH, String::new()).await {
        (200, document) if document["components"]["schemas"]["com.example.stable.v1.Fox"].is_object() => Ok(document),
        (code, _) => Err(format!("{}: {code} for {PATH}", server.name())),
    })
    .await
}

/// The places at which two documents differ, with what is there.
fn differences(at: &str, said: &Value, told: &Value, into: &mut String) {
    match (said, told) {
        (Value::Object(said), Value::Object(told)) => {
            let names: std::collections::BTreeSet<_> = said.keys().chain(told.keys()).collect();
            for name in names {
                let of = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                differences(&format!("{at}/{name}"), &of(said), &of(told), into);
            }
        }
        _ if said == told => {}
        _ => into.push_str(&format!("{at}\n  said {said}\n  told {told}\n\n")),
    }
}

async fn compare(real: &Server, own: &Server, doings: Vec<Do>, wrong: &mut String) {
    let mut last = Value::Null;
    for doing in doings {
        match doing {
            Do::Ask(step) => {
                let (said, told) = (real.raw(&step).await, own.raw(&step).await);
                let (said, told) = ((said.0, masked(&said.1)), (told.0, masked(&told.1)));
                last = said.1.clone();
                // docs/differences.md, refusals-are-statuses.
                let is_plain = said.1["plain"].is_string() && said.0 == told.0;
                if said != told && !is_plain {
                    let Step { method, path, body } = step;
                    let (said, told) = (format!("{} {}", said.0, said.1), format!("{} {}", told.0, told.1));
                    wrong.push_str(&format!("{method} {path} {body}\n  said {said}\n  told {told}\n\n"));
                }
            }
            Do::Until(path, at, wanted) => {
                for server in [real, own] {
                    eventually(SOON, async || {
                        let (_, body) = server.send("GET", path, String::new()).await;
                        let is_there = body.pointer(at).unwrap_or(&Value::Null) == &wanted;
                        let why = || {
                            format!("{}: {at} of {path} is not {wanted}: {body}, after {last}\n{wrong}", server.name())
                        };
                        if is_there { Ok(()) } else { Err(why()) }
                    })
                    .await;
                }
            }
        }
    }
}

/// Applies of YAML in which a key stands twice.
const TWICE: [&str; 4] = [
    "/apis/birds.example.com/v1beta1/owls/twice?fieldManager=applier&fieldValidation=Strict",
    "/apis/birds.example.com/v1beta1/owls/twice?fieldManager=applier&fieldValidation=Warn",
    "/apis/birds.example.com/v1beta1/owls/twice?fieldManager=applier&fieldValidation=Ignore",
    "/apis/birds.example.com/v1beta1/owls/twice?fieldManager=applier",
];
const TWICE_BODY: &str = "apiVersion: birds.example.com/v1beta1
kind: Owl
metadata:
  name: twice
spec:
  night: {long: true}
  prey: []
  replicas: 1
  replicas: 2
  nest: {at: a, of: 1, of: 2}
";

#[tokio::test]
async fn definitions_and_their_objects_live_as_at_a_kube_apiserver() {
    let member = Member::start("custom", MemberOptions::default()).await;
    let running = Own::new().start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    for server in [&real, &own] {
        server.send("POST", "/api/v1/namespaces", json!({"metadata": {"name": "shop"}}).to_string()).await;
    }
    let mut wrong = String::new();
    compare(&real, &own, established(), &mut wrong).await;
    let (said, told) = tokio::join!(watched(&real), watched(&own));
    assert!(said.len() > 10, "{said:?}");
    differences("watches", &said.into(), &told.into(), &mut wrong);
    for name in ["com.example.stable.v1.Fox", "com.example.stable.v1.FoxList"] {
        let of = async |server: &Server| plain_schema(&document(server).await["components"]["schemas"][name]);
        differences(name, &of(&real).await, &of(&own).await, &mut wrong);
    }
    for path in ["/openapi/v3/apis/stable.example.com/v1", "/openapi/v3/apis/stable.example.com/v2"] {
        let of = async |server: &Server| openapi::told(&server.send("GET", path, String::new()).await.1);
        differences(path, &of(&real).await, &of(&own).await, &mut wrong);
    }
    for server in [&real, &own] {
        server.send("POST", DEFINITIONS, openapi::owls().to_string()).await;
    }
    let (said, told) = tokio::join!(openapi::all_told(&real), openapi::all_told(&own));
    differences("owls and /openapi/v2", &said, &told, &mut wrong);
    for doings in [objects(), written_in_another_version(), defaults(), statuses(), changes(), conflicts(), ends()] {
        compare(&real, &own, doings, &mut wrong).await;
    }
    for path in TWICE {
        let of = async |server: &Server| {
            let (code, warnings, body) = server.whole("PATCH", path, TWICE_BODY.to_owned()).await;
            json!({"code": code, "warnings": warnings, "body": masked(&serde_json::from_slice(&body).unwrap())})
        };
        differences(path, &of(&real).await, &of(&own).await, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}
