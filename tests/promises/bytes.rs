//! Promise 8: an object is its member's to the byte, but for what the design lists; and nothing of kubefold is in a member
//! but the marker.

use serde_json::{Map, Value};

use crate::{
    history::{Changed, History, OWN, Seen},
    lives::{Life, Lives, MARKER},
};

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let lives = Lives::of(history);
    let mut problems = Vec::new();
    for (kind, seen, place) in history.sightings().filter(|(_, seen, _)| seen.namespace == history.namespace) {
        let found = match seen.cluster() {
            Some(cluster) => {
                let member = history.members.iter().position(|name| *name == cluster);
                let life = member.and_then(|member| lives[member].get(kind.plural, &seen.uid));
                life.is_some_and(|life| is_of(life, seen))
            }
            None => lives.iter().any(|lives| {
                let mut parts = lives.of_kind(kind.plural).filter(|(_, life)| life.placement() == Some(&seen.uid));
                parts.any(|(_, part)| has_written(part, seen))
            }),
        };
        if !found {
            problems
                .push(format!("{} {} of {place} is as no member ever had it: {}", kind.plural, seen.name, seen.body));
        }
    }
    in_members(history, &mut problems);
    problems
}

/// To the byte: keys in their order, and everything else.
fn is_of(life: &Life, seen: &Seen) -> bool {
    let body = as_in_member(seen).to_string();
    life.versions().any(|version| serde_json::to_string(&without_revision(version)).is_ok_and(|text| text == body))
}

/// Of a fold: what was written, but for the numbers that are divided.
fn has_written(part: &Life, seen: &Seen) -> bool {
    let written = |body: &Value| {
        let mut spec = body.get("spec").cloned().unwrap_or_default();
        if let Some(fields) = spec.as_object_mut() {
            fields.shift_remove("replicas");
        }
        (body.get("data").cloned().unwrap_or_default().to_string(), spec.to_string())
    };
    part.versions().any(|version| written(&version.body) == written(&seen.body))
}

/// A member-local object of the fleet, as its member has it.
pub(crate) fn as_in_member(seen: &Seen) -> Value {
    let mut body = without_revision(seen);
    let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else { return body };
    if let Some((name, _)) = seen.name.rsplit_once('@') {
        metadata.insert("name".into(), name.into());
    }
    remove(metadata, "annotations", |key| key.starts_with(OWN));
    body
}

pub(crate) fn without_revision(seen: &Seen) -> Value {
    let mut body = seen.body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("resourceVersion");
    }
    body
}

/// Removes entries of a map, and the map with the last of them.
fn remove(object: &mut Map<String, Value>, field: &str, which: impl Fn(&str) -> bool) {
    let Some(map) = object.get_mut(field).and_then(Value::as_object_mut) else { return };
    let before = map.len();
    map.retain(|key, _| !which(key));
    if map.is_empty() && before > 0 {
        object.shift_remove(field);
    }
}

/// In a member there is nothing of kubefold, but the marker and what its managed fields say of it.
fn in_members(history: &History, problems: &mut Vec<String>) {
    for (name, changes) in history.members.iter().zip(&history.changes) {
        for change in changes {
            let (Changed::Added(seen) | Changed::Modified(seen)) = &change.changed else { continue };
            let mut body = seen.body.clone();
            if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                remove(metadata, "labels", |key| key == MARKER);
                remove(metadata, "annotations", |key| key == MARKER);
            }
            let text = body.to_string().replace(&format!("f:{MARKER}"), "");
            let visible = history.members.iter().any(|member| text.contains(&format!("@{member}")));
            if text.contains(OWN) || visible {
                problems.push(format!("{name} has {} {}: {text}", change.kind.plural, seen.name));
            }
        }
    }
}

#[test]
fn a_byte_that_no_member_sent_is_found() {
    use crate::sample;
    let mut history = sample::good();
    history.watches[0].events[0].object.body["data"]["more"] = "x".into();
    sample::assert_found(check, &history, "is as no member ever had it");
    // The same keys in another order.
    let mut history = sample::good();
    let body = &mut history.reads[0].objects[0].body;
    let metadata = body.as_object_mut().unwrap().shift_remove("metadata").unwrap();
    body["metadata"] = metadata;
    sample::assert_found(check, &history, "configmaps app@east");
    let mut history = sample::good();
    history.writes[0].object.as_mut().unwrap().body["data"]["note"] = "half".into();
    sample::assert_found(check, &history, "configmaps own-0-0");
    for (place, text) in [("annotations", "kubefold.io/cluster"), ("labels", "kubefold.io/other")] {
        let mut history = sample::good();
        let Changed::Added(seen) = &mut history.changes[0][0].changed else { panic!("a change") };
        seen.body["metadata"][place][text] = "east".into();
        sample::assert_found(check, &history, "east has configmaps app");
    }
    let mut history = sample::good();
    let Changed::Added(seen) = &mut history.changes[0][0].changed else { panic!("a change") };
    seen.body["data"]["note"] = "app@east".into();
    sample::assert_found(check, &history, "east has configmaps app");
}
