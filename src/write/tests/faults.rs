//! Every fault at every call, and a kill at every call, alone and together: whole or nothing, and the truth was told.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    answer::reply::Reply,
    write::{
        request::Request,
        tests::{
            Process, pair, request,
            scripted::{CRASHES, FAULTS, Fault, Scripted},
            to_the_end,
            update::{MERGE, by, labels, patch, put, send},
            web,
        },
        update::{APPLY_PATCH, SCALE},
    },
};

/// One of so many pairs is judged. Coprime with the numbers of faults and of kills, so that each of them comes up at each call.
const PAIRS_ONE_OF: usize = 5;

fn fleet() -> Scripted {
    Scripted::new(&[("east", 1), ("north", 1), ("west", 2)])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    /// A value for all, and a new total.
    Update,
    /// A server-side apply of another manager than the one that made it: a label more, and nothing of `replicas`.
    Apply,
    /// The same, forced, with a new total.
    ApplyTotal,
    /// A merge patch of `/scale`.
    Scale,
    /// A `PUT` of `/scale`.
    PutScale,
    Delete,
}

fn whole() -> Vec<(String, u64)> {
    pair(&[("east", 1), ("north", 1), ("west", 2)])
}

impl Verb {
    /// The request of a change.
    fn request(self) -> Request {
        let applied = |spec: Value| {
            let mut body = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            body["metadata"] = json!({"name": "web", "labels": {"tier": "new"}});
            body["spec"] = spec;
            body
        };
        let scale = json!({"metadata": {"name": "web"}, "spec": {"replicas": 8}});
        let of_scale = |request: Request| Request { subresource: SCALE.to_owned(), ..request };
        match self {
            Self::Update => {
                let body = json!({"metadata": {"labels": {"app": "new"}}, "spec": {"replicas": 8}});
                patch(MERGE, &body)
            }
            Self::Apply => by("gitops", "", patch(APPLY_PATCH, &applied(json!({})))),
            Self::ApplyTotal => by("gitops", "&force=true", patch(APPLY_PATCH, &applied(json!({"replicas": 5})))),
            Self::Scale => by("scaler", "", of_scale(patch(MERGE, &scale))),
            Self::PutScale => by("scaler", "", of_scale(put(&scale))),
            Self::Create | Self::Delete => panic!("{self:?} is no change"),
        }
    }

    /// The parts once it is done.
    fn makes(self) -> Vec<(String, u64)> {
        match self {
            Self::Create | Self::Apply => whole(),
            Self::Update | Self::Scale | Self::PutScale => pair(&[("east", 2), ("north", 2), ("west", 4)]),
            Self::ApplyTotal => pair(&[("east", 1), ("north", 1), ("west", 3)]),
            Self::Delete => Vec::new(),
        }
    }

    /// The label that it sets in each part.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Update => Some("app"),
            Self::Apply | Self::ApplyTotal => Some("tier"),
            Self::Create | Self::Scale | Self::PutScale | Self::Delete => None,
        }
    }
}

async fn write(process: &Process, verb: Verb) -> Reply {
    match verb {
        Verb::Create => process.writer.create(request("fieldManager=maker", &web(4))).await,
        Verb::Delete => process.writer.delete(request("", &Value::Null), "web".into()).await,
        _ => send(process, verb.request()).await,
    }
}

/// Runs one write under faults until nothing is left to do; a kill is followed by a restart. Gives the answer, if there
/// was one before the kill.
async fn run(fleet: &Scripted, directory: &TempDir, verb: Verb) -> Option<Reply> {
    to_the_end(fleet, directory, async |process| write(process, verb).await, |process| process.writer.replay()).await
}

/// All parts are as they were, or all as they shall be; and the answer said which.
fn judge(fleet: &Scripted, verb: Verb, reply: Option<&Reply>, case: &str) {
    let was = if verb == Verb::Create { Vec::new() } else { whole() };
    let (stands, code) = (fleet.standing("web"), reply.map(|reply| reply.code.as_u16()));
    assert!(stands == verb.makes() || stands == was, "{case}: {stands:?} after {code:?}");
    let made = match verb.label() {
        None => stands == verb.makes(),
        Some(name) => {
            let values: Vec<Value> = labels(fleet, name).into_iter().map(|(_, value)| value).collect();
            let made = values.iter().all(|value| value == "new");
            assert!(made || values.iter().all(|value| value != "new"), "{case}: {values:?} after {code:?}");
            made
        }
    };
    assert!(!made || stands == verb.makes(), "{case}: {stands:?} after {code:?}");
    assert!(labels(fleet, "kubefold.io/placement").iter().all(|(_, mark)| mark.is_string()), "{case}");
    match code {
        Some(200 | 201) => assert!(made, "{case}: the answer claimed success"),
        Some(504) | None => {}
        Some(code) => assert!(!made, "{case}: the answer was {code}, but it was done"),
    }
}

