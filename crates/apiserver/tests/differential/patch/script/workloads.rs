//! Deployments, their status and their scale.

use serde_json::{Value, json};

use super::*;

pub(super) fn containers(name: &str, containers: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}});
    deployment(name, json!({"template": template}))
}

pub(super) fn deployments() -> Vec<Step> {
    let web = &format!("{DEPLOYMENTS}/web");
    let applied = &format!("{DEPLOYMENTS}/applied");
    vec![
        create("a deployment", DEPLOYMENTS, deployment("web", json!({"replicas": 2}))).agent("kubectl-create"),
        update("its status", &format!("{web}/status"), |object| {
            object["status"]["replicas"] = 2.into();
            object["status"]["conditions"] = json!([{"type": "Available", "status": "True", "reason": "x", "message": "y",
                "lastTransitionTime": "2020-01-01T00:00:00Z", "lastUpdateTime": "2020-01-01T00:00:00Z"}]);
        }),
        merge(
            "spec by the status is not taken",
            &format!("{web}/status"),
            json!({"spec": {"replicas": 7}, "status": {"readyReplicas": 1}}),
        )
        .filled(),
        apply(
            "status by an apply",
            &format!("{web}/status"),
            "status-applier",
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"}, "status": {"conditions": [{"type": "Progressing", "status": "True"}], "availableReplicas": 1}}),
        ),
        apply(
            "status of another",
            &format!("{web}/status"),
            "other-applier",
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"}, "status": {"availableReplicas": 2}}),
        ),
        apply("conflicts over a deployment", web, "applier", deployment("web", json!({"replicas": 3, "paused": true}))),
        force("a deployment is applied", web, "applier", deployment("web", json!({"replicas": 3, "paused": true}))),
        apply("without the replicas", web, "applier", deployment("web", json!({}))),
        strategic("an autoscaler scales", web, json!({"spec": {"replicas": 5}})).agent("hpa"),
        apply("the applier meets it", web, "applier", deployment("web", json!({"replicas": 3}))),
        apply("a deployment by an apply", applied, "applier", deployment("applied", json!({"replicas": 1}))),
        apply(
            "containers in an order",
            applied,
            "applier",
            containers(
                "applied",
                json!([
            {"name": "a", "image": "a:1"}, {"name": "main", "image": "main:1"}, {"name": "z", "image": "z:1"}]),
            ),
        ),
        apply(
            "containers of another",
            applied,
            "sidecars",
            containers(
                "applied",
                json!([
            {"name": "z", "image": "z:1"}, {"name": "side", "image": "side:1", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
             "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "args": ["x"], "resources": {"limits": {"cpu": "1"}}}]),
            ),
        ),
        apply(
            "containers in another order",
            applied,
            "applier",
            containers(
                "applied",
                json!([
            {"name": "z", "image": "z:1"}, {"name": "b", "image": "b:1"}, {"name": "main", "image": "main:1"}]),
            ),
        ),
        apply(
            "a part of a container",
            applied,
            "sidecars",
            containers(
                "applied",
                json!([
            {"name": "side", "image": "side:2", "ports": [{"containerPort": 80, "protocol": "UDP", "name": "dns"}], "env": [{"name": "B", "value": "2"}]}]),
            ),
        ),
        apply(
            "an image of another",
            applied,
            "third",
            containers("applied", json!([{"name": "side", "image": "side:3"}])),
        ),
        force(
            "the image is taken",
            applied,
            "third",
            containers("applied", json!([{"name": "side", "image": "side:3"}])),
        ),
        apply(
            "volumes and a strategy",
            applied,
            "third",
            deployment(
                "applied",
                json!({
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%"}},
            "template": {"metadata": {"labels": {"app": "applied"}}, "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "one", "items": [{"key": "a", "path": "p"}]}}],
                "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "x", "operator": "Exists"}],
                "containers": [{"name": "side", "image": "side:3", "volumeMounts": [{"name": "v", "mountPath": "/v"}], "command": []}]}}}),
            ),
        ),
        apply("volumes go", applied, "third", containers("applied", json!([{"name": "side", "image": "side:3"}]))),
        apply(
            "the selector is one",
            applied,
            "fourth",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "applied"},
            "spec": {"selector": {"matchLabels": {"app": "other"}}}}),
        ),
        apply(
            "an empty object",
            applied,
            "fifth",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "applied"},
            "spec": {"template": {"spec": {"securityContext": {}}}}}),
        ),
        update("an update takes containers away", applied, |object| {
            object["spec"]["template"]["spec"]["containers"]
                .as_array_mut()
                .unwrap()
                .retain(|item| item["name"] == "side");
        }),
    ]
}

