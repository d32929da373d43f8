//! Events about kubefold's own objects, which kubefold stores itself.
//!
//! The same thing that happens again is one Event with a count, as of every recorder of Kubernetes. They are kept for an hour, as a
//! kube-apiserver keeps them (`--event-ttl`).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{GROUP, VERSION};
use crate::config::OWN_NAMESPACE;
use kubefold_apiserver::{
    kinds::Kind,
    registry::{DeleteOptions, ListOptions, Object, Registry, WriteOptions},
};
use kubefold_wire::{
    access::text,
    resource::Gvr,
    status::{Reason, Status},
};

/// How long one is kept after it happened last.
const KEPT: Duration = Duration::from_hours(1);
/// How many are kept at most in kubefold's own namespace, and in all others. The oldest go first.
const EVENTS_MAX: usize = 2_000;
/// How often the old ones are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// Who reports them.
const REPORTER: &str = "kubefold";

/// What Events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referent {
    /// Its kind, of kubefold's own group.
    pub(super) kind: &'static str,
    /// Its namespace; empty where it has none. Its Events are there, or in kubefold's own namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its UID.
    pub(super) uid: String,
}

impl Referent {
    /// How Events refer to it.
    fn reference(&self) -> Value {
        let Self { kind, namespace, name, uid } = self;
        let mut reference = json!({"kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "name": name, "uid": uid});
        if !namespace.is_empty() {
            reference["namespace"] = namespace.as_str().into();
        }
        reference
    }

    /// An Event about it, of a group of Events, with nothing else in it.
    pub fn event(&self, gvr: &Gvr) -> Vec<u8> {
        let field = if gvr.group.is_empty() { "involvedObject" } else { "regarding" };
        json!({field: self.reference()}).to_string().into_bytes()
    }

    /// The namespace of its Events.
    fn of_events(&self) -> &str {
        if self.namespace.is_empty() { OWN_NAMESPACE } else { &self.namespace }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Normal, or Warning.
    pub(super) of: &'static str,
    pub(super) reason: String,
    message: String,
}

impl Told {
    /// Nothing is wrong.
    pub(super) fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { of: "Normal", reason: reason.to_owned(), message: message.into() }
    }

    /// Somebody may have to do something.
    pub(super) fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { of: "Warning", reason: reason.to_owned(), message: message.into() }
    }
}

/// Writes Events down, and removes old ones.
pub struct Recorder {
    registry: Registry,
    kind: Arc<Kind>,
    swept: Option<Instant>,
}

impl Recorder {
    /// `None`: the registry has no Events.
    pub fn new(registry: Registry) -> Option<Self> {
        let kind = registry.kind("", "Event")?;
        Some(Self { registry, kind, swept: None })
    }

    /// Writes down what happened to an object.
    ///
    /// Errors: the storage's.
    pub(super) async fn record(&self, about: &Referent, told: &Told) -> Result<(), Status> {
        let mut same = DefaultHasher::new();
        (&about.uid, told.of, &told.reason, &told.message).hash(&mut same);
        let name = format!("{}.{:016x}", about.name, same.finish());
        let now = now();
        let again = |event: &mut Value| {
            let count = event.get("count").and_then(Value::as_i64).unwrap_or(1);
            event["count"] = (count + 1).into();
            event["lastTimestamp"] = now.as_str().into();
            Ok(())
        };
        let options = WriteOptions::default();
        match self.registry.modify_all(&self.kind, about.of_events(), &name, &options, again).await {
            Err(status) if status.reason == Reason::NotFound => {}
            other => return other.map(drop),
        }
        let event = json!({
            "metadata": {"name": name, "namespace": about.of_events()},
            "involvedObject": about.reference(),
            "reason": told.reason,
            "message": told.message,
            "type": told.of,
            "source": {"component": REPORTER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": null,
            "reportingComponent": REPORTER,
            "reportingInstance": "",
        });
        // A client could not make it: an Event about an object without a namespace has to be in `default`, which members have.
        self.registry.fill(&self.kind, std::iter::once(event)).await.map(drop)
    }

    /// Removes those that are too old or too many, now and then.
    ///
    /// Errors: the storage's.
    pub(super) async fn sweep(&mut self) -> Result<(), Status> {
        let now = Instant::now();
        if self.swept.is_some_and(|last| now.duration_since(last) < SWEEP_EVERY) {
            return Ok(());
        }
        self.swept = Some(now);
        let listed = self.registry.list(&self.kind, "", &ListOptions::default()).await?;
        let (of_own, others) = listed.objects.iter().partition(|event| event.namespace() == OWN_NAMESPACE);
        for event in gone(of_own).into_iter().chain(gone(others)) {
            self.registry.delete(&self.kind, event.namespace(), event.name(), &DeleteOptions::default()).await?;
        }
        Ok(())
    }
}

/// Those that are too old or too many.
fn gone(mut events: Vec<&Object>) -> Vec<&Object> {
    events.sort_by_cached_key(|event| (happened(event), event.name().to_owned()));
    let (oldest, too_many) = (Timestamp::now() - KEPT, events.len().saturating_sub(EVENTS_MAX));
    let all = events.into_iter().enumerate();
    all.filter(|(at, event)| *at < too_many || happened(event) < oldest).map(|(_, event)| event).collect()
}

/// When it happened last. What does not say it is old.
fn happened(event: &Object) -> Timestamp {
    text(&event.value(), "/lastTimestamp").parse().unwrap_or(Timestamp::MIN)
}

/// The time as Kubernetes writes it.
pub(super) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use kubefold_apiserver::{
        BuiltIn, Server,
        storage::{Bounds, Memory},
    };

