//! What the embedded server knows of the built-in kinds, against a real kube-apiserver: what it stores of good objects,
//! what it says of bad ones, what updates come to, and what its discovery lists.
//!
//! `kinds/good.json` has a name, a path and a body in each line; `kinds/bad.json` and `kinds/updates.json` the name of
//! a good body, what to set in it (by JSON pointer) and what to take out.

use std::sync::Arc;

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kubefold_apiserver::{
    kinds::{Kind, built_in},
    registry::Env,
    schema::builtin,
    serve::{self, ApiServer, Settings},
    storage::Memory,
};
use kubefold_wire::body::full;
use serde_json::{Map, Value, json};

use testbed::{Api, Member, MemberOptions};

/// Fixed in the bodies; all other ports of nodes are given.
const NODE_PORTS: [i64; 5] = [30123, 30124, 30555, 30556, 30999];

/// A real server and ours, with what pods need.
struct Bed {
    api: Api,
    ours: ApiServer,
    _member: Member,
}

impl Bed {
    async fn start() -> Self {
        let member = Member::start("kinds", MemberOptions::default()).await;
        let registry = serve::built_in(Arc::new(Memory::default()), Env::default());
        serve::bootstrap(&registry).await.unwrap();
        let ours = ApiServer::new(registry, Settings::new("v1.36.3"));
        let bed = Self { api: member.api().await, ours, _member: member };
        let plain = json!({
            "metadata": {"name": "plain"}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "p"}],
        });
        let default = json!({"metadata": {"name": "default"}});
        bed.make("/api/v1/namespaces", &json!({"metadata": {"name": "limited"}})).await;
        for (namespace, account) in [("limited", &default), ("default", &default), ("default", &plain)] {
            bed.make(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
        }
        bed
    }

    /// Creates in both.
    async fn make(&self, path: &str, body: &Value) -> (Value, Value) {
        let (real, ours) = self.both(Method::POST, path, body, body).await;
        assert!(real.0 == 201 && ours.0 == 201, "{path} {body}: real {real:?}, ours {ours:?}");
        (real.1, ours.1)
    }

    /// What each answers.
    async fn both(&self, method: Method, path: &str, real: &Value, ours: &Value) -> ((u16, Value), (u16, Value)) {
        let answer = self.api.request(method.clone(), path, real.to_string()).await;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(full(ours.to_string()))
            .unwrap();
        let (parts, body) = self.ours.answer(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let ours = serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{path}: {body:?}"));
        ((answer.status.as_u16(), answer.json()), (parts.status.as_u16(), ours))
    }
}

fn good() -> Map<String, Value> {
    serde_json::from_str(include_str!("kinds/good.json")).unwrap()
}

/// A good body, changed.
fn changed(body: &Value, set: &Value, remove: &Value) -> Value {
    let mut body = body.clone();
    for (pointer, value) in set.as_object().unwrap() {
        place(&mut body, pointer, expanded(value));
    }
    for pointer in remove.as_array().unwrap() {
        let (parent, last) = pointer.as_str().unwrap().rsplit_once('/').unwrap();
        let last = last.replace("~1", "/");
        body.pointer_mut(parent).and_then(Value::as_object_mut).unwrap_or_else(|| panic!("{pointer}")).remove(&last);
    }
    body
}

/// `{"$x": 3}` is `xxx`.
fn expanded(value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.contains_key("$x") => {
            "x".repeat(usize::try_from(fields["$x"].as_u64().unwrap()).unwrap()).into()
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), expanded(value))).collect(),
        other => other.clone(),
    }
}

fn place(body: &mut Value, pointer: &str, value: Value) {
    let mut at = body;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/");
        at = match at {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            object => &mut object[part.as_str()],
        };
    }
    *at = value;
}

/// Without what each server has of its own: identity, time, owners of fields, given addresses and ports, made up names.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        metadata.shift_remove(field);
    }
    hide(&mut object);
    object
}

