//! Writes with one target: what the member is asked, and what the client is told.

use http::Method;

use super::*;
use crate::write::Selected;

/// `web` in east, at the member's revision 5, as clients see it at 1000005.
fn with_native() -> (Scripted, TempDir, Process) {
    let (fleet, directory, process) = fresh();
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "own-1", "resourceVersion": "5",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "u-boss"}]},
        "spec": {"replicas": 2}
    });
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.insert("web".into(), object);
    (fleet, directory, process)
}

fn write(method: Method, subresource: &str, media: &str, body: &str) -> Request {
    let mut request = request("fieldManager=me&pretty=1", &json!({}));
    (request.method, request.name, request.subresource) = (method, "web@east".into(), subresource.into());
    (request.content_type, request.body) = (media.into(), body.to_owned().into());
    request
}

async fn ask(process: &Process, request: Request) -> Reply {
    process.writer.forward(request, "web".into(), member("east")).await
}

/// The body of the only call, as JSON.
fn sent(fleet: &Scripted) -> Value {
    let calls = std::mem::take(&mut fleet.world.lock().calls);
    let [(name, call)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((name.as_str(), call.query.as_str()), ("east", "fieldManager=me"));
    serde_json::from_slice(&call.body).unwrap()
}

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test(start_paused = true)]
async fn what_was_read_is_put_back_in_the_members_words() {
    let (fleet, _directory, process) = with_native();
    let shown = r#"{"metadata":{"name":"web@east","annotations":{"kubefold.io/cluster":"east"},"labels":{"app":"web@east"},
        "resourceVersion":"1000005","ownerReferences":[{"kind":"ConfigMap","name":"boss@east","uid":"u-boss"}]},"spec":{"n":1.0}}"#;
    let reply = ask(&process, write(Method::PUT, "", JSON, shown)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(
        sent(&fleet),
        json!({"metadata": {"name": "web", "labels": {"app": "web"}, "resourceVersion": "5",
            "ownerReferences": [{"kind": "ConfigMap", "name": "boss", "uid": "u-boss"}]}, "spec": {"n": 1.0}})
    );
    let told = parsed(&reply);
    assert_eq!(told["metadata"]["name"], "web@east");
    assert_ne!(told["metadata"]["resourceVersion"], "1000005", "of the version that it is now");
}

