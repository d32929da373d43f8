//! `kubefold release`: without kubefold the members are ordinary clusters.

use http::Method;

use super::*;
use crate::support::{FleetFile, Kubefold, MemberOptions, Testbed};

/// Where kubefold's keys would be: on what was placed, and on what controllers made of it.
const LOOKED_AT: [&str; 6] = [
    DEPLOYMENTS,
    "/apis/apps/v1/replicasets",
    "/api/v1/pods",
    "/api/v1/services",
    "/api/v1/configmaps",
    "/apis/apps/v1/controllerrevisions",
];

async fn traces(member: &Member) -> Vec<String> {
    let mut out = Vec::new();
    for path in LOOKED_AT {
        let list = member.request(Method::GET, path, "").await.ok();
        for item in list["items"].as_array().unwrap() {
            if item.to_string().contains("kubefold.io") {
                out.push(format!("{path}: {item}"));
            }
        }
    }
    out
}

async fn release(fleet: &Kubefold, more: &[&str]) -> (Option<i32>, String, String) {
    let config = fleet.config();
    let args: Vec<&str> = ["release", "--config", config.to_str().unwrap()].iter().chain(more).copied().collect();
    let said = fleet.command(&args).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (said.status.code(), text(said.stdout), text(said.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_leaves_ordinary_clusters() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let [east, west] = ["east", "west"].map(|name| &bed[name]);
    let fleet = Kubefold::start(&FleetFile::default().member(east, 1).member(west, 1)).await;
    let api = fleet.api().await;
    for name in ["web", "api"] {
        post(&api, &deployment(name, 4)).await.ok();
        let deployment = format!("deployment/{name}");
        fleet.kubectl(&["rollout", "status", &deployment, "--timeout=60s"]).await.ok();
    }
    let uids = async |member: &Member| {
        let pods = member.request(Method::GET, "/api/v1/pods", "").await.ok();
        let uids = pods["items"].as_array().unwrap().iter().map(|pod| text(pod, "/metadata/uid").to_owned());
        uids.collect::<std::collections::BTreeSet<_>>()
    };
    let pods = [uids(east).await, uids(west).await];
    assert!(!traces(east).await.is_empty());
    let (code, _, why) = release(&fleet, &[]).await;
    assert_eq!(code, Some(1));
    assert!(why.contains("nothing is released while a kubefold serves") && why.lines().count() == 1, "{why}");

    fleet.terminate(SOON).await;
    let (code, said, why) = release(&fleet, &["--dry-run"]).await;
    // Two Deployments, and a ReplicaSet of each that bears a copy of the annotation.
    assert_eq!(
        (code, &*said),
        (Some(0), "east: 4 objects would be released\nwest: 4 objects would be released\n"),
        "{why}"
    );
    assert!(!traces(east).await.is_empty());
    let (code, said, why) = release(&fleet, &["--member", "nowhere"]).await;
    assert!(code == Some(1) && why.contains("there is no member \"nowhere\""), "{said}{why}");
    west.pause();
    let (code, said, why) = release(&fleet, &["--member", "east"]).await;
    assert_eq!((code, &*said), (Some(0), "east: 4 objects released\n"), "{why}");
    assert!(why.contains("east: deployments.apps: 2"), "{why}");
    assert_eq!(traces(east).await, [""; 0]);
    west.resume();
    let (code, said, why) = release(&fleet, &[]).await;
    assert_eq!((code, &*said), (Some(0), "east: 0 objects released\nwest: 4 objects released\n"), "{why}");
    assert_eq!(traces(west).await, [""; 0]);

    fleet.restart().await;
    let list = fleet.api().await.get(DEPLOYMENTS).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name")).collect();
    assert_eq!(names, ["api@east", "api@west", "web@east", "web@west"]);
    assert_eq!([uids(east).await, uids(west).await], pods, "no pod was touched");
}
