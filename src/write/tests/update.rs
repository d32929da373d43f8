//! Updates over scripted members.

use http::Method;
use serde_json::{Value, json};

use crate::{
    answer::reply::Reply,
    write::{
        request::Request,
        tests::{
            Process, fresh, message, pair, parsed, request,
            scripted::{Fault, Scripted, member},
            web,
        },
        update::APPLY_PATCH,
    },
};
use kubefold_serving::caller::Caller;

pub(super) const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

pub(super) fn put(body: &Value) -> Request {
    Request { method: Method::PUT, name: "web".into(), ..request("fieldManager=k", body) }
}

pub(super) fn patch(content_type: &str, body: &Value) -> Request {
    Request { method: Method::PATCH, content_type: content_type.into(), ..put(body) }
}

/// The request of another user and field manager; `more` is added to the query.
pub(super) fn by(manager: &str, more: &str, request: Request) -> Request {
    let caller = Caller { user: manager.to_owned(), ..request.caller };
    Request { query: format!("fieldManager={manager}{more}"), caller, ..request }
}

pub(super) async fn send(process: &Process, request: Request) -> Reply {
    process.writer.update(request, "web".into()).await
}

pub(super) async fn label(process: &Process, value: &str) -> Reply {
    send(process, patch(MERGE, &json!({"metadata": {"labels": {"tier": value}}}))).await
}

/// The value of a label in each member's part.
pub(super) fn labels(fleet: &Scripted, name: &str) -> Vec<(String, Value)> {
    let world = fleet.world.lock();
    let parts = world.members.iter().filter_map(|(member, cluster)| Some((member, cluster.objects.get("web")?)));
    parts.map(|(member, part)| (member.to_string(), part["metadata"]["labels"][name].clone())).collect()
}

pub(super) fn everywhere(value: &str) -> Vec<(String, Value)> {
    ["east", "west"].map(|name| (name.to_owned(), json!(value))).to_vec()
}

/// A part without what each member has of its own.
pub(super) fn bare(part: &Value) -> Value {
    let mut part = part.clone();
    let fields = |part: &mut Value, place: &str, own: &[&str]| {
        let Some(map) = part.pointer_mut(place).and_then(Value::as_object_mut) else { return };
        own.iter().for_each(|own| drop(map.shift_remove(*own)));
    };
    fields(&mut part, "/metadata", &["uid", "resourceVersion", "generation", "annotations", "managedFields"]);
    fields(&mut part, "/spec", &["replicas"]);
    fields(&mut part, "", &["status"]);
    part.sort_all_objects();
    part
}

pub(super) fn edit(fleet: &Scripted, at: &str, change: impl FnOnce(&mut Value)) {
    let mut world = fleet.world.lock();
    let part = world.members.get_mut(&member(at)).unwrap().objects.get_mut("web").unwrap();
    change(part);
    part["metadata"]["resourceVersion"] = format!("{}0", part["metadata"]["resourceVersion"].as_str().unwrap()).into();
}

pub(super) fn down(fleet: &Scripted, at: &str, is: bool) {
    fleet.world.lock().members.get_mut(&member(at)).unwrap().down = is;
}

/// A Deployment of 3 over east (1) and west (2); west is its home.
pub(super) async fn placed() -> (Scripted, tempfile::TempDir, Process) {
    let (fleet, directory, process) = fresh();
    assert_eq!(process.writer.create(request("", &web(3))).await.code, 201);
    fleet.world.lock().calls.clear();
    (fleet, directory, process)
}

fn calls(fleet: &Scripted) -> Vec<(String, String, bool)> {
    let calls = &fleet.world.lock().calls;
    let call = |(name, call): &(_, crate::member::call::Call)| {
        (format!("{name}"), call.method.to_string(), call.query.contains("dryRun=All"))
    };
    calls.iter().map(call).collect()
}

