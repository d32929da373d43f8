//! The garbage collector of a kube-controller-manager and that of the embedded server, given the same to do. Each scenario
//! says what is left in the end; it must be so at both.
//!
//! The scenarios are those of Kubernetes' own tests that need no workloads. Source: kubernetes
//! `test/e2e/apimachinery/garbage_collector.go`, `test/integration/garbagecollector/garbage_collector_test.go`.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{
    FutureExt,
    future::{LocalBoxFuture, join_all},
};
use kubefold_apiserver::{BuiltIn, Server as Own};
use serde_json::{Value, json};

use super::writes::Server;
use testbed::{Member, MemberOptions, eventually};

/// A kube-controller-manager looks for new kinds every 30 s.
const SOON: Duration = Duration::from_secs(90);
const FINALIZER: &str = "example.com/hold";

/// A namespace of one scenario at one server.
struct Space<'s> {
    server: &'s Server,
    name: &'static str,
}

/// A reference to an owner.
fn owner(object: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

/// One who never was.
fn nobody() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000"})
}

/// An object in one line: `name <- owner, owner! [finalizer] deleting`, where `!` blocks the owner.
fn line(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut line = text(&metadata["name"]);
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owners: Vec<String> =
        owners.map(|owner| text(&owner["name"]) + if owner["blockOwnerDeletion"] == true { "!" } else { "" }).collect();
    if !owners.is_empty() {
        line.push_str(&format!(" <- {}", owners.join(", ")));
    }
    if let Some(finalizers) = metadata["finalizers"].as_array() {
        let finalizers: Vec<String> = finalizers.iter().map(text).collect();
        line.push_str(&format!(" [{}]", finalizers.join(", ")));
    }
    if metadata["deletionTimestamp"].is_string() {
        line.push_str(" deleting");
    }
    line
}

impl Space<'_> {
    fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.name)
    }

    async fn send(&self, method: &'static str, path: &str, body: &Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (code, answer) = self.server.send(method, path, text).await;
        assert!((200..300).contains(&code), "{}: {method} {path} {body}: {code} {answer}", self.server.name());
        answer
    }

    /// Makes an object.
    async fn make_at(&self, path: &str, name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
        let metadata = json!({
            "name": name, "ownerReferences": owners, "finalizers": finalizers, "labels": {"scenario": self.name},
        });
        self.send("POST", path, &json!({"metadata": metadata})).await
    }

    async fn make(&self, name: &str, owners: &[Value]) -> Value {
        self.make_at(&self.maps(), name, owners, &[]).await
    }

    /// Waits until the collector knows everything that was made at this path.
    ///
    /// A kube-controller-manager that does not know a dependent yet neither orphans it nor waits for it, and deletes it
    /// afterwards. An informer that begins tells its objects in the order of a hash map, so an owner that is being deleted
    /// may come before its dependents. Source: client-go `reflector.go` `watchList`, kubernetes `garbagecollector.go`
    /// `orphanDependents`. The embedded collector gets no such help.
    async fn is_known_at(&self, path: &str, canary: &Value) {
        let Server::Real(_) = self.server else { return };
        self.send("POST", path, canary).await;
        let line = line(canary);
        eventually(SOON, async || match self.lines_at(path).await {
            lines if lines.contains(&line) => Err(format!("{}, {}: {lines:?}", self.server.name(), self.name)),
            _ => Ok(()),
        })
        .await;
    }

    async fn is_known(&self) {
        let labels = json!({"scenario": self.name});
        let metadata = json!({"name": "canary-before", "ownerReferences": [nobody()], "labels": labels});
        self.is_known_at(&self.maps(), &json!({"metadata": metadata})).await;
    }

    async fn delete(&self, name: &str, options: Value) {
        self.is_known().await;
        self.send("DELETE", &format!("{}/{name}", self.maps()), &options).await;
    }

    async fn patch(&self, name: &str, metadata: Value) {
        self.send("PATCH", &format!("{}/{name}", self.maps()), &json!({"metadata": metadata})).await;
    }

    /// What there is at a path, of this scenario.
    async fn lines_at(&self, path: &str) -> Vec<String> {
        let list = self.send("GET", &format!("{path}?labelSelector=scenario%3D{}", self.name), &Value::Null).await;
        let mut lines: Vec<String> = list["items"].as_array().unwrap().iter().map(line).collect();
        lines.sort();
        lines
    }

    async fn comes_to_at(&self, path: &str, wanted: &[&str]) {
        eventually(SOON, async || match self.lines_at(path).await {
            lines if lines == wanted => Ok(()),
            lines => Err(format!("{}, {}: {lines:?} and not {wanted:?}", self.server.name(), self.name)),
        })
        .await;
    }

    /// Waits until this is what there is.
    async fn comes_to(&self, wanted: &[&str]) {
        self.comes_to_at(&self.maps(), wanted).await;
    }

    /// That this is what there is, still after the collector has looked at something that was made later.
    async fn stays(&self, wanted: &[&str]) {
        self.comes_to(wanted).await;
        for round in 0..2 {
            let name = format!("canary-{round}");
            self.make(&name, &[nobody()]).await;
            self.comes_to(wanted).await;
        }
    }
}

