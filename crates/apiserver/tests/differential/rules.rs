//! Rules in CEL, at a kube-apiserver and at the embedded server: good and bad objects, and the same answers. The rules are
//! those of the Kubernetes documentation of validation rules, and more of their kind.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

use std::time::Duration;

use kubefold_apiserver::Server as Own;
use serde_json::{Value, json};

use super::writes::{Server, step};
use testbed::{Member, MemberOptions, eventually};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GAUGES: &str = "/apis/rules.example.com/v1/namespaces/default/gauges";

/// A rule, and an object that it holds for, and one that it does not.
type Case = (&'static str, Value, Value);

fn properties() -> Value {
    json!({
        "min": {"type": "integer"}, "max": {"type": "integer"}, "replicas": {"type": "integer"},
        "ratio": {"type": "number"}, "name": {"type": "string", "maxLength": 20}, "on": {"type": "boolean"},
        "my-port": {"type": "integer"}, "namespace": {"type": "string", "maxLength": 20},
        "either": {"x-kubernetes-int-or-string": true},
        "when": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "tags": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 20}},
        "numbers": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 20}},
        "ports": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 20}, "port": {"type": "integer"},
        }}},
    })
}

fn numbers() -> Vec<Case> {
    vec![
        (
            "self.min <= self.replicas && self.replicas <= self.max",
            json!({"min": 1, "replicas": 2, "max": 3}),
            json!({"min": 1, "replicas": 4, "max": 3}),
        ),
        ("self.replicas > 0", json!({"replicas": 1}), json!({"replicas": 0})),
        ("self.replicas > 1", json!({"replicas": 2}), json!({})),
        ("self.min + self.max == 3", json!({"min": 1, "max": 2}), json!({"min": 2, "max": 2})),
        ("self.max / self.min == 2", json!({"min": 2, "max": 5}), json!({"min": 0, "max": 5})),
        ("self.max % self.min == 1", json!({"min": 2, "max": 5}), json!({"min": 0, "max": 5})),
        ("self.ratio < 0.5", json!({"ratio": 0.25}), json!({"ratio": 1})),
        ("self.ratio == double(self.min)", json!({"ratio": 1, "min": 1}), json!({"ratio": 1.5, "min": 1})),
        ("self.min < self.ratio", json!({"min": 1, "ratio": 1.5}), json!({"min": 2, "ratio": 1.5})),
        ("self.on || self.min > 3", json!({"on": true}), json!({"on": false, "min": 3})),
        ("!self.on", json!({"on": false}), json!({"on": true})),
        ("self.on ? self.min == 1 : self.min == 2", json!({"on": true, "min": 1}), json!({"on": true, "min": 2})),
        ("int(self.name) == 7", json!({"name": "7"}), json!({"name": "8"})),
        ("has(self.min) == has(self.max)", json!({}), json!({"min": 1})),
        ("self.my__dash__port > 1", json!({"my-port": 2}), json!({"my-port": 1})),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        ("self.name == 'x'", json!({"name": "x"}), json!({"name": "y"})),
        ("self.name.startsWith('kube')", json!({"name": "kubefold"}), json!({"name": "fold"})),
        ("self.name.endsWith('fold')", json!({"name": "kubefold"}), json!({"name": "kube"})),
        ("self.name.contains('e')", json!({"name": "kube"}), json!({"name": "fold"})),
        ("self.name.matches('^[a-z]+$')", json!({"name": "abc"}), json!({"name": "a1"})),
        ("self.name.size() > 1", json!({"name": "ab"}), json!({"name": "ä"})),
        ("self.name.lowerAscii() == self.name", json!({"name": "a"}), json!({"name": "A"})),
        ("self.name.split('-').size() == 2", json!({"name": "a-b"}), json!({"name": "a"})),
        ("self.name.substring(1) == 'b'", json!({"name": "ab"}), json!({"name": "ac"})),
        ("self.name.replace('a', 'b') == 'bb'", json!({"name": "ab"}), json!({"name": "a"})),
        ("self.name.indexOf('b') == 1", json!({"name": "ab"}), json!({"name": "b"})),
        ("self.name.find('[0-9]+') == '12'", json!({"name": "a12"}), json!({"name": "a1"})),
        ("self.name.findAll('[0-9]').size() == 2", json!({"name": "1a2"}), json!({"name": "a"})),
        ("self.name + 'b' == 'ab'", json!({"name": "a"}), json!({"name": "b"})),
        ("self.__namespace__ != 'kube-system'", json!({"namespace": "x"}), json!({"namespace": "kube-system"})),
        ("self.?name.orValue('x') == 'x'", json!({}), json!({"name": "y"})),
        (
            "type(self.either) == string ? self.either == '5' : self.either == 5",
            json!({"either": 5}),
            json!({"either": "6"}),
        ),
        ("self.either == '50%'", json!({"either": "50%"}), json!({"either": 50})),
        ("self.wait > duration('1m')", json!({"wait": "2m"}), json!({"wait": "30s"})),
        (
            "self.when > timestamp('2020-01-01T00:00:00Z')",
            json!({"when": "2021-01-01T00:00:00Z"}),
            json!({"when": "2019-01-01T00:00:00Z"}),
        ),
        (
            "self.when.getFullYear() == 2021",
            json!({"when": "2021-01-01T00:00:00Z"}),
            json!({"when": "2019-01-01T00:00:00Z"}),
        ),
    ]
}

