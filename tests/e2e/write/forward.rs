//! Member-local objects written through the fleet: by real kubectl, and where members differ or are down.

use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STATEFUL: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: 'db:1'}]}
";

async fn bed() -> (Testbed, Kubefold) {
    let workloads = MemberOptions::with_workloads(1);
    let bed = Testbed::start_each(&[
        ("east", workloads),
        ("west", MemberOptions::default()),
        ("north", MemberOptions::default()),
    ])
    .await;
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file).await;
    for member in bed.members() {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"at": member.name()}});
        member.request(Method::POST, MAPS, map.to_string()).await.ok();
    }
    eventually(SOON, async || {
        fleet.kubectl(&["get", "configmap", "a@east", "a@west", "a@north"]).await.holds("a@north")
    })
    .await;
    (bed, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_writes_member_local_objects() {
    let (bed, fleet) = bed().await;
    let others = [&bed["west"], &bed["north"]];
    let mut before = Vec::new();
    for member in others {
        before.push(in_member(member, &format!("{MAPS}/a")).await);
    }
    simple_changes(&bed, &fleet).await;
    applied(&bed, &fleet).await;
    workloads(&bed, &fleet).await;
    nodes_and_tokens(&bed, &fleet).await;
    for (member, before) in others.into_iter().zip(before) {
        assert_eq!(in_member(member, &format!("{MAPS}/a")).await, before, "{} was not asked to change", member.name());
    }
}

/// Runs a command that must succeed, and gives the config map `a` as east has it then.
async fn changed(bed: &Testbed, fleet: &Kubefold, args: &[&str]) -> Value {
    let said = fleet.kubectl(args).await;
    assert!(said.ok().contains("a@east"), "it is called as it was asked for: {said}");
    in_member(&bed["east"], &format!("{MAPS}/a")).await.unwrap()
}

async fn simple_changes(bed: &Testbed, fleet: &Kubefold) {
    let now = changed(bed, fleet, &["annotate", "configmap", "a@east", "who=me"]).await;
    assert_eq!(now["metadata"]["annotations"], json!({"who": "me"}), "and nothing of kubefold's");
    let now = changed(bed, fleet, &["label", "configmap", "a@east", "app=web"]).await;
    assert_eq!(now["metadata"]["labels"], json!({"app": "web"}));
    let now = changed(bed, fleet, &["annotate", "configmap", "a@east", "who-"]).await;
    assert_eq!(now["metadata"]["annotations"], Value::Null);
    for (kind, patch) in [
        (
            "json",
            r#"[{"op":"add","path":"/metadata/annotations/json","value":"x"},{"op":"add","path":"/data/json","value":"x"}]"#,
        ),
        ("merge", r#"{"data":{"merge":"x"}}"#),
        ("strategic", r#"{"data":{"strategic":"x"}}"#),
    ] {
        let now = changed(bed, fleet, &["patch", "configmap", "a@east", &format!("--type={kind}"), "-p", patch]).await;
        assert_eq!(now["data"][kind], "x");
    }
    let edit =
        fleet.as_admin().with_editor("sed -i s/merge:.x/merge:\\ edited/").run(&["edit", "configmap", "a@east"]).await;
    assert!(edit.ok().contains("configmap/a@east edited"), "{edit}");
    let shown = fleet.kubectl(&["get", "configmap", "a@east", "-o", "yaml"]).await;
    assert!(shown.ok().contains("merge: edited"), "{shown}");
    let replaced = shown.ok().replace("merge: edited", "merge: replaced");
    let said = fleet.as_admin().run_with_input(&["replace", "-f", "-"], &replaced).await;
    assert!(said.ok().contains("configmap/a@east replaced"), "{said}");
    let now = in_member(&bed["east"], &format!("{MAPS}/a")).await.unwrap();
    assert_eq!((&now["data"]["merge"], &now["metadata"]["annotations"]), (&json!("replaced"), &json!({"json": "x"})));
    // What it replaced is of an older version now.
    let said = fleet.as_admin().run_with_input(&["replace", "-f", "-"], &replaced).await;
    assert!(said.refused().contains("the object has been modified"), "{said}");
    let said = fleet.kubectl(&["delete", "configmap", "a@east"]).await;
    assert!(said.ok().contains("configmap \"a@east\" deleted"), "{said}");
    assert!(in_member(&bed["east"], &format!("{MAPS}/a")).await.is_none());
    assert!(!fleet.kubectl(&["get", "configmap", "a@east"]).await.succeeded());
}

async fn applied(bed: &Testbed, fleet: &Kubefold) {
    let kubectl = fleet.as_admin();
    // A manifest that was created under a pin may name the object in its labels, too.
    let manifest = |name: &str, label: &str, value: &str| {
        let metadata = format!("{{name: {name}, labels: {{app: {label}}}}}");
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}, data: {{k: {value}}}}}")
    };
    for (name, flags) in [("client@east", [].as_slice()), ("server@east", ["--server-side"].as_slice())] {
        let args = [["apply"].as_slice(), flags, &["-f", "-"]].concat();
        for (label, value, words) in [
            ("x", "v", "created"),
            ("x", "v", "unchanged"),
            ("x", "w", "configured"),
            ("x", "w", "unchanged"),
            (name, "w", "configured"),
        ] {
            let words = if flags.is_empty() { words } else { "serverside-applied" };
            let said = kubectl.run_with_input(&args, &manifest(name, label, value)).await;
            assert!(said.ok().contains(&format!("configmap/{name} {words}")), "{said}");
        }
        let own = name.trim_end_matches("@east");
        let now = in_member(&bed["east"], &format!("{MAPS}/{own}")).await.unwrap();
        assert_eq!((&now["data"]["k"], &now["metadata"]["labels"]["app"]), (&json!("w"), &json!(own)));
        assert_eq!(now["metadata"].to_string().matches("kubefold.io/").count(), 0, "{now}");
        assert!(in_member(&bed["west"], &format!("{MAPS}/{own}")).await.is_none());
    }
    let diff = kubectl.run_with_input(&["diff", "-f", "-"], &manifest("client@east", "client", "other")).await;
    assert!(diff.stdout.contains("+  k: other"), "{diff}");
}

