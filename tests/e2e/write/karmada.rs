//! Policies as objects: Karmada's with kubectl, as its documentation has them, and kubefold's own.

use super::*;
use testbed::{FleetFile, MemberOptions};

/// A policy for Deployments of the label `karmada` with these weights of east and west.
fn propagation(placement: Value) -> Value {
    let selector =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"karmada": "yes"}}});
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "nginx-propagation"},
        "spec": {"resourceSelectors": [selector], "placement": placement},
    })
}

fn weighted(east: u32, west: u32) -> Value {
    let weight = |member: &str, weight: u32| json!({"targetCluster": {"clusterNames": [member]}, "weight": weight});
    json!({
        "clusterAffinity": {"clusterNames": ["east", "west"]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [weight("east", east), weight("west", west)]},
        },
    })
}

/// Another tag in west.
fn overriding() -> Value {
    let image = json!({"component": "Tag", "operator": "replace", "value": "v2"});
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "nginx-op"},
        "spec": {"overrideRules": [
            {"targetCluster": {"clusterNames": ["west"]}, "overriders": {"imageOverrider": [image]}},
        ]},
    })
}

fn selected(name: &str, replicas: i64) -> Value {
    let mut object = deployment(name, replicas);
    object["metadata"]["labels"]["karmada"] = json!("yes");
    object
}

