//! What happens to members, as Events in kubefold's own namespace.
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

use super::{Referent, object::MemberStatus};
use crate::config::OWN_NAMESPACE;
use kubefold_apiserver::{
    kinds::Kind,
    registry::{DeleteOptions, ListOptions, Object, Registry, WriteOptions},
};
use kubefold_wire::{
    access::text,
    status::{Reason, Status},
};

/// How long one is kept after it happened last.
const KEPT: Duration = Duration::from_hours(1);
/// How many are kept at most. The oldest go first.
const EVENTS_MAX: usize = 2_000;
/// How often the old ones are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// Who reports them.
const REPORTER: &str = "kubefold";

/// Something that happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Normal, or Warning.
    of: &'static str,
    reason: String,
    message: String,
}

impl Told {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { of: "Normal", reason: reason.to_owned(), message: message.into() }
    }

    fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { of: "Warning", reason: reason.to_owned(), message: message.into() }
    }

    /// It is no member any more.
    pub(super) fn left() -> Self {
        Self::normal("Left", "left the fleet")
    }
}

/// What has happened between two states of a member.
pub(super) fn between(before: &MemberStatus, now: &MemberStatus) -> Vec<Told> {
    let mut all = Vec::new();
    let accepted = |status: &MemberStatus| {
        status.condition("Accepted").map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    if let Some(condition) = now.condition("Accepted").filter(|_| accepted(before) != accepted(now)) {
        match condition.status.as_str() {
            "True" => {}
            _ => all.push(Told::warning(&condition.reason, condition.message.clone())),
        }
    }
    match (before.cluster_uid.as_str(), now.cluster_uid.as_str()) {
        (_, "") => {}
        ("", uid) => all.push(Told::normal("Joined", format!("joined the fleet as cluster {uid}"))),
        (was, uid) if was != uid => {
            let message = format!("it is another cluster than before: the UID of kube-system was {was} and is {uid}");
            all.push(Told::warning("IdentityChanged", message));
        }
        _ => {}
    }
    if (&before.state, &before.cause) == (&now.state, &now.cause) {
        return all;
    }
    let was_wrong = matches!(before.state.as_str(), "down" | "degraded");
    match now.state.as_str() {
        "ready" if was_wrong => all.push(Told::normal("Reachable", "it answers again, and is ready")),
        "down" if now.cause.starts_with("same cluster as ") => {
            all.push(Told::warning("SameCluster", now.cause.clone()))
        }
        "down" => all.push(Told::warning("Unreachable", now.cause.clone())),
        "degraded" if now.cause.contains("(401)") => all.push(Told::warning("CredentialRefused", now.cause.clone())),
        "degraded" => all.push(Told::warning("Degraded", now.cause.clone())),
        _ => {}
    }
    all
}

/// Writes Events down, and removes old ones.
pub(super) struct Recorder {
    registry: Registry,
    kind: Arc<Kind>,
    swept: Option<Instant>,
}

impl Recorder {
    /// `None`: the registry has no Events.
    pub(super) fn new(registry: Registry) -> Option<Self> {
        let kind = registry.kind("", "Event")?;
        Some(Self { registry, kind, swept: None })
    }

    /// Writes down what happened to a member.
    ///
    /// Errors: the storage's.
    pub(super) async fn record(&self, member: &Referent, told: &Told) -> Result<(), Status> {
        let mut same = DefaultHasher::new();
        (&member.uid, told.of, &told.reason, &told.message).hash(&mut same);
        let name = format!("{}.{:016x}", member.name, same.finish());
        let now = now();
        let again = |event: &mut Value| {
            let count = event.get("count").and_then(Value::as_i64).unwrap_or(1);
            event["count"] = (count + 1).into();
            event["lastTimestamp"] = now.as_str().into();
            Ok(())
        };
        let options = WriteOptions::default();
        match self.registry.modify_all(&self.kind, OWN_NAMESPACE, &name, &options, again).await {
            Err(status) if status.reason == Reason::NotFound => {}
            other => return other.map(drop),
        }
        let event = json!({
            "metadata": {"name": name, "namespace": OWN_NAMESPACE},
            "involvedObject": member.reference(),
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
        let listed = self.registry.list(&self.kind, OWN_NAMESPACE, &ListOptions::default()).await?;
        let mut all: Vec<(Timestamp, &str)> =
            listed.objects.iter().map(|event| (happened(event), event.name())).collect();
        all.sort_unstable();
        let oldest = Timestamp::now() - KEPT;
        let too_many = all.len().saturating_sub(EVENTS_MAX);
        let gone = all.iter().enumerate().filter(|(at, (last, _))| *at < too_many || *last < oldest);
        for (_, (_, name)) in gone {
            self.registry.delete(&self.kind, OWN_NAMESPACE, name, &DeleteOptions::default()).await?;
        }
        Ok(())
    }
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
    use super::*;
    use crate::own::members::object::Condition;

    fn status(state: &str, cause: &str, uid: &str) -> MemberStatus {
        MemberStatus {
            state: state.to_owned(),
            cause: cause.to_owned(),
            cluster_uid: uid.to_owned(),
            ..MemberStatus::default()
        }
    }

    fn reasons(before: &MemberStatus, now: &MemberStatus) -> Vec<(&'static str, String)> {
        between(before, now).into_iter().map(|told| (told.of, told.reason)).collect()
    }

    #[test]
    fn each_thing_that_happens_to_a_member_has_its_reason() {
        let (new, ready) = (MemberStatus::default(), status("ready", "", "a"));
        let down = status("down", "connection refused", "a");
        let refused = status("degraded", "it refuses kubefold's own credential (401)", "a");
        let warning = |reason: &str| vec![("Warning", reason.to_owned())];
        let normal = |reason: &str| vec![("Normal", reason.to_owned())];
        assert_eq!(reasons(&new, &ready), normal("Joined"));
        assert_eq!(reasons(&ready, &ready), []);
        assert_eq!(reasons(&ready, &down), warning("Unreachable"));
        assert_eq!(reasons(&down, &ready), normal("Reachable"));
        assert_eq!(reasons(&ready, &refused), warning("CredentialRefused"));
        assert_eq!(reasons(&ready, &status("degraded", "not ready (500): etcd", "a")), warning("Degraded"));
        assert_eq!(reasons(&ready, &status("down", "same cluster as west", "a")), warning("SameCluster"));
        assert_eq!(reasons(&ready, &status("ready", "", "b")), warning("IdentityChanged"));
        // A restart of kubefold is nothing that happens to a member.
        assert_eq!(reasons(&ready, &status("unknown", "", "a")), []);
        assert_eq!(reasons(&status("unknown", "", "a"), &ready), []);
        let accepted = |status: &str, reason: &str| MemberStatus {
            conditions: vec![Condition {
                r#type: "Accepted".into(),
                status: status.into(),
                reason: reason.into(),
                ..Condition::default()
            }],
            ..MemberStatus::default()
        };
        assert_eq!(reasons(&new, &accepted("False", "SecretNotFound")), warning("SecretNotFound"));
        assert_eq!(reasons(&accepted("False", "SecretNotFound"), &accepted("True", "Accepted")), []);
    }
}
