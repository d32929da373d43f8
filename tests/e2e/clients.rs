//! Client libraries of four languages, as their users run them, over one fleet: each lists, pages and watches it through
//! the restart of a member, cuts of its own connection and a restart of kubefold, and holds what the members hold.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::Value;

use testbed::{
    FleetFile, Informer, Kubectl, Kubefold, Member, MemberOptions, Relay, Testbed, client, eventually, figure,
    objects::{CONFIG_MAPS, Objects, config_map, create, create_many, delete, held, objects, same, union, update},
    samples::namespace,
};

/// Eleven clients and two clusters on few cores.
const SOON: Duration = Duration::from_secs(120);
/// Config maps of each member when the clients start.
const EACH: usize = 20;
/// Of a paged list.
const PAGE_ITEMS: usize = 7;

/// One way to watch.
struct Way {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// Whether it reads whole objects, or only their metadata.
    whole: bool,
}

const fn way(name: &'static str, program: &'static str, args: &'static [&'static str]) -> Way {
    Way { name, program, args, whole: true }
}

const fn metadata(name: &'static str, program: &'static str) -> Way {
    Way { name, program, args: &["--mode=metadata"], whole: false }
}

const WAYS: [Way; 11] = [
    way("client-go, typed, WatchList", "go", &["--mode=typed"]),
    way("client-go, typed, list and watch", "go", &["--mode=typed", "--watchlist=false"]),
    way("client-go, dynamic", "go", &["--mode=dynamic"]),
    metadata("client-go, metadata", "go"),
    way("controller-runtime", "go", &["--mode=controller-runtime"]),
    way("kube-rs, ListWatch", "kube-rs", &["--mode=listwatch"]),
    way("kube-rs, StreamingList", "kube-rs", &["--mode=streaming"]),
    metadata("kube-rs, metadata", "kube-rs"),
    way("Python, SharedInformer", "python", &["--mode=informer"]),
    way("Python, list and Watch().stream", "python", &["--mode=watch"]),
    way("Node, makeInformer", "node", &[]),
];

/// A running client and what it has been told.
struct Client {
    way: &'static Way,
    informer: Informer,
    /// Its events before those that a test looks at now.
    seen: usize,
}

impl Client {
    /// That it holds what it should; else what differs.
    async fn holds(&mut self, want: &Objects) -> Result<(), String> {
        let have = held(&self.informer.dump().await);
        let want = self.way.shown(want);
        same(&have, &want).map_err(|error| format!("{}: {error}\n{}", self.way.name, self.informer.errors()))
    }

    /// The events since the last call of [`Self::forget`], as `ADD default/a@east`, sorted.
    fn told(&self) -> Vec<String> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let events = self.informer.events().into_iter().skip(self.seen);
        let line = |event: Value| match event["type"].as_str().unwrap() {
            "ADD" | "DELETE" => Some(format!("{} {}", text(&event, "type"), text(&event, "key"))),
            "UPDATE" if event["changed"] == false => Some(format!("UPDATE without a change {}", text(&event, "key"))),
            "UPDATE" => Some(format!("UPDATE {}", text(&event, "key"))),
            _ => None,
        };
        let mut lines: Vec<String> = events.filter_map(line).collect();
        lines.sort_unstable();
        lines
    }

    fn forget(&mut self) {
        self.seen = self.informer.events().len();
    }

    /// That a list from the server shows all objects once, with one revision over all its pages.
    async fn lists(&mut self, want: &Objects, page_items: Option<usize>) {
        let list = self.informer.list(page_items).await;
        let (items, name) = (list["items"].as_array().unwrap(), self.way.name);
        let keys: BTreeSet<&str> = items.iter().map(|item| item["key"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), items.len(), "{name}: an object is listed twice");
        assert!(keys.iter().copied().eq(want.keys().map(String::as_str)), "{name}: {keys:?}");
        let revisions = list["revisions"].as_array().unwrap();
        let pages = page_items.map_or(1, |size| want.len().div_ceil(size));
        assert_eq!(revisions.len(), pages, "{name}: pages of {page_items:?}");
        assert!(revisions.iter().all(|revision| *revision == revisions[0]), "{name}: {revisions:?}");
    }
}

