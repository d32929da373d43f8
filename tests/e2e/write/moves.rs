//! Placements that move: drained members, rebalanced fleets, homes that are lost.

mod automatic;
mod overriding;

use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const MOVES: &str = "/kubefold/v1/moves";
const ALL: [&str; 3] = ["east", "west", "north"];

async fn stage() -> Stage {
    let bed = Testbed::start(&ALL, MemberOptions::with_workloads(1)).await;
    let file = ALL.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    for member in stage.all() {
        member.apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    stage
}

impl Stage {
    /// A command of kubefold; gives what it prints.
    async fn command(&self, args: &[&str]) -> String {
        let output = self.fleet.command(args).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn shown(&self, name: &str) -> Value {
        self.api.get(&format!("{DEPLOYMENTS}/{name}")).await
    }

    /// A Deployment of six that is available, and a ConfigMap; gives the Deployment.
    async fn with_web(&self) -> Value {
        post(&self.api, &deployment("web", 6)).await.ok();
        self.kubectl(&["create", "configmap", "settings", "--from-literal=a=b"]).await.ok();
        self.available("web", 6).await;
        self.shown("web").await
    }

    /// The names of a collection.
    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.api.get(path).await;
        list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
    }

    /// Deletes the Deployment: nothing is left of it in any member.
    async fn without_web(&self) {
        self.kubectl(&["delete", "deployment", "web", "--wait=false"]).await.ok();
        gone(&self.api, &self.all(), "web").await;
    }

    async fn available(&self, name: &str, replicas: i64) {
        eventually(PODS, async || {
            let shown = self.shown(name).await;
            match shown["status"]["availableReplicas"] == json!(replicas) && is_observed(&shown) {
                true => Ok(()),
                false => Err(shown.to_string()),
            }
        })
        .await;
    }

    /// No move is left, nor anything that follows one.
    async fn arrived(&self) {
        eventually(PODS, async || {
            let moves = self.api.get(MOVES).await;
            match moves["moves"] == json!([]) && moves["superseded"].is_null() {
                true => Ok(()),
                false => Err(moves.to_string()),
            }
        })
        .await;
    }
}

fn is_observed(shown: &Value) -> bool {
    shown["status"]["observedGeneration"] == shown["metadata"]["generation"]
}

fn home_of(shown: &Value) -> String {
    let holders = text(shown, "/metadata/annotations/kubefold.io~1clusters");
    holders.split(',').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_member_gives_what_runs_there_to_the_others() {
    let stage = stage().await;
    let before = stage.with_web().await;
    let home = home_of(&before);
    let revision = text(&before, "/metadata/resourceVersion");
    let path = format!("{DEPLOYMENTS}?watch=true&fieldSelector=metadata.name%3Dweb&resourceVersion={revision}");
    let mut watch = stage.api.watch(&path).await;
    let planned = stage.command(&["drain", &home, "--dry-run"]).await;
    assert!(planned.contains("deployments.apps/web in default"), "{planned}");
    assert_eq!(shares(&stage.all(), "web").await.len(), 3, "a dry run changes nothing");

    let told = stage.command(&["drain", &home]).await;
    assert!(told.contains("deployments.apps/web in default moved"), "{told}");
    let shares_now = shares(&stage.all(), "web").await;
    let expected = ALL.iter().filter(|name| **name != home).map(|name| ((*name).to_owned(), 3)).collect();
    assert_eq!(shares_now, expected);
    stage.available("web", 6).await;
    let after = stage.shown("web").await;
    for field in ["/metadata/uid", "/metadata/creationTimestamp", "/spec"] {
        assert_eq!(before.pointer(field), after.pointer(field), "{field}");
    }
    assert_ne!(home_of(&after), home);
    assert!(in_member(&stage.bed[home.as_str()], "/api/v1/namespaces/default/configmaps/settings").await.is_some());

    // Whoever watched saw one Deployment of six that was available all the time.
    let (mut generation, last) = (0, text(&after, "/metadata/resourceVersion").to_owned());
    loop {
        let (kind, object) = event(&mut watch, "web").await;
        assert_eq!((kind.as_str(), &object["spec"]["replicas"]), ("MODIFIED", &json!(6)), "{object}");
        assert!(object["status"]["availableReplicas"].as_i64() >= Some(6), "{object}");
        let now = object["metadata"]["generation"].as_i64().unwrap();
        assert!(now >= generation, "a generation never falls: {generation}, then {object}");
        assert!(object["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "{object}");
        generation = now;
        if text(&object, "/metadata/resourceVersion").parse::<u64>().unwrap() >= last.parse().unwrap() {
            break;
        }
    }
    the_object_goes_on(&stage, &home).await;
}

/// Writes go on at the new home; a cordoned member gets nothing, and an uncordoned one its share by `rebalance`.
async fn the_object_goes_on(stage: &Stage, drained: &str) {
    stage.kubectl(&["scale", "deployment/web", "--replicas=8"]).await.ok();
    let others = ALL.iter().filter(|name| **name != drained).map(|name| ((*name).to_owned(), 4)).collect();
    assert_eq!(shares(&stage.all(), "web").await, others, "the drained member is cordoned");
    post(&stage.api, &deployment("late", 4)).await.ok();
    assert!(part(&stage.bed[drained], "late").await.is_none());
    // One name for the ReplicaSets of all members, as before.
    eventually(PODS, async || {
        let sets = stage.api.get("/apis/apps/v1/namespaces/default/replicasets?labelSelector=app%3Dweb").await;
        match sets["items"].as_array().unwrap().len() {
            1 => Ok(()),
            _ => Err(sets.to_string()),
        }
    })
    .await;
    stage.fleet.kill9();
    stage.fleet.restart().await;
    stage.available("web", 8).await;
    stage.command(&["uncordon", drained]).await;
    let told = stage.command(&["rebalance"]).await;
    assert!(told.contains("deployments.apps/web in default moved"), "{told}");
    let counts: Vec<i64> = shares(&stage.all(), "web").await.into_values().collect();
    assert_eq!((counts.len(), counts.iter().sum::<i64>()), (3, 8), "{counts:?}");
    assert!(counts.iter().all(|count| (2..=3).contains(count)), "{counts:?}");
    assert_eq!(stage.shown("web").await["spec"]["replicas"], json!(8));
    assert_eq!(stage.command(&["rebalance", "--wait=false"]).await, "nothing is to be moved\n");
    // The youngest part becomes the home, and then the only one: the object is as old as it was.
    let before = stage.shown("web").await;
    for other in ALL.iter().filter(|name| **name != drained) {
        stage.command(&["drain", other]).await;
    }
    let after = stage.shown("web").await;
    assert_eq!(shares(&stage.all(), "web").await, split(&[(drained, 8)]));
    for field in ["/metadata/uid", "/metadata/creationTimestamp", "/spec"] {
        assert_eq!(before.pointer(field), after.pointer(field), "{field}");
    }
    let generation = |shown: &Value| shown["metadata"]["generation"].as_i64();
    assert!(generation(&after) >= generation(&before), "{before} {after}");
    stage.without_web().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_home_does_not_stop_the_fleet() {
    let stage = stage().await;
    let before = stage.with_web().await;
    let home = home_of(&before);
    let lost = &stage.bed[home.as_str()];
    lost.pause();
    let api = &stage.api;
    eventually(SOON, async || {
        let answer = api.try_request(Method::GET, "/kubefold/v1/status", "").await?;
        let members = answer.json()["members"].clone();
        let is_down = members.as_array().unwrap().iter().any(|one| one["name"] == *home && one["reachable"] == false);
        if is_down { Ok(()) } else { Err(members.to_string()) }
    })
    .await;
    let patch = json!({"metadata": {"labels": {"team": "blue"}}}).to_string();
    let patched = async |path: &str| {
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        api.send(request.body(patch.clone().into()).unwrap()).await.unwrap()
    };
    let web = format!("{DEPLOYMENTS}/web");
    refused(&patched(&web).await, 503, "ServiceUnavailable", &[&home]);

    stage.command(&["drain", &home]).await;
    stage.available("web", 6).await;
    let after = stage.shown("web").await;
    assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    assert!(patched(&web).await.status.is_success(), "writes go on");
    let settings = "/api/v1/namespaces/default/configmaps/settings";
    assert!(patched(settings).await.status.is_success(), "also of what every member has");
    // kubefold is killed, and knows nothing of the lost member but what the state directory says.
    stage.fleet.kill9();
    stage.fleet.restart().await;

    lost.resume();
    stage.arrived().await;
    eventually(PODS, async || if part(lost, "web").await.is_none() { Ok(()) } else { Err("the old part stands") })
        .await;
    assert_eq!(shares(&stage.all(), "web").await.into_values().collect::<Vec<_>>(), [3, 3]);
    eventually(SOON, async || {
        let part = in_member(lost, settings).await.unwrap();
        if part["metadata"]["labels"]["team"] == "blue" { Ok(()) } else { Err(part.to_string()) }
    })
    .await;
    assert_eq!(stage.names(DEPLOYMENTS).await, ["web"], "nothing of the lost part is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_members_are_adopted_as_they_are() {
    let stage = stage().await;
    let [east, west] = ["east", "west"].map(|name| &stage.bed[name]);
    for member in [east, west] {
        member.request(Method::POST, DEPLOYMENTS, deployment("web", 2).to_string()).await.ok();
    }
    eventually(PODS, async || {
        let seen = stage.api.get(DEPLOYMENTS).await;
        let ready = |item: &Value| item["status"]["availableReplicas"] == json!(2);
        let count = seen["items"].as_array().unwrap().iter().filter(|item| ready(item)).count();
        if count == 2 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let pods = async |member: &Member| {
        let list =
            member.request(Method::GET, "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", "").await.ok();
        let uid = |pod: &Value| text(pod, "/metadata/uid").to_owned();
        list["items"].as_array().unwrap().iter().map(uid).collect::<Vec<_>>()
    };
    let before = [pods(east).await, pods(west).await];
    let own = part(east, "web").await.unwrap();
    let adopt = ["adopt", "deploy/web", "-n", "default", "--member", "east,west"];
    let nothing = stage.fleet.command(&["adopt", "deploy/none", "-n", "default", "--member", "east"]).await;
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(!nothing.status.success() && said.contains("member east: there is no such object"), "{said}");
    assert_eq!(stage.command(&adopt).await, "deployments.apps/web in default adopted\n");
    let again = stage.fleet.command(&adopt).await;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("an object of the fleet has the name already"), "{said}");

    let shown = stage.shown("web").await;
    assert_eq!((&shown["metadata"]["uid"], &shown["spec"]["replicas"]), (&own["metadata"]["uid"], &json!(4)));
    assert_eq!(stage.names(DEPLOYMENTS).await, ["web"]);
    stage.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    assert_eq!([pods(east).await, pods(west).await], before, "no pod restarts");
    stage.command(&["rebalance"]).await;
    assert_eq!(shares(&stage.all(), "web").await.len(), 3);
    stage.without_web().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_member_keeps_its_parts() {
    let stage = stage().await;
    let before = stage.with_web().await;
    let home = home_of(&before);
    let renamed = ALL.iter().fold(FleetFile::default(), |file, name| {
        let now = if **name == home { "other" } else { name };
        file.entry(now, &stage.bed[name].kubeconfig(), 1, "")
    });
    stage.fleet.configure(&renamed);
    eventually(SOON, async || {
        let shown = stage.api.try_request(Method::GET, &format!("{DEPLOYMENTS}/web"), "").await?;
        if !shown.status.is_success() {
            return Err(shown.to_string());
        }
        let shown = shown.json();
        let is_it = shown["spec"]["replicas"] == json!(6) && home_of(&shown) == "other";
        if is_it { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    let after = stage.shown("web").await;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(after["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "{after}");
    assert_eq!(stage.names(DEPLOYMENTS).await, ["web"]);
    let sets = stage.names("/apis/apps/v1/namespaces/default/replicasets").await;
    assert!(sets.len() == 1 && !sets[0].contains('@'), "{sets:?}");
    stage.kubectl(&["scale", "deployment/web", "--replicas=9"]).await.ok();
    assert_eq!(shares(&stage.all(), "web").await.into_values().collect::<Vec<_>>(), [3, 3, 3]);
    stage.kubectl(&["label", "configmap", "settings", "team=blue"]).await.ok();
    for member in stage.all() {
        let part = in_member(member, "/api/v1/namespaces/default/configmaps/settings").await.unwrap();
        assert_eq!(part["metadata"]["labels"]["team"], json!("blue"), "{}", member.name());
    }
    // Also after a restart, when nothing is known but what the members have.
    stage.fleet.kill9();
    stage.fleet.restart().await;
    stage.without_web().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_member_reaches_it_under_its_new_name() {
    let stage = stage().await;
    let home = home_of(&stage.with_web().await);
    let away = ALL.into_iter().find(|name| *name != home).unwrap();
    let file = |now: &str| {
        ALL.iter().fold(FleetFile::default(), |file, name| {
            file.entry(if *name == away { now } else { name }, &stage.bed[name].kubeconfig(), 1, "")
        })
    };
    stage.bed[away].pause();
    let behind = async |member: &str| {
        eventually(SOON, async || {
            let shown = stage.shown("web").await;
            let is = &shown["metadata"]["annotations"]["kubefold.io/behind"];
            if *is == json!(member) { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    };
    eventually(SOON, async || {
        let labelled = stage.fleet.kubectl(&["label", "--overwrite", "deployment/web", "team=blue"]).await;
        if labelled.stderr.contains("is not changed in member") { Ok(()) } else { Err(labelled.to_string()) }
    })
    .await;
    // This one is never sent there.
    stage.kubectl(&["label", "deployment/web", "tier=gold"]).await.ok();
    behind(away).await;
    // It is not reached under the new name yet: nothing ends.
    stage.fleet.configure(&file("other"));
    eventually(SOON, async || {
        let shown = stage.api.get("/kubefold/v1/status").await;
        let names = shown["members"].to_string();
        if names.contains("\"other\"") { Ok(()) } else { Err(names) }
    })
    .await;
    stage.fleet.kill9();
    stage.bed[away].resume();
    stage.fleet.restart().await;
    // What may have been sent before the restart lands within 40 s, and what comes after it waits for that.
    eventually(3 * PODS, async || {
        let part = in_member(&stage.bed[away], &format!("{DEPLOYMENTS}/web")).await.unwrap();
        let labels = &part["metadata"]["labels"];
        let is = (&labels["team"], &labels["tier"]);
        if is == (&json!("blue"), &json!("gold")) { Ok(()) } else { Err(part.to_string()) }
    })
    .await;
    eventually(SOON, async || {
        let shown = stage.shown("web").await;
        let is = &shown["metadata"]["annotations"]["kubefold.io/behind"];
        if is.is_null() { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

/// `rollout undo` brings an older marker back, a backup one of a part that is gone, and anybody may write one.
#[tokio::test(flavor = "multi_thread")]
async fn markers_that_no_move_wrote_take_nothing() {
    let stage = stage().await;
    let home = home_of(&stage.with_web().await);
    let backup = part(&stage.bed[home.as_str()], "web").await.unwrap();
    stage.command(&["drain", &home]).await;
    let shown = stage.shown("web").await;
    let holders = text(&shown, "/metadata/annotations/kubefold.io~1clusters").to_owned();
    let rest: Vec<&Member> = stage.all().into_iter().filter(|member| member.name() != home).collect();

    // A rollout and its undo inside a member: Kubernetes puts the annotations of the older ReplicaSet back.
    rest[1].kubectl(&["set", "image", "deployment/web", "web=web:2"]).await.ok();
    rest[1].kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    rest[1].kubectl(&["rollout", "undo", "deployment/web"]).await.ok();
    rest[1].kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    // A restored backup of the part that is gone.
    let mut restored = backup.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
        restored["metadata"].as_object_mut().unwrap().remove(field);
    }
    stage.bed[home.as_str()].request(Method::POST, DEPLOYMENTS, restored.to_string()).await.ok();
    // A marker of a move that never was.
    let marker = text(&backup, "/metadata/annotations/kubefold.io~1placement");
    let part_marker = part(rest[0], "web").await.unwrap();
    let own_marker = text(&part_marker, "/metadata/annotations/kubefold.io~1placement");
    assert_ne!(marker, own_marker, "the markers follow the move");
    let mut forged: Value = serde_json::from_str(own_marker).unwrap();
    forged["epoch"] = json!(99);
    let patch = json!({"metadata": {"annotations": {MARKER: forged.to_string()}}}).to_string();
    rest[0].kubectl(&["patch", "deployment", "web", "--type=merge", "-p", &patch]).await.ok();

    eventually(PODS, async || {
        let mut names = stage.names(DEPLOYMENTS).await;
        names.sort();
        let differs = stage.shown("web").await["metadata"]["annotations"]["kubefold.io/differs"].clone();
        match names == ["web".to_owned(), format!("web@{home}")] && differs == json!(rest[0].name()) {
            true => Ok(()),
            false => Err(format!("{names:?}, {differs}")),
        }
    })
    .await;
    stage.available("web", 6).await;
    let now = stage.shown("web").await;
    assert_eq!(text(&now, "/metadata/annotations/kubefold.io~1clusters"), holders);
    assert_eq!(now["metadata"]["uid"], shown["metadata"]["uid"]);
    assert_eq!(shares(&stage.all(), "web").await.len(), 3, "nothing was deleted");
}

/// What cannot move without a gap or a loss stays, and says why; an autoscaler goes where its target is.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_says_what_stays_and_autoscalers_follow() {
    let stage = stage().await;
    post(&stage.api, &deployment("web", 1)).await.ok();
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"minReplicas": 1, "maxReplicas": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
    assert_eq!(stage.api.request(Method::POST, AUTOSCALERS, autoscaler.to_string()).await.status.as_u16(), 201);
    stage.available("web", 1).await;
    let at = home_of(&stage.shown("web").await);
    let pinned = |mut object: Value| {
        object["metadata"]["annotations"] = json!({"kubefold.io/place-on": at});
        object.to_string()
    };
    let template = deployment("db", 1)["spec"]["template"].clone();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template},
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (path, body) in [(SETS, set.to_string()), (claims, pinned(claim))] {
        assert_eq!(stage.api.request(Method::POST, path, body).await.status.as_u16(), 201);
    }
    let others: Vec<&str> = ALL.iter().copied().filter(|name| *name != at).collect();
    let set_in = home_of(&stage.api.get(&format!("{SETS}/db")).await);

    let told = stage.command(&["drain", &at]).await;
    assert!(told.contains("persistentvolumeclaims/data in default   the data of a claim does not move"), "{told}");
    assert!(told.contains("deployments.apps/web in default moved"), "{told}");
    stage.arrived().await;
    let now = home_of(&stage.shown("web").await);
    assert!(others.contains(&&*now), "{now}");
    eventually(PODS, async || {
        let mut limits = Vec::new();
        for member in stage.all() {
            if let Some(part) = in_member(member, &format!("{AUTOSCALERS}/web")).await {
                limits.push((member.name().to_owned(), part["spec"]["maxReplicas"].clone()));
            }
        }
        if limits == [(now.clone(), json!(10))] { Ok(()) } else { Err(format!("{limits:?}, the target is in {now}")) }
    })
    .await;
    let shown = stage.api.get(&format!("{AUTOSCALERS}/web")).await;
    assert_eq!((&shown["spec"]["minReplicas"], &shown["spec"]["maxReplicas"]), (&json!(1), &json!(10)));

    // A StatefulSet moves only where somebody says that it may run twice.
    let told = stage.command(&["drain", &set_in]).await;
    assert!(
        told.contains("statefulsets.apps/db in default") && told.contains("--force moves it all the same"),
        "{told}"
    );
    stage.command(&["uncordon", &at]).await;
    let told = stage.command(&["drain", &set_in, "--force"]).await;
    assert!(told.contains("statefulsets.apps/db in default moved"), "{told}");
    assert_ne!(home_of(&stage.api.get(&format!("{SETS}/db")).await), set_in);
    assert!(in_member(&stage.bed[set_in.as_str()], &format!("{SETS}/db")).await.is_none());
    assert!(in_member(&stage.bed[at.as_str()], &format!("{claims}/data")).await.is_some());
}

/// How many objects kubefold moves at once.
const MOVING_MAX: usize = 32;

/// Where nothing becomes available, no more than that wait with more pods than their number.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_many_objects_moves_some_at_a_time() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let file = FleetFile::default().member(&bed["east"], 1).entry("west", &bed["west"].kubeconfig(), 0, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    for member in ["east", "west"] {
        stage.bed[member].apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let all = MOVING_MAX + 8;
    for number in 0..all {
        post(&stage.api, &deployment(&format!("web-{number}"), 1)).await.ok();
    }
    let parts = async |name: &str| {
        let list = stage.bed[name].request(Method::GET, DEPLOYMENTS, "").await.ok();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!([parts("east").await, parts("west").await], [all, 0]);
    let west = &stage.bed["west"];
    let nodes = west.request(Method::GET, "/api/v1/nodes", "").await.ok();
    let node = text(&nodes["items"][0], "/metadata/name").to_owned();
    west.kubectl(&["cordon", &node]).await.ok();
    stage.command(&["drain", "east", "--wait=false"]).await;
    eventually(SOON, async || {
        let made = parts("west").await;
        if made == MOVING_MAX { Ok(()) } else { Err(made.to_string()) }
    })
    .await;
    // The others would follow at once.
    for _ in 0..50 {
        assert_eq!(parts("west").await, MOVING_MAX);
    }
    let moves = stage.api.get(MOVES).await;
    let waits =
        moves["moves"].as_array().unwrap().iter().filter(|one| one["stage"] == "waiting until they are available");
    assert_eq!((moves["moves"].as_array().unwrap().len(), waits.count()), (all, MOVING_MAX), "{moves}");
    west.kubectl(&["uncordon", &node]).await.ok();
    stage.arrived().await;
    assert_eq!([parts("east").await, parts("west").await], [0, all]);
}
