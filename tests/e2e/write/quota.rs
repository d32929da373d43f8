//! A quota of the fleet: its hard limits are divided, and the shares follow what is used.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;
use tokio_util::task::TaskTracker;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const POLICY: &str = "policies:\n- {name: quota, match: {kinds: [ResourceQuota]}, strategy: divide}\n";
const MEMBERS: [&str; 3] = ["east", "west", "north"];
const QUOTA: &str = "/api/v1/namespaces/team/resourcequotas/all";
const OF_TEAM: &str = "/apis/apps/v1/namespaces/team/deployments";

async fn stage() -> Stage {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    for name in MEMBERS {
        bed[name].apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let fleet = Kubefold::start(&file(&bed, &MEMBERS, POLICY)).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    stage.kubectl(&["create", "namespace", "team"]).await.ok();
    stage
}

fn file(bed: &Testbed, members: &[&str], policies: &str) -> FleetFile {
    let file = members.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    file.settings(policies)
}

fn quota(hard: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all", "namespace": "team"},
        "spec": {"hard": hard}
    })
}

/// What the parts in the members say of pods, by member.
async fn pods_of(stage: &Stage) -> BTreeMap<String, i64> {
    let mut shares = BTreeMap::new();
    for member in stage.all() {
        if let Some(part) = in_member(member, QUOTA).await {
            shares.insert(member.name().to_owned(), text(&part, "/spec/hard/pods").parse().unwrap());
        }
    }
    shares
}

/// Waits until the members' controllers have taken in what the parts say.
async fn taken_in(stage: &Stage) {
    for member in stage.all() {
        eventually(SOON, async || {
            let part = in_member(member, QUOTA).await.ok_or("there is no part")?;
            if part["status"]["hard"] == part["spec"]["hard"] { Ok(()) } else { Err(part.to_string()) }
        })
        .await;
    }
}

/// What the fleet view says is used and limited of pods.
async fn shown(stage: &Stage) -> (String, String) {
    let status = stage.api.get(QUOTA).await["status"].clone();
    let of = |field: &str| status[field]["pods"].as_str().unwrap_or_default().to_owned();
    (of("used"), of("hard"))
}

/// Waits until a Deployment has that many ready pods, and no more exist.
async fn has_pods(stage: &Stage, name: &str, pods: i64) {
    eventually(PODS, async || {
        let status = stage.api.get(&format!("{OF_TEAM}/{name}")).await["status"].clone();
        let list = stage.api.get(&format!("/api/v1/namespaces/team/pods?labelSelector=app%3D{name}")).await;
        let found = i64::try_from(list["items"].as_array().unwrap().len()).unwrap();
        let ready = status["readyReplicas"].as_i64().unwrap_or(0);
        if (ready, found) == (pods, pods) { Ok(()) } else { Err(format!("{found} pods: {status}")) }
    })
    .await;
}

/// Looks at the members all the time: never do the parts come to more than `most`, as they say and as their members hold
/// them to. Only what two looks in a row found is a state that there was.
struct Watcher {
    stop: Arc<AtomicBool>,
    looking: tokio::task::JoinHandle<usize>,
}

impl Watcher {
    async fn start(stage: &Stage, most: i64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut apis = Vec::new();
        for member in stage.all() {
            apis.push(member.api().await);
        }
        let asked = Arc::clone(&stop);
        let looking = TaskTracker::new().spawn(async move {
            let (mut before, mut looks) = (Vec::new(), 0);
            while !asked.load(Ordering::Relaxed) {
                let mut now = Vec::new();
                for api in &apis {
                    now.push(api.request(Method::GET, QUOTA, "").await.json());
                }
                if now == before {
                    for of in ["/spec/hard/pods", "/status/hard/pods"] {
                        let pods =
                            |part: &Value| part.pointer(of).map_or(0, |pods| pods.as_str().unwrap().parse().unwrap());
                        let sum: i64 = now.iter().map(pods).sum();
                        assert!(sum <= most, "{of}: {sum} in {now:?}");
                    }
                    looks += 1;
                }
                before = now;
            }
            looks
        });
        Self { stop, looking }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.looking.await.expect("the sum is never above the whole") > 10);
    }
}

