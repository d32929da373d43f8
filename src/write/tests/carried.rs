//! What is carried along with a workload, under faults and kills: the next write brings what is missing, and nothing is lost.

use serde_json::{Value, json};

use crate::{
    answer::reply::Reply,
    write::tests::{
        Process, message, policies, request,
        scripted::{CRASHES, FAULTS, Fault, Scripted, member},
        to_the_end,
        update::{MERGE, patch, send},
        web,
    },
};

/// Calls of a create over three members that carries a Secret: read and dry-run, adopted, extended, and the create itself.
const CALLS: usize = 22;
const POLICY: &str = "- name: shop\n  match: {kinds: [Deployment]}\n  carry: [Secret]\n";

const OWN_UID: &str = "6f1c8a52-0d3e-4b7a-9c1d-2e3f4a5b6c7d";

fn login(key: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"key": key},
        "metadata": {"name": "login", "namespace": "default", "uid": OWN_UID, "resourceVersion": "1"}})
}

/// East has a Secret of its own.
fn fleet() -> Scripted {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
    policies(&fleet, "", POLICY);
    fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.insert("login".into(), login("east"));
    fleet
}

fn naming() -> Value {
    let mut web = web(4);
    let name = json!({"secretRef": {"name": "login"}});
    web["spec"]["template"]["spec"]["containers"] = json!([{"name": "web", "image": "web:1", "envFrom": [name]}]);
    web
}

/// What each member has of the Secret.
fn keys(fleet: &Scripted) -> Vec<(String, Value)> {
    let world = fleet.world.lock();
    let keys = world.members.iter().filter_map(|(name, cluster)| Some((name, cluster.objects.get("login")?)));
    keys.map(|(name, secret)| (name.to_string(), secret["data"]["key"].clone())).collect()
}

fn everywhere() -> Vec<(String, Value)> {
    ["east", "north", "west"].map(|name| (name.to_owned(), json!("east"))).to_vec()
}

/// Its warnings.
fn told(reply: &Reply) -> String {
    let said: Vec<_> = reply.warnings.values().iter().map(|header| header.to_str().unwrap().to_owned()).collect();
    said.join("\n")
}

/// Gives how many calls there were until the answer.
async fn case(faults: &[(usize, Fault)]) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let (fleet, case) = (fleet(), format!("{faults:?}"));
    fleet.world.lock().faults = faults.iter().copied().collect();
    let resume = |process: &Process| {
        process.writer.replay();
        process.writer.resume_moves();
    };
    let create = async |process: &Process| process.writer.create(request("", &naming())).await;
    let reply = to_the_end(&fleet, &directory, create, resume).await;
    // What was under way has landed or never will.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let calls = {
        let mut world = fleet.world.lock();
        world.faults.clear();
        world.calls.len()
    };
    let held = keys(&fleet);
    assert!(held.iter().all(|(_, key)| key == "east") && held[0].0 == "east", "{case}: {held:?}");
    let is_told = reply.as_ref().is_some_and(|reply| told(reply).contains("was carried along"));
    assert!(!is_told || held == everywhere(), "{case}: {held:?} {reply:?}");

    let process = Process::start(fleet.restarted(), &directory);
    resume(&process);
    // A process that was killed may have entered the create, and sent nothing.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let again = process.writer.create(request("", &naming())).await;
    if again.code == 409 {
        let changed = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"tier": "blue"}}}))).await;
        assert_eq!(changed.code, 200, "{case}: {}", message(&changed));
    } else {
        assert_eq!(again.code, 201, "{case}: {}", message(&again));
    }
    process.settled().await;
    assert_eq!(keys(&fleet), everywhere(), "{case}: {:?} {}", reply.as_ref().map(told), told(&again));
    let now = process.writer.report();
    assert!(now.moves.is_empty() && now.superseded.is_empty(), "{case}: {now:?}");
    let own = fleet.world.lock().members[&member("east")].objects["login"]["metadata"]["uid"].clone();
    assert_eq!(own, OWN_UID, "{case}: it was not made anew");
    calls
}

#[tokio::test(start_paused = true)]
async fn a_create_that_carries_survives_every_fault_and_kill() {
    assert_eq!(case(&[]).await, CALLS);
    for at in 0..CALLS {
        for fault in FAULTS.into_iter().chain(CRASHES) {
            case(&[(at, fault)]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_or_ambiguous_is_not_touched() {
    let ambiguous = fleet();
    ambiguous.world.lock().members.get_mut(&member("west")).unwrap().objects.insert("login".into(), login("west"));
    for (fleet, faults, words) in [
        (fleet(), vec![(3, Fault::Refuse)], "no member that answers and lets user \\\"ann\\\" get it has one"),
        (fleet(), vec![(4, Fault::Refuse)], "member north: no"),
        (fleet(), vec![(5, Fault::Refuse)], "member west: no"),
        (ambiguous, vec![], "members east, west have one of their own each"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fleet.world.lock().faults = faults.into_iter().collect();
        let before = keys(&fleet);
        let process = Process::start(fleet.clone(), &directory);
        let reply = process.writer.create(request("", &naming())).await;
        assert_eq!(reply.code, 201, "{}", message(&reply));
        assert!(told(&reply).contains(words), "no {words}: {}", told(&reply));
        assert_eq!(keys(&fleet), before);
        let own = fleet.world.lock().members[&member("east")].objects["login"].clone();
        assert_eq!(own, login("east"));
    }
}