async fn background(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    let child = at.make("child", &[owner(&root, true)]).await;
    at.make("other-child", &[owner(&root, false)]).await;
    at.make("grandchild", &[owner(&child, true)]).await;
    at.make("stranger", &[]).await;
    at.delete("root", json!({"propagationPolicy": "Background"})).await;
    at.stays(&["stranger"]).await;
}

async fn by_default(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    at.make("child", &[owner(&root, true)]).await;
    at.delete("root", Value::Null).await;
    at.stays(&[]).await;
}

async fn foreground(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    at.make("child", &[owner(&root, true)]).await;
    let held = at.make_at(&at.maps(), "held", &[owner(&root, true)], &[FINALIZER]).await;
    at.make("grandchild", &[owner(&held, true)]).await;
    at.delete("root", json!({"propagationPolicy": "Foreground"})).await;
    at.stays(&[&format!("held <- root! [{FINALIZER}] deleting"), "root [foregroundDeletion] deleting"]).await;
    at.patch("held", json!({"finalizers": null})).await;
    at.stays(&[]).await;
}

async fn foreground_without_blocks(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    at.make_at(&at.maps(), "held", &[owner(&root, false)], &[FINALIZER]).await;
    at.delete("root", json!({"propagationPolicy": "Foreground"})).await;
    at.stays(&[&format!("held <- root [{FINALIZER}] deleting")]).await;
    at.patch("held", json!({"finalizers": null})).await;
    at.stays(&[]).await;
}

async fn orphan(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    let child = at.make("child", &[owner(&root, true)]).await;
    at.make("grandchild", &[owner(&child, true)]).await;
    at.delete("root", json!({"propagationPolicy": "Orphan"})).await;
    at.stays(&["child", "grandchild <- child!"]).await;
}

async fn orphan_by_the_old_option(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    at.make("child", &[owner(&root, false)]).await;
    at.delete("root", json!({"orphanDependents": true})).await;
    at.stays(&["child"]).await;
}

async fn collection(at: &Space<'_>) {
    let roots = [at.make("root-a", &[]).await, at.make("root-b", &[]).await];
    at.make("child", &[owner(&roots[0], false), owner(&roots[1], false)]).await;
    at.patch("root-a", json!({"labels": {"root": "yes"}})).await;
    at.patch("root-b", json!({"labels": {"root": "yes"}})).await;
    at.is_known().await;
    let path = format!("{}?labelSelector=root%3Dyes", at.maps());
    at.send("DELETE", &path, &json!({"propagationPolicy": "Orphan"})).await;
    at.stays(&["child"]).await;
}

async fn absent_owner(at: &Space<'_>) {
    let root = at.make("root", &[]).await;
    let of = |change: Value| {
        let mut reference = owner(&root, false);
        change.as_object().unwrap().iter().for_each(|(name, value)| reference[name] = value.clone());
        reference
    };
    at.make("of-nobody", &[nobody()]).await;
    at.make("of-another-uid", &[of(json!({"uid": nobody()["uid"]}))]).await;
    at.make("of-another-name", &[of(json!({"name": "another"}))]).await;
    at.make("of-another-kind", &[of(json!({"kind": "Secret"}))]).await;
    at.make("of-an-unknown-kind", &[of(json!({"kind": "Nothing"}))]).await;
    at.make("of-an-unknown-group", &[of(json!({"apiVersion": "nothing.example.com/v1"}))]).await;
    at.make("of-both", &[owner(&root, false), nobody()]).await;
    at.stays(&["of-an-unknown-group <- root", "of-an-unknown-kind <- root", "of-both <- root", "root"]).await;
}

async fn two_owners(at: &Space<'_>) {
    let (going, staying) = (at.make("going", &[]).await, at.make("staying", &[]).await);
    at.make("child", &[owner(&going, true), owner(&staying, true)]).await;
    at.make("only", &[owner(&going, true)]).await;
    at.delete("going", json!({"propagationPolicy": "Foreground"})).await;
    at.stays(&["child <- staying!", "staying"]).await;
}

