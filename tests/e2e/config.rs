//! `clusters.yaml`, rewritten under a running kubefold.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Api, FleetFile, Kubefold, Testbed, eventually,
    samples::{config_map, create_all, keys, name, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/reloaded/configmaps";
const AGAIN: &str = "/api/v1/namespaces/again/configmaps";

async fn shows(api: &Api, path: &str, wanted: &[&str]) -> Value {
    eventually(SOON, async || {
        let answer = api.request(Method::GET, path, "").await;
        let list = answer.json();
        if answer.status == StatusCode::OK && keys(&list) == wanted { Ok(list) } else { Err(answer) }
    })
    .await
}

async fn logged(fleet: &Kubefold, text: &str) {
    eventually(SOON, async || {
        let log = fleet.log();
        if log.contains(text) { Ok(()) } else { Err(format!("no {text:?} in\n{log}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_changes_under_its_watchers() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in bed.members() {
        namespace(member, "reloaded").await;
        create_all(&member.api().await, MAPS, &[config_map("a", json!({}))]).await;
    }
    let alone = FleetFile::default().member(east, 1);
    let both = alone.clone().member(west, 1);
    let fleet = Kubefold::start(&alone).await;
    let api = fleet.api().await;
    let list = shows(&api, MAPS, &["reloaded/a@east"]).await;
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{MAPS}?watch=1&resourceVersion={at}")).await;

    // A member joins: open watches get its objects.
    fleet.configure(&both);
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("ADDED"), "a@west"));
    shows(&api, MAPS, &["reloaded/a@east", "reloaded/a@west"]).await;
    assert_eq!(api.request(Method::GET, "/clusters/west/version", "").await.status, StatusCode::OK);
    let printed = fleet.command(&["kubeconfig"]).await;
    assert!(String::from_utf8_lossy(&printed.stdout).contains("fleet-west"), "a new kubeconfig has its context");
    let folded = api.get("/api/v1/namespaces/reloaded").await;
    assert_eq!(folded["metadata"]["annotations"]["kubefold.io/clusters"], "east,west");

    // A bad file is refused, and nothing moves.
    bad_files(&fleet, &both).await;
    shows(&api, MAPS, &["reloaded/a@east", "reloaded/a@west"]).await;

    // A member's settings change: nobody sees an event for it.
    fleet.configure(&alone.clone().entry("west", &west.kubeconfig(), 7, "labels: {tier: gold}"));
    logged(&fleet, "configuration reloaded").await;
    create_all(&west.api().await, MAPS, &[config_map("b", json!({}))]).await;
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], name(&event["object"])), (&json!("ADDED"), "b@west"), "and not a word before it");

    // A member is removed: its objects go as if deleted, and it is named no more.
    fleet.configure(&alone);
    for wanted in ["a@west", "b@west"] {
        let event = watch.next(SOON).await.unwrap();
        assert_eq!((&event["type"], name(&event["object"])), (&json!("DELETED"), wanted));
    }
    shows(&api, MAPS, &["reloaded/a@east"]).await;
    assert_eq!(api.request(Method::GET, "/clusters/west/version", "").await.status, StatusCode::NOT_FOUND);
    let ready = String::from_utf8(api.request(Method::GET, "/readyz?verbose", "").await.body.to_vec()).unwrap();
    assert!(ready.contains("[+]member/east ok") && !ready.contains("west"), "{ready}");
    // A watch that saw all of this has never been cut.
    create_all(&east.api().await, MAPS, &[config_map("c", json!({}))]).await;
    assert_eq!(name(&watch.next(SOON).await.unwrap()["object"]), "c@east");
}

async fn bad_files(fleet: &Kubefold, good: &FleetFile) {
    let text = good.text();
    for (bad, cause) in [
        (text.replace("weight: 1", "wieght: 1"), "wieght"),
        (text.replace("name: west", "name: east"), "east"),
        (text.replace("name: west", "name: West_1"), "West_1"),
        ("members: [".to_owned(), "clusters.yaml"),
        // Promise 2: what is visible keeps its name.
        (format!("{text}\nshared: []\n"), "change with a restart only"),
        (
            text.replace("east.kubeconfig", "nowhere.kubeconfig").replace("admin.kubeconfig", "nowhere.kubeconfig"),
            "nowhere.kubeconfig",
        ),
    ] {
        assert_ne!(bad, text, "the test's own replacement: {cause}");
        let before = fleet.log().len();
        std::fs::write(fleet.config(), &bad).unwrap();
        eventually(SOON, async || {
            let log = fleet.log();
            let refused =
                log[before..].lines().find(|line| line.contains("configuration refused, the running one stays"));
            match refused {
                Some(line) if line.contains(cause) => Ok(()),
                other => Err(format!("no word of {cause}: {other:?}")),
            }
        })
        .await;
    }
    fleet.configure(good);
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_file_again() {
    let bed = Testbed::shared(&["east", "west"]).await;
    for member in bed.members() {
        namespace(member, "again").await;
        create_all(&member.api().await, AGAIN, &[config_map("a", json!({}))]).await;
    }
    let fleet = Kubefold::start(&FleetFile::default().member(&bed["east"], 1)).await;
    let api = fleet.api().await;
    shows(&api, AGAIN, &["again/a@east"]).await;
    fleet.hang_up();
    logged(&fleet, "configuration read again: nothing has changed").await;
    fleet.configure(&bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1)));
    fleet.hang_up();
    shows(&api, AGAIN, &["again/a@east", "again/a@west"]).await;
    // A start on a bad file is refused at once, with a code of its own.
    std::fs::write(fleet.config(), "members: nobody").unwrap();
    let status = fleet.restart_in_vain().await;
    assert_eq!(status.code(), Some(64), "EX_USAGE: {}", fleet.log());
}
