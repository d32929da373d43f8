//! Policies end to end: what is divided, dressed, bounded and spread runs so, and stays so through every kind of change.

use super::{
    plan::{planned, told},
    *,
};
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const POLICIES: &str = r#"policies:
- name: divided
  match: {kinds: [Job, StatefulSet], labels: divided=yes}
  strategy: divide
- name: regional
  match: {kinds: [Deployment], labels: spread=yes}
  spread: region
- name: dressed
  match: {kinds: [Deployment], labels: dressed=yes}
  min: 1
  max: 4
  perMember:
    west:
      max: 5
      registry: mirror.example/x
      patch:
      - {op: add, path: /metadata/labels/edge, value: "yes"}
      - {op: add, path: /metadata/annotations/note, value: west}
      - {op: replace, path: /spec/template/spec/containers/0/image, value: "own:9"}
- name: roomy
  strategy: divide
  weights: capacity
- name: some
  strategy: divide
  weights: capacity
  partial: true
- name: busy
  strategy: divide
  weights: use
- name: first
  strategy: divide
  weights: capacity
  groups: [{members: [east]}, {members: [west]}, {memberSelector: region in (eu)}]
- name: wide
  strategy: divide
  weights: capacity
  spread: [{label: region, minGroups: 2}, {label: kubefold.io/cluster, maxGroups: 1}]
- name: few
  strategy: divide
  weights: capacity
  prefer: fewest
"#;

impl Stage {
    /// What stands at a place of the object in each member that holds it.
    async fn values(&self, path: &str, pointer: &str) -> Vec<(&str, Value)> {
        let mut values = Vec::new();
        for member in self.all() {
            if let Some(part) = in_member(member, path).await {
                values.push((member.name(), part.pointer(pointer).cloned().unwrap_or_default()));
            }
        }
        values
    }
}

fn file(bed: &Testbed, policies: &str) -> FleetFile {
    let entry = |file: FleetFile, name: &str, weight: u32, region: &str| {
        file.entry(name, &bed[name].kubeconfig(), weight, &format!("labels: {{region: {region}}}"))
    };
    let file = entry(FleetFile::default(), "east", 1, "eu");
    entry(entry(file, "west", 2, "us"), "north", 1, "eu").settings(policies)
}

fn labelled(name: &str, replicas: i64, label: &str) -> Value {
    let mut object = deployment(name, replicas);
    object["metadata"]["labels"][label] = json!("yes");
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_says_is_so_and_stays_so() {
    let sized = |nodes| MemberOptions::with_workloads(nodes);
    let bed = Testbed::start_each(&[("east", sized(1)), ("west", sized(2)), ("north", sized(3))]).await;
    let fleet = Kubefold::start(&file(&bed, POLICIES)).await;
    let api = fleet.api().await;
    let stage = Stage { bed, fleet, api };
    // The north is home of whatever has a part there: what is seen, edited and sent back has nobody's dress.
    let anchor = ["run", "anchor", "--image=a", "--annotations=kubefold.io/place-on=north"];
    stage.kubectl(&anchor).await.ok();
    jobs(&stage).await;
    sets(&stage).await;
    applied(&stage).await;
    edited(&stage).await;
    together(&stage).await;
    by_capacity(&stage).await;
    chosen(&stage).await;
    reloaded(&stage).await;
}

/// Parallelism and completions go together, and only where no index counts.
async fn jobs(stage: &Stage) {
    let job = |name: &str, mode: &str| {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"divided": "yes"}},
            "spec": {"completionMode": mode, "parallelism": 4, "completions": 8, "template": pod}})
    };
    let path = |name: &str| format!("/apis/batch/v1/namespaces/default/jobs/{name}");
    stage.kubectl_with(&["create", "-f", "-"], &job("batch", "NonIndexed")).await.ok();
    let numbers = async |name: &str, field: &str| stage.values(&path(name), &format!("/spec/{field}")).await;
    let three = |numbers: [i64; 3]| -> Vec<(&str, Value)> {
        ["east", "west", "north"].into_iter().zip(numbers.map(|number| json!(number))).collect()
    };
    assert_eq!(numbers("batch", "parallelism").await, three([1, 2, 1]));
    assert_eq!(numbers("batch", "completions").await, three([2, 4, 2]));
    stage.kubectl(&["wait", "job/batch", "--for=condition=Complete", "--timeout=90s"]).await.ok();
    let shown = stage.api.get(&path("batch")).await;
    assert_eq!((&shown["spec"]["completions"], &shown["status"]["succeeded"]), (&json!(8), &json!(8)), "{shown}");
    // Each part would have the index 0.
    stage.kubectl_with(&["create", "-f", "-"], &job("indexed", "Indexed")).await.ok();
    let whole = numbers("indexed", "completions").await;
    assert!(whole.len() == 1 && whole[0].1 == 8, "{whole:?}");
}

