//! Rules, and bindings by whom they are for.

use serde_json::{Value, json};

use super::{
    index::{Binding, Index},
    rule::listed,
    *,
};
use crate::Caller;

fn rule(value: Value) -> Rule {
    serde_json::from_value(value).unwrap()
}

fn on<'a>(resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str) -> Resource<'a> {
    Resource { resource, subresource, namespace, name, ..Resource::default() }
}

fn caller(user: &str, groups: &[&str]) -> Caller {
    Caller {
        user: user.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..Caller::default()
    }
}

#[test]
fn a_rule_allows_its_verbs_groups_resources_and_names() {
    let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log", "*/scale"]}));
    let allows = |rule: &Rule, verb: &str, of: Resource<'_>| rule.allows(&Attributes::resource(verb, of));
    assert!(allows(&pods, "get", on("pods", "", "a", "x")));
    assert!(allows(&pods, "get", on("pods", "log", "a", "x")));
    assert!(allows(&pods, "get", on("deployments", "scale", "a", "x")));
    assert!(!allows(&pods, "list", on("pods", "", "a", "")));
    assert!(!allows(&pods, "get", on("pods", "exec", "a", "x")));
    assert!(!allows(&pods, "get", Resource { group: "apps", ..on("pods", "", "a", "x") }));
    assert!(!pods.allows(&Attributes { verb: "get", on: On::Path("pods") }));
    let named = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["x"]}));
    assert!(allows(&named, "delete", on("secrets", "anything", "", "x")));
    assert!(
        !allows(&named, "delete", on("secrets", "", "", "y")) && !allows(&named, "list", on("secrets", "", "", ""))
    );
}

#[test]
fn a_url_with_a_star_at_its_end_takes_what_begins_with_it() {
    let urls = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/version", "/api/*", "/logs*"]}));
    let allows = |path: &str| urls.allows(&Attributes { verb: "get", on: On::Path(path) });
    assert!(allows("/version") && allows("/api/v1") && allows("/logs") && allows("/logs/a") && allows("/api/"));
    assert!(!allows("/version/") && !allows("/api") && !allows("/"));
    assert!(!urls.allows(&Attributes { verb: "post", on: On::Path("/version") }));
    assert!(!urls.allows(&Attributes::resource("get", on("pods", "", "", ""))));
    assert!(
        rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})).allows(&Attributes { verb: "x", on: On::Path("/") })
    );
}

#[test]
fn what_is_not_covered_is_listed_by_resource() {
    let held = [
        rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]})),
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"]})),
        rule(json!({"verbs": ["get"], "nonResourceURLs": ["/a*"]})),
    ];
    let wanted = [
        rule(json!({"verbs": ["get", "watch", "delete"], "apiGroups": [""], "resources": ["pods"]})),
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/scale", "pods/log"]})),
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x", "y"]})),
        rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]})),
        rule(json!({"verbs": ["get"], "nonResourceURLs": ["/abc", "/b"]})),
    ];
    let lines = r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}
{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["y"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}
{NonResourceURLs:["/b"], Verbs:["get"]}"#;
    assert_eq!(listed(&uncovered(&held, &wanted).unwrap()), lines);
    assert_eq!(uncovered(&wanted, &wanted), Ok(Vec::new()));
}

#[test]
fn rules_of_billions_of_combinations_are_not_taken_apart() {
    let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let huge = rule(json!({"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}));
    assert_eq!(uncovered(&[], &[huge]), Err(TooManyParts));
}

fn binding(namespace: &str, name: &str, role: Value, subjects: Value) -> Binding {
    let metadata = json!({"namespace": namespace, "name": name});
    serde_json::from_value(json!({"metadata": metadata, "roleRef": role, "subjects": subjects})).unwrap()
}

fn indexed() -> Index {
    let mut index = Index::default();
    let reads = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    index.set_role("", "reader", [reads].into());
    let deletes = rule(json!({"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}));
    index.set_role("a", "deleter", [deletes].into());
    let role = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let everywhere =
        json!([{"kind": "Group", "name": "dev"}, {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}]);
    index.set_binding(binding("", "everywhere", role("ClusterRole", "reader"), everywhere));
    let here = json!([{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "name": "bot"}]);
    index.set_binding(binding("a", "here", role("Role", "deleter"), here));
    index.set_binding(binding("a", "nowhere", role("Role", "gone"), json!([{"kind": "User", "name": "bob"}])));
    index.set_binding(binding("b", "reads", role("ClusterRole", "reader"), json!([{"kind": "User", "name": "bob"}])));
    index
}

#[test]
fn bindings_are_for_users_groups_and_service_accounts_in_their_namespace() {
    let index = indexed();
    let may = |caller: &Caller, verb: &str, namespace: &str| {
        index.decide(caller, &Attributes::resource(verb, on("pods", "", namespace, "x")))
    };
    let dev = caller("eve", &["dev"]);
    let reason = r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "dev""#;
    assert_eq!(may(&dev, "get", ""), Decision { allowed: true, reason: reason.into() });
    assert!(!may(&dev, "delete", "a").allowed);
    let ann = caller("ann", &[]);
    assert!(may(&ann, "delete", "a").allowed && !may(&ann, "delete", "b").allowed && !may(&ann, "get", "a").allowed);
    let bot = may(&caller("system:serviceaccount:a:bot", &[]), "delete", "a");
    assert_eq!(bot.reason, r#"RBAC: allowed by RoleBinding "here/a" of Role "deleter" to ServiceAccount "bot/a""#);
    assert!(may(&caller("system:serviceaccount:ci:bot", &[]), "get", "b").allowed);
    assert!(!may(&caller("system:serviceaccount:ci:bot", &[]), "delete", "a").allowed);
    let bob = caller("bob", &[]);
    assert!(may(&bob, "get", "b").allowed, "a binding of a namespace gives a cluster role there");
    let lacks = may(&bob, "get", "a");
    assert_eq!(
        (lacks.allowed, lacks.reason.as_str()),
        (false, r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#)
    );
    let elsewhere = Caller { domain: Some("east".into()), ..dev };
    assert!(!may(&elsewhere, "get", "").allowed, "who is in a group of another server is in none here");
}

#[test]
fn what_is_unbound_grants_nothing_more() {
    let mut index = indexed();
    let ann = caller("ann", &["dev"]);
    let deletes = Attributes::resource("delete", on("pods", "", "a", "x"));
    let gets = Attributes::resource("get", on("pods", "", "a", "x"));
    assert!(index.decide(&ann, &deletes).allowed);
    let role = json!({"kind": "Role", "name": "deleter"});
    index.set_binding(binding("a", "here", role, json!([{"kind": "User", "name": "bob"}])));
    assert!(!index.decide(&ann, &deletes).allowed && index.decide(&caller("bob", &[]), &deletes).allowed);
    index.remove_binding("", "everywhere");
    assert!(!index.decide(&ann, &gets).allowed);
    index.remove_role("a", "deleter");
    assert!(!index.decide(&caller("bob", &[]), &deletes).allowed);
}
<<<<<<< HEAD

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
        testbed::eventually(std::time::Duration::from_secs(30), async || {
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
    let storage = std::sync::Arc::new(crate::Memory::default());
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
    assert!(discovery.first() == Some(&rule(more)) && discovery.len() == 12, "{discovery:?}");
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
=======
>>>>>>> rbac
