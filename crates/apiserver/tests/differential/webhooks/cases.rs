//! Webhooks, each about the objects with the name of its case as a label, and what is written then.

use serde_json::{Value, json};

use super::{MAPS, MUTATING, VALIDATING};
use crate::writes::{Step, step};

pub(super) const WIDGETS: &str = "/apis/hooks.example.com/v1/namespaces/shop/widgets";

/// Where a webhook is.
pub(super) enum Place {
    /// It answers as this says.
    Path(&'static str),
    /// It has a certificate of another authority than its configuration says.
    OtherAuthority,
    /// Nobody listens.
    Closed,
    /// A service with the port of the webhook.
    Service(&'static str),
    ServicePort(&'static str, u16),
}

/// A webhook, with what is not said by default.
struct Hook {
    mutates: bool,
    place: Place,
    spec: Value,
}

pub(super) struct Case {
    name: &'static str,
    hooks: Vec<Hook>,
    pub(super) steps: Vec<Step>,
}

fn validating(kind: &'static str, spec: Value) -> Hook {
    Hook { mutates: false, place: Place::Path(kind), spec }
}

fn mutating(kind: &'static str, spec: Value) -> Hook {
    Hook { mutates: true, place: Place::Path(kind), spec }
}

impl Case {
    /// A configuration for each webhook, with the path to post it to.
    pub(super) fn configurations(&self, client_config: impl Fn(&Place) -> Value) -> Vec<(&'static str, Value)> {
        let of = |(at, hook): (usize, &Hook)| {
            let name = format!("{}-{at}", self.name);
            let mut webhook = json!({
                "name": format!("{name}.example.com"), "clientConfig": client_config(&hook.place),
                "rules": rules(&[""], &["v1"], &["configmaps"]), "objectSelector": {"matchLabels": {"case": self.name}},
                "sideEffects": "None", "admissionReviewVersions": ["v1", "v1beta1"],
            });
            for (field, value) in hook.spec.as_object().unwrap() {
                webhook[field] = value.clone();
            }
            let path = if hook.mutates { MUTATING } else { VALIDATING };
            (path, json!({"metadata": {"name": name}, "webhooks": [webhook]}))
        };
        self.hooks.iter().enumerate().map(of).collect()
    }
}

fn rules(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!([{"apiGroups": groups, "apiVersions": versions, "operations": ["*"], "resources": resources}])
}

fn case(name: &'static str, hooks: Vec<Hook>, steps: Vec<Step>) -> Case {
    Case { name, hooks, steps }
}

fn map(case: &str, name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"case": case}}, "data": {"a": "1"}})
}

fn posted(case: &str) -> Step {
    step("POST", MAPS, map(case, case))
}

/// A case of one webhook, and one config map that is created.
fn one(name: &'static str, hook: Hook) -> Case {
    case(name, vec![hook], vec![posted(name)])
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = answers();
    all.extend(failures());
    all.extend(patches());
    all.extend(rounds());
    all.extend(matching());
    all.extend(subresources());
    all.extend(others());
    all.push(one("last-mutating", mutating("deny", json!({}))));
    all.push(one("last-validating", validating("deny", json!({}))));
    all
}

