//! Access by roles: the embedded server and a kube-apiserver with the same roles, bindings and users, asked the same. They
//! refuse the same in the same words.

use std::{fs, path::Path, time::Duration};

use http::{Method, Request, header};
use kubefold_apiserver::{Authorization, BuiltIn, Caller, Server, server::Bound};
use serde_json::{Value, json};
use testbed::{Api, Kubectl, Member, MemberOptions, eventually};
use tokio::sync::oneshot;

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const IN_SHOP: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const SELF_ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const LOCAL_ACCESS: &str = "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews";
const WAIT: Duration = Duration::from_secs(60);
/// Users, each with its group. Each logs in with its name.
const USERS: [[&str; 2]; 10] = [
    ["root", "system:masters"],
    ["ann", "dev"],
    ["bob", "idle"],
    ["ed", "editors"],
    ["bea", "binders"],
    ["esa", "escalators"],
    ["act", "actors"],
    ["con", "constrained"],
    ["tom", "lost"],
    ["una", "updaters"],
];

/// One request.
#[derive(Clone)]
struct Ask {
    who: &'static str,
    acting: Vec<[&'static str; 2]>,
    method: &'static str,
    path: String,
    body: Value,
}

fn ask(who: &'static str, method: &'static str, path: &str) -> Ask {
    Ask { who, acting: Vec::new(), method, path: path.to_owned(), body: Value::Null }
}

impl Ask {
    fn with(self, body: Value) -> Self {
        Self { body, ..self }
    }

    fn acting(mut self, header: &'static str, value: &'static str) -> Self {
        self.acting.push([header, value]);
        self
    }
}

/// One server, as whoever has a token.
struct Asked(Api);

impl Asked {
    async fn answer(&self, ask: &Ask) -> (u16, Value) {
        let media = if ask.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder()
            .method(ask.method.parse::<Method>().unwrap())
            .uri(&ask.path)
            .header(header::CONTENT_TYPE, media)
            .header(header::ACCEPT, "application/json");
        for [name, value] in &ask.acting {
            request = request.header(*name, *value);
        }
        let body = if ask.body.is_null() { String::new() } else { ask.body.to_string() };
        let answer = self.0.clone().with_token(ask.who).send(request.body(body.into()).unwrap()).await.unwrap();
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// The code, and what is told of it: of a failure all, of a review what it says.
    async fn told(&self, ask: &Ask) -> (u16, Value) {
        let (code, body) = self.answer(ask).await;
        // Where nothing is, a kube-apiserver says so in plain text.
        let is_nowhere = code == 404 && !ask.path.starts_with("/api");
        if body["kind"] == "Status" && code >= 400 && !is_nowhere {
            return (code, json!([body["reason"], body["message"], body["details"]]));
        }
        let is_review = body["kind"].as_str().is_some_and(|kind| kind.ends_with("Review"));
        if !is_review {
            return (code, Value::Null);
        }
        let mut status = body["status"].clone();
        for rules in ["resourceRules", "nonResourceRules"] {
            if let Some(rules) = status.get_mut(rules).and_then(Value::as_array_mut) {
                rules.sort_by_key(Value::to_string);
            }
        }
        (code, status)
    }

    /// Waits until a user may do something, as a review tells it.
    async fn until(&self, who: &str, attributes: Value, wanted: bool) {
        let review = json!({"spec": {"user": who, "resourceAttributes": attributes}});
        let review = ask("root", "POST", ACCESS).with(review);
        eventually(WAIT, async || {
            let (_, answer) = self.answer(&review).await;
            if answer["status"]["allowed"] == wanted { Ok(()) } else { Err(answer) }
        })
        .await;
    }
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subject: Value) -> Value {
    let role = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": GROUP, "name": name})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": GROUP, "name": name})
}

