//! What the controllers of a placed workload make under one name is one object in the fleet: clients that judge a rollout
//! by its new ReplicaSet, or go back by its revisions, see what they would see in one cluster.

use http::Method;
use serde_json::json;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed, samples::namespace};

const MEMBERS: [&str; 3] = ["east", "west", "north"];
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/revisions/controllerrevisions";

async fn start(bed: &Testbed, settings: &str) -> Kubefold {
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    Kubefold::start(&file.settings(settings)).await
}

/// The revisions that `rollout history` tells.
async fn history(fleet: &Kubefold, of: &str) -> Vec<String> {
    let told = fleet.kubectl(&["rollout", "history", of]).await.ok().to_owned();
    let lines = told.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

async fn done(fleet: &Kubefold, what: &str) {
    fleet.kubectl(&["rollout", "status", what, "--timeout=60s"]).await.ok();
}

/// The image of a workload's part in each member.
async fn images(bed: &Testbed, path: &str) -> Vec<String> {
    let mut out = Vec::new();
    for name in MEMBERS {
        let part = in_member(&bed[name], path).await.unwrap();
        out.push(text(&part, "/spec/template/spec/containers/0/image").to_owned());
    }
    out
}

/// Names and UIDs of what a list shows.
async fn shown(api: &Api, path: &str) -> Vec<(String, String)> {
    let list = api.get(path).await;
    let both = |item: &Value| (text(item, "/metadata/name").to_owned(), text(item, "/metadata/uid").to_owned());
    list["items"].as_array().unwrap().iter().map(both).collect()
}

/// The members of a folded object, in the order of the alphabet.
fn holders(object: &Value) -> Vec<&str> {
    let mut members: Vec<_> = text(object, "/metadata/annotations/kubefold.io~1clusters").split(',').collect();
    members.sort_unstable();
    members
}

/// The ReplicaSets, the one with fewer replicas first: its name, and what is wanted, there and ready.
async fn sets(fleet: &Kubefold, api: &Api) -> Vec<(String, [i64; 3])> {
    let printed = fleet.kubectl(&["get", "replicasets", "--no-headers"]).await;
    let list = api.get(SETS).await;
    let mut sets = Vec::new();
    for set in list["items"].as_array().unwrap() {
        assert_eq!(holders(set), ["east", "north", "west"]);
        let number = |at: &str| set.pointer(at).and_then(Value::as_i64).unwrap_or_default();
        let numbers = ["/spec/replicas", "/status/replicas", "/status/readyReplicas"].map(number);
        sets.push((text(set, "/metadata/name").to_owned(), numbers));
    }
    let rows: Vec<_> = printed.ok().lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(rows, sets.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), "kubectl shows the same");
    sets.sort_by_key(|(_, numbers)| numbers[0]);
    sets
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_undone_and_described_by_replica_sets_that_are_one_each() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let fleet = start(&bed, "").await;
    let web = format!("{DEPLOYMENTS}/web");
    let api = fleet.api().await;
    fleet.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=6"]).await.ok();
    done(&fleet, "deployment/web").await;
    fleet.kubectl(&["set", "image", "deployment/web", "web=web:2"]).await.ok();
    done(&fleet, "deployment/web").await;
    assert_eq!(history(&fleet, "deployment/web").await, ["1", "2"]);
    for (image, revisions) in [("web:1", ["2", "3"]), ("web:2", ["3", "4"]), ("web:1", ["4", "5"])] {
        let told = fleet.kubectl(&["rollout", "undo", "deployment/web"]).await;
        assert_eq!(told.ok().trim(), "deployment.apps/web rolled back");
        done(&fleet, "deployment/web").await;
        assert_eq!(images(&bed, &web).await, [image; 3]);
        assert_eq!(history(&fleet, "deployment/web").await, revisions);
    }
    let both = sets(&fleet, &api).await;
    let [(old, none), (new, all)] = &both[..] else { panic!("{both:?}") };
    assert_eq!((none, all), (&[0; 3], &[6; 3]));
    let described = fleet.kubectl(&["describe", "deployment", "web"]).await.ok().to_owned();
    assert!(described.contains(&format!("NewReplicaSet:   {new} (6/6 replicas created)")), "{described}");
    assert!(described.contains(&format!("OldReplicaSets:  {old} (0/0 replicas created)")), "{described}");
    owners_lead_to_them(&fleet, &api).await;

    let before = shown(&api, SETS).await;
    bed["west"].pause();
    assert_eq!(shown(&api, SETS).await, before, "an outage renames nothing");
    bed["west"].resume();
    fleet.restart().await;
    assert_eq!(shown(&fleet.api().await, SETS).await, before, "nor does a restart");
    owners_lead_to_them(&fleet, &fleet.api().await).await;
    they_are_written_whole(&bed, &fleet, (old, new)).await;
}

