//! Updates of parts that differ: by policy, by what is divided of them, and those that are made later.

use http::Method;
use serde_json::{Value, json};

use crate::write::{
    request::Request,
    tests::{
        Process, configure, fresh, message, pair, parsed, request,
        scripted::{Cluster, Fault, Scripted, member},
        update::{MERGE, down, labels, patch, placed, put, send},
        web, workload,
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const IMAGE: &str = "/spec/template/spec/containers/0/image";

pub(super) fn policy(fleet: &Scripted, per_member: &str) {
    configure(fleet, "", &format!("perMember:\n{per_member}"));
}

pub(super) fn app(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}}
    })
}

pub(super) fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": name}]}}}})
}

pub(super) fn at(fleet: &Scripted, name: &str, pointer: &str) -> Value {
    let world = fleet.world.lock();
    let part = world.members[&member(name)].objects.get("web");
    part.and_then(|part| part.pointer(pointer)).cloned().unwrap_or_default()
}

fn everywhere(fleet: &Scripted, pointer: &str) -> [Value; 2] {
    ["east", "west"].map(|name| at(fleet, name, pointer))
}

pub(super) async fn create(process: &Process, body: &Value) {
    let reply = process.writer.create(request("", body)).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
}

#[tokio::test(start_paused = true)]
async fn an_image_reaches_parts_whose_registry_is_another() {
    // West is the home.
    for (rewritten, plain) in [("east", "west"), ("west", "east")] {
        let (fleet, _directory, process) = fresh();
        policy(&fleet, &format!("    {rewritten}: {{registry: mirror.example}}\n"));
        create(&process, &app(3)).await;
        assert_eq!(at(&fleet, rewritten, IMAGE), "mirror.example/web:1");
        for (content_type, name) in [(MERGE, "web:2"), (STRATEGIC, "web:3"), (MERGE, "quay.io/web:4")] {
            let reply = send(&process, patch(content_type, &image(name))).await;
            assert_eq!(reply.code, 200, "{}", message(&reply));
            assert_eq!(at(&fleet, plain, IMAGE), name);
            assert_eq!(at(&fleet, rewritten, IMAGE), format!("mirror.example/{}", name.trim_start_matches("quay.io/")));
            assert!(!format!("{:?}", reply.warnings).contains("keeps its own"), "{:?}", reply.warnings);
        }
        send(&process, put(&app(3))).await;
        assert_eq!(
            (at(&fleet, plain, IMAGE), at(&fleet, rewritten, IMAGE)),
            ("web:1".into(), "mirror.example/web:1".into())
        );
    }
}

