//! A member is down for long. The journal then holds what has changed, not every write; and when the member is back, its part
//! becomes like the home, whatever clients wrote meanwhile.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::write::{
    journal::ENTRIES_OF_ONE_MAX,
    request::Request,
    tests::{
        Process,
        killed::Kill,
        message,
        scripted::{Fault, Scripted, member},
        update::{self, MERGE, down, everywhere, label, labels, patch, placed, put, send},
    },
    update::APPLY_PATCH,
};

/// A part without what each member has of its own.
fn bare(fleet: &Scripted, at: &str) -> Value {
    update::bare(&fleet.world.lock().members[&member(at)].objects["web"])
}

fn replicas(fleet: &Scripted) -> u64 {
    fleet.standing("web").iter().map(|(_, replicas)| replicas).sum()
}

/// Somebody writes.
fn by(writer: usize, request: Request) -> Request {
    let force = if request.content_type == APPLY_PATCH { "&force=true" } else { "" };
    update::by(&format!("k{writer}"), force, request)
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_what_has_changed_and_not_what_was_written() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    for number in 0..2 * ENTRIES_OF_ONE_MAX {
        let value = format!("v{number}");
        for (writer, change) in [
            json!({"metadata": {"labels": {"tier": value}}}),
            json!({"spec": {"paused": number % 2 == 0, "odd": {"n": number}}}),
            json!({"spec": {"replicas": 3 + number % 7}}),
            // Two who write the same, again and again.
            json!({"metadata": {"labels": {"tier": "mine"}}}),
        ]
        .iter()
        .enumerate()
        {
            let reply = send(&process, by(writer, patch(MERGE, change))).await;
            assert_eq!(reply.code, 200, "{}", message(&reply));
        }
        let open = process.writer.journal().open_entries();
        // One of each writer, and one that says what later ones change a part of.
        assert!(open.len() <= 5, "{:#?}", open.iter().map(|entry| &entry.body).collect::<Vec<_>>());
        assert!(open.iter().map(|entry| entry.body.len()).sum::<usize>() < 20_000);
    }
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(bare(&fleet, "east"), bare(&fleet, "west"));
    assert_eq!(bare(&fleet, "east")["spec"]["odd"]["n"], 2 * ENTRIES_OF_ONE_MAX - 1);
    assert_eq!(fleet.standing("web").len(), 2);
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn managers_that_force_the_same_place_in_turn_cost_one_entry_each() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    for number in 0..2 * ENTRIES_OF_ONE_MAX {
        let writer = number % 3;
        let labels = json!({"tier": format!("v{number}"), format!("of-{writer}"): "x"});
        let body = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "web", "labels": labels}});
        let reply = send(&process, by(writer, patch(APPLY_PATCH, &body))).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert!(process.writer.journal().open_entries().len() <= 3);
    }
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(bare(&fleet, "east"), bare(&fleet, "west"));
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_came_back_to_where_it_was_waits_for_nobody() {
    let (fleet, _directory, process) = placed().await;
    send(&process, patch(MERGE, &json!({"metadata": {"labels": {"tier": "a"}}}))).await;
    down(&fleet, "east", true);
    for (tier, replicas, open) in [("b", 6, 1), ("a", 3, 0), ("c", 3, 1)] {
        let change = json!({"metadata": {"labels": {"tier": tier}}, "spec": {"replicas": replicas}});
        assert_eq!(send(&process, patch(MERGE, &change)).await.code, 200);
        assert_eq!(process.writer.journal().open_entries().len(), open, "{tier}");
    }
}

