use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{policy::Policy, start, validation::Validations};
use crate::{
    registry::{DeleteOptions, Env, Registry, WriteOptions},
    rules::Inputs,
    serve::{bootstrap, built_in},
    storage::Memory,
};

const GROUP: &str = "admissionregistration.k8s.io";

fn policy(spec: Value) -> Policy<Validations> {
    Policy::of(&json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": spec}))
}

fn told(policy: &Policy<Validations>, object: &Value) -> Vec<String> {
    let request = json!({"operation": "CREATE"});
    let inputs = Inputs {
        object: Some(object),
        old_object: None,
        request: &request,
        namespace: None,
        params: None,
        access: None,
    };
    let verdict = policy.judge(inputs);
    verdict.denials.into_iter().map(|denial| denial.message).chain(verdict.failures).collect()
}

#[test]
fn variables_are_evaluated_when_they_are_used() {
    let of = |expression: &str| {
        policy(json!({
            "variables": [
                {"name": "a", "expression": "object.a"}, {"name": "b", "expression": "variables.a + 1"},
                {"name": "bad", "expression": "object.nope"},
            ],
            "validations": [{"expression": expression}],
        }))
    };
    let object = json!({"a": 1});
    assert_eq!(told(&of("variables.b == 2 && variables.a == 1"), &object), Vec::<String>::new());
    assert_eq!(told(&of("variables.b == 2 || variables.bad == 1"), &object), Vec::<String>::new());
    assert_eq!(
        told(&of("variables.bad == 1"), &object),
        [
            "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: nope"
        ]
    );
    assert_eq!(told(&of("has(variables.a) && variables.b == 3"), &object).len(), 1);
}

#[test]
fn a_policy_that_cannot_be_evaluated_refuses_unless_it_fails_open() {
    let heavy = "object.list.all(a, object.list.all(b, object.list.all(c, a + b + c > 0)))";
    let list: Vec<i64> = (1..300).collect();
    let object = json!({"list": list, "name": "x"});
    let cases = [
        ("nope == 1", "compilation error: compilation failed"),
        ("object.nope", "compilation error: must evaluate to bool but got dyn"),
        ("object.nope == 1", "no such key: nope"),
        (heavy, "actual cost limit exceeded"),
    ];
    for (expression, why) in cases {
        let validations = json!([{"expression": expression}]);
        let said = told(&policy(json!({"validations": validations})), &object);
        assert!(said.first().is_some_and(|said| said.contains(why)), "{expression}: {said:?}");
        let open = policy(json!({"failurePolicy": "Ignore", "validations": validations}));
        assert_eq!(told(&open, &object), Vec::<String>::new(), "{expression}");
    }
    // Eleven expressions that each cost what one may cost more than all of them may.
    let all: Vec<Value> = (0..11).map(|_| json!({"expression": heavy})).collect();
    let said = told(&policy(json!({"validations": all})), &object);
    assert_eq!(said, ["validation failed due to running out of cost budget, no further validation rules will be run"]);
}

struct Served {
    registry: Registry,
    tasks: TaskTracker,
    stop: CancellationToken,
    admitter: super::Admitter,
}

async fn served() -> Served {
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let admitter = start(&registry, &tasks, &stop).await.unwrap().unwrap();
    let registry = registry.admitted_by(Arc::new(admitter.clone()));
    Served { registry, tasks, stop, admitter }
}

impl Served {
    async fn create(&self, group: &str, kind: &str, namespace: &str, object: Value) -> Result<(), String> {
        let kind = self.registry.kind(group, kind).unwrap();
        let made = self.registry.create(&kind, namespace, object, &WriteOptions::default()).await;
        self.admitter.settled(&self.registry).await;
        made.map(drop).map_err(|status| status.message)
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn of_maps(name: &str, resources: &[&str]) -> [Value; 2] {
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]});
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [json!({"metadata": {"name": name}, "spec": spec}), json!({"metadata": {"name": name}, "spec": binding})]
}

