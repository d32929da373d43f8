//! Two kubefolds on one PostgreSQL: one has the state, the other one hands requests on to it, and takes over.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use testbed::{
    Answer, Api, Authority, FleetFile, Kubectl, Kubefold, Member, MemberOptions, Relay, StateEngine, StateServer,
    eventually, figure,
    objects::{CONFIG_MAPS, create, listed},
};

use crate::{
    resumed::{Client, watched},
    streams::Cluster,
};

const SOON: Duration = Duration::from_secs(60);
/// What could not be finished is tried again after 10, 30 and 70 s.
const SETTLED: Duration = Duration::from_secs(180);
const DOCS: &str = include_str!("../../docs/metrics.md");
const DEFAULT: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until it serves, and says how long that took.
pub(crate) async fn serves(fleet: &Kubefold, after: &str, began: Instant) {
    eventually(SOON, async || {
        let metrics = fleet.api().await.try_request(Method::GET, "/metrics", "").await?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        if text.contains("kubefold_state_held 1") { Ok(()) } else { Err(text) }
    })
    .await;
    fleet.ready().await;
    figure(&format!("after {after} the standby serves in {:?}", began.elapsed()));
}

/// Waits as a standby that can hand requests on, and says so.
async fn waits(fleet: &Kubefold, holder: &Kubefold) {
    fleet.ready().await;
    let process = format!("process {} has the state since 20", holder.pid());
    let handed_on = format!("; requests are handed on to {}", holder.addr());
    eventually(SOON, async || {
        let answer = fleet.request(Method::GET, "/readyz?verbose", "").await;
        let text = answer.to_string();
        if text.contains(&process) && text.contains(&handed_on) { Ok(()) } else { Err(text) }
    })
    .await;
    let metrics = fleet.request(Method::GET, "/metrics", "").await.to_string();
    assert!(metrics.contains("kubefold_state_held 0") && metrics.contains("kubefold_replica_holder_reachable 1"));
    let names = DOCS.split('`').filter(|word| word.starts_with("kubefold_replica_"));
    let missing: Vec<_> = names.filter(|name| !metrics.contains(&format!("# TYPE {name} "))).collect();
    assert!(missing.is_empty() && DOCS.contains("kubefold_replica_"), "{missing:?} {metrics}");
    eventually(SOON, async || {
        let told = fleet.command(&["status"]).await;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        let has = |row: [&str; 2]| text.lines().any(|line| row.iter().all(|cell| line.contains(cell)));
        let both = has([&holder.addr(), "holder"]) && has([&fleet.addr(), "standby"]);
        if both { Ok(()) } else { Err(format!("{text} {told:?}")) }
    })
    .await;
}

/// Whoever asks the standby gets the holder's answer.
async fn handed_on(standby: &Kubefold, holder: &Kubefold, east: &Member) {
    let metadata = json!({"name": "through", "namespace": "default"});
    let large = "x".repeat(700_000);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": large}});
    standby.as_admin().run_with_input(&["create", "-f", "-"], &map.to_string()).await.ok();
    let path = format!("{DEFAULT}?watch=true&fieldSelector=metadata.name%3Dthrough");
    let mut watch = standby.api().await.watch(&path).await;
    assert_eq!(watch.next(SOON).await.unwrap()["object"]["data"]["k"], large);
    holder.kubectl(&["annotate", "configmap", "through", "a=b"]).await.ok();
    assert_eq!(watch.next(SOON).await.unwrap()["type"], "MODIFIED");
    standby.kubectl(&["delete", "configmap", "through"]).await.ok();
    assert_eq!(watch.next(SOON).await.unwrap()["type"], "DELETED");
    // Both protocols of exec, and the exit code.
    for web_sockets in ["true", "false"] {
        let kubectl = standby.as_admin().with("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", web_sockets);
        let ran = kubectl.run(&["exec", "web@east", "--", "sh", "-c", "echo out; exit 7"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "out\n"), "{ran}");
    }
    // By a client certificate, by a token of a member's ServiceAccount, and by what nobody believes.
    let foreign = Authority::new("foreign").client("jane", Some("system:masters"));
    east.kubectl(&["create", "serviceaccount", "robot"]).await.ok();
    let token = east.kubectl(&["create", "token", "robot"]).await.ok().trim().to_owned();
    let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let mut said = Vec::new();
    for fleet in [standby, holder] {
        let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
        let jane = Api::from_kubeconfig(&fleet.kubeconfig_for("jane", Some("dev")), None).await;
        let foreign = Api::from_kubeconfig(&fleet.kubeconfig_with("foreign", &foreign), None).await;
        let robot = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await.with_token(&token);
        let mut of_fleet = Vec::new();
        for api in [&nobody, &jane, &foreign, &robot] {
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let answer = api.request(Method::POST, path, review).await;
            of_fleet.push((answer.status, answer.json()["status"].clone(), answer.json()["message"].clone()));
        }
        said.push(of_fleet);
    }
    assert_eq!(said[0], said[1]);
    let codes: Vec<u16> = said[0].iter().map(|(code, ..)| code.as_u16()).collect();
    assert_eq!(codes, [401, 201, 401, 201], "{said:?}");
    assert_eq!(said[0][1].1["userInfo"]["username"], "jane");
    assert_eq!(said[0][3].1["userInfo"]["username"], "system:serviceaccount:default:robot");
}

