//! Policies that change what is written.

use super::*;

const MUTATING: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
];
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const WIDGETS: &str = "/apis/stable.example.com/v1/namespaces/shop/widgets";

fn configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// What a policy says, beside what it is about.
fn changes(mutations: &[Value]) -> Value {
    json!({"reinvocationPolicy": "Never", "mutations": mutations})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

fn about(spec: Value, groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    with(spec, "matchConstraints", json!({"resourceRules": rules(groups, versions, resources)}))
}

fn posted(case: &str, name: &str, data: Value) -> Step {
    step("POST", MAPS, map(case, name, data))
}

fn configurations() -> Vec<Case> {
    const LABELLED: &str = "/api/v1/namespaces/shop/configmaps/labelled";
    let label = r#"Object{metadata: Object.metadata{labels: {"added": "yes"}, annotations: {"by": request.operation, "n": string(size(object.data))}}}"#;
    let wrong = |name: &'static str, expression: &str, failure: &str| {
        let spec = with(changes(&[configuration(expression)]), "failurePolicy", failure.into());
        case(name, spec, json!({}), vec![posted(name, name, json!({"color": "red"}))])
    };
    vec![
        case(
            "labelled",
            changes(&[configuration(label)]),
            json!({}),
            vec![
                step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", red("labelled", "dry")),
                step("GET", "/api/v1/namespaces/shop/configmaps/dry", Value::Null),
                step("POST", MAPS, red("labelled", "labelled")),
                step("GET", LABELLED, Value::Null),
                step("PUT", LABELLED, blue("labelled", "labelled")),
                step("PATCH", LABELLED, json!({"metadata": {"labels": {"added": "no"}}, "data": {"more": "yes"}})),
                step(
                    "PATCH",
                    "/api/v1/namespaces/shop/configmaps/labelled?fieldManager=applier",
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "labelled", "labels": {"case": "labelled"}}, "data": {"c": "d"}}),
                ),
                step("DELETE", LABELLED, Value::Null),
            ],
        ),
        wrong("lacking", "Object{data: Object.data{x: object.data.nope}}", "Fail"),
        wrong("ignored", "Object{data: Object.data{x: object.data.nope}}", "Ignore"),
        wrong("misnamed", "Object{data: Object.date{x: 'y'}}", "Fail"),
        wrong("undeclared", "Object{nope: Object.nope{x: 'y'}}", "Fail"),
        wrong("misfit", "Object{data: Object.data{x: 1}}", "Fail"),
        wrong("invalid", "Object{metadata: Object.metadata{labels: {'a b': 'c d'}}}", "Ignore"),
        wrong("optional", "Object{data: Object.data{?x: object.data[?'nope'], ?y: object.data[?'color']}}", "Fail"),
        wrong("whole", "Object{data: object.data}", "Fail"),
        wrong("empty", "Object{}", "Fail"),
        case(
            "several",
            changes(&[
                configuration("Object{data: Object.data{x: object.data.color}}"),
                configuration("Object{data: Object.data{z: object.data.nope}}"),
                configuration("Object{data: Object.data{y: object.data.x + '!'}}"),
            ]),
            json!({}),
            vec![
                posted("several", "several", json!({"color": "red"})),
                posted("several", "more", json!({"nope": "x"})),
            ],
        ),
    ]
}

fn deployment(case: &str, name: &str, containers: Value) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": labelled(case, name), "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}})
}

fn of_deployments(name: &'static str, expression: &str, steps: Vec<Step>) -> Case {
    let spec = about(changes(&[configuration(expression)]), &["apps"], &["v1"], &["deployments"]);
    case(name, spec, json!({}), steps)
}

