//! Lists and watches on the wire: what clients see that kubectl does not show.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, Kubefold, Member, MemberOptions, Testbed, Watch, eventually,
    samples::{config_map, crd, create_all, key, keys, name, namespace, revision},
};

const SOON: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/listed/configmaps";
const ALL: &str = "/api/v1/configmaps";

async fn start(bed: Testbed, in_namespace: &str) -> (Testbed, Kubefold, Api) {
    for member in bed.members() {
        namespace(member, in_namespace).await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    (bed, fleet, api)
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

async fn ask(api: &Api, method: Method, path: &str, accept: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept).body(Bytes::new());
    api.send(request.unwrap()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Changes a config map in its member.
async fn relabel(member: &Member, name: &str, labels: Value) -> Value {
    let api = member.api().await;
    let mut object = api.get(&format!("{MAPS}/{name}")).await;
    object["metadata"]["labels"] = labels;
    api.request(Method::PUT, &format!("{MAPS}/{name}"), object.to_string()).await.ok()
}

async fn delete(member: &Member, name: &str) {
    member.request(Method::DELETE, &format!("{MAPS}/{name}"), "").await.ok();
}

/// Waits until the fleet's list shows something.
async fn listed(api: &Api, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(SOON, async || {
        let list = api.get(path).await;
        if wanted(&list) { Ok(list) } else { Err(list.to_string()) }
    })
    .await
}

async fn next(watch: &mut Watch) -> (String, Value) {
    let event = watch.next(SOON).await.expect("an event before the end of the watch");
    (event["type"].as_str().unwrap().to_owned(), event["object"].clone())
}

/// Every event until the stream ends.
async fn to_end(mut watch: Watch) -> Vec<Value> {
    assert_eq!(watch.status, StatusCode::OK);
    let mut events = Vec::new();
    while let Some(event) = watch.next(SOON).await {
        events.push(event);
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_one_list() {
    // Its own, since it counts what is in all namespaces.
    let bed = Testbed::start(&["east", "west", "north"], MemberOptions::default()).await;
    let (bed, _fleet, api) = start(bed, "listed").await;
    namespace(&bed["west"], "listed-b").await;
    // In storage order `-` and `.` stand before `/`, and `@` behind it.
    for member in bed.members() {
        let own = [config_map("x", json!({"l": "1"})), config_map("x-y", json!({})), config_map("x.y", json!({}))];
        create_all(&member.api().await, MAPS, &own).await;
    }
    create_all(&bed["west"].api().await, "/api/v1/namespaces/listed-b/configmaps", &[config_map("x", json!({}))]).await;
    let list = listed(&api, ALL, |list| keys(list).iter().filter(|key| key.starts_with("listed")).count() >= 10).await;
    order_and_shape(&api, &list).await;
    pages(&bed, &api, &list).await;
    revisions(&api).await;
    fallbacks(&api).await;
}

async fn order_and_shape(api: &Api, list: &Value) {
    let all = keys(list);
    let mut sorted = all.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(all, sorted, "unique, and in the order of the bytes of namespace/name");
    assert!(all.iter().position(|key| key == "listed-b/x@west") < all.iter().position(|key| key == "listed/x@east"));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    for item in list["items"].as_array().unwrap() {
        assert!(
            item.get("kind").is_none() && item.get("apiVersion").is_none(),
            "as in a kube-apiserver's list: {item}"
        );
        assert!(revision(item) <= revision(list));
    }
    // One version of an object has one revision, wherever it is read.
    let item = &list["items"].as_array().unwrap().iter().find(|item| key(item) == "listed/x@east").unwrap();
    let got = api.get(&format!("{MAPS}/x@east")).await;
    let cached = api.get(&format!("{MAPS}/x%40east?resourceVersion=0")).await;
    let mut watch = api.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dx%40east")).await;
    let (_, watched) = next(&mut watch).await;
    for object in [&got, &cached, &watched] {
        assert_eq!(revision(object), revision(item));
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    }
    let empty = get(api, "/api/v1/namespaces/nowhere/configmaps").await;
    assert!(String::from_utf8_lossy(&empty.body).contains("\"items\":[]"), "never null: {empty}");
}

async fn pages(bed: &Testbed, api: &Api, whole: &Value) {
    let total = keys(whole).len();
    let (mut seen, mut token, mut at) = (Vec::new(), String::new(), None);
    loop {
        let page = api.get(&format!("{ALL}?limit=2&continue={token}")).await;
        assert_eq!(*at.get_or_insert_with(|| revision(&page)), revision(&page), "one revision over all pages");
        seen.extend(keys(&page));
        let remaining = page["metadata"]["remainingItemCount"].as_u64();
        assert_eq!(remaining.unwrap_or_default() as usize, total - seen.len(), "{page}");
        if seen.len() == 2 {
            // What comes in between is of no concern to the pages that follow.
            create_all(&bed["west"].api().await, MAPS, &[config_map("between", json!({}))]).await;
            listed(api, MAPS, |list| keys(list).contains(&"listed/between@west".to_owned())).await;
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(seen, keys(whole));

    // With a selector nobody counts, as in a kube-apiserver.
    let page = api.get(&format!("{MAPS}?limit=1&labelSelector=l%3D1")).await;
    assert_eq!(keys(&page), ["listed/x@east"]);
    assert!(page["metadata"]["continue"].is_string() && page["metadata"].get("remainingItemCount").is_none(), "{page}");

    let garbage = get(api, &format!("{ALL}?limit=2&continue=garbage")).await;
    assert_eq!((garbage.status, &garbage.json()["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")));
    let foreign = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(get(api, &format!("/api/v1/secrets?limit=2&continue={foreign}")).await.status, StatusCode::BAD_REQUEST);
    let with_revision = get(api, &format!("{ALL}?continue={foreign}&resourceVersion=7")).await;
    assert_eq!(with_revision.status, StatusCode::BAD_REQUEST, "{with_revision}");

    // A token whose revision is no longer held: 410 with one that goes on at the newest.
    let page = api.get(&format!("{MAPS}?limit=2")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let mut aged: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    aged["rv"] = json!(12345);
    let aged = URL_SAFE_NO_PAD.encode(aged.to_string());
    let expired = get(api, &format!("{MAPS}?limit=2&continue={aged}")).await;
    assert_eq!((expired.status, &expired.json()["reason"]), (StatusCode::GONE, &json!("Expired")), "{expired}");
    let fresh = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = api.get(&format!("{MAPS}?continue={fresh}")).await;
    let both = [keys(&page), keys(&rest)].concat();
    assert_eq!(both, keys(&api.get(MAPS).await), "nothing is lost behind the fresh token");
}

async fn revisions(api: &Api) {
    let newest = api.get(MAPS).await;
    let at = revision(&newest);
    for query in ["resourceVersion=0", "resourceVersion=0&limit=500", "resourceVersion=1"] {
        assert_eq!(keys(&api.get(&format!("{MAPS}?{query}")).await), keys(&newest), "{query}");
    }
    let exact = api.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")).await;
    assert_eq!((revision(&exact), keys(&exact)), (at, keys(&newest)));
    let not_older = api.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=NotOlderThan")).await;
    assert!(revision(&not_older) >= at);
    let gone = get(api, &format!("{MAPS}?resourceVersion=1&resourceVersionMatch=Exact")).await;
    assert_eq!((gone.status, &gone.json()["reason"]), (StatusCode::GONE, &json!("Expired")));
    for path in
        [format!("{MAPS}?resourceVersion=9007199254740991"), format!("{MAPS}/x@east?resourceVersion=9007199254740991")]
    {
        let future = get(api, &path).await;
        assert_eq!(future.status, StatusCode::GATEWAY_TIMEOUT, "{future}");
        assert_eq!(future.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    }
    for path in [format!("{MAPS}?resourceVersion=x1"), format!("{MAPS}/x@east?resourceVersion=x1")] {
        let garbage = get(api, &path).await;
        assert_eq!((garbage.status, &garbage.json()["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")));
    }
}

/// What kubefold does not have it refuses in the way that makes clients fall back.
async fn fallbacks(api: &Api) {
    let protobuf_first = ask(api, Method::GET, MAPS, "application/vnd.kubernetes.protobuf,application/json").await;
    assert_eq!(protobuf_first.headers[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf");
    let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    let list = ask(api, Method::GET, MAPS, kubectl).await;
    assert_eq!((list.status, &list.json()["kind"]), (StatusCode::OK, &json!("Table")));
    for accept in ["application/cbor", "application/json;as=Table;v=v2;g=meta.k8s.io", "text/html"] {
        for path in [MAPS.to_owned(), format!("{MAPS}/x@east"), format!("{MAPS}?watch=1")] {
            let refused = ask(api, Method::GET, &path, accept).await;
            assert_eq!(refused.status, StatusCode::NOT_ACCEPTABLE, "{accept}: {refused}");
            assert_eq!(
                (&refused.json()["kind"], &refused.json()["reason"]),
                (&json!("Status"), &json!("NotAcceptable"))
            );
        }
    }
    // A kube-apiserver has no HEAD; over HTTP/2 a body in its answer would cut the connection.
    for path in [MAPS, "/api", "/version"] {
        let head = ask(api, Method::HEAD, path, "*/*").await;
        assert_eq!((head.status, head.body.len()), (StatusCode::METHOD_NOT_ALLOWED, 0), "{path}");
    }
    assert_eq!(ask(api, Method::HEAD, "/healthz", "*/*").await.status, StatusCode::OK);
    // curl asks members for indented answers no more than others do: a read changes nothing.
    let before = revision(&api.get(&format!("{MAPS}/x@east")).await);
    let curl = Request::get(format!("{MAPS}/x@east")).header(header::USER_AGENT, "curl/8.0").body(Bytes::new());
    assert_eq!(revision(&api.send(curl.unwrap()).await.unwrap().json()), before);
    assert_eq!(revision(&api.get(&format!("{MAPS}/x@east")).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_are_one_stream() {
    let (bed, _fleet, api) = start(Testbed::shared(&["east", "west"]).await, "listed").await;
    let (east, west) = (&bed["east"], &bed["west"]);
    create_all(&east.api().await, MAPS, &[config_map("a", json!({"l": "1"}))]).await;
    create_all(&west.api().await, MAPS, &[config_map("a", json!({"l": "1"}))]).await;
    listed(&api, MAPS, |list| keys(list) == ["listed/a@east", "listed/a@west"]).await;
    events_from_a_list_on(east, west, &api).await;
    beginnings(&api).await;
    selectors(east, &api).await;
    ends(&api).await;
    legacy_paths(west, &api).await;
}

async fn events_from_a_list_on(east: &Member, west: &Member, api: &Api) {
    let list = api.get(MAPS).await;
    let from = format!("{MAPS}?watch=1&resourceVersion={}", revision(&list));
    let (mut one, mut other) = (api.watch(&from).await, api.watch(&from).await);
    assert_eq!(one.status, StatusCode::OK);
    assert_eq!(one.headers[header::CONTENT_TYPE], "application/json");
    create_all(&west.api().await, MAPS, &[config_map("b", json!({}))]).await;
    relabel(east, "a", json!({"l": "2"})).await;
    relabel(west, "b", json!({"l": "2"})).await;
    delete(west, "b").await;
    let (mut seen, mut last) = (Vec::new(), revision(&list));
    for _ in 0..4 {
        let event = next(&mut one).await;
        assert_eq!(next(&mut other).await, event, "all watchers see one order");
        let (kind, object) = event;
        assert!(revision(&object) > last, "revisions rise");
        last = revision(&object);
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        seen.push((format!("{kind} {}", name(&object)), last));
    }
    let of = |member: &str| {
        seen.iter().filter(|(what, _)| what.ends_with(member)).map(|(what, _)| what.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("@west"), ["ADDED b@west", "MODIFIED b@west", "DELETED b@west"]);
    assert_eq!(of("@east"), ["MODIFIED a@east"]);
    // Every event's revision is a place to go on from.
    for (at, (_, start)) in seen.iter().enumerate() {
        let mut resumed = api.watch(&format!("{MAPS}?watch=1&resourceVersion={start}")).await;
        for (what, revision_then) in &seen[at + 1..] {
            let (kind, object) = next(&mut resumed).await;
            assert_eq!((format!("{kind} {}", name(&object)), revision(&object)), (what.clone(), *revision_then));
        }
    }
    // One version has one revision: in the event, in a get, in a list.
    let changed = seen.iter().find(|(what, _)| what == "MODIFIED a@east").unwrap().1;
    assert_eq!(revision(&api.get(&format!("{MAPS}/a@east")).await), changed);
    assert_eq!(revision(&api.get(MAPS).await["items"][0]), changed);
}

async fn beginnings(api: &Api) {
    let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in ["", "&resourceVersion=0", &format!("&{streaming}"), &format!("&{streaming}&resourceVersion=0")] {
        let mut watch = api.watch(&format!("{MAPS}?watch=1{query}")).await;
        for wanted in ["a@east", "a@west"] {
            let (kind, object) = next(&mut watch).await;
            assert_eq!((kind.as_str(), name(&object)), ("ADDED", wanted), "{query}");
        }
        if query.contains("sendInitialEvents") {
            let (kind, object) = next(&mut watch).await;
            assert_eq!(kind, "BOOKMARK");
            assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
            assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            let list =
                api.get(&format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", revision(&object))).await;
            assert_eq!(
                keys(&list),
                ["listed/a@east", "listed/a@west"],
                "what was streamed is the list of that revision"
            );
        }
    }
    for (query, word) in [("resourceVersion=1", "too old"), ("resourceVersion=9007199254740991", "too old")] {
        let events = to_end(api.watch(&format!("{MAPS}?watch=1&{query}")).await).await;
        assert_eq!(events.len(), 1, "{query}: {events:?}");
        let status = &events[0]["object"];
        assert_eq!((&events[0]["type"], &status["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("Expired")));
        assert!(status["message"].as_str().unwrap().contains(word), "{status}");
    }
    for (query, code) in [
        ("resourceVersion=x", 400),
        ("sendInitialEvents=true", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("fieldSelector=data..a%3D1", 400),
        ("labelSelector=a%20b", 400),
    ] {
        let refused = get(api, &format!("{MAPS}?watch=1&{query}")).await;
        assert_eq!(refused.status.as_u16(), code, "{query}: {refused}");
    }
}

async fn selectors(east: &Member, api: &Api) {
    let at = revision(&api.get(MAPS).await);
    let watch = async |selector: &str| api.watch(&format!("{MAPS}?watch=1&resourceVersion={at}&{selector}")).await;
    let mut in_three = watch("labelSelector=l%3D3").await;
    let mut not_three = watch("labelSelector=l!%3D3").await;
    let mut bound = watch("labelSelector=l%3D3%40east").await;
    let mut elsewhere = watch("labelSelector=kubefold.io%2Fcluster%3Dwest").await;
    relabel(east, "a", json!({"l": "3"})).await;
    relabel(east, "a", json!({"l": "3", "more": "1"})).await;
    relabel(east, "a", json!({"l": "4"})).await;
    for (watch, wanted) in
        [(&mut in_three, ["ADDED", "MODIFIED", "DELETED"]), (&mut bound, ["ADDED", "MODIFIED", "DELETED"])]
    {
        let mut labels = Vec::new();
        let mut last = at;
        for kind in wanted {
            let (seen, object) = next(watch).await;
            assert_eq!((seen.as_str(), name(&object)), (kind, "a@east"));
            assert!(revision(&object) > last, "also a deletion has a revision of its own");
            last = revision(&object);
            labels.push(object["metadata"]["labels"]["l"].clone());
        }
        assert_eq!(labels, ["3", "3", "3"], "who leaves a selector is shown as it was");
    }
    assert_eq!(next(&mut not_three).await.0, "DELETED");
    assert_eq!(next(&mut not_three).await.0, "ADDED");
    // Nothing of east came here: the first event is west's own.
    let event = tokio::time::timeout(Duration::from_millis(300), elsewhere.next(SOON)).await;
    assert!(event.is_err(), "{event:?}");
}

async fn ends(api: &Api) {
    let path = format!("{MAPS}?watch=1&resourceVersion=0&timeoutSeconds=3");
    let (quiet, marked) = tokio::join!(api.watch(&path), async {
        to_end(api.watch(&format!("{path}&allowWatchBookmarks=true")).await).await
    });
    assert_eq!(to_end(quiet).await.len(), 2, "a clean end, and no bookmark that nobody asked for");
    // Behind the initial events, as a kube-apiserver does from 0, and before the end.
    assert_eq!(marked.len(), 4, "{marked:?}");
    assert_eq!(marked[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let bookmark = &marked[3];
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
    let resumed = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={}", revision(&bookmark["object"]));
    assert_eq!(to_end(api.watch(&resumed).await).await.len(), 0, "a bookmark is a place to go on from");
}

async fn legacy_paths(west: &Member, api: &Api) {
    let events = to_end(api.watch("/api/v1/watch/namespaces/listed/configmaps?timeoutSeconds=1").await).await;
    assert_eq!(events.len(), 2);
    let mut one = api.watch("/api/v1/watch/namespaces/listed/configmaps/a@west").await;
    let (kind, object) = next(&mut one).await;
    assert_eq!((kind.as_str(), name(&object)), ("ADDED", "a@west"));
    delete(west, "a").await;
    let (kind, object) = next(&mut one).await;
    assert_eq!((kind.as_str(), name(&object)), ("DELETED", "a@west"));
    let events = to_end(api.watch("/api/v1/watch/namespaces?timeoutSeconds=1").await).await;
    assert!(events.iter().any(|event| name(&event["object"]) == "listed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_bear_their_kind_everywhere() {
    let (bed, _fleet, api) = start(Testbed::shared(&["east"]).await, "customs").await;
    let east = bed["east"].api().await;
    east.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("Custom")).await;
    let path = "/apis/e2e.kubefold.io/v1/namespaces/customs/customs";
    let custom = json!({"apiVersion": "e2e.kubefold.io/v1", "kind": "Custom", "metadata": {"name": "cog"}});
    eventually(SOON, async || {
        let made = east.request(Method::POST, path, custom.to_string()).await;
        if made.status == StatusCode::CREATED { Ok(()) } else { Err(made) }
    })
    .await;
    let list = eventually(SOON, async || {
        let answer = get(&api, path).await;
        if answer.status == StatusCode::OK { Ok(answer.json()) } else { Err(answer) }
    })
    .await;
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("CustomList"), &json!("Custom")));
    let of_member = east.get(path).await;
    assert_eq!(list["items"][0]["apiVersion"], of_member["items"][0]["apiVersion"]);
    assert_eq!(list["items"][0]["apiVersion"], "e2e.kubefold.io/v1");
}
