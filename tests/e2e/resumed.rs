//! What clients notice of a kubefold that ends in order and starts again: nothing.

use std::{collections::BTreeSet, fs, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Api, FleetFile, Informer, Kubefold, MemberOptions, Relay, StateEngine, StateServer, Testbed, eventually,
    objects::{CONFIG_MAPS, create, create_many, delete, update},
};

use crate::standby::{key_file, serves};

const SOON: Duration = Duration::from_secs(60);
const CONFIG_MAPS_OF_DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
/// Kinds whose objects are member-local, placed, children of placed objects, and those that refer to these.
const PATHS: [&str; 6] = [
    CONFIG_MAPS,
    "/api/v1/secrets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/api/v1/pods",
    "/api/v1/namespaces",
];
const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default"},
    "spec":{"replicas":4,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
    "spec":{"containers":[{"name":"main","image":"nginx"}]}}}}"#;

/// A client that watches a kind, and remembers how far it is.
pub(crate) struct Client {
    path: &'static str,
    revision: u64,
}

impl Client {
    pub(crate) async fn new(api: &Api, path: &'static str) -> Self {
        let list = api.get(path).await;
        Self { path, revision: revision(&list) }
    }

    /// What it is told until the server ends the watch, or until so many events have come: types and names.
    pub(crate) async fn told(&mut self, api: &Api, most: usize) -> Vec<(String, String)> {
        self.told_for(api, most, 3600).await
    }

    /// The same by a watch that lasts so many seconds.
    async fn told_for(&mut self, api: &Api, most: usize, seconds: usize) -> Vec<(String, String)> {
        let Self { path, revision: from } = *self;
        let asked =
            format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
        let mut watch = api.watch(&asked).await;
        let mut told = Vec::new();
        while let Some(event) = watch.next(SOON).await {
            let (event_type, object) = (text(&event["type"]), &event["object"]);
            if event_type == "ERROR" {
                told.push((event_type, text(&object["reason"])));
                return told;
            }
            assert!(revision(object) >= self.revision, "{event}");
            self.revision = revision(object);
            if event_type == "BOOKMARK" {
                continue;
            }
            told.push((event_type, text(&object["metadata"]["name"])));
            if told.len() == most {
                return told;
            }
        }
        told
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The names and revisions of all objects.
async fn all(api: &Api, path: &str) -> BTreeSet<(String, String)> {
    let list = api.get(path).await;
    let items = list["items"].as_array().unwrap().clone();
    items.iter().map(|item| (text(&item["metadata"]["uid"]), text(&item["metadata"]["resourceVersion"]))).collect()
}

fn file(bed: &Testbed) -> FleetFile {
    FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1)
}

/// Two members with controllers, and a placed Deployment whose pods run.
async fn fleet(bed: &Testbed, flags: &[&str]) -> Kubefold {
    let fleet = Kubefold::start_with(&file(bed), flags).await;
    let api = fleet.api().await;
    let metadata = json!({"name": "placed", "namespace": "default"});
    api.create(
        "/api/v1/namespaces/default/secrets",
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"k": "v"}}),
    )
    .await;
    api.create("/apis/apps/v1/namespaces/default/deployments", &serde_json::from_str(DEPLOYMENT).unwrap()).await;
    eventually(SOON, async || {
        let shown = api.get("/apis/apps/v1/namespaces/default/deployments/web").await;
        (shown["status"]["readyReplicas"] == 4).then_some(()).ok_or_else(|| shown["status"].to_string())
    })
    .await;
    fleet
}

