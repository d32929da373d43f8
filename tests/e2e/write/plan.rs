//! `kubefold plan` and policies: what is told is what is done, and telling changes nothing.

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const POLICIES: &str = r#"policies:
- name: bounded
  match: {namespaces: [default], labels: tier=web}
  max: 3
  tolerations: [{key: gpu, operator: Exists}]
  perMember:
    west:
      registry: mirror.example:5000/x
      patch: [{op: add, path: /metadata/annotations/from, value: patch}]
- name: roomy
  strategy: divide
  weights: capacity
- name: part
  strategy: divide
  max: 1
  partial: true"#;

fn file(bed: &Testbed, policies: &str) -> FleetFile {
    let entry = |file: FleetFile, name: &str, weight: u32, settings: &str| {
        file.entry(name, &bed[name].kubeconfig(), weight, settings)
    };
    let file = entry(FleetFile::default(), "east", 1, "labels: {region: eu}");
    let file = entry(file, "west", 2, "labels: {region: us}");
    entry(file, "north", 1, "labels: {region: eu}\ntaints: [{key: gpu}]").settings(policies)
}

/// Plans one object with the command; its result, standard output and standard error.
pub(super) async fn planned(fleet: &Kubefold, object: &Value, flags: &[&str]) -> (bool, String, String) {
    let manifest = fleet.state_dir().with_file_name("manifest.json");
    std::fs::write(&manifest, object.to_string()).unwrap();
    let args: Vec<&str> = ["plan", "-f", manifest.to_str().unwrap()].into_iter().chain(flags.iter().copied()).collect();
    let output = fleet.command(&args).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// The member and number of every part that a plan tells of.
pub(super) async fn told(fleet: &Kubefold, object: &Value) -> BTreeMap<String, i64> {
    let (good, out, error) = planned(fleet, object, &["-o", "json"]).await;
    assert!(good, "{error}");
    let plan: Value = serde_json::from_str(&out).unwrap();
    let places = plan["members"].as_array().unwrap().iter().filter(|place| place["part"] == true);
    places
        .map(|place| (text(place, "/member").to_owned(), place["values"][0]["number"].as_i64().unwrap_or(-1)))
        .collect()
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

fn annotated(name: &str, replicas: i64, key: &str, value: &str) -> Value {
    let metadata = json!({"name": name, "annotations": {(format!("kubefold.io/{key}")): value}});
    with(deployment(name, replicas), "/metadata", metadata)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_what_a_create_does() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::with_workloads(1)).await;
    let members = [&bed["east"], &bed["west"], &bed["north"]];
    let fleet = Kubefold::start(&file(&bed, POLICIES)).await;
    let api = fleet.api().await;

    let (good, out, error) = planned(&fleet, &deployment("web", 3), &[]).await;
    assert!(good, "{error}");
    assert_eq!(
        out,
        "deployments.apps/web in default: divide\n\
         MEMBER   PART   REPLICAS   WHY\n\
         east     yes    1\n\
         west     home   2\n\
         north    -      -          it has the taint gpu, which nothing tolerates\n"
    );
    assert!(shares(&members, "web").await.is_empty(), "a plan changes nothing");

    let tiered = with(deployment("tiered", 7), "/metadata/labels", json!({"app": "tiered", "tier": "web"}));
    // A pod for which each of the nodes has room twice.
    let mut large = annotated("large", 4, "placement-policy", "roomy");
    large["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "12"}});
    for object in [
        deployment("web", 3),
        tiered.clone(),
        large,
        annotated("eu", 2, "place-on", "region in (us)"),
        annotated("some", 9, "placement-policy", "part"),
    ] {
        let name = text(&object, "/metadata/name").to_owned();
        let told = told(&fleet, &object).await;
        let answer = post(&api, &object).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer}");
        assert_eq!(shares(&members, &name).await, told, "{name}");
    }
    assert_eq!(shares(&members, "tiered").await, split(&[("east", 2), ("north", 2), ("west", 3)]));
    let overridden = part(&bed["west"], "tiered").await.unwrap();
    assert_eq!(text(&overridden, "/spec/template/spec/containers/0/image"), "mirror.example:5000/x/web:1");
    assert_eq!(text(&overridden, "/metadata/annotations/from"), "patch");
    let other = part(&bed["east"], "tiered").await.unwrap();
    assert_eq!(text(&other, "/spec/template/spec/containers/0/image"), "web:1");
    assert_eq!(shares(&members, "eu").await, split(&[("west", 2)]));
    assert_eq!(shares(&members, "some").await, split(&[("east", 1), ("west", 1)]), "as many as fit");
    let (_, again, _) = planned(&fleet, &deployment("web", 3), &[]).await;
    assert!(again.contains("Warning: deployments.apps \"web\" exists already"), "{again}");

    what_gains_no_parts_is_promised_none(&fleet, &api, &members).await;
    single_objects_stay_together(&fleet, &bed).await;
    a_runtime_class_is_counted(&fleet, &bed).await;
    refusals_name_what_is_wrong(&fleet).await;
    a_bad_policy_keeps_the_running_ones(&fleet, &bed).await;
}

/// A scale-up makes a part of a Deployment, and of nothing that counts by ordinals or completions: a plan says so.
async fn what_gains_no_parts_is_promised_none(fleet: &Kubefold, api: &Api, members: &[&Member; 3]) {
    let template = deployment("small", 1)["spec"]["template"].clone();
    let labels = json!({"matchLabels": template["metadata"]["labels"]});
    api.create("/api/v1/namespaces", &json!({"metadata": {"name": "gains"}})).await;
    let mut small = deployment("small", 1);
    small["metadata"]["namespace"] = json!("gains");
    // Without the policy they would be whole, in one member.
    let annotations = json!({"kubefold.io/placement-policy": "roomy"});
    let metadata = json!({"name": "small", "namespace": "gains", "annotations": annotations});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
        "spec": {"replicas": 1, "serviceName": "small", "selector": labels, "template": template}});
    let mut pod = template["spec"].clone();
    pod["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"completions": 1, "parallelism": 1, "template": {"spec": pod}}});
    for (object, why) in [
        (&small, "its share is 0; a scale-up may make its part"),
        (&set, "its share is 0; a StatefulSet that exists gets no further part"),
        (&job, "its share is 0; a Job that exists gets no further part"),
    ] {
        let (good, out, error) = planned(fleet, object, &["-o", "json"]).await;
        assert!(good, "{error}");
        let plan: Value = serde_json::from_str(&out).unwrap();
        let told = plan["members"].as_array().unwrap();
        let without = told.iter().filter(|place| place["part"] == false && place["member"] != "north");
        assert_eq!(without.map(|place| text(place, "/why")).collect::<Vec<_>>(), [why], "{plan}");
    }
    // It is so.
    for (kind, object, parts) in [("deployments", small, 2), ("statefulsets", set, 1)] {
        let path = format!("/apis/apps/v1/namespaces/gains/{kind}");
        api.create(&path, &object).await;
        let scale = json!({"spec": {"replicas": 6}}).to_string();
        let request =
            http::Request::patch(format!("{path}/small")).header("content-type", "application/merge-patch+json");
        let answer = api.send(request.body(scale.into()).unwrap()).await.unwrap();
        assert_eq!(answer.ok()["spec"]["replicas"], 6);
        let mut held = 0;
        for member in members {
            held += usize::from(in_member(member, &format!("{path}/small")).await.is_some());
        }
        assert_eq!(held, parts, "{path}");
    }
}