async fn image(member: &Member, name: &str) -> Value {
    let part = part(member, name).await.unwrap();
    part["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn karmadas_policies_are_objects_that_place_and_override() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::with_workloads(1)).await;
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file.settings("policies:\n- {name: ours, strategy: one}\n")).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    for member in stage.all() {
        member.apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    served(&stage).await;
    placed(&stage).await;
    refused_by_field(&stage).await;
    changed(&stage).await;
    own(&stage).await;
}

/// The kinds have Karmada's names and columns.
async fn served(stage: &Stage) {
    let all = stage.kubectl(&["api-resources", "--api-group=policy.karmada.io", "--no-headers"]).await;
    for short in ["pp", "cpp", "op", "cop"] {
        assert!(all.ok().lines().any(|line| line.split_whitespace().nth(1) == Some(short)), "{}", all.ok());
    }
    let told = stage.kubectl(&["explain", "propagationpolicies.spec.placement.spreadConstraints"]).await;
    assert!(told.ok().contains("maxGroups"), "{}", told.ok());
    stage.kubectl_with(&["apply", "-f", "-"], &propagation(weighted(1, 2))).await.ok();
    let columns = stage.kubectl(&["get", "pp"]).await;
    let words: Vec<&str> = columns.ok().split_whitespace().take(6).collect();
    assert_eq!(words, ["NAME", "CONFLICT-RESOLUTION", "PRIORITY", "AGE", "nginx-propagation", "Abort"]);
}

async fn placed(stage: &Stage) {
    stage.kubectl_with(&["create", "-f", "-"], &selected("nginx", 3)).await.ok();
    assert_eq!(shares(&stage.all(), "nginx").await, split(&[("east", 1), ("west", 2)]), "at once");
    let counted = ["wait", "--for=jsonpath={.status.objects}=1", "pp/nginx-propagation", "--timeout=60s"];
    stage.kubectl(&counted).await.ok();
    let wide = stage.kubectl(&["get", "pp", "-o", "wide", "--no-headers"]).await;
    assert_eq!(wide.ok().split_whitespace().next_back(), Some("1"), "{}", wide.ok());
    stage.kubectl_with(&["create", "-f", "-"], &overriding()).await.ok();
    stage.kubectl_with(&["create", "-f", "-"], &selected("web", 3)).await.ok();
    let [east, west, _] = stage.all();
    assert_eq!((image(east, "web").await, image(west, "web").await), (json!("web:1"), json!("web:v2")));
    let shown = stage.kubectl(&["get", "deployment", "web", "-o", "jsonpath={..image}"]).await;
    assert_eq!(shown.ok(), "web:1", "as its author wrote it");
    // What was there before gets it, too.
    eventually(PODS, async || match image(west, "nginx").await {
        image if image == "web:v2" => Ok(()),
        image => Err(image),
    })
    .await;
}

async fn refused_by_field(stage: &Stage) {
    let mut overwriting = propagation(weighted(1, 1));
    overwriting["metadata"]["name"] = json!("overwriting");
    overwriting["spec"]["conflictResolution"] = json!("Overwrite");
    overwriting["spec"]["suspension"] = json!({"dispatching": true});
    let refusal = stage.kubectl_with(&["create", "-f", "-"], &overwriting).await;
    for field in ["spec.conflictResolution: Forbidden", "spec.suspension: Forbidden"] {
        assert!(refusal.refused().contains(field), "{}", refusal.refused());
    }
    let mut unknown = propagation(weighted(1, 1));
    unknown["metadata"]["name"] = json!("unknown");
    unknown["spec"]["placement"]["tomorrow"] = json!(1);
    let refusal = stage.kubectl_with(&["create", "-f", "-"], &unknown).await;
    assert!(refusal.refused().contains("unknown field \"spec.placement.tomorrow\""), "{}", refusal.refused());
    let mut several = propagation(json!({"clusterAffinity": {"clusterNames": ["east", "west"]}}));
    several["metadata"]["name"] = json!("several");
    let refusal = stage.kubectl_with(&["create", "-f", "-"], &several).await;
    assert!(refusal.refused().contains("a Deployment cannot be duplicated"), "{}", refusal.refused());
}

/// A changed policy moves what is there; one that is deleted leaves it where it is.
async fn changed(stage: &Stage) {
    let west = json!({"clusterAffinity": {"clusterNames": ["west"]}});
    stage.kubectl_with(&["apply", "-f", "-"], &propagation(west)).await.ok();
    let moved = async || match shares(&stage.all(), "nginx").await {
        shares if shares == split(&[("east", 0), ("west", 3)]) => Ok(()),
        shares => Err(format!("{shares:?}")),
    };
    eventually(PODS * 2, moved).await;
    stage.fleet.restart().await;
    stage.kubectl_with(&["create", "-f", "-"], &selected("later", 2)).await.ok();
    assert_eq!(shares(&stage.all(), "later").await, split(&[("west", 2)]), "it is in force from the first request on");
    stage.kubectl(&["delete", "pp", "nginx-propagation"]).await.ok();
    stage.kubectl_with(&["create", "-f", "-"], &selected("after", 3)).await.ok();
    assert_eq!(shares(&stage.all(), "after").await.len(), 3, "by default");
    assert_eq!(shares(&stage.all(), "later").await, split(&[("west", 2)]));
}

/// PlacementPolicies are entries of the configuration.
async fn own(stage: &Stage) {
    let policy = |name: &str, spec: Value| json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": name}, "spec": spec});
    let eastern = policy("eastern", json!({"match": {"labels": "own=yes"}, "members": ["east"]}));
    stage.kubectl_with(&["create", "-f", "-"], &eastern).await.ok();
    stage.kubectl(&["wait", "placementpolicy/eastern", "--for=condition=Accepted", "--timeout=10s"]).await.ok();
    let mut object = deployment("mine", 2);
    object["metadata"]["labels"]["own"] = json!("yes");
    stage.kubectl_with(&["create", "-f", "-"], &object).await.ok();
    assert_eq!(shares(&stage.all(), "mine").await, split(&[("east", 2)]));
    // It says how many objects it holds for, whatever a client says.
    let claim = r#"{"status":{"objects":99}}"#;
    stage.kubectl(&["patch", "placementpolicy", "eastern", "--type=merge", "-p", claim]).await.ok();
    let holds = async |objects: &str| {
        let wanted = format!("--for=jsonpath={{.status.objects}}={objects}");
        stage.kubectl(&["wait", "placementpolicy/eastern", &wanted, "--timeout=20s"]).await.ok();
    };
    holds("1").await;
    let kinds = stage.kubectl(&["get", "placementpolicy", "eastern", "-o", "jsonpath={.status.kinds}"]).await;
    assert_eq!(kinds.ok(), r#"[{"kind":"Deployment.apps","objects":1}]"#);
    let table = stage.kubectl(&["get", "placementpolicies", "--no-headers"]).await;
    let cells: Vec<&str> = table.ok().split_whitespace().collect();
    assert_eq!(cells[..3], ["eastern", "True", "1"], "{}", table.ok());
    // One that exists keeps its policy.
    stage.kubectl(&["label", "deployment", "mine", "own=no", "--overwrite"]).await.ok();
    let mut second = deployment("second", 1);
    second["metadata"]["labels"]["own"] = json!("yes");
    stage.kubectl_with(&["create", "-f", "-"], &second).await.ok();
    holds("2").await;
    stage.kubectl(&["delete", "deployment", "mine", "second"]).await.ok();
    holds("0").await;
    let told = stage.kubectl(&["explain", "placementpolicy.spec.perMember"]).await;
    assert!(told.ok().contains("registry"), "{}", told.ok());
    for (bad, why) in [
        (policy("bad", json!({"members": ["south"]})), "there is no member \"south\""),
        (policy("ours", json!({"strategy": "one"})), "clusters.yaml has a policy of this name"),
    ] {
        let refusal = stage.kubectl_with(&["create", "-f", "-"], &bad).await;
        assert!(refusal.refused().contains(why), "{}", refusal.refused());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_policy_selects_is_refused_where_the_configuration_says_so() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file.settings("unmatched: refuse\n")).await;
    let api = fleet.api().await;
    let post = async |path: &str, object: &Value| api.request(Method::POST, path, object.to_string()).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unmatched"}});
    post("/api/v1/namespaces", &namespace).await.ok();
    let maps = "/api/v1/namespaces/unmatched/configmaps";
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let words = ["no policy selects it, and the configuration says `unmatched: refuse`; have a policy select it"];
    refused(&post(maps, &map("settings")).await, 422, "Invalid", &words);
    post(maps, &map("own@west")).await.ok();
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "maps", "namespace": "unmatched"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
    });
    post("/apis/policy.karmada.io/v1alpha1/namespaces/unmatched/propagationpolicies", &policy).await.ok();
    post(maps, &map("settings")).await.ok();
    for member in bed.members() {
        assert!(in_member(member, &format!("{maps}/settings")).await.is_some(), "{}", member.name());
    }
}
