//! A quota of the fleet: its hard limits are divided over the members, and each member's own admission holds its share.
//!
//! The shares follow what is used. They are changed in steps: no step grows a part by more than what no other part has, so
//! that the shares never come to more than the whole, whatever part of a step reaches its member, and in whatever order.

mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{
    config::MemberName,
    placement::{
        divided::{Amount, Field, Value as Number},
        division::{Climb, climb},
        resources::Resources,
    },
};
use kubefold_wire::{patch::path_of, quantity::Quantity};

pub use room::{Cap, PodUsage, Quota, caps, room_for, too_little};

/// Counted kinds that lie in every member: of these the whole holds in each.
///
/// Source: docs/design/writes.md#strategies; names as kubernetes/apiserver `pkg/quota/v1/generic` counts them.
const IN_EVERY_MEMBER: &[&str] = &[
    "configmaps",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "resourcequotas",
    "count/configmaps",
    "count/secrets",
    "count/services",
    "count/serviceaccounts",
    "count/resourcequotas",
    "count/limitranges",
    "count/ingresses.networking.k8s.io",
    "count/networkpolicies.networking.k8s.io",
    "count/roles.rbac.authorization.k8s.io",
    "count/rolebindings.rbac.authorization.k8s.io",
    "count/poddisruptionbudgets.policy",
    "count/horizontalpodautoscalers.autoscaling",
    "count/daemonsets.apps",
];

/// Says whether the members' counts of a resource add up. Of a kind that every member has they do not: each counts the same
/// objects.
pub fn is_summed(resource: &str) -> bool {
    !IN_EVERY_MEMBER.contains(&resource)
}

/// Amounts by the resource's name. Units: thousandths of a CPU, bytes, or a count.
pub type Units = BTreeMap<String, u64>;

/// Hard limits, as the API writes them, by the resource's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hard(BTreeMap<String, String>);

impl Hard {
    /// Reads `spec.hard`, in the canonical form that a kube-apiserver gives it. What is no quantity stays as it is: its member
    /// refuses it in its own words.
    pub fn read(amounts: &Map<String, Value>) -> Self {
        let amount = |(name, value): (&String, &Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), Quantity::parse(&text).map_or(text, |quantity| quantity.to_string()))
        };
        Self(amounts.iter().map(amount).collect())
    }

    /// As a document has it.
    pub fn to_json(&self) -> Value {
        self.0.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect::<Map<_, _>>().into()
    }

    /// What one resource is limited to.
    pub fn get(&self, resource: &str) -> Option<&str> {
        self.0.get(resource).map(String::as_str)
    }

    /// Says whether it limits a resource to that amount, however that is written.
    pub fn is(&self, resource: &str, value: Option<&Value>) -> bool {
        let quantity = |text: &str| Quantity::parse(text).ok();
        match (self.get(resource), value.and_then(Value::as_str)) {
            (Some(mine), Some(theirs)) => {
                mine == theirs || quantity(mine).is_some_and(|it| Some(it) == quantity(theirs))
            }
            (mine, theirs) => mine == theirs,
        }
    }

    /// The names of what is limited.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is set in a part of these limits, one by one.
    pub fn values(&self, field: &Field) -> Vec<Number> {
        let value = |(name, text): (&String, &String)| {
            let pointer = format!("{}{}", field.pointer, path_of([name]));
            Number { pointer, number: Amount::Quantity(text.clone()) }
        };
        self.0.iter().map(value).collect()
    }

    /// The limits of a member that gets its share later: nothing of what is divided.
    #[must_use]
    pub fn without_shares(&self) -> Self {
        let own = |(name, text): (&String, &String)| {
            let is_divided = is_summed(name) && units(name, text).is_some();
            (name.clone(), if is_divided { "0".to_owned() } else { text.clone() })
        };
        Self(self.0.iter().map(own).collect())
    }
}

/// An amount in units; `None`: it is no quantity, or below zero. What is finer than a unit is dropped.
fn units(resource: &str, text: &str) -> Option<u64> {
    let quantity = Quantity::parse(text).ok().filter(|quantity| !quantity.is_negative())?;
    let (units, is_exact) = if is_cpu(resource) {
        let milli = quantity.milli_value();
        (milli, Quantity::parse(&format!("{milli}m")).ok() == Some(quantity))
    } else {
        (quantity.value(), quantity.is_whole())
    };
    u64::try_from(units).ok().map(|units| if is_exact { units } else { units.saturating_sub(1) })
}

/// All that a map of amounts in a document says. Shape: `status.used`, `status.hard` or `spec.hard` -> units.
pub fn units_of(amounts: Option<&Value>) -> Units {
    let amounts = amounts.and_then(Value::as_object).into_iter().flatten();
    let read = |(name, value): (&String, &Value)| Some((name.clone(), units(name, value.as_str()?)?));
    amounts.filter_map(read).collect()
}

fn is_cpu(resource: &str) -> bool {
    matches!(resource, "cpu" | "requests.cpu" | "limits.cpu")
}

/// An amount as the API writes it, in the style of `like`.
fn text(resource: &str, units: u64, like: &str) -> String {
    if is_cpu(resource) {
        return if units.is_multiple_of(1000) { (units / 1000).to_string() } else { format!("{units}m") };
    }
    let plain = units.to_string();
    if !like.ends_with('i') {
        return Quantity::parse(&plain).map_or(plain, |quantity| quantity.to_string());
    }
    let steps = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut scaled = (units, 0);
    while scaled.0 > 0 && scaled.0.is_multiple_of(1024) && scaled.1 + 1 < steps.len() {
        scaled = (scaled.0 / 1024, scaled.1 + 1);
    }
    format!("{}{}", scaled.0, steps.get(scaled.1).copied().unwrap_or_default())
}

