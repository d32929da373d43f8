//! Names of nodes in templates: which members they choose, what each part gets, and what the fleet view shows.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    answer::reply::Reply,
    write::{
        request::Request,
        tests::{
            Process, configure, message,
            overriding::rebalance,
            pair, parsed, request,
            scripted::{Scripted, member},
            update::{MERGE, bare, by, edit, patch, put, send},
            update_parts::{STRATEGIC, app, at, create, image, policy},
        },
        update::APPLY_PATCH,
    },
};
use kubefold_wire::resource::{Gvk, Gvr};

const SPEC: &str = "/spec/template/spec";
const TERMS: &str =
    "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
const REQUIRED: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const NOTE: &str = "/metadata/annotations/kubefold.io~1overrides";

fn start() -> (Scripted, TempDir, Process) {
    let fleet = Scripted::new(&[("east", 1), ("north", 1), ("west", 1)]);
    configure(&fleet, "", "");
    fleet.world.lock().is_available = true;
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(fleet.clone(), &directory);
    (fleet, directory, process)
}

fn affinity(operator: &str, nodes: &[&str]) -> Value {
    let one = json!({"key": "kubernetes.io/hostname", "operator": operator, "values": nodes});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [one]}]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn values(nodes: &[&str]) -> Value {
    affinity("In", nodes)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
}

fn on(operator: &str, nodes: &[&str]) -> Value {
    let mut body = app(4);
    body["spec"]["template"]["spec"]["affinity"] = affinity(operator, nodes);
    body
}

fn template(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn warnings(reply: &Reply) -> String {
    format!("{:?}", reply.warnings)
}

#[tokio::test(start_paused = true)]
async fn nodes_of_two_members_choose_both_and_each_gets_its_own() {
    let (fleet, _directory, process) = start();
    let reply = process.writer.create(request("", &on("In", &["n0@east", "n1@west", "n2@west"]))).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("west", 2)]));
    assert_eq!((at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)), (values(&["n0"]), values(&["n1", "n2"])));
    assert_eq!(parsed(&reply).pointer(TERMS), Some(&values(&["n0@east", "n1@west", "n2@west"])), "as it is written");
    assert!(process.writer.all_outdated().await.is_empty(), "no policy has it differ");
    assert!(!warnings(&reply).contains("@"), "{}", warnings(&reply));
}