fn hide(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("10.96.") && text != "10.96.0.77" => "given".clone_into(text),
        Value::String(text) if text.starts_with("kube-api-access-") => "kube-api-access-".clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_i64()) {
                    ("lastTransitionTime" | "lastPhaseTransitionTime", _) if value.is_string() => {
                        *value = "then".into()
                    }
                    ("nodePort" | "healthCheckNodePort", Some(port)) if !NODE_PORTS.contains(&port) => {
                        *value = "given".into();
                    }
                    _ => hide(value),
                }
            }
        }
        _ => {}
    }
}

/// Without UIDs, which stand in messages too.
fn without_uids(status: &Value) -> String {
    let text = status.to_string();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.char_indices().map(|(at, _)| at).find(|at| {
        rest.get(*at..at + 36).is_some_and(|word| {
            word.char_indices().all(|(index, c)| match index {
                8 | 13 | 18 | 23 => c == '-',
                _ => c.is_ascii_hexdigit(),
            })
        })
    }) {
        out.push_str(&rest[..at]);
        out.push_str("UID");
        rest = &rest[at + 36..];
    }
    out + rest
}

/// Without what messages show of Go's own types: differences at their end, and whole templates of pods.
fn without_diff(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let text = text.split('\n').next().unwrap_or_default();
            let template = text.split_once("Invalid value: {").zip(text.rsplit_once("}: field is immutable"));
            match template {
                Some(((before, shown), (_, after))) if shown.to_lowercase().contains("\"containers\"") => {
                    format!("{before}Invalid value: {{}}: field is immutable{after}").into()
                }
                _ => text.into(),
            }
        }
        Value::Array(items) => items.iter().map(without_diff).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), without_diff(value))).collect(),
        other => other.clone(),
    }
}

/// Both as texts, so that the order of fields counts.
fn compare(name: &str, real: &Value, ours: &Value, wrong: &mut Vec<String>) {
    let (real, ours) = (without_uids(real), without_uids(ours));
    if real != ours {
        wrong.push(format!("{name}\n  real {real}\n  ours {ours}"));
    }
}

#[tokio::test]
async fn objects_are_stored_and_refused_as_by_a_kube_apiserver() {
    let bed = Bed::start().await;
    let (good, mut wrong) = (good(), Vec::new());
    for (name, case) in &good {
        let path = case[0].as_str().unwrap();
        let (real, ours) = bed.both(Method::POST, path, &case[1], &case[1]).await;
        assert_eq!(real.0, 201, "{name}: {}", real.1);
        if ours.0 == 201 {
            compare(name, &comparable(&real.1), &comparable(&ours.1), &mut wrong);
        } else {
            wrong.push(format!("{name}: refused: {}", ours.1));
        }
    }
    let count = wrong.len();
    let bad: Vec<Value> = serde_json::from_str(include_str!("kinds/bad.json")).unwrap();
    for case in &bad {
        let base = &good[case[0].as_str().unwrap()];
        let path = base[0].as_str().unwrap();
        let mut body = base[1].clone();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        // A name that is free, but for kinds whose names say what they are.
        if !name.contains(".example.com") {
            body["metadata"]["name"] = format!("x-{}", name.replace(':', "-")).into();
        }
        let body = changed(&body, &case[1], &case[2]);
        let (real, ours) = bed.both(Method::POST, path, &body, &body).await;
        assert!((400..500).contains(&real.0), "{case}: {}", real.0);
        let made_up = body["metadata"]["name"] == "";
        compare(&case.to_string(), &told(&real.1, made_up), &told(&ours.1, made_up), &mut wrong);
    }
    assert!(
        wrong.is_empty(),
        "{count} of {}, {} of {} differ:\n{}",
        good.len(),
        wrong.len() - count,
        bad.len(),
        wrong.join("\n")
    );
}

