//! State in a database: the next process finds what the last one wrote; reads work while the database cannot be reached.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Api, FleetFile, Kubefold, Member, MemberOptions, Relay, StateEngine, StateServer, Testbed, eventually,
    objects::{create_many, exact, listed},
    program,
    samples::namespace,
};

use crate::{
    apiserver::run,
    mirror::{metric, mirrored},
};

const SOON: Duration = Duration::from_secs(60);
const DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
const STATUS: &str = "/kubefold/v1/status";

async fn state(api: &Api) -> Value {
    api.get(STATUS).await["state"].take()
}

/// The config maps that the fleet view shows.
async fn names(api: &Api) -> Result<Vec<String>, String> {
    Ok(listed(api).await?.0.keys().cloned().collect())
}

/// Makes a config map of all members through the fleet view, and says what came of it.
async fn make(api: &Api, name: &str) -> (StatusCode, String) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "1"}});
    let answer = api.request(Method::POST, DEFAULT, body.to_string()).await;
    (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn state_in_postgresql_outlives_processes_and_outages() {
    outlives_processes_and_outages(StateEngine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_in_mysql_outlives_processes_and_outages() {
    outlives_processes_and_outages(StateEngine::Mysql).await;
}

async fn outlives_processes_and_outages(engine: StateEngine) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_many(east, "many", 20, 100).await;
    create_many(west, "many", 20, 100).await;
    let server = StateServer::start_with_tls(engine);
    let (database, to_west) = (Relay::to(&server.address()).await, Relay::before(west).await);
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("url");
    fs::write(&url, format!("{}\n", server.tls_url(database.addr().port()))).unwrap();
    let authority = server.authority();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-ca-file", authority.to_str().unwrap()];
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&to_west), 1, "");

    // What is missing is said.
    let config = folder.path().join("clusters.yaml");
    fs::write(&config, file.text()).unwrap();
    let serve = ["serve", "--listen=127.0.0.1:0", "--state-dir=other", "--config", config.to_str().unwrap()];
    let second: Vec<&str> = serve.iter().chain(&flags).copied().collect();
    let (code, _, told) = run(&second, folder.path()).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(&server.grant()) && !told.contains("s3cret"), "{told}");
    server.sql(&server.grant());

    let fleet = Kubefold::start_with(&file, &flags).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    let (status, told) = make(&api, "shared").await;
    assert_eq!(status, StatusCode::CREATED, "{told}");
    let secret = ["create", "secret", "generic", "kept", "-n", "kubefold-system", "--from-literal=k=hunter2"];
    fleet.kubectl(&secret).await.ok();
    let known = names(&api).await.unwrap();
    assert!(known.contains(&"default/shared".to_owned()) && known.len() > 40, "{known:?}");
    mirrored(&api).await;
    for file in ["state.db", "own.db", "mirror.db"] {
        assert!(!fleet.state_dir().join(file).exists(), "{file}");
    }
    let own = if engine == StateEngine::Postgres { "kubefold_own.kubefold_changes" } else { "kubefold_changes" };
    assert_eq!(server.rows_with(own, "value", "hunter2"), "0");

    // Another process.
    let (code, _, told) = run(&second, folder.path()).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("another kubefold (host ") && told.contains(" has this state"), "{told}");
    assert!(told.contains("With the --state-key-file of that process this one waits"), "{told}");

    let known = killed_behind(&fleet, west, &to_west).await;
    away(&fleet, &database, engine).await;
    restored(&fleet, &server, known.len()).await;
}

/// Where [`fill`] makes what is in members.
pub(crate) const SPACE: &str = "state";
const SHADOWS: &str = "/apis/kubefold.io/v1alpha1/namespaces/state/shadowresources";

