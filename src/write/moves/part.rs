//! Parts that are to be made, shrunk or waited for.

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        divided::{Division, REPLICAS, Value as Number},
        marker::Marker,
        moved::Moved,
    },
    write::{
        fleet::{Key, Part},
        journal::{Entry, EntryTarget, Listed, Placement, Verb, Wanted},
        request::OWN_MANAGER,
        steps::{Outcome, Seen, mover},
    },
};

/// Why an object stays where it is: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::write) struct Stays(pub(super) String);

impl From<&str> for Stays {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<String> for Stays {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Why a step of a stage was not done.
#[derive(Debug)]
pub(super) enum Problem {
    /// It may have been done: why that is not known.
    Unknown(String),
    /// It was not: why.
    Not(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) | Self::Not(why) => f.write_str(why),
        }
    }
}

/// The members of a placement that is to get parts: those that have one first, in the order of now.
pub(super) fn listed(moved: &Moved, parts: &[Part], wanted: &[Wanted]) -> (Vec<(MemberName, String)>, usize) {
    let has = |cluster: &str| parts.iter().any(|part| part.cluster_uid == cluster);
    let mut members: Vec<_> = moved.members.iter().filter(|(_, cluster)| has(cluster)).cloned().collect();
    for part in wanted {
        if !members.iter().any(|(_, cluster)| *cluster == part.cluster_uid) {
            members.push((part.member.clone(), part.cluster_uid.clone()));
        }
    }
    let made = members.len();
    let others = moved.members.iter().filter(|(_, cluster)| !members.iter().any(|(_, listed)| listed == cluster));
    let others: Vec<_> = others.cloned().collect();
    members.extend(others);
    (members, made)
}

/// The create of further parts of a placement.
pub(super) fn making(placement: &Placement, body: String, marker: &Marker) -> Entry {
    let listed = placement.moved.members.iter().cloned();
    let caller = placement.goal.as_ref().and_then(|goal| goal.caller.clone()).unwrap_or_else(mover);
    Entry {
        query: format!("fieldManager={OWN_MANAGER}"),
        body,
        listed: listed.map(|(member, cluster_uid)| Listed { member, cluster_uid }).collect(),
        policy: marker.policy.clone(),
        place_on: marker.place_on.clone(),
        adopts: marker.adopts.clone(),
        epoch: placement.moved.epoch,
        ..Entry::new(Verb::Create, placement.key.clone(), placement.uid.clone(), caller)
    }
}

/// A part that is to be made.
pub(super) fn target(division: Option<Division>, wanted: &Wanted) -> EntryTarget {
    let value = |number: u32| Some(Number { pointer: field_of(division)?.to_owned(), number: number.into() });
    EntryTarget {
        values: wanted.share.and_then(value).into_iter().chain(wanted.values.iter().cloned()).collect(),
        overrides: wanted.overrides.clone(),
        whole: wanted.whole.clone(),
        ..EntryTarget::new(wanted.member.clone(), wanted.cluster_uid.clone())
    }
}

/// Where the number stands that says how large a part is.
pub(super) fn field_of(division: Option<Division>) -> Option<&'static str> {
    let division = division.filter(|division| division.gains_parts())?;
    division.fields().first().map(|field| field.pointer)
}

/// How large a part is; `None`: nothing of its kind is divided.
pub(super) fn share_of(division: Option<Division>, document: &Bytes) -> Option<u32> {
    let field = field_of(division)?;
    let document: Value = serde_json::from_slice(document).ok()?;
    match document.pointer(field) {
        None | Some(Value::Null) => Some(1),
        Some(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
    }
}

pub(super) fn generation_of(document: &Bytes) -> i64 {
    let document: Value = serde_json::from_slice(document).unwrap_or_default();
    document.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Kinds that say how many of their replicas are available.
const AVAILABLE: [(&str, &str); 4] =
    [("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("", "ReplicationController")];

/// Why a part cannot stand in for another yet. Of one that shrinks only what it is to keep must be available: the rest may
/// have no room.
pub(super) fn unavailable(key: &Key, division: Option<Division>, part: &Part, to: Option<u32>) -> Option<String> {
    let document: Value = serde_json::from_slice(&part.json).ok()?;
    let number = |pointer: &str| document.pointer(pointer).and_then(Value::as_u64);
    if (&*key.gvk.group, &*key.gvk.kind) == ("", "Pod") {
        let conditions = document.pointer("/status/conditions").and_then(Value::as_array);
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let ready = conditions.into_iter().flatten().any(is_ready);
        return (!ready).then(|| format!("it is not ready in member {}", part.member));
    }
    let counter = match division {
        Some(Division::Declared(declared)) => declared.available()?.join("/"),
        _ => {
            AVAILABLE.iter().find(|(group, kind)| (*group, *kind) == (&*key.gvk.group, &*key.gvk.kind))?;
            "availableReplicas".to_owned()
        }
    };
    let own = number(field_of(division).unwrap_or(REPLICAS.pointer)).unwrap_or(1);
    let share = to.map(u64::from).into_iter().chain([own]).min().unwrap_or(0);
    let available = number(&format!("/status/{counter}")).unwrap_or(0);
    // Not every operator says what it has seen.
    let observed = number("/status/observedGeneration");
    let says_nothing = observed.is_none() && matches!(division, Some(Division::Declared(_)));
    let is_observed = says_nothing || observed >= number("/metadata/generation");
    (available < share || !is_observed)
        .then(|| format!("{available} of {share} replicas are available in member {}", part.member))
}

pub(super) fn problem(outcome: &Outcome) -> Problem {
    match outcome {
        Outcome::Unknown(why) => Problem::Unknown(why.clone()),
        outcome => Problem::Not(words(outcome)),
    }
}

/// Why a mutation did not happen.
pub(super) fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { code: StatusCode::FORBIDDEN, body } => format!(
            "{} (deploy/member-rbac.yaml has the rights that moves need)",
            Seen::of(body).message.unwrap_or_default()
        ),
        Outcome::Refused { code, body } => format!("it answered {code} {}", Seen::of(body).message.unwrap_or_default()),
        Outcome::NotSent(cause) | Outcome::Unknown(cause) => cause.clone(),
        Outcome::Done { .. } => String::new(),
    }
}
