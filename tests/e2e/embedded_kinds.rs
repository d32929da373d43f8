//! What the embedded server knows of the built-in kinds, against a real kube-apiserver: what it stores of good objects,
//! what it says of bad ones, what updates come to, and what its discovery lists.
//!
//! `kinds/good.json` has a name, a path and a body in each line; `kinds/bad.json` and `kinds/updates.json` the name of
//! a good body, what to set in it (by JSON pointer) and what to take out.

use http::{Method, Request, header};
use kubefold::{
    apiserver::{
        kinds::{Allocator, Context, Kind, built_in},
        schema::builtin,
    },
    wire::status::{Cause, Status},
};
use serde_json::{Map, Value, json};

use crate::support::{Api, Member, MemberOptions};

const SUFFIX: &str = "abcde";
/// Where pods are that a LimitRange bounds.
const LIMITED: &str = "/limited/";

/// A real server with what pods need, and all that ours knows of it.
struct Bed {
    api: Api,
    kinds: Vec<Kind>,
    allocator: Allocator,
    /// Objects that admission looks at.
    others: Vec<Value>,
    _member: Member,
}

impl Bed {
    async fn start() -> Self {
        let member = Member::start("kinds", MemberOptions::default()).await;
        let api = member.api().await;
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": "limited"}})).await;
        let mut others = Vec::new();
        let plain = json!({
            "metadata": {"name": "plain"}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "p"}],
        });
        let default = json!({"metadata": {"name": "default"}});
        for (namespace, account) in [("limited", &default), ("default", &default), ("default", &plain)] {
            let mut made = api.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
            made["kind"] = "ServiceAccount".into();
            others.push(made);
        }
        let kinds = built_in(&builtin());
        Self { api, kinds, allocator: Allocator::default(), others, _member: member }
    }

    fn kind(&self, path: &str) -> (&Kind, String) {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => panic!("{path}"),
        };
        let (namespace, plural) = match rest {
            ["namespaces", namespace, plural] => (*namespace, *plural),
            [plural] => ("", *plural),
            _ => panic!("{path}"),
        };
        let same = |kind: &&Kind| kind.group == group && kind.version == version && kind.plural == plural;
        (self.kinds.iter().find(same).unwrap_or_else(|| panic!("{path}")), namespace.to_owned())
    }

    /// What ours makes of a create. `like` is what the real one made: who it is and since when are the server's.
    fn create(&self, path: &str, body: &Value, like: &Value) -> Result<Value, Value> {
        let (kind, namespace) = self.kind(path);
        let strategy = &kind.strategy;
        let mut object = body.clone();
        if kind.namespaced {
            object["metadata"]["namespace"] = namespace.into();
        }
        strategy.default(&mut object);
        let bounded = path.contains(LIMITED);
        let others: Vec<Value> =
            self.others.iter().filter(|other| bounded || other["kind"] != "LimitRange").cloned().collect();
        let now = like["metadata"]["creationTimestamp"].as_str().unwrap_or("2026-01-01T00:00:00Z");
        let context = Context { now, suffix: SUFFIX, allocator: &self.allocator, others: &others };
        strategy.admit(&mut object, context).map_err(|status| value_of(&status))?;
        object["metadata"]["uid"] = like["metadata"]["uid"].as_str().unwrap_or(UID).into();
        object["metadata"]["creationTimestamp"] = now.into();
        strategy.prepare_for_create(&mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let causes = strategy.validate(&object);
        if !causes.is_empty() {
            return Err(invalid(kind, &name, causes));
        }
        strategy.canonicalize(&mut object);
        strategy.allocate(&mut object, None, context).map_err(|causes| invalid(kind, &name, causes))?;
        Ok(object)
    }

    /// What ours makes of an update of an object as the real one holds it.
    fn update(&self, path: &str, body: &Value, old: &Value) -> Result<Value, Value> {
        let (kind, _) = self.kind(path);
        let strategy = &kind.strategy;
        let name = old["metadata"]["name"].as_str().unwrap();
        let mut new = body.clone();
        strategy.default(&mut new);
        strategy.prepare_for_update(&mut new, old);
        for field in ["creationTimestamp", "managedFields"] {
            if let Some(before) = old["metadata"].get(field) {
                new["metadata"][field] = before.clone();
            }
        }
        let causes = strategy.validate_update(&new, old);
        if !causes.is_empty() {
            return Err(invalid(kind, name, causes));
        }
        strategy.canonicalize(&mut new);
        let context = Context { now: "", suffix: SUFFIX, allocator: &self.allocator, others: &[] };
        strategy.allocate(&mut new, Some(old), context).map_err(|causes| invalid(kind, name, causes))?;
        Ok(new)
    }
}