async fn two_owners_in_the_background(at: &Space<'_>) {
    let (going, staying) = (at.make("going", &[]).await, at.make("staying", &[]).await);
    at.make("child", &[owner(&going, false), owner(&staying, false)]).await;
    at.delete("going", json!({"propagationPolicy": "Background"})).await;
    at.stays(&["child <- staying", "staying"]).await;
}

async fn circle(at: &Space<'_>) {
    let a = at.make("a", &[]).await;
    let b = at.make("b", &[owner(&a, true)]).await;
    let c = at.make("c", &[owner(&b, true)]).await;
    at.patch("a", json!({"ownerReferences": [owner(&c, true)]})).await;
    at.stays(&["a <- c!", "b <- a!", "c <- b!"]).await;
    at.delete("a", json!({"propagationPolicy": "Foreground"})).await;
    at.stays(&[]).await;
}

async fn own_owner(at: &Space<'_>) {
    let a = at.make("a", &[]).await;
    at.patch("a", json!({"ownerReferences": [owner(&a, true)]})).await;
    at.stays(&["a <- a!"]).await;
    at.delete("a", json!({"propagationPolicy": "Foreground"})).await;
    // It waits for itself.
    at.stays(&["a <- a! [foregroundDeletion] deleting"]).await;
}

async fn owner_that_lingers(at: &Space<'_>) {
    let root = at.make_at(&at.maps(), "root", &[], &[FINALIZER]).await;
    at.make("child", &[owner(&root, true)]).await;
    at.delete("root", json!({"propagationPolicy": "Background"})).await;
    at.stays(&["child <- root!", &format!("root [{FINALIZER}] deleting")]).await;
    // Another who deletes it may want something else.
    at.delete("root", json!({"propagationPolicy": "Foreground"})).await;
    at.stays(&[&format!("root [{FINALIZER}] deleting")]).await;
    at.patch("root", json!({"finalizers": null})).await;
    at.stays(&[]).await;
}

async fn scopes(at: &Space<'_>) {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let map = at.make("map", &[]).await;
    let root = at.make_at(ROLES, &format!("{}-root", at.name), &[], &[]).await;
    at.make_at(ROLES, &format!("{}-of-a-map", at.name), &[owner(&map, false)], &[]).await;
    at.make("of-a-role", &[owner(&root, false)]).await;
    at.delete("map", Value::Null).await;
    at.stays(&["of-a-role <- scopes-root"]).await;
    at.send("DELETE", &format!("{ROLES}/scopes-root"), &Value::Null).await;
    at.stays(&[]).await;
    // A cluster-scoped object cannot be owned by one in a namespace, and is left alone.
    at.comes_to_at(ROLES, &["scopes-of-a-map <- map"]).await;
    at.send("DELETE", &format!("{ROLES}/scopes-of-a-map"), &Value::Null).await;
}

async fn another_namespace(at: &Space<'_>) {
    let path = "/api/v1/namespaces/default/configmaps";
    let elsewhere = at.make_at(path, "elsewhere", &[], &[]).await;
    let child = at.make("child", &[owner(&elsewhere, false)]).await;
    at.stays(&[]).await;
    let wanted = format!(
        "ownerRef [v1/ConfigMap, namespace: {space}, name: elsewhere, uid: {}] does not exist in namespace \"{space}\"",
        elsewhere["metadata"]["uid"].as_str().unwrap(),
        space = at.name
    );
    eventually(SOON, async || {
        let events = at.send("GET", &format!("/api/v1/namespaces/{}/events", at.name), &Value::Null).await;
        let is_wanted = |event: &&Value| event["involvedObject"]["uid"] == child["metadata"]["uid"];
        let Some(event) = events["items"].as_array().unwrap().iter().find(is_wanted) else {
            return Err(format!("{}: {events}", at.server.name()));
        };
        let said = json!([event["type"], event["reason"], event["message"], event["source"]["component"]]);
        let wanted = json!(["Warning", "OwnerRefInvalidNamespace", wanted, "garbage-collector-controller"]);
        if said == wanted { Ok(()) } else { Err(format!("{}: {said}", at.server.name())) }
    })
    .await;
    at.send("DELETE", &format!("{path}/elsewhere"), &Value::Null).await;
}

