//! ShadowResources over real members, by kubectl.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use testbed::{
    FleetFile, Kubefold, Member, MemberOptions, Testbed, eventually,
    samples::{deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const SPACE: &str = "/apis/kubefold.io/v1alpha1/namespaces/store/shadowresources";

fn config(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn shadow(name: &str, items: &[Value]) -> Value {
    json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "ShadowResource",
        "metadata": {"name": name, "namespace": "store"}, "spec": {"flowList": items}})
}

fn app(replicas: u32, extra: &Value) -> Value {
    let password = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"},
        "stringData": {"p": "topsecret"}});
    shadow("app", &[config("app", extra), deployment("app", replicas), password])
}

/// Runs kubectl over the fleet with a manifest.
async fn given(fleet: &Kubefold, args: &[&str], manifest: &Value) -> testbed::Output {
    fleet.as_admin().in_namespace("store").run_with_input(args, &manifest.to_string()).await
}

async fn revision(fleet: &Kubefold, name: &str) -> String {
    let object = fleet.api().await.get(&format!("{SPACE}/{name}")).await;
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// What is not to be there.
async fn absent(fleet: &Kubefold, what: &[&str]) {
    for what in what {
        let told = fleet.kubectl(&["get", what]).await;
        assert!(told.refused().contains("NotFound"), "{what}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_objects_under_one_name() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    for member in bed.members() {
        namespace(member, "store").await;
    }
    let fleet = Kubefold::before(bed.members()).await.for_namespace("store");
    made_read_changed_and_deleted(&fleet).await;
    events_say_what_happened(&fleet).await;
    applied_by_kubectl(&fleet).await;
    columns_and_labels(&fleet, bed.members()).await;
    a_member_refuses_kubefold(&bed["east"]).await;
    policies_go_with_their_namespace(&fleet).await;
    wrong_input(&fleet).await;
    somebody_else(&fleet, [&bed["east"], &bed["west"]]).await;
    a_member_is_down(&fleet, &bed["west"]).await;
    kubefold_is_killed(&fleet).await;
}

async fn made_read_changed_and_deleted(fleet: &Kubefold) {
    let two = [config("first", &json!({"a": "1"})), config("second", &json!({"a": "1"}))];
    let two = shadow("task", &two);
    given(fleet, &["create", "--dry-run=server", "-f", "-"], &two).await.ok();
    absent(fleet, &["shadow/task", "cm/first", "cm/second"]).await;
    given(fleet, &["create", "-f", "-"], &two).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "shadow/task", "--timeout=30s"]).await.ok();
    let table = fleet.kubectl(&["get", "shadow"]).await;
    let line: Vec<&str> = table.ok().lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..3], ["task", "2/2", "Ready"], "{table}");
    // Whoever edits an item changes what is read of the whole, and a watch tells it once.
    let api = fleet.api().await;
    let at = revision(fleet, "task").await;
    let mut watch = api.watch(&format!("{SPACE}?watch=1&resourceVersion={at}")).await;
    fleet.kubectl(&["label", "cm", "first", "tier=front"]).await.ok();
    let first = |object: &Value| object["spec"]["flowList"][0]["metadata"]["labels"]["tier"].clone();
    assert_eq!(first(&api.get(&format!("{SPACE}/task")).await), "front");
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], first(&event["object"])), (&json!("MODIFIED"), json!("front")), "{event}");
    // What was read is written back: no change. What is changed in it is changed in the item.
    let read = api.get(&format!("{SPACE}/task")).await;
    given(fleet, &["replace", "-f", "-"], &read).await.ok();
    assert_eq!(revision(fleet, "task").await, read["metadata"]["resourceVersion"].as_str().unwrap());
    let patch = r#"[{"op":"replace","path":"/spec/flowList/1/data/a","value":"2"}]"#;
    fleet.kubectl(&["patch", "shadow", "task", "--type=json", "-p", patch]).await.ok();
    assert_eq!(fleet.kubectl(&["get", "cm", "second", "-o", "jsonpath={.data.a}"]).await.ok(), "2");
    let told = given(fleet, &["replace", "-f", "-"], &read).await;
    assert!(told.refused().contains("Conflict"), "{told}");
    fleet.kubectl(&["delete", "shadow", "task", "--timeout=30s"]).await.ok();
    absent(fleet, &["shadow/task", "cm/first", "cm/second"]).await;
    given(fleet, &["create", "-f", "-"], &two).await.ok();
    fleet.kubectl(&["delete", "shadow", "task", "--cascade=orphan", "--timeout=30s"]).await.ok();
    fleet.kubectl(&["delete", "cm", "first", "second"]).await.ok();
}

