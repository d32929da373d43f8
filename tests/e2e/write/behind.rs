//! Creates of whole parts and of shared objects while a member is away, or kubefold dies: in the end every member has its
//! part, or none does.

use std::collections::BTreeSet;

use futures::StreamExt;
use http::Method;
use serde_json::json;

use super::*;
use testbed::{Admission, FleetFile, Kubefold, MemberOptions, Relay, Testbed, Verdict, Which};

/// A kube-apiserver may work on a write for so long, and kubefold waits as long before it takes absence for an answer.
const SETTLED: Duration = Duration::from_secs(75);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Three members; the way to one can be blocked, and another asks a webhook.
struct Stage {
    bed: Testbed,
    fleet: Kubefold,
    file: FleetFile,
    west: Relay,
    north: Admission,
}

impl Stage {
    async fn set(options: MemberOptions) -> Self {
        let bed = Testbed::start(&["east", "west", "north"], options).await;
        let (west, north) = tokio::join!(Relay::before(&bed["west"]), Admission::before(&bed["north"]));
        let file = FleetFile::default()
            .member(&bed["east"], 1)
            .entry("west", &bed["west"].kubeconfig_through(&west), 2, "")
            .member(&bed["north"], 4);
        let fleet = Kubefold::start(&file).await;
        Self { bed, fleet, file, west, north }
    }

