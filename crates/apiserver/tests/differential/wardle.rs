//! Kubernetes' sample API server and `examples/wardle.rs`, asked the same: conversions, defaults, refusals, admission,
//! discovery. Codes and bodies agree, but where a step gives a reason.

use std::time::Duration;

use serde_json::{Value, json};

use super::writes::{Server, Step, masked, step};
use testbed::{Api, Member, MemberOptions, Port, Process, SampleApiServer, eventually, example};

const SOON: Duration = Duration::from_secs(60);
const OLD: &str = "/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders";
const NEW: &str = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders";
const DRY: &str = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders?dryRun=All";
const SELECTED: &str = "/apis/wardle.example.com/v1beta1/flunders?fieldSelector=spec.referenceType%3DFlunder";
const STATUS: &str = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/a/status";
const FISCHERS: &str = "/apis/wardle.example.com/v1alpha1/fischers";

// Why answers differ.

/// Kubernetes' generic registry calls a strategy's `Validate` for creates alone, and the sample's `ValidateUpdate` is empty: so
/// it stores updates that it would not have created. `TypedKind::validate` holds for both.
const UPDATES_ARE_VALIDATED: &str = "updates are validated";
/// The sample's admission is a plug-in that mutates, which comes before validation. `TypedKind::admit` comes after it.
const ADMISSION_AFTER_VALIDATION: &str = "admission comes after validation";
/// The sample decodes Go types. A kind of a Rust type is refused in the words of custom resources.
const CUSTOM_WORDS: &str = "the words are those of custom resources";
/// The sample takes an object without `kind` and `apiVersion` for one of the path. Custom resources say what they are.
const TYPES_ARE_SAID: &str = "objects say their types";
/// The sample looks at no names. A kind of a Rust type has those that custom resources may have.
const NAMES_ARE_CHECKED: &str = "names are checked";
/// Go leaves empty texts out. Custom resources, and kinds of Rust types, keep what a client wrote.
const EMPTY_TEXTS_STAY: &str = "empty texts stay";

/// A request, and why the answers differ, if they do.
struct Asked(Step, &'static str);

fn alike(method: &'static str, path: &'static str, body: Value) -> Asked {
    Asked(step(method, path, body), "")
}

fn apart(why: &'static str, method: &'static str, path: &'static str, body: Value) -> Asked {
    Asked(step(method, path, body), why)
}

fn read(path: &'static str) -> Asked {
    alike("GET", path, Value::Null)
}

fn of(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("wardle.example.com/{version}"), "kind": "Flunder", "metadata": {"name": name}, "spec": spec,
    })
}

fn old(name: &str, spec: Value) -> Value {
    of("v1alpha1", name, spec)
}

fn new(name: &str, spec: Value) -> Value {
    of("v1beta1", name, spec)
}

fn conversions() -> Vec<Asked> {
    vec![
        alike("POST", OLD, old("a", json!({"reference": "x"}))),
        alike("POST", OLD, old("b", json!({"reference": "x", "referenceType": "Fischer"}))),
        alike("POST", OLD, old("c", json!({"reference": "x", "referenceType": "Flunder"}))),
        alike("POST", OLD, old("d", json!({}))),
        alike("POST", OLD, old("e", json!({"reference": "x", "referenceType": ""}))),
        alike("POST", OLD, old("f", json!({"reference": "x", "referenceType": "Other"}))),
        alike(
            "POST",
            OLD,
            json!({
                "apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": "g", "labels": {"is": "bare"}},
            }),
        ),
        apart(TYPES_ARE_SAID, "POST", DRY, json!({"metadata": {"name": "untyped"}})),
        alike("POST", NEW, new("h", json!({"flunderReference": "x", "referenceType": "Flunder"}))),
        alike("POST", NEW, new("i", json!({"fischerReference": "x", "referenceType": "Fischer"}))),
        alike("POST", NEW, new("j", json!({}))),
        alike(
            "POST",
            NEW,
            json!({
                "apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder",
                "metadata": {"name": "k", "annotations": {"note": "<&>"}},
            }),
        ),
        apart(EMPTY_TEXTS_STAY, "POST", NEW, new("l", json!({"flunderReference": "", "referenceType": ""}))),
        alike("DELETE", concat!("/apis/wardle.example.com/v1beta1/namespaces/shop/flunders", "/l"), Value::Null),
        read(OLD),
        read(NEW),
        read("/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/a"),
        read("/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders/i"),
        read("/apis/wardle.example.com/v1alpha1/flunders?fieldSelector=metadata.name%3Da"),
        read("/apis/wardle.example.com/v1beta1/flunders?labelSelector=is%3Dbare"),
        apart(CUSTOM_WORDS, "GET", SELECTED, Value::Null),
        read("/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/nope"),
        apart(CUSTOM_WORDS, "GET", STATUS, Value::Null),
        read("/apis/wardle.example.com/v1beta1/fischers"),
        read("/apis/wardle.example.com/v2/flunders"),
    ]
}

