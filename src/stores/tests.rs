//! Stores over members that nobody answers for: what is kept of them, and who is waited for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, StatusCode};
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Patience, Reading, Running, SILENT_MAX, Stores};
use crate::{
    catalog::testdata::{EAST, FakeMember},
    config::{Access, Config, Deadlines, MemberConfig, MemberName, Weight},
    member::{Member, registry::Registry},
    store::{Identities, LogLimits, Naming, Revisions, Shared},
    view::Mode,
};
use kubefold_wire::{info::RequestInfo, resource::Gvr};

fn name(text: &str) -> MemberName {
    MemberName::new(text).unwrap()
}

pub(crate) fn config(names: &[&str]) -> Config {
    let member = |text: &&str| MemberConfig {
        name: name(text),
        access: Access::Server(Box::default()),
        weight: Weight(1),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        impersonator: None,
        renew_tokens: false,
        absent: false,
        rebuilt: false,
        deadlines: Deadlines::default(),
        in_flight_max: 1,
    };
    config_of(names.iter().map(member).collect())
}

fn config_of(members: Vec<MemberConfig>) -> Config {
    Config::of(members)
}

/// Stores over members that nobody answers for.
pub(crate) fn stores(names: &[&str]) -> Arc<Stores> {
    stores_of(config(names).members)
}

/// Stores over members of that configuration.
pub(crate) fn stores_of(members: Vec<MemberConfig>) -> Arc<Stores> {
    stores_that_know(members, BTreeMap::new())
}

/// The same, where an earlier process knew which cluster each member is.
pub(crate) fn stores_that_know(members: Vec<MemberConfig>, clusters: BTreeMap<String, String>) -> Arc<Stores> {
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    let (registry, config) = (Registry::new(tasks.clone(), cancel.clone()), config_of(members));
    registry.restore_clusters(clusters);
    registry.apply(&config).unwrap();
    let shared = Shared {
        naming: Arc::new(Naming::new(&config)),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::default(),
    };
    let stores = Stores::new(Arc::new(registry), shared, tasks, cancel);
    stores.catalog.set_members(config.members.iter().map(|member| member.name.clone()).collect());
    stores
}

/// Members that answer after ten milliseconds, but for one that does only when it is let.
struct Answers {
    west_may: Arc<Notify>,
    west_asked: Arc<AtomicUsize>,
}

