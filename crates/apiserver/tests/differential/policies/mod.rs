//! Admission policies at a kube-apiserver and at the embedded server: the same policies, bindings, parameters and writes, and the
//! same answers and warnings.

mod authorizer;
mod mutating;
mod refused;

use std::time::Duration;

use kubefold_apiserver::{BuiltIn, Server as Own};
use serde_json::{Value, json};

use super::writes::{Server, Step, masked, step};
use testbed::{Member, MemberOptions, eventually};

const POLICIES: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
];
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const EFFECT: Duration = Duration::from_secs(60);

/// A policy about the objects with its name as the label `case`, where it is in force, and what is written then.
struct Case {
    name: &'static str,
    /// Of the policy; what it does not say is that of config maps.
    spec: Value,
    /// Of each binding.
    bindings: Vec<Value>,
    steps: Vec<Step>,
}

fn case(name: &'static str, spec: Value, binding: Value, steps: Vec<Step>) -> Case {
    Case { name, spec, bindings: vec![binding], steps }
}

fn rules(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!([{"apiGroups": groups, "apiVersions": versions, "operations": ["*"], "resources": resources}])
}

impl Case {
    fn policy(&self) -> Value {
        let mut spec = json!({"matchConstraints": {}});
        merge(&mut spec, &self.spec);
        let constraints = spec["matchConstraints"].as_object_mut().unwrap();
        constraints.entry("resourceRules").or_insert_with(|| rules(&[""], &["v1"], &["configmaps"]));
        constraints.entry("objectSelector").or_insert_with(|| json!({"matchLabels": {"case": self.name}}));
        json!({"metadata": {"name": self.name}, "spec": spec})
    }

    fn bindings(&self, common: &Value) -> impl Iterator<Item = Value> {
        self.bindings.iter().enumerate().map(|(at, said)| {
            let mut spec = json!({"policyName": self.name});
            merge(&mut spec, common);
            merge(&mut spec, said);
            json!({"metadata": {"name": format!("{}-{at}", self.name)}, "spec": spec})
        })
    }
}

fn merge(into: &mut Value, said: &Value) {
    for (name, value) in said.as_object().into_iter().flatten() {
        into[name] = value.clone();
    }
}

fn map(case: &str, name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"case": case}}, "data": data})
}

fn validations(all: &[&str]) -> Value {
    json!({"validations": all.iter().map(|expression| json!({"expression": expression})).collect::<Vec<_>>()})
}

fn red(case: &str, name: &str) -> Value {
    map(case, name, json!({"color": "red"}))
}

fn blue(case: &str, name: &str) -> Value {
    map(case, name, json!({"color": "blue"}))
}

const RED: &str = "object.data.color == 'red'";

fn writes() -> Vec<Case> {
    let mut with_delete = validations(&["request.operation == 'DELETE' || object.data.color == 'red'"]);
    with_delete["validations"].as_array_mut().unwrap().push(
        json!({"expression": "object != null || oldObject.data.?keep.orValue('') != 'yes'", "message": "it is kept"}),
    );
    let generated = json!({"metadata": {"generateName": "plain-", "labels": {"case": "plain"}}, "data": {}});
    vec![case(
        "plain",
        with_delete,
        json!({}),
        vec![
            step("POST", MAPS, red("plain", "plain-a")),
            step("POST", MAPS, blue("plain", "plain-b")),
            step("POST", MAPS, map("plain", "plain-c", json!({}))),
            step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", blue("plain", "plain-b")),
            step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", generated),
            step("PUT", "/api/v1/namespaces/shop/configmaps/plain-a", blue("plain", "plain-a")),
            step("PATCH", "/api/v1/namespaces/shop/configmaps/plain-a", json!({"data": {"color": "blue"}})),
            step("PATCH", "/api/v1/namespaces/shop/configmaps/plain-a", json!({"data": {"keep": "yes"}})),
            step(
                "PATCH",
                "/api/v1/namespaces/shop/configmaps/plain-n?fieldManager=applier",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain-n", "labels": {"case": "plain"}}}),
            ),
            step("DELETE", "/api/v1/namespaces/shop/configmaps/plain-a", Value::Null),
            step("DELETE", "/api/v1/namespaces/shop/configmaps?labelSelector=case%3Dplain", Value::Null),
            step("GET", "/api/v1/namespaces/shop/configmaps/plain-a", Value::Null),
            step("PATCH", "/api/v1/namespaces/shop/configmaps/plain-a", json!({"data": {"keep": null}})),
            step("DELETE", "/api/v1/namespaces/shop/configmaps/plain-a", Value::Null),
        ],
    )]
}

