//! The writes, in their order.

use serde_json::{Value, json};

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

fn config_maps() -> Vec<Step> {
    let one = &format!("{MAPS}/one");
    let two = &format!("{MAPS}/two");
    vec![
        create("a create has an owner", MAPS, config_map("one", json!({"a": "1", "b": "2", "c.d": "3"}))),
        merge("a merge patch adds a key", one, json!({"data": {"d": "4"}})).agent("kubectl/v1.36 (x)"),
        merge("a merge patch changes the key of another", one, json!({"data": {"a": "x"}})).agent("kubectl"),
        merge("a merge patch that changes nothing", one, json!({"data": {"a": "x"}})).agent("third"),
        merge(
            "a merge patch removes",
            one,
            json!({"data": {"b": null, "nothing": null}, "metadata": {"labels": {"l": "1"}}}),
        ),
        apply("an apply meets others", one, "applier", config_map("one", json!({"a": "mine", "e": "5"}))),
        apply("an apply agrees with others", one, "applier", config_map("one", json!({"a": "x", "e": "5"}))),
        force("an apply is forced", one, "applier", config_map("one", json!({"a": "mine", "d": "mine", "e": "5"}))),
        apply("the same apply again", one, "applier", config_map("one", json!({"a": "mine", "d": "mine", "e": "5"}))),
        apply("an apply without a key that only it has", one, "applier", config_map("one", json!({"a": "mine"}))),
        apply("another applier shares a value", one, "second", config_map("one", json!({"a": "mine"}))),
        apply("the first leaves what is shared", one, "applier", config_map("one", json!({"z": "1"}))),
        apply("the second meets two", one, "third%20one", config_map("one", json!({"a": "no", "z": "no"}))),
        update("an update", one, |object| object["data"]["u"] = "1".into()),
        update("an update that changes nothing", one, |_| {}),
        update("an update removes a key of an applier", one, |object| {
            drop(object["data"].as_object_mut().unwrap().remove("z"))
        }),
        merge("a named manager", &format!("{one}?fieldManager=named"), json!({"data": {"n": "1"}})),
        apply("an apply creates", two, "applier", config_map("two", json!({"a": "1"}))),
        apply(
            "an apply of nothing but the name",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}),
        ),
        apply(
            "an apply of labels and finalizers",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "labels": {"x": "1", "y/z": "2"}, "annotations": {"n": ""}, "finalizers": ["kubefold.io/a", "kubefold.io/b"]}}),
        ),
        apply(
            "finalizers of another",
            two,
            "second",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "finalizers": ["kubefold.io/c", "kubefold.io/a"]}}),
        ),
        apply(
            "a finalizer goes",
            two,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "two", "finalizers": ["kubefold.io/b"]}}),
        ),
        apply(
            "null values",
            two,
            "nulls",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two", "labels": null}, "data": null}),
        ),
        json_patch(
            "a JSON patch",
            two,
            json!([
                {"op": "test", "path": "/metadata/name", "value": "two"},
                {"op": "add", "path": "/data", "value": {"k": "v", "a/b": "c"}},
                {"op": "copy", "from": "/data/k", "path": "/data/l"},
                {"op": "move", "from": "/data/k", "path": "/data/m"},
                {"op": "replace", "path": "/data/new", "value": "there was none"},
                {"op": "remove", "path": "/data/a~1b"},
                {"op": "add", "path": "/metadata/finalizers/-", "value": "kubefold.io/z"},
                {"op": "remove", "path": "/metadata/finalizers/-1"},
            ]),
        ),
        strategic(
            "owners of an object's references",
            two,
            json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
        ),
        strategic(
            "one is deleted by its key",
            two,
            json!({"metadata": {"ownerReferences": [
            {"$patch": "delete", "uid": "11111111-2222-3333-4444-555555555555"}]}}),
        ),
        strategic(
            "finalizers are merged",
            two,
            json!({"metadata": {"finalizers": ["kubefold.io/n", "kubefold.io/b"]}}),
        ),
        strategic(
            "finalizers are deleted",
            two,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["kubefold.io/n", "none"]}}),
        ),
        strategic(
            "finalizers are ordered",
            two,
            json!({"metadata": {"$setElementOrder/finalizers": ["kubefold.io/q", "kubefold.io/c"], "finalizers": ["kubefold.io/q"]}}),
        ),
        strategic("labels are replaced", two, json!({"metadata": {"labels": {"$patch": "replace", "only": "1"}}})),
        strategic("labels are deleted", two, json!({"metadata": {"labels": {"$patch": "delete"}}})),
        strategic("data retains keys", two, json!({"data": {"$retainKeys": ["m", "o"], "o": "1"}})),
        merge("whole data by another", two, json!({"data": {"m": null, "o": null, "l": null, "new": null}})),
        merge("all data goes", two, json!({"data": null, "immutable": true})),
    ]
}

