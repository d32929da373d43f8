//! What `kubectl get` prints: kubefold's cells beside those of the member itself, for every kind and many states.

mod states;
mod views;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, Kubefold, Member, MemberOptions, Testbed, eventually,
    samples::{config_map, controlled_pod, crd, create_all, deployment, namespace},
};

const SOON: Duration = Duration::from_secs(30);
const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/e2e.kubefold.io/v1/namespaces/shop/gadgets";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Component statuses come in another order each time, and a kube-apiserver's own events have names of any length, before
/// and behind which `@east` may stand.
const OF_ANY_ORDER: [&str; 2] = ["/componentstatuses", "/events"];

/// Requests for certificates, which hold a real one.
fn requests() -> Vec<Value> {
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let request = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem);
    let one = |name: &str, seconds: Value| {
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": request, "signerName": "example.com/x", "usages": ["client auth"], "expirationSeconds": seconds}})
    };
    vec![one("short", json!(5400)), one("any", Value::Null)]
}

async fn patch(api: &Api, path: &str, body: &Value) -> Result<(), String> {
    let request = Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json");
    let answer = api.send(request.body(Bytes::from(body.to_string())).unwrap()).await?;
    if answer.status.is_success() { Ok(()) } else { Err(format!("{path} {body}: {answer}")) }
}

async fn put(api: &Api, path: &str, object: &Value) -> Result<(), String> {
    let mut bare = object.clone();
    let status = bare.as_object_mut().unwrap().remove("status");
    let made = api.request(Method::POST, path, bare.to_string()).await;
    if !made.status.is_success() {
        return Err(format!("{path}: {made}"));
    }
    let name = object["metadata"]["name"].as_str().unwrap();
    if let Some(status) = status.filter(|status| status.as_object().is_some_and(|status| !status.is_empty())) {
        patch(api, &format!("{path}/{name}/status"), &json!({"status": status})).await?;
    }
    if object["metadata"]["finalizers"].is_array() {
        api.request(Method::DELETE, &format!("{path}/{name}"), "").await.ok();
    }
    Ok(())
}

async fn ask(api: &Api, path: &str, accept: &str) -> Answer {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Bytes::new()).unwrap();
    api.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Takes kubefold's own column out of a table, which is asserted to stand second, and the member out of names.
fn without_cluster(mut table: Value) -> Value {
    if let Some(columns) = table["columnDefinitions"].as_array_mut() {
        let cluster = columns.remove(1);
        assert_eq!((cluster["name"].as_str(), cluster["type"].as_str()), (Some("Cluster"), Some("string")));
        assert_eq!(cluster["priority"], 0);
    }
    // Of kinds without a printer of their own a list without objects has no rows at all.
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        let cluster = row["cells"].as_array_mut().unwrap().remove(1);
        assert!(["east", ""].contains(&cluster.as_str().unwrap()), "{row}");
    }
    plain(&table)
}

/// A value without what the fleet view may change.
fn plain(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(text.replace("@east", "")),
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Object(all) => {
            let kept = all.iter().filter(|(key, _)| {
                !key.starts_with("kubefold.io/")
                    && !["resourceVersion", "continue", "managedFields"].contains(&key.as_str())
            });
            let entries = kept.map(|(key, value)| (key.clone(), plain(value)));
            let entries: serde_json::Map<String, Value> =
                entries.filter(|(key, value)| key != "annotations" || *value != json!({})).collect();
            Value::Object(entries)
        }
        other => other.clone(),
    }
}

/// Asks both until they agree: an age may pass a second in between.
async fn agree(theirs: &Api, ours: &Api, path: &str, our_path: &str, accept: &str) {
    eventually(SOON, async || {
        let (theirs, ours) = tokio::join!(ask(theirs, path, accept), ask(ours, our_path, accept));
        if ours.status != theirs.status {
            return Err(format!("{path}: {ours}\nand the member: {theirs}"));
        }
        assert_eq!(ours.headers.get(header::CONTENT_TYPE), theirs.headers.get(header::CONTENT_TYPE), "{path}");
        if !ours.status.is_success() {
            let message = |answer: &Answer| (answer.json()["message"].clone(), answer.json()["reason"].clone());
            assert_eq!(message(&ours), message(&theirs), "{path}");
            return Ok(());
        }
        let (mut ours, mut theirs) = (without_cluster(ours.json()), plain(&theirs.json()));
        if OF_ANY_ORDER.iter().any(|of| path.contains(of)) {
            for table in [&mut ours, &mut theirs] {
                let name = |row: &Value| ["namespace", "name"].map(|part| row["object"]["metadata"][part].to_string());
                table["rows"].as_array_mut().into_iter().for_each(|rows| rows.sort_by_cached_key(name));
            }
        }
        for (at, row) in theirs["rows"].as_array().into_iter().flatten().enumerate() {
            if ours["rows"][at] != *row {
                return Err(format!("{path}: {}\nand the member: {row}", ours["rows"][at]));
            }
        }
        if ours == theirs { Ok(()) } else { Err(format!("{path}: {ours}\nand the member: {theirs}")) }
    })
    .await;
}