/// Waits until so many watches are open.
pub(crate) async fn watched(api: &Api, count: usize) {
    eventually(SOON, async || {
        let metrics = api.request(Method::GET, "/metrics", "").await.to_string();
        let of_kinds = metrics.lines().filter(|line| line.starts_with("kubefold_store_watchers{"));
        let open: usize = of_kinds.filter_map(|line| line.split(' ').nth(1)?.parse::<usize>().ok()).sum();
        if open >= count { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// Nothing has come for a second.
async fn quiet(api: &Api) {
    let mut before = Vec::new();
    eventually(SOON, async || {
        let mut now = Vec::new();
        for path in PATHS {
            now.push(all(api, path).await);
        }
        let is_quiet = now == before;
        before = now;
        if is_quiet { Ok(()) } else { Err("there is news".to_owned()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_restart_costs_clients_nothing_and_a_kill_a_list() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_many(east, "many", 30, 100).await;
    create_many(west, "many", 30, 100).await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let fleet = fleet(&bed, &["--state-key-file", key_file(&key)]).await;
    let api = fleet.api().await;
    let informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;
    quiet(&api).await;

    // Watches end with a bookmark, if they are asked for one.
    let mut clients = Vec::new();
    for path in PATHS {
        clients.push(Client::new(&api, path).await);
    }
    let page = api.get(&format!("{CONFIG_MAPS}?limit=10")).await;
    let mut before = Vec::new();
    for path in PATHS {
        before.push(all(&api, path).await);
    }
    let known = api.get(&format!("{CONFIG_MAPS_OF_DEFAULT}/many-00007@east")).await;
    let told = futures::future::join_all(clients.iter_mut().map(|client| client.told(&api, usize::MAX)));
    let (told, ended) = tokio::join!(told, async {
        watched(&api, PATHS.len() + 1).await;
        fleet.terminate(SOON).await
    });
    assert!(ended.success(), "{}", fleet.log());
    assert!(told.iter().all(Vec::is_empty), "{told:?}");

    // What happens meanwhile is told once, and nothing else is.
    create(east, "new", "x").await;
    update(west, "many-00001", "x").await;
    delete(east, "many-00002").await;
    fleet.restart().await;
    let api = fleet.api().await;
    create(east, "last", "x").await;
    let told: BTreeSet<(String, String)> = clients[0].told(&api, 4).await.into_iter().collect();
    let wanted = [
        ("ADDED", "new@east"),
        ("MODIFIED", "many-00001@west"),
        ("DELETED", "many-00002@east"),
        ("ADDED", "last@east"),
    ];
    assert_eq!(told, wanted.map(|(event, name)| (event.to_owned(), name.to_owned())).into(), "{}", fleet.log());
    for (at, path) in PATHS.iter().enumerate().skip(1) {
        assert_eq!(all(&api, path).await, before[at], "each object has the revision that it had: {path}");
    }
    // A page of before is followed by those of the same moment, and what a client has read it may write.
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{CONFIG_MAPS}?limit=500&continue={token}")).await;
    let pages = [&page, &rest].map(|page| {
        page["items"].as_array().unwrap().iter().map(|item| text(&item["metadata"]["uid"])).collect::<Vec<_>>()
    });
    let then: BTreeSet<String> = before[0].iter().map(|(uid, _)| uid.clone()).collect();
    assert_eq!(pages.concat().into_iter().collect::<BTreeSet<_>>(), then);
    let put = api.request(Method::PUT, &format!("{CONFIG_MAPS_OF_DEFAULT}/many-00007@east"), known.to_string()).await;
    assert_eq!(put.status, StatusCode::OK, "{put}");
    eventually(SOON, async || {
        let heard = ["ADD", "UPDATE", "DELETE"].map(|kind| informer.events_of(kind).len());
        (heard[1..] == [1, 1] && heard[0] == before[0].len() + 2).then_some(()).ok_or_else(|| format!("{heard:?}"))
    })
    .await;
    assert!(!informer.errors().contains("too old"), "{}", informer.errors());

    // After a kill nobody knows what clients have been told.
    fleet.kill9();
    fleet.restart().await;
    let api = fleet.api().await;
    assert_eq!(clients[0].told(&api, usize::MAX).await, [("ERROR".to_owned(), "Expired".to_owned())]);
    assert_eq!(all(&api, CONFIG_MAPS).await.len(), before[0].len() + 1);
}

/// The value of a metric without labels.
async fn metric(api: &Api, name: &str) -> u64 {
    let metrics = api.request(Method::GET, "/metrics", "").await.to_string();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} {metrics}"))
}

fn events(all: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    all.iter().map(|(event_type, name)| ((*event_type).to_owned(), (*name).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_go_on_at_a_standby_when_the_holder_is_killed() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_many(east, "many", 30, 100).await;
    create_many(west, "many", 30, 100).await;
    let (server, folder) = (StateServer::start(StateEngine::Postgres), tempfile::tempdir().unwrap());
    let (url, key) = (folder.path().join("url"), folder.path().join("key"));
    fs::write(&url, server.url()).unwrap();
    let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
    let first = fleet(&bed, &flags).await;
    let second = Kubefold::launch_with(&file(&bed), &flags);
    second.ready().await;
    let balancer = Relay::among(&[first.addr(), second.addr()]).await;
    let informer = Informer::start(&first.kubeconfig_through(&balancer), None, "configmaps", true);
    informer.synced(SOON).await;
    let api = first.api().await;
    quiet(&api).await;

    let mut clients = Vec::new();
    for path in PATHS {
        clients.push(Client::new(&api, path).await);
    }
    let mut before = Vec::new();
    for path in PATHS {
        before.push(all(&api, path).await);
    }
    let mut elsewhere = Client::new(&api, "/api/v1/namespaces/kube-system/configmaps").await;
    // What is told a moment before the kill: the mirror is half a second behind.
    create(east, "new", "x").await;
    create(east, "short", "x").await;
    update(west, "many-00001", "x").await;
    delete(east, "many-00002").await;
    delete(east, "short").await;
    let told: BTreeSet<(String, String)> = clients[0].told(&api, 5).await.into_iter().collect();
    let changes =
        [("ADDED", "new@east"), ("ADDED", "short@east"), ("DELETED", "short@east"), ("DELETED", "many-00002@east")];
    assert_eq!(told, events(&[&changes[..], &[("MODIFIED", "many-00001@west")]].concat()));
    let standby = second.api().await;
    eventually(SOON, async || {
        let shown = metric(&standby, "kubefold_replica_shown_revision").await;
        if shown >= clients[0].revision { Ok(()) } else { Err(format!("{shown} {}", second.log())) }
    })
    .await;
    assert!(metric(&standby, "kubefold_replica_resumable_kinds").await >= PATHS.len() as u64);
    first.kill9();
    let began = Instant::now();
    // What happens meanwhile is told once, and nothing else is.
    create(west, "meanwhile", "x").await;
    serves(&second, "kill -9, with watches that go on,", began).await;
    create(east, "last", "x").await;
    let api = second.api().await;
    let told: BTreeSet<(String, String)> = clients[0].told(&api, 2).await.into_iter().collect();
    assert_eq!(told, events(&[("ADDED", "meanwhile@west"), ("ADDED", "last@east")]), "{}", second.log());
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        assert_eq!(client.told_for(&api, 1, 1).await, [], "{} {}", PATHS[at], second.log());
        assert_eq!(all(&api, PATHS[at]).await, before[at], "each object has the revision that it had: {}", PATHS[at]);
    }
    // A client of another namespace has been told nothing of it.
    assert_eq!(elsewhere.told_for(&api, 1, 1).await, [], "{}", second.log());
    eventually(SOON, async || {
        let heard = ["ADD", "UPDATE", "DELETE"].map(|kind| informer.events_of(kind).len());
        let wanted = [before[0].len() + 4, 1, 2];
        (heard == wanted).then_some(()).ok_or_else(|| format!("{heard:?} {wanted:?} {}", informer.errors()))
    })
    .await;
    assert!(!informer.errors().contains("too old"), "{}", informer.errors());
}
