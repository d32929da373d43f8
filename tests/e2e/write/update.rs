//! Changes of a placed object: made in every part, answered as one.

use http::{Method, Request, header};
use serde_json::{Value, json};

mod owners;

use super::*;
use testbed::{FleetFile, Kubefold, MemberOptions, Testbed};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

struct Stage {
    bed: Testbed,
    fleet: Kubefold,
    api: Api,
}

impl Stage {
    async fn set(options: MemberOptions) -> Self {
        let bed = Testbed::start(&["east", "west", "north"], options).await;
        let entry = |file: FleetFile, name: &str, weight| {
            file.entry(name, &bed[name].kubeconfig(), weight, "deadlines: {write: 3s}")
        };
        let file = entry(FleetFile::default(), "east", 1);
        let file = entry(entry(file, "west", 2), "north", 4);
        let fleet = Kubefold::start(&file).await;
        let api = fleet.api().await;
        Self { bed, fleet, api }
    }

    fn all(&self) -> [&Member; 3] {
        ["east", "west", "north"].map(|name| &self.bed[name])
    }

    async fn shares(&self, name: &str) -> BTreeMap<String, i64> {
        shares(&self.all(), name).await
    }

    async fn kubectl(&self, args: &[&str]) -> String {
        self.fleet.kubectl(args).await.ok().to_owned()
    }

    /// What each part holds at a place.
    async fn everywhere(&self, name: &str, pointer: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for member in self.all() {
            if let Some(part) = part(member, name).await {
                assert!(part["metadata"]["labels"][MARKER].is_string(), "{} lost its marker: {part}", member.name());
                assert!(part["metadata"]["annotations"][MARKER].is_string(), "{} lost its marker", member.name());
                found.push(part.pointer(pointer).cloned().unwrap_or_default());
            }
        }
        found
    }
}

async fn patch(api: &Api, path: &str, content_type: &str, body: &Value) -> Answer {
    let request = Request::patch(path).header(header::CONTENT_TYPE, content_type);
    api.send(request.body(body.to_string().into()).unwrap()).await.unwrap()
}

