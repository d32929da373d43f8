//! Members that join and leave as objects, over real clusters, by kubectl.

use std::time::Duration;

use serde_json::{Value, json};

use testbed::{FleetFile, Kubectl, Kubefold, Member, MemberOptions, Output, Testbed, eventually, objects::create};

const SOON: Duration = Duration::from_secs(60);

/// A token of an administrator of a member, whose ServiceAccount has this name.
pub(crate) async fn token(member: &Member, account: &str) -> String {
    member.kubectl(&["create", "serviceaccount", account, "-n", "kube-system"]).await.ok();
    let subject = format!("--serviceaccount=kube-system:{account}");
    member.kubectl(&["create", "clusterrolebinding", account, "--clusterrole=cluster-admin", &subject]).await.ok();
    member.kubectl(&["create", "token", account, "-n", "kube-system"]).await.ok().trim().to_owned()
}

fn object(name: &str, server: &str, secret: &str) -> Value {
    json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "Member", "metadata": {"name": name},
        "spec": {"server": server, "credentialsSecretRef": {"name": secret}}})
}

fn secret(name: &str, token: &str, member: &Member) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kubefold-system"},
        "stringData": {"token": token, "ca.crt": member.ca_pem()}})
}

/// Runs kubectl over the fleet with a manifest.
async fn given(fleet: &Kubefold, verb: &str, manifest: &Value) -> Output {
    fleet.as_admin().run_with_input(&[verb, "-f", "-"], &manifest.to_string()).await
}

/// Waits until an answer of kubectl has a text.
pub(crate) async fn says(fleet: &Kubefold, args: &[&str], text: &str) {
    eventually(SOON, async || fleet.kubectl(args).await.holds(text)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_joins_and_leaves_as_an_object() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "of-east", "v").await;
    let fleet = Kubefold::start(&FleetFile::default().member(west, 1)).await;
    joins_once_its_secret_is_there(&fleet, [east, west]).await;
    says_what_happened_to_it(&fleet).await;
    takes_another_token(&fleet, east).await;
    is_not_in_the_file_too(&fleet, [east, west]).await;
    is_there_after_a_kill(&fleet).await;
    wrong_input(&fleet, east).await;
    somebody_else(&fleet, [east, west]).await;
    leaves(&fleet).await;
}

async fn joins_once_its_secret_is_there(fleet: &Kubefold, [east, west]: [&Member; 2]) {
    given(fleet, "create", &object("east", &east.server_url(), "of-east")).await.ok();
    let waited = ["wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=SecretNotFound"];
    fleet.kubectl(&[waited[0], waited[1], "member/east", "--timeout=30s"]).await.ok();
    // Until then nobody waits for it, programs neither.
    fleet.api().await.get("/api/v1/configmaps").await;
    let token = token(east, "fold").await;
    given(fleet, "create", &secret("of-east", &token, east)).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/east", "--timeout=60s"]).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Accepted", "member/east", "--timeout=30s"]).await.ok();
    says(fleet, &["get", "configmaps", "-n", "default"], "of-east@east").await;
    fleet.api().await.get("/clusters/east/api/v1/namespaces").await;
    // The Secret is kubefold's alone, and nobody reads it on the disk.
    for member in [east, west] {
        let there = member.kubectl(&["get", "namespace", "kubefold-system"]).await;
        assert!(there.refused().contains("NotFound"), "{there}");
    }
    fleet.kubectl(&["get", "namespace", "kubefold-system"]).await.ok();
    let shown = fleet.kubectl(&["get", "secrets", "-n", "kubefold-system"]).await;
    assert!(shown.ok().contains("of-east"), "{shown}");
    let everywhere = fleet.kubectl(&["get", "secrets", "-A"]).await;
    assert!(!everywhere.ok().contains("of-east"), "{everywhere}");
    let written: Vec<u8> = ["own.db", "own.db-wal"]
        .iter()
        .flat_map(|file| std::fs::read(fleet.state_dir().join(file)).unwrap_or_default())
        .collect();
    let encoded =
        fleet.kubectl(&["get", "secret", "of-east", "-n", "kubefold-system", "-o", "jsonpath={.data.token}"]).await;
    let encoded = encoded.ok().trim();
    assert!(!encoded.is_empty() && !contains(&written, token.as_bytes()) && !contains(&written, encoded.as_bytes()));
    assert!(!fleet.log().contains(&token), "a token in a log");
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(bytes, text).is_some()
}

