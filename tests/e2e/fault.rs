//! Members that fail, and what clients of the fleet notice of it: a warning, and never a deletion.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use testbed::{
    Answer, Api, FleetFile, Informer, Kubefold, Member, MemberOptions, Relay, Testbed, Watch, eventually, figure,
    objects::{CONFIG_MAPS, IN_DEFAULT, create, delete, exact, held, listed, same, union, update},
};

/// For what takes a round trip or two on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// For a member that hangs to be noticed: two probes of five seconds each, and room.
const NOTICED: Duration = Duration::from_secs(40);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

async fn ask(api: &Api, path: String) -> Answer {
    api.request(Method::GET, &path, "").await
}

/// That the fleet answers 503 and names the member and the cause.
fn unavailable(answer: &Answer, member: &str, cause: &str) -> Result<(), String> {
    let names = |text: &str| answer.json()["message"].as_str().is_some_and(|message| message.contains(text));
    let is_it = answer.status == StatusCode::SERVICE_UNAVAILABLE && names(member) && names(cause);
    is_it.then_some(()).ok_or_else(|| answer.to_string())
}

/// A get of a Lease whose member is down is refused, unless the client takes what there is.
async fn leaders_are_not_elected_by_what_was(api: &Api) {
    let answer = ask(api, format!("{LEASES}/leader@west")).await;
    unavailable(&answer, "west", "a Lease is not answered from its last known state").unwrap();
    assert_eq!(answer.json()["details"]["name"], "leader@west");
    for path in [LEASES.to_owned(), format!("{LEASES}/leader@west?resourceVersion=0")] {
        let answer = ask(api, path).await;
        assert!(answer.warnings().iter().any(|warning| warning.contains("last known state")), "{answer}");
        assert!(answer.ok().to_string().contains("\"me\""));
    }
}

/// Waits for a warning with all of these in it, and gives it.
async fn warned(api: &Api, texts: &[&str]) -> String {
    eventually(NOTICED, async || {
        let (_, warnings) = listed(api).await?;
        let found = warnings.iter().find(|warning| texts.iter().all(|text| warning.contains(text)));
        found.cloned().ok_or_else(|| format!("{warnings:?} lacks {texts:?}"))
    })
    .await
}

/// Waits until the fleet shows exactly what the members hold, and says how long that took.
async fn recovered(api: &Api, members: &[&Member]) -> Duration {
    let since = Instant::now();
    eventually(SOON, async || exact(api, members).await).await;
    since.elapsed()
}

/// Waits until an informer holds exactly what the members hold.
async fn informed(informer: &mut Informer, members: &[&Member]) {
    eventually(SOON, async || {
        let difference = same(&held(&informer.dump().await), &union(members).await);
        difference.map_err(|error| format!("{error}\n{}", informer.errors()))
    })
    .await;
}

/// The keys of an informer's events of one type.
fn keys(informer: &Informer, kind: &str) -> Vec<String> {
    let key = |event: Value| event["key"].as_str().unwrap().to_owned();
    informer.events_of(kind).into_iter().map(key).collect()
}

/// Updates without a change: a relist shows as one for every object.
fn idle_updates(informer: &Informer) -> usize {
    informer.events_of("UPDATE").iter().filter(|event| event["changed"] == false).count()
}

/// The next events of a watch, as `TYPE name`, bookmarks left out.
async fn events(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let event = watch.next(SOON).await.expect("the watch is open");
        if event["type"] != "BOOKMARK" {
            seen.push(format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                event["object"]["metadata"]["name"].as_str().unwrap_or_default()
            ));
        }
    }
    seen
}

