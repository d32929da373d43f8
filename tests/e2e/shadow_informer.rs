//! client-go's informer over ShadowResources whose items, members and server have trouble.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use testbed::{Api, FleetFile, Informer, Kubefold, MemberOptions, Testbed, Watch, eventually, figure};

use crate::informer::replay;

const SOON: Duration = Duration::from_secs(120);
const ALL: &str = "/apis/kubefold.io/v1alpha1/namespaces/default/shadowresources";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Names of ShadowResources.
const NAMES: u64 = 12;

fn whole(name: &str, data: &str) -> Value {
    let map = |of: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-{of}")}, "data": {"of": data}});
    json!({"apiVersion": "kubefold.io/v1alpha1", "kind": "ShadowResource", "metadata": {"name": name},
        "spec": {"flowList": [map("a"), map("b")]}})
}

/// Creates, changes and deletes ShadowResources, and changes their items, until told to end, whatever comes of that.
async fn churn(api: &Api, seed: u64, until: &CancellationToken) {
    let (mut dice, merge) = (seed, "application/merge-patch+json");
    while !until.is_cancelled() {
        // Knuth's linear congruential generator: the same churn every time.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = format!("app-{:02}", (dice >> 33) % NAMES);
        let path = format!("{ALL}/{name}");
        let change = |path: String, patch: Value, form: &str| {
            let request = http::Request::patch(path).header("content-type", form);
            api.send(request.body(patch.to_string().into()).unwrap())
        };
        let asked = match dice >> 60 {
            0..5 => api.try_request(Method::POST, ALL, whole(&name, &dice.to_string()).to_string()).await,
            5 => api.try_request(Method::DELETE, &path, "").await,
            6..9 => {
                let patch = json!([{"op": "replace", "path": "/spec/flowList/1/data/of", "value": dice.to_string()}]);
                change(path, patch, "application/json-patch+json").await
            }
            _ => change(format!("{MAPS}/{name}-a"), json!({"data": {"of": dice.to_string()}}), merge).await,
        };
        if asked.is_err() {
            // kubefold is down, and will be for a while.
            let again = async || api.try_request(Method::GET, "/readyz", "").await.map(drop);
            let _ended = until.run_until_cancelled(eventually(SOON, again)).await;
        }
    }
}

/// What a fresh list has, by key.
async fn listed(api: &Api) -> Result<BTreeMap<String, Value>, String> {
    let answer = api.try_request(Method::GET, ALL, "").await?;
    let list = answer.json();
    let items = list["items"].as_array().ok_or_else(|| answer.to_string())?;
    Ok(items.iter().map(|item| (key(item), item.clone())).collect())
}

fn key(object: &Value) -> String {
    format!("default/{}", object["metadata"]["name"].as_str().unwrap())
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// UID and revision of each.
fn versions(objects: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let version = |object: &Value| json!([object["metadata"]["uid"], object["metadata"]["resourceVersion"]]);
    objects.iter().map(|(key, object)| (key.clone(), version(object))).collect()
}

/// Waits until an informer holds what a fresh list has.
async fn settled(informer: &mut Informer, api: &Api) {
    eventually(SOON, async || {
        let listed = versions(&listed(api).await?);
        let dump = informer.dump().await;
        let held = dump.as_object().unwrap().iter();
        let held = held.map(|(key, item)| (key.clone(), json!([item["uid"], item["rv"]])));
        let held: BTreeMap<String, Value> = held.collect();
        (held == listed).then_some(()).ok_or_else(|| format!("held {held:?}\nlisted {listed:?}"))
    })
    .await;
    replay(informer);
}

/// Follows a watch until what it has told, each revision once, is what a fresh list has, bodies and all.
async fn followed(watch: &mut Watch, held: &mut BTreeMap<String, Value>, api: &Api) {
    let mut last = held.values().map(revision).max().unwrap_or_default();
    let following = async {
        loop {
            let quiet = timeout(Duration::from_secs(1), watch.next(SOON)).await;
            let Ok(event) = quiet else {
                if listed(api).await.as_ref() == Ok(held) {
                    return;
                }
                continue;
            };
            let event = event.expect("the watch goes on");
            let (kind, object) = (event["type"].as_str().unwrap(), event["object"].clone());
            assert!(revision(&object) > last, "told twice, or out of order: {event}");
            last = revision(&object);
            let before = match kind {
                "DELETED" => held.remove(&key(&object)),
                _ => held.insert(key(&object), object),
            };
            assert_eq!(before.is_some(), kind != "ADDED", "{event}");
        }
    };
    if timeout(SOON, following).await.is_err() {
        panic!("the watch told\n{held:?}\nand a list has\n{:?}", listed(api).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informer_holds_the_shadow_resources_there_are_through_churn_a_stopped_member_and_a_restart() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "shadowresources.kubefold.io", true);
    informer.synced(SOON).await;
    let begin = api.get(ALL).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{ALL}?watch=1&resourceVersion={begin}")).await;
    let told = |kind: &str| informer.events_of(kind).len();
    let more = async |kind: &str, more: usize| {
        let before = told(kind);
        let moved = async || (told(kind) >= before + more).then_some(()).ok_or("too little churn yet");
        eventually(SOON, moved).await;
    };
    let until = CancellationToken::new();
    let trouble = async {
        more("UPDATE", 40).await;
        bed["west"].pause();
        timeout(Duration::from_secs(2), more("UPDATE", 40)).await.ok();
        bed["west"].resume();
        more("UPDATE", 40).await;
        until.cancel();
    };
    tokio::join!(churn(&api, 1, &until), churn(&api, 2, &until), trouble);
    followed(&mut watch, &mut BTreeMap::new(), &api).await;

    // kubefold is killed in the midst of it.
    let until = CancellationToken::new();
    let trouble = async {
        more("UPDATE", 20).await;
        fleet.kill9();
        fleet.restart().await;
        more("UPDATE", 20).await;
        until.cancel();
    };
    tokio::join!(churn(&api, 3, &until), churn(&api, 4, &until), trouble);
    figure(&format!("{} added, {} updated, {} deleted", told("ADD"), told("UPDATE"), told("DELETE")));
    settled(&mut informer, &api).await;
    assert!(!listed(&api).await.unwrap().is_empty());
}