    use super::*;

    /// Events of a namespace that happened so many minutes ago, one each.
    fn events(namespace: &str, ages_min: impl Iterator<Item = i64>) -> Vec<Value> {
        let event = |(at, age_min): (usize, i64)| {
            let happened = Timestamp::from_second(Timestamp::now().as_second() - age_min * 60).unwrap();
            let happened = happened.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            json!({"metadata": {"name": format!("e{at:05}"), "namespace": namespace}, "lastTimestamp": happened})
        };
        ages_min.enumerate().map(event).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_kept_for_an_hour_and_up_to_a_bound() {
        let kinds = BuiltIn::Only(vec!["events".to_owned()]);
        let storage = Arc::new(Memory::new(Bounds::default()));
        let running = Box::pin(Server::new().built_in(kinds).storage(storage).start()).await.unwrap();
        let registry = running.service().registry().clone();
        let mut recorder = Recorder::new(registry.clone()).unwrap();
        let kind = registry.kind("", "Event").unwrap();
        let names = async |namespace: &str| {
            let listed = registry.list(&kind, namespace, &ListOptions::default()).await.unwrap();
            listed.objects.iter().map(|event| event.name().to_owned()).collect::<Vec<_>>()
        };
        let put = async |events: Vec<Value>| registry.fill(&kind, events.into_iter()).await.unwrap();
        put(events(OWN_NAMESPACE, [0, 59, 61, 600].into_iter())).await;
        recorder.sweep().await.unwrap();
        assert_eq!(names(OWN_NAMESPACE).await, ["e00000", "e00001"]);
        // Those about ShadowResources take no room of those about members. The oldest go.
        let many = i64::try_from(EVENTS_MAX).unwrap() + 3;
        put(events("default", (0..many).map(|at| (many - at) / 60))).await;
        recorder.sweep().await.unwrap();
        assert_eq!(names("default").await.len(), EVENTS_MAX + 3, "it is looked once a minute");
        tokio::time::advance(SWEEP_EVERY).await;
        recorder.sweep().await.unwrap();
        let left = names("default").await;
        assert_eq!((left.len(), left.first().map(String::as_str)), (EVENTS_MAX, Some("e00003")));
        assert_eq!(names(OWN_NAMESPACE).await, ["e00000", "e00001"]);
        running.end().await;
    }

    #[tokio::test]
    async fn what_happens_again_is_one_event_with_a_count() {
        let kinds = BuiltIn::Only(vec!["events".to_owned()]);
        let storage = Arc::new(Memory::new(Bounds::default()));
        let running = Box::pin(Server::new().built_in(kinds).storage(storage).start()).await.unwrap();
        let registry = running.service().registry().clone();
        let recorder = Recorder::new(registry.clone()).unwrap();
        let about = |name: &str, namespace: &str| Referent {
            kind: "ShadowResource",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
        };
        for _ in 0..3 {
            recorder.record(&about("task", "default"), &Told::normal("Ready", "2/2 items are ready")).await.unwrap();
        }
        recorder.record(&about("task", "default"), &Told::warning("Ready", "2/2 items are ready")).await.unwrap();
        recorder.record(&about("east", ""), &Told::normal("Left", "left the fleet")).await.unwrap();
        let kind = registry.kind("", "Event").unwrap();
        let counts = async |namespace: &str| {
            let listed = registry.list(&kind, namespace, &ListOptions::default()).await.unwrap();
            let mut counts: Vec<i64> =
                listed.objects.iter().filter_map(|event| event.value()["count"].as_i64()).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!((counts("default").await, counts(OWN_NAMESPACE).await), (vec![1, 3], vec![1]));
        running.end().await;
    }
}
