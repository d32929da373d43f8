//! Definitions and what a kube-apiserver 1.36 answered to them; and what becomes of them in a registry.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    kinds::{Allocator, Context, Strategy},
    registry::{DeleteOptions, Env, ListOptions, Registry, SystemClock, WriteOptions},
    schema::{Expected, FieldValidation, builtin, read_body},
    storage::Memory,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::status::Reason;

fn kind(group: &str, name: &str, plural: &str, type_name: &str) -> Kind {
    Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: name.to_owned(),
        plural: plural.to_owned(),
        singular: name.to_lowercase(),
        has_status: true,
        types: builtin(),
        type_name: type_name.to_owned(),
        ..Kind::default()
    }
}

fn read(body: &Value) -> (Value, Vec<String>) {
    let types = builtin();
    let typed = types.named(TYPE).unwrap();
    let expected = Expected { group: GROUP, version: "v1", kind: "CustomResourceDefinition", typed };
    let decoded = read_body(expected, body.to_string().as_bytes(), FieldValidation::Warn).unwrap();
    (decoded.object, decoded.findings)
}

/// What a kube-apiserver says of the cases in `answers.json`, which hold its own words.
#[test]
fn says_what_a_kube_apiserver_says() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("answers.json")).unwrap();
    for case in cases {
        let (mut object, findings) = read(&case["body"]);
        let strategy = strategy::Definition;
        strategy.default(&mut object);
        let (allocator, caller) = (Allocator::new(Ipv4Addr::LOCALHOST, 30), Caller::default());
        let context = Context { caller: &caller, now: "", suffix: "", allocator: &allocator, others: &[] };
        strategy.prepare_for_create(&mut object, context);
        let causes = strategy.validate(&object, context);
        let told: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let wanted: Vec<_> = case["causes"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        assert_eq!(told, wanted, "{}", case["name"]);
        let warned: Vec<_> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        assert_eq!(Value::from(warned), case["warnings"], "{}", case["name"]);
    }
}

fn widgets() -> Value {
    let schema = |extra: &str| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                extra: {"type": "string"},
            }},
            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
        }}})
    };
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema("old"),
                    "subresources": {"status": {}}},
                {"name": "v1", "served": true, "storage": true, "schema": schema("new"),
                    "subresources": {"status": {}, "scale":
                        {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
            ],
        },
    })
}

pub(super) struct World {
    pub(super) registry: Registry,
    pub(super) kind: Arc<Kind>,
    cancel: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.running.abort();
    }
}

#[allow(clippy::disallowed_methods, reason = "a test ends it itself")]
pub(super) fn world() -> World {
    let plain = kind(GROUP, "CustomResourceDefinition", "customresourcedefinitions", TYPE);
    let env = Env::seeded(7, Arc::new(SystemClock));
    let allocator = Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 16);
    let registry = Registry::new(Arc::new(Memory::default()), env, allocator, [Arc::new(plain)]);
    let mut definitions = Definitions::new(registry.clone()).unwrap();
    let kind = registry.resource(GROUP, "v1", "customresourcedefinitions").unwrap();
    let cancel = CancellationToken::new();
    let until = cancel.clone();
    let running = tokio::spawn(async move { definitions.run(&until).await.unwrap() });
    World { registry, kind, cancel, running }
}

impl World {
    pub(super) async fn define(&self, definition: &Value) -> Value {
        let (object, _) = read(definition);
        self.registry.create(&self.kind, "", object, &WriteOptions::default()).await.unwrap().object.value()
    }

    pub(super) async fn definition(&self, name: &str) -> Option<Value> {
        match self.registry.get(&self.kind, "", name).await {
            Ok(object) => Some(object.value()),
            Err(status) => {
                assert_eq!(status.reason, Reason::NotFound);
                None
            }
        }
    }