fn refusals() -> Vec<Asked> {
    let strict = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders?fieldValidation=Strict";
    let valid = json!({"flunderReference": "x", "referenceType": "Flunder"});
    let bad = |spec: Value| alike("POST", NEW, new("z", spec));
    vec![
        bad(json!({"flunderReference": "x", "fischerReference": "y"})),
        bad(json!({"flunderReference": "x", "fischerReference": "y", "referenceType": "Flunder"})),
        bad(json!({"flunderReference": "x"})),
        bad(json!({"fischerReference": "x"})),
        bad(json!({"flunderReference": "x", "referenceType": "Fischer"})),
        bad(json!({"fischerReference": "x", "referenceType": "Flunder"})),
        bad(json!({"referenceType": "Fischer"})),
        bad(json!({"referenceType": "Flunder"})),
        bad(json!({"referenceType": "Other"})),
        bad(json!({"flunderReference": "x", "referenceType": "Other"})),
        bad(json!({"flunderReference": "x", "fischerReference": "y", "referenceType": "Other"})),
        alike("POST", OLD, old("z", json!({"referenceType": "Flunder"}))),
        alike("POST", OLD, old("z", json!({"referenceType": "Fischer"}))),
        alike("POST", NEW, new("a", valid.clone())),
        apart(NAMES_ARE_CHECKED, "POST", DRY, new("A_b", valid.clone())),
        alike("POST", NEW, new("", valid.clone())),
        alike("POST", "/apis/wardle.example.com/v1beta1/namespaces/nope/flunders", new("z", valid.clone())),
        alike(
            "POST",
            NEW,
            json!({
                "apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "z", "namespace": "other"},
            }),
        ),
        alike("POST", NEW, old("z", json!({}))),
        alike("POST", DRY, new("z", valid)),
        read("/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/z"),
        alike("POST", strict, new("z", json!({"reference": "x"}))),
        apart(CUSTOM_WORDS, "POST", NEW, json!({"apiVersion": "wardle.example.com/v1beta1", "kind": "Fischer"})),
        apart(CUSTOM_WORDS, "POST", NEW, new("z", json!({"flunderReference": 7}))),
    ]
}

fn changes() -> Vec<Asked> {
    const A: &str = "/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders/a";
    const H: &str = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/h";
    let at = |object: Value, revision: &str| {
        let mut object = object;
        object["metadata"]["resourceVersion"] = revision.into();
        object["metadata"]["uid"] = if revision == "{rv}" { "{uid}".into() } else { Value::Null };
        object
    };
    let applied = "/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders/applied?fieldManager=applier";
    let again = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/applied?fieldManager=applier&force=true";
    vec![
        alike("PUT", A, old("a", json!({"reference": "y"}))),
        alike("PUT", A, at(old("a", json!({"reference": "y"})), "1")),
        alike("PUT", A, at(old("b", json!({"reference": "y"})), "{rv}")),
        alike("PUT", A, at(old("a", json!({"reference": "y"})), "{rv}")),
        alike("PUT", A, at(old("a", json!({"reference": "y", "referenceType": "Fischer"})), "{rv}")),
        alike("PATCH", A, json!({"spec": {"reference": "z"}})),
        alike("PATCH", A, json!({"spec": {"referenceType": "Flunder"}, "metadata": {"labels": {"x": "y"}}})),
        read("/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/a"),
        alike(
            "PATCH",
            H,
            json!({"spec": {"flunderReference": null, "fischerReference": "x", "referenceType": "Fischer"}}),
        ),
        read("/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders/h"),
        apart(UPDATES_ARE_VALIDATED, "PATCH", H, json!({"spec": {"flunderReference": "y"}})),
        alike("PUT", "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/nope", new("nope", json!({}))),
        alike("PATCH", applied, old("applied", json!({"reference": "x"}))),
        alike("PATCH", again, new("applied", json!({"flunderReference": "y", "referenceType": "Flunder"}))),
        read("/apis/wardle.example.com/v1alpha1/namespaces/shop/flunders/applied"),
        alike("DELETE", A, json!({"preconditions": {"uid": "another"}})),
        alike("DELETE", A, Value::Null),
        read(A),
        alike(
            "DELETE",
            "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders?labelSelector=is%3Dbare",
            Value::Null,
        ),
    ]
}

fn fischer(names: Value) -> Value {
    json!({
        "apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "f"}, "disallowedFlunders": names,
    })
}