/// What a member's share goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// A weight of the configuration.
    Static(u32),
    /// What is free on its nodes, of each resource its own.
    Free(Resources),
}

impl Weighting {
    fn of(&self, resource: &str) -> u64 {
        match self {
            Self::Static(weight) => u64::from(*weight),
            Self::Free(free) if is_cpu(resource) => free.cpu_milli,
            Self::Free(free) if resource.ends_with("memory") => free.memory_bytes,
            Self::Free(free) => free.pods,
        }
    }
}

/// How much of the shares is divided again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// They are changed as far as they must be.
    #[default]
    Difference,
    /// As if nobody had any.
    Anew,
}

/// A member with a part of a quota, or one that is to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The member.
    pub member: &'a MemberName,
    /// What its share goes by.
    pub weighting: Weighting,
    /// What its part limits when all is done that is under way.
    pub hard: Units,
    /// The most that its member may hold it to now: that, what stands there, and what its controller has still to take in.
    pub given: Units,
    /// What is used there.
    pub used: Units,
    /// What is about to be used there besides.
    pub asked: Units,
    /// It can be changed. Otherwise its share counts as given away until it can.
    pub answers: bool,
}

impl<'a> Holder<'a> {
    /// A member that has nothing of it yet.
    pub fn new(member: &'a MemberName, weighting: Weighting) -> Self {
        let (hard, given, used, asked) = Default::default();
        Self { member, weighting, hard, given, used, asked, answers: true }
    }
}

/// The parts of a quota after one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// In the order of the holders.
    pub hard: Vec<Hard>,
    /// The shares come to the whole. Otherwise a later step grows some, once others have shrunk.
    pub is_whole: bool,
}

/// The next step to the shares of a quota.
///
/// Each member gets at least what it uses, then what is about to be asked of it, then (if only the difference is divided)
/// what it has; what is left is divided by weight. What shrinks does so at once; what grows takes only what no member holds
/// or uses.
///
/// Shape: N holders -> N parts. Whichever of them reach their members, the sum of each divided resource is at most `whole`, or
/// what it was.
pub fn step(whole: &Hard, holders: &[Holder<'_>], extent: Extent, uid: &str) -> Parts {
    let mut hard = vec![Hard::default(); holders.len()];
    let mut is_whole = true;
    for (name, written) in &whole.0 {
        let total = units(name, written).filter(|_| is_summed(name));
        let Some(total) = total else {
            hard.iter_mut().for_each(|part| drop(part.0.insert(name.clone(), written.clone())));
            continue;
        };
        let goal = goal(name, total, holders, extent, uid);
        let next = toward(name, total, holders, &goal);
        is_whole &= next == goal;
        for (part, share) in hard.iter_mut().zip(next) {
            part.0.insert(name.clone(), text(name, share, written));
        }
    }
    Parts { hard, is_whole }
}

/// Where the shares of one resource are to come to.
fn goal(resource: &str, total: u64, holders: &[Holder<'_>], extent: Extent, uid: &str) -> Vec<u64> {
    let of = |units: &Units| units.get(resource).copied();
    let claims = holders.iter().map(|holder| {
        let used = of(&holder.used).unwrap_or(0);
        let weight = holder.weighting.of(resource);
        let (now, given) = (of(&holder.hard), of(&holder.given));
        if let (Some(_), false) = (now, holder.answers) {
            let held = given.unwrap_or(0).max(used);
            return Climb { member: holder.member, weight, levels: [held; 3], is_open: false };
        }
        let least = used.saturating_add(of(&holder.asked).unwrap_or(0));
        let kept = if extent == Extent::Anew { 0 } else { now.unwrap_or(0) };
        Climb { member: holder.member, weight, levels: [used, least, kept], is_open: true }
    });
    climb(total, &claims.collect::<Vec<_>>(), uid)
}

/// The shares of one resource after the next step to the goal.
fn toward(resource: &str, total: u64, holders: &[Holder<'_>], goal: &[u64]) -> Vec<u64> {
    let of = |units: &Units| units.get(resource).copied().unwrap_or(0);
    let left = |held: fn(u64, u64) -> u64| {
        let held = holders.iter().map(|holder| u128::from(held(of(&holder.given), of(&holder.used)))).sum::<u128>();
        u64::try_from(u128::from(total).saturating_sub(held)).unwrap_or(0)
    };
    // Neither what is given away nor what is used may come to more than the whole.
    let (mut ungiven, mut unused) = (left(|given, _| given), left(u64::max));
    let next = |(holder, goal): (&Holder<'_>, &u64)| {
        let (now, given, used) = (of(&holder.hard), of(&holder.given), of(&holder.used));
        if *goal <= now {
            return *goal;
        }
        // What it may hold already it may be said to hold.
        let next = (*goal).min(now.max(given).saturating_add(ungiven)).min(given.max(used).saturating_add(unused));
        ungiven -= next.saturating_sub(now.max(given)).min(ungiven);
        unused -= next.saturating_sub(given.max(used)).min(unused);
        next.max(now)
    };
    holders.iter().zip(goal).map(next).collect()
}

/// All that a part's document and what is under way for it say of what its member may hold it to.
pub fn given(document: &Value, awaited: &Value) -> Units {
    let mut given = Units::new();
    for amounts in [document.pointer("/spec/hard"), awaited.pointer("/spec/hard"), document.pointer("/status/hard")] {
        for (name, amount) in units_of(amounts) {
            let held = given.entry(name).or_default();
            *held = amount.max(*held);
        }
    }
    // What is limited no more is given to nobody.
    let limited: BTreeSet<String> = units_of(awaited.pointer("/spec/hard")).into_keys().collect();
    given.retain(|name, _| limited.contains(name));
    given
}