#[tokio::test]
async fn nobody_locks_himself_out_of_policies_and_policies_end_with_their_binding() {
    let served = served().await;
    let map = || json!({"metadata": {"name": "a"}});
    let [policy, binding] = of_maps("none", &["*/*"]);
    served.create(GROUP, "ValidatingAdmissionPolicy", "", policy).await.unwrap();
    served.create("", "ConfigMap", "default", json!({"metadata": {"name": "b"}})).await.unwrap();
    served.create(GROUP, "ValidatingAdmissionPolicyBinding", "", binding).await.unwrap();
    let refused = served.create("", "ConfigMap", "default", map()).await.unwrap_err();
    let why = "ValidatingAdmissionPolicy 'none' with binding 'none' denied request: failed expression: false";
    assert_eq!(refused, format!("configmaps \"a\" is forbidden: {why}"));
    let maps = served.registry.kind("", "ConfigMap").unwrap();
    let refused = served.registry.delete(&maps, "default", "b", &DeleteOptions::default()).await.unwrap_err();
    assert!(refused.message.contains(why), "{}", refused.message);
    let bindings = served.registry.kind(GROUP, "ValidatingAdmissionPolicyBinding").unwrap();
    served.registry.delete(&bindings, "", "none", &DeleteOptions::default()).await.unwrap();
    served.admitter.settled(&served.registry).await;
    served.create("", "ConfigMap", "default", map()).await.unwrap();
    served.end().await;
}

#[tokio::test]
async fn a_policy_says_which_generation_is_in_force() {
    let served = served().await;
    let [policy, _] = of_maps("said", &["pods"]);
    served.create(GROUP, "ValidatingAdmissionPolicy", "", policy).await.unwrap();
    let kind = served.registry.kind(GROUP, "ValidatingAdmissionPolicy").unwrap();
    let mut events = served
        .registry
        .watch(&kind, "", crate::registry::Selection::default(), crate::registry::From::Start)
        .await
        .unwrap();
    let waited = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        use futures::StreamExt as _;
        while let Some(event) = events.next().await {
            if let Ok(crate::registry::Event::Added(object) | crate::registry::Event::Modified(object)) = event
                && object.value().pointer("/status/observedGeneration") == Some(&1.into())
            {
                return object.value();
            }
        }
        Value::Null
    });
    let said = waited.await.unwrap();
    assert_eq!(said.pointer("/status"), Some(&json!({"observedGeneration": 1, "typeChecking": {}})));
    served.end().await;
}

fn webhooks_of(name: &str, spec: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "scope": "*"}],
        "clientConfig": {"service": {"namespace": "default", "name": "hook", "port": 443}}, "failurePolicy": "Fail",
    });
    for (field, value) in spec.as_object().unwrap() {
        webhook[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "webhooks": [webhook]})
}

#[tokio::test]
async fn a_dry_run_is_refused_if_a_webhook_may_have_side_effects() {
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    // An object of an older server, or of a restored storage: a new one would be refused.
    let kind = registry.kind(GROUP, "MutatingWebhookConfiguration").unwrap();
    let webhook = webhooks_of("effects", json!({"sideEffects": "Unknown", "failurePolicy": "Ignore"}));
    registry.fill(&kind, [webhook].into_iter()).await.unwrap();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let admitter = start(&registry, &tasks, &stop).await.unwrap().unwrap();
    let registry = registry.admitted_by(Arc::new(admitter));
    let maps = registry.kind("", "ConfigMap").unwrap();
    let map = json!({"metadata": {"name": "a"}});
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let refused = registry.create(&maps, "default", map.clone(), &dry).await.unwrap_err();
    assert_eq!(refused.message, "admission webhook \"effects.example.com\" does not support dry run");
    assert_eq!(refused.code, 400);
    // The real thing is, since what cannot be asked is ignored.
    registry.create(&maps, "default", map, &WriteOptions::default()).await.unwrap();
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn a_webhook_behind_a_cluster_ip_says_that_nothing_routes_there() {
    let served = served().await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"clusterIP": "10.96.0.77", "ports": [{"port": 443}]}});
    served.create("", "Service", "default", service).await.unwrap();
    let (map, webhook) = (json!({"metadata": {"name": "a"}}), webhooks_of("routed", json!({})));
    served.create(GROUP, "ValidatingWebhookConfiguration", "", webhook).await.unwrap();
    let refused = served.create("", "ConfigMap", "default", map.clone()).await.unwrap_err();
    assert_eq!(
        refused,
        "Internal error occurred: failed calling webhook \"routed.example.com\": failed to call webhook: Post \
         \"https://hook.default.svc:443/?timeout=10s\": dial tcp 10.96.0.77:443: nothing routes the cluster IPs of this \
         server; name the webhook by clientConfig.url, or by a service of type ExternalName"
    );
    let kind = served.registry.kind(GROUP, "ValidatingWebhookConfiguration").unwrap();
    served.registry.delete(&kind, "", "routed", &DeleteOptions::default()).await.unwrap();
    served.admitter.settled(&served.registry).await;
    served.create("", "ConfigMap", "default", map).await.unwrap();
    served.end().await;
}