    pub(super) async fn eventually<T>(&self, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        for _ in 0..600 {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never came about");
    }

    pub(super) async fn served(&self, version: &str, plural: &str) -> Arc<Kind> {
        self.eventually(async || self.registry.resource("example.com", version, plural)).await
    }
}

fn conditions(definition: &Value) -> Vec<String> {
    let all = definition.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    all.map(|one| format!("{} {} {}", one["type"], one["status"], one["reason"]).replace('"', "")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_definition_makes_kinds() {
    let world = world();
    let made = world.define(&widgets()).await;
    assert_eq!(
        made["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
    let v1 = world.served("v1", "widgets").await;
    let beta = world.served("v1beta1", "widgets").await;
    let definition = world.definition("widgets.example.com").await.unwrap();
    assert_eq!(conditions(&definition), ["NamesAccepted True NoConflicts", "Established True InitialNamesAccepted"]);
    assert_eq!(v1.type_name, "com.example.v1.Widget");
    assert_eq!(v1.subresources.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["status", "scale"]);
    let columns = v1.strategy.printer().unwrap().columns().to_owned();
    assert!(columns.contains("\"Size\""), "{columns}");
    let preferred = world.registry.kind("example.com", "Widget").unwrap();
    assert_eq!(preferred.version, "v1");

    let options = WriteOptions::default();
    let widget = json!({"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"old": "x"}, "status": {"size": 7}});
    let made = world.registry.create(&beta, "", widget, &options).await.unwrap().object.value();
    // The version that is stored does not know the field.
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v1beta1"), &json!({"size": 3})));
    assert!(made.get("status").is_none());
    let other = world.registry.get(&v1, "", "a").await.unwrap().value();
    assert_eq!((&other["apiVersion"], &other["spec"]), (&json!("example.com/v1"), &json!({"size": 3})));
    let bad = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 0}});
    let refused = world.registry.create(&v1, "", bad, &options).await.unwrap_err();
    assert_eq!(
        refused.message,
        "Widget.example.com \"b\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or \
         equal to 1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_its_objects() {
    let world = world();
    world.define(&widgets()).await;
    let v1 = world.served("v1", "widgets").await;
    for (name, finalizers) in [("a", json!([])), ("b", json!(["example.com/keep"]))] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {},
            "metadata": {"name": name, "finalizers": finalizers}});
        world.registry.create(&v1, "", widget, &WriteOptions::default()).await.unwrap();
    }
    let deleted =
        world.registry.delete(&world.kind, "", "widgets.example.com", &DeleteOptions::default()).await.unwrap();
    assert!(!deleted.gone);
    assert_eq!(deleted.object.value()["metadata"]["finalizers"], json!([FINALIZER]));
    let left = world
        .eventually(async || {
            let list = world.registry.list(&v1, "", &ListOptions::default()).await.unwrap();
            (list.objects.len() == 1).then(|| list.objects[0].name().to_owned())
        })
        .await;
    assert_eq!(left, "b");
    let terminating = "Terminating True InstanceDeletionInProgress".to_owned();
    world
        .eventually(async || {
            let definition = world.definition("widgets.example.com").await.unwrap();
            conditions(&definition).contains(&terminating).then_some(())
        })
        .await;
    world
        .registry
        .modify(&v1, "", "b", &WriteOptions::default(), |widget| {
            widget["metadata"]["finalizers"] = json!([]);
            Ok(())
        })
        .await
        .unwrap();
    world.eventually(async || world.definition("widgets.example.com").await.is_none().then_some(())).await;
    assert!(world.registry.resource("example.com", "v1", "widgets").is_none());
    assert!(world.registry.resource("example.com", "v1beta1", "widgets").is_none());
}

#[tokio::test(start_paused = true)]
async fn names_are_taken_once() {
    let world = world();
    world.define(&widgets()).await;
    world.served("v1", "widgets").await;
    let mut others = widgets();
    others["metadata"]["name"] = json!("others.example.com");
    others["spec"]["names"] = json!({"plural": "others", "kind": "Widget"});
    world.define(&others).await;
    let definition = world
        .eventually(async || {
            let definition = world.definition("others.example.com").await.unwrap();
            (conditions(&definition).len() == 2).then_some(definition)
        })
        .await;
    assert_eq!(conditions(&definition), ["NamesAccepted False ListKindConflict", "Established False NotAccepted"]);
    assert!(world.registry.resource("example.com", "v1", "others").is_none());
    world.registry.delete(&world.kind, "", "widgets.example.com", &DeleteOptions::default()).await.unwrap();
    world.served("v1", "others").await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_changes_what_is_served() {
    let world = world();
    let made = world.define(&widgets()).await;
    world.served("v1beta1", "widgets").await;
    let mut changed = world.definition("widgets.example.com").await.unwrap();
    changed["spec"]["versions"][0]["served"] = json!(false);
    changed["spec"]["names"]["shortNames"] = json!(["wdg"]);
    let written =
        world.registry.update(&world.kind, "", "widgets.example.com", changed, &WriteOptions::default()).await.unwrap();
    assert_eq!(written.object.value()["metadata"]["generation"], json!(2));
    assert_eq!(made["metadata"]["generation"], json!(1));
    world
        .eventually(async || world.registry.resource("example.com", "v1beta1", "widgets").is_none().then_some(()))
        .await;
    let v1 = world.served("v1", "widgets").await;
    assert_eq!(v1.short_names, ["wdg"]);
    let mut moved = world.definition("widgets.example.com").await.unwrap();
    moved["spec"]["scope"] = json!("Namespaced");
    let refused = world
        .registry
        .update(&world.kind, "", "widgets.example.com", moved, &WriteOptions::default())
        .await
        .unwrap_err();
    assert!(
        refused.message.contains("spec.scope: Invalid value: \"Namespaced\": field is immutable"),
        "{}",
        refused.message
    );
}
