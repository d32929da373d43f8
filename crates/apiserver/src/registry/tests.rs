use serde_json::json;

use super::*;
use crate::{
    kinds::{Changed, Propagation, Target},
    storage::Memory,
};
use kubefold_wire::status::Reason;

use futures::StreamExt;
use std::net::Ipv4Addr;

mod admitted;

fn kind(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Arc<Kind> {
    Arc::new(Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        namespaced,
        has_status: true,
        ..Kind::default()
    })
}

struct World {
    registry: Registry,
    things: Arc<Kind>,
}

async fn world() -> World {
    let things = kind("example.com", "v1", "Thing", "things", true);
    let namespaces = kind("", "v1", "Namespace", "namespaces", false);
    let kinds = [Arc::clone(&things), Arc::clone(&namespaces)];
    let env = Env::seeded(7, Arc::new(SystemClock));
    let allocator = Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 16);
    let registry = Registry::new(Arc::new(Memory::default()), env, allocator, kinds);
    let namespace = json!({"metadata": {"name": "default"}, "spec": {"finalizers": ["kubernetes"]}});
    registry.create(&namespaces, "", namespace, &WriteOptions::default()).await.unwrap();
    World { registry, things }
}

impl World {
    async fn create(&self, object: Value) -> Result<Written, Status> {
        self.registry.create(&self.things, "default", object, &WriteOptions::default()).await
    }
}

#[tokio::test]
async fn a_new_object_has_what_the_server_sets() {
    let world = world().await;
    let made = world.create(json!({"metadata": {"generateName": "a-"}, "status": {"x": 1}})).await.unwrap();
    let value = made.object.value();
    let text = |name: &str| meta::text(&value, name).to_owned();
    assert!(text("name").starts_with("a-") && text("name").len() == 7, "{value}");
    assert!(text("uid").len() == 36 && text("creationTimestamp").ends_with('Z'));
    assert_eq!((text("namespace"), text("resourceVersion")), ("default".into(), "3".into()));
    assert_eq!(value["metadata"]["generation"], 1);
    assert_eq!((&value["kind"], &value["apiVersion"]), (&json!("Thing"), &json!("example.com/v1")));
    assert_eq!(value.get("status"), None);
    let got = world.registry.get(&world.things, "default", &text("name")).await.unwrap();
    assert_eq!(got.value(), value);
}

