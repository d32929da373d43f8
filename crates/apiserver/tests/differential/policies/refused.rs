//! Policies and bindings that a kube-apiserver refuses to store.

use serde_json::{Value, json};

use super::{rules, validations};

/// Policies that are refused, as what is said beside the name and the rules.
pub(super) fn policies() -> Vec<Value> {
    let expressions = [
        "object.data.color",
        "1",
        "'x'",
        "[1]",
        "nope",
        "object.x +",
        "",
        "request.nope == ''",
        "request.userInfo.name == ''",
        "namespaceObject.metadata.managedFields == null",
        "params.x == 1",
        "variables.x == 1",
        "object.x.nope()",
        "request.name.nope() == 1",
        "size(object.x)",
        "object.x + 1",
        "object.x == 1 ? 1 : 2",
        "has(object.x) && nope",
    ];
    let mut all: Vec<Value> = expressions.into_iter().map(|one| validations(&[one])).collect();
    let of = |field: &str, value: Value| {
        let mut spec = validations(&["true"]);
        spec[field] = value;
        spec
    };
    let told = |field: &str, value: &str| json!({"validations": [{"expression": "true", field: value}]});
    let constrained = |value: Value| of("matchConstraints", value);
    let mut mixed = rules(&["", "*"], &["", "*"], &["*", "pods", "*/*", "pods/*", "pods/log", ""]);
    mixed[0]["operations"] = json!(["*", "NOPE"]);
    mixed[0]["scope"] = "Nope".into();
    mixed[0]["resourceNames"] = json!(["a/b", "c", "c"]);
    all.extend([
        json!({}),
        of("failurePolicy", "Nope".into()),
        of("paramKind", json!({"apiVersion": "a/b/c", "kind": "X_Y"})),
        of("paramKind", json!({"apiVersion": "", "kind": ""})),
        of("paramKind", json!({"apiVersion": "A_b/V_1", "kind": "X"})),
        told("message", " "),
        told("message", "two\nlines"),
        told("messageExpression", " "),
        told("messageExpression", "1"),
        told("messageExpression", "authorizer.group('').resource('pods').check('get').reason()"),
        told("reason", "Nope"),
        constrained(json!({"resourceRules": mixed})),
        constrained(json!({"resourceRules": [{}]})),
        constrained(json!({"resourceRules": []})),
        constrained(json!({"matchPolicy": "Nope", "resourceRules": rules(&[""], &["v1"], &["pods"]),
            "objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "namespaceSelector": {"matchLabels": {"a b": "c d"}}})),
        of("matchConditions", json!([{"name": "", "expression": ""}, {"name": "a b", "expression": "1"}, {"name": "c", "expression": "variables.x"}, {"name": "c", "expression": "true"}])),
        of("variables", json!([{"name": "", "expression": ""}, {"name": "for", "expression": "1"}, {"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "variables.a == 1"}])),
        json!({"variables": [{"name": "a", "expression": "1"}, {"name": "b", "expression": "object.x"}], "validations": [
            {"expression": "variables.a"}, {"expression": "variables.b"}, {"expression": "variables.c == 1"}, {"expression": "variables.a == 1"}]}),
        json!({"auditAnnotations": [{"key": "a b", "valueExpression": "1"}, {"key": "c", "valueExpression": ""}, {"key": "c", "valueExpression": "'x'"}, {"key": "d", "valueExpression": "object.x"}]}),
    ]);
    all
}

pub(super) fn bindings() -> Vec<Value> {
    let of = |field: &str, value: Value| {
        let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
        spec[field] = value;
        spec
    };
    vec![
        json!({}),
        of("policyName", "A_b".into()),
        of("validationActions", json!(["Deny", "Warn", "Nope", "Deny"])),
        of("paramRef", json!({})),
        of(
            "paramRef",
            json!({"name": "a/b", "selector": {"matchLabels": {"a b": "c"}}, "parameterNotFoundAction": "Nope"}),
        ),
        of("matchResources", json!({"matchPolicy": "Nope", "resourceRules": [{"operations": ["CREATE"]}]})),
        of("matchResources", json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Nope"}]}})),
    ]
}

/// Policies that change objects and are refused, in the same way.
pub(super) fn mutating() -> Vec<Value> {
    let of = |mutation: Value| json!({"reinvocationPolicy": "Never", "mutations": [mutation]});
    let configuration = |expression: &str| {
        of(json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}))
    };
    let patch = |expression: &str| of(json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}));
    let with = |field: &str, value: Value| {
        let mut spec = configuration("Object{}");
        spec[field] = value;
        spec
    };
    let configurations = [
        "",
        "1",
        "'x'",
        "null",
        "object",
        "object.spec",
        "Object",
        "Object{",
        "Object.spec{}",
        "{'spec': {'replicas': 1}}",
        "{}",
        "nope{}",
        "Object{spec: nope}",
        "Object{spec: Object.spec{x: nope.y}}",
        "variables.x",
        "Object{x: variables.y}",
        "params.x",
        "[Object{}]",
        "JSONPatch{op: 'add'}",
        "object.x ? Object{} : Object{y: 1}",
    ];
    let patches = [
        "",
        "[]",
        "[1]",
        "['x']",
        "[Object{}]",
        "JSONPatch{}",
        "object.x",
        "[JSONPatch{op: 1}]",
        "[JSONPatch{path: true, value: 1}]",
        "[JSONPatch{op: 'add', path: jsonpatch.nope('x')}]",
        "jsonpatch.escapeKey('x')",
        "[JSONPatch{}, 1]",
        "[JSONPatch{}] + nope",
    ];
    let mut all: Vec<Value> = configurations.into_iter().map(configuration).collect();
    all.extend(patches.into_iter().map(patch));
    let operations = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE", "NOPE"], "resources": ["pods"]}]);
    all.extend([
        json!({}),
        json!({"mutations": []}),
        of(json!({})),
        of(json!({"patchType": "Nope"})),
        of(json!({"patchType": "JSONPatch"})),
        of(json!({"patchType": "JSONPatch", "jsonPatch": {}, "applyConfiguration": {}})),
        of(json!({"patchType": "ApplyConfiguration"})),
        of(json!({"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}, "applyConfiguration": {"expression": " Object{ x: 1 } "}})),
        with("reinvocationPolicy", "Nope".into()),
        with("reinvocationPolicy", Value::Null),
        with("failurePolicy", "Nope".into()),
        with("paramKind", json!({"apiVersion": "", "kind": ""})),
        with("matchConstraints", json!({"resourceRules": operations})),
        with("matchConstraints", json!({"resourceRules": []})),
        with("matchConditions", json!([{"name": "", "expression": ""}, {"name": "c", "expression": "Object{} == null"}, {"name": "c", "expression": "jsonpatch.escapeKey('x') == 'y'"}])),
        with("variables", json!([{"name": "", "expression": ""}, {"name": "a", "expression": "Object{}"}, {"name": "b", "expression": "jsonpatch.escapeKey('x')"}])),
    ]);
    all
}

pub(super) fn mutating_bindings() -> Vec<Value> {
    let of = |field: &str, value: Value| json!({"policyName": "p", field: value});
    vec![
        json!({}),
        json!({"policyName": "A_b"}),
        of("paramRef", json!({})),
        of("paramRef", json!({"name": "a/b", "selector": {}, "parameterNotFoundAction": "Nope"})),
        of(
            "matchResources",
            json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*", "DELETE"], "resources": ["pods"]}]}),
        ),
        of("matchResources", json!({"matchPolicy": "Nope"})),
    ]
}