async fn watch_now(api: &Api) -> Watch {
    let list = api.get(CONFIG_MAPS).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    api.watch(&format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={revision}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_down_at_the_start_is_unknown_and_not_absent() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "one", "east").await;
    create(west, "one", "west").await;
    west.kill();

    let both = FleetFile::default().member(east, 1).member(west, 1);
    let fleet = Kubefold::start(&both).await;
    let api = fleet.api().await;
    let verbose = api.request(Method::GET, "/readyz?verbose", "").await;
    assert!(String::from_utf8_lossy(&verbose.body).contains("[+]member/west ok: west is down"), "{verbose}");
    assert!(String::from_utf8_lossy(&verbose.body).ends_with("readyz check passed\n"), "{verbose}");
    let (list, watch, pinned, own, there) = tokio::join!(
        ask(&api, CONFIG_MAPS.to_owned()),
        ask(&api, format!("{CONFIG_MAPS}?watch=true")),
        ask(&api, format!("{IN_DEFAULT}/one@east")),
        ask(&api, format!("/clusters/east{IN_DEFAULT}/one")),
        ask(&api, format!("{IN_DEFAULT}/one@west")),
    );
    for answer in [&list, &watch, &there] {
        unavailable(answer, "west is down", "connection refused").unwrap();
    }
    assert_eq!((&pinned.ok()["data"]["is"], &own.ok()["data"]["is"]), (&json!("east"), &json!("east")));

    let absent = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig(), 1, "absent: true");
    fleet.configure(&absent);
    recovered(&api, &[east]).await;
    fleet.configure(&both);
    let unknown = async || unavailable(&ask(&api, CONFIG_MAPS.to_owned()).await, "west is down", "refused");
    eventually(NOTICED, unknown).await;
    west.restart().await;
    let took = recovered(&api, &[east, west]).await;
    assert!(took < Duration::from_secs(8), "a member that came up is listed after {took:?}");
    figure(&format!("unknown member listed {took:?} after it was ready"));

    // kubefold itself starts again while a member is down: nobody may read that as deletions.
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;
    west.kill();
    warned(&api, &["west is down", "refused"]).await;
    let before = held(&informer.dump().await);
    fleet.restart_without_mirror().await;
    let list = ask(&api, CONFIG_MAPS.to_owned()).await;
    unavailable(&list, "west is down", "connection refused").unwrap();
    assert_eq!(same(&held(&informer.dump().await), &before), Ok(()));
    create(east, "two", "east").await;
    west.restart().await;
    recovered(&api, &[east, west]).await;
    informed(&mut informer, &[east, west]).await;
    assert_eq!(keys(&informer, "DELETE"), Vec::<String>::new());
}