fn same(value: &Value) -> Vec<Value> {
    vec![value.clone(); 3]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_in_every_part() {
    let stage = Stage::set(MemberOptions::default()).await;
    post(&stage.api, &deployment("web", 7)).await.ok();
    assert_eq!(stage.shares("web").await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    puts(&stage).await;
    patches(&stage).await;
    one_event(&stage).await;
    by_kubectl(&stage).await;
    told_no(&stage).await;
    scales(&stage).await;
    edits(&stage).await;
    applies(&stage).await;
    owners::rescaled(&stage).await;
    annotations(&stage).await;
    json_patches(&stage).await;
    nobody_loses(&stage).await;
    shared_objects(&stage).await;
    behind(&stage).await;
    owners::apart(&stage).await;
}

async fn puts(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    let mut shown = stage.api.get(&path).await;
    shown["metadata"]["labels"]["tier"] = "front".into();
    shown["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    shown["spec"]["replicas"] = 14.into();
    let answer = stage.api.request(Method::PUT, &path, shown.to_string()).await;
    let now = answer.ok();
    assert_eq!((&now["spec"]["replicas"], &now["metadata"]["uid"]), (&json!(14), &shown["metadata"]["uid"]));
    assert!(!now.to_string().contains(MARKER), "{now}");
    assert_eq!(stage.shares("web").await, split(&[("east", 2), ("west", 4), ("north", 8)]));
    assert_eq!(stage.everywhere("web", "/metadata/labels/tier").await, same(&json!("front")));
    assert_eq!(stage.everywhere("web", "/spec/template/spec/containers/0/image").await, same(&json!("web:2")));
    let stale = stage.api.request(Method::PUT, &path, shown.to_string()).await;
    refused(&stale, 409, "Conflict", &["deployments.apps \"web\"", "the object has been modified"]);
    // A manifest, as a person wrote it: what it does not name is as in a create.
    let answer = stage.api.request(Method::PUT, &path, deployment("web", 7).to_string()).await;
    assert_eq!(answer.ok()["spec"]["replicas"], 7);
    assert_eq!(stage.shares("web").await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    assert_eq!(stage.everywhere("web", "/metadata/labels/tier").await, same(&Value::Null));
    let same_again = stage.api.get(&path).await;
    let answer = stage.api.request(Method::PUT, &path, same_again.to_string()).await;
    assert_eq!(
        answer.ok()["metadata"]["resourceVersion"],
        same_again["metadata"]["resourceVersion"],
        "no change, no event"
    );
}

async fn patches(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    let strategic = json!({"spec": {"replicas": 8, "template": {"spec": {"containers": [
        {"name": "web", "env": [{"name": "A", "value": "1"}]}, {"name": "log", "image": "log:1"}
    ]}}}});
    assert_eq!(patch(&stage.api, &path, STRATEGIC, &strategic).await.ok()["spec"]["replicas"], 8);
    let names = "/spec/template/spec/containers/1/name";
    assert_eq!(stage.everywhere("web", names).await, same(&json!("log")));
    let env = "/spec/template/spec/containers/0/env/0/value";
    assert_eq!(stage.everywhere("web", env).await, same(&json!("1")));
    assert_eq!(stage.shares("web").await.values().sum::<i64>(), 8);
    let remove = json!({"spec": {"template": {"spec": {"containers": [{"name": "log", "$patch": "delete"}]}}}});
    patch(&stage.api, &path, STRATEGIC, &remove).await.ok();
    assert_eq!(stage.everywhere("web", names).await, same(&Value::Null));
    let merge =
        json!({"metadata": {"annotations": {"a": "1", MARKER: "forged"}, "labels": null}, "spec": {"replicas": 7}});
    patch(&stage.api, &path, MERGE, &merge).await.ok();
    assert_eq!(stage.everywhere("web", "/metadata/annotations/a").await, same(&json!("1")));
    assert_eq!(stage.everywhere("web", "/metadata/labels/app").await, same(&Value::Null));
    assert_eq!(stage.shares("web").await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    let ops = |tested: i64| json!([{"op": "test", "path": "/spec/replicas", "value": tested}, {"op": "add", "path": "/metadata/labels", "value": {"app": "web"}}]);
    refused(&patch(&stage.api, &path, JSON_PATCH, &ops(4)).await, 422, "Invalid", &["rejected our request"]);
    patch(&stage.api, &path, JSON_PATCH, &ops(7)).await.ok();
    assert_eq!(stage.everywhere("web", "/metadata/labels/app").await, same(&json!("web")));
    let dry = patch(&stage.api, &format!("{path}?dryRun=All"), MERGE, &json!({"spec": {"replicas": 70}})).await;
    assert_eq!(dry.ok()["spec"]["replicas"], 70);
    assert_eq!(stage.shares("web").await.values().sum::<i64>(), 7);
}

/// The same JSON patches of the placed object and of an object in a cluster of its own: the same answers.
async fn json_patches(stage: &Stage) {
    let cluster = stage.bed["east"].api().await;
    post(&cluster, &deployment("alone", 7)).await.ok();
    // As the placed object is by now, so that the answers may be compared.
    let placed = stage.api.get(&format!("{DEPLOYMENTS}/web")).await;
    let image = text(&placed, "/spec/template/spec/containers/0/image");
    let as_placed = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
    patch(&cluster, &format!("{DEPLOYMENTS}/alone"), JSON_PATCH, &as_placed).await.ok();
    let copies = vec![json!({"op": "copy", "from": "/spec", "path": "/metadata/annotations/x"}); 9_000];
    for operations in [
        json!([{"op": "test", "path": "/metadata/nothing", "value": null}]),
        json!([{"op": "test", "path": "/metadata/nothing/there", "value": null}]),
        json!([{"op": "test", "path": "/spec/replicas", "value": 7.0}]),
        json!([{"op": "remove", "path": "/metadata/nothing"}]),
        json!([{"op": "replace", "path": "/metadata/labels/tier", "value": "a"}]),
        json!([{"op": "replace", "path": "/spec/template/spec/containers/-1/image", "value": "last:1"}]),
        json!([{"op": "add", "path": "x/metadata/labels/tier", "value": "b"}]),
        json!([{"op": "jump", "path": "/x"}]),
        json!([{"op": "add", "path": 1}]),
        json!({"op": "add"}),
        json!([]),
        copies.into(),
    ] {
        let ours = patch(&stage.api, &format!("{DEPLOYMENTS}/web"), JSON_PATCH, &operations).await;
        let theirs = patch(&cluster, &format!("{DEPLOYMENTS}/alone"), JSON_PATCH, &operations).await;
        let said = |answer: &Answer| {
            let body = answer.json();
            let told = ["reason", "message", "details"].map(|field| body[field].clone());
            let labels = body["metadata"]["labels"]["tier"].clone();
            (answer.status.as_u16(), told, labels, body["spec"]["template"]["spec"]["containers"][0]["image"].clone())
        };
        let operations = operations.to_string();
        assert_eq!(said(&ours), said(&theirs), "{}", operations.get(..200).unwrap_or(&operations));
    }
    cluster.request(Method::DELETE, &format!("{DEPLOYMENTS}/alone"), "").await.ok();
}

/// One write is one event, and the answer is what it told.
async fn one_event(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    let before = stage.api.get(&path).await;
    let version = text(&before, "/metadata/resourceVersion");
    let mut watch = stage.api.watch(&format!("{DEPLOYMENTS}?watch=true&resourceVersion={version}")).await;
    for total in [14, 21] {
        let answer = patch(&stage.api, &path, MERGE, &json!({"spec": {"replicas": total}})).await.ok();
        let (type_, told) = event(&mut watch, "web").await;
        assert_eq!((type_.as_str(), &told), ("MODIFIED", &answer));
    }
}

async fn by_kubectl(stage: &Stage) {
    stage.kubectl(&["set", "image", "deployment/web", "web=web:3"]).await;
    assert_eq!(stage.everywhere("web", "/spec/template/spec/containers/0/image").await, same(&json!("web:3")));
    stage.kubectl(&["label", "deployment", "web", "team=a"]).await;
    assert_eq!(stage.everywhere("web", "/metadata/labels/team").await, same(&json!("a")));
    stage.kubectl(&["annotate", "deployment", "web", "note=b"]).await;
    stage.kubectl(&["annotate", "deployment", "web", "note-"]).await;
    assert_eq!(stage.everywhere("web", "/metadata/annotations/note").await, same(&Value::Null));
    stage.kubectl(&["rollout", "pause", "deployment/web"]).await;
    assert_eq!(stage.everywhere("web", "/spec/paused").await, same(&json!(true)));
    stage.kubectl(&["rollout", "resume", "deployment/web"]).await;
    assert_eq!(stage.everywhere("web", "/spec/paused").await, same(&Value::Null));
    stage.kubectl(&["rollout", "restart", "deployment/web"]).await;
    let restarted =
        stage.everywhere("web", "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt").await;
    assert!(restarted[0].is_string() && restarted.iter().all(|at| *at == restarted[0]), "{restarted:?}");
    let yaml = stage.kubectl(&["get", "deployment", "web", "-o", "yaml"]).await;
    let edited = yaml.replace("web:3", "web:4");
    stage.fleet.as_admin().run_with_input(&["replace", "-f", "-"], &edited).await.ok();
    assert_eq!(stage.everywhere("web", "/spec/template/spec/containers/0/image").await, same(&json!("web:4")));
    // Twice, as a pipeline does; the second finds the annotation of the first.
    let mut manifest = deployment("web", 14);
    for image in ["web:5", "web:6"] {
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        stage.fleet.as_admin().run_with_input(&["apply", "-f", "-"], &manifest.to_string()).await.ok();
        assert_eq!(stage.everywhere("web", "/spec/template/spec/containers/0/image").await, same(&json!(image)));
        assert_eq!(stage.shares("web").await, split(&[("east", 2), ("west", 4), ("north", 8)]));
    }
    let again = stage.fleet.as_admin().run_with_input(&["apply", "-f", "-"], &manifest.to_string()).await;
    assert!(again.ok().contains("unchanged"), "{again}");
}

async fn told_no(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    let other = json!({"metadata": {"uid": "6f1c2d5e-0b1a-4c3d-8e9f-001122334455"}});
    refused(&patch(&stage.api, &path, MERGE, &other).await, 409, "Conflict", &["UID in precondition"]);
    let selector = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
    let texts = ["field is immutable", "; nothing was changed)"];
    refused(&patch(&stage.api, &path, MERGE, &selector).await, 422, "Invalid", &texts);
    let negative = json!({"spec": {"replicas": -1}});
    refused(&patch(&stage.api, &path, MERGE, &negative).await, 422, "Invalid", &["must be greater than or equal to 0"]);
    let negative = patch(&stage.api, &path, STRATEGIC, &negative).await;
    refused(&negative, 422, "Invalid", &["must be greater than or equal to 0"]);
    let missing = patch(&stage.api, &format!("{DEPLOYMENTS}/never"), MERGE, &json!({})).await;
    refused(&missing, 404, "NotFound", &["\"never\" not found"]);
}

async fn scales(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web/scale");
    stage.kubectl(&["scale", "deployment/web", "--replicas=7"]).await;
    assert_eq!(stage.shares("web").await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    stage.kubectl(&["scale", "deployment/web", "--current-replicas=7", "--replicas=14"]).await;
    assert_eq!(stage.shares("web").await, split(&[("east", 2), ("west", 4), ("north", 8)]));
    let said = stage.fleet.kubectl(&["scale", "deployment/web", "--current-replicas=7", "--replicas=1"]).await;
    assert!(said.stderr.contains("Expected replicas to be 7, was 14"), "{said}");
    let shown = stage.api.get(&format!("{DEPLOYMENTS}/web")).await;
    let mut scale = stage.api.get(&path).await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(14)));
    assert_eq!(scale["status"]["selector"], "app=web");
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        assert_eq!(scale["metadata"][field], shown["metadata"][field], "{field}");
    }
    scale["spec"]["replicas"] = 21.into();
    let now = stage.api.request(Method::PUT, &path, scale.to_string()).await.ok();
    assert_eq!(now["spec"]["replicas"], 21);
    assert_eq!(stage.shares("web").await, split(&[("east", 3), ("west", 6), ("north", 12)]));
    refused(&stage.api.request(Method::PUT, &path, scale.to_string()).await, 409, "Conflict", &["has been modified"]);
    let dry = patch(&stage.api, &format!("{path}?dryRun=All"), MERGE, &json!({"spec": {"replicas": 1}})).await;
    assert_eq!(dry.ok()["spec"]["replicas"], 1);
    let negative = patch(&stage.api, &path, MERGE, &json!({"spec": {"replicas": -1}})).await;
    refused(&negative, 422, "Invalid", &["must be greater than or equal to 0"]);
    let ops = json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]);
    assert_eq!(patch(&stage.api, &path, JSON_PATCH, &ops).await.ok()["spec"], json!({}), "as Go writes a 0");
    assert_eq!(stage.shares("web").await, split(&[("east", 0), ("west", 0), ("north", 0)]), "no part goes");
    stage.kubectl(&["scale", "deployment/web", "--replicas=7"]).await;
    assert_eq!(stage.shares("web").await.values().sum::<i64>(), 7);
}

async fn edits(stage: &Stage) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let editor = directory.path().join("kubectl");
    let kubectl = testbed::binary("kubectl");
    let script = format!("#!/bin/sh\nKUBE_EDITOR='sed -i s/web:6/web:7/' exec {} \"$@\"\n", kubectl.display());
    std::fs::write(&editor, script).unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    stage.fleet.as_admin().by(editor).run(&["edit", "deployment", "web"]).await.ok();
    assert_eq!(stage.everywhere("web", "/spec/template/spec/containers/0/image").await, same(&json!("web:7")));
}

