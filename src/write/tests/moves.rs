//! Moves under faults and kills: they arrive, nothing runs too little, and nothing is made or deleted that is another's.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    config::MemberName,
    write::{
        moves::{Command, MovesReport, Verb},
        tests::{
            Process, pair, request,
            scripted::{CRASHES, Cluster, FAULTS, Fault, Scripted, member},
            to_the_end,
            update::{MERGE, patch, send},
            web,
        },
    },
};

/// Calls of a drain over three members.
const CALLS: usize = 15;

fn drain(name: &str, force: bool) -> Command {
    Command { verb: Verb::Drain, member: Some(member(name)), members: Vec::new(), object: None, dry_run: false, force }
}

/// East and north have one replica each, west two.
async fn fleet(directory: &TempDir) -> Scripted {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
    let process = Process::start(fleet.clone(), directory);
    assert_eq!(process.writer.create(request("", &web(4))).await.code, 201);
    process.settled().await;
    let mut world = fleet.world.lock();
    world.calls.clear();
    world.made.clear();
    world.fewest = u64::MAX;
    drop(world);
    fleet
}

/// Orders a drain of the home and waits until nothing is left to do; a kill is followed by a restart. Gives the answer, if
/// there was one before the kill.
async fn run(fleet: &Scripted, directory: &TempDir, command: Command) -> Option<MovesReport> {
    let order = async |process: &Process| process.writer.order(command.clone(), "ann").await.unwrap();
    to_the_end(fleet, directory, order, |process| process.writer.resume_moves()).await
}

fn is_left(fleet: &Scripted, name: &str) -> bool {
    fleet.world.lock().members[&member(name)].objects.is_empty()
}

async fn case(faults: &[(usize, Fault)]) {
    let directory = tempfile::tempdir().unwrap();
    let fleet = fleet(&directory).await;
    fleet.world.lock().faults = faults.iter().copied().collect();
    let report = run(&fleet, &directory, drain("west", false)).await;
    // What was under way has landed or never will.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let case = format!("{faults:?}");
    let (stands, fewest) = (fleet.standing("web"), fleet.world.lock().fewest);
    assert!(fewest >= 4, "{case}: {fewest} replicas were left for a while");
    let process = Process::start(fleet.restarted(), &directory);
    let now = process.writer.report();
    assert!(now.moves.is_empty() && now.superseded.is_empty(), "{case}: {now:?}");
    // What a dry run refuses is not begun; a kill before that leaves nothing.
    let is_begun = report.as_ref().is_none_or(|report| report.left.is_empty());
    let moved = pair(&[("east", 2), ("north", 2)]);
    let unmoved = pair(&[("east", 1), ("north", 1), ("west", 2)]);
    match report {
        Some(_) if is_begun => assert_eq!(stands, moved, "{case}"),
        Some(_) => assert_eq!(stands, unmoved, "{case}"),
        None => assert!(stands == moved || stands == unmoved, "{case}: {stands:?}"),
    }
    fleet.world.lock().faults.clear();
    goes_on(&process, &fleet, &case).await;
}

/// Writes and deletes reach all parts, wherever they are by now.
async fn goes_on(process: &Process, fleet: &Scripted, case: &str) {
    let reply = send(process, patch(MERGE, &json!({"spec": {"replicas": 8}}))).await;
    assert_eq!(reply.code, 200, "{case}: {reply:?}");
    assert_eq!(fleet.standing("web").iter().map(|(_, count)| count).sum::<u64>(), 8, "{case}");
    let reply = process.writer.delete(request("", &Value::Null), "web".into()).await;
    assert_eq!(reply.code, 200, "{case}: {reply:?}");
    assert_eq!(fleet.standing("web"), [], "{case}");
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_is_survived() {
    case(&[]).await;
    for at in 0..CALLS {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(&[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_after_every_fault_is_survived() {
    for at in 0..CALLS {
        for then in 1..3 {
            for fault in [Fault::Refuse, Fault::LostLate] {
                for crash in [Fault::CrashAfter, Fault::CrashLate] {
                    case(&[(at, fault), (at + then, crash)]).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_strangers_object_stays_and_nothing_moves_onto_it() {
    let directory = tempfile::tempdir().unwrap();
    let fleet = Scripted::new(&[("east", 1), ("west", 1)]);
    let process = Process::start(fleet.clone(), &directory);
    fleet.world.lock().members.get_mut(&member("east")).unwrap().standing =
        Some(crate::placement::plan::Standing::Down("down".into()));
    assert_eq!(process.writer.create(request("", &web(2))).await.code, 201);
    let own = json!({"metadata": {"name": "web", "uid": "theirs", "resourceVersion": "1"}, "spec": {"replicas": 9}});
    let change = |change: &dyn Fn(&mut Cluster)| {
        change(fleet.world.lock().members.get_mut(&member("east")).unwrap());
    };
    change(&|east| {
        east.standing = None;
        east.objects.insert("web".into(), own.clone());
    });
    let report = process.writer.order(drain("west", true), "ann").await.unwrap();
    assert!(report.left[0].why.contains("member east has an object of its own"), "{report:?}");
    assert_eq!(fleet.world.lock().members[&member("east")].objects["web"], own);
    assert_eq!(fleet.standing("web"), pair(&[("east", 9), ("west", 2)]));
}

#[tokio::test(start_paused = true)]
async fn a_lost_part_goes_when_its_member_answers_and_no_other_object_does() {
    for is_another in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let fleet = fleet(&directory).await;
        let lost: MemberName = member("west");
        let set_down = |down: bool| fleet.world.lock().members.get_mut(&lost).unwrap().down = down;
        set_down(true);
        let process = Process::start(fleet.clone(), &directory);
        let report = process.writer.order(drain("west", false), "ann").await.unwrap();
        assert_eq!((report.moves.len(), report.left.len()), (1, 0), "{report:?}");
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("north", 2), ("west", 2)]));
        assert_eq!(process.writer.report().superseded.len(), 1);
        let reply = send(&process, patch(MERGE, &json!({"spec": {"replicas": 6}}))).await;
        assert_eq!(reply.code, 200, "writes go on: {reply:?}");
        if is_another {
            // Restored from a backup under another UID, the marker with it.
            let mut world = fleet.world.lock();
            let part = world.members.get_mut(&lost).unwrap().objects.get_mut("web").unwrap();
            part["metadata"]["uid"] = "restored".into();
        }
        set_down(false);
        process.settled().await;
        assert_eq!(is_left(&fleet, "west"), !is_another);
        let mut stands = fleet.standing("web");
        stands.retain(|(name, _)| name != "west");
        assert_eq!(stands, pair(&[("east", 3), ("north", 3)]));
    }
}