fn workloads() -> Vec<Case> {
    let containers = |inside: &str| {
        format!(
            "Object{{spec: Object.spec{{template: Object.spec.template{{spec: Object.spec.template.spec{{containers: [Object.spec.template.spec.containers{{{inside}}}]}}}}}}}}"
        )
    };
    let main = json!([{"name": "main", "image": "main:1", "env": [{"name": "B", "value": "b"}]}]);
    let both = json!([{"name": "side", "image": "side:0"}, {"name": "main", "image": "main:1"}]);
    vec![
        of_deployments(
            "sidecar",
            &containers(
                "name: 'side', image: 'side:1', ports: [Object.spec.template.spec.containers.ports{containerPort: 80}]",
            ),
            vec![
                step("POST", DEPLOYMENTS, deployment("sidecar", "sidecar", main.clone())),
                step("POST", DEPLOYMENTS, deployment("sidecar", "sidecar-both", both)),
                step(
                    "PUT",
                    "/apis/apps/v1/namespaces/shop/deployments/sidecar",
                    deployment("sidecar", "sidecar", main.clone()),
                ),
                step("PATCH", "/apis/apps/v1/namespaces/shop/deployments/sidecar", json!({"spec": {"replicas": 2}})),
            ],
        ),
        of_deployments(
            "environment",
            &containers(
                "name: 'main', env: [Object.spec.template.spec.containers.env{name: 'A', value: object.metadata.name}, Object.spec.template.spec.containers.env{name: 'B', value: 'c'}]",
            ),
            vec![step("POST", DEPLOYMENTS, deployment("environment", "environment", main.clone()))],
        ),
        of_deployments(
            "mapped",
            &containers(
                "name: 'main', resources: Object.spec.template.spec.containers.resources{limits: {'cpu': '0.5', 'memory': '1024Mi'}}",
            ),
            vec![step("POST", DEPLOYMENTS, deployment("mapped", "mapped", main.clone()))],
        ),
        of_deployments(
            "atomic",
            &containers("name: 'main', args: ['x']"),
            vec![step("POST", DEPLOYMENTS, deployment("atomic", "atomic", main.clone()))],
        ),
        of_deployments(
            "keyless",
            &containers("image: 'x'"),
            vec![step("POST", DEPLOYMENTS, deployment("keyless", "keyless", main))],
        ),
    ]
}

fn patches() -> Vec<Case> {
    let of = |name: &'static str, expression: &str, steps: Vec<Step>| {
        case(name, changes(&[patch(expression)]), json!({}), steps)
    };
    let one = |name: &'static str, expression: &str| {
        of(name, expression, vec![posted(name, name, json!({"color": "red", "n": "1"}))])
    };
    vec![
        of(
            "patched",
            r#"[
                JSONPatch{op: "test", path: "/data/color", value: "red"},
                JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/co~lor").replace("~0", ""), value: object.data.color},
                JSONPatch{op: "replace", path: "/data/color", value: "green"},
                JSONPatch{op: "remove", path: "/data/gone"}
            ]"#,
            vec![
                posted("patched", "patched-a", json!({"color": "red", "gone": "yes"})),
                posted("patched", "patched-b", json!({"color": "blue", "gone": "yes"})),
                posted("patched", "patched-c", json!({"color": "red"})),
                posted("patched", "patched-d", json!({})),
                step("PATCH", "/api/v1/namespaces/shop/configmaps/patched-b", json!({"data": {"color": "red"}})),
            ],
        ),
        of(
            "kept",
            "oldObject == null ? [] : [JSONPatch{op: 'add', path: '/data/was', value: oldObject.data.color}]",
            vec![
                posted("kept", "kept", json!({"color": "red"})),
                step("PUT", "/api/v1/namespaces/shop/configmaps/kept", blue("kept", "kept")),
                step("PATCH", "/api/v1/namespaces/shop/configmaps/kept", json!({"data": {"color": "green"}})),
            ],
        ),
        of(
            "each",
            "object.data.map(key, JSONPatch{op: 'add', path: '/metadata/labels/' + key, value: object.data[key]}) + [JSONPatch{op: 'copy', from: '/data/color', path: '/data/copy'}, JSONPatch{op: 'move', from: '/data/n', path: '/data/m'}]",
            vec![posted("each", "each", json!({"color": "red", "n": "1"}))],
        ),
        one("object", "[JSONPatch{op: 'add', path: '/data', value: Object.data{x: 'y'}}]"),
        one("mapping", "[JSONPatch{op: 'add', path: '/data', value: {'x': 'y'}}]"),
        one(
            "listed",
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['example.com/x']}, JSONPatch{op: 'add', path: '/metadata/finalizers/-', value: 'example.com/y'}]",
        ),
        one("misnaming", "[JSONPatch{op: 'add', path: '/data', value: Object.data{x: Object.x{}}}]"),
        one("nothing", "[JSONPatch{op: 'add', path: '/data/x'}]"),
        one("inoperable", "[JSONPatch{op: 'nope', path: '/data/x', value: 'y'}]"),
        one("absent", "[JSONPatch{op: 'add', path: '/nope/x', value: 'y'}]"),
        one("absent-remove", "[JSONPatch{op: 'remove', path: '/data/nope/x'}]"),
        one("absent-replace", "[JSONPatch{op: 'replace', path: '/nope/x', value: 'y'}]"),
        one("absent-move", "[JSONPatch{op: 'move', from: '/data/nope', path: '/data/x'}]"),
        one("absent-copy", "[JSONPatch{op: 'copy', from: '/nope/x', path: '/data/x'}]"),
        one("absent-test", "[JSONPatch{op: 'test', path: '/nope/x', value: 'y'}]"),
        one(
            "beyond",
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: []}, JSONPatch{op: 'add', path: '/metadata/finalizers/7', value: 'x/y'}]",
        ),
        one("missing-test", "[JSONPatch{op: 'test', path: '/data/nope', value: 'y'}]"),
        one("unknown-field", "[JSONPatch{op: 'add', path: '/nope', value: 'y'}]"),
        one("mistyped-field", "[JSONPatch{op: 'add', path: '/data/x', value: 1}]"),
        one("failing", "[JSONPatch{op: 'add', path: '/data/x', value: object.data.nope}]"),
    ]
}