async fn applies(stage: &Stage) {
    let mut manifest = deployment("applied", 7);
    let admin = stage.fleet.as_admin();
    let image = "/spec/template/spec/containers/0/image";
    let apply = async |manifest: &Value, more: &[&str]| {
        let args = [&["apply", "--server-side", "-f", "-"], more].concat();
        admin.run_with_input(&args, &manifest.to_string()).await
    };
    apply(&manifest, &[]).await.ok();
    assert_eq!(stage.shares("applied").await, split(&[("east", 1), ("west", 2), ("north", 4)]));
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    manifest["spec"]["replicas"] = 14.into();
    apply(&manifest, &[]).await.ok();
    assert_eq!(stage.everywhere("applied", image).await, same(&json!("web:2")));
    assert_eq!(stage.shares("applied").await, split(&[("east", 2), ("west", 4), ("north", 8)]));
    for part in stage.everywhere("applied", "/metadata/managedFields").await {
        let managers = part.as_array().unwrap();
        let applied = |one: &&Value| one["manager"] == "kubectl" && one["operation"] == "Apply";
        assert_eq!(managers.iter().filter(applied).count(), 1, "{part}");
        assert!(!managers.iter().any(|one| one["manager"] == "kubectl" && one["operation"] == "Update"), "{part}");
    }
    unsaid(stage, &mut manifest).await;
    manifest["metadata"]["labels"]["own"] = "x".into();
    apply(&manifest, &[]).await.ok();
    manifest["metadata"]["labels"].as_object_mut().unwrap().remove("own");
    apply(&manifest, &[]).await.ok();
    assert_eq!(
        stage.everywhere("applied", "/metadata/labels/own").await,
        same(&Value::Null),
        "what it leaves out goes"
    );
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "web:3".into();
    let told = apply(&manifest, &["--field-manager=other"]).await;
    assert!(told.stderr.contains("conflict with \"kubectl\""), "{told}");
    assert_eq!(stage.everywhere("applied", image).await, same(&json!("web:2")));
    apply(&manifest, &["--field-manager=other", "--force-conflicts"]).await.ok();
    assert_eq!(stage.everywhere("applied", image).await, same(&json!("web:3")));
    // One that only one member's part has with another manager is a conflict of the whole.
    stage.bed["west"].kubectl(&["set", "image", "deployment/applied", "web=own:1"]).await.ok();
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "web:4".into();
    let told = eventually(SOON, async || {
        let told = apply(&manifest, &["--field-manager=other", "--dry-run=server"]).await;
        if told.stderr.contains("kubectl-set") { Ok(told) } else { Err(told.to_string()) }
    })
    .await;
    assert!(told.stderr.contains("member west"), "{told}");
    stage.kubectl(&["delete", "deployment", "applied"]).await;
    gone(&stage.api, &stage.all(), "applied").await;
}