fn bans() -> Vec<Asked> {
    const BANNED: &str = "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders/b";
    vec![
        alike("POST", OLD, old("bad", json!({}))),
        alike("POST", NEW, new("bad", json!({}))),
        alike("POST", NEW, new("good", json!({}))),
        apart(ADMISSION_AFTER_VALIDATION, "POST", NEW, new("bad", json!({"referenceType": "Other"}))),
        // Who was there before stays, and may change.
        alike("PATCH", BANNED, json!({"metadata": {"labels": {"x": "y"}}})),
        alike("DELETE", BANNED, Value::Null),
        alike("POST", NEW, new("b", json!({}))),
        alike("POST", FISCHERS, fischer(json!([]))),
        alike("PATCH", "/apis/wardle.example.com/v1alpha1/fischers/f", json!({"disallowedFlunders": null})),
        read(FISCHERS),
        alike("DELETE", "/apis/wardle.example.com/v1alpha1/fischers/f", Value::Null),
    ]
}

fn documents() -> Vec<Asked> {
    vec![
        read("/apis/wardle.example.com"),
        read("/apis/wardle.example.com/v1alpha1"),
        read("/apis/wardle.example.com/v1beta1"),
    ]
}

/// The example, served as a program.
struct Example {
    api: Api,
    _process: Process,
    _port: Port,
    _home: tempfile::TempDir,
}

impl Example {
    async fn start() -> Self {
        let (port, home) = (Port::reserve(), tempfile::tempdir().unwrap());
        let process = Process::spawn("wardle", &example("wardle"), &[port.addr()], &home.path().join("log"));
        let api = Api::of_plain_server(&format!("http://{}", port.addr()));
        eventually(SOON, async || api.try_request(http::Method::GET, "/readyz", "").await).await;
        Self { api, _process: process, _port: port, _home: home }
    }
}

/// Without what is the same difference in every answer, since kinds of Rust types are served as custom resources are, and the
/// sample's as Go types: custom resources have generations; the fields of their managers include `spec` and `status` as such;
/// in a list each says its kind; discovery has them in another order, and without hashes of storage versions.
fn without_forms(value: &mut Value, in_list: bool) {
    let Some(fields) = value.as_object_mut() else { return };
    if in_list {
        fields.shift_remove("apiVersion");
        fields.shift_remove("kind");
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("generation");
        metadata.shift_remove("managedFields");
    }
    for item in fields.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        without_forms(item, true);
    }
    if let Some(resources) = fields.get_mut("resources").and_then(Value::as_array_mut) {
        resources.sort_by_key(|resource| resource["name"].to_string());
        for resource in resources {
            if resource["name"] == "flunders" {
                // The example stores them in the other version.
                resource.as_object_mut().unwrap().shift_remove("storageVersionHash");
            }
            resource["verbs"].as_array_mut().unwrap().sort_by_key(Value::to_string);
        }
    }
}

async fn answer(server: &Server, step: &Step) -> (u16, Value) {
    let (code, mut body) = server.raw(step).await;
    without_forms(&mut body, false);
    (code, masked(&body))
}

#[tokio::test]
async fn the_example_answers_as_kubernetes_sample_api_server() {
    let member = Member::start("wardle", MemberOptions::default()).await;
    let sample = SampleApiServer::beside(&member).await;
    let example = Example::start().await;
    let shop = json!({"metadata": {"name": "shop"}});
    for api in [&member.api().await, &example.api] {
        api.create("/api/v1/namespaces", &shop).await;
    }
    let servers = [Server::Real(Box::new(sample.api())), Server::Real(Box::new(example.api.clone()))];
    let mut wrong = String::new();
    let compare = async |asked: Vec<Asked>, wrong: &mut String| {
        for Asked(step, why) in &asked {
            let (said, told) = (answer(&servers[0], step).await, answer(&servers[1], step).await);
            if (said == told) != why.is_empty() {
                let Step { method, path, body } = step;
                let (said, told) = (format!("{} {}", said.0, said.1), format!("{} {}", told.0, told.1));
                wrong.push_str(&format!("{method} {path} {body} ({why})\n  said {said}\n  told {told}\n\n"));
            }
        }
    };
    for asked in [conversions(), refusals(), changes(), documents()] {
        compare(asked, &mut wrong).await;
    }
    compare(vec![alike("POST", FISCHERS, fischer(json!(["bad", "b"])))], &mut wrong).await;
    // The sample learns of fischers by a watch.
    let dry =
        step("POST", "/apis/wardle.example.com/v1beta1/namespaces/shop/flunders?dryRun=All", new("bad", json!({})));
    eventually(SOON, async || match answer(&servers[0], &dry).await {
        (403, _) => Ok(()),
        (code, body) => Err(format!("{code} {body}")),
    })
    .await;
    compare(bans(), &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong}");
}
