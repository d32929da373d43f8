//! A standby answers lists and watches from its own memory, as the holder would, and goes on when the holder is gone.

use std::{fs, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Answer, Api, FleetFile, Kubefold, Member, MemberOptions, StateEngine, StateServer, Testbed, Watch, eventually,
    objects::{CONFIG_MAPS, create, create_many, delete, update},
};

use crate::standby::{key_file, serves};

const SOON: Duration = Duration::from_secs(60);
/// After a right was withdrawn: the time that a member's yes holds at most, and room.
const WITHDRAWN: Duration = Duration::from_secs(90);
const DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const NAMESPACES: &str = "/api/v1/namespaces";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const METADATA_OF_ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Several kubefolds with one state.
struct Replicas {
    all: Vec<Kubefold>,
    _state: (StateServer, tempfile::TempDir),
}

impl Replicas {
    /// The first one has the state.
    async fn start(file: &FleetFile, count: usize) -> Self {
        let (server, folder) = (StateServer::start(StateEngine::Postgres), tempfile::tempdir().unwrap());
        let (url, key) = (folder.path().join("url"), folder.path().join("key"));
        fs::write(&url, server.url()).unwrap();
        let flags = ["--state-url-file", url.to_str().unwrap(), "--state-key-file", key_file(&key)];
        let mut all = vec![Kubefold::start_with(file, &flags).await];
        for _ in 1..count {
            let standby = Kubefold::launch_with(file, &flags);
            standby.ready().await;
            all.push(standby);
        }
        Self { all, _state: (server, folder) }
    }
}

async fn figure(fleet: &Kubefold, name: &str) -> u64 {
    let metrics = fleet.request(Method::GET, "/metrics", "").await.to_string();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} {metrics}"))
}

/// How many lists and watches a standby has answered itself.
async fn cached_answers(standby: &Kubefold) -> u64 {
    figure(standby, "kubefold_replica_cached_answers_total").await
}

/// Has a standby fill the watch caches of these kinds.
async fn fill(standby: &Kubefold, paths: &[&str]) {
    let before = figure(standby, "kubefold_replica_cached_kinds").await;
    for path in paths {
        standby.api().await.get(path).await;
    }
    eventually(SOON, async || {
        let kinds = figure(standby, "kubefold_replica_cached_kinds").await;
        if kinds == before + paths.len() as u64 { Ok(()) } else { Err(format!("{kinds} {}", standby.log())) }
    })
    .await;
}

