//! Overrides that change while parts stand: who gets them, when, and what stays.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::write::{
    moves::{Command, MovesReport, Verb},
    request::Request,
    tests::{
        Process, configure, fresh, message, parsed, request,
        scripted::{CRASHES, FAULTS, Fault, Scripted, member},
        to_the_end,
        update::{MERGE, down, edit, patch, put, send},
        update_parts::{IMAGE, STRATEGIC, app, at, create, image, policy},
    },
};

const ARGS: &str = "/spec/template/spec/containers/0/args";
const TIER: &str = "/metadata/labels/tier";
const NOTE: &str = "/metadata/annotations/kubefold.io~1overrides";
const APPLY: &str = "application/apply-patch+yaml";
/// Calls that bring overrides to two parts: each is read and patched.
const CALLS: usize = 4;
const OLD: &str = "    east: {registry: one.example/x, patch: [{op: add, path: /metadata/labels/tier, value: edge}]}\n    \
                   north: {registry: one.example/x}\n";
const NEW: &str = "    east: {registry: two.example}\n    north: {registry: two.example}\n";

pub(super) fn rebalance(dry_run: bool) -> Command {
    Command { verb: Verb::Rebalance, member: None, members: Vec::new(), object: None, dry_run, force: false }
}

async fn order(process: &Process) -> MovesReport {
    process.writer.order(rebalance(false), "ann").await.unwrap()
}

/// A Deployment in three members, of which west, the home, has no overrides.
async fn placed() -> (Scripted, TempDir, Process) {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
    fleet.world.lock().is_available = true;
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    policy(&fleet, OLD);
    create(&process, &app(4)).await;
    assert_eq!(images(&fleet), ["one.example/x/web:1", "one.example/x/web:1", "web:1"]);
    (fleet, directory, process)
}

fn images(fleet: &Scripted) -> [Value; 3] {
    ["east", "north", "west"].map(|name| at(fleet, name, IMAGE))
}

fn warned(reply: &crate::answer::reply::Reply) -> bool {
    format!("{:?}", reply.warnings).contains("overrides of an earlier configuration")
}

#[tokio::test(start_paused = true)]
async fn overrides_that_change_reach_parts_that_stand_and_gone_ones_are_taken_back() {
    let (fleet, _directory, process) = placed().await;
    assert!(order(&process).await.moves.is_empty(), "all is as a create would have it");
    assert!(process.writer.all_outdated().await.is_empty());
    edit(&fleet, "east", |part| part["spec"]["paused"] = true.into());
    policy(&fleet, NEW);
    let outdated = process.writer.all_outdated().await;
    assert_eq!(outdated.len(), 1);
    assert!(outdated[0].why.starts_with("the parts in members east, north have the overrides"), "{outdated:?}");
    let home = fleet.world.lock().members[&member("west")].objects["web"].clone();
    let planned = process.writer.order(rebalance(true), "ann").await.unwrap();
    let [state] = &*planned.moves else { panic!("{planned:?}") };
    let told: Vec<_> = state.overrides.iter().map(|part| (&*part.member, part.values.len())).collect();
    assert_eq!(told, [("east", 2), ("north", 1)], "{planned:?}");
    let value = state.overrides[1].values[0].clone();
    assert_eq!((value.from, value.to), (Some(json!("one.example/x/web:1")), Some(json!("two.example/web:1"))));
    assert_eq!(images(&fleet), ["one.example/x/web:1", "one.example/x/web:1", "web:1"], "a dry run changes nothing");

    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"]);
    assert_eq!((at(&fleet, "east", TIER), at(&fleet, "east", "/spec/paused")), (Value::Null, json!(true)));
    policy(&fleet, "    north: {max: 9}\n");
    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["web:1", "web:1", "web:1"]);
    assert_eq!((at(&fleet, "east", NOTE), at(&fleet, "east", "/spec/paused")), (Value::Null, json!(true)));
    assert_eq!(fleet.world.lock().members[&member("west")].objects["web"], home, "the home was not touched");
    assert!(order(&process).await.moves.is_empty() && process.writer.report().moves.is_empty());
}

