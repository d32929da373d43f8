//! Configurations that are refused, or are not.

use serde_json::{Value, json};

use crate::writes::{Step, step};

fn webhook() -> Value {
    json!({
        "name": "a.b.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com/path"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut webhook = webhook();
    webhook[field] = value;
    webhook
}

fn without(field: &str) -> Value {
    let mut webhook = webhook();
    webhook.as_object_mut().unwrap().remove(field);
    webhook
}

/// Webhooks, each of a configuration of its own.
fn webhooks() -> Vec<Value> {
    let urls = [
        "http://example.com",
        "https://",
        "https://user@example.com",
        "https://user:secret@example.com/x",
        "https://example.com/?a=b",
        "https://example.com/#a",
        "example.com",
        "",
        "https:///path",
        "https://example.com:443/a/../b",
    ];
    let services = [
        json!({}),
        json!({"namespace": "a", "name": "b"}),
        json!({"namespace": "a", "name": "b", "port": 0}),
        json!({"namespace": "a", "name": "b", "port": 70000}),
        json!({"namespace": "a", "name": "b", "path": "x"}),
        json!({"namespace": "a", "name": "b", "path": "//"}),
        json!({"namespace": "a", "name": "b", "path": "/a//b/"}),
        json!({"namespace": "a", "name": "b", "path": "/a/B_c"}),
        json!({"namespace": "a", "name": "b", "path": "/"}),
    ];
    let mut all = vec![
        webhook(),
        json!({}),
        with("name", "".into()),
        with("name", "a.b".into()),
        with("name", "A_b.example.com".into()),
        with("rules", json!([])),
        with("rules", json!([{}])),
        with(
            "rules",
            json!([{"apiGroups": ["", "*"], "apiVersions": ["*", "v1", ""], "operations": ["*", "NOPE"], "resources": ["*", "*/*", "pods", "pods/*", "pods/log", ""], "scope": "Nope"}]),
        ),
        with("failurePolicy", "Nope".into()),
        with("matchPolicy", "Nope".into()),
        with("sideEffects", "Some".into()),
        with("sideEffects", "Unknown".into()),
        with("sideEffects", "Nope".into()),
        without("sideEffects"),
        with("timeoutSeconds", 0.into()),
        with("timeoutSeconds", 31.into()),
        with("timeoutSeconds", 30.into()),
        with("namespaceSelector", json!({"matchLabels": {"a b": "c d"}})),
        with("objectSelector", json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        with("reinvocationPolicy", "Nope".into()),
        with("reinvocationPolicy", "IfNeeded".into()),
        without("admissionReviewVersions"),
        with("admissionReviewVersions", json!([])),
        with("admissionReviewVersions", json!(["v2"])),
        with("admissionReviewVersions", json!(["v1", "v1"])),
        with("admissionReviewVersions", json!(["v1", "V_1"])),
        with("clientConfig", json!({})),
        with("clientConfig", json!({"url": "https://example.com", "service": {"namespace": "a", "name": "b"}})),
        with("clientConfig", json!({"url": "https://example.com", "caBundle": "bm8="})),
        with("matchConditions", json!([{"name": "a", "expression": "true"}])),
        with(
            "matchConditions",
            json!([{"name": "", "expression": ""}, {"name": "a b", "expression": "1"}, {"name": "c", "expression": "params.x"}, {"name": "c", "expression": "true"}]),
        ),
    ];
    all.push(with(
        "matchConditions",
        json!([
            {"name": "a", "expression": "request.name + 1 == ''"}, {"name": "b", "expression": "authorizer.x"},
            {"name": "c", "expression": "authorizer.requestResource"}, {"name": "d", "expression": "object.x"},
            {"name": "e", "expression": "authorizer.path('/x').check('get').allowed()"},
        ]),
    ));
    all.extend(urls.map(|url| with("clientConfig", json!({"url": url}))));
    all.extend(services.map(|service| with("clientConfig", json!({"service": service}))));
    all
}

pub(super) fn steps() -> Vec<Step> {
    const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
    const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All";
    const DENIED: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/denied-m-0?dryRun=All";
    let of = |webhooks: Vec<Value>| json!({"metadata": {"name": "refused"}, "webhooks": webhooks});
    let mut steps = Vec::new();
    for path in [VALIDATING, MUTATING] {
        steps.extend(webhooks().into_iter().map(|webhook| step("POST", path, of(vec![webhook]))));
        steps.push(step("POST", path, of(Vec::new())));
        steps.push(step("POST", path, of(vec![webhook(), webhook(), json!({})])));
        steps.push(step("POST", path, json!({"metadata": {"name": "a_b"}, "webhooks": [webhook()]})));
    }
    for webhook in [with("sideEffects", "Some".into()), with("admissionReviewVersions", json!(["v2"])), webhook()] {
        steps.push(step("PATCH", DENIED, json!({"webhooks": [webhook]})));
    }
    steps.push(step("PATCH", DENIED, json!({"webhooks": [webhook(), webhook()]})));
    steps
}