/// Events about a ShadowResource are found by what they are about, and are in no list of all Events of the namespace.
async fn events_say_what_happened(fleet: &Kubefold) {
    let says = async |args: &[&str], text: &str| {
        eventually(SOON, async || fleet.kubectl(args).await.holds(text)).await;
    };
    let told = shadow("told", &[config("told-1", &json!({})), config("told-2", &json!({}))]);
    given(fleet, &["create", "-f", "-"], &told).await.ok();
    says(&["describe", "shadow", "told"], "made ConfigMap store/told-1, ConfigMap store/told-2").await;
    says(&["describe", "shadow", "told"], "2/2 items are ready").await;
    let (api, path) = (fleet.api().await, "/api/v1/namespaces/store/events");
    let about = "fieldSelector=involvedObject.kind%3DShadowResource,involvedObject.name%3Dtold";
    let list = api.get(&format!("{path}?{about}")).await;
    let at = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{path}?{about}&watch=1&resourceVersion={at}")).await;
    fleet.kubectl(&["delete", "cm", "told-2"]).await.ok();
    let event = watch.next(SOON).await.unwrap();
    assert_eq!((&event["type"], &event["object"]["reason"]), (&json!("ADDED"), &json!("Missing")), "{event}");
    says(&["events", "--for", "shadow/told"], "1/2 items are ready: ConfigMap store/told-2 is Missing").await;
    fleet.kubectl(&["delete", "shadow", "told", "--timeout=30s"]).await.ok();
    let selected = ["get", "events", "--field-selector", "involvedObject.kind=ShadowResource"];
    says(&selected, "deleted, and its items before it").await;
    for group in ["events.v1.events.k8s.io", "events"] {
        let all = fleet.kubectl(&["get", group]).await;
        assert!(!all.ok().contains("/told"), "{all}");
    }
    let selected = ["get", "events.v1.events.k8s.io", "-A", "--field-selector", "regarding.kind=ShadowResource"];
    says(&selected, "shadowresource/told").await;
}