fn collections() -> Vec<Case> {
    vec![
        ("self.tags.all(tag, tag.startsWith('a'))", json!({"tags": ["a"]}), json!({"tags": ["a", "b"]})),
        ("self.tags.exists(tag, tag == 'a')", json!({"tags": ["b", "a"]}), json!({"tags": ["b"]})),
        ("self.tags.exists_one(tag, tag == 'a')", json!({"tags": ["a"]}), json!({"tags": ["a", "a"]})),
        ("self.numbers.map(n, n * 2) == [2, 4]", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("self.numbers.filter(n, n > 1).size() == 1", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("self.numbers[1] == 2", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("'a' in self.tags", json!({"tags": ["a"]}), json!({"tags": []})),
        ("'a' in self.labels", json!({"labels": {"a": "b"}}), json!({"labels": {}})),
        ("self.labels['a'] == 'b'", json!({"labels": {"a": "b"}}), json!({"labels": {"b": "a"}})),
        ("self.labels.all(key, self.labels[key] != '')", json!({"labels": {"a": "b"}}), json!({"labels": {"a": ""}})),
        (
            "self.ports.all(p, p.port > 0 && has(p.name))",
            json!({"ports": [{"port": 1, "name": "a"}]}),
            json!({"ports": [{"port": 1}]}),
        ),
        (
            "self.ports.map(p, p.name) == ['a', 'b']",
            json!({"ports": [{"name": "a"}, {"name": "b"}]}),
            json!({"ports": [{"name": "a"}]}),
        ),
        (
            "size(self.tags) == size(self.numbers)",
            json!({"tags": ["a"], "numbers": [1]}),
            json!({"tags": ["a"], "numbers": []}),
        ),
    ]
}

fn definition(cases: &[Case]) -> Value {
    let mut spec = serde_json::Map::new();
    let place = |rule: Value| json!({"type": "object", "properties": properties(), "x-kubernetes-validations": [rule]});
    for (index, (rule, ..)) in cases.iter().enumerate() {
        spec.insert(format!("r{index}"), place(json!({"rule": rule})));
    }
    spec.insert("said".into(), place(json!({"rule": "self.min > 1", "message": "too small", "fieldPath": ".min", "reason": "FieldValueForbidden"})));
    spec.insert("told".into(), place(json!({"rule": "self.min > 1", "messageExpression": "self.name + ' is small'", "reason": "FieldValueRequired"})));
    spec.insert("kept".into(), place(json!({"rule": "self.name == oldSelf.name", "message": "it is immutable"})));
    spec.insert("once".into(), json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}));
    spec.insert(
        "late".into(),
        json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true}]}),
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.rules.example.com"},
        "spec": {"group": "rules.example.com", "scope": "Namespaced",
            "names": {"plural": "gauges", "kind": "Gauge"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}]},
    })
}

fn gauge(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "rules.example.com/v1", "kind": "Gauge", "metadata": {"name": name}, "spec": spec})
}