/// An apply that leaves the number out has the default of the whole, and has it no more: a later one leaves alone what
/// others made of it.
async fn unsaid(stage: &Stage, manifest: &mut Value) {
    let admin = stage.fleet.as_admin();
    let args = ["apply", "--server-side", "-f", "-"];
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    admin.run_with_input(&args, &manifest.to_string()).await.ok();
    let total = async || stage.shares("applied").await.values().sum::<i64>();
    assert_eq!(total().await, 1);
    for managers in stage.everywhere("applied", "/metadata/managedFields").await {
        let has = |one: &&Value| one["fieldsV1"]["f:spec"]["f:replicas"].is_object();
        assert_eq!(managers.as_array().unwrap().iter().filter(has).count(), 0, "{managers}");
    }
    stage.kubectl(&["scale", "deployment/applied", "--replicas=14"]).await;
    admin.run_with_input(&args, &manifest.to_string()).await.ok();
    assert_eq!(total().await, 14);
    // One that makes the object does not have it either: another manager sets it without a conflict.
    let mut made = deployment("unsaid", 0);
    made["spec"].as_object_mut().unwrap().remove("replicas");
    admin.run_with_input(&args, &made.to_string()).await.ok();
    made["spec"]["replicas"] = 7.into();
    made["metadata"]["labels"]["late"] = "x".into();
    admin.run_with_input(&[&args[..], &["--field-manager=other"]].concat(), &made.to_string()).await.ok();
    assert_eq!(stage.shares("unsaid").await.values().sum::<i64>(), 7);
    assert_eq!(
        stage.everywhere("unsaid", "/metadata/labels/late").await,
        same(&json!("x")),
        "in parts that it makes, too"
    );
    stage.kubectl(&["delete", "deployment", "unsaid"]).await;
}

