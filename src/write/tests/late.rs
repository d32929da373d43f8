//! What lands late, and parts that are made later: they are made as the object is by then.

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    placement::plan::Standing,
    write::{
        request::Request,
        tests::{
            Process, fresh, message, pair, parsed, request,
            scripted::{Fault, Scripted, member},
            update::{MERGE, by, down, patch, send},
            web, workload,
        },
        update::APPLY_PATCH,
    },
};
use kubefold_wire::{
    patch::merge_into,
    resource::{Gvk, Gvr},
};
use std::time::Duration;

pub(super) fn of(kind: (&str, &str, &str), request: Request) -> Request {
    let (group, kind, resource) = kind;
    let is_namespace = kind == "Namespace";
    let namespace = if is_namespace { String::new() } else { request.namespace.clone() };
    Request { gvr: Gvr::new(group, "v1", resource), gvk: Gvk::new(group, "v1", kind), namespace, ..request }
}

pub(super) const CONFIG_MAP: (&str, &str, &str) = ("", "ConfigMap", "configmaps");
const NAMESPACE: (&str, &str, &str) = ("", "Namespace", "namespaces");
const BUDGET: (&str, &str, &str) = ("policy", "PodDisruptionBudget", "poddisruptionbudgets");

fn body(labels: &Value) -> Value {
    json!({"metadata": {"name": "web", "labels": labels}})
}

fn relabel(kind: (&str, &str, &str), labels: &Value) -> Request {
    of(kind, patch(MERGE, &json!({"metadata": {"labels": labels}})))
}

/// The labels of each member's part that are not kubefold's own.
fn labels(fleet: &Scripted) -> Vec<(String, Value)> {
    fleet.standing("web");
    let world = fleet.world.lock();
    let parts = world.members.iter().filter_map(|(member, cluster)| Some((member, cluster.objects.get("web")?)));
    let labels = parts.map(|(member, part)| {
        let mut labels = part["metadata"]["labels"].clone();
        labels.as_object_mut().unwrap().shift_remove("kubefold.io/placement");
        (member.to_string(), labels)
    });
    labels.collect()
}

fn spec(fleet: &Scripted, field: &str) -> Vec<(String, Value)> {
    fleet.standing("web");
    let world = fleet.world.lock();
    let parts = world.members.iter().filter_map(|(member, cluster)| Some((member, cluster.objects.get("web")?)));
    parts.map(|(member, part)| (member.to_string(), part["spec"][field].clone())).collect()
}

fn both(value: &Value) -> Vec<(String, Value)> {
    ["east", "west"].map(|name| (name.to_owned(), value.clone())).to_vec()
}

/// Makes the object, while what is sent to the other member lands 33 s later and the member is away from then on.
async fn late(kind: (&str, &str, &str), object: &Value) -> (Scripted, tempfile::TempDir, Process, &'static str) {
    let (fleet, directory, process) = fresh();
    workload(&fleet);
    // Two dry runs, then the part that is not the home.
    fleet.world.lock().faults.insert(2, Fault::LostLate);
    let reply = process.writer.create(of(kind, request("", object))).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    let away = fleet.world.lock().calls[2].0.clone();
    let away = if away.as_str() == "east" { "east" } else { "west" };
    down(&fleet, away, true);
    (fleet, directory, process, away)
}