#[tokio::test]
async fn refusals_have_kubernetes_words() {
    let world = world().await;
    world.create(json!({"metadata": {"name": "a"}})).await.unwrap();
    for (object, code, message) in [
        (json!({"metadata": {"name": "a"}}), 409, r#"things.example.com "a" already exists"#),
        (
            json!({"metadata": {"name": "b", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({}),
            422,
            r#"Thing.example.com "" is invalid: metadata.name: Required value: name or generateName is required"#,
        ),
    ] {
        let status = world.create(object).await.unwrap_err();
        assert_eq!((status.code.as_u16(), status.message.as_str()), (code, message));
    }
    let write = WriteOptions::default();
    let status = world.registry.create(&world.things, "gone", json!({"metadata": {"name": "a"}}), &write).await;
    assert_eq!(status.unwrap_err().message, r#"namespaces "gone" not found"#);
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    let status = world.registry.update(&world.things, "default", "a", stale, &write).await.unwrap_err();
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on things.example.com \"a\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
}

#[tokio::test]
async fn what_changes_nothing_is_no_change() {
    let world = world().await;
    let made = world.create(json!({"metadata": {"name": "a"}, "spec": {"x": 1, "y": 2}})).await.unwrap();
    let same = json!({"spec": {"y": 2, "x": 1}, "metadata": {"name": "a", "labels": {}}});
    let write = WriteOptions::default();
    let again = world.registry.update(&world.things, "default", "a", same, &write).await.unwrap();
    assert_eq!(again.object.revision(), made.object.revision());
    let other = json!({"metadata": {"name": "a"}, "spec": {"x": 2}});
    let changed = world.registry.update(&world.things, "default", "a", other, &write).await.unwrap();
    assert_eq!(changed.object.value()["metadata"]["generation"], 2);
    assert_eq!(changed.object.revision(), made.object.revision() + 1);
}

#[tokio::test]
async fn an_object_waits_for_its_finalizers() {
    let world = world().await;
    world.create(json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}})).await.unwrap();
    let foreground = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    let waiting = world.registry.delete(&world.things, "default", "a", &foreground).await.unwrap();
    let value = waiting.object.value();
    assert!(!waiting.gone && meta::field(&value, "deletionTimestamp").is_string());
    assert_eq!(meta::texts(&value, "finalizers"), ["example.com/x", "foregroundDeletion"]);
    let write = WriteOptions::default();
    let release = |object: &mut Value| {
        meta::set(object, "finalizers", None);
        Ok(())
    };
    world.registry.modify(&world.things, "default", "a", &write, release).await.unwrap();
    assert_eq!(world.registry.get(&world.things, "default", "a").await.unwrap_err().code.as_u16(), 404);
}

#[tokio::test]
async fn a_watch_tells_what_enters_and_leaves_a_selection() {
    let world = world().await;
    let of = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
    world.create(of(json!({"x": "1"}))).await.unwrap();
    let labels = kubefold_wire::selector::LabelSelector::parse("x=1").unwrap();
    let selection = Selection { labels, ..Selection::default() };
    let mut events = world.registry.watch(&world.things, "default", selection, From::Start).await.unwrap();
    let write = WriteOptions::default();
    for labels in [json!({"x": "1", "y": "1"}), json!({"x": "2"}), json!({"x": "1"})] {
        world.registry.update(&world.things, "default", "a", of(labels), &write).await.unwrap();
    }
    world.registry.delete(&world.things, "default", "a", &DeleteOptions::default()).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 6 {
        told.push(match events.next().await.unwrap().unwrap() {
            Event::Added(object) => format!("added {}", object.revision()),
            Event::Modified(object) => format!("modified {}", object.revision()),
            Event::Deleted(object) => format!("deleted {}", object.revision()),
            Event::Synced(revision) => format!("synced {revision}"),
            Event::Progress(_) => continue,
        });
    }
    assert_eq!(told, ["added 3", "synced 3", "modified 4", "deleted 5", "added 6", "deleted 7"]);
}

#[tokio::test]
async fn pages_are_of_one_revision() {
    let world = world().await;
    let things = (0..10).map(|n| json!({"metadata": {"name": format!("t{n}"), "namespace": "default"}}));
    assert_eq!(world.registry.fill(&world.things, things).await.unwrap(), 10);
    let first = ListOptions { limit: 4, ..ListOptions::default() };
    let page = world.registry.list(&world.things, "", &first).await.unwrap();
    assert_eq!((page.objects.len(), page.remaining), (4, Some(6)));
    world.registry.delete(&world.things, "default", "t7", &DeleteOptions::default()).await.unwrap();
    let next = ListOptions { limit: 10, after: page.next, at: At::Exact(page.revision), ..ListOptions::default() };
    let page = world.registry.list(&world.things, "", &next).await.unwrap();
    let names: Vec<&str> = page.objects.iter().map(Object::name).collect();
    assert_eq!(names, ["t4", "t5", "t6", "t7", "t8", "t9"]);
    assert_eq!(page.next, None);
}

/// Objects of somebody else's, who keeps count of what he is asked to do.
#[derive(Default)]
struct Elsewhere {
    done: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Elsewhere {
    fn note(&self, what: &str) {
        self.done.lock().unwrap().push(what.to_owned());
    }
}

fn thing(namespace: &str, name: &str, colour: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": "u", "labels": {"colour": colour}}})
}

impl crate::kinds::Rest for Elsewhere {
    type Object = Value;
    const VERBS: &'static [&'static str] = &["get", "list", "watch", "create", "delete"];

    async fn get(&self, target: &Target) -> Result<Option<Value>, Status> {
        Ok((target.name != "none").then(|| thing(&target.namespace, &target.name, "red")))
    }

    async fn list(&self, target: &Target) -> Result<Vec<Value>, Status> {
        if target.caller.user == "odd" {
            return Ok(vec![json!({"metadata": {"namespace": "default"}})]);
        }
        Ok(vec![thing("default", "b", "red"), thing("default", "a", "blue"), thing("other", "c", "red")])
    }

    async fn watch(&self, _: &Target) -> Result<crate::kinds::Watch<Value>, Status> {
        let changes = [
            Changed::Added(thing("default", "x", "blue")),
            Changed::Modified(thing("default", "y", "red")),
            Changed::Modified(thing("default", "y", "blue")),
            Changed::Modified(thing("other", "z", "red")),
        ];
        Ok(futures::stream::iter(changes.map(Ok)).boxed())
    }

    async fn create(&self, target: &Target, object: Value) -> Result<Value, Status> {
        self.note(&format!("create {}", target.name));
        Ok(object)
    }

    async fn delete(&self, target: &Target, old: Value) -> Result<Option<Value>, Status> {
        self.note(&format!("delete {}", target.name));
        Ok((target.name == "slow").then_some(old))
    }
}

fn elsewhere(world: &World) -> (Arc<Kind>, Arc<std::sync::Mutex<Vec<String>>>) {
    let rest = Elsewhere::default();
    let done = Arc::clone(&rest.done);
    (Arc::new(Kind { rest: Some(Arc::new(rest)), ..Kind::clone(&world.things) }), done)
}

fn red() -> Selection {
    let labels = kubefold_wire::selector::LabelSelector::parse("colour=red").unwrap();
    Selection { labels, ..Selection::default() }
}

#[tokio::test]
async fn what_is_answered_elsewhere_is_selected_sorted_and_typed_here() {
    let world = world().await;
    let (kind, _) = elsewhere(&world);
    let names = async |namespace: &str, selection: Selection| {
        let options = ListOptions { selection, ..ListOptions::default() };
        let list = world.registry.list(&kind, namespace, &options).await.unwrap();
        list.objects.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("default", Selection::default()).await, "a b");
    assert_eq!(names("", red()).await, "b c");
    let one = world.registry.get(&kind, "default", "a").await.unwrap().value();
    assert_eq!((&one["kind"], &one["apiVersion"]), (&json!("Thing"), &json!("example.com/v1")));
    assert_eq!(world.registry.get(&kind, "default", "none").await.unwrap_err().reason, Reason::NotFound);
    let odd = world.registry.acting_as(Caller { user: "odd".into(), ..Caller::default() });
    let nameless = odd.list(&kind, "default", &ListOptions::default()).await.unwrap_err();
    assert!(nameless.code.as_u16() == 500 && nameless.message.contains("without a name"), "{}", nameless.message);
}

#[tokio::test]
async fn a_watch_of_what_is_elsewhere_forgets_what_does_not_match_any_more() {
    let world = world().await;
    let (kind, _) = elsewhere(&world);
    let events = world.registry.watch(&kind, "default", red(), From::Start).await.unwrap();
    let told: Vec<String> = events
        .map(|event| match event.unwrap() {
            Event::Added(object) => format!("+{}", object.name()),
            Event::Modified(object) => format!("={}", object.name()),
            Event::Deleted(object) => format!("-{}", object.name()),
            Event::Synced(_) => "synced".to_owned(),
            Event::Progress(_) => "progress".to_owned(),
        })
        .collect()
        .await;
    assert_eq!(told, ["+b", "synced", "=y", "-y"]);
}

#[tokio::test]
async fn nothing_is_done_elsewhere_that_must_not_be() {
    let world = world().await;
    let (kind, done) = elsewhere(&world);
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let new = json!({"metadata": {"name": "new"}});
    world.registry.create(&kind, "default", new.clone(), &dry).await.unwrap();
    let options = WriteOptions::default();
    let no_update = world.registry.update(&kind, "default", "a", thing("default", "a", "blue"), &options).await;
    assert_eq!(no_update.unwrap_err().reason, Reason::MethodNotAllowed);
    let preconditions = Preconditions { uid: Some("another".into()), resource_version: None };
    let wrong = DeleteOptions { preconditions, ..DeleteOptions::default() };
    assert_eq!(world.registry.delete(&kind, "default", "a", &wrong).await.unwrap_err().reason, Reason::Conflict);
    let lost = world.registry.create(&kind, "nowhere", new.clone(), &WriteOptions::default()).await.unwrap_err();
    assert_eq!((lost.reason, done.lock().unwrap().len()), (Reason::NotFound, 0));
    world.registry.create(&kind, "default", new, &WriteOptions::default()).await.unwrap();
    assert!(world.registry.delete(&kind, "default", "a", &DeleteOptions::default()).await.unwrap().gone);
    assert!(!world.registry.delete(&kind, "default", "slow", &DeleteOptions::default()).await.unwrap().gone);
    assert_eq!(*done.lock().unwrap(), ["create new", "delete a", "delete slow"]);
}