/// A member is stopped in its tracks: who asks for its objects waits until that is known, and nobody else.
async fn hang(api: &Api, east: &Member, west: &Member) {
    west.pause();
    let since = Instant::now();
    let hung = async {
        let one = ask(api, format!("{IN_DEFAULT}/one@west")).await;
        assert!(!one.warnings().is_empty(), "{one}");
        assert_eq!(one.ok()["data"]["is"], "west");
        since.elapsed()
    };
    let others = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let since = Instant::now();
            listed(api).await.unwrap();
            api.get(&format!("{IN_DEFAULT}/one@east")).await;
            slowest = slowest.max(since.elapsed());
        }
        (slowest, since.elapsed())
    };
    let (hung, (slowest, others)) = tokio::join!(hung, others);
    figure(&format!("get from a hanging member: {hung:?}; others meanwhile at most {slowest:?}"));
    assert!(others < hung, "nobody waits for the member that hangs: {others:?}");
    warned(api, &["west is down (for"]).await;
    west.resume();
    figure(&format!("exact {:?} after a hanging member went on", recovered(api, &[east, west]).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_a_warning_and_never_a_deletion() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let relay = Relay::before(west).await;
    for name in ["one", "two", "three"] {
        create(east, name, "east").await;
        create(west, name, "west").await;
    }
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    exact(&api, &[east, west]).await.unwrap();
    let since = Instant::now();
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;
    figure(&format!("informer synced over a quiet fleet after {:?}, its start included", since.elapsed()));
    let mut watch = watch_now(&api).await;

    let lease = json!({"metadata": {"name": "leader", "namespace": "default"}, "spec": {"holderIdentity": "me"}});
    west.api().await.create(LEASES, &lease).await;
    eventually(SOON, async || {
        let answer = ask(&api, format!("{LEASES}/leader@west")).await;
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer) }
    })
    .await;

    // Dead.
    west.kill();
    let warning = warned(&api, &["west is down (for", "last known state"]).await;
    figure(&warning);
    let kubectl = fleet.kubectl(&["get", "configmaps", "-A", "-o", "name"]).await;
    assert!(kubectl.ok().contains("configmap/one@west"), "{kubectl}");
    assert!(kubectl.stderr.contains("Warning: member west is down"), "{kubectl}");
    let one = ask(&api, format!("{IN_DEFAULT}/one@west")).await;
    assert!(one.warnings().iter().any(|warning| warning.contains("west: down (for")), "{one}");
    assert_eq!(one.ok()["data"]["is"], "west");
    leaders_are_not_elected_by_what_was(&api).await;
    let mut short = api.watch(&format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3")).await;
    let mut stale = Value::Null;
    while let Some(event) = short.next(SOON).await {
        if event["type"] == "BOOKMARK" {
            stale = event["object"]["metadata"]["annotations"]["kubefold.io/stale"].clone();
        }
    }
    assert_eq!(stale, "west");
    create(east, "meanwhile", "east").await;
    assert_eq!(events(&mut watch, 1).await, ["ADDED meanwhile@east"]);
    west.restart().await;
    figure(&format!("exact {:?} after a killed member was ready", recovered(&api, &[east, west]).await));

    hang(&api, east, west).await;

    // Silent on the wire, while it lives on behind it.
    relay.hang();
    warned(&api, &["west is down (for"]).await;
    create(west, "four", "west").await;
    update(west, "one", "west, again").await;
    delete(west, "two").await;
    relay.restore().await;
    figure(&format!("exact {:?} after the wire spoke again", recovered(&api, &[east, west]).await));
    assert_eq!(events(&mut watch, 3).await, ["ADDED four@west", "MODIFIED one@west", "DELETED two@west"]);

    // Cut in the middle of a watch, again and again.
    for number in 0..5 {
        let name = format!("cut-{number}");
        tokio::join!(relay.sever(), create(west, &name, "west"));
        assert_eq!(events(&mut watch, 1).await, [format!("ADDED {name}@west")]);
    }
    recovered(&api, &[east, west]).await;
    informed(&mut informer, &[east, west]).await;
    assert_eq!(keys(&informer, "DELETE"), ["default/two@west"]);
    assert_eq!(idle_updates(&informer), 0, "the informer has relisted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_its_history_or_its_data_is_compared_and_the_difference_told() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let relay = Relay::before(west).await;
    for name in ["kept", "changed", "gone"] {
        create(east, name, "east").await;
        create(west, name, "west").await;
    }
    let file = FleetFile::default().member(east, 1).entry("west", &west.kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    exact(&api, &[east, west]).await.unwrap();
    let mut watch = watch_now(&api).await;
    let mut informer = Informer::start(&fleet.kubeconfig(), None, "configmaps", true);
    informer.synced(SOON).await;

    // Its history begins later than our watch ended.
    relay.cut().await;
    update(west, "changed", "once").await;
    delete(west, "gone").await;
    create(west, "new", "west").await;
    west.forget_history().await;
    relay.restore().await;
    recovered(&api, &[east, west]).await;
    let mut told = events(&mut watch, 3).await;
    told.sort();
    assert_eq!(told, ["ADDED new@west", "DELETED gone@west", "MODIFIED changed@west"]);

    // Restored from a backup: its revisions go backwards.
    let backup = west.dir().join("backup");
    west.snapshot_etcd(&backup).await;
    create(west, "lost", "west").await;
    update(west, "changed", "twice").await;
    assert_eq!(events(&mut watch, 2).await, ["ADDED lost@west", "MODIFIED changed@west"]);
    west.restore_etcd(&backup).await;
    recovered(&api, &[east, west]).await;
    let mut told = events(&mut watch, 2).await;
    told.sort();
    assert_eq!(told, ["DELETED lost@west", "MODIFIED changed@west"]);
    create(west, "later", "west").await;
    assert_eq!(events(&mut watch, 1).await, ["ADDED later@west"]);

    // Restored, and beyond where it was before we hear of it: objects have lower revisions, the list a higher one.
    west.snapshot_etcd(&backup).await;
    create(west, "lost", "west").await;
    update(west, "changed", "thrice").await;
    assert_eq!(events(&mut watch, 2).await, ["ADDED lost@west", "MODIFIED changed@west"]);
    relay.cut().await;
    let before = west.etcd_revision().await;
    west.restore_etcd(&backup).await;
    while west.etcd_revision().await <= before + 10 {
        update(west, "kept", &format!("{:?}", Instant::now())).await;
    }
    relay.restore().await;
    recovered(&api, &[east, west]).await;
    let mut told = events(&mut watch, 3).await;
    told.sort();
    assert_eq!(told, ["DELETED lost@west", "MODIFIED changed@west", "MODIFIED kept@west"]);

    // Another cluster at the same address.
    west.replace_cluster().await;
    create(west, "kept", "reborn").await;
    recovered(&api, &[east, west]).await;
    informed(&mut informer, &[east, west]).await;
    create(west, "end", "west").await;
    let mut told = Vec::new();
    while told.last().is_none_or(|last| last != "ADDED end@west") {
        told.extend(events(&mut watch, 1).await);
    }
    let at = |event: &str| told.iter().position(|told| told == event).unwrap_or_else(|| panic!("{event}: {told:?}"));
    assert!(at("DELETED kept@west") < at("ADDED kept@west"), "{told:?}");
    for name in ["changed", "new", "later"] {
        at(&format!("DELETED {name}@west"));
    }
    assert!(told.iter().all(|event| event.ends_with("@west")), "{told:?}");
    assert!(keys(&informer, "DELETE").iter().all(|key| key.ends_with("@west")));
    assert_eq!(idle_updates(&informer), 0, "the informer has relisted");
}

/// What answers nonsense in place of a member: an address, for as long as it lives.
struct Babbler {
    address: std::net::SocketAddr,
    end: CancellationToken,
}

impl Babbler {
    async fn start(nonsense: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let (talks, until) = (tasks.clone(), end.clone());
        let accept = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                talks.spawn(until.clone().run_until_cancelled_owned(async move {
                    let mut asked = [0; 4096];
                    while let Ok(1..) = stream.read(&mut asked).await {
                        if stream.write_all(nonsense).await.is_err() {
                            return;
                        }
                    }
                }));
            }
        };
        tasks.spawn(end.clone().run_until_cancelled_owned(accept));
        Self { address, end }
    }

    /// A fleet file's entry that leads to it.
    fn entry(&self, file: FleetFile, member: &Member, scheme: &str) -> FleetFile {
        let kubeconfig = std::fs::read_to_string(member.kubeconfig()).unwrap();
        let path = member.dir().join(format!("babbler-{}.kubeconfig", self.address.port()));
        let server = format!("{scheme}://{}", self.address);
        std::fs::write(&path, kubeconfig.replace(&member.server_url(), &server)).unwrap();
        file.entry("babbler", &path, 1, "")
    }
}

