//! The status of the logical object.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::placement::{
    companions::{Counts, Eviction, evicts},
    divided::{HARD, Path},
    fold::{
        Summands,
        balancer::{self, Address},
        hide::spliced,
        integer,
        kind::{FoldKind, Polarity},
        quota, values,
    },
};
use kubefold_wire::{
    locate::{Member, entries},
    splice::ObjectEdits,
};

pub(super) const OBSERVED: &str = "observedGeneration";

/// Where the counters of a kind's status stand, and last its observed generation.
pub fn counter_paths(kind: FoldKind) -> impl Iterator<Item = Path> {
    const OBSERVED_PATH: Path = &[OBSERVED];
    kind.counters().iter().copied().chain([OBSERVED_PATH])
}

const CONDITIONS: &str = "conditions";

/// What a fold needs of one part's status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summand {
    /// The kind's counters, in its order, and then the observed generation. What is absent counts nothing.
    pub(super) counters: Vec<i64>,
    conditions: Vec<Condition>,
    /// A number that stands for what the conditions say, apart from times and messages.
    pub(super) said: u64,
    special: Special,
}

/// What only some kinds have.
#[derive(Clone, Debug, Default, PartialEq)]
enum Special {
    #[default]
    Nothing,
    Job(JobTimes),
    /// The current and the updated revision of a StatefulSet.
    Revisions(String, String),
    /// What a quota's part has used.
    Used(Map<String, Value>),
    /// Pods that a budget's part knows are being evicted, and since when.
    Disrupted(Map<String, Value>),
    /// By which addresses a part is reached from outside.
    Addresses(Vec<Address>),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct JobTimes {
    start: Option<String>,
    completion: Option<String>,
    /// Pods that are about to be counted, as JSON strings: succeeded and failed ones.
    uncounted: [Vec<String>; 2],
}

const DISRUPTED: &str = "disruptedPods";
const UNCOUNTED: &str = "uncountedTerminatedPods";
const UNCOUNTED_LISTS: [&str; 2] = ["succeeded", "failed"];

impl Summand {
    /// Reads a status.
    pub(super) fn of(status: &[Member<'_>], kind: FoldKind) -> Self {
        let number = |path: Path| values::at(status, path).and_then(integer).unwrap_or(0);
        let special = match kind {
            FoldKind::Job => Special::Job(JobTimes {
                start: text(status, "startTime"),
                completion: text(status, "completionTime"),
                uncounted: uncounted(status),
            }),
            FoldKind::StatefulSet => text(status, "currentRevision")
                .zip(text(status, "updateRevision"))
                .map_or(Special::Nothing, |(current, update)| Special::Revisions(current, update)),
            FoldKind::ResourceQuota => object(status, "used").map_or(Special::Nothing, Special::Used),
            FoldKind::PodDisruptionBudget => object(status, DISRUPTED).map_or(Special::Nothing, Special::Disrupted),
            FoldKind::Service | FoldKind::Ingress => Special::Addresses(balancer::addresses(status)),
            FoldKind::Deployment
            | FoldKind::ReplicaSet
            | FoldKind::ReplicationController
            | FoldKind::DaemonSet
            | FoldKind::HorizontalPodAutoscaler
            | FoldKind::Other
            | FoldKind::Declared(_) => Special::Nothing,
        };
        let counters = counter_paths(kind).map(number).collect();
        let conditions = conditions_of(status);
        let mut hasher = DefaultHasher::new();
        conditions.iter().for_each(|condition| condition.about.hash(&mut hasher));
        Self { counters, conditions, said: hasher.finish(), special }
    }
}

impl Summand {
    /// Adds to the observed generation, if there is one.
    pub(super) fn observe_more(&mut self, generations: i64) {
        if let Some(observed) = self.counters.last_mut().filter(|observed| **observed > 0) {
            *observed += generations;
        }
    }