/// Definitions that are refused, by one rule.
const REFUSED: [&str; 10] = [
    "self.nope == 1",
    "nope == 1",
    "self.name.nope()",
    "self.name.first == 1",
    "self.min",
    "self.min >",
    "",
    "'x'",
    "self.tags.all(tag, nope)",
    "self.min < 1 && self.nope > 1",
];

async fn refusals(real: &Server, own: &Server, wrong: &mut String) {
    for rule in REFUSED {
        let mut bad = definition(&[(rule, Value::Null, Value::Null)]);
        bad["metadata"]["name"] = "others.rules.example.com".into();
        bad["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
        let causes = |answer: &Value| -> Vec<Value> {
            let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
            // The words about syntax are those of another parser.
            causes
                .into_iter()
                .map(|mut cause| {
                    let text = cause["message"].as_str().unwrap_or_default().to_owned();
                    if text.contains("Syntax error") {
                        cause["message"] = "Syntax error".into();
                    }
                    cause
                })
                .collect()
        };
        let step = step("POST", DEFINITIONS, bad);
        let (said, told) = (real.raw(&step).await, own.raw(&step).await);
        let (said, told) = ((said.0, causes(&said.1)), (told.0, causes(&told.1)));
        if said != told {
            wrong.push_str(&format!("{rule}\n  said {said:?}\n  told {told:?}\n\n"));
        }
    }
}

#[tokio::test]
async fn rules_hold_and_break_as_at_a_kube_apiserver() {
    let member = Member::start("rules", MemberOptions::default()).await;
    let running = Own::new().start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    let cases: Vec<Case> = [numbers(), texts(), collections()].concat();
    assert!(cases.len() >= 40);
    let mut steps = Vec::new();
    for (index, (_, good, bad)) in cases.iter().enumerate() {
        let place = format!("r{index}");
        steps.push(step("POST", GAUGES, gauge(&format!("good-{index}"), &json!({place.as_str(): good}))));
        steps.push(step("POST", GAUGES, gauge("bad", &json!({place.as_str(): bad}))));
    }
    const KEPT: &str = "/apis/rules.example.com/v1/namespaces/default/gauges/kept";
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"said": {"min": 1}}))));
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"told": {"min": 1, "name": "it"}}))));
    steps.push(step("POST", GAUGES, gauge("kept", &json!({"kept": {"name": "a"}, "once": "a", "late": 2}))));
    steps.push(step("PATCH", KEPT, json!({"spec": {"kept": {"name": "b"}}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"once": "b"}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"late": 1}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"late": 3, "once": null}})));
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"r0": {"min": "x"}}))));
    for server in [&real, &own] {
        let made = server.raw(&step("POST", DEFINITIONS, definition(&cases))).await;
        assert_eq!(made.0, 201, "{}", made.1);
        eventually(Duration::from_secs(60), async || match server.send("GET", GAUGES, String::new()).await {
            (200, _) => Ok(()),
            (code, _) => Err(code),
        })
        .await;
    }
    let mut wrong = String::new();
    for step in &steps {
        let (said, told) = (real.answer(step).await, own.answer(step).await);
        if said != told {
            let (said, told) = (format!("{} {}", said.0, said.1), format!("{} {}", told.0, told.1));
            wrong.push_str(&format!("{} {}\n  said {said}\n  told {told}\n\n", step.path, step.body));
        }
    }
    refusals(&real, &own, &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Post {
    spec: PostSpec,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct PostSpec {
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self != 'no'", "message": "is no title"}]))]
    title: String,
}

#[tokio::test]
async fn rules_of_a_rust_type_are_evaluated() {
    const POSTS: &str = "/apis/blog.example.com/v1/namespaces/default/posts";
    let kind = kubefold_apiserver::Kind::of::<Post>("blog.example.com", "v1", "Post").schema();
    let running = Own::new().kind(kind).start().await.unwrap();
    let own = Server::Embedded(running.service());
    let post = |title: &str| json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": "a"}, "spec": {"title": title}});
    let (code, told) = own.answer(&step("POST", POSTS, post("no"))).await;
    assert_eq!(
        (code, told["details"]["causes"][0]["message"].as_str()),
        (422, Some("Invalid value: \"no\": is no title"))
    );
    assert_eq!(own.answer(&step("POST", POSTS, post("yes"))).await.0, 201);
    running.end().await;
}
