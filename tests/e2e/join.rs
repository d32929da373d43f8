//! Clusters that join a fleet, and leave it, by one command each.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use http::StatusCode;
use serde_json::json;
use testbed::{
    FleetFile, Kubefold, Member, MemberOptions, Testbed, eventually, program,
    samples::{config_map, keys, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/crew/configmaps";

/// Runs `kubefold <command>` with an administrator's login for a member; gives success, output and what it said.
async fn run(args: &[&str], member: &Member, config: &Path) -> (bool, String, String) {
    let mut command = tokio::process::Command::new(program());
    command.args(args).arg("--config").arg(config).arg("--kubeconfig").arg(member.kubeconfig());
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

async fn has_rights(member: &Member) -> bool {
    let found = member.kubectl(&["get", "clusterroles,clusterrolebindings,namespaces", "-o", "name"]).await;
    found.ok().contains("kubefold")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_joins_and_leaves_a_running_fleet() {
    // A namespace goes with its controller's help.
    let bed = Testbed::start(&["east", "west"], MemberOptions { controllers: true, ..MemberOptions::default() }).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in bed.members() {
        namespace(member, "crew").await;
        member.api().await.create(MAPS, &config_map("own", json!({}))).await;
    }
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1)).await;
    let (config, api) = (fleet.config(), fleet.api().await);
    let before = fs::read_to_string(&config).unwrap();
    let seen = async |wanted: &[&str]| {
        eventually(SOON, async || {
            let answer = api.request(http::Method::GET, MAPS, "").await;
            // Every namespace has that of its own.
            let shown = keys(&answer.json()).into_iter().filter(|key| !key.ends_with("/kube-root-ca.crt"));
            let same = answer.status == StatusCode::OK && shown.eq(wanted.iter().copied());
            if same { Ok(()) } else { Err(answer) }
        })
        .await;
    };
    seen(&["crew/own@east"]).await;
    // What would be done is nothing that was done.
    let (done, out, error) = run(&["join", "--name", "west", "--dry-run"], west, &config).await;
    assert!(done && out.contains("kind: ClusterRoleBinding") && out.contains("renewTokens: true"), "{out}{error}");
    assert!(!has_rights(west).await && fs::read_to_string(&config).unwrap() == before);
    let (done, _, error) = run(&["join", "--name", "east"], west, &config).await;
    assert!(!done && error.contains("has a member east already"), "{error}");

    let (done, _, error) = run(&["join", "--name", "west"], west, &config).await;
    assert!(done && error.contains("west: clusterrole/kubefold-reader applied"), "{error}");
    seen(&["crew/own@east", "crew/own@west"]).await;
    let doctor = tokio::process::Command::new(program())
        .args(["doctor", "--member", "west", "--config"])
        .arg(&config)
        .output()
        .await
        .unwrap();
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success() && !found.contains("note "), "{found}");
    // Callers are themselves there, with a token that can do nothing else.
    api.create(MAPS, &config_map("made@west", json!({}))).await;
    seen(&["crew/made@west", "crew/own@east", "crew/own@west"]).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let whoami = api.create("/clusters/west/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
    assert_eq!(whoami["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]), "{whoami}");
    // Both tokens are renewed, each by its own account, and the new ones work.
    let tokens =
        ["reader.token", "impersonator.token"].map(|file| config.parent().unwrap().join("members/west").join(file));
    eventually(SOON, async || {
        let log = fleet.log();
        let is_renewed = |path: &PathBuf| {
            let path = path.display().to_string();
            log.lines().any(|line| line.contains("renewed a token") && line.contains(&path))
        };
        if tokens.iter().all(is_renewed) { Ok(()) } else { Err(log) }
    })
    .await;
    api.create(MAPS, &config_map("later@west", json!({}))).await;
    seen(&["crew/later@west", "crew/made@west", "crew/own@east", "crew/own@west"]).await;

    // It leaves nothing behind.
    let (done, out, error) = run(&["unjoin", "west", "--dry-run"], west, &config).await;
    assert!(done && out.contains("clusterrole/kubefold-impersonator") && has_rights(west).await, "{out}{error}");
    let (done, _, error) = run(&["unjoin", "north"], west, &config).await;
    assert!(!done && error.contains("has no member \"north\"; its members are east, west"), "{error}");
    let (done, _, error) = run(&["unjoin", "west"], west, &config).await;
    assert!(done && error.contains("west: clusterrole/kubefold-reader removed"), "{error}");
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    assert!(!tokens.iter().any(|path| path.exists()));
    seen(&["crew/own@east"]).await;
    eventually(SOON, async || if has_rights(west).await { Err("rights are left") } else { Ok(()) }).await;
    let (done, _, error) = run(&["unjoin", "east"], east, &config).await;
    assert!(!done && error.contains("the last member"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_joins_as_objects_and_kubefold_renews_its_tokens() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let fleet = Kubefold::start(&FleetFile::default().member(west, 1)).await;
    let before = fs::read_to_string(fleet.config()).unwrap();
    let objects = joined_as_objects(east, &["--dry-run"]).await;
    assert!(objects.contains("kind: ClusterRoleBinding") && objects.contains("\"renewTokens\": true"), "{objects}");
    assert!(!has_rights(east).await);
    let objects = joined_as_objects(east, &["--token-life", "10m"]).await;
    assert_eq!(fs::read_to_string(fleet.config()).unwrap(), before);
    fleet.as_admin().run_with_input(&["create", "-f", "-"], &objects).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "member/east", "--timeout=60s"]).await.ok();
    fleet.kubectl(&["wait", "--for=condition=TokensRenewed", "member/east", "--timeout=60s"]).await.ok();
    let made: serde_json::Value = serde_json::from_str(&objects).unwrap();
    for key in ["token", "impersonator-token"] {
        let path = format!("go-template={{{{index .data \"{key}\" | base64decode}}}}");
        let kept = fleet.kubectl(&["get", "secret", "east", "-n", "kubefold-system", "-o", &path]).await;
        let first = made["items"][0]["stringData"][key].as_str().unwrap();
        assert!(kept.ok().starts_with("eyJ") && kept.ok() != first, "{key} is as it was made");
        assert!(!fleet.log().contains(kept.ok()) && !fleet.log().contains(first), "a token in a log");
    }
    let described = fleet.kubectl(&["describe", "member", "east"]).await;
    assert!(described.ok().contains("the tokens in its Secret are good until"), "{described}");
    // What callers ask goes by the new ones.
    fleet.kubectl(&["create", "configmap", "kept@east"]).await.ok();
    // Whoever may make no token any more is told so, while the one that there is counts.
    east.kubectl(&["delete", "rolebindings", "--all", "-n", "kubefold"]).await.ok();
    fleet.kill9();
    fleet.restart().await;
    fleet.kubectl(&["wait", "--for=condition=TokensRenewed=False", "member/east", "--timeout=60s"]).await.ok();
    let told = async || fleet.kubectl(&["describe", "member", "east"]).await.holds("RenewalFailed");
    let told = eventually(SOON, told).await;
    assert!(told.contains("token: the member answered 403"), "{told}");
    fleet.kubectl(&["get", "configmap", "kept@east"]).await.ok();
}

/// What `kubefold join --object` prints.
async fn joined_as_objects(member: &Member, flags: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program());
    command.args(["join", "--object", "--name", "east", "--kubeconfig"]).arg(member.kubeconfig()).args(flags);
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