fn resets() -> Vec<Step> {
    let reset = &format!("{MAPS}/reset");
    vec![
        create("to be reset", MAPS, config_map("reset", json!({"a": "1", "b": "2"}))),
        merge("an entry of its own", reset, json!({"data": {"a": "2"}})).agent("other"),
        update("entries are reset", reset, |object| object["metadata"]["managedFields"] = json!([{}])),
        merge("what is not tracked stays so", reset, json!({"data": {"b": "3"}})).agent("other"),
        apply("before the first apply", reset, "applier", config_map("reset", json!({"c": "1"}))),
        apply("what was before is another's", reset, "applier", config_map("reset", json!({"a": "mine"}))),
        update("entries are set", reset, |object| {
            object["metadata"]["managedFields"] = json!([{"manager": "set", "operation": "Update", "apiVersion": "v1",
                "time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}, ".": {}}}}]);
        }),
        update("entries that are none are as if not sent", reset, |object| {
            object["metadata"]["managedFields"] = json!([]);
            object["data"]["a"] = "4".into();
        }),
        update("no entries are as if not sent", reset, |object| {
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            object["data"]["b"] = "5".into();
        }),
        merge("a patch resets", reset, json!({"metadata": {"managedFields": [{}]}})),
        apply(
            "entries in an apply",
            reset,
            "applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "reset", "managedFields": []}}),
        ),
        merge(
            "entries that can't be read",
            reset,
            json!({"metadata": {"managedFields": [
            {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"x": {}}}}]}, "data": {"q": "1"}}),
        ),
    ]
}

fn many_managers() -> Vec<Step> {
    let many = &format!("{MAPS}/many");
    let mut steps = vec![create("to be of many", MAPS, config_map("many", json!({"a": "1"})))];
    for index in 0..14 {
        let path = format!("{many}?fieldManager=manager-{index}");
        let key = format!("key-{index}");
        steps.push(merge("more than ten owners", &path, json!({"data": {key: "1"}})));
    }
    steps.push(apply(
        "an applier is none of them",
        many,
        "applier",
        config_map("many", json!({"key-3": "1", "mine": "1"})),
    ));
    steps.push(force(
        "ancient changes are overruled",
        many,
        "applier",
        config_map("many", json!({"key-3": "2", "mine": "1"})),
    ));
    steps
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

fn containers(name: &str, containers: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}});
    deployment(name, json!({"template": template}))
}