async fn applied_by_kubectl(fleet: &Kubefold) {
    let both = json!({"a": "1", "b": "2"});
    given(fleet, &["apply", "-f", "-"], &app(2, &both)).await.ok();
    fleet.kubectl(&["wait", "--for=condition=Ready", "shadow/app", "--timeout=60s"]).await.ok();
    // Its controllers have said their last.
    let mut before = String::new();
    eventually(SOON, async || {
        let now = revision(fleet, "app").await;
        let is_same = std::mem::replace(&mut before, now.clone()) == now;
        if is_same { Ok(()) } else { Err(now) }
    })
    .await;
    for way in [&["apply", "-f", "-"][..], &["apply", "-f", "-"], &["diff", "-f", "-"]] {
        given(fleet, way, &app(2, &both)).await.ok();
        assert_eq!(revision(fleet, "app").await, before, "{way:?} of the same is no change");
    }
    // What is left out of an item goes, and what is left out of the list does.
    given(fleet, &["apply", "-f", "-"], &app(3, &json!({"a": "1"}))).await.ok();
    let data = fleet.kubectl(&["get", "cm", "app", "-o", "jsonpath={.data}"]).await;
    assert_eq!(data.ok(), r#"{"a":"1"}"#);
    assert_eq!(fleet.kubectl(&["get", "deploy", "app", "-o", "jsonpath={.spec.replicas}"]).await.ok(), "3");
    let fewer = shadow("app", &[config("app", &json!({"a": "1"})), deployment("app", 3)]);
    given(fleet, &["apply", "-f", "-"], &fewer).await.ok();
    absent(fleet, &["secret/password"]).await;
    let stored = std::fs::read(fleet.state_dir().join("own.db")).unwrap();
    let wal = std::fs::read(fleet.state_dir().join("own.db-wal")).unwrap_or_default();
    for file in [stored, wal] {
        assert!(!String::from_utf8_lossy(&file).contains("topsecret"), "bodies are the members' alone");
    }
}

const FIELDS: &str = r#"
shadowResources:
  columns:
  - {name: LETTER, path: .data.a, kinds: [ConfigMap]}
  - {name: RUNNING, path: .status.readyReplicas, kinds: [Deployment], type: integer}
  - {name: IMAGE, path: '.spec.template.spec.containers[0].image', priority: 1}
  - {name: NOTHING, path: .data.nothing}
  labels:
  - {key: store.example.com/letter, path: .data.a, kinds: [ConfigMap]}
"#;

/// What the configuration says of items is in Tables and selectors, and no difference to whoever applies.
async fn columns_and_labels(fleet: &Kubefold, members: &[Member]) {
    let configured = members.iter().fold(FleetFile::default(), |file, member| file.member(member, 1)).settings(FIELDS);
    fleet.configure(&configured);
    let selected = |value: &str| format!("{SPACE}?labelSelector=store.example.com/letter={value}");
    let count = async |value: &str| fleet.api().await.get(&selected(value)).await["items"].as_array().unwrap().len();
    eventually(SOON, async || if count("1").await == 1 { Ok(()) } else { Err("the label is not there yet") }).await;
    let words = async |args: &[&str]| -> Vec<Vec<String>> {
        let table = fleet.kubectl(args).await;
        table.ok().lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let [head, line] = words(&["get", "shadow", "app"]).await.try_into().unwrap();
    assert_eq!(head, ["NAME", "READY", "STATUS", "LETTER", "RUNNING", "NOTHING", "AGE"]);
    // What is not there is blank, as kubectl prints a column of a custom resource.
    assert_eq!((line.len(), &line[3..5]), (6, &["1".to_owned(), "3".to_owned()][..]), "{line:?}");
    let wide = words(&["get", "shadow", "app", "-o", "wide"]).await;
    assert_eq!(wide[0][5..], ["IMAGE", "NOTHING", "AGE"]);
    let labelled = words(&["get", "shadow", "-L", "store.example.com/letter", "--no-headers"]).await;
    assert_eq!(labelled[0].last().unwrap(), "1");
    let before = revision(fleet, "app").await;
    let same = shadow("app", &[config("app", &json!({"a": "1"})), deployment("app", 3)]);
    for way in ["apply", "diff", "apply"] {
        given(fleet, &[way, "-f", "-"], &same).await.ok();
        assert_eq!(revision(fleet, "app").await, before, "{way} of the same is no change");
    }
    // An item that changes has its object leave one selection and come into another; Tables tell the new value.
    let api = fleet.api().await;
    let mut left = api.watch(&format!("{}&watch=1&resourceVersion={before}", selected("1"))).await;
    let mut came = api.watch(&format!("{}&watch=1&resourceVersion={before}", selected("2"))).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut table = api.watch_as(&format!("{SPACE}?watch=1&resourceVersion={before}"), accept).await;
    fleet.kubectl(&["patch", "cm", "app", "-p", r#"{"data":{"a":"2"}}"#]).await.ok();
    let [left, came] = [left.next(SOON).await.unwrap(), came.next(SOON).await.unwrap()];
    assert_eq!((&left["type"], &came["type"]), (&json!("DELETED"), &json!("ADDED")), "{left}\n{came}");
    let row = table.next(SOON).await.unwrap();
    assert_eq!((&row["type"], &row["object"]["rows"][0]["cells"][3]), (&json!("MODIFIED"), &json!("2")), "{row}");
    assert_eq!((count("1").await, count("2").await), (0, 1));
    fleet.configure(&members.iter().fold(FleetFile::default(), |file, member| file.member(member, 1)));
    eventually(SOON, async || if count("2").await == 0 { Ok(()) } else { Err("the label is still there") }).await;
    assert_eq!(words(&["get", "shadow", "app"]).await[0], ["NAME", "READY", "STATUS", "AGE"]);
    given(fleet, &["apply", "-f", "-"], &same).await.ok();
}

/// A member that lets kubefold be some groups only, as deploy/member-rbac.yaml says how. `masters` is one of them, or is not.
fn narrowed(masters: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: narrowed}}
rules:
- {{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}}
- {{nonResourceURLs: ["*"], verbs: [get]}}
- {{apiGroups: [""], resources: [users], verbs: [impersonate]}}
- {{apiGroups: [""], resources: [groups], verbs: [impersonate], resourceNames: [keepers, "system:authenticated"{masters}]}}
- {{apiGroups: [authentication.k8s.io], resources: ["*"], verbs: [impersonate]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: narrowed}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: narrowed}}
subjects: [{{kind: User, apiGroup: rbac.authorization.k8s.io, name: narrowed}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: keepers}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: Group, apiGroup: rbac.authorization.k8s.io, name: keepers}}]
"#
    )
}