/// Judges one case. Gives how many calls were made, its undoing and settling included: a fault at a later one changes nothing.
async fn case(verb: Verb, faults: &[(usize, Fault)]) -> usize {
    let (fleet, directory) = (fleet(), tempfile::tempdir().unwrap());
    if verb != Verb::Create {
        let process = Process::start(fleet.clone(), &directory);
        assert_eq!(write(&process, Verb::Create).await.code, 201);
        let mut world = fleet.world.lock();
        world.calls.clear();
        world.made.clear();
    }
    fleet.world.lock().faults = faults.iter().copied().collect();
    let reply = run(&fleet, &directory, verb).await;
    let calls = fleet.world.lock().calls.len();
    // What was under way has landed or never will.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let told = format!("{verb:?} {faults:?}");
    judge(&fleet, verb, reply.as_ref(), &told);
    let process = Process::start(fleet.restarted(), &directory);
    assert!(process.writer.journal().open_entries().is_empty(), "{told}: the journal is not empty");
    calls
}

fn faults_and_kills() -> impl Iterator<Item = Fault> {
    FAULTS.into_iter().chain(CRASHES)
}

async fn every_single_fault(verb: Verb) {
    for at in 0..case(verb, &[]).await {
        for fault in faults_and_kills() {
            case(verb, &[(at, fault)]).await;
        }
    }
}

/// Says of each pair of faults of a verb, in turn, whether it is judged. Verbs that change an object share one way through the writer, so
/// a share of the pairs of each, which begins elsewhere for each, covers it. `KUBEFOLD_FAULT_PAIRS=1` judges all (`scripts/soak faults`).
fn share_of_pairs(verb: Verb) -> impl FnMut() -> bool {
    let one_of = match std::env::var("KUBEFOLD_FAULT_PAIRS") {
        Ok(number) => number.parse().expect("KUBEFOLD_FAULT_PAIRS is a number"),
        Err(_) if matches!(verb, Verb::Create | Verb::Delete) => 1,
        Err(_) => PAIRS_ONE_OF,
    };
    let mut next = verb as usize;
    move || {
        next += 1;
        next.is_multiple_of(one_of)
    }
}

async fn every_two_faults(verb: Verb) {
    let mut is_judged = share_of_pairs(verb);
    for at in 0..case(verb, &[]).await {
        for fault in FAULTS {
            for then_at in at + 1..case(verb, &[(at, fault)]).await {
                for then in FAULTS {
                    if is_judged() {
                        case(verb, &[(at, fault), (then_at, then)]).await;
                    }
                }
            }
        }
    }
}

async fn every_kill_after_every_fault(verb: Verb) {
    let mut is_judged = share_of_pairs(verb);
    for at in 0..case(verb, &[]).await {
        for fault in faults_and_kills() {
            for killed_at in at + 1..case(verb, &[(at, fault)]).await {
                for crash in CRASHES {
                    if is_judged() {
                        case(verb, &[(at, fault), (killed_at, crash)]).await;
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_create() {
    every_single_fault(Verb::Create).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_an_update() {
    every_single_fault(Verb::Update).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_delete() {
    every_single_fault(Verb::Delete).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_an_apply() {
    every_single_fault(Verb::Apply).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_an_apply_of_a_total() {
    every_single_fault(Verb::ApplyTotal).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_scale() {
    every_single_fault(Verb::Scale).await;
}

#[tokio::test(start_paused = true)]
async fn every_single_fault_of_a_put_of_a_scale() {
    every_single_fault(Verb::PutScale).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_a_create() {
    every_two_faults(Verb::Create).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_an_update() {
    every_two_faults(Verb::Update).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_a_delete() {
    every_two_faults(Verb::Delete).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_an_apply() {
    every_two_faults(Verb::Apply).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_an_apply_of_a_total() {
    every_two_faults(Verb::ApplyTotal).await;
}

#[tokio::test(start_paused = true)]
async fn every_two_faults_of_a_scale() {
    every_two_faults(Verb::Scale).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_a_create() {
    every_kill_after_every_fault(Verb::Create).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_an_update() {
    every_kill_after_every_fault(Verb::Update).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_a_delete() {
    every_kill_after_every_fault(Verb::Delete).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_an_apply() {
    every_kill_after_every_fault(Verb::Apply).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_an_apply_of_a_total() {
    every_kill_after_every_fault(Verb::ApplyTotal).await;
}

#[tokio::test(start_paused = true)]
async fn every_kill_after_every_fault_of_a_scale() {
    every_kill_after_every_fault(Verb::Scale).await;
}
