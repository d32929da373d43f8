//! Searches over real members: the examples of Clusterpedia's documentation with the real kubectl, what it does wrong, and who
//! may find what.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::Instant,
};

use testbed::{
    Api, FleetFile, Kubectl, Kubefold, Member, Output, Relay, Testbed, Watch, eventually,
    samples::{config_map, create_all, deployment, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(60);
const ROOT: &str = "/apis/clusterpedia.io/v1beta1";

fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn pod(name: &str, image: &str, owner: Option<&Value>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": {"test.io": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": image}, {"name": "side", "image": "proxy:2"},
        ]},
    });
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] = reference(owner);
    }
    pod
}

fn reference(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true,
    }])
}

/// A Deployment `web` with its ReplicaSet `web-1` and two pods, and a pod of nobody.
async fn fill(member: &Member, space: &str) {
    namespace(member, space).await;
    let api = member.api().await;
    let apps = format!("/apis/apps/v1/namespaces/{space}");
    let mut web = api.create(&format!("{apps}/deployments"), &deployment("web", 2)).await;
    (web["apiVersion"], web["kind"]) = (json!("apps/v1"), json!("Deployment"));
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "ownerReferences": reference(&web)},
        "spec": {"replicas": 2, "selector": web["spec"]["selector"], "template": web["spec"]["template"]},
    });
    let mut set = api.create(&format!("{apps}/replicasets"), &set).await;
    (set["apiVersion"], set["kind"]) = (json!("apps/v1"), json!("ReplicaSet"));
    let pods = format!("/api/v1/namespaces/{space}/pods");
    let image = if member.name() == "east" { "nginx:1.19" } else { "nginx:1.20" };
    let all = [pod("web-1-a", image, Some(&set)), pod("web-1-b", image, Some(&set)), pod("lone", "main:1", None)];
    create_all(&api, &pods, &all).await;
}

struct World {
    bed: Testbed,
    fleet: Kubefold,
    space: &'static str,
}

impl World {
    async fn new(space: &'static str, settings: &str) -> Self {
        let bed = Testbed::shared(&["east", "west"]).await;
        let mut file = FleetFile::default().settings(settings);
        for member in bed.members() {
            fill(member, space).await;
            file = file.member(member, 1);
        }
        Self { fleet: Kubefold::start(&file).await, bed, space }
    }

    /// kubectl as Clusterpedia's script sets it up: a cluster whose server is below its path.
    async fn kubectl(&self, cluster: &str, args: &[&str]) -> Output {
        self.kubectl_of(&self.fleet.as_admin(), cluster, args).await
    }

    async fn kubectl_of(&self, kubectl: &Kubectl, cluster: &str, args: &[&str]) -> Output {
        let cluster = if cluster.is_empty() { String::new() } else { format!("/clusters/{cluster}") };
        let server = format!("--server=https://{}{ROOT}/resources{cluster}", self.fleet.addr());
        kubectl.in_namespace(self.space).run(&[&[server.as_str()], args].concat()).await
    }

    async fn get(&self, path: &str) -> Value {
        self.fleet.api().await.get(&format!("{ROOT}/{path}")).await
    }

    fn pods(&self) -> String {
        format!("resources/api/v1/namespaces/{}/pods", self.space)
    }
}

/// `east/web-1-a`, in the order of a list.
fn found(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let cluster = |item: &Value| {
        item["metadata"]["annotations"]["shadow.clusterpedia.io/cluster-name"].as_str().map(str::to_owned)
    };
    items.iter().map(|item| format!("{}/{}", cluster(item).unwrap_or_default(), name(item))).collect()
}

/// The first two columns of a table without its head: name and cluster, or namespace and name.
fn rows(said: &Output) -> BTreeSet<String> {
    let lines = said.ok().lines().skip(1);
    let columns = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    lines.map(columns).collect()
}