/// Items are deleted by kubefold itself. A member that does not let it is named, and the deletion goes on once it does.
async fn a_member_refuses_kubefold(east: &Member) {
    east.apply(&narrowed("")).await;
    let file = FleetFile::default().entry("east", &east.kubeconfig_for("narrowed", None), 1, "");
    let fleet = Kubefold::start(&file).await;
    let kubeconfig = fleet.kubeconfig_for("keeper", Some("keepers"));
    let keeper = testbed::Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap()).in_namespace("store");
    let kept = shadow("kept", &[config("kept", &json!({}))]).to_string();
    keeper.run_with_input(&["create", "-f", "-"], &kept).await.ok();
    keeper.run(&["delete", "shadow", "kept", "--wait=false"]).await.ok();
    keeper.run(&["wait", "--for=condition=ItemsDeleted=False", "shadow/kept", "--timeout=30s"]).await.ok();
    let told = keeper.run(&["get", "shadow", "kept", "-o", "jsonpath={.status.conditions[1].message}"]).await;
    assert!(told.ok().starts_with("ConfigMap store/kept: kubefold cannot delete it in east: "), "{told}");
    assert!(told.ok().contains("groups \"system:masters\" is forbidden"), "{told}");
    let described = async || keeper.run(&["describe", "shadow", "kept"]).await.holds("DeletionRefused");
    eventually(SOON, described).await;
    east.apply(&narrowed(", \"system:masters\"")).await;
    keeper.run(&["wait", "--for=delete", "shadow/kept", "--timeout=30s"]).await.ok();
    let gone = keeper.run(&["get", "cm", "kept"]).await;
    assert!(gone.refused().contains("NotFound"), "{gone}");
}

/// As ShadowResources do.
async fn policies_go_with_their_namespace(fleet: &Kubefold) {
    let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "passing", "namespace": "passing"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Secret"}],
            "placement": {"clusterAffinity": {"clusterNames": ["east"]}}}});
    let create = async || given(fleet, &["create", "-n", "passing", "-f", "-"], &policy).await;
    let told = create().await;
    assert!(told.refused().contains("namespaces \"passing\" not found"), "{told}");
    fleet.kubectl(&["create", "namespace", "passing"]).await.ok();
    create().await.ok();
    let mut whole = shadow("passing", &[config("passing", &json!({}))]);
    whole["metadata"]["namespace"] = json!("passing");
    given(fleet, &["create", "-n", "passing", "-f", "-"], &whole).await.ok();
    fleet.kubectl(&["delete", "namespace", "passing", "--timeout=60s"]).await.ok();
    for what in ["propagationpolicy/passing", "shadow/passing"] {
        fleet.kubectl(&["wait", "-n", "passing", "--for=delete", what, "--timeout=30s"]).await.ok();
    }
}

async fn wrong_input(fleet: &Kubefold) {
    let taken = shadow("bad", &[config("new", &json!({})), config("app", &json!({}))]);
    let told = given(fleet, &["create", "-f", "-"], &taken).await;
    assert!(told.refused().contains("spec.flowList[1] (ConfigMap store/app)"), "{told}");
    let invalid = shadow("bad", &[config("new", &json!({})), config("Not_A_Name", &json!({}))]);
    let told = given(fleet, &["create", "-f", "-"], &invalid).await;
    assert!(told.refused().contains("spec.flowList[1].metadata.name"), "{told}");
    absent(fleet, &["cm/new", "shadow/bad"]).await;
    let explained = fleet.kubectl(&["explain", "shadow.spec.flowList"]).await;
    assert!(explained.ok().contains("in which they are made"), "{explained}");
}