/// Each part of a divided StatefulSet counts from a start of its own, whatever it is scaled to.
async fn sets(stage: &Stage) {
    let labels = json!({"app": "set"});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set", "labels": {"divided": "yes"}},
        "spec": {"replicas": 4, "serviceName": "set", "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "a", "image": "a"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/statefulsets/set";
    stage.kubectl_with(&["apply", "-f", "-"], &set).await.ok();
    let ready = async |total: i64| {
        eventually(PODS, async || {
            let shown = stage.api.get(path).await;
            (shown["status"]["readyReplicas"] == total).then_some(shown.clone()).ok_or_else(|| shown.to_string())
        })
        .await
    };
    let shown = ready(4).await;
    let home = text(&shown, "/metadata/annotations/kubefold.io~1clusters").split(',').next().unwrap().to_owned();
    let starts = stage.values(path, "/spec/ordinals/start").await;
    for (member, start) in &starts {
        assert_eq!(start.is_null(), *member == home, "{starts:?}");
    }
    let mut strides: Vec<i64> = starts.iter().filter_map(|(_, start)| start.as_i64()).collect();
    strides.sort_unstable();
    assert_eq!(strides, [1000, 2000]);
    assert!(shown["spec"]["ordinals"].is_null(), "{shown}");
    stage.kubectl(&["scale", "statefulset", "set", "--replicas=8"]).await.ok();
    ready(8).await;
    assert_eq!(stage.values(path, "/spec/ordinals/start").await, starts);
    let pods = stage.kubectl(&["get", "pods", "-l", "app=set", "-o", "name"]).await;
    let mut plain: Vec<&str> = pods.ok().lines().map(|name| name.split('@').next().unwrap()).collect();
    plain.sort_unstable();
    plain.dedup();
    assert_eq!(plain.len(), 8, "no two pods have one name, wherever they run: {pods}");
    let again = stage.kubectl_with(&["apply", "-f", "-"], &set).await;
    again.ok();
    ready(4).await;
}

/// A Deployment of which the part in the west differs by policy.
fn dressed(replicas: i64, a: &str, b: &str) -> Value {
    let mut web = labelled("dressed", replicas, "dressed");
    let containers = json!([{"name": "a", "image": format!("quay.example/lib/a:{a}")}, {"name": "b", "image": b}]);
    web["spec"]["template"]["spec"]["containers"] = containers;
    web
}

/// That it does, and that nobody takes it for a difference.
async fn holds(stage: &Stage, a: &str, b: &str) {
    let path = format!("{DEPLOYMENTS}/dressed");
    for member in stage.all() {
        let part = in_member(member, &path).await.unwrap();
        let image = |at: usize| text(&part["spec"]["template"]["spec"]["containers"][at], "/image").to_owned();
        let extra = [&part["metadata"]["labels"]["edge"], &part["metadata"]["annotations"]["note"]];
        let (images, wanted) = match member.name() {
            "west" => (("own:9".into(), format!("mirror.example/x/{b}")), [&json!("yes"), &json!("west")]),
            _ => ((format!("quay.example/lib/a:{a}"), b.to_owned()), [&Value::Null, &Value::Null]),
        };
        assert_eq!(((image(0), image(1)), extra), (images, wanted), "{}", member.name());
    }
    let shown = stage.api.get(&path).await;
    assert!(shown["metadata"]["annotations"]["kubefold.io/differs"].is_null(), "that is no difference: {shown}");
}

/// Whoever applies, and how, does not fight the policy.
async fn applied(stage: &Stage) {
    let quietly = async |args: &[&str], object: Value| {
        let output = stage.kubectl_with(args, &object).await;
        output.ok();
        assert!(!output.stderr.contains("Warning"), "{output}");
    };
    let (apply, server_side) = (["apply", "-f", "-"], ["apply", "--server-side", "-f", "-"]);
    // First by a server-side apply alone: its manager has all of it, the dress too.
    for b in ["b:1", "b:2"] {
        quietly(&server_side, dressed(9, "1", b)).await;
        holds(stage, "1", b).await;
    }
    stage.kubectl(&["delete", "deployment", "dressed", "--timeout=60s"]).await.ok();
    quietly(&apply, dressed(9, "1", "b:1")).await;
    assert_eq!(shares(&stage.all(), "dressed").await, split(&[("east", 2), ("west", 5), ("north", 2)]));
    holds(stage, "1", "b:1").await;
    // The last one after each server noted its own share for kubectl, so that the parts' notes differ: nobody edited them.
    for (how, tag) in [(apply.as_slice(), "2"), (&server_side, "2"), (&server_side, "3"), (&apply, "4")] {
        let b = format!("b:{tag}");
        quietly(how, dressed(9, tag, &b)).await;
        holds(stage, tag, &b).await;
    }
    // Another manager, that applies one field and knows of no container.
    let mine = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "dressed"},
        "spec": {"progressDeadlineSeconds": 500}});
    let request = http::Request::patch(format!("{DEPLOYMENTS}/dressed?fieldManager=ci"))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(mine.to_string().into());
    let applied = stage.api.send(request.unwrap()).await.unwrap();
    assert!(applied.warnings().is_empty(), "{applied}");
    assert_eq!(applied.ok()["spec"]["progressDeadlineSeconds"], 500);
    holds(stage, "4", "b:4").await;
}

