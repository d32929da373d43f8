//! Kinds whose objects are in the mirror's tables and in no memory, over real members.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, future::join_all};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::mirror::{metric, mirrored};
use testbed::{
    Api, FleetFile, Kubefold, Member, MemberOptions, StateEngine, StateServer, Testbed, eventually,
    samples::{config_map, name, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const SEARCHED: &str = "/apis/clusterpedia.io/v1beta1/resources/apis/coordination.k8s.io/v1/namespaces/default/leases";
const PER_MEMBER: usize = 120;

fn lease(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"holderIdentity": name}})
}

fn file(bed: &Testbed, enabled: bool) -> FleetFile {
    let settings = format!("mirror: {{enabled: {enabled}, keepDeleted: 1h, stored: [leases.coordination.k8s.io]}}\n");
    bed.members().iter().fold(FleetFile::default().settings(&settings), |file, member| file.member(member, 1))
}

async fn fill(member: &Member) {
    let api = member.api().await;
    let create = |at: usize| {
        let (api, app) = (api.clone(), if at.is_multiple_of(10) { "rare" } else { "web" });
        async move { api.create(LEASES, &lease(&format!("steady-{at:03}"), app)).await }
    };
    futures::stream::iter(0..PER_MEMBER).map(create).buffer_unordered(24).collect::<Vec<_>>().await;
    for args in [
        ["create", "role", "see", "--resource=leases.coordination.k8s.io", "--verb=get,list"].as_slice(),
        &[
            "create",
            "rolebinding",
            "see",
            "--role=see",
            if member.name() == "east" { "--user=ann" } else { "--user=bob" },
        ],
    ] {
        member.kubectl(&[&["-n", "default"], args].concat()).await.ok();
    }
}

/// Name to UID and spec.
fn shown(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let each = items.iter().map(|item| {
        let metadata = &item["metadata"];
        (metadata["name"].as_str().unwrap().to_owned(), json!([metadata["uid"], item["spec"], metadata["labels"]]))
    });
    let all: BTreeMap<String, Value> = each.collect();
    assert_eq!(all.len(), items.len(), "an object is in a list once");
    all
}

/// What the members have, by the names of the fleet.
async fn truth(members: &[&Member]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for member in members {
        let list = member.api().await.get(LEASES).await;
        all.extend(shown(&list).into_iter().map(|(name, lease)| (format!("{name}@{}", member.name()), lease)));
    }
    all
}

async fn is_exact(api: &Api, members: &[&Member]) {
    eventually(SOON, async || {
        let answer = api.request(Method::GET, LEASES, "").await;
        if answer.status != StatusCode::OK || !answer.warnings().is_empty() {
            return Err(format!("{} {:?}", answer.status, answer.warnings()));
        }
        let (shown, truth) = (shown(&answer.json()), truth(members).await);
        if shown == truth { Ok(()) } else { Err(format!("{} of {}", shown.len(), truth.len())) }
    })
    .await;
}