impl Answers {
    async fn ask(&self, stores: &Stores, patience: Patience) -> (Vec<Option<String>>, Duration) {
        let begun = Instant::now();
        let ask = |member: Arc<Member>| {
            let (west_may, west_asked) = (Arc::clone(&self.west_may), Arc::clone(&self.west_asked));
            async move {
                if member.name().as_str() == "west" {
                    west_asked.fetch_add(1, Ordering::Relaxed);
                    west_may.notified().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                member.name().to_string()
            }
        };
        let members = stores.registry().members();
        let said = stores.ask_all(&members, patience, |_| true, ask).await;
        (said, begun.elapsed())
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_late_is_waited_for_once_and_again_when_it_answers_in_time() {
    let stores = stores(&["east", "west", "north"]);
    let answers = Answers { west_may: Arc::default(), west_asked: Arc::default() };
    let (east, west, north) = (Some("east".to_owned()), Some("west".to_owned()), Some("north".to_owned()));
    let (said, took) = answers.ask(&stores, Patience::Little).await;
    assert_eq!(said, [east.clone(), None, north.clone()]);
    assert!(took > Duration::from_millis(10) && took < SILENT_MAX, "{took:?}");
    for _ in 0..5 {
        let (said, took) = answers.ask(&stores, Patience::Little).await;
        assert_eq!((said, took), (vec![east.clone(), None, north.clone()], Duration::from_millis(10)));
    }
    assert_eq!(answers.west_asked.load(Ordering::Relaxed), 2, "once by the first, and once behind all that follow");
    let (said, took) = answers.ask(&stores, Patience::Much).await;
    assert_eq!((said, took), (vec![east.clone(), None, north.clone()], SILENT_MAX), "who wants to know waits");
    // Those answers come too late to count; the next does not, whoever hears it.
    answers.west_may.notify_waiters();
    tokio::time::sleep(Duration::from_millis(20)).await;
    answers.west_may.notify_one();
    let _behind = answers.ask(&stores, Patience::Little).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    answers.west_may.notify_one();
    assert_eq!(answers.ask(&stores, Patience::Little).await.0, [east, west, north]);
    stores.cancel.cancel();
}

#[tokio::test]
async fn readiness_is_made_anew_when_something_changes_and_not_before() {
    let stores = stores(&["east", "west"]);
    let (pods, member) = (Gvr::new("", "v1", "pods"), FakeMember::new(EAST, true));
    assert!(stores.catalog.refresh(&name("east"), &member).await.unwrap());
    let running = stores.running(&pods).unwrap();
    let unknown = |only: Option<&str>| -> Vec<String> {
        let only = only.map(name);
        stores.unknown(&running, only.as_ref()).iter().map(|member| member.name().to_string()).collect()
    };
    assert_eq!(unknown(None), ["east", "west"], "one that has not said what it serves may serve pods");
    assert_eq!(unknown(Some("west")), ["west"]);
    let made = stores.readiness(&running);
    assert!(Arc::ptr_eq(&made, &stores.readiness(&running)) || stores.registry.conditions() > 0);
    // A member that fills the store is not unknown from then on, whatever was made before.
    running.store.join(&name("east"), "uid");
    running.store.begin_list(&name("east"));
    running.store.end_list(&name("east"), 7);
    assert_eq!(unknown(None), ["west"]);
    for change in [
        (|stores: &Stores| stores.registry.condition_changed()) as fn(&Stores),
        |stores| stores.catalog.set_members(vec![name("east"), name("west")]),
        |stores| stores.registry.apply(&config(&["east", "west"])).unwrap(),
    ] {
        let before = stores.readiness(&running);
        change(&stores);
        let after = stores.readiness(&running);
        assert!(!Arc::ptr_eq(&before, &after));
        assert_eq!(after.unknown.len(), 1);
    }
    stores.cancel.cancel();
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_no_mark() {
    let stores = stores(&["east"]);
    let pods = Gvr::new("", "v1", "pods");
    assert!(stores.catalog.refresh(&name("east"), &FakeMember::new(EAST, true)).await.unwrap());
    let running = stores.running(&pods).unwrap();
    let due_after = |method: Method, code: Option<StatusCode>| {
        let info = RequestInfo::of(&method, "/api/v1/namespaces/a/pods", None).unwrap();
        let marking = stores.marking(&name("east"), &info);
        match code {
            Some(code) => marking.answered(code),
            None => drop(marking),
        }
        let due = running.marks.lock().due(None, "a");
        due.iter().for_each(|(place, mark)| running.marks.lock().settle(place, *mark));
        due.len()
    };
    assert_eq!(due_after(Method::POST, Some(StatusCode::FORBIDDEN)), 0);
    for code in [Some(StatusCode::CREATED), Some(StatusCode::BAD_GATEWAY), None] {
        assert_eq!(due_after(Method::POST, code), 1, "{code:?}");
    }
    assert_eq!(due_after(Method::DELETE, Some(StatusCode::CONFLICT)), 1, "some of a collection may be deleted by then");
    stores.cancel.cancel();
}

#[tokio::test]
async fn a_definition_is_parsed_once_and_looked_at_when_it_changed() {
    let stores = stores(&["east", "west"]);
    let (crds, member) =
        (Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"), FakeMember::new(EAST, true));
    assert!(stores.catalog.refresh(&name("east"), &member).await.unwrap());
    let running = stores.running(&crds).unwrap();
    running.store.join(&name("east"), "uid");
    let definition = |plural: &str, rv: u64, established: &str| {
        serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com"), "uid": plural, "resourceVersion": rv.to_string()},
            "spec": {"group": "example.com", "names": {"plural": plural, "kind": "X"}, "versions": [
                {"name": "v1", "served": true}, {"name": "v2", "served": false}]},
            "status": {"conditions": [{"type": "Established", "status": established}]},
        })
        .to_string()
    };
    let ingest = |document: String| {
        let incarnation = running.store.incarnation(&name("east"));
        running.store.ingest_live(&name("east"), incarnation, &document).unwrap();
    };
    ingest(definition("as", 1, "True"));
    ingest(definition("bs", 2, "False"));
    let served = async |since: u64| {
        let changed = running.definitions.changed_since(&running.store, since).await;
        changed.iter().map(|changed| Arc::clone(&changed.definition)).collect::<Vec<_>>()
    };
    let first = served(0).await;
    let gvrs = |at: usize| first[at].served.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((gvrs(0).len(), gvrs(1).len()), (1, 0), "a version that is served, of a definition that is established");
    let again = served(0).await;
    assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)), "nothing is parsed again");
    let head = running.store.snapshot().revision.0;
    assert_eq!(served(head).await.len(), 0);
    ingest(definition("bs", 3, "True"));
    let changed = served(head).await;
    assert_eq!((changed.len(), changed[0].served.len()), (1, 1));
    assert!(Arc::ptr_eq(&first[0], &served(0).await[0]));
    stores.cancel.cancel();
}