fn deployments() -> Vec<Step> {
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

fn container(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
}

fn deployment_patches() -> Vec<Step> {
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

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn migration() -> Vec<Step> {
    let path = &format!("{MAPS}/migrated");
    let with = |data: Value, last: Value| {
        let mut object = config_map("migrated", data);
        object["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
        object
    };
    let last = config_map("migrated", json!({"a": "1", "b": "2"}));
    vec![
        create("by kubectl itself", MAPS, with(json!({"a": "1", "b": "2"}), last)).agent("kubectl-client-side-apply"),
        apply("the same on the server", path, "kubectl", config_map("migrated", json!({"a": "1", "b": "2"}))),
        apply("changed on the server", path, "kubectl", config_map("migrated", json!({"a": "3", "b": "2"}))),
        merge("changed by another", path, json!({"data": {"b": "x"}})).agent("other"),
        apply("meets the other", path, "kubectl", config_map("migrated", json!({"a": "3", "b": "y"}))),
        apply("any other name does not", path, "someone", config_map("migrated", json!({"a": "4"}))),
        apply(
            "with labels",
            path,
            "kubectl",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "3"},
            "metadata": {"name": "migrated", "labels": {"b": "1", "a": "x"}, "annotations": {"n": "1"}}}),
        ),
    ]
}

fn service(name: &str, ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, "selector": {"app": "web"}}})
}

fn services() -> Vec<Step> {
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

fn pods() -> Vec<Step> {
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

fn accounts() -> Vec<Step> {
    let path = &format!("{ACCOUNTS}/a");
    let account = |secrets: Value| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": secrets});
    vec![
        create("references by name", ACCOUNTS, account(json!([{"name": "x"}]))),
        apply("more of them", path, "applier", account(json!([{"name": "y"}, {"name": "x"}]))),
        apply("fewer of them", path, "applier", account(json!([{"name": "x"}]))),
        strategic("image pull secrets", path, json!({"imagePullSecrets": [{"name": "p"}]})),
    ]
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn widgets() -> Vec<Step> {
    let one = &format!("{WIDGETS}/one");
    let two = &format!("{WIDGETS}/two");
    vec![
        create(
            "a custom resource",
            WIDGETS,
            widget(
                "one",
                json!({"replicas": 1, "settings": {"a": "1"}, "nested": {"a": "1", "deep": {"x": 1}}, "amount": "50%"}),
            ),
        ),
        merge(
            "its status by the main endpoint is not taken",
            one,
            json!({"status": {"phase": "x"}, "spec": {"replicas": 2}}),
        )
        .filled(),
        merge(
            "its status",
            &format!("{one}/status"),
            json!({"status": {"phase": "Ready", "conditions": [{"type": "A", "status": "True"}]}}),
        ),
        merge(
            "its labels by the status are not taken",
            &format!("{one}/status"),
            json!({"metadata": {"labels": {"x": "1"}}, "spec": {"replicas": 9}, "status": {"phase": "Gone"}}),
        )
        .filled(),
        apply(
            "its status by an apply",
            &format!("{one}/status"),
            "conditions",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"},
            "status": {"conditions": [{"type": "B", "status": "True"}]}}),
        ),
        apply(
            "the status of another",
            &format!("{one}/status"),
            "others",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"},
            "status": {"phase": "Mine", "conditions": [{"type": "B", "status": "False"}]}}),
        ),
        apply("one conflict", one, "applier", widget("one", json!({"replicas": 3}))),
        force(
            "forced",
            one,
            "applier",
            widget("one", json!({"replicas": 3, "settings": {"b": "2"}, "color": {"r": 1}, "maybe": null})),
        ),
        apply("an object that is one", one, "second", widget("one", json!({"color": {"g": 1}}))),
        force("an object that is one is taken", one, "second", widget("one", json!({"color": {"g": 1}}))),
        apply("settings go", one, "applier", widget("one", json!({"replicas": 3}))),
        apply(
            "all goes",
            one,
            "applier",
            json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Widget", "metadata": {"name": "one"}}),
        ),
        apply("deep fields of one", one, "deep-1", widget("one", json!({"nested": {"deep": {"y": 1}, "b": "1"}}))),
        apply("deep fields go", one, "deep-1", widget("one", json!({"nested": {"b": "1"}}))),
        apply("and their parents", one, "deep-1", widget("one", json!({"replicas": 3}))),
        create("created", WIDGETS, widget("bare", json!({}))),
        apply(
            "created by an apply",
            two,
            "applier",
            widget(
                "two",
                json!({"nested": {"deep": {"x": 1}}, "tags": ["b", "a"], "whole": ["x"], "plain": ["y"], "amount": 5}),
            ),
        ),
        apply("parents go with the last", two, "applier", widget("two", json!({"replicas": 1}))),
        merge(
            "anything in a free object",
            two,
            json!({"spec": {"free": {"a": {"b": [1, {"c": 2}]}, "d": 1.5, "e": true}}}),
        ),
        apply(
            "a free object of an applier",
            two,
            "free",
            widget("two", json!({"free": {"a": {"b": [2]}, "f": {"g": "h"}}})),
        ),
        force(
            "a free object is taken",
            two,
            "free",
            widget("two", json!({"free": {"a": {"b": [2]}, "f": {"g": "h"}, "n": null}})),
        ),
        apply("a free object changes its kind", two, "free", widget("two", json!({"free": {"a": "text", "f": ["g"]}}))),
        apply("a free object goes", two, "free", widget("two", json!({"replicas": 1}))),
        update("an update of a custom resource", two, |object| object["spec"]["settings"] = json!({"x": "y"})),
        update("an update removes", two, |object| drop(object["spec"].as_object_mut().unwrap().remove("settings"))),
        json_patch(
            "a JSON patch of a custom resource",
            two,
            json!([{"op": "add", "path": "/spec/settings", "value": {"q": "1"}}]),
        ),
        apply("an unknown field", two, "applier", widget("two", json!({"unknown": 1}))),
        apply("a wrong type", two, "applier", widget("two", json!({"replicas": "x"}))),
        apply("a text that is a number", two, "applier", widget("two", json!({"nested": {"a": 1}}))),
        apply("an object that is a list", two, "applier", widget("two", json!({"nested": [1]}))),
        apply("a list that is an object", two, "applier", widget("two", json!({"tags": {"a": 1}}))),
    ]
}