    async fn holders(&self, path: &str) -> Vec<&'static str> {
        let mut holders = Vec::new();
        for name in ["east", "west", "north"] {
            if in_member(&self.bed[name], path).await.is_some() {
                holders.push(name);
            }
        }
        holders
    }

    async fn settles(&self, path: &str, wanted: &[&str]) {
        eventually(SETTLED, async || {
            let is = self.holders(path).await;
            if is == wanted { Ok(()) } else { Err(format!("{path}: {is:?}")) }
        })
        .await;
    }

    async fn noticed(&self, member: &str, is: &str) {
        let (api, line) = (self.fleet.api().await, format!("{member} is {is}"));
        eventually(SETTLED, async || {
            let text = api.try_request(Method::GET, "/readyz?verbose", "").await?;
            let text = String::from_utf8_lossy(&text.body).into_owned();
            text.contains(&line).then_some(()).ok_or(text)
        })
        .await;
    }

    /// The list of unfinished writes.
    async fn unfinished(&self) -> Value {
        self.fleet.api().await.get("/kubefold/v1/status").await["unfinished"].clone()
    }

    async fn finishes_every_write(&self) {
        eventually(SETTLED, async || {
            let left = self.unfinished().await;
            if left == json!([]) { Ok(()) } else { Err(left) }
        })
        .await;
    }

    async fn create(&self, path: &str, object: &Value) -> Answer {
        self.fleet.api().await.request(Method::POST, path, object.to_string()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_away_has_everything_in_the_end() {
    let stage = Stage::set(MemberOptions::default()).await;
    // Somebody has read these kinds, so that it is known what the member held.
    stage.create(MAPS, &config("before")).await.ok();
    stage.create(NAMESPACES, &namespace("before")).await.ok();
    stage.west.cut().await;
    stage.noticed("west", "down").await;
    for (path, object) in [(MAPS, config("late")), (NAMESPACES, namespace("late")), (MAPS, config("doomed"))] {
        let made = stage.create(path, &object).await;
        made.ok();
        let warnings = made.warnings().join("\n");
        assert!(warnings.contains("is behind: it is not in member west yet"), "{warnings}");
        let again = stage.create(path, &object).await;
        refused(&again, 409, "AlreadyExists", &[]);
    }
    let inside = "/api/v1/namespaces/late/configmaps";
    let mut map = config("inside");
    let made = stage.create(inside, &map).await;
    assert_eq!(made.status.as_u16(), 201, "{made}");
    // What is deleted meanwhile is not made any more.
    stage.fleet.kubectl(&["delete", "configmap", "doomed"]).await.ok();
    stage.fleet.kill9();
    stage.fleet.restart().await;
    stage.west.restore().await;
    stage.noticed("west", "ready").await;
    stage.settles(&format!("{MAPS}/late"), &["east", "west", "north"]).await;
    stage.settles(&format!("{NAMESPACES}/late"), &["east", "west", "north"]).await;
    stage.settles(&format!("{inside}/inside"), &["east", "west", "north"]).await;
    stage.settles(&format!("{MAPS}/doomed"), &[]).await;
    map["metadata"]["name"] = json!("all");
    stage.create(inside, &map).await.ok();
    assert_eq!(stage.holders(&format!("{inside}/all")).await, ["east", "west", "north"]);
    let part = in_member(&stage.bed["west"], &format!("{MAPS}/late")).await.unwrap();
    let home = in_member(&stage.bed["east"], &format!("{MAPS}/late")).await.unwrap();
    assert_eq!(
        text(&part, "/metadata/labels/kubefold.io~1placement"),
        text(&home, "/metadata/labels/kubefold.io~1placement")
    );

    // One that is taken out of the configuration is waited for no more.
    stage.west.cut().await;
    stage.noticed("west", "down").await;
    stage.create(MAPS, &config("without")).await.ok();
    let rest = FleetFile::default().member(&stage.bed["east"], 1).member(&stage.bed["north"], 4);
    stage.fleet.configure(&rest);
    eventually(SOON, async || {
        let shown = stage.fleet.api().await.get(&format!("{MAPS}/without")).await;
        let clusters = shown["metadata"]["annotations"]["kubefold.io/clusters"].as_str().unwrap_or_default().to_owned();
        if clusters.contains("west") { Err(clusters) } else { Ok(()) }
    })
    .await;
    stage.west.restore().await;
    assert!(in_member(&stage.bed["west"], &format!("{MAPS}/without")).await.is_none());
    stage.fleet.configure(&stage.file);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_parts_it_makes_all_or_none() {
    let stage = Stage::set(MemberOptions::default()).await;
    let api = stage.fleet.api().await;
    let mut kept = Vec::new();
    for (path, object, kind) in [(MAPS, config("cut"), "configmaps"), (NAMESPACES, namespace("cut"), "namespaces")] {
        let mut held = stage.north.hold(Which { name: "cut", operation: "CREATE", dry: false });
        let write = api.try_request(Method::POST, path, object.to_string());
        let kill = async {
            held.arrived().await;
            stage.fleet.kill9();
        };
        let (answer, ()) = tokio::join!(write, kill);
        assert!(answer.is_err(), "nobody was told: {}", answer.unwrap());
        kept.push(held);
        stage.fleet.restart().await;
        let at = format!("{path}/cut");
        eventually(SETTLED, async || {
            let is = stage.holders(&at).await;
            let shown = stage.fleet.api().await.try_request(Method::GET, &at, "").await?.status.as_u16();
            match (is.len(), shown) {
                (0, 404) | (3, 200) => Ok(()),
                _ => Err(format!("{kind}: {is:?}, and the fleet says {shown}")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_refuses_of_a_whole_is_made_nowhere() {
    // A namespace that is taken back goes when its member's controller lets it.
    let stage = Stage::set(MemberOptions { controllers: true, ..MemberOptions::default() }).await;
    let dry = |name: &'static str| Which { name, operation: "CREATE", dry: true };
    let real = |name: &'static str| Which { name, operation: "CREATE", dry: false };
    for (path, make) in [(MAPS, config as fn(&str) -> Value), (NAMESPACES, namespace as fn(&str) -> Value)] {
        stage.north.answer(dry("denied"), Verdict::Deny("no such thing here"));
        let told = stage.create(path, &make("denied")).await;
        refused(&told, 403, "Forbidden", &["no such thing here (member north; "]);
        stage.settles(&format!("{path}/denied"), &[]).await;
        stage.north.answer(real("fickle"), Verdict::Deny("on second thought"));
        let told = stage.create(path, &make("fickle")).await;
        refused(&told, 403, "Forbidden", &["on second thought (member north; "]);
        stage.settles(&format!("{path}/fickle"), &[]).await;
    }
    // A member-local object of that name in one member.
    stage.bed["west"].kubectl(&["create", "configmap", "taken"]).await.ok();
    let told = stage.create(MAPS, &config("taken")).await;
    refused(&told, 409, "AlreadyExists", &["(member west; the fleet view shows it as taken@west)"]);
    stage.settles(&format!("{MAPS}/taken"), &["west"]).await;
    // A namespace that one member has already is one object with that name.
    stage.bed["west"].kubectl(&["create", "namespace", "theirs"]).await.ok();
    let told = stage.create(NAMESPACES, &namespace("theirs")).await;
    refused(&told, 409, "AlreadyExists", &["theirs"]);
    // What lies in it goes to that member alone.
    stage.create("/api/v1/namespaces/theirs/configmaps", &config("there")).await.ok();
    stage.settles("/api/v1/namespaces/theirs/configmaps/there", &["west"]).await;
    refused(&stage.create("/api/v1/namespaces/nowhere/configmaps", &config("x")).await, 404, "NotFound", &["nowhere"]);
    let mut large = config("large");
    large["data"]["a"] = json!("x".repeat(3 << 20));
    refused(&stage.create(MAPS, &large).await, 413, "RequestEntityTooLarge", &[]);
}

async fn applied(api: &Api, path: &str, manager: &str, object: &Value) -> Answer {
    let request = http::Request::builder().method(Method::PATCH).uri(format!("{path}?fieldManager={manager}"));
    let request = request.header("content-type", "application/apply-patch+yaml");
    api.send(request.body(object.to_string().into()).unwrap()).await.unwrap()
}

/// What a member has of its own under the name of a part that is to be made there is not touched: not by a create, and not
/// by an apply, which would take over whatever has the name.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_the_members_own_is_left_alone() {
    let stage = Stage::set(MemberOptions::default()).await;
    let (west, fleet) = (stage.bed["west"].api().await, stage.fleet.api().await);
    let own = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"whose": "west"}});
    let path = |name: &str| format!("{MAPS}/{name}");
    let apply = async |name: &str| applied(&fleet, &path(name), "e2e", &config(name)).await;
    stage.create(MAPS, &config("before")).await.ok();
    let known = west.create(MAPS, &own("known")).await;
    eventually(SETTLED, async || {
        let answer = fleet.request(Method::GET, &path("known@west"), "").await;
        if answer.status.is_success() { Ok(()) } else { Err(answer) }
    })
    .await;
    stage.west.cut().await;
    stage.noticed("west", "down").await;
    // What is known is refused, and nothing is made.
    for refused in [stage.create(MAPS, &config("known")).await, apply("known").await] {
        assert_eq!(refused.status, 409, "{refused}");
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("already exists") && message.contains("known@west"), "{message}");
    }
    // What nobody can know is made elsewhere.
    let unknown = [west.create(MAPS, &own("applied")).await, west.create(MAPS, &own("created")).await];
    for made in [apply("applied").await, stage.create(MAPS, &config("created")).await] {
        made.ok();
        assert!(made.warnings().join("\n").contains("is behind: it is not in member west yet"), "{made}");
    }
    stage.west.restore().await;
    stage.noticed("west", "ready").await;
    stage.finishes_every_write().await;
    for object in [&known, &unknown[0], &unknown[1]] {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert_eq!(west.get(&path(name)).await, *object, "{name}");
    }
    for name in ["applied", "created"] {
        fleet.request(Method::DELETE, &path(name), "").await.ok();
        stage.settles(&path(name), &["west"]).await;
    }
}

/// Writes of several managers that a member misses are brought to it in their order, and none is lost: neither an apply that
/// another write follows, nor one of two applies.
#[tokio::test(flavor = "multi_thread")]
async fn no_apply_is_lost_by_what_is_written_after_it() {
    let stage = Stage::set(MemberOptions::default()).await;
    let (west, fleet) = (stage.bed["west"].api().await, stage.fleet.api().await);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let [map, web] = [format!("{MAPS}/shared"), format!("{deployments}/web")];
    let patch = async |path: &str, patch: Value| {
        let request = http::Request::builder().method(Method::PATCH).uri(path);
        let request = request.header("content-type", "application/merge-patch+json").body(patch.to_string().into());
        fleet.send(request.unwrap()).await.unwrap().ok()
    };
    let with =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data});
    let noted = |note: &str| {
        let template = json!({"metadata": {"annotations": {"note": note}}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}})
    };
    stage.create(MAPS, &with(json!({"base": "0"}))).await.ok();
    stage.create(deployments, &deployment("web", 7)).await.ok();
    let replicas_before = west.get(&web).await["spec"]["replicas"].clone();
    stage.west.cut().await;
    stage.noticed("west", "down").await;

    applied(&fleet, &map, "one", &with(json!({"a": "1", "both": "1"}))).await.ok();
    patch(&map, json!({"data": {"b": "2", "both": "2"}})).await;
    applied(&fleet, &map, "two", &with(json!({"c": "3"}))).await.ok();
    // An apply, and then a scale that gives the new replica to another member.
    applied(&fleet, &web, "one", &noted("v2")).await.ok();
    patch(&web, json!({"spec": {"replicas": 8}})).await;
    stage.west.restore().await;
    stage.noticed("west", "ready").await;

    stage.finishes_every_write().await;
    let data = json!({"base": "0", "a": "1", "b": "2", "c": "3", "both": "2"});
    for member in ["east", "west", "north"] {
        let api = stage.bed[member].api().await;
        let object = api.get(&map).await;
        assert_eq!(object["data"], data, "{member}");
        let managers = object["metadata"]["managedFields"].as_array().unwrap();
        let applies =
            managers.iter().filter(|entry| entry["operation"] == "Apply").map(|entry| entry["manager"].as_str());
        assert_eq!(applies.flatten().collect::<BTreeSet<_>>(), ["one", "two"].into(), "{member}");
        let template = &api.get(&web).await["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"]["note"], "v2", "{member}");
    }
    assert_eq!(west.get(&web).await["spec"]["replicas"], replicas_before, "the change came to nothing there");
    assert_eq!(fleet.get(&web).await["spec"]["replicas"], 8);
}

