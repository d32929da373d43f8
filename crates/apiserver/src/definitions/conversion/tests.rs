//! Objects in a registry that a webhook converts.

use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::{
    definitions::tests::{World, world},
    kinds::Kind,
    registry::{DeleteOptions, Event, Events, From, ListOptions, Selection, WriteOptions},
};
use testbed::{Reply, Webhook as Hook};

/// A webhook that says `a` in `v1` and `b` in `v2`, and what it was asked.
struct Answers {
    hook: Hook,
    asked: Arc<Mutex<Vec<Value>>>,
    /// `fine`, `fails` or `hangs`.
    mode: watch::Sender<&'static str>,
}

impl Answers {
    async fn start() -> Self {
        let (asked, mode) = (Arc::<Mutex<Vec<Value>>>::default(), watch::Sender::new("fine"));
        let (log, now) = (Arc::clone(&asked), mode.clone());
        let answer = move |_path: String, review: Value| {
            log.lock().push(review["request"].clone());
            let mut now = now.subscribe();
            async move {
                let mode = *now.wait_for(|mode| *mode != "hangs").await.unwrap();
                reply(mode, &review)
            }
            .boxed()
        };
        Self { hook: Hook::start(&[], answer).await, asked, mode }
    }

    fn definition(&self, stored: &str) -> Value {
        let schema = |field: &str| {
            let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
            json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
        };
        let version = |name: &str, field: &str| json!({"name": name, "served": true, "storage": name == stored, "schema": schema(field)});
        let config = json!({"url": self.hook.url, "caBundle": self.hook.ca_bundle()});
        let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
        json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [version("v1", "a"), version("v2", "b")],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        })
    }

    /// How many objects each call had.
    fn calls(&self) -> Vec<usize> {
        let asked = std::mem::take(&mut *self.asked.lock());
        asked.iter().map(|request| request["objects"].as_array().unwrap().len()).collect()
    }
}

fn reply(mode: &str, review: &Value) -> Reply {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = if wanted.ends_with("v2") { ("a", "b") } else { ("b", "a") };
    let convert = |object: &Value| {
        json!({
            "apiVersion": wanted, "kind": object["kind"], "metadata": object["metadata"],
            "spec": {to: object["spec"][from]},
        })
    };
    let objects: Vec<Value> = request["objects"].as_array().unwrap().iter().map(convert).collect();
    let result = match mode {
        "fails" => json!({"status": "Failure", "message": "not today"}),
        _ => json!({"status": "Success"}),
    };
    let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": result});
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))
}

async fn start(stored: &str) -> (World, Answers, [Arc<Kind>; 2]) {
    let (world, answers) = (world(), Answers::start().await);
    world.define(&answers.definition(stored)).await;
    let kinds = [world.served("v1", "widgets").await, world.served("v2", "widgets").await];
    (world, answers, kinds)
}

async fn create(world: &World, kind: &Kind, name: &str, field: &str) -> Result<Value, Status> {
    let object = json!({
        "apiVersion": format!("example.com/{}", kind.version), "kind": "Widget", "metadata": {"name": name},
        "spec": {field: name},
    });
    let written = world.registry.create(kind, "", object, &WriteOptions::default()).await?;
    Ok(written.object.value())
}

async fn redefine(world: &World, change: impl Fn(&mut Value) + Send + Sync) {
    let options = WriteOptions::default();
    let changed = world.registry.modify(&world.kind, "", "widgets.example.com", &options, |definition| {
        change(definition);
        Ok(())
    });
    changed.await.unwrap();
}

/// The next event, without marks of progress.
async fn next(events: &mut Events) -> Result<(&'static str, Value), Status> {
    loop {
        return Ok(match events.next().await.unwrap()? {
            Event::Added(object) => ("added", object.value()["spec"].clone()),
            Event::Modified(object) => ("modified", object.value()["spec"].clone()),
            Event::Deleted(object) => ("deleted", object.value()["spec"].clone()),
            Event::Synced(_) | Event::Progress(_) => continue,
        });
    }
}

#[tokio::test]
async fn a_list_is_one_call_about_what_is_in_another_version() {
    let (world, answers, [v1, v2]) = start("v1").await;
    for name in ["x", "y", "z"] {
        create(&world, &v1, name, "a").await.unwrap();
    }
    assert_eq!(answers.calls(), [0; 0], "what is stored needs no webhook");
    let list = world.registry.list(&v2, "", &ListOptions::default()).await.unwrap();
    let specs: Vec<Value> = list.objects.iter().map(|object| object.value()["spec"].clone()).collect();
    assert_eq!(specs, [json!({"b": "x"}), json!({"b": "y"}), json!({"b": "z"})]);
    assert_eq!(answers.calls(), [3]);
    let made = create(&world, &v2, "w", "b").await.unwrap();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v2"), &json!({"b": "w"})));
    assert_eq!(answers.calls(), [1, 1], "to the stored version, and back");
    let read = world.registry.get(&v1, "", "w").await.unwrap().value();
    assert_eq!((&read["spec"], answers.calls()), (&json!({"a": "w"}), vec![]));
}