/// From a pod to its ReplicaSet to its Deployment, by name and UID.
async fn owners_lead_to_them(fleet: &Kubefold, api: &Api) {
    let deployment = api.get(&format!("{DEPLOYMENTS}/web")).await["metadata"]["uid"].clone();
    let pods = api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await;
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 6, "{pods:?}");
    for pod in pods {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let path = "jsonpath={.metadata.uid} {.metadata.ownerReferences[0].uid}";
        let set = fleet.kubectl(&["get", "replicaset", text(owner, "/name"), "-o", path]).await;
        assert_eq!(set.ok(), format!("{} {}", text(owner, "/uid"), deployment.as_str().unwrap()), "{pod}");
    }
}

/// A write to one by its plain name is one to all parts; none of them gets the label of a placed object's part.
async fn they_are_written_whole(bed: &Testbed, fleet: &Kubefold, (old, new): (&str, &str)) {
    let uids = async |name: &str| {
        let mut uids = Vec::new();
        for member in MEMBERS {
            let set = in_member(&bed[member], &format!("{SETS}/{name}")).await;
            uids.push(set.map(|set| text(&set, "/metadata/uid").to_owned()));
        }
        uids
    };
    fleet.kubectl(&["annotate", "replicaset", new, "note=x"]).await.ok();
    for member in MEMBERS {
        let set = in_member(&bed[member], &format!("{SETS}/{new}")).await.unwrap();
        assert_eq!(set["metadata"]["annotations"]["note"], "x", "{set}");
        assert!(set["metadata"]["labels"][MARKER].is_null(), "{set}");
    }
    let scaled = ["scale", "replicaset", new, "--replicas=9", "--dry-run=server"];
    assert!(fleet.kubectl(&scaled).await.ok().contains("scaled (server dry run)"));
    let of_west = format!("{new}@west");
    let part = fleet.kubectl(&["get", "replicaset", &of_west, "-o", "jsonpath={.spec.replicas}"]).await;
    assert_eq!(part.ok(), "2", "a part can be read by its own name");
    let refused = fleet.kubectl(&["annotate", "--overwrite", "replicaset", &of_west, "note=y"]).await;
    assert!(refused.refused().contains("write to"), "{refused}");

    fleet.kubectl(&["delete", "replicaset", old, "--timeout=60s"]).await.ok();
    assert_eq!(uids(old).await, [None, None, None]);
    // The current one is made again by each Deployment's controller: for whoever waits it is another.
    let before = uids(new).await;
    fleet.kubectl(&["delete", "replicaset", new, "--timeout=60s"]).await.ok();
    let api = fleet.api().await;
    eventually(PODS, async || {
        let now = uids(new).await;
        let sets = shown(&api, SETS).await;
        let ready = api.get(&format!("{DEPLOYMENTS}/web")).await["status"]["readyReplicas"] == 6;
        let is_again = now.iter().zip(&before).all(|(now, before)| now.is_some() && now != before);
        let pods = api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await;
        let lead = |pod: &Value| text(pod, "/metadata/ownerReferences/0/uid") == sets[0].1;
        let is_whole = sets.len() == 1 && pods["items"].as_array().unwrap().iter().all(lead);
        if is_again && ready && is_whole { Ok(()) } else { Err(format!("{now:?} {sets:?} {pods}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_sets_and_stateful_sets_go_back_by_revisions_that_are_one_each() {
    let bed = Testbed::shared_with_workloads(&MEMBERS).await;
    let fleet = start(&bed, "policies:\n- name: spread\n  strategy: divide").await.for_namespace("revisions");
    for member in bed.members() {
        namespace(member, "revisions").await;
    }
    let api = fleet.api().await;
    let of = |kind: &str, name: &str, more: Value| {
        let mut object = deployment(name, 3);
        object["kind"] = json!(kind);
        object["metadata"]["annotations"] = more["annotations"].clone();
        let spec = object["spec"].as_object_mut().unwrap();
        spec.extend(more["spec"].as_object().unwrap().clone());
        spec.retain(|_, value| !value.is_null());
        object
    };
    let agent = of("DaemonSet", "agent", json!({"annotations": {}, "spec": {"replicas": null}}));
    let db = of(
        "StatefulSet",
        "db",
        json!({"annotations": {"kubefold.io/placement-policy": "spread"},
               "spec": {"serviceName": "db", "podManagementPolicy": "Parallel"}}),
    );
    for (resource, object) in [("daemonsets", agent), ("statefulsets", db)] {
        let path = format!("/apis/apps/v1/namespaces/revisions/{resource}");
        api.request(Method::POST, &path, object.to_string()).await.ok();
        let name = text(&object, "/metadata/name");
        let what = format!("{resource}/{name}");
        done(&fleet, &what).await;
        fleet.kubectl(&["set", "image", &what, "web=web:2"]).await.ok();
        done(&fleet, &what).await;
        assert_eq!(history(&fleet, &what).await, ["1", "2"], "{resource}");
        for (image, revisions) in [("web:1", ["2", "3"]), ("web:2", ["3", "4"])] {
            let told = fleet.kubectl(&["rollout", "undo", &what]).await;
            assert!(told.ok().contains("rolled back"), "{told}");
            done(&fleet, &what).await;
            assert_eq!(images(&bed, &format!("{path}/{name}")).await, [image; 3]);
            eventually(SOON, async || {
                let told = history(&fleet, &what).await;
                if told == revisions { Ok(()) } else { Err(format!("{told:?}")) }
            })
            .await;
        }
    }
    let list = api.get(REVISIONS).await;
    let list = list["items"].as_array().unwrap();
    assert_eq!(list.len(), 4, "{list:?}");
    for revision in list {
        assert_eq!(holders(revision), ["east", "north", "west"], "{revision}");
    }
}

/// Names and UIDs of the pods of an application.
async fn pods(api: &Api, app: &str) -> Vec<(String, String)> {
    shown(api, &format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")).await
}

/// The one ReplicaSet of an application.
async fn only_set(api: &Api, app: &str) -> Value {
    let list = api.get(&format!("{SETS}?labelSelector=app%3D{app}")).await;
    let [set] = &list["items"].as_array().unwrap()[..] else { panic!("{list}") };
    set.clone()
}

/// Waits until the one ReplicaSet of `web` has this controller, or none.
async fn controlled(api: &Api, by: Option<&str>) -> Value {
    eventually(SOON, async || {
        let set = only_set(api, "web").await;
        let owners = set["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let uids: Vec<&str> = owners.iter().map(|owner| text(owner, "/uid")).collect();
        if uids == by.into_iter().collect::<Vec<_>>() { Ok(set) } else { Err(set.to_string()) }
    })
    .await
}

/// Deletes a Deployment alone, and makes it again: its pods notice nothing.
async fn orphaned_and_adopted(fleet: &Kubefold, members: &[&Member], scaled: bool) {
    let api = fleet.api().await;
    fleet.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=6"]).await.ok();
    done(fleet, "deployment/web").await;
    if scaled {
        // Somebody has given one member more than its share.
        members[0].kubectl(&["scale", "deployment", "web", "--replicas=5"]).await.ok();
        done(fleet, "deployment/web").await;
    }
    let first = api.get(&format!("{DEPLOYMENTS}/web")).await;
    let (set, held, parts) = (only_set(&api, "web").await, pods(&api, "web").await, shares(members, "web").await);
    let uid = text(&set, "/metadata/uid");
    fleet.kubectl(&["delete", "deployment", "web", "--cascade=orphan", "--timeout=60s"]).await.ok();
    gone(&api, members, "web").await;
    let orphan = controlled(&api, None).await;
    assert_eq!((text(&orphan, "/metadata/uid"), &orphan["metadata"]["name"]), (uid, &set["metadata"]["name"]));
    assert_eq!(orphan["spec"]["replicas"], first["spec"]["replicas"]);
    assert_eq!(holders(&orphan).len(), members.len());
    fleet.restart().await;
    let api = fleet.api().await;
    let orphan = only_set(&api, "web").await;
    assert_eq!(text(&orphan, "/metadata/uid"), uid, "nor does a restart");
    let list = api.get(SETS).await;
    let from = text(&list, "/metadata/resourceVersion");
    let mut watch = api.watch(&format!("{SETS}?watch=true&resourceVersion={from}")).await;
    // By its plain name it is one to write to.
    let name = text(&set, "/metadata/name");
    fleet.kubectl(&["annotate", "replicaset", name, "note=x"]).await.ok();

    let mut next = first.clone();
    for field in ["status", "metadata"] {
        next.as_object_mut().unwrap().remove(field);
    }
    next["metadata"] = json!({"name": "web", "labels": {"app": "web"}});
    let made = api.create(DEPLOYMENTS, &next).await;
    assert_ne!(made["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(shares(members, "web").await, parts, "it goes where its pods are");
    let adopted = controlled(&api, Some(text(&made, "/metadata/uid"))).await;
    assert_eq!(text(&adopted, "/metadata/uid"), uid);
    done(fleet, "deployment/web").await;
    assert_eq!(pods(&api, "web").await, held);
    // A new template makes a set of its own, of the same family, and the old one can be gone back to.
    fleet.kubectl(&["set", "image", "deployment/web", "web=web:2"]).await.ok();
    done(fleet, "deployment/web").await;
    fleet.kubectl(&["rollout", "undo", "deployment/web"]).await.ok();
    done(fleet, "deployment/web").await;
    let list = api.get(&format!("{SETS}?labelSelector=app%3Dweb")).await;
    let sets = list["items"].as_array().unwrap();
    assert_eq!(sets.len(), 2, "{list}");
    let current = sets.iter().find(|one| one["metadata"]["name"] == name).unwrap();
    assert_eq!((text(current, "/metadata/uid"), &current["spec"]["replicas"]), (uid, &first["spec"]["replicas"]));
    one_life(&mut watch, name, text(current, "/metadata/resourceVersion")).await;
}

/// From its beginning up to a revision a watch has told of one object of that name.
async fn one_life(watch: &mut Watch, name: &str, upto: &str) {
    let mut told = Vec::new();
    loop {
        let event = watch.next(SOON).await;
        let event = event.unwrap_or_else(|| panic!("the watch is open, and has not told of {upto}: {told:?}"));
        told.push((text(&event, "/type").to_owned(), text(&event, "/object/metadata/resourceVersion").to_owned()));
        if event["object"]["metadata"]["name"] != name {
            continue;
        }
        assert_eq!(text(&event, "/type"), "MODIFIED", "{event}");
        if text(&event, "/object/metadata/resourceVersion") == upto {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_without_its_deployment_stays_one_and_the_next_one_adopts_it() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let fleet = start(&bed, "").await;
    orphaned_and_adopted(&fleet, &MEMBERS.map(|name| &bed[name]), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_does_in_a_fleet_of_one_member() {
    let bed = Testbed::start(&["east"], MemberOptions::with_workloads(1)).await;
    let fleet = Kubefold::start(&FleetFile::default().member(&bed["east"], 1)).await;
    orphaned_and_adopted(&fleet, &[&bed["east"]], false).await;
}

/// Kubernetes' conformance test of a client that writes ControllerRevisions (`test/e2e/apps/controller_revision.go`).
#[tokio::test(flavor = "multi_thread")]
async fn a_client_writes_controller_revisions_as_in_one_cluster() {
    let bed = Testbed::shared_with_workloads(&MEMBERS).await;
    let fleet = start(&bed, "").await.for_namespace("history");
    for member in bed.members() {
        namespace(member, "history").await;
    }
    let api = fleet.api().await;
    let space = "/apis/apps/v1/namespaces/history";
    let (sets, revisions) = (format!("{space}/daemonsets"), format!("{space}/controllerrevisions"));
    let mut agent = deployment("agent", 1);
    agent["kind"] = json!("DaemonSet");
    agent["spec"].as_object_mut().unwrap().remove("replicas");
    api.create(&sets, &agent).await;
    done(&fleet, "daemonset/agent").await;
    let counted = async |count: usize| {
        eventually(SOON, async || {
            let list = api.get(&format!("{revisions}?labelSelector=app%3Dagent")).await;
            let items = list["items"].as_array().unwrap().clone();
            if items.len() == count { Ok(items) } else { Err(list.to_string()) }
        })
        .await
    };
    let first = counted(1).await.remove(0);
    let first_path = format!("{revisions}/{}", text(&first, "/metadata/name"));
    let label = |value: &str| json!({"metadata": {"labels": {"told": value}}}).to_string();
    let patch = |path: &str, body: String| {
        let request = http::Request::patch(path).header("content-type", "application/strategic-merge-patch+json");
        let request = request.body(bytes::Bytes::from(body)).unwrap();
        async { api.send(request).await.unwrap().ok() }
    };
    assert_eq!(patch(&first_path, label("patched")).await["metadata"]["labels"]["told"], "patched");
    assert_eq!(api.get(&first_path).await["metadata"]["labels"]["told"], "patched");

    // A revision of the same data by another name: the controllers take it for theirs.
    let owner = api.get(&format!("{sets}/agent")).await;
    let owned = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}]);
    let labels = json!({"app": "agent", "controller-revision-hash": "another"});
    let second = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": "agent-another", "labels": labels, "ownerReferences": owned},
        "data": first["data"], "revision": first["revision"].as_i64().unwrap() + 1});
    let made = api.create(&revisions, &second).await;
    assert_eq!(holders(&made), ["east", "north", "west"], "it is where its owner is");
    counted(2).await;
    api.request(Method::DELETE, &first_path, "").await.ok();
    let mut current = counted(1).await.remove(0);
    assert_eq!(current["metadata"]["uid"], made["metadata"]["uid"]);
    current["metadata"]["labels"]["told"] = json!("updated");
    let path = format!("{revisions}/agent-another");
    let updated = api.request(Method::PUT, &path, current.to_string()).await.ok();
    assert_eq!(updated["metadata"]["labels"]["told"], "updated");
    let grace = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}});
    patch(&format!("{sets}/agent"), grace.to_string()).await;
    counted(2).await;
    api.request(Method::DELETE, &format!("{revisions}?labelSelector=told%3Dupdated"), "").await.ok();
    let last = counted(1).await.remove(0);
    assert_eq!(last["revision"], 3, "{last}");
    assert_eq!(holders(&last), ["east", "north", "west"]);
    api.request(Method::DELETE, &format!("{sets}/agent"), "").await.ok();
    counted(0).await;
}
