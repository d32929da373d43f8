//! Clusters that ClusterProfiles of another cluster describe are members, over real clusters, by kubectl.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testbed::{FleetFile, Kubefold, Member, MemberOptions, Output, Testbed, objects::create};

use crate::members::{says, token};

/// As much of the upstream definition as is used here.
///
/// Source: kubernetes-sigs/cluster-inventory-api `config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml`.
fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let manager = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
    let cluster = json!({"type": "object", "required": ["server"], "properties": {
        "server": {"type": "string"}, "certificate-authority-data": {"type": "string", "format": "byte"},
        "extensions": {"type": "array", "items": open}}});
    let provider = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "cluster": cluster}});
    let property = json!({"type": "object", "required": ["name", "value"],
        "properties": {"name": {"type": "string"}, "value": {"type": "string"}}});
    let status = json!({"type": "object", "properties": {
        "properties": {"type": "array", "items": property}, "accessProviders": {"type": "array", "items": provider}}});
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"status": status,
        "spec": {"type": "object", "required": ["clusterManager"], "properties": {"clusterManager": manager}}}});
    let names = json!({"kind": "ClusterProfile", "listKind": "ClusterProfileList", "plural": "clusterprofiles",
        "singular": "clusterprofile"});
    let version = json!({"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterprofiles.multicluster.x-k8s.io"},
        "spec": {"group": "multicluster.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}})
}

async fn given(hub: &Member, verb: &str, object: &Value) -> Output {
    hub.as_admin().run_with_input(&[verb, "-f", "-"], &object.to_string()).await
}

/// Makes a ClusterProfile that leads to a cluster, as a cluster manager does.
async fn describe(hub: &Member, name: &str, labels: Value, to: &Member) {
    let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": "fleet", "labels": labels}, "spec": {"clusterManager": {"name": "ours"}}});
    given(hub, "create", &profile).await.ok();
    let extension =
        json!({"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": format!("of-{name}")}});
    let cluster = json!({"server": to.server_url(), "extensions": [extension],
        "certificate-authority-data": STANDARD.encode(to.ca_pem())});
    let status = json!({"status": {"properties": [{"name": "topology.kubernetes.io/region", "value": "eu"}],
        "accessProviders": [{"name": "secretreader", "cluster": cluster}]}});
    patch_status(hub, name, &status).await;
}

async fn patch_status(hub: &Member, name: &str, status: &Value) {
    let status = status.to_string();
    let args = ["patch", "clusterprofile", name, "-n", "fleet", "--subresource=status", "--type=merge", "-p", &status];
    hub.kubectl(&args).await.ok();
}

fn secret(name: &str, token: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "fleet"},
        "stringData": {"token": token}})
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_an_inventory_are_members() {
    let bed = Testbed::start(&["hub", "west"], MemberOptions::default()).await;
    let (hub, west) = (&bed["hub"], &bed["west"]);
    create(west, "of-west", "v").await;
    let file = FleetFile::default().member(hub, 1);
    let with_inventory = file.clone().settings("clusterProfiles: {member: hub, namespace: fleet, selector: env=prod}");
    let fleet = Kubefold::start(&with_inventory).await;
    says(&fleet, &["describe", "member", "hub"], "it has no ClusterProfiles; apply the definition").await;
    hub.kubectl(&["create", "namespace", "fleet"]).await.ok();
    given(hub, "create", &definition()).await.ok();
    hub.as_admin().established("clusterprofiles.multicluster.x-k8s.io").await;
    joins_with_its_secret(&fleet, [hub, west]).await;
    refuses_what_it_cannot_use(&fleet, [hub, west]).await;
    takes_another_token(&fleet, [hub, west]).await;
    stays_while_the_inventory_is_down(&fleet, hub).await;
    // One that goes leaves, by its own cluster's word.
    hub.kubectl(&["delete", "clusterprofile", "spoke", "-n", "fleet"]).await.ok();
    fleet.kubectl(&["wait", "--for=delete", "member/spoke", "--timeout=60s"]).await.ok();
    let listed = fleet.kubectl(&["get", "configmaps", "-n", "default"]).await;
    assert!(!listed.ok().contains("@spoke"), "{listed}");
    says(&fleet, &["get", "events", "-n", "kubefold-system"], "left the fleet").await;
    // Without an inventory nobody is of one.
    describe(hub, "spoke", json!({"env": "prod"}), west).await;
    fleet.kubectl(&["wait", "--for=create", "member/spoke", "--timeout=60s"]).await.ok();
    fleet.configure(&file);
    fleet.kubectl(&["wait", "--for=delete", "member/spoke", "--timeout=60s"]).await.ok();
}

