//! A definition whose versions a webhook converts, and what is done with its objects.

use serde_json::{Value, json};

use crate::writes::{Step, step};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.convert.example.com";
pub(super) const HOSTS_V1: &str = "/apis/convert.example.com/v1/namespaces/shop/hosts";
pub(super) const HOSTS_V2: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts";

fn version(name: &str, storage: bool, properties: Value, replicas: &str) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "properties": {"up": {"type": "integer"}, "said": {"type": "string"}}},
        }}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": replicas, "statusReplicasPath": ".status.up"}},
    })
}

fn versions(stored: &str) -> Value {
    let first = json!({
        "host": {"type": "string"}, "port": {"type": "integer", "maximum": 9000}, "replicas": {"type": "integer"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    });
    let second = json!({
        "hostPort": {"type": "string", "maxLength": 20}, "size": {"type": "integer"},
        "mode": {"type": "string", "default": "auto"},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    });
    let mut second = version("v2", stored == "v2", second, ".spec.size");
    second["selectableFields"] = json!([{"jsonPath": ".spec.hostPort"}]);
    json!([version("v1", stored == "v1", first, ".spec.replicas"), second])
}

pub(super) fn definition(client_config: &Value) -> Value {
    let webhook = json!({"clientConfig": client_config, "conversionReviewVersions": ["v0", "v1", "v1beta1"]});
    defined("hosts", &json!({"strategy": "Webhook", "webhook": webhook}))
}

fn defined(plural: &str, conversion: &Value) -> Value {
    let kind = if plural == "hosts" { "Host" } else { "Guest" };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.convert.example.com")},
        "spec": {
            "group": "convert.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions("v1"), "conversion": conversion,
        },
    })
}

/// A policy about `v1`, which is asked about `v2`, too.
pub(super) fn policy() -> Vec<(&'static str, Value)> {
    let rules = json!([{"apiGroups": ["convert.example.com"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["hosts"]}]);
    let validations = json!([{"expression": "!has(object.spec.host) || object.spec.host != 'banned'", "message": "this host is banned"}]);
    vec![
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            json!({"metadata": {"name": "hosts"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            json!({"metadata": {"name": "hosts"}, "spec": {"policyName": "hosts", "validationActions": ["Deny"]}}),
        ),
    ]
}

/// What the policy refuses.
pub(super) fn banned() -> Step {
    step("POST", HOSTS_V2, host("v2", "banned", json!({"hostPort": "banned:1"})))
}

fn host(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("convert.example.com/{version}"), "kind": "Host",
        "metadata": {"name": name, "labels": {"app": name}}, "spec": spec,
    })
}

/// Conversions that a definition may not say, and some that it may.
pub(super) fn refused(bundle: &str) -> Vec<Step> {
    const DRY: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let url = json!({"url": "https://hooks.example.com/convert"});
    let webhook = |config: Value, versions: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": versions}});
    let at = |url: &str| webhook(json!({"url": url}), json!(["v1"]));
    let service = |fields: Value| webhook(json!({"service": fields}), json!(["v1"]));
    let long = "v".repeat(64);
    let mut all = vec![
        json!({}),
        json!({"strategy": "None"}),
        json!({"strategy": "Sideways"}),
        json!({"strategy": "Webhook"}),
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}),
        json!({"strategy": "None", "webhook": {"clientConfig": url, "conversionReviewVersions": ["v1"]}}),
        json!({"strategy": "None", "webhook": {"conversionReviewVersions": []}}),
        webhook(url.clone(), json!([])),
        webhook(url.clone(), json!(["v1", "v1"])),
        webhook(url.clone(), json!(["v2", "v3"])),
        webhook(url.clone(), json!(["v1", "", "A b", long])),
        webhook(url, json!(["v1beta1"])),
        webhook(json!({}), json!(["v1"])),
        webhook(json!({"url": "https://a.example.com", "service": {"namespace": "a", "name": "b"}}), json!(["v1"])),
        webhook(json!({"url": "https://a.example.com", "caBundle": "bm90aGluZw=="}), json!(["v1"])),
        at("http://a.example.com"),
        at("https://"),
        at("https://u:p@a.example.com/x?y=z#w"),
        at("nothing"),
        service(json!({"namespace": "a", "name": "b"})),
        service(json!({"namespace": "a", "name": "b", "port": 0})),
        service(json!({"namespace": "a", "name": "b", "port": 70000, "path": "x"})),
        service(json!({"namespace": "", "name": "b"})),
        service(json!({"namespace": "a", "name": "b", "path": "//"})),
        service(json!({"namespace": "a", "name": "b", "path": "/a//B c/"})),
    ];
    let mut steps: Vec<Step> = all.drain(..).map(|one| step("POST", DRY, defined("guests", &one))).collect();
    let mut preserving = defined("guests", &at("https://a.example.com"));
    preserving["spec"]["preserveUnknownFields"] = true.into();
    // Of which a kube-apiserver says more.
    preserving["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mode"]["default"] =
        Value::Null;
    steps.push(step("POST", DRY, preserving));
    let change = |config: Value| json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}});
    let dry_change = |body| {
        step(
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.convert.example.com?dryRun=All&fieldManager=x",
            body,
        )
    };
    steps.push(dry_change(change(json!({"url": "https://a.example.com", "caBundle": "bm90aGluZw=="}))));
    steps.push(dry_change(change(json!({"url": "https://a.example.com", "caBundle": bundle}))));
    let versions = json!({"spec": {"conversion": {"webhook": {"conversionReviewVersions": ["v7"]}}}});
    steps.push(dry_change(versions));
    steps.push(dry_change(json!({"spec": {"conversion": {"strategy": "None"}}})));
    // Each says where its own webhook is.
    steps.into_iter().filter(|step| step.method == "POST" || !step.body.to_string().contains("strategy")).collect()
}