fn set(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_clusterpedias_documentation_work_with_kubectl() {
    let world = World::new("search-kubectl", "").await;
    let all = set(&["lone east", "lone west", "web-1-a east", "web-1-a west", "web-1-b east", "web-1-b west"]);
    let said = world.kubectl("", &["get", "pods"]).await;
    assert_eq!(rows(&said), all);
    assert!(said.stdout.starts_with("NAME") && said.stdout.contains("CLUSTER"), "{said}");
    let said = world.kubectl("", &["api-resources"]).await;
    assert!(
        said.holds("deployments").is_ok() && said.holds("deploy ").is_ok() && !said.stdout.contains("tokenreviews"),
        "{said}"
    );
    let said = world.kubectl("east", &["api-resources"]).await;
    assert!(said.holds("pods").is_ok(), "{said}");
    let web = |one: &str| set(&[&format!("web {one}")]);
    for (args, expected) in [
        (
            &["get", "deployments", "-l", "search.clusterpedia.io/clusters in (east,west)"][..],
            set(&["web east", "web west"]),
        ),
        (&["get", "deployments", "-l", "search.clusterpedia.io/clusters=east"], web("east")),
        (&["get", "deploy", "-l", "search.clusterpedia.io/clusters!=east"], web("west")),
        (&["get", "pods", "-l", "search.clusterpedia.io/names in (lone,none)"], set(&["lone east", "lone west"])),
        (
            &["get", "pods", "-l", "internalstorage.clusterpedia.io/fuzzy-name=1-A"],
            set(&["web-1-a east", "web-1-a west"]),
        ),
        (
            &["get", "pods", "--field-selector=spec.containers[].image == nginx:1.19"],
            set(&["web-1-a east", "web-1-b east"]),
        ),
        (
            &["get", "pods", "--field-selector=.spec.containers[0].image notin (nginx:1.19,nginx:1.20)"],
            set(&["lone east", "lone west"]),
        ),
        (
            &["get", "pods", "--field-selector=metadata.annotations['test.io'] in (lone,x)"],
            set(&["lone east", "lone west"]),
        ),
        (&["get", "pods", "--field-selector=spec['nodeName']!=n1,!status.podIP", "-l", "app=web,!gone"], all.clone()),
        (
            &["get", "pods", "-l", "search.clusterpedia.io/since=2h", "--field-selector=metadata.name=lone"],
            set(&["lone east", "lone west"]),
        ),
        (&["get", "pods", "-l", "search.clusterpedia.io/before=2020-01-01"], set(&[])),
    ] {
        let said = world.kubectl("", args).await;
        assert_eq!(rows(&said), expected, "{args:?}: {said}");
    }
    in_order(&world).await;
    of_one_cluster(&world).await;
    of_an_owner(&world).await;
    let space = format!("search.clusterpedia.io/namespaces in ({}, kube-public)", world.space);
    let said = world.kubectl("", &["get", "deployments", "-A", "-l", &space]).await;
    assert_eq!(rows(&said), set(&[&format!("{} web", world.space)]), "{said}");
    let said = world.kubectl("", &["delete", "pod", "lone"]).await;
    assert!(!said.succeeded(), "{said}");
    let said = world.kubectl("", &["get", "pod", "lone"]).await;
    assert!(said.refused().contains("please specify the cluster name"), "{said}");
    in_the_fleet_view(&world).await;
}

async fn in_order(world: &World) {
    let order = async |label: &str| {
        let said = world.kubectl("", &["get", "pods", "--no-headers", "-l", label]).await;
        let lines = said.ok().lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(
        order("search.clusterpedia.io/orderby in (cluster, name)").await,
        ["lone east", "web-1-a east", "web-1-b east", "lone west", "web-1-a west", "web-1-b west"]
    );
    assert_eq!(
        order("search.clusterpedia.io/orderby in (name_desc, cluster)").await,
        ["web-1-b east", "web-1-b west", "web-1-a east", "web-1-a west", "lone east", "lone west"]
    );
    assert_eq!(
        order("search.clusterpedia.io/orderby in (cluster_desc,name),search.clusterpedia.io/limit=2").await,
        ["lone west", "web-1-a west"]
    );
    let rest = order("search.clusterpedia.io/orderby in (cluster,name),search.clusterpedia.io/offset=4").await;
    assert_eq!(rest, ["web-1-a west", "web-1-b west"]);
    let said = world.kubectl("", &["get", "pods", "--chunk-size=2", "-o", "name"]).await;
    assert_eq!(said.ok().lines().count(), 6, "{said}");
}

async fn of_one_cluster(world: &World) {
    let said = world.kubectl("east", &["get", "pods"]).await;
    assert_eq!(rows(&said), set(&["lone east", "web-1-a east", "web-1-b east"]), "{said}");
    let said = world.kubectl("east", &["get", "deploy", "web"]).await;
    assert_eq!(rows(&said), set(&["web east"]), "{said}");
    let said = world.kubectl("east", &["get", "deploy", "web", "-o", "json"]).await;
    let web: Value = serde_json::from_str(said.ok()).unwrap();
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", world.space);
    let mut own = world.bed["east"].api().await.get(&path).await;
    assert_eq!(web["metadata"]["annotations"]["shadow.clusterpedia.io/cluster-name"], "east");
    // kubectl leaves out managedFields; all else is the member's own, but for what a search adds.
    for key in ["managedFields", "resourceVersion"] {
        own["metadata"].as_object_mut().unwrap().remove(key);
    }
    let mut shown = web.clone();
    shown["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    shown["metadata"]["annotations"].as_object_mut().unwrap().remove("shadow.clusterpedia.io/cluster-name");
    if own["metadata"]["annotations"].is_null() {
        shown["metadata"].as_object_mut().unwrap().remove("annotations");
    }
    assert_eq!(shown, own);
    let said = world.kubectl("east", &["get", "deploy", "none"]).await;
    assert!(said.refused().contains("NotFound") && said.stderr.contains("member east"), "{said}");
    let said = world.kubectl("north", &["get", "pods"]).await;
    assert!(!said.succeeded(), "{said}");
    for (path, field, value) in [
        ("resources/version", "major", "1"),
        ("resources/clusters/east/version", "major", "1"),
        ("resources/api", "kind", "APIVersions"),
        ("resources/apis", "kind", "APIGroupList"),
        ("resources/apis/apps", "name", "apps"),
        ("resources/clusters/east/apis/apps/v1", "groupVersion", "apps/v1"),
    ] {
        assert_eq!(world.get(path).await[field], value, "{path}");
    }
    let groups = world.get("resources/apis").await.to_string();
    assert!(groups.contains("batch") && !groups.contains("\"kubefold.io\""), "what members have: {groups}");
}

async fn of_an_owner(world: &World) {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", world.space);
    let web = world.bed["east"].api().await.get(&path).await;
    let uid = web["metadata"]["uid"].as_str().unwrap();
    let owned = set(&["web-1-a east", "web-1-b east"]);
    for label in ["search", "internalstorage"] {
        let labels = format!("{label}.clusterpedia.io/owner-uid={uid},{label}.clusterpedia.io/owner-seniority=1");
        assert_eq!(rows(&world.kubectl("east", &["get", "pods", "-l", &labels]).await), owned);
        assert_eq!(rows(&world.kubectl("", &["get", "pods", "-l", &labels]).await), owned);
    }
    let labels = "search.clusterpedia.io/owner-name=web,search.clusterpedia.io/owner-gr=deployments.apps,search.clusterpedia.io/owner-seniority=1";
    let said = world.kubectl("", &["get", "pods", "-l", labels]).await;
    assert_eq!(rows(&said), set(&["web-1-a east", "web-1-a west", "web-1-b east", "web-1-b west"]), "{said}");
    let labels = "search.clusterpedia.io/owner-name=web-1,search.clusterpedia.io/clusters=west";
    assert_eq!(rows(&world.kubectl("", &["get", "pods", "-l", labels]).await), set(&["web-1-a west", "web-1-b west"]));
    let labels = format!("search.clusterpedia.io/owner-uid={uid}");
    assert_eq!(rows(&world.kubectl("", &["get", "rs", "-l", &labels]).await), set(&["web-1 east"]));
    assert_eq!(rows(&world.kubectl("", &["get", "pods", "-l", &labels]).await), set(&[]));
}

/// The same labels, and the fleet's names.
async fn in_the_fleet_view(world: &World) {
    let fleet = world.fleet.as_admin().in_namespace(world.space);
    let args = [
        "get",
        "pods",
        "-l",
        "search.clusterpedia.io/orderby=cluster_desc,search.clusterpedia.io/names=lone",
        "-o",
        "name",
    ];
    assert_eq!(fleet.run(&args).await.ok(), "pod/lone@west\npod/lone@east\n");
    let args =
        ["get", "pods", "-l", "search.clusterpedia.io/namespaces notin (x),kubefold.io/cluster=east", "-o", "name"];
    assert_eq!(fleet.run(&args).await.ok(), "pod/lone@east\npod/web-1-a@east\npod/web-1-b@east\n");
    let said = fleet.run(&["get", "pods", "-l", "search.clusterpedia.io/colour=red"]).await;
    assert!(said.refused().contains("there is no such search parameter"), "{said}");
}

/// What Clusterpedia does wrong: `reference` peers' bugs, each as it should be.
#[tokio::test(flavor = "multi_thread")]
async fn what_clusterpedia_loses_or_ignores_is_there() {
    let world = World::new("search-bugs", "").await;
    let pods = world.pods();
    let ask = async |query: &str| world.fleet.request(Method::GET, &format!("{ROOT}/{pods}?{query}"), "").await;
    // One name in two clusters is two objects; and an operator is what it is.
    let found_by = async |query: &str| found(&world.get(&format!("{pods}?{query}")).await);
    assert_eq!(found_by("names=lone").await, ["east/lone", "west/lone"]);
    let labels = escaped(&format!("search.clusterpedia.io/namespaces notin ({})", world.space));
    assert_eq!(found_by(&format!("labelSelector={labels}")).await, [""; 0]);
    let labels = escaped("search.clusterpedia.io/names notin (lone,web-1-a)");
    assert_eq!(found_by(&format!("labelSelector={labels}")).await, ["east/web-1-b", "west/web-1-b"]);
    // An absent field is no empty text.
    assert_eq!(found_by(&format!("fieldSelector={}", escaped("spec.nodeName="))).await, [""; 0]);
    assert_eq!(found_by(&format!("fieldSelector={}", escaped("!spec.nodeName"))).await.len(), 6);
    for (query, why) in [
        ("orderby=name/**/desc", "is no field to order by"),
        ("orderby=(select%201)", "is no field to order by"),
        ("whereSQL=1%3D1", "raw SQL is not run"),
        ("fieldSelector=spec.replicas%3E3", "the operator is not understood"),
        ("continue=nonsense", "neither a token"),
        ("labelSelector=search.clusterpedia.io%2Fsice%3D1", "no such search parameter"),
    ] {
        let answer = ask(query).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {answer}");
        let status = answer.json();
        assert!(
            status["message"].as_str().unwrap().contains(why) && status["reason"] == "BadRequest",
            "{query}: {status}"
        );
    }
    let answer = ask("clusters=nowhere").await;
    assert!(found(&answer.ok()).is_empty() && answer.warnings()[0].contains("there is no member"), "{answer}");
    placed(&world).await;
    pages(&world).await;
}

/// One object of the fleet is a row in each member that has a part of it.
async fn placed(world: &World) {
    let fleet = world.fleet.as_admin().in_namespace(world.space);
    fleet.run(&["create", "configmap", "everywhere", "--from-literal=a=b"]).await.ok();
    let maps = format!("resources/api/v1/namespaces/{}/configmaps?names=everywhere", world.space);
    let list = world.get(&format!("{maps}&withRemainingCount")).await;
    assert_eq!(found(&list), ["east/everywhere", "west/everywhere"]);
    let uid = |at: usize| list["items"][at]["metadata"]["uid"].as_str().unwrap().to_owned();
    assert!(uid(0) != uid(1) && list["items"][1]["data"]["a"] == "b", "each is its member's: {list}");
    let labels = "search.clusterpedia.io/names=everywhere,search.clusterpedia.io/clusters=west";
    assert_eq!(fleet.run(&["get", "configmap", "-l", labels, "-o", "name"]).await.ok(), "configmap/everywhere\n");
}

/// Objects of earlier pages go between two pages, and none of the others is lost or given twice.
async fn pages(world: &World) {
    let pods = world.pods();
    let page = world.get(&format!("{pods}?orderby=cluster,name&limit=2&withContinue=true&withRemainingCount")).await;
    assert_eq!(found(&page), ["east/lone", "east/web-1-a"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 4);
    for gone in ["lone", "web-1-a"] {
        let said =
            world.bed["east"].kubectl(&["delete", "pod", gone, "-n", world.space, "--grace-period=0", "--force"]).await;
        assert!(said.succeeded(), "{said}");
    }
    let all = async || {
        world.get(&format!("{pods}?withRemainingCount&limit=1")).await["metadata"]["remainingItemCount"].clone()
    };
    eventually(SOON, async || match all().await {
        Value::Number(rest) if rest.as_u64() == Some(3) => Ok(()),
        other => Err(other),
    })
    .await;
    let (mut rest, mut token) = (Vec::new(), page["metadata"]["continue"].as_str().map(str::to_owned));
    while let Some(next) = token {
        let page = world.get(&format!("{pods}?orderby=cluster,name&limit=3&continue={next}")).await;
        rest.extend(found(&page));
        token = page["metadata"]["continue"].as_str().map(str::to_owned);
    }
    assert_eq!(rest, ["east/web-1-b", "west/lone", "west/web-1-a", "west/web-1-b"]);
    let page = world.get(&format!("{pods}?orderby=cluster,name&limit=1&withContinue=false")).await;
    assert!(page["metadata"]["continue"].is_null() && page["metadata"]["remainingItemCount"].is_null(), "{page}");
    let page = world.get(&format!("{pods}?orderby=cluster,name&limit=10&continue=3")).await;
    assert_eq!(found(&page), ["west/web-1-b"]);
    let wrong = world.fleet.request(Method::GET, &format!("{ROOT}/{pods}?orderby=name&continue=eyJ2IjoxfQ"), "").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_one_list_and_one_stream_of_several_kinds() {
    let settings = "collections:\n- name: mine\n  resources: [configmaps, deployments.apps]\n";
    let world = World::new("search-collections", settings).await;
    let within = format!("namespaces={}", world.space);
    let list = world.get(&format!("collectionresources/workloads?{within}&orderby=cluster,kind")).await;
    assert_eq!(
        (found(&list), &list["kind"]),
        (vec!["east/web".into(), "west/web".into()], &json!("CollectionResource"))
    );
    assert_eq!(list["resourceTypes"][0]["resource"], "deployments");
    assert_eq!(list["items"][0]["kind"], "Deployment");
    let query = format!(
        "resources=apps/replicasets,v1/pods&{within}&orderby=kind_desc,cluster,name&limit=3&withRemainingCount=true"
    );
    let wrong = world.fleet.request(Method::GET, &format!("{ROOT}/collectionresources/any?{query}"), "").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "a URL's order has a space: {wrong}");
    let query = query.replace("kind_desc", "kind%20desc");
    let list = world.get(&format!("collectionresources/any?{query}&onlyMetadata=true")).await;
    assert_eq!(found(&list), ["east/web-1", "west/web-1", "east/lone"]);
    assert_eq!(list["metadata"]["remainingItemCount"], 5);
    assert!(list["items"][2]["spec"].is_null() && list["items"][2]["kind"] == "Pod", "{list}");
    let token = list["metadata"]["continue"].as_str().unwrap();
    let list = world.get(&format!("collectionresources/any?{query}&continue={token}")).await;
    assert_eq!(found(&list), ["east/web-1-a", "east/web-1-b", "west/lone"]);
    let kubectl = world.fleet.as_admin();
    let said = kubectl.run(&["get", "collectionresources"]).await;
    assert!(
        said.holds("deployments.apps,daemonsets.apps,statefulsets.apps").is_ok() && said.holds("mine").is_ok(),
        "{said}"
    );
    let said = kubectl.run(&["get", "collectionresources", "workloads"]).await;
    assert!(said.holds("Deployment").is_ok() && said.holds("west").is_ok(), "{said}");
    for (path, code) in [
        ("collectionresources/none", StatusCode::NOT_FOUND),
        ("collectionresources/any", StatusCode::BAD_REQUEST),
        ("collectionresources/any?resources=nothings", StatusCode::BAD_REQUEST),
    ] {
        let answer = world.fleet.request(Method::GET, &format!("{ROOT}/{path}"), "").await;
        assert_eq!(answer.status, code, "{path}: {answer}");
    }
    watched(&world).await;
}

/// One stream of several kinds: in one order, and from any of its revisions on the same.
async fn watched(world: &World) {
    let api = world.fleet.api().await;
    let mine = format!("{ROOT}/collectionresources/mine?namespaces={}", world.space);
    let list = api.get(&mine).await;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{mine}&watch=true&resourceVersion={from}")).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", world.space);
    for (at, member) in ["east", "west", "east"].into_iter().enumerate() {
        world.bed[member].api().await.create(&maps, &config_map(&format!("m{at}"), json!({}))).await;
        let labels = ["label", "deployment", "web", "-n", world.space, &format!("step={at}"), "--overwrite"];
        assert!(world.bed[member].kubectl(&labels).await.succeeded());
    }
    let mut events = Vec::new();
    while events.len() < 6 {
        events.push(watch.next(SOON).await.expect("six events"));
    }
    let said = |event: &Value| {
        let object = &event["object"];
        let cluster = &object["metadata"]["annotations"]["shadow.clusterpedia.io/cluster-name"];
        let words = [&event["type"], &object["kind"], &object["metadata"]["name"], cluster];
        words.map(|word| word.as_str().unwrap_or_default().to_owned()).join(" ")
    };
    let told: BTreeSet<String> = events.iter().map(said).collect();
    let expected = [
        "ADDED ConfigMap m0 east",
        "ADDED ConfigMap m1 west",
        "ADDED ConfigMap m2 east",
        "MODIFIED Deployment web east",
        "MODIFIED Deployment web west",
    ];
    assert_eq!(told, set(&expected));
    let revisions: Vec<u64> = events.iter().map(|event| revision(&event["object"])).collect();
    assert!(revisions.is_sorted(), "{revisions:?}");
    // From the third on, the rest is told again, in the same order.
    let mut again = api.watch(&format!("{mine}&watch=true&resourceVersion={}", revisions[2])).await;
    for event in &events[3..] {
        assert_eq!(&again.next(SOON).await.expect("the rest"), event);
    }
    let set_path = format!("/apis/apps/v1/namespaces/{}/replicasets/web-1", world.space);
    let set_of_west = world.bed["west"].api().await.get(&set_path).await;
    let uid = set_of_west["metadata"]["uid"].as_str().unwrap();
    let mut watch = api.watch(&format!("{ROOT}/{}?ownerUID={uid}&watch=true", world.pods())).await;
    for pod in ["web-1-a", "web-1-b"] {
        assert_eq!(said(&watch.next(SOON).await.expect("what it controls")), format!("ADDED Pod {pod} west"));
    }
    let one = format!("{ROOT}/{}?names=lone&watch=true&resourceVersion={from}", world.pods());
    let mut watch = api.watch(&one).await;
    let said_gone =
        world.bed["west"].kubectl(&["delete", "pod", "lone", "-n", world.space, "--grace-period=0", "--force"]).await;
    assert!(said_gone.succeeded(), "{said_gone}");
    let mut last = String::new();
    while !last.starts_with("DELETED") {
        last = said(&watch.next(SOON).await.expect("a deletion"));
    }
    assert_eq!(last, "DELETED Pod lone west");
    let limited =
        format!("{ROOT}/{}?watch=true&labelSelector={}", world.pods(), escaped("search.clusterpedia.io/offset=3"));
    assert_eq!(world.fleet.request(Method::GET, &limited, "").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

/// The pods of the Deployment `web`, whichever ReplicaSet controls them.
const OWNED: &str = "ownerName=web&ownerGR=deployments.apps&ownerSeniority=1";

/// `ADDED east/web-1-a`
fn told(event: &Value) -> String {
    let metadata = &event["object"]["metadata"];
    let cluster = &metadata["annotations"]["shadow.clusterpedia.io/cluster-name"];
    let [event_type, cluster, name] =
        [&event["type"], cluster, &metadata["name"]].map(|word| word.as_str().unwrap_or_default());
    format!("{event_type} {cluster}/{name}")
}

/// Says whether a row came or went. A pod that is deleted changes before.
fn is_come_or_gone(event: &Value) -> bool {
    event["type"] != "MODIFIED"
}

/// Events until so many rows have come or gone.
async fn next(watch: &mut Watch, count: usize) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    while events.iter().filter(|event| is_come_or_gone(event)).count() < count {
        events.push(watch.next(SOON).await.unwrap_or_else(|| panic!("{count} events: {events:?}")));
    }
    events
}

/// A member's objects, changed behind kubefold's back.
struct Workloads<'a> {
    api: Api,
    member: &'a Member,
    space: &'a str,
}

impl<'a> Workloads<'a> {
    async fn of(member: &'a Member, space: &'a str) -> Self {
        Self { api: member.api().await, member, space }
    }

    fn path(&self, resource: &str) -> String {
        let group = if resource == "pods" { "api/v1" } else { "apis/apps/v1" };
        format!("/{group}/namespaces/{}/{resource}", self.space)
    }

    async fn get(&self, kind: &str, resource: &str, name: &str) -> Value {
        let mut object = self.api.get(&format!("{}/{name}", self.path(resource))).await;
        (object["apiVersion"], object["kind"]) = (json!("apps/v1"), json!(kind));
        object
    }

    /// A ReplicaSet without an owner, and a pod of it.
    async fn set_with_pod(&self, set: &str, pod_name: &str) {
        let mut made = self.get("ReplicaSet", "replicasets", "web-1").await;
        made["metadata"] = json!({"name": set});
        self.api.create(&self.path("replicasets"), &made).await;
        self.pod(set, pod_name).await;
    }

    async fn pod(&self, set: &str, name: &str) {
        let set = self.get("ReplicaSet", "replicasets", set).await;
        self.api.create(&self.path("pods"), &pod(name, "nginx:1.21", Some(&set))).await;
    }

    /// Has the Deployment `web` control a ReplicaSet.
    async fn adopt(&self, set: &str) {
        let web = self.get("Deployment", "deployments", "web").await;
        self.own(set, reference(&web)).await;
    }

    async fn own(&self, set: &str, owners: Value) {
        let patch = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": owners}]).to_string();
        let args = ["patch", "replicaset", set, "-n", self.space, "--type=json", "-p", &patch];
        self.member.kubectl(&args).await.ok();
    }

    async fn delete(&self, kind: &str, name: &str) {
        let args = ["delete", kind, name, "-n", self.space, "--grace-period=0", "--force", "--cascade=background"];
        self.member.kubectl(&args).await.ok();
    }
}

/// Rows begin and cease to match as they themselves, or whoever is above them, come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_by_owner_follows_a_rollout_and_a_members_outage() {
    const SPACE: &str = "search-owned";
    let bed = Testbed::shared(&["east", "west"]).await;
    for member in bed.members() {
        fill(member, SPACE).await;
    }
    let relay = Relay::before(&bed["west"]).await;
    let file =
        FleetFile::default().member(&bed["east"], 1).entry("west", &bed["west"].kubeconfig_through(&relay), 1, "");
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let pods = format!("{ROOT}/resources/api/v1/namespaces/{SPACE}/pods?{OWNED}");
    let mut whole = api.watch(&format!("{pods}&watch=true")).await;
    let begun: BTreeSet<String> = next(&mut whole, 4).await.iter().map(told).collect();
    assert_eq!(begun, set(&["ADDED east/web-1-a", "ADDED east/web-1-b", "ADDED west/web-1-a", "ADDED west/web-1-b"]));
    let list = api.get(&pods).await;
    let from = revision(&list);
    let mut watch = api.watch(&format!("{pods}&watch=true&resourceVersion={from}")).await;
    let (east, west) = (Workloads::of(&bed["east"], SPACE).await, Workloads::of(&bed["west"], SPACE).await);
    let mut events = Vec::new();
    let mut expect = async |expected: &[&str]| {
        let new = next(&mut watch, expected.len()).await;
        let mut rows: Vec<String> = new.iter().filter(|event| is_come_or_gone(event)).map(told).collect();
        rows.sort_unstable();
        assert_eq!(rows, expected);
        let other: Vec<Value> = next(&mut whole, expected.len()).await;
        assert_eq!(other, new, "two watches are told the same");
        events.extend(new);
    };
    // A rollout: another ReplicaSet, adopted after it has a pod, and the old one goes with its pods.
    east.set_with_pod("web-2", "web-2-a").await;
    east.adopt("web-2").await;
    expect(&["ADDED east/web-2-a"]).await;
    east.pod("web-2", "web-2-b").await;
    expect(&["ADDED east/web-2-b"]).await;
    east.delete("pod", "web-1-a").await;
    expect(&["DELETED east/web-1-a"]).await;
    east.delete("replicaset", "web-1").await;
    expect(&["DELETED east/web-1-b"]).await;
    east.delete("pod", "web-1-b").await;
    east.own("web-2", json!([])).await;
    expect(&["DELETED east/web-2-a", "DELETED east/web-2-b"]).await;
    east.adopt("web-2").await;
    expect(&["ADDED east/web-2-a", "ADDED east/web-2-b"]).await;
    // While kubefold cannot reach west, one pod is created there, another one is deleted, and the Deployment adopts a ReplicaSet.
    relay.cut().await;
    west.set_with_pod("web-2", "web-2-a").await;
    west.adopt("web-2").await;
    west.pod("web-1", "web-1-c").await;
    west.delete("pod", "web-1-a").await;
    east.pod("web-2", "web-2-c").await;
    expect(&["ADDED east/web-2-c"]).await;
    relay.restore().await;
    expect(&["ADDED west/web-1-c", "ADDED west/web-2-a", "DELETED west/web-1-a"]).await;
    // The owner itself goes; one that comes in its place is another one.
    let web = west.get("Deployment", "deployments", "web").await;
    west.delete("deployment", "web").await;
    expect(&["DELETED west/web-1-b", "DELETED west/web-1-c", "DELETED west/web-2-a"]).await;
    let again = json!({"metadata": {"name": "web"}, "spec": web["spec"]});
    west.api.create(&west.path("deployments"), &again).await;
    west.adopt("web-1").await;
    expect(&["ADDED west/web-1-b", "ADDED west/web-1-c"]).await;
    goes_on(&api, &pods, &list, &events).await;
    is_printed(&fleet, SPACE, &east).await;
}

/// From each revision that was told, the rest is told again, and all together lead from the first list to the last.
async fn goes_on(api: &Api, pods: &str, list: &Value, events: &[Value]) {
    let mut rows: BTreeSet<String> = found(list).into_iter().collect();
    for event in events {
        let event = told(event);
        let (event_type, row) = event.split_once(' ').unwrap();
        let is_new = match event_type {
            "DELETED" => rows.remove(row),
            "ADDED" => rows.insert(row.to_owned()),
            _ => rows.contains(row),
        };
        assert!(is_new, "{event} is told once");
    }
    assert_eq!(rows, found(&api.get(pods).await).into_iter().collect());
    for (at, event) in events.iter().enumerate() {
        let from = revision(&event["object"]);
        // What one change of an owner brings or takes is told again as a whole.
        if events.get(at + 1).is_some_and(|next| revision(&next["object"]) <= from + 1) {
            continue;
        }
        let rest: Vec<&Value> = events[at + 1..].iter().collect();
        let mut again = api.watch(&format!("{pods}&watch=true&resourceVersion={from}")).await;
        let told_again = next(&mut again, rest.iter().filter(|event| is_come_or_gone(event)).count()).await;
        assert_eq!(told_again.iter().collect::<Vec<_>>(), rest, "from {from} on");
    }
}

/// The same on the command line.
async fn is_printed(fleet: &Kubefold, space: &str, east: &Workloads<'_>) {
    let mut watch = tokio::process::Command::new(testbed::program())
        .args(["search", "--owner", "deployment/web", "-m", "east", "-n", space, "--watch", "--state-dir"])
        .arg(fleet.state_dir())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(SOON, lines.next_line()).await.expect("a line in time").unwrap().unwrap();
        line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(next().await, "EVENT NAMESPACE NAME CLUSTER");
    for name in ["web-2-a", "web-2-b", "web-2-c"] {
        assert_eq!(next().await, format!("ADDED {space} {name} east"));
    }
    east.own("web-2", json!([])).await;
    for name in ["web-2-a", "web-2-b", "web-2-c"] {
        assert_eq!(next().await, format!("DELETED {space} {name} east"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_finds_what_he_may_not_list() {
    let world = World::new("search-rights", "").await;
    let east = &world.bed["east"];
    let made = ["create", "role", "see", "-n", world.space, "--resource=pods", "--verb=get,list,watch"];
    east.kubectl(&made).await.ok();
    east.kubectl(&["create", "rolebinding", "see", "-n", world.space, "--role=see", "--user=ann"]).await.ok();
    let kubeconfig = world.fleet.kubeconfig_for("ann", None);
    let ann = Kubectl::new(&kubeconfig, kubeconfig.parent().unwrap());
    let said = eventually(SOON, async || {
        let said = world.kubectl_of(&ann, "", &["get", "pods"]).await;
        if said.succeeded() { Ok(said) } else { Err(said) }
    })
    .await;
    assert_eq!(rows(&said), set(&["lone east", "web-1-a east", "web-1-b east"]));
    assert!(said.stderr.contains("member west does not allow user \"ann\" to list pods"), "{said}");
    let api = Api::from_kubeconfig(&kubeconfig, None).await;
    let path = |query: &str| format!("{ROOT}/{}?{query}", world.pods());
    let page = api.get(&path("limit=1&withRemainingCount=true")).await;
    assert_eq!(page["metadata"]["remainingItemCount"], 2, "of what she sees: {page}");
    for path in [
        format!("{ROOT}/resources/api/v1/pods"),
        format!("{ROOT}/resources/apis/apps/v1/namespaces/{}/deployments", world.space),
        format!("{ROOT}/resources/clusters/west/api/v1/namespaces/{}/pods/lone", world.space),
        format!("{ROOT}/resources/clusters/west/api/v1/namespaces/{}/pods", world.space),
        format!("{ROOT}/collectionresources/workloads"),
    ] {
        let answer = api.request(Method::GET, &path, "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {answer}");
    }
    let list = api
        .get(&format!("{ROOT}/collectionresources/any?resources=pods,deployments.apps&namespaces={}", world.space))
        .await;
    assert_eq!(found(&list), ["east/lone", "east/web-1-a", "east/web-1-b"], "of what she may list");
    // Whoever may not see the owner does not find by it.
    let labels = "search.clusterpedia.io/owner-name=web,search.clusterpedia.io/owner-gr=deployments.apps,search.clusterpedia.io/owner-seniority=1";
    let said = world.kubectl_of(&ann, "", &["get", "pods", "-l", labels]).await;
    assert_eq!(rows(&said), set(&[]), "{said}");
    assert!(said.stderr.contains("may not be listed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_is_found_by_who_may_list_it() {
    let world = World::new("search-deleted", "mirror: {keepDeleted: 1h}\n").await;
    let (space, pods) = (world.space, world.pods());
    let (east, west) = (&world.bed["east"], &world.bed["west"]);
    for member in [east, west] {
        member.kubectl(&["create", "role", "see", "-n", space, "--resource=pods", "--verb=get,list,watch"]).await.ok();
    }
    east.kubectl(&["create", "rolebinding", "see", "-n", space, "--role=see", "--user=ann"]).await.ok();
    let list = async |query: &str| world.get(&format!("{pods}?deleted=true&{query}")).await;
    // From here on pods are followed.
    assert_eq!(found(&list("").await), [""; 0]);
    assert_eq!(found(&world.get(&pods).await).len(), 6);
    let mirrored = async |count: usize| {
        eventually(SOON, async || {
            let list = list("").await;
            let found = found(&list);
            if found.len() == count { Ok(list) } else { Err(format!("{found:?}")) }
        })
        .await
    };
    // Everything that there is now is in the mirror once that was written wholly after now.
    let since = Instant::now();
    eventually(SOON, async || {
        let status: Value = world.fleet.request(Method::GET, "/kubefold/v1/status", "").await.json();
        let lag = status["mirror"]["lagSeconds"].as_u64();
        let is_written = lag.is_some_and(|lag| since.elapsed() > Duration::from_secs(lag + 2));
        if is_written { Ok(()) } else { Err(status["mirror"].clone()) }
    })
    .await;
    let gone = ["delete", "pod", "-n", space, "--grace-period=0", "--force"];
    east.kubectl(&[&gone[..], &["web-1-a", "lone"]].concat()).await.ok();
    west.kubectl(&[&gone[..], &["lone"]].concat()).await.ok();
    let all = mirrored(3).await;
    assert_eq!(found(&all), ["east/lone", "west/lone", "east/web-1-a"]);
    let annotations = &all["items"][0]["metadata"]["annotations"];
    assert!(annotations["kubefold.io/deleted-at"].as_str().is_some_and(|at| at.ends_with('Z')), "{annotations}");
    assert_eq!(all["items"][0]["spec"]["containers"][0]["image"], "main:1", "as it was last");
    assert_eq!(found(&world.get(&pods).await).len(), 3, "what exists, and nothing else");
    deleted_by_query(&world).await;
    deleted_of_ann(&world).await;
    deleted_is_refused(&world).await;
    let said = world.fleet.command(&["search", "-n", space, "--deleted", "--since", "2h", "image=main:1"]).await;
    let table = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(table.lines().next().unwrap_or_default().ends_with("DELETED") && table.lines().count() == 3, "{table}");
    // Another life of kubefold knows it, too.
    world.fleet.kill9();
    world.fleet.restart().await;
    mirrored(3).await;
}

/// By a page, an owner, a field, and in a collection.
async fn deleted_by_query(world: &World) {
    let (space, pods) = (world.space, world.pods());
    let list = async |query: &str| world.get(&format!("{pods}?deleted=true&{query}")).await;
    let page = list("limit=1&withRemainingCount=true").await;
    assert_eq!((found(&page), &page["metadata"]["remainingItemCount"]), (vec!["east/lone".to_owned()], &json!(2)));
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(found(&list(&format!("continue={token}")).await), ["west/lone", "east/web-1-a"]);
    for (owner, rows) in [("web", vec!["east/web-1-a"]), ("web@east", vec!["east/web-1-a"]), ("web@west", vec![])] {
        let owned = list(&format!("ownerName={owner}&ownerGR=deployments.apps&ownerSeniority=1&since=1h")).await;
        assert_eq!(found(&owned), rows, "{owner}");
    }
    let image = format!("fieldSelector={}", escaped("spec.containers[].image in (nginx:1.19)"));
    assert_eq!(found(&list(&image).await), ["east/web-1-a"]);
    let any = format!("collectionresources/any?resources=pods,secrets&namespaces={space}&deleted=true");
    let answer = world.fleet.request(Method::GET, &format!("{ROOT}/{any}"), "").await;
    assert!(answer.warnings().iter().any(|warning| warning.contains("secrets is not kept")), "{answer}");
    assert_eq!(found(&answer.ok()).len(), 3);
}

/// Ann may list in east alone.
async fn deleted_of_ann(world: &World) {
    let pods = world.pods();
    let api = Api::from_kubeconfig(&world.fleet.kubeconfig_for("ann", None), None).await;
    let hers = eventually(SOON, async || {
        let answer =
            api.request(Method::GET, &format!("{ROOT}/{pods}?deleted=true&limit=1&withRemainingCount=true"), "").await;
        if answer.status == StatusCode::OK { Ok(answer) } else { Err(answer) }
    })
    .await;
    assert!(hers.warnings().iter().any(|warning| warning.contains("member west does not allow")), "{hers}");
    let hers = hers.ok();
    assert_eq!((found(&hers), &hers["metadata"]["remainingItemCount"]), (vec!["east/lone".to_owned()], &json!(1)));
}

async fn deleted_is_refused(world: &World) {
    let (space, pods) = (world.space, world.pods());
    for (path, why) in [
        (format!("{ROOT}/{pods}?deleted=true&watch=true"), "by a list below"),
        (format!("/api/v1/namespaces/{space}/pods?deleted=true"), "no name in the fleet view"),
        (format!("{ROOT}/resources/api/v1/secrets?deleted=true"), "secrets is not kept"),
        (format!("{ROOT}/{pods}?deleted=maybe"), "neither true nor false"),
    ] {
        let answer = world.fleet.request(Method::GET, &path, "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}: {answer}");
        assert!(answer.json()["message"].as_str().unwrap().contains(why), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubefold_search_finds_what_its_flags_say() {
    let world = World::new("search-command", "").await;
    let search = async |args: &[&str]| {
        let output = world.fleet.command(&[&["search", "-n", world.space], args].concat()).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let lines = async |args: &[&str]| {
        let (code, out, error) = search(args).await;
        assert_eq!(code, Some(0), "{args:?}: {error}");
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let space = world.space;
    let pod = |cluster: &str, name: &str| format!("{cluster}/{space}/pod/{name}");
    for (args, cluster) in [
        (&["image=nginx:1.19", "--owner", "deployment/web", "--since", "2h"][..], "east"),
        (&["--owner", "deployment/web@west"], "west"),
        (&["web", "--order-by", "cluster:desc,name", "--limit", "2"], "west"),
    ] {
        let said = lines(&[args, &["-o", "name"]].concat()).await;
        assert_eq!(said, [pod(cluster, "web-1-a"), pod(cluster, "web-1-b")], "{args:?}");
    }
    let table = lines(&["lone", "-m", "west"]).await;
    assert!(table[0].starts_with("NAMESPACE NAME CLUSTER READY STATUS"), "{table:?}");
    assert!(table.len() == 2 && table[1].starts_with(&format!("{space} lone west 0/2 Pending")), "{table:?}");
    let both = lines(&["--kind", "deploy,rs", "--order-by", "kind,cluster", "-o", "name"]).await;
    let of = |kind: &str, cluster: &str, name: &str| format!("{cluster}/{space}/{kind}/{name}");
    let expected = [
        of("deployment", "east", "web"),
        of("deployment", "west", "web"),
        of("replicaset", "east", "web-1"),
        of("replicaset", "west", "web-1"),
    ];
    assert_eq!(both, expected);
    let (_, json, _) = search(&["lone", "-m", "east", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["items"].as_array().unwrap().len(), &json["items"][0]["spec"]["containers"][0]["image"]),
        (1, &json!("main:1"))
    );
    let mut watch = tokio::process::Command::new(testbed::program())
        .args(["search", "lone", "-n", world.space, "--watch", "--state-dir"])
        .arg(world.fleet.state_dir())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(SOON, told.next_line()).await.expect("a line in time").unwrap().unwrap();
        line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(next().await, "EVENT NAMESPACE NAME CLUSTER");
    assert_eq!(next().await, format!("ADDED {space} lone east"));
    assert_eq!(next().await, format!("ADDED {space} lone west"));
    let gone = ["delete", "pod", "lone", "-n", space, "--grace-period=0", "--force"];
    world.bed["west"].kubectl(&gone).await.ok();
    let mut last = next().await;
    while last.starts_with("MODIFIED") {
        last = next().await;
    }
    assert_eq!(last, format!("DELETED {space} lone west"));
    for (args, why) in [
        (&["--kind", "nothings"][..], "no member serves a resource \"nothings\""),
        (&[".spec.replicas>3"], "the operator is not understood"),
        (&["--order-by", "colour"], "is no field to order by"),
        (&["--since", "yesterday"], "is no time"),
    ] {
        let (code, _, error) = search(args).await;
        assert!(code == Some(1) && error.contains(why) && error.lines().count() == 1, "{args:?}: {error}");
    }
}
