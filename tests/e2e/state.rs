//! State in PostgreSQL: the next process finds what the last one wrote; reads work while the database cannot be reached.

use std::{fs, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Api, FleetFile, Kubefold, Member, MemberOptions, PostgresServer, Relay, Testbed, eventually,
    objects::{create_many, exact, listed},
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
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_many(east, "many", 20, 100).await;
    create_many(west, "many", 20, 100).await;
    let server = PostgresServer::start_with_tls();
    let (database, to_west) = (Relay::to(&server.address()).await, Relay::before(west).await);
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("url");
    let port = database.addr().port();
    fs::write(&url, format!("postgres://jane:s3cret@localhost:{port}/postgres?sslmode=require\n")).unwrap();
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
    assert!(told.contains("GRANT CREATE ON DATABASE \"postgres\" TO \"jane\"") && !told.contains("s3cret"), "{told}");
    server.sql("GRANT CREATE ON DATABASE postgres TO jane");

    let fleet = Kubefold::start_with(&file, &flags).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    assert_eq!(make(&api, "shared").await.0, StatusCode::CREATED);
    let secret = ["create", "secret", "generic", "kept", "-n", "kubefold-system", "--from-literal=k=hunter2"];
    fleet.kubectl(&secret).await.ok();
    let known = names(&api).await.unwrap();
    assert!(known.contains(&"default/shared".to_owned()) && known.len() > 40, "{known:?}");
    mirrored(&api).await;
    for file in ["state.db", "own.db", "mirror.db"] {
        assert!(!fleet.state_dir().join(file).exists(), "{file}");
    }
    let clear = "SELECT count(*) FROM kubefold_own.kubefold_changes WHERE encode(value, 'escape') LIKE '%hunter2%'";
    assert_eq!(server.sql(clear), "0");

    // Another process.
    let (code, _, told) = run(&second, folder.path()).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("another kubefold (host ") && told.contains(" has this state"), "{told}");
    assert!(told.contains("With the --state-key-file of that process this one waits"), "{told}");

    let known = killed_behind(&fleet, west, &to_west).await;
    away(&fleet, &database).await;
    restored(&fleet, &server, known.len()).await;
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
async fn restored(fleet: &Kubefold, server: &PostgresServer, known: usize) {
    assert!(fleet.terminate(SOON).await.success(), "{}", fleet.log());
    server.sql("UPDATE kubefold.holder SET epoch = 1, beat = 1");
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
async fn away(fleet: &Kubefold, database: &Relay) {
    let api = fleet.api().await;
    for (name, is_cut) in [("gone", true), ("silent", false)] {
        match is_cut {
            true => database.cut().await,
            false => database.hang(),
        }
        let (status, told) = make(&api, name).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
        assert!(told.contains("nothing was changed") && told.contains("PostgreSQL"), "{told}");
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