    /// Counts no observed generation.
    pub(super) fn forget_observed(&mut self) {
        if let Some(observed) = self.counters.last_mut() {
            *observed = 0;
        }
    }
}

fn uncounted(status: &[Member<'_>]) -> [Vec<String>; 2] {
    let part = raw(status, UNCOUNTED).and_then(|raw| entries(raw).ok()).unwrap_or_default();
    UNCOUNTED_LISTS.map(|key| {
        let pods: Vec<&RawValue> = raw(&part, key).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        pods.into_iter().map(|pod| pod.get().to_owned()).collect()
    })
}

/// Makes the home's status, whose edits these are, that of all. `sum` gives the sums in the order of the counters; of parts
/// whose conditions say the same `firsts` has the first, so that the home is first in it.
pub(super) fn fold(
    home: &mut ObjectEdits<'_>,
    sum: impl Fn(usize) -> i64,
    firsts: &[&Summand],
    parts: &dyn Summands,
    kind: FoldKind,
) {
    // A kind has a status before its controllers have written one: `{}`; one without any is left without.
    let mut counted: Vec<values::Wanted<'_>> = Vec::new();
    for (at, path) in counter_paths(kind).enumerate() {
        let sum = sum(at);
        // Go omits most of these when they are 0; where the home shows a 0 it stays.
        let wanted = sum.to_string();
        if values::at(home.members(), path).map_or(sum != 0, |now| now != wanted) {
            counted.push((path, wanted.into_bytes()));
        }
    }
    values::set(home, counted);
    let written = parts.get(0).and_then(|home| home.whole.as_deref());
    let whole = written.filter(|_| kind == FoldKind::PodDisruptionBudget).map(|whole| evicts(whole, counts(parts)));
    if let Some(whole) = whole {
        budget(home, whole);
    }
    if let Some(conditions) = conditions(firsts, parts, kind, whole) {
        if conditions.is_empty() {
            home.remove(|key| key == CONDITIONS);
        } else {
            home.set(CONDITIONS, format!("[{}]", conditions.join(",")).into_bytes());
        }
    }
    match kind {
        FoldKind::Job => job(home, parts),
        FoldKind::StatefulSet => revisions(home, parts),
        FoldKind::PodDisruptionBudget => disrupted(home, parts),
        FoldKind::ResourceQuota => {
            let used = all(parts).filter_map(|part| match &part.special {
                Special::Used(used) => Some(used),
                _ => None,
            });
            if let Some(used) = quota::used(used) {
                home.set("used", used);
            }
            let hard = written.and_then(|written| written.get(&HARD));
            if let Some(hard) = hard.filter(|_| home.member("hard").is_some()) {
                home.set("hard", hard.to_json().to_string().into_bytes());
            }
        }
        FoldKind::Service | FoldKind::Ingress => balancer::unite(
            home,
            all(parts).filter_map(|part| match &part.special {
                Special::Addresses(addresses) => Some(addresses.as_slice()),
                _ => None,
            }),
        ),
        FoldKind::Deployment
        | FoldKind::ReplicaSet
        | FoldKind::ReplicationController
        | FoldKind::DaemonSet
        | FoldKind::HorizontalPodAutoscaler
        | FoldKind::Other
        | FoldKind::Declared(_) => {}
    }
}

/// What a budget's whole allows and wants, by what its parts count: each of those knows its own share alone.
fn budget(home: &mut ObjectEdits<'_>, whole: Eviction) {
    for (key, number) in [("disruptionsAllowed", whole.allowed), ("desiredHealthy", whole.desired)] {
        // There is none before the controller has judged the budget.
        if home.member(key).is_some() {
            home.set(key, number.to_string().into_bytes());
        }
    }
}

/// A budget knows the pods that are being evicted in any member: each part's controller forgets those that its member does not have.
fn disrupted(home: &mut ObjectEdits<'_>, parts: &dyn Summands) {
    let pods = all(parts).filter_map(|part| match &part.special {
        Special::Disrupted(pods) => Some(pods),
        _ => None,
    });
    let mut united = Map::new();
    for (pod, since) in pods.flatten() {
        united.entry(pod.as_str()).or_insert_with(|| since.clone());
    }
    if !united.is_empty() {
        set(home, DISRUPTED, Value::Object(united).to_string().into_bytes());
    }
}

/// A budget's condition says of the whole whether it allows a disruption.
///
/// Source: kubernetes/component-helpers `apps/poddisruptionbudget/helpers.go` `UpdateDisruptionAllowedCondition`.
fn judged(condition: String, whole: Eviction) -> String {
    let (status, reason) = if whole.allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let Ok(mut edits) = ObjectEdits::new(&condition, 0) else { return condition };
    if edits.member("status").is_some_and(|now| now.raw.trim_matches('"') == status) {
        return condition;
    }
    set_text(&mut edits, "status", status);
    set_text(&mut edits, "reason", reason);
    String::from_utf8(spliced(&condition, edits)).unwrap_or_default()
}

/// In the order of [`FoldKind::counters`].
fn counts(parts: &dyn Summands) -> impl Iterator<Item = Counts> {
    all(parts).map(|part| {
        let count = |at: usize| part.counters.get(at).copied().unwrap_or_default();
        Counts { allowed: count(0), healthy: count(1), desired: count(2), expected: count(3) }
    })
}

fn all(parts: &dyn Summands) -> impl Iterator<Item = &Summand> {
    (0..parts.count()).filter_map(|at| parts.get(at)?.status.as_ref())
}

fn raw<'a>(part: &[Member<'a>], key: &str) -> Option<&'a str> {
    part.iter().find(|entry| entry.name == key).map(|entry| entry.raw).filter(|raw| *raw != "null")
}