#[tokio::test(start_paused = true)]
async fn a_shortened_name_is_echoed() {
    let (fleet, _directory, process) = with_native();
    for name in ["web", "web@east"] {
        let body = json!({"metadata": {"name": name, "labels": {"a": name}}}).to_string();
        let mut short = write(Method::PATCH, "", MERGE, &body);
        short.name = "web".into();
        let reply = ask(&process, short).await;
        assert_eq!((reply.code.as_u16(), &parsed(&reply)["metadata"]["name"]), (200, &json!("web")));
        assert_eq!(sent(&fleet), json!({"metadata": {"name": "web", "labels": {"a": "web"}}}));
    }
    // What the client calls otherwise is another object.
    let reply = ask(&process, write(Method::PUT, "", JSON, r#"{"metadata":{"name":"web"}}"#)).await;
    assert_eq!(reply.code, 400);
    assert_eq!(message(&reply), "the name of the object (web) does not match the name on the URL (web@east)");
}

#[tokio::test(start_paused = true)]
async fn an_older_or_unknown_revision_never_passes() {
    for revision in ["1000004", "5", "7", "9007199254740991"] {
        let body = json!({"metadata": {"name": "web@east", "resourceVersion": revision}}).to_string();
        for (method, media) in [(Method::PUT, JSON), (Method::PATCH, MERGE)] {
            let (fleet, _directory, process) = with_native();
            let reply = ask(&process, write(method, "", media, &body)).await;
            assert_eq!((reply.code.as_u16(), &parsed(&reply)["reason"]), (409, &json!("Conflict")));
            assert!(message(&reply).contains("\"web@east\": the object has been modified; please apply your changes"));
            assert_eq!(sent(&fleet)["metadata"]["resourceVersion"], "1");
        }
        let (fleet, _directory, process) = with_native();
        let patch = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": revision}]).to_string();
        ask(&process, write(Method::PATCH, "", JSON_PATCH, &patch)).await;
        assert_eq!(sent(&fleet)[0]["value"], "1");
        let options = json!({"preconditions": {"resourceVersion": revision}}).to_string();
        assert_eq!(ask(&process, write(Method::DELETE, "", JSON, &options)).await.code, 409);
    }
    // None, and the zero that means none, are nobody's.
    let (fleet, _directory, process) = with_native();
    for revision in [json!(""), json!("0"), Value::Null, json!("abc")] {
        let body = json!({"metadata": {"resourceVersion": revision}});
        ask(&process, write(Method::PATCH, "", MERGE, &body.to_string())).await;
        assert_eq!(sent(&fleet), body);
    }
}

#[tokio::test(start_paused = true)]
async fn json_patches_are_read_by_their_paths() {
    let (fleet, _directory, process) = with_native();
    let cases = [
        (
            json!([{"op": "replace", "path": "/metadata/name", "value": "web@east"}]),
            json!([{"op": "replace", "path": "/metadata/name", "value": "web"}]),
        ),
        (
            json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1000005"}]),
            json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]),
        ),
        // Nothing of kubefold's reaches a member, and what it shows can be tested.
        (
            json!([{"op": "test", "path": "/metadata/annotations/kubefold.io~1cluster", "value": "east"},
                {"op": "remove", "path": "/metadata/annotations/kubefold.io~1cluster"}]),
            json!([]),
        ),
        // A kube-apiserver ignores what stands before the first slash, and takes the last of equal keys.
        (json!([{"op": "add", "path": "x/metadata/annotations/kubefold.io~1cluster", "value": "west"}]), json!([])),
        // In the fleet there always are annotations, in the member there are none yet.
        (
            json!([{"op": "add", "path": "/metadata/annotations/a", "value": "1"}]),
            json!([{"op": "test", "path": "/metadata/annotations", "value": null},
                {"op": "add", "path": "/metadata/annotations", "value": {}},
                {"op": "add", "path": "/metadata/annotations/a", "value": "1"}]),
        ),
        (
            json!([{"op": "replace", "path": "/metadata/annotations", "value": {"kubefold.io/cluster": "east", "a": "1"}}]),
            json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}]),
        ),
        (
            json!([{"op": "test", "path": "/metadata/annotations", "value": {"kubefold.io/cluster": "east"}}]),
            json!([{"op": "test", "path": "/metadata/annotations", "value": null}]),
        ),
        (
            json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": {"kind": "X", "name": "x@east", "uid": "u"}}]),
            json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": {"kind": "X", "name": "x", "uid": "u"}}]),
        ),
        (
            json!([{"op": "replace", "path": "/metadata/ownerReferences", "value": [{"name": "x@east", "uid": "u"}]}]),
            json!([{"op": "replace", "path": "/metadata/ownerReferences", "value": [{"name": "x", "uid": "u"}]}]),
        ),
        (
            json!([{"op": "replace", "path": "", "value": {"metadata": {"name": "web@east", "resourceVersion": "1000005"}}}]),
            json!([{"op": "replace", "path": "", "value": {"metadata": {"name": "web", "resourceVersion": "5"}}}]),
        ),
        (
            json!([{"op": "add", "path": "/data/x", "value": "web@east"}, {"op": "remove", "path": "/data/0"}, {"path": 1}]),
            json!([{"op": "add", "path": "/data/x", "value": "web@east"}, {"op": "remove", "path": "/data/0"}, {"path": 1}]),
        ),
    ];
    for (said, wanted) in cases {
        ask(&process, write(Method::PATCH, "", JSON_PATCH, &said.to_string())).await;
        assert_eq!(sent(&fleet), wanted, "{said}");
    }
    let twice = r#"[{"op": "test", "op": "add", "path": "/x", "path": "/metadata/labels", "value": {}, "value": {"kubefold.io/x": "", "a": "1"}}]"#;
    ask(&process, write(Method::PATCH, "", JSON_PATCH, twice)).await;
    assert_eq!(sent(&fleet), json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]));
}