async fn case(faults: &[(usize, Fault)]) {
    let (fleet, directory, process) = placed().await;
    process.settled().await;
    policy(&fleet, NEW);
    {
        let mut world = fleet.world.lock();
        world.calls.clear();
        world.faults = faults.iter().copied().collect();
    }
    drop(process);
    to_the_end(&fleet, &directory, order, |process| process.writer.resume_moves()).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"], "{faults:?}");
    assert_eq!(at(&fleet, "east", TIER), Value::Null, "{faults:?}");
    let process = Process::start(fleet.restarted(), &directory);
    assert!(process.writer.report().moves.is_empty(), "{faults:?}");
    assert!(process.writer.all_outdated().await.is_empty(), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn overrides_arrive_after_every_fault_and_every_kill() {
    for at in 0..CALLS + 2 {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(&[(at, fault)]).await;
            case(&[(at, fault), (at + 1, Fault::CrashLate)]).await;
        }
    }
    // Somebody else changes the part in the same moment: it is read again.
    case(&[(1, Fault::Touched("", "/metadata/labels"))]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_gets_them_when_it_answers_and_keeps_nobody_waiting() {
    let (fleet, _directory, process) = placed().await;
    policy(&fleet, NEW);
    down(&fleet, "north", true);
    order(&process).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(images(&fleet), ["two.example/web:1", "one.example/x/web:1", "web:1"]);
    let [state] = &*process.writer.report().moves else { panic!("it waits") };
    assert_eq!(state.problem.as_deref(), Some("member north does not answer"));
    assert!(process.writer.all_outdated().await.is_empty(), "it is on its way");
    down(&fleet, "north", false);
    process.settled().await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_is_told_of_and_tried_again_slowly() {
    let (fleet, _directory, process) = placed().await;
    policy(&fleet, NEW);
    {
        let mut world = fleet.world.lock();
        world.calls.clear();
        // North is first, since it stands last. Every call is refused for a while.
        world.faults = [(1, Fault::Refuse), (4, Fault::Refuse), (5, Fault::Refuse)].into();
    }
    order(&process).await;
    sleep(Duration::from_secs(9)).await;
    let stands = images(&fleet);
    assert_eq!(stands.iter().filter(|image| **image == "two.example/web:1").count(), 1, "{stands:?}");
    let [state] = &*process.writer.report().moves else { panic!("it waits") };
    assert!(
        state
            .problem
            .as_deref()
            .is_some_and(|why| why.contains("it answered 403") || why.contains("deploy/member-rbac.yaml")),
        "{state:?}"
    );
    let calls = fleet.world.lock().calls.len();
    assert_eq!(calls, CALLS, "nothing is sent before its time");
    let [record] = &*process.writer.journal().overridings() else { panic!("it is kept") };
    assert_eq!(record.changed.len(), 1, "no part waits for one that refused");
    process.settled().await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn one_member_at_a_time_rolls_its_pods() {
    let (fleet, _directory, process) = placed().await;
    policy(&fleet, NEW);
    fleet.world.lock().is_available = false;
    order(&process).await;
    sleep(Duration::from_mins(10)).await;
    let stands = images(&fleet);
    assert_eq!(stands.iter().filter(|image| **image == "two.example/web:1").count(), 1, "{stands:?}");
    let [state] = &*process.writer.report().moves else { panic!("it waits") };
    assert!(state.problem.as_deref().is_some_and(|why| why.contains("0 of 1 replicas are available")), "{state:?}");
    fleet.world.lock().is_available = true;
    process.settled().await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_brings_them_to_what_it_changes_and_says_what_is_left() {
    let (fleet, _directory, process) = placed().await;
    let reply = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"own": "x"}}}))).await;
    assert!(!warned(&reply), "{:?}", reply.warnings);
    policy(&fleet, NEW);
    let reply = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"own": "y"}}}))).await;
    assert!(reply.code == 200 && warned(&reply), "{reply:?}");
    assert_eq!(images(&fleet), ["one.example/x/web:1", "one.example/x/web:1", "web:1"], "it is not about them");
    let reply = send(&process, patch(MERGE, &image("quay.io/lib/web:2"))).await;
    assert!(!format!("{:?}", reply.warnings).contains("keeps its own"), "{reply:?}");
    assert_eq!(images(&fleet), ["two.example/lib/web:2", "two.example/lib/web:2", "quay.io/lib/web:2"]);
    assert_eq!(at(&fleet, "east", TIER), "edge", "what it does not write stays");
    // What the object says by now is what is taken back to.
    policy(&fleet, "    north: {max: 9}\n");
    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["quay.io/lib/web:2", "quay.io/lib/web:2", "quay.io/lib/web:2"]);
    assert_eq!(at(&fleet, "east", TIER), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_one_part_remembers_what_its_author_wrote() {
    let constant =
        "    west: {patch: [{op: replace, path: /spec/template/spec/containers/0/image, value: 'fixed:9'}]}\n";
    for how in ["put", "merge", "apply"] {
        let fleet = Scripted::new(&[("west", 1)]);
        fleet.world.lock().is_available = true;
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(fleet.clone(), &directory);
        policy(&fleet, constant);
        create(&process, &app(1)).await;
        let mut body = app(1);
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
        let request = match how {
            "put" => put(&body),
            "merge" => patch(MERGE, &image("web:2")),
            _ => Request { query: "fieldManager=x".into(), ..patch(APPLY, &body) },
        };
        let reply = send(&process, request).await;
        assert_eq!(
            (reply.code.as_u16(), at(&fleet, "west", IMAGE)),
            (200, json!("fixed:9")),
            "{how}: {}",
            message(&reply)
        );
        policy(&fleet, "    west: {registry: mirror.example}\n");
        order(&process).await;
        process.settled().await;
        assert_eq!(at(&fleet, "west", IMAGE), "mirror.example/web:2", "{how}");
        policy(&fleet, "    west: {max: 9}\n");
        order(&process).await;
        process.settled().await;
        assert_eq!((at(&fleet, "west", IMAGE), at(&fleet, "west", NOTE)), (json!("web:2"), Value::Null), "{how}");
    }
}

/// Before, the fleet view showed the home's overrides: who wrote back what he had read wrote them for all, and each apply of the same
/// manifest was a change.
#[tokio::test(start_paused = true)]
async fn the_fleet_view_shows_what_was_written_where_the_home_has_overrides() {
    let (fleet, _directory, process) = fresh();
    fleet.world.lock().is_available = true;
    // West is the home.
    let west = "{registry: mirror.example, patch: [{op: add, path: /metadata/labels/tier, value: edge}, \
                {op: add, path: /spec/template/spec/containers/0/args/-, value: -b}, \
                {op: remove, path: /spec/paused}]}";
    policy(&fleet, &format!("    east: {{registry: one.example}}\n    west: {west}\n"));
    let mut body = app(3);
    body["spec"]["paused"] = false.into();
    body["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["-a"]);
    create(&process, &body).await;
    let places = [IMAGE, ARGS, TIER, "/spec/paused"];
    let of = |object: &Value| places.map(|place| object.pointer(place).cloned().unwrap_or_default());
    let held = |fleet: &Scripted, name: &str| places.map(|place| at(fleet, name, place));
    let home = |image: &str| [json!(image), json!(["-a", "-b"]), json!("edge"), Value::Null];
    let written = |image: &str| [json!(image), json!(["-a"]), Value::Null, json!(false)];
    assert_eq!(held(&fleet, "west"), home("mirror.example/web:1"));
    let reply = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"own": "x"}}}))).await;
    let shown = parsed(&reply);
    assert_eq!(of(&shown), written("web:1"));

    // Written back, or applied, it changes nothing.
    let stands = fleet.world.lock().members[&member("west")].objects["web"].clone();
    body["metadata"]["labels"]["own"] = "x".into();
    for request in [put(&shown), patch(MERGE, &body), patch(STRATEGIC, &json!({}))] {
        let reply = send(&process, request).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert_eq!(fleet.world.lock().members[&member("west")].objects["web"], stands);
    }
    let test =
        json!([{"op": "test", "path": IMAGE, "value": "web:1"}, {"op": "replace", "path": IMAGE, "value": "web:2"}]);
    for (request, image) in [
        (patch("application/json-patch+json", &test), "web:2"),
        (patch(MERGE, &image("web:3")), "web:3"),
        (
            put(&{
                let mut body = shown.clone();
                body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                body["spec"]["template"]["spec"]["containers"][0]["image"] = "web:4".into();
                body
            }),
            "web:4",
        ),
    ] {
        let reply = send(&process, request).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert!(!format!("{:?}", reply.warnings).contains("keeps its own"), "{:?}", reply.warnings);
        assert_eq!(of(&parsed(&reply))[0], json!(image));
        assert_eq!(held(&fleet, "west")[0], format!("mirror.example/{image}"));
        assert_eq!(held(&fleet, "east")[0], format!("one.example/{image}"));
    }
    // What an override added and removed in the home went to nobody.
    assert_eq!(held(&fleet, "east")[1..], written("")[1..]);
    policy(&fleet, "    west: {max: 9}\n");
    order(&process).await;
    process.settled().await;
    assert_eq!(held(&fleet, "west"), written("web:4"));
    assert_eq!(held(&fleet, "east"), written("web:4"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_part_comes_first_and_is_noted() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    for name in ["web:2", "web:3"] {
        assert_eq!(send(&process, patch(MERGE, &image(name))).await.code, 200);
    }
    policy(&fleet, NEW);
    order(&process).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(images(&fleet), ["one.example/x/web:1", "two.example/web:3", "web:3"]);
    // The overrides are tried before the writes are.
    down(&fleet, "east", false);
    process.settled().await;
    assert_eq!(images(&fleet), ["two.example/web:3", "two.example/web:3", "web:3"]);
    policy(&fleet, "    north: {max: 9}\n");
    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["web:3", "web:3", "web:3"]);
}