/// A Deployment in the namespace, on one member or on all.
fn in_team(name: &str, replicas: i64, on: Option<&str>) -> Value {
    let mut made = deployment(name, replicas);
    if let Some(on) = on {
        made["metadata"]["annotations"] = json!({"kubefold.io/place-on": on});
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_ten_pods_in_all_members_together() {
    let stage = stage().await;
    let whole = quota(&json!({"pods": "10", "requests.storage": "10Gi", "count/jobs.batch": "5", "configmaps": "20"}));
    stage.kubectl_with(&["apply", "-f", "-"], &whole).await.ok();
    taken_in(&stage).await;
    assert_eq!(pods_of(&stage).await.values().sum::<i64>(), 10, "{:?}", pods_of(&stage).await);
    let watcher = Watcher::start(&stage, 10).await;

    // It reads back as it was written, and the same again is nothing.
    let before = stage.api.get(QUOTA).await;
    assert_eq!(before["spec"]["hard"], whole["spec"]["hard"]);
    assert!(!before.to_string().contains("kubefold.io/whole"), "{before}");
    let again = stage.kubectl_with(&["apply", "-f", "-"], &whole).await;
    assert!(again.ok().contains("unchanged"), "{again}");
    assert!(!again.stderr.contains("hard limits apply in each member"), "{again}");
    assert_eq!(stage.kubectl_with(&["diff", "-f", "-"], &whole).await.code, Some(0));
    assert_eq!(stage.api.get(QUOTA).await["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);

    post_to(&stage.api, OF_TEAM, &in_team("web", 8, None)).await.ok();
    has_pods(&stage, "web", 8).await;
    let waits = post_to(&stage.api, OF_TEAM, &in_team("next", 4, None)).await;
    let told = waits.warnings().join("\n");
    assert!(told.contains("has room for 2 of its 4 pods"), "{told}: {waits}");
    has_pods(&stage, "next", 2).await;
    eventually(SOON, async || {
        let shown = shown(&stage).await;
        if shown == ("10".to_owned(), "10".to_owned()) { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
    let described = stage.kubectl(&["describe", "quota", "all", "-n", "team"]).await.ok().to_owned();
    let line = described.lines().find(|line| line.starts_with("pods")).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(line, ["pods", "10", "10"], "{described}");

    stage.kubectl(&["delete", "deployment", "web", "-n", "team"]).await.ok();
    has_pods(&stage, "next", 4).await;
    watcher.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_of_a_quota_follow_what_is_asked() {
    let stage = stage().await;
    let server_side = ["apply", "--server-side", "--field-manager=gitops", "-f", "-"];
    stage.kubectl_with(&server_side, &quota(&json!({"pods": "10"}))).await.ok();
    taken_in(&stage).await;
    let watcher = Watcher::start(&stage, 10).await;
    // All of it is to run in one member, which has a third: the others let theirs go first.
    post_to(&stage.api, OF_TEAM, &in_team("big", 8, Some("east"))).await.ok();
    has_pods(&stage, "big", 8).await;
    assert!(pods_of(&stage).await["east"] >= 8, "{:?}", pods_of(&stage).await);
    // A pod by itself is admitted at once or not at all.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "alone", "annotations": {"kubefold.io/place-on": "west"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}
    });
    post_to(&stage.api, "/api/v1/namespaces/team/pods", &pod).await.ok();
    // A scale-up asks, too.
    stage.kubectl(&["scale", "deployment", "big", "-n", "team", "--replicas=9"]).await.ok();
    has_pods(&stage, "big", 9).await;
    watcher.end().await;

    // Less is less at once, and more is divided again.
    stage.kubectl_with(&server_side, &quota(&json!({"pods": "6", "secrets": "3"}))).await.ok();
    eventually(SOON, async || {
        let shares = pods_of(&stage).await;
        if shares.values().sum::<i64>() == 6 { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    let now = stage.api.get(QUOTA).await;
    assert_eq!(now["spec"]["hard"], json!({"pods": "6", "secrets": "3"}));
    for member in stage.all() {
        assert_eq!(in_member(member, QUOTA).await.unwrap()["spec"]["hard"]["secrets"], "3");
    }
    stage.kubectl(&["delete", "deployment", "big", "-n", "team"]).await.ok();
    stage.kubectl_with(&server_side, &quota(&json!({"pods": "12"}))).await.ok();
    eventually(SOON, async || {
        let left = stage.api.get("/api/v1/namespaces/team/pods").await["items"].as_array().unwrap().len();
        if left == 1 { Ok(()) } else { Err(format!("{left} pods")) }
    })
    .await;
    eventually(SOON, async || {
        let told = stage.fleet.command(&["rebalance"]).await;
        assert!(told.status.success(), "{told:?}");
        let shares = pods_of(&stage).await;
        if shares.values().all(|pods| *pods == 4) { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    assert_eq!(
        stage.api.get(QUOTA).await["spec"]["hard"],
        json!({"pods": "12"}),
        "what is left out is no limit any more"
    );

    // By policy that is done without an order.
    post_to(&stage.api, OF_TEAM, &in_team("big", 8, Some("north"))).await.ok();
    has_pods(&stage, "big", 8).await;
    assert!(pods_of(&stage).await["north"] >= 8, "{:?}", pods_of(&stage).await);
    stage.kubectl(&["delete", "deployment", "big", "-n", "team"]).await.ok();
    stage.fleet.configure(&file(&stage.bed, &MEMBERS, &POLICY.replace("divide}", "divide, rebalance: {every: 1s}}")));
    eventually(PODS, async || {
        let shares = pods_of(&stage).await;
        if shares.values().all(|pods| *pods == 4) { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_joins_gets_a_share_of_the_quota() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::default()).await;
    for name in MEMBERS {
        bed[name].apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let fleet = Kubefold::start(&file(&bed, &MEMBERS[..2], POLICY)).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    stage.kubectl(&["create", "namespace", "team"]).await.ok();
    stage.kubectl_with(&["create", "-f", "-"], &quota(&json!({"pods": "12", "count/jobs.batch": "6"}))).await.ok();
    assert_eq!(pods_of(&stage).await, split(&[("east", 6), ("west", 6)]));
    let watcher = Watcher::start(&stage, 12).await;
    stage.fleet.configure(&file(&stage.bed, &MEMBERS, POLICY));
    eventually(PODS, async || {
        let shares = pods_of(&stage).await;
        if shares == split(&[("east", 4), ("west", 4), ("north", 4)]) { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    watcher.end().await;
    // What is no limit is refused as on one cluster, and changes nothing.
    for hard in [json!({"pods": "many"}), json!({"pods": true}), json!({"pods": "-1"}), json!("10"), json!(10)] {
        let patch = json!({"spec": {"hard": hard}}).to_string();
        let told = stage.kubectl(&["patch", "quota", "all", "-n", "team", "--type=merge", "-p", &patch]).await;
        assert!(!told.succeeded(), "{patch}: {told}");
        let told = stage.kubectl(&["patch", "quota", "all", "-n", "team", "-p", &patch]).await;
        assert!(!told.succeeded(), "{patch}: {told}");
    }
    let joined = in_member(&stage.bed["north"], QUOTA).await.unwrap();
    assert_eq!(joined["spec"]["hard"]["count/jobs.batch"], "2", "{joined}");
    assert_eq!(stage.api.get(QUOTA).await["spec"]["hard"], json!({"pods": "12", "count/jobs.batch": "6"}));
}