async fn ask(api: &Api, path: &str, accept: &str, gzip: bool) -> Answer {
    let request = Request::get(path).header(header::ACCEPT, accept);
    let request = if gzip { request.header(header::ACCEPT_ENCODING, "gzip") } else { request };
    api.send(request.body(Bytes::new()).unwrap()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The headers that two answers to one request have in common, in any order.
fn heads(headers: &HeaderMap) -> Vec<(String, String)> {
    let is_its_own = |name: &str| ["audit-id", "date"].contains(&name);
    let mut heads: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| !is_its_own(name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    heads.sort();
    heads
}

/// Asks both the same, and says whether the standby answered itself.
async fn alike(holder: &Kubefold, standby: &Kubefold, path: &str, accept: &str, gzip: bool) -> bool {
    let before = cached_answers(standby).await;
    let (of_holder, of_standby) =
        (ask(&holder.api().await, path, accept, gzip).await, ask(&standby.api().await, path, accept, gzip).await);
    assert_eq!(of_holder.status, of_standby.status, "{path} {of_holder} {of_standby}");
    assert_eq!(heads(&of_holder.headers), heads(&of_standby.headers), "{path} {accept}");
    // Rows have ages.
    if accept != TABLE {
        assert!(of_holder.body == of_standby.body, "{path} {accept}\n{of_holder}\n{of_standby}");
    }
    cached_answers(standby).await > before
}

fn revision(of: &Value) -> &str {
    of["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_answers_lists_and_watches_as_the_holder_does() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let (east, west, north) = (&bed["east"], &bed["west"], &bed["north"]);
    for member in [east, west] {
        create_many(member, "many", 120, 2000).await;
    }
    let file = FleetFile::default().member(east, 1).member(west, 1);
    let replicas = Replicas::start(&file, 2).await;
    let [holder, standby] = &replicas.all[..] else { unreachable!() };
    for name in ["a", "b"] {
        let labels = json!({"of": name});
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"k": name}});
        holder.api().await.create("/api/v1/namespaces/default/secrets", &secret).await;
    }
    fill(standby, &[CONFIG_MAPS, SECRETS, NAMESPACES]).await;
    let since = revision(&holder.api().await.get(CONFIG_MAPS).await).to_owned();

    lists(holder, standby, &since).await;
    events(holder, standby, [east, west], &since).await;
    rights(holder, standby, [east, west]).await;
    a_member_joins(holder, standby, [east, west, north]).await;
    a_member_is_gone(holder, standby, west).await;
}

async fn lists(holder: &Kubefold, standby: &Kubefold, since: &str) {
    for (path, accept, gzip, is_cached) in [
        (CONFIG_MAPS.to_owned(), JSON, false, true),
        (CONFIG_MAPS.to_owned(), JSON, true, true),
        (CONFIG_MAPS.to_owned(), PROTOBUF, false, true),
        (CONFIG_MAPS.to_owned(), PROTOBUF, true, true),
        (CONFIG_MAPS.to_owned(), "application/yaml", false, true),
        (CONFIG_MAPS.to_owned(), METADATA, false, true),
        (format!("{CONFIG_MAPS}?pretty=true"), JSON, false, true),
        (format!("{CONFIG_MAPS}?resourceVersion=0&limit=5"), JSON, false, true),
        (format!("{CONFIG_MAPS}?resourceVersion={since}"), JSON, false, true),
        (format!("{CONFIG_MAPS}?resourceVersion={since}&resourceVersionMatch=NotOlderThan"), JSON, false, true),
        (DEFAULT.to_owned(), JSON, false, true),
        ("/api/v1/namespaces/none/configmaps".to_owned(), JSON, false, true),
        (format!("{DEFAULT}?fieldSelector=metadata.name%3Dmany-00007%40east"), JSON, false, true),
        (format!("{CONFIG_MAPS}?labelSelector=kubefold.io%2Fcluster%3Deast"), JSON, false, true),
        (format!("{SECRETS}?labelSelector=of%21%3Da"), JSON, false, true),
        (format!("{SECRETS}?fieldSelector=type%3DOpaque"), PROTOBUF, false, true),
        (NAMESPACES.to_owned(), JSON, false, true),
        // What needs the holder: rows, pages, the past, single objects, other views, a shorthand, and what is refused.
        (CONFIG_MAPS.to_owned(), TABLE, false, false),
        (format!("{CONFIG_MAPS}?limit=5"), JSON, false, false),
        (format!("{CONFIG_MAPS}?resourceVersion={since}&resourceVersionMatch=Exact"), JSON, false, false),
        (format!("{DEFAULT}/many-00007@east"), JSON, false, false),
        (format!("/views/lenient{CONFIG_MAPS}"), JSON, false, false),
        (format!("/clusters/east{CONFIG_MAPS}"), JSON, false, false),
        (format!("{DEFAULT}?fieldSelector=metadata.name%3Dmany-00007"), JSON, false, true),
        (format!("{CONFIG_MAPS}?labelSelector=a%3D%3D%3Db"), JSON, false, false),
        (format!("{CONFIG_MAPS}?resourceVersion=9007199254740991"), JSON, false, false),
        (format!("{CONFIG_MAPS}?fieldSelector=%3Dx"), JSON, false, false),
        (CONFIG_MAPS.to_owned(), "text/html", false, false),
        (format!("{CONFIG_MAPS}?names=many-00001"), JSON, false, false),
    ] {
        let cached = alike(holder, standby, &path, accept, gzip).await;
        assert_eq!(cached, is_cached, "{path} {accept}");
    }
}

/// Watches of what has happened since a revision, and of objects and events.
async fn events(holder: &Kubefold, standby: &Kubefold, [east, west]: [&Member; 2], since: &str) {
    create(east, "new", "x").await;
    update(west, "many-00001", "x").await;
    delete(east, "many-00002").await;
    // A write through the standby, which its next list has.
    standby.kubectl(&["label", "secret", "a", "of=c", "--overwrite"]).await.ok();
    assert!(standby.api().await.get(SECRETS).await.to_string().contains("\"of\":\"c\""));
    holder.api().await.get(CONFIG_MAPS).await;
    let of_now = "watch=true&timeoutSeconds=1&allowWatchBookmarks=true";
    let from = format!("{of_now}&resourceVersion={since}");
    let all = format!("{of_now}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    for (path, accept, is_cached) in [
        (format!("{CONFIG_MAPS}?{from}"), JSON, true),
        (format!("{CONFIG_MAPS}?{from}"), PROTOBUF, true),
        (format!("{CONFIG_MAPS}?{from}"), METADATA_OF_ONE, true),
        (format!("{DEFAULT}?{from}&fieldSelector=metadata.name%3Dnew%40east"), JSON, true),
        (format!("{CONFIG_MAPS}?{from}&labelSelector=kubefold.io%2Fcluster%3Dwest"), JSON, true),
        (format!("{SECRETS}?{from}&labelSelector=of%3Da"), JSON, true),
        (format!("{SECRETS}?{from}&labelSelector=of%3Dc"), PROTOBUF, true),
        (format!("{SECRETS}?{all}"), JSON, true),
        (format!("{SECRETS}?{all}"), PROTOBUF, true),
        (format!("{SECRETS}?{of_now}&resourceVersion=0"), JSON, true),
        (format!("{CONFIG_MAPS}?{from}"), TABLE, false),
        (format!("{CONFIG_MAPS}?{of_now}&resourceVersion=1"), JSON, false),
        (format!("{CONFIG_MAPS}?{of_now}&resourceVersion=9007199254740991"), JSON, false),
    ] {
        let cached = alike(holder, standby, &path, accept, false).await;
        assert_eq!(cached, is_cached, "{path} {accept}");
    }
    // Events as they happen.
    let mut watch = standby.api().await.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=0")).await;
    create(west, "later", "x").await;
    assert_eq!(told(&mut watch, "later@west").await["type"], "ADDED");
    assert_eq!(figure(standby, "kubefold_replica_cached_watchers").await, 1);
}

/// The first event of an object that has not come before the watch began.
async fn told(watch: &mut Watch, name: &str) -> Value {
    loop {
        let event = watch.next(SOON).await.expect("the watch goes on");
        if event["object"]["metadata"]["name"] == name {
            return event;
        }
    }
}

/// Lets a user read config maps everywhere in a member.
async fn allow(member: &Member, user: &str) {
    let (role, of) = (format!("reader-{user}"), format!("--user={user}"));
    member.kubectl(&["create", "clusterrole", &role, "--verb=get,list,watch", "--resource=configmaps"]).await.ok();
    member.kubectl(&["create", "clusterrolebinding", &role, "--clusterrole", &role, &of]).await.ok();
}

async fn api_of(fleet: &Kubefold, user: &str) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_for(user, None), None).await
}