fn with_params() -> Vec<Case> {
    let color = "Object{data: Object.data{color: params == null ? 'none' : params.data.color}}";
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let of = |name: &'static str, kind: &Value, reference: Value| {
        let spec = with(changes(&[configuration(color)]), "paramKind", kind.clone());
        let binding = if reference.is_null() { json!({}) } else { json!({"paramRef": reference}) };
        case(name, spec, binding, vec![posted(name, name, json!({"color": "green"}))])
    };
    let named = |name: &str, action: &str| json!({"name": name, "parameterNotFoundAction": action});
    vec![
        of("by-name", &maps, named("p-red", "Deny")),
        of("missing", &maps, named("nope", "Deny")),
        of("allowed", &maps, named("nope", "Allow")),
        of(
            "selected",
            &maps,
            json!({"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Deny"}),
        ),
        of("unbound", &maps, Value::Null),
        of("unknown", &json!({"apiVersion": "nope.example.com/v1", "kind": "Nope"}), named("p", "Deny")),
    ]
}

/// What else policies have, as validating ones do.
fn others() -> Vec<Case> {
    let conditions = json!([
        {"name": "a", "expression": "object.data.judged == 'yes'"}, {"name": "b", "expression": "!has(object.data.skipped)"},
    ]);
    let condition = |name: &'static str, failure: &str| {
        let spec = with(
            changes(&[configuration("Object{data: Object.data{changed: 'yes'}}")]),
            "matchConditions",
            conditions.clone(),
        );
        let data = |field: &str, value: &str| json!({field: value});
        let all = [("judged", "no"), ("judged", "yes"), ("color", "blue"), ("skipped", "yes")];
        let step = |at: usize, (field, value): &(&str, &str)| posted(name, &format!("{name}-{at}"), data(field, value));
        let steps = all.iter().enumerate().map(|(at, one)| step(at, one)).collect();
        case(name, with(spec, "failurePolicy", failure.into()), json!({}), steps)
    };
    let variables = json!([
        {"name": "color", "expression": "object.data.color"}, {"name": "loud", "expression": "variables.color + '!'"},
        {"name": "bad", "expression": "object.data.nope"},
    ]);
    let seen = "Object{data: Object.data{a: namespaceObject.metadata.labels.team, b: request.kind.kind + request.operation, c: variables.loud, d: string(request.dryRun)}}";
    vec![
        condition("conditions", "Fail"),
        condition("lenient", "Ignore"),
        case(
            "variables",
            with(
                changes(&[
                    configuration(seen),
                    configuration("Object{data: Object.data{color: variables.color + variables.loud}}"),
                    configuration("Object{data: Object.data{e: variables.color}}"),
                ]),
                "variables",
                variables.clone(),
            ),
            json!({}),
            vec![
                posted("variables", "variables", json!({"color": "red"})),
                posted("variables", "colorless", json!({})),
            ],
        ),
        case(
            "bad-variable",
            with(changes(&[configuration("Object{data: Object.data{color: variables.bad}}")]), "variables", variables),
            json!({}),
            vec![posted("bad-variable", "bad-variable", json!({"color": "red"}))],
        ),
        case(
            "placed",
            changes(&[configuration("Object{data: Object.data{placed: 'yes'}}")]),
            json!({"matchResources": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}),
            vec![
                posted("placed", "placed", json!({})),
                step("POST", "/api/v1/namespaces/default/configmaps", map("placed", "placed", json!({}))),
            ],
        ),
    ]
}