/// The roles and bindings of the test, made by an administrator.
fn prepared() -> Vec<Ask> {
    let core = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    let rbac =
        |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [GROUP], "resources": resources, "verbs": verbs});
    let auth = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": ["authentication.k8s.io"], "resources": resources, "verbs": verbs});
    let named = |mut rule: Value, names: &[&str]| {
        rule["resourceNames"] = json!(names);
        rule
    };
    let all = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let writes = ["get", "create", "update", "patch", "delete"];
    let roles = [
        role("reader", json!([core(&["pods", "pods/log", "*/scale"], &["get", "list", "watch"])])),
        role("urls", json!([{"nonResourceURLs": ["/metrics", "/debug/*", "/logs*"], "verbs": ["get"]}])),
        role(
            "editor",
            json!([rbac(&all, &writes), core(&["pods", "*/scale"], &["get", "list"]), {"nonResourceURLs": ["/a*"], "verbs": ["get"]}]),
        ),
        role("binder", json!([rbac(&all, &writes), named(rbac(&["clusterroles"], &["bind"]), &["reader"])])),
        role("escalator", json!([rbac(&all, &writes), rbac(&["clusterroles"], &["escalate"])])),
        role(
            "updater",
            json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update", "patch"]}]),
        ),
        role("collector", json!([core(&["configmaps"], &["deletecollection", "watch"])])),
        role(
            "actor",
            json!([
                named(core(&["users"], &["impersonate"]), &["bob", "ann"]),
                named(core(&["groups"], &["impersonate"]), &["dev"]),
                core(&["serviceaccounts"], &["impersonate"]),
                named(auth(&["userextras/scopes"], &["impersonate"]), &["view"]),
                named(auth(&["uids"], &["impersonate"]), &["u-1"]),
            ]),
        ),
        role(
            "constrained",
            json!([
                named(auth(&["users"], &["impersonate:user-info"]), &["ann"]),
                core(&["pods"], &["impersonate-on:user-info:list", "impersonate-on:serviceaccount:list"]),
                core(&["limitranges"], &["impersonate-on:arbitrary-node:list"]),
                auth(&["serviceaccounts"], &["impersonate:serviceaccount"]),
                auth(&["nodes"], &["impersonate:arbitrary-node"]),
                auth(&["groups"], &["impersonate:user-info"]),
            ]),
        ),
        json!({"metadata": {"name": "gathers", "labels": {"gathered": "no"}}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gathered": "yes"}}]}}),
    ];
    let everywhere = [
        binding("ann-reads", "ClusterRole", "reader", user("ann")),
        binding("ann-urls", "ClusterRole", "urls", user("ann")),
        binding("ed-edits", "ClusterRole", "editor", group("editors")),
        binding("bea-binds", "ClusterRole", "binder", user("bea")),
        binding("esa-escalates", "ClusterRole", "escalator", user("esa")),
        binding("act-acts", "ClusterRole", "actor", user("act")),
        binding("con-acts", "ClusterRole", "constrained", user("con")),
        binding("tom-lost", "ClusterRole", "gone", user("tom")),
        binding("una-updates", "ClusterRole", "updater", user("una")),
    ];
    let named = json!([named(core(&["secrets"], &["get", "list", "watch", "delete"]), &["a"])]);
    let within = [
        ["roles", &role("named", named).to_string()],
        ["rolebindings", &binding("ann-named", "Role", "named", user("ann")).to_string()],
        ["rolebindings", &binding("ann-collects", "ClusterRole", "collector", group("dev")).to_string()],
        [
            "rolebindings",
            &binding("bot", "Role", "named", json!({"kind": "ServiceAccount", "name": "bot"})).to_string(),
        ],
        ["rolebindings", &binding("tom-lost", "Role", "gone", user("tom")).to_string()],
    ]
    .map(|[plural, object]| {
        ask("root", "POST", &format!("{IN_SHOP}/{plural}")).with(serde_json::from_str(object).unwrap())
    });
    let namespace = ask("root", "POST", "/api/v1/namespaces").with(json!({"metadata": {"name": "shop"}}));
    let roles = roles.map(|role| ask("root", "POST", ROLES).with(role));
    let everywhere = everywhere.map(|binding| ask("root", "POST", BINDINGS).with(binding));
    [namespace].into_iter().chain(roles).chain(within).chain(everywhere).collect()
}

/// Reads, and what is refused before anything is read.
fn requests() -> Vec<Ask> {
    let map = json!({"metadata": {"name": "m"}});
    let mut all = vec![
        ask("ann", "GET", "/api/v1/pods"),
        ask("ann", "GET", PODS),
        ask("ann", "GET", &format!("{PODS}/x")),
        ask("ann", "GET", &format!("{PODS}/x/log")),
        ask("ann", "GET", &format!("{PODS}/x/exec?command=a")),
        ask("ann", "GET", &format!("{PODS}?watch=true&timeoutSeconds=1")),
        ask("ann", "GET", "/api/v1/watch/pods?timeoutSeconds=1"),
        ask("ann", "POST", PODS).with(map.clone()),
        ask("ann", "PUT", &format!("{PODS}/x")).with(map.clone()),
        ask("ann", "PATCH", &format!("{PODS}/x")).with(json!({})),
        ask("ann", "DELETE", &format!("{PODS}/x")),
        ask("ann", "DELETE", PODS),
        ask("ann", "GET", &format!("{PODS}/x/status")),
        ask("ann", "POST", &format!("{PODS}/x/eviction")).with(map.clone()),
        ask("ann", "GET", "/apis/apps/v1/namespaces/shop/deployments/x/scale"),
        ask("ann", "GET", "/apis/apps/v1/namespaces/shop/deployments"),
        ask("ann", "GET", "/api/v1/namespaces/shop/replicationcontrollers/x/scale"),
        ask("ann", "GET", SECRETS),
        ask("ann", "GET", &format!("{SECRETS}/a")),
        ask("ann", "GET", &format!("{SECRETS}/b")),
        ask("ann", "GET", &format!("{SECRETS}?fieldSelector=metadata.name%3Da")),
        ask("ann", "GET", &format!("{SECRETS}?fieldSelector=metadata.name%3Db")),
        ask("ann", "GET", &format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Da&timeoutSeconds=1")),
        ask("ann", "DELETE", &format!("{SECRETS}/a")),
        ask("ann", "DELETE", SECRETS),
        ask("ann", "GET", "/api/v1/namespaces/default/secrets/a"),
        ask("ann", "GET", "/api/v1/secrets"),
        ask("ann", "DELETE", MAPS),
        ask("ann", "GET", MAPS),
        ask("ann", "GET", &format!("{MAPS}?watch=true&timeoutSeconds=1")),
        ask("ann", "DELETE", &format!("{MAPS}/x")),
        ask("ann", "GET", "/api/v1/namespaces"),
        ask("ann", "GET", "/api/v1/namespaces/shop"),
        ask("ann", "PUT", "/api/v1/namespaces/shop/finalize").with(map),
        ask("ann", "GET", "/api/v1/nodes/x"),
        ask("ann", "GET", "/api/v1/nodes/x/proxy/a/b"),
        ask("ann", "GET", "/apis/nope.example.com/v1/things"),
        ask("ann", "GET", "/apis/nope.example.com/v1/namespaces/shop/things/x"),
        ask("ann", "OPTIONS", "/api/v1/configmaps"),
        ask("ann", "PUT", "/api/v1/configmaps"),
        ask("nobody-at-all", "GET", "/api/v1/pods"),
        ask("tom", "GET", SECRETS),
        ask("tom", "GET", "/api/v1/secrets"),
        ask("tom", "GET", "/nope"),
        ask("root", "GET", SECRETS),
    ];
    for path in ["/api", "/api/", "/api/v1", "/apis", "/apis/apps/v1", "/version", "/healthz", "/livez", "/openapi/v3"]
    {
        all.push(ask("bob", "GET", path));
    }
    for path in ["/healthz/ping", "/nope", "/nope/at/all", "/logs", "/debug", "/", "/apiz"] {
        all.push(ask("bob", "GET", path));
    }
    for path in ["/debug/nope", "/debug", "/logsx", "/nope"] {
        all.push(ask("ann", "GET", path));
    }
    all.push(ask("bob", "POST", "/version"));
    all
}

fn reviews() -> Vec<Ask> {
    let of = |path: &str, spec: Value| ask("root", "POST", path).with(json!({"spec": spec}));
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "shop", "name": "x"});
    let secret = json!({"verb": "get", "resource": "secrets", "namespace": "shop", "name": "a"});
    let named = json!({"metadata": {"namespace": "default"}, "spec": {"user": "x", "resourceAttributes": pods}});
    let mut all = vec![
        of(ACCESS, json!({"user": "ann", "resourceAttributes": pods})),
        of(ACCESS, json!({"user": "ann", "resourceAttributes": secret})),
        of(ACCESS, json!({"user": "system:serviceaccount:shop:bot", "resourceAttributes": secret})),
        of(ACCESS, json!({"user": "system:serviceaccount:other:bot", "resourceAttributes": secret})),
        of(ACCESS, json!({"user": "tom", "resourceAttributes": secret})),
        of(
            ACCESS,
            json!({"groups": ["dev"], "resourceAttributes": {"verb": "watch", "resource": "configmaps", "namespace": "shop"}}),
        ),
        of(ACCESS, json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": secret})),
        of(ACCESS, json!({"user": "ann", "nonResourceAttributes": {"verb": "get", "path": "/debug/x"}})),
        of(ACCESS, json!({"user": "ann", "nonResourceAttributes": {"verb": "put", "path": "/debug/x"}})),
        of(ACCESS, json!({"resourceAttributes": pods})),
        of(ACCESS, json!({"user": "x"})),
        of(
            ACCESS,
            json!({"user": "x", "resourceAttributes": pods, "nonResourceAttributes": {"verb": "get", "path": "/x"}}),
        ),
        of(LOCAL_ACCESS, json!({"user": "ann", "resourceAttributes": secret})),
        of(LOCAL_ACCESS, json!({"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}})),
        of(LOCAL_ACCESS, json!({"user": "ann", "nonResourceAttributes": {"verb": "get", "path": "/x"}})),
        ask("root", "POST", LOCAL_ACCESS).with(named),
        of(SELF_RULES, json!({})),
        of(SELF_RULES, json!({"namespace": "shop"})),
        of(SELF_ACCESS, json!({})),
        ask("ann", "POST", ACCESS).with(json!({"spec": {"user": "ann", "resourceAttributes": pods}})),
        ask("ann", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews").with(json!({})),
    ];
    for who in ["ann", "bob", "ed", "tom"] {
        all.push(ask(who, "POST", SELF_RULES).with(json!({"spec": {"namespace": "shop"}})));
        all.push(ask(who, "POST", SELF_RULES).with(json!({"spec": {"namespace": "default"}})));
        all.push(ask(who, "POST", SELF_ACCESS).with(json!({"spec": {"resourceAttributes": secret}})));
    }
    all
}

/// Who may act as whom. A kube-apiserver tries the way first that a user last succeeded by, and tells what that one lacks: so
/// a user's refusals come first.
fn impersonations() -> Vec<Ask> {
    let (who, uid, extra) = ("Impersonate-User", "Impersonate-Uid", "Impersonate-Extra-Scopes");
    let (group, bot, node) = ("Impersonate-Group", "system:serviceaccount:shop:bot", "system:node:n1");
    let pods = |by| ask(by, "GET", PODS);
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    vec![
        pods("act").acting(who, "eve"),
        pods("act").acting(who, "bob").acting(group, "ops"),
        pods("act").acting(who, "ann").acting(uid, "u-2"),
        pods("act").acting(who, "ann").acting(extra, "edit"),
        pods("act").acting(who, bot).acting(group, "ops"),
        pods("act").acting(who, node),
        ask("act", "GET", "/nope").acting(who, "eve"),
        pods("act").acting(who, "ann"),
        pods("act").acting(who, "bob"),
        pods("act").acting(who, "bob").acting(group, "dev"),
        pods("act").acting(who, "ann").acting(uid, "u-1"),
        pods("act").acting(who, "ann").acting(extra, "view"),
        pods("act").acting(who, bot),
        pods("act").acting(who, bot).acting(group, "dev"),
        ask("act", "GET", "/nope").acting(who, "bob"),
        pods("con").acting(who, "ann"),
        pods("con").acting(who, "bob"),
        ask("con", "GET", &format!("{PODS}/x")).acting(who, "ann"),
        pods("con").acting(who, "ann").acting(group, "dev"),
        pods("con").acting(who, "ann").acting(group, "system:masters"),
        pods("con").acting(who, bot),
        // Of pods the authorizer of nodes has more to say.
        ask("con", "GET", "/api/v1/namespaces/shop/limitranges").acting(who, node),
        pods("bob").acting(who, "ann"),
        pods("tom").acting(who, "ann"),
        ask("root", "POST", me).acting(who, node).with(json!({})),
        pods("root").acting(who, "bob").acting(group, "system:masters"),
        ask("root", "POST", me).acting(who, "ann").acting(uid, "7").acting(extra, "a").with(json!({})),
    ]
}

/// Nobody grants what he does not have. In this order: some of them are made.
fn escalations() -> Vec<Ask> {
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let mixed = json!([
        {"apiGroups": ["", "apps"], "resources": ["pods", "secrets", "deployments/scale"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods", "pods/scale"], "resourceNames": ["x", "y"], "verbs": ["get", "delete"]},
        {"nonResourceURLs": ["/a/b", "/b*"], "verbs": ["get", "put"]},
    ]);
    let gathers = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]});
    let aggregated = |name: &str| json!({"metadata": {"name": name}, "aggregationRule": gathers});
    let no_binding = |kind: &str, name: &str| binding("b0", kind, name, user("bob"));
    let post = |who, path: &str, body: Value| ask(who, "POST", path).with(body);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
    let lease = |seconds: i64| json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": seconds}});
    let mine = format!("{ROLES}/mine");
    vec![
        post("ed", ROLES, role("c1", mixed.clone())),
        post("ed", ROLES, role("c2", pods.clone())),
        post("ed", ROLES, role("Bad/name", secrets.clone())),
        post("ed", ROLES, json!({"metadata": {"generateName": "g-"}, "rules": secrets})),
        post(
            "ed",
            ROLES,
            json!({"metadata": {"name": "c3"}, "rules": [{"apiGroups": [""], "resources": ["secrets"]}]}),
        ),
        ask("ed", "PUT", &format!("{ROLES}/c2")).with(role("c2", secrets.clone())),
        ask("ed", "PUT", &format!("{ROLES}/c2"))
            .with(json!({"metadata": {"name": "c2", "resourceVersion": "1"}, "rules": secrets})),
        ask("ed", "PUT", &format!("{ROLES}/c2"))
            .with(json!({"metadata": {"name": "c2", "labels": {"a": "b"}}, "rules": pods})),
        ask("ed", "PATCH", &format!("{ROLES}/c2")).with(json!({"rules": mixed})),
        ask("ed", "PUT", &format!("{ROLES}/c9")).with(role("c9", secrets.clone())),
        ask("ed", "PUT", &format!("{ROLES}/c9")).with(role("c9", pods.clone())),
        post("ed", ROLES, aggregated("agg")),
        ask("ed", "PUT", &format!("{ROLES}/gathers")).with(role("gathers", json!([]))),
        post("ed", BINDINGS, binding("b1", "ClusterRole", "cluster-admin", user("ed"))),
        post("ed", BINDINGS, binding("b2", "ClusterRole", "c2", user("bob"))),
        post("ed", BINDINGS, no_binding("ClusterRole", "nope")),
        post("ed", BINDINGS, binding("b3", "ClusterRole", "reader", user("bob"))),
        ask("ed", "PATCH", &format!("{BINDINGS}/ann-reads")).with(json!({"subjects": [user("ed")]})),
        ask("ed", "PATCH", &format!("{BINDINGS}/ann-reads"))
            .with(json!({"metadata": {"finalizers": ["example.com/x"]}})),
        ask("ed", "PATCH", &format!("{BINDINGS}/ann-reads")).with(json!({"metadata": {"finalizers": null}})),
        post("ed", &format!("{IN_SHOP}/roles"), role("r1", secrets.clone())),
        post("ed", &format!("{IN_SHOP}/roles"), role("r2", pods.clone())),
        post("ed", "/apis/rbac.authorization.k8s.io/v1/namespaces/nowhere/roles", role("r1", secrets.clone())),
        post("ed", &format!("{IN_SHOP}/rolebindings"), no_binding("Role", "nope")),
        post("ed", &format!("{IN_SHOP}/rolebindings"), no_binding("Thing", "nope")),
        post("ed", &format!("{IN_SHOP}/rolebindings"), binding("b1", "Role", "named", user("ed"))),
        post("ed", &format!("{IN_SHOP}/rolebindings"), binding("b2", "Role", "r2", user("ed"))),
        ask("ed", "DELETE", &format!("{IN_SHOP}/rolebindings/b2")),
        post("root", ROLES, role("mine", secrets.clone())),
        ask("ed", "PATCH", &mine).with(json!({"metadata": {"finalizers": ["example.com/x"]}})),
        ask("ed", "PATCH", &mine).with(json!({"metadata": {"finalizers": null}})),
        ask("ed", "PATCH", &mine).with(json!({"metadata": {"labels": {"a": "b"}}})),
        post("bea", BINDINGS, binding("b4", "ClusterRole", "reader", user("bob"))),
        post("bea", BINDINGS, binding("b5", "ClusterRole", "editor", user("bob"))),
        post("bea", &format!("{IN_SHOP}/rolebindings"), binding("b4", "ClusterRole", "reader", user("bob"))),
        post("bea", ROLES, role("c4", pods.clone())),
        post("esa", ROLES, role("c5", mixed)),
        post("esa", ROLES, aggregated("agg2")),
        post("esa", &format!("{IN_SHOP}/roles"), role("r5", secrets)),
        post("esa", BINDINGS, binding("b6", "ClusterRole", "cluster-admin", user("esa"))),
        ask("una", "PUT", &format!("{leases}/l")).with(lease(0)),
        ask("una", "PUT", &format!("{leases}/l")).with(lease(1)),
        post("root", leases, lease(1)),
        ask("una", "PUT", &format!("{leases}/l")).with(lease(2)),
        post("root", ROLES, role("c6", pods.clone())),
        post("bob", ROLES, role("c7", pods)),
    ]
}

async fn embedded() -> (Bound, Api) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let mut server = Server::new().built_in(BuiltIn::All).authorize(Authorization::Rbac);
    for [user, group] in USERS {
        let caller =
            Caller { user: user.into(), groups: vec![group.into()], uid: Some("1".into()), ..Caller::default() };
        server = server.token(user, caller);
    }
    let server = server.tls(&made.cert.pem(), &made.signing_key.serialize_pem());
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    let api = Api::of_server(&format!("https://{}", bound.address()), &made.cert.pem());
    (bound, api)
}

/// A kube-apiserver that knows the same tokens. Its controllers aggregate roles.
async fn real() -> (Member, Api, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    let lines: Vec<String> = USERS.iter().map(|[user, group]| format!("{user},{user},1,{group}")).collect();
    fs::write(&tokens, lines.join("\n")).unwrap();
    let apiserver_args = vec![format!("--token-auth-file={}", tokens.display())];
    let options = MemberOptions { controllers: true, apiserver_args, ..MemberOptions::default() };
    let member = Member::start("east", options).await;
    let api = Api::of_server(&member.server_url(), &member.ca_pem());
    (member, api, dir)
}

#[tokio::test]
async fn access_is_decided_as_by_a_kube_apiserver() {
    let (bound, api) = embedded().await;
    let (done, ended) = oneshot::channel::<()>();
    let test = async {
        let (_member, of_member, _dir) = real().await;
        compare(&Asked(of_member), &Asked(api)).await;
        drop(done);
    };
    tokio::join!(bound.serve_until(async { drop(ended.await) }), test);
}

async fn compare(real: &Asked, embedded: &Asked) {
    for server in [real, embedded] {
        for one in prepared() {
            let (code, body) = server.answer(&one).await;
            assert_eq!(code, 201, "{} {}: {body}", one.path, one.body);
        }
        let acts = json!({"verb": "impersonate", "resource": "users", "name": "bob"});
        let reads = json!({"verb": "get", "resource": "pods"});
        let deletes = json!({"verb": "delete", "resource": "secrets", "name": "a", "namespace": "shop"});
        let edits = json!({"verb": "create", "group": GROUP, "resource": "clusterroles"});
        let updates = json!({"verb": "update", "group": "coordination.k8s.io", "resource": "leases"});
        let listens = json!({"verb": "impersonate-on:user-info:list", "resource": "pods"});
        for (who, attributes) in [
            ("ann", reads),
            ("ann", deletes.clone()),
            ("system:serviceaccount:shop:bot", deletes),
            ("bea", edits.clone()),
            ("esa", edits),
            ("una", updates),
            ("act", acts),
            ("con", listens),
        ] {
            server.until(who, attributes, true).await;
        }
        same_roles(real, server).await;
    }
    let mut wrong = String::new();
    let mut count = 0;
    for one in requests().iter().chain(&reviews()).chain(&impersonations()).chain(&escalations()) {
        let (said, told) = (real.told(one).await, embedded.told(one).await);
        count += 1;
        if said != told {
            let Ask { who, acting, method, path, body } = one;
            wrong.push_str(&format!("{who} {acting:?} {method} {path} {body}\n  said {said:?}\n  told {told:?}\n\n"));
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{wrong}");
    // What is unbound is refused at once here, and soon there.
    for server in [real, embedded] {
        assert_eq!(server.answer(&ask("root", "DELETE", &format!("{BINDINGS}/ann-reads"))).await.0, 200);
    }
    assert_eq!(embedded.answer(&ask("ann", "GET", "/api/v1/pods")).await.0, 403);
    real.until("ann", json!({"verb": "get", "resource": "pods"}), false).await;
}

/// Every role and binding that the embedded server makes is as the kube-apiserver and its controllers make it.
async fn same_roles(real: &Asked, embedded: &Asked) {
    for path in [ROLES, BINDINGS] {
        let (_, list) =
            embedded.answer(&ask("root", "GET", &format!("{path}?labelSelector=kubernetes.io/bootstrapping"))).await;
        let names: Vec<String> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert!(names.len() >= 5, "{names:?}");
        for name in names {
            let get = ask("root", "GET", &format!("{path}/{name}"));
            eventually(WAIT, async || {
                let shown = async |server: &Asked| {
                    let (_, object) = server.answer(&get).await;
                    let metadata = &object["metadata"];
                    let said = ["rules", "aggregationRule", "roleRef", "subjects"].map(|field| object[field].clone());
                    let owners: Vec<Value> = metadata["managedFields"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|one| one["manager"].clone())
                        .collect();
                    json!([name, metadata["labels"], metadata["annotations"], said, owners])
                };
                let (said, told) = (shown(real).await, shown(embedded).await);
                if said == told { Ok(()) } else { Err(format!("\n  said {said}\n  told {told}")) }
            })
            .await;
        }
    }
}

/// kubectl as one of the users.
fn kubectl(home: &Path, server: &str, who: &str) -> Kubectl {
    let config = home.join(format!("{who}.kubeconfig"));
    let cluster = json!({"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}});
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": who}}],
    });
    fs::write(&config, text.to_string()).unwrap();
    Kubectl::new(&config, home)
}

#[tokio::test]
async fn kubectl_auth_asks_and_reconciles() {
    let (bound, _) = embedded().await;
    let (server, home) = (format!("https://{}", bound.address()), tempfile::tempdir().unwrap());
    let (done, ended) = oneshot::channel::<()>();
    let test = async {
        let [root, ann] = ["root", "ann"].map(|who| kubectl(home.path(), &server, who));
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"], "verbs": ["get"]}]);
        let typed = |kind: &str, mut object: Value| {
            object["kind"] = kind.into();
            object["apiVersion"] = format!("{GROUP}/v1").into();
            object
        };
        let role = typed("ClusterRole", role("web", rules));
        let binding = typed("ClusterRoleBinding", binding("web", "ClusterRole", "web", user("ann")));
        let list = json!({"kind": "List", "apiVersion": "v1", "items": [role, binding]}).to_string();
        let reconcile = ["auth", "reconcile", "-f", "-"];
        let refused = ann.run(&["get", "clusterroles"]).await;
        let words = "clusterroles.rbac.authorization.k8s.io is forbidden: User \"ann\" cannot list resource";
        assert!(refused.refused().contains(words), "{refused}");
        let made = root.run_with_input(&reconcile, &list).await;
        assert!(made.ok().contains("clusterrole.rbac.authorization.k8s.io/web reconciled"), "{made}");
        let can = ann.run(&["auth", "can-i", "get", "pods/web"]).await;
        assert_eq!(can.ok().trim(), "yes");
        let cannot = ann.run(&["auth", "can-i", "get", "pods/other"]).await;
        assert_eq!((cannot.stdout.trim(), cannot.code), ("no", Some(1)));
        let listed = ann.run(&["auth", "can-i", "--list"]).await;
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>() == ["pods", "[]", "[web]", "[get]"];
        assert!(listed.ok().lines().any(row), "{listed}");
        let whoami = ann.run(&["auth", "whoami"]).await;
        assert!(whoami.ok().contains("ann"), "{whoami}");
        drop(done);
    };
    tokio::join!(bound.serve_until(async { drop(ended.await) }), test);
}
