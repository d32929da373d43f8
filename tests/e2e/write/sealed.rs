//! What waits for a member is encrypted on disk, with a key that need not lie beside it.

use std::{fs, path::Path};

use http::Method;
use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Relay, Testbed};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// `hunter2-of-the-fleet`, as a Secret has it.
const PASSWORD: &str = "aHVudGVyMi1vZi10aGUtZmxlZXQ=";

/// Says which files of a directory have these bytes.
fn files_with(directory: &Path, bytes: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        let text = fs::read(file.path()).unwrap_or_default();
        if text.windows(bytes.len()).any(|window| window == bytes.as_bytes()) {
            found.push(file.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Makes Secrets until one has its home in east, where it can be written while west is down; gives its name.
async fn with_home_in_east(fleet: &Kubefold, make: impl AsyncFn(&str)) -> String {
    for number in 0..64 {
        let name = format!("door-{number}");
        make(&name).await;
        let shown = fleet.api().await.get(&format!("{SECRETS}/{name}")).await;
        if text(&shown, "/metadata/annotations/kubefold.io~1clusters").starts_with("east") {
            return name;
        }
    }
    panic!("all have their home in west")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_waits_for_a_member_is_in_no_file_and_reaches_it_after_a_restart() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let west = Relay::before(&bed["west"]).await;
    let file =
        FleetFile::default().member(&bed["east"], 1).entry("west", &bed["west"].kubeconfig_through(&west), 1, "");
    let keys = tempfile::tempdir().unwrap();
    let [key, other] = ["state.key", "other.key"].map(|name| keys.path().join(name));
    // Two kubefolds have made a key each.
    for path in [&key, &other] {
        let alone = Kubefold::start(&file).await;
        fs::copy(alone.state_dir().join("state.key"), path).unwrap();
    }
    let fleet = Kubefold::start_with(&file, &["--state-key-file", key.to_str().unwrap()]).await;
    assert!(!fleet.state_dir().join("state.key").exists(), "a key is made only where none is named");
    let secret = |name: &str, password: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"password": password}});
    let door = with_home_in_east(&fleet, async |name| {
        let made = fleet.request(Method::POST, SECRETS, secret(name, "b2xk").to_string()).await;
        assert_eq!(made.status.as_u16(), 201, "{made}");
    })
    .await;
    west.cut().await;
    eventually(SOON, async || {
        let status = fleet.api().await.get("/kubefold/v1/status").await["members"][1]["state"].clone();
        if status == json!("down") { Ok(()) } else { Err(status) }
    })
    .await;
    let made = fleet.request(Method::POST, SECRETS, secret("login", PASSWORD).to_string()).await;
    assert!(made.warnings().join("\n").contains("is behind"), "{made}");
    let patch = json!({"data": {"password": PASSWORD}}).to_string();
    fleet.kubectl(&["patch", "secret", &door, "--type=merge", "-p", &patch]).await.ok();
    assert_eq!(files_with(&fleet.state_dir(), PASSWORD), [""; 0]);
    fleet.kill9();
    assert_eq!(files_with(&fleet.state_dir(), PASSWORD), [""; 0]);

    // With another key it does not start, says why, and loses nothing.
    fs::rename(&key, keys.path().join("kept.key")).unwrap();
    fs::copy(&other, &key).unwrap();
    let ended = fleet.restart_in_vain().await;
    assert_eq!(ended.code(), Some(64), "{}", fleet.log());
    assert!(fleet.log().contains("was encrypted with another key than the one in"), "{}", fleet.log());
    fs::rename(keys.path().join("kept.key"), &key).unwrap();
    west.restore().await;
    fleet.restart().await;
    for name in ["login", &door] {
        eventually(Duration::from_secs(75), async || {
            let there = in_member(&bed["west"], &format!("{SECRETS}/{name}")).await.unwrap_or_default();
            if there["data"]["password"] == json!(PASSWORD) { Ok(()) } else { Err(there) }
        })
        .await;
    }
}