fn body(name: &str, value: &str) -> String {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}}).to_string()
}

/// Begins a write that member west keeps waiting, and returns once it is in the journal.
async fn begun(fleet: &Kubefold, west: &Relay, method: Method, path: &str, body: String) -> JoinSet<()> {
    let (api, path) = (fleet.api().await, path.to_owned());
    west.delay(Duration::from_millis(700));
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        let _outcome: Result<Answer, String> = api.try_request(method, &path, body).await;
    });
    let api = fleet.api().await;
    eventually(SOON, async || {
        let unfinished = api.get("/kubefold/v1/status").await["unfinished"].take();
        unfinished.as_array().is_some_and(|all| !all.is_empty()).then_some(()).ok_or_else(|| unfinished.to_string())
    })
    .await;
    writing
}

/// The value that a member has of a config map; nothing where it has none.
async fn value(member: &Member, name: &str) -> String {
    let get = ["get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.k}"];
    member.kubectl(&get).await.ok().to_owned()
}

/// Both members have what one writer would have left, and the fleet view shows what they have.
async fn agree(fleet: &Kubefold, members: [&Member; 2], name: &str, allowed: &[&str]) {
    let api = fleet.api().await;
    eventually(SETTLED, async || {
        let unfinished = api.get("/kubefold/v1/status").await["unfinished"].take();
        if unfinished.as_array().is_none_or(|all| !all.is_empty()) {
            return Err(unfinished.to_string());
        }
        let [east, west] = [value(members[0], name).await, value(members[1], name).await];
        if east != west || !allowed.contains(&east.as_str()) {
            return Err(format!("{name}: east {east:?}, west {west:?}"));
        }
        // A client that lists again sees that, and nothing else.
        let (shown, warnings) = listed(&api).await?;
        let shown: Vec<&String> = shown.keys().filter(|key| key.contains(name)).collect();
        let expected = if east.is_empty() { vec![] } else { vec![format!("default/{name}")] };
        let is_so = shown.iter().copied().eq(&expected) && warnings.is_empty();
        is_so.then_some(()).ok_or_else(|| format!("{shown:?} {warnings:?}"))
    })
    .await;
}

