use std::sync::Arc;

use kubefold_serving::caller::Caller;
use serde_json::{Value, json};

use super::{Access, Authority, COST_MAX, Decided, Evaluation, Gives, Inputs, Outcome, Rules, Scope, Wanted, faults};

fn schema(rule: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {
        "type": "object", "x-kubernetes-validations": [rule],
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string", "maxLength": 50},
            "my-port": {"type": "integer"}, "namespace": {"type": "string", "maxLength": 50}, "either": {"x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
            "tags": {"type": "array", "maxItems": 50, "items": {"type": "string"}},
            "numbers": {"type": "array", "maxItems": 1000, "items": {"type": "integer"}},
            "labels": {"type": "object", "maxProperties": 50, "additionalProperties": {"type": "string"}},
        },
    }}})
}

fn broken(rule: &str, spec: &Value) -> Vec<String> {
    let schema = schema(&json!({"rule": rule}));
    assert_eq!(faults("s", &schema, false), []);
    let rules = Rules::of(&schema).unwrap();
    let found = rules.broken(&json!({"metadata": {"name": "a"}, "spec": spec}), None);
    found.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn refused(rule: Value) -> String {
    faults("s", &schema(&rule), false).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn rules_hold_or_are_told_with_their_source() {
    let cases = [
        ("self.min <= self.max", json!({"min": 1, "max": 2}), json!({"min": 3, "max": 2})),
        ("self.tags.all(tag, tag.startsWith('a'))", json!({"tags": ["a", "ab"]}), json!({"tags": ["a", "b"]})),
        ("self.tags.exists_one(tag, tag == 'a')", json!({"tags": ["a"]}), json!({"tags": ["a", "a"]})),
        ("self.numbers.map(n, n * 2).exists(n, n == 4)", json!({"numbers": [2]}), json!({"numbers": [3]})),
        ("self.numbers.filter(n, n > 1).size() == 1", json!({"numbers": [1, 2]}), json!({"numbers": [2, 3]})),
        ("'a' in self.labels && self.labels['a'] == 'b'", json!({"labels": {"a": "b"}}), json!({"labels": {}})),
        (
            "self.my__dash__port > 0 && self.__namespace__ == 'x'",
            json!({"my-port": 1, "namespace": "x"}),
            json!({"my-port": 0, "namespace": "x"}),
        ),
        (
            "self.name.matches('^[a-z]+$') && self.name.find('b+') == 'bb'",
            json!({"name": "abb"}),
            json!({"name": "a1"}),
        ),
        ("!has(self.name) || self.name.lowerAscii() == self.name", json!({}), json!({"name": "A"})),
        (
            "type(self.either) == int ? self.either > 1 : self.either == 'x'",
            json!({"either": "x"}),
            json!({"either": 1}),
        ),
        (
            "self.wait > duration('1m') && self.when > timestamp('2020-01-01T00:00:00Z')",
            json!({"wait": "2m", "when": "2021-01-01T00:00:00Z"}),
            json!({"wait": "1s", "when": "2021-01-01T00:00:00Z"}),
        ),
        ("self.?name.orValue('x') == 'x'", json!({}), json!({"name": "y"})),
    ];
    for (rule, good, bad) in cases {
        assert_eq!(broken(rule, &good), Vec::<String>::new(), "{rule}");
        assert_eq!(broken(rule, &bad), [format!("spec: Invalid value: failed rule: {rule}")], "{rule}");
    }
}

#[test]
fn an_error_of_a_rule_breaks_it() {
    let told = broken("self.min > 1", &json!({}));
    assert_eq!(told, ["spec: Invalid value: \"object\": no such key: min evaluating rule: self.min > 1"]);
    let told = broken("self.either > 1", &json!({"either": "x"}));
    assert!(told.first().is_some_and(|told| told.contains("'no such overload': call arguments")), "{told:?}");
}

#[test]
fn a_stored_rule_that_does_not_compile_breaks_every_object() {
    let told = |rule: &str| {
        let rules = Rules::of(&schema(&json!({"rule": rule}))).unwrap();
        let found = rules.broken(&json!({"spec": {"min": 1}}), None);
        found.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect::<Vec<_>>()
    };
    let why = "ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^";
    assert_eq!(
        told("nope"),
        [format!("spec: Invalid value: \"object\": rule compile error: compilation failed: {why}")]
    );
    let why = "rule compile error: cel expression must evaluate to a bool";
    assert_eq!(told("'x'"), [format!("spec: Invalid value: \"object\": {why}")]);
}

#[test]
fn a_rule_that_costs_too_much_ends() {
    let numbers: Vec<i64> = (0..1000).collect();
    let told = broken("self.numbers.all(a, self.numbers.all(b, a + b >= 0))", &json!({"numbers": numbers}));
    assert!(told.first().is_some_and(|told| told.contains("actual cost limit exceeded")), "{told:?}");
}

#[test]
fn rules_that_name_what_is_not_there_are_refused() {
    let told = refused(json!({"rule": "self.nope > 1"}));
    assert!(
        told.contains("compilation failed: ERROR: <input>:1:5: undefined field 'nope'\n | self.nope > 1\n | ....^"),
        "{told}"
    );
    for (rule, why) in [
        ("nope == 1", "undeclared reference to 'nope'"),
        ("self.name.nope()", "undeclared reference to 'nope'"),
        ("no_pe(self.name)", "undeclared reference to 'no_pe'"),
        ("isNope(self.name)", "undeclared reference to 'isNope'"),
        ("url(self.name).getNope() == ''", "undeclared reference to 'getNope'"),
        ("self.name.first == 1", "type 'string' does not support field selection"),
        ("self.min", "cel expression must evaluate to a bool"),
        ("self.either", "cel expression must evaluate to a bool"),
        ("self.min + self.name > 1", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.min == self.name", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.name.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("self.min && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("self.wait > duration('x')", "invalid duration argument"),
        ("self.name.matches('(')", "invalid matches argument"),
        ("matches('(', self.name)", "invalid matches argument"),
        ("self.min >", "Syntax error"),
        ("", "rule is not specified"),
    ] {
        assert!(refused(json!({"rule": rule})).contains(why), "{rule}: {}", refused(json!({"rule": rule})));
    }
    assert!(refused(json!({"rule": "true", "fieldPath": ".nope"})).contains("must be a valid path"));
    assert!(refused(json!({"rule": "true", "reason": "Odd"})).contains("Unsupported value"));
    assert!(refused(json!({"rule": "true", "optionalOldSelf": true})).contains("may not be set"));
    assert!(
        refused(json!({"rule": "true", "messageExpression": "1"}))
            .contains("messageExpression must evaluate to a string")
    );
}

#[test]
fn transition_rules_need_a_former_value_and_unchanged_faults_stay() {
    let object = |name: &str, min: i64| json!({"spec": {"name": name, "min": min}});
    let rules =
        Rules::of(&schema(&json!({"rule": "self.name == oldSelf.name", "message": "fixed", "fieldPath": ".name"})))
            .unwrap();
    assert_eq!(rules.broken(&object("a", 1), None), []);
    let told = rules.broken(&object("b", 1), Some(&object("a", 1)));
    assert_eq!(told.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(), ["spec.name"]);
    let rules =
        Rules::of(&schema(&json!({"rule": "self.min > 5", "messageExpression": "'is ' + string(self.min)"}))).unwrap();
    assert_eq!(rules.broken(&object("a", 1), Some(&object("a", 1))), []);
    let told = rules.broken(&object("b", 1), Some(&object("a", 1)));
    assert_eq!(told.iter().map(|cause| cause.message.as_str()).collect::<Vec<_>>(), ["Invalid value: is 1"]);
    let list = json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}});
    let told = faults("s", &list, false);
    assert!(
        told.iter().any(|cause| cause.message.contains("uncorrelatable portion of the schema within s.properties[l]")),
        "{told:?}"
    );
}