impl Drop for Babbler {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lies_or_refuses_is_named_and_the_others_are_served() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create(east, "one", "east").await;
    create(west, "one", "west").await;
    let relay = Relay::before(west).await;
    // As an operator would: kubefold has a user of its own in west, which may do everything until that is revoked.
    let grant = ["create", "clusterrolebinding", "kubefold", "--clusterrole=cluster-admin", "--user=kubefold"];
    west.kubectl(&grant).await.ok();
    let robot = std::fs::read_to_string(west.kubeconfig_for("kubefold", None)).unwrap();
    let through = west.dir().join("kubefold.kubeconfig");
    std::fs::write(&through, robot.replace(&west.server_url(), &format!("https://{}", relay.addr()))).unwrap();
    let good = FleetFile::default().member(east, 1).entry("west", &through, 1, "");

    let fleet = Kubefold::start(&good).await;
    let api = fleet.api().await;
    exact(&api, &[east, west]).await.unwrap();
    let mut watch = watch_now(&api).await;

    for (scheme, nonsense, cause) in [
        ("https", b"\x16\x03\x01nonsense, and more of it".as_slice(), "TLS handshake failed"),
        ("http", b"nonsense, and more of it\r\n\r\n", "not HTTP"),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nnonsense", "kube-system without a UID"),
    ] {
        let babbler = Babbler::start(nonsense).await;
        fleet.configure(&babbler.entry(good.clone(), east, scheme));
        eventually(NOTICED, async || {
            let answer = ask(&api, CONFIG_MAPS.to_owned()).await;
            unavailable(&answer, "babbler", cause)
        })
        .await;
        assert_eq!(api.get(&format!("{IN_DEFAULT}/one@west")).await["data"]["is"], "west");
        fleet.configure(&good);
        recovered(&api, &[east, west]).await;
    }