#[tokio::test(start_paused = true)]
async fn owners_in_another_member_are_refused() {
    let (fleet, _directory, process) = with_native();
    let owner = json!({"kind": "X", "name": "x@west", "uid": "u"});
    let merge = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}]).to_string();
    for (media, body) in [(MERGE, merge), (JSON_PATCH, patch)] {
        let reply = ask(&process, write(Method::PATCH, "", media, &body)).await;
        assert_eq!(reply.code, 422);
        assert!(message(&reply).contains("\"x@west\": the owner is in member west"), "{}", message(&reply));
    }
    assert!(fleet.world.lock().calls.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_the_members() {
    let (fleet, _directory, process) = with_native();
    let options = json!({"preconditions": {"uid": "own-1", "resourceVersion": "1000005"}, "dryRun": ["All"]});
    let reply = ask(&process, write(Method::DELETE, "", JSON, &options.to_string())).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(sent(&fleet)["preconditions"], json!({"uid": "own-1", "resourceVersion": "5"}));
    let foreground = ask(&process, write(Method::DELETE, "", JSON, r#"{"propagationPolicy":"Foreground"}"#)).await;
    assert_eq!(parsed(&foreground)["metadata"]["name"], "web@east");
    assert!(parsed(&foreground)["metadata"]["deletionTimestamp"].is_string());
    let missing = ask(&process, write(Method::DELETE, "scale", JSON, "")).await;
    assert_ne!(missing.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_scale_bears_the_objects_name_and_revision() {
    let (fleet, _directory, process) = with_native();
    let read = process.writer.read(&write(Method::GET, "scale", JSON, ""), "web", &member("east")).await;
    let scale = parsed(&read);
    assert_eq!(
        (&scale["metadata"]["name"], &scale["metadata"]["resourceVersion"]),
        (&json!("web@east"), &json!("1000005"))
    );
    fleet.world.lock().calls.clear();
    let body = json!({"metadata": {"name": "web@east", "resourceVersion": "1000005"}, "spec": {"replicas": 3}});
    let reply = ask(&process, write(Method::PUT, "scale", JSON, &body.to_string())).await;
    let calls = fleet.world.lock().calls.clone();
    let paths: Vec<_> = calls.iter().map(|(_, call)| (call.method.as_str(), call.path.as_str())).collect();
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    assert_eq!(paths, [("PUT", format!("{path}/scale").as_str()), ("GET", path)], "the object itself is taken in");
    let put: Value = serde_json::from_slice(&calls[0].1.body).unwrap();
    assert_eq!(put["metadata"], json!({"name": "web", "resourceVersion": "5"}));
    let (scale, now) = (parsed(&reply), fleet.standing("web"));
    assert_eq!((now, scale["spec"]["replicas"].as_u64()), (pair(&[("east", 3)]), Some(3)));
    assert_ne!(scale["metadata"]["resourceVersion"], "1000005");
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_told_as_it_is() {
    for (fault, code, texts) in [
        (Fault::NotSent, 503, ["member east cannot be reached, nothing was sent", "connection refused"]),
        (Fault::LostLanded, 504, ["the outcome of patching deployments.apps \"web@east\" is unknown", "within 40 s"]),
        (Fault::LostNothing, 504, ["the outcome of patching deployments.apps \"web@east\" is unknown", "member east"]),
        (Fault::Refuse, 403, ["no", ""]),
        (Fault::Broken, 500, ["etcd: timed out", ""]),
    ] {
        let (fleet, _directory, process) = with_native();
        fleet.world.lock().faults.insert(0, fault);
        let reply = ask(&process, write(Method::PATCH, "", MERGE, r#"{"spec":{"replicas":3}}"#)).await;
        assert_eq!(reply.code.as_u16(), code, "{fault:?}");
        texts.iter().for_each(|text| assert!(message(&reply).contains(text), "{fault:?}: {}", message(&reply)));
        assert!(!reply.into_response().headers().contains_key("retry-after"));
        assert_eq!(fleet.world.lock().calls.len(), 1, "a mutation is sent once");
    }
    let (_fleet, _directory, process) = with_native();
    let odd = ask(&process, write(Method::PATCH, "", "application/x-patch", "{}")).await;
    assert_eq!((odd.code.as_u16(), message(&odd).as_str()), (415, "415: Unsupported Media Type"));
}

#[tokio::test(start_paused = true)]
async fn what_controllers_copied_stays() {
    let (fleet, _directory, process) = with_native();
    {
        let mut world = fleet.world.lock();
        let object = world.members.get_mut(&member("east")).unwrap().objects.get_mut("web").unwrap();
        object["metadata"]["annotations"] = json!({"kubefold.io/placement": "copied", "a": "1"});
    }
    // The fleet view does not show it, so that nobody can put it back.
    let body = json!({"metadata": {"annotations": {"kubefold.io/cluster": "east", "kubefold.io/placement": "forged", "b": "2"}}});
    ask(&process, write(Method::PUT, "", JSON, &body.to_string())).await;
    assert_eq!(sent(&fleet)["metadata"]["annotations"], json!({"kubefold.io/placement": "copied", "b": "2"}));
    ask(&process, write(Method::PUT, "", JSON, r#"{"metadata":{}}"#)).await;
    assert_eq!(sent(&fleet)["metadata"]["annotations"], json!({"kubefold.io/placement": "copied"}));
    // A patch leaves alone what it does not name.
    ask(&process, write(Method::PATCH, "", MERGE, &body.to_string())).await;
    assert_eq!(sent(&fleet)["metadata"]["annotations"], json!({"b": "2"}));
    let own =
        json!({"metadata": {"annotations": {"kubefold.io/cluster": "east"}, "labels": {"kubefold.io/placement": "x"}}});
    ask(&process, write(Method::PATCH, "", MERGE, &own.to_string())).await;
    assert_eq!(sent(&fleet), json!({"metadata": {}}));
}

#[tokio::test(start_paused = true)]
async fn owners_are_told_apart_by_uid_in_patches() {
    let (fleet, _directory, process) = with_native();
    let patch = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u-boss"}],
        "$setElementOrder/ownerReferences": [{"uid": "u-boss"}], "uid": "own-1"}});
    let strategic = "application/strategic-merge-patch+json";
    ask(&process, write(Method::PATCH, "", strategic, &patch.to_string())).await;
    // Of a member-local object the UID is its own in both.
    assert_eq!(sent(&fleet), patch);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_looked_after() {
    let (fleet, _directory, process) = with_native();
    let eviction = json!({"metadata": {"name": "web@east"},
        "deleteOptions": {"preconditions": {"uid": "own-1", "resourceVersion": "1000005"}}});
    let reply = ask(&process, write(Method::POST, "eviction", JSON, &eviction.to_string())).await;
    assert_eq!(reply.code, 201);
    let calls = std::mem::take(&mut fleet.world.lock().calls);
    let methods: Vec<_> = calls.iter().map(|(_, call)| call.method.as_str()).collect();
    assert_eq!(methods, ["POST", "GET"], "the store hears of it before the answer leaves");
    let body: Value = serde_json::from_slice(&calls[0].1.body).unwrap();
    assert_eq!(
        (&body["metadata"]["name"], &body["deleteOptions"]["preconditions"]["resourceVersion"]),
        (&json!("web"), &json!("5"))
    );
    // A dry run changes nothing that would have to be looked at.
    let (fleet, _directory, process) = with_native();
    let dry = json!({"metadata": {"name": "web@east"}, "deleteOptions": {"dryRun": ["All"]}}).to_string();
    ask(&process, write(Method::POST, "eviction", JSON, &dry)).await;
    assert_eq!(fleet.world.lock().calls.len(), 1);
    // Where the member cannot be asked any more the client is told.
    fleet.world.lock().faults.insert(2, Fault::NotSent);
    let reply = ask(&process, write(Method::POST, "eviction", JSON, &eviction.to_string())).await;
    assert_eq!(reply.code, 201);
    assert!(reply.warnings.values().iter().any(|said| said.to_str().unwrap().contains("could not be asked")));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_only_pod_was_evicted_still_counts_it() {
    let (fleet, _directory, process) = fresh();
    workload(&fleet);
    let gvk = Gvk::new("policy", "v1", "PodDisruptionBudget");
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    let body = json!({"apiVersion": "policy/v1", "kind": &*gvk.kind, "metadata": {"name": "budget"}, "spec": spec});
    let gvr = Gvr::new("policy", "v1", "poddisruptionbudgets");
    let made = process.writer.create(Request { gvr, gvk, ..request("", &body) }).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "default", "uid": "u-pod", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-1", "uid": "u-app-1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    });
    let evict = async |of_east: [i64; 4]| {
        for (name, [expected, healthy, desired, allowed]) in [("east", of_east), ("west", [2, 2, 1, 1])] {
            let mut world = fleet.world.lock();
            let objects = &mut world.members.get_mut(&member(name)).unwrap().objects;
            objects.get_mut("budget").unwrap()["status"] = json!({"expectedPods": expected, "currentHealthy": healthy,
                "desiredHealthy": desired, "disruptionsAllowed": allowed});
            if name == "west" {
                objects.insert("pod".into(), pod.clone());
            }
        }
        let mut request = write(Method::POST, "eviction", JSON, r#"{"metadata": {"name": "pod@west"}}"#);
        request.name = "pod@west".into();
        process.writer.forward(request, "pod".into(), member("west")).await
    };
    let reply = evict([1, 1, 0, 1]).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    // The controller of east has not seen yet what its ReplicaSet makes in the place of the pod.
    for of_east in [[1, 0, 0, 0], [0, 0, 0, 0]] {
        let reply = evict(of_east).await;
        assert_eq!(reply.code, 429, "{of_east:?}");
        assert!(message(&reply).contains("disruption budget"), "{}", message(&reply));
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_stays_in_its_member() {
    let (fleet, _directory, process) = with_native();
    let binding =
        |node: &str| json!({"metadata": {"name": "web@east"}, "target": {"kind": "Node", "name": node}}).to_string();
    let reply = ask(&process, write(Method::POST, "binding", JSON, &binding("node-0@west"))).await;
    assert_eq!(reply.code, 422);
    assert!(message(&reply).contains("\"node-0@west\": the pod is in member east"), "{}", message(&reply));
    assert!(fleet.world.lock().calls.is_empty());
    ask(&process, write(Method::POST, "binding", JSON, &binding("node-0@east"))).await;
    let body: Value = serde_json::from_slice(&fleet.world.lock().calls[0].1.body).unwrap();
    assert_eq!((&body["metadata"]["name"], &body["target"]["name"]), (&json!("web"), &json!("node-0")));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_bound_to_what_the_member_calls_so() {
    let (fleet, _directory, process) = with_native();
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p@east", "uid": "u-p"});
    ask(&process, write(Method::POST, "token", JSON, &json!({"spec": {"boundObjectRef": bound}}).to_string())).await;
    let body: Value = serde_json::from_slice(&fleet.world.lock().calls[0].1.body).unwrap();
    assert_eq!(body["spec"]["boundObjectRef"], json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u-p"}));
}

/// Member-local objects `a` to `e` of east, selected by their UIDs.
fn collection(fleet: &Scripted) -> (Request, Vec<Selected>) {
    let mut selected = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let (uid, east) = (format!("own-{name}"), member("east"));
        let object = json!({"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "5"}});
        fleet.world.lock().members.get_mut(&east).unwrap().objects.insert(name.into(), object);
        let member_local = Some((name.to_owned(), east));
        selected.push(Selected { name: format!("{name}@east"), namespace: "default".into(), uid, member_local });
    }
    let mut request = write(Method::DELETE, "", JSON, r#"{"propagationPolicy":"Background"}"#);
    (request.name, request.query) = (String::new(), "labelSelector=x".into());
    (request, selected)
}

#[tokio::test(start_paused = true)]
async fn a_collection_goes_object_by_object() {
    let (fleet, _directory, process) = fresh();
    let (request, selected) = collection(&fleet);
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.remove("a");
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.get_mut("b").unwrap()["metadata"]["uid"] =
        "reborn".into();
    let warnings = process.writer.delete_collection(request, selected).await.unwrap();
    assert_eq!(warnings.values().len(), 1, "each once");
    let world = fleet.world.lock();
    let left: Vec<_> = world.members[&member("east")].objects.keys().collect();
    assert_eq!(left, ["b"], "what is gone is gone, and what has the name since is another object");
    for (_, call) in &world.calls {
        let options: Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!((&options["propagationPolicy"], call.query.as_str()), (&json!("Background"), ""));
        assert!(options["preconditions"]["uid"].as_str().unwrap().starts_with("own-"));
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_collection_is_told() {
    for (fault, code) in [(Fault::Refuse, 403), (Fault::NotSent, 503), (Fault::LostNothing, 504)] {
        let (fleet, _directory, process) = fresh();
        let (request, selected) = collection(&fleet);
        fleet.world.lock().faults.insert(2, fault);
        let reply = process.writer.delete_collection(request, selected).await.unwrap_err();
        assert_eq!(reply.code.as_u16(), code);
        assert!(message(&reply).ends_with("(4 of 5 were deleted before that)"), "{}", message(&reply));
    }
}
