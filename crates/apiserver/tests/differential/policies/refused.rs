//! Policies and bindings that a kube-apiserver refuses to store.

use serde_json::{Value, json};

use super::{rules, validations};

/// Expressions whose types do not fit, or give something else than truth; and some that are right.
const MISTYPED: &[&str] = &[
    "request.name + 1 == ''",
    "request.name == 1",
    "request.name == null",
    "request.userInfo == null",
    "request.userInfo.groups.all(group, group == 1)",
    "request.userInfo.groups.exists(group, group)",
    "request.userInfo.groups == 'x'",
    "request.userInfo.extra.x == 'y'",
    "request.userInfo.extra['x'].all(value, value == 'y')",
    "request.kind == 'x'",
    "request.kind == request.resource",
    "request.kind == request.requestKind",
    "request.kind.kind in ['a', 1]",
    "request.options.x + 1 == 'a'",
    "request.options.x + 1 == 2",
    "request.object == null",
    "request.dryRun && request.name.size()",
    "request['name'] == ''",
    "namespaceObject == 1",
    "namespaceObject == null",
    "namespaceObject.metadata.labels.x == 1",
    "namespaceObject.metadata.labels['x'] == 'y'",
    "namespaceObject.metadata.creationTimestamp > 1",
    "namespaceObject.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
    "namespaceObject.status.conditions.all(one, one.nope == 'x')",
    "namespaceObject.status.conditions[0] == 1",
    "object.x + 'a' == 1",
    "object.x.all(one, one.y > 1)",
    "object.x && request.name",
    "object.x || 1",
    "object.x ? 'a' : 1",
    "[1, object.x].size() == 1",
    "[object.x, object.y].size() == 2",
    "{'a': object.x, 'b': 1}.size() == 1",
    "{'a': 1, 2: 'b', 'c': 3}.size() == 1",
    "[1, 'a', 2.0].size() == 1",
    "'%s %d'.format(['a', 1]) == ''",
    "'%s %s'.format(['a', object.x]) == ''",
    "'%s'.format('a') == ''",
    "object.x.startsWith(1)",
    "lowerAscii(object.x) == ''",
    "size(1) == 1",
    "object.x.find('(') == ''",
    "matches(request.name, '[z-a]')",
    "request.name.matches('a**')",
    "isURL(request.name) && url(object.x).getHost() == 1",
    "request.userInfo.groups.all(i, group, i == group)",
    "'%d'.format([request.name]) == ''",
    "quantity(object.x) > 1",
    "quantity(object.x).isGreaterThan(1)",
    "quantity(1).isInteger()",
    "quantity('1').x == 1",
    "ip('1.1.1.1').x == 1",
    "ip('1.1.1.1') == cidr('1.1.1.0/24')",
    "!request.name",
    "-request.name == ''",
    "object.x in 1",
    "1 in request.userInfo.groups",
    "type(object.x) == string",
    "type(object.x) == 'string'",
    "type(object.x) == google.protobuf.Timestamp",
    "string(request.userInfo) == ''",
    "int(true) == 1",
    "request.?name.orValue(1) == ''",
    "request.?nope.hasValue()",
    "object.?x.?y.orValue(1) == 'a'",
    "optional.of(request.name).value() == 1",
    "request.userInfo",
    "request.userInfo.groups",
    "request.userInfo.extra",
    "namespaceObject.metadata.creationTimestamp",
    "duration('1s')",
    "null",
    "[]",
    "{}",
    "{'a': [1.0]}",
    "[optional.none()]",
    "optional.of(b'a')",
    "type(1)",
    "string",
    "1u",
    "object.x.map(one, one)",
    "quantity('1')",
    "ip('1.1.1.1')",
    "authorizer",
    "authorizer == 1",
    "authorizer.x",
    "has(authorizer.requestResource)",
    "authorizer.requestResource",
    "authorizer.requestResource.x",
    "authorizer.requestResource.check(1).allowed()",
    "authorizer.requestResource.check('get')",
    "authorizer.requestResource.check('get').reason()",
    "authorizer.requestResource.check('get').reason() == 1",
    "authorizer.requestResource.check('get').allowed() == 'yes'",
    "authorizer.requestResource.check('get').nope()",
    "authorizer.group(1).resource('x').check('get').allowed()",
    "authorizer.group('x').check('get').allowed()",
    "authorizer.resource('x').check('get').allowed()",
    "authorizer.path('/x').namespace('y').check('get').allowed()",
    "authorizer.path('/x', 'y').check('get').allowed()",
    "authorizer.serviceAccount('x').path('/x').check('get').allowed()",
    "authorizer.check('get').allowed()",
    "authorizer.group('').resource('x').check('get').allowed()",
    "authorizer.group('').resource('x').check('get').errored() || authorizer.path('/x').check('get').error() == ''",
    "object.x.fieldSelector('a=b').labelSelector('c=d').check('list').allowed()",
];