const UID: &str = "00000000-0000-4000-8000-000000000000";

fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Value {
    value_of(&Status::invalid(kind.stored_group(), &kind.kind, name, causes))
}

fn value_of(status: &Status) -> Value {
    serde_json::from_slice(&status.to_json()).unwrap()
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

/// Without what each server has of its own: identity, time, owners of fields, given addresses, made up names.
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
        Value::Object(fields) => fields.values_mut().for_each(hide),
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

/// Without the differences of Go's own types that some messages end with.
fn without_diff(value: &Value) -> Value {
    match value {
        Value::String(text) => text.split('\n').next().unwrap_or_default().into(),
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

fn report(wrong: &[String], of: usize) {
    assert!(wrong.is_empty(), "{} of {of} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn objects_are_stored_and_refused_as_by_a_kube_apiserver() {
    let mut bed = Bed::start().await;
    let (good, mut wrong) = (good(), Vec::new());
    for (name, case) in &good {
        let (path, body) = (case[0].as_str().unwrap(), &case[1]);
        let real = bed.api.create(path, body).await;
        if name == "limits" {
            let mut limits = real.clone();
            limits["kind"] = "LimitRange".into();
            bed.others.push(limits);
        }
        match bed.create(path, body, &real) {
            Ok(ours) => compare(name, &comparable(&real), &comparable(&ours), &mut wrong),
            Err(status) => wrong.push(format!("{name}: refused: {}", status["message"])),
        }
    }
    report(&wrong, good.len());

    let bad: Vec<Value> = serde_json::from_str(include_str!("kinds/bad.json")).unwrap();
    for case in &bad {
        let base = &good[case[0].as_str().unwrap()];
        let path = base[0].as_str().unwrap();
        let mut body = base[1].clone();
        // A name that is free.
        if !path.ends_with("s.example.com") && !case[0].as_str().unwrap().contains(".example.com") {
            body["metadata"]["name"] =
                format!("x-{}", base[1]["metadata"]["name"].as_str().unwrap().replace(':', "-")).into();
        }
        let mut body = changed(&body, &case[1], &case[2]);
        let real = bed.api.request(Method::POST, path, body.to_string()).await;
        assert!(real.status.is_client_error(), "{case}: {}", real.status);
        let real = real.json();
        if body["metadata"]["name"] == "" && body["metadata"]["generateName"].is_string() {
            body["metadata"]["name"] = real["details"]["name"].clone();
        }
        match bed.create(path, &body, &json!({})) {
            Ok(_) => wrong.push(format!("{case}: taken; real: {}", real["message"])),
            Err(ours) => compare(&case.to_string(), &real, &ours, &mut wrong),
        }
    }
    report(&wrong, bad.len());
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
        bed.api.request(Method::DELETE, &one, "").await;
        let old = bed.api.create(path, &body).await;
        let new = changed(&old, &case[1], &case[2]);
        let real = bed.api.request(Method::PUT, &one, new.to_string()).await;
        let refused = real.status.is_client_error();
        let real = real.json();
        match (bed.update(path, &new, &old), refused) {
            (Ok(ours), false) => compare(&case.to_string(), &comparable(&real), &comparable(&ours), &mut wrong),
            (Err(ours), true) => compare(&case.to_string(), &without_diff(&real), &ours, &mut wrong),
            (ours, _) => wrong.push(format!("{case}\n  real {real}\n  ours {ours:?}")),
        }
        bed.api.request(Method::DELETE, &one, json!({"gracePeriodSeconds": 0}).to_string()).await;
    }
    report(&wrong, updates.len());
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
    let served = |group: &str, version: &str, plural: &Value| {
        bed.kinds.iter().any(|kind| kind.group == group && kind.version == version && plural == &*kind.plural)
    };
    real.retain(|(group, version, resource)| served(group, version, &resource["resource"]));
    let ours: Vec<_> = bed.kinds.iter().map(|kind| (kind.group.clone(), kind.version.clone(), listed(kind))).collect();
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