/// Where it differs from what the home is to get (here by an override), what it gets is dry-run, too.
#[tokio::test(start_paused = true)]
async fn a_strategic_patch_is_dry_run_in_the_home_once() {
    for (is_overridden, home_calls) in
        [(false, ["PATCH dry", "PATCH"].as_slice()), (true, &["PATCH dry", "PATCH dry", "PATCH"])]
    {
        let (fleet, _directory, process) = fresh();
        if is_overridden {
            policy(&fleet, "    west: {registry: mirror.example}\n");
        }
        create(&process, &app(3)).await;
        fleet.world.lock().calls.clear();
        let reply = send(&process, patch(STRATEGIC, &image("web:2"))).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        let calls = fleet.world.lock().calls.clone();
        let of_home = calls.iter().filter(|(name, call)| *name == member("west") && call.method != Method::GET);
        let said = of_home.map(|(_, call)| {
            let dry = if call.query.contains("dryRun=All") { " dry" } else { "" };
            format!("{}{dry}", call.method)
        });
        assert_eq!(said.collect::<Vec<_>>(), home_calls);
        assert_eq!(at(&fleet, "east", IMAGE), "web:2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_of_before_its_policy_is_reached_all_the_same() {
    let (fleet, _directory, process) = fresh();
    create(&process, &app(3)).await;
    policy(&fleet, "    east: {registry: mirror.example}\n");
    send(&process, patch(MERGE, &image("web:2"))).await;
    assert_eq!(everywhere(&fleet, IMAGE), [json!("mirror.example/web:2"), json!("web:2")]);
}

#[tokio::test(start_paused = true)]
async fn what_a_policys_patch_sets_stays() {
    let (fleet, _directory, process) = fresh();
    policy(&fleet, "    east: {patch: [{op: add, path: /metadata/labels/tier, value: edge}]}\n");
    create(&process, &app(3)).await;
    let tier = "/metadata/labels/tier";
    assert_eq!(everywhere(&fleet, tier), [json!("edge"), Value::Null]);
    send(&process, patch(MERGE, &json!({"metadata": {"labels": {"tier": "all", "own": "x"}}}))).await;
    assert_eq!(everywhere(&fleet, tier), [json!("edge"), json!("all")]);
    assert_eq!(everywhere(&fleet, "/metadata/labels/own"), [json!("x"), json!("x")]);
}

#[tokio::test(start_paused = true)]
async fn a_part_whose_share_was_0_is_made_by_a_scale_up_as_the_others_are_then() {
    let fleet = Scripted::new(&[("east", 1), ("west", 5)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    create(&process, &app(1)).await;
    assert_eq!(fleet.standing("web"), pair(&[("west", 1)]));
    send(&process, patch(MERGE, &image("web:2"))).await;
    let both = json!({"spec": {"replicas": 6}, "metadata": {"labels": {"tier": "a"}}});
    let reply = send(&process, patch(MERGE, &both)).await;
    assert_eq!(parsed(&reply)["spec"]["replicas"], 6, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 5)]));
    assert_eq!(everywhere(&fleet, IMAGE), [json!("web:2"), json!("web:2")]);
    assert_eq!(everywhere(&fleet, "/metadata/labels/tier"), [json!("a"), json!("a")]);
    let mark = "/metadata/labels/kubefold.io~1placement";
    assert_eq!(at(&fleet, "east", mark), at(&fleet, "west", mark));
    assert!(process.writer.journal().open_entries().is_empty());
}

fn other(request: Request, (group, version, kind, resource): (&str, &str, &str, &str)) -> Request {
    Request { gvr: Gvr::new(group, version, resource), gvk: Gvk::new(group, version, kind), ..request }
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_is_divided_by_the_workloads_parts() {
    let (fleet, _directory, process) = fresh();
    workload(&fleet);
    let kind = ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    let spec = json!({"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}});
    let body = json!({"apiVersion": "policy/v1", "kind": kind.2, "metadata": {"name": "web"}, "spec": spec});
    let made = process.writer.create(other(request("", &body), kind)).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    let least = "/spec/minAvailable";
    assert_eq!(everywhere(&fleet, least), [json!(1), json!(2)]);
    let set = async |value: Value| {
        let reply = send(&process, other(patch(MERGE, &json!({"spec": {"minAvailable": value}})), kind)).await;
        assert_eq!((reply.code.as_u16(), &parsed(&reply)["spec"]["minAvailable"]), (200, &value));
    };
    set(json!(6)).await;
    assert_eq!(everywhere(&fleet, least), [json!(2), json!(4)]);
    set(json!("50%")).await;
    assert_eq!(everywhere(&fleet, least), [json!(0), json!("50%")], "half of one pod would be one");
    set(json!(3)).await;
    assert_eq!(everywhere(&fleet, least), [json!(1), json!(2)]);
    let swap = json!({"spec": {"minAvailable": null, "maxUnavailable": 3}});
    send(&process, other(patch(MERGE, &swap), kind)).await;
    assert_eq!(everywhere(&fleet, least), [Value::Null, Value::Null]);
    assert_eq!(everywhere(&fleet, "/spec/maxUnavailable"), [json!(1), json!(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_workload_divides_its_budget_again_and_stands_where_that_fails() {
    let (fleet, _directory, process) = fresh();
    let kind = ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}});
    let body = json!({"apiVersion": "policy/v1", "kind": kind.2, "metadata": {"name": "web"}, "spec": spec});
    let made = process.writer.create(other(request("", &body), kind)).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    let least = "/spec/minAvailable";
    assert_eq!(everywhere(&fleet, least), [json!(2), json!(2)], "it waits for nothing");
    let template = json!({"metadata": {"labels": {"app": "web"}}});
    let app = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app"},
        "spec": {"replicas": 3, "template": template}
    });
    create(&process, &app).await;
    assert_eq!(everywhere(&fleet, least), [json!(0), json!(1)], "none says that nothing may go");
    assert_eq!(parsed(&send(&process, other(patch(MERGE, &json!({})), kind)).await)["spec"]["minAvailable"], 2);

    let scale = |replicas: u32| patch(MERGE, &json!({"spec": {"replicas": replicas}}));
    let of_app = async |request: Request| {
        let request = Request { name: "app".to_owned(), ..request };
        process.writer.update(request, "app".to_owned()).await
    };
    let next = fleet.world.lock().calls.len();
    // The dry runs and the writes of both, and then the first of the budget.
    fleet.world.lock().faults = [(next + 4, Fault::Refuse)].into();
    let reply = of_app(scale(6)).await;
    assert_eq!((reply.code.as_u16(), &parsed(&reply)["spec"]["replicas"]), (200, &json!(6)));
    let said = format!("{:?}", reply.warnings);
    assert!(said.contains("is not divided by the parts of deployments.apps"), "{said}");
    assert_eq!(everywhere(&fleet, least), [json!(0), json!(1)]);
    let reply = of_app(scale(6)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(everywhere(&fleet, least), [json!(1), json!(1)], "the next write does it");
}

#[tokio::test(start_paused = true)]
async fn a_budget_follows_a_workload_that_catches_up() {
    let (fleet, _directory, process) = fresh();
    let kind = ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    let template = json!({"metadata": {"labels": {"app": "web"}}});
    let app = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app"},
        "spec": {"replicas": 3, "template": template}
    });
    create(&process, &app).await;
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}});
    let body = json!({"apiVersion": "policy/v1", "kind": kind.2, "metadata": {"name": "web"}, "spec": spec});
    let made = process.writer.create(other(request("", &body), kind)).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    let least = "/spec/minAvailable";
    assert_eq!(everywhere(&fleet, least), [json!(0), json!(1)]);
    down(&fleet, "east", true);
    let scale = Request { name: "app".to_owned(), ..patch(MERGE, &json!({"spec": {"replicas": 9}})) };
    let reply = process.writer.update(scale, "app".to_owned()).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    // Three and six: of seven that may go, two and five.
    assert_eq!(everywhere(&fleet, least), [json!(1), json!(1)]);
    let app = |name: &str| fleet.world.lock().members[&member(name)].objects["app"]["spec"]["replicas"].clone();
    assert_eq!([app("east"), app("west")], [json!(3), json!(6)]);
}