/// What a policy's refusal comes to.
fn answers() -> Vec<Case> {
    vec![
        case(
            "messages",
            json!({"validations": [
                {"expression": "object.data.?a.orValue('') != 'x'", "message": " said ", "reason": "Forbidden"},
                {"expression": "object.data.?b.orValue('') != 'x'", "messageExpression": "'no ' + object.metadata.name", "reason": "RequestEntityTooLarge"},
                {"expression": "object.data.?c.orValue('') != 'x'", "messageExpression": "string(object.nope)", "message": "fallen back"},
                {"expression": "object.data.?d.orValue('') != 'x'", "messageExpression": "'two\\nlines'"},
                {"expression": "object.data.?e.orValue('') != 'x'", "messageExpression": "' '"},
            ]}),
            json!({}),
            ["a", "b", "c", "d", "e"]
                .into_iter()
                .map(|key| step("POST", MAPS, map("messages", "messages", json!({key: "x"}))))
                .collect(),
        ),
        case(
            "open",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": RED}]}),
            json!({}),
            vec![step("POST", MAPS, map("open", "open-a", json!({}))), step("POST", MAPS, blue("open", "open-b"))],
        ),
        case(
            "warns",
            json!({"validations": [{"expression": RED, "message": "be \"red\""}, {"expression": "has(object.data.b)"}]}),
            json!({"validationActions": ["Warn", "Audit"]}),
            vec![
                step("POST", MAPS, blue("warns", "warns")),
                step("PUT", "/api/v1/namespaces/shop/configmaps/warns", blue("warns", "warns")),
                step("DELETE", "/api/v1/namespaces/shop/configmaps/warns", Value::Null),
            ],
        ),
        Case {
            name: "twice",
            spec: validations(&[RED]),
            bindings: vec![json!({"validationActions": ["Warn"]}), json!({})],
            steps: vec![step("POST", MAPS, blue("twice", "twice"))],
        },
        case(
            "audits",
            json!({"auditAnnotations": [
                {"key": "a", "valueExpression": "'color is ' + object.data.color"},
                {"key": "b", "valueExpression": "null"},
            ]}),
            json!({"validationActions": ["Warn"]}),
            vec![
                step("POST", MAPS, blue("audits", "audits")),
                step("POST", MAPS, map("audits", "audits-b", json!({}))),
            ],
        ),
    ]
}

fn expressions() -> Vec<Case> {
    let with = posted;
    vec![
        case(
            "variables",
            json!({
                "variables": [
                    {"name": "color", "expression": "object.data.color"},
                    {"name": "is_red", "expression": "variables.color == 'red'"},
                    {"name": "all", "expression": "object.data.map(key, object.data[key])"},
                ],
                "validations": [
                    {"expression": "!has(object.data) || 'free' in object.data || variables.is_red", "messageExpression": "'not ' + variables.color"},
                    {"expression": "variables.all.all(value, value.size() < 9)"},
                ],
            }),
            json!({}),
            vec![
                with("variables", json!({"color": "blue"})),
                with("variables", json!({"colour": "red"})),
                with("variables", json!({"free": "of a color"})),
                with("variables", json!({"free": "yes", "b": "too many letters"})),
                with("variables", json!({"free": "yes"})),
            ],
        ),
        case(
            "conditions",
            json!({
                "matchConditions": [
                    {"name": "judged", "expression": "object.data.judged == 'yes'"},
                    {"name": "b", "expression": "!has(object.data.skipped)"},
                ],
                "validations": [{"expression": RED}],
            }),
            json!({}),
            vec![
                with("conditions", json!({"judged": "no"})),
                with("conditions", json!({"judged": "yes"})),
                with("conditions", json!({"color": "blue"})),
                with("conditions", json!({"skipped": "yes"})),
            ],
        ),
    ]
}

fn posted(name: &str, data: Value) -> Step {
    step("POST", MAPS, map(name, name, data))
}

