//! Services, pods, service accounts; what is refused.

use serde_json::{Value, json};

use super::*;

pub(super) fn service(name: &str, ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, "selector": {"app": "web"}}})
}

pub(super) fn services() -> Vec<Step> {
    let web = &format!("{SERVICES}/web");
    let applied = &format!("{SERVICES}/applied");
    vec![
        create(
            "a service",
            SERVICES,
            service("web", json!([{"port": 80, "name": "http"}, {"port": 443, "name": "https"}])),
        ),
        strategic(
            "a port is added by its number",
            web,
            json!({"spec": {"ports": [{"port": 81, "name": "more", "protocol": "TCP", "targetPort": 81}]}}),
        ),
        strategic("a port is changed", web, json!({"spec": {"ports": [{"port": 443, "targetPort": 8443}]}})),
        merge("the selector", web, json!({"spec": {"selector": {"app": "other"}}})),
        merge(
            "its status",
            &format!("{web}/status"),
            json!({"status": {"conditions": [{"type": "X", "status": "True", "reason": "Y", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}),
        )
        .filled(),
        apply(
            "a service by an apply",
            applied,
            "applier",
            service("applied", json!([{"port": 80, "name": "http"}, {"port": 53, "name": "dns", "protocol": "UDP"}])),
        ),
        apply(
            "a port with the default it has",
            applied,
            "second",
            service("applied", json!([{"port": 80, "name": "http", "protocol": "TCP"}])),
        ),
        apply("a port goes", applied, "applier", service("applied", json!([{"port": 80, "name": "http"}]))),
        apply("a name of another's port", applied, "third", service("applied", json!([{"port": 80, "name": "web"}]))),
        apply(
            "a port twice",
            applied,
            "applier",
            service("applied", json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b", "protocol": "TCP"}])),
        ),
        update("a port moves", applied, |object| object["spec"]["ports"][0]["port"] = 8080.into()),
    ]
}

pub(super) fn pods() -> Vec<Step> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "main:1", "ports": [{"containerPort": 80}], "envFrom": [{"configMapRef": {"name": "one"}}]}],
            "serviceAccountName": "default", "automountServiceAccountToken": false}});
    let path = &format!("{PODS}/p");
    vec![
        create("a pod", PODS, pod),
        strategic("its image", path, json!({"spec": {"containers": [{"name": "main", "image": "main:2"}]}})),
        strategic("its status by a kubelet", &format!("{path}/status"), json!({"status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2020-01-01T00:00:00Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "main", "image": "main:2", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}, "lastState": {}}]}})).filled().agent("kubelet"),
        strategic("one condition of many", &format!("{path}/status"), json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})).agent("kubelet"),
        apply("labels by an apply", path, "applier", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"c": "d"}}})),
        apply("a label of another", path, "second", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "x", "c": "x"}}})),
    ]
}

pub(super) fn accounts() -> Vec<Step> {
    let path = &format!("{ACCOUNTS}/a");
    let account = |secrets: Value| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": secrets});
    vec![
        create("references by name", ACCOUNTS, account(json!([{"name": "x"}]))),
        apply("more of them", path, "applier", account(json!([{"name": "y"}, {"name": "x"}]))),
        apply("fewer of them", path, "applier", account(json!([{"name": "x"}]))),
        strategic("image pull secrets", path, json!({"imagePullSecrets": [{"name": "p"}]})),
    ]
}

pub(super) fn refusals() -> Vec<Step> {
    let web = &format!("{DEPLOYMENTS}/web");
    let apply_of = |object: Value| object;
    vec![
        apply("another kind", web, "applier", config_map("web", json!({}))),
        apply("no kind", web, "applier", json!({"metadata": {"name": "web"}})),
        apply("an unknown field of a built-in kind", web, "applier", deployment("web", json!({"unknown": true}))),
        apply("a wrong type of a built-in kind", web, "applier", deployment("web", json!({"replicas": "three"}))),
        apply("a wrong truth of a built-in kind", web, "applier", deployment("web", json!({"paused": "yes"}))),
        apply(
            "a wrong text of a built-in kind",
            web,
            "applier",
            apply_of(containers("web", json!([{"name": "main", "image": 1}]))),
        ),
        apply("a wrong list of a built-in kind", web, "applier", apply_of(containers("web", json!({"name": "main"})))),
        apply(
            "an item twice in a built-in kind",
            web,
            "applier",
            apply_of(containers("web", json!([{"name": "main"}, {"name": "main"}]))),
        ),
        apply("an item without its name", web, "applier", apply_of(containers("web", json!([{"image": "x"}])))),
    ]
}