/// The names of all pages of a list, in their order.
async fn paged(api: &Api, query: &str, mut between: impl AsyncFnMut()) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let list = api.get(&format!("{LEASES}?limit=35{query}{token}")).await;
        names.extend(
            list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = list["metadata"]["continue"].as_str() else { return names };
        token = format!("&continue={next}");
        between().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_in_tables_alone_is_listed_searched_and_known_over_a_restart() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    join_all([fill(east), fill(west)]).await;
    let fleet = started_unheard(&bed).await;
    let api = fleet.api().await;
    is_exact(&api, &[east, west]).await;
    is_read_only(&fleet).await;
    pages_lose_nothing(&api, east).await;
    is_selected(&fleet).await;
    is_searched(&fleet).await;
    is_seen_by_who_may(&fleet).await;

    for args in
        [["delete", "lease", "steady-001"].as_slice(), &["label", "lease", "steady-002", "app=rare", "--overwrite"]]
    {
        east.kubectl(&[&["-n", "default"], args].concat()).await.ok();
    }
    is_exact(&api, &[east, west]).await;
    let deleted = api.get(&format!("{SEARCHED}?deleted=true&names=steady-001")).await;
    assert_eq!(shown(&deleted).into_keys().collect::<Vec<_>>(), ["steady-001"], "what was deleted is kept for a time");
    // Who the members are, and what they serve, is written every half second.
    mirrored(&api).await;
    let known = truth(&[west]).await;
    west.pause();
    fleet.kill9();
    east.api().await.create(LEASES, &lease("meanwhile", "web")).await;
    fleet.restart().await;
    is_last_known(&fleet, east, &known, "steady-007@west").await;
    west.resume();
    west.api().await.create(LEASES, &lease("after", "web")).await;
    is_exact(&fleet.api().await, &[east, west]).await;

    fleet.configure(&file(&bed, false));
    fleet.kill9();
    fleet.restart().await;
    let refused = fleet.request(Method::GET, LEASES, "").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    assert!(refused.to_string().contains("mirror.enabled in clusters.yaml is false"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_beyond_the_bound_on_memory_is_in_tables_from_the_next_start_on() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let bounded = "mirror: {memory: 1Mi, storable: [leases.coordination.k8s.io]}\n";
    let file = bed.members().iter().fold(FleetFile::default().settings(bounded), |file, member| file.member(member, 1));
    for member in [east, west] {
        let api = member.api().await;
        for at in 0..16 {
            let mut large = lease(&format!("large-{at:02}"), "web");
            large["metadata"]["annotations"] = json!({"filling": "x".repeat(100 << 10)});
            api.create(LEASES, &large).await;
        }
    }
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let over = async || {
        let memory = &api.get("/kubefold/v1/status").await["mirror"]["memory"];
        memory["bytes"].as_u64() > memory["maxBytes"].as_u64()
    };
    is_exact(&api, &[east, west]).await;
    eventually(SOON, async || over().await.then_some(()).ok_or_else(|| "not over".to_owned())).await;
    let written = api.create(LEASES, &json!({"metadata": {"name": "late@east"}})).await;
    assert_eq!(
        written["metadata"]["name"], "late@east",
        "as long as this process runs nothing changes for its clients"
    );
    mirrored(&api).await;

    let known = truth(&[west]).await;
    west.pause();
    fleet.kill9();
    fleet.restart().await;
    is_last_known(&fleet, east, &known, "large-07@west").await;
    let said = fleet.command(&["status"]).await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("since mirror.memory has no room for them: leases.coordination.k8s.io"), "{said}");
    let refused = fleet.request(Method::GET, &format!("{LEASES}?watch=true"), "").await;
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED, "{refused}");
    west.resume();
    is_exact(&fleet.api().await, &[east, west]).await;
    assert_eq!(metric(&fleet.api().await, "kubefold_mirror_memory_passed_kinds").await, 1.0);
}

/// Starts it while no member answers. A list that is asked for then waits for them, and is the list.
async fn started_unheard(bed: &Testbed) -> Kubefold {
    bed.members().iter().for_each(|member| member.pause());
    let fleet = Kubefold::launch(&file(bed, true));
    fleet.alive().await;
    let api = fleet.api().await;
    let answered = async {
        for _ in 0..20 {
            api.request(Method::GET, "/livez", "").await;
        }
        bed.members().iter().for_each(|member| member.resume());
    };
    let (list, ()) = tokio::join!(api.request(Method::GET, LEASES, ""), answered);
    assert_eq!(list.status, StatusCode::OK, "{list}");
    fleet.ready().await;
    fleet
}

async fn is_read_only(fleet: &Kubefold) {
    let api = fleet.api().await;
    let served = api.get("/apis/coordination.k8s.io/v1").await;
    let leases = served["resources"].as_array().unwrap().iter().find(|one| one["name"] == "leases").unwrap();
    assert_eq!(leases["verbs"], json!(["get", "list"]));
    for (method, path, body) in [
        (Method::GET, format!("{LEASES}?watch=true"), String::new()),
        (Method::POST, LEASES.to_owned(), lease("new", "web").to_string()),
        (Method::DELETE, format!("{LEASES}/steady-000@east"), String::new()),
    ] {
        let refused = api.request(method, &path, body).await;
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED, "{path}: {refused}");
        assert!(refused.to_string().contains("the member views do the rest"), "{refused}");
    }
}