/// Nor does who edits it.
async fn edited(stage: &Stage) {
    for args in [
        ["set", "image", "deployment/dressed", "a=quay.example/lib/a:5", "b=b:5"].as_slice(),
        &["label", "deployment", "dressed", "some=thing"],
        &["set", "env", "deployment/dressed", "A=B"],
    ] {
        stage.kubectl(args).await.ok();
        holds(stage, "5", "b:5").await;
    }
    stage.fleet.as_admin().with_editor("sed -i s/b:5/b:6/").run(&["edit", "deployment", "dressed"]).await.ok();
    holds(stage, "5", "b:6").await;
    let shown = stage.kubectl(&["get", "deployment", "dressed", "-o", "json"]).await;
    let mut edited: Value = serde_json::from_str(&shown.ok().replace("b:6", "b:7")).unwrap();
    edited["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    // Pods come and go, and each is another revision. kubectl asks for the revision of now, and replaces that.
    eventually(SOON, async || {
        let replaced = stage.kubectl_with(&["replace", "-f", "-"], &edited).await;
        if replaced.code == Some(0) || !replaced.stderr.contains("Conflict") { Ok(replaced) } else { Err(replaced) }
    })
    .await
    .ok();
    holds(stage, "5", "b:7").await;
    // Bounds: 4 in each member, 5 in the west.
    stage.kubectl(&["scale", "deployment", "dressed", "--replicas=13"]).await.ok();
    assert_eq!(shares(&stage.all(), "dressed").await, split(&[("east", 4), ("west", 5), ("north", 4)]));
    stage.kubectl(&["delete", "deployment", "dressed"]).await.ok();
}

/// What is whole in one member stays together, in each namespace for itself.
async fn together(stage: &Stage) {
    for namespace in ["default", "other"] {
        if namespace != "default" {
            stage.kubectl(&["create", "namespace", namespace]).await.ok();
        }
        let mut holders = std::collections::BTreeSet::new();
        for (args, path) in [
            (["create", "job", "one", "--image=a"].as_slice(), "/apis/batch/v1/namespaces/NS/jobs/one"),
            (
                &["create", "cronjob", "one", "--image=a", "--schedule=0 0 1 1 *"],
                "/apis/batch/v1/namespaces/NS/cronjobs/one",
            ),
            (&["run", "one", "--image=a"], "/api/v1/namespaces/NS/pods/one"),
        ] {
            let args: Vec<&str> = args.iter().copied().chain(["-n", namespace]).collect();
            stage.kubectl(&args).await.ok();
            let held = stage.values(&path.replace("NS", namespace), "/metadata/name").await;
            assert_eq!(held.len(), 1, "{path}: {held:?}");
            holders.insert(held[0].0);
        }
        assert_eq!(holders.len(), 1, "{namespace}: {holders:?}");
    }
}

/// A Deployment of a policy, of whose pods a node takes two.
fn large(name: &str, replicas: i64, policy: &str) -> Value {
    let mut large = deployment(name, replicas);
    large["metadata"]["annotations"] = json!({"kubefold.io/placement-policy": policy});
    large["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "12"}});
    large
}

/// By what is free: one node in the east, two in the west, three in the north, each with room for two such pods.
async fn by_capacity(stage: &Stage) {
    let told = post(&stage.api, &large("roomy", 13, "roomy")).await;
    refused(&told, 422, "Invalid", &["only 12 of 13 fit", "east: ", "west: ", "north: ", "partial: true"]);
    let printed = stage.kubectl_with(&["create", "-f", "-"], &large("roomy", 13, "roomy")).await;
    assert!(printed.refused().contains("only 12 of 13 fit: east: "), "{printed}");
    let full = split(&[("east", 2), ("west", 4), ("north", 6)]);
    post(&stage.api, &large("roomy", 12, "roomy")).await.ok();
    assert_eq!(shares(&stage.all(), "roomy").await, full);
    let wait = ["rollout", "status", "deployment/roomy", "--timeout=60s"];
    stage.kubectl(&wait).await.ok();
    stage.kubectl(&["delete", "deployment", "roomy", "--cascade=foreground", "--timeout=60s"]).await.ok();
    becomes(stage, &large("some", 13, "some"), &[("east", 2), ("west", 4), ("north", 6)]).await;
    let made = stage.kubectl_with(&["create", "-f", "-"], &large("some", 13, "some")).await;
    assert!(made.ok().contains("created") && made.stderr.contains("12 of 13"), "{made}");
    assert_eq!(shares(&stage.all(), "some").await, full);
}

/// Waits until a plan comes to this: what is free is known anew within a few seconds.
async fn becomes(stage: &Stage, object: &Value, wanted: &[(&str, i64)]) {
    eventually(SOON, async || {
        let now = told_of(stage, object).await;
        (now == split(wanted)).then_some(()).ok_or_else(|| format!("{now:?}"))
    })
    .await;
}

/// A member whose nodes are busy gets less than its requests leave room for, if it says that they are.
async fn used(stage: &Stage) {
    let busy = large("busy", 3, "busy");
    assert!(told_of(stage, &busy).await.contains_key("north"), "nothing is measured");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodes.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {"group": "metrics.k8s.io", "scope": "Cluster", "names": {"plural": "nodes", "kind": "NodeMetrics"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let north = &stage.bed["north"];
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    north.request(Method::POST, definitions, definition.to_string()).await.ok();
    let nodes = north.request(Method::GET, "/api/v1/nodes", "").await.ok();
    for node in nodes["items"].as_array().unwrap() {
        let metrics = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": node["metadata"]["name"]},
            "usage": {"cpu": node["status"]["allocatable"]["cpu"], "memory": "1Mi"},
        });
        eventually(SOON, async || {
            let made = north.request(Method::POST, "/apis/metrics.k8s.io/v1beta1/nodes", metrics.to_string()).await;
            if made.status == StatusCode::CREATED { Ok(()) } else { Err(made.to_string()) }
        })
        .await;
    }
    becomes(stage, &busy, &[("east", 1), ("west", 2), ("north", 0)]).await;
}

/// Groups of members in order, groups to spread over, and the fewest members, by what is free.
async fn chosen(stage: &Stage) {
    stage.kubectl(&["delete", "deployment", "some", "--cascade=foreground", "--timeout=60s"]).await.ok();
    becomes(stage, &large("some", 13, "some"), &[("east", 2), ("west", 4), ("north", 6)]).await;
    used(stage).await;
    for (replicas, member) in [(2, "east"), (4, "west"), (6, "north")] {
        assert_eq!(told_of(stage, &large("first", replicas, "first")).await, split(&[(member, replicas)]));
    }
    let (good, out, error) = planned(&stage.fleet, &large("first", 3, "first"), &[]).await;
    let said = "group 1 of policy first cannot take it: only 2 of 3 fit, here 2 fit on its nodes";
    assert!(good && out.contains(said) && out.contains("group 2 of policy first can take it"), "{out}{error}");
    let none = post(&stage.api, &large("first", 7, "first")).await;
    refused(&none, 422, "Invalid", &["no group of policy first can take it: group 1: only 2 of 7 fit", "group 3: "]);

    assert_eq!(told_of(stage, &large("wide", 4, "wide")).await, split(&[("north", 2), ("west", 2)]));
    let mut european = large("wide", 4, "wide");
    european["metadata"]["annotations"]["kubefold.io/place-on"] = json!("region in (eu)");
    let words =
        ["spreads it over at least 2 groups of the member label region, and 1 can take it: west: the object is"];
    refused(&post(&stage.api, &european).await, 422, "Invalid", &words);

    let few = large("few", 5, "few");
    let (_, out, _) = planned(&stage.fleet, &few, &[]).await;
    assert!(out.contains("policy few prefers the fewest members, and 1 can carry it; its share is 0;"), "{out}");
    post(&stage.api, &few).await.ok();
    assert_eq!(shares(&stage.all(), "few").await, split(&[("north", 5)]));
    stage.kubectl(&["rollout", "status", "deployment/few", "--timeout=60s"]).await.ok();
    becomes(stage, &large("other", 2, "few"), &[("west", 2)]).await;
    stage.kubectl(&["scale", "deployment", "few", "--replicas=8"]).await.ok();
    assert_eq!(shares(&stage.all(), "few").await, split(&[("north", 5), ("west", 3)]));
    stage.kubectl(&["delete", "deployment", "few"]).await.ok();
}

async fn told_of(stage: &Stage, object: &Value) -> BTreeMap<String, i64> {
    told(&stage.fleet, object).await
}

/// A region gets as much as another, whatever it weighs. Another policy is for the next create; what stands, stands.
async fn reloaded(stage: &Stage) {
    post(&stage.api, &labelled("before", 8, "spread")).await.ok();
    let even = split(&[("east", 2), ("west", 4), ("north", 2)]);
    assert_eq!(shares(&stage.all(), "before").await, even);
    let policies = POLICIES.replace("spread: region", "memberSelector: region in (eu)");
    stage.fleet.configure(&file(&stage.bed, &policies));
    let europe = split(&[("east", 4), ("north", 4)]);
    eventually(SOON, async || {
        let now = told_of(stage, &labelled("after", 8, "spread")).await;
        (now == europe).then_some(()).ok_or_else(|| format!("{now:?}"))
    })
    .await;
    post(&stage.api, &labelled("after", 8, "spread")).await.ok();
    assert_eq!(shares(&stage.all(), "after").await, europe);
    assert_eq!(shares(&stage.all(), "before").await, even);
    stage.kubectl(&["set", "image", "deployment/before", "web=web:2"]).await.ok();
    assert_eq!(shares(&stage.all(), "before").await, even, "a change that is not of the number moves nothing");
}