/// What a webhook says comes to.
fn answers() -> Vec<Case> {
    let plain = vec![
        posted("allowed"),
        step("PUT", "/api/v1/namespaces/shop/configmaps/allowed", map("allowed", "allowed")),
        step("PATCH", "/api/v1/namespaces/shop/configmaps/allowed", json!({"data": {"b": "2"}})),
        step(
            "PATCH",
            "/api/v1/namespaces/shop/configmaps/allowed?fieldManager=applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "allowed", "labels": {"case": "allowed"}}, "data": {"c": "d"}}),
        ),
        step(
            "PATCH",
            "/api/v1/namespaces/shop/configmaps/applied?fieldManager=applier",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "labels": {"case": "allowed"}}}),
        ),
        step("POST", "/api/v1/namespaces/shop/configmaps?dryRun=All", map("allowed", "dry")),
        step("POST", MAPS, json!({"metadata": {"generateName": "made-", "labels": {"case": "allowed"}}})),
        // It is invalid: nobody is asked to validate it.
        step("POST", MAPS, json!({"metadata": {"name": "A b", "labels": {"case": "allowed"}}})),
        step(
            "PUT",
            "/api/v1/namespaces/shop/configmaps/allowed",
            json!({"metadata": {"name": "allowed", "labels": {"case": "allowed"}, "resourceVersion": "1"}}),
        ),
        step("DELETE", "/api/v1/namespaces/shop/configmaps/allowed?dryRun=All", Value::Null),
        step("DELETE", "/api/v1/namespaces/shop/configmaps?labelSelector=case%3Dallowed", Value::Null),
    ];
    vec![
        case("allowed", vec![validating("allow", json!({})), mutating("allow", json!({}))], plain),
        one("denied", validating("deny", json!({}))),
        one("denied-m", mutating("deny", json!({}))),
        one("bare", validating("bare", json!({}))),
        one("reason", validating("reason", json!({}))),
        one("success", mutating("success", json!({}))),
        one("full", validating("full", json!({}))),
        one("warns", validating("warn", json!({}))),
        one("warns-m", mutating("warn", json!({}))),
        case(
            "several",
            vec![validating("also-a", json!({})), validating("also-b", json!({})), validating("deny", json!({}))],
            vec![posted("several")],
        ),
        one("warns-denied", validating("warn-deny", json!({}))),
        case(
            "beta",
            ["trace-1", "type-alone", "other-type", "other-uid", "other-kind"]
                .map(|kind| mutating(kind, json!({"admissionReviewVersions": ["v1beta1", "v1"]})))
                .into(),
            vec![posted("beta")],
        ),
        one("beta-validating", validating("label", json!({"admissionReviewVersions": ["v1beta1"]}))),
        one("old-version", validating("allow", json!({"admissionReviewVersions": ["v0", "v1"]}))),
    ]
}

/// Webhooks that cannot be asked, or answer what is no answer.
fn failures() -> Vec<Case> {
    let ignored = |mut hook: Hook| {
        hook.spec["failurePolicy"] = "Ignore".into();
        hook
    };
    let at = |mutates: bool, place: Place| Hook { mutates, place, spec: json!({}) };
    let brief = || json!({"timeoutSeconds": 1});
    vec![
        one("silent", validating("silent", brief())),
        one("silent-ignored", ignored(mutating("silent", brief()))),
        one("closed", at(false, Place::Closed)),
        one("closed-m", at(true, Place::Closed)),
        one("closed-ignored", ignored(at(false, Place::Closed))),
        one("authority", at(false, Place::OtherAuthority)),
        one("broken", validating("broken", json!({}))),
        one("broken-ignored", ignored(validating("broken", json!({})))),
        one("empty", validating("empty", json!({}))),
        one("no-response", mutating("no-response", json!({}))),
        one("other-uid", validating("other-uid", json!({}))),
        one("other-kind", validating("other-kind", json!({}))),
        one("text-500", validating("text-500", json!({}))),
        one("text-404", mutating("text-404", json!({}))),
        one("patches", validating("label", json!({}))),
        one("types", validating("type-alone", json!({}))),
        one("external", at(false, Place::Service("named"))),
        one("unserved", at(false, Place::Service("nope"))),
        one("headless", at(false, Place::Service("headless"))),
        one("portless", at(true, Place::ServicePort("plain", 444))),
    ]
}

/// What patches make of an object.
fn patches() -> Vec<Case> {
    vec![
        one("patch-alone", mutating("patch-alone", json!({}))),
        one("type-alone", mutating("type-alone", json!({}))),
        one("other-type", mutating("other-type", json!({}))),
        one("nothing", mutating("nothing", json!({}))),
        one("same", mutating("same", json!({}))),
        one("absent", mutating("absent", json!({}))),
        one("differs", mutating("differs", json!({}))),
        one("mistyped", mutating("mistyped", json!({}))),
        one("unknown-field", mutating("unknown-field", json!({}))),
        one("moved", mutating("moved", json!({}))),
        one("invalid", mutating("invalid", json!({}))),
        one("managers", mutating("managers", json!({}))),
        case(
            "renamed",
            vec![mutating("renamed", json!({}))],
            vec![
                posted("renamed"),
                step(
                    "PUT",
                    "/api/v1/namespaces/shop/configmaps/renamed-by-webhook",
                    map("renamed", "renamed-by-webhook"),
                ),
            ],
        ),
        case(
            "deleted",
            vec![mutating(
                "trace-1",
                json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]}),
            )],
            vec![posted("deleted"), step("DELETE", "/api/v1/namespaces/shop/configmaps/deleted", Value::Null)],
        ),
    ]
}