async fn pages_lose_nothing(api: &Api, east: &Member) {
    let first = api.get(&format!("{LEASES}?limit=35")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], json!(2 * PER_MEMBER - 35));
    let (at_east, mut made) = (east.api().await, 0);
    let names = paged(api, "", async || {
        // Before the place of the page, and behind it.
        for name in [format!("a-{made}"), format!("z-{made}")] {
            at_east.create(LEASES, &lease(&name, "web")).await;
        }
        if made > 0 {
            at_east.request(Method::DELETE, &format!("{LEASES}/a-{}", made - 1), "").await.ok();
        }
        made += 1;
    })
    .await;
    let unique: BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "no object is on two pages");
    let steady = unique.iter().filter(|name| name.starts_with("steady-")).count();
    assert_eq!(steady, 2 * PER_MEMBER, "no object is lost");
}

async fn is_selected(fleet: &Kubefold) {
    let api = fleet.api().await;
    let rare = paged(&api, "&labelSelector=app%3Drare", async || {}).await;
    assert_eq!(rare.len(), 2 * PER_MEMBER / 10);
    let of_west = api.get(&format!("{LEASES}?labelSelector=app%3Drare,kubefold.io/cluster%3Dwest")).await;
    assert_eq!(shown(&of_west).len(), PER_MEMBER / 10);
    let one = api.get(&format!("{LEASES}?fieldSelector=metadata.name%3Dsteady-007%40west")).await;
    assert_eq!(shown(&one).into_keys().collect::<Vec<_>>(), ["steady-007@west"]);
    let held = api.get(&format!("{LEASES}?fieldSelector=spec.holderIdentity%3Dsteady-007")).await;
    assert_eq!(shown(&held).into_keys().collect::<Vec<_>>(), ["steady-007@east", "steady-007@west"]);
    let wrong = api.request(Method::GET, &format!("{LEASES}?fieldSelector=metadata.name%3Ca"), "").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{wrong}");
    let got = api.get(&format!("{LEASES}/steady-007@west")).await;
    assert_eq!((&got["metadata"]["name"], &got["kind"]), (&json!("steady-007@west"), &json!("Lease")));
    let missing = api.request(Method::GET, &format!("{LEASES}/none@west"), "").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND, "{missing}");
    let table = fleet.kubectl(&["get", "leases", "-n", "default"]).await;
    assert!(table.ok().lines().any(|line| line.starts_with("steady-007@west") && line.contains("west")), "{table}");
}

async fn is_searched(fleet: &Kubefold) {
    let api = fleet.api().await;
    let found = async |query: &str| {
        let list = api.get(&format!("{SEARCHED}?{query}")).await;
        let items = list["items"].as_array().unwrap().iter();
        let name = |item: &Value| {
            let cluster = &item["metadata"]["annotations"]["shadow.clusterpedia.io/cluster-name"];
            format!("{}/{}", cluster.as_str().unwrap(), item["metadata"]["name"].as_str().unwrap())
        };
        items.map(name).collect::<Vec<_>>()
    };
    let holder = "fieldSelector=spec.holderIdentity%20in%20(steady-003,steady-004)";
    assert_eq!(
        found(&format!("{holder}&orderby=cluster%20desc,name")).await,
        ["west/steady-003", "west/steady-004", "east/steady-003", "east/steady-004"]
    );
    assert_eq!(found("names=steady-010&clusters=west&labelSelector=app%3Drare").await, ["west/steady-010"]);
    let one = api.get(&SEARCHED.replace("resources/", "resources/clusters/east/")).await;
    assert!(one["items"].as_array().unwrap().len() >= PER_MEMBER);
    let one = api.get(&format!("{}/steady-003", SEARCHED.replace("resources/", "resources/clusters/east/"))).await;
    assert_eq!(one["spec"]["holderIdentity"], "steady-003");
    let mixed =
        "collectionresources/any?resources=coordination.k8s.io/v1/leases,v1/namespaces&namespaces=default&limit=3";
    let mixed = api.get(&format!("/apis/clusterpedia.io/v1beta1/{mixed}")).await;
    assert_eq!(mixed["items"].as_array().unwrap().len(), 3, "{mixed}");
    let said = fleet
        .command(&["search", "-n", "default", "--kind", "leases", "-l", "app=rare", "-o", "name", "steady-02"])
        .await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.lines().count(), 2, "{said}");
}

