//! The endpoints controllers of all members work for one Service: its Endpoints are one object, as in one cluster.

use serde_json::json;

use super::*;
use testbed::{FleetFile, MemberOptions};

const MEMBERS: [&str; 2] = ["east", "west"];
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, selector: Value) -> Value {
    let mut spec = json!({"ports": [{"port": 80}]});
    if !selector.is_null() {
        spec["selector"] = selector;
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

/// The pods that an Endpoints object leads to: their names and UIDs.
fn targets(endpoints: &Value) -> Vec<(String, String)> {
    let subsets = endpoints["subsets"].as_array().cloned().unwrap_or_default();
    assert!(subsets.len() < 2, "the same ports are one subset: {endpoints}");
    let addresses = subsets.iter().flat_map(|subset| subset["addresses"].as_array().cloned().unwrap_or_default());
    let target = |address: Value| {
        assert!(text(&address, "/nodeName").contains('@'), "{address}");
        (text(&address, "/targetRef/name").to_owned(), text(&address, "/targetRef/uid").to_owned())
    };
    let mut all: Vec<_> = addresses.map(target).collect();
    all.sort_unstable();
    all
}

/// The ready pods of an application.
async fn pods(api: &Api, app: &str) -> Vec<(String, String)> {
    let list = api.get(&format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")).await;
    let both = |pod: &Value| (text(pod, "/metadata/name").to_owned(), text(pod, "/metadata/uid").to_owned());
    let mut all: Vec<_> = list["items"].as_array().unwrap().iter().map(both).collect();
    all.sort_unstable();
    all
}

async fn leads_to_pods(api: &Api, app: &str, count: usize) -> Value {
    eventually(PODS, async || {
        let (endpoints, pods) = (api.get(&format!("{ENDPOINTS}/{app}")).await, pods(api, app).await);
        let is_so = pods.len() == count && targets(&endpoints) == pods;
        if is_so { Ok(endpoints) } else { Err(format!("{endpoints} {pods:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_of_a_placed_service_are_one_object() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let from = api.get(ENDPOINTS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = api.watch(&format!("{ENDPOINTS}?watch=true&resourceVersion={from}")).await;

    // First the Service, without endpoints anywhere.
    api.create(SERVICES, &service("web", json!({"app": "web"}))).await;
    let empty = eventually(SOON, async || {
        let answer = api.try_request(Method::GET, &format!("{ENDPOINTS}/web"), "").await?;
        let shown = answer.json();
        let clusters = shown["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap_or_default();
        if answer.status.is_success() && clusters.split(',').count() == 2 { Ok(shown) } else { Err(answer.to_string()) }
    })
    .await;
    assert!(empty["subsets"].is_null(), "{empty}");
    assert_eq!(empty["metadata"]["labels"]["app"], "web");
    for member in bed.members() {
        let own = in_member(member, &format!("{ENDPOINTS}/web")).await.unwrap();
        assert!(own["metadata"]["labels"][MARKER].is_string(), "the controller copies labels: {own}");
        assert!(own["metadata"]["annotations"][MARKER].is_null(), "and no annotations: {own}");
    }
    assert!(!empty.to_string().contains(MARKER), "{empty}");

    fleet.kubectl(&["create", "deployment", "web", "--image=web:1", "--replicas=4"]).await.ok();
    let full = leads_to_pods(&api, "web", 4).await;
    assert_eq!(full["metadata"]["uid"], empty["metadata"]["uid"]);
    let printed = fleet.kubectl(&["get", "endpoints", "-l", "app=web", "--no-headers"]).await;
    let [row] = printed.ok().lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(row.starts_with("web "), "{row}");
    assert_eq!(full["subsets"], api.get(&format!("{ENDPOINTS}?labelSelector=app%3Dweb")).await["items"][0]["subsets"]);

    addresses_are_the_controllers_to_write(&fleet, &api, &full).await;

    // An outage and a restart change nothing.
    bed["west"].pause();
    assert_eq!(targets(&api.get(&format!("{ENDPOINTS}?labelSelector=app%3Dweb")).await["items"][0]), targets(&full));
    bed["west"].resume();
    fleet.restart().await;
    let api = fleet.api().await;
    assert_eq!(leads_to_pods(&api, "web", 4).await["metadata"]["uid"], full["metadata"]["uid"]);

    // Scaled in one member alone: the others' addresses stay.
    fleet.kubectl(&["scale", "deployment", "web", "--replicas=1"]).await.ok();
    leads_to_pods(&api, "web", 1).await;
    api.request(Method::DELETE, &format!("{SERVICES}/web"), "").await.ok();
    eventually(SOON, async || {
        let left = api.get(&format!("{ENDPOINTS}?labelSelector=app%3Dweb")).await;
        if left["items"].as_array().unwrap().is_empty() { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    // From the first to the last one name was told, in one life.
    let mut told = Vec::new();
    while told.last().is_none_or(|last: &String| last != "MODIFIED 4") {
        let event = watch.next(SOON).await.expect("the watch is open");
        assert_eq!(event["object"]["metadata"]["name"], "web", "{event}");
        told.push(format!("{} {}", text(&event, "/type"), targets(&event["object"]).len()));
    }
    assert_eq!(told[0], "ADDED 0");
    assert!(told[1..].iter().all(|event| event.starts_with("MODIFIED")), "{told:?}");
}

/// What the controllers find is theirs; everything else of the object is written as any object's.
async fn addresses_are_the_controllers_to_write(fleet: &Kubefold, api: &Api, shown: &Value) {
    let path = format!("{ENDPOINTS}/web");
    let mut changed = shown.clone();
    changed["metadata"]["resourceVersion"] = Value::Null;
    changed["subsets"] = json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]);
    let answer = api.request(Method::PUT, &path, changed.to_string()).await;
    refused(&answer, 422, "Invalid", &["subsets: Forbidden", "members ", "Service \"web\"", "/clusters/"]);
    for (media, body) in [
        ("merge", json!({"subsets": []})),
        ("json", json!([{"op": "remove", "path": "/subsets/0/addresses/0"}])),
        ("strategic", json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]})),
    ] {
        let output = fleet.kubectl(&["patch", "endpoints", "web", "--type", media, "-p", &body.to_string()]).await;
        assert!(output.refused().contains("subsets: Forbidden"), "{output}");
    }
    let taken = api.request(Method::POST, ENDPOINTS, json!({"metadata": {"name": "web"}}).to_string()).await;
    refused(&taken, 409, "AlreadyExists", &["endpoints \"web\" already exists"]);
    fleet.kubectl(&["annotate", "endpoints", "web", "note=x"]).await.ok();
    let annotated = api.get(&path).await;
    assert_eq!(annotated["metadata"]["annotations"]["note"], "x");
    assert_eq!(targets(&annotated), targets(shown));
    let of_west =
        fleet.kubectl(&["get", "endpoints", "web@west", "-o", "jsonpath={.subsets[*].addresses[*].ip}"]).await;
    assert_eq!(of_west.ok().split(' ').count(), 2, "a part can be read by its own name");
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_one_member_or_of_a_person_stay_as_they_are() {
    let bed = Testbed::shared_with_workloads(&MEMBERS).await;
    for member in bed.members() {
        testbed::samples::namespace(member, "by-hand").await;
    }
    let file = MEMBERS.iter().fold(FleetFile::default(), |file, name| file.member(&bed[name], 1));
    let fleet = Kubefold::start(&file).await;
    let api = fleet.api().await;
    let [endpoints, services] = [ENDPOINTS, SERVICES].map(|path| path.replace("default", "by-hand"));
    // A Service that a member's own user made.
    let east = bed["east"].api().await;
    east.create(&services, &service("local", json!({"app": "local"}))).await;
    eventually(SOON, async || {
        let answer = api.try_request(Method::GET, &format!("{endpoints}/local@east"), "").await?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // Without a selector a person says where it leads, and may say something else.
    api.create(&services, &service("elsewhere", Value::Null)).await;
    let by_hand = |ip: &str| {
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "elsewhere"},
            "subsets": [{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}]})
    };
    let made = api.create(&endpoints, &by_hand("192.0.2.1")).await;
    assert_eq!(made["metadata"]["name"], "elsewhere");
    let path = format!("{endpoints}/elsewhere");
    let written = api.request(Method::PUT, &path, by_hand("192.0.2.2").to_string()).await.ok();
    assert_eq!(written["subsets"][0]["addresses"][0]["ip"], "192.0.2.2");
    assert_eq!(api.get(&path).await["metadata"]["uid"], made["metadata"]["uid"]);
    api.request(Method::DELETE, &path, "").await.ok();
}