fn read(path: &'static str) -> Step {
    step("GET", path, Value::Null)
}

const A1: &str = "/apis/convert.example.com/v1/namespaces/shop/hosts/a";
const A2: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts/a";
const B1: &str = "/apis/convert.example.com/v1/namespaces/shop/hosts/b";
const B2: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts/b";

/// The lives of some objects in both versions.
pub(super) fn lives() -> Vec<Step> {
    [made(), changed(), applies(), ended()].into_iter().flatten().collect()
}

/// Objects that are made, and how they are read.
fn made() -> Vec<Step> {
    vec![
        step("POST", HOSTS_V1, host("v1", "a", json!({"host": "a", "port": 80, "replicas": 2, "unknown": 1}))),
        step("POST", HOSTS_V2, host("v2", "b", json!({"hostPort": "b:81", "size": 3}))),
        step("POST", HOSTS_V2, host("v2", "b", json!({"hostPort": "b:81"}))),
        step(
            "POST",
            HOSTS_V2,
            json!({"apiVersion": "convert.example.com/v2", "kind": "Host", "metadata": {"name": "bare"}}),
        ),
        step(
            "POST",
            "/apis/convert.example.com/v2/namespaces/shop/hosts?dryRun=All",
            host("v2", "dry", json!({"hostPort": "d:1"})),
        ),
        step("POST", HOSTS_V1, host("v1", "odd", json!({"host": "odd"}))),
        read("/apis/convert.example.com/v2/namespaces/shop/hosts/odd"),
        // Valid in one version only: the version of the request counts.
        step("POST", HOSTS_V2, host("v2", "high", json!({"hostPort": "high:9999"}))),
        step("POST", HOSTS_V1, host("v1", "z", json!({"host": "z", "port": 9999}))),
        step("POST", HOSTS_V2, host("v2", "z", json!({"hostPort": "z".repeat(30) + ":1"}))),
        step("POST", HOSTS_V2, host("v1", "z", json!({}))),
        banned(),
        read(A1),
        read(A2),
        read(B1),
        read(B2),
        read(HOSTS_V1),
        read(HOSTS_V2),
        read("/apis/convert.example.com/v2/hosts?labelSelector=app%3Da"),
        read("/apis/convert.example.com/v2/hosts?fieldSelector=spec.hostPort%3Db:81"),
        read("/apis/convert.example.com/v2/namespaces/shop/hosts?limit=500"),
    ]
}