/// What a user may not see is in no answer of a standby; what he may see in every member is answered there.
async fn rights(holder: &Kubefold, standby: &Kubefold, [east, west]: [&Member; 2]) {
    for member in [east, west] {
        allow(member, "jane").await;
    }
    allow(east, "joe").await;
    let (jane, joe) = (api_of(standby, "jane").await, api_of(standby, "joe").await);
    let read = async |api: &Api, count: usize| {
        eventually(SOON, async || {
            let list = api.request(Method::GET, CONFIG_MAPS, "").await;
            let items = if list.status.is_success() { list.json()["items"].as_array().unwrap().len() } else { 0 };
            if items == count { Ok(list) } else { Err(list) }
        })
        .await
    };
    let all = holder.api().await.get(CONFIG_MAPS).await["items"].as_array().unwrap().clone();
    let of_east = all.iter().filter(|item| item["metadata"]["annotations"]["kubefold.io/cluster"] == "east").count();
    read(&jane, all.len()).await;
    let before = cached_answers(standby).await;
    let list = read(&jane, all.len()).await;
    assert_eq!(cached_answers(standby).await, before + 1);
    assert_eq!(list.body, api_of(holder, "jane").await.request(Method::GET, CONFIG_MAPS, "").await.body);
    let partly = read(&joe, of_east).await;
    assert!(partly.warnings().iter().any(|warning| warning.contains("member west does not allow")), "{partly}");
    for refused in [
        api_of(standby, "eve").await.request(Method::GET, CONFIG_MAPS, "").await,
        jane.request(Method::GET, SECRETS, "").await,
        jane.request(Method::GET, &format!("{SECRETS}?watch=true"), "").await,
    ] {
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    }
    let impersonating = Request::get(CONFIG_MAPS).header("impersonate-user", "joe").body(Bytes::new()).unwrap();
    let as_joe = standby.api().await.send(impersonating).await.unwrap();
    assert_eq!(as_joe.json()["items"].as_array().unwrap().len(), of_east, "{as_joe}");
    assert_eq!(cached_answers(standby).await, before + 1);

    let mut watch = jane.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", revision(&list.json()))).await;
    create(east, "seen", "x").await;
    assert_eq!(told(&mut watch, "seen@east").await["type"], "ADDED");
    assert_eq!(cached_answers(standby).await, before + 2);
    west.kubectl(&["delete", "clusterrolebinding", "reader-jane"]).await.ok();
    let ended = watch.next(WITHDRAWN).await.unwrap();
    assert_eq!((&ended["type"], &ended["object"]["code"]), (&json!("ERROR"), &json!(403)), "{ended}");
    create(west, "unseen", "x").await;
    assert_eq!(watch.next(SOON).await, None, "nothing follows");
}