pub(super) fn container(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
}

pub(super) fn deployment_patches() -> Vec<Step> {
    let path = &format!("{DEPLOYMENTS}/patched");
    let spec = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    vec![
        create("to be patched", DEPLOYMENTS, deployment("patched", json!({"replicas": 1}))),
        strategic("a container is added", path, spec(json!({"containers": [container("side", "side:1")]}))),
        strategic(
            "a container is changed",
            path,
            spec(
                json!({"containers": [{"name": "main", "image": "main:2", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}),
            ),
        ),
        strategic(
            "containers are ordered",
            path,
            spec(json!({"$setElementOrder/containers": [{"name": "main"}, {"name": "new"}, {"name": "side"}],
            "containers": [container("new", "new:1")]})),
        ),
        strategic(
            "an order without a list",
            path,
            spec(json!({"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]})),
        ),
        strategic(
            "an order that does not fit",
            path,
            spec(
                json!({"$setElementOrder/containers": [{"name": "side"}], "containers": [{"name": "main", "image": "x:1"}]}),
            ),
        ),
        strategic(
            "an order without keys",
            path,
            spec(
                json!({"$setElementOrder/containers": [{"x": "side"}], "containers": [{"name": "main", "image": "x:1"}]}),
            ),
        ),
        strategic("an order that is none", path, spec(json!({"$setElementOrder/containers": "main"}))),
        strategic(
            "env in a container",
            path,
            spec(
                json!({"containers": [{"name": "main", "$setElementOrder/env": [{"name": "B"}, {"name": "C"}, {"name": "A"}],
            "env": [{"name": "C", "value": "3"}, {"name": "A", "value": null, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]}]}),
            ),
        ),
        strategic(
            "env goes",
            path,
            spec(json!({"containers": [{"name": "main", "env": [{"name": "C", "$patch": "delete"}]}]})),
        ),
        strategic(
            "a list that is one",
            path,
            spec(json!({"containers": [{"name": "main", "args": ["a", "b"], "command": ["c"]}]})),
        ),
        strategic(
            "a list that is one changes",
            path,
            spec(json!({"containers": [{"name": "main", "args": ["b"], "command": null}]})),
        ),
        strategic(
            "a container is deleted",
            path,
            spec(json!({"containers": [{"name": "new", "$patch": "delete"}, {"name": "none", "$patch": "delete"}]})),
        ),
        strategic(
            "containers are replaced",
            path,
            spec(json!({"containers": [{"$patch": "replace"}, container("only", "only:1")]})),
        ),
        strategic(
            "a strategy retains keys",
            path,
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        ),
        strategic(
            "a strategy that does not retain what it says",
            path,
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {"maxSurge": 1}}}}),
        ),
        strategic(
            "a replaced strategy",
            path,
            json!({"spec": {"strategy": {"$patch": "replace", "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}),
        ),
        strategic(
            "volumes with retained keys",
            path,
            spec(json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"medium": "Memory"}}]})),
        ),
        strategic(
            "a volume becomes another",
            path,
            spec(
                json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x", "type": ""}}]}),
            ),
        ),
        strategic(
            "a directive that is none",
            path,
            json!({"spec": {"strategy": {"$patch": "what", "type": "Recreate"}}}),
        ),
        strategic(
            "a directive that is no text",
            path,
            json!({"spec": {"strategy": {"$patch": 1, "type": "Recreate"}}}),
        ),
        strategic("an item without its key", path, spec(json!({"containers": [{"image": "x:1"}]}))),
        strategic(
            "an item to be deleted without its key",
            path,
            spec(json!({"containers": [{"$patch": "delete", "image": "x:1"}]})),
        ),
        strategic("an item to be merged", path, spec(json!({"containers": [{"$patch": "merge", "name": "only"}]}))),
        strategic("items of two kinds", path, spec(json!({"containers": ["x", {"name": "only"}]}))),
        strategic("a list of lists", path, spec(json!({"containers": [["x"]]}))),
        strategic("a directive without its list", path, json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}})),
        strategic("keys to retain that are none", path, json!({"spec": {"strategy": {"$retainKeys": "type"}}})),
        strategic("no object", path, json!([1])),
        strategic("no JSON", path, json!({})).raw("{x"),
        strategic("an empty patch", path, json!({})),
        merge("a merge patch that is a list", path, json!([1])),
        merge("a merge patch that is null", path, Value::Null),
        merge("a merge patch that is no JSON", path, json!({})).raw("{"),
        merge("lists are replaced", path, spec(json!({"containers": [container("m", "m:1"), container("n", "n:1")]}))),
        json_patch(
            "a JSON patch of lists",
            path,
            json!([
                {"op": "add", "path": "/spec/template/spec/containers/1", "value": container("between", "b:1")},
                {"op": "move", "from": "/spec/template/spec/containers/0", "path": "/spec/template/spec/containers/2"},
                {"op": "replace", "path": "/spec/template/spec/containers/-1/image", "value": "last:1"},
                {"op": "test", "path": "/spec/template/spec/containers/0/name", "value": "between"},
            ]),
        ),
        json_patch("a test fails", path, json!([{"op": "test", "path": "/spec/replicas", "value": 99}])),
        json_patch("a path is missing", path, json!([{"op": "remove", "path": "/spec/nothing/there"}])),
        json_patch("a key is missing", path, json!([{"op": "remove", "path": "/metadata/nothing"}])),
        json_patch(
            "a place is missing",
            path,
            json!([{"op": "replace", "path": "/spec/template/spec/containers/9", "value": {}}]),
        ),
        json_patch("an operation that is none", path, json!([{"op": "jump", "path": "/x"}])),
        json_patch("a JSON patch that is an object", path, json!({"op": "add"})),
        json_patch("a JSON patch that is a text", path, json!("x")),
        json_patch("an operation that is a number", path, json!([1])),
        json_patch("an operation with a path that is a number", path, json!([{"op": "add", "path": 1}])),
        json_patch("a JSON patch that is no JSON", path, json!([])).raw("["),
        json_patch("a JSON patch of nothing", path, json!([])),
        json_patch(
            "a test of what is not there",
            path,
            json!([{"op": "test", "path": "/metadata/nothing", "value": null}]),
        ),
    ]
}