/// What expressions see, and what they may cost.
fn inputs() -> Vec<Case> {
    let with = posted;
    vec![
        case(
            "requests",
            validations(&[
                "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'",
                "request.requestKind.version == 'v1' && request.requestResource.group == ''",
                "!has(request.subResource) && request.namespace == 'shop' && request.operation in ['CREATE', 'UPDATE']",
                "request.operation == 'CREATE' ? oldObject == null : oldObject.metadata.uid == object.metadata.uid",
                "request.name == object.metadata.name && size(request.userInfo.groups) > 0",
                "request.options.kind == (oldObject == null ? 'CreateOptions' : 'UpdateOptions')",
                "request.dryRun == ('dry' in object.data)",
                "namespaceObject.metadata.labels['team'] == 'a' && namespaceObject.status.phase == 'Active'",
                "object.metadata.namespace == 'shop' && object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
                "has(object.metadata.uid) && has(object.metadata.creationTimestamp)",
                "!has(object.data.wrong)",
            ]),
            json!({}),
            vec![
                with("requests", json!({"wrong": "yes"})),
                with("requests", json!({"dry": "yes"})),
                step(
                    "POST",
                    "/api/v1/namespaces/shop/configmaps?dryRun=All",
                    map("requests", "dry", json!({"dry": "yes"})),
                ),
                with("requests", json!({})),
                step("PATCH", "/api/v1/namespaces/shop/configmaps/requests", json!({"data": {"a": "b"}})),
                step(
                    "PATCH",
                    "/api/v1/namespaces/shop/configmaps/requests?fieldManager=applier",
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "requests", "labels": {"case": "requests"}}, "data": {"c": "d"}}),
                ),
            ],
        ),
        case(
            "costly",
            json!({"validations": [
                {"expression": "object.data.list.split(',').all(a, object.data.list.split(',').all(b, object.data.list.split(',').all(c, a + b + c != 'x')))"},
            ]}),
            json!({}),
            vec![with("costly", json!({"list": "a,".repeat(400)})), with("costly", json!({"list": "a,b"}))],
        ),
        case(
            "mistyped",
            validations(&["object.data.color > 5", "object.metadata.name.size() == 8"]),
            json!({}),
            vec![with("mistyped", json!({"color": "red"})), with("mistyped", json!({}))],
        ),
    ]
}

fn labelled(case: &str, name: &str) -> Value {
    json!({"name": name, "labels": {"case": case}})
}

/// Objects below others.
fn subresources() -> Vec<Case> {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
    let deployment = |replicas: i64| {
        let labels = json!({"app": "scaled"});
        json!({"metadata": labelled("scaled", "scaled"), "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let scale = |replicas: i64| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "scaled", "namespace": "shop"}, "spec": {"replicas": replicas}});
    vec![case(
        "scaled",
        json!({
            "matchConstraints": {
                "resourceRules": rules(&["apps"], &["v1"], &["deployments", "deployments/scale", "deployments/status"]), "objectSelector": {},
            },
            "validations": [{"expression": "object.spec.replicas <= 5", "messageExpression": "object.kind + ' ' + request.?subResource.orValue('-')"}],
        }),
        json!({}),
        vec![
            step("POST", DEPLOYMENTS, deployment(6)),
            step("POST", DEPLOYMENTS, deployment(5)),
            step("PUT", "/apis/apps/v1/namespaces/shop/deployments/scaled/scale", scale(6)),
            step("PATCH", "/apis/apps/v1/namespaces/shop/deployments/scaled/scale", json!({"spec": {"replicas": 7}})),
            step("PUT", "/apis/apps/v1/namespaces/shop/deployments/scaled/scale", scale(4)),
            step(
                "PATCH",
                "/apis/apps/v1/namespaces/shop/deployments/scaled/status",
                json!({"status": {"replicas": 1}}),
            ),
            step("DELETE", "/apis/apps/v1/namespaces/shop/deployments/scaled", Value::Null),
        ],
    )]
}

/// The same objects in several versions.
fn versions() -> Vec<Case> {
    const SCALERS: &str = "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers";
    let scaler = |case: &str| {
        json!({"metadata": labelled(case, case), "spec": {
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
            "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}})
    };
    let v2 = rules(&["autoscaling"], &["v2"], &["horizontalpodautoscalers"]);
    let of_v2 = |policy: &str| {
        json!({
            "matchConstraints": {"matchPolicy": policy, "resourceRules": v2},
            "validations": [{"expression": "object.apiVersion == 'autoscaling/v2' && object.spec.metrics[0].resource.name == 'memory'", "messageExpression": "request.kind.version + ' of ' + request.requestKind.version"}],
        })
    };
    vec![
        case("equivalent", of_v2("Equivalent"), json!({}), vec![step("POST", SCALERS, scaler("equivalent"))]),
        case("exact", of_v2("Exact"), json!({}), vec![step("POST", SCALERS, scaler("exact"))]),
    ]
}

fn matching() -> Vec<Case> {
    let named = |field: &str| {
        json!({
            "matchConstraints": {
                "resourceRules": rules(&["*"], &["*"], &["*"]),
                field: [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"], "resourceNames": ["named"]}],
            },
            "validations": [{"expression": "false", "message": "never"}],
        })
    };
    let namespaced = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let of_namespaces = json!({
        "matchConstraints": {
            "resourceRules": rules(&[""], &["v1"], &["namespaces"]),
            "namespaceSelector": {"matchLabels": {"judged": "yes"}}, "objectSelector": {},
        },
        "validations": [{"expression": "request.namespace == 'other' || namespaceObject != null", "messageExpression": "request.namespace"}],
    });
    vec![
        case(
            "excluded",
            named("excludeResourceRules"),
            json!({}),
            vec![
                step("POST", MAPS, map("excluded", "named", json!({}))),
                step("POST", MAPS, map("excluded", "other", json!({}))),
            ],
        ),
        case(
            "chosen",
            named("resourceRules"),
            json!({}),
            vec![
                step("POST", MAPS, map("chosen", "named-2", json!({}))),
                step("PUT", "/api/v1/namespaces/shop/configmaps/named", map("chosen", "named", json!({}))),
                step("DELETE", "/api/v1/namespaces/shop/configmaps/named", Value::Null),
                step("POST", MAPS, map("chosen", "named", json!({}))),
            ],
        ),
        case(
            "placed",
            validations(&["false"]),
            json!({"matchResources": namespaced}),
            vec![
                step("POST", MAPS, map("placed", "placed", json!({}))),
                step("POST", "/api/v1/namespaces/default/configmaps", map("placed", "placed", json!({}))),
            ],
        ),
        case(
            "spaces",
            of_namespaces,
            json!({}),
            vec![
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "judged", "labels": {"judged": "yes"}}}),
                ),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "other", "labels": {"judged": "yes"}}})),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "free"}})),
                step("PATCH", "/api/v1/namespaces/free", json!({"metadata": {"labels": {"judged": "yes"}}})),
            ],
        ),
    ]
}

