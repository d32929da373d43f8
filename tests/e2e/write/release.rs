//! `kubefold release`: without kubefold the members are ordinary clusters.

use http::Method;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Terminal, Testbed, program};

/// Where kubefold's keys would be: on what was placed, and on what controllers made of it.
const LOOKED_AT: [&str; 10] = [
    DEPLOYMENTS,
    "/apis/apps/v1/statefulsets",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/shop.example.com/v1/things",
    "/api/v1/namespaces",
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

/// A person at a terminal sees how far it is, while it waits for a member that does not answer.
async fn progress_is_seen(fleet: &Kubefold) {
    let config = fleet.config();
    let args = ["release", "--dry-run", "--config", config.to_str().unwrap()];
    let mut terminal = Terminal::start(&program(), &args);
    terminal.shows(SOON, &["members done: ", " lists read, 0 objects released"]).await;
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
    more_kinds(&fleet).await;
    let uids = async |member: &Member| {
        let pods = member.request(Method::GET, "/api/v1/pods", "").await.ok();
        let uids = pods["items"].as_array().unwrap().iter().map(|pod| text(pod, "/metadata/uid").to_owned());
        uids.collect::<std::collections::BTreeSet<_>>()
    };
    let pods = [uids(east).await, uids(west).await];
    assert!(!traces(east).await.is_empty());
    let (code, _, why) = release(&fleet, &[]).await;
    assert_eq!(code, Some(1));
    assert!(
        why.contains("a kubefold uses this state directory, so nothing is released") && why.lines().count() == 1,
        "{why}"
    );

    fleet.terminate(SOON).await;
    let (code, said, why) = release(&fleet, &["--dry-run"]).await;
    // How many they are is the controllers' affair, too: of a Service that is released they release the slices.
    let count = |line: &str, member: &str, what: &str| -> i64 {
        let number = line.strip_prefix(&format!("{member}: ")).and_then(|line| line.strip_suffix(what));
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 2), "{said}{why}");
    for (line, member) in lines.iter().zip(["east", "west"]) {
        // Two Deployments with a ReplicaSet each, a Service, and its slice.
        assert!(count(line, member, " objects would be released") >= 6, "{said}");
    }
    assert!(!traces(east).await.is_empty());
    let (code, said, why) = release(&fleet, &["--dry-run", "-o", "json"]).await;
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{why}"));
    assert_eq!((code, told["members"].as_array().map(Vec::len)), (Some(0), Some(2)), "{said}");
    for (of, member) in told["members"].as_array().unwrap().iter().zip(["east", "west"]) {
        assert_eq!((&of["name"], &of["dryRun"], &of["error"]), (&json!(member), &json!(true), &Value::Null), "{said}");
        assert_eq!((&of["objects"]["deployments.apps"], &of["objects"]["services"]), (&json!(2), &json!(1)), "{said}");
    }
    let (code, said, why) = release(&fleet, &["--member", "nowhere"]).await;
    assert!(code == Some(1) && why.contains("there is no member \"nowhere\""), "{said}{why}");
    west.pause();
    let (code, said, why) = release(&fleet, &["--member", "east"]).await;
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}{why}");
    assert!(count(said.trim_end(), "east", " objects released") >= 5, "{said}");
    assert!(why.contains("east: deployments.apps: 2") && why.contains("east: services: 1"), "{why}");
    assert_eq!(traces(east).await, [""; 0]);
    progress_is_seen(&fleet).await;
    assert!(!why.contains("lists read"), "nothing of it where there is no terminal: {why}");
    // A program is told of the member that cannot be reached, too, and by the exit code.
    let (code, said, why) = release(&fleet, &["-o", "yaml"]).await;
    let told: Value = serde_saphyr::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{why}"));
    assert_eq!((code, &told["members"][0]["objects"]), (Some(1), &json!({})), "{said}{why}");
    let error = told["members"][1]["error"].as_str().unwrap_or_default();
    assert!(!error.is_empty() && why.contains("west"), "{said}{why}");
    west.resume();
    let (code, said, why) = release(&fleet, &[]).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((code, lines[0]), (Some(0), "east: 0 objects released"), "{said}{why}");
    assert!(count(lines[1], "west", " objects released") >= 5, "{said}");
    assert_eq!(traces(west).await, [""; 0]);
    assert_eq!([uids(east).await, uids(west).await], pods, "no pod was touched");
    controllers_go_on(east, west).await;

    fleet.restart().await;
    let list = fleet.api().await.get(DEPLOYMENTS).await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name")).collect();
    assert_eq!(names, ["api@east", "api@west", "web@east", "web@west"]);
}

const THINGS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// What is whole in one member, what has endpoints, a kind of the users' own, and a namespace.
async fn more_kinds(fleet: &Kubefold) {
    fleet.apply(THINGS).await;
    fleet.as_admin().established("things.shop.example.com").await;
    fleet.kubectl(&["create", "namespace", "shop"]).await.ok();
    fleet.kubectl(&["create", "configmap", "settings", "-n", "shop"]).await.ok();
    fleet.kubectl(&["expose", "deployment", "web", "--port=80"]).await.ok();
    let thing = json!({"apiVersion": "shop.example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}});
    let labels = json!({"app": "set"});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"}, "spec": {
        "serviceName": "set", "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "a", "image": "a"}]}}}});
    for object in [thing, set] {
        fleet.as_admin().run_with_input(&["create", "-f", "-"], &object.to_string()).await.ok();
    }
    fleet.kubectl(&["rollout", "status", "statefulset/set", "--timeout=60s"]).await.ok();
}

/// Each of them alone is what it would have been without kubefold.
async fn controllers_go_on(east: &Member, west: &Member) {
    for member in [east, west] {
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let addresses = format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3Dweb");
        let served = async |wanted: usize| {
            eventually(PODS, async || {
                let list = member.request(Method::GET, &addresses, "").await.ok();
                let slices = list["items"].as_array().unwrap().iter();
                let all: usize = slices.map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).sum();
                (all == wanted).then_some(()).ok_or_else(|| list.to_string())
            })
            .await;
        };
        served(2).await;
        member.kubectl(&["scale", "deployment", "web", "--replicas=3"]).await.ok();
        served(3).await;
        member.kubectl(&["set", "image", "deployment/web", "web=web:2"]).await.ok();
        member.kubectl(&["rollout", "status", "deployment/web", "--timeout=100s"]).await.ok();
        assert_eq!(traces(member).await, [""; 0], "nothing brings it back");
        member.kubectl(&["scale", "deployment", "web", "--replicas=2"]).await.ok();
        let path = "/apis/apps/v1/namespaces/default/statefulsets/set";
        if in_member(member, path).await.is_some() {
            member.kubectl(&["scale", "statefulset", "set", "--replicas=2"]).await.ok();
            member.kubectl(&["rollout", "status", "statefulset/set", "--timeout=100s"]).await.ok();
        }
    }
    east.kubectl(&["delete", "namespace", "shop", "--timeout=60s"]).await.ok();
    assert!(in_member(west, "/api/v1/namespaces/shop/configmaps/settings").await.is_some());
}