/// A change that a member misses ends when the member leaves the configuration: nobody waits for it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_for_a_member_that_is_removed_ends() {
    let stage = Stage::set(MemberOptions::default()).await;
    let fleet = stage.fleet.api().await;
    let path = format!("{MAPS}/kept");
    stage.create(MAPS, &config("kept")).await.ok();
    stage.west.cut().await;
    stage.noticed("west", "down").await;
    let patch = http::Request::builder().method(Method::PATCH).uri(&path);
    let patch = patch.header("content-type", "application/merge-patch+json").body(r#"{"data":{"a":"c"}}"#.into());
    let changed = fleet.send(patch.unwrap()).await.unwrap();
    assert!(changed.warnings().join("\n").contains("is not changed in member west yet"), "{changed}");
    assert_eq!(stage.unfinished().await.as_array().map(Vec::len), Some(1));
    let without_west = FleetFile::default().member(&stage.bed["east"], 1).member(&stage.bed["north"], 4);
    stage.fleet.configure(&without_west);
    stage.finishes_every_write().await;
    let shown = fleet.get(&path).await;
    assert_eq!((&shown["data"]["a"], shown["metadata"]["annotations"].get("kubefold.io/behind")), (&json!("c"), None));
}

/// Changes one value of a map as somebody.
async fn change(fleet: &Api, name: &str, manager: usize, value: &str) -> Answer {
    let uri = format!("{MAPS}/{name}?fieldManager=m{manager}");
    let patch =
        http::Request::builder().method(Method::PATCH).uri(uri).header("content-type", "application/merge-patch+json");
    let body = json!({"data": {format!("of-{manager}"): value, "of-all": value}});
    fleet.send(patch.body(body.to_string().into()).unwrap()).await.unwrap()
}