fn parameters() -> Vec<Case> {
    let of = |name: &'static str, kind: Value, reference: Value, steps: Vec<Step>| {
        let expression = "params == null || object.data.color == params.data.color";
        let spec = json!({"paramKind": kind, "validations": [{
            "expression": expression, "messageExpression": "'not ' + params.data.color",
        }]});
        case(name, spec, json!({"paramRef": reference}), steps)
    };
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let both = |name: &str| {
        vec![step("POST", MAPS, red(name, &format!("{name}-r"))), step("POST", MAPS, blue(name, &format!("{name}-b")))]
    };
    let by_name = |name: &str, namespace: &str, action: &str| {
        let mut reference = json!({"name": name, "parameterNotFoundAction": action});
        if !namespace.is_empty() {
            reference["namespace"] = namespace.into();
        }
        reference
    };
    let selects =
        |value: &str| json!({"selector": {"matchLabels": {"param": value}}, "parameterNotFoundAction": "Deny"});
    let mut unbound = of("unbound", maps.clone(), Value::Null, both("unbound"));
    unbound.bindings = vec![json!({})];
    let mut wide = of(
        "wide",
        maps.clone(),
        by_name("p-red", "", "Deny"),
        vec![step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "wide", "labels": {"case": "wide"}}}))],
    );
    wide.spec["matchConstraints"] = json!({"resourceRules": rules(&[""], &["v1"], &["namespaces"])});
    vec![
        of("by-name", maps.clone(), by_name("p-red", "", "Deny"), both("by-name")),
        of("elsewhere", maps.clone(), by_name("p-blue", "default", "Deny"), both("elsewhere")),
        of("missing", maps.clone(), by_name("nope", "", "Deny"), both("missing")),
        of("allowed", maps.clone(), by_name("nope", "", "Allow"), both("allowed")),
        of("selected", maps.clone(), selects("yes"), both("selected")),
        of("unselected", maps, selects("nobody"), both("unselected")),
        of(
            "unknown",
            json!({"apiVersion": "nope.example.com/v1", "kind": "Nope"}),
            by_name("p", "", "Deny"),
            both("unknown"),
        ),
        of(
            "scopeless",
            json!({"apiVersion": "v1", "kind": "Namespace"}),
            by_name("shop", "shop", "Deny"),
            both("scopeless"),
        ),
        unbound,
        wide,
    ]
}

