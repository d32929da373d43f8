//! A server that goes by roles.

use std::{sync::Arc, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{
    Authorization, BuiltIn, Caller, Memory, Server,
    rbac::{GROUP, MASTERS, Rule},
    registry::{DeleteOptions, WriteOptions},
    server::Running,
};
use kubefold_wire::body::{empty, full};

fn caller(user: &str, groups: &[&str]) -> Caller {
    Caller {
        user: user.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..Caller::default()
    }
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn running() -> Running {
    Server::new().authorize(Authorization::Rbac).start().await.unwrap()
}

async fn send(running: &Running, who: &Caller, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { empty() } else { full(body.to_string()) };
    let request = Request::builder().method(method).uri(path).extension(who.clone()).body(body).unwrap();
    let response = running.service().answer(request).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn root() -> Caller {
    caller("root", &[MASTERS, "system:authenticated"])
}

fn binds(name: &str, role: &str, user: &str) -> Value {
    let subject = json!({"kind": "User", "apiGroup": GROUP, "name": user});
    json!({
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
    })
}

#[tokio::test]
async fn a_binding_is_in_force_with_the_next_request() {
    let running = running().await;
    let ann = caller("ann", &["system:authenticated"]);
    for round in 0..20 {
        let (code, refused) = send(&running, &ann, "GET", MAPS, Value::Null).await;
        let message = "configmaps is forbidden: User \"ann\" cannot list resource \"configmaps\" in API group \"\" in the \
                       namespace \"default\"";
        assert_eq!((code, &refused["message"], round), (403, &json!(message), round));
        assert_eq!(send(&running, &root(), "POST", BINDINGS, binds("ann", "view", "ann")).await.0, 201);
        assert_eq!(send(&running, &ann, "GET", MAPS, Value::Null).await.0, 200);
        assert_eq!(send(&running, &root(), "DELETE", &format!("{BINDINGS}/ann"), Value::Null).await.0, 200);
    }
    running.end().await;
}

#[tokio::test]
async fn who_does_not_say_who_he_is_is_anonymous() {
    let running = running().await;
    let ask = async |path: &str| {
        let response = running.service().answer(Request::get(path).body(empty()).unwrap()).await;
        response.status().as_u16()
    };
    assert_eq!((ask("/readyz").await, ask("/version").await), (200, 200));
    assert_eq!((ask("/api").await, ask(MAPS).await, ask("/nothing").await), (403, 403, 403));
    running.end().await;
}

#[tokio::test]
async fn an_open_watch_goes_on_when_its_binding_is_gone() {
    let running = running().await;
    let ann = caller("ann", &[]);
    send(&running, &root(), "POST", BINDINGS, binds("ann", "view", "ann")).await;
    let request = Request::get(format!("{MAPS}?watch=true")).extension(ann.clone()).body(empty()).unwrap();
    let mut watch = running.service().answer(request).await.into_body();
    assert_eq!(send(&running, &root(), "DELETE", &format!("{BINDINGS}/ann"), Value::Null).await.0, 200);
    assert_eq!(send(&running, &ann, "GET", &format!("{MAPS}?watch=true"), Value::Null).await.0, 403);
    send(&running, &root(), "POST", MAPS, json!({"metadata": {"name": "made-later"}})).await;
    let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&event).contains("made-later"), "{event:?}");
    drop(watch);
    running.end().await;
}

#[tokio::test]
async fn aggregated_roles_follow_what_they_aggregate() {
    let running = running().await;
    let ann = caller("ann", &[]);
    send(&running, &root(), "POST", BINDINGS, binds("ann", "admin", "ann")).await;
    let widgets = "/apis/example.com/v1/widgets";
    assert_eq!(send(&running, &ann, "GET", widgets, Value::Null).await.0, 403);
    let extra = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"verbs": ["list"], "apiGroups": ["example.com"], "resources": ["widgets"]}],
    });
    assert_eq!(send(&running, &root(), "POST", ROLES, extra).await.0, 201);
    // By way of view and edit.
    let until = async |wanted: u16| {
        testbed::eventually(Duration::from_secs(30), async || {
            let code = send(&running, &ann, "GET", widgets, Value::Null).await.0;
            if code == wanted { Ok(()) } else { Err(code) }
        })
        .await;
    };
    until(404).await;
    assert_eq!(send(&running, &root(), "DELETE", &format!("{ROLES}/widgets"), Value::Null).await.0, 200);
    until(403).await;
    running.end().await;
}

#[tokio::test]
async fn what_is_missing_of_the_roles_of_every_cluster_comes_back_with_a_start() {
    let storage = Arc::new(Memory::default());
    let server = || Server::new().storage(storage.clone()).authorize(Authorization::Rbac);
    let running = server().start().await.unwrap();
    let registry = running.registry().clone();
    let kind = |plural: &str| registry.resource(GROUP, "v1", plural).unwrap();
    let (roles, bindings) = (kind("clusterroles"), kind("clusterrolebindings"));
    let before = registry.revision().await.unwrap();
    running.end().await;
    let running = server().start().await.unwrap();
    assert_eq!(registry.revision().await.unwrap(), before, "a second start changes nothing");
    running.end().await;

    let options = WriteOptions::default();
    let change = async |name: &str, change: &(dyn Fn(&mut Value) + Sync)| {
        let changed = registry.modify(&roles, "", name, &options, |there| {
            change(there);
            Ok(())
        });
        drop(changed.await.unwrap());
    };
    let more = json!({"verbs": ["get"], "nonResourceURLs": ["/more"]});
    let emptied = json!([more]);
    change("system:discovery", &|there: &mut Value| there["rules"] = emptied.clone()).await;
    change("system:basic-user", &|there: &mut Value| {
        there["rules"] = emptied.clone();
        there["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
    })
    .await;
    registry.delete(&roles, "", "view", &DeleteOptions::default()).await.unwrap();
    registry.delete(&bindings, "", "cluster-admin", &DeleteOptions::default()).await.unwrap();
    let other = binds("cluster-admin", "view", "ann");
    registry.create(&bindings, "", other, &options).await.unwrap();

    let running = server().start().await.unwrap();
    let rules = async |name: &str| registry.get(&roles, "", name).await.unwrap().value()["rules"].clone();
    let discovery: Vec<Rule> = serde_json::from_value(rules("system:discovery").await).unwrap();
    assert!(
        discovery.first() == Some(&serde_json::from_value(more).unwrap()) && discovery.len() == 12,
        "{discovery:?}"
    );
    assert_eq!(rules("system:basic-user").await, emptied, "it is protected");
    assert!(rules("view").await.as_array().unwrap().len() > 5);
    let binding = registry.get(&bindings, "", "cluster-admin").await.unwrap().value();
    assert_eq!(binding["roleRef"]["name"], "cluster-admin");
    running.end().await;
}

#[tokio::test]
async fn without_roles_there_is_no_access_control_by_roles() {
    let wrong = Server::new().built_in(BuiltIn::None).authorize(Authorization::Rbac).start().await;
    let error = wrong.err().unwrap().to_string();
    assert!(error.contains("RBAC has no clusterroles.rbac.authorization.k8s.io to go by"), "{error}");
}
