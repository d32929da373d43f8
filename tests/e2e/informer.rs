//! client-go's informers over a fleet in trouble: what they hold in the end is what the members hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use testbed::{
    FleetFile, Informer, Kubefold, Member, MemberOptions, Relay, Testbed, eventually, figure,
    objects::{Cluster, IN_DEFAULT, config_map, create_many, exact, held, same, union},
};

const SOON: Duration = Duration::from_secs(30);
/// Config maps of each member when the churn begins.
pub(crate) const EACH: usize = 500;

/// Creates, changes and deletes config maps at one member until told to end, whatever the member makes of that. Gives the
/// visible keys that it may have deleted.
pub(crate) async fn churn(member: &impl Cluster, until: &CancellationToken) -> BTreeSet<String> {
    churn_counted(member, until, &AtomicUsize::new(0)).await
}

/// The same, which counts what it asks for.
pub(crate) async fn churn_counted(
    member: &impl Cluster,
    until: &CancellationToken,
    asked_for: &AtomicUsize,
) -> BTreeSet<String> {
    let (api, mut deleted, mut dice) = (member.api().await, BTreeSet::new(), 1_u64);
    while !until.is_cancelled() {
        // Knuth's linear congruential generator: the same churn every time.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (what, number) = (dice >> 60, (dice >> 33) as usize % (EACH + 100));
        let name = format!("churn-{number:05}");
        let path = format!("{IN_DEFAULT}/{name}");
        let object = config_map(&name, &format!("{dice}")).to_string();
        asked_for.fetch_add(1, Ordering::Relaxed);
        let asked = match what {
            0..4 => {
                deleted.insert(format!("default/{name}@{}", member.name()));
                api.try_request(Method::DELETE, &path, "").await
            }
            4..9 => api.try_request(Method::POST, IN_DEFAULT, object).await,
            _ => api.try_request(Method::PUT, &path, object).await,
        };
        if asked.is_err() {
            // It is down, and will be for a while.
            let again = async || api.try_request(Method::GET, "/readyz", "").await.map(drop);
            let _ended = until.run_until_cancelled(eventually(SOON * 2, again)).await;
        }
    }
    deleted
}

/// Replays an informer's events: each key is added once before it is deleted, and what is left is what it holds.
pub(crate) fn replay(informer: &Informer) -> BTreeMap<String, String> {
    let mut held = BTreeMap::new();
    for event in informer.events() {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "ADD" => assert_eq!(held.insert(text("key"), text("rv")), None, "added twice: {event}"),
            "UPDATE" => assert!(held.insert(text("key"), text("rv")).is_some(), "updated before it was added: {event}"),
            "DELETE" => assert!(held.remove(&text("key")).is_some(), "deleted before it was added: {event}"),
            _ => {}
        }
    }
    held
}

/// Waits until an informer holds what the members hold, then checks what it was told on the way.
pub(crate) async fn settled(informer: &mut Informer, members: &[&impl Cluster], deleted: &BTreeSet<String>) {
    // After errors client-go waits for 30 s and more before it lists. Source: client-go `tools/cache/reflector.go`.
    eventually(SOON * 3, async || {
        let difference = same(&held(&informer.dump().await), &union(members).await);
        difference.map_err(|error| format!("{error}\n{}", informer.errors()))
    })
    .await;
    let dump = informer.dump().await;
    let replayed = replay(informer);
    assert_eq!(replayed.len(), dump.as_object().unwrap().len());
    for (key, revision) in &replayed {
        assert_eq!(dump[key]["rv"], **revision, "{key}");
    }
    for event in informer.events_of("DELETE") {
        let key = event["key"].as_str().unwrap();
        assert!(deleted.contains(key), "nobody deleted {key}");
    }
}