/// Clients write 1,200 times while a member is down. The journal holds at most one entry for each object and manager. Other
/// writes and deletes go on. kubefold is killed. In the end each part in the member is like its home.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_costs_what_changed_and_not_what_was_written() {
    const OBJECTS: usize = 40;
    const ROUNDS: usize = 30;
    let stage = Stage::set(MemberOptions::default()).await;
    let fleet = stage.fleet.api().await;
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("long-{number}")).collect();
    for name in &names {
        stage.create(MAPS, &config(name)).await.ok();
    }
    stage.west.cut().await;
    stage.noticed("west", "down").await;
    for round in 0..ROUNDS {
        let value = format!("v{round}");
        let writes = names.iter().map(|name| change(&fleet, name, round % 2, &value));
        let changed: Vec<Answer> = futures::stream::iter(writes).buffer_unordered(8).collect().await;
        changed.into_iter().for_each(|changed| drop(changed.ok()));
    }
    // One of each manager: what both write is the later one's.
    let left = stage.unfinished().await.as_array().map_or(0, Vec::len);
    assert!((OBJECTS..=2 * OBJECTS).contains(&left), "{left} unfinished writes after {}", OBJECTS * ROUNDS);
    stage.fleet.kubectl(&["delete", "configmap", &names[0], "--wait=false"]).await.ok();
    // It would be made anew where it is gone.
    let refusal = change(&fleet, &names[0], 0, "late").await;
    refused(&refusal, 503, "ServiceUnavailable", &["is being deleted, and is not gone yet in west"]);
    stage.create(MAPS, &config("meanwhile")).await.ok();

    stage.fleet.kill9();
    stage.fleet.restart().await;
    stage.west.restore().await;
    stage.noticed("west", "ready").await;
    change(&stage.fleet.api().await, &names[1], 0, "last").await.ok();
    stage.finishes_every_write().await;
    for name in names.iter().skip(1) {
        let path = format!("{MAPS}/{name}");
        let [west, east] = [&stage.bed["west"], &stage.bed["east"]].map(|member| in_member(member, &path));
        let (west, east) = (west.await.unwrap(), east.await.unwrap());
        assert_eq!(west["data"], east["data"], "{name}");
        let wanted = if *name == names[1] { "last".to_owned() } else { format!("v{}", ROUNDS - 1) };
        assert_eq!(west["data"]["of-all"], wanted, "{name}");
    }
    assert_eq!(stage.holders(&format!("{MAPS}/{}", names[0])).await, Vec::<&str>::new());
    assert_eq!(stage.holders(&format!("{MAPS}/meanwhile")).await, ["east", "west", "north"]);
}