#[tokio::test(start_paused = true)]
async fn a_put_changes_every_part_and_keeps_their_markers() {
    let (fleet, _directory, process) = placed().await;
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"tier": "front", "kubefold.io/placement": "forged"}},
        "spec": {"replicas": 3, "paused": true}
    });
    let reply = send(&process, put(&body)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    let shown = parsed(&reply);
    assert_eq!(
        (&shown["metadata"]["labels"], &shown["spec"]),
        (&json!({"tier": "front"}), &json!({"replicas": 3, "paused": true}))
    );
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
    let marked = labels(&fleet, "kubefold.io/placement");
    assert!(marked.len() == 2 && marked[0].1 == marked[1].1 && marked[0].1 != "forged", "{marked:?}");
    assert_eq!(labels(&fleet, "app"), [("east".into(), Value::Null), ("west".into(), Value::Null)]);
    let order = calls(&fleet);
    let order: Vec<_> = order.iter().map(|(name, verb, dry)| (name.as_str(), verb.as_str(), *dry)).collect();
    assert_eq!(order, [("west", "PUT", true), ("east", "PUT", true), ("west", "PUT", false), ("east", "PUT", false)]);
    assert!(fleet.world.lock().calls.iter().all(|(_, call)| call.query.starts_with("fieldManager=k")));
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_total_is_divided_by_its_difference() {
    let (fleet, _directory, process) = placed().await;
    let scale = |replicas: i64| patch(MERGE, &json!({"spec": {"replicas": replicas}}));
    assert_eq!(parsed(&send(&process, scale(9)).await)["spec"]["replicas"], 9);
    assert_eq!(fleet.standing("web"), pair(&[("east", 3), ("west", 6)]));
    // An autoscaler in a member is not fought.
    edit(&fleet, "east", |part| part["spec"]["replicas"] = 7.into());
    assert_eq!(label(&process, "a").await.code, 200);
    assert_eq!(fleet.standing("web"), pair(&[("east", 7), ("west", 6)]));
    assert_eq!(parsed(&send(&process, scale(13)).await)["spec"]["replicas"], 13);
    assert_eq!(fleet.standing("web"), pair(&[("east", 7), ("west", 6)]), "it was 13 already");
    send(&process, scale(12)).await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 6), ("west", 6)]));
    let unset = send(&process, patch(MERGE, &json!({"spec": {"replicas": null}}))).await;
    assert_eq!(parsed(&unset)["spec"]["replicas"], 1, "the default of the whole");
    send(&process, scale(0)).await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 0), ("west", 0)]));
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_is_about_the_whole() {
    let (fleet, _directory, process) = placed().await;
    let ops = json!([
        {"op": "test", "path": "/spec/replicas", "value": 3},
        {"op": "test", "path": "/metadata/labels", "value": {"app": "web"}},
        {"op": "replace", "path": "/spec/replicas", "value": 6},
        {"op": "add", "path": "/metadata/labels/tier", "value": "a"},
    ]);
    assert_eq!(send(&process, patch(JSON, &ops)).await.code, 200);
    assert_eq!((fleet.standing("web"), labels(&fleet, "tier")), (pair(&[("east", 2), ("west", 4)]), everywhere("a")));
    let failing = send(&process, patch(JSON, &ops)).await;
    assert_eq!((failing.code.as_u16(), &parsed(&failing)["reason"]), (422, &json!("Invalid")));
}