/// A part that may have taken an earlier value begins anywhere: nothing of the earlier write is dropped.
#[tokio::test(start_paused = true)]
async fn what_may_have_landed_is_not_begun_before() {
    for fault in [Fault::LostLanded, Fault::LostNothing, Fault::LostLate] {
        let (fleet, _directory, process) = placed().await;
        let label = |tier: &str| patch(MERGE, &json!({"metadata": {"labels": {"tier": tier}}}));
        // Two dry runs and the home come before.
        fleet.world.lock().faults = [(3, fault)].into();
        assert_eq!(send(&process, label("a")).await.code, 200);
        down(&fleet, "east", true);
        for tier in ["b", "c", "d"] {
            assert_eq!(send(&process, label(tier)).await.code, 200);
        }
        let open = process.writer.journal().open_entries().len();
        assert_eq!(open, 2, "{fault:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        down(&fleet, "east", false);
        process.writer.replay();
        process.settled().await;
        assert_eq!(bare(&fleet, "east"), bare(&fleet, "west"), "{fault:?}");
    }
}

/// The process is killed before it notes that the home has a write, and the next process writes before it asks for that.
#[tokio::test(start_paused = true)]
async fn what_a_killed_process_had_the_home_store_is_begun_before_the_next_write() {
    for is_told_first in [false, true] {
        let (fleet, directory, process) = placed().await;
        down(&fleet, "east", true);
        // Two dry runs come before.
        fleet.world.lock().faults = [(2, Fault::CrashAfter)].into();
        tokio::select! {
            reply = label(&process, "a") => panic!("{}", message(&reply)),
            () = fleet.killed.notified() => {}
        }
        process.cancel.cancel();
        let process = Process::start(fleet.restarted(), &directory);
        if is_told_first {
            process.writer.replay();
        }
        assert_eq!(label(&process, "b").await.code, 200);
        down(&fleet, "east", false);
        process.writer.replay();
        process.settled().await;
        assert_eq!(labels(&fleet, "tier"), everywhere("b"), "{is_told_first}");
    }
}

/// What an apply sets anew was another manager's before somebody took it away.
#[tokio::test(start_paused = true)]
async fn what_was_taken_away_before_an_apply_is_no_conflict_of_it() {
    let (fleet, _directory, process) = placed().await;
    down(&fleet, "east", true);
    let removal = update::by("ann", "", patch(MERGE, &json!({"metadata": {"labels": {"app": null}}})));
    let body =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "new"}}});
    for request in [removal, update::by("ci", "", patch(APPLY_PATCH, &body))] {
        let reply = send(&process, request).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
    }
    down(&fleet, "east", false);
    process.writer.replay();
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(process.writer.journal().open_entries().is_empty(), "{:#?}", process.writer.journal().open_entries());
    assert_eq!(bare(&fleet, "east"), bare(&fleet, "west"));
}

#[derive(Clone, Debug)]
enum Act {
    Label(&'static str, Option<u8>),
    Odd(Value),
    Image(u8),
    Scale(u8),
    Put(u8),
    Apply(u8),
    Down(bool),
    Kill,
    /// In the next write.
    KillInWrite(Kill),
}

fn act() -> impl Strategy<Value = Act> {
    let odd = prop_oneof![
        (0..3u8).prop_map(|n| json!(n)),
        (0..3u8).prop_map(|n| json!({"x": n})),
        (0..3u8, 0..3u8).prop_map(|(n, m)| json!({"x": {"y": n}, "z": m})),
        (0..3u8).prop_map(|n| json!({"x": {"y": n}})),
        Just(Value::Null),
        Just(json!({"x": null})),
        (0..3u8).prop_map(|n| json!([n, n + 1])),
    ];
    prop_oneof![
        4 => (prop_oneof![Just("a"), Just("b")], prop::option::of(0..3u8)).prop_map(|(name, value)| Act::Label(name, value)),
        4 => odd.prop_map(Act::Odd),
        2 => (0..3u8).prop_map(Act::Image),
        3 => (0..9u8).prop_map(Act::Scale),
        2 => (0..3u8).prop_map(Act::Put),
        3 => (0..3u8).prop_map(Act::Apply),
        2 => any::<bool>().prop_map(Act::Down),
        1 => Just(Act::Kill),
        2 => Kill::any(6).prop_map(Act::KillInWrite),
    ]
}

async fn restarted(process: Process, fleet: &Scripted, directory: &TempDir) -> Process {
    process.cancel.cancel();
    process.settled().await;
    let process = Process::start(fleet.restarted(), directory);
    process.writer.replay();
    // Until it is known what of the earlier process may still land, its object is not written.
    tokio::time::sleep(Duration::from_secs(60)).await;
    process
}

/// Writes until that is answered, or the process is killed. Gives the process that is running then.
async fn written(mut process: Process, directory: &TempDir, request: Request, kill: Option<Kill>) -> Process {
    // Somebody may have to find out first what became of an earlier write.
    for _ in 0..5 {
        let asked = async |process: &Process| send(process, request.clone()).await;
        let reply;
        (process, reply) = Kill::in_write(kill, process, directory, asked).await;
        match reply {
            Some(reply) if reply.code == 503 => tokio::time::sleep(Duration::from_secs(60)).await,
            Some(reply) => {
                assert_eq!(reply.code, 200, "{request:?}: {}", message(&reply));
                return process;
            }
            None => return process,
        }
    }
    panic!("{request:?} is answered by 503 all the time");
}

/// Does one act. Gives the process that is running then, and how it is to be killed in the next write.
async fn perform(
    process: Process,
    fleet: &Scripted,
    directory: &TempDir,
    act: &(usize, Act),
    kill: Option<Kill>,
) -> (Process, Option<Kill>) {
    let (writer, act) = act;
    let request = match act {
        Act::Label(name, value) => {
            patch(MERGE, &json!({"metadata": {"labels": {*name: value.map(|value| format!("v{value}"))}}}))
        }
        Act::Odd(value) => patch(MERGE, &json!({"spec": {"odd": value}})),
        Act::Image(number) => {
            let containers = json!([{"name": "web", "image": format!("web:{number}")}, {"name": "side", "image": "s"}]);
            patch(MERGE, &json!({"spec": {"containers": containers}}))
        }
        Act::Scale(number) => patch(MERGE, &json!({"spec": {"replicas": number}})),
        Act::Put(number) => put(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": format!("v{number}")}},
            "spec": {"replicas": number, "odd": {"put": number}},
        })),
        // A manager says the same fields each time.
        Act::Apply(number) => {
            let labels = json!({"a": format!("v{number}"), format!("of-k{writer}"): format!("v{number}")});
            patch(
                APPLY_PATCH,
                &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": labels}}),
            )
        }
        Act::Down(is) => {
            down(fleet, "east", *is);
            process.writer.replay();
            // Those who bring it up have the object in turns, and a writer does not wait for ever.
            tokio::time::sleep(Duration::from_secs(60)).await;
            return (process, kill);
        }
        Act::Kill => return (restarted(process, fleet, directory).await, kill),
        Act::KillInWrite(kill) => return (process, Some(*kill)),
    };
    (written(process, directory, by(*writer, request), kill).await, None)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases / 6, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_written_meanwhile_the_part_is_like_the_home(acts in prop::collection::vec((0..2usize, act()), 1..40)) {
        play(&acts);
    }
}