async fn joins_with_its_secret(fleet: &Kubefold, [hub, west]: [&Member; 2]) {
    describe(hub, "spoke", json!({"env": "prod"}), west).await;
    // Another environment's is not looked at.
    describe(hub, "test", json!({"env": "test"}), west).await;
    fleet.kubectl(&["wait", "--for=create", "member/spoke", "--timeout=60s"]).await.ok();
    says(fleet, &["describe", "member", "spoke"], "the Secret fleet/of-spoke there does not exist").await;
    says(fleet, &["describe", "member", "hub"], "spoke: ClusterProfile fleet/spoke of hub").await;
    given(hub, "create", &secret("of-spoke", &token(west, "fold").await)).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/spoke", "--timeout=60s"]).await.ok();
    says(fleet, &["get", "configmaps", "-n", "default"], "of-west@spoke").await;
    fleet.kubectl(&["wait", "--for=condition=ClusterProfiles", "member/hub", "--timeout=60s"]).await.ok();
    let wide = fleet.kubectl(&["get", "members", "-o", "wide"]).await;
    assert!(wide.ok().contains("ClusterProfile fleet/spoke of hub") && wide.ok().contains("clusters.yaml"), "{wide}");
    let labels = fleet.kubectl(&["get", "member", "spoke", "-o", "jsonpath={.spec.labels}"]).await;
    assert!(labels.ok().contains("\"env\":\"prod\"") && labels.ok().contains("region\":\"eu\""), "{labels}");
    for args in [&["delete", "member", "spoke"][..], &["label", "member", "spoke", "a=b"]] {
        let refused = fleet.kubectl(args).await;
        assert!(refused.refused().contains("it is of ClusterProfile fleet/spoke of hub; change that"), "{refused}");
    }
    let missing = fleet.kubectl(&["get", "member", "test"]).await;
    assert!(missing.refused().contains("NotFound"), "{missing}");
}

async fn refuses_what_it_cannot_use(fleet: &Kubefold, [hub, west]: [&Member; 2]) {
    describe(hub, "hub", json!({"env": "prod"}), west).await;
    describe(hub, "plugin", json!({"env": "prod"}), west).await;
    let exec = json!({"status": {"accessProviders": [{"name": "gke", "cluster": {"server": west.server_url()}}]}});
    patch_status(hub, "plugin", &exec).await;
    says(fleet, &["describe", "member", "hub"], "hub: clusters.yaml has a member of this name").await;
    says(fleet, &["describe", "member", "plugin"], "NoAccessProvider").await;
    says(fleet, &["get", "events", "-n", "kubefold-system"], "kubefold runs no plug-ins").await;
    hub.kubectl(&["delete", "clusterprofile", "hub", "plugin", "-n", "fleet"]).await.ok();
    fleet.kubectl(&["wait", "--for=condition=ClusterProfiles", "member/hub", "--timeout=60s"]).await.ok();
}

/// The token is no good any more, and the Secret in the hub gets another.
async fn takes_another_token(fleet: &Kubefold, [hub, west]: [&Member; 2]) {
    let other = token(west, "fold-2").await;
    west.kubectl(&["delete", "serviceaccount", "fold", "-n", "kube-system"]).await.ok();
    says(fleet, &["describe", "member", "spoke"], "CredentialRefused").await;
    given(hub, "apply", &secret("of-spoke", &other)).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/spoke", "--timeout=60s"]).await.ok();
    assert!(!fleet.log().contains(&other), "a token in a log");
}

/// Also over a restart that finds the hub down.
async fn stays_while_the_inventory_is_down(fleet: &Kubefold, hub: &Member) {
    hub.pause();
    says(fleet, &["get", "members"], "down").await;
    fleet.kill9();
    fleet.restart().await;
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/spoke", "--timeout=60s"]).await.ok();
    says(fleet, &["get", "configmaps", "-n", "default"], "of-west@spoke").await;
    says(fleet, &["describe", "member", "hub"], "their members stay as they are").await;
    hub.resume();
    fleet.kubectl(&["wait", "--for=condition=ClusterProfiles", "member/hub", "--timeout=60s"]).await.ok();
}