/// Each of these is what a kube-apiserver does; `crates/wire/src/patch/vectors.json` holds the library's own answers.
#[tokio::test(start_paused = true)]
async fn a_json_patch_of_a_placed_object_is_a_kube_apiservers() {
    let (fleet, _directory, process) = placed().await;
    let one = |operation: Value| patch(JSON, &json!([operation]));
    let absent = json!({"op": "test", "path": "/metadata/nothing", "value": null});
    assert_eq!(send(&process, one(absent)).await.code, 200, "a key that is not there is null");
    let added = json!({"op": "replace", "path": "/metadata/labels/tier", "value": "a"});
    assert_eq!((send(&process, one(added)).await.code.as_u16(), labels(&fleet, "tier")), (200, everywhere("a")));
    for (operation, code, message) in [
        (json!({"op": "remove", "path": "/metadata/nothing"}), 422, UNPROCESSABLE),
        (json!({"op": "test", "path": "/spec/replicas", "value": 3.0}), 422, UNPROCESSABLE),
        (json!({"op": "jump", "path": "/x"}), 422, UNPROCESSABLE),
        (
            json!({"op": "add", "path": 1}),
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
        ),
    ] {
        let reply = send(&process, one(operation.clone())).await;
        assert_eq!((reply.code.as_u16(), super::message(&reply).as_str()), (code, message), "{operation}");
    }
    let copy = json!({"op": "copy", "from": "/metadata", "path": "/metadata/annotations/x"});
    let copies = send(&process, patch(JSON, &vec![copy; 10_000].into())).await;
    assert_eq!(copies.code, 422, "the copies have more than 3 MiB");
    let list = send(&process, patch(MERGE, &json!([1]))).await;
    let message = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!((list.code.as_u16(), super::message(&list).as_str()), (400, message));
}

const UNPROCESSABLE: &str = "the server rejected our request due to an error in our request";