pub(super) fn scales() -> Vec<Step> {
    let path = &format!("{DEPLOYMENTS}/scaled");
    let scale = &format!("{path}/scale");
    let applied = |replicas: u32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "scaled"}, "spec": {"replicas": replicas}});
    vec![
        apply("to be scaled", path, "owner", deployment("scaled", json!({"replicas": 1}))),
        merge("a scale", scale, json!({"spec": {"replicas": 3}})).agent("hpa"),
        merge("a scale by another", scale, json!({"spec": {"replicas": 4}})).agent("other"),
        apply("the owner meets it", path, "owner", deployment("scaled", json!({"replicas": 1}))),
        apply("a scale by an apply meets it", scale, "scaler", applied(5)),
        force("a scale by an apply", scale, "scaler", applied(5)),
        apply("the owner leaves it", path, "owner", deployment("scaled", json!({}))),
        apply("the same scale", scale, "scaler", applied(5)),
        apply("another scale", scale, "scaler", applied(6)),
        merge("the object itself", path, json!({"spec": {"replicas": 7}})).agent("kubectl"),
        merge("and its scale", scale, json!({"spec": {"replicas": 8}})).agent("kubectl"),
    ]
}

pub(super) fn duplicates() -> Vec<Step> {
    let path = &format!("{DEPLOYMENTS}/twice");
    let env = |env: Value| containers("twice", json!([{"name": "main", "image": "main:1", "env": env}]));
    vec![
        create(
            "one name twice",
            DEPLOYMENTS,
            env(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "b"}, {"name": "A", "value": "2"}])),
        ),
        apply(
            "beside what is there twice",
            path,
            "applier",
            env(json!([{"name": "B", "value": "b"}, {"name": "C", "value": "c"}])),
        ),
        apply("onto what is there twice", path, "applier", env(json!([{"name": "A", "value": "2"}]))),
        force(
            "onto what is there twice, forced",
            path,
            "applier",
            env(json!([{"name": "A", "value": "3"}, {"name": "D", "value": "d"}])),
        ),
        update("twice again", path, |object| {
            let env = object["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
            env.push(json!({"name": "A", "value": "4"}));
        }),
        update("another value of what is there twice", path, |object| {
            let env = object["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
            env.last_mut().unwrap()["value"] = "5".into();
        }),
        update("once again", path, |object| {
            let env = object["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
            env.pop();
        }),
    ]
}