/// Policies that see what others changed.
fn rounds() -> Vec<Case> {
    let of = |name: &'static str, shared: &str, policy: &str, mutation: Value, steps: Vec<Step>| {
        let spec = json!({
            "reinvocationPolicy": policy, "mutations": [mutation],
            "matchConstraints": {"objectSelector": {"matchLabels": {"case": shared}}},
        });
        case(name, spec, json!({}), steps)
    };
    let late = "Object{data: Object.data{seen: object.?data.?late.orValue('no')}}";
    let count = "Object{data: Object.data{count: string(int(object.?data.?count.orValue('0')) + 1)}}";
    let both =
        |name: &str| vec![posted(name, name, json!({})), posted(name, &format!("{name}-2"), json!({"late": "no"}))];
    vec![
        of("again-a", "again", "IfNeeded", configuration(late), Vec::new()),
        of("again-b", "again", "Never", configuration("Object{data: Object.data{late: 'yes'}}"), both("again")),
        of("counted", "counted", "IfNeeded", configuration(count), both("counted")),
        of("counted-once", "counted-once", "Never", configuration(count), both("counted-once")),
        of("still", "still", "IfNeeded", configuration("Object{}"), both("still")),
    ]
}

fn subresources() -> Vec<Case> {
    const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/below/scale";
    let scale = |replicas: i64| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "below", "namespace": "shop"}, "spec": {"replicas": replicas}});
    let containers = json!([{"name": "main", "image": "main:1"}]);
    let below = |name: &'static str, resource: &str, mutation: Value, steps: Vec<Step>| {
        let conditions = json!([{"name": "below", "expression": "object.metadata.name == 'below'"}]);
        let mut spec = about(changes(&[mutation]), &["apps"], &["v1"], &[resource]);
        spec["matchConstraints"]["objectSelector"] = json!({});
        case(name, with(spec, "matchConditions", conditions), json!({}), steps)
    };
    vec![
        below(
            "scaled",
            "deployments/scale",
            patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]"),
            vec![
                step("POST", DEPLOYMENTS, deployment("below", "below", containers)),
                step("PUT", SCALE, scale(4)),
                step("PATCH", SCALE, json!({"spec": {"replicas": 7}})),
            ],
        ),
        case(
            "unscaled",
            with(
                changes(&[configuration("Object{spec: Object.spec{replicas: 1}}")]),
                "matchConstraints",
                json!({"resourceRules": rules(&["apps"], &["v1"], &["statefulsets/scale"]), "objectSelector": {}}),
            ),
            json!({}),
            vec![
                step(
                    "POST",
                    "/apis/apps/v1/namespaces/shop/statefulsets",
                    deployment("unscaled", "unscaled", json!([{"name": "main", "image": "main:1"}])),
                ),
                step(
                    "PATCH",
                    "/apis/apps/v1/namespaces/shop/statefulsets/unscaled/scale",
                    json!({"spec": {"replicas": 7}}),
                ),
            ],
        ),
        below(
            "stated",
            "deployments/status",
            patch(
                "[JSONPatch{op: 'add', path: '/status/replicas', value: 9}, JSONPatch{op: 'add', path: '/spec/replicas', value: 99}]",
            ),
            vec![
                step(
                    "PATCH",
                    "/apis/apps/v1/namespaces/shop/deployments/below/status",
                    json!({"status": {"replicas": 1}}),
                ),
                step("GET", "/apis/apps/v1/namespaces/shop/deployments/below", Value::Null),
            ],
        ),
    ]
}

fn widget(case: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "Widget", "metadata": labelled(case, name), "spec": spec})
}

