//! How many more pods the quotas of a namespace let each member have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    config::MemberName,
    placement::{
        marker::WHOLE_KEY,
        quota::{Hard, Units, is_summed, units_of},
        resources::Resources,
        scheduling::pod_spec,
    },
};
use kubefold_wire::{golang::Quoted, locate::value_at};

/// What the pods of a workload count in quotas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodUsage {
    /// What one pod counts.
    each: Units,
    spec: Value,
}

impl PodUsage {
    /// Reads an object; `None`: its kind makes no pods.
    ///
    /// Source: kubernetes `pkg/quota/v1/evaluator/core/pods.go` `podComputeUsageHelper`.
    pub fn of(group: &str, kind: &str, document: &str) -> Option<Self> {
        let spec = value_at(document, pod_spec(group, kind)?)?;
        let (requests, limits) = (Resources::of_pod(spec), Resources::limits_of_pod(spec));
        let each = [
            ("pods", 1),
            ("count/pods", 1),
            ("cpu", requests.cpu_milli),
            ("requests.cpu", requests.cpu_milli),
            ("memory", requests.memory_bytes),
            ("requests.memory", requests.memory_bytes),
            ("limits.cpu", limits.cpu_milli),
            ("limits.memory", limits.memory_bytes),
        ];
        let each = each.into_iter().filter(|(_, amount)| *amount > 0);
        let each = each.map(|(name, amount)| (name.to_owned(), amount)).collect();
        Some(Self { each, spec: serde_json::from_str(spec).ok()? })
    }

    /// What so many pods count.
    pub fn times(&self, pods: u32) -> Units {
        self.each.iter().map(|(name, each)| (name.clone(), each.saturating_mul(u64::from(pods)))).collect()
    }

    /// Says whether a scope matches the pods.
    ///
    /// Source: kubernetes `pkg/quota/v1/evaluator/core/pods.go` `podMatchesScopeFunc`.
    fn is_in(&self, scope: &Scope) -> bool {
        let has_deadline = self.spec.get("activeDeadlineSeconds").is_some_and(Value::is_number);
        let class = self.spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
        match scope.name.as_str() {
            "Terminating" => has_deadline,
            "NotTerminating" => !has_deadline,
            "BestEffort" => self.is_best_effort(),
            "NotBestEffort" => !self.is_best_effort(),
            "PriorityClass" => match scope.operator.as_str() {
                "In" => scope.values.iter().any(|value| value == class),
                "NotIn" => scope.values.iter().all(|value| value != class),
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            },
            _ => false,
        }
    }