/// What a server answers to a step, with its warnings; the words about syntax are those of another parser.
async fn told(server: &Server, step: &Step) -> (u16, Vec<String>, Value) {
    let body = if step.body.is_null() { String::new() } else { step.body.to_string() };
    let (code, warnings, body) = server.whole(step.method, step.path, body).await;
    let mut body = masked(&serde_json::from_slice(&body).unwrap());
    if body["kind"] == "Status" && code < 300 {
        body["details"]["uid"] = Value::Null;
    }
    if step.body["metadata"]["generateName"].is_string() {
        let name = body["details"]["name"].as_str().unwrap().to_owned();
        assert!(name.len() > "plain-".len(), "{body}");
        body = serde_json::from_str(&body.to_string().replace(&name, "<name>")).unwrap();
    }
    if body.to_string().contains("Syntax error") {
        body["message"] = "Syntax error".into();
        for cause in body["details"]["causes"].as_array_mut().unwrap() {
            cause["message"] = "Syntax error".into();
        }
    }
    (code, warnings, body)
}

async fn install(server: &Server, cases: &[Case], kinds: [&'static str; 2], binding: &Value) {
    let namespace = json!({"metadata": {"name": "shop", "labels": {"team": "a"}}});
    let param = |name: &str, color: &str| json!({"metadata": {"name": name, "labels": {"param": "yes"}}, "data": {"color": color}});
    let mut steps = vec![
        step("POST", "/api/v1/namespaces", namespace),
        step("POST", MAPS, param("p-red", "red")),
        step("POST", MAPS, param("q-red", "red")),
        step("POST", "/api/v1/namespaces/default/configmaps", param("p-blue", "blue")),
    ];
    for case in cases {
        steps.push(step("POST", kinds[0], case.policy()));
        steps.extend(case.bindings(binding).map(|binding| step("POST", kinds[1], binding)));
    }
    for step in steps {
        let (code, body) = server.raw(&step).await;
        assert_eq!(code, 201, "{} of {}: {body}", server.name(), step.body);
    }
}

/// What two servers answer otherwise, and how many steps there were.
async fn differences(real: &Server, own: &Server, steps: impl Iterator<Item = Step>) -> (String, usize) {
    let (mut wrong, mut count) = (String::new(), 0);
    for step in steps {
        let (said, told) = (told(real, &step).await, told(own, &step).await);
        count += 1;
        if said != told {
            wrong.push_str(&format!(
                "{} {} {}\n  said {said:?}\n  told {told:?}\n\n",
                step.method, step.path, step.body
            ));
        }
    }
    (wrong, count)
}

#[tokio::test]
async fn policies_refuse_and_warn_as_at_a_kube_apiserver() {
    let member = Member::start("policies", MemberOptions::default()).await;
    let running = Own::new().built_in(BuiltIn::All).start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    let mut cases: Vec<Case> = writes();
    cases.extend(answers());
    cases.extend(expressions());
    cases.extend(inputs());
    cases.extend(subresources());
    cases.extend(versions());
    cases.extend(matching());
    cases.extend(parameters());
    // The last one: when it is in force, so are those before it.
    cases.push(case("last", validations(&["false"]), json!({}), Vec::new()));
    for server in [&real, &own] {
        install(server, &cases, POLICIES, &json!({"validationActions": ["Deny"]})).await;
    }
    let probe = step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", map("last", "last", json!({})));
    // Whoever wrote a policy finds it in force here, and soon there.
    assert_eq!(own.raw(&probe).await.0, 422);
    eventually(EFFECT, async || match real.raw(&probe).await {
        (422, _) => Ok(()),
        (code, _) => Err(code),
    })
    .await;
    let refused = refused::policies().into_iter().map(|spec| {
        let mut of = case("refused", spec, json!({}), Vec::new());
        if of.spec["matchConstraints"].get("resourceRules").is_some_and(|rules| *rules == json!([])) {
            of.spec["matchConstraints"]["objectSelector"] = json!({});
        }
        step("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All", of.policy())
    });
    let bound = refused::bindings().into_iter().map(|spec| {
        let body = json!({"metadata": {"name": "refused"}, "spec": spec});
        step("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?dryRun=All", body)
    });
    let steps = cases.into_iter().flat_map(|case| case.steps).chain(refused).chain(bound);
    let (wrong, count) = differences(&real, &own, steps).await;
    assert!(wrong.is_empty(), "of {count}:\n{wrong}");
    running.end().await;
}
