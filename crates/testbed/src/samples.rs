//! Objects that the tests put into members, and looks at what comes back.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{Api, Member};

pub fn config_map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"a": "1"}})
}

/// A pod that some replica set made. Without a kubelet it stays pending.
pub fn controlled_pod(name: &str, app: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true,
        "uid": "11111111-2222-3333-4444-555555555555",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    })
}

pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "main:1"}]},
            },
        },
    })
}

/// A CRD of a namespaced kind in group `e2e.kubefold.io`, with any content.
pub fn crd(kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.e2e.kubefold.io")},
        "spec": {
            "group": "e2e.kubefold.io", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Makes a namespace, and the service account without which no pod is admitted where no controllers run.
pub async fn namespace(member: &Member, name: &str) {
    let api = member.api().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let made = api.request(Method::POST, "/api/v1/namespaces", namespace.to_string()).await;
    assert!(matches!(made.status, StatusCode::CREATED | StatusCode::CONFLICT), "{made}");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let made = api.request(Method::POST, &path, account.to_string()).await;
    assert!(matches!(made.status, StatusCode::CREATED | StatusCode::CONFLICT), "{made}");
}

/// Creates objects in one collection.
pub async fn create_all(api: &Api, path: &str, objects: &[Value]) {
    for object in objects {
        api.create(path, object).await;
    }
}

/// `namespace/name` of every item, in the list's order.
pub fn keys(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap_or_else(|| panic!("no items in {list}")).iter().map(key).collect()
}

pub fn key(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap();
    object["metadata"]["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

pub fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no revision in {object}"));
    let revision = text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    assert!(revision < 1 << 53, "a JavaScript client rounds {revision}");
    revision
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