fn counted(informer: &Informer) -> (usize, usize, usize, usize) {
    let updates = informer.events_of("UPDATE");
    let idle = updates.iter().filter(|event| event["changed"] == false).count();
    (informer.events_of("ADD").len(), updates.len(), informer.events_of("DELETE").len(), idle)
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_hold_what_the_members_hold_through_churn_outage_and_restart() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let members = [&bed["east"], &bed["west"], &bed["north"]];
    futures::future::join_all(members.map(|member| create_many(member, "churn", EACH, 100))).await;
    let relay = Relay::before(&bed["north"]).await;
    let file = FleetFile::default().member(&bed["east"], 1).member(&bed["west"], 1).entry(
        "north",
        &bed["north"].kubeconfig_through(&relay),
        1,
        "",
    );
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    exact(&api, &members).await.unwrap();

    let start = |watchlist| Informer::start(&fleet.kubeconfig(), None, "configmaps", watchlist);
    let mut informers = [start(true), start(false)];
    for informer in &informers {
        informer.synced(SOON).await;
    }

    // One member is killed and restarted in the middle, another one's connections are cut again and again.
    let until = CancellationToken::new();
    let trouble = async {
        let seen = |kind: &str| informers[0].events_of(kind).len();
        let some = async |more: usize| {
            let before = seen("UPDATE");
            let moved = async || (seen("UPDATE") >= before + more).then_some(()).ok_or("too little churn yet");
            eventually(SOON * 2, moved).await;
        };
        some(100).await;
        bed["west"].kill();
        for _ in 0..5 {
            some(20).await;
            relay.sever().await;
        }
        bed["west"].restart().await;
        some(150).await;
        until.cancel();
    };
    let (first, second, third, ()) =
        tokio::join!(churn(members[0], &until), churn(members[1], &until), churn(members[2], &until), trouble);
    let deleted: BTreeSet<String> = [first, second, third].into_iter().flatten().collect();
    eventually(SOON, async || exact(&api, &members).await).await;
    for informer in &mut informers {
        settled(informer, &members, &deleted).await;
        let (added, updated, removed, idle) = counted(informer);
        figure(&format!("added {added}, updated {updated}, deleted {removed}, updated without a change {idle}"));
        // A relist is one for each object; a change and its undoing between two looks may be one for itself.
        assert!(idle < 10, "{idle} updates without a change: {}", informer.errors());
    }

    restart(&fleet, &mut informers, &members, &deleted).await;
}

/// kubefold itself is killed: the log is another one afterwards, and each informer lists once.
async fn restart(fleet: &Kubefold, informers: &mut [Informer], members: &[&Member], deleted: &BTreeSet<String>) {
    let api = fleet.api().await;
    let before = last_revision(&informers[0]);
    fleet.kill9();
    let name = "while-kubefold-was-down";
    members[0].api().await.create(IN_DEFAULT, &config_map(name, "east")).await;
    let gone = "churn-deleted-meanwhile";
    let path = format!("{IN_DEFAULT}/{gone}");
    members[1].api().await.create(IN_DEFAULT, &config_map(gone, "west")).await;
    members[1].request(Method::DELETE, &path, "").await.ok();
    let since = Instant::now();
    fleet.restart().await;
    let lists = eventually(SOON, async || {
        let answer = api.try_request(Method::GET, "/api/v1/configmaps?limit=1", "").await?;
        (answer.status == StatusCode::OK).then(|| answer.json()).ok_or_else(|| answer.to_string())
    })
    .await;
    let after: u64 = lists["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(after > before, "revisions went from {before} to {after}");
    for informer in &mut *informers {
        settled(informer, members, deleted).await;
        let (added, updated, removed, idle) = counted(informer);
        figure(&format!(
            "{:?} after the restart: added {added}, updated {updated}, deleted {removed}, without a change {idle}",
            since.elapsed()
        ));
    }
    assert!(last_revision(&informers[0]) > before);
}

fn last_revision(informer: &Informer) -> u64 {
    let revision = |event: &Value| event["rv"].as_str().and_then(|text| text.parse().ok());
    informer.events().iter().filter_map(revision).max().unwrap_or_default()
}
