//! What people ask of a rollout over three members, by kubectl as it is.

use http::Method;
use serde_json::json;

use super::*;
use testbed::{FleetFile, Informer, Kubefold, MemberOptions, Testbed};

pub(super) const MEMBERS: [&str; 3] = ["east", "west", "north"];

pub(super) async fn start(bed: &Testbed) -> Kubefold {
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    Kubefold::start(&file).await
}

async fn names(member: &Member, path: &str) -> Vec<String> {
    let list = member.request(Method::GET, path, "").await.ok();
    list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_done_when_its_last_part_is() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let fleet = start(&bed).await;
    let api = fleet.api().await;
    // In the north nothing can run.
    let north = &bed["north"];
    let nodes = names(north, "/api/v1/nodes").await;
    north.kubectl(&["cordon", &nodes[0]]).await.ok();
    fleet.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=6"]).await.ok();
    eventually(PODS, async || match api.get(&format!("{DEPLOYMENTS}/web")).await["status"]["readyReplicas"].as_i64() {
        Some(4) => Ok(()),
        other => Err(format!("{other:?} are ready")),
    })
    .await;
    let wait = ["wait", "deployment/web", "--for=condition=Available", "--timeout=3s"];
    assert!(fleet.kubectl(&wait).await.refused().contains("timed out"), "one part is not available");
    let waiting = fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=3s"]).await;
    assert!(waiting.refused().contains("timed out") && waiting.stdout.contains("4 of 6"), "{}", waiting.stdout);
    north.kubectl(&["uncordon", &nodes[0]]).await.ok();
    fleet.kubectl(&["wait", "deployment/web", "--for=condition=Available", "--timeout=60s"]).await.ok();
    let done = fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await;
    assert!(done.ok().contains("successfully rolled out"), "{}", done.stdout);
    what_belongs_to_it_is_found(&bed, &fleet, &api).await;
    an_autoscaler_in_a_member_is_not_fought(&bed, &api).await;
    recorders_tell_of_it(&bed, &fleet).await;
}

/// `describe`, `rollout history`, `get all` and owner references lead from the placed object to what it is made of.
async fn what_belongs_to_it_is_found(bed: &Testbed, fleet: &Kubefold, api: &Api) {
    let described = fleet.kubectl(&["describe", "deployment", "web"]).await;
    let described = described.ok();
    let set = names(&bed["east"], "/apis/apps/v1/namespaces/default/replicasets").await.remove(0);
    assert!(described.contains("6 desired | 6 updated | 6 total | 6 available | 0 unavailable"), "{described}");
    assert!(described.contains(&format!("NewReplicaSet:   {set} (6/6 replicas created)")), "{described}");
    assert!(described.contains("OldReplicaSets:  <none>") && described.contains("ScalingReplicaSet"), "{described}");
    let history = fleet.kubectl(&["rollout", "history", "deployment/web"]).await;
    let revisions: Vec<_> =
        history.ok().lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert_eq!(revisions.len(), 1, "{}", history.stdout);
    assert!(revisions[0].starts_with("1 "), "{revisions:?}");
    let uid = api.get(&format!("{DEPLOYMENTS}/web")).await["metadata"]["uid"].clone();
    let sets = api.get("/apis/apps/v1/namespaces/default/replicasets?labelSelector=app%3Dweb").await;
    let sets = sets["items"].as_array().unwrap();
    assert!(sets.len() == 1 && sets[0]["metadata"]["ownerReferences"][0]["uid"] == uid, "{sets:?}");
    assert_eq!((text(&sets[0], "/metadata/name"), &sets[0]["status"]["readyReplicas"]), (&*set, &json!(6)));
    let pods = api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await;
    let pods = pods["items"].as_array().unwrap();
    let owned = pods.iter().filter(|pod| {
        let owner = &pod["metadata"]["ownerReferences"][0];
        sets.iter().any(|set| set["metadata"]["uid"] == owner["uid"] && set["metadata"]["name"] == owner["name"])
    });
    assert_eq!((pods.len(), owned.count()), (6, 6), "{pods:?}");
    let all = fleet.kubectl(&["get", "all"]).await;
    assert_eq!(all.ok().matches("deployment.apps/web ").count(), 1, "{}", all.stdout);
    assert_eq!((all.stdout.matches("replicaset.apps/web-").count(), all.stdout.matches("pod/web-").count()), (1, 6));
}

/// Somebody scales a part in its member: the sum follows, and stays.
async fn an_autoscaler_in_a_member_is_not_fought(bed: &Testbed, api: &Api) {
    bed["west"].kubectl(&["scale", "deployment", "web", "--replicas=5"]).await.ok();
    eventually(PODS, async || {
        let shown = api.get(&format!("{DEPLOYMENTS}/web")).await;
        let (spec, status, metadata) = (&shown["spec"], &shown["status"], &shown["metadata"]);
        let caught_up = metadata["generation"] == status["observedGeneration"];
        let sums = spec["replicas"] == 9 && status["availableReplicas"] == 9;
        let quiet = metadata["annotations"]["kubefold.io/differs"].is_null();
        if caught_up && sums && quiet { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(part(&bed["west"], "web").await.unwrap()["spec"]["replicas"], json!(5));
}

/// client-go's two recorders, of which each makes an event and then patches it, about a placed and about a member-local object.
async fn recorders_tell_of_it(bed: &Testbed, fleet: &Kubefold) {
    bed["west"].kubectl(&["create", "deployment", "alone", "--image=a", "--replicas=0"]).await.ok();
    eventually(SOON, async || fleet.kubectl(&["get", "deployments", "-o", "name"]).await.holds("alone@west")).await;
    for name in ["web", "alone@west"] {
        let recorders = Informer::of("events", &fleet.kubeconfig(), &[&format!("--deployment={name}")]);
        eventually(PODS * 2, async || match recorders.events_of("DONE").is_empty() {
            false => Ok(()),
            true => Err(recorders.errors()),
        })
        .await;
        let told = fleet.kubectl(&["events", "--for", &format!("deployment/{name}")]).await;
        assert!(told.ok().contains("Counted") && told.stdout.contains("InSeries"), "{told}");
        let described = fleet.kubectl(&["describe", "deployment", name]).await;
        assert!(described.ok().contains("by the older recorder"), "{described}");
        // They lie where their object does, and lead to it there.
        let own = name.split('@').next().unwrap();
        let mut holders = Vec::new();
        for member in bed.members() {
            let list = member.request(Method::GET, "/api/v1/namespaces/default/events", "").await.ok();
            let about = |event: &&Value| {
                event["involvedObject"]["name"] == own && ["Counted", "InSeries"].contains(&text(event, "/reason"))
            };
            let held: Vec<&Value> = list["items"].as_array().unwrap().iter().filter(about).collect();
            if held.is_empty() {
                continue;
            }
            let uid = part(member, own).await.unwrap()["metadata"]["uid"].clone();
            assert!(held.iter().all(|event| event["involvedObject"]["uid"] == uid), "{held:?}");
            holders.push(member.name());
        }
        assert!(holders.len() == 1 && (name == "web" || holders == ["west"]), "{name}: {holders:?}");
    }
}