/// Somebody may do what his name says.
#[derive(Debug)]
struct Named;

impl Authority for Named {
    fn decide(&self, caller: &Caller, verb: &str, wanted: Wanted<'_>) -> Decided {
        let what = match wanted {
            Wanted::Path(path) => path.to_owned(),
            Wanted::Resource { group, resource, subresource, namespace, name } => {
                format!("{group}/{resource}/{subresource}/{namespace}/{name}")
            }
        };
        Decided { allowed: caller.user == verb, reason: format!("{} {verb} {what}", caller.user) }
    }
}

fn asked(expression: &str) -> String {
    let request = json!({"requestResource": {"group": "apps", "version": "v1", "resource": "deployments"},
        "requestSubResource": "scale", "namespace": "shop", "name": "web"});
    let caller = Caller { user: "get".to_owned(), ..Caller::default() };
    let access = Access::new(Arc::new(Named), Arc::new(caller));
    let inputs = Inputs {
        object: None,
        old_object: None,
        request: &request,
        namespace: None,
        params: None,
        access: Some(&access),
    };
    let scope = Scope::new(false, false);
    let mut evaluation = Evaluation::new(&scope, inputs, COST_MAX).unwrap();
    match evaluation.evaluate(&scope.compile(expression, Gives::Anything)).unwrap() {
        Ok(Outcome::Truth(truth)) => truth.to_string(),
        Ok(Outcome::Text(text)) => text,
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn expressions_ask_what_the_sender_of_a_request_may_do() {
    let cases = [
        ("authorizer.path('/healthz').check('get').allowed()", "true"),
        ("authorizer.path('/healthz').check('put').allowed()", "false"),
        ("authorizer.path('/healthz').check('get').reason()", "get get /healthz"),
        ("authorizer.group('').resource('pods').check('list').reason()", "get list /pods///"),
        (
            "authorizer.group('a').resource('b').subresource('c').namespace('d').name('e').check('f').reason()",
            "get f a/b/c/d/e",
        ),
        ("authorizer.requestResource.check('get').reason()", "get get apps/deployments/scale/shop/web"),
        ("authorizer.requestResource.name('x').check('get').reason()", "get get apps/deployments/scale/shop/x"),
        (
            "authorizer.serviceAccount('shop', 'bot').path('/x').check('get').reason()",
            "system:serviceaccount:shop:bot get /x",
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c=').check('get').reason()",
            "get get /pods///",
        ),
        ("authorizer.requestResource.check('get').errored()", "false"),
        ("authorizer.requestResource.check('get').error()", ""),
    ];
    for (expression, wanted) in cases {
        assert_eq!(asked(expression), wanted, "{expression}");
    }
    let failures = [
        ("authorizer.path(' ').check('get')", "path must not be empty"),
        ("authorizer.group('').resource('').check('get')", "resource must not be empty"),
        ("authorizer.serviceAccount('A', 'b')", "Invalid service account namespace"),
        ("authorizer.serviceAccount('a', 'B_')", "Invalid service account name"),
    ];
    for (expression, why) in failures {
        assert!(asked(expression).ends_with(why), "{expression}: {}", asked(expression));
    }
}

#[test]
fn two_questions_are_all_that_an_expression_may_ask() {
    let question = "authorizer.requestResource.check('get').allowed()";
    assert_eq!(asked(&format!("{question} && {question}")), "true");
    assert_eq!(asked(&format!("{question} || {question} || {question}")), "true");
    let said = asked(&format!("{question} && {question} && {question}"));
    assert!(said.ends_with("operation cancelled: actual cost limit exceeded"), "{said}");
}

#[test]
fn what_is_told_does_not_ask() {
    let scope = Scope::new(false, false);
    let reason = "authorizer.path('/x').check('get').reason()";
    let wrong = scope.compile(reason, Gives::Text).wrong().map(ToString::to_string);
    assert!(wrong.is_some_and(|wrong| wrong.contains("undeclared reference to 'authorizer'")));
    assert_eq!(scope.compile(reason, Gives::TextOrNull).wrong(), None);
}

/// Expressions of policies, and what is wrong with them; empty: nothing.
#[test]
fn types_of_policies_are_checked() {
    let mut scope = Scope::new(true, true);
    for (name, expression) in [("n", "1"), ("user", "request.userInfo"), ("groups", "request.userInfo.groups")] {
        assert_eq!(scope.declare(name, expression), None);
    }
    let cases = [
        ("object.a + params.b == 1 && object.c.d.all(e, e > 'f')", ""),
        ("request.name == object.name || oldObject == null", ""),
        ("variables.user.whatever == 1 && variables.n == 1", ""),
        ("authorizer.requestResource.check('get').allowed()", ""),
        ("request.?name.orValue('') == ''", ""),
        ("variables.n + 'a' == ''", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("variables.groups.all(group, group == 1)", "'_==_' applied to '(string, int)'"),
        ("request.kind == 'x'", "'_==_' applied to '(kubernetes.GroupVersionKind, string)'"),
        ("authorizer.path(1).check('x').allowed()", "'path' applied to 'kubernetes.authorization.Authorizer.(int)'"),
        ("authorizer.nope", "unexpected failed resolution of 'kubernetes.authorization.Authorizer'"),
        ("object.x", "must evaluate to bool but got dyn"),
        ("request.userInfo.extra", "must evaluate to bool but got map(string, list(string))"),
    ];
    for (expression, why) in cases {
        let wrong = scope.compile(expression, Gives::Bool).wrong().map(ToString::to_string).unwrap_or_default();
        assert!(if why.is_empty() { wrong.is_empty() } else { wrong.contains(why) }, "{expression}: {wrong}");
    }
}

fn patch_of(expression: &str, object: &Value) -> Result<Value, String> {
    let (scope, request) = (Scope::new(false, false), json!({}));
    let inputs = Inputs {
        object: Some(object),
        old_object: None,
        request: &request,
        namespace: None,
        params: None,
        access: None,
    };
    let mut evaluation = Evaluation::new(&scope, inputs, COST_MAX).unwrap();
    if expression.starts_with('[') {
        let compiled = scope.compile(expression, Gives::JsonPatch);
        return evaluation.operations(&compiled).map(|all| json!(all)).map_err(|error| error.to_string());
    }
    evaluation.object(&scope.compile(expression, Gives::Object)).map_err(|error| error.to_string())
}

#[test]
fn expressions_construct_what_an_object_is_to_have() {
    let object = json!({"a": "b", "list": [1, 2], "map": {"k": {"x": [true]}}});
    let given = [
        ("Object{}", json!({})),
        ("Object{spec: Object.spec{n: 1, ?no: object[?'no'], ?a: object[?'a']}}", json!({"spec": {"n": 1, "a": "b"}})),
        (
            "Object{l: [Object.l{n: null}], m: {'k': Object.m{d: 1.5}}}",
            json!({"l": [{"n": null}], "m": {"k": {"d": 1.5}}}),
        ),
        (
            "Object{map: object.map, t: timestamp('2026-01-02T03:04:05Z')}",
            json!({"map": {"k": {"x": [true]}}, "t": "2026-01-02T03:04:05Z"}),
        ),
        ("object.a == 'b' ? Object{x: 1} : Object{}", json!({"x": 1})),
        (
            "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b~c'), value: Object.x{y: 1}}]",
            json!([{"op": "add", "path": "/a~1b~0c", "value": {"y": 1}}]),
        ),
        (
            "[JSONPatch{op: 'copy', from: '/a', path: '/b'}] + object.list.map(n, JSONPatch{op: 'remove', path: '/' + string(n)})",
            json!([{"op": "copy", "path": "/b", "from": "/a"}, {"op": "remove", "path": "/1"}, {"op": "remove", "path": "/2"}]),
        ),
    ];
    for (expression, wanted) in given {
        assert_eq!(patch_of(expression, &object), Ok(wanted), "{expression}");
    }
    let wrong = [
        ("Object{a: Object.b{}, b: [Object.c{}]}", "expected \"Object.b\", which matches field name path from root"),
        ("{'a': 1}", "must evaluate to Object but got map(string, int)"),
        ("Object.spec{}", "must evaluate to Object but got Object.spec"),
        ("Objects{}", "undeclared reference to 'Objects' (in container '')"),
        ("Object{a: nope}", "undeclared reference to 'nope' (in container '')"),
        ("[JSONPatch{op: 1}]", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("[1]", "must evaluate to list(JSONPatch) but got list(int)"),
        ("[JSONPatch{value: object.no}]", "no such key: no"),
    ];
    for (expression, why) in wrong {
        let said = patch_of(expression, &object).unwrap_err();
        assert!(said.contains(why), "{expression}: {said}");
    }
    let elsewhere = Scope::new(false, false).compile("Object{} == null", Gives::Bool).wrong().map(ToString::to_string);
    assert!(elsewhere.is_some_and(|said| said.contains("undeclared reference to 'Object'")));
}

#[test]
fn rules_that_cost_too_much_are_refused_unless_they_are_stored() {
    let costly = json!({"type": "object", "properties": {"names": {"type": "array", "items": {
        "type": "string", "x-kubernetes-validations": [{"rule": "self.contains(self)"}]}}}});
    let told = |schema: &Value, is_stored: bool| -> Vec<String> {
        let said = |cause: kubefold_wire::status::Cause| format!("{} {}", cause.field, cause.message);
        faults("s", schema, is_stored).into_iter().map(said).collect()
    };
    let found = told(&costly, false);
    let rule = "s.properties[names].items.x-kubernetes-validations[0].rule Forbidden:";
    assert_eq!(found.len(), 3, "{found:?}");
    let first =
        format!("{rule} estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule");
    assert!(found[0].starts_with(&first), "{found:?}");
    assert!(found[1].starts_with(&format!("{rule} contributed to estimated rule cost total exceeding")), "{found:?}");
    assert!(found[2].starts_with("s Forbidden: x-kubernetes-validations estimated rule cost total"), "{found:?}");
    // What all cost together counts for stored ones, too.
    assert_eq!(told(&costly, true), found[1..]);
    let one = json!({"type": "object", "properties": {"name": {
        "type": "string", "maxLength": 20_000, "x-kubernetes-validations": [{"rule": "self.contains(self)"}]}}});
    assert_eq!((told(&one, true).len(), told(&one, false).len()), (0, 1));
}
