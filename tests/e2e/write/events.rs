//! An event that was made through the fleet is listed, read and changed under the name that its recorder gave it, in both
//! groups: Kubernetes' conformance tests of events, and more.

use http::header;
use serde_json::json;

use super::*;
use testbed::samples::namespace;

const MEMBERS: [&str; 3] = ["east", "west", "north"];

/// The collection of events of a group in a namespace.
fn collection(group: &str, namespace: &str) -> String {
    let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    format!("{root}/namespaces/{namespace}/events")
}

/// An event as a client of the group makes it, about an object that is nowhere.
fn made_by(group: &str, name: &str, space: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"testevent-constant": "true"}});
    let about = json!({"kind": "Pod", "namespace": space, "name": "gone", "apiVersion": "v1"});
    let both = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "action": "Do", "reason": "Test", "type": "Normal",
        "reportingInstance": "test-node"});
    let mut event = both;
    event["metadata"] = metadata;
    let own = match group {
        "" => json!({"involvedObject": about, "message": "test", "reportingComponent": "test-controller"}),
        _ => json!({"regarding": about, "note": "test", "reportingController": "test-controller"}),
    };
    event.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    event
}

async fn patch(api: &Api, path: &str, body: &Value) -> Answer {
    let request = http::Request::patch(path).header(header::CONTENT_TYPE, "application/strategic-merge-patch+json");
    api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
}

/// The names that a list has.
async fn names(api: &Api, path: &str) -> Vec<String> {
    let list = api.get(path).await;
    list["items"].as_array().unwrap().iter().map(|one| text(one, "/metadata/name").to_owned()).collect()
}

async fn lifecycle(api: &Api, group: &str, space: &str) {
    let events = collection(group, space);
    let everywhere = events.replace(&format!("/namespaces/{space}"), "");
    let selected =
        format!("{everywhere}?labelSelector=testevent-constant%3Dtrue&fieldSelector=metadata.namespace%3D{space}");
    let path = format!("{events}/test-event");
    let made = api.create(&events, &made_by(group, "test-event", space)).await;
    assert_eq!(made["metadata"]["name"], "test-event", "{made}");
    let from = text(&made, "/metadata/resourceVersion");
    let query = format!("watch=true&resourceVersion={from}");
    let (mut watch, mut named) = (
        api.watch(&format!("{events}?{query}")).await,
        api.watch(&format!("{events}?{query}&fieldSelector=metadata.name%3Dtest-event")).await,
    );
    assert_eq!(names(api, &selected).await, ["test-event"]);
    assert_eq!(names(api, &events).await, ["test-event"]);
    let other = collection(if group.is_empty() { "events.k8s.io" } else { "" }, space);
    assert_eq!(names(api, &other).await, ["test-event"], "the other group has the same");
    let again = api.request(Method::POST, &events, made_by(group, "test-event", space).to_string()).await;
    refused(&again, 409, "AlreadyExists", &["\"test-event\" already exists"]);

    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    let patched = patch(api, &path, &series).await.ok();
    assert_eq!((&patched["metadata"]["name"], &patched["series"]["count"]), (&json!("test-event"), &json!(2)));
    let mut got = api.get(&path).await;
    assert_eq!(got, patched);
    got["series"]["count"] = json!(100);
    let put = api.request(Method::PUT, &path, got.to_string()).await.ok();
    assert_eq!((&put["metadata"]["uid"], &put["series"]["count"]), (&made["metadata"]["uid"], &json!(100)));
    let stale = api.request(Method::PUT, &path, patched.to_string()).await;
    refused(&stale, 409, "Conflict", &["the object has been modified"]);
    assert_eq!(api.get(&format!("{other}/test-event")).await["series"]["count"], 100);
    let told = api.request(Method::DELETE, &path, "").await;
    assert!(told.status.is_success(), "{told}");
    assert_eq!(names(api, &selected).await, Vec::<String>::new());
    for watch in [&mut watch, &mut named] {
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != "DELETED") {
            told.push(event(watch, "test-event").await.0);
        }
        assert_eq!(told, ["MODIFIED", "MODIFIED", "DELETED"]);
    }

    for name in ["test-event-1", "test-event-2", "test-event-3"] {
        api.create(&events, &made_by(group, name, space)).await;
    }
    assert_eq!(names(api, &selected).await.len(), 3);
    let collected = format!("{events}?labelSelector=testevent-constant%3Dtrue");
    api.request(Method::DELETE, &collected, "").await.ok();
    assert_eq!(names(api, &selected).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_its_whole_life_under_the_name_that_its_recorder_gave_it() {
    let bed = Testbed::shared(&MEMBERS).await;
    for member in bed.members() {
        for space in ["events-core", "events-newer", "events-kept"] {
            namespace(member, space).await;
        }
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    lifecycle(&api, "", "events-core").await;
    lifecycle(&api, "events.k8s.io", "events-newer").await;

    // What members' own users made is theirs, and what is about one of their objects is called after it.
    let kept = collection("", "events-kept");
    for member in bed.members() {
        let path = format!("{kept}/own");
        let own = made_by("", "own", "events-kept");
        member.request(Method::PUT, &path, own.to_string()).await;
        let mut about = made_by("", "web-0.17f0", "events-kept");
        about["involvedObject"]["name"] = json!("web-0");
        member.request(Method::PUT, &format!("{kept}/web-0.17f0"), about.to_string()).await;
    }
    let mut newer = made_by("events.k8s.io", "web-0@west.17f1", "events-kept");
    newer["regarding"]["name"] = json!("web-0@west");
    let made = api.create(&collection("events.k8s.io", "events-kept"), &newer).await;
    assert_eq!((text(&made, "/metadata/name"), text(&made, "/regarding/name")), ("web-0@west.17f1", "web-0@west"));
    api.create(&kept, &made_by("", "ours", "events-kept")).await;
    let wanted = [
        "ours",
        "own@east",
        "own@north",
        "own@west",
        "web-0@east.17f0",
        "web-0@north.17f0",
        "web-0@west.17f0",
        "web-0@west.17f1",
    ];
    let listed = async |api: &Api| {
        eventually(SOON, async || {
            let names = names(api, &kept).await;
            if names == wanted { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    };
    listed(&api).await;
    fleet.restart().await;
    let api = fleet.api().await;
    listed(&api).await;
    let by_name = format!("{kept}/web-0@west.17f1");
    let series = json!({"series": {"count": 3, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    assert_eq!(text(&patch(&api, &by_name, &series).await.ok(), "/metadata/name"), "web-0@west.17f1");
    assert_eq!(in_member(&bed["west"], &format!("{kept}/web-0.17f1")).await.unwrap()["series"]["count"], 3);
    // A shorthand of many is a conflict.
    let several = api.request(Method::GET, &format!("{kept}/web-0.17f0"), "").await;
    refused(&several, 409, "Conflict", &["web-0@east.17f0", "web-0@north.17f0"]);
    for name in wanted {
        let deleted = api.request(Method::DELETE, &format!("{kept}/{name}"), "").await;
        assert!(deleted.status.is_success(), "{name}: {deleted}");
    }
    assert_eq!(names(&api, &kept).await, Vec::<String>::new());
}