#[tokio::test(start_paused = true)]
async fn what_lands_late_of_an_earlier_body_is_brought_to_the_later_one() {
    for kind in [CONFIG_MAP, NAMESPACE] {
        let (fleet, directory, process, away) = late(kind, &body(&json!({"a": "1", "b": "1", "c": "1"}))).await;
        for change in [json!({"a": "2", "c": null}), json!({"a": "3", "d": "1"}), json!({"a": "4"})] {
            let reply = send(&process, relabel(kind, &change)).await;
            assert_eq!(reply.code, 200, "{}", message(&reply));
        }
        sleep(Duration::from_secs(36)).await;
        let landed = labels(&fleet).into_iter().find(|(name, _)| name == away);
        assert_eq!(landed.unwrap().1, json!({"a": "1", "b": "1", "c": "1"}), "it is there, as it was sent");
        // Somebody changes what no update did.
        let edited = |object: &mut Value| object["metadata"]["labels"]["b"] = "own".into();
        edited(fleet.world.lock().members.get_mut(&member(away)).unwrap().objects.get_mut("web").unwrap());
        process.cancel.cancel();
        process.settled().await;
        let process = Process::start(fleet.restarted(), &directory);
        down(&fleet, away, false);
        process.writer.replay();
        process.settled().await;
        let brought: Vec<Value> = labels(&fleet).into_iter().map(|(_, labels)| labels).collect();
        for (name, held) in ["east", "west"].iter().zip(brought) {
            let b = if *name == away { "own" } else { "1" };
            assert_eq!(held, json!({"a": "4", "b": b, "d": "1"}), "{kind:?} in {name}");
        }
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_body_lands_it_ends_as_the_object_is() {
    // What is sent to the member again lands late, too: an earlier body, but not the first.
    let (fleet, _directory, process, away) = late(CONFIG_MAP, &body(&json!({"a": "1"}))).await;
    fleet.world.lock().faults.insert(2, Fault::LostNothing);
    send(&process, relabel(CONFIG_MAP, &json!({"a": "2"}))).await;
    down(&fleet, away, false);
    // The look at the place, and the create again.
    let next = fleet.world.lock().calls.len();
    fleet.world.lock().faults = [(next + 1, Fault::LostLate)].into();
    sleep(Duration::from_secs(11)).await;
    assert_eq!(fleet.world.lock().calls.len(), next + 2);
    down(&fleet, away, true);
    fleet.world.lock().members.get_mut(&member(away)).unwrap().objects.clear();
    send(&process, relabel(CONFIG_MAP, &json!({"a": "3"}))).await;
    sleep(Duration::from_secs(60)).await;
    down(&fleet, away, false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(labels(&fleet), both(&json!({"a": "3"})));
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_lands_late_changes_nothing_that_came_after_it() {
    let (fleet, _directory, process) = fresh();
    // An apply says what it is of.
    let body = |labels: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "labels": labels}});
    let object = body(&json!({"a": "1"}));
    assert_eq!(process.writer.create(of(CONFIG_MAP, request("", &object))).await.code, 201);
    let apply = |value: &str| {
        let patch = patch("application/apply-patch+yaml", &body(&json!({"a": value})));
        of(CONFIG_MAP, Request { query: "fieldManager=ci&force=true".into(), ..patch })
    };
    {
        let mut world = fleet.world.lock();
        let next = world.calls.len();
        // Two dry runs, the home, and the other part.
        world.faults = [(next + 3, Fault::LostLate)].into();
    }
    assert_eq!(send(&process, apply("2")).await.code, 200);
    assert_eq!(send(&process, apply("3")).await.code, 200);
    assert_eq!(labels(&fleet), both(&json!({"a": "3"})));
    process.settled().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(labels(&fleet), both(&json!({"a": "3"})));
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delete_takes_what_lands_late_of_a_create() {
    for kind in [CONFIG_MAP, NAMESPACE] {
        let (fleet, _directory, process, away) = late(kind, &body(&json!({"a": "1"}))).await;
        down(&fleet, away, false);
        let delete = of(kind, Request { method: Method::DELETE, ..request("", &Value::Null) });
        let reply = process.writer.delete(delete, "web".into()).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        process.settled().await;
        sleep(Duration::from_secs(60)).await;
        assert!(fleet.standing("web").is_empty(), "{kind:?}: {:?}", fleet.standing("web"));
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_does_not_take_what_was_made_anew() {
    for kind in [CONFIG_MAP, NAMESPACE] {
        let (fleet, _directory, process) = fresh();
        down(&fleet, "east", true);
        let create = || of(kind, request("", &body(&json!({"a": "1"}))));
        assert_eq!(process.writer.create(create()).await.code, 201);
        let delete = of(kind, Request { method: Method::DELETE, ..request("", &Value::Null) });
        assert_eq!(process.writer.delete(delete, "web".into()).await.code, 200);
        down(&fleet, "east", false);
        // The delete looks for what may stand in east still.
        let again = process.writer.create(create()).await;
        assert_eq!(again.code, 201, "{}", message(&again));
        process.settled().await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(labels(&fleet), both(&json!({"a": "1"})), "{kind:?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_in_an_update_does_not_have_a_shared_object_made_as_it_was() {
    for (fault, value) in [(Fault::CrashBefore, "1"), (Fault::CrashAfter, "2"), (Fault::CrashLate, "2")] {
        let (fleet, directory, process) = fresh();
        // East is behind, west has it.
        down(&fleet, "east", true);
        let reply = process.writer.create(of(NAMESPACE, request("", &body(&json!({"a": "1"}))))).await;
        assert_eq!(reply.code, 201);
        {
            let mut world = fleet.world.lock();
            world.calls.clear();
            world.faults = [(1, fault)].into();
        }
        tokio::select! {
            reply = send(&process, relabel(NAMESPACE, &json!({"a": "2"}))) => panic!("{}", message(&reply)),
            () = fleet.killed.notified() => process.cancel.cancel(),
        }
        let fleet = fleet.restarted();
        down(&fleet, "east", false);
        let process = Process::start(fleet.clone(), &directory);
        process.writer.replay();
        process.settled().await;
        assert_eq!(labels(&fleet), both(&json!({"a": value})), "{fault:?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_behind_has_its_share_of_a_later_total() {
    let budget = |least: u32| {
        let spec = json!({"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}});
        json!({"kind": BUDGET.1, "metadata": {"name": "web"}, "spec": spec})
    };
    for (later, east, west) in [
        (json!({"minAvailable": 6}), json!(2), json!(4)),
        (json!({"minAvailable": 3}), json!(1), json!(2)),
        (json!({"minAvailable": "50%"}), json!(0), json!("50%")),
    ] {
        let (fleet, directory, process) = fresh();
        workload(&fleet);
        down(&fleet, "east", true);
        let made = process.writer.create(of(BUDGET, request("", &budget(3)))).await;
        assert_eq!(made.code, 201, "{}", message(&made));
        assert_eq!(spec(&fleet, "minAvailable"), [("west".to_owned(), json!(2))]);
        for spec in [json!({"minAvailable": 9}), later.clone()] {
            let reply = send(&process, of(BUDGET, patch(MERGE, &json!({"spec": spec})))).await;
            assert_eq!(reply.code, 200, "{}", message(&reply));
        }
        process.cancel.cancel();
        process.settled().await;
        down(&fleet, "east", false);
        let process = Process::start(fleet.restarted(), &directory);
        process.writer.replay();
        process.settled().await;
        let wanted = [("east".to_owned(), east), ("west".to_owned(), west)];
        assert_eq!(spec(&fleet, "minAvailable"), wanted, "{later}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_lands_late_has_its_share_of_a_later_total() {
    let three = json!({"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}});
    let budget = json!({"kind": BUDGET.1, "metadata": {"name": "web"}, "spec": three});
    let (fleet, _directory, process, away) = late(BUDGET, &budget).await;
    let swap = json!({"spec": {"minAvailable": null, "maxUnavailable": 6}});
    assert_eq!(send(&process, of(BUDGET, patch(MERGE, &swap))).await.code, 200);
    sleep(Duration::from_secs(36)).await;
    down(&fleet, away, false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(spec(&fleet, "minAvailable"), both(&Value::Null));
    assert_eq!(spec(&fleet, "maxUnavailable"), [("east".to_owned(), json!(2)), ("west".to_owned(), json!(4))]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_a_scale_up_has_still_to_make_is_made_as_the_object_is_then() {
    for fault in [Fault::NotSent, Fault::LostLate] {
        let fleet = Scripted::new(&[("east", 1), ("west", 5)]);
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(fleet.clone(), &directory);
        let web = json!({"metadata": {"name": "web", "labels": {"a": "1"}}, "spec": {"replicas": 1}});
        assert_eq!(process.writer.create(request("", &web)).await.code, 201);
        assert_eq!(fleet.standing("web"), pair(&[("west", 1)]));
        {
            let mut world = fleet.world.lock();
            let next = world.calls.len();
            // Rehearsals of both, the home, and the part that is to be made.
            world.faults = [(next + 3, fault)].into();
        }
        let scale = |replicas: u32| patch(MERGE, &json!({"spec": {"replicas": replicas}}));
        let reply = send(&process, scale(6)).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert!(format!("{:?}", reply.warnings).contains("not changed in member east yet"), "{:?}", reply.warnings);
        down(&fleet, "east", true);
        assert_eq!(fleet.standing("web"), pair(&[("west", 5)]));
        assert_eq!(parsed(&send(&process, scale(12)).await)["spec"]["replicas"], 10, "east has its two still to come");
        send(&process, patch(MERGE, &json!({"metadata": {"labels": {"a": "2"}}}))).await;
        sleep(Duration::from_secs(36)).await;
        down(&fleet, "east", false);
        process.writer.replay();
        process.settled().await;
        assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("west", 10)]), "{fault:?}");
        assert_eq!(labels(&fleet), both(&json!({"a": "2"})), "{fault:?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

/// Who has which fields of each member's part.
fn managers(fleet: &Scripted) -> Vec<Value> {
    let world = fleet.world.lock();
    let parts = world.members.values().filter_map(|cluster| cluster.objects.get("web"));
    parts.map(|part| part["metadata"]["managedFields"].clone()).collect()
}

/// Has a manager apply a label of its own.
fn apply(manager: &str) -> Request {
    let mut object = body(&json!({manager: "1"}));
    merge_into(&mut object, json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    by(manager, "", of(CONFIG_MAP, patch(APPLY_PATCH, &object)))
}

/// Has a member be away, or back.
fn cut_off(fleet: &Scripted, at: &str, is: bool) {
    down(fleet, at, is);
    let standing = is.then(|| Standing::Down("cut off".into()));
    fleet.world.lock().members.get_mut(&member(at)).unwrap().standing = standing;
}

#[tokio::test(start_paused = true)]
async fn a_part_that_was_made_is_not_made_again_while_another_waits() {
    for is_deleted in [false, true] {
        let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(fleet.clone(), &directory);
        cut_off(&fleet, "north", true);
        assert_eq!(send(&process, apply("ci")).await.code, 201);
        cut_off(&fleet, "east", true);
        process.writer.replay();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(send(&process, apply("cd")).await.code, 200);
        if is_deleted {
            fleet.world.lock().members.get_mut(&member("east")).unwrap().objects.clear();
        }
        for back in ["east", "north"] {
            cut_off(&fleet, back, false);
        }
        process.writer.replay();
        process.settled().await;
        let managers = managers(&fleet);
        assert_eq!(managers.len(), if is_deleted { 2 } else { 3 }, "what somebody deleted stays deleted");
        assert!(managers.iter().all(|of| *of == managers[0] && of.as_array().unwrap().len() == 2), "{managers:#?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_made_late_has_the_managers_that_the_others_have() {
    for (away, restarts) in [("east", false), ("east", true), ("west", false), ("west", true)] {
        let (fleet, directory, mut process) = fresh();
        cut_off(&fleet, away, true);
        assert_eq!(send(&process, apply("ci")).await.code, 201);
        assert_eq!(send(&process, apply("cd")).await.code, 200);
        assert_eq!(send(&process, by("ann", "", relabel(CONFIG_MAP, &json!({"ann": "1"})))).await.code, 200);
        if restarts {
            process.cancel.cancel();
            process.settled().await;
            let restarted = fleet.restarted();
            process = Process::start(restarted.clone(), &directory);
            // As a store that has not read the object has it.
            restarted.withheld.lock().insert("web".into());
        }
        cut_off(&fleet, away, false);
        process.writer.replay();
        process.settled().await;
        let managers = managers(&fleet);
        assert_eq!(managers.len(), 2);
        assert_eq!(managers[0], managers[1], "{away} was away, {restarts}");
        assert_eq!(managers[0].as_array().unwrap().len(), 3, "{away} was away: {}", managers[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_arrives_when_it_was_given_up_is_finished() {
    let (fleet, _directory, process) = fresh();
    process.writer.arriving.add_permits(8);
    let given_up = Duration::from_secs(60);
    let is_closed = |process: &Process| process.writer.journal().open_entries().is_empty();
    let all = || both(&json!({"tier": "a"}));
    let keep = |after: usize| {
        let mut world = fleet.world.lock();
        let next = world.calls.len() + after;
        world.faults = [(next, Fault::LostLong)].into();
    };
    // Two dry runs, the part that is not the home, and the home.
    keep(2);
    assert_eq!(process.writer.create(request("", &web(3))).await.code, 504);
    sleep(given_up).await;
    assert!(is_closed(&process) && fleet.standing("web").is_empty());
    sleep(given_up).await;
    assert_eq!(fleet.standing("web").len(), 1, "a part that has no home");
    sleep(2 * given_up).await;
    assert!(is_closed(&process) && fleet.standing("web").is_empty());

    keep(3);
    let create = of(CONFIG_MAP, request("", &body(&json!({"tier": "a"}))));
    assert_eq!(process.writer.create(create).await.code, 504);
    sleep(given_up).await;
    assert!(is_closed(&process) && labels(&fleet).is_empty());
    sleep(2 * given_up).await;
    assert!(is_closed(&process));
    assert_eq!(labels(&fleet), all());

    // Two dry runs, and the home.
    keep(2);
    assert_eq!(send(&process, relabel(CONFIG_MAP, &json!({"tier": "b"}))).await.code, 504);
    sleep(given_up).await;
    assert!(is_closed(&process));
    assert_eq!(labels(&fleet), all());
    sleep(2 * given_up).await;
    assert!(is_closed(&process));
    assert_eq!(labels(&fleet), both(&json!({"tier": "b"})));

    // What was written since keeps it away.
    keep(2);
    assert_eq!(send(&process, relabel(CONFIG_MAP, &json!({"tier": "c"}))).await.code, 504);
    sleep(given_up).await;
    assert_eq!(send(&process, relabel(CONFIG_MAP, &json!({"tier": "d"}))).await.code, 200);
    sleep(2 * given_up).await;
    assert_eq!(labels(&fleet), both(&json!({"tier": "d"})));

    keep(2);
    let delete = of(CONFIG_MAP, request("", &Value::Null));
    assert_eq!(process.writer.delete(delete, "web".into()).await.code, 504);
    sleep(given_up).await;
    assert!(is_closed(&process));
    assert_eq!(labels(&fleet), both(&json!({"tier": "d"})));
    sleep(2 * given_up).await;
    assert!(is_closed(&process) && labels(&fleet).is_empty());
}
