//! Conflict storms: somebody changes the parts in their members again and again while kubefold writes the object.

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    config::MemberName,
    write::{
        fleet::Fleet,
        tests::{
            message, parsed,
            scripted::{Fault, Scripted, World},
            update::{MERGE, everywhere, label, labels, patch, placed, put, send},
        },
    },
};
use kubefold_wire::patch::merge_into;

/// More than any write may ask.
const CALLS_MAX: usize = 400;
const ANNOTATION: &str = "/metadata/annotations";
const STATUS: &str = "/status";

impl World {
    /// What strangers do just before a call.
    pub(super) fn meddle(&mut self, asked: &MemberName, fault: Option<Fault>) {
        let objects = |world: &mut Self, at: &str| {
            let cluster = world.members.iter_mut().find(|(name, _)| name.as_str() == at).unwrap().1;
            std::mem::take(&mut cluster.objects)
        };
        match fault {
            Some(Fault::Vanished) => drop(objects(self, asked.as_str())),
            Some(Fault::Touched(at, place)) => {
                let at = if at.is_empty() { asked.as_str() } else { at };
                let mut touched = objects(self, at);
                for object in touched.values_mut() {
                    touch(object, place);
                }
                self.members.iter_mut().find(|(name, _)| name.as_str() == at).unwrap().1.objects = touched;
            }
            _ => {}
        }
    }
}

fn touch(object: &mut Value, place: &str) {
    let revision: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = (revision + 100_000).to_string().into();
    let map = match object.pointer_mut(place) {
        Some(map) if map.is_object() => map,
        _ => {
            let path: Vec<&str> = place.split('/').skip(1).collect();
            let empty = path.iter().rev().fold(json!({}), |value, field| json!({*field: value}));
            merge_into(object, empty);
            object.pointer_mut(place).unwrap()
        }
    };
    let ticks = map["ticks"].as_str().and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
    map["ticks"] = (ticks + 1).to_string().into();
}

/// From now on every `each`-th call meets a change.
fn storm(fleet: &Scripted, each: usize, at: &'static str, place: &'static str) {
    let mut world = fleet.world.lock();
    let from = world.calls.len();
    let calls = (from..from + 50 * CALLS_MAX).step_by(each);
    world.faults = calls.map(|call| (call, Fault::Touched(at, place))).collect();
}

fn calm(fleet: &Scripted) {
    fleet.world.lock().faults.clear();
}

fn asked(fleet: &Scripted) -> usize {
    fleet.world.lock().calls.len()
}

#[tokio::test(start_paused = true)]
async fn a_storm_in_the_home_is_given_up_and_leaves_nothing() {
    for place in [ANNOTATION, "/spec"] {
        let (fleet, _directory, process) = placed().await;
        storm(&fleet, 1, "west", place);
        let reply = label(&process, "front").await;
        assert_eq!(reply.code, StatusCode::CONFLICT, "{}", message(&reply));
        assert!(message(&reply).contains("the object has been modified"), "{}", message(&reply));
        assert!(asked(&fleet) < CALLS_MAX, "{} calls", asked(&fleet));
        calm(&fleet);
        assert_eq!(labels(&fleet, "tier"), [("east".to_owned(), Value::Null), ("west".to_owned(), Value::Null)]);
        assert!(process.writer.journal.unfinished().is_empty());
        assert_eq!(label(&process, "front").await.code, StatusCode::OK);
        process.settled().await;
        assert_eq!(labels(&fleet, "tier"), everywhere("front"));
    }
}