/// A store of the pods of one member that nobody answers for, and whose first list a test drives.
async fn filling() -> (Arc<Stores>, Arc<Running>) {
    let stores = stores(&["east"]);
    // Its probes would find it down.
    stores.registry.get("east").unwrap().removed().cancel();
    assert!(stores.catalog.refresh(&name("east"), &FakeMember::new(EAST, true)).await.unwrap());
    let running = stores.running(&Gvr::new("", "v1", "pods")).unwrap();
    running.feeds.lock()[&name("east")].state.begin_list();
    (stores, running)
}

fn list_more(running: &Running, objects: usize, remain: Option<i64>) {
    running.feeds.lock()[&name("east")].state.note_progress(|progress| {
        progress.page(objects, remain);
        progress.add(objects);
    });
}

#[tokio::test(start_paused = true)]
async fn a_member_is_waited_for_while_its_list_gets_further() {
    let (stores, running) = filling().await;
    let (pods, came) = (Gvr::new("", "v1", "pods"), Instant::now());
    let filled = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            list_more(&running, 100, None);
        }
        running.store.join(&name("east"), "uid");
        running.store.begin_list(&name("east"));
        running.store.end_list(&name("east"), 7);
    };
    let (ready, ()) = tokio::join!(stores.ready(&pods, None), filled);
    assert!(ready.is_ok());
    assert_eq!(came.elapsed(), Duration::from_secs(45));
    stores.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stands_still_is_told_of_after_ten_seconds() {
    let (stores, running) = filling().await;
    let (pods, came) = (Gvr::new("", "v1", "pods"), Instant::now());
    let stops = async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        list_more(&running, 12_000, Some(48_000));
    };
    let (ready, ()) = tokio::join!(stores.ready(&pods, None), stops);
    let message = ready.err().unwrap().to_string();
    assert_eq!(came.elapsed(), Duration::from_secs(19));
    assert!(message.contains("east has listed 12,000 of about 60,000 pods"), "{message}");
    let filling = running.filling();
    let told: Vec<_> = filling.iter().map(|one| (one.member.as_str(), one.listed, one.total)).collect();
    assert_eq!(told, [("east", 12_000, Some(60_000))]);
    stores.cancel.cancel();
}

#[tokio::test(start_paused = true)]
async fn no_read_waits_for_more_than_a_minute_or_its_own_timeout() {
    let (stores, running) = filling().await;
    let pods = Gvr::new("", "v1", "pods");
    let lists = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            list_more(&running, 1, None);
        }
    };
    let waits = async {
        let came = Instant::now();
        assert!(stores.ready_in(&pods, None, Mode::Lenient).await.is_ok());
        assert_eq!(came.elapsed(), Duration::from_secs(3));
        for (mode, wait_max, waited) in [(Mode::Whole, 600, 60), (Mode::Whole, 25, 25), (Mode::Strict, 4, 4)] {
            let came = Instant::now();
            let reading = Reading { mode, wait_max: Duration::from_secs(wait_max), ..Reading::default() };
            let ready = stores.ready_for(&pods, reading).await;
            assert!(ready.is_err());
            assert_eq!(came.elapsed(), Duration::from_secs(waited));
        }
    };
    tokio::select! {
        () = lists => unreachable!("it has no end"),
        () = waits => {}
    }
    stores.cancel.cancel();
}