/// What is changed of them, and of their subresources.
fn changed() -> Vec<Step> {
    let put = |version: &str, name: &str, spec: Value| {
        let mut object = host(version, name, spec);
        object["metadata"]["resourceVersion"] = "{rv}".into();
        object["metadata"]["uid"] = "{uid}".into();
        object
    };
    vec![
        step("PATCH", A2, json!({"spec": {"hostPort": "a2:90", "tags": {"x": "y"}}})),
        step("PATCH", A1, json!({"spec": {"port": 91}})),
        step("PATCH", A2, json!({"spec": {"hostPort": "a2:91"}})),
        step("PATCH", A2, json!({"spec": {"hostPort": "banned:1"}})),
        step("PATCH", B1, json!({"spec": {"port": null, "replicas": 1}})),
        step("PUT", B2, put("v2", "b", json!({"hostPort": "b3:83", "size": 4, "mode": "manual"}))),
        step("PUT", B1, put("v1", "b", json!({"host": "b4", "port": 84, "replicas": 5}))),
        step(
            "PUT",
            B2,
            json!({"apiVersion": "convert.example.com/v2", "kind": "Host", "metadata": {"name": "b", "resourceVersion": "1"}}),
        ),
        step("PUT", B2, host("v2", "b", json!({"hostPort": "b5:85", "size": 6}))),
        step(
            "PATCH",
            "/apis/convert.example.com/v2/namespaces/shop/hosts/b/status",
            json!({"status": {"up": 2, "said": "yes"}, "spec": {"hostPort": "no:1"}}),
        ),
        step("PATCH", "/apis/convert.example.com/v1/namespaces/shop/hosts/b/status", json!({"status": {"up": 3}})),
        step("POST", HOSTS_V2, host("v2", "scaled", json!({"hostPort": "s:1", "size": 3}))),
        read("/apis/convert.example.com/v2/namespaces/shop/hosts/scaled/scale"),
        step(
            "PATCH",
            "/apis/convert.example.com/v2/namespaces/shop/hosts/scaled/scale",
            json!({"spec": {"replicas": 7}}),
        ),
        read(B1),
        read("/apis/convert.example.com/v1/namespaces/shop/hosts/scaled/scale"),
        read("/apis/convert.example.com/v1/namespaces/shop/hosts/scaled"),
        read("/apis/convert.example.com/v1/namespaces/shop/hosts/b/status"),
    ]
}