/// Types of variables are those of their expressions, and any where these have fields.
fn of_variables() -> Vec<Value> {
    let variables = json!([
        {"name": "number", "expression": "1"}, {"name": "text", "expression": "request.name"},
        {"name": "groups", "expression": "request.userInfo.groups"}, {"name": "user", "expression": "request.userInfo"},
        {"name": "users", "expression": "[request.userInfo]"}, {"name": "map", "expression": "{'a': 1}"},
        {"name": "time", "expression": "timestamp('2020-01-01T00:00:00Z')"}, {"name": "amount", "expression": "quantity('1')"},
        {"name": "maybe", "expression": "request.?name"}, {"name": "any", "expression": "object.x"},
        {"name": "check", "expression": "authorizer.group('')"}, {"name": "bad", "expression": "1 + 'a'"},
    ]);
    let expressions = [
        "variables.number + 'a' == ''",
        "variables.text == 1",
        "variables.groups == 1",
        "variables.groups.all(group, group > 1)",
        "variables.user.nope == 1",
        "variables.users[0].nope == 1",
        "variables.users == 1",
        "variables.map.a == 'b'",
        "variables.map == {1: 'a'}",
        "variables.time > 1",
        "variables.amount + 1 == 2",
        "variables.maybe + 1 == 2",
        "variables.any + 1 == 2",
        "variables.check.nope == 1",
        "variables.bad + 1 == 2",
        "variables == 1",
    ];
    expressions.map(|one| json!({"variables": variables, "validations": [{"expression": one}]})).to_vec()
}

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
    let mut all: Vec<Value> =
        expressions.into_iter().chain(MISTYPED.iter().copied()).map(|one| validations(&[one])).collect();
    all.extend(of_variables());
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
        told("messageExpression", "1 + 'a'"),
        told("messageExpression", "object.x"),
        told("messageExpression", "string(object.x) + request.name"),
        told("messageExpression", "request.userInfo.groups.join(1)"),
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

/// Expressions of `applyConfiguration`, most of them wrong.
const CONFIGURATIONS: &[&str] = &[
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
    "Object{x: 1 + 'a'}",
    "Object{x: request.name + 1}",
    "object.x ? Object{} : 1",
    "object.x ? Object{} : null",
    "Object{} == 1 ? Object{} : Object{}",
    "[Object{}, Object.x{}][0]",
    "Object{x: Object.x{y: 1}.y + 'a'}",
    "Object{?x: 1}",
    "Object{x: authorizer.path('/x').check('get').reason()}",
    "Object{x: authorizer.nope('/x')}",
    "int{}",
];

/// Expressions of `jsonPatch`, likewise.
const PATCHES: &[&str] = &[
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
    "[JSONPatch{}] + [1]",
    "[JSONPatch{value: 1 + 'a'}]",
    "[JSONPatch{op: object.x, ?path: object.?y}]",
    "[JSONPatch{?op: 'add'}]",
    "object.x.map(one, JSONPatch{op: 'add', path: one})",
    "object.x ? [JSONPatch{}] : []",
    "[JSONPatch{op: authorizer.path('/x').check('get').reason()}]",
    "[JSONPatch{op: authorizer.path('/x').check('get')}]",
];

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
    let mut all: Vec<Value> = CONFIGURATIONS.iter().copied().map(configuration).collect();
    all.extend(PATCHES.iter().copied().map(patch));
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