/// What is in the directory is in the database after a move, whenever that was killed, and kubefold goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_directory_is_moved_into_postgresql_and_goes_on_there() {
    moved_and_goes_on(StateEngine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_directory_is_moved_into_mysql_and_goes_on_there() {
    moved_and_goes_on(StateEngine::Mysql).await;
}

async fn moved_and_goes_on(engine: StateEngine) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(namespace(east, SPACE), namespace(west, SPACE));
    let (to_west, server) = (Relay::before(west).await, StateServer::start(engine));
    let url = server.url();
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&to_west), 1, "");
    let mut fleet = Kubefold::start(&file).await;
    let revision = fill(&fleet, &to_west).await;

    let state_move = ["state", "move", "--state", url.as_str()];
    let refused = async |fleet: &Kubefold, args: &[&str], why: &str| {
        let ended = fleet.command(args).await;
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains(why), "{told}");
    };
    refused(&fleet, &state_move, "another kubefold process uses it").await;
    assert!(fleet.terminate(SOON).await.success(), "{}", fleet.log());
    let other = tempfile::tempdir().unwrap();
    fs::set_permissions(other.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["own.db", "state.db", "state.key"] {
        fs::copy(fleet.state_dir().join(name), other.path().join(name)).unwrap();
    }

    // Killed wherever it is, once it has begun. Then it goes on.
    let mut killed = tokio::process::Command::new(program());
    killed.args(state_move).arg("--state-dir").arg(fleet.state_dir()).kill_on_drop(true);
    let mut killed = killed.spawn().unwrap();
    eventually(SOON, async || server.has_table("kubefold_changes").then_some(()).ok_or("it has not begun")).await;
    killed.kill().await.unwrap();
    if fleet.state_dir().join("own.db").exists() {
        let config = fleet.config();
        let serve = ["serve", "--listen=127.0.0.1:0", "--config", config.to_str().unwrap(), "--state", &url];
        refused(&fleet, &serve, "kubefold state move").await;
        let moved = fleet.command(&state_move).await;
        let told = String::from_utf8_lossy(&moved.stdout).into_owned();
        assert!(moved.status.success() && told.contains("has the state (unfinished writes: 1"), "{told} {moved:?}");
    } else if fleet.state_dir().join("state.db").exists() {
        // Killed when one file had its new name and the other had not.
        let moved = fleet.command(&state_move).await;
        assert!(moved.status.success(), "{moved:?}");
    }
    refused(&fleet, &state_move, "has no state to move").await;
    let from_other = ["state", "move", "--state", &url, "--state-dir", other.path().to_str().unwrap()];
    let (code, _, told) = run(&from_other, other.path()).await;
    assert!(code == Some(1) && told.contains("has the state of another kubefold"), "{told}");
    assert!(fleet.state_dir().join("own.db.moved").exists() && fleet.state_dir().join("state.db.moved").exists());

    fleet.restart_with(&["--state", &url]).await;
    is_there(&fleet, &revision).await;
    let path = format!("{SHADOWS}?watch=true&resourceVersion={revision}");
    let before = fleet.request(Method::GET, &path, "").await.to_string();
    assert!(before.contains("\"code\":410"), "no watch goes on from before: {before}");
    to_west.restore().await;
    caught_up(west).await;
}

