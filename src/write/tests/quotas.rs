//! A quota of the fleet under faults and kills: its parts never come to more than the whole.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    answer::reply::Reply,
    placement::plan::Standing,
    write::{
        request::Request,
        tests::{
            Process, message, pair, parsed, policies, request,
            scripted::{CRASHES, FAULTS, Fault, Scripted, member},
            to_the_end,
            update::{MERGE, down},
            web,
        },
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

const POLICY: &str = "- name: quota\n  match: {kinds: [ResourceQuota]}\n  strategy: divide\n";
const EAST: &str = "- name: east\n  match: {kinds: [Deployment]}\n  strategy: divide\n  members: [east]\n";

fn of_quota(method: Method, body: &Value) -> Request {
    let content_type = if method == Method::PATCH { MERGE } else { "application/json" };
    Request {
        name: if method == Method::POST { String::new() } else { "q".into() },
        method,
        gvr: Gvr::new("", "v1", "resourcequotas"),
        gvk: Gvk::new("", "v1", "ResourceQuota"),
        content_type: content_type.into(),
        ..request("fieldManager=k", body)
    }
}

fn quota(pods: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": pods.to_string()}}})
}

async fn write(process: &Process, pods: u64) -> Reply {
    let hard = json!({"spec": {"hard": {"pods": pods.to_string()}}});
    process.writer.update(of_quota(Method::PATCH, &hard), "q".into()).await
}

/// What the parts allow, by member.
fn allowed(fleet: &Scripted) -> Vec<(String, u64)> {
    fleet.world.lock().allowed()
}

fn sum(fleet: &Scripted) -> u64 {
    allowed(fleet).iter().map(|(_, pods)| pods).sum()
}

/// Notes what is used in a member.
fn uses(fleet: &Scripted, at: &str, pods: u64) {
    let mut world = fleet.world.lock();
    let part = world.members.get_mut(&member(at)).unwrap().objects.get_mut("q").unwrap();
    part["status"] = json!({"used": {"pods": pods.to_string()}});
}

/// A quota of 10 pods over three members.
async fn placed() -> (Scripted, TempDir) {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 1)]);
    policies(&fleet, "", &format!("{POLICY}{EAST}"));
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    let reply = process.writer.create(of_quota(Method::POST, &quota(10))).await;
    assert_eq!((reply.code.as_u16(), sum(&fleet)), (201, 10), "{}", message(&reply));
    assert_eq!(parsed(&reply)["spec"]["hard"]["pods"], "10");
    process.settled().await;
    let mut world = fleet.world.lock();
    (world.most_allowed, world.calls) = (0, Vec::new());
    drop(world);
    (fleet, directory)
}

/// Eight pods that are to run in east.
fn eight() -> Value {
    let mut web = web(8);
    web["spec"]["template"]["spec"] = json!({"containers": [{"name": "web", "image": "web:1"}]});
    web
}

fn replay(process: &Process) {
    process.writer.replay();
}

/// What stands when all that was under way has landed, or never will.
async fn at_rest(fleet: &Scripted, directory: &TempDir) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    fleet.world.lock().faults.clear();
    let process = Process::start(fleet.restarted(), directory);
    process.writer.replay();
    process.settled().await;
}

/// A workload asks for more than its member's share. Gives how many calls there were until the answer.
async fn asked(faults: &[(usize, Fault)]) -> usize {
    let (fleet, directory) = placed().await;
    fleet.world.lock().faults = faults.iter().copied().collect();
    let create = async |process: &Process| process.writer.create(request("", &eight())).await;
    drop(to_the_end(&fleet, &directory, create, replay).await);
    let calls = fleet.world.lock().calls.len();
    at_rest(&fleet, &directory).await;
    let process = Process::start(fleet.restarted(), &directory);
    // What a kill left unused, the next write of the quota gives back.
    let again = process.writer.update(of_quota(Method::PATCH, &json!({})), "q".into()).await;
    assert_eq!(again.code, 200, "{faults:?}: {}", message(&again));
    process.settled().await;
    assert_eq!(sum(&fleet), 10, "{faults:?}: {:?}", allowed(&fleet));
    assert!(fleet.world.lock().most_allowed <= 10, "{faults:?}");
    assert_eq!(parsed(&again)["spec"]["hard"]["pods"], "10", "{faults:?}");
    calls
}

