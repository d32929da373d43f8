//! The writes, in their order.

#![allow(clippy::too_many_lines, reason = "a script is as long as it is")]

mod custom;
mod others;
mod plain;
mod workloads;

use serde_json::{Value, json};

use {custom::*, others::*, plain::*, workloads::*};

/// Lists of the custom resources.
pub(crate) const CUSTOM: &[&str] = &["/apis/patch.kubefold.io/v1/widgets", "/apis/patch.kubefold.io/v1/blobs"];

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/shop/serviceaccounts";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const WIDGETS: &str = "/apis/patch.kubefold.io/v1/namespaces/shop/widgets";
const WIDGETS_BETA: &str = "/apis/patch.kubefold.io/v1beta1/namespaces/shop/widgets";
const BLOBS: &str = "/apis/patch.kubefold.io/v1/namespaces/shop/blobs";

/// One write.
pub(crate) struct Step {
    pub(crate) what: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) agent: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) filled: bool,
    pub(crate) body: Body,
}

/// What is sent.
pub(crate) enum Body {
    Json(Value),
    Text(String),
    /// What is there, changed.
    Changed(fn(&mut Value)),
}

impl Step {
    fn new(what: &'static str, method: &'static str, path: String, body: Body) -> Self {
        let content_type = "application/json";
        Self { what, method, path, agent: "tester/v1.2 (linux)", content_type, filled: false, body }
    }

    /// The server fills in what the body does not say.
    fn filled(self) -> Self {
        Self { filled: true, ..self }
    }

    fn agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    fn raw(self, body: &str) -> Self {
        Self { body: Body::Text(body.to_owned()), ..self }
    }
}

fn create(what: &'static str, path: &str, body: Value) -> Step {
    Step::new(what, "POST", path.to_owned(), Body::Json(body)).filled()
}

fn update(what: &'static str, path: &str, change: fn(&mut Value)) -> Step {
    Step::new(what, "PUT", path.to_owned(), Body::Changed(change))
}

fn patch(what: &'static str, path: &str, form: &'static str, body: Value) -> Step {
    Step { content_type: form, ..Step::new(what, "PATCH", path.to_owned(), Body::Json(body)) }
}

fn json_patch(what: &'static str, path: &str, body: Value) -> Step {
    patch(what, path, "application/json-patch+json", body)
}

fn merge(what: &'static str, path: &str, body: Value) -> Step {
    patch(what, path, "application/merge-patch+json", body)
}

fn strategic(what: &'static str, path: &str, body: Value) -> Step {
    patch(what, path, "application/strategic-merge-patch+json", body)
}

fn apply(what: &'static str, path: &str, manager: &str, body: Value) -> Step {
    let sign = if path.contains('?') { '&' } else { '?' };
    patch(what, &format!("{path}{sign}fieldManager={manager}"), "application/apply-patch+yaml", body).filled()
}

fn force(what: &'static str, path: &str, manager: &str, body: Value) -> Step {
    apply(what, &format!("{path}?force=true"), manager, body)
}

/// The definitions of the custom resources: one with types, one of anything.
pub(crate) fn definitions() -> Vec<Value> {
    let pair = json!({"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"}, "note": {"type": "string"}}, "required": ["port"]});
    let spec = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"], "items": pair},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "whole": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
        "plain": {"type": "array", "items": {"type": "string"}},
        "settings": {"type": "object", "additionalProperties": {"type": "string"}},
        "color": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"r": {"type": "integer"}, "g": {"type": "integer"}}},
        "nested": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "deep": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "maybe": {"type": "string", "nullable": true},
        "amount": {"x-kubernetes-int-or-string": true},
    }});
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}}}});
    let typed = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool, schema: &Value| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
    let definition = |kind: &str, versions: Vec<Value>| {
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.patch.kubefold.io")},
            "spec": {"group": "patch.kubefold.io", "scope": "Namespaced", "versions": versions,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural}},
        })
    };
    vec![
        definition("Widget", vec![version("v1", true, &typed), version("v1beta1", false, &typed)]),
        definition("Blob", vec![version("v1", true, &open)]),
    ]
}

/// All of the script.
pub(crate) fn steps() -> Vec<Step> {
    let mut steps = config_maps();
    steps.extend(resets());
    steps.extend(many_managers());
    steps.extend(deployments());
    steps.extend(deployment_patches());
    steps.extend(migration());
    steps.extend(services());
    steps.extend(pods());
    steps.extend(accounts());
    steps.extend(widgets());
    steps.extend(widget_lists());
    steps.extend(versions());
    steps.extend(blobs());
    steps.extend(refusals());
    steps.extend(scales());
    steps.extend(duplicates());
    steps
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn deployment(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}},
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