/// A Secret and a ShadowResource of its own, a cordoned member, and a write that does not reach one. Gives the revision of the
/// own objects.
pub(crate) async fn fill(fleet: &Kubefold, to_west: &Relay) -> String {
    let api = fleet.api().await;
    let secret = ["create", "secret", "generic", "kept", "-n", "kubefold-system", "--from-literal=k=hunter2"];
    fleet.kubectl(&secret).await.ok();
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "item", "namespace": SPACE}});
    let shadow = json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "ShadowResource",
        "metadata": {"name": "kept", "namespace": SPACE}, "spec": {"flowList": [item]}});
    // More revisions than the database gives out while the objects are moved.
    let secrets = "/api/v1/namespaces/kubefold-system/secrets";
    for _ in 0..40 {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gone"}});
        api.create(secrets, &secret).await;
        api.request(Method::DELETE, &format!("{secrets}/gone"), "").await.ok();
    }
    api.create(SHADOWS, &shadow).await;
    let cordoned = fleet.command(&["cordon", "east"]).await;
    assert!(cordoned.status.success(), "{cordoned:?}");
    to_west.cut().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "behind"}, "data": {"k": "1"}});
    let maps = format!("/api/v1/namespaces/{SPACE}/configmaps");
    eventually(SOON, async || {
        let answer = api.request(Method::POST, &maps, body.to_string()).await;
        (answer.status == StatusCode::CREATED).then_some(()).ok_or_else(|| answer.to_string())
    })
    .await;
    api.get(SHADOWS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Everything that [`fill`] made, the own objects with a later revision than this one, which they had before.
pub(crate) async fn is_there(fleet: &Kubefold, revision: &str) {
    let api = fleet.api().await;
    let status = api.get(STATUS).await;
    assert_eq!(status["unfinished"].as_array().unwrap().len(), 1, "{status}");
    let moves = api.get("/kubefold/v1/moves").await;
    assert_eq!(moves["cordoned"], json!(["east"]), "{moves}");
    let kept = ["get", "secret", "kept", "-n", "kubefold-system", "-o", "jsonpath={.data.k}"];
    assert_eq!(fleet.kubectl(&kept).await.ok(), "aHVudGVyMg==");
    let shown = api.get(SHADOWS).await;
    assert_eq!(shown["items"][0]["metadata"]["name"], "kept", "{shown}");
    let number = |revision: &str| revision.parse::<u64>().unwrap();
    let now = shown["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(number(now) > number(revision), "{now} {revision}");
}

/// What [`fill`] wrote while the member could not be reached is there, once it can be.
pub(crate) async fn caught_up(west: &Member) {
    let caught_up = ["get", "configmap", "behind", "-n", SPACE, "--ignore-not-found", "-o", "jsonpath={.data.k}"];
    eventually(SOON, async || {
        let value = west.kubectl(&caught_up).await.ok().to_owned();
        (value == "1").then_some(()).ok_or(value)
    })
    .await;
}

/// Killed with a write unfinished, and begun again while its member is down. Gives the names of all objects.
async fn killed_behind(fleet: &Kubefold, west: &Member, to_west: &Relay) -> Vec<String> {
    let api = fleet.api().await;
    to_west.cut().await;
    eventually(SOON, async || {
        let (status, told) = make(&api, "behind").await;
        (status == StatusCode::CREATED).then_some(()).ok_or(told)
    })
    .await;
    let known = names(&api).await.unwrap();
    fleet.kill9();
    fleet.restart().await;
    let api = fleet.api().await;
    assert_eq!(api.get(STATUS).await["unfinished"].as_array().unwrap().len(), 1);
    let warned = eventually(SOON, async || {
        let (shown, warnings) = listed(&api).await?;
        let shown: Vec<String> = shown.keys().cloned().collect();
        (shown == known).then_some(warnings).ok_or_else(|| format!("{shown:?}"))
    })
    .await;
    assert!(warned.iter().any(|warning| warning.contains("member west")), "{warned:?}");
    let kept = ["get", "secret", "kept", "-n", "kubefold-system", "-o", "jsonpath={.data.k}"];
    assert_eq!(fleet.kubectl(&kept).await.ok(), "aHVudGVyMg==");
    to_west.restore().await;
    let caught_up = ["get", "configmap", "behind", "--ignore-not-found", "-o", "jsonpath={.data.k}"];
    eventually(SOON, async || {
        let value = west.kubectl(&caught_up).await.ok().to_owned();
        (value == "1").then_some(()).ok_or(value)
    })
    .await;
    known
}

/// Restored from a backup.
async fn restored(fleet: &Kubefold, server: &StateServer, known: usize) {
    assert!(fleet.terminate(SOON).await.success(), "{}", fleet.log());
    server.rewind();
    fleet.restart().await;
    assert_eq!(state(&fleet.api().await).await["restored"], true);
    assert!(fleet.log().contains("it was restored from a backup"), "{}", fleet.log());
    let told = fleet.command(&["status"]).await;
    assert!(String::from_utf8_lossy(&told.stdout).contains("was restored from a backup"), "{told:?}");
    let more = ["gone", "silent", "while-gone@east", "while-silent@east"].map(|name| format!("default/{name}"));
    eventually(SOON, async || {
        let shown = names(&fleet.api().await).await?;
        (shown.len() == known + 4 && more.iter().all(|name| shown.contains(name)))
            .then_some(())
            .ok_or_else(|| format!("{shown:?}"))
    })
    .await;
}

/// The database goes, and comes back; then it does not answer, and does again.
async fn away(fleet: &Kubefold, database: &Relay, engine: StateEngine) {
    let api = fleet.api().await;
    for (name, is_cut) in [("gone", true), ("silent", false)] {
        match is_cut {
            true => database.cut().await,
            false => database.hang(),
        }
        let (status, told) = make(&api, name).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
        assert!(told.contains("nothing was changed") && told.contains(&engine.to_string()), "{told}");
        eventually(SOON, async || {
            let error = state(&api).await["error"].take();
            error.is_string().then_some(()).ok_or_else(|| error.to_string())
        })
        .await;
        assert_eq!(metric(&api, "kubefold_state_up").await, 0.0);
        assert!(metric(&api, "kubefold_state_failures_total").await > 0.0);
        assert_eq!(api.request(Method::GET, "/readyz", "").await.status, StatusCode::OK);
        let told = fleet.command(&["status"]).await;
        assert!(String::from_utf8_lossy(&told.stdout).contains("nothing can be written"), "{told:?}");
        // Member views work, what is new in members is shown, and nobody waits for the database.
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("while-{name}")}});
        let made = api.request(Method::POST, &format!("/clusters/east{DEFAULT}"), body.to_string()).await;
        assert_eq!(made.status, StatusCode::CREATED);
        let new = format!("default/while-{name}@east");
        eventually(SOON, async || {
            let shown = names(&api).await?;
            shown.contains(&new).then_some(()).ok_or_else(|| format!("{shown:?}"))
        })
        .await;
        database.restore().await;
        eventually(SOON, async || {
            let (status, told) = make(&api, name).await;
            (status == StatusCode::CREATED).then_some(()).ok_or(told)
        })
        .await;
        eventually(SOON, async || {
            let up = metric(&api, "kubefold_state_up").await;
            (up > 0.0).then_some(()).ok_or_else(|| up.to_string())
        })
        .await;
    }
    mirrored(&api).await;
}