/// Somebody who may see two members' objects is told of no third's.
async fn a_member_joins(holder: &Kubefold, standby: &Kubefold, [east, west, north]: [&Member; 3]) {
    for member in [east, west] {
        allow(member, "jack").await;
    }
    let jack = api_of(standby, "jack").await;
    eventually(SOON, async || {
        let list = jack.request(Method::GET, CONFIG_MAPS, "").await;
        if list.status.is_success() && list.warnings().is_empty() { Ok(()) } else { Err(list) }
    })
    .await;
    let before = cached_answers(standby).await;
    let list = jack.get(CONFIG_MAPS).await;
    let mut watch = jack.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", revision(&list))).await;
    assert_eq!(cached_answers(standby).await, before + 2);
    create(north, "of-north", "x").await;
    let file = FleetFile::default().member(east, 1).member(west, 1).member(north, 1);
    [standby, holder].iter().for_each(|replica| replica.configure(&file));
    eventually(SOON, async || {
        let all = standby.api().await.get(CONFIG_MAPS).await.to_string();
        if all.contains("of-north@north") { Ok(()) } else { Err(standby.log()) }
    })
    .await;
    create(east, "after", "x").await;
    // His watch goes on, or has ended and another one goes on where it did.
    let mut last = revision(&list).to_owned();
    loop {
        let Some(event) = watch.next(SOON).await else {
            watch = jack.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={last}")).await;
            continue;
        };
        assert!(event["type"] == "ADDED" && !event.to_string().contains("of-north"), "{event}");
        revision(&event["object"]).clone_into(&mut last);
        if event["object"]["metadata"]["name"] == "after@east" {
            break;
        }
    }
    // The administrator's caches have the third member's objects.
    eventually(
        SOON,
        async || {
            if alike(holder, standby, CONFIG_MAPS, JSON, false).await { Ok(()) } else { Err(standby.log()) }
        },
    )
    .await;
}