/// Every collection that a server lists, over all namespaces.
async fn collections(api: &Api) -> BTreeSet<String> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in api.get("/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut paths = BTreeSet::new();
    for version in versions {
        let answer = api.request(Method::GET, &version, "").await;
        if !answer.status.is_success() {
            continue;
        }
        for resource in answer.json()["resources"].as_array().unwrap() {
            let (name, verbs) = (resource["name"].as_str().unwrap(), resource["verbs"].to_string());
            if !name.contains('/') && verbs.contains("\"list\"") {
                paths.insert(format!("{version}/{name}"));
            }
        }
    }
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_prints_the_cells_of_its_member() {
    let options =
        MemberOptions { apiserver_args: vec!["--runtime-config=api/all=true".to_owned()], ..MemberOptions::default() };
    let east = Member::start("east", options).await;
    namespace(&east, "shop").await;
    namespace(&east, "calm").await;
    let theirs = east.api().await;
    let mut refused = Vec::new();
    for (path, object) in states::all() {
        refused.extend(put(&theirs, &path, &object).await.err());
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let fleet = Kubefold::before(std::slice::from_ref(&east)).await;
    let ours = fleet.api().await;
    let paths = collections(&theirs).await;
    assert!(paths.len() > 70, "{paths:?}");
    let mut wrong = Vec::new();
    for path in paths.iter().flat_map(|path| [path.clone(), format!("{path}?includeObject=Object")]) {
        let both = std::panic::AssertUnwindSafe(agree(&theirs, &ours, &path, &path, TABLE));
        if futures::FutureExt::catch_unwind(both).await.is_err() {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // As bytes: what is special in HTML is escaped.
    let raw = ask(&ours, "/api/v1/namespaces/shop/pods?limit=1", TABLE).await;
    assert!(String::from_utf8_lossy(&raw.body).contains("\"\\u003cnone\\u003e\""), "{raw}");
}

/// A member that is shared, with a namespace of the test's own, and a kubefold before it.
async fn one_member(of: &str) -> (Testbed, Kubefold, Api, Api) {
    let bed = Testbed::shared(&["east"]).await;
    namespace(&bed["east"], of).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (theirs, ours) = (bed["east"].api().await, fleet.api().await);
    (bed, fleet, theirs, ours)
}

fn table_of(version: &str) -> String {
    format!("application/json;as=Table;v={version};g=meta.k8s.io")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_takes_every_form_that_a_member_gives_it() {
    let (_bed, _fleet, theirs, ours) = one_member("tables").await;
    let maps = "/api/v1/namespaces/tables/configmaps";
    let objects: Vec<Value> =
        (0..5).map(|at| config_map(&format!("map-{at}"), json!({"app": "web", "at": at.to_string()}))).collect();
    create_all(&theirs, maps, &objects).await;
    let queries = [
        "",
        "?includeObject=None",
        "?includeObject=Metadata",
        "?includeObject=Object",
        "?includeObject=Everything",
        "?limit=2",
        "?labelSelector=at%3D3",
        "?labelSelector=none%3Dsuch",
        "?resourceVersion=0",
    ];
    for version in ["v1", "v1beta1"] {
        for query in queries {
            agree(&theirs, &ours, &format!("{maps}{query}"), &format!("{maps}{query}"), &table_of(version)).await;
        }
        for query in ["", "?includeObject=None", "?includeObject=Object", "?includeObject=Everything"] {
            let (of_member, of_fleet) = (format!("{maps}/map-1{query}"), format!("{maps}/map-1%40east{query}"));
            agree(&theirs, &ours, &of_member, &of_fleet, &table_of(version)).await;
        }
    }
    agree(&theirs, &ours, maps, maps, &table_of("v1alpha1")).await;
    agree(&theirs, &ours, maps, maps, &format!("{},application/json", table_of("v1"))).await;
    // A list's own metadata is the fleet's.
    let page = ask(&ours, &format!("{maps}?limit=2"), TABLE).await.ok();
    assert_eq!(page["metadata"]["remainingItemCount"], 3, "{page}");
    let next = page["metadata"]["continue"].as_str().unwrap();
    let rest = ask(&ours, &format!("{maps}?limit=9&continue={next}"), TABLE).await.ok();
    assert_eq!(rest["rows"].as_array().unwrap().len(), 3);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    // YAML is an encoding of it like JSON.
    let yaml = ask(&ours, &format!("{maps}/map-1%40east"), "application/yaml;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(yaml.headers[header::CONTENT_TYPE], "application/yaml");
    assert!(String::from_utf8_lossy(&yaml.body).contains("\n      name: map-1@east\n"), "{yaml}");
    let missing = ask(&ours, &format!("{maps}/none%40east"), TABLE).await;
    assert_eq!((missing.status, missing.json()["kind"].clone()), (StatusCode::NOT_FOUND, json!("Status")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_each_event_as_a_table_of_one_row() {
    let (_bed, _fleet, theirs, ours) = one_member("rows").await;
    let maps = "/api/v1/namespaces/rows/configmaps";
    create_all(&theirs, maps, &[config_map("first", json!({}))]).await;
    let query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=20";
    let path = format!("{maps}?{query}&fieldSelector=metadata.name%21%3Dkube-root-ca.crt");
    let (mut member, mut fleet) = tokio::join!(theirs.watch_as(&path, TABLE), ours.watch_as(&path, TABLE));
    assert_eq!(fleet.headers[header::CONTENT_TYPE], member.headers[header::CONTENT_TYPE]);
    let mut seen = Vec::new();
    for step in 0..4 {
        match step {
            2 => create_all(&theirs, maps, &[config_map("second", json!({}))]).await,
            3 => drop(theirs.request(Method::DELETE, &format!("{maps}/second"), "").await.ok()),
            _ => {}
        }
        let (theirs, ours) = (member.next(SOON).await.unwrap(), fleet.next(SOON).await.unwrap());
        assert_eq!(ours["type"], theirs["type"]);
        let object = &ours["object"];
        assert_eq!((object["kind"].as_str(), object["apiVersion"].as_str()), (Some("Table"), Some("meta.k8s.io/v1")));
        assert_eq!(object["metadata"]["resourceVersion"], object["rows"][0]["object"]["metadata"]["resourceVersion"]);
        assert_eq!(ours["object"]["columnDefinitions"].is_null(), theirs["object"]["columnDefinitions"].is_null());
        let (ours, theirs) = (without_cluster(object.clone()), plain(&theirs["object"]));
        assert_eq!(ours["columnDefinitions"], theirs["columnDefinitions"]);
        let cell = |table: &Value, at: usize| table["rows"][0]["cells"][at].clone();
        assert_eq!((cell(&ours, 0), cell(&ours, 1)), (cell(&theirs, 0), cell(&theirs, 1)), "{ours}\n{theirs}");
        let annotations = |table: &Value| table["rows"][0]["object"]["metadata"]["annotations"].clone();
        assert_eq!(annotations(&ours), annotations(&theirs));
        seen.push(cell(&ours, 0));
    }
    assert_eq!(seen, [json!("first"), json!(""), json!("second"), json!("second")]);
    let bad = ask(&ours, &format!("{maps}?watch=true&includeObject=x&timeoutSeconds=1"), TABLE).await;
    let of_member = ask(&theirs, &format!("{maps}?watch=true&includeObject=x&timeoutSeconds=1"), TABLE).await;
    assert_eq!((bad.status, bad.json()["message"].clone()), (of_member.status, of_member.json()["message"].clone()));
}

fn columns() -> Value {
    json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large <it> is"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio", "format": "double"},
        {"name": "Whole", "type": "number", "jsonPath": ".spec.size"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
        {"name": "Text", "type": "string", "jsonPath": ".spec.text", "priority": 1},
        {"name": "Number", "type": "string", "jsonPath": ".spec.ratio"},
        {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
        {"name": "List", "type": "string", "jsonPath": ".spec.list[*].name"},
        {"name": "Last", "type": "string", "jsonPath": ".spec.list[-1:].name"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Label", "type": "string", "jsonPath": ".metadata.labels.example\\.com/tier"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.text"},
        {"name": "Null", "type": "string", "jsonPath": ".spec.null"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

fn gauge(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Gauge", "metadata": {"name": name, "labels": {"example.com/tier": "gold"}},
        "spec": spec, "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_print_the_columns_of_their_definition() {
    let (_bed, _fleet, theirs, ours) = one_member("gauges").await;
    let gauges = "/apis/e2e.kubefold.io/v1/namespaces/gauges/gauges";
    let mut definition = crd("Gauge");
    theirs.create(DEFINITIONS, &definition).await;
    eventually(SOON, async || {
        let served = theirs.request(Method::GET, gauges, "").await;
        if served.status.is_success() { Ok(()) } else { Err(served) }
    })
    .await;
    let list = json!([{"name": "a"}, {"name": "b"}]);
    let full = json!({"size": 5, "ratio": 1.5, "on": true, "text": "a \"<b>\"", "map": {"b": 1, "a": ["<", null]}, "list": list,
        "when": "2021-03-04T05:06:07Z", "null": null});
    let odd = json!({"size": 2.75, "ratio": 1e30, "on": "yes", "text": 7, "map": true, "list": [], "when": "never"});
    create_all(&theirs, gauges, &[gauge("full", full), gauge("odd", odd), gauge("empty", json!({}))]).await;
    // Without columns of its own: its age.
    agree(&theirs, &ours, gauges, gauges, TABLE).await;
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns();
    let path = format!("{DEFINITIONS}/gauges.e2e.kubefold.io");
    patch(&theirs, &path, &json!({"spec": {"versions": definition["spec"]["versions"]}})).await.unwrap();
    eventually(SOON, async || {
        let table = ask(&theirs, gauges, TABLE).await;
        // While its storage is made anew a kube-apiserver answers 429.
        let columns = table.json()["columnDefinitions"].as_array().map_or(0, Vec::len);
        if columns == 16 { Ok(()) } else { Err(table) }
    })
    .await;
    agree(&theirs, &ours, gauges, gauges, TABLE).await;
    let (of_member, of_fleet) = (format!("{gauges}/full"), format!("{gauges}/full%40east"));
    agree(&theirs, &ours, &of_member, &of_fleet, TABLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_where_things_are() {
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    for member in bed.members() {
        namespace(member, "shop").await;
        let api = member.api().await;
        create_all(&api, "/api/v1/namespaces/shop/pods", &[controlled_pod("web-0", "web")]).await;
        create_all(&api, "/apis/apps/v1/namespaces/shop/deployments", &[deployment("web", 2)]).await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows = |text: &str| text.lines().map(words).collect::<Vec<_>>();
    let pods = rows(fleet.kubectl(&["get", "pods", "-n", "shop"]).await.ok());
    assert_eq!(pods[0], ["NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"]);
    let firsts: Vec<[&str; 4]> = pods[1..].iter().map(|row| [0, 1, 2, 3].map(|at| row[at].as_str())).collect();
    let of = |name: &'static str, member| [name, member, "0/1", "Pending"];
    assert_eq!(firsts, [of("web-0@east", "east"), of("web-0@north", "north"), of("web-0@west", "west")]);
    let wide = rows(fleet.kubectl(&["get", "pods", "-A", "-o", "wide"]).await.ok());
    assert_eq!(wide[0][..4], ["NAMESPACE", "NAME", "CLUSTER", "READY"]);
    assert!(wide[0].join(" ").ends_with("NOMINATED NODE READINESS GATES"), "{wide:?}");
    let all = fleet.kubectl(&["get", "all", "-A"]).await;
    assert!(all.ok().contains("deployment.apps/web@west") && all.ok().contains("pod/web-0@east"), "{}", all.stdout);
    let namespaces = rows(fleet.kubectl(&["get", "namespace", "shop"]).await.ok());
    assert_eq!(namespaces[1][..3], ["shop", "east,west,north", "Active"]);
    let one = rows(fleet.kubectl(&["get", "deployment", "web@west", "-n", "shop"]).await.ok());
    assert_eq!(one[1][..3], ["web@west", "west", "0/2"]);
    fleet.kubectl(&["create", "configmap", "settings", "-n", "shop", "--from-literal=a=1"]).await.ok();
    let maps = rows(fleet.kubectl(&["get", "configmap", "settings", "-n", "shop"]).await.ok());
    let clusters: BTreeSet<&str> = maps[1][1].split(',').collect();
    assert_eq!((maps[1][0].as_str(), clusters), ("settings", BTreeSet::from(["east", "north", "west"])));
    // Whoever is unknown is left out of a table, which says so.
    bed["west"].kill();
    fleet.restart_without_mirror().await;
    let partial = fleet.kubectl(&["get", "pods", "-n", "shop"]).await;
    let partial_rows = rows(partial.ok());
    assert_eq!(partial_rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["CLUSTER", "east", "north"]);
    assert!(partial.stderr.contains("pods of member west have not been read"), "{}", partial.stderr);
    let json = fleet.kubectl(&["get", "pods", "-n", "shop", "-o", "json"]).await;
    assert!(json.refused().contains("west"), "{}", json.stderr);
}