/// Several webhooks that change one object.
fn rounds() -> Vec<Case> {
    let again = || json!({"reinvocationPolicy": "IfNeeded"});
    let of_seen = |policy: Value| {
        let mut spec = policy;
        spec["objectSelector"] = json!({"matchLabels": {"case": "selected", "seen": "yes"}});
        spec
    };
    vec![
        case("order", vec![mutating("trace-1", json!({})), mutating("trace-2", json!({}))], vec![posted("order")]),
        case(
            "again",
            vec![
                mutating("trace-1", again()),
                mutating("trace-2", again()),
                mutating("trace-3", json!({})),
                validating("allow", json!({})),
            ],
            vec![
                posted("again"),
                step("PATCH", "/api/v1/namespaces/shop/configmaps/again", json!({"data": {"b": "2"}})),
            ],
        ),
        case("alone", vec![mutating("trace-1", again())], vec![posted("alone")]),
        case(
            "selected",
            vec![
                mutating("trace-0", of_seen(again())),
                mutating("label", json!({})),
                mutating("trace-1", of_seen(again())),
            ],
            vec![posted("selected")],
        ),
        // It is only asked when a test says so.
        case("held", vec![mutating("wait", json!({}))], Vec::new()),
    ]
}

/// Which writes a webhook is asked about.
fn matching() -> Vec<Case> {
    let conditions = |conditions: Value| json!({"matchConditions": conditions});
    let teams = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let of = |operations: &[&str], scope: &str| json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": ["*"], "scope": scope}]});
    let spaces = json!({"rules": rules(&[""], &["v1"], &["namespaces"]), "namespaceSelector": {"matchLabels": {"judged": "yes"}}, "objectSelector": {}});
    let failing = json!([{"name": "a", "expression": "object.data.nope == 'x'"}, {"name": "b", "expression": "object.nope.x == 1"}]);
    let mut open = conditions(failing.clone());
    open["failurePolicy"] = "Ignore".into();
    vec![
        case(
            "conditions",
            vec![validating(
                "deny",
                conditions(json!([
                {"name": "a", "expression": "request.operation != 'DELETE' && object.data.a != 'free'"},
                {"name": "b", "expression": "!('system:nobody' in request.userInfo.groups)"},
                {"name": "c", "expression": "authorizer.requestResource.check('create').allowed()"}])),
            )],
            vec![
                posted("conditions"),
                step(
                    "POST",
                    MAPS,
                    json!({"metadata": {"name": "conditions", "labels": {"case": "conditions"}}, "data": {"a": "free"}}),
                ),
                step("DELETE", "/api/v1/namespaces/shop/configmaps/conditions", Value::Null),
            ],
        ),
        one("failing", validating("allow", conditions(failing))),
        one("failing-open", mutating("deny", open)),
        case(
            "teams",
            vec![validating("deny", teams)],
            vec![posted("teams"), step("POST", "/api/v1/namespaces/default/configmaps", map("teams", "teams"))],
        ),
        case(
            "spaces",
            vec![validating("deny", spaces)],
            vec![
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "judged", "labels": {"judged": "yes"}}}),
                ),
                step("POST", "/api/v1/namespaces", json!({"metadata": {"name": "free"}})),
                step("PATCH", "/api/v1/namespaces/free", json!({"metadata": {"labels": {"judged": "yes"}}})),
            ],
        ),
        case(
            "cluster",
            vec![validating("deny", of(&["CREATE"], "Cluster"))],
            vec![
                posted("cluster"),
                step(
                    "POST",
                    "/api/v1/namespaces",
                    json!({"metadata": {"name": "cluster", "labels": {"case": "cluster"}}}),
                ),
                // Nobody locks himself out.
                step("POST", VALIDATING, json!({"metadata": {"name": "cluster", "labels": {"case": "cluster"}}})),
            ],
        ),
        case(
            "namespaced",
            vec![validating("deny", of(&["UPDATE"], "Namespaced"))],
            vec![
                posted("namespaced"),
                step("PATCH", "/api/v1/namespaces/shop/configmaps/namespaced", json!({"data": {"b": "2"}})),
            ],
        ),
    ]
}