    // A credential that its member does not know, for it is another member's.
    let of = |member: &Member| std::fs::read_to_string(member.kubeconfig()).unwrap();
    let user = |text: &str| text.lines().find(|line| line.contains("client-key-data")).unwrap().to_owned();
    let stranger = west.dir().join("stranger.kubeconfig");
    std::fs::write(&stranger, of(west).replace(&user(&of(west)), &user(&of(east)))).unwrap();
    fleet.configure(&good.clone().entry("stranger", &stranger, 1, ""));
    eventually(NOTICED, async || {
        unavailable(&ask(&api, CONFIG_MAPS.to_owned()).await, "stranger", "it refuses kubefold's own credential (401)")
    })
    .await;
    assert_eq!(ask(&api, format!("{IN_DEFAULT}/one@east")).await.ok()["data"]["is"], "east");
    fleet.configure(&good);
    recovered(&api, &[east, west]).await;

    // One cluster under two names: every object of it is there once, and the second name says why it holds none.
    fleet.configure(&good.clone().entry("copy", &east.kubeconfig(), 1, ""));
    let warning = warned(&api, &["copy", "same cluster as east"]).await;
    figure(&warning);
    assert_eq!(same(&listed(&api).await.unwrap().0, &union(&[east, west]).await), Ok(()));
    let own = ask(&api, format!("/clusters/copy{IN_DEFAULT}/one")).await;
    unavailable(&own, "copy", "same cluster as east").unwrap();
    fleet.configure(&good);
    recovered(&api, &[east, west]).await;

    // Its rights are revoked: what it has told stays, with a warning.
    west.kubectl(&["delete", "clusterrolebinding", "kubefold"]).await.ok();
    relay.sever().await;
    let warning = warned(&api, &["west", "kubefold may not read namespace kube-system (403"]).await;
    figure(&warning);
    create(east, "two", "east").await;
    assert_eq!(events(&mut watch, 1).await, ["ADDED two@east"]);
    fleet.restart_without_mirror().await;
    let list = ask(&api, CONFIG_MAPS.to_owned()).await;
    unavailable(&list, "west", "kubefold may not read namespace kube-system (403").unwrap();
    assert_eq!(api.get(&format!("{IN_DEFAULT}/one@east")).await["data"]["is"], "east");
    west.kubectl(&grant).await.ok();
    recovered(&api, &[east, west]).await;
}