/// JSON patches of annotations, of which a part has one more than its author knows.
async fn annotations(stage: &Stage) {
    let api = &stage.api;
    let (maps, member) = ("/api/v1/namespaces/default/configmaps", stage.bed["east"].api().await);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes", "annotations": {"old": "1"}}});
    member.create(maps, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "alone", "annotations": {"old": "1"}}})).await;
    api.create(maps, &map).await;
    let all = "/metadata/annotations";
    for (patch_, wanted) in [
        (json!([{"op": "add", "path": format!("{all}/x"), "value": "1"}]), json!({"old": "1", "x": "1"})),
        (json!([{"op": "add", "path": all, "value": {"y": "1"}}]), json!({"y": "1"})),
        (json!([{"op": "replace", "path": all, "value": {"z": "1"}}]), json!({"z": "1"})),
        (json!([{"op": "test", "path": format!("{all}/z"), "value": "2"}]), json!({"z": "1"})),
        (json!([{"op": "remove", "path": format!("{all}/nothing")}]), json!({"z": "1"})),
        (json!([{"op": "remove", "path": all}, {"op": "add", "path": all, "value": {"w": "1"}}]), json!({"w": "1"})),
        (json!([{"op": "remove", "path": all}]), Value::Null),
        (
            json!([{"op": "add", "path": all, "value": {}}, {"op": "add", "path": format!("{all}/x"), "value": "1"}]),
            json!({"x": "1"}),
        ),
    ] {
        let ours = patch(api, &format!("{maps}/notes"), JSON_PATCH, &patch_).await;
        let theirs = patch(&member, &format!("{maps}/alone"), JSON_PATCH, &patch_).await;
        assert_eq!(ours.status, theirs.status, "{patch_}: {ours}");
        assert_eq!(member.get(&format!("{maps}/alone")).await.pointer(all).cloned().unwrap_or_default(), wanted);
        for member in stage.all() {
            let mut part = in_member(member, &format!("{maps}/notes")).await.unwrap();
            let notes = part["metadata"]["annotations"].as_object_mut().unwrap();
            assert!(notes.remove(MARKER).is_some(), "{patch_}: {} lost its marker", member.name());
            assert_eq!(
                Value::from(notes.clone()),
                if wanted.is_null() { json!({}) } else { wanted.clone() },
                "{patch_}"
            );
        }
    }
    // A controller has copied the marker to a member-local object: that of its member's stays, whatever a client says of the others.
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "copied", "annotations": {MARKER: "copied", "old": "1"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    member.create(sets, &set).await;
    let path = format!("{sets}/copied@east");
    eventually(SOON, async || match api.request(Method::GET, &path, "").await {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.to_string()),
    })
    .await;
    for (patch_, wanted) in [
        (
            json!([{"op": "add", "path": format!("{all}/x"), "value": "1"}]),
            json!({MARKER: "copied", "old": "1", "x": "1"}),
        ),
        (json!([{"op": "replace", "path": all, "value": {"y": "1"}}]), json!({MARKER: "copied", "y": "1"})),
        (
            json!([{"op": "test", "path": all, "value": {"y": "1", "kubefold.io/cluster": "east"}}]),
            json!({MARKER: "copied", "y": "1"}),
        ),
        (json!([{"op": "remove", "path": all}]), json!({MARKER: "copied"})),
    ] {
        patch(api, &path, JSON_PATCH, &patch_).await.ok();
        assert_eq!(member.get(&format!("{sets}/copied")).await["metadata"]["annotations"], wanted, "{patch_}");
    }
}