#[tokio::test(start_paused = true)]
async fn an_autoscalers_least_is_never_above_its_most() {
    let (fleet, _directory, process) = fresh();
    workload(&fleet);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
    let kind = ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    let body = json!({"apiVersion": "autoscaling/v2", "kind": kind.2, "metadata": {"name": "web"},
        "spec": {"minReplicas": 3, "maxReplicas": 9, "scaleTargetRef": target}});
    let made = process.writer.create(other(request("", &body), kind)).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    let bounds = || ["/spec/minReplicas", "/spec/maxReplicas"].map(|at| everywhere(&fleet, at).map(|of| of.as_u64()));
    assert_eq!(bounds(), [[Some(1), Some(2)], [Some(3), Some(6)]]);
    for (spec, least, most) in [
        (json!({"minReplicas": 9}), [3, 6], [3, 6]),
        (json!({"minReplicas": 4, "maxReplicas": 5}), [1, 3], [2, 3]),
        (json!({"maxReplicas": 4}), [1, 3], [1, 3]),
        // Each part needs one at least.
        (json!({"minReplicas": 1}), [1, 1], [1, 3]),
        (json!({"minReplicas": null, "maxReplicas": 6}), [1, 1], [2, 4]),
    ] {
        let reply = send(&process, other(patch(MERGE, &json!({"spec": spec})), kind)).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert_eq!(bounds(), [least.map(Some), most.map(Some)], "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_made_when_its_member_is_back_is_made_as_the_object_is_then() {
    let (fleet, _directory, process) = fresh();
    let kind = ("", "v1", "ConfigMap", "configmaps");
    let body = json!({"apiVersion": "v1", "kind": kind.2, "metadata": {"name": "web"}, "data": {"a": "1", "b": "1"}});
    down(&fleet, "east", true);
    let made = process.writer.create(other(request("", &body), kind)).await;
    assert_eq!(made.code, 201, "{}", message(&made));
    for data in [json!({"a": "2"}), json!({"a": "3", "b": null, "c": "1"})] {
        let reply = send(&process, other(patch(MERGE, &json!({"data": data})), kind)).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
    }
    down(&fleet, "east", false);
    process.writer.replay();
    process.settled().await;
    assert_eq!(everywhere(&fleet, "/data"), [json!({"a": "3", "c": "1"}), json!({"a": "3", "c": "1"})]);
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kill_in_an_update_does_not_have_a_part_made_as_it_was() {
    for (fault, value) in [(Fault::CrashBefore, "1"), (Fault::CrashAfter, "2"), (Fault::CrashLate, "2")] {
        let (fleet, directory, process) = fresh();
        let kind = ("", "v1", "ConfigMap", "configmaps");
        let body = json!({"apiVersion": "v1", "kind": kind.2, "metadata": {"name": "web"}, "data": {"a": "1"}});
        down(&fleet, "east", true);
        assert_eq!(process.writer.create(other(request("", &body), kind)).await.code, 201);
        {
            let mut world = fleet.world.lock();
            world.calls.clear();
            world.faults = [(1, fault)].into();
        }
        tokio::select! {
            reply = send(&process, other(patch(MERGE, &json!({"data": {"a": "2"}})), kind)) => panic!("{}", message(&reply)),
            () = fleet.killed.notified() => process.cancel.cancel(),
        }
        let fleet = fleet.restarted();
        down(&fleet, "east", false);
        let process = Process::start(fleet.clone(), &directory);
        process.writer.replay();
        process.settled().await;
        assert_eq!(everywhere(&fleet, "/data/a"), [json!(value), json!(value)], "{fault:?}");
        assert!(process.writer.journal().open_entries().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_is_behind_is_applied_when_its_member_is_back() {
    let (fleet, _directory, process) = fresh();
    create(&process, &app(3)).await;
    down(&fleet, "east", true);
    let mut body = app(3);
    body["metadata"]["labels"]["tier"] = "a".into();
    let apply = Request { query: "fieldManager=ci&force=true".into(), ..patch("application/apply-patch+yaml", &body) };
    let reply = send(&process, apply).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(everywhere(&fleet, "/metadata/labels/tier"), [Value::Null, json!("a")]);
    down(&fleet, "east", false);
    fleet.world.lock().calls.clear();
    process.writer.replay();
    process.settled().await;
    assert_eq!(everywhere(&fleet, "/metadata/labels/tier"), [json!("a"), json!("a")]);
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
    let calls = fleet.world.lock().calls.clone();
    let applied = |call: &&crate::member::call::Call| call.content_type == "application/apply-patch+yaml";
    assert_eq!(calls.iter().map(|(_, call)| call).filter(applied).count(), 1, "by the very apply");
    assert!(process.writer.journal().open_entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_journal_repairs_nothing_and_a_later_write_tells_what_differs() {
    let (fleet, _directory, process) = fresh();
    create(&process, &app(3)).await;
    down(&fleet, "east", true);
    send(&process, patch(MERGE, &image("web:2"))).await;
    down(&fleet, "east", false);
    process.cancel.cancel();
    let (fleet, empty) = (fleet.restarted(), tempfile::tempdir().unwrap());
    let process = Process::start(fleet.clone(), &empty);
    process.writer.replay();
    assert_eq!(everywhere(&fleet, IMAGE), [json!("web:1"), json!("web:2")]);
    let reply = send(&process, patch(MERGE, &image("web:3"))).await;
    assert_eq!(everywhere(&fleet, IMAGE), [json!("web:1"), json!("web:3")]);
    assert!(format!("{:?}", reply.warnings).contains("keeps its own"), "{:?}", reply.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_made_later_is_made_without_the_homes_overrides() {
    let fleet = Scripted::new(&[("east", 5), ("north", 1), ("west", 10)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    let patch_of_west = "patch: [{op: add, path: /metadata/labels/tier, value: edge}]";
    policy(&fleet, &format!("    west: {{registry: mirror.example, {patch_of_west}}}\n"));
    create(&process, &app(3)).await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 1), ("west", 2)]));
    // Clients see it as it was written, and write it back so.
    let shown = parsed(&send(&process, patch(MERGE, &json!({"metadata": {"labels": {"own": "x"}}}))).await);
    assert_eq!(shown.pointer(IMAGE), Some(&json!("web:1")));
    assert_eq!(shown.pointer("/metadata/labels/tier"), None);
    let mut body = shown;
    body["spec"]["replicas"] = 16.into();
    let reply = send(&process, put(&body)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 5), ("north", 1), ("west", 10)]));
    let labels = |name: &str| ["tier", "own"].map(|label| at(&fleet, name, &format!("/metadata/labels/{label}")));
    assert_eq!((at(&fleet, "north", IMAGE), labels("north")), (json!("web:1"), [Value::Null, json!("x")]));
    assert_eq!(
        (at(&fleet, "west", IMAGE), labels("west")),
        (json!("mirror.example/web:1"), [json!("edge"), json!("x")])
    );
}

#[tokio::test(start_paused = true)]
async fn without_another_part_what_the_homes_patch_added_is_left_out() {
    let fleet = Scripted::new(&[("east", 1), ("west", 5)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    policy(&fleet, "    west: {patch: [{op: add, path: /metadata/labels/tier, value: edge}]}\n");
    create(&process, &app(1)).await;
    send(&process, patch(MERGE, &json!({"spec": {"replicas": 6}}))).await;
    assert_eq!(everywhere(&fleet, "/metadata/labels/tier"), [Value::Null, json!("edge")]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_a_part_does_not_have_beside_it_is_refused() {
    let owners = |name: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Thing", "name": name, "uid": format!("uid-{name}")});
        json!({"metadata": {"name": "web", "ownerReferences": [owner]}})
    };
    for content_type in [MERGE, STRATEGIC, "application/apply-patch+yaml"] {
        let (fleet, _directory, process) = fresh();
        create(&process, &app(3)).await;
        let hold = |at: &str, name: &str| {
            fleet.world.lock().members.get_mut(&member(at)).unwrap().objects.insert(name.to_owned(), json!({}));
        };
        hold("east", "boss");
        let ask = |name: &str| Request { query: "fieldManager=x".into(), ..patch(content_type, &owners(name)) };
        for (name, lacking) in [("boss", "west"), ("nobody", "west")] {
            let reply = send(&process, ask(name)).await;
            assert_eq!((reply.code.as_u16(), &parsed(&reply)["reason"]), (422, &json!("Invalid")), "{content_type}");
            let why = format!("{lacking}: it does not hold the owner Thing \"{name}\"");
            assert!(message(&reply).contains(&why), "{}", message(&reply));
        }
        assert!(everywhere(&fleet, "/metadata/ownerReferences").iter().all(Value::is_null));
        hold("west", "boss");
        let reply = send(&process, ask("boss")).await;
        assert_eq!(reply.code, 200, "{}", message(&reply));
        assert!(everywhere(&fleet, "/metadata/ownerReferences").iter().all(Value::is_array));
        // What it has already is nobody's business, wherever that is by now.
        fleet.world.lock().members.get_mut(&member("west")).unwrap().objects.remove("boss");
        assert_eq!(send(&process, ask("boss")).await.code, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_that_parts_were_made_at_different_times() {
    let (fleet, _directory, process) = placed().await;
    let made = |second: u32| json!(format!("2026-11-24T10:00:0{second}Z"));
    for (second, cluster) in (0..).zip(fleet.world.lock().members.values_mut()) {
        cluster.objects.get_mut("web").unwrap()["metadata"]["creationTimestamp"] = made(second);
    }
    let spec = json!({"replicas": 3, "paused": true});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let reply = send(&process, put(&body)).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert!(!format!("{:?}", reply.warnings).contains("keeps its own"), "{:?}", reply.warnings);
    assert_eq!(everywhere(&fleet, "/metadata/creationTimestamp"), [made(0), made(1)]);
    assert_eq!(everywhere(&fleet, "/spec/paused"), [json!(true), json!(true)]);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_takes_every_part_or_none() {
    let evict = |query: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
        Request {
            method: Method::POST,
            subresource: "eviction".into(),
            name: "web".into(),
            query: query.into(),
            ..request("", &body)
        }
    };
    for (query, fault, code, stand) in [
        ("dryRun=All", None, 201, 2),
        ("", Some((1, Fault::Refuse)), 403, 2),
        ("", Some((1, Fault::NotSent)), 503, 2),
        ("", None, 201, 0),
    ] {
        let (fleet, _directory, process) = fresh();
        create(&process, &app(3)).await;
        {
            let mut world = fleet.world.lock();
            world.calls.clear();
            world.faults = fault.into_iter().collect();
        }
        let reply = send(&process, evict(query)).await;
        assert_eq!(reply.code, code, "{}", message(&reply));
        assert_eq!(fleet.standing("web").len(), stand, "{query} {fault:?}");
        let told = message(&reply);
        assert!(code == 201 || told.contains(" (member ") && told.ends_with("; nothing was evicted)"), "{told}");
    }
    // What is told where a part refuses after all.
    let (fleet, _directory, process) = fresh();
    create(&process, &app(3)).await;
    let next = fleet.world.lock().calls.len();
    // Two dry runs, the first part and the look at it.
    fleet.world.lock().faults = [(next + 4, Fault::Refuse)].into();
    let told = message(&send(&process, evict("")).await);
    assert!(told.contains("evicted already: "), "{told}");
    assert_eq!(fleet.standing("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_is_declared_absent_does_not_keep_what_it_made_from_the_others() {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 2)]);
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    assert_eq!(process.writer.create(request("", &web(4))).await.code, 201);
    let change = |name: &str, change: fn(&mut Cluster)| {
        change(fleet.world.lock().members.get_mut(&member(name)).unwrap());
    };
    change("north", |north| north.down = true);
    let reply = send(&process, patch(MERGE, &json!({"metadata": {"labels": {"app": "new"}}}))).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    // West, the home, is lost for good before north is back.
    change("west", |west| (west.down, west.absent) = (true, true));
    change("north", |north| north.down = false);
    process.writer.replay();
    process.settled().await;
    assert!(process.writer.journal().open_entries().is_empty());
    let values: Vec<_> = labels(&fleet, "app").into_iter().filter(|(name, _)| name != "west").collect();
    assert!(values.len() == 2 && values.iter().all(|(_, value)| value == "new"), "{values:?}");
}
