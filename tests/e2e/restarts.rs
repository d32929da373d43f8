//! What members go through, and clients of the fleet do not notice.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tokio::time::Instant;

use testbed::{
    Api, FleetFile, Informer, Kubefold, Member, MemberOptions, Relay, Testbed, Watch, eventually, figure,
    objects::{CONFIG_MAPS, create, create_many, exact},
};

const SOON: Duration = Duration::from_secs(30);

/// How often informers were told anything.
fn told(informers: &[Informer]) -> Vec<usize> {
    let kinds = ["ADD", "UPDATE", "DELETE"];
    informers.iter().flat_map(|informer| kinds.map(|kind| informer.events_of(kind).len())).collect()
}

/// The next event of a watch.
async fn next(watch: &mut Watch) -> (String, String) {
    let event = watch.next(SOON).await.expect("the watch is open");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

/// Waits until the fleet is exact after a trouble, and checks that nobody was told anything: neither a watch nor informers.
async fn calm(
    what: &str,
    api: &Api,
    members: [&Member; 2],
    watch: &mut Watch,
    informers: &[Informer],
    before: &[usize],
) {
    let since = Instant::now();
    eventually(SOON, async || exact(api, &members).await).await;
    figure(&format!("{what}: exact after {:?}", since.elapsed()));
    assert_eq!(told(informers), before, "{what}");
    // Whatever came before would be read before it.
    let name = format!("after-{what}").replace(' ', "-");
    create(members[1], &name, "west").await;
    assert_eq!(next(watch).await, ("ADDED".to_owned(), format!("{name}@west")), "{what}");
    eventually(SOON, async || {
        let more: Vec<usize> = told(informers).iter().zip(before).map(|(now, before)| now - before).collect();
        (more == [1, 0, 0, 1, 0, 0]).then_some(()).ok_or_else(|| format!("{more:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_restart_costs_a_fleet_client_nothing() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_many(east, "many", 50, 100).await;
    create_many(west, "many", 200, 100).await;
    let relay = Relay::before(west).await;
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &[east, west]).await).await;
    let informers = [true, false].map(|list| Informer::start(&fleet.kubeconfig(), None, "configmaps", list));
    for informer in &informers {
        informer.synced(SOON).await;
    }
    let revision = api.get(CONFIG_MAPS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}")).await;

    let before = told(&informers);
    west.kill();
    west.restart().await;
    calm("kill -9", &api, [east, west], &mut watch, &informers, &before).await;

    let before = told(&informers);
    west.terminate_apiserver(SOON).await;
    west.start_apiserver().await;
    calm("graceful restart", &api, [east, west], &mut watch, &informers, &before).await;

    // Its own 410 is its reflector's alone.
    let before = told(&informers);
    relay.cut().await;
    west.forget_history().await;
    relay.restore().await;
    calm("lost history", &api, [east, west], &mut watch, &informers, &before).await;
    for informer in &informers {
        let errors = informer.errors();
        assert!(!errors.contains("too old") && !errors.contains("Expired"), "{errors}");
    }

    // A quiet fleet answers a new informer at once.
    let since = Instant::now();
    let fresh = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    fresh.synced(SOON).await;
    figure(&format!("an informer of a quiet fleet synced after {:?}, its start included", since.elapsed()));
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_cleanly_at_their_deadline() {
    let bed = Testbed::start(&["east"], MemberOptions::default()).await;
    create(&bed["east"], "one", "east").await;
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    eventually(SOON, async || exact(&api, &[&bed["east"]]).await).await;
    for query in ["watch=true&timeoutSeconds=3", "watch=true&timeoutSeconds=3&allowWatchBookmarks=true"] {
        let path = format!("{CONFIG_MAPS}?{query}");
        // HTTP/1.1: a body without its last chunk is an error to hyper.
        let request = Request::get(&path).header(header::ACCEPT, "application/json").body(Bytes::new()).unwrap();
        let response = api.open(request.clone()).await.unwrap();
        assert_eq!((response.version(), response.status()), (http::Version::HTTP_11, StatusCode::OK));
        drop(response);
        let answer = api.send(request).await.unwrap();
        assert!(answer.body.ends_with(b"}\n"), "{answer}");
        // HTTP/2: client-go reports a stream that was reset.
        let kubectl = fleet.kubectl(&["get", "--raw", &path]).await;
        assert!(kubectl.ok().contains("one@east"), "{kubectl}");
        assert_eq!(kubectl.stderr, "", "{kubectl}");
    }
    // At once too, when it begins where nothing follows.
    let revision = api.get(CONFIG_MAPS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={revision}");
    let answer = api.request(Method::GET, &path, "").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0), "{answer}");
}
