//! The flows over scripted members: what each answers, and what stands after every fault and crash.

mod automatic;
mod carried;
mod faults;
mod forward;
mod killed;
mod late;
mod lives;
mod moves;
mod nodes;
mod outage;
mod overriding;
mod quotas;
mod scripted;
mod sequences;
mod storm;
mod strategies;
mod update;
mod update_parts;
mod writers;

use std::{collections::BTreeSet, fs, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    answer::reply::Reply,
    member::call::{Answer, Call, Document},
    placement::{plan::Standing, policy::Rules},
    write::{
        Writer,
        fleet::{Key, Listed},
        journal::{Journal, KeyFile},
        request::Request,
        tests::scripted::{Fault, Scripted, World, member},
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{
    resource::{Gvk, Gvr},
    status::Status,
};

fn document(bytes: Bytes) -> Document {
    Document { bytes, incarnation: 1 }
}

/// A status as a member's answer.
fn answered(status: &Status) -> Answer {
    Answer::Answered { code: status.code, warnings: Vec::new(), body: document(status.to_json()) }
}

/// A read of an object.
fn get_of(key: &Key) -> Call {
    Call {
        method: http::Method::GET,
        path: key.object(),
        query: String::new(),
        body: Bytes::new(),
        content_type: String::new(),
        user_agent: None,
    }
}

/// One process: a writer over a world, with its journal.
struct Process {
    writer: Arc<Writer<Scripted>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Process {
    fn start(fleet: Scripted, directory: &TempDir) -> Self {
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let journal = Journal::open(directory.path(), &KeyFile::new(None, directory.path())).unwrap();
        Self { writer: Writer::new(fleet, journal, tasks.clone(), cancel.clone()), tasks, cancel }
    }

    /// Waits until nothing is left to do.
    async fn settled(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Has something done under faults until nothing is left to do; a kill is followed by a restart, which resumes it. Gives the
/// answer, if there was one before the kill.
async fn to_the_end<R>(
    fleet: &Scripted,
    directory: &TempDir,
    work: impl AsyncFnOnce(&Process) -> R,
    resume: impl Fn(&Process),
) -> Option<R> {
    let mut process = Process::start(fleet.clone(), directory);
    let mut killed = fleet.killed.clone();
    let answer = tokio::select! {
        answer = work(&process) => Some(answer),
        () = killed.notified() => None,
    };
    let mut alive = answer.is_some();
    loop {
        if alive {
            tokio::select! {
                () = process.settled() => return answer,
                () = killed.notified() => {}
            }
        }
        // The killed process does nothing more: whatever it waited for never comes.
        process.cancel.cancel();
        let restarted = fleet.restarted();
        killed = restarted.killed.clone();
        process = Process::start(restarted, directory);
        resume(&process);
        alive = true;
    }
}

fn request(query: &str, body: &Value) -> Request {
    Request {
        caller: Caller { user: "ann".into(), groups: Vec::new(), ..Caller::default() },
        method: if body.is_null() { http::Method::DELETE } else { http::Method::POST },
        gvr: Gvr::new("apps", "v1", "deployments"),
        gvk: Gvk::new("apps", "v1", "Deployment"),
        namespace: "default".into(),
        name: String::new(),
        subresource: String::new(),
        query: query.into(),
        content_type: "application/json".into(),
        user_agent: Some("kubectl/v1.36".into()),
        refusing: Vec::new(),
        body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
    }
}

fn web(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": replicas}
    })
}

/// Has the fleet place by these entries of `policies`, with more fields of east.
fn policies(fleet: &Scripted, of_east: &str, entries: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clusters.yaml");
    let member = |name| format!("- {{name: {name}, inCluster: true{}}}\n", if name == "east" { of_east } else { "" });
    let members = ["east", "north", "west"].map(member).concat();
    fs::write(&file, format!("members:\n{members}policies:\n{entries}\n")).unwrap();
    fleet.world.lock().rules = Arc::new(Rules::new(&crate::config::load(&file).unwrap()));
}

fn parsed(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn message(reply: &Reply) -> String {
    parsed(reply)["message"].as_str().unwrap_or_default().to_owned()
}

fn pair(parts: &[(&str, u64)]) -> Vec<(String, u64)> {
    parts.iter().map(|(name, replicas)| ((*name).to_owned(), *replicas)).collect()
}

fn fresh() -> (Scripted, TempDir, Process) {
    let fleet = Scripted::new(&[("east", 1), ("west", 2)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    (fleet, directory, process)
}

/// A name that is held.
struct Held {
    held: Arc<Mutex<BTreeSet<String>>>,
    key: Key,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.lock().remove(&self.key.name);
    }
}

/// The objects of a kind, by the word in them.
fn listed(world: &World, gvr: &Gvr) -> Vec<Listed> {
    let is_its = |object: &Value| {
        object["kind"].as_str().is_some_and(|kind| format!("{}s", kind.to_lowercase()) == *gvr.resource)
    };
    let mut listed: Vec<Listed> = Vec::new();
    for (member, cluster) in &world.members {
        for (name, object) in cluster.objects.iter().filter(|(_, object)| is_its(object)) {
            let part = (member.clone(), Bytes::from(object.to_string()));
            match listed.iter_mut().find(|one| one.name == *name) {
                Some(one) => one.parts.push(part),
                None => listed.push(Listed { name: name.clone(), folded: true, parts: vec![part] }),
            }
        }
    }
    listed
}

/// Has one policy for Deployments with these fields.
fn configure(fleet: &Scripted, of_east: &str, policy: &str) {
    policies(fleet, of_east, &format!("- name: shop\n  match: {{kinds: [Deployment]}}\n  {policy}"));
}

/// Gives the members a Deployment `app` for companions: one replica in east and two in west.
fn workload(fleet: &Scripted) {
    let mut world = fleet.world.lock();
    for (name, replicas) in [("east", 1), ("west", 2)] {
        let labels = json!({"app": "web"});
        let app = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app"},
            "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}}
        });
        world.members.get_mut(&member(name)).unwrap().objects.insert("app".to_owned(), app);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_split_by_weight_and_answered_as_one() {
    let (fleet, _directory, process) = fresh();
    let reply = process.writer.create(request("fieldManager=kubectl-create&pretty=true", &web(3))).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
    let shown = parsed(&reply);
    assert_eq!(shown["spec"]["replicas"], 3);
    assert_eq!(shown["metadata"]["labels"], json!({"app": "web"}));
    let calls = fleet.world.lock().calls.clone();
    let order: Vec<_> = calls.iter().map(|(name, call)| (name.as_str(), call.query.as_str())).collect();
    let (real, dry) = ("fieldManager=kubectl-create", "fieldManager=kubectl-create&dryRun=All");
    assert_eq!(order, [("west", dry), ("east", dry), ("east", real), ("west", real)], "the largest share commits");
    assert!(calls.iter().all(|(_, call)| call.user_agent.as_deref() == Some("kubectl/v1.36")));
    let warnings = reply.warnings.values();
    assert_eq!(warnings, [r#"299 - "unknown field \"x\"""#], "once, though four answers said it");
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_the_whole_and_changes_nothing() {
    let (fleet, _directory, process) = fresh();
    let reply = process.writer.create(request("dryRun=All", &web(3))).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["spec"]["replicas"]), (201, &json!(3)));
    assert!(fleet.standing("web").is_empty());
    assert_eq!(process.writer.create(request("dryRun=Some", &web(3))).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_refused_and_the_member_named() {
    let (fleet, _directory, process) = fresh();
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.insert("web".into(), web(1));
    let reply = process.writer.create(request("", &web(3))).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(
        message(&reply),
        "deployments.apps \"web\" already exists (member east; the fleet view shows it as web@east)"
    );
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.clear();
    assert_eq!(process.writer.create(request("", &web(3))).await.code, 201);
    let again = process.writer.create(request("", &web(3))).await;
    assert_eq!(message(&again), "deployments.apps \"web\" already exists in members west, east");
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_is_minted_once_for_all_parts() {
    let (fleet, _directory, process) = fresh();
    let mut body = web(3);
    body["metadata"] = json!({"generateName": "web-"});
    let reply = process.writer.create(request("", &body)).await;
    let name = parsed(&reply)["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(fleet.standing(&name), pair(&[("east", 1), ("west", 2)]));
}

#[tokio::test(start_paused = true)]
async fn a_down_member_is_left_out_and_an_unknown_one_refuses() {
    let (fleet, _directory, process) = fresh();
    let set = |standing| fleet.world.lock().members.get_mut(&member("west")).unwrap().standing = Some(standing);
    set(Standing::Unknown("never reached".into()));
    let reply = process.writer.create(request("", &web(3))).await;
    assert_eq!(reply.code, 503);
    assert!(message(&reply).contains("west: never reached"));
    set(Standing::Down("refused".into()));
    assert_eq!(process.writer.create(request("", &web(3))).await.code, 201);
    assert_eq!(fleet.standing("web"), pair(&[("east", 3)]));
}

#[tokio::test(start_paused = true)]
async fn a_pin_creates_the_member_local_object() {
    let (fleet, _directory, process) = fresh();
    let mut body = web(2);
    body["metadata"] =
        json!({"name": "x@east", "labels": {"app": "x@east"}, "annotations": {"kubefold.io/cluster": "east"}});
    let reply = process.writer.create(request("fieldManager=k", &body)).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["metadata"]["name"]), (201, &json!("x@east")));
    let made = fleet.world.lock().members[&member("east")].objects["x"].clone();
    assert_eq!(made["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(made["metadata"]["annotations"], json!({}));
    let again = process.writer.create(request("", &body)).await;
    assert_eq!((again.code.as_u16(), &parsed(&again)["details"]["name"]), (409, &json!("x@east")));
    assert_eq!(message(&again), "deployments.apps \"x@east\" already exists");
    body["metadata"]["name"] = "x@north".into();
    let lost = process.writer.create(request("", &body)).await;
    assert_eq!(lost.code, 422);
    assert!(message(&lost).contains("@east, @west"), "{}", message(&lost));
}

#[tokio::test(start_paused = true)]
async fn a_delete_takes_the_home_first_and_then_the_others() {
    let (fleet, _directory, process) = fresh();
    let made = process.writer.create(request("", &web(3))).await;
    let uid = parsed(&made)["metadata"]["uid"].clone();
    for preconditions in [json!({"uid": "another"}), json!({"resourceVersion": "6"})] {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
        assert_eq!(process.writer.delete(request("", &body), "web".into()).await.code, 409);
    }
    fleet.world.lock().calls.clear();
    let body = json!({"propagationPolicy": "Background", "preconditions": {"uid": uid, "resourceVersion": "7"}});
    let reply = process.writer.delete(request("", &body), "web".into()).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(parsed(&reply)["details"], json!({"name": "web", "group": "apps", "kind": "deployments", "uid": uid}));
    assert!(fleet.standing("web").is_empty());
    let calls = fleet.world.lock().calls.clone();
    let order: Vec<_> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(order, ["west", "east", "west", "east"]);
    let home: Value = serde_json::from_slice(&calls[2].1.body).unwrap();
    assert!(home["preconditions"]["uid"].as_str().unwrap().starts_with("own-west"));
    assert!(home["preconditions"]["resourceVersion"].is_string());
    assert_eq!(process.writer.delete(request("", &Value::Null), "web".into()).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_foreground_delete_answers_the_object_on_its_way() {
    let (fleet, _directory, process) = fresh();
    process.writer.create(request("", &web(3))).await;
    let reply = process.writer.delete(request("propagationPolicy=Foreground", &Value::Null), "web".into()).await;
    assert!(parsed(&reply)["metadata"]["deletionTimestamp"].is_string(), "{}", parsed(&reply));
    assert_eq!(fleet.standing("web").len(), 2);
    assert!(process.writer.journal().open_entries().is_empty(), "accepted, not gone");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_cannot_be_reached_is_behind_until_its_member_is_back() {
    let (fleet, directory, process) = fresh();
    process.writer.create(request("", &web(3))).await;
    let down = |down| fleet.world.lock().members.get_mut(&member("east")).unwrap().down = down;
    down(true);
    let reply = process.writer.delete(request("", &Value::Null), "web".into()).await;
    assert_eq!(reply.code, 200);
    let behind = |warning: &http::HeaderValue| warning.to_str().unwrap().contains("not deleted in member east yet");
    assert!(reply.warnings.values().iter().any(behind), "{:?}", reply.warnings);
    assert_eq!(fleet.standing("web"), pair(&[("east", 1)]));
    let told = |fleet: &Scripted| fleet.behind.lock().values().cloned().collect::<Vec<_>>();
    assert_eq!(told(&fleet), [["east"]], "what is shown of it says so");
    let unfinished = process.writer.journal().unfinished();
    assert!(unfinished.len() == 1 && unfinished[0].begun_at > 1_700_000_000);
    process.cancel.cancel();
    process.settled().await;
    down(false);
    let restarted = fleet.restarted();
    let process = Process::start(restarted.clone(), &directory);
    assert_eq!(told(&restarted), [["east"]], "from the first");
    assert_eq!(process.writer.journal().unfinished()[0].begun_at, unfinished[0].begun_at);
    process.writer.replay();
    process.settled().await;
    assert!(fleet.standing("web").is_empty());
    assert!(process.writer.journal().open_entries().is_empty());
    assert_eq!(told(&restarted), [[""; 0]]);
    down(true);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_home_refuses_a_delete() {
    let (fleet, _directory, process) = fresh();
    process.writer.create(request("", &web(3))).await;
    fleet.world.lock().members.get_mut(&member("west")).unwrap().down = true;
    let reply = process.writer.delete(request("", &Value::Null), "web".into()).await;
    assert_eq!(reply.code, 503);
    assert_eq!(fleet.standing("web").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_cluster_under_a_members_name_is_left_alone() {
    let (fleet, directory, process) = fresh();
    process.writer.create(request("", &web(3))).await;
    fleet.world.lock().members.get_mut(&member("east")).unwrap().down = true;
    process.writer.delete(request("", &Value::Null), "web".into()).await;
    process.cancel.cancel();
    {
        let mut world = fleet.world.lock();
        let east = world.members.get_mut(&member("east")).unwrap();
        (east.down, east.uid) = (false, "another".into());
    }
    let process = Process::start(fleet.restarted(), &directory);
    process.writer.replay();
    process.settled().await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 1)]));
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_holds_the_name_until_it_is_known() {
    let (fleet, _directory, process) = fresh();
    fleet.world.lock().faults.insert(3, Fault::LostLate);
    let reply = process.writer.create(request("", &web(3))).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["reason"]), (504, &json!("Timeout")));
    let again = process.writer.create(request("", &web(3))).await;
    assert_eq!(again.code, 503, "{}", message(&again));
    process.settled().await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_commit_says_what_happened_where() {
    let (fleet, _directory, process) = fresh();
    fleet.world.lock().faults.insert(3, Fault::Refuse);
    let reply = process.writer.create(request("", &web(3))).await;
    assert_eq!(reply.code, 403);
    assert_eq!(message(&reply), "no (member west; member east: removed again)");
    assert!(fleet.standing("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_home_is_not_asked_when_another_part_failed() {
    let (fleet, _directory, process) = fresh();
    fleet.world.lock().faults.insert(2, Fault::NotSent);
    let reply = process.writer.create(request("", &web(3))).await;
    assert_eq!(reply.code, 503);
    let said = message(&reply);
    assert!(said.contains("member east could not be reached") && said.ends_with("(nothing was made)"), "{said}");
    assert_eq!(fleet.world.lock().calls.len(), 3);
    process.settled().await;
    assert!(fleet.standing("web").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_part_that_somebody_deleted_does_not_stop_a_delete() {
    for vanished_at in 4..8 {
        let (fleet, _directory, process) = fresh();
        process.writer.create(request("", &web(3))).await;
        fleet.world.lock().faults.insert(vanished_at, Fault::Vanished);
        let reply = process.writer.delete(request("", &Value::Null), "web".into()).await;
        assert_eq!(reply.code, 200, "{vanished_at}: {}", message(&reply));
        assert!(fleet.standing("web").is_empty());
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_stays_reserved_while_its_create_is_not_settled() {
    let fleet = Scripted::new(&[("east", 100), ("west", 1)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    // One target: the second call commits. It lands, nobody hears of it, and then the member is away for long.
    fleet.world.lock().faults = [(1, Fault::LostLanded), (2, Fault::NotSent)].into();
    assert_eq!(process.writer.create(request("", &web(1))).await.code, 504);
    let down = |is: bool| {
        let mut world = fleet.world.lock();
        let east = world.members.get_mut(&member("east")).unwrap();
        east.down = is;
        east.standing = is.then(|| Standing::Down("cut off".into()));
    };
    down(true);
    // As the store of a process that never heard of it has it.
    fleet.withheld.lock().insert("web".into());
    for pause in [1, 60, 600] {
        tokio::time::sleep(std::time::Duration::from_secs(pause)).await;
        fleet.withheld.lock().insert("web".into());
        let again = process.writer.create(request("", &web(1))).await;
        assert_eq!(again.code, 503, "{pause}: {}", message(&again));
        let delete = process.writer.delete(request("", &Value::Null), "web".into()).await;
        assert_eq!(delete.code, 503, "{pause}: {}", message(&delete));
    }
    down(false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 1)]));
    assert_eq!(process.writer.create(request("", &web(1))).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_create_left_is_not_shown_before_it_is_settled() {
    let (fleet, directory, process) = fresh();
    fleet.world.lock().faults = [(3, Fault::CrashBefore)].into();
    let created = process.writer.create(request("", &web(3)));
    tokio::select! {
        _ = created => panic!("killed"),
        () = fleet.killed.notified() => process.cancel.cancel(),
    }
    let fleet = fleet.restarted();
    assert_eq!(fleet.standing("web"), pair(&[("east", 1)]), "half of it");
    let process = Process::start(fleet.clone(), &directory);
    assert!(fleet.withheld.lock().contains("web"));
    process.writer.replay();
    process.settled().await;
    assert!(fleet.standing("web").is_empty() && fleet.withheld.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_home_is_declared_absent_does_not_wait_for_it() {
    let (fleet, directory, process) = fresh();
    // West, the home, is asked last; what it did nobody hears, and then it is away.
    fleet.world.lock().faults = [(3, Fault::LostNothing)].into();
    assert_eq!(process.writer.create(request("", &web(3))).await.code, 504);
    let west =
        |change: fn(&mut scripted::Cluster)| change(fleet.world.lock().members.get_mut(&member("west")).unwrap());
    west(|west| west.down = true);
    process.cancel.cancel();
    process.settled().await;
    let process = Process::start(fleet.restarted(), &directory);
    process.writer.replay();
    tokio::time::sleep(std::time::Duration::from_secs(300)).await;
    assert_eq!(process.writer.journal().open_entries().len(), 1, "it may be there");
    west(|west| west.absent = true);
    process.writer.replay();
    process.settled().await;
    assert!(process.writer.journal().open_entries().is_empty());
    assert_eq!(fleet.standing("web"), pair(&[("east", 1)]), "what stands of it stays");
}

/// What the member calls a version.
fn own_revision(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