impl Way {
    fn start(&'static self, kubeconfig: &std::path::Path) -> Client {
        Client { way: self, informer: Informer::of(self.program, kubeconfig, self.args), seen: 0 }
    }

    /// Of these objects, what it can see.
    fn shown(&self, objects: &Objects) -> Objects {
        let mut shown = objects.clone();
        if !self.whole {
            shown.values_mut().for_each(|object| object["data"] = Value::Null);
        }
        shown
    }
}

/// Waits until every client holds these objects.
async fn agree(clients: &mut [Client], want: &Objects) {
    join_all(clients.iter_mut().map(|client| async { eventually(SOON, async || client.holds(want).await).await }))
        .await;
}

/// That each was told of just these changes since it was looked at last.
fn just(clients: &mut [Client], want: &[&str]) {
    for client in clients {
        let mut want: Vec<&str> = want.to_vec();
        want.sort_unstable();
        assert_eq!(client.told(), want, "{}: {}", client.way.name, client.informer.errors());
        client.forget();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_library_holds_what_the_members_hold_through_restarts_cuts_and_outages() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(create_many(east, "item", EACH, 50), create_many(west, "item", EACH, 50));
    let fleet = Kubefold::start(&FleetFile::default().member(east, 2).member(west, 1)).await;
    let line = Relay::to(&fleet.addr()).await;
    let kubeconfig = fleet.kubeconfig_through(&line);
    let all = union(&[east, west]).await;
    let mut clients: Vec<Client> = WAYS.iter().map(|way| way.start(&kubeconfig)).collect();
    join_all(clients.iter().map(|client| client.informer.synced(SOON))).await;
    agree(&mut clients, &all).await;
    for client in &mut clients {
        client.lists(&all, None).await;
        client.lists(&all, Some(PAGE_ITEMS)).await;
        client.forget();
    }

    a_member_restarts(&mut clients, east, west).await;
    the_line_is_cut(&mut clients, &line, east, west).await;
    kubefold_restarts_while_a_member_is_down(&mut clients, &fleet, east, west).await;
}

/// The other members' changes arrive meanwhile, its own afterwards, and nothing else happens.
async fn a_member_restarts(clients: &mut [Client], east: &Member, west: &Member) {
    let mut all = union(&[east, west]).await;
    west.stop_apiserver();
    create(east, "meanwhile", "new").await;
    update(east, "item-00000", "changed").await;
    delete(east, "item-00001").await;
    all.retain(|key, _| key.ends_with("@west"));
    all.extend(union(&[east]).await);
    agree(clients, &all).await;
    just(clients, &["ADD default/meanwhile@east", "UPDATE default/item-00000@east", "DELETE default/item-00001@east"]);

    west.start_apiserver().await;
    create(west, "afterwards", "new").await;
    update(west, "item-00000", "changed").await;
    delete(west, "item-00001").await;
    agree(clients, &union(&[east, west]).await).await;
    just(clients, &["ADD default/afterwards@west", "UPDATE default/item-00000@west", "DELETE default/item-00001@west"]);
}

/// A client that comes back is told what it missed, and does not list again.
async fn the_line_is_cut(clients: &mut [Client], line: &Relay, east: &Member, west: &Member) {
    line.cut().await;
    create(west, "while-cut", "new").await;
    update(east, "item-00002", "changed").await;
    delete(west, "item-00002").await;
    line.restore().await;
    agree(clients, &union(&[east, west]).await).await;
    just(clients, &["ADD default/while-cut@west", "UPDATE default/item-00002@east", "DELETE default/item-00002@west"]);
}

/// Without a mirror kubefold knows nothing of the member then, and no client may take that for deletions.
async fn kubefold_restarts_while_a_member_is_down(
    clients: &mut [Client],
    fleet: &Kubefold,
    east: &Member,
    west: &Member,
) {
    let before = union(&[east, west]).await;
    west.kill();
    fleet.kill9();
    delete(east, "item-00003").await;
    fleet.restart_without_mirror().await;
    let answer = fleet.request(Method::GET, CONFIG_MAPS, "").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    assert_eq!(answer.headers["retry-after"], "1", "{answer}");
    for client in &mut *clients {
        // Each has been refused for the member's sake: so each has asked anew, and that is what must do no harm. Only
        // kube-rs says nothing of it: its client repeats what got a 503 fifteen times before it tells the watcher.
        if client.way.program == "kube-rs" {
            continue;
        }
        let refused = async || {
            let errors = client.informer.errors();
            let is_it =
                errors.contains("west is down") || errors.contains("503") || errors.contains("Service Unavailable");
            is_it.then_some(()).ok_or_else(|| format!("{}: not refused yet: {errors}", client.way.name))
        };
        eventually(SOON, refused).await;
    }
    for client in &mut *clients {
        client.holds(&before).await.unwrap();
        assert_eq!(client.told(), Vec::<String>::new(), "{}", client.way.name);
    }
    west.restart().await;
    agree(clients, &union(&[east, west]).await).await;
    for client in &*clients {
        let told = client.told();
        let relisted: BTreeSet<&String> = told.iter().filter(|line| line.starts_with("UPDATE without")).collect();
        let rest: Vec<&String> = told.iter().filter(|line| !relisted.contains(line)).collect();
        assert_eq!(rest, ["DELETE default/item-00003@east"], "{}: {}", client.way.name, client.informer.errors());
        figure(&format!("{}: {} objects listed again after kubefold's restart", client.way.name, relisted.len()));
    }
}

/// fabric8's client for Java reads the kubeconfig as kubefold prints it, and has its key of an elliptic curve.
#[tokio::test(flavor = "multi_thread")]
async fn fabric8_lists_watches_and_creates() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let maps = "/api/v1/namespaces/fabric8/configmaps";
    let mut file = FleetFile::default();
    for member in [&bed["east"], &bed["west"]] {
        namespace(member, "fabric8").await;
        member.api().await.create(maps, &config_map("own", "there")).await;
        file = file.member(member, 1);
    }
    let fleet = Kubefold::start(&file).await;
    assert!(std::fs::read_to_string(fleet.kubeconfig()).unwrap().contains("client-key-data: "));
    let mut java = Informer::of("java", &fleet.kubeconfig(), &["--namespace=fabric8"]);
    java.synced(SOON).await;
    let keys = async |java: &mut Informer| held(&java.dump().await).into_keys().collect::<Vec<_>>();
    assert_eq!(keys(&mut java).await, ["fabric8/own@east", "fabric8/own@west"], "{}", java.errors());
    let list = java.list(Some(1)).await;
    assert_eq!(list["revisions"].as_array().unwrap().len(), 2, "{list}");

    // What it makes is in both members, and comes back to it by its watch.
    let made = java.create("made").await;
    assert_eq!(made["key"], "fabric8/made");
    let shown = async |java: &Informer, kind: &str, key: &str| {
        eventually(SOON, async || {
            let is_there = java.events_of(kind).iter().any(|event| event["key"] == key);
            is_there.then_some(()).ok_or_else(|| format!("no {kind} of {key}: {:?}\n{}", java.events(), java.errors()))
        })
        .await;
    };
    shown(&java, "ADD", "fabric8/made").await;
    for member in [&bed["east"], &bed["west"]] {
        assert_eq!(member.api().await.get(&format!("{maps}/made")).await["data"]["by"], "fabric8", "{}", member.name());
    }
    let changed = config_map("own", "changed").to_string();
    bed["west"].request(Method::PUT, &format!("{maps}/own"), changed).await.ok();
    shown(&java, "UPDATE", "fabric8/own@west").await;
    bed["east"].request(Method::DELETE, &format!("{maps}/own"), "").await.ok();
    shown(&java, "DELETE", "fabric8/own@east").await;
    assert_eq!(keys(&mut java).await, ["fabric8/made", "fabric8/own@west"]);
}

