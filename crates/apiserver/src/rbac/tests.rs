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