/// Clients that compare and swap lose nothing, and neither do those that patch.
async fn nobody_loses(stage: &Stage) {
    // Each waits for all others, and no write waits for another one longer than 10 s.
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 8;
    let path = format!("{DEPLOYMENTS}/web");
    let swaps = (0..CLIENTS).map(|_| async {
        for _ in 0..ROUNDS {
            loop {
                let mut shown = stage.api.get(&path).await;
                let count = &mut shown["metadata"]["annotations"]["count"];
                *count = (count.as_str().unwrap_or("0").parse::<usize>().unwrap() + 1).to_string().into();
                let answer = stage.api.request(Method::PUT, &path, shown.to_string()).await;
                match answer.status.as_u16() {
                    200 => break,
                    409 => {}
                    _ => panic!("{answer}"),
                }
            }
        }
    });
    futures::future::join_all(swaps).await;
    let all = (CLIENTS * ROUNDS).to_string();
    assert_eq!(stage.everywhere("web", "/metadata/annotations/count").await, same(&json!(all)));
    let patches = (0..CLIENTS).map(|client| {
        let path = &path;
        async move {
            for round in 0..ROUNDS {
                let annotations = json!({"metadata": {"annotations": {format!("client-{client}"): round.to_string()}}});
                if client % 2 == 0 {
                    patch(&stage.api, path, MERGE, &annotations).await.ok();
                    continue;
                }
                let mut apply = annotations;
                apply["apiVersion"] = "apps/v1".into();
                apply["kind"] = "Deployment".into();
                let query = format!("{path}?fieldManager=client-{client}");
                patch(&stage.api, &query, "application/apply-patch+yaml", &apply).await.ok();
            }
        }
    });
    futures::future::join_all(patches).await;
    for client in 0..CLIENTS {
        let pointer = format!("/metadata/annotations/client-{client}");
        assert_eq!(stage.everywhere("web", &pointer).await, same(&json!((ROUNDS - 1).to_string())), "{client}");
    }
}

