//! Reads that hold what was written around the fleet view, while the watch that would tell of it is stalled.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use testbed::{
    Answer, Api, FleetFile, Gateway, Kubefold, Member, MemberOptions, Testbed, Watch, eventually, figure,
    objects::{CONFIG_MAPS, IN_DEFAULT, config_map, create, create_many, delete, exact, objects, same, union, update},
};

const SOON: Duration = Duration::from_secs(30);

/// Asks with `Cache-Control: no-cache`.
async fn fresh(api: &Api, path: &str) -> Answer {
    let request =
        Request::get(path).header(header::ACCEPT, "application/json").header(header::CACHE_CONTROL, "no-cache");
    api.send(request.body(Bytes::new()).unwrap()).await.unwrap()
}

/// Visible names and data of a list of the default namespace, without what Kubernetes puts there.
fn names(list: &Value) -> BTreeMap<String, String> {
    let item = |item: &Value| {
        let name = item["metadata"]["name"].as_str().unwrap().to_owned();
        (name, item["data"]["is"].as_str().unwrap_or_default().to_owned())
    };
    let all = list["items"].as_array().unwrap().iter().map(item);
    all.filter(|(name, _)| name != "kube-root-ca.crt").collect()
}

fn expected(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
}

/// A fleet of two, of which `west` is behind a gateway.
async fn fleet(flags: &[&str]) -> (Testbed, Gateway, Kubefold) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let gateway = Gateway::before(&bed["west"]).await;
    for name in ["kept", "changed", "gone"] {
        create(&bed["west"], name, "first").await;
    }
    let file = FleetFile::default().member(&bed["east"], 1).entry("west", &gateway.kubeconfig(), 1, "");
    let fleet = Kubefold::start_with(&file, flags).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &[&bed["east"], &bed["west"]]).await).await;
    (bed, gateway, fleet)
}

/// Straight at the member.
async fn write_around(west: &Member) {
    create(west, "new", "first").await;
    update(west, "changed", "second").await;
    delete(west, "gone").await;
}

const BEFORE: [(&str, &str); 3] = [("changed@west", "first"), ("gone@west", "first"), ("kept@west", "first")];
const AFTER: [(&str, &str); 3] = [("changed@west", "second"), ("kept@west", "first"), ("new@west", "first")];