/// What is whole in one member goes where the namespace's other such objects are.
async fn single_objects_stay_together(fleet: &Kubefold, bed: &Testbed) {
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let first: Vec<String> = told(fleet, &claim("a")).await.into_keys().collect();
    assert_ne!(first, ["north"], "its taint repels what is whole, too");
    fleet.as_admin().run_with_input(&["create", "-f", "-"], &claim("a").to_string()).await.ok();
    let path = |name: &str| format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
    let mut holders = Vec::new();
    for name in ["east", "west", "north"] {
        if in_member(&bed[name], &path("a")).await.is_some() {
            holders.push(name.to_owned());
        }
    }
    assert_eq!(holders.len(), 1);
    for name in ["b", "c", "d"] {
        assert_eq!(told(fleet, &claim(name)).await.into_keys().collect::<Vec<_>>(), holders, "{name}");
    }
    let everywhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(told(fleet, &everywhere).await.len(), 3);
    let pinned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m@north"}});
    assert_eq!(told(fleet, &pinned).await.into_keys().collect::<Vec<_>>(), ["north"]);
}

/// What a RuntimeClass of a member asks of nodes counts there: its selector, and its tolerations.
async fn a_runtime_class_is_counted(fleet: &Kubefold, bed: &Testbed) {
    for (name, scheduling) in
        [("east", json!({"nodeSelector": {"kata": "yes"}})), ("west", json!({"nodeSelector": {"type": "kwok"}}))]
    {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"},
            "handler": "kata", "scheduling": scheduling});
        bed[name].api().await.create("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    }
    let mut boxed = deployment("boxed", 4);
    boxed["spec"]["template"]["spec"]["runtimeClassName"] = json!("kata");
    let why = eventually(SOON, async || {
        let (good, out, error) = planned(fleet, &boxed, &[]).await;
        let known = good && out.contains("none of its nodes matches the node selector and affinity");
        known.then(|| out.clone()).ok_or_else(|| format!("{out}{error}"))
    })
    .await;
    assert!(why.lines().any(|line| line.starts_with("west     home   4")), "{why}");
    assert_eq!(told(fleet, &boxed).await, split(&[("west", 4)]));
}

