//! Every fault at every call, and a kill at every call, alone and together: whole or nothing, and the truth was told.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    answer::reply::Reply,
    write::tests::{
        Process, pair, request,
        scripted::{CRASHES, FAULTS, Fault, Scripted},
        to_the_end,
        update::{MERGE, labels, patch, send},
        web,
    },
};

/// Calls of one write over three members, its undoing and settling included.
const CALLS: usize = 14;

fn fleet() -> Scripted {
    Scripted::new(&[("east", 1), ("north", 1), ("west", 2)])
}

fn whole() -> Vec<(String, u64)> {
    pair(&[("east", 1), ("north", 1), ("west", 2)])
}

#[derive(Clone, Copy)]
enum Verb {
    Create,
    /// A value for all, and a new total.
    Update,
    Delete,
}

async fn write(process: &Process, verb: Verb) -> Reply {
    match verb {
        Verb::Create => process.writer.create(request("", &web(4))).await,
        Verb::Update => {
            let body = json!({"metadata": {"labels": {"app": "new"}}, "spec": {"replicas": 8}});
            send(process, patch(MERGE, &body)).await
        }
        Verb::Delete => process.writer.delete(request("", &Value::Null), "web".into()).await,
    }
}

/// Runs one write under faults until nothing is left to do; a kill is followed by a restart. Gives the answer, if there
/// was one before the kill.
async fn run(fleet: &Scripted, directory: &TempDir, verb: Verb) -> Option<Reply> {
    to_the_end(fleet, directory, async |process| write(process, verb).await, |process| process.writer.replay()).await
}

fn judge(fleet: &Scripted, verb: Verb, reply: Option<&Reply>, case: &str) {
    if let Verb::Update = verb {
        return judge_update(fleet, reply, case);
    }
    let stands = fleet.standing("web");
    let code = reply.map(|reply| reply.code.as_u16());
    assert!(stands.is_empty() || stands == whole(), "{case}: {stands:?} after {code:?}");
    let world = fleet.world.lock();
    for cluster in world.members.values() {
        for object in cluster.objects.values() {
            assert!(object["metadata"]["labels"]["kubefold.io/placement"].is_string(), "{case}: a part without marker");
        }
    }
    let made = match verb {
        Verb::Create | Verb::Update => !stands.is_empty(),
        Verb::Delete => stands.is_empty(),
    };
    match code {
        Some(200 | 201) => assert!(made, "{case}: the answer claimed success"),
        Some(504) | None => {}
        Some(code) => assert!(!made, "{case}: the answer was {code}, but it was done"),
    }
}

/// All parts are as they were, or all as they shall be; and of whom the home says which.
fn judge_update(fleet: &Scripted, reply: Option<&Reply>, case: &str) {
    let (was, is) = (whole(), pair(&[("east", 2), ("north", 2), ("west", 4)]));
    let (stands, code) = (fleet.standing("web"), reply.map(|reply| reply.code.as_u16()));
    let values: Vec<Value> = labels(fleet, "app").into_iter().map(|(_, value)| value).collect();
    let made = stands == is;
    assert!(made || stands == was, "{case}: {stands:?} after {code:?}");
    let value = if made { "new" } else { "web" };
    assert!(values.iter().all(|held| held == value), "{case}: {values:?} with {stands:?} after {code:?}");
    match code {
        Some(200) => assert!(made, "{case}: the answer claimed success"),
        Some(504) | None => {}
        Some(code) => assert!(!made, "{case}: the answer was {code}, but it was done"),
    }
    assert!(labels(fleet, "kubefold.io/placement").iter().all(|(_, mark)| mark.is_string()), "{case}");
}

async fn case(verb: Verb, faults: &[(usize, Fault)]) {
    let (fleet, directory) = (fleet(), tempfile::tempdir().unwrap());
    if let Verb::Delete | Verb::Update = verb {
        let process = Process::start(fleet.clone(), &directory);
        assert_eq!(write(&process, Verb::Create).await.code, 201);
        let mut world = fleet.world.lock();
        world.calls.clear();
        world.made.clear();
    }
    fleet.world.lock().faults = faults.iter().copied().collect();
    let reply = run(&fleet, &directory, verb).await;
    // What was under way has landed or never will.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let told = format!("{faults:?}");
    judge(&fleet, verb, reply.as_ref(), &told);
    let process = Process::start(fleet.restarted(), &directory);
    assert!(process.writer.journal().open_entries().is_empty(), "{told}: the journal is not empty");
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_create() {
    for at in 0..CALLS {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(Verb::Create, &[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_delete() {
    for at in 0..CALLS {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(Verb::Delete, &[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_an_update() {
    for at in 0..CALLS {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(Verb::Update, &[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_an_update() {
    for at in 3..8 {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            for killed_at in at + 1..CALLS {
                for crash in CRASHES {
                    case(Verb::Update, &[(at, fault), (killed_at, crash)]).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_an_update() {
    for at in 3..8 {
        for then_at in at + 1..12 {
            for (fault, then) in FAULTS.into_iter().flat_map(|fault| FAULTS.map(|then| (fault, then))) {
                case(Verb::Update, &[(at, fault), (then_at, then)]).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_a_create() {
    for at in 3..8 {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            for killed_at in at + 1..CALLS {
                for crash in CRASHES {
                    case(Verb::Create, &[(at, fault), (killed_at, crash)]).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_a_delete() {
    for at in 3..8 {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            for killed_at in at + 1..CALLS {
                for crash in CRASHES {
                    case(Verb::Delete, &[(at, fault), (killed_at, crash)]).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_two_faults() {
    for at in 3..8 {
        for then_at in at + 1..12 {
            for (fault, then) in FAULTS.into_iter().flat_map(|fault| FAULTS.map(|then| (fault, then))) {
                case(Verb::Create, &[(at, fault), (then_at, then)]).await;
                case(Verb::Delete, &[(at, fault), (then_at, then)]).await;
            }
        }
    }
}