async fn says_what_happened_to_it(fleet: &Kubefold) {
    // kubectl asks in all namespaces for the events of what lies in none.
    says(fleet, &["describe", "member", "east"], "Joined").await;
    let told = fleet.kubectl(&["describe", "member", "east"]).await;
    assert!(told.ok().contains("SecretNotFound"), "{told}");
    for resource in ["events", "events.v1.events.k8s.io"] {
        let listed = fleet.kubectl(&["get", resource, "-n", "kubefold-system"]).await;
        assert!(listed.ok().contains("member/east") && listed.ok().contains("Joined"), "{listed}");
    }
}

/// The token is no good any more, and the Secret gets another: no restart, and nobody's watch is closed.
async fn takes_another_token(fleet: &Kubefold, east: &Member) {
    let other = token(east, "fold-2").await;
    let api = fleet.api().await;
    let list = api.get("/api/v1/namespaces/default/configmaps").await;
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={at}")).await;
    east.kubectl(&["delete", "serviceaccount", "fold", "-n", "kube-system"]).await.ok();
    says(fleet, &["describe", "member", "east"], "CredentialRefused").await;
    let change = json!({"stringData": {"token": other}}).to_string();
    fleet.kubectl(&["patch", "secret", "of-east", "-n", "kubefold-system", "-p", &change]).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/east", "--timeout=60s"]).await.ok();
    says(fleet, &["describe", "member", "east"], "Reachable").await;
    create(east, "after", "v").await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
        (Some("ADDED"), Some("after@east"))
    );
    // Without its Secret it stays, with what it has.
    fleet.kubectl(&["delete", "secret", "of-east", "-n", "kubefold-system"]).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Accepted=False", "member/east", "--timeout=30s"]).await.ok();
    says(fleet, &["get", "configmaps", "-n", "default"], "after@east").await;
    given(fleet, "create", &secret("of-east", &other, east)).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Accepted", "member/east", "--timeout=30s"]).await.ok();
}

async fn is_not_in_the_file_too(fleet: &Kubefold, [east, west]: [&Member; 2]) {
    let exists = given(fleet, "create", &object("west", &west.server_url(), "x")).await;
    assert!(exists.refused().contains("AlreadyExists"), "{exists}");
    for args in [&["delete", "member", "west"][..], &["label", "member", "west", "a=b"]] {
        let refused = fleet.kubectl(args).await;
        assert!(refused.refused().contains("it stands in clusters.yaml"), "{refused}");
    }
    fleet.configure(&FleetFile::default().member(west, 1).member(east, 1));
    eventually(SOON, async || {
        let log = fleet.log();
        let is_refused = log.contains("the member east stands in clusters.yaml and is a Member object, too");
        if is_refused { Ok(()) } else { Err(log) }
    })
    .await;
    let members = fleet.kubectl(&["get", "members"]).await;
    assert!(members.ok().contains("east") && members.ok().contains("west"), "{members}");
    // At a start, the file's member counts, and the object says that its name is taken.
    fleet.kill9();
    fleet.restart().await;
    fleet.kubectl(&["wait", "--for=condition=Accepted=False", "member/east", "--timeout=60s"]).await.ok();
    says(fleet, &["describe", "member", "east"], "clusters.yaml has a member of this name").await;
    says(fleet, &["get", "configmaps", "-n", "default"], "of-east@east").await;
    fleet.configure(&FleetFile::default().member(west, 1));
    fleet.kubectl(&["wait", "--for=condition=Accepted", "member/east", "--timeout=60s"]).await.ok();
    says(fleet, &["get", "configmaps", "-n", "default"], "of-east@east").await;
}