async fn refusals_name_what_is_wrong(fleet: &Kubefold) {
    let api = fleet.api().await;
    for (object, words) in [
        (annotated("x", 1, "placement-policy", "none"), "there is no such policy; use one of: bounded, part, roomy"),
        (annotated("x", 1, "place-on", "south"), "there is no member \"south\"; the members are east, west, north"),
        (annotated("x", 1, "place-on", "region in eu"), "found 'eu' expected: '('"),
        (
            with(deployment("x", 1), "/metadata", json!({"name": "x", "namespace": "nowhere"})),
            "namespaces \"nowhere\" not found",
        ),
        (with(deployment("x", 1), "/spec/replicas", json!(-1)), "must be a number, greater than or equal to 0"),
        (with(deployment("x", 1), "/metadata", json!({"name": "x", "labels": {"tier": "web"}})), ""),
    ] {
        let object = if words.is_empty() { with(object, "/spec/replicas", json!(10)) } else { object };
        let words =
            if words.is_empty() { "only 9 of 10 fit: east: policy bounded places at most 3 there" } else { words };
        let (good, out, error) = planned(fleet, &object, &[]).await;
        assert!(!good && out.is_empty() && error.contains(words), "{out}{error}");
        assert_eq!(error.lines().count(), 1, "one sentence: {error}");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let path = DEPLOYMENTS.replace("/default/", &format!("/{namespace}/"));
        let answer = api.request(Method::POST, &path, object.to_string()).await;
        assert!(answer.to_string().contains(&words.replace('"', "\\\"")), "as a create says: {answer}");
    }
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}});
    let (_, _, error) = planned(fleet, &unknown, &[]).await;
    assert!(error.contains("no matches for kind \"Widget\" in version \"example.com/v1\""), "{error}");
}

async fn a_bad_policy_keeps_the_running_ones(fleet: &Kubefold, bed: &Testbed) {
    fleet.configure(&file(bed, &POLICIES.replace("max: 3", "max: -3")));
    eventually(SOON, async || {
        let log = fleet.log();
        let said = "policy \"bounded\": max -3 is out of range; use a whole number from 0 to 2147483647";
        log.contains(said).then_some(()).ok_or(log)
    })
    .await;
    let tiered = with(deployment("later", 9), "/metadata/labels", json!({"app": "later", "tier": "web"}));
    assert_eq!(told(fleet, &tiered).await, split(&[("east", 3), ("north", 3), ("west", 3)]));
    fleet.configure(&file(bed, &POLICIES.replace("max: 3", "max: 6")));
    eventually(SOON, async || {
        let now = told(fleet, &tiered).await;
        (now == split(&[("east", 2), ("north", 2), ("west", 5)])).then_some(()).ok_or_else(|| format!("{now:?}"))
    })
    .await;
}