/// kubectl as it was six years ago and as it is now.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_of_the_oldest_and_the_newest_minor() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    tokio::join!(create_many(east, "item", EACH, 50), create_many(west, "item", EACH, 50));
    let fleet = Kubefold::start(&FleetFile::default().member(east, 2).member(west, 1)).await;
    let line = Relay::to(&fleet.addr()).await;
    for minor in ["oldest", "newest"] {
        let home = fleet.state_dir().parent().unwrap().join(minor);
        std::fs::create_dir(&home).unwrap();
        let kubectl = Kubectl::new(&fleet.kubeconfig_through(&line), &home).by(client(&format!("kubectl-{minor}")));
        lists_and_pages(&kubectl, &[east, west]).await;
        watches(&kubectl, &line, east, west, minor).await;
        goes_about_its_business(&kubectl, minor).await;
    }
}

async fn lists_and_pages(kubectl: &Kubectl, members: &[&Member]) {
    let all = union(members).await;
    let chunk = format!("--chunk-size={PAGE_ITEMS}");
    for args in [&["get", "cm", "-A", "-o", "json"][..], &["get", "cm", "-A", "-o", "json", &chunk]] {
        let list = kubectl.run(args).await;
        // Each object once: `objects` sees to it.
        same(&objects(&serde_json::from_str(list.ok()).unwrap()), &all).unwrap();
    }
    let table = kubectl.run(&["get", "cm", "-n", "default", "--no-headers", &chunk]).await;
    let shown = all.keys().filter(|key| key.starts_with("default/")).count();
    assert_eq!(table.ok().lines().count(), shown, "{table}");
}