/// What every cluster has is written in all of them.
async fn shared_objects(stage: &Stage) {
    stage.kubectl(&["label", "namespace", "default", "team=a"]).await;
    for member in stage.all() {
        let namespace = in_member(member, "/api/v1/namespaces/default").await.unwrap();
        assert_eq!(namespace["metadata"]["labels"]["team"], "a", "{}", member.name());
    }
}

/// A member that stops in the middle is behind until it is back.
async fn behind(stage: &Stage) {
    let path = format!("{DEPLOYMENTS}/web");
    stage.kubectl(&["scale", "deployment/web", "--replicas=7"]).await;
    let before = stage.shares("web").await;
    let east = &stage.bed["east"];
    east.pause();
    // It is not known to be down yet, so that it gets its share.
    let body = json!({"metadata": {"labels": {"tier": "late"}}, "spec": {"replicas": 70}});
    let told = patch(&stage.api, &path, MERGE, &body).await;
    told.ok();
    let warnings = told.warnings().join("\n");
    assert!(warnings.contains("is not changed in member east yet, kubefold goes on trying"), "{warnings}");
    let others: Vec<&Member> = stage.all().into_iter().skip(1).collect();
    for member in &others {
        assert_eq!(part(member, "web").await.unwrap()["metadata"]["labels"]["tier"], "late");
    }
    let shown = stage.api.request(Method::GET, &path, "").await.ok();
    assert_eq!(shown["metadata"]["annotations"]["kubefold.io/behind"], "east", "{shown}");
    // A second one while it is away, which follows the first.
    patch(&stage.api, &path, MERGE, &json!({"metadata": {"labels": {"tier": "later"}}})).await.ok();
    east.resume();
    eventually(Duration::from_secs(90), async || {
        let (tiers, shares) = (stage.everywhere("web", "/metadata/labels/tier").await, stage.shares("web").await);
        let done = tiers == same(&json!("later")) && shares.values().sum::<i64>() == 70;
        if done { Ok(()) } else { Err(format!("{tiers:?} {shares:?}, before {before:?}")) }
    })
    .await;
    eventually(SOON, async || {
        let shown = stage.api.get(&path).await;
        let behind = &shown["metadata"]["annotations"]["kubefold.io/behind"];
        if behind.is_null() && shown["spec"]["replicas"] == 70 { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

/// How often kubefold is killed in the middle of changes.
const KILLS: u64 = 4;

/// Killed while it changes all parts, it finishes after its restart what it began: no two parts differ.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_changes_it_finishes_them() {
    let stage = Stage::set(MemberOptions::default()).await;
    post(&stage.api, &deployment("web", 7)).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let mut asked = vec![7];
    for round in 1..=KILLS {
        let api = stage.fleet.api().await;
        let totals: Vec<i64> = (0..50).map(|step| 7 * (1 + (i64::try_from(round).unwrap() + step) % 5)).collect();
        let change = async {
            for (step, total) in totals.iter().enumerate() {
                let containers = json!([{"name": "web", "image": format!("web:{round}-{step}")}]);
                let spec = json!({"replicas": total, "template": {"spec": {"containers": containers}}});
                let content_type = [MERGE, STRATEGIC][step % 2];
                let request = Request::patch(&path).header(header::CONTENT_TYPE, content_type);
                let sent = api.send(request.body(json!({"spec": spec}).to_string().into()).unwrap()).await;
                if sent.is_err() {
                    return step;
                }
            }
            totals.len()
        };
        let kill = async {
            // Each time at another step of a change: one member has it, and another may not yet.
            // Changes are refused for 40 s where the outcome of one before the last kill has to be waited for.
            let (member, step) = (&stage.bed.members()[usize::try_from(round).unwrap() % 3], 1 + round % 7);
            eventually(Duration::from_secs(120), async || {
                let part = part(member, "web").await.ok_or("no part")?;
                let image = part["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
                let at = image.strip_prefix(&format!("web:{round}-")).and_then(|step| step.parse::<u64>().ok());
                if at.is_some_and(|at| at >= step) { Ok(()) } else { Err(image.to_owned()) }
            })
            .await;
            stage.fleet.kill9();
        };
        let (steps, ()) = tokio::join!(change, kill);
        asked.extend(&totals);
        eprintln!("{round}: killed in change {steps}: {:?}", stage.shares("web").await);
        stage.fleet.restart().await;
    }
    let image = "/spec/template/spec/containers/0/image";
    eventually(Duration::from_secs(120), async || {
        let (images, shares) = (stage.everywhere("web", image).await, stage.shares("web").await);
        let told = stage.fleet.command(&["status", "-o", "json"]).await;
        let told: Value = serde_json::from_slice(&told.stdout).map_err(|error| error.to_string())?;
        let total: i64 = shares.values().sum();
        let done = images == same(&images[0]) && asked.contains(&total) && told["unfinished"] == json!([]);
        if done { Ok(()) } else { Err(format!("{images:?} {shares:?} {}", told["unfinished"])) }
    })
    .await;
    let shown = stage.fleet.api().await.get(&path).await;
    let total: i64 = stage.shares("web").await.values().sum();
    assert_eq!(shown["spec"]["replicas"], total);
    assert_eq!(shown.pointer(image), stage.everywhere("web", image).await.first());
    for annotation in ["behind", "differs"] {
        assert!(shown["metadata"]["annotations"][format!("kubefold.io/{annotation}")].is_null(), "{shown}");
    }
}