/// A kube-apiserver looks at the keys of a map in another order each time: several causes are compared sorted, without the
/// message that lists them.
fn in_one_order(mut status: Value) -> Value {
    let causes = status.pointer_mut("/details/causes").and_then(Value::as_array_mut).filter(|causes| causes.len() > 1);
    let Some(causes) = causes else { return status };
    causes.sort_by_key(|cause| (cause["field"].to_string(), cause.to_string()));
    let message = status["message"].as_str().unwrap_or_default();
    status["message"] = message.split(" is invalid: ").next().unwrap_or_default().into();
    status
}

/// A refusal without the name that the server made up, and without differences of Go's own types.
fn told(status: &Value, made_up: bool) -> Value {
    let status = without_diff(status);
    let name = status["details"]["name"].as_str().unwrap_or_default();
    if !made_up || name.is_empty() {
        return in_one_order(status);
    }
    in_one_order(serde_json::from_str(&status.to_string().replace(name, "NAME")).unwrap())
}

#[tokio::test]
async fn updates_come_to_the_same_as_by_a_kube_apiserver() {
    let bed = Bed::start().await;
    let (good, mut wrong) = (good(), Vec::new());
    let updates: Vec<Value> = serde_json::from_str(include_str!("kinds/updates.json")).unwrap();
    for (index, case) in updates.iter().enumerate() {
        let base = &good[case[0].as_str().unwrap()];
        let path = base[0].as_str().unwrap();
        let mut body = base[1].clone();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        // Each update has an object of its own, but for kinds whose names say what they are, and fixed addresses.
        let fixed = name.contains(".example.com") || matches!(&*name, "svc-fixed" | "svc-rich");
        let name = if fixed { name } else { format!("u{index}-{name}") };
        body["metadata"]["name"] = name.clone().into();
        let one = format!("{path}/{name}");
        let (real, ours) = bed.make(path, &body).await;
        let (real, ours) = (changed(&real, &case[1], &case[2]), changed(&ours, &case[1], &case[2]));
        let (real, ours) = bed.both(Method::PUT, &one, &real, &ours).await;
        if real.0 == 200 && ours.0 == 200 {
            compare(&case.to_string(), &comparable(&real.1), &comparable(&ours.1), &mut wrong);
        } else {
            compare(&case.to_string(), &told(&real.1, false), &told(&ours.1, false), &mut wrong);
        }
        if fixed {
            let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
            bed.both(Method::DELETE, &one, &now, &now).await;
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), updates.len(), wrong.join("\n"));
}

#[tokio::test]
async fn discovery_lists_the_kinds_as_a_kube_apiserver_does() {
    let bed = Bed::start().await;
    let mut real: Vec<(String, String, Value)> = Vec::new();
    for path in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let request = Request::get(path).header(header::ACCEPT, accept).body(bytes::Bytes::new()).unwrap();
        for group in bed.api.send(request).await.unwrap().json()["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    let name = group["metadata"]["name"].as_str().unwrap_or_default();
                    real.push((name.into(), version["version"].as_str().unwrap().into(), resource.clone()));
                }
            }
        }
    }
    // Those that we serve, in the order of the real ones.
    let kinds = built_in(&builtin());
    let served = |group: &str, version: &str, plural: &Value| {
        kinds.iter().any(|kind| kind.group == group && kind.version == version && plural == &*kind.plural)
    };
    real.retain(|(group, version, resource)| served(group, version, &resource["resource"]));
    let ours: Vec<_> = kinds.iter().map(|kind| (kind.group.clone(), kind.version.clone(), listed(kind))).collect();
    assert_eq!(ours, real);
}

/// A kind as aggregated discovery lists it.
fn listed(kind: &Kind) -> Value {
    let mut resource = json!({
        "resource": kind.plural, "responseKind": {"group": "", "version": "", "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    let words = [("shortNames", &kind.short_names), ("categories", &kind.categories)];
    for (field, words) in words.into_iter().filter(|(_, words)| !words.is_empty()) {
        resource[field] = json!(words);
    }
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| {
            let (group, version) = (sub.group.clone().unwrap_or_default(), sub.version.clone().unwrap_or_default());
            let kind = json!({"group": group, "version": version, "kind": sub.kind});
            json!({"subresource": sub.name, "responseKind": kind, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}
