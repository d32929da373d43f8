//! The embedded API server and a kube-apiserver, asked the same: bodies with wrong types, unknown fields and fields that
//! are there twice; definitions of custom resources, good and bad; and objects of them. Codes, messages, warnings and
//! what is stored agree.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt;
use kubefold_apiserver::{
    definitions::Definitions,
    registry::Env,
    serve::{ApiServer, Settings, bootstrap, built_in},
    storage::Memory,
};
use kubefold_wire::body::full;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use testbed::{Api, Member, MemberOptions, eventually};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";

/// For a definition to be served, or gone.
const SOON: Duration = Duration::from_secs(30);

/// Definitions and what a kube-apiserver says of them.
const ANSWERS: &str = include_str!("../../src/definitions/answers.json");
/// A schema with every kind of check.
const WIDGET: &str = include_str!("../../src/schema/validate/widget.json");

/// Bodies of built-in kinds.
const BODIES: &[(&str, &str)] = &[
    (DEPLOYMENTS, r#"{"spec":{"replicas":"3"}}"#),
    (DEPLOYMENTS, r#"{"spec":{"replicas":1.5}}"#),
    (DEPLOYMENTS, r#"{"spec":{"replicas":30000000000}}"#),
    (DEPLOYMENTS, r#"{"spec":[]}"#),
    (DEPLOYMENTS, r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#),
    (DEPLOYMENTS, r#"{"spec":{"template":{"spec":{"containers":[{"name":7,"ports":[{"containerPort":"x"}]}]}}}}"#),
    (DEPLOYMENTS, r#"{"metadata":{"labels":{"a":1}}}"#),
    (DEPLOYMENTS, r#"{"metadata":{"labels":[]}}"#),
    (DEPLOYMENTS, r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"}"#),
    (DEPLOYMENTS, "x"),
    (DEPLOYMENTS, ""),
    (DEPLOYMENTS, "[]"),
    (DEPLOYMENTS, r#"{"kind":"Pod","apiVersion":"v1"}"#),
    (DEPLOYMENTS, r#"{"kind":"Pody","apiVersion":"apps/v1"}"#),
    (DEPLOYMENTS, r#"{"kind":7,"apiVersion":"apps/v1"}"#),
    (PODS, r#"{"metadata":{"name":"a","creationTimestamp":"x"}}"#),
    (PODS, r#"{"metadata":{"name":"a","creationTimestamp":"2020-13-01T00:00:00Z"}}"#),
    (PODS, r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#),
    (PODS, r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1kk"}}}]}}"#),
    (PODS, r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#),
    (PODS, r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":1.5}}}]}}"#),
    (PODS, r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":{}}}}]}}"#),
    (PODS, r#"{"spec":{"volumes":[{"name":"a","hostPath":7}]}}"#),
    (PODS, r#"{"spec":true}"#),
    (PODS, r#"{"metadata":7}"#),
    (SECRETS, r#"{"data":{"a":"***"}}"#),
    (SECRETS, r#"{"data":{"a":7}}"#),
    (SECRETS, r#"{"metadata":{"name":"a","labels":{"a":null},"foo":{"a":1}},"data":{"a":null,"b":"YQ==","b":"Yg=="}}"#),
    (
        DEPLOYMENTS,
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"x\"y":1,
        "spec":{"foo":1,"replicas":2,"Replicas":3,"replicas":0,"selector":{"matchLabels":{"b":"1","a":"2"}},
        "template":{"metadata":{"labels":{"b":"1","a":"2"}},"spec":{"containers":[{"nam":3,"name":"c","image":"i",
        "resources":{"limits":{"cpu":"1000m","memory":"1024Mi"}}}]}}}}"#,
    ),
];

/// Specs of widgets.
const SPECS: &[&str] = &[
    r#"{"size":1}"#,
    "{}",
    r#"{"size":null}"#,
    r#"{"size":0}"#,
    r#"{"size":11}"#,
    r#"{"size":"x"}"#,
    r#"{"size":1.5}"#,
    r#"{"size":99999999999}"#,
    r#"{"size":1,"ratio":0}"#,
    r#"{"size":1,"ratio":0.7}"#,
    r#"{"size":1,"big":1000001}"#,
    r#"{"size":1,"big":1000000.5}"#,
    r#"{"size":1,"name":"a"}"#,
    r#"{"size":1,"name":"abcdef"}"#,
    r#"{"size":1,"name":"AB"}"#,
    r#"{"size":1,"mode":"C"}"#,
    r#"{"size":1,"num":3}"#,
    r#"{"size":1,"port":true}"#,
    r#"{"size":1,"list":[]}"#,
    r#"{"size":1,"list":["a","b","c"]}"#,
    r#"{"size":1,"list":["a",1]}"#,
    r#"{"size":1,"set":["a","b","a"]}"#,
    r#"{"size":1,"map":[{"k":"a"},{"k":"a"}]}"#,
    r#"{"size":1,"map":[{"v":1}]}"#,
    r#"{"size":1,"dict":{}}"#,
    r#"{"size":1,"dict":{"a":1,"b":2,"c":3}}"#,
    r#"{"size":1,"dict":{"a":-1}}"#,
    r#"{"size":1,"dict":{"a":"x"}}"#,
    r#"{"size":1,"when":"x"}"#,
    r#"{"size":1,"ip":"x"}"#,
    r#"{"size":1,"one":{}}"#,
    r#"{"size":1,"one":{"a":1,"b":1}}"#,
    r#"{"size":1,"anyof":{"a":1}}"#,
    r#"{"size":1,"anyof":{}}"#,
    r#"{"size":1,"allof":8}"#,
    r#"{"size":1,"not":"bad"}"#,
    r#"{"size":1,"nonnul":null,"nul":null}"#,
    r#"{"size":1,"emb":{}}"#,
    r#"{"size":1,"emb":{"apiVersion":"v1","kind":"x","metadata":{"labels":{"a":7}}}}"#,
    "[]",
    "7",
    "null",
    r#"{"size":1,"set":[{"a":1}]}"#,
    r#"{"size":1,"foo":1,"sub":{"q":1,"y":{"z":"a","w":2}},"open":{"a":1,"typed":{"b":1}},"any":{"x":1},
        "map":[{"k":"a","z":1}],"emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","foo":1},"spec":{"a":1}},
        "size":2}"#,
];

/// What one server answered.
struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Answer {
    /// What of it any two servers have alike. Causes come in no order.
    fn told(&self) -> String {
        let Self { code, warnings, body } = self;
        if body["kind"] != "Status" {
            let mut object = body.clone();
            for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                object["metadata"].as_object_mut().unwrap().shift_remove(name);
            }
            // Two servers may do it in different seconds.
            for condition in
                object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
            {
                condition.as_object_mut().unwrap().shift_remove("lastTransitionTime");
            }
            // Custom resources have their keys in the order of Go's structs here, and in that of the alphabet there.
            let object = if object["kind"] == "Widget" { plain(&object) } else { object };
            return format!("{code} {warnings:?} {object}");
        }
        let causes: BTreeSet<_> =
            body["details"]["causes"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let message = body["message"].as_str().unwrap_or_default();
        let message = if causes.len() > 1 { "" } else { message };
        // A kube-apiserver warns of what it refuses, too.
        format!("{code} {} {message} {causes:?}", body["reason"])
    }
}

enum Server {
    Real(Box<Api>),
    Embedded(ApiServer),
}

impl Server {
    async fn send(&self, method: &'static str, path: &str, body: &str) -> Answer {
        let request = Request::builder()
            .method(method.parse::<Method>().unwrap())
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "e2e/1");
        match self {
            Self::Real(api) => {
                let answer = api.send(request.body(body.to_owned().into()).unwrap()).await.unwrap();
                let warnings = warnings(&answer.headers);
                Answer {
                    code: answer.status.as_u16(),
                    warnings,
                    body: serde_json::from_slice(&answer.body).unwrap_or_default(),
                }
            }
            Self::Embedded(server) => {
                let answer = server.answer(request.body(full(body.to_owned())).unwrap()).await;
                let (code, warnings) = (answer.status().as_u16(), warnings(answer.headers()));
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                Answer { code, warnings, body: serde_json::from_slice(&body).unwrap_or_default() }
            }
        }
    }
}

impl Server {
    /// Waits until a path answers with a code.
    async fn comes_to(&self, path: &str, code: u16) {
        eventually(SOON, async || match self.send("GET", path, "").await.code {
            now if now == code => Ok(()),
            now => Err(format!("{path} answers {now}")),
        })
        .await;
    }
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(header::WARNING).iter().map(|value| value.to_str().unwrap().to_owned());
    // Ours alone says that rules are not evaluated.
    all.filter(|warning| !warning.contains("x-kubernetes-validations")).collect()
}

struct Both {
    real: Server,
    embedded: Server,
    wrong: String,
}

impl Both {
    async fn ask(&mut self, method: &'static str, path: &str, body: &str) {
        let (said, told) = (self.real.send(method, path, body).await, self.embedded.send(method, path, body).await);
        let (said, told) = (said.told(), told.told());
        if said != told {
            self.wrong.push_str(&format!("{method} {path} {body}\n  said {said}\n  told {told}\n\n"));
        }
    }

    async fn bodies(&mut self) {
        for (path, body) in BODIES {
            for validation in ["Strict", "Warn", "Ignore"] {
                self.ask("POST", &format!("{path}?dryRun=All&fieldValidation={validation}"), body).await;
            }
        }
    }

    async fn definitions(&mut self) {
        let cases: Vec<Value> = serde_json::from_str(ANSWERS).unwrap();
        for case in cases {
            self.ask("POST", &format!("{DEFINITIONS}?dryRun=All"), &case["body"].to_string()).await;
        }
    }

    async fn widgets(&mut self) {
        let schema: Value = serde_json::from_str(WIDGET).unwrap();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale":
                        {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }],
            },
        });
        self.ask("POST", DEFINITIONS, &definition.to_string()).await;
        for server in [&self.real, &self.embedded] {
            server.comes_to(WIDGETS, 200).await;
        }
        self.ask("GET", &format!("{DEFINITIONS}/widgets.example.com"), "").await;
        for spec in SPECS {
            let body = format!(
                r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{spec},"status":{{"size":7}}}}"#
            );
            for validation in ["Strict", "Warn"] {
                self.ask("POST", &format!("{WIDGETS}?dryRun=All&fieldValidation={validation}"), &body).await;
            }
        }
        for body in ["{}", r#"{"kind":"Widget"}"#, r#"{"apiVersion":"example.com/v2","kind":"Widget"}"#, "[]", "x"] {
            self.ask("POST", WIDGETS, body).await;
        }
        let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "kept"},
            "spec": {"size": 2}});
        self.ask("POST", WIDGETS, &body.to_string()).await;
        self.ask("GET", &format!("{WIDGETS}/kept/scale"), "").await;
        for server in [&self.real, &self.embedded] {
            let deleted = server.send("DELETE", &format!("{DEFINITIONS}/widgets.example.com"), "").await;
            let finalizers = &deleted.body["metadata"]["finalizers"];
            assert_eq!((deleted.code, finalizers), (200, &json!(["customresourcecleanup.apiextensions.k8s.io"])));
            server.comes_to(WIDGETS, 404).await;
        }
    }

    /// The types of OpenAPI documents are those of a kube-apiserver, but for descriptions.
    async fn documents(&mut self) {
        for path in ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/batch/v1"] {
            let real = self.real.send("GET", path, "").await.body;
            let embedded = self.embedded.send("GET", path, "").await.body;
            let schemas = embedded["components"]["schemas"].as_object().unwrap();
            assert!(schemas.len() > 20, "{path}");
            for (name, schema) in schemas {
                let (said, told) = (plain(&real["components"]["schemas"][name]), plain(schema));
                if said != told {
                    self.wrong.push_str(&format!("{path} {name}\n  said {said}\n  told {told}\n\n"));
                }
            }
        }
    }
}

/// What a kube-apiserver says beside types.
const MORE: [&str; 3] = ["x-kubernetes-group-version-kind", "x-kubernetes-unions", "enum"];

/// A schema without that, without descriptions, and without the wrapping of references that have one.
pub(super) fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let is_dropped =
                |name: &str, value: &Value| name == "description" && value.is_string() || MORE.contains(&name);
            let kept = object.iter().filter(|(name, value)| !is_dropped(name, value));
            let kept: std::collections::BTreeMap<_, _> =
                kept.map(|(name, value)| (name.clone(), plain(value))).collect();
            match kept.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) if kept.len() == 1 => only.clone(),
                _ => Value::Object(kept.into_iter().collect()),
            }
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

#[tokio::test]
async fn bodies_and_definitions_come_out_as_at_a_kube_apiserver() {
    let east = Member::start("east", MemberOptions::default()).await;
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let mut definitions = Definitions::new(registry.clone()).unwrap();
    let embedded = ApiServer::new(registry, Settings::new("v1.36.2"));
    let mut both = Both {
        real: Server::Real(Box::new(east.api().await)),
        embedded: Server::Embedded(embedded),
        wrong: String::new(),
    };
    let cancel = CancellationToken::new();
    let script = async move {
        for server in [&both.real, &both.embedded] {
            server.send("POST", "/api/v1/namespaces", r#"{"metadata":{"name":"shop"}}"#).await;
            let accounts = "/api/v1/namespaces/shop/serviceaccounts";
            server.send("POST", accounts, r#"{"metadata":{"name":"default"}}"#).await;
        }
        both.bodies().await;
        both.definitions().await;
        both.documents().await;
        both.widgets().await;
        both.wrong
    };
    let wrong = tokio::select! {
        ended = definitions.run(&cancel) => panic!("it ended: {ended:?}"),
        wrong = script => wrong,
    };
    assert!(wrong.is_empty(), "{wrong}");
}
