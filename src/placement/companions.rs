//! Companions: what goes with a workload, by the shares that the workload's parts have.
//!
//! A PodDisruptionBudget has a part in every member, with what its share of the pods allows; a HorizontalPodAutoscaler has
//! one where its target has a part and its share of the minimum is at least 1; a claim is where the pods are that mount it.
//! What a part says hides what was written. That stands in an annotation of each part, [`WHOLE_KEY`](crate::placement::marker::WHOLE_KEY), and is what the fold
//! reads back.

mod autoscaler;
mod budget;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, value::RawValue};

use crate::{
    config::MemberName,
    placement::{
        divided::{Division, Field, Value as Number},
        marker::Marker,
        quota::Hard,
        scheduling::pod_spec,
    },
};
use kubefold_wire::{
    locate::{Paths, entries},
    matching::ObjectSelector,
};

pub use autoscaler::{Scaled, autoscaler};
pub use budget::{Allowed, Counts, Eviction, allowed, budget, evicts};

/// How many replicas of a workload each member has; a member with a part of none is in it, with 0.
pub type Shares = BTreeMap<MemberName, u32>;

/// A number, a part of all pods, or amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A whole number.
    Number(u32),
    /// `50%`: Units: percent. More than 100 is what Kubernetes refuses.
    Percent(u32),
    /// The hard limits of a quota.
    Amounts(Hard),
}

impl Limit {
    /// What it comes to of that many pods.
    ///
    /// Source: kubernetes `pkg/controller/disruption/disruption.go` `getExpectedPodCount`: both fields round up.
    pub fn of(&self, pods: u32) -> u32 {
        match self {
            Self::Number(number) => *number,
            Self::Percent(percent) => {
                let pods = (u64::from(pods) * u64::from(*percent)).div_ceil(100);
                u32::try_from(pods).unwrap_or(u32::MAX)
            }
            Self::Amounts(_) => 0,
        }
    }

    /// As a document has it.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Percent(percent) => format!("{percent}%").into(),
            Self::Amounts(amounts) => amounts.to_json(),
        }
    }

    /// `None`: Kubernetes would not take it.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => {
                let number = number.as_i64().and_then(|number| i32::try_from(number).ok());
                number.and_then(|number| u32::try_from(number).ok()).map(Self::Number)
            }
            Value::String(text) => text.strip_suffix('%')?.parse().ok().map(Self::Percent),
            Value::Object(amounts) => Some(Self::Amounts(Hard::read(amounts))),
            _ => None,
        }
    }
}

/// The divided fields of a companion: as they were written, or of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits(BTreeMap<&'static str, Limit>);

impl Limits {
    /// Reads a document. An unset field has what Kubernetes makes of it. `None`: a value is none that Kubernetes takes.
    pub fn of(division: Division, document: &Value) -> Option<Self> {
        let mut limits = Self::default();
        for field in division.fields() {
            let limit = match document.pointer(field.pointer).filter(|value| !value.is_null()) {
                None => field.unset.map(Limit::Number),
                Some(value) => Some(Limit::read(value)?),
            };
            limits.set(field, limit);
        }
        Some(limits)
    }

    /// Reads what [`WHOLE_KEY`](crate::placement::marker::WHOLE_KEY) holds.
    pub fn noted(division: Division, note: &str) -> Option<Self> {
        let note: Map<String, Value> = serde_json::from_str(note).ok()?;
        let mut limits = Self::default();
        for (name, value) in &note {
            let field = division.fields().iter().find(|field| field.name() == name)?;
            limits.set(field, Some(Limit::read(value)?));
        }
        Some(limits)
    }

    /// What [`WHOLE_KEY`](crate::placement::marker::WHOLE_KEY) is to hold.
    pub fn to_note(&self) -> String {
        let fields = self.0.iter().map(|(name, limit)| ((*name).to_owned(), limit.to_json()));
        Value::Object(fields.collect()).to_string()
    }

    /// What it says of a field; `None`: nothing.
    pub fn get(&self, field: &Field) -> Option<&Limit> {
        self.0.get(field.name())
    }

    /// The same of the field of that name in `spec`.
    pub fn named(&self, name: &str) -> Option<&Limit> {
        self.0.get(name)
    }

    /// Says something of a field, or nothing.
    pub fn set(&mut self, field: &Field, limit: Option<Limit>) {
        match limit {
            Some(limit) => self.0.insert(field.name(), limit),
            None => self.0.remove(field.name()),
        };
    }

    /// The numbers that a part has for itself, in the order of the fields. What is no number it has as it is written.
    pub fn values(&self, division: Division) -> Vec<Number> {
        let values = |field: &Field| match self.get(field) {
            Some(Limit::Number(number)) => {
                vec![Number { pointer: field.pointer.to_owned(), number: (*number).into() }]
            }
            Some(Limit::Amounts(amounts)) => amounts.values(field),
            Some(Limit::Percent(_)) | None => Vec::new(),
        };
        division.fields().iter().flat_map(values).collect()
    }