#[tokio::test(start_paused = true)]
async fn a_stale_revision_and_another_uid_are_conflicts() {
    let (fleet, _directory, process) = placed().await;
    for (metadata, code) in [
        (json!({"resourceVersion": "6"}), 409),
        (json!({"resourceVersion": "7"}), 200),
        (json!({"uid": "6f1c2d5e-0b1a-4c3d-8e9f-001122334455"}), 409),
    ] {
        let reply = send(&process, patch(MERGE, &json!({"metadata": metadata}))).await;
        assert_eq!(reply.code, code, "{metadata}: {}", message(&reply));
    }
    // The home changed and its watch has not said so yet.
    edit(&fleet, "west", |part| part["spec"]["paused"] = true.into());
    fleet.world.lock().calls.clear();
    assert_eq!(label(&process, "a").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_a_change_changes_nothing() {
    let (fleet, _directory, process) = placed().await;
    let body = json!({"spec": {"replicas": 9}, "metadata": {"labels": {"tier": "a"}}});
    let reply = send(&process, Request { query: "dryRun=All".into(), ..patch(MERGE, &body) }).await;
    let shown = parsed(&reply);
    assert_eq!((&shown["spec"]["replicas"], &shown["metadata"]["labels"]["tier"]), (&json!(9), &json!("a")));
    assert_eq!(shown["metadata"]["resourceVersion"], "7", "the one that is there");
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
    assert!(calls(&fleet).iter().all(|(_, _, dry)| *dry));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_one_part_refuses_the_whole() {
    for (at, name) in [(0, "west"), (1, "east")] {
        let (fleet, _directory, process) = placed().await;
        fleet.world.lock().faults.insert(at, Fault::Refuse);
        let reply = label(&process, "a").await;
        assert_eq!((reply.code.as_u16(), message(&reply)), (403, format!("no (member {name}; nothing was changed)")));
        assert!(calls(&fleet).iter().all(|(_, _, dry)| *dry));
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_home_refuses_a_change() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "west", true);
    let reply = label(&process, "a").await;
    assert_eq!(reply.code, 503);
    assert!(message(&reply).contains("its home, member west, cannot be reached"), "{}", message(&reply));
    assert_eq!(labels(&fleet, "tier")[0].1, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_behind_is_brought_up_when_its_member_is_back() {
    let (fleet, directory, process) = placed().await;
    down(&fleet, "east", true);
    for value in ["a", "b", "c"] {
        let reply = label(&process, value).await;
        assert_eq!(reply.code, 200);
        let behind = |warning: &http::HeaderValue| warning.to_str().unwrap().contains("not changed in member east yet");
        assert!(reply.warnings.values().iter().any(behind), "{:?}", reply.warnings);
    }
    let scaled = send(&process, patch(MERGE, &json!({"spec": {"replicas": 9}}))).await;
    assert_eq!(scaled.code, 200);
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 6)]));
    // What it waits for counts: the same total again changes nothing.
    send(&process, patch(MERGE, &json!({"spec": {"replicas": 9}}))).await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 6)]));
    process.cancel.cancel();
    process.settled().await;
    down(&fleet, "east", false);
    let process = Process::start(fleet.restarted(), &directory);
    process.writer.replay();
    process.settled().await;
    assert_eq!((fleet.standing("web"), labels(&fleet, "tier")), (pair(&[("east", 3), ("west", 6)]), everywhere("c")));
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_later_change_brings_a_part_up_with_the_earlier_ones() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    for value in ["a", "b"] {
        label(&process, value).await;
    }
    down(&fleet, "east", false);
    assert_eq!(label(&process, "c").await.code, 200);
    assert_eq!(labels(&fleet, "tier"), everywhere("c"));
    assert!(process.writer.journal().open_entries().is_empty(), "the earlier ones are done with it");
    process.settled().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_home_no_longer_holds_is_dropped() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    label(&process, "a").await;
    edit(&fleet, "west", |part| part["metadata"]["labels"]["tier"] = "direct".into());
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(labels(&fleet, "tier"), [("east".into(), Value::Null), ("west".into(), json!("direct"))]);
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_in_a_part_is_kept_and_told() {
    let (fleet, _directory, process) = placed().await;
    label(&process, "a").await;
    edit(&fleet, "east", |part| part["metadata"]["labels"]["tier"] = "own".into());
    let reply = label(&process, "b").await;
    assert_eq!(labels(&fleet, "tier"), [("east".into(), json!("own")), ("west".into(), json!("b"))]);
    let told = |warning: &http::HeaderValue| warning.to_str().unwrap().contains("keeps its own .metadata.labels.tier");
    assert!(reply.warnings.values().iter().any(told), "{:?}", reply.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_somebody_deleted_is_not_made_again() {
    let (fleet, _directory, process) = placed().await;
    for vanished_at in [1, 3] {
        fleet.world.lock().calls.clear();
        fleet.world.lock().faults = [(vanished_at, Fault::Vanished)].into();
        let reply = label(&process, &vanished_at.to_string()).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert_eq!(fleet.standing("web"), pair(&[("west", 2)]));
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_by_looking_at_the_home() {
    for (fault, lands) in [(Fault::LostLanded, true), (Fault::LostLate, true), (Fault::LostNothing, false)] {
        let (fleet, _directory, process) = placed().await;
        fleet.world.lock().faults.insert(2, fault);
        let reply = label(&process, "a").await;
        assert_eq!((reply.code.as_u16(), &parsed(&reply)["reason"]), (504, &json!("Timeout")), "{fault:?}");
        if !matches!(fault, Fault::LostLanded) {
            let again = label(&process, "b").await;
            assert_eq!(again.code, 503, "the key is held: {}", message(&again));
        }
        process.settled().await;
        let wanted =
            if lands { everywhere("a") } else { ["east", "west"].map(|name| (name.to_owned(), Value::Null)).to_vec() };
        assert_eq!(labels(&fleet, "tier"), wanted, "{fault:?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_home_that_is_lost_for_good_ends_what_it_began() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    label(&process, "a").await;
    fleet.world.lock().members.get_mut(&member("west")).unwrap().uid = "another".into();
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(labels(&fleet, "tier")[0].1, Value::Null);
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_ends_what_an_update_left() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    label(&process, "a").await;
    assert_eq!(process.writer.delete(request("", &Value::Null), "web".into()).await.code, 200);
    down(&fleet, "east", false);
    let apply = patch(APPLY_PATCH, &web(3));
    for write in [apply, patch(MERGE, &json!({"spec": {"paused": true}})), put(&web(3))] {
        let refused = send(&process, write).await;
        let words = "is not changed: it is being deleted, and is not gone yet in east";
        assert!(refused.code == 503 && message(&refused).contains(words), "{}", message(&refused));
    }
    process.writer.replay();
    process.settled().await;
    assert!(fleet.standing("web").is_empty());
    assert!(process.writer.journal().open_entries().is_empty());
}