const JANE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: jane, namespace: store}
rules:
- {apiGroups: [kubefold.io], resources: [shadowresources], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: store}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jane}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: jane}]
"#;

/// Whoever is no administrator needs the right in every member, and then the rights to the items.
async fn somebody_else(fleet: &Kubefold, members: [&Member; 2]) {
    let kubeconfig = fleet.kubeconfig_for("jane", None);
    let jane = testbed::Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap()).in_namespace("store");
    let told = jane.run(&["get", "shadow", "app"]).await;
    assert!(told.refused().contains("Forbidden"), "{told}");
    for member in members {
        member.apply(JANE).await;
    }
    eventually(SOON, async || jane.run(&["get", "shadow", "app", "-o", "name"]).await.holds("app")).await;
    let password =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hers"}, "stringData": {"p": "x"}});
    let hers = shadow("hers", &[config("hers", &json!({})), password.clone()]);
    let told = jane.run_with_input(&["create", "-f", "-"], &hers.to_string()).await;
    assert!(told.refused().contains("spec.flowList[1] (Secret store/hers)"), "{told}");
    absent(fleet, &["shadow/hers", "cm/hers"]).await;
    // What she may not read is shown to her as which object it is.
    given(fleet, &["create", "-f", "-"], &hers).await.ok();
    let seen = jane.run(&["get", "shadow", "hers", "-o", "json"]).await;
    let seen: Value = serde_json::from_str(seen.ok()).unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hers", "namespace": "store"}});
    assert_eq!(seen["spec"]["flowList"][1], reference);
    assert_eq!(seen["spec"]["flowList"][0]["kind"], "ConfigMap");
    let listed = jane.run(&["get", "shadow", "-o", "json"]).await;
    assert!(!listed.ok().contains("\"p\":"), "{listed}");
    let told = jane.run(&["delete", "shadow", "hers"]).await;
    assert!(told.refused().contains("nothing was deleted"), "{told}");
    fleet.kubectl(&["delete", "shadow", "hers", "--timeout=30s"]).await.ok();
}

/// Members of clusters.yaml are objects, too, which nobody writes.
async fn a_member_is_down(fleet: &Kubefold, west: &Member) {
    fleet.kubectl(&["wait", "--for=condition=Ready", "member", "--all", "--timeout=30s"]).await.ok();
    let told = fleet.kubectl(&["delete", "member", "west"]).await;
    assert!(told.refused().contains("it stands in clusters.yaml"), "{told}");
    west.stop_apiserver();
    fleet.kubectl(&["wait", "--for=condition=Ready=false", "member/west", "--timeout=30s"]).await.ok();
    let table = fleet.kubectl(&["get", "members"]).await;
    assert!(table.ok().lines().any(|line| line.starts_with("west ") && line.contains(" down ")), "{table}");
    let shown = async || fleet.api().await.get(&format!("{SPACE}/app")).await;
    let items = shown().await["spec"]["flowList"].as_array().unwrap().len();
    assert_eq!(items, 2, "the last known state is shown");
    west.start_apiserver().await;
    fleet.kubectl(&["wait", "--for=condition=Ready", "shadow/app", "--timeout=60s"]).await.ok();
}

async fn kubefold_is_killed(fleet: &Kubefold) {
    let before = fleet.api().await.get(&format!("{SPACE}/app")).await["metadata"]["uid"].clone();
    fleet.kubectl(&["delete", "shadow", "app", "--wait=false"]).await.ok();
    fleet.kill9();
    fleet.restart().await;
    let gone = async || {
        let answer = fleet.request(http::Method::GET, &format!("{SPACE}/app"), "").await;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { Err(format!("{before}: {}", answer.status)) }
    };
    eventually(Duration::from_secs(90), gone).await;
    absent(fleet, &["cm/app", "deploy/app"]).await;
}
