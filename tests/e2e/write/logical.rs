//! What the logical object says of its parts: who is behind, whose part somebody touched, who else has the name; and
//! `kubefold status`, which lists that.

use http::Method;
use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Relay, Testbed};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// What `kubefold status -o json` says.
async fn status(fleet: &Kubefold) -> Value {
    let said = fleet.command(&["status", "-o", "json"]).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// What `kubefold status` prints for people.
async fn printed(fleet: &Kubefold) -> String {
    let said = fleet.command(&["status"]).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap()
}

/// Waits until the object has this annotation of kubefold's.
async fn says(api: &Api, key: &str, value: Value) {
    eventually(SOON, async || {
        let shown = api.get(WEB).await;
        let is = &shown["metadata"]["annotations"][format!("kubefold.io/{key}")];
        if *is == value { Ok(()) } else { Err(format!("{shown}")) }
    })
    .await;
}

async fn patch(member: &Member, patch: Value) {
    let kubectl = ["patch", "deployment", "web", "--type=merge", "-p", &patch.to_string()];
    member.kubectl(&kubectl).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_somebody_touched_is_told_and_never_repaired() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let [east, west] = ["east", "west"].map(|name| &bed[name]);
    let fleet = Kubefold::start(&FleetFile::default().member(east, 2).member(west, 1)).await;
    let api = fleet.api().await;
    post(&api, &deployment("web", 3)).await.ok();
    let plain = fleet.kubectl(&["get", "deployment", "web"]).await;
    plain.ok();
    assert_eq!(plain.stderr, "");
    says(&api, "differs", Value::Null).await;
    let calm = printed(&fleet).await;
    assert!(calm.ends_with("no unfinished writes, no differences\n") && calm.contains("east"), "{calm}");
    let members = status(&fleet).await["members"].clone();
    assert_eq!((&members[0]["state"], &members[1]["reachable"]), (&json!("ready"), &json!(true)), "{members}");
    assert!(text(&members[0], "/version").starts_with("v1.") && members[0]["cluster"].is_string(), "{members}");

    // What servers and autoscalers do is no difference.
    patch(west, json!({"spec": {"replicas": 5}, "metadata": {"annotations": {"cloud.example.com/note": "x"}}})).await;
    eventually(SOON, async || match api.get(WEB).await["spec"]["replicas"].as_i64() {
        Some(7) => Ok(()),
        other => Err(format!("{other:?} replicas")),
    })
    .await;
    says(&api, "differs", Value::Null).await;

    patch(west, json!({"metadata": {"labels": {"app": "edited"}}})).await;
    says(&api, "differs", json!("west")).await;
    let got = fleet.kubectl(&["get", "deployment", "web"]).await;
    got.ok();
    assert!(got.stderr.contains("Warning: deployments.apps \"web\" differs in member west"), "{}", got.stderr);
    let listed = status(&fleet).await["differing"].clone();
    let wanted = json!([{
        "resource": "deployments.apps", "namespace": "default", "name": "web", "members": ["west"]
    }]);
    assert_eq!(listed, wanted);
    let printed = printed(&fleet).await;
    assert!(printed.contains("DIFFERS") && printed.contains("deployments.apps/web in default"), "{printed}");
    patch(west, json!({"metadata": {"labels": {"app": "web"}}})).await;
    says(&api, "differs", Value::Null).await;

    west.kubectl(&["delete", "deployment", "web"]).await.ok();
    says(&api, "differs", json!("west")).await;
    fleet.kill9();
    fleet.restart().await;
    says(&fleet.api().await, "differs", json!("west")).await;
    assert_eq!(shares(&[east, west], "web").await, split(&[("east", 2)]), "nothing is repaired unasked");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_unfinished_write_has_not_reached_is_behind_and_listed() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let [east, west] = ["east", "west"].map(|name| &bed[name]);
    let relay = Relay::before(west).await;
    let file = FleetFile::default().member(east, 2).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    post(&api, &deployment("web", 3)).await.ok();
    relay.cut().await;
    eventually(SOON, async || match status(&fleet).await["members"][1]["reachable"].as_bool() {
        Some(false) => Ok(()),
        _ => Err("west is reachable".to_owned()),
    })
    .await;
    api.request(Method::DELETE, WEB, "").await.ok();
    let left = api.request(Method::GET, WEB, "").await;
    assert_eq!(left.ok()["metadata"]["annotations"]["kubefold.io/behind"], "west");
    let warned = left.warnings();
    assert!(warned.iter().any(|warning| warning.contains("is behind in member west")), "{warned:?}");
    for _ in 0..2 {
        let unfinished = status(&fleet).await["unfinished"].clone();
        let one = &unfinished[0];
        assert_eq!((&one["verb"], &one["name"]), (&json!("delete"), &json!("web")), "{unfinished}");
        assert_eq!((&one["behind"][0]["member"], one["ageSeconds"].is_u64()), (&json!("west"), true), "{unfinished}");
        assert!(!text(one, "/behind/0/why").is_empty());
        // The next process knows as much.
        fleet.kill9();
        fleet.restart().await;
    }
    relay.restore().await;
    let api = fleet.api().await;
    gone(&api, &[east, west], "web").await;
    eventually(SOON, async || match status(&fleet).await["unfinished"].as_array().map(Vec::len) {
        Some(0) => Ok(()),
        other => Err(format!("{other:?} writes are unfinished")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_in_one_sentence_why_it_has_nothing_to_say() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed["east"];
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1)).await;
    let complaint = async |args: &[&str]| {
        let said = fleet.command(args).await;
        assert_eq!(said.status.code(), Some(1));
        let text = String::from_utf8(said.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let stranger = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubefold"))
        .args(["status", "--kubeconfig", east.kubeconfig().to_str().unwrap()])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(stranger.stderr).unwrap();
    assert!(text.contains("is it a kubefold") && text.lines().count() == 1, "{text}");
    fleet.kill9();
    let text = complaint(&["status"]).await;
    assert!(text.contains("cannot reach kubefold at https://"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_placements_of_one_name_the_younger_is_member_local_and_a_warning_says_so() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let [east, west] = ["east", "west"].map(|name| &bed[name]);
    let both = FleetFile::default().member(east, 2).member(west, 1);
    let fleet = Kubefold::start(&both).await;
    post(&fleet.api().await, &deployment("web", 1)).await.ok();
    assert_eq!(shares(&[east, west], "web").await, split(&[("east", 1)]));
    // Ages are whole seconds.
    let second = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let made = second();
    eventually(SOON, async || if second() > made { Ok(()) } else { Err("the same second") }).await;
    // East leaves, the name is free, and another object takes it; then east is configured again.
    let alone = FleetFile::default().member(west, 1);
    fleet.configure(&alone);
    let api = fleet.api().await;
    eventually(SOON, async || match api.request(Method::GET, WEB, "").await.status.as_u16() {
        404 => Ok(()),
        other => Err(format!("{other}")),
    })
    .await;
    post(&api, &deployment("web", 1)).await.ok();
    fleet.configure(&both);
    eventually(SOON, async || {
        let whole = api.try_request(Method::GET, WEB, "").await?;
        let other = api.try_request(Method::GET, &format!("{WEB}@west"), "").await?;
        let told = |answer: &Answer| answer.warnings().iter().any(|text| text.contains("another, younger placement"));
        let home = whole.json()["metadata"]["annotations"]["kubefold.io/clusters"] == "east";
        let member_local = other.json()["metadata"]["annotations"]["kubefold.io/cluster"] == "west";
        if home && member_local && told(&whole) && told(&other) { Ok(()) } else { Err(format!("{whole}\n{other}")) }
    })
    .await;
    let doubled = status(&fleet).await["doubled"].clone();
    assert_eq!((&doubled[0]["name"], &doubled[0]["members"]), (&json!("web"), &json!(["west"])), "{doubled}");
}