#[tokio::test]
async fn what_was_stored_before_is_converted_and_migrated() {
    let (world, answers, [v1, v2]) = start("v1").await;
    create(&world, &v1, "old", "a").await.unwrap();
    redefine(&world, |definition| {
        definition["spec"]["versions"][0]["storage"] = false.into();
        definition["spec"]["versions"][1]["storage"] = true.into();
    })
    .await;
    let stored_in = |kind: Arc<Kind>| kind.strategy.converter().unwrap().stored().to_owned();
    let is_now = async || (stored_in(world.served("v2", "widgets").await) == "example.com/v2").then_some(());
    world.eventually(is_now).await;
    let kind = world.served("v2", "widgets").await;
    create(&world, &kind, "new", "b").await.unwrap();
    assert_eq!(answers.calls(), [0; 0]);
    let list = world.registry.list(&kind, "", &ListOptions::default()).await.unwrap();
    let specs: Vec<Value> = list.objects.iter().map(|object| object.value()["spec"].clone()).collect();
    assert_eq!((specs, answers.calls()), (vec![json!({"b": "new"}), json!({"b": "old"})], vec![1]));
    assert_eq!(world.registry.migrate(&kind).await.unwrap(), 1);
    answers.calls();
    world.registry.list(&kind, "", &ListOptions::default()).await.unwrap();
    assert_eq!(answers.calls(), [0; 0], "all are in the stored version");
    drop(v2);
}

#[tokio::test]
async fn a_watch_ends_at_what_cannot_be_converted() {
    let (world, answers, [v1, v2]) = start("v1").await;
    let watch = async |kind| world.registry.watch(kind, "", Selection::default(), From::Start).await.unwrap();
    let (mut stored, mut converted) = (watch(&v1).await, watch(&v2).await);
    create(&world, &v1, "x", "a").await.unwrap();
    assert_eq!(next(&mut converted).await.unwrap(), ("added", json!({"b": "x"})));
    answers.mode.send_replace("fails");
    create(&world, &v1, "y", "a").await.unwrap();
    let refused = next(&mut converted).await.unwrap_err();
    assert_eq!(refused.message, "conversion webhook for example.com/v1, Kind=Widget failed: not today");
    assert_eq!(refused.code, StatusCode::INTERNAL_SERVER_ERROR);
    // Others go on.
    assert_eq!(next(&mut stored).await.unwrap(), ("added", json!({"a": "x"})));
    assert_eq!(next(&mut stored).await.unwrap(), ("added", json!({"a": "y"})));
    let refused = create(&world, &v2, "z", "b").await.unwrap_err();
    assert_eq!(refused.message, "conversion webhook for example.com/v2, Kind=Widget failed: not today");
    assert!(world.registry.get(&v1, "", "z").await.is_err(), "nothing was stored");
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_nobody_else_up() {
    let (world, answers, [v1, v2]) = start("v1").await;
    create(&world, &v1, "x", "a").await.unwrap();
    answers.mode.send_replace("hangs");
    let mut hanging = Box::pin(world.registry.get(&v2, "", "x"));
    assert!(hanging.as_mut().now_or_never().is_none());
    create(&world, &v1, "y", "a").await.unwrap();
    world.registry.delete(&v1, "", "y", &DeleteOptions::default()).await.unwrap();
    assert_eq!(world.registry.list(&v1, "", &ListOptions::default()).await.unwrap().objects.len(), 1);
    answers.mode.send_replace("fine");
    assert_eq!(hanging.await.unwrap().value()["spec"], json!({"b": "x"}));
}

#[tokio::test]
async fn a_changed_conversion_counts_for_open_watches() {
    let (world, answers, [v1, v2]) = start("v1").await;
    let mut events = world.registry.watch(&v2, "", Selection::default(), From::Start).await.unwrap();
    redefine(&world, |definition| definition["spec"]["conversion"] = json!({"strategy": "None"})).await;
    let is_now = async || world.served("v2", "widgets").await.strategy.converter().is_none().then_some(());
    world.eventually(is_now).await;
    create(&world, &v1, "x", "a").await.unwrap();
    assert_eq!(next(&mut events).await.unwrap(), ("added", json!({})), "the field is of the other version");
    assert_eq!(answers.calls(), [0; 0]);
}

#[tokio::test]
async fn a_definition_goes_without_its_webhook() {
    let (world, answers, [v1, _]) = start("v1").await;
    create(&world, &v1, "x", "a").await.unwrap();
    answers.mode.send_replace("fails");
    let options = DeleteOptions::default();
    world.registry.delete(&world.kind, "", "widgets.example.com", &options).await.unwrap();
    world.eventually(async || world.definition("widgets.example.com").await.is_none().then_some(())).await;
    assert_eq!(answers.calls(), [0; 0]);
}

#[test]
fn calls_are_bounded_and_what_is_converted_is_not_sent() {
    let object = |version: &str, bytes: usize| json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "spec": "x".repeat(bytes)});
    let objects = [
        object("v1", 10),
        object("v2", 10),
        object("v1", 10),
        object("v1", BATCH_BYTES + 1),
        object("v1", BATCH_BYTES / 2),
        object("v1", BATCH_BYTES / 4),
    ];
    let batches = batches(&objects, "example.com/v2");
    let places: Vec<Vec<usize>> = batches.iter().map(|batch| batch.places.clone()).collect();
    assert_eq!(places, [vec![0, 2], vec![3], vec![4, 5]]);
    let sent: Value = serde_json::from_str(&format!("[{}]", batches[0].json)).unwrap();
    assert_eq!(sent, json!([objects[0], objects[2]]));
}
