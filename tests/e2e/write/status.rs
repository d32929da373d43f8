//! A status that a client writes is seen as it was written, until a controller corrects it.

use http::header;
use serde_json::json;

use super::*;
use testbed::{MemberOptions, samples::namespace};

const MEMBERS: [&str; 3] = ["east", "west", "north"];
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn workload(kind: &str) -> Value {
    let mut object = deployment("told", 6);
    object["kind"] = json!(kind);
    if kind == "DaemonSet" {
        object["spec"].as_object_mut().unwrap().remove("replicas");
    }
    object
}

/// A status without what is 0: Go leaves that out.
fn counters(status: &Value) -> BTreeMap<String, i64> {
    let numbers = status.as_object().unwrap().iter().filter_map(|(name, value)| Some((name.clone(), value.as_i64()?)));
    numbers.filter(|(_, number)| *number != 0).collect()
}

/// Conditions by type: status and reason.
fn conditions(status: &Value) -> BTreeMap<String, (String, String)> {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let one = |one: &Value| {
        let word = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        (word("type"), (word("status"), word("reason")))
    };
    all.iter().map(one).collect()
}

async fn patch(api: &Api, path: &str, media: &str, body: &Value) -> Answer {
    let request = http::Request::patch(path).header(header::CONTENT_TYPE, media);
    api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
}