#[tokio::test(start_paused = true)]
async fn parts_follow_what_is_asked_and_never_come_to_more_whatever_fails() {
    let calls = asked(&[]).await;
    for at in 0..calls {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            asked(&[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_asks_shrinks_others_before_its_member_grows() {
    let (fleet, directory) = placed().await;
    uses(&fleet, "west", 1);
    let process = Process::start(fleet.clone(), &directory);
    let reply = process.writer.create(request("", &eight())).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(allowed(&fleet), pair(&[("east", 8), ("north", 1), ("west", 1)]));
    let world = fleet.world.lock();
    let asked =
        world.calls.iter().zip(&world.callers).filter(|((_, call), _)| call.path.as_str().contains("resourcequotas"));
    let written: Vec<_> =
        asked.filter(|((_, call), _)| call.method == Method::PATCH && !call.query.contains("dryRun")).collect();
    let last = written.last().unwrap();
    assert_eq!(
        (last.0.0.as_str(), last.1.as_str()),
        ("east", "kubefold:mover"),
        "who makes a workload need not write quotas"
    );
    assert_eq!(world.most_allowed, 10);
}

#[tokio::test(start_paused = true)]
async fn more_pods_than_the_whole_allows_are_taken_and_wait() {
    let (fleet, directory) = placed().await;
    for name in ["east", "north", "west"] {
        uses(&fleet, name, 2);
    }
    let process = Process::start(fleet.clone(), &directory);
    let reply = process.writer.create(request("", &eight())).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    let told: Vec<_> = reply.warnings.values().iter().map(|said| said.to_str().unwrap().to_owned()).collect();
    assert!(told.concat().contains("has room for 4 of its 8 pods (east: 4)"), "{told:?}");
    assert_eq!(allowed(&fleet), pair(&[("east", 6), ("north", 2), ("west", 2)]));
}

/// The whole becomes less.
async fn lowered(faults: &[(usize, Fault)]) -> usize {
    let (fleet, directory) = placed().await;
    fleet.world.lock().faults = faults.iter().copied().collect();
    let lower = async |process: &Process| write(process, 6).await;
    drop(to_the_end(&fleet, &directory, lower, replay).await);
    let calls = fleet.world.lock().calls.len();
    at_rest(&fleet, &directory).await;
    let process = Process::start(fleet.restarted(), &directory);
    let again = write(&process, 6).await;
    assert_eq!(again.code, 200, "{faults:?}: {}", message(&again));
    process.settled().await;
    assert_eq!(sum(&fleet), 6, "{faults:?}: {:?}", allowed(&fleet));
    assert!(fleet.world.lock().most_allowed <= 10, "{faults:?}");
    calls
}

#[tokio::test(start_paused = true)]
async fn a_lower_whole_arrives_whatever_fails() {
    let calls = lowered(&[]).await;
    for at in 0..calls {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            lowered(&[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_again_asks_no_member_to_change() {
    let (fleet, directory) = placed().await;
    uses(&fleet, "east", 3);
    let process = Process::start(fleet.clone(), &directory);
    let before = allowed(&fleet);
    let reply = write(&process, 10).await;
    assert_eq!((reply.code.as_u16(), allowed(&fleet)), (200, before));
    let revisions = |fleet: &Scripted| -> Vec<Value> {
        fleet.world.lock().members.values().map(|one| one.objects["q"]["metadata"]["resourceVersion"].clone()).collect()
    };
    let at = revisions(&fleet);
    write(&process, 10).await;
    assert_eq!(revisions(&fleet), at);
    // A higher one is divided over all.
    assert_eq!(write(&process, 12).await.code, 200);
    assert_eq!(allowed(&fleet), pair(&[("east", 4), ("north", 4), ("west", 4)]));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_down_keeps_its_share_and_gets_its_part_later() {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 1)]);
    policies(&fleet, "", &format!("{POLICY}{EAST}"));
    let is_down = |is: bool| {
        down(&fleet, "north", is);
        let standing = is.then(|| Standing::Down("north does not answer".into()));
        fleet.world.lock().members.get_mut(&member("north")).unwrap().standing = standing;
    };
    is_down(true);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    assert_eq!(process.writer.create(of_quota(Method::POST, &quota(9))).await.code, 201);
    assert_eq!(allowed(&fleet), pair(&[("east", 3), ("north", 0), ("west", 3)]));
    assert_eq!(process.writer.create(request("", &eight())).await.code, 201);
    assert_eq!(allowed(&fleet), pair(&[("east", 6), ("north", 0), ("west", 0)]), "3 are north's");
    assert_eq!(write(&process, 12).await.code, 200);
    is_down(false);
    tokio::time::sleep(Duration::from_secs(400)).await;
    process.settled().await;
    assert_eq!(sum(&fleet), 12, "{:?}", allowed(&fleet));
    assert!(fleet.world.lock().most_allowed <= 12);
    assert_eq!(fleet.world.lock().members[&member("north")].objects["q"]["spec"]["hard"]["pods"], "3");
}

#[tokio::test(start_paused = true)]
async fn what_an_administrator_gives_a_member_counts() {
    let (fleet, directory) = placed().await;
    let edit = |at: &str, pods: &str| {
        let mut world = fleet.world.lock();
        let part = world.members.get_mut(&member(at)).unwrap().objects.get_mut("q").unwrap();
        part["spec"]["hard"]["pods"] = pods.into();
    };
    edit("west", "9");
    let process = Process::start(fleet.clone(), &directory);
    // It is no drift: the fleet says what was written.
    let shown =
        process.writer.update(of_quota(Method::PATCH, &json!({"metadata": {"labels": {"a": "b"}}})), "q".into()).await;
    assert_eq!(parsed(&shown)["spec"]["hard"]["pods"], "10");
    process.settled().await;
    assert_eq!(sum(&fleet), 10, "the next write brings the sum back: {:?}", allowed(&fleet));
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_the_limits_hold_in_each_member() {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 1)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    assert_eq!(process.writer.create(of_quota(Method::POST, &quota(10))).await.code, 201);
    assert_eq!(write(&process, 7).await.code, 200);
    assert_eq!(allowed(&fleet), pair(&[("east", 7), ("north", 7), ("west", 7)]));
    let part = fleet.world.lock().members[&member("east")].objects["q"].clone();
    assert!(part["metadata"]["annotations"]["kubefold.io/whole"].is_null(), "{part}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_up_keeps_to_the_quota_that_a_member_has_of_its_own() {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 1)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    let mut web = eight();
    web["spec"]["replicas"] = 3.into();
    assert_eq!(process.writer.create(request("", &web)).await.code, 201);
    {
        let mut world = fleet.world.lock();
        let east = &mut world.members.get_mut(&member("east")).unwrap().objects;
        east.get_mut("web").unwrap()["status"] = json!({"replicas": 1});
        let own = json!({"kind": "ResourceQuota", "metadata": {"name": "own"}, "spec": {"hard": {"pods": "2"}},
            "status": {"used": {"pods": "1"}}});
        east.insert("own".into(), own);
    }
    let scale = |replicas: u32| Request {
        name: "web".into(),
        method: Method::PATCH,
        content_type: MERGE.into(),
        ..request("", &json!({"spec": {"replicas": replicas}}))
    };
    let reply = process.writer.update(scale(10), "web".into()).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("north", 4), ("west", 4)]));
}