fn changing(name: &str, policy: &str, mutations: &[(&str, &str)]) -> [Value; 2] {
    let mutation = |(patch_type, expression): &(&str, &str)| {
        let field = if *patch_type == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
        json!({"patchType": patch_type, field: {"expression": expression}})
    };
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]);
    let spec = json!({
        "matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": policy,
        "mutations": mutations.iter().map(mutation).collect::<Vec<_>>(),
    });
    [
        json!({"metadata": {"name": name}, "spec": spec}),
        json!({"metadata": {"name": name}, "spec": {"policyName": name}}),
    ]
}

impl Served {
    async fn install(&self, [policy, binding]: [Value; 2]) {
        self.create(GROUP, "MutatingAdmissionPolicy", "", policy).await.unwrap();
        self.create(GROUP, "MutatingAdmissionPolicyBinding", "", binding).await.unwrap();
    }

    async fn data(&self, name: &str) -> Value {
        let maps = self.registry.kind("", "ConfigMap").unwrap();
        self.registry.get(&maps, "default", name).await.unwrap().value()["data"].clone()
    }
}

#[tokio::test]
async fn policies_change_what_later_ones_and_validating_ones_see() {
    let served = served().await;
    let first = [("ApplyConfiguration", "Object{data: Object.data{a: object.metadata.name}}")];
    let second = [(
        "JSONPatch",
        "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('b'), value: object.data.a + '!'}]",
    )];
    served.install(changing("first", "Never", &first)).await;
    served.install(changing("second", "Never", &second)).await;
    served.create("", "ConfigMap", "default", json!({"metadata": {"name": "x"}})).await.unwrap();
    assert_eq!(served.data("x").await, json!({"a": "x", "b": "x!"}));
    let [mut policy, binding] = of_maps("judge", &["configmaps"]);
    policy["spec"]["validations"] = json!([{"expression": "object.data.b != 'y!'"}]);
    served.create(GROUP, "ValidatingAdmissionPolicy", "", policy).await.unwrap();
    served.create(GROUP, "ValidatingAdmissionPolicyBinding", "", binding).await.unwrap();
    let refused = served.create("", "ConfigMap", "default", json!({"metadata": {"name": "y"}})).await.unwrap_err();
    assert!(refused.ends_with("denied request: failed expression: object.data.b != 'y!'"), "{refused}");
    served.end().await;
}

#[tokio::test]
async fn a_policy_that_wants_to_is_asked_again_after_later_changes() {
    let served = served().await;
    let seen = [("ApplyConfiguration", "Object{data: Object.data{seen: object.?data.?late.orValue('no')}}")];
    served.install(changing("a", "IfNeeded", &seen)).await;
    served.install(changing("b", "Never", &[("ApplyConfiguration", "Object{data: Object.data{late: 'yes'}}")])).await;
    served.create("", "ConfigMap", "default", json!({"metadata": {"name": "x"}})).await.unwrap();
    assert_eq!(served.data("x").await, json!({"seen": "yes", "late": "yes"}));
    served.end().await;
}

#[tokio::test]
async fn a_policy_that_fails_refuses_unless_it_fails_open() {
    let served = served().await;
    let [mut policy, binding] = changing("bad", "Never", &[("ApplyConfiguration", "Object{data: Object.date{}}")]);
    served.install([policy.clone(), binding]).await;
    let refused = served.create("", "ConfigMap", "default", json!({"metadata": {"name": "x"}})).await.unwrap_err();
    let why = "type mismatch: unexpected type name \"Object.date\", expected \"Object.data\", which matches field name path \
               from root Object type";
    assert_eq!(refused, format!("policy 'bad' with binding 'bad' denied request: {why}"));
    let kind = served.registry.kind(GROUP, "MutatingAdmissionPolicy").unwrap();
    served.registry.delete(&kind, "", "bad", &DeleteOptions::default()).await.unwrap();
    policy["spec"]["failurePolicy"] = "Ignore".into();
    served.create(GROUP, "MutatingAdmissionPolicy", "", policy).await.unwrap();
    served.create("", "ConfigMap", "default", json!({"metadata": {"name": "x"}})).await.unwrap();
    assert_eq!(served.data("x").await, Value::Null);
    served.end().await;
}
