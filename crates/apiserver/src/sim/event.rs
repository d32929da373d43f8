//! Events: what happened, how often, for an hour.

use std::sync::Arc;

use hashbrown::HashMap;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    action::{Action, Event, Outcome},
    context::Context,
    fields::{seconds_later, stamp_micro, text, time, time_text},
    names::{hash, mixed},
    resource::EVENTS,
    world::{Key, World},
};

/// Seconds that an event stays after it was last seen: a kube-apiserver's `--event-ttl`.
pub(super) const KEPT_SECONDS: i64 = 3600;
/// Events that are remembered, to count what happens again.
const REMEMBERED_MAX: usize = 4096;

/// Events that may happen again.
#[derive(Debug, Default)]
pub(super) struct Book {
    written: HashMap<u64, Arc<str>>,
    /// Two events of one moment have two names.
    last: (i128, i128),
}

impl Book {
    /// The object that tells it: a new one, or one more of an old one. `None`: nobody is left to tell it of.
    pub(super) fn write(&mut self, world: &World, event: Event, now: Timestamp) -> Option<Action> {
        let about = world.get(&event.about)?;
        let described = world.resources.describe(event.about.resource)?;
        let head: Value = serde_json::from_slice(&about.body).ok()?;
        let uid = text(&head, "/metadata/uid");
        let mut mark = hash(uid.as_bytes());
        for part in [event.reason, &event.message, &event.field, &event.host] {
            mark = mixed(mark, part.as_bytes());
        }
        let namespace: Arc<str> = match &*event.about.namespace {
            "" => "default".into(),
            _ => Arc::clone(&event.about.namespace),
        };
        if let Some(name) = self.written.get(&mark) {
            let key = Key { resource: EVENTS, namespace: Arc::clone(&namespace), name: Arc::clone(name) };
            if let Some(object) = world.tree(&key) {
                return Some(Action::Update { key, subresource: "", object: once_more(object, now) });
            }
        }
        if self.written.len() >= REMEMBERED_MAX {
            self.written.clear();
        }
        let nanos = self.moment(now);
        let name = format!("{}.{nanos:x}", event.about.name);
        self.written.insert(mark, name.as_str().into());
        let mut involved = json!({
            "kind": described.kind,
            "namespace": *event.about.namespace,
            "name": *event.about.name,
            "uid": uid,
            "apiVersion": described.api_version(),
            "resourceVersion": about.revision.to_string(),
            "fieldPath": event.field,
        });
        if let Some(fields) = involved.as_object_mut() {
            fields.retain(|_, value| value != "");
        }
        let object = object(&name, &namespace, &involved, &event, now);
        Some(Action::Create { resource: EVENTS, namespace, object, report: None })
    }

    fn moment(&mut self, now: Timestamp) -> i128 {
        let nanos = now.as_nanosecond();
        let (at, count) = self.last;
        self.last = if at == nanos { (nanos, count + 1) } else { (nanos, 0) };
        nanos + self.last.1
    }
}

/// The scheduler speaks in the newer form of events, that has no counts.
fn is_series(event: &Event) -> bool {
    event.by == "default-scheduler"
}

/// A new event.
pub(super) fn object(name: &str, namespace: &str, involved: &Value, event: &Event, now: Timestamp) -> Value {
    let kind = if event.warning { "Warning" } else { "Normal" };
    let metadata = json!({"name": name, "namespace": namespace});
    if is_series(event) {
        return json!({
            "kind": "Event", "apiVersion": "v1", "metadata": metadata, "involvedObject": involved,
            "reason": event.reason, "message": event.message, "source": {},
            "firstTimestamp": null, "lastTimestamp": null, "type": kind,
            "eventTime": stamp_micro(now), "action": if event.warning { "Scheduling" } else { "Binding" },
            "reportingComponent": event.by, "reportingInstance": event.by,
        });
    }
    let mut source = json!({"component": event.by});
    if !event.host.is_empty() {
        source["host"] = event.host.as_str().into();
    }
    json!({
        "kind": "Event", "apiVersion": "v1", "metadata": metadata, "involvedObject": involved,
        "reason": event.reason, "message": event.message, "source": source,
        "firstTimestamp": time_text(now), "lastTimestamp": time_text(now), "count": 1, "type": kind, "eventTime": null,
        "reportingComponent": event.by, "reportingInstance": event.host,
    })
}

fn once_more(mut event: Value, now: Timestamp) -> Value {
    if event["eventTime"].is_string() {
        let count = event["series"]["count"].as_i64().unwrap_or(1) + 1;
        event["series"] = json!({"count": count, "lastObservedTime": stamp_micro(now)});
    } else {
        event["count"] = (event["count"].as_i64().unwrap_or(1) + 1).into();
        event["lastTimestamp"] = time_text(now).into();
    }
    event
}

/// Ends an event an hour after it was last seen.
pub(super) fn reconcile(context: &Context<'_>) -> Option<Outcome> {
    let entry = context.world.get(context.key)?;
    let event = context.world.tree(context.key)?;
    let seen = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let seen = seen.iter().find_map(|pointer| time(&event, pointer))?;
    let end = seconds_later(seen, KEPT_SECONDS);
    let mut outcome = Outcome::default();
    if end <= context.now {
        outcome.delete(context.key, entry.uid, None);
    } else {
        outcome.again(end);
    }
    Some(outcome)
}
