//! Creates of what is not divided: whole parts everywhere, one part in one member, shared objects, events.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    placement::plan::Standing,
    write::{
        MOVER,
        request::Request,
        tests::{
            Process, message, pair, parsed, request,
            scripted::{Fault, Scripted, member},
        },
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

fn fleet() -> (Scripted, TempDir, Process) {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    (fleet, directory, process)
}

fn of(group: &str, kind: &str, resource: &str, body: &Value) -> Request {
    let mut request = request("", body);
    (request.gvr, request.gvk) = (Gvr::new(group, "v1", resource), Gvk::new(group, "v1", kind));
    request
}

fn config(name: &str) -> Request {
    of("", "ConfigMap", "configmaps", &json!({"metadata": {"name": name}, "data": {"a": "b"}}))
}

fn namespace(name: &str) -> Request {
    let request = of("", "Namespace", "namespaces", &json!({"metadata": {"name": name, "labels": {"team": "a"}}}));
    Request { namespace: String::new(), ..request }
}

/// The member is away, and kubefold knows it; or it is back.
fn down(fleet: &Scripted, name: &str, is: bool) {
    let mut world = fleet.world.lock();
    let cluster = world.members.get_mut(&member(name)).unwrap();
    cluster.down = is;
    cluster.standing = is.then(|| Standing::Down("cut off".into()));
}

fn holders(fleet: &Scripted, name: &str) -> Vec<String> {
    fleet.standing(name).into_iter().map(|(member, _)| member).collect()
}

/// Ends the process and starts another one over the same journal, which finishes what it can.
async fn restarted(fleet: &Scripted, directory: &TempDir, process: Process) -> Process {
    process.cancel.cancel();
    process.settled().await;
    let process = Process::start(fleet.restarted(), directory);
    process.writer.replay();
    process.settled().await;
    process
}

#[tokio::test(start_paused = true)]
async fn what_is_duplicated_has_a_whole_part_everywhere() {
    let (fleet, _directory, process) = fleet();
    let reply = process.writer.create(config("plain")).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(holders(&fleet, "plain"), ["east", "north", "west"]);
    assert_eq!(parsed(&reply)["data"], json!({"a": "b"}));
    let world = fleet.world.lock();
    let uids: Vec<_> = world.members.values().map(|cluster| &cluster.objects["plain"]["metadata"]["labels"]).collect();
    assert!(uids.iter().all(|labels| *labels == uids[0] && labels["kubefold.io/placement"].is_string()), "{uids:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_one_goes_to_the_sticky_member_and_lists_no_other() {
    let (fleet, _directory, process) = fleet();
    fleet.world.lock().sticky = Some(member("north"));
    let body = json!({"metadata": {"name": "once"}, "spec": {"template": {}}});
    let reply = process.writer.create(of("batch", "Job", "jobs", &body)).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(holders(&fleet, "once"), ["north"]);
    let marker = fleet.world.lock().members[&member("north")].objects["once"]["metadata"]["annotations"].to_string();
    assert!(!marker.contains("west"), "{marker}");
    down(&fleet, "north", true);
    let body = json!({"metadata": {"name": "twice"}, "spec": {"template": {}}});
    let reply = process.writer.create(of("batch", "Job", "jobs", &body)).await;
    assert_eq!(reply.code, 201);
    assert!(!holders(&fleet, "twice").contains(&"north".to_owned()));
    assert!(format!("{:?}", reply.warnings).contains("placed without it"), "{:?}", reply.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_gets_its_part_when_it_is_back() {
    for create in [config("x"), namespace("x")] {
        let (fleet, directory, process) = fleet();
        down(&fleet, "east", true);
        let reply = process.writer.create(create.clone()).await;
        assert_eq!(reply.code, 201, "{}", message(&reply));
        assert!(format!("{:?}", reply.warnings).contains("not in member east yet"), "{:?}", reply.warnings);
        assert_eq!(holders(&fleet, "x"), ["north", "west"]);
        let open = process.writer.journal().open_entries();
        assert_eq!(process.writer.journal().behind(&open[0].key, &open[0].uid), [member("east")]);
        // Also while it is behind the name is taken.
        assert_eq!(process.writer.create(create.clone()).await.code, 409);
        let process = restarted(&fleet, &directory, process).await;
        assert_eq!(holders(&fleet, "x"), ["north", "west"], "it is away still");
        assert!(fleet.withheld.lock().is_empty());
        down(&fleet, "east", false);
        let process = restarted(&fleet, &directory, process).await;
        assert_eq!(holders(&fleet, "x"), ["east", "north", "west"]);
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_lies_in_a_namespace_that_is_behind_is_behind_with_it() {
    let (fleet, directory, process) = fleet();
    down(&fleet, "east", true);
    fleet.world.lock().lacks_namespace.insert(member("east"));
    assert_eq!(process.writer.create(config("before")).await.code, 201);
    assert_eq!(process.writer.create(namespace("default")).await.code, 201);
    assert_eq!(process.writer.create(config("after")).await.code, 201);
    down(&fleet, "east", false);
    let process = restarted(&fleet, &directory, process).await;
    assert_eq!(holders(&fleet, "after"), ["east", "north", "west"]);
    assert_eq!(holders(&fleet, "before"), ["north", "west"]);
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_leaves_no_trace() {
    for mut create in [config("x"), namespace("x")] {
        let (fleet, _directory, process) = fleet();
        down(&fleet, "east", true);
        create.query = "dryRun=All".into();
        assert_eq!(process.writer.create(create).await.code, 201);
        assert!(holders(&fleet, "x").is_empty() && process.writer.journal().open_entries().is_empty());
        let world = fleet.world.lock();
        assert!(world.calls.iter().all(|(_, call)| call.query.contains("dryRun=All")), "{:?}", world.calls);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_up() {
    let (fleet, _directory, process) = fleet();
    ["east", "north", "west"].iter().for_each(|name| down(&fleet, name, true));
    let reply = process.writer.create(config("x")).await;
    assert_eq!(reply.code, 503, "{}", message(&reply));
    assert!(message(&reply).contains("east: it is down"), "{}", message(&reply));
    // As when kubefold has not noticed yet.
    fleet.world.lock().members.values_mut().for_each(|cluster| cluster.standing = None);
    let reply = process.writer.create(config("x")).await;
    assert_eq!(reply.code, 503, "{}", message(&reply));
    assert!(message(&reply).contains("nothing was made"), "{}", message(&reply));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_its_dry_run_is_behind_and_not_the_home() {
    let (fleet, directory, process) = fleet();
    // It is the first-listed one, and nobody knows yet that it is away.
    fleet.world.lock().members.get_mut(&member("west")).unwrap().down = true;
    let reply = process.writer.create(config("x")).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(holders(&fleet, "x").len(), 2);
    let marker = fleet.world.lock().members[&member("east")].objects["x"]["metadata"]["annotations"].to_string();
    let place = |name: &str| marker.find(&format!("cluster-{name}")).unwrap();
    assert!(place("west") > place("east") && place("west") > place("north"), "{marker}");
    fleet.world.lock().members.get_mut(&member("west")).unwrap().down = false;
    restarted(&fleet, &directory, process).await;
    assert_eq!(holders(&fleet, "x").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_answer_is_lost_in_the_commit_is_behind() {
    for fault in [Fault::LostLanded, Fault::LostNothing, Fault::LostLate, Fault::NotSent, Fault::BrokenLanded] {
        for create in [config("x"), namespace("x")] {
            let (fleet, _directory, process) = fleet();
            fleet.world.lock().faults.insert(3, fault);
            let reply = process.writer.create(create).await;
            assert_eq!(reply.code, 201, "{fault:?}: {}", message(&reply));
            process.settled().await;
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            assert_eq!(holders(&fleet, "x").len(), 3, "{fault:?}");
            assert!(process.writer.journal().open_entries().is_empty(), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_member_refuses_in_the_commit_is_taken_back_everywhere() {
    for create in [config("x"), namespace("x")] {
        for refused_at in [3, 4, 5] {
            let (fleet, _directory, process) = fleet();
            fleet.world.lock().faults.insert(refused_at, Fault::Refuse);
            let reply = process.writer.create(create.clone()).await;
            assert_eq!(reply.code, 403);
            assert!(message(&reply).contains("removed again"), "{}", message(&reply));
            assert!(holders(&fleet, "x").is_empty(), "{refused_at}");
            assert!(process.writer.journal().open_entries().is_empty());
        }
    }
}

/// A caller who may create and not delete left the part, and the write was never closed.
#[tokio::test(start_paused = true)]
async fn what_its_caller_may_not_delete_kubefold_takes_back_as_itself() {
    for create in [config("x"), namespace("x")] {
        let (fleet, _directory, process) = fleet();
        // The home refuses, and so does a member when the caller deletes there.
        fleet.world.lock().faults = [(5, Fault::Refuse), (6, Fault::Refuse)].into();
        let reply = process.writer.create(create.clone()).await;
        assert_eq!(reply.code, 403);
        assert!(!message(&reply).contains("not removed"), "{}", message(&reply));
        assert!(holders(&fleet, "x").is_empty());
        assert!(process.writer.journal().open_entries().is_empty());
        let own = |fleet: &Scripted| fleet.world.lock().callers.iter().filter(|user| *user == MOVER).count();
        assert_eq!(own(&fleet), 1, "nothing else is done as kubefold itself");

        // Where that may not, either, the part stays for now, and the caller is told what he was refused.
        let (fleet, directory, process) = self::fleet();
        fleet.world.lock().faults = [5, 6, 7, 8, 9].map(|at| (at, Fault::Refuse)).into();
        let reply = process.writer.create(create).await;
        assert!(message(&reply).contains("not removed yet"), "{}", message(&reply));
        assert_eq!((holders(&fleet, "x").len(), own(&fleet)), (2, 2));
        // The caller may not, and kubefold was given the right meanwhile.
        let calls = fleet.world.lock().calls.len();
        fleet.world.lock().faults = (calls..calls + 40).map(|at| (at, Fault::RefuseCaller)).collect();
        let process = restarted(&fleet, &directory, process).await;
        assert!(holders(&fleet, "x").is_empty());
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_back_at_once_is_taken_back_later() {
    for create in [config("x"), namespace("x")] {
        let (fleet, directory, process) = fleet();
        // The home refuses, and the first undoing is not heard.
        fleet.world.lock().faults = [(5, Fault::Refuse), (6, Fault::NotSent)].into();
        let reply = process.writer.create(create).await;
        assert_eq!(reply.code, 403);
        assert!(message(&reply).contains("not removed yet"), "{}", message(&reply));
        assert_eq!(holders(&fleet, "x").len(), 1);
        let process = restarted(&fleet, &directory, process).await;
        assert!(holders(&fleet, "x").is_empty());
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_object_bears_no_marker_and_is_finished_wherever_it_stands() {
    for (at, crash) in (3..7).flat_map(|at| [Fault::CrashBefore, Fault::CrashAfter, Fault::CrashLate].map(|f| (at, f)))
    {
        let (fleet, directory, process) = fleet();
        fleet.world.lock().faults.insert(at, crash);
        tokio::select! {
            reply = process.writer.create(namespace("x")) => assert_eq!((reply.code.as_u16(), at), (201, 6), "{crash:?}"),
            () = fleet.killed.notified() => {}
        }
        process.cancel.cancel();
        let process = Process::start(fleet.restarted(), &directory);
        process.writer.replay();
        process.settled().await;
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        let stands = fleet.standing("x");
        assert!(
            stands.is_empty() || stands == pair(&[("east", 0), ("north", 0), ("west", 0)]),
            "{at} {crash:?}: {stands:?}"
        );
        assert!(process.writer.journal().open_entries().is_empty(), "{at} {crash:?}");
        for cluster in fleet.world.lock().members.values() {
            for object in cluster.objects.values() {
                assert_eq!(object["metadata"]["labels"], json!({"team": "a"}));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_removed_while_it_was_behind_is_forgotten() {
    let (fleet, directory, process) = fleet();
    down(&fleet, "east", true);
    process.writer.create(config("x")).await;
    fleet.world.lock().members.remove(&member("east"));
    let process = restarted(&fleet, &directory, process).await;
    assert!(process.writer.journal().open_entries().is_empty());
    assert_eq!(holders(&fleet, "x").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn under_the_next_home_what_is_behind_is_made_all_the_same() {
    let (fleet, directory, process) = fleet();
    down(&fleet, "east", true);
    process.writer.create(config("x")).await;
    let home = {
        let open = process.writer.journal().open_entries();
        open[0].targets[0].member.clone()
    };
    fleet.world.lock().members.remove(&home);
    down(&fleet, "east", false);
    let process = restarted(&fleet, &directory, process).await;
    assert!(process.writer.journal().open_entries().is_empty());
    assert_eq!(holders(&fleet, "x").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_of_what_somebody_deleted_meanwhile() {
    let (fleet, directory, process) = fleet();
    down(&fleet, "east", true);
    process.writer.create(config("x")).await;
    fleet.world.lock().members.values_mut().for_each(|cluster| cluster.objects.clear());
    // The name is free, and the next object of it is another one.
    assert_eq!(process.writer.create(config("x")).await.code, 201);
    fleet.world.lock().members.values_mut().for_each(|cluster| cluster.objects.clear());
    down(&fleet, "east", false);
    let process = restarted(&fleet, &directory, process).await;
    assert!(holders(&fleet, "x").is_empty());
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_ends_what_is_behind() {
    let (fleet, directory, process) = fleet();
    down(&fleet, "east", true);
    process.writer.create(config("x")).await;
    let reply = process.writer.delete(of("", "ConfigMap", "configmaps", &Value::Null), "x".into()).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    down(&fleet, "east", false);
    let process = restarted(&fleet, &directory, process).await;
    assert!(holders(&fleet, "x").is_empty());
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_binds_to_the_members_that_hold_it() {
    let (fleet, _directory, process) = fleet();
    let owned = |name: &str, owner: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Thing", "name": owner, "uid": "u"});
        of("", "ConfigMap", "configmaps", &json!({"metadata": {"name": name, "ownerReferences": [owner]}}))
    };
    fleet.world.lock().members.get_mut(&member("north")).unwrap().objects.insert("boss".into(), json!({}));
    assert_eq!(process.writer.create(owned("x", "boss")).await.code, 201);
    assert_eq!(holders(&fleet, "x"), ["north"]);
    let reply = process.writer.create(owned("y", "nobody")).await;
    assert_eq!(reply.code, 422);
    for name in ["east", "north", "west"] {
        let why = format!("{name}: it does not hold the owner Thing \"nobody\"");
        assert!(message(&reply).contains(&why), "{}", message(&reply));
    }
}

#[tokio::test(start_paused = true)]
async fn input_annotations_are_read_and_none_of_ours_reaches_a_member() {
    let (fleet, _directory, process) = fleet();
    let annotated = |annotations: Value| {
        let body = json!({"metadata": {
            "name": "x", "annotations": annotations, "labels": {"kubefold.io/placement": "forged", "a": "b"}
        }});
        of("", "ConfigMap", "configmaps", &body)
    };
    let reply = process.writer.create(annotated(json!({"kubefold.io/placement-policy": "nope"}))).await;
    assert_eq!(reply.code, 422);
    assert!(message(&reply).contains("there is no such policy"), "{}", message(&reply));
    let reply = process.writer.create(annotated(json!({"kubefold.io/clusters": "a,b", "own": "c"}))).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    let object = fleet.world.lock().members[&member("east")].objects["x"].clone();
    assert_ne!(object["metadata"]["labels"]["kubefold.io/placement"], "forged");
    let keys: Vec<_> = object["metadata"]["annotations"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["kubefold.io/placement", "own"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_with_its_object() {
    let (fleet, _directory, process) = fleet();
    let event = |name: &str, object: &str| {
        let body = json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": object, "uid": "u"}});
        of("", "Event", "events", &body)
    };
    let reply = process.writer.create(event("web-0@west.17f0", "web-0@west")).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["metadata"]["name"]), (201, &json!("web-0.17f0@west")));
    assert_eq!(holders(&fleet, "web-0.17f0"), ["west"]);
    fleet.world.lock().members.get_mut(&member("north")).unwrap().objects.insert("web".into(), json!({}));
    assert_eq!(process.writer.create(event("web.17f1", "web")).await.code, 201);
    assert_eq!(holders(&fleet, "web.17f1"), ["north"]);
    down(&fleet, "east", true);
    assert_eq!(process.writer.create(event("stray.17f2", "stray")).await.code, 201);
    assert_eq!(holders(&fleet, "stray.17f2"), ["north"], "about nothing: any member that is up");
}