/// `get --watch` through the restart of a member; it ends with its connection, as before any API server.
async fn watches(kubectl: &Kubectl, line: &Relay, east: &Member, west: &Member, minor: &str) {
    let watch = || kubectl.start(&["get", "cm", "-n", "default", "--watch", "-o", "name"]);
    let shows = async |watch: &mut testbed::Process, name: &str| {
        eventually(SOON, async || {
            assert_eq!(watch.exited(), None, "{}", watch.output());
            let line = format!("configmap/{name}\n");
            watch.output().contains(&line).then_some(()).ok_or_else(|| watch.output())
        })
        .await;
    };
    let mut first = watch();
    shows(&mut first, "item-00019@west").await;
    west.stop_apiserver();
    create(east, &format!("{minor}-meanwhile"), "new").await;
    shows(&mut first, &format!("{minor}-meanwhile@east")).await;
    west.start_apiserver().await;
    create(west, &format!("{minor}-afterwards"), "new").await;
    shows(&mut first, &format!("{minor}-afterwards@west")).await;
    // Nothing was shown again or shown as deleted: all of the first list, and the two.
    let lines = first.output().lines().filter(|line| line.starts_with("configmap/")).count();
    let listed = union(&[east, west]).await.keys().filter(|key| key.starts_with("default/")).count();
    assert_eq!(lines, listed, "{}", first.output());

    line.sever().await;
    first.wait(SOON).await;
    let mut second = watch();
    shows(&mut second, &format!("{minor}-afterwards@west")).await;
    create(east, &format!("{minor}-again"), "new").await;
    shows(&mut second, &format!("{minor}-again@east")).await;
}

/// What people do all day, and a text by which to tell that it worked.
async fn goes_about_its_business(kubectl: &Kubectl, minor: &str) {
    let name = &format!("{minor}-made@east");
    let made = kubectl.run(&["create", "configmap", name, "--from-literal=a=b"]).await;
    assert!(made.ok().contains("created"), "{made}");
    let listed = kubectl.run(&["get", "cm", name, "-o", "jsonpath={.data.a}"]).await;
    assert_eq!(listed.ok(), "b", "{listed}");
    let business: &[(&[&str], &str)] = &[
        (&["describe", "configmap", name], name),
        (&["get", "all", "-A"], ""),
        (&["api-resources", "--verbs=list,watch", "-o", "name"], "deployments.apps"),
        (&["api-versions"], "apps/v1"),
        (&["explain", "deployment.spec.replicas"], "replicas"),
        (&["version"], "Server Version"),
        (&["auth", "can-i", "create", "pods"], "yes"),
        (&["get", "--raw", "/readyz"], "ok"),
        (&["get", "nodes,namespaces"], "default"),
        (&["get", "events", "-A"], ""),
    ];
    for (args, text) in business {
        let output = kubectl.run(args).await;
        assert!(output.ok().contains(text), "{minor}: {output}");
    }
}