async fn is_there_after_a_kill(fleet: &Kubefold) {
    fleet.kill9();
    fleet.restart().await;
    fleet.ready().await;
    let listed = fleet.kubectl(&["get", "configmaps", "-n", "default"]).await;
    assert!(listed.ok().contains("of-east@east"), "{listed}");
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/east", "--timeout=60s"]).await.ok();
}

async fn wrong_input(fleet: &Kubefold, east: &Member) {
    let refused = async |manifest: Value, why: &str| {
        let refused = given(fleet, "create", &manifest).await;
        assert!(refused.refused().contains(why), "{why}: {refused}");
    };
    refused(object("north", "127.0.0.1:6443", "x"), "is not a valid address").await;
    refused(object("a.b", "https://127.0.0.1:1", "x"), "is not a valid name").await;
    refused(object("lenient", "https://127.0.0.1:1", "x"), "is kubefold's own").await;
    refused(json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "Member", "metadata": {"name": "n"}}), "spec.server")
        .await;
    let mut broken = object("north", "https://127.0.0.1:1", "x");
    broken["spec"]["caBundle"] = "no certificate".into();
    refused(broken, "spec").await;
    // The cluster is in the fleet already.
    given(fleet, "create", &object("again", &east.server_url(), "of-east")).await.ok();
    says(fleet, &["get", "members", "-o", "wide"], "same cluster as east").await;
    says(fleet, &["describe", "member", "again"], "SameCluster").await;
    fleet.kubectl(&["delete", "member", "again"]).await.ok();
    // Nobody answers there: it is a member all the same, as one of the file.
    given(fleet, "create", &object("north", "https://127.0.0.1:1", "of-east")).await.ok();
    says(fleet, &["describe", "member", "north"], "Unreachable").await;
    fleet.kubectl(&["delete", "member", "north"]).await.ok();
    for args in [
        &["delete", "namespace", "kubefold-system"][..],
        &["create", "configmap", "c", "-n", "kubefold-system"],
        &["create", "namespace", "kubefold-system"],
    ] {
        let refused = fleet.kubectl(args).await;
        let why = refused.refused();
        assert!(why.contains("kubefold itself stores the namespace") || why.contains("AlreadyExists"), "{refused}");
    }
}

/// Whoever is no administrator of kubefold has nothing of it, though the members allow everything.
async fn somebody_else(fleet: &Kubefold, members: [&Member; 2]) {
    for member in members {
        let binding = ["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"];
        member.kubectl(&binding).await.ok();
    }
    let jane = Kubectl::new(&fleet.kubeconfig_for("jane", None), &fleet.state_dir());
    for args in [
        &["get", "secrets", "-n", "kubefold-system"][..],
        &["get", "namespace", "kubefold-system"],
        &["delete", "member", "east"],
    ] {
        let refused = jane.run(args).await;
        assert!(refused.refused().contains("Forbidden"), "{refused}");
    }
    let told = jane.run(&["describe", "member", "east"]).await;
    assert!(told.ok().contains("Joined"), "{told}");
}

async fn leaves(fleet: &Kubefold) {
    let finalizer = json!({"metadata": {"finalizers": ["example.com/wait"]}}).to_string();
    fleet.kubectl(&["patch", "member", "east", "--type=merge", "-p", &finalizer]).await.ok();
    fleet.kubectl(&["delete", "member", "east", "--wait=false"]).await.ok();
    // Its finalizer is waited for.
    says(fleet, &["get", "configmaps", "-n", "default"], "of-east@east").await;
    let none = json!({"metadata": {"finalizers": null}}).to_string();
    fleet.kubectl(&["patch", "member", "east", "--type=merge", "-p", &none]).await.ok();
    let listed = fleet.kubectl(&["get", "configmaps", "-n", "default"]).await;
    assert!(!listed.ok().contains("@east"), "{listed}");
    says(fleet, &["get", "events", "-n", "kubefold-system"], "left the fleet").await;
}