/// How they end.
fn ended() -> Vec<Step> {
    let mut held = host("v2", "held", json!({"hostPort": "h:1"}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    vec![
        step("POST", HOSTS_V2, held),
        step("DELETE", "/apis/convert.example.com/v2/namespaces/shop/hosts/held", Value::Null),
        step(
            "PATCH",
            "/apis/convert.example.com/v2/namespaces/shop/hosts/held",
            json!({"metadata": {"finalizers": null}}),
        ),
        step("POST", HOSTS_V2, host("v2", "gone", json!({"hostPort": "g:1"}))),
        step("DELETE", "/apis/convert.example.com/v2/namespaces/shop/hosts/gone?dryRun=All", Value::Null),
        step("DELETE", "/apis/convert.example.com/v2/namespaces/shop/hosts/gone", Value::Null),
        step(
            "DELETE",
            "/apis/convert.example.com/v2/namespaces/shop/hosts?labelSelector=app+in+(bare,high)",
            Value::Null,
        ),
        read(HOSTS_V1),
    ]
}

/// Two appliers, each in a version.
fn applies() -> Vec<Step> {
    let first = |spec: Value| json!({"apiVersion": "convert.example.com/v1", "kind": "Host", "metadata": {"name": "c"}, "spec": spec});
    let second = |spec: Value| json!({"apiVersion": "convert.example.com/v2", "kind": "Host", "metadata": {"name": "c"}, "spec": spec});
    const ONE: &str = "/apis/convert.example.com/v1/namespaces/shop/hosts/c?fieldManager=applier";
    const TWO: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts/c?fieldManager=applier-two";
    const TWO_FORCED: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts/c?fieldManager=applier-two&force=true";
    const ONE_IN_TWO: &str = "/apis/convert.example.com/v2/namespaces/shop/hosts/c?fieldManager=applier";
    vec![
        step("PATCH", ONE, first(json!({"host": "c", "port": 1, "tags": {"one": "1"}}))),
        step("PATCH", TWO, second(json!({"tags": {"two": "2"}, "mode": "own"}))),
        step("PATCH", TWO, second(json!({"tags": {"one": "2"}}))),
        step("PATCH", TWO, second(json!({"hostPort": "c:2"}))),
        step("PATCH", TWO_FORCED, second(json!({"hostPort": "c:2", "tags": {"two": "3"}}))),
        step("PATCH", ONE, first(json!({"host": "c", "tags": {"one": "1"}}))),
        step("PATCH", ONE_IN_TWO, second(json!({"size": 2}))),
        step("PATCH", "/apis/convert.example.com/v1/namespaces/shop/hosts/c", json!({"spec": {"tags": {"two": "4"}}})),
        read("/apis/convert.example.com/v1/namespaces/shop/hosts/c"),
        read("/apis/convert.example.com/v2/namespaces/shop/hosts/c"),
        step("PATCH", TWO, second(json!({"tags": {}}))),
        step("DELETE", "/apis/convert.example.com/v2/namespaces/shop/hosts/c", Value::Null),
    ]
}

/// What is stored in a version that is not the stored one any more.
pub(super) fn stored_in_another_version() -> Vec<Step> {
    vec![
        step(
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.convert.example.com?fieldManager=x",
            json!({"spec": {"versions": versions("v2")}}),
        ),
        read(A2),
        read(HOSTS_V1),
        read(HOSTS_V2),
        step("POST", HOSTS_V1, host("v1", "new", json!({"host": "new", "port": 5}))),
        step("PATCH", A2, json!({"metadata": {"labels": {"moved": "yes"}}})),
        step("PATCH", "/apis/convert.example.com/v1/namespaces/shop/hosts/b", json!({"spec": {"port": 6}})),
        read(HOSTS_V1),
        read(HOSTS_V2),
        step(
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.convert.example.com?fieldManager=x",
            json!({"spec": {"versions": versions("v1")}}),
        ),
        step("PATCH", A2, json!({"metadata": {"labels": {"moved": "back"}}})),
        step("DELETE", "/apis/convert.example.com/v1/namespaces/shop/hosts/new", Value::Null),
        step("PATCH", "/apis/convert.example.com/v1/namespaces/shop/hosts/b", json!({"spec": {"port": 7}})),
        read(HOSTS_V1),
    ]
}

/// What needs a conversion.
pub(super) fn broken() -> Vec<Step> {
    vec![
        read("/apis/convert.example.com/v2/namespaces/shop/hosts/a"),
        step("POST", HOSTS_V2, host("v2", "never", json!({"hostPort": "n:1"}))),
    ]
}

/// What needs none.
pub(super) fn without_webhook() -> Vec<Step> {
    const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.convert.example.com";
    vec![
        step("POST", HOSTS_V1, host("v1", "plain", json!({"host": "p", "port": 1}))),
        step("PATCH", "/apis/convert.example.com/v1/namespaces/shop/hosts/plain", json!({"spec": {"port": 2}})),
        read("/apis/convert.example.com/v1/namespaces/shop/hosts/plain"),
        step("DELETE", "/apis/convert.example.com/v1/namespaces/shop/hosts/plain", Value::Null),
        read(DEFINITION),
    ]
}
