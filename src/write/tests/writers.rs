//! Changes of several writers that a member has missed: it gets those of each as his.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::placement::marker::MARKER_KEY;
use crate::write::{
    request::Request,
    tests::{
        Process, message,
        scripted::{Scripted, member},
        update::{MERGE, by, down, everywhere, labels, patch, placed, send},
        web,
    },
    update::{APPLY_PATCH, SCALE},
};

/// A manager's own label.
async fn labelled(process: &Process, manager: &str, name: &str, value: &str) {
    let labels = json!({"metadata": {"labels": {name: value}}});
    assert_eq!(send(process, by(manager, "", patch(MERGE, &labels))).await.code, 200);
}

/// Who changed what in a member, after its dry runs: the user, the query and the body.
fn changes_in(fleet: &Scripted, at: &str) -> Vec<(String, String, Value)> {
    let world = fleet.world.lock();
    let calls = world.calls.iter().zip(world.callers.iter().skip(world.callers.len() - world.calls.len()));
    let changes = calls.filter(|((member, call), _)| {
        member.as_str() == at && call.method == http::Method::PATCH && !call.query.contains("dryRun")
    });
    let body = |body: &[u8]| -> Value {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        body["metadata"].as_object_mut().map(|metadata| metadata.shift_remove("resourceVersion"));
        body
    };
    changes.map(|((_, call), user)| (user.clone(), call.query.clone(), body(&call.body))).collect()
}

fn change(manager: &str, labels: Value) -> (String, String, Value) {
    (manager.to_owned(), format!("fieldManager={manager}"), json!({"metadata": {"labels": labels}}))
}

#[tokio::test(start_paused = true)]
async fn a_member_gets_what_it_missed_as_those_who_wrote_it() {
    for by_next_write in [false, true] {
        let (fleet, _directory, process) = placed().await;
        down(&fleet, "east", true);
        labelled(&process, "anna", "tier", "a").await;
        labelled(&process, "anna", "team", "a").await;
        labelled(&process, "bert", "tier", "b").await;
        labelled(&process, "bert", "zone", "b").await;
        let wanted = vec![
            // Bert has replaced what she wrote there.
            change("anna", json!({"team": "a"})),
            change("bert", json!({"tier": "b", "zone": "b"})),
        ];
        fleet.world.lock().calls.clear();
        down(&fleet, "east", false);
        if by_next_write {
            labelled(&process, "cleo", "last", "c").await;
            let own = change("cleo", json!({"last": "c"}));
            assert_eq!(changes_in(&fleet, "east"), [wanted, vec![own]].concat());
        } else {
            process.writer.replay();
            process.settled().await;
            assert_eq!(changes_in(&fleet, "east"), wanted);
        }
        assert!(process.writer.journal().open_entries().is_empty());
        assert_eq!(labels(&fleet, "tier"), everywhere("b"));
        process.settled().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_and_a_label_that_a_member_missed_are_two_requests() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    let scale = patch(MERGE, &json!({"spec": {"replicas": 6}}));
    let scale = Request { subresource: SCALE.to_owned(), ..by("anna", "", scale) };
    assert_eq!(send(&process, scale).await.code, 200);
    labelled(&process, "anna", "tier", "a").await;
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(labels(&fleet, "tier"), everywhere("a"));
    let replicas: u64 = fleet.standing("web").iter().map(|(_, replicas)| replicas).sum();
    assert_eq!(replicas, 6, "{:?}", fleet.standing("web"));
}

#[tokio::test(start_paused = true)]
async fn what_a_member_refuses_one_writer_does_not_keep_another_back() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    labelled(&process, "anna", "team", "a").await;
    labelled(&process, "bert", "zone", "b").await;
    down(&fleet, "east", false);
    let anna = (member("east"), "anna".to_owned());
    fleet.world.lock().denied.insert(anna.clone());
    process.writer.replay();
    sleep(Duration::from_secs(60)).await;
    let of = |name: &str| labels(&fleet, name).into_iter().find(|(member, _)| member == "east").unwrap().1;
    assert_eq!((of("team"), of("zone")), (Value::Null, json!("b")));
    let open = process.writer.journal().open_entries();
    assert_eq!(open.iter().map(|entry| entry.caller.user.as_str()).collect::<Vec<_>>(), ["anna"]);
    // What changes the same place waits.
    labelled(&process, "bert", "team", "b").await;
    assert_eq!(of("team"), Value::Null);
    fleet.world.lock().denied.remove(&anna);
    process.writer.replay();
    process.settled().await;
    assert_eq!(labels(&fleet, "team"), everywhere("b"));
}

/// A member that is back, and has not got what it missed, would refuse what one cluster takes.
#[tokio::test(start_paused = true)]
async fn an_apply_is_no_conflict_with_what_a_member_has_missed() {
    let (fleet, _directory, process) = placed().await;
    labelled(&process, "anna", "tier", "a").await;
    down(&fleet, "east", true);
    let removal = json!({"metadata": {"labels": {"tier": null}}});
    assert_eq!(send(&process, by("anna", "", patch(MERGE, &removal))).await.code, 200);
    down(&fleet, "east", false);
    let body = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "web", "labels": {"tier": "b"}}});
    let reply = send(&process, by("bert", "", patch(APPLY_PATCH, &body))).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(labels(&fleet, "tier"), everywhere("b"));
    assert!(process.writer.journal().open_entries().is_empty());
}

/// kubectl gives what it applied client-side to the manager of its server-side apply: with the note of what it applied, the map of
/// annotations.
#[tokio::test(start_paused = true)]
async fn an_apply_that_has_the_annotations_leaves_the_marker() {
    let (fleet, _directory, process) = placed().await;
    let fields = json!({"f:metadata": {"f:annotations": {".": {}, "f:last": {}}}, "f:spec": {"f:replicas": {}}});
    let manager = json!({"manager": "ci", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let upgrade = json!([{"op": "add", "path": "/metadata/managedFields", "value": [manager]}]);
    let reply = send(&process, patch("application/json-patch+json", &upgrade)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    let before = fleet.world.lock().members[&member("east")].objects["web"]["metadata"]["annotations"].clone();
    for _ in 0..2 {
        let reply = send(&process, by("ci", "&force=true", patch(APPLY_PATCH, &web(3)))).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        for name in ["east", "west"] {
            let part = fleet.world.lock().members[&member(name)].objects["web"].clone();
            assert!(part["metadata"]["annotations"][MARKER_KEY].is_string(), "{part}");
        }
    }
    assert_eq!(fleet.world.lock().members[&member("east")].objects["web"]["metadata"]["annotations"], before);
}