/// Warnings, and what bookmarks say of the members, are the holder's.
async fn a_member_is_gone(holder: &Kubefold, standby: &Kubefold, west: &Member) {
    west.kill();
    eventually(SOON, async || {
        let list = holder.request(Method::GET, CONFIG_MAPS, "").await;
        if list.warnings().iter().any(|warning| warning.contains("member west is down")) { Ok(()) } else { Err(list) }
    })
    .await;
    let before = cached_answers(standby).await;
    let list = standby.request(Method::GET, CONFIG_MAPS, "").await;
    assert!(list.warnings().iter().any(|warning| warning.contains("member west is down")), "{:?}", list.warnings());
    assert_eq!(cached_answers(standby).await, before + 1);
    let path = format!(
        "{SECRETS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    eventually(SOON, async || {
        let mut watch = standby.api().await.watch(&path).await;
        let bookmark = loop {
            let event = watch.next(SOON).await.unwrap();
            if event["type"] == "BOOKMARK" {
                break event;
            }
        };
        let stale = &bookmark["object"]["metadata"]["annotations"]["kubefold.io/stale"];
        if stale == "west" { Ok(()) } else { Err(bookmark) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_at_other_replicas_stay_open_when_the_holder_goes() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    let east = &bed["east"];
    let replicas = Replicas::start(&FleetFile::default().member(east, 1), 3).await;
    let mut holder = 0;
    for (round, is_killed) in [true, false].into_iter().enumerate() {
        let others: Vec<usize> = (0..3).filter(|at| *at != holder).collect();
        let mut watches = Vec::new();
        for at in &others {
            let standby = &replicas.all[*at];
            standby.ready().await;
            eventually(SOON, async || {
                let before = cached_answers(standby).await;
                standby.api().await.get(CONFIG_MAPS).await;
                if cached_answers(standby).await > before { Ok(()) } else { Err(standby.log()) }
            })
            .await;
            watches.push(standby.api().await.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=0")).await);
        }
        let names = ["before", "meanwhile", "last"].map(|when| format!("{when}-{round}"));
        create(east, &names[0], "x").await;
        for (watch, at) in watches.iter_mut().zip(&others) {
            let event = told(watch, &format!("{}@east", names[0])).await;
            // Of what it shows the holder tells those who may take over a moment later.
            let (standby, wanted) = (&replicas.all[*at], revision(&event["object"]).parse::<u64>().unwrap());
            eventually(SOON, async || {
                let shown = figure(standby, "kubefold_replica_shown_revision").await;
                if shown >= wanted { Ok(()) } else { Err(shown.to_string()) }
            })
            .await;
        }
        let began = Instant::now();
        if is_killed {
            replicas.all[holder].kill9();
        } else {
            assert!(replicas.all[holder].terminate(SOON).await.success());
        }
        create(east, &names[1], "x").await;
        let next = eventually(SOON, async || {
            for at in &others {
                let metrics = replicas.all[*at].api().await.try_request(Method::GET, "/metrics", "").await;
                if metrics.is_ok_and(|metrics| metrics.to_string().contains("kubefold_state_held 1")) {
                    return Ok(*at);
                }
            }
            Err("no replica has the state")
        })
        .await;
        serves(&replicas.all[next], "the holder's end, with watches of another replica,", began).await;
        create(east, &names[2], "x").await;
        // The other one's watch has not ended, and is told of each change once.
        let at = others.iter().position(|at| *at != next).unwrap();
        for name in &names[1..] {
            let event = watches[at].next(SOON).await;
            let event =
                event.unwrap_or_else(|| panic!("{} {}", replicas.all[others[at]].log(), replicas.all[next].log()));
            let what = (event["type"].clone(), event["object"]["metadata"]["name"].clone());
            assert_eq!(what, (json!("ADDED"), json!(format!("{name}@east"))), "{event}");
        }
        replicas.all[holder].relaunch();
        holder = next;
    }
}