    /// The number of a field; `None`: it has none.
    pub fn number(&self, field: &Field) -> Option<u32> {
        match self.get(field)? {
            Limit::Number(number) => Some(*number),
            Limit::Percent(_) | Limit::Amounts(_) => None,
        }
    }
}

/// What a companion is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The pods that a budget selects. `None`: its selector is malformed or absent, and takes none.
    Pods(Option<ObjectSelector>),
    /// What an autoscaler scales. `None`: it says nothing that can be found.
    Target(Option<Target>),
    /// All of its namespace, which a quota limits.
    Namespace,
}

/// `scaleTargetRef`: a workload by its visible name.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    /// `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Visible name.
    pub name: String,
}

impl Subject {
    /// Reads a companion; `None`: the kind is none.
    pub fn of(division: Option<Division>, document: &str) -> Option<Self> {
        let raw = |path: &[&str]| at(document, path);
        match division? {
            Division::Budget => {
                let selector = raw(&["spec", "selector"]).and_then(|raw| serde_json::from_str(raw).ok());
                Some(Self::Pods(selector.as_ref().and_then(ObjectSelector::of)))
            }
            Division::Autoscaler => {
                let target = raw(&["spec", "scaleTargetRef"]).and_then(|raw| serde_json::from_str(raw).ok());
                Some(Self::Target(target))
            }
            Division::Quota => Some(Self::Namespace),
            Division::Replicas | Division::Ordinals | Division::Job | Division::Declared(_) => None,
        }
    }

    /// Says whether a budget selects pods with these labels, a JSON object.
    pub fn selects(&self, labels: &str) -> bool {
        let Self::Pods(Some(selector)) = self else { return false };
        let labels: BTreeMap<String, String> = serde_json::from_str(labels).unwrap_or_default();
        selector.matches(|key| labels.get(key).map(String::as_str))
    }

    /// Says whether an autoscaler scales the workload of that group, kind and name.
    pub fn scales(&self, group: &str, kind: &str, name: &str) -> bool {
        let Self::Target(Some(target)) = self else { return false };
        let of = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        (of, target.kind.as_str(), target.name.as_str()) == (group, kind, name)
    }
}

/// The labels of the pods that an object of the kind makes, or has itself.
pub fn pod_labels<'d>(group: &str, kind: &str, document: &'d str) -> Option<&'d str> {
    let spec = pod_spec(group, kind)?;
    let template = spec.get(..spec.len().saturating_sub(1)).unwrap_or_default();
    let path: Vec<&str> = template.iter().copied().chain(["metadata", "labels"]).collect();
    at(document, &path)
}

/// The claims that the pods of an object of the kind mount.
pub fn claims(group: &str, kind: &str, document: &str) -> Vec<String> {
    let Some(spec) = pod_spec(group, kind) else { return Vec::new() };
    let path: Vec<&str> = spec.iter().copied().chain(["volumes"]).collect();
    let volumes: Vec<&RawValue> =
        at(document, &path).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let claim = |volume: &RawValue| -> Option<String> {
        serde_json::from_str(at(volume.get(), &["persistentVolumeClaim", "claimName"])?).ok()
    };
    let mut claims: Vec<String> = volumes.into_iter().filter_map(claim).collect();
    claims.sort_unstable();
    claims.dedup();
    claims
}

/// `spec.replicas`; 1 where it is unset.
pub fn replicas(document: &str, path: &[&str]) -> u32 {
    at(document, path).and_then(|raw| raw.parse().ok()).unwrap_or(1)
}

/// Says whether the pods of a workload, or a pod, are counted with one of another kind: a Deployment makes ReplicaSets, and adopts
/// those that an earlier one of its name left; workloads make pods.
pub fn is_counted_elsewhere(document: &str, deployments: &[&str]) -> bool {
    let owners: Vec<&RawValue> = at(document, &["metadata", "ownerReferences"])
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_default();
    let is_made = owners.into_iter().any(|owner| {
        let owner = entries(owner.get()).unwrap_or_default();
        owner.iter().any(|entry| entry.name == "kind" && MAKERS.contains(&entry.raw))
    });
    let marker = || Some(Marker::noted(at(document, &["metadata", "annotations"])?)?.1);
    is_made || marker().is_some_and(|of| of.kind == "Deployment" && deployments.contains(&of.name.as_str()))
}

/// Who makes ReplicaSets and pods that budgets select, as JSON.
const MAKERS: [&str; 4] = ["\"Deployment\"", "\"ReplicaSet\"", "\"StatefulSet\"", "\"ReplicationController\""];

fn at<'d>(document: &'d str, path: &[&str]) -> Option<&'d str> {
    let mut found = Vec::new();
    Paths::new([(0, path)]).locate(document, &mut found).ok()?;
    document.get(found.first()?.range.clone())
}
