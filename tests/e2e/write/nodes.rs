//! `node-0@east` in pods and templates: it chooses its member and is plain there, and reads back as it was written.

use super::{
    rollout::{MEMBERS, start},
    *,
};
use testbed::{Kubefold, MemberOptions, samples::namespace};

const SPACE: &str = "/api/v1/namespaces/noded";
const APPS: &str = "/apis/apps/v1/namespaces/noded";
const REQUIRED: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// Requires one of these nodes.
fn affinity(operator: &str, nodes: &[&str]) -> Value {
    let one = json!({"key": "kubernetes.io/hostname", "operator": operator, "values": nodes});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [one]}]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn on(name: &str, affinity: Value) -> Value {
    let mut object = deployment(name, 4);
    object["spec"]["template"]["spec"]["affinity"] = affinity;
    object
}

fn required(object: &Value) -> Value {
    object.pointer(&format!("/spec/template/spec{REQUIRED}")).cloned().unwrap_or_default()
}

/// What each member's part requires of nodes; `None` where there is no part.
async fn stand(bed: &Testbed, path: &str) -> Vec<Option<Value>> {
    let mut all = Vec::new();
    for name in MEMBERS {
        all.push(in_member(&bed[name], path).await.map(|part| required(&part)));
    }
    all
}

/// What members have that each have these of their own nodes, in the order of [`MEMBERS`].
fn plain(members: &[&str]) -> Vec<Option<Value>> {
    let own = affinity("In", &["node-0"])["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone();
    MEMBERS.iter().map(|name| members.contains(name).then(|| own.clone())).collect()
}

/// Applies a manifest twice, in both of kubectl's ways, and compares it: the second time is no change.
async fn applied_twice(fleet: &Kubefold, object: &Value, path: &str) {
    let (api, input) = (fleet.api().await, object.to_string());
    let run = async |args: &[&str]| fleet.as_admin().run_with_input(args, &input).await;
    let client = ["apply", "-n", "noded", "-f", "-"];
    let server = ["apply", "-n", "noded", "--server-side", "--field-manager=gitops", "--force-conflicts", "-f", "-"];
    for (args, again) in [(client.as_slice(), "unchanged"), (server.as_slice(), "serverside-applied")] {
        run(args).await.ok();
        let first = api.get(path).await;
        let told = run(args).await;
        assert!(told.ok().contains(again), "{told}");
        let now = api.get(path).await;
        assert_eq!(now["metadata"]["generation"], first["metadata"]["generation"]);
        assert_eq!(now["metadata"]["annotations"].get("kubefold.io/differs"), None, "{now}");
    }
    run(&["diff", "-n", "noded", "-f", "-"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_members_choose_them_and_arrive_there_plain() {
    // A rebalance is of everything that the members have.
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    for member in bed.members() {
        namespace(member, "noded").await;
        member.apply(include_str!("../../../deploy/member-rbac.yaml")).await;
    }
    let fleet = start(&bed).await.for_namespace("noded");
    eventually(SOON, async || fleet.kubectl(&["get", "nodes", "-o", "name"]).await.holds("node/node-0@north")).await;
    in_two_members(&bed, &fleet).await;
    names_move(&bed, &fleet).await;
    a_pod(&bed, &fleet).await;
    a_daemon_set(&bed, &fleet).await;
}

async fn in_two_members(bed: &Testbed, fleet: &Kubefold) {
    let (path, both) = (format!("{APPS}/deployments/web"), ["node-0@east", "node-0@west"]);
    let web = on("web", affinity("In", &both));
    applied_twice(fleet, &web, &path).await;
    assert_eq!(required(&fleet.api().await.get(&path).await), required(&web), "as it is written");
    assert_eq!(stand(bed, &path).await, plain(&["east", "west"]));
    assert_eq!(shares_at(&bed.members().iter().collect::<Vec<_>>(), &path).await, split(&[("east", 2), ("west", 2)]));
    fleet.kubectl(&["rollout", "status", "deployment/web", "--timeout=100s"]).await.ok();
    let listed = fleet.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"]).await;
    let mut on: Vec<&str> = listed.ok().split(' ').collect();
    on.sort_unstable();
    assert_eq!(on, ["node-0@east", "node-0@east", "node-0@west", "node-0@west"]);
}

async fn names_move(bed: &Testbed, fleet: &Kubefold) {
    let (api, path) = (fleet.api().await, format!("{APPS}/deployments/web"));
    let patched = async |spec: Value| {
        let patch = json!({"spec": {"template": {"spec": spec}}}).to_string();
        fleet.kubectl(&["patch", "deployment", "web", "-p", &patch]).await
    };
    // The same nodes by their names, in a term for each.
    let by_name = |node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let terms = json!({"nodeSelectorTerms": [by_name("node-0@east"), by_name("node-0@west")]});
    let affine = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    patched(affine).await.ok();
    assert_eq!(required(&api.get(&path).await), terms);
    let own = json!({"nodeSelectorTerms": [by_name("node-0")]});
    assert_eq!(stand(bed, &path).await, [Some(own.clone()), Some(own), None]);
    // What keeps away from a node of east asks nothing in west.
    patched(json!({"affinity": affinity("NotIn", &["node-1@east"])})).await.ok();
    let away = affinity("NotIn", &["node-1"])["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone();
    assert_eq!(stand(bed, &path).await, [Some(away), Some(Value::Null), None]);
    patched(json!({"affinity": affinity("In", &["node-0@east", "node-0@west"])})).await.ok();
    assert_eq!(stand(bed, &path).await, plain(&["east", "west"]));

    let told = patched(json!({"affinity": affinity("In", &["node-0@north"])})).await;
    let words = "Invalid value: \"node-0@north\": the object is in member";
    assert!(told.refused().contains(words), "{told}");
    let told = patched(json!({"affinity": affinity("In", &["node-0@east", "node-0@west", "node-0@north"])})).await;
    assert!(told.ok().contains("patched"), "{told}");
    assert!(told.stderr.contains("has no part in member north; kubefold rebalance makes one"), "{told}");
    assert_eq!(stand(bed, &path).await, plain(&["east", "west"]));
    let output = fleet.command(&["rebalance"]).await;
    assert!(output.status.success(), "{output:?}");
    eventually(PODS, async || {
        let now = stand(bed, &path).await;
        if now == plain(&MEMBERS) { Ok(()) } else { Err(format!("{output:?}: {now:?}")) }
    })
    .await;
    // A member says what is wrong with a name of no member.
    let told = patched(json!({"nodeSelector": {"kubernetes.io/hostname": "node-0@nowhere"}})).await;
    assert!(told.refused().contains("node-0@nowhere"), "{told}");
}

async fn a_pod(bed: &Testbed, fleet: &Kubefold) {
    let pod = |name: &str, node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node}, "containers": [{"name": "c", "image": "c:1"}]}})
    };
    let (path, selector) = (format!("{SPACE}/pods/single"), "/spec/nodeSelector/kubernetes.io~1hostname");
    applied_twice(fleet, &pod("single", "node-0@west"), &path).await;
    assert_eq!(text(&fleet.api().await.get(&path).await, selector), "node-0@west");
    assert_eq!(text(&in_member(&bed["west"], &path).await.unwrap(), selector), "node-0");
    assert!(in_member(&bed["east"], &path).await.is_none());
    fleet.kubectl(&["wait", "pod/single", "--for=condition=Ready", "--timeout=60s"]).await.ok();
    // A pin chooses, too: the two must be of one mind.
    let create = async |object: &Value| {
        fleet.as_admin().run_with_input(&["create", "-n", "noded", "-f", "-"], &object.to_string()).await
    };
    create(&pod("pinned@east", "node-0@east")).await.ok();
    assert_eq!(text(&in_member(&bed["east"], &format!("{SPACE}/pods/pinned")).await.unwrap(), selector), "node-0");
    let told = create(&pod("misfit@east", "node-0@west")).await;
    assert!(told.refused().contains("\"node-0@west\": the object is in member east, and needs a node of it"), "{told}");
}

async fn a_daemon_set(bed: &Testbed, fleet: &Kubefold) {
    let mut agent = on("agent", affinity("In", &["node-0@east", "node-0@north"]));
    agent["kind"] = "DaemonSet".into();
    agent["spec"].as_object_mut().unwrap().remove("replicas");
    let path = format!("{APPS}/daemonsets/agent");
    applied_twice(fleet, &agent, &path).await;
    assert_eq!(stand(bed, &path).await, plain(&["east", "north"]));
    fleet.kubectl(&["rollout", "status", "daemonset/agent", "--timeout=100s"]).await.ok();
    let shown = fleet.api().await.get(&path).await;
    assert_eq!((required(&shown), &shown["status"]["numberReady"]), (required(&agent), &json!(2)), "{shown}");
}