async fn is_seen_by_who_may(fleet: &Kubefold) {
    let ann = Api::from_kubeconfig(&fleet.kubeconfig_for("ann", None), None).await;
    let answer = ann.request(Method::GET, LEASES, "").await;
    assert!(shown(&answer.json()).keys().all(|name| name.ends_with("@east")), "{answer}");
    assert!(answer.warnings().iter().any(|warning| warning.contains("west")), "{:?}", answer.warnings());
    let counted = ann.get(&format!("{SEARCHED}?limit=1&withRemainingCount=true&labelSelector=app%3Drare")).await;
    assert_eq!(counted["metadata"]["remainingItemCount"], json!(PER_MEMBER / 10 - 1));
    let refused = ann.request(Method::GET, &format!("{LEASES}/steady-007@west"), "").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
}

/// What was known of west is there, with its age, and all that east has.
async fn is_last_known(fleet: &Kubefold, east: &Member, known: &BTreeMap<String, Value>, of_west: &str) {
    let (api, mut expected) = (fleet.api().await, truth(&[east]).await);
    expected.extend(known.clone());
    let warned = eventually(SOON, async || {
        let answer = api.request(Method::GET, LEASES, "").await;
        if answer.status != StatusCode::OK {
            return Err(answer.to_string());
        }
        assert_eq!(shown(&answer.json()), expected, "nothing is missing in the first answer");
        answer.warnings().into_iter().find(|warning| warning.contains("west")).ok_or_else(|| "no warning".to_owned())
    })
    .await;
    assert!(warned.contains("its last known state is shown, of "), "{warned}");
    eventually(SOON, async || {
        let got = api.request(Method::GET, &format!("{LEASES}/{of_west}"), "").await;
        let is_it = got.status == StatusCode::OK && got.warnings().iter().any(|warning| warning.contains("west"));
        if is_it { Ok(()) } else { Err(got.to_string()) }
    })
    .await;
}

/// A namespace of two members, with a kind in memory and a kind in a database alone.
struct Away<'a> {
    api: Api,
    east: Api,
    server: &'a StateServer,
}

const MAPS: &str = "/api/v1/namespaces/database-away/configmaps";
const STORED: &str =
    "/apis/clusterpedia.io/v1beta1/resources/apis/coordination.k8s.io/v1/namespaces/database-away/leases";