fn widgets() -> Vec<Case> {
    let of = |name: &'static str, mutations: &[Value], steps: Vec<Step>| {
        case(name, about(changes(mutations), &["stable.example.com"], &["v1"], &["widgets"]), json!({}), steps)
    };
    let parts = json!([{"name": "b", "size": 2}]);
    let one = |name: &'static str, mutation: Value| {
        of(name, &[mutation], vec![step("POST", WIDGETS, widget(name, name, json!({"parts": parts.clone()})))])
    };
    vec![
        of(
            "widget",
            &[
                configuration(
                    "Object{spec: Object.spec{replicas: 3, parts: [Object.spec.parts{name: 'a', size: 1}, Object.spec.parts{name: 'b', size: 3}]}}",
                ),
                patch(
                    "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: string(object.spec.replicas)}]",
                ),
            ],
            vec![
                step("POST", WIDGETS, widget("widget", "widget", json!({"parts": parts}))),
                step(
                    "PATCH",
                    "/apis/stable.example.com/v1/namespaces/shop/widgets/widget?fieldManager=applier",
                    widget("widget", "widget", json!({"color": "red"})),
                ),
                step("GET", "/apis/stable.example.com/v1/namespaces/shop/widgets/widget", Value::Null),
            ],
        ),
        one("atomic-widget", configuration("Object{spec: Object.spec{tags: ['a']}}")),
        one("unknown-widget", configuration("Object{spec: Object.spec{nope: 1}}")),
        one("mistyped-widget", configuration("Object{spec: Object.spec{replicas: 'x'}}")),
        one("invalid-widget", patch("[JSONPatch{op: 'add', path: '/spec/replicas', value: 'x'}]")),
    ]
}

fn definition() -> Value {
    let parts = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
        "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}});
    let spec = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "parts": parts, "tags": {"type": "array", "items": {"type": "string"}},
        "color": {"type": "string", "default": "blue"}}});
    json!({
        "metadata": {"name": "widgets.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

/// Waits until a server's answer to a dry run has a label that a policy adds.
async fn in_force(server: &Server, probe: &Step) {
    eventually(EFFECT, async || match server.raw(probe).await {
        (201, body) if body["metadata"]["labels"]["added"] == "yes" => Ok(()),
        (code, body) => Err(format!("{code} {body}")),
    })
    .await;
}

#[tokio::test]
async fn mutating_policies_change_writes_as_at_a_kube_apiserver() {
    let member = Member::start("mutating", MemberOptions::default()).await;
    let running = Own::new().built_in(BuiltIn::All).start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    let mut cases = configurations();
    cases.extend(workloads());
    cases.extend(patches());
    cases.extend(with_params());
    cases.extend(others());
    cases.extend(rounds());
    cases.extend(subresources());
    cases.extend(widgets());
    // The last ones: when they are in force, so are those before them.
    let label = [configuration("Object{metadata: Object.metadata{labels: {'added': 'yes'}}}")];
    let last_widget = about(changes(&label), &["stable.example.com"], &["v1"], &["widgets"]);
    cases.push(case("last-widget", last_widget, json!({}), Vec::new()));
    cases.push(case("last", changes(&label), json!({}), Vec::new()));
    let defined = step("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition());
    for server in [&real, &own] {
        let (code, body) = server.raw(&defined).await;
        assert_eq!(code, 201, "{body}");
        install(server, &cases, MUTATING, &json!({})).await;
        let last = step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", map("last", "last", json!({})));
        in_force(server, &last).await;
        let body = widget("last-widget", "last-widget", json!({}));
        let path = "/apis/stable.example.com/v1/namespaces/shop/widgets?dryRun=All";
        in_force(server, &step("POST", path, body)).await;
    }
    let refused = refused::mutating().into_iter().map(|spec| {
        let mut of = case("refused", spec, json!({}), Vec::new());
        if of.spec.get("matchConstraints").and_then(|of| of.get("resourceRules")) == Some(&json!([])) {
            of.spec["matchConstraints"]["objectSelector"] = json!({});
        }
        step("POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?dryRun=All", of.policy())
    });
    let bound = refused::mutating_bindings().into_iter().map(|spec| {
        let body = json!({"metadata": {"name": "refused"}, "spec": spec});
        step("POST", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings?dryRun=All", body)
    });
    let changed = [
        step(
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/last",
            json!({"spec": {"failurePolicy": "Ignore"}}),
        ),
        step(
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/last",
            json!({"metadata": {"finalizers": ["any"]}, "spec": {"mutations": []}}),
        ),
        step(
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/last-0",
            json!({"spec": {"matchResources": {}}}),
        ),
    ];
    let stored = MUTATING.into_iter().map(|path| step("GET", path, Value::Null));
    let steps = cases.into_iter().flat_map(|case| case.steps).chain(refused).chain(bound).chain(changed).chain(stored);
    let (wrong, count) = differences(&real, &own, steps).await;
    assert!(wrong.is_empty(), "of {count}:\n{wrong}");
    running.end().await;
}