fn labelled(case: &str) -> Value {
    json!({"name": case, "labels": {"case": case}})
}

fn subresources() -> Vec<Case> {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
    let labels = json!({"app": "scaled"});
    let deployment = json!({"metadata": labelled("scaled"), "spec": {
        "replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "scaled", "namespace": "shop"}, "spec": {"replicas": 5}});
    let of_scale = json!({"rules": rules(&["apps"], &["v1"], &["deployments/scale"]), "objectSelector": {}});
    let of_status = json!({"rules": rules(&["apps"], &["v1"], &["deployments/status"]), "objectSelector": {}});
    let of_token =
        json!({"rules": rules(&[""], &["v1"], &["serviceaccounts/token", "pods/eviction"]), "objectSelector": {}});
    let of_reviews = json!({"rules": rules(&["authorization.k8s.io"], &["v1"], &["selfsubjectaccessreviews"]), "objectSelector": {}});
    vec![
        case(
            "scaled",
            vec![mutating("scale", of_scale), validating("deny", of_status)],
            vec![
                step("POST", DEPLOYMENTS, deployment),
                step("PUT", "/apis/apps/v1/namespaces/shop/deployments/scaled/scale", scale),
                step("GET", "/apis/apps/v1/namespaces/shop/deployments/scaled/scale", Value::Null),
                step(
                    "PATCH",
                    "/apis/apps/v1/namespaces/shop/deployments/scaled/status",
                    json!({"status": {"replicas": 1}}),
                ),
            ],
        ),
        case(
            "posted",
            vec![validating("deny", of_token), validating("deny", of_reviews)],
            vec![
                step(
                    "POST",
                    "/api/v1/namespaces/shop/serviceaccounts/default/token",
                    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"], "expirationSeconds": 3600}}),
                ),
                step(
                    "POST",
                    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                    json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}),
                ),
            ],
        ),
    ]
}

/// Other kinds than config maps.
fn others() -> Vec<Case> {
    const SCALERS: &str = "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers";
    let scaler = |case: &str| {
        json!({"metadata": labelled(case), "spec": {
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
            "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}})
    };
    let of_v2 = |policy: &str| json!({"matchPolicy": policy, "rules": rules(&["autoscaling"], &["v2"], &["horizontalpodautoscalers"])});
    let of_pods = json!({"rules": rules(&[""], &["v1"], &["pods"])});
    let pod = |name: &str| json!({"metadata": {"name": name, "labels": {"case": "pods"}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}});
    let of_widgets = || json!({"rules": rules(&["hooks.example.com"], &["*"], &["widgets"])});
    let widget = |case: &str| json!({"apiVersion": "hooks.example.com/v1", "kind": "Widget", "metadata": labelled(case), "spec": {"size": 1}});
    vec![
        case(
            "equivalent",
            vec![mutating("target", of_v2("Equivalent"))],
            vec![step("POST", SCALERS, scaler("equivalent"))],
        ),
        case("exact", vec![mutating("target", of_v2("Exact"))], vec![step("POST", SCALERS, scaler("exact"))]),
        case(
            "pods",
            vec![mutating("sidecar", of_pods)],
            vec![step("POST", "/api/v1/namespaces/shop/pods", pod("sided"))],
        ),
        case("widgets", vec![mutating("widget", of_widgets())], vec![step("POST", WIDGETS, widget("widgets"))]),
        case(
            "broken-widgets",
            vec![mutating("break-widget", of_widgets())],
            vec![step("POST", WIDGETS, widget("broken-widgets"))],
        ),
    ]
}

/// A custom resource with defaults and pruning.
pub(super) fn widgets() -> Value {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}}});
    json!({
        "metadata": {"name": "widgets.hooks.example.com"},
        "spec": {
            "group": "hooks.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}