fn widget_lists() -> Vec<Step> {
    let path = &format!("{WIDGETS}/lists");
    let ports = |ports: Value| widget("lists", json!({"ports": ports}));
    let tags = |tags: Value| widget("lists", json!({"tags": tags}));
    vec![
        apply(
            "items by two keys",
            path,
            "a",
            ports(json!([{"port": 80, "name": "x"}, {"port": 80, "protocol": "UDP"}, {"port": 81, "note": "n"}])),
        ),
        apply(
            "items of another between",
            path,
            "b",
            ports(json!([{"port": 90}, {"port": 81, "name": "mine"}, {"port": 91}])),
        ),
        apply(
            "items in another order",
            path,
            "a",
            ports(json!([{"port": 81, "note": "n"}, {"port": 80, "protocol": "UDP"}, {"port": 80, "name": "x"}])),
        ),
        apply("an item is shared", path, "c", ports(json!([{"port": 80, "protocol": "TCP"}]))),
        apply("an item goes that is shared", path, "a", ports(json!([{"port": 80, "protocol": "UDP"}]))),
        apply(
            "a field of an item",
            path,
            "d",
            ports(json!([{"port": 80, "protocol": "UDP", "note": "d"}, {"port": 81, "name": "other"}])),
        ),
        apply("an item twice", path, "a", ports(json!([{"port": 1}, {"port": 1, "protocol": "TCP"}]))),
        apply("an item without keys", path, "a", ports(json!([{"name": "x"}]))),
        apply("an item that is none", path, "a", ports(json!(["x"]))),
        apply("an item that is null", path, "a", ports(json!([null]))),
        apply("no items", path, "c", ports(json!([]))),
        apply("a set", path, "s1", tags(json!(["a", "<&>\u{2028}", "c", "10", "9"]))),
        apply("a set of another", path, "s2", tags(json!(["c", "x", "a"]))),
        apply("a set without one", path, "s1", tags(json!(["b", "c"]))),
        apply("a set with one twice", path, "s1", tags(json!(["b", "b"]))),
        apply("a set of objects", path, "s1", tags(json!([{}]))),
        apply("a set of lists", path, "s1", tags(json!([[]]))),
        apply("a set with null", path, "s1", tags(json!([null]))),
        merge("a set by a patch", path, json!({"spec": {"tags": ["q", "c"]}})),
        apply("lists that are one", path, "w1", widget("lists", json!({"whole": ["a", "b"], "plain": ["a"]}))),
        apply("lists that are one, of another", path, "w2", widget("lists", json!({"whole": ["a"], "plain": ["a"]}))),
        force("lists that are one, taken", path, "w2", widget("lists", json!({"whole": ["a"], "plain": ["a"]}))),
        apply("lists that are one go", path, "w2", widget("lists", json!({"plain": []}))),
        update("an item of an applier is removed", path, |object| {
            object["spec"]["ports"].as_array_mut().unwrap().truncate(1)
        }),
    ]
}