/// What becomes of dependents when the one who deletes does not say is a matter of the kind.
async fn defaults_of_kinds(at: &Space<'_>) {
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main:1"}]},
    });
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = "Always".into();
    let space = at.name;
    let owners = [
        (
            format!("/api/v1/namespaces/{space}/replicationcontrollers"),
            json!({"replicas": 0, "selector": {"a": "b"}, "template": always}),
        ),
        (format!("/apis/batch/v1/namespaces/{space}/jobs"), json!({"suspend": true, "template": template})),
        (
            format!("/apis/apps/v1/namespaces/{space}/replicasets"),
            json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": always}),
        ),
    ];
    for ((path, spec), name) in owners.iter().zip(["controller", "job", "set"]) {
        let root = at.send("POST", path, &json!({"metadata": {"name": "root"}, "spec": spec})).await;
        at.make(&format!("of-{name}"), &[owner(&root, false)]).await;
        at.is_known().await;
        at.send("DELETE", &format!("{path}/root"), &Value::Null).await;
    }
    at.stays(&["of-controller", "of-job"]).await;
}

const TREES: &str = "/apis/collecting.example.com/v1/namespaces/custom/trees";

async fn custom(at: &Space<'_>) {
    let names = json!({"plural": "trees", "singular": "tree", "kind": "Tree", "listKind": "TreeList"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let spec = json!({"group": "collecting.example.com", "scope": "Namespaced", "names": names, "versions": versions});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "trees.collecting.example.com"}, "spec": spec,
    });
    at.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    eventually(SOON, async || match at.server.send("GET", TREES, String::new()).await {
        (200, _) => Ok(()),
        (code, _) => Err(code),
    })
    .await;
    let new = |name: &str, owners: &[Value]| {
        let metadata = json!({"name": name, "ownerReferences": owners, "labels": {"scenario": "custom"}});
        json!({"apiVersion": "collecting.example.com/v1", "kind": "Tree", "metadata": metadata})
    };
    let tree = async |name: &str, owners: &[Value]| at.send("POST", TREES, &new(name, owners)).await;
    let (felled, left) = (tree("felled", &[]).await, tree("left", &[]).await);
    tree("branch", &[owner(&felled, true)]).await;
    tree("graft", &[owner(&left, true)]).await;
    at.make("bird", &[owner(&felled, false)]).await;
    at.make("nest", &[owner(&left, false)]).await;
    at.is_known().await;
    at.is_known_at(TREES, &new("canary", &[nobody()])).await;
    at.send("DELETE", &format!("{TREES}/felled"), &json!({"propagationPolicy": "Foreground"})).await;
    at.send("DELETE", &format!("{TREES}/left"), &json!({"propagationPolicy": "Orphan"})).await;
    at.comes_to_at(TREES, &["graft"]).await;
    at.stays(&["nest"]).await;
}

type Scenario = for<'s> fn(&'s Space<'s>) -> LocalBoxFuture<'s, ()>;

const SCENARIOS: [(&str, Scenario); 17] = [
    ("background", |at| Box::pin(background(at))),
    ("by-default", |at| Box::pin(by_default(at))),
    ("foreground", |at| Box::pin(foreground(at))),
    ("without-blocks", |at| Box::pin(foreground_without_blocks(at))),
    ("orphan", |at| Box::pin(orphan(at))),
    ("old-option", |at| Box::pin(orphan_by_the_old_option(at))),
    ("collection", |at| Box::pin(collection(at))),
    ("absent", |at| Box::pin(absent_owner(at))),
    ("two-owners", |at| Box::pin(two_owners(at))),
    ("two-owners-behind", |at| Box::pin(two_owners_in_the_background(at))),
    ("circle", |at| Box::pin(circle(at))),
    ("own-owner", |at| Box::pin(own_owner(at))),
    ("lingers", |at| Box::pin(owner_that_lingers(at))),
    ("scopes", |at| Box::pin(scopes(at))),
    ("elsewhere", |at| Box::pin(another_namespace(at))),
    ("kinds", |at| Box::pin(defaults_of_kinds(at))),
    ("custom", |at| Box::pin(custom(at))),
];

#[tokio::test]
async fn garbage_is_collected_as_by_a_kube_controller_manager() {
    let member = Member::start("collecting", MemberOptions { controllers: true, ..MemberOptions::default() }).await;
    let running = Own::new().built_in(BuiltIn::All).start().await.unwrap();
    let servers = [Server::Real(Box::new(member.api().await)), Server::Embedded(running.service())];
    let play = async |server: &Server, name: &'static str, scenario: Scenario| {
        let at = Space { server, name };
        at.send("POST", "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        // One that fails does not hide what the others find.
        AssertUnwindSafe(scenario(&at)).catch_unwind().await.is_err().then(|| format!("{name} at {}", server.name()))
    };
    let all = servers.iter().flat_map(|server| SCENARIOS.iter().map(move |(name, scenario)| (server, name, scenario)));
    let failed = join_all(all.map(|(server, name, scenario)| play(server, name, *scenario))).await;
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed, as said above: {}", failed.join(", "));
    running.end().await;
}
