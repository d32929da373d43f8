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