#[tokio::test(start_paused = true)]
async fn parts_of_an_earlier_version_keep_their_values_and_are_noted() {
    let (fleet, _directory, process) = placed().await;
    for name in ["east", "north"] {
        edit(&fleet, name, |part| {
            drop(part["metadata"]["annotations"].as_object_mut().unwrap().remove("kubefold.io/overrides"))
        });
    }
    assert!(process.writer.all_outdated().await.is_empty(), "they have what they should");
    let reply = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"own": "y"}}}))).await;
    assert!(!warned(&reply), "{reply:?}");
    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["one.example/x/web:1", "one.example/x/web:1", "web:1"]);
    policy(&fleet, "    north: {max: 9}\n");
    order(&process).await;
    process.settled().await;
    assert_eq!(images(&fleet), ["web:1", "web:1", "web:1"]);
    assert_eq!(at(&fleet, "east", TIER), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_rebalances_brings_them_by_itself() {
    let (fleet, _directory, process) = placed().await;
    process.writer.follow_policies();
    policy(&fleet, NEW);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(at(&fleet, "east", IMAGE), "one.example/x/web:1", "its policy says nothing of it");
    configure(&fleet, "", &format!("rebalance: {{every: 10m}}\n  perMember:\n{NEW}"));
    sleep(Duration::from_mins(11)).await;
    assert_eq!(images(&fleet), ["two.example/web:1", "two.example/web:1", "web:1"]);
    process.cancel.cancel();
    process.settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_part_that_a_move_makes_has_nobody_elses_overrides() {
    let fleet = Scripted::new(&[("east", 1), ("west", 5)]);
    fleet.world.lock().is_available = true;
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    policy(&fleet, "    west: {registry: mirror.example}\n");
    create(&process, &app(1)).await;
    assert_eq!((at(&fleet, "east", IMAGE), at(&fleet, "west", IMAGE)), (Value::Null, json!("mirror.example/web:1")));
    let drain = Command { verb: Verb::Drain, member: Some(member("west")), ..rebalance(false) };
    let report = process.writer.order(drain, "ann").await.unwrap();
    process.settled().await;
    assert_eq!(report.moves.len(), 1, "{report:?}");
    assert_eq!((at(&fleet, "east", IMAGE), at(&fleet, "west", IMAGE)), (json!("web:1"), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_which_parts_have_earlier_overrides() {
    let (fleet, _directory, process) = placed().await;
    policy(&fleet, NEW);
    let plan = process.writer.plan(&request("", &app(4))).await;
    let warnings = parsed(&plan)["warnings"].to_string();
    assert!(warnings.contains("east, north have the overrides of an earlier configuration"), "{warnings}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_roll_a_second_member_while_the_first_is_not_available() {
    let (fleet, directory, process) = placed().await;
    process.settled().await;
    policy(&fleet, "    north: {max: 9}\n");
    fleet.world.lock().is_available = false;
    order(&process).await;
    sleep(Duration::from_mins(1)).await;
    process.cancel.cancel();
    let changed = |fleet: &Scripted| images(fleet).into_iter().filter(|image| *image == "web:1").count();
    assert_eq!(changed(&fleet), 2, "the home, and one that lost its overrides");
    let (fleet, process) = (fleet.restarted(), process);
    drop(process);
    let process = Process::start(fleet.clone(), &directory);
    process.writer.resume_moves();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(changed(&fleet), 2);
    fleet.world.lock().is_available = true;
    process.settled().await;
    assert_eq!(changed(&fleet), 3);
}
