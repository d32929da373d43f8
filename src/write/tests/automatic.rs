//! Moves that policies make: when they begin, when they do not, and what is moved.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    placement::{plan::Standing, policy::Rules},
    write::tests::{
        Process, configure, pair, request,
        scripted::{Scripted, member},
        web,
    },
};

/// Three members with a Deployment that is divided by weight, and a process that follows the policies.
async fn fleet(weights: &[(&str, u32)], replicas: u32) -> (Scripted, TempDir, Process) {
    let (fleet, directory) = (Scripted::new(weights), tempfile::tempdir().unwrap());
    let process = Process::start(fleet.clone(), &directory);
    let mut body = web(replicas);
    body["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    assert_eq!(process.writer.create(request("", &body)).await.code, 201);
    process.writer.follow_policies();
    (fleet, directory, process)
}

async fn end(process: &Process) {
    process.cancel.cancel();
    process.settled().await;
}

fn lose(fleet: &Scripted, name: &str) {
    let mut world = fleet.world.lock();
    let cluster = world.members.get_mut(&member(name)).unwrap();
    cluster.down = true;
    cluster.standing = Some(Standing::Down("it does not answer".into()));
    cluster.lost = Some(Instant::now());
}

fn find(fleet: &Scripted, name: &str) {
    let mut world = fleet.world.lock();
    let cluster = world.members.get_mut(&member(name)).unwrap();
    (cluster.down, cluster.standing, cluster.lost) = (false, None, None);
}

/// The replicas in members that answer.
fn running(fleet: &Scripted) -> Vec<(String, u64)> {
    let world = fleet.world.lock();
    let up = |name: &str| !world.members[&member(name)].down;
    let (mut stands, is_up) = (Vec::new(), ["east", "north", "west"].map(|name| (name, up(name))));
    drop(world);
    stands.extend(fleet.standing("web").into_iter().filter(|(name, _)| is_up.contains(&(&**name, true))));
    stands
}

#[tokio::test(start_paused = true)]
async fn objects_leave_a_lost_member_after_the_time_of_their_policy() {
    let (fleet, _directory, process) = fleet(&[("east", 1), ("north", 1), ("west", 2)], 4).await;
    configure(&fleet, "", "failover: {after: 5m}");
    lose(&fleet, "west");
    sleep(Duration::from_secs(290)).await;
    assert_eq!(running(&fleet), pair(&[("east", 1), ("north", 1)]), "it may come back");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 2)]));
    let report = process.writer.report();
    assert_eq!((report.moves.len(), report.superseded.len()), (0, 1), "{report:?}");
    find(&fleet, "west");
    process.writer.resume_moves();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 2)]), "its part is gone, and nothing goes back unasked");
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_says_nothing_of_it_moves_nothing() {
    let (fleet, _directory, process) = fleet(&[("east", 1), ("north", 1), ("west", 2)], 4).await;
    configure(&fleet, "", "max: 9");
    lose(&fleet, "west");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(running(&fleet), pair(&[("east", 1), ("north", 1)]));
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn failover_halts_when_many_members_are_lost_at_once() {
    let (fleet, _directory, process) = fleet(&[("east", 1), ("north", 1), ("west", 1)], 6).await;
    configure(&fleet, "", "failover: {after: 1m}");
    lose(&fleet, "west");
    lose(&fleet, "north");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2)]));
    let halted = process.writer.report().halted.unwrap();
    assert!(halted.starts_with("2 of 3 members do not answer (north, west)"), "{halted}");
    find(&fleet, "north");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(running(&fleet), pair(&[("east", 3), ("north", 3)]));
    assert_eq!(process.writer.report().halted, None);
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn what_may_run_twice_stays_unless_the_policy_forces_it() {
    let (fleet, directory) = (Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]), tempfile::tempdir().unwrap());
    let process = Process::start(fleet.clone(), &directory);
    let mut body = web(4);
    body["spec"]["strategy"] = json!({"type": "Recreate"});
    assert_eq!(process.writer.create(request("", &body)).await.code, 201);
    process.writer.follow_policies();
    configure(&fleet, "", "failover: {after: 1m}");
    lose(&fleet, "west");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(running(&fleet), pair(&[("east", 1), ("north", 1)]));
    let left = process.writer.report().left;
    assert!(left[0].why.starts_with("failover west: it is never to run twice at once"), "{left:?}");
    configure(&fleet, "", "failover: {after: 1m, force: true}");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 2)]));
    assert!(process.writer.report().left.is_empty());
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_evicts_what_does_not_tolerate_it_when_its_time_is_over() {
    let (fleet, _directory, process) = fleet(&[("east", 2), ("north", 1), ("west", 1)], 4).await;
    let taint = ", taints: [{key: gone, effect: NoExecute}]";
    configure(&fleet, taint, "tolerations: [{key: gone, operator: Exists}]");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 1), ("west", 1)]), "it is tolerated for good");
    fleet.world.lock().rules = Arc::new(Rules::default());
    sleep(Duration::from_secs(5)).await;
    configure(&fleet, taint, "tolerations: [{key: gone, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]");
    sleep(Duration::from_secs(50)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 1), ("west", 1)]));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(running(&fleet), pair(&[("north", 2), ("west", 2)]));
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_moves_where_there_is_some_and_does_not_come_back() {
    let (fleet, _directory, process) = fleet(&[("east", 1), ("north", 1), ("west", 1)], 6).await;
    let room = |name: &str, free: u32| fleet.world.lock().members.get_mut(&member(name)).unwrap().free = Some(free);
    // One of the two pods in east has a node.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "labels": {"app": "web"}},
        "spec": {"nodeName": "node"}, "status": {"phase": "Running"}
    });
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.insert("web-1".into(), pod);
    room("east", 0);
    room("north", 9);
    room("west", 2);
    configure(&fleet, "", "rebalance: {every: 10m, threshold: 100%}");
    sleep(Duration::from_mins(15)).await;
    assert_eq!(running(&fleet), pair(&[("east", 2), ("north", 2), ("west", 2)]), "one look is not enough");
    sleep(Duration::from_mins(10)).await;
    let moved = running(&fleet);
    assert_eq!(moved.iter().map(|(_, count)| count).sum::<u64>(), 6, "{moved:?}");
    assert_eq!(moved[0], ("east".to_owned(), 1), "{moved:?}");
    room("east", 0);
    sleep(Duration::from_hours(2)).await;
    assert_eq!(running(&fleet), moved, "it stays where there is room");
    end(&process).await;
}

#[tokio::test(start_paused = true)]
async fn less_than_the_threshold_is_not_moved() {
    let (fleet, _directory, process) = fleet(&[("east", 1), ("north", 1), ("west", 1)], 9).await;
    fleet.world.lock().members.get_mut(&member("east")).unwrap().weight = 2;
    configure(&fleet, "", "rebalance: {every: 1m, threshold: 40%}");
    sleep(Duration::from_mins(30)).await;
    assert_eq!(running(&fleet), pair(&[("east", 3), ("north", 3), ("west", 3)]));
    configure(&fleet, "", "rebalance: {every: 1m, threshold: 10%}");
    sleep(Duration::from_mins(5)).await;
    let now = running(&fleet);
    assert!(now[0].1 > 3 && now.iter().map(|(_, count)| count).sum::<u64>() == 9, "{now:?}");
    end(&process).await;
}