/// A status is no conflict, but what changes at every turn for ever is given up, too.
#[tokio::test(start_paused = true)]
async fn a_status_that_never_rests_is_no_conflict_within_a_bound() {
    let (fleet, _directory, process) = placed().await;
    let visible = fleet.visible(&put(&json!({})).key("web")).unwrap();
    let shown: Value = serde_json::from_slice(&visible.body).unwrap();
    storm(&fleet, 1, "west", STATUS);
    let revision = shown["metadata"]["resourceVersion"].clone();
    let mut whole = shown;
    whole["metadata"]["labels"]["tier"] = json!("front");
    for request in
        [put(&whole), patch(MERGE, &json!({"metadata": {"resourceVersion": revision, "labels": {"tier": "x"}}}))]
    {
        let reply = send(&process, request).await;
        assert_eq!(reply.code, StatusCode::CONFLICT, "{}", message(&reply));
        assert!(asked(&fleet) < CALLS_MAX, "{} calls", asked(&fleet));
    }
    // Now and then is no matter.
    storm(&fleet, 4, "west", STATUS);
    let reply = label(&process, "front").await;
    assert_eq!(reply.code, StatusCode::OK, "{}", message(&reply));
    process.settled().await;
    assert_eq!(labels(&fleet, "tier"), everywhere("front"));
}

/// A part that never rests refuses the whole in the dry run. One that begins when the home is written is behind, and
/// brought up when it rests.
#[tokio::test(start_paused = true)]
async fn a_storm_in_another_part_refuses_the_whole_or_leaves_it_behind() {
    let (fleet, _directory, process) = placed().await;
    storm(&fleet, 1, "east", ANNOTATION);
    let reply = label(&process, "front").await;
    let (said, nowhere) = (message(&reply), vec![("east".to_owned(), Value::Null), ("west".to_owned(), Value::Null)]);
    assert!(said.ends_with("(member east; nothing was changed)"), "{said}");
    assert_eq!((reply.code, labels(&fleet, "tier")), (StatusCode::CONFLICT, nowhere));
    assert!(asked(&fleet) < CALLS_MAX, "{} calls", asked(&fleet));
    calm(&fleet);
    assert_eq!(label(&process, "front").await.code, StatusCode::OK);

    storm(&fleet, 1, "east", ANNOTATION);
    // Two dry runs and the home's commit.
    let from = asked(&fleet) + 3;
    fleet.world.lock().faults.retain(|call, _| *call >= from);
    let reply = label(&process, "back").await;
    assert_eq!(reply.code, StatusCode::OK, "{}", message(&reply));
    assert!(format!("{:?}", reply.warnings).contains("east"), "{:?}", reply.warnings);
    assert!(asked(&fleet) < CALLS_MAX, "{} calls", asked(&fleet));
    assert_eq!(labels(&fleet, "tier"), [("east".to_owned(), json!("front")), ("west".to_owned(), json!("back"))]);
    calm(&fleet);
    process.settled().await;
    assert_eq!(labels(&fleet, "tier"), everywhere("back"));
}

/// Sixteen writers, each with a label of its own, while strangers change the parts: what was answered with success
/// stands everywhere, and what was refused nowhere.
#[tokio::test(start_paused = true)]
async fn many_writers_in_a_storm_lose_nothing() {
    for (each, at) in [(5, ""), (7, "west"), (7, "east"), (11, "")] {
        let (fleet, _directory, process) = placed().await;
        storm(&fleet, each, at, ANNOTATION);
        let write = async |number: usize| {
            let change = json!({"metadata": {"labels": {format!("writer-{number}"): "was-here"}}});
            send(&process, patch(MERGE, &change)).await
        };
        let replies = join_all((0..16).map(write)).await;
        calm(&fleet);
        process.settled().await;
        let mut made = 0;
        for (number, reply) in replies.iter().enumerate() {
            let stands = labels(&fleet, &format!("writer-{number}"));
            match reply.code {
                StatusCode::OK => {
                    made += 1;
                    assert_eq!(stands, everywhere("was-here"), "{number}, every {each} in {at:?}");
                    assert_eq!(parsed(reply)["metadata"]["labels"][format!("writer-{number}")], "was-here");
                }
                // Another had the key for too long, or the object never rested.
                StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => {
                    assert!(stands.iter().all(|(_, value)| value.is_null()), "{number}: {stands:?}");
                }
                other => panic!("{other}: {}", message(reply)),
            }
        }
        assert!(made > 0, "every {each} in {at:?}: {:?}", replies.iter().map(message).collect::<Vec<_>>());
    }
}