fn object(part: &[Member<'_>], key: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(raw(part, key)?).ok()
}

fn text(part: &[Member<'_>], key: &str) -> Option<String> {
    serde_json::from_str(raw(part, key)?).ok()
}

/// One condition of one part.
#[derive(Clone, Debug, PartialEq)]
struct Condition {
    raw: Box<str>,
    about: About,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
struct About {
    r#type: String,
    status: String,
    reason: String,
    observed_generation: Option<i64>,
}

impl Condition {
    /// How far a part is: lower is worse.
    fn rank(&self) -> u8 {
        match &*self.about.status {
            "False" => 0,
            "True" if self.about.r#type == "Progressing" && self.about.reason != "NewReplicaSetAvailable" => 3,
            "True" => 4,
            _ => 1,
        }
    }
}

fn conditions_of(part: &[Member<'_>]) -> Vec<Condition> {
    let elements: Vec<&RawValue> =
        raw(part, CONDITIONS).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    let read = |element: &RawValue| {
        Some(Condition { raw: element.get().into(), about: serde_json::from_str(element.get()).ok()? })
    };
    elements.into_iter().filter_map(read).collect()
}

/// The folded conditions, in the home's order; `None` where they are the home's own bytes.
///
/// `whole` is what a budget comes to.
fn conditions(
    firsts: &[&Summand],
    parts: &dyn Summands,
    kind: FoldKind,
    whole: Option<Eviction>,
) -> Option<Vec<String>> {
    let home = &firsts.first()?.conditions;
    let mut out = Vec::new();
    for condition in home {
        let name = &condition.about.r#type;
        // `None`: a part has not said it yet.
        let said: Vec<Option<&Condition>> =
            firsts.iter().map(|part| part.conditions.iter().find(|other| other.about.r#type == *name)).collect();
        let shown = match kind.polarity(name) {
            Polarity::Home => Some(condition),
            Polarity::Any => {
                Some(said.iter().flatten().find(|other| other.about.status == "True").map_or(condition, |on| on))
            }
            Polarity::All => {
                let worst = said.iter().flatten().min_by_key(|other| other.rank()).copied();
                // What a part has not said does not hold of all.
                worst.filter(|worst| worst.rank() < 2 || said.iter().all(Option::is_some))
            }
        };
        let is_judged = name == "DisruptionAllowed";
        out.extend(shown.map(|shown| observed(shown, parts)).map(|shown| match whole.filter(|_| is_judged) {
            Some(whole) => judged(shown, whole),
            None => shown,
        }));
    }
    // What holds somewhere and the home does not speak of.
    let mut known: Vec<&str> = home.iter().map(|condition| &*condition.about.r#type).collect();
    for other in firsts.iter().skip(1).flat_map(|part| &part.conditions) {
        let name = &*other.about.r#type;
        if kind.polarity(name) == Polarity::Any && other.about.status == "True" && !known.contains(&name) {
            known.push(name);
            out.push(other.raw.to_string());
        }
    }
    let same = out.len() == home.len() && out.iter().zip(home).all(|(shown, home)| **shown == *home.raw);
    (!same).then_some(out)
}

/// A condition that says which generation it is of says so of all parts: `kubectl wait` compares it with the object's.
fn observed(shown: &Condition, parts: &dyn Summands) -> String {
    let About { r#type: name, observed_generation: Some(now), .. } = &shown.about else { return shown.raw.to_string() };
    let said = all(parts).filter_map(|part| part.conditions.iter().find(|other| other.about.r#type == *name));
    let sum = said.filter_map(|part| part.about.observed_generation).fold(0_i64, i64::saturating_add);
    let Ok(mut object) = ObjectEdits::new(&shown.raw, 0) else { return shown.raw.to_string() };
    if sum != *now {
        object.set(OBSERVED, sum.to_string().into_bytes());
    }
    String::from_utf8(spliced(&shown.raw, object)).unwrap_or_default()
}

/// A Job is complete when its last part is, and accounts for the pods of all.
fn job(home: &mut ObjectEdits<'_>, parts: &dyn Summands) {
    let jobs: Vec<&JobTimes> = all(parts)
        .filter_map(|part| match &part.special {
            Special::Job(job) => Some(job),
            _ => None,
        })
        .collect();
    // RFC 3339 in UTC sorts as text.
    if let Some(start) = jobs.iter().filter_map(|job| job.start.as_ref()).min() {
        set_text(home, "startTime", start);
    }
    let ends: Vec<&String> = jobs.iter().filter_map(|job| job.completion.as_ref()).collect();
    match ends.iter().max() {
        Some(end) if ends.len() == parts.count() => set_text(home, "completionTime", end),
        _ if home.member("completionTime").is_some() => home.remove(|key| key == "completionTime"),
        _ => {}
    }
    let listed = |at: usize| {
        let pods = jobs.iter().filter_map(|job| job.uncounted.get(at)).flatten();
        pods.map(String::as_str).collect::<Vec<_>>()
    };
    let said: Vec<String> = UNCOUNTED_LISTS
        .iter()
        .enumerate()
        .map(|(at, key)| (key, listed(at)))
        .filter(|(_, pods)| !pods.is_empty())
        .map(|(key, pods)| format!("\"{key}\":[{}]", pods.join(",")))
        .collect();
    if !said.is_empty() {
        set(home, UNCOUNTED, format!("{{{}}}", said.join(",")).into_bytes());
    }
}

/// A StatefulSet is at its revision when every part is at its own.
fn revisions(home: &mut ObjectEdits<'_>, parts: &dyn Summands) {
    let pair = |part: &Summand| match &part.special {
        Special::Revisions(current, update) if current != update => Some((current.clone(), update.clone())),
        _ => None,
    };
    if all(parts).next().and_then(pair).is_some() {
        return;
    }
    if let Some((current, update)) = all(parts).find_map(pair) {
        set_text(home, "currentRevision", &current);
        set_text(home, "updateRevision", &update);
    }
}

fn set_text(home: &mut ObjectEdits<'_>, key: &str, value: &str) {
    set(home, key, kubefold_wire::splice::string(value));
}

/// Sets what is not so already: bytes that stay are no edit.
fn set(home: &mut ObjectEdits<'_>, key: &str, value: Vec<u8>) {
    if home.member(key).is_none_or(|now| now.raw.as_bytes() != value) {
        home.set(key, value);
    }
}