async fn watch_now(api: &Api) -> Watch {
    let list = api.get(CONFIG_MAPS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await
}

/// Every event up to the one of this name, as `TYPE name`.
async fn events_until(watch: &mut Watch, last: &str) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let event = watch.next(SOON).await.expect("the watch is open");
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        told.push(format!("{} {name}", event["type"].as_str().unwrap()));
        if name == last {
            return told;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_reads_are_exact_while_a_watch_is_stalled() {
    let (bed, gateway, fleet) = fleet(&[]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let api = fleet.api().await;
    let mut watch = watch_now(&api).await;

    gateway.stall_watches();
    write_around(west).await;
    for stale in ["", "?resourceVersion=0", "?limit=10"] {
        assert_eq!(names(&api.get(&format!("{IN_DEFAULT}{stale}")).await), expected(&BEFORE), "{stale}");
    }
    // A get is live in any case; of one that is gone it removes nothing.
    assert_eq!(api.get(&format!("{IN_DEFAULT}/changed@west")).await["data"]["is"], "second");
    let gone = api.request(Method::GET, &format!("{IN_DEFAULT}/gone@west"), "").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "{gone}");
    assert!(names(&api.get(IN_DEFAULT).await).contains_key("gone@west"));
    let from_store = format!("{IN_DEFAULT}/kept@west?resourceVersion=0");
    update(west, "kept", "second").await;
    assert_eq!(api.get(&from_store).await["data"]["is"], "first");
    assert_eq!(fresh(&api, &from_store).await.ok()["data"]["is"], "second");
    update(west, "kept", "first").await;

    let answer = fresh(&api, IN_DEFAULT).await;
    assert_eq!(answer.warnings(), [""; 0]);
    assert_eq!(names(&answer.ok()), expected(&AFTER));
    // What was proven is in the store.
    assert_eq!(same(&objects(&api.get(CONFIG_MAPS).await), &union(&[east, west]).await), Ok(()));

    // Reborn under its name, born and gone, and gone for good.
    delete(west, "kept").await;
    create(west, "kept", "reborn").await;
    create(west, "brief", "first").await;
    assert!(names(&fresh(&api, CONFIG_MAPS).await.ok()).contains_key("brief@west"));
    delete(west, "brief").await;
    delete(west, "new").await;
    let now = expected(&[("changed@west", "second"), ("kept@west", "reborn")]);
    assert_eq!(names(&fresh(&api, IN_DEFAULT).await.ok()), now);

    // Of one name, and by labels that came and went.
    let label = |value: &str| json!({"metadata": {"labels": {"tier": value}}}).to_string();
    let patch = async |value: &str| {
        let path = format!("{IN_DEFAULT}/changed");
        let request = Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json");
        west.api().await.send(request.body(label(value).into()).unwrap()).await.unwrap().ok();
    };
    patch("web").await;
    let by_label = format!("{IN_DEFAULT}?labelSelector=tier%3Dweb");
    assert_eq!(names(&fresh(&api, &by_label).await.ok()), expected(&[("changed@west", "second")]));
    patch("db").await;
    assert_eq!(names(&fresh(&api, &by_label).await.ok()), expected(&[]));
    update(west, "kept", "third").await;
    let by_name = format!("{IN_DEFAULT}?fieldSelector=metadata.name%3Dkept@west");
    assert_eq!(names(&fresh(&api, &by_name).await.ok()), expected(&[("kept@west", "third")]));

    // What the watch tells of the past now is no news: nothing comes back to life on the way.
    gateway.release_watches();
    create(west, "end", "first").await;
    let told = events_until(&mut watch, "end@west").await;
    let told_of = |name: &str| told.iter().filter(|event| event.ends_with(&format!(" {name}"))).cloned().collect();
    let want: Vec<(&str, Vec<&str>)> = vec![
        ("gone@west", vec!["DELETED gone@west"]),
        ("brief@west", vec!["ADDED brief@west", "DELETED brief@west"]),
        ("new@west", vec!["ADDED new@west", "DELETED new@west"]),
    ];
    for (name, events) in want {
        let seen: Vec<String> = told_of(name);
        assert_eq!(seen, events, "{told:?}");
    }
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_freshness_is_every_read_that_names_no_revision() {
    let (bed, gateway, fleet) = fleet(&["--freshness=strict"]).await;
    let west = &bed["west"];
    let api = fleet.api().await;
    gateway.stall_watches();
    write_around(west).await;
    assert_eq!(names(&api.get(&format!("{IN_DEFAULT}?resourceVersion=0")).await), expected(&BEFORE));
    assert_eq!(names(&api.get(IN_DEFAULT).await), expected(&AFTER));
    assert_eq!(names(&api.get(&format!("{IN_DEFAULT}?resourceVersion=0")).await), expected(&AFTER));
    create(west, "newer", "first").await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = api.watch(&format!("{IN_DEFAULT}?{query}")).await;
    let told = events_until(&mut watch, "newer@west").await;
    assert!(told.contains(&"ADDED newer@west".to_owned()), "{told:?}");
    let kubectl = fleet.kubectl(&["get", "configmaps", "-o", "name"]).await;
    assert!(kubectl.ok().contains("configmap/newer@west"), "{kubectl}");

    // More than are fetched one by one.
    let many: Vec<String> = (0..100).map(|number| format!("many-{number:03}")).collect();
    for name in &many {
        create(west, name, "first").await;
    }
    let list = names(&api.get(IN_DEFAULT).await);
    assert!(many.iter().all(|name| list.contains_key(&format!("{name}@west"))), "{list:?}");
    for name in &many {
        delete(west, name).await;
    }
    let list = names(&api.get(CONFIG_MAPS).await);
    assert!(!list.keys().any(|name| name.starts_with("many-")), "{list:?}");

    // A member that is down is shown as it was last, with one warning.
    west.kill();
    let warnings = eventually(SOON, async || {
        let answer = api.try_request(Method::GET, IN_DEFAULT, "").await?;
        let warnings = answer.warnings();
        (warnings.iter().any(|warning| warning.contains("west"))).then_some(warnings).ok_or_else(|| answer.to_string())
    })
    .await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let strict = api.request(Method::GET, &format!("/views/strict{IN_DEFAULT}"), "").await;
    assert_eq!(strict.status, StatusCode::SERVICE_UNAVAILABLE, "{strict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_a_member_view_is_in_the_next_read_of_the_fleet() {
    let (_bed, gateway, fleet) = fleet(&[]).await;
    let api = fleet.api().await;
    let own = format!("/clusters/west{IN_DEFAULT}");
    gateway.stall_watches();

    api.create(&own, &config_map("new", "first")).await;
    assert!(names(&api.get(IN_DEFAULT).await).contains_key("new@west"));
    api.request(Method::PUT, &format!("{own}/changed"), config_map("changed", "second").to_string()).await.ok();
    // What is at hand is not asked for, and the mark stays for whoever wants more.
    assert_eq!(names(&api.get(&format!("{IN_DEFAULT}?resourceVersion=0")).await)["changed@west"], "first");
    api.request(Method::DELETE, &format!("{own}/gone"), "").await.ok();
    assert!(!names(&api.get(CONFIG_MAPS).await).contains_key("gone@west"));
    assert_eq!(names(&api.get(IN_DEFAULT).await), expected(&AFTER));
    api.request(Method::DELETE, &own, "").await.ok();
    assert_eq!(names(&api.get(IN_DEFAULT).await), expected(&[]));

    // A quiet fleet is asked for nothing.
    let lists = || gateway.asked().iter().filter(|asked| asked.contains("PartialObjectMetadataList")).count();
    let before = lists();
    api.get(IN_DEFAULT).await;
    api.get("/api/v1/namespaces/kube-system/configmaps").await;
    assert_eq!(lists(), before);

    // A subresource is its object's.
    let namespaces = "/api/v1/namespaces";
    api.create(&format!("/clusters/west{namespaces}"), &json!({"metadata": {"name": "shop"}})).await;
    assert_eq!(api.get(&format!("{namespaces}/shop")).await["metadata"]["name"], "shop");
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    api.create("/clusters/west/api/v1/namespaces/shop/services", &service).await;
    let services = "/api/v1/namespaces/shop/services";
    assert_eq!(api.get(services).await["items"][0]["metadata"]["name"], "web@west");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}).to_string();
    let path = format!("/clusters/west{services}/web/status");
    let request = Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json");
    api.send(request.body(status.into()).unwrap()).await.unwrap().ok();
    let shown = api.get(services).await;
    assert_eq!(shown["items"][0]["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1", "{shown}");
    figure(&format!("{} metadata lists in all", lists()));
}

/// Objects of each member beside those of the namespace that is read, and of that.
const ELSEWHERE: usize = 1000;
const IN_SHOP: usize = 50;

/// The median of many lists, in microseconds.
async fn median(api: &Api, path: &str, no_cache: bool) -> u128 {
    let mut times = Vec::new();
    for _ in 0..100 {
        let since = Instant::now();
        let answer = if no_cache { fresh(api, path).await } else { api.request(Method::GET, path, "").await };
        times.push(since.elapsed().as_micros());
        assert_eq!(answer.status, StatusCode::OK, "{answer}");
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// What a proof costs where it is about one namespace; `KUBEFOLD_BIN` may name a faster build. It proves no less.
#[tokio::test(flavor = "multi_thread")]
async fn a_proof_of_one_namespace_is_about_that_namespace() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let shop = "/api/v1/namespaces/shop/configmaps";
    for member in bed.members() {
        create_many(member, "elsewhere", ELSEWHERE, 500).await;
        let api = member.api().await;
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        for number in 0..IN_SHOP {
            api.create(shop, &config_map(&format!("in-{number:02}"), &"x".repeat(500))).await;
        }
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    eventually(SOON, async || {
        let list = api.try_request(Method::GET, shop, "").await?.json();
        let count = list["items"].as_array().map_or(0, Vec::len);
        (count >= 3 * IN_SHOP).then_some(()).ok_or_else(|| format!("{count}"))
    })
    .await;
    for path in [shop, CONFIG_MAPS] {
        let (plain, proven) = (median(&api, path, false).await, median(&api, path, true).await);
        figure(&format!("{path}: {plain} us, proven {proven} us"));
    }
    let before = names(&api.get(shop).await);
    assert_eq!(names(&fresh(&api, shop).await.ok()), before);
}