#[tokio::test(start_paused = true)]
async fn whoever_writes_again_what_he_wrote_changes_nothing() {
    let written = on("In", &["n0@east", "n1@west"]);
    let applied = |query: &str| by("ci", query, patch(APPLY_PATCH, &written));
    for first in ["create", "apply"] {
        let (fleet, _directory, process) = start();
        match first {
            "create" => create(&process, &written).await,
            _ => assert_eq!(send(&process, applied("")).await.code, 201),
        }
        let shown = parsed(&send(&process, patch(MERGE, &json!({}))).await);
        if first == "create" {
            // Whoever applies it for the first time has its fields from then on.
            send(&process, applied("&force=true")).await;
        }
        let stands = || {
            ["east", "west"].map(|name| {
                let part = fleet.world.lock().members[&member(name)].objects["web"].clone();
                (bare(&part), part["metadata"]["annotations"].clone(), part["metadata"]["generation"].clone())
            })
        };
        let before = stands();
        assert_eq!(
            [&before[0], &before[1]].map(|(part, ..)| part.pointer(TERMS).unwrap().clone()),
            [values(&["n0"]), values(&["n1"])]
        );
        for request in
            [put(&shown), patch(MERGE, &written), patch(STRATEGIC, &written), applied(""), applied("&dryRun=All")]
        {
            let how = request.content_type.clone();
            let mut request = request;
            if how == "application/json" {
                let mut body: Value = serde_json::from_slice(&request.body).unwrap();
                body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                request.body = body.to_string().into();
            }
            let reply = send(&process, request).await;
            assert_eq!(reply.code, 200, "{how}: {}", message(&reply));
            assert_eq!(stands(), before, "{first}, {how}");
            assert_eq!(parsed(&reply).pointer(TERMS), Some(&values(&["n0@east", "n1@west"])), "{first}, {how}");
            assert!(!warnings(&reply).contains("keeps its own"), "{}", warnings(&reply));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_way_to_write_moves_names_and_keeps_the_rest() {
    let (old, new) = (["n0@east", "n1@west"], ["n5@east", "n6@west", "n7@west"]);
    let body = template(json!({"affinity": affinity("In", &new)}));
    let replace = json!([{"op": "test", "path": TERMS, "value": values(&old)}, {"op": "replace", "path": TERMS, "value": values(&new)}]);
    let whole = on("In", &new);
    for request in [
        put(&whole),
        patch(MERGE, &body),
        patch(STRATEGIC, &body),
        patch("application/json-patch+json", &replace),
        by("ci", "&force=true", patch(APPLY_PATCH, &whole)),
    ] {
        let how = request.content_type.clone();
        let (fleet, _directory, process) = start();
        create(&process, &on("In", &old)).await;
        let dry = Request { query: format!("{}&dryRun=All", request.query), ..request.clone() };
        let told = send(&process, dry).await;
        assert_eq!(parsed(&told).pointer(TERMS), Some(&values(&new)), "{how}: {}", message(&told));
        assert_eq!(at(&fleet, "east", TERMS), values(&["n0"]), "a dry run changes nothing");
        let reply = send(&process, request).await;
        assert_eq!(reply.code, 200, "{how}: {}", message(&reply));
        assert_eq!(parsed(&reply).pointer(TERMS), Some(&values(&new)), "{how}");
        assert_eq!(
            (at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)),
            (values(&["n5"]), values(&["n6", "n7"])),
            "{how}"
        );
        // Others write other fields, and none of them is lost.
        let reply = send(&process, patch(STRATEGIC, &image("web:2"))).await;
        assert_eq!(parsed(&reply).pointer(TERMS), Some(&values(&new)), "{how}");
        assert_eq!(
            (at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)),
            (values(&["n5"]), values(&["n6", "n7"])),
            "{how}"
        );
        assert!(process.writer.all_outdated().await.is_empty(), "{how}");
        // Without names nothing is left of them.
        let reply = send(&process, patch(MERGE, &template(json!({"affinity": null})))).await;
        assert_eq!(reply.code, 200, "{how}: {}", message(&reply));
        assert!(parsed(&reply).pointer(TERMS).is_none(), "{how}");
        for name in ["east", "west"] {
            assert_eq!((at(&fleet, name, TERMS), at(&fleet, name, NOTE)), (Value::Null, Value::Null), "{how}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_leaves_names_out_takes_them_away() {
    let (fleet, _directory, process) = start();
    let apply = |spec: Value| {
        by(
            "ci",
            "",
            patch(APPLY_PATCH, &{
                let mut body = app(4);
                body["spec"]["template"]["spec"]["nodeSelector"] = spec;
                body
            }),
        )
    };
    let selector = format!("{SPEC}/nodeSelector");
    let named = json!({"kubernetes.io/hostname": "n0@east", "disk": "ssd"});
    let reply = send(&process, apply(named.clone())).await;
    assert_eq!((reply.code.as_u16(), parsed(&reply).pointer(&selector)), (201, Some(&named)), "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 4)]));
    assert_eq!(at(&fleet, "east", &selector), json!({"kubernetes.io/hostname": "n0", "disk": "ssd"}));
    let reply = send(&process, apply(json!({"disk": "ssd"}))).await;
    assert_eq!(parsed(&reply).pointer(&selector), Some(&json!({"disk": "ssd"})), "{}", message(&reply));
    assert_eq!(at(&fleet, "east", &selector), json!({"disk": "ssd"}));
}

#[tokio::test(start_paused = true)]
async fn what_keeps_away_from_a_node_reaches_its_member_alone() {
    let (fleet, _directory, process) = start();
    create(&process, &on("NotIn", &["n0@east"])).await;
    assert_eq!(fleet.standing("web").len(), 3, "it chooses no member");
    let of = |name: &str| at(&fleet, name, REQUIRED);
    let required = |nodes: &[&str]| {
        affinity("NotIn", nodes)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone()
    };
    assert_eq!((of("east"), of("west")), (required(&["n0"]), Value::Null));
    // From one member's node to another's: a part has it, has it not, has it again.
    for (node, east, west) in [("n1@west", Value::Null, required(&["n1"])), ("n2@east", required(&["n2"]), Value::Null)]
    {
        for content_type in [MERGE, STRATEGIC] {
            let reply =
                send(&process, patch(content_type, &template(json!({"affinity": affinity("NotIn", &[node])})))).await;
            assert_eq!(reply.code, 200, "{}", message(&reply));
            assert!(!warnings(&reply).contains("keeps its own"), "{}", warnings(&reply));
            assert_eq!(parsed(&reply).pointer(REQUIRED), Some(&required(&[node])));
            assert_eq!((of("east"), of("west")), (east.clone(), west.clone()), "{node}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_is_never_left_without_a_node_and_a_member_without_a_part_is_told_of() {
    let (fleet, _directory, process) = start();
    create(&process, &on("In", &["n0@east"])).await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 4)]));
    let to = |nodes: &[&str]| template(json!({"affinity": affinity("In", nodes)}));
    let before = fleet.world.lock().members[&member("east")].objects["web"].clone();
    for request in [
        patch(MERGE, &to(&["n1@west"])),
        patch(STRATEGIC, &to(&["n1@west"])),
        put(&on("In", &["n1@west"])),
        by("ci", "&force=true", patch(APPLY_PATCH, &on("In", &["n1@west"]))),
    ] {
        let reply = send(&process, request).await;
        assert_eq!(reply.code, 422);
        let said = message(&reply);
        assert!(
            said.ends_with(
                "spec.template.spec: Invalid value: \"n1@west\": the object is in member east, and needs a node of it"
            ),
            "{said}"
        );
    }
    assert_eq!(fleet.world.lock().members[&member("east")].objects["web"], before);
    let reply = send(&process, patch(MERGE, &to(&["n0@east", "n1@west"]))).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    let said = warnings(&reply);
    assert!(
        said.contains("names the node n1@west, and has no part in member west; kubefold rebalance makes one"),
        "{said}"
    );
    let reply = send(&process, patch(MERGE, &image("web:2"))).await;
    assert!(!warnings(&reply).contains("n1@west"), "it is said once");
    process.writer.order(rebalance(false), "ann").await.unwrap();
    process.settled().await;
    assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("west", 2)]));
    assert_eq!((at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)), (values(&["n0"]), values(&["n1"])));
    let shown = parsed(&send(&process, patch(MERGE, &json!({}))).await);
    assert_eq!(shown.pointer(TERMS), Some(&values(&["n0@east", "n1@west"])));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_no_member_has_choose_none() {
    let (fleet, _directory, process) = start();
    let mut torn = on("In", &["n0@east"]);
    torn["spec"]["template"]["spec"]["nodeName"] = "n1@west".into();
    let reply = process.writer.create(request("", &torn)).await;
    let said = message(&reply);
    assert!(
        reply.code == 422
            && said.contains("east: it does not hold n1@west")
            && said.contains("west: it does not hold n0@east"),
        "{said}"
    );
    // A member says what is wrong with a name of none.
    create(&process, &on("In", &["n0@nowhere"])).await;
    assert_eq!(
        (at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)),
        (values(&["n0@nowhere"]), values(&["n0@nowhere"]))
    );
    let reply = process
        .writer
        .create(request("", &{
            let mut body = app(1);
            body["metadata"]["name"] = "other".into();
            body["spec"]["template"]["spec"]["nodeName"] = "n0@nowhere".into();
            body
        }))
        .await;
    assert_eq!(reply.code, 201, "where nothing is known of nodes, the member judges");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_goes_where_its_nodes_are() {
    let (fleet, _directory, process) = start();
    let mut body = on("In", &["n0@east", "n1@north"]);
    body["kind"] = "DaemonSet".into();
    body["spec"].as_object_mut().unwrap().remove("replicas");
    let of = |request: Request| Request {
        gvr: Gvr::new("apps", "v1", "daemonsets"),
        gvk: Gvk::new("apps", "v1", "DaemonSet"),
        ..request
    };
    let reply = process.writer.create(of(request("", &body))).await;
    assert_eq!(reply.code, 201, "{}", message(&reply));
    assert_eq!(
        (at(&fleet, "east", TERMS), at(&fleet, "north", TERMS), at(&fleet, "west", "")),
        (values(&["n0"]), values(&["n1"]), Value::Null)
    );
    let reply = send(
        &process,
        of(patch(MERGE, &template(json!({"affinity": affinity("In", &["n0@east", "n1@north", "n2@west"])})))),
    )
    .await;
    assert!(warnings(&reply).contains("has no part in member west; kubefold extend makes one"), "{}", warnings(&reply));
}

#[tokio::test(start_paused = true)]
async fn overrides_of_a_policy_and_names_do_not_mix() {
    let (fleet, _directory, process) = start();
    let disk = |size: &str| {
        format!("    east: {{patch: [{{op: add, path: {SPEC}/nodeSelector, value: {{disk: {size}}}}}]}}\n")
    };
    policy(&fleet, &disk("ssd"));
    create(&process, &on("In", &["n0@east", "n1@west"])).await;
    assert_eq!(
        (at(&fleet, "east", TERMS), at(&fleet, "east", &format!("{SPEC}/nodeSelector"))),
        (values(&["n0"]), json!({"disk": "ssd"}))
    );
    assert!(process.writer.all_outdated().await.is_empty());
    policy(&fleet, "    west: {max: 9}\n");
    let outdated = process.writer.all_outdated().await;
    assert!(outdated.len() == 1 && outdated[0].why.starts_with("the part in member east has"), "{outdated:?}");
    process.writer.order(rebalance(false), "ann").await.unwrap();
    process.settled().await;
    assert_eq!(
        (at(&fleet, "east", TERMS), at(&fleet, "east", &format!("{SPEC}/nodeSelector"))),
        (values(&["n0"]), Value::Null)
    );
    assert!(process.writer.all_outdated().await.is_empty());
    let shown = parsed(&send(&process, patch(MERGE, &json!({}))).await);
    assert_eq!(shown.pointer(TERMS), Some(&values(&["n0@east", "n1@west"])));
    // What somebody edits in a member is none of kubefold's, and shows.
    edit(&fleet, "west", |part| part["spec"]["template"]["spec"]["affinity"] = affinity("In", &["n9"]));
    assert!(process.writer.all_outdated().await.is_empty());
    let reply = send(&process, patch(MERGE, &image("web:2"))).await;
    assert_eq!((reply.code.as_u16(), at(&fleet, "west", TERMS)), (200, values(&["n9"])));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_gets_its_first_share_has_its_own_nodes() {
    let (fleet, _directory, process) = start();
    let mut one = on("In", &["n0@east", "n1@west"]);
    one["spec"]["replicas"] = 1.into();
    create(&process, &one).await;
    assert_eq!(fleet.standing("web").len(), 1);
    let reply = send(&process, patch(MERGE, &json!({"spec": {"replicas": 4}}))).await;
    assert_eq!(reply.code, 200, "{}", message(&reply));
    assert_eq!(fleet.standing("web"), pair(&[("east", 2), ("west", 2)]));
    assert_eq!((at(&fleet, "east", TERMS), at(&fleet, "west", TERMS)), (values(&["n0"]), values(&["n1"])));
}

#[tokio::test(start_paused = true)]
async fn a_pinned_object_names_nodes_of_its_member() {
    let (fleet, _directory, process) = start();
    let mut body = on("In", &["n0@east", "n1@west"]);
    body["metadata"]["name"] = "web@east".into();
    let reply = process.writer.create(request("", &body)).await;
    assert_eq!((reply.code.as_u16(), at(&fleet, "east", TERMS)), (201, values(&["n0"])), "{}", message(&reply));
    let forward = |nodes: &[&str]| Request {
        name: "web@east".into(),
        ..patch(MERGE, &template(json!({"affinity": affinity("In", nodes)})))
    };
    let reply = process.writer.forward(forward(&["n5@east"]), "web".into(), member("east")).await;
    assert_eq!((reply.code.as_u16(), at(&fleet, "east", TERMS)), (200, values(&["n5"])), "{}", message(&reply));
    let reply = process.writer.forward(forward(&["n1@west"]), "web".into(), member("east")).await;
    let words = "spec.template.spec: Invalid value: \"n1@west\": the object is in member east, and needs a node of it";
    assert!(reply.code == 422 && message(&reply).ends_with(words), "{}", message(&reply));
    body["metadata"]["name"] = "web@west".into();
    body["spec"]["template"]["spec"]["affinity"] = affinity("In", &["n0@east"]);
    let reply = process.writer.create(request("", &body)).await;
    assert!(
        reply.code == 422 && message(&reply).contains("\"n0@east\": the object is in member west"),
        "{}",
        message(&reply)
    );
}