pub(crate) fn key_file(at: &Path) -> &str {
    fs::write(at, STANDARD.encode([7; 32])).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o600)).unwrap();
    at.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_kubefold_that_is_killed_hangs_or_ends() {
    Box::pin(a_standby_takes_over(StateEngine::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mysql_a_standby_takes_over_from_a_kubefold_that_is_killed_hangs_or_ends() {
    Box::pin(a_standby_takes_over(StateEngine::Mysql)).await;
}

async fn a_standby_takes_over(engine: StateEngine) {
    let (east, west) = tokio::join!(Cluster::start("east"), Member::start("west", MemberOptions::default()));
    let members = [&east.member, &west];
    let server = StateServer::start_with_tls(engine);
    let to_west = Relay::before(members[1]).await;
    let folder = tempfile::tempdir().unwrap();
    let (url, key) = (folder.path().join("url"), folder.path().join("key"));
    let port = server.address().rsplit_once(':').unwrap().1.parse().unwrap();
    fs::write(&url, format!("{}\n", server.tls_url(port))).unwrap();
    server.sql(&server.grant());
    let authority = server.authority();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-ca-file", authority.to_str().unwrap()];
    let flags = [&flags[..], &["--state-key-file", key_file(&key)]].concat();
    let file =
        FleetFile::default().member(members[0], 1).entry("west", &members[1].kubeconfig_through(&to_west), 1, "");

    let first = Kubefold::start_with(&file, &flags).await;
    let second = Kubefold::launch_with(&file, &flags);
    waits(&second, &first).await;
    let [ours, theirs] = [&first, &second].map(|fleet| fs::read_to_string(fleet.state_dir().join("ca.crt")).unwrap());
    assert_eq!(ours, theirs, "clients believe both");
    assert_eq!(server.rows_with(&server.table("kubefold", "files"), "content", "PRIVATE KEY"), "0");

    handed_on(&second, &first, members[0]).await;
    hung(&first, &second, members, &to_west).await;
    killed(&second, &first, members, &to_west).await;

    // It ends in order, and a client of its own goes on at the other one.
    second.relaunch();
    waits(&second, &first).await;
    let before = revision(&first).await;
    let relay = Relay::to(&second.addr()).await;
    let client = first.kubeconfig_through(&relay);
    let (api, through) = (first.api().await, second.api().await);
    let mut watching = Client::new(&through, CONFIG_MAPS).await;
    let (told, began) = tokio::join!(watching.told(&through, usize::MAX), async {
        watched(&api, 1).await;
        let began = Instant::now();
        assert!(first.terminate(SOON).await.success(), "{}", first.log());
        began
    });
    assert!(told.is_empty(), "{told:?}");
    serves(&second, "SIGTERM", began).await;
    // Its watch goes on at the other one.
    create(members[0], "later", "x").await;
    let told = watching.told(&second.api().await, 1).await;
    assert_eq!(told, [("ADDED".to_owned(), "later@east".to_owned())], "{}", second.log());
    assert!(revision(&second).await > before, "revisions rise");
    let shown = Kubectl::new(&client, folder.path()).run(&["get", "configmap", "kept", "-o", "name"]).await;
    assert_eq!(shown.ok().trim(), "configmap/kept");
}

/// Stopped in the middle of a create, and let go on once another one has the state.
async fn hung(first: &Kubefold, second: &Kubefold, members: [&Member; 2], to_west: &Relay) {
    let before = revision(first).await;
    let writing = begun(first, to_west, Method::POST, DEFAULT, body("kept", "1")).await;
    first.pause();
    let began = Instant::now();
    to_west.restore().await;
    serves(second, "SIGSTOP", began).await;
    agree(second, members, "kept", &["", "1"]).await;
    first.resume();
    let status = first.ended().await;
    assert!(!status.success() && first.log().contains("since; this process writes nothing more"), "{}", first.log());
    drop(writing);
    agree(second, members, "kept", &["", "1"]).await;
    assert!(revision(second).await >= before, "revisions do not fall");
    // Whatever became of it: from here on it is there.
    let made = second.request(Method::POST, DEFAULT, body("kept", "1")).await;
    assert!([StatusCode::CREATED, StatusCode::CONFLICT].contains(&made.status), "{made}");
    agree(second, members, "kept", &["1"]).await;
    first.relaunch();
    waits(first, second).await;
}

/// Killed in the middle of an update.
async fn killed(second: &Kubefold, first: &Kubefold, members: [&Member; 2], to_west: &Relay) {
    let path = format!("{DEFAULT}/kept");
    let writing = begun(second, to_west, Method::PUT, &path, body("kept", "2")).await;
    let asked = first.as_admin();
    second.kill9();
    let began = Instant::now();
    to_west.restore().await;
    drop(writing);
    // A client of the other replica is told to ask again, and does.
    asked.run(&["get", "configmap", "kept", "-o", "name"]).await.ok();
    serves(first, "kill -9", began).await;
    agree(first, members, "kept", &["1", "2"]).await;
}

/// The revision of a list.
async fn revision(fleet: &Kubefold) -> u64 {
    let list = fleet.api().await.get(DEFAULT).await;
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