impl Away<'_> {
    /// Makes an object of each kind in a member.
    async fn make(&self, name: &str) {
        self.east.create(MAPS, &config_map(name, json!({"app": "web"}))).await;
        let leases = MAPS.replace("/api/v1", "/apis/coordination.k8s.io/v1").replace("configmaps", "leases");
        self.east.create(&leases, &lease(name, "web")).await;
    }

    /// Memory goes on, whatever becomes of the database: a list, a search, and what watches of both tell.
    async fn memory_goes_on(&self, made: &str) {
        let searched = format!("/apis/clusterpedia.io/v1beta1/resources{MAPS}?labelSelector=app%3Dweb");
        let from = self.api.get(&searched).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let mut watches = Vec::new();
        for watched in [format!("{MAPS}?labelSelector=app%3Dweb"), searched.clone()] {
            watches.push(self.api.watch(&format!("{watched}&watch=true&resourceVersion={from}")).await);
        }
        self.make(made).await;
        for watch in &mut watches {
            let event = watch.next(SOON).await.expect("an event");
            assert!(name(&event["object"]).starts_with(made), "{event}");
        }
        assert!(names_of(&self.api.get(&searched).await).contains(&made.to_owned()));
        assert!(names_of(&self.api.get(MAPS).await).contains(&format!("{made}@east")));
    }

    /// What the tables have, in time.
    async fn tables_have(&self, expected: &[&str]) {
        eventually(SOON, async || {
            let answer = self.api.request(Method::GET, STORED, "").await;
            if answer.status != StatusCode::OK {
                return Err(answer.to_string());
            }
            let found = names_of(&answer.json());
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

fn names_of(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    items.iter().map(|item| name(item).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_goes_on_and_tables_catch_up_while_postgresql_hangs_is_killed_or_is_full() {
    memory_goes_on_and_tables_catch_up(StateEngine::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_goes_on_and_tables_catch_up_while_mysql_hangs_is_killed_or_is_full() {
    memory_goes_on_and_tables_catch_up(StateEngine::Mysql).await;
}

async fn memory_goes_on_and_tables_catch_up(engine: StateEngine) {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    for member in bed.members() {
        namespace(member, "database-away").await;
    }
    let server = StateServer::start(engine);
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("url");
    std::fs::write(&url, server.url()).unwrap();
    let fleet = Kubefold::start_with(&file(&bed, true), &["--state-url-file", url.to_str().unwrap()]).await;
    let api = fleet.api().await;
    let away = Away { api: api.clone(), east: bed["east"].api().await, server: &server };
    away.make("a").await;
    away.tables_have(&["a"]).await;
    away.memory_goes_on("b").await;
    away.tables_have(&["a", "b"]).await;

    // It hangs: who searches the tables waits for it, and nobody else.
    away.server.pause();
    let searches = join_all((0..6).map(|_| api.request(Method::GET, STORED, "")));
    let meanwhile = async {
        away.memory_goes_on("c").await;
        // A kind that this process has not read yet does without what the tables may have of it.
        let services = api.request(Method::GET, "/api/v1/namespaces/default/services", "").await;
        assert_eq!((services.status, services.warnings()), (StatusCode::OK, Vec::new()), "{services}");
        assert_eq!(names_of(&services.json()), ["kubernetes"]);
        away.server.resume();
    };
    let (searched, ()) = futures::join!(searches, meanwhile);
    for answer in searched {
        assert_eq!(answer.status, StatusCode::OK, "{answer}");
        assert!(names_of(&answer.json()).starts_with(&["a".to_owned(), "b".to_owned()]), "{answer}");
    }
    away.tables_have(&["a", "b", "c"]).await;

    // It is killed: what the tables have cannot be said, in no view.
    away.server.kill();
    for view in ["", "/views/lenient", "/views/strict"] {
        for path in [STORED.to_owned(), STORED.replace("clusterpedia.io/v1beta1/resources/apis/", "")] {
            let answer = api.request(Method::GET, &format!("{view}{path}"), "").await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{view}{path}: {answer}");
            assert!(answer.to_string().contains("leases.coordination.k8s.io"), "{answer}");
        }
    }
    away.memory_goes_on("d").await;
    away.server.restart();
    away.tables_have(&["a", "b", "c", "d"]).await;
    assert!(fleet.log().contains(&engine.to_string()), "{}", fleet.log());
    is_full(&away).await;
}

/// No table takes a row more: who asks is told so, memory goes on, and the tables have everything once there is room.
async fn is_full(away: &Away<'_>) {
    away.server.fill();
    let placed = config_map("placed", json!({})).to_string();
    let refused = away.api.request(Method::POST, MAPS, placed).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    assert!(refused.to_string().contains("nothing was changed, since the journal cannot be written"), "{refused}");
    away.memory_goes_on("e").await;
    eventually(SOON, async || {
        let answer = away.api.request(Method::GET, STORED, "").await;
        let is_told = answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.to_string().contains("full");
        if is_told { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    away.server.make_room();
    away.tables_have(&["a", "b", "c", "d", "e"]).await;
    away.api.create(MAPS, &config_map("placed", json!({}))).await;
}
