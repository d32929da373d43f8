//! ConfigMaps and Secrets that one member has come along with the workload whose pods name them, with the caller's rights.

use serde_json::json;

use super::*;
use testbed::{Api, FleetFile, Kubefold, MemberOptions, Testbed};

const ALL: [&str; 3] = ["east", "west", "north"];
const POLICIES: &str = "policies:
- name: whole
  match: {kinds: [Deployment], labels: carried=yes}
  carry: [ConfigMap, Secret]
- name: maps
  match: {kinds: [Deployment], labels: carried=maps}
  carry: [ConfigMap]";

/// Who may do what in which members: `jane` may get no Secret in east, `kate` may make none in west.
fn rights(member: &str) -> String {
    let verbs = |is_denied: bool, verb: &str| {
        let all = ["get", "list", "create", "update", "patch"];
        all.into_iter().filter(|one| !is_denied || *one != verb).collect::<Vec<_>>().join(", ")
    };
    let role = |user: &str, secrets: String| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {user}}}
rules:
- {{apiGroups: [apps], resources: [deployments], verbs: [\"*\"]}}
- {{apiGroups: [\"\"], resources: [secrets], verbs: [{secrets}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {user}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {user}}}
subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]
---
"
        )
    };
    role("jane", verbs(member == "east", "get")) + &role("kate", verbs(member == "west", "create"))
}

async fn stage() -> Stage {
    let bed = Testbed::start(&ALL, MemberOptions::with_workloads(1)).await;
    let file = ALL.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1)).settings(POLICIES);
    for name in ALL {
        bed[name].apply(include_str!("../../../deploy/member-rbac.yaml")).await;
        bed[name].apply(&rights(name)).await;
    }
    // Before kubefold reads them for the first time.
    for secret in ["login", "pair", "grow", "closed", "late", "twice"] {
        bed["east"].kubectl(&["create", "secret", "generic", secret, "--from-literal=key=of-east"]).await.ok();
    }
    bed["west"].kubectl(&["create", "secret", "generic", "twice", "--from-literal=key=of-west"]).await.ok();
    bed["east"]
        .kubectl(&["create", "secret", "generic", "release", "--type=helm.sh/release.v1", "--from-literal=a=b"])
        .await
        .ok();
    bed["east"].kubectl(&["create", "configmap", "settings", "--from-literal=a=b"]).await.ok();
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    Stage { bed, fleet, api }
}