async fn workloads(bed: &Testbed, fleet: &Kubefold) {
    bed["east"].apply(STATEFUL).await;
    eventually(PODS, async || fleet.kubectl(&["get", "pod", "db-0"]).await.holds("db-0")).await;
    let said = fleet.kubectl(&["scale", "statefulset", "db@east", "--replicas=2"]).await;
    assert!(said.ok().contains("statefulset.apps/db@east scaled"), "{said}");
    fleet.kubectl(&["rollout", "status", "statefulset/db@east", "--timeout=60s"]).await.ok();
    let said = fleet.kubectl(&["set", "image", "statefulset/db@east", "db=db:2"]).await;
    assert!(said.ok().contains("image updated"), "{said}");
    fleet.kubectl(&["rollout", "status", "statefulset/db@east", "--timeout=60s"]).await.ok();
    let pod = fleet.kubectl(&["get", "pod", "db-1@east", "-o", "jsonpath={.spec.containers[0].image}"]).await;
    assert_eq!(pod.ok(), "db:2");
    // A pod has one controller: its plain name is short for it.
    let said = fleet.kubectl(&["label", "pod", "db-1", "short=yes"]).await;
    assert!(said.ok().contains("pod/db-1 labeled"), "{said}");
    let pods = "/api/v1/namespaces/default/pods";
    let stands = in_member(&bed["east"], &format!("{pods}/db-1")).await.unwrap();
    assert_eq!(stands["metadata"]["labels"]["short"], "yes");
    let said = fleet.kubectl(&["delete", "pod", "db-1"]).await;
    assert!(said.ok().contains("pod \"db-1\" deleted"), "{said}");
    eventually(PODS, async || {
        let again = in_member(&bed["east"], &format!("{pods}/db-1")).await;
        match again.filter(|pod| pod["metadata"]["uid"] != stands["metadata"]["uid"]) {
            Some(_) => Ok(()),
            None => Err("not made again yet"),
        }
    })
    .await;
}