fn versions() -> Vec<Step> {
    let v1 = &format!("{WIDGETS}/versions");
    let beta = &format!("{WIDGETS_BETA}/versions");
    let of_beta = |spec: Value| {
        let mut widget = widget("versions", spec);
        widget["apiVersion"] = "patch.kubefold.io/v1beta1".into();
        widget
    };
    vec![
        apply("by one version", v1, "applier", widget("versions", json!({"replicas": 1, "settings": {"a": "1"}}))),
        merge("by another version", beta, json!({"spec": {"settings": {"b": "2"}}})).agent("other"),
        merge("by the first", v1, json!({"spec": {"settings": {"c": "3"}}})).agent("other"),
        apply("an applier changes versions", beta, "applier", of_beta(json!({"replicas": 1, "settings": {"d": "4"}}))),
        apply(
            "and meets another version",
            beta,
            "applier",
            of_beta(json!({"replicas": 1, "settings": {"b": "x", "c": "x"}})),
        ),
        apply("the wrong version", beta, "applier", widget("versions", json!({"replicas": 1}))),
    ]
}

fn blobs() -> Vec<Step> {
    let path = &format!("{BLOBS}/one");
    let blob = |more: Value| {
        let mut blob = json!({"apiVersion": "patch.kubefold.io/v1", "kind": "Blob", "metadata": {"name": "one"}});
        more.as_object().unwrap().iter().for_each(|(name, value)| blob[name] = value.clone());
        blob
    };
    vec![
        create("anything", BLOBS, blob(json!({"spec": {"a": 1, "list": [{"name": "x"}], "m": {}}, "top": "x"}))),
        apply(
            "anything by an apply",
            path,
            "applier",
            blob(json!({"spec": {"list": [{"name": "y"}], "b": {"c": null}}})),
        ),
        force(
            "anything taken",
            path,
            "applier",
            blob(json!({"spec": {"list": [{"name": "y"}], "b": {"c": {"d": 1}}}, "finalizers": ["x"]})),
        ),
        apply(
            "anything of another",
            path,
            "second",
            blob(json!({"spec": {"b": {"e": 1}}, "metadata": {"name": "one", "finalizers": ["kubefold.io/x"]}})),
        ),
        apply("anything goes", path, "applier", blob(json!({"spec": {"b": {"x": 1}}}))),
        merge("anything by a patch", path, json!({"spec": {"a": {"now": "an object"}, "m": null}})),
        merge("and back", path, json!({"spec": {"a": [1, 2]}})).agent("other"),
        merge("its status", &format!("{path}/status"), json!({"status": {"any": {"thing": 1}}})),
    ]
}

fn refusals() -> Vec<Step> {
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

fn scales() -> Vec<Step> {
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

fn duplicates() -> Vec<Step> {
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