/// A Deployment by a policy, whose pods name these Secrets, a ConfigMap, what every cluster has, and what is optional.
fn naming(name: &str, replicas: i64, policy: &str, secrets: &[&str]) -> Value {
    let mut object = deployment(name, replicas);
    object["metadata"]["labels"]["carried"] = json!(policy);
    let spec = &mut object["spec"]["template"]["spec"];
    let variable = |secret: &&str| json!({"name": secret.to_uppercase(), "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}});
    spec["containers"][0]["env"] = secrets.iter().map(variable).collect();
    spec["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "nowhere", "optional": true}}]);
    spec["volumes"] = json!([
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "ca", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
    ]);
    object
}

fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/default/secrets/{name}")
}

impl Stage {
    async fn with_secret(&self, name: &str) -> Vec<&str> {
        let mut holders = Vec::new();
        for member in self.all() {
            if in_member(member, &secret(name)).await.is_some() {
                holders.push(member.name());
            }
        }
        holders
    }

    async fn ordered(&self, args: &[&str]) {
        let done = self.fleet.command(args).await;
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

#[track_caller]
fn warned(answer: &Answer, texts: &[&str]) {
    // As the header quotes it.
    let told = answer.warnings().join("\n").replace("\\\"", "\"");
    for text in texts {
        assert!(told.contains(text), "no {text:?} in: {told}");
    }
}

/// What is foretold is done: the object is one of the fleet, with its UID and its bytes in each member of the workload.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_has_comes_along_with_a_workload() {
    let stage = stage().await;
    let own = in_member(&stage.bed["east"], &secret("login")).await.unwrap();
    let web = naming("web", 3, "yes", &["login"]);
    let foretold = [
        "configmaps \"settings\" would be carried along from member east to members west, north",
        "secrets \"login\" would be carried along from member east to members west, north",
    ];
    let (good, planned, error) = plan::planned(&stage.fleet, &web, &[]).await;
    assert!(good && foretold.iter().all(|text| planned.contains(text)), "{planned}{error}");
    let dry = post_to(&stage.api, &format!("{DEPLOYMENTS}?dryRun=All"), &web).await;
    warned(&dry, &foretold);
    assert_eq!(stage.with_secret("login").await, ["east"], "nothing was done");

    let made = post(&stage.api, &web).await;
    assert_eq!(made.status.as_u16(), 201, "{made}");
    warned(
        &made,
        &[
            "secrets \"login\" of member east is one object of the fleet now, and was carried along to members west, north",
        ],
    );
    assert!(!made.warnings().join("\n").contains("nowhere"), "{made}");
    assert_eq!(shares(&stage.all(), "web").await, split(&[("east", 1), ("west", 1), ("north", 1)]));
    for member in ["west", "north"] {
        let part = in_member(&stage.bed[member], &secret("login")).await.unwrap();
        assert_eq!((&part["data"], &part["type"]), (&own["data"], &own["type"]), "{member}");
        assert!(in_member(&stage.bed[member], "/api/v1/namespaces/default/configmaps/settings").await.is_some());
    }
    let shown = stage.api.get(&secret("login")).await;
    assert_eq!(shown["metadata"]["uid"], own["metadata"]["uid"]);
    assert!(shown["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "{shown}");

    // The next workload finds it there, and a policy carries no more than its kinds.
    let again = post(&stage.api, &naming("again", 3, "yes", &["login"])).await;
    assert!(!again.warnings().join("\n").contains("carried"), "{again}");
    post(&stage.api, &naming("maps", 3, "maps", &["late"])).await.ok();
    post(&stage.api, &naming("plain", 3, "no", &["late"])).await.ok();
    assert_eq!(stage.with_secret("late").await, ["east"]);
    // An update that names something new brings it, too.
    let patch = json!({"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "late"}]}}}});
    stage.kubectl(&["patch", "deployment", "again", "--type=merge", "-p", &patch.to_string()]).await.ok();
    assert_eq!(stage.with_secret("late").await, ALL);
}

/// What a scale-up, and a move to a new member, need is there before the part.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_made_later_finds_what_its_pods_name() {
    let stage = stage().await;
    let made = post(&stage.api, &naming("grow", 1, "yes", &["grow"])).await;
    assert_eq!(made.status.as_u16(), 201, "{made}");
    let held = stage.with_secret("grow").await.len();
    assert!(held <= 2, "only members with a part get it");
    stage.kubectl(&["scale", "deployment/grow", "--replicas=3"]).await.ok();
    assert_eq!(stage.with_secret("grow").await, ALL);

    stage.ordered(&["cordon", "north"]).await;
    post(&stage.api, &naming("pair", 2, "yes", &["pair"])).await.ok();
    assert_eq!(stage.with_secret("pair").await, ["east", "west"]);
    stage.ordered(&["uncordon", "north"]).await;
    stage.ordered(&["drain", "west"]).await;
    eventually(PODS, async || {
        let there = part(&stage.bed["north"], "pair").await.is_some();
        let secret = in_member(&stage.bed["north"], &secret("pair")).await;
        match (there, secret) {
            (true, Some(_)) => Ok(()),
            (true, None) => panic!("the part came first"),
            (false, _) => Err("no part in north".to_owned()),
        }
    })
    .await;
    eventually(PODS, async || {
        let moves = stage.api.get("/kubefold/v1/moves").await;
        if moves["moves"] == json!([]) { Ok(()) } else { Err(moves.to_string()) }
    })
    .await;
    assert!(part(&stage.bed["west"], "pair").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_what_he_may_not_read_or_make() {
    let stage = stage().await;
    let api_of = async |user: &str| Api::from_kubeconfig(&stage.fleet.kubeconfig_for(user, None), None).await;
    let (jane, kate) = (api_of("jane").await, api_of("kate").await);
    let made = post(&jane, &naming("janes", 3, "yes", &["closed"])).await;
    assert_eq!(made.status.as_u16(), 201, "{made}");
    let refused = "secrets \"closed\", which the pods name, is not carried along: no member that answers and lets user \"jane\" get it has one";
    warned(&made, &[refused]);
    // What does not exist is told in the same words.
    let made = post(&jane, &naming("more", 3, "yes", &["absent"])).await;
    warned(&made, &[&refused.replace("closed", "absent")]);
    let made = post(&kate, &naming("kates", 3, "yes", &["closed"])).await;
    warned(
        &made,
        &["secrets \"closed\", which the pods name, is not carried along: member west: secrets is forbidden"],
    );
    assert_eq!(stage.with_secret("closed").await, ["east"]);
    let untouched = in_member(&stage.bed["east"], &secret("closed")).await.unwrap();
    assert!(untouched["metadata"]["labels"].is_null() && untouched["metadata"]["annotations"].is_null(), "{untouched}");

    // An administrator may do everything, and these are not carried all the same.
    let made = post(&stage.api, &naming("odd", 3, "yes", &["twice", "release"])).await;
    warned(
        &made,
        &[
            "secrets \"twice\", which the pods name, is not carried along: members east, west have one of their own each",
            "secrets \"release\", which the pods name, is not carried along: its type helm.sh/release.v1 is of one cluster alone",
        ],
    );
    assert_eq!(stage.with_secret("release").await, ["east"]);
    assert_eq!(stage.with_secret("twice").await, ["east", "west"]);
}