async fn nodes_and_tokens(bed: &Testbed, fleet: &Kubefold) {
    fleet.kubectl(&["rollout", "status", "statefulset/db@east", "--timeout=60s"]).await.ok();
    let said = fleet.kubectl(&["taint", "node", "node-0@east", "e2e=yes:PreferNoSchedule"]).await;
    assert!(said.ok().contains("node/node-0@east tainted"), "{said}");
    fleet.kubectl(&["cordon", "node-0@east"]).await.ok();
    let drain = ["drain", "node-0@east", "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"];
    let said = fleet.kubectl(&drain).await;
    assert!(said.ok().contains("node/node-0@east drained"), "{said}");
    assert!(said.ok().contains("db-0@east"), "{said}");
    fleet.kubectl(&["uncordon", "node-0@east"]).await.ok();
    let node = in_member(&bed["east"], "/api/v1/nodes/node-0").await.unwrap();
    assert_eq!(node["spec"]["unschedulable"], Value::Null);

    let made = fleet.kubectl(&["create", "serviceaccount", "robot@east"]).await;
    made.ok();
    let token = fleet.kubectl(&["create", "token", "robot@east"]).await;
    assert_eq!(token.ok().trim().split('.').count(), 3, "{token}");
    // Of an account that all members have: one member's.
    let token = fleet.kubectl(&["create", "token", "default@east"]).await;
    assert_eq!(token.ok().trim().split('.').count(), 3, "{token}");
    eventually(PODS, async || {
        fleet.kubectl(&["get", "pod", "db-0", "-o", "jsonpath={.status.phase}"]).await.holds("Running")
    })
    .await;
    let bound = ["--bound-object-kind=Pod", "--bound-object-name=db-0@east"];
    let token = fleet.kubectl(&[["create", "token", "default@east"].as_slice(), &bound].concat()).await;
    assert_eq!(token.ok().trim().split('.').count(), 3, "{token}");
    let said = fleet.kubectl(&[["create", "token", "robot@east"].as_slice(), &bound].concat()).await;
    assert!(said.refused().contains("running with different serviceaccount"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_deleted_everywhere_or_not_at_all() {
    let (bed, fleet) = bed().await;
    let api = fleet.api().await;
    let mine = |query: &str| format!("{MAPS}?labelSelector={}", query.replace('=', "%3D").replace(' ', "%20"));
    for member in bed.members() {
        for name in ["b", "c"] {
            let map =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}}});
            member.request(Method::POST, MAPS, map.to_string()).await.ok();
        }
    }
    let names = async |query: &str| -> Vec<String> {
        let list = api.get(&mine(query)).await;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    };
    eventually(SOON, async || {
        let all = names("app in (b,c)").await;
        if all.len() == 6 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    // The virtual label chooses members.
    let deleted = api.request(Method::DELETE, &mine("app=b,kubefold.io/cluster in (east,north)"), "").await.ok();
    assert_eq!((&deleted["kind"], deleted["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), 2));
    assert_eq!(names("app in (b,c)").await, ["b@west", "c@east", "c@north", "c@west"]);
    let one = api.request(Method::DELETE, &format!("{MAPS}?fieldSelector=metadata.name%3Db%40west"), "").await.ok();
    assert_eq!(text(&one, "/items/0/metadata/name"), "b@west");

    bed["west"].kill();
    eventually(SOON, async || {
        let refused = api.request(Method::DELETE, &format!("{}&dryRun=All", mine("app=c")), "").await;
        match refused.status {
            StatusCode::SERVICE_UNAVAILABLE => Ok(()),
            _ => Err(refused),
        }
    })
    .await;
    let answer = api.request(Method::DELETE, &mine("app=c"), "").await;
    refused(&answer, 503, "ServiceUnavailable", &["nothing was deleted", "west"]);
    assert!(answer.headers.get(header::RETRY_AFTER).is_none());
    for member in [&bed["east"], &bed["north"]] {
        assert!(in_member(member, &format!("{MAPS}/c")).await.is_some(), "{}", member.name());
    }
    api.request(Method::DELETE, &mine("app=c,kubefold.io/cluster=east"), "").await.ok();
    assert!(in_member(&bed["east"], &format!("{MAPS}/c")).await.is_none());

    // A write to one that is down says so; the others do not care.
    let down = fleet.kubectl(&["label", "configmap", "a@west", "x=y"]).await;
    assert!(down.refused().contains("west"), "{down}");
    fleet.kubectl(&["label", "configmap", "a@north", "x=y"]).await.ok();
}

/// What client-go's recorder does: it names an event after its object, and patches by the name that it got back.
#[tokio::test(flavor = "multi_thread")]
async fn events_go_with_their_objects() {
    let (bed, fleet) = bed().await;
    let api = fleet.api().await;
    let events = "/api/v1/namespaces/default/events";
    let map = api.get(&format!("{MAPS}/a@north")).await;
    let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a@north", "uid": map["metadata"]["uid"]});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a@north.17f0", "namespace": "default"},
        "involvedObject": about, "reason": "Tested", "type": "Normal", "count": 1});
    let made = api.create(events, &event).await;
    assert_eq!((text(&made, "/metadata/name"), text(&made, "/involvedObject/name")), ("a@north.17f0", "a@north"));
    let stands = in_member(&bed["north"], &format!("{events}/a.17f0")).await.unwrap();
    assert_eq!((text(&stands, "/involvedObject/name"), &stands["count"]), ("a", &json!(1)));
    let patch = async |path: &str| {
        let request = http::Request::patch(format!("{path}/a@north.17f0"))
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(bytes::Bytes::from(r#"{"count":2,"lastTimestamp":"2026-01-01T00:00:00Z"}"#));
        api.send(request.unwrap()).await.unwrap()
    };
    let again = patch(events).await.ok();
    assert_eq!((text(&again, "/metadata/name"), &again["count"]), ("a@north.17f0", &json!(2)));
    let said = fleet.kubectl(&["events", "--for", "configmap/a@north"]).await;
    assert!(said.ok().contains("Tested"), "{said}");
    // The other group's revisions name the same object.
    let newer = "/apis/events.k8s.io/v1/namespaces/default/events/a@north.17f0";
    let other = api.get(newer).await;
    let mut stale = again.clone();
    stale["metadata"]["resourceVersion"] = other["metadata"]["resourceVersion"].clone();
    let put = api.request(Method::PUT, &format!("{events}/a@north.17f0"), stale.to_string()).await.ok();
    let told = api.request(Method::PUT, &format!("{events}/a@north.17f0"), again.to_string()).await;
    let changed = put["metadata"]["resourceVersion"] != again["metadata"]["resourceVersion"];
    assert_eq!(told.status == StatusCode::CONFLICT, changed, "{told}");
    // One that has expired is made again, by the name that the recorder knows.
    bed["north"].kubectl(&["delete", "event", "a.17f0"]).await.ok();
    refused(&patch(events).await, 404, "NotFound", &["\"a@north.17f0\" not found"]);
    let made = api.create(events, &event).await;
    assert_eq!(text(&made, "/metadata/name"), "a@north.17f0");
    // As any other member-local object.
    let pinned = format!("{events}/a.17f0@north");
    assert_eq!(text(&api.get(&pinned).await, "/metadata/name"), "a.17f0@north");
    api.request(Method::DELETE, &pinned, "").await.ok();
    let mut anew = event.clone();
    anew["metadata"]["name"] = json!("a.17f0@north");
    let made = api.create(events, &anew).await;
    assert_eq!(text(&made, "/metadata/name"), "a@north.17f0");
}