/// Says that an answer, a read and every member show what was written: the members together.
async fn is_as_written(bed: &Testbed, api: &Api, path: &str, answer: &Value, written: &Value) {
    let read = api.get(path).await;
    for shown in [answer, &read] {
        assert_eq!(counters(&shown["status"]), counters(written), "{shown}");
        assert_eq!(conditions(&shown["status"]), conditions(written), "{shown}");
    }
    assert_eq!(answer["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
    let mut sum: BTreeMap<String, i64> = BTreeMap::new();
    for name in MEMBERS {
        let part = in_member(&bed[name], path).await.unwrap();
        for (name, number) in counters(&part["status"]) {
            assert!(number >= 0, "{part}");
            *sum.entry(name).or_default() += number;
        }
        assert_eq!(conditions(&part["status"]), conditions(written), "{part}");
    }
    assert_eq!(sum, counters(written));
}

async fn is_seen(bed: &Testbed, api: &Api, resource: &str, object: &Value, reports: [Value; 3], writes: Value) {
    let all = format!("/apis/apps/v1/namespaces/statuses/{resource}");
    let path = format!("{all}/told");
    let status = format!("{path}/status");
    api.create(&all, object).await;
    // What each member's controller said last.
    for (name, report) in MEMBERS.iter().zip(reports) {
        let member = bed[name].api().await;
        patch(&member, &status, MERGE, &json!({"status": report})).await.ok();
    }
    let first = eventually(SOON, async || {
        let shown = api.get(&path).await;
        let sum = counters(&shown["status"]).len();
        if sum > 0 && shown["status"]["observedGeneration"] == 3 { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    for written in writes.as_array().unwrap() {
        let mut whole = first.clone();
        whole["metadata"]["resourceVersion"] = Value::Null;
        whole["status"] = written.clone();
        let put = api.request(Method::PUT, &status, whole.to_string()).await.ok();
        is_as_written(bed, api, &path, &put, written).await;
    }
    let mut wanted = writes.as_array().unwrap().last().unwrap().clone();
    for (number, media) in [(2, MERGE), (5, STRATEGIC), (1, JSON_PATCH)] {
        let field = if resource == "daemonsets" { "numberReady" } else { "readyReplicas" };
        wanted[field] = json!(number);
        let body = match media {
            JSON_PATCH => json!([{"op": "replace", "path": format!("/status/{field}"), "value": number}]),
            _ => json!({"status": {field: number}}),
        };
        let told = patch(api, &status, media, &body).await.ok();
        is_as_written(bed, api, &path, &told, &wanted).await;
    }
    let conditions = json!([{"type": "StatusPatched", "status": "True"}]);
    let told = patch(api, &status, MERGE, &json!({"status": {"conditions": conditions}})).await.ok();
    wanted["conditions"] = conditions;
    is_as_written(bed, api, &path, &told, &wanted).await;
    // What no kube-apiserver takes is refused in its words.
    let body = json!({"status": {"observedGeneration": -1}});
    let refusal = patch(api, &status, MERGE, &body).await;
    refused(&refusal, 422, "Invalid", &["status.observedGeneration", "must be greater than or equal to 0"]);
    api.request(Method::DELETE, &path, "").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_seen_as_it_was_written() {
    let bed = Testbed::shared(&MEMBERS).await;
    for member in bed.members() {
        namespace(member, "statuses").await;
    }
    let fleet = Kubefold::before(bed.members()).await;
    let api = fleet.api().await;
    let available = |status: &str, reason: &str| json!([{"type": "Available", "status": status, "reason": reason}]);
    let report = |ready: i64, status: &str| {
        json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready,
            "availableReplicas": ready, "conditions": available(status, "Said")})
    };
    let written = |replicas: i64, ready: i64, status: &str| {
        json!({"observedGeneration": 3, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready,
            "availableReplicas": ready, "conditions": available(status, "Written")})
    };
    let writes = json!([written(6, 6, "True"), written(1, 0, "False"), written(0, 0, "True"), written(9, 7, "True")]);
    // The last writes leave so many available.
    let mut writes = writes;
    writes[3]["availableReplicas"] = json!(1);
    let reports = [report(2, "True"), report(0, "False"), report(1, "True")];
    is_seen(&bed, &api, "deployments", &workload("Deployment"), reports, writes).await;

    let report = |ready: i64| json!({"observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberReady": ready});
    let written = |ready: i64, desired: i64| {
        json!({"observedGeneration": 3, "currentNumberScheduled": 4, "desiredNumberScheduled": desired, "numberReady": ready,
            "numberUnavailable": 1, "conditions": [{"type": "StatusUpdate", "status": "True", "reason": "E2E"}]})
    };
    let writes = json!([written(6, 6), written(0, 1), written(7, 20)]);
    is_seen(&bed, &api, "daemonsets", &workload("DaemonSet"), [report(2), report(0), report(1)], writes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_told_before_controllers_correct_it() {
    let bed = Testbed::start(&MEMBERS, MemberOptions::with_workloads(1)).await;
    let fleet = Kubefold::before(bed.members()).await;
    let (api, path) = (fleet.api().await, format!("{DEPLOYMENTS}/told"));
    api.create(DEPLOYMENTS, &deployment("told", 3)).await;
    let is_ready = |shown: &Value| shown["status"]["readyReplicas"] == 3 && shown["status"]["observedGeneration"] == 3;
    let shown = eventually(PODS, async || {
        let shown = api.get(&path).await;
        if is_ready(&shown) { Ok(shown) } else { Err(shown) }
    })
    .await;
    let from = text(&shown, "/metadata/resourceVersion");
    let mut watch = api.watch(&format!("{DEPLOYMENTS}?watch=true&resourceVersion={from}")).await;
    let body = json!({"status": {"readyReplicas": 0, "availableReplicas": 0}});
    let told = patch(&api, &format!("{path}/status"), STRATEGIC, &body).await.ok();
    assert_eq!((told["status"].get("readyReplicas"), &told["status"]["replicas"]), (None, &json!(3)), "{told}");
    // Everything else in the status may change meanwhile; what was written is an event with the answer's revision.
    let mut seen = false;
    loop {
        let event = watch.next(PODS).await.expect("a watch that stays open");
        let object = &event["object"];
        seen |= object["metadata"]["resourceVersion"] == told["metadata"]["resourceVersion"] && *object == told;
        if seen && is_ready(object) {
            break;
        }
    }
}