/// What writes of a killed process came to was not told apart.
#[test]
fn what_came_of_the_writes_of_killed_processes_is_told_apart() {
    use Act::{Apply, Down, Image, Label, Odd, Put, Scale};
    use Fault::{CrashAfter, CrashBefore, CrashLate};
    let kill = |call, fault, replays| Act::KillInWrite(Kill::new(call, fault, replays));
    let late = |replays| kill(2, CrashLate, replays);
    let after = |replays| kill(2, CrashAfter, replays);
    let cases = [
        vec![late(false), Put(0), Put(1), Odd(json!({"x": 0}))],
        vec![Label("a", Some(0)), late(false), Label("b", Some(0))],
        vec![late(false), Apply(1), Apply(0)],
        vec![Down(false), after(true), Apply(0), kill(0, CrashBefore, false), Label("b", Some(0))],
        vec![Down(false), after(false), Apply(0), Put(0), late(true), Label("a", None), Label("a", None)],
        vec![
            Down(false),
            Image(0),
            after(false),
            Apply(0),
            Put(0),
            kill(4, CrashBefore, false),
            Apply(0),
            Label("a", None),
            Image(0),
        ],
        // Whoever is woken in the pause after its last try tries again.
        [vec![Put(0)], vec![Down(true); 6]].concat(),
        vec![after(false), Put(0), Act::Kill, Put(1)],
        // What changes nothing leaves the home at the revision that the late one names.
        vec![late(false), Put(0), Scale(3), Act::Kill],
    ];
    for case in cases {
        // Those who apply are not those who do the rest.
        play(&case.into_iter().map(|act| (usize::from(matches!(act, Apply(_))), act)).collect::<Vec<_>>());
    }
    // What says once more what the home has already is not before the late one in one part, and behind it in another.
    play(&[Apply(0), late(false), Put(0), Apply(0), Down(false)].map(|act| (0, act)));
}

fn play(acts: &[(usize, Act)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (fleet, directory, mut process) = placed().await;
        down(&fleet, "east", true);
        let mut kill = None;
        for act in acts {
            (process, kill) = perform(process, &fleet, &directory, act, kill).await;
        }
        down(&fleet, "east", false);
        process.writer.replay();
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(bare(&fleet, "east"), bare(&fleet, "west"), "{acts:?}");
        let open = process.writer.journal().open_entries();
        assert!(open.is_empty(), "{acts:?}: {open:?}");
        // A PUT of the number that is shown asks for no other, though it may change once east is back. A write in which the process
        // is killed may be done or not.
        let is_open = acts.iter().any(|(_, act)| matches!(act, Act::Put(_) | Act::KillInWrite(..)));
        let scaled = acts.iter().rev().find_map(|(_, act)| match act {
            Act::Scale(number) => Some(u64::from(*number)),
            _ => None,
        });
        assert!(is_open || replicas(&fleet) == scaled.unwrap_or(3), "{acts:?}");
    });
}