    fn is_best_effort(&self) -> bool {
        !self.each.keys().any(|name| name.ends_with("cpu") || name.ends_with("memory"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Scope {
    #[serde(rename = "scopeName")]
    name: String,
    operator: String,
    values: Vec<String>,
}

/// A quota of a namespace: a part in one or several members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its visible name.
    pub name: String,
    /// The whole, of one whose shares follow what is used.
    whole: Option<Units>,
    scopes: Vec<Scope>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    member: MemberName,
    is_up: bool,
    hard: Units,
    used: Units,
}

impl Quota {
    /// Reads a quota's parts, the home's first. `None`: there are none, or one is no object.
    pub fn of<'p>(
        name: &str,
        parts: impl Iterator<Item = (&'p MemberName, &'p str)>,
        is_up: impl Fn(&MemberName) -> bool,
    ) -> Option<Self> {
        let (mut whole, mut scopes, mut read) = (None, Vec::new(), Vec::new());
        for (member, json) in parts {
            let document: Value = serde_json::from_str(json).ok()?;
            if read.is_empty() {
                whole = whole_of(&document).map(|hard| units_of(Some(&hard.to_json())));
                scopes = scopes_of(&document);
            }
            read.push(Part {
                member: member.clone(),
                is_up: is_up(member),
                hard: units_of(document.pointer("/spec/hard")),
                used: units_of(document.pointer("/status/used")),
            });
        }
        (!read.is_empty()).then(|| Self { name: name.to_owned(), whole, scopes, parts: read })
    }

    /// Says whether it counts these pods.
    pub fn counts(&self, pods: &PodUsage) -> bool {
        self.scopes.iter().all(|scope| pods.is_in(scope))
    }

    /// Says whether a member's share has no room for that much more.
    pub fn is_short(&self, member: &MemberName, asked: &Units) -> bool {
        let of = |units: &Units, name: &String| units.get(name).copied();
        let lacks = |part: &Part, name: &String, asked: u64| {
            let used = of(&part.used, name).unwrap_or(0).saturating_add(asked);
            self.shared_out(name).is_some() && of(&part.hard, name).is_some_and(|hard| used > hard)
        };
        let part = self.parts.iter().find(|part| part.member == *member);
        part.is_some_and(|part| asked.iter().any(|(name, asked)| lacks(part, name, *asked)))
    }

    /// The whole, of which each member has a share.
    fn shared_out(&self, resource: &str) -> Option<u64> {
        self.whole.as_ref()?.get(resource).copied().filter(|_| is_summed(resource))
    }

    /// How many pods it lets a member have, and all together, those of `own` included, which it counts already. `None`: it
    /// does not limit them.
    fn room(&self, part: &Part, pods: &PodUsage, own: &BTreeMap<MemberName, u32>) -> [Option<u32>; 2] {
        let of = |units: &Units, name: &str| units.get(name).copied().unwrap_or(0);
        let own_of = |member: &MemberName| u64::from(own.get(member).copied().unwrap_or(0));
        let fits = |(name, each): (&String, &u64)| {
            let Some(whole) = self.shared_out(name) else {
                let left = part.hard.get(name)?.saturating_sub(of(&part.used, name));
                return Some((false, left.checked_div(*each)?.saturating_add(own_of(&part.member))));
            };
            // What other members do not use it may get. One that is down keeps its share.
            let held = |part: &Part| {
                let used = of(&part.used, name);
                if part.is_up { used } else { used.max(of(&part.hard, name)) }
            };
            let held = self.parts.iter().map(held).fold(0, u64::saturating_add);
            let own = self.parts.iter().map(|part| own_of(&part.member)).fold(0, u64::saturating_add);
            Some((true, whole.saturating_sub(held).checked_div(*each)?.saturating_add(own)))
        };
        let all: Vec<(bool, u64)> = pods.each.iter().filter_map(fits).collect();
        let least = |pods: Option<u64>| pods.map(|pods| u32::try_from(pods).unwrap_or(u32::MAX));
        let together = all.iter().filter(|(is_joint, _)| *is_joint).map(|(_, pods)| *pods).min();
        [least(all.iter().map(|(_, pods)| *pods).min()), least(together)]
    }
}

/// The hard limits as they were written, of a part of a quota that is divided.
pub(super) fn whole_of(document: &Value) -> Option<Hard> {
    let note = document.pointer("/metadata/annotations")?.get(WHOLE_KEY)?.as_str()?;
    let note: Value = serde_json::from_str(note).ok()?;
    note.get("hard")?.as_object().map(Hard::read)
}

fn scopes_of(document: &Value) -> Vec<Scope> {
    let named = document.pointer("/spec/scopes").and_then(Value::as_array).into_iter().flatten();
    let named = named.filter_map(Value::as_str).map(|name| Scope { name: name.to_owned(), ..Scope::default() });
    let selected = document.pointer("/spec/scopeSelector/matchExpressions").cloned().unwrap_or_default();
    let selected: Vec<Scope> = serde_json::from_value(selected).unwrap_or_default();
    named.chain(selected).collect()
}

/// How many pods of a workload the quotas let a member have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// How many, those included that it has.
    pub pods: u32,
    /// How many all members together may have, by quotas that are divided.
    pub together: Option<u32>,
    /// The quota that lets it have the fewest.
    pub quota: String,
}

/// What the quotas of a namespace let each member have of a workload. `own` are the pods that it has already.
///
/// Shape: members that no quota limits are not in it.
pub fn caps(quotas: &[Quota], pods: &PodUsage, own: &BTreeMap<MemberName, u32>) -> BTreeMap<MemberName, Cap> {
    let mut caps: BTreeMap<MemberName, Cap> = BTreeMap::new();
    for quota in quotas.iter().filter(|quota| quota.counts(pods)) {
        for part in &quota.parts {
            let [Some(room), joint] = quota.room(part, pods, own) else { continue };
            let known = caps.get(&part.member);
            let together = known.and_then(|known| known.together).into_iter().chain(joint).min();
            let tightest = known.filter(|known| known.pods <= room).cloned();
            let cap = tightest.unwrap_or_else(|| Cap { pods: room, together, quota: quota.name.clone() });
            caps.insert(part.member.clone(), Cap { together, ..cap });
        }
    }
    caps
}

/// How many pods the quotas have room for, of those that are to be in each member.
pub fn room_for<'c>(numbers: impl IntoIterator<Item = (Option<&'c Cap>, u32)>) -> u32 {
    let (mut sum, mut together) = (0_u32, u32::MAX);
    for (cap, number) in numbers {
        sum = sum.saturating_add(cap.map_or(number, |cap| number.min(cap.pods)));
        together = together.min(cap.and_then(|cap| cap.together).unwrap_or(u32::MAX));
    }
    sum.min(together)
}

/// What a client should know where quotas have room for `fits` pods of `total`: the others wait.
pub fn too_little(caps: &[(&MemberName, &Cap)], total: u32, fits: u32) -> Option<String> {
    let mut quotas: Vec<String> = caps.iter().map(|(_, cap)| Quoted(&cap.quota).to_string()).collect();
    quotas.sort_unstable();
    quotas.dedup();
    (fits < total && !quotas.is_empty()).then(|| {
        let rooms: Vec<String> = caps.iter().map(|(member, cap)| format!("{member}: {}", cap.pods)).collect();
        format!(
            "resourcequota {} has room for {fits} of its {total} pods ({}); the others wait until there is room",
            quotas.join(", "),
            rooms.join(", ")
        )
    })
}
