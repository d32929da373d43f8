//! The testbed itself: what the other tests take for granted.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use testbed::{Api, Informer, Member, MemberOptions, Output, Process, Relay, Testbed, eventually};

const SOON: Duration = Duration::from_secs(30);
/// For nothing to happen: long beside a local round trip.
const A_WHILE: Duration = Duration::from_millis(700);

/// A config map and a resource version at which it exists.
async fn create_config_map(member: &Member, name: &str) -> String {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"from": member.name()}});
    let created = member.api().await.create("/api/v1/namespaces/default/configmaps", &object).await;
    created["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

async fn names_of_config_maps(member: &Member) -> String {
    member.kubectl(&["get", "configmaps", "-o", "name"]).await.ok().to_owned()
}

async fn cluster_uid(member: &Member) -> String {
    let system = member.api().await.get("/api/v1/namespaces/kube-system").await;
    system["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn watch_from(member: &Member, version: &str) -> testbed::Watch {
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={version}");
    member.api().await.watch(&path).await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_start_in_parallel_as_clusters_of_their_own() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let mut uids = Vec::new();
    for member in bed.members() {
        member.kubectl(&["get", "namespaces"]).await.holds("kube-system").unwrap();
        member.kubectl(&["version"]).await.holds("Server Version: v1.36.").unwrap();
        uids.push(cluster_uid(member).await);
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 3, "each is its own cluster");

    create_config_map(&bed["east"], "only-east").await;
    assert!(names_of_config_maps(&bed["east"]).await.contains("only-east"));
    assert!(!names_of_config_maps(&bed["west"]).await.contains("only-east"));
}

/// What a member has of some kinds, without what its servers write all the time; and the API groups that it serves.
async fn everything(member: &Member) -> Vec<Value> {
    let api = member.api().await;
    let mut all = vec![
        api.get("/apis").await,
        api.get("/openapi/v3").await["paths"].as_object().unwrap().keys().cloned().collect(),
    ];
    for kind in [
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/serviceaccounts",
        "/api/v1/configmaps",
        "/api/v1/services",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ] {
        let mut list = api.get(kind).await;
        for item in list["items"].as_array_mut().unwrap() {
            let metadata = item["metadata"].as_object_mut().unwrap();
            metadata.retain(|field, _| field != "resourceVersion" && field != "managedFields");
            item["status"] = Value::Null;
        }
        all.push(list["items"].take());
    }
    all
}

/// What a test may leave behind, of its own and of what was there.
const LEFT: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: left}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.left.kubefold.io, finalizers: [left.kubefold.io/stays]}
spec:
  group: left.kubefold.io
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view, labels: {left: behind}}
rules: []
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: left}
webhooks:
- name: left.kubefold.io
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_another_test_had_is_as_after_its_start() {
    let start = async || Testbed::start(&["again"], MemberOptions::with_workloads(1)).await;
    let bed = start().await;
    let member = &bed["again"];
    let (process, before) = (member.apiserver_id(), everything(member).await);

    member.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=3"]).await.ok();
    member.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    member.kubectl(&["label", "node", "node-0", "left=behind"]).await.ok();
    member.kubectl(&["delete", "clusterrole", "edit"]).await.ok();
    member.apply(LEFT).await;
    member.as_admin().established("things.left.kubefold.io").await;
    let thing = json!({"apiVersion": "left.kubefold.io/v1", "kind": "Thing", "metadata": {"name": "one"}});
    member.api().await.create("/apis/left.kubefold.io/v1/namespaces/left/things", &thing).await;
    let described = async || match member.api().await.get("/openapi/v3").await.to_string() {
        paths if paths.contains("left.kubefold.io") => Ok(()),
        paths => Err(paths),
    };
    eventually(SOON, described).await;
    drop(bed);

    let bed = start().await;
    let member = &bed["again"];
    assert_eq!(member.apiserver_id(), process, "it is the same");
    assert_eq!(everything(member).await, before);
    member.kubectl(&["create", "secret", "generic", "one"]).await.ok();
    member.kubectl(&["create", "deployment", "web", "--image=web:1"]).await.ok();
    member.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    // The server would hold on to it for a while.
    member.kubectl(&["create", "quota", "left", "--hard=pods=0"]).await.ok();
    drop(bed);
    assert_ne!(start().await["again"].apiserver_id(), process, "this one is new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_becomes_running_pods_with_logs() {
    let bed = Testbed::start(&["east"], MemberOptions::with_workloads(2)).await;
    let member = &bed["east"];
    member.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=3"]).await.ok();
    member.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"]).await.ok();
    let pods = member.kubectl(&["get", "pods", "--no-headers"]).await.ok().to_owned();
    assert_eq!(pods.lines().filter(|line| line.contains("Running")).count(), 3, "{pods}");

    let logs = member.kubectl(&["logs", "deployment/web"]).await;
    assert_eq!(logs.ok(), "hello from east\n");
    let exec = member.kubectl(&["exec", "deployment/web", "--", "echo", "here"]).await;
    assert_eq!(exec.ok(), "here\n");
    let forward = member.as_admin().start(&["port-forward", "deployment/web", ":80"]);
    let port = eventually(SOON, async || {
        let output = forward.output();
        let port = output.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')?.0.parse::<u16>().ok());
        port.ok_or(output)
    })
    .await;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    tokio::time::timeout(SOON, stream.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_kill_and_restart_keep_the_data() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let member = &bed["east"];
    create_config_map(member, "kept").await;
    let api = member.api().await;

    member.pause();
    let hung = tokio::time::timeout(A_WHILE, api.try_request(Method::GET, "/api/v1/namespaces", "")).await;
    assert!(hung.is_err(), "a paused member does not answer");
    member.resume();
    assert_eq!(api.request(Method::GET, "/readyz", "").await.status, StatusCode::OK);

    member.kill();
    assert!(api.try_request(Method::GET, "/readyz", "").await.is_err(), "a killed member refuses connections");
    member.restart().await;
    assert!(names_of_config_maps(member).await.contains("kept"));

    member.stop_apiserver();
    assert!(member.kubectl(&["get", "namespaces"]).await.refused().contains("refused"));
    member.start_apiserver().await;
    assert!(names_of_config_maps(member).await.contains("kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_before_a_compaction_is_gone() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let member = &bed["east"];
    let before = create_config_map(member, "first").await;
    create_config_map(member, "second").await;

    let event = watch_from(member, &before).await.next(SOON).await.unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("second")));

    member.forget_history().await;
    let event = watch_from(member, &before).await.next(SOON).await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_member_goes_backwards_and_a_replaced_one_is_another_cluster() {
    let bed = Testbed::start(&["east"], MemberOptions::with_workloads(1)).await;
    let member = &bed["east"];
    create_config_map(member, "old").await;
    let (uid, snapshot) = (cluster_uid(member).await, member.dir().join("snapshot"));
    member.snapshot_etcd(&snapshot).await;
    let mut last = String::new();
    for number in 0..300 {
        last = create_config_map(member, &format!("new-{number}")).await;
    }

    member.restore_etcd(&snapshot).await;
    let names = names_of_config_maps(member).await;
    assert!(names.contains("old") && !names.contains("new-0"), "{names}");
    let list = member.api().await.get("/api/v1/namespaces/default/configmaps").await;
    let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(now < last.parse().unwrap(), "the revision went from {last} to {now}");
    assert_eq!(cluster_uid(member).await, uid, "it is the same cluster");

    member.replace_cluster().await;
    assert!(!names_of_config_maps(member).await.contains("old"));
    assert_ne!(cluster_uid(member).await, uid, "it is another cluster, at the same address");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_hangs_delays_and_is_cut() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let member = &bed["east"];
    let relay = Relay::before(member).await;
    let api = Api::from_kubeconfig(&member.kubeconfig_through(&relay), None).await;
    let ready = async || api.try_request(Method::GET, "/readyz", "").await.map(|answer| answer.status);
    assert_eq!(ready().await, Ok(StatusCode::OK));
    let mut watch = api.watch("/api/v1/namespaces/default/configmaps?watch=true").await;

    relay.hang();
    assert!(tokio::time::timeout(A_WHILE, ready()).await.is_err(), "a relay that hangs moves nothing");
    create_config_map(member, "meanwhile").await;
    assert!(tokio::time::timeout(A_WHILE, watch.next(SOON)).await.is_err(), "nor on connections from before");
    relay.restore().await;
    let event = watch.next(SOON).await.expect("the connection has survived");
    assert_eq!(event["type"], "ADDED");
    assert_eq!(ready().await, Ok(StatusCode::OK));

    relay.delay(A_WHILE);
    assert!(tokio::time::timeout(A_WHILE, ready()).await.is_err(), "there and back takes twice the delay");
    relay.restore().await;

    relay.cut().await;
    assert!(watch.next(SOON).await.is_none(), "a cut ends open streams");
    assert!(ready().await.unwrap_err().contains("refused"));
    relay.restore().await;
    assert_eq!(ready().await, Ok(StatusCode::OK));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_knows_its_callers() {
    let member = Member::start("east", MemberOptions { audit: true, ..MemberOptions::default() }).await;
    let ann = Api::from_kubeconfig(&member.kubeconfig_for("ann", Some("shop")), None).await;
    let answer = ann.request(Method::GET, "/api/v1/namespaces/default/secrets", "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer}");
    assert!(answer.json()["message"].as_str().unwrap().contains(r#"User "ann" cannot list resource "secrets""#));

    let seen = |event: &Value| event["user"]["username"] == "ann" && event["objectRef"]["resource"] == "secrets";
    eventually(SOON, async || member.audit().iter().any(seen).then_some(()).ok_or("ann is not in the audit log")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_tells_what_it_sees() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let member = &bed["east"];
    create_config_map(member, "first").await;
    member.kubectl(&["create", "serviceaccount", "robot"]).await.ok();
    for watchlist in [true, false] {
        let mut informer = Informer::start(&member.kubeconfig(), None, "configmaps", watchlist);
        informer.synced(SOON).await;
        assert_eq!(informer.dump().await["default/first"]["data"]["from"], "east", "{}", informer.errors());

        create_config_map(member, "second").await;
        member.kubectl(&["label", "configmap", "second", "a=b"]).await.ok();
        member.kubectl(&["delete", "configmap", "second"]).await.ok();
        let gone = async || informer.events_of("DELETE").pop().ok_or("no DELETE yet");
        assert_eq!(eventually(SOON, gone).await["key"], "default/second");
        let updates = informer.events_of("UPDATE");
        assert_eq!((&updates[0]["key"], &updates[0]["changed"]), (&json!("default/second"), &json!(true)));

        let dynamic = Informer::start(&member.kubeconfig(), Some("east"), "serviceaccounts", watchlist);
        dynamic.synced(SOON).await;
        assert!(dynamic.events_of("ADD").iter().any(|event| event["key"] == "default/robot"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_in_the_background() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let member = &bed["east"];
    let watching = member.as_admin().start(&["get", "configmaps", "--watch", "-o", "name"]);
    create_config_map(member, "seen").await;
    let shown = async || watching.output().contains("configmap/seen").then_some(()).ok_or_else(|| watching.output());
    eventually(SOON, shown).await;
    let refused: Output = member.kubectl(&["get", "configmap", "missing"]).await;
    assert!(refused.refused().contains("NotFound"));
}

/// Runs the named test of this binary again as a parent that ends as told, and sees that its child ends too. In that
/// second run it *is* the parent, and does not come back.
fn dies_with_its_parent(test: &str, how: &str) {
    if std::env::var_os(DOOM).is_some() {
        doomed(how);
    }
    for guard in ["best", "supervisor"] {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("KUBEFOLD_TESTBED_GUARD", guard)
            .env(DOOM, "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let child = lines.find_map(|line| line.unwrap().split_once("child=").map(|(_, id)| id.to_owned())).unwrap();
        // The process group, because the supervisor is a parent between the two.
        let alive = || group_lives(&child);
        if how == "killed" {
            assert!(alive(), "{child}");
            parent.kill().unwrap();
        }
        parent.wait().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(eventually(SOON, async || (!alive()).then_some(()).ok_or("the child lives on")));
    }
}

/// Says whether a process group has a process that is more than an entry that nobody has asked after yet.
fn group_lives(group: &str) -> bool {
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|process| {
        // Of a process that ends meanwhile there is nothing to read.
        std::fs::read_to_string(process.ok()?.path().join("stat")).ok()
    });
    let mut states = stats.filter_map(|stat| {
        // Behind the name, which may hold anything: state, parent, group.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().map(str::to_owned);
        let state = fields.next()?;
        fields.nth(1).filter(|of| of == group).map(|_| state)
    });
    states.any(|state| !matches!(state.as_str(), "Z" | "X"))
}

/// Set in the second run.
const DOOM: &str = "KUBEFOLD_TESTBED_DOOM";

#[expect(clippy::print_stdout, reason = "the line is for its own parent")]
fn doomed(how: &str) -> ! {
    let log = tempfile::NamedTempFile::new().unwrap();
    let child = Process::spawn("sleep", "sleep".as_ref(), &["300"], log.path());
    println!("child={}", child.id());
    assert!(how != "panics", "as told");
    loop {
        std::thread::park();
    }
}

#[test]
fn children_die_when_the_test_panics() {
    dies_with_its_parent("clusters::children_die_when_the_test_panics", "panics");
}

#[test]
fn children_die_when_the_test_process_is_killed() {
    dies_with_its_parent("clusters::children_die_when_the_test_process_is_killed", "killed");
}
